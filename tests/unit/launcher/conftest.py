# What the tests of several files begin with.

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.fake_backend import FakeSignals
from unit.launcher.door import Door
from unit.launcher.fake_checkout import Checkout
from unit.launcher.following import Run
from unit.launcher.life import Life
from unit.launcher.shown_logs import Logs

from oci_cluster.launcher import context, verbs
from oci_cluster.launcher.args import command_line
from oci_cluster.launcher.launch import launch
from oci_cluster.launcher.launch import plan as plan_module


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """Return a checkout whose launches all have the same id and time."""
    monkeypatch.setattr(plan_module.secrets, "token_hex", lambda size: "1f2e3d4c" * (size // 4))
    monkeypatch.setattr(plan_module, "now", lambda: "2026-01-02T03:04:05Z")
    return Checkout(tmp_path.resolve())


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    """Return a checkout with a framework, which all verbs go to; the handlers of signals are put back."""
    root = tmp_path / "my project"
    (root / "dask" / "example").mkdir(parents=True)
    (root / "dask" / "example" / "train.py").touch()
    (root / "dask" / "start-master.sh").touch()
    (root / "dask" / "settings.env").write_text("MIN_WORKERS=1\n")
    (root / "common").mkdir()
    found = Door(root)
    for module in (verbs, launch, context):
        monkeypatch.setattr(module, "PROJECT_ROOT", root)
    for module in (verbs, context):
        monkeypatch.setattr(module, "open_backend", found.open)
    monkeypatch.setattr(command_line, "known_backends", lambda: ["cloud", "local"])
    monkeypatch.setattr(context, "ensure_backend_tools", lambda *_, **__: None)
    monkeypatch.setattr(launch, "ensure_tools", lambda *_: Path(sys.prefix) / "bin" / "python")
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGCHLD)}
    yield found
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def life(tmp_path: Path, clock: Any) -> Life:
    """Return a checkout without clusters."""
    return Life(tmp_path, clock)


@pytest.fixture
def signals(clock: Any) -> FakeSignals:
    """Return signals that a test sends."""
    return FakeSignals(clock)


@pytest.fixture
def run(tmp_path: Path, clock: Any, signals: FakeSignals) -> Run:
    """Return a cluster that runs, and that a test follows."""
    return Run(tmp_path, clock, signals)


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)
