"""Who is there, who has failed, and which of several failures came first; time and files are the test's."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oci_cluster import liveness
from oci_cluster.errors import LostError
from oci_cluster.exchange import config_file, exit_file, heartbeat_file
from oci_cluster.liveness import Failure, NodesWatch, first_cause, is_member
from oci_cluster.settings import read_settings

UNIX = 1_700_000_000.0


# --- The first of several failures ----------------------------------------------------------------------------------


def failed(node: str, code: int, time: float, *, is_silence: bool = False) -> Failure:
    return Failure(node, code, f"exit code {code}", time, noticed_at=0, is_silence=is_silence)


@pytest.mark.parametrize(
    ("code", "is_silence", "may_be"),
    [
        (1, False, True),
        (134, False, True),
        (76, False, True),
        (76, True, False),
        (2, False, False),
        (9, False, False),
        (75, False, False),
        (137, False, False),
        (139, False, False),
        (143, False, False),
    ],
)
def test_what_a_lost_peer_explains(code: int, *, is_silence: bool, may_be: bool) -> None:
    """An exception, an abort and a word of a lost main can be brought on by a peer; silence and a kill can not."""
    assert failed("WORKER_1", code, 0, is_silence=is_silence).may_be_a_consequence is may_be


def cause(*failures: Failure) -> str:
    """Return the node that failed first, whatever order the failures were seen in."""
    named = {first_cause(order).node for order in itertools.permutations(failures)}
    assert len(named) == 1, named
    return named.pop()


def test_the_first_failure_is_the_cause() -> None:
    """The nodes' own clocks decide, not the order in which main hears of it."""
    assert cause(failed("A", 5, 30), failed("B", 6, 10), failed("C", 7, 20)) == "B"


@pytest.mark.parametrize(("later_s", "first"), [(0.5, "B"), (2.0, "B"), (2.1, "A")])
def test_within_two_seconds_a_failure_with_a_reason_of_its_own_comes_first(later_s: float, first: str) -> None:
    """B was killed, A's connection broke and A said so sooner: B is the cause; after 2 s that explains nothing."""
    assert cause(failed("A", 1, 100), failed("B", 137, 100 + later_s)) == first


def test_of_several_with_a_reason_of_their_own_the_first_counts() -> None:
    """Two kills: the earlier one."""
    assert cause(failed("A", 1, 100), failed("B", 137, 101.5), failed("C", 9, 101)) == "C"


def test_of_consequences_alone_the_first_counts() -> None:
    """Nobody has a better reason: the time decides."""
    assert cause(failed("A", 134, 100.2), failed("B", 1, 100.1), failed("C", 76, 100.3)) == "B"


def test_silence_explains_what_came_within_two_seconds() -> None:
    """A vanished node is a cause, where 76 that a node *says* is what happened to it."""
    assert cause(failed("A", 1, 100), failed("B", 76, 101, is_silence=True)) == "B"
    assert cause(failed("A", 1, 100), failed("B", 76, 101)) == "A"


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


