"""Reads settings where they stand: environment, ``config.env``, a framework's ``settings.env``."""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from oci_cluster.contract.parsers import WrongValueError
from oci_cluster.contract.settings.schema import SETTINGS
from oci_cluster.errors import Problem, SettingsError

T = TypeVar("T")

PROJECT_ROOT = Path(__file__).resolve().parents[4]
SETTINGS_FILE = "settings.env"
# Variables that a kernel of Jupyter sets for its notebook: nodes have no matplotlib_inline, and a log is no screen.
_KERNELS = ("JPY_PARENT_PID", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PAGER", "GIT_PAGER")


def own_environment(root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return *environ* for a process of this package as the checkout *root* has it."""
    common, given = str(root / "common"), environ.get("PYTHONPATH", "")
    path = given if common in given.split(os.pathsep) else os.pathsep.join([common, *([given] if given else [])])
    found = {**environ, "PYTHONPATH": path}
    if "JPY_PARENT_PID" in found:
        has_own = found.get("MPLBACKEND", "").startswith("module://matplotlib_inline")
        found = {k: v for k, v in found.items() if k not in _KERNELS and not (k == "MPLBACKEND" and has_own)}
    return found


FRAMEWORK_KEYS = frozenset(
    {
        *("REQUIRED_PACKAGES", "SETTING_VALUES", "UNUSED_SETTINGS", "RANKS_PER_NODE"),
        *("CLIENT_PORT", "NODE_PORTS", "MACHINE_PORTS", "PORTS_BY_ADDRESS"),
    }
)
"""What a framework's file says of the framework itself. These are no settings, and no node gets them."""
ALIASES: Mapping[str, tuple[str, ...]] = {name: row.aliases for name, row in SETTINGS.items() if row.aliases}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A line in which nothing is quoted, as most are; shlex, which reads the others, is slow.
_PLAIN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=([A-Za-z0-9_%+,./:@=-]*)")
# A line up to its comment: a # outside quotes that begins a word, as in a shell. For shlex each # outside quotes is
# one, which would cut CODE_URI=https://.../code.tar#sha256=... short.
_BEFORE_COMMENT = re.compile(r"""([^\s'"\\#]|(?<=\S)\#|\s+(?!\#)|'[^']*'|"(\\.|[^"\\])*"|\\.|['"\\])*""")


def read_settings_file(path: Path) -> dict[str, str]:
    """Return the ``KEY=VALUE`` lines of *path* (``settings.env``, ``config.env``).

    It is read, never run: values may be quoted as in a shell, but nothing is expanded.
    """
    values: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if plain := _PLAIN.fullmatch(line):
            values[plain[1]] = plain[2]
            continue
        if not line or line.startswith("#"):
            continue
        try:
            before = _BEFORE_COMMENT.match(line)
            words = shlex.split(before[0] if before else line)
        except ValueError as error:
            raise SettingsError(f"{path}:{number}: {error}: {_shown(line)}") from error
        if not words:
            continue
        if len(words) > 1 and words[0] == "export":  # a file for shells, too
            del words[0]
        key, equals, value = words[0].partition("=")
        if len(words) > 1 or not equals or not _VARIABLE.fullmatch(key):
            raise SettingsError(f"{path}:{number}: expected KEY=VALUE (quote a value with spaces), got: {_shown(line)}")
        values[key] = value
    return values


def _shown(line: str) -> str:
    """Return what an error shows of *line*: the value may be a password."""
    name, equals, _ = line.strip().partition("=")
    return f"{name}=..." if equals else "a line without ="


def read_config(root: Path) -> dict[str, str]:
    """Return what ``config.env`` of the checkout *root* sets; {} where there is none."""
    path = root / "config.env"
    return read_settings_file(path) if path.exists() else {}


def given_settings(root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of ``config.env`` and *environ*; empty variables do not count."""
    return {**read_config(root), **{name: text for name, text in environ.items() if text}}


def session_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """Return settings of the notebook session of OCI Data Science in *environ*.

    Elsewhere there are none: a Job Run has a ``PROJECT_OCID``, too.
    """
    if not environ.get("NB_SESSION_OCID"):
        return {}
    rows = [row for row in SETTINGS.values() if row.session_variable]
    return {row.name: environ[row.session_variable] for row in rows if environ.get(row.session_variable)}


class SettingsReader:
    """Reads typed values out of an environment and collects every complaint on the way."""

    def __init__(self, *sources: Mapping[str, str]) -> None:
        """Look in *sources* in order, in each under a setting's name and its aliases."""
        self.sources = list(sources)
        self.problems: list[Problem] = []

    def text(self, name: str, default: str = "") -> str:
        """Return the setting as it stands; an empty value counts as not given."""
        for source in self.sources:
            for key in (name, *ALIASES.get(name, ())):
                if source.get(key, ""):
                    return source[key]
        return default

    def value(self, name: str, parse: Callable[[str], T], default: T | None = None) -> T:
        """Return the setting parsed; without *default* it must be given.

        A problem is noted, not raised. The value returned then is of no use, and :meth:`check` refuses it.
        """
        text = self.text(name)
        if not text and default is not None:
            return default
        try:
            if text:
                return parse(text)
            self.complain(name, f"{name} is not set")
        except WrongValueError as error:
            self.complain(name, f"{name}: {error.text}", error.next_step)
        except ValueError as error:
            self.complain(name, f"{name}: {error}")
        except OSError as error:  # in a folder that is another user's, or with too long a name
            self.complain(name, f"{name}: {error.filename} cannot be looked at: {error.strerror}")
        return default  # type: ignore[return-value]

    def complain(self, setting: str, text: str, next_step: str = "") -> None:
        """Note that something is wrong with *setting*, with the name of which *text* begins."""
        problem = Problem(setting, text, next_step)
        if problem not in self.problems:  # others may depend on it, and have read it, too
            self.problems.append(problem)

    def setting(self, name: str, default: Any = None) -> Any:
        """Return the setting *name* of the table, parsed; *default*, a value, replaces its row's."""
        row = SETTINGS[name]
        if default is None and row.default is not None:
            default = row.parse(row.default) if row.default else ""
        return self.value(name, row.parse, default)

    def check(self) -> None:
        """Raise one :class:`SettingsError` that holds every problem noted so far, if there are any."""
        if self.problems:
            raise SettingsError.of(self.problems, "common/README.md lists them all")


def framework_dir(name: str, root: Path = PROJECT_ROOT) -> Path:
    """Return the folder of framework *name*."""
    known = sorted(path.parent.name for path in root.glob("*/start-master.sh"))
    if name not in known:
        raise ValueError(f"unknown framework '{name}'; this checkout has: {', '.join(known) or 'none'}")
    return root / name


def framework_defaults(folder: Path) -> dict[str, str]:
    """Return the settings that the framework in *folder* declares, with their defaults."""
    return {name: text for name, text in _framework_file(folder).items() if name not in FRAMEWORK_KEYS}


def framework_words(folder: Path, key: str) -> list[str]:
    """Return the words of *key*, one of :data:`FRAMEWORK_KEYS`, for the framework in *folder*."""
    return [word for word in _framework_file(folder).get(key, "").split(",") if word]


def _framework_file(folder: Path) -> dict[str, str]:
    path = folder / SETTINGS_FILE
    return _read_once(path, path.stat().st_mtime_ns, path.stat().st_size) if path.exists() else {}


@functools.lru_cache  # each kept cluster's plan asks for its framework's, and a checkout may keep thousands
def _read_once(path: Path, _written_ns: int, _size: int) -> dict[str, str]:
    return read_settings_file(path)
