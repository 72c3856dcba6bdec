"""Cgroups of one's own, of either version: made and removed here, mounted and shown as the only ones on a test node."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

_TOP = Path("/sys/fs/cgroup")
# What containers are bounded by; on version 2 it must be handed down from the top.
_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")


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
        if kind in {"cgroup", "cgroup2"} and (path == _TOP or path.parent == _TOP):
            found.append(Hierarchy(path, kind == "cgroup2"))
    return found


def why_not() -> str:
    """Return what is missing to make cgroups here; empty where nothing is."""
    found = hierarchies()
    if not found:
        return f"needs cgroups below {_TOP}"
    if refused := [str(tree.path) for tree in found if not os.access(tree.path, os.W_OK) or _is_read_only(tree.path)]:
        return f"needs to be allowed to make cgroups in {', '.join(refused)}"
    for tree in found:
        if not tree.is_v2 or tree.path != _TOP:
            continue
        missing = set(_CONTROLLERS[:1]) - set((tree.path / "cgroup.subtree_control").read_text().split())
        if missing:
            return f"needs the controllers {', '.join(missing)} in {tree.path}/cgroup.subtree_control"
    return ""


def make(name: str) -> list[Path]:
    """Make the cgroup *name* (``a/b`` below ``a``) in every hierarchy; return where a process of it belongs."""
    places = []
    for tree in hierarchies():
        path = tree.path
        for part in Path(name).parts:
            path /= part
            path.mkdir(exist_ok=True)
            if tree.path.name == "cpuset" and not tree.is_v2:  # empty at first, and then nothing can run there
                for file in ("cpuset.cpus", "cpuset.mems"):
                    (path / file).write_text((path.parent / file).read_text())
        if tree.is_v2 and tree.path == _TOP:
            # Of a cgroup that hands controllers down no process can be: those of the node are in a leaf.
            (path / "node").mkdir(exist_ok=True)
            path /= "node"
        places.append(path)
    return places


def hand_down(name: str) -> None:
    """On version 2, give the cgroups below *name* the controllers; no process may be in *name* itself."""
    for tree in hierarchies():
        if tree.is_v2 and tree.path == _TOP:
            path = tree.path
            for part in Path(name).parts:
                path /= part
                for controller in set((path / "cgroup.controllers").read_text().split()) & set(_CONTROLLERS):
                    (path / "cgroup.subtree_control").write_text(f"+{controller}")


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
