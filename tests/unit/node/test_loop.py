"""What ends a node while it waits or runs, and storage that does not answer."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from unit.fake_cluster import (
    FOR_EVER_S,
    LAUNCH,
    Node,
)

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import STOP
from oci_cluster.errors import NotPermittedError, StorageError

# One memory:// for all tests would be longer to list with each.
pytestmark = pytest.mark.usefixtures("empty_memory")


# --- Obedience ------------------------------------------------------------------------------------------------------


def test_stop_file_ends_the_cluster_with_143(main: Node) -> None:
    """stop.sh ends main in order, and nothing is told twice."""
    main.publish(STOP, at=40, reason="stopped by stop.sh", exit_code=143)
    assert main.run() == 143
    assert main.children.ended == [1]
    assert main.read(STOP)["reason"] == "stopped by stop.sh"


@pytest.mark.parametrize("code", [True, "0", None, -1, 256, 0.0, [0]])
def test_a_stop_file_without_a_real_exit_code_is_no_success(worker: Node, code: object) -> None:
    """Whatever stands in exit_code, only the whole number 0 is a success."""
    worker.main_lives()
    worker.publish(STOP, at=20, reason="?", exit_code=code)
    assert worker.run() == 70


def test_stop_file_of_an_older_launch_is_ignored_and_named(main: Node, caplog: pytest.LogCaptureFixture) -> None:
    """In the reference implementation a stale stop file ended the cluster as a success, without running anything."""
    old = ClusterDir(main.settings.cluster_url, "launch0", "another key")
    old.publish(STOP, reason="long ago", exit_code=0)
    main.child_ends(7, at=30)
    assert main.run() == 7
    assert [r.getMessage() for r in caplog.records if "ignored" in r.getMessage()] == [
        "stop file ignored: of another launch ('launch0')"
    ]


def test_half_written_stop_file_does_not_stop_and_does_not_hurt(main: Node) -> None:
    """Neither 'stopped' nor 'absent' is known: the entry point's outcome counts, and is told."""
    main.files._fs.pipe_file(f"{main.files._path}/{STOP}", b'{"sch')
    main.child_ends(7, at=30)
    assert main.run() == 7
    assert main.read(STOP)["exit_code"] == 7


def test_unknown_schema_in_the_stop_file_stops_but_is_no_success(main: Node) -> None:
    """A stop of this launch by another version is obeyed, with 78: what else it says is not known."""
    main.world.at(20, lambda: main.leave(STOP, exit_code=0))
    assert main.run() == 78
    assert main.children.ended == [1]


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


# --- Storage that does not answer -----------------------------------------------------------------------------------


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
    assert "the other nodes could not be informed" in caplog.text


@pytest.mark.parametrize(
    ("url", "ended_by", "code", "patience_s"),
    [
        ("file://{}/work", "TERM", 143, 5),
        ("file://{}/work", "TTL", 75, 5),
        ("file://{}/work", "its script", 0, 60),
        ("file://{}/work", "its script, and TERM", 0, 20),
        ("memory://{}", "TERM", 143, 60),
    ],
)
def test_a_folder_that_takes_nothing_holds_up_no_node_that_must_end(
    root: Path, url: str, ended_by: str, code: int, patience_s: float
) -> None:
    """Whoever has told it to end kills it some seconds after its grace; a service may have yet to answer."""
    ttl = {"TTL": "30s"} if ended_by == "TTL" else {}
    main = Node(root, WORK_DIR=url.format(root), HEARTBEAT_TIMEOUT="60", **ttl)
    main.ready_at_once()
    main.outage(20, FOR_EVER_S)
    if "its script" in ended_by:
        main.child_ends(0, at=30)
    if "TERM" in ended_by:
        main.world.at(50 if "its script" in ended_by else 30, lambda: setattr(main.world, "received", signal.SIGTERM))
    assert main.run() == code
    assert 30 + patience_s <= main.world.now < 40 + patience_s


def test_storage_that_is_not_there_at_the_start_is_waited_for(main: Node) -> None:
    """A work dir that answers late costs time, not the launch."""
    main.outage(0, 100)
    main.cluster_dir.fault = StorageError("no route to storage")
    main.child_ends(0, at=200)
    assert main.run() == 0


def test_storage_that_never_answers_is_named_with_69(main: Node, caplog: pytest.LogCaptureFixture) -> None:
    """The message holds storage's own words."""
    main.cluster_dir.fault = StorageError("no route to storage")
    caplog.set_level("INFO")
    assert main.run() == 69
    assert "waited 600 s (TIMEOUT) for WORK_DIR: no route to storage" in caplog.text
    assert "ending with 69" in caplog.text


def test_work_dir_that_refuses_ends_the_node_at_once(main: Node) -> None:
    """A read-only work dir does not become writable by waiting: 77, within a second."""
    main.cluster_dir.fault = NotPermittedError("read-only")
    assert main.run() == 77
    assert main.world.now < 1
    assert main.children.started == []


def test_refusal_in_the_middle_is_an_outage(main: Node) -> None:
    """A token that is refused for a moment must not end hours of training."""
    main.world.at(30, lambda: setattr(main.cluster_dir, "fault", NotPermittedError("token expired")))
    main.world.at(60, lambda: setattr(main.cluster_dir, "fault", None))
    main.child_ends(0, at=100)
    assert main.run() == 0
