"""How workers are added, replaced and ended."""

from __future__ import annotations

from typing import Any

import pytest
from unit.launcher.life import Life, fail, patience, refusal

from oci_cluster.contract.cluster import Cluster
from oci_cluster.errors import BackendError


def test_workers_are_added_with_the_ranks_of_lost_ones_first(life: Life) -> None:
    """Then with the next that no node has had; each is told."""
    cluster = life.run(WORKER_1=137)
    assert life.lifecycle.scale(cluster, "+2") == 3
    assert life.backend.asked("start", "end") == [("start", "WORKER_1", "WORKER_3")]
    assert life.said == ["WORKER_1 started", "WORKER_3 started"]


def test_a_node_that_was_added_before_keeps_its_rank(life: Life) -> None:
    """It is in the backend's words, not in the plan."""
    cluster = life.run()
    life.backend.set_node(cluster, "WORKER_3", None)
    assert life.lifecycle.scale(cluster, "4") == 4
    assert life.backend.asked("start") == [("start", "WORKER_4")]


def test_workers_with_the_highest_ranks_are_ended_and_waited_for(life: Life) -> None:
    """The others, and main, run on."""
    cluster = life.run(workers=3)
    life.at(4, lambda: life.backend.end_nodes(cluster, ["WORKER_3"]))
    life.at(6, lambda: life.backend.end_nodes(cluster, ["WORKER_2"]))
    assert life.lifecycle.scale(cluster, "1") == 1
    assert life.backend.asked("start", "end") == [("end", "WORKER_2", "WORKER_3")]
    assert life.said == ["ending WORKER_2, WORKER_3"]
    assert 6 <= life.passed <= 6.2


def test_workers_that_do_not_end_are_named(life: Life) -> None:
    """After their patience, with the next step (69)."""
    cluster = life.run(workers=3)
    life.backend.on["end"] = lambda: life.backend.end_nodes(cluster, ["WORKER_3"])
    said = refusal(lambda: life.lifecycle.scale(cluster, "-2"), BackendError)
    assert said == "WORKER_2 did not end; end the whole cluster: scripts/stop.sh mine"
    assert patience(life) <= life.passed <= patience(life) + 0.3


def test_as_many_as_there_are_is_nothing_to_do(life: Life) -> None:
    """Nobody is asked to start or to end anything."""
    assert (life.lifecycle.scale(life.run(), "2"), life.backend.asked("start", "end"), life.said) == (2, [], [])


@pytest.mark.parametrize(("text", "wanted"), [("0", 0), ("-2", 0), ("251", 251), ("+249", 251)])
def test_workers_out_of_the_limits_are_refused(life: Life, text: str, wanted: int) -> None:
    """MIN_WORKERS of the plan, and what the backend takes."""
    said = refusal(lambda: life.lifecycle.scale(life.run(), text))
    assert said == f"{wanted} workers are not possible; choose 1 to 250 (2 now); MIN_WORKERS sets the minimum"
    assert life.backend.asked("start", "end") == []


def test_a_cluster_that_has_ended_cannot_be_scaled(life: Life) -> None:
    """With the next step (2)."""
    said = refusal(lambda: life.lifecycle.scale(life.ended("mine", "aa"), "+1"))
    assert said == "mine has ended; launch it again: scripts/launch.sh"


@pytest.mark.parametrize("is_taken_away", [False, True])
def test_workers_that_come_while_the_cluster_ends_are_ended(life: Life, is_taken_away: bool) -> None:  # noqa: FBT001
    """Who has ended it did not know of them, and they would wait for a main that is gone."""
    cluster = life.run()

    def ends() -> None:
        if is_taken_away:  # as launch.sh does with containers, when it has copied what they leave
            life.backend.nodes[cluster.launch_id].clear()
        else:
            life.backend.end_nodes(cluster, code=0)

    life.backend.on["start"] = ends
    life.backend.on["end"] = lambda: life.backend.end_nodes(cluster, ["WORKER_3"])
    added = life.backend.start

    def start(*words: Any) -> Cluster:
        found = added(*words)
        life.backend.set_node(cluster, "WORKER_3", None)
        return found

    life.backend.start = start  # type: ignore[method-assign]
    said = refusal(lambda: life.lifecycle.scale(cluster, "+1"))
    assert said == "mine has ended meanwhile; launch it again: scripts/launch.sh"
    removed = [("remove", "mine")] if is_taken_away else []
    assert life.backend.asked("start", "end", "remove") == [("start", "WORKER_3"), ("end", "WORKER_3"), *removed]


def test_a_cluster_whose_workers_are_fixed_says_why(life: Life) -> None:
    """In the backend's words; nothing else is asked."""
    life.backend.fixed = "was launched as one multi-node Job Run: its workers are fixed"
    life.backend.on["states"] = fail(AssertionError())
    said = refusal(lambda: life.lifecycle.scale(life.run(), "+1"))
    assert said == "mine was launched as one multi-node Job Run: its workers are fixed"


def test_no_room_for_workers_is_the_backends_word(life: Life) -> None:
    """What it raises is what is told; the cluster runs on as it is."""
    cluster = life.run()
    life.backend.on["start"] = fail(BackendError("2 nodes do not fit"))
    assert refusal(lambda: life.lifecycle.scale(cluster, "+2"), BackendError) == "2 nodes do not fit"
    assert (life.said, life.backend.asked("remove", "end")) == ([], [])
