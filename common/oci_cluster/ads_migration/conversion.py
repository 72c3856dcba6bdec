"""Conversion of ADS's fields: settings, variables, and notes about the others."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from oci_cluster.ads_migration.fields import Field
from oci_cluster.contract.settings import ads_names
from oci_cluster.contract.settings.schema import DECIDED, FLAG_ONLY, FLAGS, SETTINGS
from oci_cluster.system.secret_values import secret_in
from oci_cluster.system.text import printable

# In ADS's work dir: old clusters are deleted by the bucket's rule, and what ADS has left is not below it.
_OWN_FOLDER = "oci-cluster"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Kind(Enum):
    """An action that a person may have to take about a field."""

    CHANGED = "different here"
    NO_NEED = "not needed here"
    LOST = "no counterpart"
    UNKNOWN = "not a field of ADS's"


@dataclass(frozen=True)
class Note:
    """One field that was not simply taken, and why."""

    kind: Kind
    path: str
    line: int
    why: str


@dataclass
class Conversion:
    """The launch that a YAML of ADS's becomes."""

    framework: str = ""
    workers: int = 0
    servers: int = 0
    name: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    """For ``config.env``, in this order."""
    variables: dict[str, str] = field(default_factory=dict)
    """Those of the script's own: ``--env``."""
    notes: list[Note] = field(default_factory=list)
    code_dir: str = ads_names.CODE_DIR
    """Where ADS's nodes have the code."""
    outputs: str = ""
    """Folders that the script writes to: ``--outputs``."""
    taken: int = 0
    """How many fields were."""

    @property
    def is_whole(self) -> bool:
        """Whether the launch does all that the YAML says."""
        return not any(note.kind in {Kind.LOST, Kind.UNKNOWN} for note in self.notes)

    def note(self, kind: Kind, found: Field, why: str, name: str = "") -> None:
        """Keep *why* the field is not simply taken; *name* is a part of it."""
        path = f"{found.path}: {printable(name, 100)}" if name else found.path
        self.notes.append(Note(kind, path, found.line, why))

    def lose(self, found: Field, why: str, name: str = "") -> None:
        """Say that the field has no counterpart."""
        self.note(Kind.LOST, found, why, name)

    def open(self, found: Field, *known: str) -> Mapping[str, Field]:
        """Return the fields in *found*, of which those that are not *known* are noted."""
        fields = found.mapping()
        for name, other in fields.items():
            if name not in known:
                self.note(Kind.UNKNOWN, other, _nearest(name, known))
        return {name: other for name, other in fields.items() if name in known}

    def set(self, name: str, text: str, found: Field) -> None:
        """Take the field as the setting *name*, if it can be one; the later wins."""
        if not text:
            return
        problem = _why_not_set(name, text)
        if problem:
            self.lose(found, problem)
            return
        self.taken += 1
        self.settings[name] = text

    def set_work_dir(self, found: Field) -> None:
        """Take a place in a bucket: a folder in it is the work dir."""
        given = found.text().strip().rstrip("/")
        place = given and f"{given}/{_OWN_FOLDER}"
        self.set("WORK_DIR", place, found)
        if self.settings.get("WORK_DIR", "") == place != "":
            why = f"clusters get the folder {_OWN_FOLDER} there: what ADS has left does not expire with them"
            self.note(Kind.CHANGED, found, why)

    def set_variable(self, found: Field, name: str, text: str) -> None:
        """Take a variable as a setting, where ADS knows it, or for the script."""
        row = ads_names.find(name, self.framework)
        if row is not None and row.own:
            self.set(row.own, text, found)
        elif row is not None:
            kinds = {"": Kind.NO_NEED, "else": Kind.CHANGED, "lost": Kind.LOST}
            is_off = bool(row.off) and text.strip() == row.off
            self.note(Kind.NO_NEED if is_off else kinds[row.effect], found, row.reason, name)
        elif name == "HOROVOD_ARGS":
            self.set_options(found, name, text)
        elif problem := _why_no_variable(name, text):
            self.lose(found, problem, name)
        else:
            if ads_names.is_unknown(name):
                self.note(Kind.UNKNOWN, found, "ADS reads no such variable; the script gets it", name)
            self.taken += 1
            self.variables[name] = self.inside_code(text, found, name)

    def inside_code(self, text: str, found: Field, name: str = "") -> str:
        """Return a path in ADS's ``/code`` as a path in the script's folder."""
        own = ads_names.inside_code(text, self.code_dir)
        if own != text:
            self.note(Kind.CHANGED, found, f"{text} is {own} here: the script runs in the folder of its code", name)
        return own

    def set_options(self, found: Field, variable: str, text: str) -> None:
        """Take the options that ADS hands to a program of the framework's in *variable*."""
        options = ads_names.options_of(variable, self.framework, text)
        for name, value in options.settings.items():
            self.set(name, value, found)
        for option, why in options.no_need:
            self.note(Kind.NO_NEED, found, why, option)
        for option, why in options.lost:
            self.lose(found, why, option)


def command(found: Conversion, launch: str) -> str:
    """Return the command that launches the cluster; *launch* is the path of launch.sh."""
    words = [launch, found.framework, str(found.workers)]
    if found.name:
        words += ["--name", found.name]
    if found.servers:
        words += ["--ps", str(found.servers)]
    if found.outputs:
        words += ["--outputs", found.outputs]
    for name, text in found.variables.items():
        words += ["--env", f"{name}={text}"]
    return shlex.join(words)


def _why_not_set(name: str, text: str) -> str:
    if not text.isprintable():
        return f"{name} is one line of text"
    if secret_in(name, text):
        return f"it holds a password or a token, and {name} would be seen by everybody who may read the Job"
    try:
        if name in SETTINGS:
            SETTINGS[name].parse(text)
    except ValueError as error:
        return f"{name}: {error}"
    return ""


def _why_no_variable(name: str, text: str) -> str:
    if not _VARIABLE.fullmatch(name):
        return "a variable's name has letters, digits and _ alone"
    if secret_in(name, text):
        return "a secret stands in no command and no Job; name it in VAULT_SECRETS, by its OCID in OCI Vault"
    if name in DECIDED or name == "RANK":
        return "the launch decides it for each node"
    if name in FLAG_ONLY:
        return f"the launch takes it as {FLAGS[name]} alone"
    if not text.isprintable():
        return "a variable of --env is one line of text here; use --env-file, or read a file of the code's"
    return ""


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = [other for other in known if other.lower() == name.lower()]
    return f"ADS does not read it either; did you mean {near[0]}?" if near else "ADS does not read it either"
