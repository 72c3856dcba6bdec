"""How often nodes ask storage: at rest, in a large cluster, and where storage does not take a request."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from unit.fake_cluster import MakeNode, Node

from oci_cluster.contract.names import STOP, config_file, heartbeat_file
from oci_cluster.errors import StorageError
from oci_cluster.node.logs.shipper import LogShipper
from oci_cluster.node.start import MOST_REQUESTS, paced

pytestmark = pytest.mark.usefixtures("empty_memory")

# What the contract has where nobody sets it.
USUAL = {"HEARTBEAT_INTERVAL": "24", "POLL_CEILING": "4"}
WORKER = {"MODE": "WORKER", "NODE_RANK": "2", "NODE_ADDRESS": "10.0.0.3"}


def at_rest(node: Node, seconds: float) -> Counter[str]:
    """Run *node*, which has nothing to do, to its end; return what it asked for in so many seconds, by file name."""
    made = node.requests()
    marks: list[int] = []
    for moment in (100, 100 + seconds):
        node.world.at(moment, lambda: marks.append(len(made)))
    node.publish(STOP, at=110 + seconds, reason="done", exit_code=0)
    assert node.run() == 0
    return Counter(made[marks[0] : marks[1]])


def test_a_worker_at_rest_asks_for_three_files(make: MakeNode) -> None:
    """A look for the stop file, its own heartbeat, and main's."""
    worker = make(**WORKER, **USUAL)
    worker.main_lives()
    found = at_rest(worker, 300)
    assert set(found) == {STOP, heartbeat_file("WORKER_2"), heartbeat_file("MAIN")}
    assert sum(found.values()) <= 0.26 * 300
    assert found[STOP] >= 300 / 6.6


def main_at_rest(make: MakeNode, workers: int, seconds: float) -> Counter[str]:
    main = make(**USUAL, WORKER_COUNT=str(workers))
    main.ready_at_once()
    for rank in range(1, workers + 1):
        main.files.publish(config_file(f"WORKER_{rank}"), node=f"WORKER_{rank}", address="10.0.0.2")
        main.beats(f"WORKER_{rank}")
    return at_rest(main, seconds)


@pytest.mark.parametrize("workers", [2, 40])
def test_main_at_rest_lists_instead_of_looking_for_the_stop_file(make: MakeNode, workers: int) -> None:
    """One list tells of the stop file, of all heartbeats and of all ends."""
    found = main_at_rest(make, workers, 300)
    proofs = sum(count for name, count in found.items() if name.startswith("WORKER"))
    assert sum(found.values()) - proofs == found[""] + found[heartbeat_file("MAIN")]
    assert proofs <= 300 / 24 + 1
    assert sum(found.values()) <= 0.35 * 300


def test_two_nodes_at_rest_ask_0_30_times_a_second_each(make: MakeNode) -> None:
    """With fewer workers main, which asks more often, counts for most."""
    worker = make(**WORKER, **USUAL)
    worker.main_lives()
    assert sum(at_rest(worker, 600).values()) + sum(main_at_rest(make, 1, 600).values()) <= 2 * 0.30 * 600


@pytest.mark.parametrize(("workers", "factor"), [(3, 1), (15, 1), (47, 1), (329, 1), (999, 2.98)])
def test_a_larger_cluster_does_not_ask_more(root: Path, workers: int, factor: float) -> None:
    """Beyond 330 nodes each asks less often, and is lost later."""
    settings = Node(root, **USUAL, WORKER_COUNT=str(workers), MIN_WORKERS="0").settings
    found = paced(settings)
    assert found.poll_ceiling_s == pytest.approx(4 * factor, rel=0.01)
    assert found.heartbeat_interval_s == pytest.approx(max(24, 15 * factor), rel=0.01)
    assert found.heartbeat_timeout_s == pytest.approx(max(60, 2.5 * 15 * factor), rel=0.01)
    at_rest = 1 / found.poll_ceiling_s + 2 / found.heartbeat_interval_s
    waiting = 2 / found.poll_ceiling_s + 1 / found.heartbeat_interval_s
    assert (workers + 1) * max(at_rest, waiting) <= MOST_REQUESTS + 0.01
    assert at_rest <= 0.34


