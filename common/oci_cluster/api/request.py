"""What the words of ``Cluster(...)`` are to the launcher: the same request as a command line is."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oci_cluster.api.place import Place, missing_here
from oci_cluster.contract.config import framework_defaults, framework_dir, framework_words, read_settings_file
from oci_cluster.contract.settings_table import DECIDED, FLAG_ONLY, FLAGS, SETTINGS
from oci_cluster.errors import UsageError
from oci_cluster.launcher.packages import packages_of
from oci_cluster.launcher.planning import Request
from oci_cluster.launcher.variables import ARGUMENTS
from oci_cluster.system.console import Say

# What nodes of this machine need beside their framework's packages where the entry point is a notebook.
_NOTEBOOK = ("nbconvert", "ipykernel")


@dataclass(frozen=True)
class Wanted:
    """What somebody wants to be launched, in Python's types."""

    framework: str
    workers: int
    entry: str = ""
    module: str = ""
    arguments: Sequence[str] | None = None
    code: str = ""
    outputs: Sequence[str] = ()
    python: str = ""
    packages: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    env_plain: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = ""
    ps: int = 0
    ttl: str = ""
    queue: str = ""
    priority: str = ""
    wait_for_quota: str = ""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, framework: str, workers: int, options: Mapping[str, Any]) -> Wanted:
        """Return what *options* of ``Cluster(...)`` say.

        Raises:
            TypeError: there is no such option.
        """
        texts = {name: str(value) for name, value in options.items() if name in {"entry", "code", "python"}}
        tables = {
            name: {key: str(value) for key, value in dict(table or {}).items()}
            for name, table in options.items()
            if name in {"env", "env_plain", "settings"}
        }
        return cls(framework, workers, **{**options, **texts, **tables})

    @property
    def has_entry(self) -> bool:
        """Whether something is run, with which the cluster ends."""
        return bool(self.entry or self.module)

    def flags(self) -> dict[str, str]:
        """Return the settings that flags of ``launch.sh`` give, as far as they were named."""
        given = {
            "ENTRY_POINT": self.entry,
            "ENTRY_MODULE": self.module,
            "CODE_DIR": self.code,
            "OUTPUT_FOLDERS": ",".join(self.outputs),
            "CLUSTER_NAME": self.name,
            "PS_COUNT": str(self.ps or ""),
            "TTL": self.ttl,
            "QUEUE": self.queue,
            "PRIORITY": self.priority,
            "WAIT_FOR_QUOTA": self.wait_for_quota,
            "EPHEMERAL": "" if self.has_entry else "0",
        }
        return {name: text for name, text in given.items() if text}


def request_of(wanted: Wanted, place: Place, say: Say) -> Request:
    """Return the request that *wanted* is at *place*; *say* is told what was chosen.

    Raises:
        UsageError: a setting is none, or has an argument of its own.
    """
    _check_settings(wanted, place)
    packages = packages_of(list(wanted.packages), wanted.python)
    variables = {name: text for name, text in wanted.env_plain.items() if name != ARGUMENTS}
    # What is no setting of the launcher is for the backend alone: who asks, by words that no plan may hold.
    own = {name: text for name, text in place.own.items() if name in SETTINGS or name in wanted.settings}
    return Request(
        framework=wanted.framework,
        workers=str(wanted.workers),
        backend=place.backend,
        settings={**own, **wanted.flags()},
        environment=[f"{name}={text}" for name, text in {**wanted.env, **variables}.items()],
        plain=frozenset(wanted.env_plain),
        arguments=None if wanted.arguments is None else [str(word) for word in wanted.arguments],
        python=wanted.python or ("" if packages else _own_python(wanted, place, say)),
        packages=packages,
    )


def _check_settings(wanted: Wanted, place: Place) -> None:
    file = place.root / "scripts" / "backends" / f"{place.backend}.env"
    declared = read_settings_file(file) if file.exists() else {}
    try:
        known = {*SETTINGS, *declared, *framework_defaults(framework_dir(wanted.framework, place.root))}
    except ValueError as error:
        raise UsageError(str(error)) from error
    for name in wanted.settings:
        if name in FLAGS or name in FLAG_ONLY:
            msg = f"settings: {name} has an argument of its own; see help(oci_cluster.Cluster)"
        elif name in DECIDED:
            msg = f"settings: {name} is decided by the launch itself; leave it out"
        elif name not in known:
            where = f"{wanted.framework} on {place.backend}"
            msg = f"settings: {name} is no setting of {where}; a variable of the nodes is given with env="
        else:
            continue
        raise UsageError(msg)


def _own_python(wanted: Wanted, place: Place, say: Say) -> str:
    """Return the interpreter that runs this program, where processes of this machine can have it; else nothing.

    A client and its cluster must have the same versions of Python and of the framework: so they have.
    """
    if place.backend != "local" or place.given.get("EXTRA_ENV"):
        return ""
    needed = framework_words(place.root / wanted.framework, "REQUIRED_PACKAGES")
    needed += _NOTEBOOK if Path(wanted.entry).suffix == ".ipynb" else ()
    if not needed or missing_here(needed):
        return ""
    say(f"nodes run in the Python of this program, {sys.executable}")
    return sys.executable
