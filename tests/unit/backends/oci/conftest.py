"""A launcher of the backend `oci`, and the service that a test plays for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.backends.oci.fake_logging import Logging, logged_cluster
from unit.fake_oci import Checkout, Launcher

from oci_cluster.contract.cluster import Cluster
from oci_cluster.launcher.launch import plan


@pytest.fixture
def launcher(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch, empty_memory: None) -> Launcher:
    monkeypatch.setattr("oci_cluster.backends.oci.service.random.uniform", lambda _low, high: high)
    return Launcher(tmp_path.resolve(), clock)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setattr(plan.secrets, "token_hex", lambda size: "1f2e3d4c" * (size // 4))
    monkeypatch.setattr(plan, "now", lambda: "2026-01-02T03:04:05Z")
    monkeypatch.setattr("getpass.getuser", lambda: "somebody")
    return Checkout(tmp_path.resolve())


@pytest.fixture
def logging(launcher: Launcher, cluster: Cluster) -> Logging:
    made = Logging(launcher)
    made.begin()
    return made


@pytest.fixture
def cluster(launcher: Launcher) -> Cluster:
    return logged_cluster(launcher)
