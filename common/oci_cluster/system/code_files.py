"""Which files of a folder of code go to the nodes: neither keys, nor Python environments, nor what ignore files name.

pathspec turns the lines of ignore files into regular expressions. What is walked is the folder, not git's index: it
need not be in a repository, and git need not be there. The ignore files are those of the folder and of the folders in
it. What stands above it, and what git is told elsewhere (``.git/info/exclude``), is not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from pathspec import GitIgnoreSpec, PathSpec

from oci_cluster.errors import SettingsError
from oci_cluster.system.never_sent import NEVER_SENT_AS_CODE

# What tools make is not worth a word.
_MADE_BY_TOOLS = (".*", "__pycache__", "node_modules")
# What the folder of a Python environment has, whoever made it: venv, virtualenv and uv; conda.
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
_GIT, _DOCKER = ".gitignore", ".dockerignore"
# How pathspec's expressions say "this, or what is below it". A folder is judged before what is below it, so only "this"
# is asked here; else `!*/` would bring back the files of every folder.
_BELOW = {r"(?:(?P<ps_d>/)|$)": "/?$", r"(?P<ps_d>/)": "/$"}


@dataclass(frozen=True)
class CodeFiles:
    """What goes of a folder of code, and what stays."""

    paths: Sequence[Path]
    """The files and links that go, in an order that lasts."""
    left_out: Mapping[str, str]
    """Why each of the others stays, by its name in the folder: the pattern, and the file that has it. A folder that
    stays as a whole is named alone."""
    keys: Sequence[str]
    """Of these, the names that look like a key, or like settings: people may wonder where they are."""
    environments: Sequence[str] = ()
    """Of these, Python environments: nodes have their own, and few would fit."""

    def why_left_out(self, name: str) -> str:
        """Return why the file *name* of the folder stays; empty where it goes, or is not there."""
        paths = [Path(name), *Path(name).parents]
        return next((self.left_out[path.as_posix()] for path in paths if path.as_posix() in self.left_out), "")


class _Rules(Protocol):
    """The lines of one ignore file."""

    folder: Path

    def judge(self, name: str, *, is_folder: bool) -> tuple[bool | None, str]:
        """Return whether *name*, a path in :attr:`folder`, stays, None where no line fits; and the line."""


def code_files(folder: Path) -> CodeFiles:
    """Return what goes of the *folder* of code to the nodes.

    Raises:
        SettingsError: an ignore file cannot be read, or a line of it is no pattern.
    """
    found: list[Path] = []
    left_out: dict[str, str] = {}
    keys: list[str] = []
    environments: list[str] = []
    docker = _DockerRules(folder)
    # The rules of each folder that is still to be walked: its parents' .gitignore files, the nearest first.
    above: dict[Path, list[_Rules]] = {folder: []}
    for place, folders, files in os.walk(folder):
        here = Path(place)
        rules = [_GitRules(here), *above.pop(here)]
        links = [name for name in folders if (here / name).is_symlink()]
        going_on = []
        for name in sorted([*folders, *files]):
            path = here / name
            is_folder = name in folders and name not in links
            why, is_key = _why_never(name), False
            if why:
                is_key = not any(fnmatchcase(name, pattern) for pattern in _MADE_BY_TOOLS)
            elif name in folders and any((path / sign).exists() for sign in _ENVIRONMENT):  # a link to one, too
                why = f"'{name}' is a Python environment, which is never sent"
                environments.append(path.relative_to(folder).as_posix())
            else:
                why = _why_ignored(path, rules, docker, is_folder=is_folder)
            if why:
                left_out[path.relative_to(folder).as_posix()] = why
                keys += [path.relative_to(folder).as_posix()] if is_key else []
            elif is_folder:
                going_on.append(name)
                above[path] = rules
            elif path.is_symlink() or path.is_file():
                found.append(path)
        folders[:] = going_on
    return CodeFiles(sorted(found), left_out, keys, sorted(environments))


def _why_never(name: str) -> str:
    pattern = next((pattern for pattern in NEVER_SENT_AS_CODE if fnmatchcase(name.lower(), pattern)), "")
    return f"'{pattern}' is never sent" if pattern else ""


def _why_ignored(path: Path, rules: Sequence[_Rules], docker: _DockerRules, *, is_folder: bool) -> str:
    for rule in rules:
        stays, line = rule.judge(path.relative_to(rule.folder).as_posix(), is_folder=is_folder)
        if stays:
            return f"'{line}' in {rule.folder / _GIT} leaves it out"
        if stays is not None:
            break
    if is_folder and docker.has_exceptions:  # one of them may be for a file in it
        return ""
    stays, line = docker.judge(path.relative_to(docker.folder).as_posix(), is_folder=is_folder)
    return f"'{line}' in {docker.folder / _DOCKER} leaves it out" if stays else ""


class _GitRules:
    """A ``.gitignore``: the last line that fits decides."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines: list[tuple[str, bool, re.Pattern[str]]] = []
        for line in _lines_of(folder / _GIT):
            (pattern,) = _compiled(GitIgnoreSpec, folder / _GIT, line, line).patterns
            if pattern.include is not None:
                text = pattern.regex.pattern
                if text.endswith("/"):  # lib/** means what is in lib
                    text += "."
                for below, itself in _BELOW.items():
                    text = text.replace(below, itself)
                self._lines.insert(0, (line.strip(), bool(pattern.include), re.compile(text, re.DOTALL)))

    def judge(self, name: str, *, is_folder: bool) -> tuple[bool | None, str]:
        asked = f"{name}/" if is_folder else name
        return next(((stays, line) for line, stays, regex in self._lines if regex.search(asked)), (None, ""))


class _DockerRules:
    """A ``.dockerignore``: every line begins at the folder itself, and also means what is below; the last decides."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        file = folder / _DOCKER
        self._lines = [line.strip() for line in _lines_of(file) if line.strip() and not line.startswith("#")]
        self._specs = [_compiled(PathSpec, file, line, _as_git_has_it(line)) for line in self._lines]
        self.has_exceptions = any(line.startswith("!") for line in self._lines)

    def judge(self, name: str, *, is_folder: bool) -> tuple[bool | None, str]:  # noqa: ARG002 - docker does not ask
        for line, spec in zip(reversed(self._lines), reversed(self._specs), strict=True):
            if (stays := spec.check_file(name).include) is not None:
                return stays, line
        return None, ""


def _as_git_has_it(line: str) -> str:
    """Return a *line* of a ``.dockerignore`` as a ``.gitignore`` would say it."""
    sign = line[:1] if line.startswith("!") else ""
    path = os.path.normpath(line.removeprefix(sign).strip() or ".").lstrip("/")
    return f"{sign}/{path}" if path not in {"", "."} else "#"


def _lines_of(file: Path) -> list[str]:
    try:
        text = os.fsdecode(file.read_bytes()).removeprefix("\ufeff")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SettingsError(
            f"{file} cannot be read: {error.strerror}; what it keeps out of the code is not known: allow reading it"
        ) from error
    return [line for line in (line.rstrip("\r") for line in text.split("\n")) if line]


def _compiled(kind: type[PathSpec[Any]], file: Path, line: str, text: str) -> PathSpec[Any]:
    try:
        return kind.from_lines("gitignore", [text])
    except ValueError as error:
        raise SettingsError(f"{file}: '{line}' is no pattern: {error}; correct it, or take it out") from error
