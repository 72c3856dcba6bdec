"""Nodes that are still there when their cluster is over, and show no sign of life."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from unit.launcher.following import Run

from oci_cluster.contract.names import STOP, heartbeat_file
from oci_cluster.errors import StorageError

# HEARTBEAT_TIMEOUT, GRACE_PERIOD and the backend's margin of the fake cluster.
SILENT_S = 60 + 10 + 5


def long(run: Run, seconds: float) -> Callable[[], None]:
    """Have *seconds* pass."""

    def passes() -> None:
        run.clock.now += seconds

    return passes


def steps_of_a_beating(run: Run, node: str, times: int) -> list[Callable[[], object]]:
    """Have *node* live for *times* half minutes."""

    def beat(number: int) -> None:
        run.clock.now += 30
        run.cluster_dir.publish(heartbeat_file(node), beat=number)

    return [lambda number=number: beat(number) for number in range(times)]


def test_a_worker_that_is_frozen_is_ended_when_main_has_ended(run: Run) -> None:
    """It would be paid for until somebody looks. The code is main's."""
    code = run.follow(
        lambda: run.nodes(MAIN=0, WORKER_1=0),
        long(run, SILENT_S - 1),
        long(run, 2),
        lambda: run.node("WORKER_2", 137),
    )
    assert (code, run.calls) == (0, [("end", "WORKER_2")])
    assert "WORKER_2 has shown no sign of life for 76 s; ending it" in run.said


def test_a_worker_that_takes_its_time_lives_as_long_as_it_shows_it(run: Run) -> None:
    """It uploads what it has made, say."""
    beating = steps_of_a_beating(run, "WORKER_2", 20)
    assert run.follow(lambda: run.nodes(MAIN=0, WORKER_1=0), *beating, lambda: run.node("WORKER_2", 0)) == 0
    assert run.calls == []


def test_nobody_is_taken_for_silent_while_the_cluster_works(run: Run) -> None:
    """Whoever is lost then is the nodes' own to find: main may know more."""
    quiet = [long(run, 1000)] * 3
    assert run.follow(lambda: run.node("WORKER_1", 137), *quiet, lambda: run.end(7, stop={"exit_code": 7})) == 7
    assert run.calls == []


@pytest.mark.parametrize("gave_up", [75, 76])
@pytest.mark.parametrize("main", [137, 143])
def test_a_main_that_is_frozen_is_lost_when_others_have_given_it_up(run: Run, gave_up: int, main: int) -> None:
    """Whatever the backend calls its end."""
    code = run.follow(
        lambda: run.nodes(WORKER_1=gave_up, WORKER_2=gave_up),
        long(run, SILENT_S + 1),
        lambda: run.node("MAIN", main),
    )
    assert (code, run.calls) == (76, [("end", "MAIN")])
    stop = run.cluster_dir.read(STOP)
    assert stop is not None
    assert (stop["exit_code"], stop["reason"]) == (76, "main lost: no heartbeat for 76 s")
    assert run.said[-1].startswith("cluster mine ended with 76 (main lost: no heartbeat for 76 s) after ")


def test_a_main_that_was_frozen_after_its_last_word_is_ended(run: Run) -> None:
    """All others have heard it, and ended well."""

    def stops() -> None:
        run.cluster_dir.publish(STOP, reason="the entry point ended", exit_code=0)
        run.nodes(WORKER_1=0, WORKER_2=0)

    assert run.follow(stops, long(run, SILENT_S + 1), lambda: run.node("MAIN", 137)) == 76
    assert run.calls == [("end", "MAIN")]


def test_a_main_whose_workers_have_left_is_not_taken_for_silent(run: Run) -> None:
    """Its storage may be away, and it may work for hours more."""
    quiet = [long(run, 1000)] * 3
    assert run.follow(lambda: run.nodes(WORKER_1=0, WORKER_2=0), *quiet, lambda: run.node("MAIN", 0)) == 0
    assert run.calls == []


def test_who_does_not_end_is_killed_again_and_again(run: Run) -> None:
    """A frozen process obeys nothing else."""
    run.follow(
        lambda: run.nodes(MAIN=0, WORKER_1=0),
        long(run, SILENT_S + 1),
        long(run, 29),
        long(run, 2),
        long(run, 31),
        lambda: run.node("WORKER_2", 137),
    )
    assert run.calls == [("end", "WORKER_2"), ("kill", "WORKER_2"), ("kill", "WORKER_2")]
    assert run.said.count("WORKER_2 has not ended; killing it") == 2


def test_storage_that_does_not_answer_makes_nobody_silent(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of a node then."""

    def away(*_: object, **_named: object) -> None:
        raise StorageError("no route")

    def begins() -> None:
        run.nodes(MAIN=0, WORKER_1=0)
        monkeypatch.setattr("oci_cluster.contract.files.cluster_dir.ClusterDir.read", away)

    assert run.follow(begins, long(run, 1000), long(run, 1000), lambda: run.node("WORKER_2", 69)) == 0
    assert run.calls == []


def test_a_backend_that_refuses_is_asked_again(run: Run) -> None:
    """And what it said is shown."""

    def refuse() -> None:
        del run.backend.on["end"]
        raise StorageError("busy")

    run.backend.on["end"] = refuse
    run.follow(
        lambda: run.nodes(MAIN=0, WORKER_1=0),
        long(run, SILENT_S + 1),
        long(run, 1),
        lambda: run.node("WORKER_2", 137),
    )
    assert run.calls == [("end", "WORKER_2"), ("end", "WORKER_2")]
    assert "WORKER_2 could not be ended: busy; trying again" in run.said
