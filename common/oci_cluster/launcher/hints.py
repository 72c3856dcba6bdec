"""What may be a mistake about the world around a script: a line before the start, as nothing would tell it later."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import stat
import struct
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.settings_table import DECIDED


def hints(plan: Plan, environ: Mapping[str, str], cwd: Path) -> list[str]:
    """Return what to know of a launch of *plan* by somebody in *cwd* with this *environ* and this standard input."""
    entry, arguments = plan.environment.get("ENTRY_POINT", ""), json.loads(plan.environment.get("ARGS") or "[]")
    code_dir = Path(plan.environment.get("CODE_DIR") or cwd)
    # Nodes of this machine inherit the environment; others are given what is asked for alone.
    variables = about_variables(environ) if plan.backend == "local" else []
    return [*about_files(arguments, code_dir, entry, cwd), *variables, *about_input()]


def about_files(arguments: Sequence[str], code_dir: Path, entry_point: str, cwd: Path) -> list[str]:
    """Return what to know of *arguments* that are files where the user is, and none where the script runs."""
    names = [text for text in arguments if text and not Path(text).is_absolute() and not text.startswith("-")]
    here = [name for name in names if (cwd / name).exists() and not (code_dir / name).exists()]
    if not here:
        return []
    entry = code_dir / entry_point
    whole = f"--code . --entry {shlex.quote(str(entry.relative_to(cwd)))}" if entry.is_relative_to(cwd) else "--code ."
    listed = ", ".join(f"'{name}'" for name in here)
    return [f"{listed} is here, and the script runs in {code_dir}; have it run here: {whole}"]


def about_variables(environ: Mapping[str, str]) -> list[str]:
    """Return what to know of variables of the user's that every node has for itself; on a node all of them are."""
    names = ", ".join(sorted(name for name in environ if name in DECIDED))
    if not names or "NODE_DIR" in environ:
        return []
    return [f"the script does not see {names} of your environment: each node has its own; choose another name"]


def about_input(descriptor: int = 0) -> list[str]:
    """Return what to know of a standard input that has something to read."""
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISREG(kind):
            size = os.fstat(descriptor).st_size - os.lseek(descriptor, 0, os.SEEK_CUR)
        else:
            waiting = fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)) if stat.S_ISFIFO(kind) else bytes(4)
            (size,) = struct.unpack("i", waiting)
    except OSError:  # it is closed
        return []
    return ["the script reads nothing of this standard input; give it a file in its folder"] if size > 0 else []
