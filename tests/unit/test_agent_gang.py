"""The agent where every node runs the entry point: first causes, attempts, facts, and nodes that come and go."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.played import BEGINNING, FOR_EVER_S, LAUNCH, Node, Peer, make_project

from oci_cluster import agent, liveness
from oci_cluster.errors import NotPermittedError, SettingsError, StorageError
from oci_cluster.exchange import CERTIFICATE, STOP, Exchange, config_file, exit_file, heartbeat_file
from oci_cluster.settings import read_settings

# One memory:// for all tests would be longer to list with each.
pytestmark = pytest.mark.usefixtures("empty_memory")

MakeNode = Callable[..., Node]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with one framework and the user's code."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return make_project(tmp_path)


@pytest.fixture
def make(root: Path, monkeypatch: pytest.MonkeyPatch) -> MakeNode:
    """Return a function that makes a node whose wall clock is the world's."""

    def make(**environ: str) -> Node:
        node = Node(root, **environ)
        monkeypatch.setattr(agent, "time", SimpleNamespace(time=node.world.wall_clock))
        monkeypatch.setattr(liveness, "unix_time", node.world.wall_clock)
        return node

    return make


def messages(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """Return the log lines that hold one of *words*."""
    return [text for record in caplog.records if any(word in (text := record.getMessage()) for word in words)]


# --- First causes ---------------------------------------------------------------------------------------------------


def all_train(make: MakeNode, **environ: str) -> Node:
    """Return a main whose cluster of 1 + 2 runs the entry point on all nodes, none of which can be missed."""
    main = make(**{"ENTRY_ON": "all", "MIN_WORKERS": "2", **environ})
    main.ready_at_once()
    for node, address in (("WORKER_1", "10.0.0.2"), ("WORKER_2", "10.0.0.3")):
        main.publish(config_file(node), node=node, address=address)
        main.beats(node)
    return main


def leaves(main: Node, node: str, code: int, at: float, *, failed_at: float) -> None:
    """Have a worker end with *code*, and say so at a moment."""
    main.publish(exit_file(node), at=at, exit_code=code, reason="broke", time=BEGINNING + failed_at, has_left=True)


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


def test_nodes_that_do_not_fail_with_the_others_are_named(make: MakeNode) -> None:
    """Main waits 3 s and no longer; who has not failed by then may be what the others waited for."""
    main = all_train(make)
    main.child_ends(1, at=31)
    leaves(main, "WORKER_1", 1, at=32, failed_at=31.5)
    assert main.run() == 1
    assert main.read(STOP)["reason"] == (
        "the entry point ended: exit code 1; WORKER_2 had not failed 3 s later, which is what a hang looks like"
    )
    assert 34 <= main.world.now < 34.5


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
    assert main.read(STOP)["reason"] == "WORKER_2 failed first: no heartbeat for 15 s"
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
    main.outage(30.5, 60)
    main.child_ends(1, at=31)
    waited = main.seen_at(35, lambda: main.children.ended[:])
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


# --- Attempts, on main ----------------------------------------------------------------------------------------------


class Gang:
    """A main of a gang, and two workers that play along, those in *until* up to a moment."""

    def __init__(self, make: MakeNode, until: dict[int, float] | None = None, **environ: str) -> None:
        self.main = make(**{"GANG": "1", "MIN_WORKERS": "2", "POLL_CEILING": "1", **environ})
        self.main.ready_at_once()
        self.workers = {rank: self.comes(rank, until=(until or {}).get(rank, FOR_EVER_S)) for rank in (1, 2)}

    def comes(self, rank: int, **named: Any) -> Peer:
        """Have a worker come, which may be the second one of its rank."""
        return Peer(self.main, f"WORKER_{rank}", f"10.0.0.{rank + 1}", **named)

    def fails(self, rank: int, code: int, at: float, **named: Any) -> None:
        """Have a worker tell of a failure."""
        self.workers[rank].fails(code, at, **named)

    def succeeds(self, at: float, *, attempt: int) -> None:
        """Run the cluster, whose *attempt* ends with success at a moment and is the last one."""
        self.main.child_ends(0, at=at, attempt=attempt)
        assert self.main.run() == 0
        assert self.attempts == attempt + 1

    @property
    def attempts(self) -> int:
        """How many attempts there have been."""
        return len(self.main.children.scripts)

    def given(self, name: str) -> list[str]:
        """Return what the start script of each attempt was given."""
        return [self.main.children.environ(attempt)[name] for attempt in range(self.attempts)]


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

    def make_certificate(name: str) -> tuple[str, str]:
        made.append(name)
        return "C", f"K{len(made)}"

    monkeypatch.setattr("oci_cluster.certificate.make_certificate", make_certificate)
    gang = Gang(make, MAX_RESTARTS="1", CLUSTER_TLS="1")
    gang.main.child_ends(9, at=30)
    key = gang.main.seen_at(50, lambda: gang.main.read(CERTIFICATE)["key"])
    gang.succeeds(at=60, attempt=1)
    assert (key, made, len(gang.given("TLS_KEY_FILE"))) == (["K1"], ["c"], 2)


def test_a_gang_starts_with_the_nodes_of_this_launch(make: MakeNode) -> None:
    """Another launch's configuration is no node that has come."""
    main = make(GANG="1", WORKER_COUNT="1")
    Exchange(main.settings.cluster_url, "launch0").publish(config_file("WORKER_1"), node="WORKER_1", address="10.9.9.9")
    main.publish(config_file("WORKER_1"), at=50, node="WORKER_1", address="10.0.0.2")
    main.child_ends(0, at=80)
    assert main.run() == 0
    assert main.children.environ()["WORKER_ADDRESSES"] == "10.0.0.2"


@pytest.mark.parametrize("address", ["$(touch x)", "10.0.0.2,10.0.0.3", None, ["10.0.0.2"]])
def test_a_worker_without_an_address_ends_the_gang(make: MakeNode, address: object) -> None:
    """It would go into every node's command lines: 78, naming the file."""
    main = make(GANG="1", WORKER_COUNT="1")
    main.publish(config_file("WORKER_1"), node="WORKER_1", address=address)
    assert main.run() == 78
    assert main.read(STOP)["reason"].startswith("WORKER_1_config.json holds no usable address")
    assert main.children.scripts == []


# --- Attempts, on a worker ------------------------------------------------------------------------------------------


class Follower:
    """The second worker of a gang, whose main does what the test says."""

    def __init__(self, make: MakeNode, *, attempt: int = 0, nodes: Any = None, **environ: str) -> None:
        more = {"MODE": "WORKER", "NODE_RANK": "2", "NODE_ADDRESS": "10.0.0.3", "GANG": "1", "POLL_CEILING": "1"}
        self.worker = make(**{**more, **environ})
        self.told: dict[str, Any] = {"attempt": attempt}
        self._beat = 0
        self.worker.world.every(1.0, self._live)
        self.begins(attempt, nodes=nodes)

    def _live(self) -> None:
        self._beat += 1
        self.worker.files.publish(heartbeat_file("MAIN"), beat=self._beat, **self.told)

    def tells(self, attempt: object, at: float) -> None:
        """Have main's heartbeat tell of *attempt*."""
        self.worker.world.at(at, lambda: self.told.update(attempt=attempt))

    def begins(self, attempt: int, at: float = 0.0, nodes: Any = None, **fields: Any) -> None:
        """Have main publish what an attempt is to know: with both workers, where *nodes* does not say otherwise."""
        nodes = {"WORKER_1": "10.0.0.2", "WORKER_2": "10.0.0.3"} if nodes is None else nodes
        config = {"node": "MAIN", "rank": 0, "address": "10.0.0.1", "attempt": attempt, "nodes": nodes, **fields}
        self.worker.publish(config_file("MAIN"), at=at, **config)

    def stops(self, at: float, code: int = 0) -> int:
        """Run the worker, whose main ends the cluster at a moment."""
        self.worker.publish(STOP, at=at, reason="the entry point ended", exit_code=code)
        return self.worker.run()

    def exit_at(self, moment: float) -> list[Any]:
        """Return a list that will hold what the worker has told of its end by then."""
        return self.worker.seen_at(moment, lambda: self.worker.read(exit_file("WORKER_2")))


@pytest.fixture
def follower(make: MakeNode) -> Follower:
    """Return the second worker of a gang."""
    return Follower(make)


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
    worker = make(MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3", GANG="1")
    nodes = {"WORKER_2": "10.0.0.3"}
    worker.files.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.0.0.1", attempt=0, nodes=nodes)
    worker.beats("MAIN", until=50)
    worker.child_ends(9, at=30)
    assert worker.run() == 76
    assert worker.world.now < 130


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
    assert order.index(exit_file("WORKER_2")) < order.index(config_file("WORKER_2"))


def test_a_word_that_cannot_be_taken_back_is_waited_for(make: MakeNode) -> None:
    """The node does not make itself known while its rank still says that it has failed."""
    worker = make(MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3")
    worker.files.publish(exit_file("WORKER_2"), exit_code=9, reason="broke", time=1)
    worker.main_lives()
    remove = worker.exchange.remove

    def remove_late(name: str) -> None:
        if worker.world.now < 20:
            raise StorageError("no route to storage")
        remove(name)

    worker.exchange.remove = remove_late  # type: ignore[method-assign]
    known = [worker.seen_at(at, lambda: bool(worker.read(config_file("WORKER_2")))) for at in (19, 30)]
    worker.publish(STOP, at=40, reason="done", exit_code=0)
    assert worker.run() == 0
    assert [seen[0] for seen in known] == [False, True]


# --- What a start script is told of the others ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "rank", "nodes", "index"),
    [
        ("WORKER", 2, {"WORKER_1": "10.0.0.2", "WORKER_2": "10.0.0.3", "PS_3": "10.0.0.4"}, "1"),
        ("WORKER", 2, {"WORKER_2": "10.0.0.3", "WORKER_9": "10.0.0.8"}, "0"),
        ("PS", 4, {"WORKER_1": "10.0.0.2", "PS_3": "10.0.0.4", "PS_4": "10.0.0.5"}, "1"),
        ("WORKER", 2, {"WORKER_1": "10.0.0.2"}, ""),
        ("WORKER", 2, {}, "0"),
    ],
)
def test_role_index_counts_the_nodes_of_a_role(
    make: MakeNode, mode: str, rank: int, nodes: dict[str, str], index: str
) -> None:
    """The place among those that are there, which is no rank: ranks have gaps, and those of servers begin later."""
    node = make(MODE=mode, NODE_RANK=str(rank), NODE_ADDRESS="10.0.0.3", WAIT_FOR_ADDRESSES="1", PS_COUNT="2")
    node.files.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.0.0.1", nodes=nodes)
    node.publish(STOP, at=20, reason="done", exit_code=0)
    assert node.run() == 0
    assert node.children.environ()["ROLE_INDEX"] == index


def test_mains_role_index_is_0(make: MakeNode) -> None:
    """There is one main."""
    gang = Gang(make)
    gang.succeeds(at=30, attempt=0)
    assert gang.given("ROLE_INDEX") == ["0"]


def test_where_addresses_are_not_waited_for_none_are_given(make: MakeNode) -> None:
    """Also where main's configuration has some."""
    worker = make(MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3")
    nodes = {"WORKER_2": "10.0.0.3"}
    worker.files.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.0.0.1", nodes=nodes)
    worker.publish(STOP, at=20, reason="done", exit_code=0)
    worker.run()
    names = ("WORKER_ADDRESSES", "PS_ADDRESSES", "ROLE_INDEX", "NODE_INTERFACE")
    assert [name for name in names if name in worker.children.environ()] == []


@pytest.mark.parametrize("name", ["MAIN", "../x", "WORKER_1,10.9.9.9", "WORKER_0", "", "WORKER_1\n", "LD_PRELOAD"])
def test_only_members_are_among_the_addresses(make: MakeNode, name: str) -> None:
    """A name that is none is left out, whatever stands beside it."""
    follower = Follower(make, nodes={name: "$(touch x)", "WORKER_2": "10.0.0.3"})
    assert follower.stops(at=20) == 0
    assert follower.worker.children.environ()["WORKER_ADDRESSES"] == "10.0.0.3"


@pytest.mark.parametrize("address", ["$(touch x)", "10.0.0.2,10.9.9.9", "", None, 7, ["10.0.0.2"], {"a": 1}])
def test_only_addresses_are_among_the_addresses(make: MakeNode, address: object) -> None:
    """They go into command lines: 78, naming the node."""
    follower = Follower(make, nodes={"WORKER_1": address, "WORKER_2": "10.0.0.3"})
    assert follower.worker.run() == 78
    assert "WORKER_1_config.json holds no usable address" in follower.worker.read(exit_file("WORKER_2"))["reason"]
    assert follower.worker.children.scripts == []


def test_the_interface_is_looked_up_where_it_is_wanted(make: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """FIND_INTERFACE=1: NODE_INTERFACE is that of the node's own address."""
    monkeypatch.setattr(agent, "interface_of", {"10.0.0.1": "eth7"}.__getitem__)
    main = make(FIND_INTERFACE="1")
    main.child_ends(0, at=10)
    assert main.run() == 0
    assert main.children.environ()["NODE_INTERFACE"] == "eth7"


def test_an_address_without_an_interface_ends_the_node(make: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of the look-up is the cluster's reason (78)."""

    def none(address: str) -> str:
        raise SettingsError(f"no network interface has {address}")

    monkeypatch.setattr(agent, "interface_of", none)
    main = make(FIND_INTERFACE="1")
    assert main.run() == 78
    assert main.read(STOP)["reason"] == "no network interface has 10.0.0.1"


# --- Facts ----------------------------------------------------------------------------------------------------------


def tell_facts(root: Path) -> Path:
    """Have the framework a script that tells facts."""
    path = root / "plain" / "node-facts.sh"
    path.touch()
    return path


def test_a_nodes_facts_are_published_with_its_address(make: MakeNode, root: Path) -> None:
    """The script runs before the node is known to others, and what it prints is in the node's configuration."""
    script = tell_facts(root)
    worker = make(MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3", FROM_USER="yes")
    worker.children.facts = b"ssh_port=2222\nkey=ssh-ed25519 AAAA==\n"
    known: list[object] = []
    worker.children.on_start = lambda command: known.append(
        (Path(command[0]).name, worker.read(config_file("WORKER_2")))
    )
    worker.main_lives()
    worker.publish(STOP, at=20, reason="done", exit_code=0)
    assert worker.run() == 0
    facts = {"ssh_port": "2222", "key": "ssh-ed25519 AAAA=="}
    assert worker.read(config_file("WORKER_2"))["facts"] == facts
    assert known[0] == ("node-facts.sh", {})
    assert known[1][1]["facts"] == facts  # type: ignore[index]
    command, environ, cwd = worker.children.started[0]
    assert (command, cwd) == ([str(script)], root / "code")
    expected = {
        "MODE": "WORKER",
        "NODE_NAME": "WORKER_2",
        "NODE_RANK": "2",
        "NODE_ADDRESS": "10.0.0.3",
        "NODE_DIR": str(worker.node_dir),
        "TIMEOUT": "600",
        "FROM_USER": "yes",
        "SOME_PORT": "1234",
    }
    assert {name: environ.get(name) for name in expected} == expected


def test_a_node_without_a_facts_script_has_none(make: MakeNode) -> None:
    """The script is optional."""
    main = make()
    main.child_ends(0, at=10)
    main.run()
    assert main.read(config_file("MAIN"))["facts"] == {}
    assert Path(main.children.started[0][0][0]).name == "start-master.sh"


def test_facts_are_told_once_and_hold_for_all_attempts(make: MakeNode, root: Path) -> None:
    """A key that was made for the launch is the node's in every attempt."""
    tell_facts(root)
    follower = Follower(make)
    follower.worker.children.facts = b"key=K\n"
    follower.tells(1, at=30)
    follower.begins(1, at=40)
    assert follower.stops(at=100) == 0
    assert follower.worker.read(config_file("WORKER_2"))["facts"] == {"key": "K"}
    names = [Path(command[0]).name for command, _, _ in follower.worker.children.started]
    assert names.count("node-facts.sh") == 1


def test_hostile_lines_of_a_facts_script_are_cleaned(make: MakeNode, root: Path) -> None:
    """What other nodes and people get to see is a line each, and bounded."""
    tell_facts(root)
    main = make()
    main.children.facts = b"noise\na=\x1b[31mred\nb=\xff\nlong=" + b"x" * 10_000 + b"\n" + b"z=1\n" * 1000
    facts = main.seen_at(5, lambda: main.read(config_file("MAIN"))["facts"])
    main.child_ends(0, at=10)
    assert main.run() == 0
    assert facts == [{"a": "[31mred", "b": "\ufffd", "long": "x" * 500, "z": "1"}]


@pytest.mark.parametrize("reason", ["", "no port is free"])
def test_where_a_facts_script_fails_so_does_its_node(make: MakeNode, root: Path, reason: str) -> None:
    """With its code, and with its own reason where it gives one; the other nodes do not wait for it."""
    tell_facts(root)
    main = make()
    main.children.facts_code = 41
    if reason:
        main.children.on_start = lambda _: (main.node_dir / "reason").write_text(f"{reason}\n")
    assert main.run() == 41
    assert main.read(STOP)["exit_code"] == 41
    assert main.read(STOP)["reason"] == (reason or "node-facts.sh ended: exit code 41")
    assert main.read(config_file("MAIN")) == {}
    assert main.children.scripts == []


def test_a_facts_script_has_timeout(make: MakeNode, root: Path) -> None:
    """One that does not end takes TIMEOUT and no longer: 75, naming it."""
    tell_facts(root)
    main = make(TIMEOUT="30")
    main.children.facts_code = None
    assert main.run() == 75
    assert 30 <= main.world.now < 31
    assert main.read(STOP)["reason"] == "node-facts.sh did not end within 30 s (TIMEOUT)"


def test_a_facts_script_that_takes_a_while_is_waited_for(make: MakeNode, root: Path) -> None:
    """TIMEOUT of the start script is what is left then."""
    tell_facts(root)
    main = make(TIMEOUT="100")
    main.children.facts_code = None
    main.world.at(30, lambda: main.children.codes.update({1: 0}))
    main.child_ends(0, at=60)
    assert main.run() == 0
    assert main.children.environ()["TIMEOUT"] == "70"


def test_a_node_can_be_stopped_while_it_gathers_facts(make: MakeNode, root: Path) -> None:
    """A node can be told to stop in any phase."""
    tell_facts(root)
    worker = make(MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3")
    worker.children.facts_code = None
    worker.publish(STOP, at=10, reason="stopped by stop.sh", exit_code=143)
    assert worker.run() == 143
    assert worker.world.now < 12


def test_a_facts_script_that_cannot_be_started_is_named(make: MakeNode, root: Path) -> None:
    """As a start script is (78)."""
    tell_facts(root)

    def refuse(command: list[str]) -> None:
        raise PermissionError(13, "Permission denied", command[0])

    main = make()
    main.children.on_start = refuse
    assert main.run() == 78
    assert "node-facts.sh cannot be started" in main.read(STOP)["reason"]


# --- NODES_DIR ------------------------------------------------------------------------------------------------------


def test_main_sees_all_nodes_with_their_facts(make: MakeNode, root: Path) -> None:
    """NODES_DIR is complete before the start script of a gang runs."""
    tell_facts(root)
    main = make(GANG="1")
    main.children.facts = b"key=K0\n"
    for rank in (1, 2):
        Peer(main, f"WORKER_{rank}", f"10.0.0.{rank + 1}", facts={"key": f"K{rank}"})
    seen: list[tuple[str, dict[str, list[str]]]] = []
    main.children.on_start = lambda command: seen.append((Path(command[0]).name, main.nodes_dir()))
    main.child_ends(0, at=30)
    assert main.run() == 0
    assert main.children.environ()["NODES_DIR"] == str(main.node_dir / "nodes")
    assert seen[1] == (
        "start-master.sh",
        {
            "MAIN": ["rank=0", "address=10.0.0.1", "fact_key=K0"],
            "WORKER_1": ["rank=1", "address=10.0.0.2", "fact_key=K1"],
            "WORKER_2": ["rank=2", "address=10.0.0.3", "fact_key=K2"],
        },
    )


def test_each_configuration_is_read_once(make: MakeNode, root: Path) -> None:
    """Main makes one request for a node that joins, not one in every interval."""
    tell_facts(root)
    main = make()
    main.ready_at_once()
    Peer(main, "WORKER_1", "10.0.0.2")
    asked = main.requests()
    main.child_ends(0, at=100)
    assert main.run() == 0
    assert asked.count(config_file("WORKER_1")) == 1


def test_another_node_sees_main_alone(make: MakeNode) -> None:
    """Main's configuration is the one file that it reads."""
    worker = make(MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3")
    worker.files.publish(config_file("WORKER_1"), node="WORKER_1", address="10.0.0.2")
    worker.files.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.0.0.1", facts={"key": "K0", "BAD": "x"})
    worker.beats("MAIN")
    seen = worker.seen_at(10, worker.nodes_dir)
    worker.publish(STOP, at=20, reason="done", exit_code=0)
    assert worker.run() == 0
    assert seen == [{"MAIN": ["rank=0", "address=10.0.0.1", "fact_key=K0"]}]


def test_nodes_dir_is_kept_up_to_date_on_main(make: MakeNode, root: Path) -> None:
    """A node that joins gets its file, a lost one's is removed, and a replacement's has what the new one tells."""
    tell_facts(root)
    main = make(HEARTBEAT_TIMEOUT="11")
    main.ready_at_once()
    Peer(main, "WORKER_1", "10.0.0.2", facts={"key": "old"}, until=20)
    Peer(main, "WORKER_1", "10.0.0.9", facts={"key": "new"}, at=60)
    Peer(main, "WORKER_2", "10.0.0.3")
    Peer(main, "WORKER_3", "10.0.0.4", at=80)
    seen = [
        main.seen_at(at, lambda: (sorted(main.nodes_dir()), main.nodes_dir().get("WORKER_1")))
        for at in (15, 50, 75, 95)
    ]
    main.child_ends(0, at=100)
    assert main.run() == 0
    old, new = (
        ["rank=1", f"address={address}", f"fact_key={key}"]
        for address, key in (("10.0.0.2", "old"), ("10.0.0.9", "new"))
    )
    assert [found[0] for found in seen] == [
        (["MAIN", "WORKER_1", "WORKER_2"], old),
        (["MAIN", "WORKER_2"], None),
        (["MAIN", "WORKER_1", "WORKER_2"], new),
        (["MAIN", "WORKER_1", "WORKER_2", "WORKER_3"], new),
    ]


def test_a_replacement_is_seen_before_its_predecessor_is_missed(make: MakeNode, root: Path) -> None:
    """Restarted within seconds: the new facts count, and no loss is noticed."""
    tell_facts(root)
    main = make(MIN_WORKERS="2")
    main.ready_at_once()
    Peer(main, "WORKER_1", "10.0.0.2", facts={"key": "old"}, until=20)
    Peer(main, "WORKER_1", "10.0.0.2", facts={"key": "new"}, at=23)
    Peer(main, "WORKER_2", "10.0.0.3")
    seen = main.seen_at(40, lambda: main.nodes_dir()["WORKER_1"][2])
    main.child_ends(0, at=100)
    assert main.run() == 0
    assert seen == ["fact_key=new"]


def test_a_node_that_was_cut_off_gets_its_file_back(make: MakeNode, root: Path) -> None:
    """Its configuration has not changed, its heartbeat does again."""
    tell_facts(root)
    main = make(HEARTBEAT_TIMEOUT="11")
    main.ready_at_once()
    main.publish(config_file("WORKER_1"), node="WORKER_1", address="10.0.0.2", facts={"key": "K"})
    for moment in (1, 60, 65):
        main.publish(heartbeat_file("WORKER_1"), at=moment, beat=moment)
    seen = [main.seen_at(at, lambda: sorted(main.nodes_dir())) for at in (10, 50, 68)]
    main.child_ends(0, at=70)
    assert main.run() == 0
    assert [found[0] for found in seen] == [["MAIN", "WORKER_1"], ["MAIN"], ["MAIN", "WORKER_1"]]


def test_a_configuration_that_cannot_be_read_yet_is_read_later(make: MakeNode, root: Path) -> None:
    """Half-written when main first looks: the file appears when there is something to put into it."""
    tell_facts(root)
    main = make()
    main.ready_at_once()
    main.files._fs.pipe_file(f"{main.files._path}/{config_file('WORKER_1')}", b'{"sche')
    seen = [main.seen_at(at, lambda: sorted(main.nodes_dir())) for at in (20, 40)]
    main.publish(config_file("WORKER_1"), at=25, node="WORKER_1", address="10.0.0.2")
    main.child_ends(0, at=50)
    assert main.run() == 0
    assert [found[0] for found in seen] == [["MAIN"], ["MAIN", "WORKER_1"]]


def test_where_start_scripts_do_not_ask_main_reads_no_configurations(make: MakeNode) -> None:
    """Dask's main has no use for them: no request for each of a thousand workers."""
    main = make()
    main.ready_at_once()
    Peer(main, "WORKER_1", "10.0.0.2")
    asked = main.requests()
    seen = main.seen_at(20, lambda: sorted(main.nodes_dir()))
    main.child_ends(0, at=50)
    assert main.run() == 0
    assert seen == [["MAIN"]]
    assert config_file("WORKER_1") not in asked


def test_nothing_of_it_is_left(make: MakeNode, root: Path) -> None:
    """NODES_DIR and the facts are in the node's private directory."""
    tell_facts(root)
    gang = Gang(make)
    gang.succeeds(at=30, attempt=0)
    assert not list(root.glob(f"{LAUNCH}-*"))


def test_what_a_gang_publishes_is_whole_json(make: MakeNode) -> None:
    """Main's configuration is one object that every node can read."""
    gang = Gang(make)
    gang.succeeds(at=30, attempt=0)
    config = json.loads(gang.main.files._fs.cat_file(f"{gang.main.files._path}/{config_file('MAIN')}"))
    names = {"schema", "launch_id", "node", "rank", "address", "facts", "tls", "attempt", "nodes"}
    assert set(config) == names


@pytest.mark.parametrize("time", [float("nan"), float("inf"), float("-inf"), 10**400, -(10**400)], ids=str)
def test_a_time_that_no_clock_shows_is_of_now(root: Path, time: float) -> None:
    main = Node(root, MIN_WORKERS="2")
    main.publish(exit_file("WORKER_1"), at=20, exit_code=9, reason="broke", time=time)
    assert main.run() == 9


def test_a_failure_without_a_time_is_logged_once(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    main = Node(root, GANG="1", MIN_WORKERS="2")
    for rank in (1, 2):
        Peer(main, f"WORKER_{rank}", f"10.0.0.{rank + 1}")
    main.ready_at_once()
    main.publish(exit_file("WORKER_1"), at=20, exit_code=1, reason="r", time="x", attempt=0, has_left=False)
    main.run()
    assert sum("failed: r" in record.getMessage() for record in caplog.records) == 1


@pytest.mark.parametrize("nodes", [7, True, "WORKER_2", ["WORKER_2"]])
def test_nodes_of_another_shape_are_no_bug(root: Path, nodes: object) -> None:
    """A list of words, a word, a number in the place of addresses: 78, or waited for until TIMEOUT; never 70."""
    worker = Node(root, MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3", GANG="1", TIMEOUT="60")
    worker.files.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.0.0.1", attempt=0, nodes=nodes)
    worker.beats("MAIN")
    assert worker.run() in {75, 78}


def test_a_node_that_is_lost_before_the_attempt_does_not_end_it(root: Path) -> None:
    """WORKER_1 leaves while WORKER_2 is waited for; MIN_WORKERS=1 is met: the attempt begins without it, and lasts."""
    main = Node(root, GANG="1", MIN_WORKERS="1")
    main.ready_at_once()
    main.publish(config_file("WORKER_1"), at=5, node="WORKER_1", address="10.0.0.2")
    main.publish(exit_file("WORKER_1"), at=8, exit_code=78, reason="bad", time=0.0)
    main.publish(config_file("WORKER_2"), at=100, node="WORKER_2", address="10.0.0.3")
    main.child_ends(0, at=200)
    assert main.run() == 0
    assert main.children.environ()["WORKER_ADDRESSES"] == "10.0.0.3"


def test_an_attempt_does_not_begin_with_too_few(root: Path) -> None:
    """The entry point is not started for a moment where it is known already that the cluster ends."""
    main = Node(root, GANG="1", MIN_WORKERS="2")
    main.publish(config_file("WORKER_1"), at=1, node="WORKER_1", address="10.0.0.2")
    main.publish(exit_file("WORKER_2"), at=2, exit_code=78, reason="bad settings", time=1.0)
    assert main.run() == 78
    assert main.children.scripts == []


def test_a_facts_script_that_does_not_end_is_ended(root: Path) -> None:
    """TERM, GRACE_PERIOD, KILL for its group: as all that an agent starts."""
    (root / "plain" / "node-facts.sh").touch()
    main = Node(root, TIMEOUT="30")
    main.children.facts_code = None
    assert main.run() == 75
    assert main.children.ended == [1]


def test_a_facts_script_is_ended_when_the_node_is_stopped(root: Path) -> None:
    (root / "plain" / "node-facts.sh").touch()
    main = Node(root)
    main.children.facts_code = None
    main.publish(STOP, at=10, reason="stopped by stop.sh", exit_code=143)
    assert main.run() == 143
    assert main.children.ended == [1]


def test_outputs_of_an_earlier_attempt_are_uploaded_in_the_end(root: Path) -> None:
    """The cluster ends while it waits for the next attempt: what the first one left is not lost."""
    main = Node(root, GANG="1", WORKER_COUNT="1", MAX_RESTARTS="1", TIMEOUT="100")
    main.ready_at_once()
    main.publish(config_file("WORKER_1"), node="WORKER_1", address="10.0.0.2")
    main.beats("WORKER_1")
    main.child_ends(9, at=30)
    assert main.run() == 75
    assert main.children.uploads


def test_min_nodes_of_the_environment_wins_over_min_workers_of_the_framework(root: Path) -> None:
    """settings.env of Dask has MIN_WORKERS=1: --env MIN_NODES=4 must not be without effect."""
    (root / "plain" / "settings.env").write_text("MIN_WORKERS=1\n")
    environ = {**Node(root).environ, "WORKER_COUNT": "3", "MIN_WORKERS": "", "MIN_NODES": "4"}
    assert read_settings(environ, root).min_workers == 3


def test_outage_is_not_the_workers_silence(root: Path) -> None:
    """Their first heartbeat after it comes two seconds after main's first look."""
    main = Node(root, MIN_WORKERS="2")
    main.ready_at_once()
    main.outage(30, 130)
    for node in ("WORKER_1", "WORKER_2"):
        main.beats(node, until=25)
        main.publish(heartbeat_file(node), at=132, beat=999)
    main.child_ends(0, at=150)
    assert main.run() == 0


def test_a_worker_that_may_not_delete_has_nothing_to_delete(root: Path) -> None:
    """Its rank has said nothing yet: a bucket that refuses to delete does not matter."""
    worker = Node(root, MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3")
    worker.main_lives()

    def refuse(_: str) -> None:
        raise NotPermittedError("no delete")

    worker.exchange.remove = refuse  # type: ignore[method-assign]
    worker.publish(STOP, at=20, reason="done", exit_code=0)
    assert worker.run() == 0
