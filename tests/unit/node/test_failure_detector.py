"""Who is there, who is silent, and when too few are left; time and files are the test's."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.node.fake_members import UNIX, Cluster

from oci_cluster.contract.names import config_file, exit_file, heartbeat_file
from oci_cluster.errors import LostError
from oci_cluster.node.failure_detector import Failure, is_member


@pytest.mark.parametrize("node", ["WORKER_1", "WORKER_9999999", "PS_12"])
def test_members_are_workers_and_parameter_servers(node: str) -> None:
    """By role and rank."""
    assert is_member(node)


NO_MEMBERS = ["MAIN", "WORKER_0", "WORKER_01", "WORKER_-1", "WORKER_", "WORKER_1 ", "WORKER_1\n", "worker_1", "PS",
              "WORKER_10000000", "WORKER_\u0661", "../WORKER_1", "XPS_1", "PS_1_2", ""]  # fmt: skip


@pytest.mark.parametrize("node", NO_MEMBERS)
def test_what_is_no_members_name(node: str) -> None:
    """Names become file names and words of command lines: nothing else passes, other alphabets' digits included."""
    assert not is_member(node)


# --- The other nodes ------------------------------------------------------------------------------------------------


def test_nodes_that_were_asked_for_join_once_and_are_not_read(cluster: Cluster) -> None:
    """A configuration's being there is enough: main makes one request whatever the cluster's size."""
    cluster.comes("WORKER_2", "WORKER_1")
    assert [cluster.observe(), cluster.observe(), cluster.reads] == [["WORKER_1", "WORKER_2"], [], []]


def test_nodes_are_in_the_order_of_roles_and_ranks(root: Path) -> None:
    """Workers before parameter servers, 9 before 10."""
    cluster = Cluster(root, WORKER_COUNT="10", PS_COUNT="1")
    cluster.comes("PS_11", "WORKER_10", "WORKER_9", "WORKER_12")
    assert cluster.observe() == ["WORKER_9", "WORKER_10", "WORKER_12", "PS_11"]
    assert cluster.watch.members == [*(f"WORKER_{rank}" for rank in range(1, 11)), "WORKER_12", "PS_11"]


def test_a_node_that_nobody_asked_for_joins_when_it_can_be_read(cluster: Cluster) -> None:
    """scale.sh adds ranks that main was not started with."""
    cluster.comes("WORKER_1", "WORKER_2", "WORKER_7")
    assert cluster.observe() == ["WORKER_1", "WORKER_2", "WORKER_7"]
    assert cluster.reads == [config_file("WORKER_7")]
    assert cluster.watch.members == ["WORKER_1", "WORKER_2", "WORKER_7"]


def test_another_launchs_node_does_not_join(cluster: Cluster) -> None:
    """What cannot be read as this launch's is looked at again, and joins when it can."""
    cluster.write_unusable(config_file("WORKER_7"))
    assert [cluster.observe(), cluster.observe(), cluster.reads] == [[], [], [config_file("WORKER_7")] * 2]
    assert cluster.watch.members == ["WORKER_1", "WORKER_2"]
    cluster.comes("WORKER_7")
    assert cluster.observe() == ["WORKER_7"]


@pytest.mark.parametrize("node", NO_MEMBERS)
def test_files_of_no_members_name_are_passed_over(cluster: Cluster, node: str) -> None:
    """Nothing that a stranger puts there becomes a node, nor is it read."""
    cluster.comes(node)
    cluster.write("WORKER_1_config.json.tmp")
    cluster.write(exit_file(node), exit_code=9)
    assert [cluster.observe(), cluster.observe(100), cluster.reads, cluster.watch.failures] == [[], [], [], {}]
    assert cluster.watch.members == ["WORKER_1", "WORKER_2"]


