"""A worker whose main has the files: who cannot reach them has lost main, or waits for its next life."""

from __future__ import annotations

import pytest
from unit.fake_cluster import FOR_EVER_S, MakeNode, Node, messages
from unit.node.fake_lives import OtherMain

from oci_cluster.contract.names import STOP, arrival_file
from oci_cluster.errors import StorageError
from oci_cluster.node.start import MOST_REQUESTS_OF_MAIN, paced_at_main

AT_MAIN = {"MODE": "WORKER", "NODE_RANK": "2", "NODE_ADDRESS": "10.0.0.3", "WORK_DIR": "main://main-0.svc:7000"}
ONE, TWO = "1" * 32, "2" * 32


@pytest.fixture
def worker(make: MakeNode) -> Node:
    """Return a worker of a main that has the files."""
    return make(**AT_MAIN)


@pytest.fixture
def interruptible(make: MakeNode) -> Node:
    """Return one whose main can begin another life."""
    return make(**AT_MAIN, INTERRUPTIBLE="1", POLL_CEILING="1")


def test_a_main_that_does_not_answer_is_lost(worker: Node, caplog: pytest.LogCaptureFixture) -> None:
    """76, HEARTBEAT_TIMEOUT after its last answer; nobody is told, and so nothing is waited for."""
    caplog.set_level("INFO")
    worker.main_lives()
    worker.outage(100, FOR_EVER_S)
    assert worker.run() == 76
    assert 155 <= worker.world.now <= 167
    assert messages(caplog, "main lost: no answer for 6", "no route to storage")


def test_a_main_that_answers_again_in_time_is_not_lost(worker: Node) -> None:
    """The time without an answer is counted anew each time."""
    worker.main_lives()
    worker.outage(100, 150)
    worker.outage(155, 205)
    worker.publish(STOP, at=300, reason="done", exit_code=0)
    assert worker.run() == 0


def test_a_main_that_goes_before_its_configuration_is_lost_too(worker: Node) -> None:
    """It has answered: what the node waits for does not matter."""
    worker.outage(50, FOR_EVER_S)
    assert worker.run() == 76
    assert 105 <= worker.world.now <= 117


def test_a_main_that_has_never_answered_is_not_there(worker: Node, caplog: pytest.LogCaptureFixture) -> None:
    """75 after TIMEOUT, with the last words of what does not answer; until then nothing is wrong."""
    caplog.set_level("INFO")
    worker.cluster_dir.fault = StorageError("no route to storage")
    assert worker.run() == 75
    assert 600 <= worker.world.now <= 607
    assert messages(caplog, "waited 600 s (TIMEOUT) for main: no route to storage")
    assert [record.levelname for record in caplog.records if "route" in record.getMessage()] == ["INFO", "INFO"]


def test_a_main_that_comes_late_is_joined_without_a_warning(worker: Node, caplog: pytest.LogCaptureFixture) -> None:
    """Its name is not known, and it refuses, until it is there."""
    worker.cluster_dir.fault = StorageError("no route to storage")
    worker.outage(1, 120)
    worker.main_lives()
    worker.publish(STOP, at=300, reason="done", exit_code=0)
    assert worker.run() == 0
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


def test_a_silent_main_is_waited_for_where_it_can_begin_another_life(interruptible: Node) -> None:
    """The start script is ended, and runs again in the next life."""
    OtherMain(interruptible, ONE, 1, until=100)
    interruptible.outage(100, 400)
    OtherMain(interruptible, TWO, 2, at=390)
    interruptible.publish(STOP, at=500, reason="done", exit_code=0)
    assert interruptible.run() == 0
    assert len(interruptible.children.scripts) == 2
    assert [interruptible.children.environ(attempt)["LIFE"] for attempt in (0, 1)] == ["1", "2"]


def test_a_main_that_does_not_come_back_is_lost(interruptible: Node, caplog: pytest.LogCaptureFixture) -> None:
    """76, after HEARTBEAT_TIMEOUT and TIMEOUT."""
    caplog.set_level("INFO")
    OtherMain(interruptible, ONE, 1, until=100)
    interruptible.outage(100, FOR_EVER_S)
    assert interruptible.run() == 76
    assert 755 <= interruptible.world.now <= 775
    assert messages(caplog, "it has not come back")


