"""``new.sh``: the templates into a new project, or into one that is there; what is there already stays as it is."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from oci_cluster.contract.config import framework_dir, read_config
from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.project.changes import Change, alone, check_changes, finish_changes, make_changes
from oci_cluster.project.contents import Contents, chosen, read_contents
from oci_cluster.project.files import File, Files, check_way, read_file
from oci_cluster.project.merging import same
from oci_cluster.project.record import COPY, RECORD, Record, came, copy_of, read_copy, read_record, record_text
from oci_cluster.project.sources import Version, open_folder
from oci_cluster.system.console import Say
from oci_cluster.system.files import not_writable
from oci_cluster.system.text import printable
from oci_cluster.system.venv import own_venv

_TEMPLATES = "scripts/templates/project"
# The names under which make looks for one, in its order.
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
INCLUDE = "include scripts/clusters.mk"
_INCLUDED = re.compile(rb"^\s*[-s]?include\s.*\bscripts/clusters\.mk\b", re.MULTILINE)
_CONFIG = "config.env"
_HEADER = "# Settings of this project: config.env.example lists all. git ignores this file.\n"


def run(
    words: Sequence[str],
    given: Mapping[str, Sequence[str]],
    *,
    checkout: Path,
    cwd: Path,
    show: Callable[[str], object],
    say: Say,
) -> int:
    """Put frameworks of *checkout* into a project; return the exit code.

    Args:
        words: The frameworks, and the project's folder.
        given: The options, with their values.
        checkout: The templates.
        cwd: Where relative paths start.
        show: Takes each line of the result: what is put where.
        say: Takes what else people should know.

    Raises:
        UsageError: a framework, the folder or an option is wrong.
        SettingsError: something is in the way: names all of it.
        BackendError, NotPermittedError: something cannot be written.
    """
    frameworks, root = _asked(words, checkout, cwd)
    wanted = _settings({name: values[-1] for name, values in given.items() if values})
    is_dry = "--dry-run" in given
    version, say_again = open_folder(checkout), say
    if is_dry or not root.is_dir():
        changes = _plan(root, frameworks, version, wanted, say=say)  # all checks before the first effect
        _show(changes, show, in_full=is_dry)
        if is_dry:
            return 0
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise not_writable(root, error) from error
        show = say_again = _nothing
    with alone(root):
        finish_changes(root, say)
        changes = _plan(root, frameworks, version, wanted, say=say_again)
        _show(changes, show, in_full=False)
        make_changes(root, changes)
    _say_next(root, cwd, changes, frameworks, say)
    return 0


def _nothing(_: str) -> None:
    """Show nothing: it has been shown."""


def _asked(words: Sequence[str], checkout: Path, cwd: Path) -> tuple[list[str], Path]:
    *names, folder = words
    root = (cwd / Path(folder).expanduser()).resolve()
    try:
        frameworks = [framework_dir(name, checkout).name for name in dict.fromkeys(names)]
    except ValueError as error:
        raise UsageError(str(error)) from error
    for place in ("common", "scripts", *(path.parent.name for path in checkout.glob("*/start-master.sh"))):
        if root == checkout / place or root.is_relative_to(checkout / place):
            msg = f"'{printable(folder)}' is a folder of the templates; name your project behind the frameworks"
            raise UsageError(msg)
    if root == checkout or checkout.is_relative_to(root):
        msg = f"{root} is, or holds, the templates themselves; name another folder for your project"
        raise UsageError(msg)
    if root.exists() and not root.is_dir():
        msg = f"{root} is a file; name a folder, which may be new"
        raise UsageError(msg)
    return frameworks, root


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    names = {"--code": "CODE_DIR", "--entry": "ENTRY_POINT", "--backend": "BACKEND"}
    wanted = {setting: given[option] for option, setting in names.items() if option in given}
    for option in ("--code", "--entry"):
        text = given.get(option, ".")
        if text.startswith(("/", "~")) or os.path.normpath(text).startswith("..") or not text.isprintable():
            msg = f"{option} '{printable(text)}' is no path inside the project; images hold nothing else"
            raise UsageError(msg)
    return wanted


def _plan(
    root: Path,
    frameworks: Sequence[str],
    version: Version,
    wanted: Mapping[str, str],
    *,
    say: Say,
) -> list[Change]:
    """Return what is to be changed in the project *root*, checked; say what people should know of it."""
    contents = read_contents(version.files, version.origin)
    record = read_record(root)
    if record:
        _check_same_version(root, record, version)
    all_frameworks = sorted({*frameworks, *(record.frameworks if record else ())})
    sources = contents.sources(version.files, all_frameworks)
    sources |= _starters(root, contents, version.files, record)
    files = chosen(version.files, sources)
    known = dict(record.files) if record else {}
    changes = _new_files(root, {name: file for name, file in files.items() if name not in known})
    changes += _additions(root, version.files, wanted)
    new = Record(version.name, version.commit, version.origin, all_frameworks, came(files, sources))
    changes += _records(root, new, files, record)
    check_changes(root, changes)
    _tell(root, sources, record, say)
    return changes


def _check_same_version(root: Path, record: Record, version: Version) -> None:
    """Check that the project has the version that is to be put there: parts of two do not fit together."""
    for file in record.files.values():
        found = version.files.get(file.source)
        if found is None or (found.digest, found.mode) != (file.digest, file.mode):
            msg = (
                f"{root} has version {record.version}, and this is {version.name}; bring it up to date first: "
                f"cd {shlex.quote(str(root))} && ./scripts/update.sh {shlex.quote(version.origin)}"
            )
            raise SettingsError(msg)


def _starters(root: Path, contents: Contents, files: Files, record: Record | None) -> dict[str, str]:
    """Return the files that are put where nothing has such a name, each with its source."""
    if record:  # they have been put before, and may have been removed since
        starting = {source for source, _ in contents.starters}
        return {name: file.source for name, file in record.files.items() if file.source in starting}
    found = {}
    for source, goals in contents.starters:
        for goal in goals:
            there = read_file(root / goal) if not (root / goal).is_dir() else None
            is_ours = there is not None and same(there, files[source]) if source in files else False
            if source in files and (is_ours or not _is_taken(root, goal)):
                found[goal] = source
                break
    return found


def _is_taken(root: Path, name: str) -> bool:
    """Return whether *root* has *name*, in whatever letters, or with another ending: README.rst is a README."""
    stem = Path(name).stem.lower()
    return root.is_dir() and any(path.stem.lower() == stem for path in root.iterdir())


def _new_files(root: Path, files: Files) -> list[Change]:
    """Return what makes *files*; those that are there already are left as they are.

    Raises:
        SettingsError: some are there, and are others: names all.
    """
    changes, in_the_way = [], []
    for name in sorted(files):
        check_way(root, name)
        there = read_file(root / name)
        if there is None:
            changes.append(Change(name, None, files[name]))
        elif not same(there, files[name]):
            in_the_way.append(name)
    if in_the_way:
        listed = ", ".join(map(printable, in_the_way[:10])) + (
            f" and {len(in_the_way) - 10} more" if in_the_way[10:] else ""
        )
        msg = (
            f"{root} has other files of these names, and none is overwritten: {listed}; rename yours, or if they are a "
            "copy of the templates that you have edited, see 'Copying by hand' in docs/projects.md"
        )
        raise SettingsError(msg)
    return changes


# --- What is added to files of the project's own ----------------------------------------------------------------------


def _additions(root: Path, files: Files, wanted: Mapping[str, str]) -> list[Change]:
    """Return what adds lines to the project's Makefile, .gitignore and config.env, or makes them."""
    found = [
        _with_include(root, files),
        _with_ignored(root, files[f"{_TEMPLATES}/gitignore"].content.decode()),
        _with_settings(root, wanted),
    ]
    return [change for change in found if change]