def test_a_node_that_is_started_anew_joins_again(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """A replacement can be there before anybody has missed its predecessor, whose silence is not its own."""
    caplog.set_level("INFO")
    cluster.comes("WORKER_1")
    cluster.observe(0)
    cluster.write(config_file("WORKER_1"))
    assert [cluster.observe(65), cluster.observe(120), cluster.watch.failures] == [["WORKER_1"], [], {}]
    assert "is back" not in caplog.text
    cluster.observe(126)
    assert cluster.failure().is_silence


def test_what_overwrites_a_configuration_must_be_of_this_launch(cluster: Cluster) -> None:
    """Another launch's file in the place of a known node's is no new node."""
    cluster.comes("WORKER_1")
    cluster.observe()
    cluster.write_unusable(config_file("WORKER_1"))
    assert cluster.observe() == []


# --- Silence --------------------------------------------------------------------------------------------------------


def test_a_node_whose_heartbeat_does_not_change_is_lost(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """After HEARTBEAT_TIMEOUT on main's clock, with 76; the time of its failure is that of its last sign of life."""
    cluster.comes("WORKER_1", "WORKER_2")
    cluster.observe(0)
    cluster.beats("WORKER_2")
    cluster.observe(60)
    assert cluster.watch.failures == {}
    cluster.observe(61)
    expected = Failure(76, "no heartbeat for 61 s", node="WORKER_1", time=UNIX - 61, noticed_at=61, is_silence=True)
    assert cluster.watch.failures == {"WORKER_1": expected}
    assert cluster.failure().noticed_at == 61
    assert cluster.watch.members == ["WORKER_2"]
    assert [record.getMessage() for record in caplog.records] == ["WORKER_1 lost: no heartbeat for 61 s (code 76)"]


def test_a_node_that_has_not_come_yet_is_not_silent(cluster: Cluster) -> None:
    """It is missing, which the start script or TIMEOUT names."""
    cluster.comes("WORKER_1")
    for moment in range(0, 1001, 50):
        cluster.beats("WORKER_1")
        cluster.observe(moment)
    assert (cluster.watch.failures, cluster.watch.missing, cluster.watch.seen) == ({}, ["WORKER_2"], ["WORKER_1"])


def test_a_node_that_dies_before_its_first_heartbeat_is_lost(cluster: Cluster) -> None:
    """Its configuration was a sign of life; main waited for ever for a node that it had never heard again."""
    cluster.write(config_file("WORKER_1"))
    cluster.observe(0)
    cluster.observe(60)
    assert cluster.watch.failures == {}
    cluster.observe(61)
    assert list(cluster.watch.failures) == ["WORKER_1"]


def test_a_node_whose_heartbeat_was_deleted_is_silent(cluster: Cluster) -> None:
    """A living one writes it again. Of a dead one nothing would be left that could stop changing."""
    cluster.comes("WORKER_1", "WORKER_2")
    cluster.observe(0)
    cluster.remove(heartbeat_file("WORKER_1"))
    cluster.remove(heartbeat_file("WORKER_2"))
    cluster.observe(60)
    cluster.beats("WORKER_2")
    cluster.observe(61)
    assert list(cluster.watch.failures) == ["WORKER_1"]


def test_a_node_that_was_cut_off_comes_back(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """A heartbeat that changes again is a sign of life: the node joins again, and can be lost again."""
    caplog.set_level("INFO")
    cluster.comes("WORKER_1")
    cluster.observe(0)
    cluster.observe(61)
    assert cluster.observe(70) == []
    cluster.beats("WORKER_1")
    assert [cluster.observe(75), cluster.observe(80)] == [["WORKER_1"], []]
    assert (cluster.watch.failures, cluster.watch.members) == ({}, ["WORKER_1", "WORKER_2"])
    cluster.observe(140)
    assert [record.getMessage() for record in caplog.records] == [
        "WORKER_1 lost: no heartbeat for 61 s (code 76)",
        "WORKER_1 is back",
        "WORKER_1 lost: no heartbeat for 65 s (code 76)",
    ]


def test_a_node_that_has_said_goodbye_does_not_come_back_by_a_heartbeat(cluster: Cluster) -> None:
    """Its last heartbeat may be written after its last word was."""
    cluster.comes("WORKER_1")
    cluster.observe(0)
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", time=UNIX)
    cluster.observe(5)
    cluster.beats("WORKER_1")
    assert (cluster.observe(10), cluster.failure().exit_code) == ([], 9)


def test_a_replacement_takes_the_place_of_a_lost_node(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The same rank, started anew, its predecessor's last word removed."""
    caplog.set_level("INFO")
    cluster.comes("WORKER_1")
    cluster.observe(0)
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", time=UNIX)
    cluster.observe(5)
    cluster.remove(exit_file("WORKER_1"))
    cluster.comes("WORKER_1")
    assert (cluster.observe(10), cluster.watch.failures) == (["WORKER_1"], {})
    assert caplog.records[-1].getMessage() == "WORKER_1 is back"


# --- Too few --------------------------------------------------------------------------------------------------------


def lost(cluster: Cluster) -> tuple[int, str]:
    """Return code and message of a cluster that cannot go on."""
    with pytest.raises(LostError) as caught:
        cluster.watch.check()
    return caught.value.exit_code, str(caught.value)


def test_as_long_as_enough_workers_are_left_nothing_is_lost(cluster: Cluster) -> None:
    """MIN_WORKERS is the limit, not the launch's size; nodes that have not come are waited for."""
    cluster.watch.check()
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", time=5)
    cluster.observe()
    cluster.watch.check()


def test_too_few_workers_end_the_cluster_with_the_first_cause(cluster: Cluster) -> None:
    """Code and reason are the first cause's, and all that are gone are named."""
    cluster.write(exit_file("WORKER_1"), exit_code=1, reason="lost its peer", time=100.0)
    cluster.write(exit_file("WORKER_2"), exit_code=9, reason="broke", time=100.5)
    cluster.observe()
    assert lost(cluster) == (9, "WORKER_1, WORKER_2 lost, MIN_WORKERS is 1; first WORKER_2: broke")


def test_a_worker_that_vanished_is_76(root: Path) -> None:
    """Without a word there is no code but ours."""
    cluster = Cluster(root)
    cluster.comes("WORKER_1", "WORKER_2")
    cluster.observe(0)
    cluster.beats("WORKER_1")
    cluster.observe(61)
    assert lost(cluster) == (76, "WORKER_2 lost, MIN_WORKERS is 2; first WORKER_2: no heartbeat for 61 s")


def test_a_worker_that_was_added_counts(root: Path) -> None:
    """Three are there and two are needed: one may go, and not two."""
    cluster = Cluster(root)
    cluster.comes("WORKER_1", "WORKER_2", "WORKER_3")
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", time=1)
    cluster.observe()
    cluster.watch.check()
    cluster.write(exit_file("WORKER_3"), exit_code=8, reason="broke too", time=2)
    cluster.observe()
    assert lost(cluster)[0] == 9


def test_an_attempt_that_failed_leaves_enough_workers(root: Path) -> None:
    """Nodes that wait for the next attempt are not gone."""
    cluster = Cluster(root)
    for node in ("WORKER_1", "WORKER_2"):
        cluster.write(exit_file(node), exit_code=9, reason="broke", attempt=0, time=1, has_left=False)
    cluster.observe()
    cluster.watch.check()


def test_a_parameter_server_that_waits_for_the_next_attempt_is_not_gone(root: Path) -> None:
    """Nor is its failure the cause where others have left: main decides what attempts' failures mean."""
    cluster = Cluster(root, MIN_WORKERS="2", PS_COUNT="1")
    cluster.write(exit_file("PS_3"), exit_code=5, reason="broke", attempt=0, time=1, has_left=False)
    cluster.observe()
    cluster.watch.check()
    cluster.write(exit_file("WORKER_1"), exit_code=6, reason="left", time=100)
    cluster.observe()
    assert lost(cluster) == (6, "WORKER_1 lost, MIN_WORKERS is 2; first WORKER_1: left")


def test_a_parameter_server_is_always_needed(root: Path) -> None:
    """MIN_WORKERS counts workers only."""
    cluster = Cluster(root, MIN_WORKERS="0", PS_COUNT="1")
    cluster.write(exit_file("PS_3"), exit_code=5, reason="broke", time=1)
    cluster.observe()
    assert lost(cluster) == (5, "PS_3 lost, MIN_WORKERS is 0; first PS_3: broke")


def test_missing_nodes_are_those_that_were_asked_for_and_are_not_there(cluster: Cluster) -> None:
    """A configuration or a heartbeat is being there; who has left is missing again."""
    assert cluster.watch.missing == ["WORKER_1", "WORKER_2"]
    cluster.write(config_file("WORKER_2"))
    cluster.beats("WORKER_1")
    cluster.observe()
    assert (cluster.watch.missing, sorted(cluster.watch.seen)) == ([], ["WORKER_1", "WORKER_2"])
    cluster.write(exit_file("WORKER_2"), exit_code=9, reason="broke", time=1)
    cluster.observe()
    assert cluster.watch.missing == ["WORKER_2"]
