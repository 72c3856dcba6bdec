"""Which service limits nodes count against, by the names of limits and shapes, and how much of them nodes take.

Nothing here asks anybody. OCI does not say which limit belongs to which shape: only their names tell. That of GPUs in
Data Science is known: ``ds-gpu-a10-count`` for VM.GPU.A10.1 and VM.GPU.A10.2, ``ds-gpu4-count`` for BM.GPU4.8, counted
in GPUs (ADS: ``ads.aqua.ui.AquaUIApp.get_shape_availability``, and its tests). Those of CPUs and memory are taken to be
built like Compute's, with ``ds-`` before them or without it: ``standard-e4-core-count``, ``standard-e4-memory-count``,
``standard-a1-core-regional-count`` (OCI's documentation, Compute Quotas).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

_SHAPE = re.compile(r"(?P<kind>VM|BM)\.(?P<series>[A-Za-z0-9._-]+?)(\.(?P<size>\d+|Flex))?")


class Unit(Enum):
    """What a limit counts."""

    OCPUS = "OCPUs"
    GBS = "GB of memory"
    GPUS = "GPUs"
    NODES = "nodes"


# What is at the end of a limit's name, before -count; without a word it counts GPUs of a GPU shape.
_UNITS = {"core": Unit.OCPUS, "memory": Unit.GBS, "gpu": Unit.GPUS}


@dataclass(frozen=True)
class Machines:
    """Some nodes of one shape and size.

    Attributes:
        shape: Such as ``VM.Standard.E4.Flex``.
        nodes: How many.
        ocpus: OCPUs of each; 0 where they are not known.
        memory_gbs: GB of memory of each; 0 where that is not known.
    """

    shape: str
    nodes: int
    ocpus: float
    memory_gbs: float

    def each(self, unit: Unit) -> float:
        """Return how much of *unit* one of them takes; 0 where that is not known."""
        gpus = gpus_of(self.shape)
        return {Unit.OCPUS: self.ocpus, Unit.GBS: self.memory_gbs, Unit.GPUS: gpus, Unit.NODES: 1}[unit]


def family_of(shape: str) -> str:
    """Return the family of *shape* as limits name it, such as ``standard-e4`` and ``gpu-a10``; empty without one."""
    found = _SHAPE.fullmatch(shape)
    return found["series"].replace("DenseIO", "dense-io").replace(".", "-").lower().strip("-") if found else ""


def gpus_of(shape: str) -> int:
    """Return how many GPUs a node of *shape* has: the number at the end of a GPU shape's name; 0 of all others."""
    found = _SHAPE.fullmatch(shape)
    if not found or not found["series"].startswith("GPU"):
        return 0
    return int(found["size"]) if (found["size"] or "").isdecimal() else 0


def platform_of(shape: str) -> str:
    """Return the platform that images of nodes of *shape* need, as container engines write it.

    Source: OCI's documentation of Compute shapes: those of Ampere (A1, A2, A4) and of Grace (GB200, GB300) are Arm.
    """
    return "linux/arm64" if re.match(r"(VM|BM)\.(Standard\.A\d+|GPU\.GB\d+)(\.|$)", shape) else "linux/amd64"


def unit_of(limit: str, shape: str) -> Unit | None:
    """Return what the *limit* of Data Science counts of nodes of *shape*; None where it is not about that shape.

    A limit of a family whose name does not say what it counts is about no shape: nobody could compare it.
    """
    family = family_of(shape)
    if not family:
        return None
    kind = shape.partition(".")[0].lower()
    end = r"(-(ad|regional))?-count"
    if re.fullmatch(rf"(ds-)?{re.escape(shape.replace('.', '-').lower())}{end}", limit):
        return Unit.NODES
    found = re.fullmatch(rf"(ds-)?({kind}-)?{re.escape(family)}(-(?P<unit>core|memory|gpu))?{end}", limit)
    if not found:
        return None
    return _UNITS[found["unit"]] if found["unit"] else Unit.GPUS if family.startswith("gpu") else None


@dataclass(frozen=True)
class Wanted:
    """What nodes take of one limit.

    Attributes:
        limit: Its name.
        unit: What it counts.
        machines: The nodes that count against it; they can be of several shapes.
    """

    limit: str
    unit: Unit
    machines: tuple[Machines, ...]

    @property
    def amount(self) -> float:
        """How much of it all of them take; 0 where that is not known of one of them."""
        each = [one.nodes * one.each(self.unit) for one in self.machines]
        return sum(each) if all(each) else 0.0


def by_limit(limits: Iterable[str], machines: Sequence[Machines]) -> list[Wanted]:
    """Return what *machines* take of each of the *limits* that are about them."""
    found = []
    for limit in dict.fromkeys(limits):
        units = {one: unit for one in machines if (unit := unit_of(limit, one.shape))}
        if units:
            found.append(Wanted(limit, next(iter(units.values())), tuple(units)))
    return found


def counted(counts: Mapping[str, int], machines: Mapping[str, Mapping[str, object]]) -> list[Machines]:
    """Return the nodes of all roles, those of one shape and size together.

    Args:
        counts: How many nodes each role has.
        machines: The machine of each role, as :func:`settings.settings_of` has it.
    """
    found: dict[tuple[str, float, float], int] = {}
    for role, nodes in counts.items():
        own = machines[role]
        key = str(own["shape"]), float(str(own["ocpus"])), float(str(own["memory_gbs"]))
        found[key] = found.get(key, 0) + nodes
    return [Machines(shape, nodes, ocpus, memory_gbs) for (shape, ocpus, memory_gbs), nodes in found.items() if nodes]
