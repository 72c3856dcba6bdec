"""A worker: how it joins, what it does when main or its own start script ends, and further attempts."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.fake_cluster import (
    BEGINNING,
    FOR_EVER_S,
    MakeNode,
    Node,
    messages,
)
from unit.fake_follower import Follower

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import STOP, config_file, exit_file, heartbeat_file
from oci_cluster.errors import NotPermittedError, StorageError

# One memory:// for all tests would be longer to list with each.
pytestmark = pytest.mark.usefixtures("empty_memory")


# --- Joining --------------------------------------------------------------------------------------------------------


def test_worker_without_main_times_out(worker: Node) -> None:
    """A worker waits TIMEOUT for MAIN_config.json, no longer, and says what it waited for."""
    assert worker.run() == 75
    assert 600 <= worker.world.now < 610
    assert "MAIN_config.json" in worker.read(exit_file("WORKER_2"))["reason"]
    assert worker.children.started == []


def test_configuration_of_an_older_launch_is_not_dialled(worker: Node) -> None:
    """A worker waits for the main of its own launch, and says at TIMEOUT what it saw instead."""
    old = ClusterDir(worker.settings.cluster_url, "launch0", "another key")
    old.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.9.9.9")
    assert worker.run() == 75
    assert "of another launch" in worker.read(exit_file("WORKER_2"))["reason"]


def test_half_written_configuration_is_read_again(worker: Node) -> None:
    """Storage whose writes are not atomic shows half a file first."""
    path = f"{worker.files._path}/{config_file('MAIN')}"
    worker.files._fs.pipe_file(path, b'{"schema": 1, "laun')
    worker.world.at(5, worker.main_lives)
    worker.publish(STOP, at=30, reason="done", exit_code=0)
    assert worker.run() == 0


def test_half_written_configuration_that_stays_so_is_named(worker: Node) -> None:
    """After TIMEOUT the message says that there was a file, and what was wrong with it."""
    path = f"{worker.files._path}/{config_file('MAIN')}"
    worker.files._fs.pipe_file(path, b'{"schema": 1, "laun')
    assert worker.run() == 75
    assert "not usable" in worker.read(exit_file("WORKER_2"))["reason"]


def test_unknown_schema_in_mains_configuration_ends_the_worker(worker: Node) -> None:
    """Another version's file is not guessed at: 78, naming both versions."""
    worker.leave(config_file("MAIN"), address="10.0.0.1")
    assert worker.run() == 78
    assert "schema '99', this node knows 1" in worker.read(exit_file("WORKER_2"))["reason"]


