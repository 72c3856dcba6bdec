"""A checkout whose backend a test plays, and objects of the Python API there."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.fake_backend import FakeBackend

from oci_cluster.api import background, place
from oci_cluster.api.cluster import Cluster, Job
from oci_cluster.contract.cluster import Cluster as Launched
from oci_cluster.contract.cluster import clusters_dir
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import READY, STOP
from oci_cluster.contract.outcome import Outcome, stop_fields
from oci_cluster.launcher.launch.cluster_reaper import Reaper

PACKAGE = Path(place.__file__).parents[1]


class FakeGuard(Reaper):
    """Notes what its process would be told."""

    def __init__(self, notes: list[str], backend: str, cluster_id: str, *, root: Path, own: dict[str, str]) -> None:
        self.own = own
        self._notes = notes
        self._lock, self._is_told = threading.Lock(), False
        self._process: Any = SimpleNamespace(
            communicate=self._note, stdin=SimpleNamespace(close=lambda: notes.append("released"))
        )
        self.on_end: Callable[[], object] = lambda: None
        notes.append(f"guard {backend}")

    def _note(self, line: bytes) -> None:
        self._notes.append(line.decode().strip())
        if line != b"dismissed\n":
            self.on_end()


class Site:
    """A checkout with one framework, whose nodes end when a `stop` file is there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "scripts" / "backends").mkdir(parents=True)
        (root / "scripts" / "backends" / "local.env").write_text("EXTRA_ENV=\n")
        (root / "common" / "oci_cluster").mkdir(parents=True)
        (root / "common" / "oci_cluster" / "errors.py").touch()
        (root / "common" / "oci_cluster" / "contract").symlink_to(PACKAGE / "contract")
        (root / "plain").mkdir()
        (root / "plain" / "start-master.sh").touch()
        (root / "plain" / "settings.env").write_text("MIN_WORKERS=1\nNPROCS=1\nDASHBOARD_PORT=8787\n")
        self.backend = FakeBackend(clusters_dir(root))
        self.backend.on["states"] = self._obey
        self._ending = threading.Lock()
        self.notes: list[str] = []
        self.said: list[str] = []
        self.guards: list[FakeGuard] = []
        self.given: list[dict[str, str]] = []

    def open(self, name: str, root: Path, given: dict[str, str]) -> FakeBackend:
        assert root == self.root
        self.given.append(given)
        return self.backend

    def reaper(self, *words: Any, **options: Any) -> FakeGuard:
        self.guards.append(FakeGuard(self.notes, *words, **options))
        return self.guards[-1]

    def cluster(self, workers: int = 1, **options: Any) -> Cluster:
        return Cluster("plain", workers, **{"say": self.said.append, "project": self.root, **options})

    def job(self, **options: Any) -> Job:
        return Job("plain", 1, **{"say": self.said.append, "project": self.root, **options})

    def directory(self, cluster: Launched) -> ClusterDir:
        plan = self.backend.plans[cluster.launch_id]
        return ClusterDir(plan.url, cluster.launch_id, plan.launch_key)

    def ready(self, greeting: str = "hello") -> None:
        """Have the cluster that was launched last be ready."""
        self.directory(self.backend.clusters[-1]).publish(READY, facts={"greeting": greeting})

    def end(self, code: int, reason: str = "") -> None:
        """Have the cluster that was launched last end with *code* by itself."""
        cluster = self.backend.clusters[-1]
        with self._ending:  # else who follows it has its nodes stopped in between
            self.directory(cluster).publish(STOP, **stop_fields(Outcome(code, reason)))
            self.backend.end_nodes(cluster, code=code)

    def _obey(self) -> None:
        for cluster in self.backend.clusters:
            with self._ending, contextlib.suppress(FileNotFoundError):
                if self.directory(cluster).is_there(STOP):
                    self.backend.end_nodes(cluster)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a checkout without clusters, in which the current folder is."""
    found = Site(tmp_path / "my project")
    monkeypatch.setattr(place, "open_backend", found.open)
    monkeypatch.setattr("oci_cluster.launcher.launch.cluster_reaper.Reaper", found.reaper)
    monkeypatch.setattr(background, "_LAST_S", 5.0)
    monkeypatch.chdir(tmp_path)
    return found


def until(condition: Callable[[], Any]) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
