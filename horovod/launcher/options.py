"""The settings of the Horovod folder as values; settings.env explains them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from oci_cluster.contract.parsers import parse_bounds, parse_count
from oci_cluster.contract.settings.config import SettingsReader, framework_defaults
from oci_cluster.errors import SettingsError

FRAMEWORKS = ("pytorch", "tensorflow")
_parse_port = partial(parse_count, minimum=1024, maximum=65535)
_parse_ranks = partial(parse_count, minimum=1, maximum=9999)


@dataclass(frozen=True)
class Options:
    framework: str
    ssh_port: int
    rendezvous_port: int
    slots: int
    """0: as many as the node has GPUs, or one."""
    min_np: int
    max_np: int
    reset_limit: int | None
    cooldown_s: tuple[int, int]
    grace_s: float
    """Between TERM and KILL for a rank: 5 s of the 10 that this node's own process usually has."""
    longer_grace_s: float
    """6 s of the usual 10: for main to see a rank of another node end, for an elastic job to let a node's go."""

    @property
    def is_elastic(self) -> bool:
        return bool(self.min_np or self.max_np)


def _parse_cooldown(text: str) -> tuple[int, int]:
    least, most = parse_bounds(text, maximum=3600)  # the least and the most that Horovod takes
    if least < 1:
        raise ValueError(f"{least} s is less than 1")
    return least, most


def read_options(environ: Mapping[str, str]) -> Options:
    """Return the settings in *environ*; a SettingsError names every one that is wrong."""
    read = SettingsReader(environ, framework_defaults(Path(__file__).resolve().parents[1]))
    period_s = read.value("GRACE_PERIOD", float, 10.0)  # the agent has resolved it
    options = Options(
        framework=read.text("HOROVOD_FRAMEWORK"),
        ssh_port=read.value("SSH_PORT", _parse_port),
        rendezvous_port=read.value("RENDEZVOUS_PORT", _parse_port),
        slots=read.value("SLOTS", lambda text: 0 if text == "auto" else parse_count(text, minimum=1, maximum=999)),
        min_np=read.value("MIN_NP", _parse_ranks, 0),
        max_np=read.value("MAX_NP", _parse_ranks, 0),
        reset_limit=read.value("RESET_LIMIT", parse_count) if read.text("RESET_LIMIT") else None,
        cooldown_s=read.value("BLACKLIST_COOLDOWN", _parse_cooldown),
        grace_s=0.5 * period_s,
        longer_grace_s=0.6 * period_s,
    )
    if options.max_np and options.min_np > options.max_np:
        read.problems.append(f"MIN_NP: {options.min_np} is more than MAX_NP ({options.max_np})")
    if read.problems:
        raise SettingsError.of(read.problems, "horovod/settings.env explains each")
    return options


def check_binding(framework: str) -> None:
    """Raise a SettingsError where this environment's Horovod cannot do *framework*."""
    try:
        built = metadata.distribution("horovod").locate_file("horovod/metadata.json")
        versions = json.loads(Path(str(built)).read_text())
    except (metadata.PackageNotFoundError, OSError, ValueError) as error:
        raise SettingsError(f"this environment has no Horovod that can be used: {error}") from error
    if framework not in FRAMEWORKS or framework not in versions:
        there = ", ".join(name for name in FRAMEWORKS if name in versions) or "nothing"
        msg = f"HOROVOD_FRAMEWORK is {framework}, and this environment's Horovod was built for {there}"
        msg += "; there is no TensorFlow that it can use for Python 3.12 and newer" * (framework == "tensorflow")
        raise SettingsError(msg)
