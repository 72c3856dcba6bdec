"""The settings of the Horovod folder, from the environment: settings.env says what each is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from messages import NodeError

T = TypeVar("T")
# HOROVOD_FRAMEWORK, and what Horovod calls it where it says what it was built for.
FRAMEWORKS = {"pytorch": "pytorch", "tensorflow": "tensorflow"}


@dataclass(frozen=True)
class Options:
    framework: str
    ssh_port: int
    rendezvous_port: int
    slots: int
    """0: as many as the node has GPUs, or one."""
    min_np: int
    """0: not given."""
    max_np: int
    """0: not given."""
    reset_limit: int | None
    cooldown_s: tuple[int, int]
    grace_period_s: float
    """Between TERM and KILL, for this node's own process; what it ends itself has a share of that."""

    @property
    def is_elastic(self) -> bool:
        return bool(self.min_np or self.max_np)

    @property
    def rank_grace_s(self) -> float:
        """Between TERM and KILL for a rank: 5 s of the usual 10."""
        return 0.5 * self.grace_period_s

    @property
    def link_grace_s(self) -> float:
        """How long main waits for a rank of another node to end, which has rank_grace_s there: 6 s of the usual 10."""
        return 0.6 * self.grace_period_s

    @property
    def leave_s(self) -> float:
        """How long an elastic job may take to do without a node's ranks, at its next commit: 6 s of the usual 10."""
        return 0.6 * self.grace_period_s


def read_options(environ: Mapping[str, str]) -> Options:
    """Return the settings in *environ*; a NodeError names every one that is wrong."""
    problems: list[str] = []

    def read(name: str, parse: Callable[[str], T], default: T) -> T:
        text = environ.get(name, "")
        try:
            return parse(text) if text else default
        except ValueError as error:
            problems.append(f"{name}: {error}")
            return default

    options = Options(
        framework=read("HOROVOD_FRAMEWORK", _framework, "pytorch"),
        ssh_port=read("SSH_PORT", lambda text: _number(text, 1024, 65535), 12345),
        rendezvous_port=read("RENDEZVOUS_PORT", lambda text: _number(text, 1024, 65535), 12340),
        slots=read("SLOTS", lambda text: 0 if text == "auto" else _number(text, 1, 999), 0),
        min_np=read("MIN_NP", lambda text: _number(text, 1, 9999), 0),
        max_np=read("MAX_NP", lambda text: _number(text, 1, 9999), 0),
        reset_limit=read("RESET_LIMIT", lambda text: _number(text, 0, 9999), None),
        cooldown_s=read("BLACKLIST_COOLDOWN", _range, (5, 60)),
        grace_period_s=read("GRACE_PERIOD", _seconds, 10.0),
    )
    if options.max_np and options.min_np > options.max_np:
        problems.append(f"MIN_NP: {options.min_np} is more than MAX_NP ({options.max_np})")
    if problems:
        raise NodeError(78, "; ".join(problems))
    return options


def _framework(text: str) -> str:
    if text not in FRAMEWORKS:
        msg = f"expected {' or '.join(FRAMEWORKS)}, got '{text}'"
        raise ValueError(msg)
    return text


def _number(text: str, minimum: int, maximum: int) -> int:
    if not (text.isascii() and text.isdigit() and minimum <= int(text) <= maximum):
        msg = f"expected a number from {minimum} to {maximum}, got '{text}'"
        raise ValueError(msg)
    return int(text)


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d{1,12}(\.\d+)?", text, re.ASCII):
        msg = f"expected seconds, got '{text}'"
        raise ValueError(msg)
    return float(text)


def _range(text: str) -> tuple[int, int]:
    minimum, _, maximum = text.partition(":")
    limits = _number(minimum, 1, 3600), _number(maximum, 1, 3600)  # what Horovod takes
    if limits[0] > limits[1]:
        msg = f"expected least:most, got '{text}'"
        raise ValueError(msg)
    return limits


def check_binding(framework: str) -> None:
    """Raise a NodeError where this environment's Horovod cannot do *framework*."""
    try:
        built = metadata.distribution("horovod").locate_file("horovod/metadata.json")
        versions = json.loads(Path(str(built)).read_text())
    except (metadata.PackageNotFoundError, OSError, ValueError) as error:
        raise NodeError(78, f"this environment has no Horovod that can be used: {error}") from error
    if FRAMEWORKS[framework] not in versions:
        there = ", ".join(name for name, key in FRAMEWORKS.items() if key in versions) or "nothing"
        msg = (
            f"HOROVOD_FRAMEWORK is {framework}, and this environment's Horovod was built for {there}; there is no "
            "TensorFlow that it can use for Python 3.12 and newer"
        )
        raise NodeError(78, msg)


def gpu_count() -> int:
    """Return how many GPUs this node may use: of CUDA_VISIBLE_DEVICES, else all that nvidia-smi lists."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([device for device in visible.split(",") if device.strip() not in {"", "-1"}])
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    done = subprocess.run([program, "-L"], capture_output=True, text=True, check=False)  # noqa: S603 - found on PATH
    return len([line for line in done.stdout.splitlines() if line.startswith("GPU ")])
