"""Clusters of this machine grow, shrink and end; the runner is one that the test plays."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from unit.backends.local.fake_runner import RUNNER_PID, FakeRunner, node_record, record
from unit.fake_local import Running, keep, make_plan

from oci_cluster.backends.local import backend as local
from oci_cluster.backends.local import records
from oci_cluster.backends.local.backend import LocalBackend
from oci_cluster.contract.cluster import Cluster, Node
from oci_cluster.errors import BackendError, UsageError
from oci_cluster.launcher.lifecycle import Lifecycle

# --- Scale: what is this backend's own of it ----------------------------------------------------------------------


class Scaled:
    """A cluster of 1 + 3 whose runner the test plays: it does nothing of what it is asked."""

    def __init__(self, root: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        given = {"WORKER_COUNT": "3", "MIN_WORKERS": "1", "GRACE_PERIOD": "7"}
        nodes = (Node("MAIN", 0), *(Node("WORKER", rank) for rank in (1, 2, 3)))
        self.cluster = keep(root, make_plan(environment=given, nodes=nodes), ["127.0.0.1"] * 4)
        self.asked: list[dict[str, Any]] = []
        backend = LocalBackend(root, clock=clock, sleep=clock.sleep)
        self._lifecycle = Lifecycle(backend, root, lambda _: None, clock=clock, sleep=clock.sleep)
        found = {"runner_pid": RUNNER_PID, "nodes": [node_record(node.name) for node in nodes]}
        monkeypatch.setattr(backend, "_ask_runner", lambda _, **words: self.asked.append(words))
        monkeypatch.setattr(records, "is_running", lambda _: True)
        monkeypatch.setattr(records, "read_records", lambda _: found)

    def scale(self, text: str) -> int:
        """Ask for workers as scale.sh does."""
        return self._lifecycle.scale(self.cluster, text)


@pytest.fixture
def scaled(root: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Scaled:
    """Return a running cluster of 1 + 3 that can do with one worker."""
    return Scaled(root, clock, monkeypatch)


def test_a_worker_that_does_not_end_is_named(scaled: Scaled, clock: Any) -> None:
    """After GRACE_PERIOD and 10 s: 69, with the way out."""
    began = clock()
    with pytest.raises(BackendError, match=r"^WORKER_3 did not end; end the whole cluster: scripts/stop.sh mine$"):
        scaled.scale("-1")
    assert 17 < clock() - began < 17.2
    assert scaled.asked == [{"end": ["WORKER_3"]}]


def test_more_workers_than_this_machine_takes_ask_for_nothing(scaled: Scaled) -> None:
    """The limit is this backend's own; tests/unit/launcher has all else that can be wrong with a number."""
    with pytest.raises(UsageError, match=r"^251 workers are not possible; choose 1 to 250 \(3 now\)"):
        scaled.scale("251")
    assert scaled.asked == []


# --- Stop -------------------------------------------------------------------------------------------------------------


def test_some_nodes_are_ended_by_a_request(
    kept: Cluster, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner tells them; one that has ended is not mentioned."""
    runner = FakeRunner(kept, monkeypatch)
    with Running(kept):
        backend.end(kept, ["WORKER_1", "WORKER_7"])
    assert runner.requests == [{"start": [], "end": ["WORKER_1"]}]


def test_all_nodes_are_ended_by_the_end_of_their_runner(
    kept: Cluster, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TERM to it: it has a deadline for its nodes, after which it kills."""
    runner = FakeRunner(kept, monkeypatch)
    with Running(kept):
        backend.end(kept, ["MAIN", "WORKER_1"])
    assert runner.signals == [(RUNNER_PID, signal.SIGTERM)]


def test_a_node_is_ended_at_once(kept: Cluster, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """KILL to its agent, with which the kernel ends what that has started; the runner sweeps."""
    runner = FakeRunner(kept, monkeypatch)
    with Running(kept):
        backend.end(kept, ["WORKER_1"], at_once=True)
    assert runner.signals == [(4244, signal.SIGKILL)]


def test_nodes_that_have_ended_are_told_nothing(
    kept: Cluster, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pid of a dead runner may be another program's by now."""
    runner = FakeRunner(kept, monkeypatch)
    for at_once in (False, True):
        backend.end(kept, ["MAIN", "WORKER_1"], at_once=at_once)
    assert runner.signals == []


def test_the_end_removes_the_directories_of_added_nodes_too(
    kept: Cluster, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All that bears the launch's marks until nothing is left, the runner last; no node's directory stays."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    left = iter([1, 2, 0, 1, 0, 0, 0])
    swept: list[tuple[dict[str, str], int | None]] = []

    def sweep(marks: Mapping[str, str], *, spared: int | None = None) -> int:
        swept.append((dict(marks), spared))
        return next(left)

    monkeypatch.setattr(local, "sweep_marked", sweep)
    record(kept, node_record("MAIN", "FAILED"), node_record("WORKER_7", "FAILED"))
    for node in ("MAIN", "WORKER_1", "WORKER_7", "WORKER_8"):  # of the last there is no record: the disk was full
        (tmp_path / f"aaaa1111-{node}").mkdir()
    kept_ones = ["aaaa1111-MAIN-outputs-5eed", "aaaa1111-link", "bbbb2222-MAIN"]
    for name in kept_ones:
        (tmp_path / name).mkdir()
    backend.finish(kept, lambda _: None)
    each = [({"CLUSTER_RUNNER": "aaaa1111"}, RUNNER_PID), ({"LAUNCH_ID": "aaaa1111"}, RUNNER_PID)]
    assert swept == [*each * 3, ({"CLUSTER_RUNNER": "aaaa1111"}, None)]
    assert sorted(path.name for path in tmp_path.glob("????????-*")) == kept_ones


def test_the_end_is_that_of_the_runner_too(
    kept: Cluster, backend: LocalBackend, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sweeps after its last node; one that hangs then is killed."""
    record(kept, node_record("MAIN", "FAILED"))
    killed: list[float] = []
    monkeypatch.setattr(local, "sweep_marked", lambda _, spared=None: killed.append(clock()) if not spared else 0)
    began = clock()
    with Running(kept):
        backend.finish(kept, lambda _: None)
    assert len(killed) == 1
    assert 20 <= killed[0] - began < 20.2


@pytest.mark.parametrize("mark", ["CLUSTER_RUNNER", "LAUNCH_ID"])
def test_a_runner_stays_while_something_of_it_cannot_be_killed(
    kept: Cluster, backend: LocalBackend, clock: Any, monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    """An agent, or what a script has started: when the disk answers that it waits for, somebody records the end."""
    told: list[int | None] = []

    def sweep(marks: Mapping[str, str], *, spared: int | None = None) -> int:
        told.append(spared)
        return int(mark in marks)

    monkeypatch.setattr(local, "sweep_marked", sweep)
    FakeRunner(kept, monkeypatch)
    began = clock()
    with Running(kept), pytest.raises(BackendError, match=r"^mine cannot be killed: it waits for a disk"):
        backend.end(kept, ["MAIN", "WORKER_1"], at_once=True)
    assert set(told) == {RUNNER_PID}
    assert 10 <= clock() - began < 10.1
    with pytest.raises(BackendError, match=r"^mine cannot be killed"):
        backend.remove(kept, lambda _: None)
    assert kept.directory.exists()


def test_a_cluster_that_is_removed_leaves_no_directory(
    kept: Cluster, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice is as good as once."""
    monkeypatch.setattr(local, "sweep_marked", lambda _, **__: 0)
    for _ in range(2):
        backend.remove(kept, lambda _: None)
        assert not kept.directory.exists()