def test_a_rank_that_is_started_anew_takes_back_its_predecessors_word(make: MakeNode) -> None:
    """Before it is known to others: else its last word would be taken for this one's."""
    worker = make(MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3")
    worker.files.publish(exit_file("WORKER_2"), exit_code=9, reason="broke", time=1)
    order = worker.requests()
    worker.main_lives()
    told = worker.seen_at(10, lambda: worker.read(exit_file("WORKER_2")))
    worker.publish(STOP, at=20, reason="done", exit_code=0)
    assert worker.run() == 0
    assert told == [{}]
    # Its predecessor's configuration is read before; its own is written after.
    first = order.index(config_file("WORKER_2"))
    assert first < order.index(exit_file("WORKER_2")) < order.index(config_file("WORKER_2"), first + 1)


def test_a_word_that_cannot_be_taken_back_is_waited_for(make: MakeNode) -> None:
    """The node does not make itself known while its rank still says that it has failed."""
    worker = make(MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3")
    worker.files.publish(exit_file("WORKER_2"), exit_code=9, reason="broke", time=1)
    worker.main_lives()
    remove = worker.cluster_dir.remove

    def remove_late(name: str) -> None:
        if worker.world.now < 20:
            raise StorageError("no route to storage")
        remove(name)

    worker.cluster_dir.remove = remove_late  # type: ignore[method-assign]
    known = [worker.seen_at(at, lambda: bool(worker.read(config_file("WORKER_2")))) for at in (19, 30)]
    worker.publish(STOP, at=40, reason="done", exit_code=0)
    assert worker.run() == 0
    assert [seen[0] for seen in known] == [False, True]


def test_a_worker_that_may_not_delete_has_nothing_to_delete(root: Path) -> None:
    """Its rank has said nothing yet: a bucket that refuses to delete does not matter."""
    worker = Node(root, MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3")
    worker.main_lives()

    def refuse(_: str) -> None:
        raise NotPermittedError("no delete")

    worker.cluster_dir.remove = refuse  # type: ignore[method-assign]
    worker.publish(STOP, at=20, reason="done", exit_code=0)
    assert worker.run() == 0


@pytest.mark.parametrize("nodes", [7, True, "WORKER_2", ["WORKER_2"]])
def test_nodes_of_another_shape_are_no_bug(root: Path, nodes: object) -> None:
    """A list of words, a word, a number in the place of addresses: 78, or waited for until TIMEOUT; never 70."""
    worker = Node(root, MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3", GANG="1", TIMEOUT="60")
    worker.files.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.0.0.1", attempt=0, nodes=nodes)
    worker.beats("MAIN")
    assert worker.run() in {75, 78}


# --- The end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 7])
def test_worker_ends_with_the_clusters_code(worker: Node, code: int) -> None:
    """Workers exit 0 when the cluster succeeded and with its code when it failed."""
    worker.main_lives()
    worker.publish(STOP, at=20, reason="the entry point ended", exit_code=code)
    assert worker.run() == code
    assert worker.children.ended == [1]


def test_worker_that_ends_with_0_waits_for_the_clusters_outcome(worker: Node) -> None:
    """A worker's own 0 is not a success: main has the word."""
    worker.main_lives()
    worker.child_ends(0, at=10)
    worker.publish(STOP, at=200, reason="entry point ended", exit_code=9)
    assert worker.run() == 9


@pytest.mark.parametrize(("entry_on", "phase"), [("all", "waiting"), ("main", "running")])
def test_worker_that_ends_with_0_says_so_at_once(make: MakeNode, entry_on: str, phase: str) -> None:
    """Main waits for no word of it: where all run the entry point, its heartbeat has it, before it is due."""
    worker = make(MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3", ENTRY_ON=entry_on, HEARTBEAT_INTERVAL="25")
    worker.main_lives()
    worker.child_ends(0, at=10)
    told = worker.seen_at(11, lambda: worker.read(heartbeat_file("WORKER_2"))["phase"])
    worker.publish(STOP, at=20, reason="entry point ended", exit_code=0)
    assert worker.run() == 0
    assert told == [phase]


def test_worker_that_ends_with_0_because_main_died_says_main_lost(worker: Node) -> None:
    """A worker whose scheduler was killed leaves with 0 by itself: that is 76, not success."""
    worker.main_lives(until=10)
    worker.child_ends(0, at=12)
    assert worker.run() == 76
    assert "main lost" in worker.read(exit_file("WORKER_2"))["reason"]


def test_failed_worker_says_so_at_once_and_ends_with_its_own_code(worker: Node) -> None:
    """Main must hear of a failure while it can still act on it, not when a heartbeat is missed."""
    worker.main_lives()
    worker.child_ends(9, at=10)
    seen: list[object] = []
    worker.world.at(10.5, lambda: seen.append(worker.read(exit_file("WORKER_2")).get("exit_code")))
    assert worker.run() == 9
    assert seen == [9]


def test_failed_worker_takes_the_clusters_code_when_main_says_one(worker: Node) -> None:
    """A worker that fails because the cluster ends reports the cluster's end, so that the console shows one truth."""
    worker.main_lives()
    worker.child_ends(1, at=10)
    worker.publish(STOP, at=12, reason="entry point ended", exit_code=7)
    assert worker.run() == 7


# --- A lost main, a lost storage ------------------------------------------------------------------------------------


def test_worker_notices_a_lost_main(worker: Node) -> None:
    """No orphan works, or bills, on: HEARTBEAT_TIMEOUT after main's last heartbeat a worker is gone, with 76."""
    worker.main_lives(until=100)
    assert worker.run() == 76
    assert 100 + 60 <= worker.world.now < 100 + 60 + 10
    assert worker.children.ended == [1]


def test_a_heartbeat_counts_by_its_change_not_by_its_existence(worker: Node) -> None:
    """The old heartbeat of a dead main stays in storage for ever; it must not keep anybody waiting."""
    worker.files.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.0.0.1")
    worker.world.every(5.0, lambda: worker.files.publish(heartbeat_file("MAIN"), beat=1))
    assert worker.run() == 76


def test_outage_is_not_mains_silence(worker: Node) -> None:
    """Storage that fails for longer than HEARTBEAT_TIMEOUT says nothing about main."""
    worker.main_lives()
    worker.outage(30, 200)
    worker.publish(STOP, at=300, reason="done", exit_code=0)
    assert worker.run() == 0


def test_main_lost_is_noticed_after_an_outage(worker: Node) -> None:
    """Silence before and after an outage adds up, so that a dead main is found all the same."""
    worker.main_lives(until=20)
    worker.outage(40, 140)
    assert worker.run() == 76
    assert worker.world.now < 200


def test_worker_does_not_wait_for_ever_for_storage(worker: Node) -> None:
    """After TIMEOUT of nothing but errors the worker ends with 69: no orphan, and no guess about main."""
    worker.main_lives()
    worker.outage(30, FOR_EVER_S)
    assert worker.run() == 69
    assert worker.world.now > 30 + 600


def test_requests_do_not_grow_with_the_cluster(root: Path) -> None:
    """A worker makes the same number of requests in a cluster of 2 and of 1000: it reads single objects."""

    def requests(count: int) -> int:
        worker = Node(root, MODE="WORKER", NODE_RANK="1", WORKER_COUNT=str(count), NODE_ADDRESS="10.0.0.3")
        made = worker.requests()
        worker.main_lives()
        worker.publish(STOP, at=600, reason="done", exit_code=0)
        assert worker.run() == 0
        return len(made)

    assert requests(1000) < 1.2 * requests(2)  # not equal: looks are jittered


# --- Attempts -------------------------------------------------------------------------------------------------------


def test_a_worker_that_fails_says_so_and_waits(follower: Follower, caplog: pytest.LogCaptureFixture) -> None:
    """It has not left; when it failed, and in which attempt, is in its word; the cluster's end is its own."""
    follower.worker.child_ends(9, at=30)
    told = follower.exit_at(31)
    phase = follower.worker.seen_at(40, lambda: follower.worker.read(heartbeat_file("WORKER_2"))["phase"])
    assert follower.stops(at=100, code=5) == 5
    expected = {"exit_code": 9, "reason": "its start script ended: exit code 9", "attempt": 0, "has_left": False}
    assert {name: told[0][name] for name in expected} == expected
    assert told[0]["time"] == BEGINNING + 30
    assert phase == ["failed"]
    assert messages(caplog, "waiting") == [
        "its start script ended: exit code 9; waiting for main, which may start again"
    ]
    last = follower.worker.read(exit_file("WORKER_2"))
    assert (last["exit_code"], last["has_left"], last["time"]) == (5, True, BEGINNING + 30)


def test_a_worker_takes_part_in_another_attempt(follower: Follower, caplog: pytest.LogCaptureFixture) -> None:
    """Its part is ended, it comes again, and starts when main's configuration is of that attempt and names it."""
    caplog.set_level("INFO")
    follower.tells(1, at=30)
    came = follower.worker.seen_at(45, lambda: follower.worker.read(config_file("WORKER_2")))
    started = [follower.worker.seen_at(at, lambda: len(follower.worker.children.scripts)) for at in (45, 55, 65)]
    follower.begins(1, at=50, nodes={"WORKER_1": "10.0.0.2"})
    follower.begins(1, at=60, nodes={"WORKER_2": "10.0.0.3", "WORKER_7": "10.0.0.8"})
    assert follower.stops(at=100) == 0
    assert follower.worker.children.ended == [1, 2]
    assert (came[0]["attempt"], came[0]["address"]) == (1, "10.0.0.3")
    assert [seen[0] for seen in started] == [1, 1, 2]
    environ = follower.worker.children.environ(1)
    names = ("ATTEMPT", "WORKER_ADDRESSES", "ROLE_INDEX", "MAIN_ADDRESS")
    assert [environ[name] for name in names] == ["1", "10.0.0.3,10.0.0.8", "0", "10.0.0.1"]
    assert messages(caplog, "again") == ["starting again: main has begun another attempt"]


def test_a_worker_that_failed_takes_part_again(follower: Follower) -> None:
    """What it said of the failed attempt is taken back, and it is not said again."""
    follower.worker.child_ends(9, at=30)
    follower.tells(1, at=40)
    follower.begins(1, at=50)
    told = [follower.exit_at(39), follower.exit_at(60)]
    assert follower.stops(at=100) == 0
    assert [seen[0].get("exit_code") for seen in told] == [9, None]
    assert len(follower.worker.children.scripts) == 2
    last = follower.worker.read(exit_file("WORKER_2"))
    assert (last["exit_code"], last["attempt"], last["time"] >= BEGINNING + 100) == (0, 1, True)


def test_a_worker_that_is_left_out_does_not_start(follower: Follower) -> None:
    """Its TIMEOUT counts from the new attempt, and it ends with 75."""
    follower.tells(1, at=300)
    follower.begins(1, at=310, nodes={"WORKER_1": "10.0.0.2"})
    assert follower.worker.run() == 75
    assert 900 <= follower.worker.world.now < 920
    assert len(follower.worker.children.scripts) == 1


def test_an_attempt_that_comes_while_a_worker_waits_for_another(follower: Follower) -> None:
    """Main has begun attempt 2 before attempt 1 came together: the worker makes itself known for that one."""
    follower.tells(1, at=30)
    follower.tells(2, at=50)
    came = [follower.worker.seen_at(at, lambda: follower.worker.read(config_file("WORKER_2"))) for at in (45, 65)]
    follower.begins(2, at=70)
    assert follower.stops(at=100) == 0
    assert [seen[0]["attempt"] for seen in came] == [1, 2]
    assert follower.worker.children.environ(1)["ATTEMPT"] == "2"


def test_a_worker_that_joins_late_takes_part_in_mains_attempt(make: MakeNode) -> None:
    """scale.sh's worker knows of no attempt; main's heartbeat tells."""
    follower = Follower(make, attempt=3)
    assert follower.stops(at=100) == 0
    assert follower.worker.children.environ()["ATTEMPT"] == "3"
    assert len(follower.worker.children.scripts) == 1


@pytest.mark.parametrize("attempt", [True, "3", 10**12, 1_000_000_000, -1, 1.0, None, [2], {"a": 1}])
def test_what_is_no_attempt_is_ignored(follower: Follower, attempt: object) -> None:
    """Who can write to the work dir cannot end all attempts that follow with one number."""
    follower.tells(attempt, at=30)
    assert follower.stops(at=100) == 0
    assert len(follower.worker.children.scripts) == 1
    assert follower.worker.read(config_file("WORKER_2"))["attempt"] == 0


def test_where_there_is_no_gang_attempts_mean_nothing(make: MakeNode) -> None:
    """A start script that is not made for it is not started again."""
    follower = Follower(make, GANG="0")
    follower.tells(1, at=30)
    assert follower.stops(at=100) == 0
    assert len(follower.worker.children.scripts) == 1


def test_an_attempt_never_goes_back(follower: Follower) -> None:
    """An older heartbeat, which some storage shows for a while, ends no attempt and begins none."""
    follower.tells(2, at=30)
    follower.tells(1, at=40)
    follower.begins(2, at=50)
    assert follower.stops(at=100) == 0
    assert follower.worker.children.environ(1)["ATTEMPT"] == "2"
    assert len(follower.worker.children.scripts) == 2


def test_success_of_a_gangs_worker_is_mains_to_say(follower: Follower) -> None:
    """Its own 0 is not told as a failure, and not believed as a success."""
    follower.worker.child_ends(0, at=30)
    told = follower.exit_at(60)
    assert follower.stops(at=100, code=9) == 9
    assert told == [{}]


def test_a_worker_that_waits_notices_a_lost_main(make: MakeNode) -> None:
    """No node waits for an attempt that nobody will begin."""
    follower = Follower(make)
    follower.falls_silent(at=50)
    follower.worker.child_ends(9, at=30)
    assert follower.worker.run() == 76
    assert follower.worker.world.now < 130


def test_a_worker_that_comes_again_notices_a_lost_main(make: MakeNode) -> None:
    """Also while it waits for the attempt's configuration: sooner than TIMEOUT."""
    worker = make(MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3", GANG="1")
    worker.files.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.0.0.1", attempt=0, nodes={})
    assert worker.run() == 76
    assert worker.world.now < 80


def test_a_failure_is_told_when_storage_answers_again(follower: Follower) -> None:
    """An outage at the moment of a failure loses neither the word nor its time."""
    follower.worker.outage(29, 50)
    follower.worker.child_ends(9, at=30)
    told = follower.exit_at(60)
    assert follower.stops(at=100, code=9) == 9
    assert (told[0]["exit_code"], told[0]["has_left"], told[0]["time"]) == (9, False, BEGINNING + 30)


def test_a_part_that_takes_long_to_end_on_a_worker(follower: Follower) -> None:
    """Its heartbeats go on too, and it still comes to the attempt."""
    follower.worker.children.end_takes_s = 200
    follower.tells(1, at=30)
    follower.begins(1, at=240)
    seen = [follower.worker.seen_at(at, lambda: follower.worker.read(heartbeat_file("WORKER_2"))) for at in (50, 200)]
    assert follower.stops(at=300) == 0
    assert seen[1][0]["beat"] - seen[0][0]["beat"] == 30
    assert (seen[1][0]["phase"], seen[1][0]["attempt"]) == ("restarting", 0)
