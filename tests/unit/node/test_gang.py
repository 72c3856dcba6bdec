"""A gang, as main leads it: attempts that begin and end together, nodes that come and go."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.fake_cluster import (
    Gang,
    MakeNode,
    Node,
    messages,
)

from oci_cluster.contract.names import CERTIFICATE, STOP, config_file, exit_file, heartbeat_file

# One memory:// for all tests would be longer to list with each.
pytestmark = pytest.mark.usefixtures("empty_memory")


def test_a_gang_starts_again_after_a_failure(make: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    """Main's part is ended, all are told by its heartbeat and come again, and its start script runs once more."""
    gang = Gang(make, MAX_RESTARTS="1")
    gang.fails(1, 5, at=30)
    config = gang.main.seen_at(50, lambda: gang.main.read(config_file("MAIN")))
    gang.succeeds(at=60, attempt=1)
    assert (gang.given("ATTEMPT"), gang.given("WORKER_ADDRESSES")) == (["0", "1"], ["10.0.0.2,10.0.0.3"] * 2)
    assert gang.main.children.ended == [1, 2]
    assert (config[0]["attempt"], config[0]["nodes"]) == (1, {"WORKER_1": "10.0.0.2", "WORKER_2": "10.0.0.3"})
    assert gang.main.read(heartbeat_file("MAIN"))["attempt"] == 1
    assert gang.main.read(exit_file("MAIN"))["attempt"] == 1
    assert messages(caplog, "restart", "failed") == [
        "WORKER_1 failed: exit code 5 (code 5)",
        "restart 1 of 1: WORKER_1 failed first: exit code 5",
    ]


def test_main_tells_of_another_attempt_before_it_ends_its_own_part(make: MakeNode) -> None:
    """Workers end theirs at the same time, not one grace period later."""
    gang = Gang(make, MAX_RESTARTS="1")
    gang.main.children.end_takes_s = 8
    gang.fails(1, 5, at=30)
    told = gang.main.seen_at(36, lambda: (gang.main.read(heartbeat_file("MAIN")), gang.attempts))
    gang.succeeds(at=60, attempt=1)
    assert (told[0][0]["attempt"], told[0][0]["phase"], told[0][1]) == (1, "restarting", 1)


def test_a_part_that_takes_long_to_end_does_not_look_like_a_lost_node(make: MakeNode) -> None:
    """GRACE_PERIOD may be longer than HEARTBEAT_TIMEOUT: heartbeats go on meanwhile."""
    gang = Gang(make, MAX_RESTARTS="1", GRACE_PERIOD="300")
    gang.main.children.end_takes_s = 200
    gang.fails(1, 5, at=30)
    beats = [gang.main.seen_at(at, lambda: gang.main.read(heartbeat_file("MAIN"))["beat"]) for at in (50, 100, 150)]
    gang.succeeds(at=300, attempt=1)
    first, second, third = (seen[0] for seen in beats)
    assert (second - first, third - second) == (10, 10)


def test_when_restarts_are_used_up_the_last_first_cause_counts(make: MakeNode) -> None:
    """MAX_RESTARTS bounds the failures; the code is the last one's, not that of the first."""
    gang = Gang(make, MAX_RESTARTS="2")
    gang.fails(1, 5, at=30)
    gang.main.child_ends(6, at=60, attempt=1)
    gang.fails(2, 8, at=90)
    assert gang.main.run() == 8
    assert gang.attempts == 3
    assert gang.main.read(STOP)["reason"] == "WORKER_2 failed first: exit code 8"


def test_without_restarts_the_first_failure_is_the_end(make: MakeNode) -> None:
    """MAX_RESTARTS=0, the default."""
    gang = Gang(make)
    gang.fails(1, 5, at=30)
    assert gang.main.run() == 5
    assert gang.attempts == 1
    assert gang.main.world.now < 40


