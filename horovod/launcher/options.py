"""The settings of the Horovod folder, from the environment: settings.env says what each is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from oci_cluster.contract.values import parse_bounds, parse_count
from oci_cluster.errors import SettingsError
from oci_cluster.system.gpus import gpus_here

T = TypeVar("T")
FRAMEWORKS = ("pytorch", "tensorflow")


@dataclass(frozen=True)
class Options:
    """What is not given: 0 or None; slots are as many as the node has GPUs then, or one."""

    framework: str
    ssh_port: int
    rendezvous_port: int
    slots: int
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


def read_options(environ: Mapping[str, str]) -> Options:
    """Return the settings in *environ*; a SettingsError names every one that is wrong."""
    problems: list[str] = []

    def read(name: str, parse: Callable[[str], T], default: T) -> T:
        text = environ.get(name, "")
        try:
            return parse(text) if text else default
        except ValueError as error:
            problems.append(f"{name}: {error}")
            return default

    def number(name: str, default: int | None, *, least: int = 1, most: int = 9999) -> int | None:
        return read(name, lambda text: parse_count(text, minimum=least, maximum=most), default)

    period_s = read("GRACE_PERIOD", float, 10.0)  # the agent has resolved it
    options = Options(
        framework=environ.get("HOROVOD_FRAMEWORK") or FRAMEWORKS[0],
        ssh_port=number("SSH_PORT", 12345, least=1024, most=65535),
        rendezvous_port=number("RENDEZVOUS_PORT", 12340, least=1024, most=65535),
        slots=0 if environ.get("SLOTS") == "auto" else number("SLOTS", 0, most=999),
        min_np=number("MIN_NP", 0),
        max_np=number("MAX_NP", 0),
        reset_limit=number("RESET_LIMIT", None, least=0),
        cooldown_s=read("BLACKLIST_COOLDOWN", lambda text: parse_bounds(text, maximum=3600), (5, 60)),  # Horovod's most
        grace_s=0.5 * period_s,
        longer_grace_s=0.6 * period_s,
    )
    if options.max_np and options.min_np > options.max_np:
        problems.append(f"MIN_NP: {options.min_np} is more than MAX_NP ({options.max_np})")
    if options.cooldown_s[0] < 1:  # Horovod takes no other
        problems.append(f"BLACKLIST_COOLDOWN: {options.cooldown_s[0]} s is less than 1")
    if problems:
        raise SettingsError("; ".join(problems))
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


def gpu_count() -> int:
    """Return how many GPUs this node may use: of CUDA_VISIBLE_DEVICES, else all that nvidia-smi lists."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return len(gpus_here(os.environ))
    return len([device for device in visible.split(",") if device.strip() not in {"", "-1"}])