def test_a_main_whose_memory_is_new_is_told_of_the_arrival_again(interruptible: Node) -> None:
    """The first one has taken the arrival, and ended before it could answer."""
    silent = OtherMain(interruptible, ONE, 1, until=20)
    silent.answers = False
    interruptible.world.at(30, interruptible.files.remove_all)
    seen = interruptible.seen_at(35, lambda: interruptible.files.is_there(arrival_file("WORKER_2")))
    OtherMain(interruptible, TWO, 1, at=40)
    interruptible.publish(STOP, at=100, reason="done", exit_code=0)
    assert interruptible.run() == 0
    assert seen == [True]
    assert len(interruptible.children.scripts) == 1


def test_a_main_that_begins_again_while_its_configuration_is_waited_for(interruptible: Node) -> None:
    """Nothing of the life before comes any more."""
    first = OtherMain(interruptible, ONE, 1, until=30)
    publish = first.files.publish
    first.files.publish = (  # type: ignore[method-assign]
        lambda name, **fields: 0 if name.endswith("config.json") else publish(name, **fields)
    )
    interruptible.world.at(31, interruptible.files.remove_all)
    OtherMain(interruptible, TWO, 2, at=40)
    interruptible.publish(STOP, at=200, reason="done", exit_code=0)
    assert interruptible.run() == 0
    assert [environ["LIFE"] for environ in map(interruptible.children.environ, range(1))] == ["2"]


def test_a_late_node_joins_a_main_that_is_there(make: MakeNode) -> None:
    """Main has the files: who can ask it has found it."""
    worker = make(**AT_MAIN, START_BY="2001-01-01T00:00:00Z")
    worker.world.at(50, worker.main_lives)
    worker.publish(STOP, at=100, reason="done", exit_code=0)
    assert worker.run() == 0


@pytest.mark.parametrize(("interruptible", "code"), [("0", 75), ("1", 0)])
def test_a_late_main_cannot_know_whether_it_was_there_before(make: MakeNode, interruptible: str, code: int) -> None:
    """Where it has lives, its memory of the last one is gone."""
    main = make(WORK_DIR="main://main-0:7000", INTERRUPTIBLE=interruptible, START_BY="2001-01-01T00:00:00Z")
    main.ready_at_once()
    main.child_ends(0, at=50)
    assert main.run() == code


@pytest.mark.parametrize(("workers", "look_s", "beat_s"), [(3, 1, 5), (400, 1, 5), (999, 2.2, 11)])
def test_nodes_look_often_as_far_as_main_can_answer(make: MakeNode, workers: int, look_s: float, beat_s: float) -> None:
    """Main serves its last words for a short time."""
    usual = {"HEARTBEAT_INTERVAL": "15", "POLL_CEILING": "4", "MIN_WORKERS": "0"}
    found = paced_at_main(make(**{**AT_MAIN, **usual, "WORKER_COUNT": str(workers)}).settings)
    assert found.poll_ceiling_s == pytest.approx(look_s, rel=0.25)
    assert found.heartbeat_interval_s == pytest.approx(beat_s, rel=0.25)
    assert (workers + 1) * (1 / found.poll_ceiling_s + 2 / found.heartbeat_interval_s) <= MOST_REQUESTS_OF_MAIN + 1


def test_goodbye_is_tried_as_long_as_main_may_come_back(worker: Node) -> None:
    """A stop is obeyed, and main is gone: the node does not wait for a minute."""
    worker.main_lives()
    worker.publish(STOP, at=100, reason="done", exit_code=0)
    worker.children.on_start = lambda _: None
    worker.world.at(101, lambda: None)
    ended: list[float] = []
    end = worker.children.end

    def ends(*args: object, **named: object) -> int:
        ended.append(worker.world.now)
        worker.cluster_dir.fault = StorageError("refused")
        return end(*args, **named)  # type: ignore[arg-type]

    worker.children.end = ends  # type: ignore[method-assign]
    assert worker.run() == 0
    assert 8 <= worker.world.now - ended[0] <= 20
