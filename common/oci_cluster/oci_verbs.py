"""What the verbs of the backend ``oci`` do in their own way, where its packages are; the others are in ``verbs``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from oci_cluster import local, oci_requests
from oci_cluster.process import Signals
from oci_cluster.settings import PROJECT_ROOT, read_config

if TYPE_CHECKING:
    from oci_cluster.jobs import Jobs

# How late a signal may be seen in a pause.
_SIGNAL_S = 0.2


def run_check(args: argparse.Namespace, _program: str) -> int:
    """Print what a launch of the plan on stdin would send."""
    print(oci_requests.check(json.load(sys.stdin), PROJECT_ROOT, as_json=args.json))
    return 0


def run_prepare(_args: argparse.Namespace, _program: str) -> int:
    """Print the interpreter that has what the launcher needs."""
    print(sys.executable)
    return 0


def backend(settings: Mapping[str, str] | None = None, signals: Signals | None = None) -> Jobs:
    """Return the backend `oci`, for the compartment that *settings* or else environment and `config.env` name.

    With *signals*, one of them ends what is not finished yet.
    """
    # A third of a second that `check`, which asks nobody, does not spend.
    from oci_cluster.jobs import Jobs  # noqa: PLC0415
    from oci_cluster.oci_service import Service, service_environ  # noqa: PLC0415

    def is_stopped() -> bool:
        return signals is not None and signals.received is not None

    def sleep(seconds: float) -> None:
        until = time.monotonic() + seconds
        is_new = not is_stopped()
        # Once stopped, what is being ended is waited for.
        while (left := until - time.monotonic()) > 0 and not (is_new and is_stopped()):
            time.sleep(min(left, _SIGNAL_S))

    given = {**read_config(PROJECT_ROOT), **os.environ}
    service = Service(service_environ(given), is_stopped=is_stopped, sleep=sleep)
    service.use_for_storage()
    return Jobs(service, settings or given, local.state_dir(PROJECT_ROOT), is_stopped=is_stopped, sleep=sleep)