def test_a_failure_of_main_itself_starts_the_gang_again(make: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    """Main is one of the gang."""
    gang = Gang(make, MAX_RESTARTS="1")
    gang.main.child_ends(6, at=30)
    gang.succeeds(at=60, attempt=1)
    assert messages(caplog, "restart") == ["restart 1 of 1: the entry point ended: exit code 6"]


def test_a_gang_goes_on_without_a_node_that_can_be_missed(make: MakeNode) -> None:
    """WORKER_1 vanishes, MIN_WORKERS=1: the rest start again, and no one is told its address."""
    gang = Gang(make, until={1: 20}, MIN_WORKERS="1", MAX_RESTARTS="1", HEARTBEAT_TIMEOUT="11")
    config = gang.main.seen_at(80, lambda: gang.main.read(config_file("MAIN"))["nodes"])
    gang.succeeds(at=90, attempt=1)
    assert gang.given("WORKER_ADDRESSES") == ["10.0.0.2,10.0.0.3", "10.0.0.3"]
    assert config == [{"WORKER_2": "10.0.0.3"}]


def test_a_gang_does_not_go_on_with_too_few(make: MakeNode) -> None:
    """MIN_WORKERS is not met any more: no restart helps."""
    gang = Gang(make, until={1: 20}, MAX_RESTARTS="9", HEARTBEAT_TIMEOUT="11")
    assert gang.main.run() == 76
    assert gang.attempts == 1
    assert "WORKER_1 failed first: no heartbeat" in gang.main.read(STOP)["reason"]


def test_a_vanished_node_is_a_failure_that_counts(make: MakeNode) -> None:
    """MAX_RESTARTS bounds losses too: a node that could be missed has taken the attempt with it."""
    gang = Gang(make, until={1: 20}, MIN_WORKERS="1", HEARTBEAT_TIMEOUT="11")
    assert gang.main.run() == 76
    assert gang.attempts == 1


def test_too_few_are_found_while_a_gang_comes_together_again(make: MakeNode) -> None:
    """The node that failed never comes again: its silence ends the wait before TIMEOUT does."""
    gang = Gang(make, until={1: 29}, MAX_RESTARTS="1", HEARTBEAT_TIMEOUT="20")
    gang.fails(1, 5, at=30)
    assert gang.main.run() == 76
    assert gang.main.world.now < 65
    assert "WORKER_1: no heartbeat" in gang.main.read(STOP)["reason"].replace(" failed first", "")


def test_a_node_that_joins_starts_the_gang_again_uncounted(make: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    """No restart is used up, a failure has all of them afterwards; the new node is one of all."""
    gang = Gang(make, MAX_RESTARTS="1")
    gang.comes(3, at=30)
    gang.main.child_ends(9, at=60, attempt=1)
    gang.succeeds(at=90, attempt=2)
    all_three = "10.0.0.2,10.0.0.3,10.0.0.4"
    assert gang.given("WORKER_ADDRESSES") == ["10.0.0.2,10.0.0.3", all_three, all_three]
    assert messages(caplog, "again", "restart ") == [
        "starting again: WORKER_3 joined",
        "restart 1 of 1: the entry point ended: exit code 9",
    ]


def test_a_gang_without_restarts_takes_nodes_that_join(make: MakeNode) -> None:
    """MAX_RESTARTS bounds failures, and joining is none."""
    gang = Gang(make)
    gang.comes(3, at=30)
    gang.comes(4, at=60)
    gang.succeeds(at=90, attempt=2)


def test_nodes_that_join_together_start_the_gang_again_once(make: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    """scale.sh +2 is one new attempt."""
    gang = Gang(make)
    gang.comes(4, at=30.1)
    gang.comes(3, at=30.1)
    gang.succeeds(at=60, attempt=1)
    assert messages(caplog, "again") == ["starting again: WORKER_3, WORKER_4 joined"]


def test_a_replacement_starts_the_gang_again(make: MakeNode) -> None:
    """A lost worker's rank comes back: one restart for the loss, none for the return."""
    gang = Gang(make, until={1: 20}, MIN_WORKERS="1", MAX_RESTARTS="1", HEARTBEAT_TIMEOUT="11")
    gang.comes(1, at=80)
    gang.succeeds(at=120, attempt=2)
    assert gang.given("WORKER_ADDRESSES") == ["10.0.0.2,10.0.0.3", "10.0.0.3", "10.0.0.2,10.0.0.3"]


def test_a_node_that_is_stopped_on_purpose_is_no_failure(make: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    """scale.sh -1 ends a worker with 143: the rest start again, and no restart is used up."""
    gang = Gang(make, MIN_WORKERS="1")
    gang.fails(2, 143, at=30, has_left=True)
    gang.succeeds(at=60, attempt=1)
    assert gang.given("WORKER_ADDRESSES")[1] == "10.0.0.2"
    assert messages(caplog, "again") == ["starting again: WORKER_2 failed first: exit code 143"]


def test_a_node_that_is_needed_and_stopped_is_the_end(make: MakeNode) -> None:
    """Whoever ends a worker that cannot be missed has stopped the cluster."""
    gang = Gang(make, MAX_RESTARTS="9")
    gang.fails(2, 143, at=30, has_left=True)
    assert gang.main.run() == 143
    assert gang.attempts == 1


def test_a_failure_that_is_told_late_does_not_end_the_next_attempt(make: MakeNode) -> None:
    """The word of an attempt that is over is nobody's failure."""
    gang = Gang(make, MAX_RESTARTS="1")
    gang.main.child_ends(9, at=30)
    gang.main.publish(exit_file("WORKER_1"), at=45, exit_code=1, reason="late", attempt=0, time=0.0, has_left=False)
    gang.succeeds(at=80, attempt=1)


def test_the_first_cause_of_a_gang_is_waited_for(make: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    """Peers fail with 1 before the one that was killed can say so."""
    gang = Gang(make, MAX_RESTARTS="1")
    gang.main.child_ends(1, at=30)
    gang.fails(1, 137, at=31, failed_at=29.9)
    gang.succeeds(at=60, attempt=1)
    assert messages(caplog, "restart") == ["restart 1 of 1: WORKER_1 failed first: exit code 137"]


def test_each_attempt_has_its_own_time(make: MakeNode) -> None:
    """TIMEOUT counts anew: what an earlier attempt has used up is not missing in a later one."""
    gang = Gang(make, MAX_RESTARTS="1", TIMEOUT="100")
    gang.main.child_ends(9, at=300)
    gang.succeeds(at=500, attempt=1)
    assert 98 <= int(gang.given("TIMEOUT")[1]) <= 100


def test_a_later_attempt_must_be_ready_in_time_too(make: MakeNode) -> None:
    """The ready file of an earlier attempt does not count, nor does its reason."""
    gang = Gang(make, MAX_RESTARTS="1", TIMEOUT="100")

    def says_ready_once(_: list[str]) -> None:
        assert not (gang.main.node_dir / "reason").exists()
        if not gang.attempts:
            (gang.main.node_dir / "ready").touch()
            (gang.main.node_dir / "reason").write_text("the first one broke")

    gang.main.children.on_start = says_ready_once
    gang.main.child_ends(9, at=300)
    assert gang.main.run() == 75
    assert 400 <= gang.main.world.now < 410
    assert gang.main.read(STOP)["reason"].startswith("the cluster was not ready within 100 s (TIMEOUT)")


def test_nodes_that_do_not_come_again_are_named(make: MakeNode) -> None:
    """A worker that lives and does not take part ends the wait at TIMEOUT, counted from the new attempt."""
    main = make(GANG="1", MAX_RESTARTS="1", TIMEOUT="100", WORKER_COUNT="1")
    main.ready_at_once()
    main.publish(config_file("WORKER_1"), node="WORKER_1", address="10.0.0.2")
    main.beats("WORKER_1")
    main.child_ends(9, at=300)
    assert main.run() == 75
    assert 400 <= main.world.now < 410
    assert main.read(STOP)["reason"].endswith("; missing: WORKER_1")


def test_all_attempts_have_one_certificate(make: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that stay and those that join trust the same one."""
    made: list[str] = []

    def make_certificate(name: str, **_: object) -> tuple[str, str]:
        made.append(name)
        return "C", f"K{len(made)}"

    monkeypatch.setattr("oci_cluster.contract.files.certificate.encrypted", lambda key, _: key)
    monkeypatch.setattr("oci_cluster.contract.files.certificate.make_certificate", make_certificate)
    gang = Gang(make, MAX_RESTARTS="1", CLUSTER_TLS="1")
    gang.main.child_ends(9, at=30)
    key = gang.main.seen_at(50, lambda: gang.main.read(CERTIFICATE)["key"])
    gang.succeeds(at=60, attempt=1)
    assert (key, made, len(gang.given("TLS_KEY_FILE"))) == (["K1"], ["c"], 2)


def test_a_node_that_is_lost_before_the_attempt_does_not_end_it(root: Path) -> None:
    """WORKER_1 leaves while WORKER_2 is waited for; MIN_WORKERS=1 is met: the attempt begins without it, and lasts."""
    main = Node(root, GANG="1", MIN_WORKERS="1")
    main.ready_at_once()
    main.publish(config_file("WORKER_1"), at=5, node="WORKER_1", address="10.0.0.2")
    main.publish(exit_file("WORKER_1"), at=8, exit_code=78, reason="bad", time=0.0)
    main.publish(config_file("WORKER_2"), at=100, node="WORKER_2", address="10.0.0.3")
    main.child_ends(0, at=130)
    assert main.run() == 0
    assert main.children.environ()["WORKER_ADDRESSES"] == "10.0.0.3"


def test_an_attempt_does_not_begin_with_too_few(root: Path) -> None:
    """The entry point is not started for a moment where it is known already that the cluster ends."""
    main = Node(root, GANG="1", MIN_WORKERS="2")
    main.publish(config_file("WORKER_1"), at=1, node="WORKER_1", address="10.0.0.2")
    main.publish(exit_file("WORKER_2"), at=2, exit_code=78, reason="bad settings", time=1.0)
    assert main.run() == 78
    assert main.children.scripts == []
