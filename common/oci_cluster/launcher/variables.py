"""What ``--env``, ``--env-plain`` and ``--env-file`` give to every node, in the order in which they were typed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from oci_cluster.contract.config import read_settings_file
from oci_cluster.contract.settings_table import DECIDED, FLAG_ONLY, FLAGS
from oci_cluster.errors import SettingsError, UsageError

ARGUMENTS = "ARGS"
"""With ``--env-plain``: the entry point's arguments, which are no variable that a person sets."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def variables_of(typed: Iterable[tuple[str, str]], environ: Mapping[str, str], cwd: Path) -> list[str]:
    """Return ``NAME=VALUE`` of each variable; of those that have one name, the last counts.

    Args:
        typed: Options and their values, in order; others than these are passed over.
        environ: The launcher's environment: ``--env NAME`` takes the value that NAME has there.
        cwd: Where relative paths start.

    Raises:
        UsageError: a variable is not set, or a file cannot be used; holds no value, which may be a secret.
    """
    pairs: list[str] = []
    for option, text in typed:
        if option == "--env" or (option == "--env-plain" and text != ARGUMENTS):
            pairs.append(_with_value(text, environ))
        elif option == "--env-file":
            pairs += [f"{name}={value}" for name, value in _read_file(cwd / Path(text).expanduser()).items()]
    return pairs


def plain_names(typed: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Return the names of the variables that are no secrets, as the person says who has *typed* these options."""
    return frozenset(text.partition("=")[0] for option, text in typed if option == "--env-plain")


def _with_value(text: str, environ: Mapping[str, str]) -> str:
    if not _NAME.fullmatch(text):  # NAME=VALUE; what is neither is refused where pairs are checked
        return text
    if text not in environ:
        raise UsageError(
            f"--env {text}: there is no {text} in your environment; set and export it, or write {text}=VALUE"
        )
    return f"{text}={environ[text]}"


def _read_file(path: Path) -> dict[str, str]:
    try:
        values = read_settings_file(path)
    except SettingsError as error:
        raise UsageError(f"--env-file: {error}") from error
    for name in values:
        if name in DECIDED or name in FLAG_ONLY:
            why = f"is not accepted; use {FLAGS[name]}" if name in FLAG_ONLY else "is decided by the launch itself"
            advice = "" if name in FLAG_ONLY else "; leave it out"
            raise UsageError(f"--env-file {path}: {name} {why}{advice}")
    return values
