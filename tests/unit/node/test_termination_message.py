"""What nodes tell of themselves when they fail or leave."""

from __future__ import annotations

import pytest
from unit.node.fake_members import UNIX, Cluster

from oci_cluster.contract.names import exit_file
from oci_cluster.node.failure_detector import Failure


def test_a_node_that_has_left_is_lost_with_its_own_word(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Code, reason and time are the node's own; the line is logged once."""
    cluster.comes("WORKER_1")
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=0, time=123.5, has_left=True)
    cluster.observe(5)
    cluster.observe(10)
    assert cluster.watch.failures == {"WORKER_1": Failure(9, "broke", node="WORKER_1", time=123.5, noticed_at=5)}
    assert cluster.failure().noticed_at == 5
    assert cluster.watch.members == ["WORKER_2"]
    assert [record.getMessage() for record in caplog.records] == ["WORKER_1 lost: broke (code 9)"]


def test_a_node_that_was_scaled_away_left_and_is_not_lost(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is wrong, and the line says so, once."""
    caplog.set_level("INFO")
    cluster.comes("WORKER_1")
    cluster.write(exit_file("WORKER_1"), exit_code=143, reason="told to stop", attempt=0, time=123.5, has_left=True)
    cluster.observe(5)
    cluster.observe(10)
    assert cluster.watch.members == ["WORKER_2"]
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said == [("INFO", "WORKER_1 left: told to stop")]


def test_a_node_whose_attempt_failed_has_not_left(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """It waits for the next attempt: still a member, its failure logged once."""
    cluster.comes("WORKER_1")
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=0, time=123, has_left=False)
    cluster.observe(5)
    cluster.beats("WORKER_1")
    cluster.observe(10)
    assert cluster.watch.failures == {
        "WORKER_1": Failure(9, "broke", node="WORKER_1", time=123.0, noticed_at=5, attempt=0, has_left=False)
    }
    assert cluster.failure().noticed_at == 5
    assert cluster.watch.members == ["WORKER_1", "WORKER_2"]
    assert [record.getMessage() for record in caplog.records] == ["WORKER_1 failed: broke (code 9)"]
    cluster.watch.check()


def test_a_node_that_waits_for_the_next_attempt_can_be_lost(cluster: Cluster) -> None:
    """Its silence says more than its last word."""
    cluster.comes("WORKER_1")
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=0, time=123, has_left=False)
    cluster.observe(0)
    cluster.observe(61)
    assert (cluster.failure().is_silence, cluster.watch.members) == (True, ["WORKER_2"])


@pytest.mark.parametrize("attempt", [0, 2, "1", None, 1.5])
def test_a_failure_of_another_attempt_is_no_failure_of_this_one(cluster: Cluster, attempt: object) -> None:
    """What is told late, or made up, ends no attempt."""
    cluster.watch.begin(1)
    cluster.comes("WORKER_1")
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=attempt, time=1, has_left=False)
    cluster.observe()
    assert cluster.watch.failures == {}
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=1, time=1, has_left=False)
    cluster.observe()
    assert (cluster.failure().attempt, cluster.failure().has_left) == (1, False)


@pytest.mark.parametrize("has_left", [None, 0, "", "false", [], 1])
def test_only_a_plain_false_says_that_a_node_is_still_there(cluster: Cluster, has_left: object) -> None:
    """Anything else is a node that has gone, in whichever attempt."""
    cluster.watch.begin(3)
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=0, time=1, has_left=has_left)
    cluster.observe()
    assert (cluster.failure().has_left, cluster.failure().attempt) == (True, 3)


def test_another_attempt_forgets_failed_ones_and_not_those_that_are_gone(cluster: Cluster) -> None:
    """All that are left start again; who is gone is missing in the next attempt too."""
    cluster.comes("WORKER_1", "WORKER_2")
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=0, time=1, has_left=False)
    cluster.write(exit_file("WORKER_2"), exit_code=8, reason="left", attempt=0, time=1)
    cluster.observe()
    cluster.watch.begin(1)
    cluster.observe()
    assert list(cluster.watch.failures) == ["WORKER_2"]
    assert (cluster.watch.attempt, cluster.watch.members) == (1, ["WORKER_1"])


@pytest.mark.parametrize(
    ("code", "taken"), [(True, 70), ("9", 70), (None, 70), (-1, 70), (256, 70), (9.0, 70), (0, 76)]
)
def test_a_word_without_a_real_exit_code_is_a_failure(cluster: Cluster, code: object, taken: int) -> None:
    """A success before the cluster's end is a contradiction (76), what is no code a bug (70)."""
    cluster.write(exit_file("WORKER_1"), exit_code=code, reason="?", time=1)
    cluster.observe()
    assert cluster.failure().exit_code == taken


@pytest.mark.parametrize("time", ["yesterday", None, [1], {"a": 1}, ""])
def test_a_word_without_a_real_time_is_of_now(cluster: Cluster, time: object) -> None:
    """It cannot be the first of all failures by claiming what is no time."""
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="?", time=time)
    cluster.observe()
    assert cluster.failure().time == UNIX


def test_a_reason_is_fit_for_a_terminal(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Who can write to the work dir cannot write to a terminal, nor flood a log."""
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="\033[2J\nred\r" + "x" * 5000, time=1)
    cluster.observe()
    assert cluster.failure().reason == "[2Jred" + "x" * (1000 - len("\033[2J\nred\r"))
    assert caplog.records[0].getMessage().isprintable()


def test_a_word_that_cannot_be_read_is_looked_at_again(cluster: Cluster) -> None:
    """Half-written, or of another launch: no failure."""
    cluster.comes("WORKER_1")
    cluster.write_unusable(exit_file("WORKER_1"))
    cluster.observe()
    assert cluster.watch.failures == {}
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", time=1)
    cluster.observe()
    assert cluster.failure().exit_code == 9