def _with_include(root: Path, files: Files) -> Change | None:
    name = next((name for name in _MAKEFILES if (root / name).exists() or (root / name).is_symlink()), "")
    if not name:
        return Change("Makefile", None, files[f"{_TEMPLATES}/Makefile"])
    there = _own(root, name, f"the line '{INCLUDE}'")
    if _INCLUDED.search(there.content):
        return None
    return Change(name, there, _with_lines(there, ["", INCLUDE]))


def _with_ignored(root: Path, wanted: str) -> Change | None:
    lines = [line for line in wanted.splitlines() if line]
    there = _own(root, ".gitignore", f"the lines {' '.join(lines)}", may_lack=True)
    has = {line.strip().strip("/") for line in there.content.decode(errors="replace").splitlines()}
    missing = [line for line in lines if line.strip("/") not in has]
    if all(line.startswith("#") for line in missing):
        return None
    before = read_file(root / ".gitignore")
    return Change(".gitignore", before, _with_lines(there, [*([""] if there.content else []), *missing]))


def _with_settings(root: Path, wanted: Mapping[str, str]) -> Change | None:
    before = read_file(root / _CONFIG)
    if before is not None and before.is_link:
        wanted = {name: text for name, text in wanted.items() if read_config(root).get(name) != text}
        if not wanted:
            return None
    there = _own(root, _CONFIG, " ".join(f"{name}={text}" for name, text in wanted.items()), may_lack=True)
    has = read_config(root)
    for name, text in wanted.items():
        if has.get(name, text) != text:
            said = f"sets {name} to '{printable(has[name])}', not '{text}'"
            msg = f"{root / _CONFIG} {said}; change it there, or leave it out here"
            raise SettingsError(msg)
    lines = [f"{name}={shlex.quote(text)}" for name, text in wanted.items() if name not in has]
    if before is not None:
        return Change(_CONFIG, before, _with_lines(there, lines)) if lines else None
    return Change(_CONFIG, None, _with_lines(File(_HEADER.encode()), lines))


