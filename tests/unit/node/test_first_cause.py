"""Which of several failures is the cluster's: main waits for what the other nodes report."""

from __future__ import annotations

import re
import signal

import pytest
from unit.fake_cluster import (
    MakeNode,
    all_train,
    leaves,
)

from oci_cluster.contract.names import STOP, config_file, heartbeat_file

# One memory:// for all tests would be longer to list with each.
pytestmark = pytest.mark.usefixtures("empty_memory")


def test_a_failure_that_is_told_later_can_be_the_first(make: MakeNode) -> None:
    """Main ends with 1 as a peer does; a second later WORKER_2 says that it had failed before with 9."""
    main = all_train(make)
    main.child_ends(1, at=31)
    leaves(main, "WORKER_2", 9, at=32, failed_at=30.9)
    assert main.run() == 9
    assert main.read(STOP)["reason"] == "WORKER_2 failed first: broke"
    assert 32 <= main.world.now < 33


def test_a_failure_with_a_reason_of_its_own_is_not_waited_with(make: MakeNode) -> None:
    """7 is what no lost peer brings on: nobody needs to be heard."""
    main = all_train(make)
    main.child_ends(7, at=31)
    assert main.run() == 7
    assert main.read(STOP)["reason"] == "the entry point ended: exit code 7"
    assert main.world.now < 31.5


def test_a_failure_is_not_waited_with_when_all_have_failed(make: MakeNode) -> None:
    """Three consequences, and nobody left to hear: the first of them."""
    main = all_train(make)
    leaves(main, "WORKER_1", 134, at=30.5, failed_at=30.3)
    leaves(main, "WORKER_2", 1, at=30.5, failed_at=30.4)
    main.child_ends(1, at=31)
    assert main.run() == 134
    assert main.read(STOP)["reason"] == "WORKER_1 failed first: broke"
    assert main.world.now < 31.5


@pytest.mark.parametrize(("ran_s", "waited_s"), [(1, 3), (40, 40), (1000, 60)])
def test_nodes_that_do_not_fail_with_the_others_are_named(make: MakeNode, ran_s: float, waited_s: int) -> None:
    """Main waits as long as the attempt ran, 3 to 60 s; who has not failed by then may hang."""
    main = all_train(make)
    main.child_ends(1, at=ran_s)
    leaves(main, "WORKER_1", 1, at=ran_s + 1, failed_at=ran_s + 0.5)
    assert main.run() == 1
    hang = f"WORKER_2 had not failed {waited_s} s later, which is what a hang looks like"
    assert main.read(STOP)["reason"] == f"the entry point ended: exit code 1; {hang}"
    assert ran_s + waited_s <= main.world.now < ran_s + waited_s + 0.5


@pytest.mark.parametrize("attempt", [0, 3])
def test_a_node_that_has_ended_well_is_not_waited_for_and_named(make: MakeNode, attempt: int) -> None:
    """It had fewer samples, and left; main waited for it in a collective. One that did so in another attempt hangs."""
    main = all_train(make)
    main.ends_well("WORKER_1", 29.5, attempt=attempt)
    leaves(main, "WORKER_2", 1, at=30.5, failed_at=30.4)
    main.child_ends(1, at=30)
    assert main.run() == 1
    reason = main.read(STOP)["reason"]
    if attempt:
        assert "WORKER_1 had not failed 30 s later, which is what a hang looks like" in reason
    else:
        why = "WORKER_1 had ended with 0: the script left there while MAIN waited for it"
        assert reason == f"the entry point ended: exit code 1; {why}"
        assert main.world.now < 31.5


def test_a_node_that_ends_well_with_nobody_waiting_for_it_is_not_named(make: MakeNode) -> None:
    """Main's failure has a reason of its own."""
    main = all_train(make)
    main.ends_well("WORKER_1", 29.5)
    main.child_ends(7, at=30)
    assert main.run() == 7
    assert main.read(STOP)["reason"] == "the entry point ended: exit code 7"


def test_an_error_of_the_users_own_code_is_not_waited_with(make: MakeNode) -> None:
    """No lost peer brings on a ValueError; the others hang as they wait for who has raised it."""
    main = all_train(make)
    leaves(main, "WORKER_1", 1, at=30.5, failed_at=30.4, own_error=True)
    main.child_ends(1, at=30)
    assert main.run() == 1
    assert main.read(STOP)["reason"] == "WORKER_1 failed first: broke"
    assert main.world.now < 31.5


def test_a_node_that_reports_late_does_not_hang(make: MakeNode) -> None:
    """It ended 17 s after main, as on a busy machine: only the node that never reports is named."""
    main = all_train(make)
    main.child_ends(1, at=33)
    leaves(main, "WORKER_1", 1, at=50.2, failed_at=50.1)
    assert main.run() == 1
    assert re.search(
        r"; WORKER_2 had not failed \d+ s later, which is what a hang looks like$", main.read(STOP)["reason"]
    )


def test_the_wait_ends_when_the_last_node_has_reported(make: MakeNode) -> None:
    """Patience costs nothing where nobody hangs: two nodes report late, and the first failure is the cause at once."""
    main = all_train(make)
    main.child_ends(1, at=33)
    leaves(main, "WORKER_1", 1, at=37, failed_at=36.9)
    leaves(main, "WORKER_2", 134, at=41, failed_at=40.9)
    assert main.run() == 1
    assert main.read(STOP)["reason"] == "the entry point ended: exit code 1"
    assert 41 <= main.world.now < 42