class Cluster:
    """A cluster dir, and main's look at it."""

    def __init__(self, root: Path, **environ: str) -> None:
        least = {"MODE": "MAIN", "FRAMEWORK": "plain", "WORK_DIR": "memory://w", "CLUSTER_ID": "c", "LAUNCH_ID": "l"}
        least |= {"ENTRY_POINT": "x", "WORKER_COUNT": "2", "HEARTBEAT_TIMEOUT": "60"}
        self.watch = NodesWatch(read_settings({**least, **environ}, root))
        self._files: dict[str, tuple[int, Mapping[str, Any] | None]] = {}
        self._versions = itertools.count()
        self.reads: list[str] = []

    def write(self, name: str, **fields: Any) -> None:
        """Have a node write a file."""
        self._files[name] = (next(self._versions), fields)

    def write_unusable(self, name: str) -> None:
        """Have somebody write a file that is not whole, or another launch's."""
        self._files[name] = (next(self._versions), None)

    def remove(self, name: str) -> None:
        """Have a node remove a file."""
        del self._files[name]

    def comes(self, *nodes: str) -> None:
        """Have *nodes* make themselves known, and live."""
        for node in nodes:
            self.write(config_file(node))
        self.beats(*nodes)

    def beats(self, *nodes: str) -> None:
        """Have *nodes* show that they live."""
        for node in nodes:
            self.write(heartbeat_file(node))

    def look(self, moment: float = 0.0) -> list[str]:
        """Have main look; return the nodes that have joined since the last time."""

        def read(name: str) -> Mapping[str, Any] | None:
            self.reads.append(name)
            return self._files[name][1]

        there = {name: f"version {version}" for name, (version, _) in self._files.items()}
        return self.watch.look(there, moment, read)

    def failure(self, node: str = "WORKER_1") -> Failure:
        """Return what main knows of *node*'s failure."""
        return self.watch.failures[node]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with one framework, at a known time."""
    monkeypatch.setattr(liveness, "unix_time", lambda: UNIX)
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "start-master.sh").touch()
    return tmp_path


@pytest.fixture
def cluster(root: Path) -> Cluster:
    """Return a cluster of 1 + 2 in which one worker can be missed."""
    return Cluster(root, MIN_WORKERS="1")


def test_nodes_that_were_asked_for_join_once_and_are_not_read(cluster: Cluster) -> None:
    """A configuration's being there is enough: main makes one request whatever the cluster's size."""
    cluster.comes("WORKER_2", "WORKER_1")
    assert [cluster.look(), cluster.look(), cluster.reads] == [["WORKER_1", "WORKER_2"], [], []]


def test_nodes_are_in_the_order_of_roles_and_ranks(root: Path) -> None:
    """Workers before parameter servers, 9 before 10."""
    cluster = Cluster(root, WORKER_COUNT="10", PS_COUNT="1")
    cluster.comes("PS_11", "WORKER_10", "WORKER_9", "WORKER_12")
    assert cluster.look() == ["WORKER_9", "WORKER_10", "WORKER_12", "PS_11"]
    assert cluster.watch.members == [*(f"WORKER_{rank}" for rank in range(1, 11)), "WORKER_12", "PS_11"]


def test_a_node_that_nobody_asked_for_joins_when_it_can_be_read(cluster: Cluster) -> None:
    """scale.sh adds ranks that main was not started with."""
    cluster.comes("WORKER_1", "WORKER_2", "WORKER_7")
    assert cluster.look() == ["WORKER_1", "WORKER_2", "WORKER_7"]
    assert cluster.reads == [config_file("WORKER_7")]
    assert cluster.watch.members == ["WORKER_1", "WORKER_2", "WORKER_7"]


def test_another_launchs_node_does_not_join(cluster: Cluster) -> None:
    """What cannot be read as this launch's is looked at again, and joins when it can."""
    cluster.write_unusable(config_file("WORKER_7"))
    assert [cluster.look(), cluster.look(), cluster.reads] == [[], [], [config_file("WORKER_7")] * 2]
    assert cluster.watch.members == ["WORKER_1", "WORKER_2"]
    cluster.comes("WORKER_7")
    assert cluster.look() == ["WORKER_7"]


@pytest.mark.parametrize("node", NO_MEMBERS)
def test_files_of_no_members_name_are_passed_over(cluster: Cluster, node: str) -> None:
    """Nothing that a stranger puts there becomes a node, nor is it read."""
    cluster.comes(node)
    cluster.write("WORKER_1_config.json.tmp")
    cluster.write(exit_file(node), exit_code=9)
    assert [cluster.look(), cluster.look(100), cluster.reads, cluster.watch.failures] == [[], [], [], {}]
    assert cluster.watch.members == ["WORKER_1", "WORKER_2"]


