"""Cgroups of one's own, of either version: made and removed here, mounted and shown as the only ones on a test node."""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path

_TOP = Path("/sys/fs/cgroup")
# What containers are bounded by; on version 2 it must be handed down from the top.
_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
# Leaves of version 2: for what ran before in the topmost cgroup, and for what is a node's and no container's.
_ASIDE, _OWN = "aside", "node"


@dataclass(frozen=True)
class Hierarchy:
    """One mounted tree of cgroups: of version 1 one for each controller, of version 2 one."""

    path: Path
    is_v2: bool

    @property
    def options(self) -> str:
        """What mounts it once more."""
        if self.is_v2:
            return ""
        return "none,name=systemd" if self.path.name == "systemd" else self.path.name


def hierarchies() -> list[Hierarchy]:
    """Return those of this machine."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        kind, path = rest.split()[0], Path(fields.split()[4])
        if kind in {"cgroup", "cgroup2"} and _TOP in {path, path.parent}:
            found.append(Hierarchy(path, kind == "cgroup2"))
    return found


def why_not() -> str:
    """Return what is missing to make cgroups here; empty where nothing is."""
    found = hierarchies()
    if not found:
        return f"needs cgroups below {_TOP}"
    if refused := [str(tree.path) for tree in found if not os.access(tree.path, os.W_OK) or _is_read_only(tree.path)]:
        return f"needs to be allowed to make cgroups in {', '.join(refused)}"
    return ""


def make(name: str) -> list[Path]:
    """Make the cgroup *name* (``a/b`` below ``a``) in every hierarchy; return its directories."""
    places = []
    for tree in hierarchies():
        path = tree.path
        if is_unified(tree):
            _give(path, _ASIDE)
        for part in Path(name).parts:
            path /= part
            path.mkdir(exist_ok=True)
            if tree.path.name == "cpuset" and not tree.is_v2:  # empty at first, and then nothing can run there
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (path / file).write_text((path.parent / file).read_text())
        places.append(path)
    return places


def hand_down(name: str) -> list[Path]:
    """Have cgroups below *name* that bound what is in them; return where all other processes of *name* belong."""
    places = []
    for tree in hierarchies():
        path = tree.path
        for part in Path(name).parts:
            path /= part
            if is_unified(tree):
                _give(path, _OWN)
        places.append(path / _OWN if is_unified(tree) else path)
    return places


def is_unified(tree: Hierarchy) -> bool:
    """Return whether this is version 2 with all controllers, and not what stands beside those of version 1."""
    return tree.is_v2 and tree.path == _TOP


def _give(path: Path, leaf: str) -> None:
    """Give the cgroups below *path* the controllers; where that needs it, its own processes go into a *leaf*.

    Version 2 has processes in leaves alone, but for the machine's topmost cgroup. In a container the topmost that is
    seen is none: what runs there is put aside, as all do that run engines in containers.
    """
    wanted = set((path / "cgroup.controllers").read_text().split()) & set(_CONTROLLERS)
    for controller in wanted - set((path / "cgroup.subtree_control").read_text().split()):
        try:
            (path / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            (path / leaf).mkdir(exist_ok=True)
            for process in (path / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    (path / leaf / "cgroup.procs").write_text(process)
            (path / "cgroup.subtree_control").write_text(f"+{controller}")
    if leaf == _OWN:
        (path / leaf).mkdir(exist_ok=True)


def mounts() -> list[str]:
    """Return the commands that mount this machine's hierarchies in cgroup and mount namespaces of one's own."""
    trees = hierarchies()
    if [tree.path for tree in trees] == [_TOP]:
        return [f"mount -t cgroup2 cgroup2 {_TOP}"]
    commands = [f"mount -t tmpfs -o mode=755 tmpfs {_TOP}"]
    for tree in trees:
        kind = "cgroup2" if tree.is_v2 else f"cgroup -o {tree.options}"
        commands += [f"mkdir {tree.path}", f"mount -t {kind} cgroup {tree.path}"]
    return commands


def remove(name: str) -> None:
    """Remove the cgroup *name* and all below it, once no process is in there."""
    for tree in hierarchies():
        for path, _, _ in os.walk(tree.path / name, topdown=False):
            with contextlib.suppress(OSError):  # counts what a process in there has left in memory, for a moment
                Path(path).rmdir()


def left(prefix: str) -> list[Path]:
    """Return what there is of cgroups whose names begin with *prefix*."""
    return [path for tree in hierarchies() for path in tree.path.glob(f"{prefix}*")]


def _is_read_only(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
