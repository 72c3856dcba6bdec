"""Whether there is room for a launch: its shapes, service limits and quotas of Data Science, and hosts of Compute."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import oci

from oci_cluster.backends.findings import Checked, Finding, Verdict, fails, fine, unknown
from oci_cluster.backends.oci import quotas
from oci_cluster.backends.oci.needed import Needed, for_people
from oci_cluster.backends.oci.settings import read_settings
from oci_cluster.backends.oci.shape_limits import Machines, Unit, Wanted, by_limit, counted, family_of, platform_of
from oci_cluster.backends.oci.tenancy import Answer, Tenancy
from oci_cluster.contract.values import parse_bounds

SHAPE, LIMIT, QUOTA, CAPACITY = "shape there", "service limit", "quota", "capacity"
# What is wrong with these settings: then which machines are wanted is not known.
_OF_MACHINES = re.compile(r"([A-Z]+_)?(SHAPE|OCPUS|MEMORY_GBS)\b")
_IN_CONSOLE = "Console > Governance & Administration > Limits, Quotas and Usage > service Data Science"
# What people may be allowed besides what a launch needs, so that all of this is seen. Source: OCI's documentation, "Let
# a group view service limits" (`inspect` is for lists, `read` for what is left), and of capacity reports.
_SEE_LIMITS = "read resource-availability in tenancy"
_SEE_HOSTS = "manage compute-capacity-reports in tenancy"
_SEE_DOMAINS = "inspect compartments in tenancy"
_SEE_RESERVATION = "read compute-capacity-reservations in tenancy"


def findings(checked: Checked, tenancy: Tenancy, needed: Needed) -> Iterator[Finding]:
    """Yield what is found of shapes, limits, quotas and hosts for the launch that is *checked*."""
    if checked.plan is None:
        yield unknown(LIMIT, "which machines are wanted is not known, as settings are wrong; mend these first")
        return
    settings, problems = read_settings(checked.plan, checked.root)
    if wrong := [text for text in problems if _OF_MACHINES.match(text)]:
        yield unknown(LIMIT, f"which machines are wanted is not known: {'; '.join(wrong)}")
        return
    counts = Counter(node.role for node in checked.plan.nodes)
    if adapt := checked.plan.environment.get("ADAPT", ""):
        counts["WORKER"] = max(counts["WORKER"], parse_bounds(adapt)[1])
    room = _Room(checked, tenancy, needed)
    machines = yield from room.shapes(counted(counts, settings["machines"]))
    yield from room.limits(machines)
    for one in machines:
        yield from room.hosts(one)


@dataclass(frozen=True)
class _Left:
    """What is left of a limit in a place; None where OCI does not tell, and then *why*.

    Attributes:
        place: An availability domain; empty: the region.
        value: The limit itself.
        amount: What is left of it.
        quota: What quotas leave of it in the compartment of the Jobs; None where there is no quota.
        used: What the compartment uses of it.
        why: Why nothing is known.
        mend: What lets it be known.
    """

    place: str
    value: float
    amount: float | None = None
    quota: float | None = None
    used: float = 0.0
    why: str = ""
    mend: str = ""


class _Room:
    """What there is for one launch."""

    def __init__(self, checked: Checked, tenancy: Tenancy, needed: Needed) -> None:
        self._checked = checked
        self._needed = needed
        self._tenancy = tenancy
        self._settings = checked.plan.settings if checked.plan else {}
        self._there: list[str] = []
        self._is_adaptive = bool(checked.plan and checked.plan.environment.get("ADAPT"))

    def _see(self, *what: str) -> str:
        return "\n".join(["# lets it be seen:", *(for_people(self._needed, one) for one in what)])

    # --- Shapes

    def shapes(self, machines: Sequence[Machines]) -> Generator[Finding, None, list[Machines]]:
        """Yield whether the shapes of *machines* are there; return those that may be, with the sizes that OCI tells."""
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
                yield fails(SHAPE, f"{shape} is no shape for Jobs in {region}", self._other_shape(shape))
        return found

    def _other_shape(self, shape: str) -> str:
        alike = [name for name in self._there if name.endswith(".Flex") == shape.endswith(".Flex")] or self._there
        close = [*difflib.get_close_matches(shape, alike, n=1, cutoff=0.0), "<a shape for Jobs>"]
        return "\n".join(f"{name}={close[0]}" for name in self._settings_of(shape))

    def _settings_of(self, shape: str) -> list[str]:
        """Return the settings that say *shape*."""
        of_roles = [name for name, text in self._settings.items() if name.endswith("_SHAPE") and text == shape]
        return of_roles or ["SHAPE"]

    # --- Limits and quotas

    def limits(self, machines: Sequence[Machines]) -> Iterator[Finding]:
        """Yield whether limits, and quotas, leave room for *machines*."""
        tenancy = self._tenancy
        if not machines:
            return
        client = tenancy.client(oci.limits.LimitsClient)
        listed = tenancy.ask_all(
            "list the limits of Data Science", client.list_limit_values, tenancy.id, quotas.SERVICE
        )
        if not listed.is_given:
            yield unknown(LIMIT, listed.why, self._see(_SEE_LIMITS))
            return
        rows: dict[str, list[_Left]] = {}
        for item in listed.value:
            rows.setdefault(item.name, []).append(_Left(item.availability_domain or "", item.value or 0))
        wanted = by_limit(rows, machines)
        for one in machines:
            if not any(one in own.machines and own.unit is not Unit.GBS for own in wanted):
                yield unknown(
                    LIMIT,
                    f"none of the {len(rows)} limits of Data Science names {one.shape} by its family "
                    f"'{family_of(one.shape)}' and says what it counts; look at {_IN_CONSOLE}",
                )
        for own in wanted:
            yield from self._of_limit(own, [self._look(own.limit, row) for row in rows[own.limit]])

    def _look(self, limit: str, row: _Left) -> _Left:
        """Return *row* with what is left there."""
        if not row.value:
            return replace(row, amount=0.0)
        tenancy = self._tenancy
        client = tenancy.client(oci.limits.LimitsClient)
        place = {"availability_domain": row.place} if row.place else {}
        what = f"look up what is left of {limit}"
        answer = tenancy.ask(
            what, client.get_resource_availability, quotas.SERVICE, limit, tenancy.places.jobs, **place
        )
        if not answer.is_given:
            return replace(row, why=answer.why, mend=self._see(_SEE_LIMITS))
        told = answer.value
        used = told.used or 0.0
        quota = None if told.effective_quota_value is None else max(told.effective_quota_value - used, 0.0)
        why = "" if told.available is not None else f"OCI does not tell what is left of {limit}"
        return replace(row, amount=told.available, quota=quota, used=used, why=why)

    def _of_limit(self, wanted: Wanted, rows: Sequence[_Left]) -> Iterator[Finding]:
        need, name = wanted.amount, wanted.limit
        if not need:
            text = f"{name} counts {wanted.unit.value}, and how many a node has is not known: {_nodes(wanted)}"
            yield unknown(LIMIT, text)
            return
        take = f"{_nodes(wanted)} {'take' if _count(wanted) > 1 else 'takes'} {need:g} {wanted.unit.value}"
        capped = [row.quota for row in rows if row.quota is not None]
        value = sum(row.value for row in rows)
        if len(capped) == len(rows) and sum(capped) < need <= value:
            yield self._quota_fails(wanted, rows, take)
            return
        lefts = [row.amount for row in rows if row.amount is not None]
        best, where = max(lefts, default=0.0), _places(rows)
        if value < need or (len(lefts) == len(rows) and sum(lefts) < need):
            left = min(sum(lefts), value) if len(lefts) == len(rows) else value
            text = f"{take}, and {name} leaves {left:g} of {value:g}{where}"
            yield fails(LIMIT, text, self._more(wanted, value - left + need, best))
        elif best >= need:
            yield fine(LIMIT, f"{take}, and {name} leaves {sum(lefts):g} of {value:g}{where}")
        elif len(lefts) < len(rows):
            row = next(row for row in rows if row.amount is None)
            yield unknown(LIMIT, f"{take} of {value:g} that {name} allows{where}: {row.why}", row.mend)
        else:
            text = f"{take}, and {name} leaves {sum(lefts):g}{where}, {best:g} in one of them at most"
            yield unknown(LIMIT, f"{text}: in which of them nodes are placed is not told")
        if capped and len(capped) == len(rows):
            yield fine(QUOTA, f"{take}, and quotas on {name} leave {sum(capped):g} in the compartment of the Jobs")

    def _quota_fails(self, wanted: Wanted, rows: Sequence[_Left], take: str) -> Finding:
        left = sum(row.quota or 0.0 for row in rows)
        at_least, place = sum(row.used for row in rows) + wanted.amount, quotas.place_of(self._tenancy)
        lines = [*quotas.more(self._tenancy, wanted.limit, at_least, place), *self._fewer(wanted, left)]
        text = f"{take}, and quotas on {wanted.limit} leave {left:g} in {place}"
        return fails(QUOTA, text, "\n".join(lines))

    def _more(self, wanted: Wanted, at_least: float, best: float) -> str:
        ask = f"# {_IN_CONSOLE} > {wanted.limit} > Request a service limit increase, to at least {at_least:g}"
        return "\n".join([ask, *self._fewer(wanted, best)])

    def _fewer(self, wanted: Wanted, left: float) -> list[str]:
        """Return what to launch within what is *left*: fewer workers, where all nodes have one machine."""
        workers = -1
        if len(wanted.machines) == 1 and not self._is_adaptive:
            (one,) = wanted.machines
            workers = self._checked.workers - one.nodes + int(left // one.each(wanted.unit))
        if workers < 0:
            return ["# or set another SHAPE"]
        return ["# or fewer workers, or another SHAPE:", f"./scripts/launch.sh {self._checked.framework} {workers}"]

    # --- Hosts

    def hosts(self, machines: Machines) -> Iterator[Finding]:
        """Yield whether there are hosts for *machines*: as reserved, else as Compute tells, which is an indication."""
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
        yield replace(found, mend=self._elsewhere(machines, names)) if found.verdict is Verdict.FAILS else found

    def _elsewhere(self, machines: Machines, domains: Sequence[str]) -> str:
        """Return what else to do where there are no hosts for *machines*: another shape that is told to have some."""
        otherwise = "# or another region, or later; or reserve hosts, and set CAPACITY_RESERVATION_OCID"
        others = [other for other in self._others(machines) if other != machines]
        told = _told([self._report(others, name) for name in domains]) if others else []
        for other in others:
            own = [item for item in told if item.instance_shape == other.shape]
            if _judged(other, own, len(domains)).verdict is Verdict.FINE:
                return "\n".join([f"{name}={other.shape}" for name in self._settings_of(machines.shape)] + [otherwise])
        return otherwise.replace("# or another", "# another SHAPE, or another")

    def _others(self, machines: Machines) -> list[Machines]:
        """Return what *machines* could be instead: of other shapes of their kind, flexible as they are."""
        alike = (family_of(machines.shape).startswith("gpu"), machines.shape.endswith(".Flex"))
        near = difflib.get_close_matches(machines.shape, self._there, n=max(len(self._there), 1), cutoff=0.0)
        return [
            replace(machines, shape=shape)
            for shape in near
            if (family_of(shape).startswith("gpu"), shape.endswith(".Flex")) == alike
            and platform_of(shape) == platform_of(machines.shape)
        ]

    def _report(self, machines: Sequence[Machines], domain: str) -> Answer:
        models = oci.core.models
        details = models.CreateComputeCapacityReportDetails(
            compartment_id=self._tenancy.id,
            availability_domain=domain,
            shape_availabilities=[_as_asked(one) for one in machines],
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
        mend = "# reserve more: Console > Compute > Capacity Reservations; or leave CAPACITY_RESERVATION_OCID out"
        return fails(CAPACITY, f"{text}, and {machines.nodes} are wanted", mend)


def _as_asked(machines: Machines) -> Any:
    models = oci.core.models
    size = models.CapacityReportInstanceShapeConfig(ocpus=machines.ocpus, memory_in_gbs=machines.memory_gbs)
    return models.CreateCapacityReportShapeAvailabilityDetails(
        instance_shape=machines.shape, instance_shape_config=size if machines.shape.endswith(".Flex") else None
    )


def _told(reports: Sequence[Answer]) -> list[Any]:
    return [item for report in reports if report.is_given for item in report.value.shape_availabilities or []]


def _judged(machines: Machines, told: Sequence[Any], domains: int) -> Finding:
    """Return what Compute's reports say of *machines*, one of each of so many *domains*."""
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


def _count(wanted: Wanted) -> int:
    return sum(one.nodes for one in wanted.machines)


def _nodes(wanted: Wanted) -> str:
    """Return the nodes of *wanted* in words: ``4 nodes of VM.GPU.A10.1``."""
    return " and ".join(f"{one.nodes} node{'s' * (one.nodes != 1)} of {one.shape}" for one in wanted.machines)


def _places(rows: Sequence[_Left]) -> str:
    places = [row.place for row in rows if row.place]
    if len(places) > 1:
        return f" in {len(places)} availability domains"
    return f" in {places[0]}" if places else ""
