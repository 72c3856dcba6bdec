"""Files of a user's folder that go to nodes; names that go nowhere.

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
from typing import TYPE_CHECKING, Any

from oci_cluster.errors import SettingsError

if TYPE_CHECKING:
    from pathspec import PathSpec

NEVER_SENT = (
    ".*",
    "__pycache__",
    "node_modules",
    "config.env",
    "config.mk",
    "_netrc",
    "credentials.json",
    "client_secret*.json",
    "kubeconfig",
    "*.kubeconfig",
    "*.tfstate",
    "*.tfstate.*",
    "*.tfvars",
    "cwallet.sso",
    "ewallet.*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.ppk",
    "*.jks",
    "*.keystore",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
)
"""Names, in small and capital letters, whatever an ignore file says: keys, settings with passwords, what is hidden
(.env, .netrc, .oci, .ssh, .git), and what tools make again."""

NEVER_SENT_AS_CODE = (*NEVER_SENT, "*.env")
"""The same, for a user's folder: an image also has the settings of its framework."""

# What images need of the project all the same.
_OF_IMAGES = ("*/settings.env", "*/client/*.env", "scripts/sessions/**/*.env")


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
    """Files of a folder of code: those that go, and those that stay."""

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
        """Return why the file *name* stays; empty where it goes, or is not there."""
        paths = [Path(name), *Path(name).parents]
        return next((self.left_out[path.as_posix()] for path in paths if path.as_posix() in self.left_out), "")


def code_files(folder: Path) -> CodeFiles:
    """Return what goes of the *folder* of code to the nodes."""
    found: list[Path] = []
    left_out: dict[str, str] = {}
    keys: list[str] = []
    environments: list[str] = []
    docker = _DockerRules(folder)
    # The rules of each folder that is still to be walked: its parents' .gitignore files, the nearest first.
    above: dict[Path, list[_GitRules]] = {folder: []}
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


def _why_ignored(path: Path, rules: Sequence[_GitRules], docker: _DockerRules, *, is_folder: bool) -> str:
    for rule in rules:
        stays, line = rule.judge(path.relative_to(rule.folder).as_posix(), is_folder=is_folder)
        if stays:
            return f"'{line}' in {rule.folder / _GIT} leaves it out"
        if stays is not None:
            break
    if is_folder and docker.has_exceptions:  # one of them may be for a file in it
        return ""
    stays, line = docker.judge(path.relative_to(docker.folder).as_posix())
    return f"'{line}' in {docker.folder / _DOCKER} leaves it out" if stays else ""


class _GitRules:
    """A ``.gitignore``: the last line that fits decides."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines: list[tuple[str, bool, re.Pattern[str]]] = []
        for line in _lines_of(folder / _GIT):
            (pattern,) = _compiled(folder / _GIT, line, line).patterns
            if pattern.include is not None:
                text = pattern.regex.pattern
                if text.endswith("/"):  # lib/** means what is in lib
                    text += "."
                for below, itself in _BELOW.items():
                    text = text.replace(below, itself)
                self._lines.insert(0, (line.strip(), bool(pattern.include), re.compile(text, re.DOTALL)))

    def judge(self, name: str, *, is_folder: bool) -> tuple[bool | None, str]:
        """Return whether *name*, a path in the folder, stays, None where no line fits; and the line."""
        asked = f"{name}/" if is_folder else name
        return next(((stays, line) for line, stays, regex in self._lines if regex.search(asked)), (None, ""))


class _DockerRules:
    """A ``.dockerignore``: lines begin at its folder; the last one decides."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        file = folder / _DOCKER
        self._lines = [line.strip() for line in _lines_of(file) if line.strip() and not line.startswith("#")]
        self._specs = [_compiled(file, line, _as_git_has_it(line), is_gits=False) for line in self._lines]
        self.has_exceptions = any(line.startswith("!") for line in self._lines)

    def judge(self, name: str) -> tuple[bool | None, str]:
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


def _compiled(file: Path, line: str, text: str, *, is_gits: bool = True) -> PathSpec[Any]:
    from pathspec import GitIgnoreSpec, PathSpec  # noqa: PLC0415 - builds of images have the standard library alone

    try:
        return (GitIgnoreSpec if is_gits else PathSpec).from_lines("gitignore", [text])
    except ValueError as error:
        raise SettingsError(f"{file}: '{line}' is no pattern: {error}; correct it, or take it out") from error


def docker_lines() -> list[str]:
    """Return the lines of a ``.dockerignore`` that leaves these names out of a build."""
    never = [f"**/{_in_any_case(name)}" for name in NEVER_SENT_AS_CODE]
    return [*never, *(f"!{name}" for name in _OF_IMAGES)]


def _in_any_case(name: str) -> str:
    # As engines take it, which know capital letters from small ones.
    is_of_tools = name in {"__pycache__", "node_modules"}
    return name if is_of_tools else "".join(f"[{one}{one.upper()}]" if one.islower() else one for one in name)
