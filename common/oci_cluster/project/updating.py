"""``update.sh``: a newer version of the templates, three-way with what came and what the project has made of it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oci_cluster.errors import ClusterError, ExitCode, SettingsError, UsageError
from oci_cluster.project.changes import STAGE, Change, alone, check_changes, finish_changes, make_changes
from oci_cluster.project.contents import Contents, chosen, frameworks_of, read_contents
from oci_cluster.project.files import File, Files, check_way, read_file
from oci_cluster.project.merging import Merged, MergeText, Result, git_merge, is_marked, merge, plain_ends, same
from oci_cluster.project.record import COPY, RECORD, Record, came, copy_of, read_copy, read_record, record_text
from oci_cluster.project.sources import Version, open_source
from oci_cluster.system.console import Say
from oci_cluster.system.text import printable

# Files of which this much is the same are one file under two names, as git has it by default for twice half of it.
_RENAMED = 0.5


@dataclass
class _Update:
    """An update as it is planned.

    Attributes:
        root: The project.
        base: The files as they came; what of them is lost is not there.
        theirs: The files of the newer version, by their paths in the project.
        changes: What is to be done.
        lines: What of it is shown.
        conflicts: The files that need a person.
        lost: Files that cannot be merged, because nobody has them as they came.
    """

    root: Path
    base: Files
    theirs: Files
    changes: list[Change] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def run(
    words: Sequence[str],
    given: Mapping[str, Sequence[str]],
    *,
    root: Path,
    cwd: Path,
    show: Callable[[str], object],
    say: Say,
) -> int:
    """Bring the project *root* to a newer version; return the exit code: 1 where a person must end what could not be.

    Args:
        words: The newer version, and a ref of it; none: where the last one came from.
        given: The options, with their values.
        root: The project.
        cwd: Where relative paths start.
        show: Takes each line of the result: what becomes of which file.
        say: Takes what else people should know.

    Raises:
        UsageError: the newer version is nothing that there is.
        SettingsError: the project's record is missing or damaged, or something is in the way.
        BackendError, NotPermittedError: git failed, or something cannot be written.
        ClusterError: the project has marks of an earlier conflict; exit code 1.
    """
    is_dry = "--dry-run" in given
    with alone(root):
        if is_dry and (root / STAGE / "plan.json").is_file():
            msg = f"{root}: an earlier run was interrupted; complete it first, with update.sh without --dry-run"
            raise SettingsError(msg)
        finish_changes(root, say)
        record = read_record(root)
        if record is None and "--base" not in given:
            msg = (
                f"{root} has no {RECORD}, so nobody knows which version it came from; name that one with --base, "
                "or in a checkout of the templates run new.sh"
            )
            raise SettingsError(msg)
        _check_no_marks(root, record)
        source, ref = [*words, "", ""][:2]
        if not source and record is None:
            msg = "expected the newer version: a folder, an archive, or an URL of git and a ref"
            raise UsageError(msg)
        version = open_source(source or (record.origin if record else ""), ref, cwd)
        record, base = _as_it_came(root, record, given, cwd)
        plan, new_record = _planned(root, record, base, version, git_merge(version.name))
        check_changes(root, plan.changes)
        for line in plan.lines:
            show(line)
        if is_dry:
            for change in plan.changes:
                _show_difference(change, show)
        else:
            make_changes(root, plan.changes)
    return _ended(plan, record, new_record, say, is_dry=is_dry)


def _check_no_marks(root: Path, record: Record | None) -> None:
    """Check that no file still has the marks of a conflict: those of two updates could not be told apart."""
    names = sorted(record.files) if record else []
    marked = [name for name in names if _is_file(root / name) and is_marked(read_file(root / name) or File(b""))]
    if marked:
        listed = ", ".join(map(printable, marked))
        msg = f"marks of a conflict are still in {listed}; edit these files, and run this again"
        raise ClusterError(msg, exit_code=ExitCode.FAILED)


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _as_it_came(
    root: Path, record: Record | None, given: Mapping[str, Sequence[str]], cwd: Path
) -> tuple[Record, dict[str, File]]:
    """Return what the project came from, and the files as they came: by its own record and copy, or by ``--base``."""
    if "--base" not in given:
        assert record  # noqa: S101 - asked before
        return record, read_copy(root, record)
    base = open_source(given["--base"][-1], "", cwd)
    contents = read_contents(base.files, base.origin)
    if record:
        files = {name: base.files[file.source] for name, file in record.files.items() if file.source in base.files}
        fitting = {name: file for name, file in files.items() if file.digest == record.files[name].digest}
        return record, fitting | read_copy(root, record)
    frameworks = [name for name in frameworks_of(base.files) if (root / name / "start-master.sh").exists()]
    if not frameworks:
        there = ", ".join(frameworks_of(base.files))
        msg = f"{root} has none of the frameworks of {base.origin}: {there}; name the version that it came from"
        raise SettingsError(msg)
    sources = contents.sources(base.files, frameworks)
    files = chosen(base.files, sources)
    return Record(base.name, base.commit, base.origin, frameworks, came(files, sources)), files


def _planned(
    root: Path, record: Record, base: Files, version: Version, merge_text: MergeText
) -> tuple[_Update, Record]:
    contents = read_contents(version.files, version.origin)
    sources = _sources(contents, record, version.files)
    theirs = chosen(version.files, sources)
    update = _Update(root, base, theirs)
    renamed = _plan_renamed(update, record, merge_text)
    for name in sorted({*record.files, *theirs}):
        if name not in renamed:
            _plan_file(update, record, name, merge_text)
    if update.lost:
        listed = ", ".join(map(printable, update.lost))
        msg = (
            f"{COPY} lacks files that you have edited, as they came: {listed}; bring it back from git, or name version "
            f"{record.version} with --base: a folder, an archive, or URL#REF"
        )
        raise SettingsError(msg)
    new = Record(version.name, version.commit, version.origin, record.frameworks, came(theirs, sources))
    text = record_text(new)
    if read_copy(root, new) != theirs:
        update.changes.append(Change(COPY, read_file(root / COPY), File(copy_of(theirs))))
    there = read_file(root / RECORD)
    if there is None or there.content != text:
        update.changes.append(Change(RECORD, there, File(text)))
    return update, new


def _sources(contents: Contents, record: Record, files: Files) -> dict[str, str]:
    """Return the files that the project is to have, each with its path in the newer version."""
    sources = contents.sources(files, record.frameworks)
    starting = {source for source, _ in contents.starters}
    for name, file in record.files.items():
        if file.source in starting and file.source in files:
            sources.setdefault(name, file.source)
    return sources


def _plan_file(update: _Update, record: Record, name: str, merge_text: MergeText) -> None:
    theirs = update.theirs.get(name)
    ours = _ours(update.root, name)
    base = _base(update, record, name, ours)
    if base is None and name in record.files:
        update.lost.append(name)
        return
    _note(update, name, ours, merge(base, ours, theirs, merge_text))


def _ours(root: Path, name: str) -> File | None:
    check_way(root, name)
    return read_file(root / name)


def _base(update: _Update, record: Record, name: str, ours: File | None) -> File | None:
    """Return the file *name* as it came; where its copy is lost, it may still be what somebody has."""
    if name not in record.files:
        return None
    theirs, known = update.theirs.get(name), record.files[name]
    plain = [File(plain_ends(ours.content), ours.mode)] if ours and ours.is_text else []
    candidates = [file for file in (update.base.get(name), ours, theirs, *plain) if file]
    found = [File(file.content, known.mode) for file in candidates if file.digest == known.digest]
    if found:
        return found[0]
    if ours and theirs:
        return theirs if same(ours, theirs) else None
    return File(b"", known.mode)  # of what one side has removed, the content does not matter


def _note(update: _Update, name: str, ours: File | None, merged: Merged, why: str = "") -> None:
    """Add what becomes of the file *name* to what is done and what is shown."""
    if merged.file != ours:
        update.changes.append(Change(name, ours, merged.file))
    reasons = [why, merged.why]
    if merged.beside:
        beside = _free_name(update.root, name, merged.beside)
        update.changes.append(Change(beside, read_file(update.root / beside), merged.beside))
        reasons.append(f"the newer version's is in {printable(beside)}")
    if merged.result is Result.CONFLICT:
        update.conflicts.append(name)
    if merged.result is not Result.SAME or why:
        text = "; ".join(reason for reason in reasons if reason)
        update.lines.append(f"{merged.result.value:<9} {printable(name)}{': ' if text else ''}{text}")


def _free_name(root: Path, name: str, file: File) -> str:
    """Return a name beside *name* that nothing has, or that has *file* already."""
    number = 0
    while True:
        found = f"{name}.new{number or ''}"
        path = root / found
        if not os.path.lexists(path) or (not (path.is_dir() and not path.is_symlink()) and read_file(path) == file):
            return found
        number += 1


# --- Files that have another name in the newer version ------------------------------------------------------------


def _plan_renamed(update: _Update, record: Record, merge_text: MergeText) -> set[str]:
    """Plan for files that you have edited, and that the newer version has under another name: your edit goes along."""
    gone = [name for name in record.files if name not in update.theirs]
    new = [name for name in update.theirs if name not in record.files]
    done: set[str] = set()
    for name in sorted(gone):
        ours, base = _ours(update.root, name), update.base.get(name)
        if ours is None or base is None or not base.is_text or not ours.is_text:
            continue
        if plain_ends(ours.content) == plain_ends(base.content):
            continue
        free = [other for other in new if other not in done and _ours(update.root, other) is None]
        goal = _most_alike(base, {other: update.theirs[other] for other in free})
        if goal:
            done |= {name, goal}
            merged = merge(base, ours, update.theirs[goal], merge_text)
            update.changes.append(Change(name, ours, None))
            result = Merged(merged.file, Result.MERGED if merged.result is Result.SAME else merged.result, merged.why)
            _note(update, goal, None, result, f"it was {printable(name)}, which you have changed")
    return done


def _most_alike(file: File, others: Files) -> str:
    """Return the name of the one of *others* that is *file* under another name; empty where none is."""
    lines = file.content.splitlines()
    best, likeness = "", _RENAMED
    for name, other in sorted(others.items()):
        if not other.is_text:
            continue
        matcher = difflib.SequenceMatcher(None, lines, other.content.splitlines(), autojunk=False)
        if matcher.real_quick_ratio() > likeness and matcher.quick_ratio() > likeness:
            ratio = matcher.ratio()
            if ratio > likeness:
                best, likeness = name, ratio
    return best


# --- What is shown ------------------------------------------------------------------------------------------


def _show_difference(change: Change, show: Callable[[str], object]) -> None:
    """Show what becomes of a file that you have edited; what only the newer version has changed is named above."""
    before, after = change.before, change.after
    if change.name in {RECORD, COPY} or not (before and after and before.is_text and after.is_text):
        return
    now, then = (file.content.decode(errors="replace").splitlines() for file in (before, after))
    name = printable(change.name)
    for line in difflib.unified_diff(now, then, f"{name} now", f"{name} then", lineterm=""):
        show("".join(character for character in line if character.isprintable() or character == "\t"))


def _ended(update: _Update, old: Record, new: Record, say: Say, *, is_dry: bool) -> int:
    """Say how it ended, and return the exit code."""
    way = f"version {printable(old.version)}"
    way += f" to {printable(new.version)}" if new.version != old.version else ""
    if not update.changes:
        say(f"{way}: nothing to change")
        return ExitCode.OK
    counts = {result: sum(line.startswith(f"{result.value} ") for line in update.lines) for result in Result}
    listed = ", ".join(f"{count} {result.value}" for result, count in counts.items() if count) or "the record alone"
    say(f"{way}: {listed}{'; nothing is changed, as this is a dry run' if is_dry else ''}")
    if update.conflicts:
        say(f"these need you: {', '.join(map(printable, update.conflicts))}")
        return ExitCode.FAILED
    return ExitCode.OK