@pytest.mark.parametrize(("nodes", "young_s", "later_s"), [(1, 1, 5), (100, 1, 5), (200, 2, 5), (1000, 10, 25)])
def test_logs_of_a_large_cluster_are_written_less_often(nodes: int, young_s: float, later_s: float) -> None:
    """At most 100 parts a second while nodes are young, and 40 later."""
    now = 0.0
    own = LogShipper("launch", "WORKER_1", nodes=nodes, clock=lambda: now)
    try:
        gaps = []
        for begin in (0.0, 100.0):
            due = []
            for step in range(100):
                now = begin + step * 0.5
                own.path.write_bytes(b"x" * (step + 1))
                if own.is_due():
                    due.append(now)
            gaps.append(due[1] - due[0])
        assert gaps == [pytest.approx(young_s, abs=0.51), pytest.approx(later_s, abs=0.51)]
    finally:
        own.close()


def test_a_heartbeat_that_is_not_taken_is_written_again_soon(make: MakeNode) -> None:
    """One in three requests fails: main is not silent for long."""
    worker = make(**WORKER, **USUAL)
    worker.main_lives()
    worker.outage(100, 112)
    beats: list[float] = []
    ask = worker.cluster_dir._ask

    def note(name: str, request: object) -> object:
        answer = ask(name, request)  # type: ignore[arg-type]
        if name == heartbeat_file("WORKER_2"):
            beats.append(worker.world.now)
        return answer

    worker.cluster_dir._ask = note  # type: ignore[method-assign]
    worker.publish(STOP, at=300, reason="done", exit_code=0)
    assert worker.run() == 0
    assert max(later - sooner for sooner, later in itertools.pairwise(beats)) < 24 + 10


def test_storage_that_wants_to_be_left_alone_is(make: MakeNode) -> None:
    """For a heartbeat interval at most: it must not make a node silent for good."""
    worker = make(**WORKER, **USUAL)
    worker.main_lives()
    busy = StorageError("HTTP 429")
    busy.retry_after_s = 3600.0
    asked: list[float] = []
    ask = worker.cluster_dir._ask

    def refuse(name: str, request: object) -> object:
        if 100 <= worker.world.now < 160:
            asked.append(worker.world.now)
            raise busy
        return ask(name, request)  # type: ignore[arg-type]

    worker.cluster_dir._ask = refuse  # type: ignore[method-assign]
    worker.publish(STOP, at=200, reason="done", exit_code=0)
    assert worker.run() == 0
    assert 3 <= len(asked) <= 5
    assert all(later - sooner > 14.99 for sooner, later in itertools.pairwise(asked))


def test_a_lost_main_is_found_when_its_time_is_over(make: MakeNode) -> None:
    """Though its heartbeat is read every 24 s, and was written up to 24 s before: 60 s after its last one."""
    worker = make(**WORKER, **USUAL)
    worker.main_lives(until=100)
    assert worker.run() == 76
    assert 160 <= worker.world.now < 162


def test_a_lost_node_is_found_when_its_time_is_over(make: MakeNode) -> None:
    """Main lists every 4 s, and once more when a node would be lost."""
    main = make(**USUAL, MIN_WORKERS="2", WAIT_FOR_ADDRESSES="1")
    main.ready_at_once()
    for rank in (1, 2):
        main.files.publish(config_file(f"WORKER_{rank}"), node=f"WORKER_{rank}", address="10.0.0.2")
    main.beats("WORKER_1")
    main.beats("WORKER_2", until=100)
    assert main.run() == 76
    assert 160 <= main.world.now < 165.5


def test_what_comes_nearer_is_looked_for_often_again(make: MakeNode) -> None:
    """Main waits for the others with looks 4 s apart; when one has come, the next is not far."""
    main = make(**USUAL)
    main.node_dir.mkdir()
    looks: list[float] = []

    def poll() -> bool:
        looks.append(main.world.now)
        return main.world.now >= 100

    def missing() -> list[str]:
        return [f"WORKER_{rank}" for rank, comes_at in ((1, 60), (2, 80), (3, 1000)) if main.world.now < comes_at]

    main.agent._loop.wait_for("the other nodes", poll, missing)
    gaps = {moment: after - moment for moment, after in itertools.pairwise(looks)}
    assert min(gap for moment, gap in gaps.items() if 30 < moment < 56) > 3.5
    assert min(gap for moment, gap in gaps.items() if 60 <= moment < 66) < 0.3
    assert min(gap for moment, gap in gaps.items() if 80 <= moment < 86) < 0.3
