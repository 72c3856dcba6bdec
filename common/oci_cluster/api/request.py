"""The words of ``Cluster(...)``, and the command line of ``launch.sh`` that they stand for."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from oci_cluster.api.auth import Auth
from oci_cluster.api.place import Place, missing_here
from oci_cluster.contract.settings.schema import DECIDED, FLAG_ONLY, FLAGS, SETTINGS
from oci_cluster.contract.settings.settings_files import framework_defaults, framework_dir, framework_words
from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.launcher.args.command_line import CommandLine
from oci_cluster.launcher.launch.entry_point import ARGUMENTS
from oci_cluster.launcher.launch.launch import request_of
from oci_cluster.launcher.launch.plan import Request, backend_defaults
from oci_cluster.system.console import Say


class PlaceOptions(TypedDict, total=False):
    """The place of a cluster, and who asks."""

    backend: str  # local, docker, oci or kubernetes; without, the setting BACKEND, else local
    settings: Mapping[str, object]  # as config.env has them; they win over it and over the environment
    auth: Auth | None  # who asks; without, whom the environment and config.env name
    project: str | Path | None  # the checkout; without, OCI_CLUSTER_PROJECT, else the one around, else the package's
    say: Say | None  # is told of progress, line by line; without, the logger oci_cluster, else stderr


class Options(PlaceOptions, total=False):
    """A launch, besides framework and workers."""

    entry: str | Path  # your script or notebook; with it the cluster ends
    module: str  # instead of entry: the module that is run as `python -m`
    arguments: Sequence[object]  # the script's
    code: str | Path  # folder of the code; without, that of entry
    outputs: Sequence[str]  # folders of the code that the script writes to
    # On local: the nodes' interpreter. Without, this program's, where it has the framework's packages, else the
    # framework's own environment, to which packages adds what pip names so.
    python: str | Path
    packages: Sequence[str]
    env: Mapping[str, object]  # variables of every node
    env_plain: Mapping[str, object]  # those that are no secrets, whatever they look like; ARGS: the arguments are none
    name: str  # the cluster's; without, one is made from the framework's
    ps: int  # parameter servers
    ttl: str  # the longest life, such as 2h
    keep: bool  # the cluster goes on when this process, or a `with`, has ended
    queue: str  # Kueue's, on kubernetes
    priority: str  # a WorkloadPriorityClass, on kubernetes
    wait_for_quota: str  # how long to wait in the queue


# Options of launch.sh that have the same name, and one value.
_PLAIN = ("entry", "module", "code", "python", "name", "ps", "ttl", "queue", "priority", "wait_for_quota")
# Those that are lists: of a text alone, each letter would be one.
_LISTS = ("arguments", "outputs", "packages")
# What nodes of this machine need beside their framework's packages where the entry point is a notebook.
_NOTEBOOK = ("nbconvert", "ipykernel")


def no_dask(name: str = "distributed") -> SettingsError:
    """Return that this Python, without *name*, cannot be a client of Dask."""
    advice = "install it with the package, in the checkout: python -m pip install './common[dask]'"
    return SettingsError(f"this Python has no {name}, which talks to Dask clusters; {advice}")


def line_of(framework: str, workers: int, options: Options) -> CommandLine:
    """Return the command line of ``launch.sh`` for *options*; raise for wrong ones."""
    if unknown := sorted({*options} - {*Options.__annotations__}):
        raise TypeError(f"Cluster and Job take no {', '.join(unknown)}; see help(oci_cluster.Cluster)")
    given: Mapping[str, Any] = options
    for name in _LISTS:
        if isinstance(given.get(name), str):
            raise UsageError(f"{name}={given[name]!r} is a text, and no list; write {name}=[...], one text for each")
    pairs = [(f"--{name.replace('_', '-')}", given.get(name)) for name in _PLAIN]
    pairs += [
        ("--outputs", ",".join(given.get("outputs", ()))),
        *(("--with", text) for text in given.get("packages", ())),
    ]
    pairs += [("--env", f"{name}={text}") for name, text in dict(given.get("env") or {}).items()]
    for name, text in dict(given.get("env_plain") or {}).items():
        pairs.append(("--env-plain", name if name == ARGUMENTS else f"{name}={text}"))
    line = CommandLine(
        [framework, str(workers)], typed=[(flag, str(value)) for flag, value in pairs if value not in (None, "")]
    )
    for flag, text in line.typed:
        line.given.setdefault(flag, []).append(text)
    if not (given.get("entry") or given.get("module")):
        line.given["--keep"] = []
    if (arguments := given.get("arguments")) is not None:
        line.rest = [*map(str, arguments)]
    return line


def asked(line: CommandLine, settings: Mapping[str, str], place: Place, say: Say) -> Request:
    """Return the launch that *line* and *settings* ask for at *place*."""
    framework = line.words[0]
    _check_settings(framework, settings, place)
    request = request_of(line, place.backend)
    # What is no setting of the launcher is for the backend alone: who asks, by words that no plan may hold.
    own = {name: text for name, text in place.own.items() if name in SETTINGS or name in settings}
    python = request.python or ("" if request.packages else _own_python(framework, line.value("--entry"), place, say))
    return replace(request, settings={**own, **request.settings}, python=python)


def _check_settings(framework: str, settings: Mapping[str, str], place: Place) -> None:
    declared = backend_defaults(place.backend, place.root)
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
    """Return this program's interpreter, where nodes of this machine can have it.

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