def test_a_node_that_is_started_anew_joins_again(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """A replacement can be there before anybody has missed its predecessor, whose silence is not its own."""
    caplog.set_level("INFO")
    cluster.comes("WORKER_1")
    cluster.look(0)
    cluster.write(config_file("WORKER_1"))
    assert [cluster.look(65), cluster.look(120), cluster.watch.failures] == [["WORKER_1"], [], {}]
    assert "is back" not in caplog.text
    cluster.look(126)
    assert cluster.failure().is_silence


def test_what_overwrites_a_configuration_must_be_of_this_launch(cluster: Cluster) -> None:
    """Another launch's file in the place of a known node's is no new node."""
    cluster.comes("WORKER_1")
    cluster.look()
    cluster.write_unusable(config_file("WORKER_1"))
    assert cluster.look() == []


# --- Silence --------------------------------------------------------------------------------------------------------


def test_a_node_whose_heartbeat_does_not_change_is_lost(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """After HEARTBEAT_TIMEOUT on main's clock, with 76; the time of its failure is that of its last sign of life."""
    cluster.comes("WORKER_1", "WORKER_2")
    cluster.look(0)
    cluster.beats("WORKER_2")
    cluster.look(60)
    assert cluster.watch.failures == {}
    cluster.look(61)
    expected = Failure("WORKER_1", 76, "no heartbeat for 61 s", UNIX - 61, noticed_at=61, is_silence=True)
    assert cluster.watch.failures == {"WORKER_1": expected}
    assert cluster.failure().noticed_at == 61
    assert cluster.watch.members == ["WORKER_2"]
    assert [record.getMessage() for record in caplog.records] == ["WORKER_1 lost: no heartbeat for 61 s (code 76)"]


def test_a_node_that_has_not_come_yet_is_not_silent(cluster: Cluster) -> None:
    """It is missing, which the start script or TIMEOUT names."""
    cluster.write(config_file("WORKER_1"))
    cluster.look(0)
    cluster.look(1000)
    assert (cluster.watch.failures, cluster.watch.missing, cluster.watch.seen) == ({}, ["WORKER_2"], [])


def test_a_node_that_was_cut_off_comes_back(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """A heartbeat that changes again is a sign of life: the node joins again, and can be lost again."""
    caplog.set_level("INFO")
    cluster.comes("WORKER_1")
    cluster.look(0)
    cluster.look(61)
    assert cluster.look(70) == []
    cluster.beats("WORKER_1")
    assert [cluster.look(75), cluster.look(80)] == [["WORKER_1"], []]
    assert (cluster.watch.failures, cluster.watch.members) == ({}, ["WORKER_1", "WORKER_2"])
    cluster.look(140)
    assert [record.getMessage() for record in caplog.records] == [
        "WORKER_1 lost: no heartbeat for 61 s (code 76)",
        "WORKER_1 is back",
        "WORKER_1 lost: no heartbeat for 65 s (code 76)",
    ]


def test_a_node_that_has_said_goodbye_does_not_come_back_by_a_heartbeat(cluster: Cluster) -> None:
    """Its last heartbeat may be written after its last word was."""
    cluster.comes("WORKER_1")
    cluster.look(0)
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", time=UNIX)
    cluster.look(5)
    cluster.beats("WORKER_1")
    assert (cluster.look(10), cluster.failure().exit_code) == ([], 9)


def test_a_replacement_takes_the_place_of_a_lost_node(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The same rank, started anew, its predecessor's last word removed."""
    caplog.set_level("INFO")
    cluster.comes("WORKER_1")
    cluster.look(0)
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", time=UNIX)
    cluster.look(5)
    cluster.remove(exit_file("WORKER_1"))
    cluster.comes("WORKER_1")
    assert (cluster.look(10), cluster.watch.failures) == (["WORKER_1"], {})
    assert caplog.records[-1].getMessage() == "WORKER_1 is back"


# --- What nodes tell of themselves ----------------------------------------------------------------------------------


def test_a_node_that_has_left_is_lost_with_its_own_word(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Code, reason and time are the node's own; the line is logged once."""
    cluster.comes("WORKER_1")
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=0, time=123.5, has_left=True)
    cluster.look(5)
    cluster.look(10)
    assert cluster.watch.failures == {"WORKER_1": Failure("WORKER_1", 9, "broke", 123.5, noticed_at=5)}
    assert cluster.failure().noticed_at == 5
    assert cluster.watch.members == ["WORKER_2"]
    assert [record.getMessage() for record in caplog.records] == ["WORKER_1 lost: broke (code 9)"]


def test_a_node_whose_attempt_failed_has_not_left(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """It waits for the next attempt: still a member, its failure logged once."""
    cluster.comes("WORKER_1")
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=0, time=123, has_left=False)
    cluster.look(5)
    cluster.beats("WORKER_1")
    cluster.look(10)
    assert cluster.watch.failures == {
        "WORKER_1": Failure("WORKER_1", 9, "broke", 123.0, noticed_at=5, attempt=0, has_left=False)
    }
    assert cluster.failure().noticed_at == 5
    assert cluster.watch.members == ["WORKER_1", "WORKER_2"]
    assert [record.getMessage() for record in caplog.records] == ["WORKER_1 failed: broke (code 9)"]
    cluster.watch.check()


def test_a_node_that_waits_for_the_next_attempt_can_be_lost(cluster: Cluster) -> None:
    """Its silence says more than its last word."""
    cluster.comes("WORKER_1")
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=0, time=123, has_left=False)
    cluster.look(0)
    cluster.look(61)
    assert (cluster.failure().is_silence, cluster.watch.members) == (True, ["WORKER_2"])


@pytest.mark.parametrize("attempt", [0, 2, "1", None, 1.5])
def test_a_failure_of_another_attempt_is_no_failure_of_this_one(cluster: Cluster, attempt: object) -> None:
    """What is told late, or made up, ends no attempt."""
    cluster.watch.begin(1)
    cluster.comes("WORKER_1")
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=attempt, time=1, has_left=False)
    cluster.look()
    assert cluster.watch.failures == {}
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=1, time=1, has_left=False)
    cluster.look()
    assert (cluster.failure().attempt, cluster.failure().has_left) == (1, False)


@pytest.mark.parametrize("has_left", [None, 0, "", "false", [], 1])
def test_only_a_plain_false_says_that_a_node_is_still_there(cluster: Cluster, has_left: object) -> None:
    """Anything else is a node that has gone, in whichever attempt."""
    cluster.watch.begin(3)
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=0, time=1, has_left=has_left)
    cluster.look()
    assert (cluster.failure().has_left, cluster.failure().attempt) == (True, 3)


