"""Checks of ``check.sh`` on this machine."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from oci_cluster.backends.findings import Checked, Finding, fails, fine, refused, unknown
from oci_cluster.backends.local.addresses import Addresses, Ports
from oci_cluster.backends.local.gpus import share_of, share_out
from oci_cluster.contract.cluster import Plan, clusters_dir
from oci_cluster.contract.settings.settings_files import framework_words
from oci_cluster.errors import BackendError, NotPermittedError, SettingsError
from oci_cluster.system.console import Say
from oci_cluster.system.envs.python_env import has_framework, missing_packages, own_venv
from oci_cluster.system.files import is_locked, not_writable
from oci_cluster.system.gpus import VISIBLE

_MB, _GB = 10**6, 10**9
# Measured: a worker of Dask that has done nothing has 64 MB, its agent 19. A node of another framework has more.
_LEAST_NODE = 80 * _MB
# The largest environment, that of PyTorch with NVIDIA's libraries, has 5.4 GB, and pip unpacks beside it.
_ENVIRONMENT = 8 * _GB
# Answers of flock where a file system has no locks: NFS without its lock service, some of FUSE.
_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}


def findings(checked: Checked, say: Say) -> Iterator[Finding]:  # noqa: ARG001 - of every backend
    """Yield what was found of the launch that *checked* is about, item by item."""
    plan = checked.plan
    if plan is None:
        why = "settings are so wrong that this cannot be seen; fix those first"
        yield from (unknown(item, why) for item in ("Python", "memory", "GPUs", "free ports", "file locks"))
        return
    yield _python(plan, checked.root)
    yield _memory(len(plan.nodes))
    yield _gpus(plan, checked.root)
    yield from _free_ports(plan, checked.root)
    yield _locks(_folders(plan, checked.root))


def _python(plan: Plan, root: Path) -> Finding:
    """Return whether nodes have an interpreter with the framework's packages, or can get one."""
    if plan.python:
        try:
            missing = missing_packages(Path(plan.python), framework_words(root / plan.framework, "REQUIRED_PACKAGES"))
        except SettingsError as error:
            return refused("Python", error)
        if missing:
            told = f"{plan.python} lacks {', '.join(missing)}"
            return fails("Python", told, f"{plan.python} -m pip install {' '.join(missing)}")
        return fine("Python", f"{plan.python} has what {plan.framework} needs")
    made = own_venv(root) / "envs" / plan.framework
    try:
        if has_framework(root, root / plan.framework / "env.yaml", plan.settings.get("TORCH", "")):
            return fine("Python", f"the environment of {plan.framework} is there: {made}")
    except NotPermittedError as error:
        return refused("Python", error)
    return _room(made, plan.framework)


def _room(made: Path, framework: str) -> Finding:
    """Return whether the next launch can make the environment *made*."""
    if importlib.util.find_spec("ensurepip") is None:
        told = f"{sys.executable} cannot make an environment for {framework}: it has no ensurepip"
        return fails("Python", told, f"apt install python3-venv python{sys.version_info[0]}.{sys.version_info[1]}-venv")
    place = next(folder for folder in made.parents if folder.exists())
    free = shutil.disk_usage(place).free
    told = f"the next launch makes the environment of {framework} in {made}; {place} has {_size(free)} free"
    if free >= _ENVIRONMENT:
        return fine("Python", told)
    return unknown("Python", f"{told}, and up to {_size(_ENVIRONMENT)} may be needed", f"make room in {place}")


def _memory(nodes: int) -> Finding:
    memory = psutil.virtual_memory()
    each = memory.available // nodes
    told = f"{_size(memory.available)} of {_size(memory.total)} are free: {_size(each)} for each of {nodes} nodes"
    if each >= _LEAST_NODE:
        return fine("memory", told)
    fit = int(memory.available // _LEAST_NODE)
    fix = f"end other programs, or launch with {max(fit - 1, 1)} workers"
    return fails("memory", f"{told}, and the smallest takes {_size(_LEAST_NODE)}", fix)


def _gpus(plan: Plan, root: Path) -> Finding:
    said: list[str] = []
    try:
        placed = share_out(plan, root / plan.framework, os.environ, said.append)
    except SettingsError as error:
        return refused("GPUs", error)
    shares = {node.name: share_of(placed, node).get(VISIBLE) for node in plan.nodes}
    said += [f"{name} {share or 'none'}" for name, share in shares.items() if share is not None]
    return fine("GPUs", ", ".join(said) or "none are shared out: each node sees what this machine has")


def _free_ports(plan: Plan, root: Path) -> Iterator[Finding]:
    """Yield main's ports that are taken, and those that it would have instead."""
    try:
        with Addresses(len(plan.nodes)) as addresses:
            ports = Ports(plan, root / plan.framework, addresses)
            yield from (refused("free ports", problem) for problem in ports.problems)
            if not ports.problems:
                count = len(plan.limits.ports) + len(plan.limits.exposed)
                told = ports.said() or [f"{count} port{'' if count == 1 else 's'} of main on {addresses.texts[0]}"]
                yield fine("free ports", "; ".join(told))
    except BackendError as error:  # no addresses are left
        yield refused("free ports", error)


def _locks(folders: Sequence[Path]) -> Finding:
    """Return whether other programs see a lock in each of *folders*."""
    for folder in folders:
        there = next(path for path in (folder, *folder.parents) if os.path.exists(path))  # noqa: PTH110 - never raises
        try:
            with tempfile.NamedTemporaryFile(dir=there, prefix=".check-") as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_seen = is_locked(Path(held.name))
        except OSError as error:
            if error.errno in _NO_LOCKS:
                told = f"{there} has no file locks: {error.strerror}"
                return fails("file locks", told, "put the checkout, and WORK_DIR, on a disk of this machine")
            return refused("file locks", not_writable(there, error))
        if not is_seen:
            told = f"a lock in {there} holds nobody off"
            return fails("file locks", told, "put the checkout, and WORK_DIR, on a disk of this machine")
    return fine("file locks", f"they work in {', '.join(map(str, folders))}")


def _folders(plan: Plan, root: Path) -> list[Path]:
    own = clusters_dir(root)
    scheme, _, path = plan.work_dir.partition("://")
    return [own, *([Path(path)] if scheme == "file" else [])]


def _size(size: int) -> str:
    return f"{size / _GB:.1f} GB" if size >= _GB else f"{size / _MB:.0f} MB"
