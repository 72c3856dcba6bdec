"""How a cluster is stopped and deleted, and what becomes of nodes that do not listen."""

from __future__ import annotations

import itertools
from dataclasses import replace

from unit.fake_backend import LAUNCH, LIMITS
from unit.launcher.life import Life, fail, patience, refusal

from oci_cluster.errors import BackendError


def test_a_cluster_is_stopped_by_its_stop_file(life: Life) -> None:
    """Its nodes end in order, the backend ends none; then it brings what would be lost."""
    cluster = life.run()
    life.at(3, lambda: life.backend.end_nodes(cluster))
    life.lifecycle.stop(cluster)
    assert (life.stop_file(cluster)["exit_code"], life.stop_file(cluster)["reason"]) == (143, "stopped by stop.sh")
    assert life.backend.calls == [("finish", "mine")]
    assert (life.said, cluster.directory.is_dir()) == (["stopping mine"], True)


def test_a_cluster_that_has_ended_is_as_good_as_stopped(life: Life) -> None:
    """Nothing is written or told; what would be lost is brought all the same."""
    cluster = life.ended("mine", "aa")
    life.lifecycle.stop(cluster)
    assert (life.stop_file(cluster), life.said, life.passed) == ({}, [], 0)
    assert life.backend.calls == [("finish", "mine")]


def test_a_stopped_cluster_is_deleted_with_all_its_files(life: Life) -> None:
    """After its end: by the backend, and in this checkout."""
    cluster = life.run()
    life.at(1, lambda: life.backend.end_nodes(cluster))
    life.lifecycle.stop(cluster, delete=True)
    assert (life.backend.calls, cluster.directory.exists()) == ([("remove", "mine")], False)


def test_what_cannot_be_deleted_keeps_its_files(life: Life) -> None:
    """A second try finds them."""
    cluster = life.ended("mine", "aa")
    life.backend.on["remove"] = fail(BackendError("no answer"))
    refusal(lambda: life.lifecycle.stop(cluster, delete=True), BackendError)
    assert cluster.directory.is_dir()


def test_nodes_that_do_not_end_are_ended_by_the_backend(life: Life) -> None:
    """After the grace of the nodes and what the backend takes besides, not before; only those that still run."""
    cluster = life.run()
    life.at(1, lambda: life.backend.end_nodes(cluster, ["WORKER_1"]))
    told: list[float] = []

    def end() -> None:
        told.append(life.passed)
        life.backend.end_nodes(cluster)

    life.backend.on["end"] = end
    life.lifecycle.stop(cluster)
    assert life.backend.calls == [("end", "MAIN", "WORKER_2"), ("finish", "mine")]
    assert life.said == ["stopping mine", "mine has not ended by itself; ending its nodes"]
    assert patience(life) <= told[0] <= patience(life) + 2 * life.backend.poll_s


def test_nodes_that_do_not_hear_are_told_again_and_then_killed(life: Life) -> None:
    """Every ten seconds for twice their patience and the backend's own; then at once."""
    cluster = life.run()
    life.backend.end_timeout_s = 20.0
    times: list[float] = []
    life.backend.on["end"] = lambda: times.append(life.passed)
    life.backend.on["kill"] = lambda: (times.append(life.passed), life.backend.end_nodes(cluster, code=137))
    life.lifecycle.stop(cluster)
    everyone = ("MAIN", "WORKER_1", "WORKER_2")
    assert life.backend.calls == [*[("end", *everyone)] * 5, ("kill", *everyone), ("finish", "mine")]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(10 <= gap <= 10.3 for gap in gaps)
    assert times[-1] - times[0] >= 2 * patience(life) + 20


def test_nodes_that_cannot_be_ended_are_named(life: Life) -> None:
    """With the next step (69); nothing of theirs is removed."""
    cluster = life.run(workers=1)
    life.backend.on["kill"] = lambda: life.backend.end_nodes(cluster, ["WORKER_1"])
    said = refusal(lambda: life.lifecycle.stop(cluster, delete=True), BackendError)
    assert said == "MAIN of mine did not end; try again: scripts/stop.sh mine"
    assert (life.backend.asked("remove", "finish"), cluster.directory.is_dir()) == ([], True)


def test_a_cluster_with_a_long_grace_is_given_it(life: Life) -> None:
    """The plan's own GRACE_PERIOD counts."""
    cluster = life.run()
    plan = life.backend.plans[LAUNCH]
    life.backend.plans[LAUNCH] = replace(plan, limits=replace(LIMITS, grace_period_s=300.0))
    life.at(299, lambda: life.backend.end_nodes(cluster))
    life.lifecycle.stop(cluster)
    assert life.backend.calls == [("finish", "mine")]


def test_a_cluster_without_a_work_dir_is_ended_by_the_backend(life: Life) -> None:
    """Where the stop file cannot be written; its nodes are given their grace all the same."""
    cluster = life.run()
    life.backend.plans[LAUNCH] = replace(life.backend.plans[LAUNCH], work_dir="file:///proc/none")
    life.backend.on["end"] = lambda: life.backend.end_nodes(cluster)
    life.lifecycle.stop(cluster)
    assert life.backend.calls == [("end", "MAIN", "WORKER_1", "WORKER_2"), ("finish", "mine")]