def test_another_attempt_forgets_failed_ones_and_not_those_that_are_gone(cluster: Cluster) -> None:
    """All that are left start again; who is gone is missing in the next attempt too."""
    cluster.comes("WORKER_1", "WORKER_2")
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", attempt=0, time=1, has_left=False)
    cluster.write(exit_file("WORKER_2"), exit_code=8, reason="left", attempt=0, time=1)
    cluster.look()
    cluster.watch.begin(1)
    cluster.look()
    assert list(cluster.watch.failures) == ["WORKER_2"]
    assert (cluster.watch.attempt, cluster.watch.members) == (1, ["WORKER_1"])


@pytest.mark.parametrize(
    ("code", "taken"), [(True, 70), ("9", 70), (None, 70), (-1, 70), (256, 70), (9.0, 70), (0, 76)]
)
def test_a_word_without_a_real_exit_code_is_a_failure(cluster: Cluster, code: object, taken: int) -> None:
    """A success before the cluster's end is a contradiction (76), what is no code a bug (70)."""
    cluster.write(exit_file("WORKER_1"), exit_code=code, reason="?", time=1)
    cluster.look()
    assert cluster.failure().exit_code == taken


@pytest.mark.parametrize("time", ["yesterday", None, [1], {"a": 1}, ""])
def test_a_word_without_a_real_time_is_of_now(cluster: Cluster, time: object) -> None:
    """It cannot be the first of all failures by claiming what is no time."""
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="?", time=time)
    cluster.look()
    assert cluster.failure().time == UNIX


def test_a_reason_is_fit_for_a_terminal(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """Who can write to the work dir cannot write to a terminal, nor flood a log."""
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="\033[2J\nred\r" + "x" * 5000, time=1)
    cluster.look()
    assert cluster.failure().reason == "[2Jred" + "x" * (1000 - len("\033[2J\nred\r"))
    assert caplog.records[0].getMessage().isprintable()


