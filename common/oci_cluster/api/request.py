"""What the words of ``Cluster(...)`` are to the launcher: the command line that ``launch.sh`` would be given."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from oci_cluster.api.options import Options
from oci_cluster.api.place import Place, missing_here
from oci_cluster.contract.config import framework_defaults, framework_dir, framework_words, read_settings_file
from oci_cluster.contract.settings_table import DECIDED, FLAG_ONLY, FLAGS, SETTINGS
from oci_cluster.errors import UsageError
from oci_cluster.launcher.command_line import CommandLine, parse
from oci_cluster.launcher.launch import request_of
from oci_cluster.launcher.planning import Request
from oci_cluster.launcher.variables import ARGUMENTS
from oci_cluster.system.console import Say

# Options of launch.sh that have the same name, and one value.
_PLAIN = ("entry", "module", "code", "python", "name", "ps", "ttl", "queue", "priority", "wait_for_quota")
# What nodes of this machine need beside their framework's packages where the entry point is a notebook.
_NOTEBOOK = ("nbconvert", "ipykernel")


def line_of(framework: str, workers: int, options: Options) -> CommandLine:
    """Return the words of ``launch.sh`` for *options*; raise TypeError where there is no such option."""
    if unknown := sorted({*options} - {*Options.__annotations__}):
        raise TypeError(f"Cluster and Job take no {', '.join(unknown)}; see help(oci_cluster.Cluster)")
    given: Mapping[str, Any] = options
    pairs = [(f"--{name.replace('_', '-')}", given.get(name)) for name in _PLAIN]
    pairs += [
        ("--outputs", ",".join(given.get("outputs", ()))),
        *(("--with", text) for text in given.get("packages", ())),
    ]
    pairs += [("--env", f"{name}={text}") for name, text in dict(given.get("env") or {}).items()]
    for name, text in dict(given.get("env_plain") or {}).items():
        pairs.append(("--env-plain", name if name == ARGUMENTS else f"{name}={text}"))
    words = [framework, str(workers), *(f"{flag}={value}" for flag, value in pairs if value)]
    if not (given.get("entry") or given.get("module")):
        words.append("--keep")
    if (arguments := given.get("arguments")) is not None:
        words += ["--", *map(str, arguments)]
    return parse("launch", words)


def asked(line: CommandLine, settings: Mapping[str, str], place: Place, say: Say) -> Request:
    """Return the launch that *line* and *settings* ask for at *place*; *say* is told what was chosen."""
    framework = line.words[0]
    _check_settings(framework, settings, place)
    request = request_of(line, place.backend)
    # What is no setting of the launcher is for the backend alone: who asks, by words that no plan may hold.
    own = {name: text for name, text in place.own.items() if name in SETTINGS or name in settings}
    python = request.python or ("" if request.packages else _own_python(framework, line.value("--entry"), place, say))
    return replace(request, settings={**own, **request.settings}, python=python)


def _check_settings(framework: str, settings: Mapping[str, str], place: Place) -> None:
    file = place.root / "scripts" / "backends" / f"{place.backend}.env"
    declared = read_settings_file(file) if file.exists() else {}
    try:
        known = {*SETTINGS, *declared, *framework_defaults(framework_dir(framework, place.root))}
    except ValueError as error:
        raise UsageError(str(error)) from error
    for name in settings:
        if name in FLAGS or name in FLAG_ONLY:
            why = "has an argument of its own; see help(oci_cluster.Cluster)"
        elif name in DECIDED:
            why = "is decided by the launch itself; leave it out"
        elif name not in known:
            why = f"is no setting of {framework} on {place.backend}; a variable of the nodes is given with env="
        else:
            continue
        raise UsageError(f"settings: {name} {why}")


def _own_python(framework: str, entry: str, place: Place, say: Say) -> str:
    """Return the interpreter that runs this program, where processes of this machine can have it; else nothing.

    A client and its cluster must have the same versions of Python and of the framework: so they have.
    """
    if place.backend != "local" or place.given.get("EXTRA_ENV"):
        return ""
    needed = framework_words(place.root / framework, "REQUIRED_PACKAGES")
    needed += _NOTEBOOK if Path(entry).suffix == ".ipynb" else ()
    if not needed or missing_here(needed):
        return ""
    say(f"nodes run in the Python of this program, {sys.executable}")
    return sys.executable
