"""Lives of one launch, the other nodes' part: a life is the current one when its main has answered."""

from __future__ import annotations

import pytest
from unit.node.fake_lives import ONE, TWO, Launch, OtherMain, lead_earlier, of, term

from oci_cluster.contract.names import LIFE, STOP, config_file, exit_file, heartbeat_file

pytestmark = pytest.mark.usefixtures("empty_memory")


def test_a_worker_does_not_believe_what_is_there(launch: Launch) -> None:
    """A configuration, a heartbeat, a life of a main that is gone: it waits for one that answers."""
    worker = launch.node(1, TIMEOUT="60")
    lead_earlier(worker)
    assert (worker.run(), worker.children.scripts) == (75, [])
    assert 60 <= worker.world.now < 61  # whoever had no answer in that time has nobody to tell


def test_a_worker_does_not_believe_what_is_put_back(launch: Launch) -> None:
    """Somebody has kept all that the life before has written, and plays it once more, heartbeat by heartbeat."""
    worker = launch.node(1, TIMEOUT="60")
    worker.world.now = 1000.0
    worker.world.at(1000.0, lambda: None)
    keeper = of(worker, ONE)
    keeper._signer._wall_clock_ns = lambda: int((worker.world.wall_clock() - 900) * 1e9)
    old = iter(range(10_000))

    def play() -> None:
        keeper.publish(LIFE, number=1, answers={"WORKER_1": int((worker.world.wall_clock() - 950) * 1e9)})
        keeper.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.6.6.6")
        keeper.publish(heartbeat_file("MAIN"), beat=next(old), phase="ready", attempt=0)

    worker.world.every(1.0, play, until=1100.0)
    assert (worker.run(), worker.children.scripts) == (75, [])


@pytest.mark.parametrize("main_comes_at", [0.0, 20.0])
def test_a_worker_joins_the_life_that_answers(launch: Launch, main_comes_at: float) -> None:
    """Main comes first, or the worker; its files carry that life, and its script has main's new address."""
    worker = launch.node(1)
    lead_earlier(worker)
    OtherMain(worker, at=main_comes_at)
    worker.world.at(60.0, lambda: of(worker, TWO).publish(STOP, reason="done", exit_code=0))
    assert worker.run() == 0
    assert worker.children.environ()["MAIN_ADDRESS"] == "10.0.2.1"
    assert worker.children.environ()["LIFE"] == "2"
    for name in (config_file("WORKER_1"), heartbeat_file("WORKER_1"), exit_file("WORKER_1")):
        assert worker.read(name)["life"] == TWO


def test_a_stop_of_another_life_does_not_end_a_worker(launch: Launch) -> None:
    """The main before has been late with its end."""
    worker = launch.node(1)
    OtherMain(worker)
    earlier = of(worker, ONE)
    worker.world.at(20.0, lambda: earlier.publish(STOP, reason="old", exit_code=9))
    worker.world.at(
        20.0, lambda: earlier.publish(exit_file("MAIN"), exit_code=9, reason="old", attempt=0, has_left=True)
    )
    worker.world.at(60.0, lambda: of(worker, TWO).publish(STOP, reason="done", exit_code=0))
    assert (worker.run(), worker.world.now >= 60) == (0, True)


def test_a_worker_follows_main_into_its_next_life(launch: Launch) -> None:
    """Main alone has been started again: the worker proves its life, and begins there."""
    worker = launch.node(1)
    OtherMain(worker, ONE, 1, until=20.0)
    OtherMain(worker, at=30.0)
    worker.world.at(90.0, lambda: of(worker, TWO).publish(STOP, reason="done", exit_code=0))
    assert worker.run() == 0
    assert [worker.children.environ(attempt)["LIFE"] for attempt in (0, 1)] == ["1", "2"]
    assert worker.children.environ(1)["MAIN_ADDRESS"] == "10.0.2.1"


def test_a_heartbeat_of_another_life_that_nobody_answers_for_changes_nothing(launch: Launch) -> None:
    """Somebody puts them back, so that main's own are hardly ever there; the main that lives answers for itself."""
    worker = launch.node(1)
    OtherMain(worker, at=0.02)  # not at the moments at which the worker looks

    def put_back() -> None:
        of(worker, ONE).publish(heartbeat_file("MAIN"), beat=5, phase="ready", attempt=0)

    for tenth in range(200, 300):
        worker.world.at(tenth / 10 + 0.05, put_back)
    worker.world.at(60.0, lambda: of(worker, TWO).publish(STOP, reason="done", exit_code=0))
    assert (worker.run(), len(worker.children.scripts)) == (0, 1)


def test_a_worker_of_an_interrupted_main_waits_for_the_next_life(launch: Launch) -> None:
    """Its script is ended; no heartbeat of main for longer than a lost one may take is no loss."""
    worker = launch.node(1)
    first = OtherMain(worker, ONE, 1, until=20.0)
    worker.world.at(15.5, lambda: setattr(first, "phase", "interrupted"))
    OtherMain(worker, at=200.0)
    worker.world.at(300.0, lambda: of(worker, TWO).publish(STOP, reason="done", exit_code=0))
    assert (worker.run(), len(worker.children.scripts)) == (0, 2)


def test_a_script_that_fails_because_main_was_interrupted_is_no_failure(launch: Launch) -> None:
    """Peers of a process that is ended fail before they are ended themselves."""
    worker = launch.node(1)
    first = OtherMain(worker, ONE, 1, until=20.0)
    worker.world.at(15.5, lambda: setattr(first, "phase", "interrupted"))
    worker.child_ends(1, at=15.6)
    term(worker, 30.0)
    assert worker.run() == 143
    assert worker.read(exit_file("WORKER_1"))["interrupted"] is True


def test_an_interrupted_worker_tells_main_at_once(launch: Launch) -> None:
    """Before its script has ended, which may take long."""
    worker = launch.node(1)
    OtherMain(worker)
    worker.children.end_takes_s = 9.0
    term(worker, 20.0)
    seen = worker.seen_at(22.0, lambda: worker.read(exit_file("WORKER_1")).get("interrupted"))
    assert (worker.run(), seen) == (143, [True])


def test_a_worker_that_fails_before_it_knows_its_life_waits_for_main_to_tell_it(launch: Launch) -> None:
    """Else main would take its word for one of another life."""
    worker = launch.node(1, CODE_DIR="/nowhere")
    OtherMain(worker, at=20.0)
    assert worker.run() == 78
    assert (worker.read(exit_file("WORKER_1"))["life"], 20 <= worker.world.now < 40) == (TWO, True)


def test_a_worker_that_nobody_answers_does_not_wait_for_ever(launch: Launch) -> None:
    """For as long as a lost node would be missed."""
    worker = launch.node(1, CODE_DIR="/nowhere")
    assert (worker.run(), 60 <= worker.world.now < 70) == (78, True)