def test_a_word_that_cannot_be_read_is_looked_at_again(cluster: Cluster) -> None:
    """Half-written, or of another launch: no failure."""
    cluster.comes("WORKER_1")
    cluster.write_unusable(exit_file("WORKER_1"))
    cluster.look()
    assert cluster.watch.failures == {}
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", time=1)
    cluster.look()
    assert cluster.failure().exit_code == 9


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
    cluster.look()
    cluster.watch.check()


def test_too_few_workers_end_the_cluster_with_the_first_cause(cluster: Cluster) -> None:
    """Code and reason are the first cause's, and all that are gone are named."""
    cluster.write(exit_file("WORKER_1"), exit_code=1, reason="lost its peer", time=100.0)
    cluster.write(exit_file("WORKER_2"), exit_code=9, reason="broke", time=100.5)
    cluster.look()
    assert lost(cluster) == (9, "WORKER_1, WORKER_2 lost, MIN_WORKERS is 1; first WORKER_2: broke")


def test_a_worker_that_vanished_is_76(root: Path) -> None:
    """Without a word there is no code but ours."""
    cluster = Cluster(root)
    cluster.comes("WORKER_1", "WORKER_2")
    cluster.look(0)
    cluster.beats("WORKER_1")
    cluster.look(61)
    assert lost(cluster) == (76, "WORKER_2 lost, MIN_WORKERS is 2; first WORKER_2: no heartbeat for 61 s")


def test_a_worker_that_was_added_counts(root: Path) -> None:
    """Three are there and two are needed: one may go, and not two."""
    cluster = Cluster(root)
    cluster.comes("WORKER_1", "WORKER_2", "WORKER_3")
    cluster.write(exit_file("WORKER_1"), exit_code=9, reason="broke", time=1)
    cluster.look()
    cluster.watch.check()
    cluster.write(exit_file("WORKER_3"), exit_code=8, reason="broke too", time=2)
    cluster.look()
    assert lost(cluster)[0] == 9


def test_an_attempt_that_failed_leaves_enough_workers(root: Path) -> None:
    """Nodes that wait for the next attempt are not gone."""
    cluster = Cluster(root)
    for node in ("WORKER_1", "WORKER_2"):
        cluster.write(exit_file(node), exit_code=9, reason="broke", attempt=0, time=1, has_left=False)
    cluster.look()
    cluster.watch.check()


def test_a_parameter_server_that_waits_for_the_next_attempt_is_not_gone(root: Path) -> None:
    """Nor is its failure the cause where others have left: main decides what attempts' failures mean."""
    cluster = Cluster(root, MIN_WORKERS="2", PS_COUNT="1")
    cluster.write(exit_file("PS_3"), exit_code=5, reason="broke", attempt=0, time=1, has_left=False)
    cluster.look()
    cluster.watch.check()
    cluster.write(exit_file("WORKER_1"), exit_code=6, reason="left", time=100)
    cluster.look()
    assert lost(cluster) == (6, "WORKER_1 lost, MIN_WORKERS is 2; first WORKER_1: left")


def test_a_parameter_server_is_always_needed(root: Path) -> None:
    """MIN_WORKERS counts workers only."""
    cluster = Cluster(root, MIN_WORKERS="0", PS_COUNT="1")
    cluster.write(exit_file("PS_3"), exit_code=5, reason="broke", time=1)
    cluster.look()
    assert lost(cluster) == (5, "PS_3 lost, MIN_WORKERS is 0; first PS_3: broke")


def test_missing_nodes_are_those_that_were_asked_for_and_are_not_there(cluster: Cluster) -> None:
    """A configuration or a heartbeat is being there; who has left is missing again."""
    assert cluster.watch.missing == ["WORKER_1", "WORKER_2"]
    cluster.write(config_file("WORKER_2"))
    cluster.beats("WORKER_1")
    cluster.look()
    assert (cluster.watch.missing, cluster.watch.seen) == ([], ["WORKER_1"])
    cluster.write(exit_file("WORKER_2"), exit_code=9, reason="broke", time=1)
    cluster.look()
    assert cluster.watch.missing == ["WORKER_2"]
