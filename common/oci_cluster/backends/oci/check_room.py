"""Whether there is room for a launch: its shapes, service limits and quotas of Data Science, and hosts of Compute."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import oci

from oci_cluster.backends.findings import Checked, Finding, fails, fine, unknown
from oci_cluster.backends.oci.looking import Tenancy
from oci_cluster.backends.oci.settings import read_settings
from oci_cluster.backends.oci.shape_limits import Machines, Unit, Wanted, by_limit, counted, family_of
from oci_cluster.contract.values import parse_bounds

SHAPE, LIMIT, QUOTA, CAPACITY = "shape there", "service limit", "quota", "capacity"
# Source: OCI's list of services with limits (`oci limits service list`), as ADS names it: DATA_SCIENCE_SERVICE_NAME.
_SERVICE = "data-science"
# What is wrong with these settings: then which machines are wanted is not known.
_OF_MACHINES = re.compile(r"([A-Z]+_)?(SHAPE|OCPUS|MEMORY_GBS)\b")
_IN_CONSOLE = "Console > Governance & Administration > Limits, Quotas and Usage > service Data Science"
# Source: OCI's documentation: "Let a group view service limits"; the resource type's `read` has what is left of one.
_SEE_LIMITS = "to have it looked at: allow group <yours> to read resource-availability in tenancy"
# Source: OCI's documentation of capacity reports.
_SEE_HOSTS = "to have it looked at: allow group <yours> to manage compute-capacity-reports in tenancy"
_SEE_RESERVATION = (
    "to have it looked at: allow group <yours> to read compute-capacity-reservations in compartment <its name>"
)


def findings(checked: Checked, tenancy: Tenancy) -> Iterator[Finding]:
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
    room = _Room(checked, tenancy)
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

    def __init__(self, checked: Checked, tenancy: Tenancy) -> None:
        self._checked = checked
        self._tenancy = tenancy
        self._settings = checked.plan.settings if checked.plan else {}
        self._is_adaptive = bool(checked.plan and checked.plan.environment.get("ADAPT"))

    # --- Shapes

    def shapes(self, machines: Sequence[Machines]) -> Generator[Finding, None, list[Machines]]:
        """Yield whether the shapes of *machines* are there; return those that may be, with the sizes that OCI tells."""
        client = self._tenancy.client(oci.data_science.DataScienceClient)
        answer = self._tenancy.ask_all("list the shapes of Jobs", client.list_job_shapes, self._tenancy.places.jobs)
        if not answer.is_given:
            yield unknown(SHAPE, answer.why)
            return list(machines)
        there = {item.name: item for item in answer.value}
        found = []
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
                yield fails(SHAPE, f"{shape} is no shape for Jobs in {region}", self._other_shape(shape, [*there]))
        return found

    def _other_shape(self, shape: str, there: Sequence[str]) -> str:
        alike = [name for name in there if name.endswith(".Flex") == shape.endswith(".Flex")] or there
        close = difflib.get_close_matches(shape, alike, n=1, cutoff=0.0)
        roles = [name for name, text in self._settings.items() if name.endswith("_SHAPE") and text == shape]
        names = roles or ["SHAPE"]
        return "\n".join(f"{name}={close[0] if close else '<a shape for Jobs>'}" for name in names)

    # --- Limits and quotas

    def limits(self, machines: Sequence[Machines]) -> Iterator[Finding]:
        """Yield whether limits, and quotas, leave room for *machines*."""
        tenancy = self._tenancy
        if not machines:
            return
        client = tenancy.client(oci.limits.LimitsClient)
        listed = tenancy.ask_all("list the limits of Data Science", client.list_limit_values, tenancy.id, _SERVICE)
        if not listed.is_given:
            yield unknown(LIMIT, listed.why, _SEE_LIMITS)
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
        answer = tenancy.ask(what, client.get_resource_availability, _SERVICE, limit, tenancy.places.jobs, **place)
        if not answer.is_given:
            return replace(row, why=answer.why, mend=_SEE_LIMITS)
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
        quotas = [row.quota for row in rows if row.quota is not None]
        value = sum(row.value for row in rows)
        if len(quotas) == len(rows) and sum(quotas) < need <= value:
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
        if quotas and len(quotas) == len(rows):
            yield fine(QUOTA, f"{take}, and quotas on {name} leave {sum(quotas):g} in the compartment of the Jobs")

    def _quota_fails(self, wanted: Wanted, rows: Sequence[_Left], take: str) -> Finding:
        left = sum(row.quota or 0.0 for row in rows)
        at_least = sum(row.used for row in rows) + wanted.amount
        home = self._tenancy.compartment(self._tenancy.places.jobs)
        compartment = home.value.name if home.is_given else "<its name>"
        own = f"set {_SERVICE} quota {wanted.limit} to {at_least:g} in compartment {compartment}"
        console = "an administrator adds it behind all others: Console > Governance & Administration > Quota Policies"
        mend = "\n".join([own, f"({console})", *self._fewer(wanted, left)])
        return fails(QUOTA, f"{take}, and quotas on {wanted.limit} leave {left:g} in compartment {compartment}", mend)

    def _more(self, wanted: Wanted, at_least: float, best: float) -> str:
        ask = f"{_IN_CONSOLE} > {wanted.limit} > Request a service limit increase to at least {at_least:g}"
        return "\n".join([ask, *self._fewer(wanted, best)])

    def _fewer(self, wanted: Wanted, left: float) -> list[str]:
        """Return what to launch within what is *left*: fewer workers, where all nodes have one machine."""
        if len(wanted.machines) > 1 or self._is_adaptive:
            return ["or choose another SHAPE"]
        (one,) = wanted.machines
        workers = self._checked.workers - one.nodes + int(left // one.each(wanted.unit))
        less = [f"or fewer workers: ./scripts/launch.sh {self._checked.framework} {workers}"] if workers > 0 else []
        return [*less, "or choose another SHAPE"]

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
            yield unknown(CAPACITY, domains.why)
            return
        reports = {domain.name: self._report(machines, domain.name) for domain in domains.value}
        if silent := next((answer for answer in reports.values() if not answer.is_given), None):
            yield unknown(CAPACITY, silent.why, _SEE_HOSTS)
            return
        told = [item for answer in reports.values() for item in answer.value.shape_availabilities or []]
        yield _judged(machines, told, len(reports))

    def _report(self, machines: Machines, domain: str) -> Any:
        models = oci.core.models
        size = models.CapacityReportInstanceShapeConfig(ocpus=machines.ocpus, memory_in_gbs=machines.memory_gbs)
        of_shape = models.CreateCapacityReportShapeAvailabilityDetails(
            instance_shape=machines.shape,
            instance_shape_config=size if machines.shape.endswith(".Flex") else None,
        )
        details = models.CreateComputeCapacityReportDetails(
            compartment_id=self._tenancy.id, availability_domain=domain, shape_availabilities=[of_shape]
        )
        request = self._tenancy.client(oci.core.ComputeClient).create_compute_capacity_report
        return self._tenancy.ask(f"ask for hosts for {machines.shape}", request, details)

    def _reserved(self, machines: Machines, reservation: str) -> Finding:
        request = self._tenancy.client(oci.core.ComputeClient).get_compute_capacity_reservation
        answer = self._tenancy.ask(f"look up CAPACITY_RESERVATION_OCID {reservation}", request, reservation)
        if not answer.is_given:
            return unknown(CAPACITY, answer.why, _SEE_RESERVATION)
        parts = answer.value.instance_reservation_configs or []
        own = [part for part in parts if part.instance_shape == machines.shape]
        left = sum(int(part.reserved_count or 0) - int(part.used_count or 0) for part in own)
        text = f"{left} of the hosts for {machines.shape} that are reserved in {reservation} are free"
        if left >= machines.nodes:
            return fine(CAPACITY, f"{text}, and {machines.nodes} are wanted")
        mend = "reserve more: Console > Compute > Capacity Reservations; or leave CAPACITY_RESERVATION_OCID out"
        return fails(CAPACITY, f"{text}, and {machines.nodes} are wanted", mend)


def _judged(machines: Machines, told: Sequence[Any], domains: int) -> Finding:
    """Return what Compute's reports say of *machines*, one of each of so many *domains*."""
    where = f"in {domains} availability domain{'s' * (domains != 1)}"
    indication = "an indication: Data Science asks for its hosts itself"
    free = [item for item in told if item.availability_status == "AVAILABLE"]
    statuses = {item.availability_status for item in told}
    if not free:
        if not statuses or not statuses <= {"OUT_OF_HOST_CAPACITY", "HARDWARE_NOT_SUPPORTED"}:
            return unknown(CAPACITY, f"Compute does not tell whether it has hosts for {machines.shape} {where}")
        is_elsewhere = statuses == {"HARDWARE_NOT_SUPPORTED"}
        why = "has no such hardware" if is_elsewhere else "is out of hosts"
        mend = "choose another SHAPE or another region, or reserve hosts and set CAPACITY_RESERVATION_OCID"
        mend += "" if is_elsewhere else "; or try again later"
        return fails(CAPACITY, f"Compute {why} for {machines.shape} {where} ({indication})", mend)
    counts = [item.available_count for item in free]
    if None in counts:
        return fine(
            CAPACITY, f"Compute has hosts for {machines.shape} {where}, it does not say how many ({indication})"
        )
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
