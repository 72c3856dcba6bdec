"""Checks shapes for Jobs and hosts of Compute; people look limits up."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import oci

from oci_cluster.backends.findings import Checked, Finding, Verdict, advice, fails, fine, unknown
from oci_cluster.backends.oci.settings import read_settings
from oci_cluster.backends.oci.tenancy.client import Answer, Tenancy, cli, for_shell
from oci_cluster.backends.oci.tenancy.requirements import Needed, for_people
from oci_cluster.backends.oci.tenancy.shapes import is_flexible, is_gpu, platform_of
from oci_cluster.contract.parsers import parse_bounds

SHAPE, FAST, LIMIT, CAPACITY = "shape there", "fast launch", "service limit", "capacity"
# What is wrong with these settings: then which machines are wanted is not known.
_OF_MACHINES = re.compile(r"([A-Z]+_)?(SHAPE|OCPUS|MEMORY_GBS)")
_IN_CONSOLE = "Console > Governance & Administration > Limits, Quotas and Usage > service Data Science"
# What people may be allowed besides what a launch needs, so that all of this is seen. Source: OCI's documentation of
# capacity reports.
_SEE_HOSTS = "manage compute-capacity-reports in tenancy"
_SEE_DOMAINS = "inspect compartments in tenancy"
_SEE_RESERVATION = "read compute-capacity-reservations in tenancy"


@dataclass(frozen=True)
class Machines:
    """Nodes of one shape and size, OCPUs and GB of each; 0 is unknown."""

    shape: str
    nodes: int
    ocpus: float
    memory_gbs: float


def counted(counts: Mapping[str, int], machines: Mapping[str, Mapping[str, Any]]) -> list[Machines]:
    """Return the nodes of all roles, those of one shape and size together."""
    found: Counter[tuple[str, float, float]] = Counter()
    for role, nodes in counts.items():
        own = machines[role]
        found[own["shape"], own["ocpus"], own["memory_gbs"]] += nodes
    return [Machines(shape, nodes, ocpus, memory_gbs) for (shape, ocpus, memory_gbs), nodes in found.items() if nodes]


def _is_of(one: Machines, shape: str, ocpus: float, memory_gbs: float) -> bool:
    """Return whether *one* is such a machine, as far as its size is known."""
    return one.shape == shape and one.ocpus in {0, ocpus} and one.memory_gbs in {0, memory_gbs}


def findings(checked: Checked, tenancy: Tenancy, needed: Needed) -> Iterator[Finding]:
    """Yield what is found of shapes, limits and hosts."""
    if checked.plan is None:
        yield unknown(LIMIT, "which machines are wanted is not known, as settings are wrong; fix these first")
        return
    settings, problems = read_settings(checked.plan, checked.root)
    if wrong := [problem for problem in problems if _OF_MACHINES.fullmatch(problem.setting)]:
        yield unknown(LIMIT, f"which machines are wanted is not known: {'; '.join(wrong)}")
        return
    counts = Counter(node.role for node in checked.plan.nodes)
    if adapt := checked.plan.environment.get("ADAPT", ""):
        counts["WORKER"] = max(counts["WORKER"], parse_bounds(adapt)[1])
    room = _Room(checked, tenancy, needed)
    machines = yield from room.shapes(counted(counts, settings["machines"]))
    if machines:
        yield room.fast_launch(machines)
        yield room.limits(machines)
    for one in machines:
        yield from room.hosts(one)


class _Room:
    """The room for one launch."""

    def __init__(self, checked: Checked, tenancy: Tenancy, needed: Needed) -> None:
        self._needed = needed
        self._tenancy = tenancy
        self._settings = checked.plan.settings if checked.plan else {}
        self._there: list[str] = []

    def _see(self, *what: str) -> str:
        return "\n".join(["# lets it be seen:", *(for_people(self._needed, one) for one in what)])

    def shapes(self, machines: Sequence[Machines]) -> Generator[Finding, None, list[Machines]]:
        """Yield whether shapes are there; return those that may be, with OCI's sizes."""
        client = self._tenancy.client(oci.data_science.DataScienceClient)
        answer = self._tenancy.ask_all("list the shapes of Jobs", client.list_job_shapes, self._tenancy.places.jobs)
        if not answer.is_given:
            yield unknown(SHAPE, answer.why)
            return list(machines)
        there = {item.name: item for item in answer.value}
        self._there, found = list(there), []
        for one in machines:
            if one.shape in there:
                own = there[one.shape]
                ocpus, memory_gbs = own.core_count or 0, own.memory_in_gbs or 0
                found.append(replace(one, ocpus=one.ocpus or ocpus, memory_gbs=one.memory_gbs or memory_gbs))
        region = self._tenancy.service.region
        for shape in dict.fromkeys(one.shape for one in machines):
            if shape in there:
                yield fine(SHAPE, f"{shape} is there for Jobs in {region}")
            else:
                alike = [name for name in there if is_flexible(name) == is_flexible(shape)] or self._there
                close = [*difflib.get_close_matches(shape, alike, n=1, cutoff=0.0), "<a shape for Jobs>"]
                fix = "\n".join(f"{name}={close[0]}" for name in self._settings_of(shape))
                yield fails(SHAPE, f"{shape} is no shape for Jobs in {region}", fix)
        return found

    def _settings_of(self, shape: str) -> list[str]:
        of_roles = [name for name, text in self._settings.items() if name.endswith("_SHAPE") and text == shape]
        return of_roles or ["SHAPE"]

    def fast_launch(self, machines: Sequence[Machines]) -> Finding:
        """Return whether OCI keeps hosts ready for these machines, and for which it does."""
        request = self._tenancy.client(oci.data_science.DataScienceClient).list_fast_launch_job_configs
        answer = self._tenancy.ask_all("list fast-launch configurations", request, self._tenancy.places.jobs)
        if not answer.is_given:
            return unknown(FAST, answer.why)
        unfit = "REQUIRED" if self._settings.get("SUBNET_OCID") else "UNSUPPORTED"  # OCI's own network, or none of it
        there = {
            (one.shape_name, one.core_count or 0, one.memory_in_gbs or 0)
            for one in answer.value
            if one.managed_egress_support != unfit
        }
        told = []
        for one in machines:
            is_fast = any(_is_of(one, *config) for config in there)
            size = f" with {one.ocpus:g} OCPUs and {one.memory_gbs:g} GB" if one.ocpus and one.memory_gbs else ""
            told.append(f"{one.shape}{size} {'starts fast' if is_fast else 'has to be made ready'}")
        every = ", ".join(f"{shape} ({cores} OCPUs, {memory} GB)" for shape, cores, memory in sorted(there))
        return fine(FAST, f"{'; '.join(told)}; fast-launch configurations: {every or 'none'}")

    def limits(self, machines: Sequence[Machines]) -> Finding:
        """Return how a person looks limits up, which OCI does not tell of shapes."""
        tenancy = self._tenancy
        about, every = {"service_name": "data-science"}, tenancy.id or "<OCID of the tenancy>"
        left = cli("limits resource-availability get", **about, compartment_id=tenancy.places.jobs)
        lines = [
            "# all limits; those of a shape are known by their names:",
            for_shell(cli("limits value list", "--all", **about, compartment_id=every)).replace("'", ""),
            "# what is left of one, quotas counted; with --availability-domain where its scope is AD:",
            f"{for_shell(left)} --limit-name <its name>",
        ]
        nodes = " and ".join(f"{one.nodes} node{'s' * (one.nodes != 1)} of {one.shape}" for one in machines)
        text = f"OCI does not tell which limit of Data Science, or quota, {nodes} would count against"
        also = ", as those of a reservation do, too" if self._settings.get("CAPACITY_RESERVATION_OCID") else ""
        # Nobody ever knows: as unknown, it would hide what somebody may find out behind the same exit code.
        return advice(LIMIT, f"{text}{also}; see {_IN_CONSOLE}", "\n".join(lines))

    def hosts(self, machines: Machines) -> Iterator[Finding]:
        """Yield whether there are hosts: as reserved, else as Compute tells, an indication."""
        if reservation := self._settings.get("CAPACITY_RESERVATION_OCID", ""):
            yield self._reserved(machines, reservation)
            return
        tenancy = self._tenancy
        request = tenancy.identity.list_availability_domains
        domains = tenancy.ask_all("list the availability domains", request, tenancy.id)
        if not domains.is_given:
            yield unknown(CAPACITY, domains.why, self._see(_SEE_DOMAINS, _SEE_HOSTS))
            return
        names = [domain.name for domain in domains.value]
        reports = [self._report([machines], name) for name in names]
        if silent := next((answer for answer in reports if not answer.is_given), None):
            yield unknown(CAPACITY, silent.why, self._see(_SEE_HOSTS))
            return
        found = _judged(machines, _told(reports), len(reports))
        yield replace(found, fix=self._elsewhere(machines, names)) if found.verdict is Verdict.FAILS else found

    def _elsewhere(self, machines: Machines, domains: Sequence[str]) -> str:
        """Return another shape that is told to have hosts, and what else to do."""
        otherwise = "# or another region, or later; or reserve hosts, and set CAPACITY_RESERVATION_OCID"
        others = [other for other in self._others(machines) if other != machines]
        told = _told([self._report(others, name) for name in domains]) if others else []
        for other in others:
            own = [item for item in told if item.instance_shape == other.shape]
            if _judged(other, own, len(domains)).verdict is Verdict.FINE:
                return "\n".join([f"{name}={other.shape}" for name in self._settings_of(machines.shape)] + [otherwise])
        return otherwise.replace("# or another", "# another SHAPE, or another")

    def _others(self, machines: Machines) -> list[Machines]:
        """Return *machines* of other shapes of their kind, the most alike first."""
        near = difflib.get_close_matches(machines.shape, self._there, n=max(len(self._there), 1), cutoff=0.0)
        return [replace(machines, shape=shape) for shape in near if _kind(shape) == _kind(machines.shape)]

    def _report(self, machines: Sequence[Machines], domain: str) -> Answer:
        models, asked = oci.core.models, []
        for one in machines:
            size = models.CapacityReportInstanceShapeConfig(ocpus=one.ocpus, memory_in_gbs=one.memory_gbs)
            about = {"instance_shape_config": size if is_flexible(one.shape) else None}
            asked.append(models.CreateCapacityReportShapeAvailabilityDetails(instance_shape=one.shape, **about))
        details = models.CreateComputeCapacityReportDetails(
            compartment_id=self._tenancy.id,
            availability_domain=domain,
            shape_availabilities=asked,
        )
        request = self._tenancy.client(oci.core.ComputeClient).create_compute_capacity_report
        return self._tenancy.ask(f"ask for hosts for {', '.join(one.shape for one in machines)}", request, details)

    def _reserved(self, machines: Machines, reservation: str) -> Finding:
        request = self._tenancy.client(oci.core.ComputeClient).get_compute_capacity_reservation
        answer = self._tenancy.ask(f"look up CAPACITY_RESERVATION_OCID {reservation}", request, reservation)
        if not answer.is_given:
            return unknown(CAPACITY, answer.why, self._see(_SEE_RESERVATION))
        parts = answer.value.instance_reservation_configs or []
        own = [part for part in parts if part.instance_shape == machines.shape]
        left = sum(int(part.reserved_count or 0) - int(part.used_count or 0) for part in own)
        text = f"{left} of the hosts for {machines.shape} that are reserved in {reservation} are free"
        if left >= machines.nodes:
            return fine(CAPACITY, f"{text}, and {machines.nodes} are wanted")
        fix = "# reserve more: Console > Compute > Capacity Reservations; or leave CAPACITY_RESERVATION_OCID out"
        return fails(CAPACITY, f"{text}, and {machines.nodes} are wanted", fix)


