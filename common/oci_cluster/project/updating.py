"""``update.sh``: a newer version of the templates, three-way with what came and what the project has made of it."""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oci_cluster.errors import ClusterError, ExitCode, SettingsError
from oci_cluster.project.files import File, Files, alone, check_way, put, read_file
from oci_cluster.project.merging import CONFLICT, is_marked, merge, same
from oci_cluster.project.sources import locks_of, open_source
from oci_cluster.project.wheel import (
    FOLDER,
    frameworks_of,
    is_placed,
    pack,
    read_wheel,
    replace_wheel,
    vendored,
    version_of,
)
from oci_cluster.system.console import Say
from oci_cluster.system.text import printable

TEMPLATES = "scripts/templates/project"
README = f"{TEMPLATES}/README.md"
# What new.sh puts where nothing of the name is, each with what it is: followed where nobody has edited it.
_STARTERS = {".dockerignore": ".dockerignore", "README.md": README, "CLUSTERS.md": README}


@dataclass
class _Plan:
    """What is to be done: *changes* with what is there now, in their order; what of it is shown; who needs a person."""

    root: Path
    changes: list[tuple[str, File | None, File | None]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)


def run(
    words: Sequence[str],
    given: Mapping[str, Sequence[str]],
    *,
    root: Path,
    cwd: Path,
    show: Callable[[str], object],
    say: Say,
) -> int:
    """Bring the project *root* to the version that *words* name; return the exit code: 1 where a person is needed.

    Raises:
        UsageError: the newer version is nothing that there is.
        SettingsError: the project has no wheel, or something is in the way.
        BackendError, NotPermittedError: git failed, or something cannot be written.
        ClusterError: the project has marks of an earlier conflict; exit code 1.
    """
    is_dry = "--dry-run" in given
    with alone(root):
        wheel = vendored(root)
        if wheel is None:
            raise SettingsError(
                f"{root} has no {FOLDER}/oci_cluster-*.whl, so nobody knows what it came from; run new.sh on it first"
            )
        base = read_wheel(wheel)
        theirs = open_source(words[0], "".join(words[1:]), cwd)
        frameworks = frameworks_of(base)
        if missing := set(frameworks) - set(frameworks_of(theirs)):
            raise SettingsError(
                f"{words[0]} lacks {', '.join(sorted(missing))}, which {root} has; name a version with all of them"
            )
        plan = _planned(root, base, theirs, frameworks)
        name, content = pack(theirs, frameworks)
        for line in plan.lines:
            show(line)
        for change in plan.changes if is_dry else ():
            _show_difference(*change, show)
        if not is_dry:
            for changed, _, file in plan.changes:
                put(root, changed, file)
            if name != wheel.name:
                replace_wheel(root, wheel, name, content)  # last: an interrupted run is completed by the next one
    return _ended(plan, version_of(wheel), version_of(Path(name)), say, is_dry=is_dry)


def _planned(root: Path, base: Files, theirs: Files, frameworks: Sequence[str]) -> _Plan:
    plan, locks = _Plan(root), {name: digest for digest, name in locks_of(base)}
    names = sorted(name for name in {*base, *theirs, *locks} if is_placed(name, frameworks))
    ours: dict[str, File | None] = {}
    for name in names:
        check_way(root, name)
        ours[name] = read_file(root / name)
    if marked := [printable(name) for name in names if is_marked(ours[name])]:
        raise ClusterError(
            f"marks of a conflict are still in {', '.join(marked)}; edit these files, and run this again",
            exit_code=ExitCode.FAILED,
        )
    for name in names:
        newer = theirs.get(name)
        was = _lock(locks[name], ours[name], newer) if name in locks else base.get(name)
        _note(plan, name, was, ours[name], newer)
    for name, source in _STARTERS.items():
        there = read_file(root / name) if os.path.lexists(root / name) else None
        if there and source in theirs and same(there, base.get(source)):
            _note(plan, name, base[source], there, theirs[source])
    # Where a run is interrupted, what needs a person is done once.
    plan.changes.sort(key=lambda change: re.sub(r"\.new\d*$", "", change[0]) in plan.conflicts)
    return plan


def _lock(digest: str, *candidates: File | None) -> File:
    """Return the lock that came, whose digest alone is known: one that somebody has, or none that can be merged."""
    found = [file for file in candidates if file and file.digest == digest]
    return found[0] if found else File(b"\0" + digest.encode())


def _note(plan: _Plan, name: str, base: File | None, ours: File | None, theirs: File | None) -> None:
    """Add what becomes of the file *name* to what is done and what is shown."""
    merged = merge(base, ours, theirs)
    reasons = [merged.why] if merged.why else []
    if merged.file != ours:
        plan.changes.append((name, ours, merged.file))
    if merged.beside:
        beside = _free_name(plan.root, name, merged.beside)
        plan.changes.append((beside, read_file(plan.root / beside), merged.beside))
        reasons.append(f"the newer version's is in {printable(beside)}")
    if merged.result == CONFLICT:
        plan.conflicts.append(name)
    if merged.result:
        plan.lines.append(f"{merged.result:<9} {printable(name)}{': ' if reasons else ''}{'; '.join(reasons)}")


def _free_name(root: Path, name: str, file: File) -> str:
    """Return a name beside *name* that nothing has, or that has *file* already: what is there may be the user's."""
    names = (f"{name}.new{number or ''}" for number in itertools.count())
    return next(
        each
        for each in names
        if not os.path.lexists(root / each) or ((root / each).is_file() and read_file(root / each) == file)
    )


def _show_difference(name: str, before: File | None, after: File | None, show: Callable[[str], object]) -> None:
    """Show what becomes of a file that is there and stays."""
    if not (before and after and before.is_text and after.is_text):
        return
    now, then = (file.content.decode(errors="replace").splitlines() for file in (before, after))
    for line in difflib.unified_diff(now, then, f"{printable(name)} now", f"{printable(name)} then", lineterm=""):
        show("".join(character for character in line if character.isprintable() or character == "\t"))


def _ended(plan: _Plan, old: str, new: str, say: Say, *, is_dry: bool) -> int:
    """Say how it ended, and return the exit code."""
    if old == new and not plan.lines:
        say(f"version {old}: nothing to change")
        return ExitCode.OK
    counts = Counter(line.split()[0] for line in plan.lines)
    listed = ", ".join(f"{count} {result}" for result, count in counts.items()) or "the package alone"
    say(f"version {old} to {new}: {listed}{'; nothing is changed, as this is a dry run' if is_dry else ''}")
    if plan.conflicts:
        say(f"these need you: {', '.join(map(printable, plan.conflicts))}")
        return ExitCode.FAILED
    return ExitCode.OK