def _own(root: Path, name: str, what: str, *, may_lack: bool = False) -> File:
    """Return the project's own file *name*, to which *what* is added.

    Raises:
        SettingsError: it is a link: what it leads to may be another project's.
    """
    file = read_file(root / name)
    if file is None and may_lack:
        return File(b"")
    if file is None or file.is_link:
        msg = f"{root / name} is a link, through which nothing is written; put there what is missing: {what}"
        raise SettingsError(msg)
    return file


def _with_lines(file: File, lines: Sequence[str]) -> File:
    """Return *file* with *lines* behind its own, ended as those are."""
    end = b"\r\n" if b"\r\n" in file.content else b"\n"
    start = file.content + (end if file.content and not file.content.endswith(b"\n") else b"")
    return File(start + b"".join(line.encode() + end for line in lines), file.mode)


# --- What is kept, shown and told ------------------------------------------------------------------------------------


def _records(root: Path, record: Record, files: Files, old: Record | None) -> list[Change]:
    changes = []
    if old is None or read_copy(root, old) != files:
        changes.append(Change(COPY, read_file(root / COPY), File(copy_of(files))))
    if old is None or old.files != record.files:
        changes.append(Change(RECORD, read_file(root / RECORD), File(record_text(record))))
    return changes


def _show(changes: Sequence[Change], show: Callable[[str], object], *, in_full: bool) -> None:
    """Show what is made, of folders only how much unless *in_full*, and which lines are added to a user's files."""
    made = [change.name for change in changes if change.before is None and change.name not in {RECORD, COPY}]
    counts = Counter(name.partition("/")[0] for name in made if "/" in name and not in_full)
    for folder, count in sorted(counts.items()):
        show(f"new    {printable(folder)}/  {count} files")
    for name in made:
        if in_full or "/" not in name:
            show(f"new    {printable(name)}")
    for change in changes:
        if change.before and change.after and change.name not in {RECORD, COPY}:
            show(f"lines  {printable(change.name)}, behind its own:")
            added = change.after.content[len(change.before.content) :].decode(errors="replace")
            for line in filter(None, added.splitlines()):
                show(f"         + {printable(line)}")


def _tell(root: Path, sources: Mapping[str, str], record: Record | None, say: Say) -> None:
    if record:
        return
    if (venv := own_venv(root)).name != ".venv":
        say(f"{root / '.venv'} is yours, and stays as it is; launches make {venv.name} beside it")
    for place in sorted({name.partition("/")[0] for name in sources if "/" in name}):
        if (root / place).is_dir() and any((root / place).iterdir()):
            say(f"{root / place} is there already: what is in it stays, and the templates' files go beside it")


def _say_next(root: Path, cwd: Path, changes: Sequence[Change], frameworks: Sequence[str], say: Say) -> None:
    if not changes:
        say(f"{root} has all of this already")
        return
    place = os.path.relpath(root, cwd) if root.is_relative_to(cwd) else str(root)
    say(f"{root} has what it needs; next: cd {shlex.quote(place)} && ./scripts/smoke.sh {frameworks[0]}")
