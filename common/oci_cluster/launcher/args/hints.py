"""Warns of what may be a mistake in the world around a script."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from oci_cluster.contract.cluster import Plan

_MOST_BYTES = 1 << 20
# A command of a script, not a word in a comment.
_LAUNCHER = re.compile(
    r"^[ \t]*(?:(?:exec|nohup|time|env|[A-Za-z_]\w*=\S*)[ \t]+)*(?:python[0-9.]*[ \t]+-m[ \t]+)?"
    r"(?P<words>torchrun|accelerate[ \t]+launch|deepspeed|horovodrun|mpirun|torch\.distributed\.(?:run|launch)|"
    r"accelerate\.commands\.launch)\b",
    re.MULTILINE,
)
_OF_LAUNCHERS = {"accelerate launch": " with LAUNCHER=accelerate", "deepspeed": " with LAUNCHER=deepspeed"}
_ADDRESS = re.compile(
    r"""^[ \t]*os\.environ\[["'](?:(?P<master>MASTER_ADDR)["']\]\s*=\s*["'](?:localhost|127\.0\.0\.1)["']"""
    r"""|TF_CONFIG["']\]\s*=)""",
    re.MULTILINE,
)


def hints(plan: Plan, cwd: Path) -> list[str]:
    """Return warnings for a launch of *plan* from *cwd*."""
    entry, arguments = plan.environment.get("ENTRY_POINT", ""), json.loads(plan.environment.get("ARGS") or "[]")
    code_dir = Path(plan.environment.get("CODE_DIR") or cwd)
    ranks = about_ranks(code_dir / entry, plan.framework) if entry and len(plan.nodes) > 1 else []
    return [*about_files(arguments, code_dir, entry, cwd), *ranks]


def about_files(arguments: Sequence[str], code_dir: Path, entry_point: str, cwd: Path) -> list[str]:
    """Warn of *arguments* that are files in *cwd*, and none where the script runs."""
    names = [text for text in arguments if text and not Path(text).is_absolute() and not text.startswith("-")]
    # os.path: what is too long for a name, as a JSON text may be, is none, and no error.
    here = [name for name in names if os.path.exists(cwd / name) and not os.path.exists(code_dir / name)]  # noqa: PTH110
    if not here:
        return []
    entry = code_dir / entry_point
    whole = f"--code . --entry {shlex.quote(str(entry.relative_to(cwd)))}" if entry.is_relative_to(cwd) else "--code ."
    listed = ", ".join(f"'{name}'" for name in here)
    return [f"{listed} is here, and the script runs in {code_dir}; have it run here: {whole}"]


def about_ranks(entry: Path, framework: str) -> list[str]:
    """Warn of an *entry* point that starts ranks itself, or sets an address."""
    try:
        with entry.open("rb") as file:
            text = file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:  # it is elsewhere
        return []
    if entry.suffix == ".py":
        found = _ADDRESS.search(text)
        named = found["master"] or "TF_CONFIG" if found else ""
        return (
            [f"{entry.name} sets {named}, which nodes are given: ranks would not meet; leave it out"] if named else []
        )
    if entry.suffix == ".ipynb" or not (started := _LAUNCHER.search(text)):
        return []
    words = " ".join(started["words"].split())
    how = _OF_LAUNCHERS.get(words, "") if framework == "pytorch" else ""
    instead = f"launch the script that it starts{how}: --entry SCRIPT.py -- ITS ARGUMENTS"
    return [f"{entry.name} starts ranks itself ({words}), on each node for itself; the cluster does that: {instead}"]
