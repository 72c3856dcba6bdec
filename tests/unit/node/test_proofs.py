"""Whose heartbeat it is that changes: a listing does not tell."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.fake_cluster import MakeNode, messages
from unit.node.fake_members import Cluster

from oci_cluster.contract.names import STOP, config_file, heartbeat_file

HEARTBEAT = heartbeat_file("WORKER_1")


@pytest.fixture
def cluster(root: Path) -> Cluster:
    """Return main of a cluster of 1 + 2 whose workers have come, and been proved at 0 s and 5 s."""
    made = Cluster(root)
    made.comes("WORKER_1", "WORKER_2")
    for moment in (0, 5):
        made.observe(moment)
        made.prove_one(moment)
    return made


def lives_until(cluster: Cluster, end: float, begin: float = 10) -> float:
    """Have main look every 5 s; return the moment at which WORKER_1 is lost."""
    for moment in range(int(begin), int(end), 5):
        cluster.beats("WORKER_2")
        cluster.observe(moment)
        cluster.prove_one(moment)
        if "WORKER_1" in cluster.watch.failures:
            return moment
    return end


def test_one_heartbeat_is_read_at_a_time(cluster: Cluster) -> None:
    """That of the node whose last proof is the oldest; none where nobody has come."""
    for moment in (10, 15, 20):
        cluster.beats("WORKER_1", "WORKER_2")
        cluster.observe(moment)
        cluster.prove_one(moment)
    assert cluster.reads == [heartbeat_file(node) for node in ("WORKER_1", "WORKER_2")] * 2 + [HEARTBEAT]


def test_nothing_is_read_where_nobody_has_come(root: Path) -> None:
    """There is nothing yet."""
    empty = Cluster(root)
    empty.prove_one()
    assert empty.reads == []


def test_a_living_node_stays(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Its heartbeat changes more often than it is read, or less often: nothing is said."""
    for moment in range(10, 500, 5):
        if moment % 20 == 0:
            cluster.beats("WORKER_1")
        cluster.beats("WORKER_2")
        cluster.observe(moment)
        cluster.prove_one(moment)
    assert (cluster.watch.failures, caplog.records) == ({}, [])
    assert len(cluster.reads) == 2 + 98  # one with each look: no node was doubted


def test_a_heartbeat_that_is_only_touched_is_no_life(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody writes once more what the node has written last: it is lost, and main says once why."""
    lost_at = 500.0
    for moment in range(10, 500, 5):
        cluster.beats("WORKER_2")
        cluster.touch(HEARTBEAT)
        cluster.observe(moment)
        cluster.prove_one(moment)
        if "WORKER_1" in cluster.watch.failures:
            lost_at = moment
            break
    assert 60 < lost_at < 100
    assert [text for text in messages(caplog, "WORKER_1") if "lost" not in text] == [
        "WORKER_1_heartbeat.json changes, but WORKER_1 does not write it: that counts for nothing"
    ]


def test_a_heartbeat_that_is_not_signed_is_no_life(cluster: Cluster) -> None:
    """Somebody writes what they like."""
    for moment in range(10, 100, 5):
        cluster.beats("WORKER_2")
        cluster.write_unusable(HEARTBEAT)
        cluster.observe(moment)
        cluster.prove_one(moment)
    assert "WORKER_1" in cluster.watch.failures


def test_a_node_that_stop_looking_again_is_doubted_no_more(cluster: Cluster) -> None:
    """Somebody has written over its heartbeat for a while; then its own is there again."""
    for moment in range(10, 500, 5):
        cluster.beats("WORKER_2")
        if moment < 50:
            cluster.write_unusable(HEARTBEAT)
        else:
            cluster.beats("WORKER_1")
        cluster.observe(moment)
        cluster.prove_one(moment)
    assert cluster.watch.failures == {}
    assert cluster.reads.count(HEARTBEAT) < 60  # as often as the other's, not with each look


def test_storage_that_does_not_answer_is_no_stranger(cluster: Cluster) -> None:
    """Listings come, and files do not: nothing is known of who writes them, and a node that beats lives."""
    cluster.answers_no_reads()
    for moment in range(10, 300, 5):
        cluster.beats("WORKER_1", "WORKER_2")
        cluster.observe(moment)
        cluster.prove_one(moment)
    assert cluster.watch.failures == {}


def test_a_lost_node_comes_back_by_its_own_word_alone(cluster: Cluster) -> None:
    """Not by a heartbeat that somebody writes, nor by one that is put back; by its own it does."""
    back = cluster.put_back(HEARTBEAT)
    assert 60 < lives_until(cluster, 500) < 80
    for how in (lambda: cluster.touch(HEARTBEAT), lambda: cluster.write_unusable(HEARTBEAT), back):
        how()
        assert cluster.observe(100) == []
    cluster.beats("WORKER_1")
    assert cluster.observe(105) == ["WORKER_1"]


def test_a_replacement_is_proved_anew(cluster: Cluster) -> None:
    """Nothing that was thought of its predecessor is held against it."""
    for moment in range(10, 100, 5):
        cluster.beats("WORKER_2")
        cluster.write_unusable(HEARTBEAT)
        cluster.observe(moment)
        cluster.prove_one(moment)
    cluster.comes("WORKER_1")
    assert cluster.observe(100) == ["WORKER_1"]
    for moment in range(105, 300, 5):
        cluster.beats("WORKER_1", "WORKER_2")
        cluster.observe(moment)
        cluster.prove_one(moment)
    assert cluster.watch.failures == {}


@pytest.mark.slow
def test_main_makes_as_many_requests_in_a_large_cluster(make: MakeNode) -> None:
    """One file is read with each heartbeat, whatever the number of nodes."""

    def requests(count: int) -> int:
        main = make(WORKER_COUNT=str(count), WORK_DIR=f"memory://{count}")
        main.ready_at_once()
        for rank in range(1, count + 1):
            main.files.publish(config_file(f"WORKER_{rank}"), node=f"WORKER_{rank}", address="10.0.0.2")
            main.beats(f"WORKER_{rank}")
        made = main.requests()
        main.publish(STOP, at=300, reason="done", exit_code=0)
        assert main.run() == 0
        return len([name for name in made if name != STOP])  # each event of this world is a look at that

    # When main looks is spread by chance: some requests more or less, but not one for each of 58 more nodes.
    assert abs(requests(60) - requests(2)) < 10
