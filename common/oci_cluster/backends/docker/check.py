"""Checks of ``check.sh`` where nodes are containers: the engine, and what it has."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from oci_cluster.backends.base import port_is_free
from oci_cluster.backends.docker import commands
from oci_cluster.backends.findings import Checked, Finding, fails, fine, refused, unknown
from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import ClusterError
from oci_cluster.system.console import Say
from oci_cluster.system.engine import Engine, Machine

_GB = 10**9
# Folders that describe NVIDIA's devices to engines; the program that makes docker know them without these.
_CDI = ("/etc/cdi", "/var/run/cdi")
_HOOK = "nvidia-container-runtime-hook"
_GPUS_HERE = Path("/proc/driver/nvidia/gpus")


def findings(checked: Checked, say: Say) -> Iterator[Finding]:  # noqa: ARG001 - of every backend
    """Yield what was found of the launch that *checked* is about, item by item."""
    items = ["engine", "image", "code", "CPUs and memory", "free ports"]
    plan = checked.plan
    if plan is None:
        why = "settings are so wrong that this cannot be seen; fix those first"
        yield from (unknown(item, why) for item in items)
        return
    items += ["GPUs"] if plan.settings.get("GPUS") else []
    engine = Engine(plan.settings.get("DOCKER") or "docker")
    try:
        machine = engine.machine()
    except ClusterError as error:
        yield refused("engine", error)
        yield from (unknown(item, f"the engine '{engine.program}' does not answer") for item in items[1:])
        return
    size = f"{machine.cpus} CPUs, {machine.memory / _GB:.1f} GB"
    yield fine("engine", f"{engine.program} answers, on a machine with {size}")
    yield from _image(plan, checked.root, engine)
    yield _size(plan, machine)
    yield from _ports(plan)
    if plan.settings.get("GPUS"):
        yield _gpus(plan.settings["GPUS"], engine)


def _image(plan: Plan, root: Path, engine: Engine) -> Iterator[Finding]:
    """Yield whether the image is there, and whether its user can read the code."""
    try:
        image, user = commands.image_of(plan, root, engine)
    except ClusterError as error:
        yield refused("image", error)
        yield unknown("code", "who reads it is the user of the image, which is not there")
        return
    yield fine("image", f"{image} is there; its user is {user or 'root'}")
    try:
        placed = commands.place(plan, root, engine)
    except ClusterError as error:
        yield refused("code", error)
    else:
        code = placed.placed["code"]
        yield fine("code", f"{code} is mounted, and can be read" if code else "that of the image")


def _size(plan: Plan, machine: Machine) -> Finding:
    """Return whether each node can get its limits; engines refuse too many CPUs alone."""
    nodes, cpus, memory = len(plan.nodes), plan.settings.get("CPUS", ""), plan.settings.get("MEMORY", "")
    if cpus and float(cpus) > machine.cpus:
        told = f"CPUS={cpus} is more than the {machine.cpus} that the engine's machine has"
        return fails("CPUs and memory", told, f"CPUS={machine.cpus}")
    wanted = commands.memory_bytes(memory) * nodes if memory else 0
    if wanted > machine.memory:
        told = f"{nodes} nodes with MEMORY={memory} may use more than the {machine.memory / _GB:.1f} GB that there are"
        return unknown("CPUs and memory", told, f"MEMORY={machine.memory // nodes}")
    each = f"CPUS={cpus or 'all'}, MEMORY={memory or 'all'}"
    return fine("CPUs and memory", f"{nodes} nodes, each with {each} of the engine's machine")


def _ports(plan: Plan) -> Iterator[Finding]:
    """Yield ports of this machine that are taken and would be main's."""
    published = [int(pair.partition(":")[0]) for pair in plan.settings.get("PUBLISH", "").split()]
    wanted = [*published, *plan.limits.exposed]
    taken = [port for port in wanted if not port_is_free("127.0.0.1", port)]
    for port in taken:
        setting = "PUBLISH" if port in published else "EXPOSE"
        told = f"{setting}: port {port} of 127.0.0.1 is taken by another program"
        yield fails("free ports", told, f"end it, or leave {port} out of {setting}, or choose another number")
    if not taken:
        listed = ", ".join(map(str, wanted))
        yield fine("free ports", f"{listed} of 127.0.0.1 can be main's" if wanted else "none is published")


def _gpus(wanted: str, engine: Engine) -> Finding:
    """Return whether the engine can hand out GPUs, and enough of them."""
    try:
        place, is_told = engine.place(), engine.has_nvidia()
    except ClusterError as error:
        return unknown("GPUs", str(error))
    is_here = place is not None and place.exists()
    described = any(any(Path(folder).glob("*nvidia*")) for folder in _CDI)
    if not (is_told or (is_here and (described or shutil.which(_HOOK)))):
        told = f"GPUS={wanted}: {engine.program} tells of no runtime and no devices of NVIDIA's"
        if not is_here:
            return unknown("GPUs", f"{told}, and its machine is not this one")
        install = "install NVIDIA's container toolkit (nvidia-container-toolkit), then:"
        known = (
            "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
            if engine.is_podman
            else "nvidia-ctk runtime configure --runtime=docker && systemctl restart docker"
        )
        return fails("GPUs", told, f"{install}\n{known}")
    there = len(list(_GPUS_HERE.glob("*"))) if is_here else 0
    if wanted.isdecimal() and there and int(wanted) > there:
        return fails("GPUs", f"GPUS={wanted} is more than the {there} of this machine", f"GPUS={there}")
    return fine("GPUs", f"GPUS={wanted}: {engine.program} knows GPUs of NVIDIA's")
