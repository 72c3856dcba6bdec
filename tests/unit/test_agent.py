"""The agent's decisions, with an injected clock: other nodes, storage and processes are played by the test."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.played import FOR_EVER_S, LAUNCH, Node, make_project

from oci_cluster.agent import Agent, run_agent
from oci_cluster.errors import NotPermittedError, SettingsError, StorageError
from oci_cluster.exchange import CERTIFICATE, READY, STOP, Exchange, config_file, exit_file, heartbeat_file
from oci_cluster.settings import read_settings

# One memory:// for all tests would be longer to list with each.
pytestmark = pytest.mark.usefixtures("empty_memory")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with one framework and the user's code."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return make_project(tmp_path)


@pytest.fixture
def main(root: Path) -> Node:
    """Return the main node of a cluster of 1 + 2, whose start script runs until the test ends it."""
    return Node(root)


@pytest.fixture
def worker(root: Path) -> Node:
    """Return the second worker of that cluster."""
    return Node(root, MODE="WORKER", NODE_RANK="2", NODE_ADDRESS="10.0.0.3")


# --- Success and failure of the entry point ---------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 7, 137, 255])
def test_main_ends_with_the_entry_points_own_code_and_tells_it(main: Node, code: int) -> None:
    """No exit code is lost or changed on its way out of main."""
    main.child_ends(code, at=30)
    assert main.run() == code
    assert main.read(STOP)["exit_code"] == code
    assert main.read(exit_file("MAIN"))["exit_code"] == code


def test_nothing_is_left_on_a_node(main: Node, root: Path) -> None:
    """The private directory is removed and leftovers are swept, also after a success."""
    main.child_ends(0, at=1)
    main.run()
    assert main.children.ended == [1]
    assert not list(root.glob(f"{LAUNCH}-*"))


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


def test_start_script_that_says_why_it_ended_is_believed(main: Node, root: Path) -> None:
    """What `die` of a start script leaves is the cluster's reason, as one clean line."""
    main.children.on_start = lambda _: (root / f"{LAUNCH}-MAIN" / "reason").write_text("the service broke\x1b[31m\n")
    main.child_ends(76, at=10)
    assert main.run() == 76
    assert main.read(STOP)["reason"] == "the service broke[31m"


# --- Tear-down conditions ---------------------------------------------------------------------------------


def test_stop_file_ends_the_cluster_with_143(main: Node) -> None:
    """stop.sh ends main in order, and nothing is told twice."""
    main.publish(STOP, at=40, reason="stopped by stop.sh", exit_code=143)
    assert main.run() == 143
    assert main.children.ended == [1]
    assert main.read(STOP)["reason"] == "stopped by stop.sh"


def test_ttl_of_a_kept_cluster_is_its_planned_end(root: Path) -> None:
    """EPHEMERAL=0 and TTL reached: 0."""
    main = Node(root, EPHEMERAL="0", TTL="1h")
    (root / f"{LAUNCH}-MAIN-ready").touch()
    main.children.on_start = lambda _: (root / f"{LAUNCH}-MAIN" / "ready").touch()
    assert main.run() == 0
    assert 3600 <= main.world.now < 3610


def test_ttl_before_the_entry_points_end_is_no_success(root: Path) -> None:
    """EPHEMERAL=1 and TTL reached: the work is not done, 75."""
    main = Node(root, TTL="60")
    assert main.run() == 75
    assert main.read(STOP)["exit_code"] == 75


def test_worker_without_main_times_out(worker: Node) -> None:
    """A worker waits TIMEOUT for MAIN_config.json, no longer, and says what it waited for."""
    assert worker.run() == 75
    assert 600 <= worker.world.now < 610
    assert "MAIN_config.json" in worker.read(exit_file("WORKER_2"))["reason"]
    assert worker.children.started == []