def test_parameter_servers_never_look_like_a_hang(make: MakeNode) -> None:
    """They serve until they are ended: nobody waits for their end, and nobody names them."""
    main = all_train(make, PS_COUNT="1")
    main.publish(config_file("PS_3"), node="PS_3", address="10.0.0.4")
    main.beats("PS_3")
    main.child_ends(1, at=33)
    leaves(main, "WORKER_1", 1, at=34, failed_at=33.5)
    leaves(main, "WORKER_2", 1, at=34, failed_at=33.5)
    assert main.run() == 1
    assert main.read(STOP)["reason"] == "the entry point ended: exit code 1"
    assert main.world.now < 35


def test_a_parameter_server_that_fails_can_be_the_first_cause(make: MakeNode) -> None:
    """It has no end of its own, but it can fail."""
    main = all_train(make, PS_COUNT="1")
    main.publish(config_file("PS_3"), node="PS_3", address="10.0.0.4")
    main.beats("PS_3")
    leaves(main, "PS_3", 9, at=33, failed_at=32.9)
    main.child_ends(1, at=33.1)
    assert main.run() == 9
    assert main.read(STOP)["reason"] == "PS_3 failed first: broke"


def test_where_main_alone_runs_the_entry_point_nobody_is_waited_for(make: MakeNode) -> None:
    """ENTRY_ON=main: its code is the cluster's at once, whatever workers say just then."""
    main = all_train(make, ENTRY_ON="main")
    main.child_ends(1, at=31)
    leaves(main, "WORKER_2", 9, at=32, failed_at=30.9)
    assert main.run() == 1
    assert main.read(STOP)["reason"] == "the entry point ended: exit code 1"
    assert main.world.now < 31.5


def test_success_of_main_is_not_waited_with(make: MakeNode) -> None:
    """0 needs no cause."""
    main = all_train(make)
    main.child_ends(0, at=31)
    assert main.run() == 0
    assert main.world.now < 31.5


def test_main_itself_may_fail_while_it_waits(make: MakeNode) -> None:
    """A worker ends with 1, and within 3 s main is killed: main is the cause."""
    main = all_train(make)
    leaves(main, "WORKER_1", 1, at=30, failed_at=30)
    main.child_ends(137, at=31)
    assert main.run() == 137
    assert main.read(STOP)["reason"] == "the entry point ended: killed by SIGKILL"
    assert main.world.now < 32


def test_a_vanished_node_is_not_waited_with(make: MakeNode) -> None:
    """Its silence has taken HEARTBEAT_TIMEOUT already."""
    main = make(ENTRY_ON="all", MIN_WORKERS="2", HEARTBEAT_TIMEOUT="11")
    main.ready_at_once()
    main.beats("WORKER_1")
    main.beats("WORKER_2", until=20)
    assert main.run() == 76
    assert main.read(STOP)["reason"] == "WORKER_2 failed first: no heartbeat for 11 s"
    assert main.world.now < 41


def test_a_node_that_could_be_missed_is_not_the_cause_of_a_later_failure(make: MakeNode) -> None:
    """WORKER_2 left minutes ago and was not needed: main's own code counts, though it may be a consequence."""
    main = all_train(make, MIN_WORKERS="1")
    leaves(main, "WORKER_2", 9, at=30, failed_at=30)
    main.child_ends(1, at=200)
    assert main.run() == 1
    assert "WORKER_1 had not failed" in main.read(STOP)["reason"]


def test_a_node_that_could_be_missed_ends_nothing(make: MakeNode) -> None:
    """Without a gang a framework decides itself what a lost worker means."""
    main = all_train(make, MIN_WORKERS="1")
    leaves(main, "WORKER_2", 9, at=30, failed_at=30)
    main.child_ends(0, at=100)
    assert main.run() == 0


def test_stop_ends_the_wait_for_the_first_cause(make: MakeNode) -> None:
    """stop.sh has the word in every phase."""
    main = all_train(make)
    main.child_ends(1, at=31)
    main.publish(STOP, at=32, reason="stopped by stop.sh", exit_code=143)
    assert main.run() == 143
    assert main.world.now < 33


def test_ttl_ends_the_wait_for_the_first_cause(make: MakeNode) -> None:
    """The bound holds in every phase too."""
    main = all_train(make, TTL="32")
    main.child_ends(1, at=31)
    assert main.run() == 75
    assert main.world.now < 33


def test_a_signal_ends_the_wait_for_the_first_cause(make: MakeNode) -> None:
    """TERM is not kept waiting."""
    main = all_train(make)
    main.child_ends(1, at=31)
    main.world.at(32, lambda: setattr(main.world, "received", signal.SIGTERM))
    assert main.run() == 143
    assert main.world.now < 33


def test_an_outage_does_not_lengthen_the_wait(make: MakeNode) -> None:
    """What cannot be heard is not waited for: main's own code, and it is told when storage answers again."""
    main = all_train(make)
    main.outage(4.5, 60)
    main.child_ends(1, at=5)
    waited = main.seen_at(11, lambda: main.children.ended[:])
    assert main.run() == 1
    assert waited == [[1]]
    assert main.read(STOP)["exit_code"] == 1


def test_heartbeats_go_on_while_the_first_cause_is_waited_for(make: MakeNode) -> None:
    """HEARTBEAT_TIMEOUT may be shorter than the 3 s of the wait: workers would say that main is lost."""
    main = all_train(make, HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="11")
    beats = [main.seen_at(at, lambda: main.read(heartbeat_file("MAIN"))["beat"]) for at in (31.1, 33.9)]
    main.child_ends(1, at=31)
    assert main.run() == 1
    assert beats[1][0] - beats[0][0] >= 5
