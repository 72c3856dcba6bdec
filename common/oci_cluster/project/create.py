"""``new.sh``: puts the templates into a project; its own files stay."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath

from oci_cluster.contract.settings.settings_files import read_config
from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.project.files import File, Files, alone, check_way, put, read_file
from oci_cluster.project.update import README, TEMPLATES
from oci_cluster.project.wheel import (
    FOLDER,
    START_SCRIPTS,
    frameworks_of,
    is_placed,
    open_folder,
    open_source,
    pack,
    read_wheel,
    replace_wheel,
    vendored,
    version_of,
)
from oci_cluster.system.console import Say
from oci_cluster.system.files import at_home, not_writable
from oci_cluster.system.text import printable

# The names under which make looks for one, in its order.
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
INCLUDE = "include scripts/clusters.mk"
_INCLUDED = re.compile(rb"^\s*[-s]?include\s.*\bscripts/clusters\.mk\b", re.MULTILINE)
_TARGETS = re.compile(r"^([\w.% /-]+):(?![:=]*=)", re.MULTILINE)
_HEADER = "# Settings of this project: config.env.example lists all. git ignores this file."

Changes = dict[str, tuple[File | None, File]]
"""What is to be, and what is there now, by name."""


def run(
    words: Sequence[str],
    given: Mapping[str, Sequence[str]],
    checkout: Path,
    *,
    cwd: Path,
    show: Callable[[str], object],
    say: Say,
) -> int:
    """Put frameworks of *checkout*, or of ``--from``, into a project; return the exit code."""
    options = {name: values[-1] for name, values in given.items() if values}
    wanted, is_dry = _settings(options), "--dry-run" in given
    source = options.get("--from", str(checkout))
    files = open_source(source, cwd) if "--from" in options else open_folder(checkout)
    *names, folder = words
    if unknown := [name for name in names if name not in frameworks_of(files)]:
        there = ", ".join(frameworks_of(files))
        raise UsageError(
            f"unknown framework '{printable(unknown[0])}'; {source} has: {there}; name a version that has it: --from"
        )
    root = _root(folder, checkout, cwd)
    changes = _plan(root, names, files, wanted, say)  # all checks before the first effect
    _show(changes, show, in_full=is_dry)
    if is_dry:
        return 0
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise not_writable(root, error) from error
    with alone(root):
        for name, (before, after) in changes.items():
            if read_file(root / name) != before:
                raise SettingsError(f"{root / name} has changed just now; run this again")
            if name.startswith(f"{FOLDER}/"):
                # Last: where a run is interrupted, the next one finds what it has left, and goes on.
                replace_wheel(root, vendored(root), Path(name).name, after.content, say)
            else:
                put(root, name, after)
    if not changes:
        say(f"{root} has all of this already")
        return 0
    place = os.path.relpath(root, cwd) if root.is_relative_to(cwd) else str(root)
    say(f"{root} has what it needs; next: cd {shlex.quote(place)} && ./scripts/smoke.sh {names[0]}")
    return 0


def _root(folder: str, checkout: Path, cwd: Path) -> Path:
    if folder.startswith("~") and at_home(folder) == Path(folder):
        raise UsageError(f"'{printable(folder)}' is in a home folder that nobody knows; give the whole path")
    root = (cwd / at_home(folder)).resolve()
    is_project = vendored(checkout) is not None
    for place in ("common", "scripts", *(path.parent.name for path in checkout.glob("*/start-master.sh"))):
        if root.is_relative_to(checkout / place):
            raise UsageError(
                f"'{printable(folder)}' is a folder of the templates; name your project behind the frameworks"
            )
    if (root == checkout and not is_project) or (root != checkout and checkout.is_relative_to(root)):
        raise UsageError(f"{root} is, or holds, the templates themselves; name another folder for your project")
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is a file; name a folder, which may be new")
    return root


def _settings(options: Mapping[str, str]) -> dict[str, str]:
    names = {"--code": "CODE_DIR", "--entry": "ENTRY_POINT", "--backend": "BACKEND"}
    for option in ("--code", "--entry"):
        text = options.get(option, ".")
        if text.startswith(("/", "~")) or os.path.normpath(text).startswith("..") or not text.isprintable():
            raise UsageError(f"{option} '{printable(text)}' is no path inside the project; images hold nothing else")
    return {setting: options[option] for option, setting in names.items() if option in options}


def _plan(root: Path, names: Sequence[str], files: Files, wanted: Mapping[str, str], say: Say) -> Changes:
    """Return the changes of the project *root*, checked; say what people should know."""
    wheel = vendored(root)
    has = frameworks_of(read_wheel(wheel)) if wheel else []
    if wheel and pack(files, has)[0] != wheel.name:
        raise SettingsError(
            f"{root} has another version, {version_of(wheel)}; bring it up to date first: its scripts/update.sh"
        )
    frameworks = sorted({*has, *names})
    if wheel:  # what the project has had is its own: edited, or removed, unless all of it is wanted again
        added = {name for name in names if name not in has or not _is_framework(root / name)}
        new = {name: file for name, file in files.items() if name.partition("/")[0] in added}
    else:
        new = {name: file for name, file in files.items() if is_placed(name, frameworks)}
        new |= {name: files[source] for name, source in _starters(root, files)}
    changes = _new_files(root, new, say)
    changes |= _additions(root, files, frameworks, wanted, say)
    name, content = pack(files, frameworks)
    if not wheel or wheel.name != name:
        changes[f"{FOLDER}/{name}"] = (None, File(content))
    for name in changes:
        check_way(root, name)
    return changes


def _starters(root: Path, files: Files) -> list[tuple[str, str]]:
    """Return the files that are put where nothing has such a name."""
    taken = {path.stem.lower(): path for path in root.iterdir()} if root.is_dir() else {}
    found = [(".dockerignore", ".dockerignore")] if ".dockerignore" not in taken else []
    for name in ("README.md", "CLUSTERS.md"):
        there = taken.get(Path(name).stem.lower())  # README.rst is a README
        if there is None or (there.is_file() and read_file(there) == files[README]):
            return [*found, (name, README)]
    return found


def _new_files(root: Path, files: Files, say: Say) -> Changes:
    """Return what makes *files*; those that are there already are left as they are."""
    changes: Changes = {}
    in_the_way: list[str] = []
    own: list[str] = []
    # Start scripts last: without one, the next run completes a framework.
    for name in sorted(files, key=lambda name: (PurePath(name).name in START_SCRIPTS, name)):
        check_way(root, name)
        there, folder = read_file(root / name), root / name.partition("/")[0]
        if there is None:
            changes[name] = (None, files[name])
        elif there != files[name]:
            (own if _is_framework(folder) else in_the_way).append(printable(name))
    if in_the_way := sorted(in_the_way):
        listed = ", ".join(in_the_way[:10]) + (f" and {len(in_the_way) - 10} more" if in_the_way[10:] else "")
        raise SettingsError(f"{root} has other files of these names, and none is overwritten: {listed}; rename yours")
    if own:
        say(f"these are yours, and stay as they are: {', '.join(own)}")
    return changes


def _is_framework(folder: Path) -> bool:
    return all((folder / name).is_file() for name in START_SCRIPTS)


# --- What is added to files of the project's own ----------------------------------------------------------------------


def _additions(root: Path, files: Files, frameworks: Sequence[str], wanted: Mapping[str, str], say: Say) -> Changes:
    """Return lines to add to Makefile, .gitignore, .gitattributes and config.env."""
    changes: Changes = {}
    _add_to_makefile(changes, root, files, say)
    for name in ("gitignore", "gitattributes"):
        lines = [line for line in files[f"{TEMPLATES}/{name}"].content.decode().splitlines() if line]
        if name == "gitattributes":
            lines += [f"/{framework}/** text=auto eol=lf" for framework in frameworks]
        there = _own(root, f".{name}", lines).content.decode(errors="replace")
        has = {line.strip().strip("/") for line in there.splitlines()}
        missing = [line for line in lines if line.strip("/") not in has]
        if not all(line.startswith("#") for line in missing):
            _add(changes, root, f".{name}", [*([""] if there and missing[0].startswith("#") else []), *missing])
    settings = read_config(root) if root.is_dir() else {}
    for name, text in wanted.items():
        if settings.get(name, text) != text:
            said = f"sets {name} to '{printable(settings[name])}', not '{text}'"
            raise SettingsError(f"{root / 'config.env'} {said}; change it there, or leave it out here")
    lines = [f"{name}={shlex.quote(text)}" for name, text in wanted.items() if name not in settings]
    if not os.path.lexists(root / "config.env"):
        lines = [_HEADER, *lines]
    if lines:
        _add(changes, root, "config.env", lines)
    return changes


def _add_to_makefile(changes: Changes, root: Path, files: Files, say: Say) -> None:
    """Have the project's Makefile include ours; say which targets both have."""
    makefile = next((name for name in _MAKEFILES if os.path.lexists(root / name)), "")
    if not makefile:
        changes["Makefile"] = (None, files[f"{TEMPLATES}/Makefile"])
        return
    there = _own(root, makefile, [INCLUDE])
    if _INCLUDED.search(there.content):
        return
    _add(changes, root, makefile, ["", INCLUDE])
    theirs, ours = _targets(there), _targets(files["scripts/clusters.mk"])
    if both := sorted(name for name in theirs if f"clusters-{name}" in ours):
        named = ", ".join(f"clusters-{name}" for name in both)
        say(f"{makefile} has {', '.join(both)} of its own, which stay; ours are {named}")


