"""A checkout, its backend, a cluster of it, and claims that no other process sees."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.fake_local import keep, make_plan

from oci_cluster.backends.local import addresses
from oci_cluster.backends.local.backend import LocalBackend
from oci_cluster.contract.cluster import Cluster


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project with one framework that binds no port."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "start-master.sh").touch()
    return tmp_path


@pytest.fixture
def backend(root: Path, clock: Any) -> Iterator[LocalBackend]:
    """Return the backend of the project, whose time only the test moves."""
    with contextlib.closing(LocalBackend(root, clock=clock, sleep=clock.sleep)) as backend:
        yield backend


@pytest.fixture
def kept(root: Path) -> Cluster:
    """Return a cluster of 1 + 1."""
    return keep(root, make_plan())


@pytest.fixture
def no_other_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep clusters that run on this machine out of these tests: claims get names of this process's own."""
    monkeypatch.setattr(addresses, "CLAIMS", f"oci-cluster-tests-{os.getpid()}")
