"""What a list tells of a cluster where each file of its nodes costs a request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from unit.fake_backend import CREATED, KEY, LAUNCH, FakeBackend, keep, plan_of

from oci_cluster.contract.cluster import Cluster, NodeState, State
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import UsageError
from oci_cluster.launcher.show.report import describe, overview


@pytest.fixture
def backend(tmp_path: Path) -> FakeBackend:
    return FakeBackend(tmp_path)


@pytest.fixture
def cluster(backend: FakeBackend, tmp_path: Path) -> Cluster:
    """Return a cluster of main and one worker whose cluster dir is on this machine."""
    plan = plan_of(tmp_path, workers=1)
    keep(tmp_path, plan)
    return backend.run(plan)


@pytest.fixture
def cluster_dir(backend: FakeBackend, cluster: Cluster) -> ClusterDir:
    return ClusterDir(backend.load(cluster).url, LAUNCH, KEY)


def ended(main: int, worker: int) -> list[NodeState]:
    return [
        NodeState(name, State.FAILED if code else State.SUCCEEDED, code, id=7)
        for name, code in (("MAIN", main), ("WORKER_1", worker))
    ]


def test_an_overview_asks_no_work_dir(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what the backend has said: neither facts, nor phases, nor the reason."""
    cluster_dir.publish("stop", reason="r", exit_code=7)
    cluster_dir.publish("MAIN_ready.json", facts={"dashboard": "https://127.0.0.1:8787"})
    monkeypatch.delattr(ClusterDir, "read")
    found = overview(backend, cluster, ended(7, 0))
    assert found == {
        "name": "mine",
        "framework": "dask",
        "backend": "local",
        "state": "FAILED",
        "exit_code": 7,
        "created": CREATED,
        "nodes": [
            {"node": "MAIN", "state": "FAILED", "exit_code": 7, "pid": 7, "address": ""},
            {"node": "WORKER_1", "state": "SUCCEEDED", "exit_code": 0, "pid": 7, "address": ""},
        ],
    }
    assert type(found["exit_code"]) is int


@pytest.mark.parametrize(("told", "code"), [(129, 129), (143, 76), (None, 76)])
def test_an_overview_of_a_killed_main_says_what_status_says(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir, told: int | None, code: int
) -> None:
    """Whether it was the entry point that was killed, or main itself, stands in `stop`; where that is away: main."""
    if told is not None:
        cluster_dir.publish("stop", reason="r", exit_code=told)
    states = ended(129, 129)
    assert overview(backend, cluster, states)["exit_code"] == code
    assert describe(backend, cluster, backend.load(cluster), states)["exit_code"] == code


@pytest.mark.parametrize(("told", "code"), [(143, 143), (76, 76), (0, 143), (None, 143)])
def test_an_overview_of_a_main_that_was_told_to_end_says_what_status_says(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir, told: int | None, code: int
) -> None:
    """Whether a person has stopped it, or it was lost and ended for that, stands in `stop`."""
    if told is not None:
        cluster_dir.publish("stop", reason="r", exit_code=told)
    states = ended(143, 143)
    assert overview(backend, cluster, states)["exit_code"] == code
    assert describe(backend, cluster, backend.load(cluster), states)["exit_code"] == code


def test_an_overview_of_a_killed_main_whose_plan_is_gone_says_that_it_was_lost(
    backend: FakeBackend, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known of it but what the backend says."""

    def gone(_: Cluster) -> None:
        raise UsageError("there is nothing of it")

    monkeypatch.setattr(backend, "load", gone)
    assert overview(backend, cluster, ended(137, 0))["exit_code"] == 76


def test_an_overview_has_the_backends_own_id(backend: FakeBackend, cluster: Cluster) -> None:
    """Under the backend's own word for it, where it has one."""
    backend.handle_name = "job"
    assert overview(backend, replace(cluster, handle="ocid1.job"), ended(0, 0))["job"] == "ocid1.job"