def _kind(shape: str) -> tuple[bool, bool, str]:
    return is_gpu(shape), is_flexible(shape), platform_of(shape)


def _told(reports: Sequence[Answer]) -> list[Any]:
    return [item for report in reports if report.is_given for item in report.value.shape_availabilities or []]


def _judged(machines: Machines, told: Sequence[Any], domains: int) -> Finding:
    """Return what Compute's reports say of *machines*, one for each of the *domains*."""
    where = f"in {domains} availability domain{'s' * (domains != 1)}"
    indication = "an indication: Data Science asks for its hosts itself"
    free = [item for item in told if item.availability_status == "AVAILABLE"]
    statuses = {item.availability_status for item in told}
    if not free:
        if not statuses or not statuses <= {"OUT_OF_HOST_CAPACITY", "HARDWARE_NOT_SUPPORTED"}:
            return unknown(CAPACITY, f"Compute does not tell whether it has hosts for {machines.shape} {where}")
        why = "has no such hardware" if statuses == {"HARDWARE_NOT_SUPPORTED"} else "is out of hosts"
        return fails(CAPACITY, f"Compute {why} for {machines.shape} {where} ({indication})", "")
    counts = [item.available_count for item in free]
    if None in counts:
        text = f"Compute has hosts for {machines.shape} {where}, and does not say how many"
        return fine(CAPACITY, f"{text} ({indication})")
    count = sum(counts)
    text = f"Compute has hosts for {count} nodes of {machines.shape} {where}, and {machines.nodes} are wanted"
    if count >= machines.nodes:
        return fine(CAPACITY, f"{text} ({indication})")
    return unknown(CAPACITY, f"{text}; Data Science asks for its hosts itself, and may get more or fewer")
