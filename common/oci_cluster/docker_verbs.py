"""What the verbs of the backend ``docker`` do in their own way; the others are in ``verbs``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from oci_cluster import container_commands
from oci_cluster.engine import Engine
from oci_cluster.settings import PROJECT_ROOT, SettingsReader, read_config, read_settings_file

if TYPE_CHECKING:
    from oci_cluster.containers import Containers
    from oci_cluster.process import Signals


def run_check(args: argparse.Namespace, _program: str) -> int:
    """Print what a launch of the plan on stdin would run."""
    plan = json.load(sys.stdin)
    engine = Engine(plan["settings"]["DOCKER"])
    print(container_commands.check(plan, PROJECT_ROOT, engine, as_json=args.json))
    return 0


def run_prepare(_args: argparse.Namespace, program: str) -> int:
    """Install what the launcher itself needs; print the interpreter that has it."""
    from oci_cluster.environment import ensure_tools  # noqa: PLC0415 - no other verb needs it
    from oci_cluster.follow import say_to_stderr  # noqa: PLC0415

    print(ensure_tools(PROJECT_ROOT, say_to_stderr(program)))
    return 0


def backend(settings: Mapping[str, str] | None = None, signals: Signals | None = None) -> Containers:
    """Return the backend `docker`, for the engine that *settings* or else environment and `config.env` name.

    With *signals*, one of them ends what is not finished yet.
    """
    from oci_cluster.containers import Containers  # noqa: PLC0415 - `check` runs before .venv, which has its packages

    def is_stopped() -> bool:
        return signals is not None and signals.received is not None

    defaults = read_settings_file(PROJECT_ROOT / "scripts" / "backends" / "docker.env")
    read = SettingsReader(settings or os.environ, read_config(PROJECT_ROOT), defaults)
    return Containers(Engine(read.text("DOCKER")), PROJECT_ROOT, is_stopped=is_stopped, sleep=time.sleep)
