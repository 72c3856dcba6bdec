"""Kinds of sessions: each is a folder of ``scripts/sessions/``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from oci_cluster.contract.parsers import parse_port
from oci_cluster.contract.settings.settings_files import read_settings_file
from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.system.text import printable

FILE = "session.env"
# The setting that says of which kind a cluster's session is.
SETTING = "SESSION"
ATTACHES = ("dask", "outputs")
# What the file says of the kind itself, and no node gets.
_OF_KINDS = frozenset({"SESSION_URL", "SESSION_COMMAND", "SESSION_PROBE", "SESSION_IN"})


@dataclass(frozen=True)
class Kind:
    """One kind of session."""

    name: str
    folder: Path
    port: int
    """Of main: where the session's server listens."""
    url: str
    """What a browser opens, with ``{host}``, ``{port}`` and ``{token}``; empty where no browser does."""
    command: str
    """What a person runs instead, with the same, ``{name}`` and ``{ssh_config}``: a file for ``ssh -F``."""
    probe: str
    """The path that its server answers when it is there, with ``{token}``; empty where it does not speak HTTP."""
    attaches_to: str
    """What ``--in`` gives: ``dask``, a client of that cluster, or ``outputs``, their place; empty: nothing."""
    settings: Mapping[str, str]
    """The port, and what else main is given."""


def known_kinds(root: Path) -> list[str]:
    """Return the kinds that the checkout *root* has."""
    return sorted(path.parent.name for path in (root / "scripts" / "sessions").glob(f"*/{FILE}"))


def read_kind(root: Path, name: str) -> Kind:
    """Return the kind *name* of the checkout *root*; raise UsageError where there is none."""
    if name not in (known := known_kinds(root)):
        shown = printable(name, 100)  # somebody else's Job may name it
        raise UsageError(f"unknown kind of session '{shown}'; this checkout has: {', '.join(known) or 'none'}")
    folder = root / "scripts" / "sessions" / name
    found = read_settings_file(folder / FILE)
    url, command = found.get("SESSION_URL", ""), found.get("SESSION_COMMAND", "")
    try:
        port = parse_port(found.get("SESSION_PORT", ""))
    except ValueError as error:
        raise SettingsError(f"{folder / FILE}: SESSION_PORT: {error}") from error
    if bool(url) == bool(command):
        raise SettingsError(
            f"{folder / FILE}: expected one of SESSION_URL and SESSION_COMMAND: how a person reaches the session"
        )
    attaches_to = found.get("SESSION_IN", "")
    if attaches_to not in {"", *ATTACHES}:
        raise SettingsError(f"{folder / FILE}: SESSION_IN: '{attaches_to}' is none of {', '.join(ATTACHES)}")
    settings = {key: text for key, text in found.items() if key not in _OF_KINDS}
    return Kind(name, folder, port, url, command, found.get("SESSION_PROBE", ""), attaches_to, settings)
