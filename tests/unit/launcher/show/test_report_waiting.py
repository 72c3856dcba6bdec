"""What is told of nodes that wait for a host, or never had one."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.fake_backend import LAUNCH, FakeBackend, keep, plan_of

from oci_cluster.contract.cluster import Cluster, State
from oci_cluster.launcher.show.report import describe


@pytest.fixture
def backend(tmp_path: Path) -> FakeBackend:
    return FakeBackend(tmp_path)


@pytest.fixture
def cluster(backend: FakeBackend, tmp_path: Path) -> Cluster:
    """Return a cluster of main and one worker whose cluster dir is on this machine."""
    plan = plan_of(tmp_path, workers=1)
    keep(tmp_path, plan)
    return backend.run(plan)


def described_by(backend: FakeBackend, cluster: Cluster) -> dict[str, Any]:
    return describe(backend, cluster, backend.load(cluster), backend.states([cluster])[LAUNCH])


@pytest.mark.parametrize(
    ("fields", "phase", "seconds"),
    [
        ({"accepted": "2026-01-02T03:04:05Z"}, "waiting for 2m", 125),
        ({"details": "Job run accepted."}, "waiting: Job run accepted.", None),
        (
            {"accepted": "2026-01-02T03:04:05Z", "state": State.NEEDS_ATTENTION, "details": "no host"},
            "waiting for 2m: no host",
            125,
        ),
    ],
)
def test_a_node_that_has_not_started_is_shown_with_its_waiting(
    backend: FakeBackend,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    *,
    fields: dict[str, Any],
    phase: str,
    seconds: int | None,
) -> None:
    """Since when, as its backend tells; its heartbeat, which cannot be there, costs no request."""
    moment = datetime.datetime(2026, 1, 2, 3, 6, 10, tzinfo=datetime.timezone.utc).timestamp()
    monkeypatch.setattr("oci_cluster.system.text.time.time", lambda: moment)
    state = backend.nodes[LAUNCH]["WORKER_1"]
    backend.nodes[LAUNCH]["WORKER_1"] = replace(state, **{"state": State.ACCEPTED, "is_waiting": True, **fields})
    node = described_by(backend, cluster)["nodes"][1]
    assert (node["phase"], node.get("waiting_s")) == (phase, seconds)


def test_a_worker_that_was_canceled_before_it_started_has_not_left(backend: FakeBackend, cluster: Cluster) -> None:
    """Nobody has scaled it away."""
    backend.set_node(cluster, "MAIN", 0)
    backend.set_node(cluster, "WORKER_1", 143, never_started=True)
    node = described_by(backend, cluster)["nodes"][1]
    assert (node["state"], node["phase"]) == ("CANCELED", "never started")


def test_why_a_node_could_not_be_started_is_the_reason_of_a_failure_that_nobody_has_signed(
    backend: FakeBackend, cluster: Cluster
) -> None:
    backend.set_node(cluster, "MAIN", 69, never_started=True, details="no such image")
    backend.set_node(cluster, "WORKER_1", 143, never_started=True)
    found = described_by(backend, cluster)
    assert found["reason"] == "MAIN could not be started: no such image"
    assert found["nodes"][0]["phase"] == "never started: no such image"