def test_not_ready_in_time_ends_the_cluster(main: Node) -> None:
    """A start script that never says ready is ended at TIMEOUT with 75, naming the nodes that were seen."""
    main.beats("WORKER_1")
    assert main.run() == 75
    assert "missing: WORKER_2" in main.read(STOP)["reason"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_main_and_its_cluster_in_order(main: Node, number: int) -> None:
    """TERM or INT: the child is ended, the others are told, 143."""
    main.world.at(25, lambda: setattr(main.world, "received", number))
    assert main.run() == 143
    assert main.read(STOP)["exit_code"] == 143
    assert main.children.ended == [1]


def test_signal_while_waiting_for_main_ends_a_worker(worker: Node) -> None:
    """A node can be told to stop in any phase."""
    worker.world.at(3, lambda: setattr(worker.world, "received", signal.SIGTERM))
    assert worker.run() == 143
    assert worker.world.now < 10


# --- Losses -----------------------------------------------------------------------------------------------


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


def test_main_goes_on_without_a_worker_that_is_not_needed(main: Node, caplog: pytest.LogCaptureFixture) -> None:
    """One of two workers lost with MIN_WORKERS=1: named in the log, and the entry point's code counts."""
    main.beats("WORKER_1")
    main.beats("WORKER_2", until=50)
    main.children.on_start = lambda _: main.publish("MAIN_started.json")
    main.child_ends(0, at=300)
    assert main.run() == 0
    assert [r.getMessage() for r in caplog.records if "lost" in r.getMessage()] == [
        "WORKER_2 lost: no heartbeat for 65 s (code 76)"
    ]


def test_main_ends_when_too_few_workers_are_left(root: Path) -> None:
    """MIN_WORKERS not met any more: 76, naming the worker."""
    main = Node(root, MIN_WORKERS="2")
    main.beats("WORKER_1")
    main.beats("WORKER_2", until=50)
    assert main.run() == 76
    assert "WORKER_2 lost" in main.read(STOP)["reason"]


def test_a_needed_workers_own_code_is_the_clusters(root: Path) -> None:
    """Exit code 9 on a needed worker comes out as 9, at once and not after HEARTBEAT_TIMEOUT."""
    main = Node(root, MIN_WORKERS="2")
    main.publish(exit_file("WORKER_2"), at=20, exit_code=9, reason="WORKER_2 ended with exit code 9")
    assert main.run() == 9
    assert main.world.now < 30


def test_a_worker_that_claims_success_before_the_end_is_lost(root: Path) -> None:
    """Exit code 0 of a worker in a cluster that runs is a contradiction: 76, never success."""
    main = Node(root, MIN_WORKERS="2")
    main.publish(exit_file("WORKER_1"), at=20, exit_code=0, reason="")
    assert main.run() == 76


@pytest.mark.parametrize("code", [True, "0", None, -1, 256, 0.0, [0]])
def test_a_stop_file_without_a_real_exit_code_is_no_success(worker: Node, code: object) -> None:
    """Whatever stands in exit_code, only the whole number 0 is a success."""
    worker.main_lives()
    worker.publish(STOP, at=20, reason="?", exit_code=code)
    assert worker.run() == 70


def test_lost_parameter_server_is_always_needed(root: Path) -> None:
    """MIN_WORKERS counts workers only."""
    main = Node(root, MIN_WORKERS="0", PS_COUNT="1")
    main.publish(exit_file("PS_3"), at=20, exit_code=5, reason="PS_3 ended with exit code 5")
    assert main.run() == 5


# --- Files that are not what they should be ---------------------------------------------------------------


def test_stop_file_of_an_older_launch_is_ignored_and_named(main: Node, caplog: pytest.LogCaptureFixture) -> None:
    """In the reference implementation a stale stop file ended the cluster as a success, without running anything."""
    old = Exchange(main.settings.cluster_url, "launch0")
    old.publish(STOP, reason="long ago", exit_code=0)
    main.child_ends(7, at=30)
    assert main.run() == 7
    assert [r.getMessage() for r in caplog.records if "ignored" in r.getMessage()] == [
        "stop file ignored: of another launch ('launch0')"
    ]


def test_configuration_of_an_older_launch_is_not_dialled(worker: Node) -> None:
    """A worker waits for the main of its own launch, and says at TIMEOUT what it saw instead."""
    old = Exchange(worker.settings.cluster_url, "launch0")
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


def test_half_written_stop_file_does_not_stop_and_does_not_hurt(main: Node) -> None:
    """Neither 'stopped' nor 'absent' is known: the entry point's outcome counts, and is told."""
    main.files._fs.pipe_file(f"{main.files._path}/{STOP}", b'{"sch')
    main.child_ends(7, at=30)
    assert main.run() == 7
    assert main.read(STOP)["exit_code"] == 7


def test_unknown_schema_in_mains_configuration_ends_the_worker(worker: Node) -> None:
    """Another version's file is not guessed at: 78, naming both versions."""
    body = json.dumps({"schema": 99, "launch_id": LAUNCH, "address": "10.0.0.1"}).encode()
    worker.files._fs.pipe_file(f"{worker.files._path}/{config_file('MAIN')}", body)
    assert worker.run() == 78
    assert "schema '99', this node knows 1" in worker.read(exit_file("WORKER_2"))["reason"]


def test_unknown_schema_in_the_stop_file_stops_but_is_no_success(main: Node) -> None:
    """A stop of this launch by another version is obeyed, with 78: what else it says is not known."""
    body = json.dumps({"schema": 99, "launch_id": LAUNCH, "exit_code": 0}).encode()
    main.world.at(20, lambda: main.files._fs.pipe_file(f"{main.files._path}/{STOP}", body))
    assert main.run() == 78
    assert main.children.ended == [1]


def test_nothing_of_a_file_reaches_the_environment(worker: Node) -> None:
    """Who can write to the work dir must not be able to set LD_PRELOAD, nor a word of the contract by another road."""
    hostile = {"LD_PRELOAD": "/tmp/evil.so", "PATH": "/tmp/evil", "MODE": "MAIN", "TIMEOUT": "1"}
    worker.files.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.0.0.1", environment=hostile, **hostile)
    worker.publish(STOP, at=20, reason="done", exit_code=0)
    worker.run()
    _, environ, _ = worker.children.started[0]
    assert "LD_PRELOAD" not in environ
    assert (environ["PATH"], environ["MODE"], environ["TIMEOUT"]) == ("/bin", "WORKER", "600")


@pytest.mark.parametrize("address", ["$(touch x)", "10.0.0.1; rm -rf /", "", None, "main.example"])
def test_only_an_address_passes_for_mains_address(worker: Node, address: object) -> None:
    """MAIN_ADDRESS goes into command lines: anything but an IP address ends the worker with 78."""
    worker.files.publish(config_file("MAIN"), node="MAIN", rank=0, address=address)
    assert worker.run() == 78
    assert worker.children.started == []


# --- Storage that does not answer -------------------------------------------------------------------------


def test_outage_in_the_middle_costs_nothing(main: Node, caplog: pytest.LogCaptureFixture) -> None:
    """20 s without storage are named once, survived, and the outcome is told afterwards."""
    caplog.set_level("INFO")
    main.outage(30, 50)
    main.child_ends(0, at=100)
    assert main.run() == 0
    assert main.read(STOP)["exit_code"] == 0
    told = [r.getMessage() for r in caplog.records if "answer" in r.getMessage()]
    assert len(told) == 2
    assert told[0].startswith("no answer: no route to storage")
    assert told[1].startswith("storage answers again after")


def test_entry_point_that_ends_during_an_outage_keeps_its_code(main: Node) -> None:
    """The outcome is told when storage answers again; until then it is repeated, not given up."""
    main.outage(30, 60)
    main.child_ends(7, at=40)
    assert main.run() == 7
    assert main.read(STOP)["exit_code"] == 7
    assert main.world.now >= 60


def test_outage_that_does_not_end_keeps_the_code_too(main: Node, caplog: pytest.LogCaptureFixture) -> None:
    """Main gives up telling when nobody can be listening any more; its own exit code is still the entry point's."""
    main.outage(30, FOR_EVER_S)
    main.child_ends(7, at=40)
    assert main.run() == 7
    assert "the other nodes could not be told" in caplog.text


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


def test_storage_that_is_not_there_at_the_start_is_waited_for(main: Node) -> None:
    """A work dir that answers late costs time, not the launch."""
    main.outage(0, 100)
    main.exchange.fault = StorageError("no route to storage")
    main.child_ends(0, at=200)
    assert main.run() == 0


def test_storage_that_never_answers_is_named_with_69(main: Node, caplog: pytest.LogCaptureFixture) -> None:
    """The message holds storage's own words."""
    main.exchange.fault = StorageError("no route to storage")
    caplog.set_level("INFO")
    assert main.run() == 69
    assert "waited 600 s (TIMEOUT) for WORK_DIR: no route to storage" in caplog.text
    assert "ending with 69" in caplog.text


def test_work_dir_that_refuses_ends_the_node_at_once(main: Node) -> None:
    """A read-only work dir does not become writable by waiting: 77, within a second."""
    main.exchange.fault = NotPermittedError("read-only")
    assert main.run() == 77
    assert main.world.now < 1
    assert main.children.started == []


def test_refusal_in_the_middle_is_an_outage(main: Node) -> None:
    """A token that is refused for a moment must not end hours of training."""
    main.world.at(30, lambda: setattr(main.exchange, "fault", NotPermittedError("token expired")))
    main.world.at(60, lambda: setattr(main.exchange, "fault", None))
    main.child_ends(0, at=100)
    assert main.run() == 0


# --- What is published and handed over --------------------------------------------------------------------


def test_start_script_gets_the_contracts_variables(main: Node, root: Path) -> None:
    """common/README.md's table, whole."""
    main.child_ends(0, at=1)
    main.run()
    command, environ, cwd = main.children.started[0]
    assert command == [str(root / "plain" / "start-master.sh")]
    assert cwd == root / "code"
    node_dir = root / f"{LAUNCH}-MAIN"
    expected = {
        "MODE": "MAIN",
        "NODE_NAME": "MAIN",
        "NODE_RANK": "0",
        "WORKER_COUNT": "2",
        "PS_COUNT": "0",
        "CLUSTER_NAME": "c",
        "LAUNCH_ID": LAUNCH,
        "NODE_ADDRESS": "10.0.0.1",
        "MAIN_ADDRESS": "10.0.0.1",
        "ATTEMPT": "0",
        "NODES_DIR": str(node_dir / "nodes"),
        "ENTRY_POINT": "train.py",
        "ENTRY_ARGS_FILE": str(node_dir / "entry-args"),
        "CODE_DIR": str(root / "code"),
        "OUTPUT_DIR": str(root / "out"),
        "NODE_DIR": str(node_dir),
        "READY_FILE": str(node_dir / "ready"),
        "TIMEOUT": "600",
        "EPHEMERAL": "1",
        "PYTHONPATH": str(root / "code"),
        "SOME_PORT": "1234",
    }
    assert {key: environ.get(key) for key in expected} == expected
    assert "TLS_KEY_FILE" not in environ


def test_arguments_are_handed_over_exactly(root: Path) -> None:
    """One NUL after each; nothing is ever split into words."""
    main = Node(root, ARGS=json.dumps(["a", "b c", "d'e", "", "-x", "two\nlines"]), NAMED_ARGS="lr=0.1")
    written: list[bytes] = []
    main.children.on_start = lambda _: written.append((root / f"{LAUNCH}-MAIN" / "entry-args").read_bytes())
    main.child_ends(0, at=1)
    main.run()
    assert written == [b"a\0b c\0d'e\0\0-x\0two\nlines\0--lr\0" + b"0.1\0"]


def test_users_python_path_is_kept_and_ours_is_not(root: Path) -> None:
    """Workers import the user's modules; this package is not forced on the user's script."""
    ours = Path(__file__).parents[2] / "common"
    main = Node(root, PYTHONPATH=f"{ours}:/opt/mine:")
    main.child_ends(0, at=1)
    main.run()
    assert main.children.started[0][1]["PYTHONPATH"] == f"{root / 'code'}:/opt/mine"


def test_addresses_are_gathered_where_the_framework_needs_them(root: Path) -> None:
    """With WAIT_FOR_ADDRESSES no start script runs before main knows all, and workers get them from main's one file."""
    main = Node(root, WAIT_FOR_ADDRESSES="1", PS_COUNT="1")
    for moment, node, address in ((9, "PS_3", "10.0.0.9"), (5, "WORKER_2", "10.0.0.3"), (30, "WORKER_1", "10.0.0.2")):
        main.publish(config_file(node), at=moment, node=node, address=address)
    main.child_ends(0, at=60)
    assert main.run() == 0
    assert main.read(config_file("MAIN"))["nodes"] == {
        "WORKER_1": "10.0.0.2",
        "WORKER_2": "10.0.0.3",
        "PS_3": "10.0.0.9",
    }
    environ = main.children.started[0][1]
    assert environ["WORKER_ADDRESSES"] == "10.0.0.2,10.0.0.3"
    assert environ["PS_ADDRESSES"] == "10.0.0.9"


def test_missing_addresses_are_named(root: Path) -> None:
    """The timeout says which nodes did not come."""
    main = Node(root, WAIT_FOR_ADDRESSES="1")
    main.publish(config_file("WORKER_1"), at=5, node="WORKER_1", address="10.0.0.2")
    assert main.run() == 75
    assert main.read(STOP)["reason"].endswith("missing: WORKER_2")


def test_certificate_is_handed_from_main_to_workers_and_removed_at_the_end(root: Path) -> None:
    """Every node of the launch gets the same pair, as files that only its user can read; storage does not keep it."""
    main = Node(root, CLUSTER_TLS="1")
    shared: dict[str, Any] = {}

    def look(_: list[str]) -> None:
        shared.update(main.read(CERTIFICATE))
        for name in ("certificate.pem", "key.pem"):
            assert (root / f"{LAUNCH}-MAIN" / name).stat().st_mode & 0o777 == 0o600

    main.children.on_start = look
    main.child_ends(0, at=5)
    assert main.run() == 0
    assert main.read(config_file("MAIN"))["tls"] is True
    assert "BEGIN CERTIFICATE" in shared["certificate"]
    assert "PRIVATE KEY" in shared["key"]
    assert main.read(CERTIFICATE) == {}

    worker = Node(root, MODE="WORKER", NODE_RANK="1")
    worker.files.publish(config_file("MAIN"), address="10.0.0.1", tls=True)
    worker.files.publish(CERTIFICATE, certificate="C", key="K")
    got: list[str] = []
    worker.children.on_start = lambda _: got.extend(
        (root / f"{LAUNCH}-WORKER_1" / name).read_text() for name in ("certificate.pem", "key.pem")
    )
    worker.publish(STOP, at=5, reason="done", exit_code=0)
    worker.run()
    assert got == ["C", "K"]
    assert worker.children.started[0][1]["TLS_KEY_FILE"] == str(root / f"{LAUNCH}-WORKER_1" / "key.pem")


def test_facts_of_main_are_published_cleaned_and_bounded(main: Node, root: Path) -> None:
    """What READY_FILE says is shown on terminals: no control characters, no flood, no line without a name."""

    def ready(_: list[str]) -> None:
        text = "dashboard=http://10.0.0.1:8787/status\nno name here\nbad=\x1b[31mred\nlong=" + "x" * 10_000
        (root / f"{LAUNCH}-MAIN" / "ready").write_text(text)

    main.children.on_start = ready
    main.child_ends(0, at=20)
    assert main.run() == 0
    assert main.read(READY)["facts"] == {
        "dashboard": "http://10.0.0.1:8787/status",
        "bad": "[31mred",
        "long": "x" * 500,
    }


def test_facts_of_main_are_published_after_an_outage(main: Node) -> None:
    """Who could not be told that the cluster is ready is told when storage answers again."""
    main.outage(9, 60)
    main.world.at(10, lambda: (main.node_dir / "ready").write_text("dashboard=here"))
    told = [main.seen_at(at, lambda: main.read(READY).get("facts")) for at in (59, 70)]
    main.child_ends(0, at=80)
    assert main.run() == 0
    assert [seen[0] for seen in told] == [None, {"dashboard": "here"}]


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


# --- Bad starts -------------------------------------------------------------------------------------------


def test_missing_entry_point_ends_main_and_tells_the_workers(root: Path) -> None:
    """Workers do not wait TIMEOUT for a main that cannot start."""
    main = Node(root, ENTRY_POINT="nope.py")
    assert main.run() == 78
    assert "nope.py" in main.read(STOP)["reason"]


def test_missing_code_dir_is_named(root: Path) -> None:
    """CODE_DIR must be there before anything runs."""
    assert Node(root, CODE_DIR=str(root / "nope")).run() == 78


def test_start_script_that_cannot_be_started_is_named(main: Node) -> None:
    """A start script without its executable bit is a matter of set-up, not a bug."""

    def refuse(command: list[str]) -> None:
        raise PermissionError(13, "Permission denied", command[0])

    main.children.on_start = refuse
    assert main.run() == 78
    assert "start-master.sh cannot be started" in main.read(STOP)["reason"]


def test_bug_is_never_a_success_and_leaves_nothing(main: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever breaks inside, the child is ended, the others are told, 70."""

    def break_down(_: object) -> Iterator[float]:
        raise ZeroDivisionError

    main.children.on_start = lambda _: monkeypatch.setattr("oci_cluster.agent.poll_delays", break_down)
    with pytest.raises(ZeroDivisionError):  # tear-down polls too in this broken world
        main.run()
    assert main.children.ended == [1]
    assert main.read(STOP)["exit_code"] == 70


def test_full_disk_on_the_node_itself_is_named(main: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that cannot write its own files ends with 69 and says so."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert main.run() == 69
    assert "No space left on device" in main.read(STOP)["reason"]


def test_agent_lives_in_its_own_cluster_dir(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb's agent has the settings of the environment, real processes, and the code is its own."""
    node = Node(root)
    lived: list[Agent] = []

    def live(agent: Agent) -> int:
        lived.append(agent)
        return 7

    monkeypatch.setattr("oci_cluster.agent.read_settings", lambda environ: node.settings if environ else None)
    monkeypatch.setattr("oci_cluster.agent.Children", lambda: node.children)
    monkeypatch.setattr("oci_cluster.agent.Signals", lambda: node.world)
    monkeypatch.setattr(Agent, "run", live)
    assert run_agent(node.environ) == 7
    assert (lived[0].settings, lived[0]._exchange.url) == (node.settings, node.settings.cluster_url)
    assert (lived[0]._exchange.launch_id, lived[0]._environ) == (LAUNCH, node.environ)


def test_agent_does_not_start_with_bad_settings() -> None:
    """All that is wrong is said in one message before anything happens."""
    with pytest.raises(SettingsError, match=r"MODE is not set.*WORKER_COUNT.*WORK_DIR.*LAUNCH_ID"):
        run_agent({"FRAMEWORK": "dask"})


# --- Code and outputs -------------------------------------------------------------------------------------


def test_code_is_fetched_before_anything_is_published(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CODE_URI goes to CODE_DIR."""
    fetched: list[tuple[str, Path]] = []

    def fetch(uri: str, target: Path) -> None:
        fetched.append((uri, target))
        target.mkdir()
        (target / "train.py").touch()

    monkeypatch.setattr("oci_cluster.code.fetch_code", fetch)
    main = Node(root, CODE_URI="git+file:///x@main", CODE_DIR=str(root / "fetched"))
    main.child_ends(0, at=1)
    assert main.run() == 0
    assert fetched == [("git+file:///x@main", root / "fetched")]


def test_outputs_are_uploaded_now_and_then_and_waited_for_at_the_end(main: Node) -> None:
    """Every OUTPUT_INTERVAL one upload, never two at once, and a last one before the agent ends."""
    main.child_ends(0, at=150)
    assert main.run() == 0
    assert len(main.children.uploads) == 3  # at 60 s, at 120 s, and the last


def test_where_there_are_no_outputs_nothing_is_uploaded(main: Node, root: Path) -> None:
    """To look for them in the work dir costs a process with a client of storage."""
    (root / "out" / "model").unlink()
    main.child_ends(0, at=150)
    assert main.run() == 0
    assert main.children.uploads == []


def test_an_upload_that_takes_longer_than_the_interval_is_not_overtaken(main: Node) -> None:
    """The next one starts when it has ended, and not beside it."""
    main.children.upload_code = None
    main.world.at(150, lambda: main.children.codes.update({main.children.uploads[0]: 0}))
    started = [main.seen_at(at, lambda: len(main.children.uploads)) for at in (149, 170)]
    main.world.at(210, lambda: main.children.codes.update({main.children.uploads[2]: 0}))
    main.child_ends(0, at=200)
    assert main.run() == 0
    assert [seen[0] for seen in started] == [1, 2]
    assert main.world.now >= 210  # the last one is waited for


def test_an_upload_that_cannot_be_started_loses_outputs(main: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has no more room for processes has not saved what the entry point left: 69, with its words."""

    def refuse() -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(main.agent, "_start_upload", refuse)
    main.child_ends(0, at=10)
    assert main.run() == 69
    assert "outputs of MAIN could not be uploaded: [Errno 11] Resource" in main.read(exit_file("MAIN"))["reason"]


def test_lost_outputs_make_a_failure_of_a_success(main: Node) -> None:
    """An entry point that succeeded but whose outputs are gone has not succeeded: 69."""
    main.children.upload_code = 69
    main.child_ends(0, at=10)
    assert main.run() == 69


def test_lost_outputs_do_not_hide_the_entry_points_code(main: Node) -> None:
    """The first thing that went wrong is the outcome."""
    main.children.upload_code = 69
    main.child_ends(7, at=10)
    assert main.run() == 7


def test_outputs_in_a_shared_directory_need_no_upload(root: Path, tmp_path: Path) -> None:
    """On file:// OUTPUT_DIR is in the cluster dir itself."""
    main = Node(root, WORK_DIR=f"file://{tmp_path}/work", OUTPUT_DIR="")
    main.child_ends(0, at=100)
    assert main.run() == 0
    assert main.children.uploads == []
    assert main.children.started[0][1]["OUTPUT_DIR"] == f"{tmp_path}/work/c/outputs"


# --- Where the service starts all nodes, and keeps no logs ------------------------------------------------


def test_the_address_is_the_one_that_the_service_tells(root: Path) -> None:
    """Its file appears late and grows: it is waited for."""
    path = root / "nodes.json"
    node = Node(root, NODE_ADDRESS="", CLUSTER_NODES_METADATA_FILE=str(path), SUBNET_CIDR="10.9.0.0/16")
    node.world.at(3, lambda: path.write_text("["))
    node.world.at(6, lambda: path.write_text('[{"Rank": 1, "IPAddress": "10.0.0.8"}]'))
    node.world.at(
        9, lambda: path.write_text('[{"Rank": 1, "IPAddress": "10.0.0.8"}, {"Rank": 0, "IPAddress": "10.0.0.7"}]')
    )
    node.child_ends(0, at=30)
    assert node.run() == 0
    assert node.children.environ()["NODE_ADDRESS"] == "10.0.0.7"
    assert node.read(config_file("MAIN"))["address"] == "10.0.0.7"


def test_an_address_that_the_service_never_tells_is_not_waited_for_for_ever(root: Path) -> None:
    """75 after TIMEOUT, with the file's name."""
    node = Node(root, NODE_ADDRESS="", CLUSTER_NODES_METADATA_FILE=str(root / "none.json"))
    assert node.run() == 75
    assert "none.json" in node.read(exit_file("MAIN"))["reason"]


def test_an_address_that_is_given_is_taken(root: Path) -> None:
    """Whatever the service tells."""
    node = Node(root, CLUSTER_NODES_METADATA_FILE=str(root / "none.json"))
    node.child_ends(0, at=1)
    assert node.run() == 0
    assert node.children.environ()["NODE_ADDRESS"] == "10.0.0.1"


class PlayedLog:
    """What a node prints, as the agent hands it on."""

    def __init__(self, node: Node) -> None:
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.said_goodbye: list[bool] = []
        self._node = node
        node.agent._log_copy = self  # type: ignore[assignment]

    def is_due(self) -> bool:
        return True

    def ship(self, exchange: Exchange) -> None:
        assert exchange is self._node.exchange
        self._note("ship")

    def finish(self, exchange: Exchange) -> None:
        assert exchange is self._node.exchange
        self.said_goodbye.append(bool(self._node.read(exit_file(self._node.settings.node))))
        self._note("finish")

    def close(self) -> None:
        self.calls.append("close")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error


def test_what_a_node_prints_is_copied_while_it_runs_and_at_its_end(main: Node) -> None:
    """The last lines after all others have been told how it ended; then the file goes."""
    log = PlayedLog(main)
    main.child_ends(0, at=30)
    assert main.run() == 0
    assert (log.calls[-2:], log.said_goodbye) == (["finish", "close"], [True])
    assert log.calls[:-2].count("ship") == len(log.calls) - 2 > 5


def test_a_log_that_cannot_be_copied_is_no_failure_of_the_script(main: Node) -> None:
    """Storage is asked again with the next look; the node's code is its script's."""
    log = PlayedLog(main)
    log.error = StorageError("no route to storage")
    main.child_ends(7, at=30)
    assert main.run() == 7
    assert log.calls.count("ship") > 5
    assert log.calls[-1] == "close"


def test_a_node_that_never_joined_copies_nothing(main: Node) -> None:
    """There is nowhere to copy it to; its file goes all the same."""
    log = PlayedLog(main)
    main.exchange.fault = NotPermittedError("403")
    assert main.run() == 77
    assert log.calls == ["close"]


def test_the_logs_of_a_node_are_copied_where_that_is_asked_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NODE_LOGS=1: from before the agent adopts anybody."""
    made: list[tuple[str, str]] = []
    order: list[str] = []

    def own_log(*words: str) -> str:
        made.append(words)  # type: ignore[arg-type]
        order.append("log")
        return "the log"

    node = Node(root)
    monkeypatch.setattr("oci_cluster.node_logs.OwnLog", own_log)
    monkeypatch.setattr("oci_cluster.settings.PROJECT_ROOT", root)
    monkeypatch.setattr("oci_cluster.agent.read_settings", lambda environ: read_settings(environ, root))
    monkeypatch.setattr("oci_cluster.agent.Children", lambda: order.append("children"))
    monkeypatch.setattr("oci_cluster.agent.Signals", lambda: node.world)
    monkeypatch.setattr(Agent, "run", lambda agent: agent._log_copy)
    assert run_agent({**node.environ, "NODE_LOGS": "1"}) == "the log"  # type: ignore[comparison-overlap]
    assert (made, order) == ([(LAUNCH, "MAIN")], ["log", "children"])
    assert run_agent(node.environ) is None
    assert len(made) == 1
