"""The table of who waits in a queue."""

from __future__ import annotations

from typing import Any

import pytest

from oci_cluster.backends.kubernetes.queue_view import HEAD, View, described, table
from oci_cluster.errors import UsageError


def row(**changes: Any) -> dict[str, str]:
    """Return what the table shows of a cluster, by the head of each column."""
    found: dict[str, Any] = {
        "cluster": "train",
        "namespace": "a",
        "team": "vision",
        "queue": "lq",
        "owner": "ada",
        "state": "WAITING",
        "place": 2,
        "waiting": 5,
        "nodes": 3,
        "gpus": {"nvidia.com/gpu": "6"},
        "priority": 10,
        "priority_class": "low",
        "since_s": 3.0,
        "why": "no room",
        "preempted": {"count": 0, "reason": "", "by": ""},
        **changes,
    }
    (cells,) = table([found])
    return dict(zip(HEAD, cells, strict=True))


def test_a_row_has_what_is_known() -> None:
    """A class by its name, and the place among those that wait."""
    assert row() == {
        "TEAM": "vision",
        "QUEUE": "a/lq",
        "CLUSTER": "train",
        "OWNER": "ada",
        "STATE": "WAITING",
        "PLACE": "2 of 5",
        "NODES": "3",
        "GPUS": "6 nvidia.com/gpu",
        "PRIORITY": "low",
        "FOR": "3 s",
        "WHY": "no room",
    }


def test_what_is_not_known_is_empty() -> None:
    """A priority without a class is its number."""
    found = row(team="", place=None, gpus={}, priority=None, priority_class="", since_s=None, why="")
    assert (found["TEAM"], found["PLACE"], found["GPUS"], found["PRIORITY"]) == ("?", "", "", "")
    assert (found["FOR"], found["WHY"]) == ("", "")
    assert row(priority_class="")["PRIORITY"] == "10"


@pytest.mark.parametrize(
    ("count", "by", "said"),
    [(1, "", "preempted once"), (2, "speech", "preempted 2 times, last by speech")],
)
def test_what_happened_before_stands_behind_the_reason(count: int, by: str, said: str) -> None:
    before = {"count": count, "reason": "", "by": by}
    assert row(preempted=before)["WHY"] == f"no room; {said}"
    assert row(preempted=before, why="")["WHY"] == said


def test_a_job_that_kueue_has_not_seen_is_a_row_too() -> None:
    """But not one that runs without Kueue, and none twice."""

    def job(uid: str, *, suspend: bool = True) -> dict[str, Any]:
        labels = {"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/priority-class": "gold"}
        about = {
            "namespace": "a",
            "name": uid,
            "uid": uid,
            "labels": labels,
            "creationTimestamp": "2026-11-23T22:59:55Z",
        }
        return {"metadata": about, "spec": {"suspend": suspend, "parallelism": 3, "template": {}}}

    jobs = {uid: job(uid) for uid in ("new", "known", "over")} | {"free": job("free", suspend=False)}
    jobs["over"]["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    known = {"namespace": "a", "name": "w", "labels": {"kueue.x-k8s.io/job-uid": "known"}}
    queues = [{"metadata": {"namespace": "a", "name": "lq"}, "spec": {"clusterQueue": "vision"}}]
    view = View([{"metadata": known, "spec": {"queueName": "lq"}}], queues, jobs)
    rows = {found["cluster"]: found for found in described(view, "vision", now=1795474800.0)}
    assert set(rows) == {"new", "w"}
    new = rows["new"]
    assert [new[key] for key in ("state", "team", "nodes", "priority_class")] == ["WAITING", "vision", 3, "gold"]
    assert new["why"] == "Kueue has not seen it yet"
    with pytest.raises(UsageError):
        described(view, "speech")
