"""Checks settings as a person gave them, beyond the form of their values."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from oci_cluster.contract.parsers import parse_bounds, parse_count, parse_duration
from oci_cluster.contract.settings.schema import DECIDED, SETTINGS, Receiver, Setting
from oci_cluster.contract.settings.settings_files import SettingsReader, framework_defaults, framework_words
from oci_cluster.errors import Problem

# How alike two names are that one person means: MAX_RESTART and MAX_RESTARTS have 0.96, MAX_NODES and MIN_NODES 0.78.
_ALIKE = 0.9
# Names that scripts of every framework may have for themselves, though one framework has a setting of that name.
_ANYBODYS = re.compile(r"TF_.*|HOROVOD_.*|LOG_LEVEL")
# Why a framework has no use for a setting that most have.
_WHY_UNUSED = {
    "ADAPT": "asks for no workers",
    "CLUSTER_TLS": "encrypts nothing",
    "EPHEMERAL": "has no service that could stay",
    "MAX_RESTARTS": "starts nothing again",
    "PS_COUNT": "has no parameter servers",
}


# The words in capitals that stand in SETTING_VALUES for many values.
_FORMS: Mapping[str, Callable[[str], object]] = {
    "COUNT": parse_count,
    "POSITIVE": partial(parse_count, minimum=1),
    "DURATION": parse_duration,
    "RANGE": partial(parse_bounds, example="8700:8800"),
}


def check_form(form: str, text: str) -> None:
    """Raise ValueError where *text* has not the *form* of ``SETTING_VALUES``, such as ``auto|POSITIVE``."""
    words = form.split("|")
    if text in words and text not in _FORMS:
        return
    named = [word for word in words if word in _FORMS]
    literal = [word for word in words if word not in _FORMS]
    try:
        for word in named:
            _FORMS[word](text)
    except ValueError as error:
        if not literal:
            raise
        raise ValueError(f"{error}, nor {' nor '.join(literal)}") from error
    if not named:
        raise ValueError(f"'{text}' is not one of {', '.join(literal)}")


@dataclass(frozen=True)
class SettingChecks:
    """The checks of one launch."""

    folder: Path
    """The framework's."""
    backend: str
    typed: Mapping[str, str]
    """What ``--env`` gives."""
    given: SettingsReader
    """All that somebody has given: flags first, then :attr:`typed`, the environment and ``config.env``."""

    @cached_property
    def _declared(self) -> dict[str, list[str]]:
        folders = (path.parent for path in sorted(self.folder.parent.glob("*/start-master.sh")))
        return {folder.name: list(framework_defaults(folder)) for folder in folders}

    def problems(self, config: Mapping[str, str]) -> list[Problem]:
        """Return what is wrong with the settings, those of ``config.env`` among them."""
        return [
            *self._misspelt(self.typed, "--env "),
            *self._others_settings(),
            *self._misspelt(config, "config.env: "),
            *self._unused(),
            *self._forms(),
        ]

    def _misspelt(self, names: Collection[str], where: str) -> Iterable[Problem]:
        for name, meant in self.nearly_settings(names).items():
            advice = f"did you mean {meant}? If {name} is your script's own, give {meant} too"
            yield Problem(name, f"{where}{name} is not a setting", advice)

    def nearly_settings(self, names: Collection[str]) -> dict[str, str]:
        """Return *names* that are nearly settings, which are not given themselves."""
        others = [name for name in names if name not in SETTINGS]
        if not others:
            return {}
        import difflib  # noqa: PLC0415 - where a name is to be compared

        rows = [row for row in SETTINGS.values() if self._is_used(row)]
        usable = {name for row in rows for name in (row.name, *row.aliases)} | {*framework_defaults(self.folder)}
        found = {}
        for name in others:
            alike = difflib.get_close_matches(name.upper(), usable, 1, _ALIKE)
            if alike and alike[0] not in names:
                found[name] = alike[0]
        return found

    def _is_used(self, row: Setting) -> bool:
        """Return whether this launch could be given the setting."""
        if row.receiver is Receiver.BACKEND:
            return self.backend in row.backend_defaults
        return row.receiver is not Receiver.IMAGES and (row.name not in DECIDED)

    def _others_settings(self) -> Iterable[Problem]:
        """Yield what is a setting of another framework or backend alone."""
        for name in self.typed:
            row = SETTINGS.get(name)
            backends = sorted(row.backend_defaults) if row and row.receiver is Receiver.BACKEND else []
            if backends and self.backend not in backends:
                where = " and ".join(backends)
                told = f"--env {name} is a setting of the backend {where}"
                yield Problem(name, told, f"{self.backend} does not use it: leave it out")
            owners = [framework for framework, declared in self._declared.items() if name in declared]
            if owners and row is None and self.folder.name not in owners and not _ANYBODYS.fullmatch(name):
                owner = " and ".join(owners)
                told = f"--env {name} is a setting of {owner}"
                yield Problem(name, told, f"{self.folder.name} does not use it: leave it out")

    def _unused(self) -> Iterable[Problem]:
        for name in framework_words(self.folder, "UNUSED_SETTINGS"):
            # A config.env that several frameworks share may say it for those that can.
            sources = self.given.sources[:2] if name in {"ADAPT", "MAX_RESTARTS"} else self.given.sources
            read = SettingsReader(*sources)
            default = SettingsReader().setting(name)
            if read.text(name) and read.setting(name) != default and not read.problems:
                told = f"{name} is not for {self.folder.name}, which {_WHY_UNUSED[name]}"
                yield Problem(name, told, "leave it out")

    def _forms(self) -> Iterable[Problem]:
        """Yield which of the framework's own settings have values that it cannot use."""
        for word in framework_words(self.folder, "SETTING_VALUES"):
            name, _, form = word.partition("=")
            if text := self.given.text(name):
                read = SettingsReader({name: text})
                read.value(name, partial(check_form, form))
                yield from read.problems


def taken_ports(read: SettingsReader, *declared: Iterable[str]) -> list[Problem]:
    """Return the problem of ``EXPOSE`` naming ports of *declared* settings."""
    wanted = SettingsReader(*read.sources).setting("EXPOSE") or ()  # what is wrong with it is told by who hands it on
    taken: dict[int, str] = {}
    for name in (name for names in declared for name in names if name.endswith(("_PORT", "_PORTS"))):
        first, _, last = read.text(name).partition(":")
        if first.isdecimal() and (last or first).isdecimal():
            span = range(int(first), int(last or first) + 1)
            taken |= {port: f"{port} is {name} ({read.text(name)})" for port in wanted if port in span}
    told, advice = (
        ", ".join(taken.values()),
        "leave that port out, which is reached without EXPOSE, or give your server another port",
    )
    return [Problem("EXPOSE", f"EXPOSE: {told}", advice)] if told else []
