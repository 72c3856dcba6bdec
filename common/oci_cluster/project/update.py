"""``update.sh``: merges a newer version, the version that came, and the project's own."""

from __future__ import annotations

import difflib
import itertools
import os
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oci_cluster.errors import BackendError, ClusterError, ExitCode, SettingsError
from oci_cluster.project.files import File, Files, alone, check_way, put, read_file
from oci_cluster.project.wheel import (
    CHANGES,
    FOLDER,
    START_SCRIPTS,
    frameworks_of,
    is_placed,
    locks_of,
    open_source,
    pack,
    read_wheel,
    replace_wheel,
    unpacked_to,
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
    """Changes with what is there now, lines to show, and conflicts."""

    root: Path
    changes: list[tuple[str, File | None, File | None]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)


def run(
    words: Sequence[str],
    given: Mapping[str, Sequence[str]],
    root: Path,
    *,
    cwd: Path,
    show: Callable[[str], object],
    say: Say,
) -> int:
    """Bring the project *root* to the version that *words* name; return the exit code."""
    is_dry = "--dry-run" in given
    with alone(root):
        wheel = vendored(root)
        if wheel is None:
            raise SettingsError(
                f"{root} has no {FOLDER}/oci_cluster-*.whl, so nobody knows what it came from; run new.sh on it first"
            )
        base = read_wheel(wheel)
        theirs = open_source(words[0], cwd)
        frameworks = [name for name in frameworks_of(base) if _has_start_script(root / name)]
        if missing := set(frameworks) - set(frameworks_of(theirs)):
            raise SettingsError(
                f"{words[0]} lacks {', '.join(sorted(missing))}, which {root} has; name a version with all of them"
            )
        plan = _planned(root, base, theirs, frameworks)
        name, content = pack(theirs, frameworks)
        plan.lines += [
            f"kept      {framework}/: you have removed it; it stays removed"
            for framework in sorted({*frameworks_of(base)} - {*frameworks})
        ]
        plan.lines += _edited(root, base, theirs)
        for line in plan.lines:
            show(line)
        for line in _news(base, theirs):
            say(line)
        for change in plan.changes if is_dry else ():
            _show_difference(*change, show)
        if not is_dry:
            for changed, _, file in plan.changes:
                put(root, changed, file)
            if name != wheel.name:
                replace_wheel(root, wheel, name, content, say)  # last: an interrupted run is completed by the next one
    return _ended(plan, version_of(wheel), version_of(Path(name)), say, is_dry=is_dry)


def _news(base: Files, theirs: Files) -> list[str]:
    """Return the lines of the newer changelog that the version before has not."""
    if CHANGES not in base or CHANGES not in theirs:
        return []
    before, after = (files[CHANGES].content.decode(errors="replace").splitlines() for files in (base, theirs))
    return [printable(line, 200) for line in after if line.strip() and line not in {*before}]


def _has_start_script(folder: Path) -> bool:
    """Return whether *folder* still has a start script; caches may be left there."""
    return any((folder / name).exists() for name in START_SCRIPTS)


def _edited(root: Path, base: Files, theirs: Files) -> list[str]:
    """Return a line for each unpacked file that both sides have changed."""
    found = []
    for name in sorted(name for name in {*base} & {*theirs} if base[name].content != theirs[name].content):
        if name.endswith(".md"):  # differs by its links to frameworks that the project has not
            continue
        there = read_file(root / place) if (place := unpacked_to(name)) else None
        if there and there.digest not in (base[name].digest, theirs[name].digest):
            why = "it is yours, and the newer version has changed it; remove it to have that"
            found.append(f"kept      {printable(place)}: {why}")
    return found


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
        if there and source in theirs and there == base.get(source):
            _note(plan, name, base[source], there, theirs[source])
    # Where a run is interrupted, what needs a person is done once.
    plan.changes.sort(key=lambda change: re.sub(r"\.new\d*$", "", change[0]) in plan.conflicts)
    return plan


def _lock(digest: str, *candidates: File | None) -> File:
    """Return the lock that came, of which only the digest is known."""
    found = [file for file in candidates if file and file.digest == digest]
    return found[0] if found else File(b"\0" + digest.encode())


def _note(plan: _Plan, name: str, base: File | None, ours: File | None, theirs: File | None) -> None:
    merged = merge(base, ours, theirs)
    reasons = [merged.why] if merged.why else []
    if merged.file != ours:
        plan.changes.append((name, ours, merged.file))
    if merged.newer:
        beside = _free_name(plan.root, name, merged.newer)
        plan.changes.append((beside, read_file(plan.root / beside), merged.newer))
        reasons.append(f"the newer version's is in {printable(beside)}")
    if merged.result == CONFLICT:
        plan.conflicts.append(name)
    if merged.result:
        plan.lines.append(f"{merged.result:<9} {printable(name)}{': ' if reasons else ''}{'; '.join(reasons)}")


def _free_name(root: Path, name: str, file: File) -> str:
    """Return a name beside *name* that is free, or has *file* already."""
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


YOURS, THEIRS = "your project", "the newer version"
"""What stands behind the marks of a conflict."""
CONFLICT = "CONFLICT"


@dataclass(frozen=True)
class Merged:
    """The result of a merge: the file, a word for people, and why.

    *newer* is what the newer version has, where it could not be brought into the file.
    """

    file: File | None
    result: str = ""
    why: str = ""
    newer: File | None = None


def merge(base: File | None, ours: File | None, theirs: File | None) -> Merged:
    """Return the merge of *base*, which came, the project's *ours*, and the newer *theirs*.

    None is no file. Nothing of the project's own is ever given up: what cannot be brought together is in the file with
    marks, or as a second file beside it. Lines are merged by ``git merge-file``, which needs no repository, and the
    executable bit apart.
    """
    if theirs in (ours, base):
        return Merged(ours)
    if theirs is None:
        changed = Merged(ours, CONFLICT, "the newer version has removed it, you have changed it; it stays")
        return Merged(None, "removed") if base == ours else changed
    if ours is None:
        kept = "you have removed it, and the newer version has changed it; it stays removed"
        return Merged(theirs, "added") if base is None else Merged(None, "kept", kept)
    if base == ours:
        return Merged(theirs, "updated")
    if not (ours.is_text and theirs.is_text and (base is None or base.is_text)):
        why = "it is no text, and has changed here and there" if base else "it is there, and is another"
        return Merged(ours, CONFLICT, why, theirs)
    return _of_texts(base or File(b"", theirs.mode), ours, theirs)


def _of_texts(base: File, ours: File, theirs: File) -> Merged:
    content, is_marked = ours.content, False
    if base.content == ours.content:
        content = theirs.content
    elif theirs.content not in (base.content, ours.content):
        merged = _merge_lines(base.content, ours.content, theirs.content)
        if merged is None:
            return Merged(ours, CONFLICT, "git, which merges lines, is not installed", theirs)
        content, is_marked = merged
    mode = theirs.mode if base.mode == ours.mode else ours.mode
    file = File(content, mode)
    if is_marked:
        return Merged(file, CONFLICT, "look for the lines that begin with <<<<<<<")
    return Merged(file, "" if file == ours else "merged")


def _merge_lines(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, bool] | None:
    """Return git's merge, and whether it has marks; None without git."""
    with tempfile.TemporaryDirectory() as scratch:
        paths = [Path(scratch, name) for name in ("ours", "base", "theirs")]
        for path, content in zip(paths, (ours, base, theirs), strict=True):
            path.write_bytes(content)
        labels = [word for name in (YOURS, "as it came", THEIRS) for word in ("-L", name)]
        # Of the user's own configuration nothing counts: marks in another style would not be found again.
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CEILING_DIRECTORIES": scratch}
        command = ["git", "merge-file", "-p", *labels, *map(str, paths)]
        try:
            done = subprocess.run(command, cwd=scratch, env=environ, capture_output=True, check=False)  # noqa: S603
        except FileNotFoundError:
            return None
    if not 0 <= done.returncode < 128:
        said = printable(done.stderr.decode(errors="replace").strip())
        raise BackendError(f"git merge-file failed: {said}; nothing was changed")
    return done.stdout, done.returncode > 0


def is_marked(file: File | None) -> bool:
    """Return whether *file* holds marks of a conflict that `merge` has left."""
    return file is not None and file.is_text and f"<<<<<<< {YOURS}".encode() in file.content.split(b"\n")