def _targets(makefile: File) -> set[str]:
    """Return the targets that are written out in *makefile*."""
    lines = _TARGETS.findall(makefile.content.decode(errors="replace"))
    return {name for line in lines for name in line.split()}


def _own(root: Path, name: str, lines: Sequence[str]) -> File:
    """Return the project's own file *name*, to which *lines* are added."""
    if (root / name).is_symlink():
        listed = " ".join(line for line in lines if line)
        raise SettingsError(
            f"{root / name} is a link, through which nothing is written; put there what is missing: {listed}"
        )
    return read_file(root / name) or File(b"")


def _add(changes: Changes, root: Path, name: str, lines: Sequence[str]) -> None:
    """Add *lines* behind those of the project's file *name*, ended as those are."""
    there = _own(root, name, lines)
    end = b"\r\n" if b"\r\n" in there.content else b"\n"
    start = there.content + (end if there.content and not there.content.endswith(b"\n") else b"")
    after = File(start + b"".join(line.encode() + end for line in lines), there.mode)
    changes[name] = (read_file(root / name), after)


# --- What is shown -------------------------------------------------------------------------------------------


def _show(changes: Changes, show: Callable[[str], object], *, in_full: bool) -> None:
    """Show what is made, and which lines are added to a user's files."""
    made = [name for name, (before, _) in changes.items() if before is None]
    counts = Counter(name.partition("/")[0] for name in made if "/" in name and not in_full)
    for folder, count in sorted(counts.items()):
        show(f"new    {printable(folder)}/  {count} file{'s'[: count > 1]}")
    for name in made:
        if in_full or "/" not in name:
            show(f"new    {printable(name)}")
    for name, (before, after) in changes.items():
        if before and "/" not in name:
            show(f"lines  {printable(name)}, behind its own:")
            for line in filter(None, after.content[len(before.content) :].decode(errors="replace").splitlines()):
                show(f"         + {printable(line)}")
