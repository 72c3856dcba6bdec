"""Others who can write to the work dir, and what an agent makes of what they put there."""

from __future__ import annotations

from typing import Any

import pytest
from unit.fake_cluster import KEY, Gang, MakeNode, Node, messages
from unit.fake_follower import Follower

from oci_cluster import __version__
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import CERTIFICATE, STOP, config_file, exit_file, heartbeat_file

pytestmark = pytest.mark.usefixtures("empty_memory")

WORKER = {"MODE": "WORKER", "NODE_RANK": "2", "NODE_ADDRESS": "10.0.0.3"}
UNSIGNED = "ignored: not signed by this launch: somebody else wrote it, or a node of another version"
OLDER = "ignored: older than what was there before: somebody has put it back"


@pytest.fixture
def worker(make: MakeNode) -> Node:
    return make(**WORKER)


def every_second(node: Node, name: str, **fields: Any) -> None:
    """Have somebody write a file again and again, from the beginning on."""
    node.world.every(1.0, lambda: node.forge(name, **fields))


def test_a_worker_does_not_dial_a_strangers_main(worker: Node, caplog: pytest.LogCaptureFixture) -> None:
    """It waits for its own, and says once what it saw, also at the end of TIMEOUT."""
    worker.forge(config_file("MAIN"), node="MAIN", rank=0, address="10.6.6.6")
    assert worker.run() == 75
    assert worker.children.scripts == []
    assert messages(caplog, UNSIGNED) == [f"MAIN_config.json {UNSIGNED}"]
    assert worker.read(exit_file("WORKER_2"))["reason"].endswith(UNSIGNED.removeprefix("ignored: "))


def test_a_worker_takes_no_strangers_certificate(worker: Node) -> None:
    """Whose key is not its launch's: who holds that could read all, and run code."""
    worker.files.publish(config_file("MAIN"), address="10.0.0.1", tls=True)
    worker.beats("MAIN")
    worker.forge(CERTIFICATE, certificate="C", key="K")
    assert worker.run() == 75
    assert (worker.children.scripts, worker.children.forked) == ([], 0)


def test_a_key_that_does_not_open_ends_the_worker(worker: Node) -> None:
    """A start script without it would only fail later."""
    worker.files.publish(config_file("MAIN"), address="10.0.0.1", tls=True)
    worker.files.publish(CERTIFICATE, certificate="C", key="K")
    assert worker.run() == 78
    assert "the key of the launch's certificate cannot be opened" in worker.read(exit_file("WORKER_2"))["reason"]


@pytest.mark.parametrize("mode", ["MAIN", "WORKER"])
def test_nobody_else_stops_a_node(make: MakeNode, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    """A stop file without this launch's signature is said once, and replaced by main's own at the end."""
    node = make(**WORKER) if mode == "WORKER" else make()
    if mode == "WORKER":
        node.main_lives()
        node.publish(STOP, at=100, reason="done", exit_code=0)
    else:
        node.child_ends(0, at=100)
    node.world.every(1.0, lambda: node.forge(STOP, reason="evil", exit_code=0), until=90)
    assert node.run() == 0
    assert node.world.now >= 100
    assert messages(caplog, "evil", "stop file") == [f"stop file {UNSIGNED}"]
    assert node.read(STOP)["reason"] != "evil"


def test_a_strangers_heartbeat_is_no_life_of_mains(worker: Node, caplog: pytest.LogCaptureFixture) -> None:
    """Neither one that they make up, nor one that they have kept: main is lost all the same."""
    worker.main_lives(until=100)
    kept: list[bytes] = []
    path = f"{worker.files._path}/{heartbeat_file('MAIN')}"
    worker.world.at(20, lambda: kept.append(worker.files._fs.cat_file(path)))
    for moment in range(101, 400, 4):
        worker.world.at(moment, lambda: worker.forge(heartbeat_file("MAIN"), beat=object.__hash__(worker)))
        worker.world.at(moment + 2, lambda: worker.files._fs.pipe_file(path, kept[0]))
    assert worker.run() == 76
    assert worker.world.now < 200
    assert messages(caplog, "ignored") == [f"MAIN_heartbeat.json {UNSIGNED}", f"MAIN_heartbeat.json {OLDER}"]


def test_a_strangers_report_fails_no_node(make: MakeNode) -> None:
    """Main believes only a worker's own last word."""
    main = make(MIN_WORKERS="2")
    main.ready_at_once()
    for node in ("WORKER_1", "WORKER_2"):
        main.files.publish(config_file(node), node=node, address="10.0.0.2")
        main.beats(node)
        every_second(main, exit_file(node), exit_code=9, reason="evil", time=0, has_left=True)
    main.child_ends(0, at=100)
    assert main.run() == 0


def test_a_report_of_an_earlier_life_is_not_this_ones(make: MakeNode) -> None:
    """Somebody has kept what WORKER_1 said when it was ended, and puts it back for its replacement."""
    gang = Gang(make, MIN_WORKERS="1")
    gang.fails(1, 143, at=20, has_left=True)
    path = f"{gang.main.files._path}/{exit_file('WORKER_1')}"
    kept: list[bytes] = []
    gang.main.world.at(30, lambda: kept.append(gang.main.files._fs.cat_file(path)))
    gang.main.world.at(40, lambda: gang.comes(1, at=40))
    gang.main.world.at(60, lambda: gang.main.files._fs.pipe_file(path, kept[0]))
    gang.main.child_ends(0, at=200, attempt=2)
    gang.main.publish(STOP, at=1000, reason="too late", exit_code=5)
    assert gang.main.run() == 0
    assert [addresses.count(",") + 1 for addresses in gang.given("WORKER_ADDRESSES")] == [2, 1, 2]


def test_a_replacement_does_not_take_part_in_an_attempt_that_is_over(make: MakeNode) -> None:
    """It has seen nothing newer than main's files of an earlier attempt, which somebody has put back."""
    worker = make(**WORKER, GANG="1", POLL_CEILING="1", TIMEOUT="100")
    nodes = {"WORKER_1": "10.6.6.6", "WORKER_2": "10.0.0.3"}
    old = {"node": "MAIN", "rank": 0, "address": "10.0.0.1", "attempt": 0, "nodes": nodes}
    worker.files.publish(config_file("MAIN"), **old, answers={"WORKER_1": 1, "WORKER_2": 1})
    worker.beats("MAIN")
    assert worker.run() == 75
    assert worker.children.scripts == []


def test_main_answers_the_configurations_that_it_has_read(make: MakeNode) -> None:
    """By their counters: what a node waits for before it takes part."""
    gang = Gang(make)
    gang.succeeds(at=30, attempt=0)
    asked = {node: gang.main.read(config_file(node))["counter"] for node in ("WORKER_1", "WORKER_2")}
    assert gang.main.read(config_file("MAIN"))["answers"] == asked


@pytest.mark.parametrize("last", [heartbeat_file("WORKER_2"), exit_file("WORKER_2")])
def test_a_replacement_stop_looking_though_its_clock_is_behind(worker: Node, last: str) -> None:
    """It has read what its predecessor has said last, with or without a word of its end: all that it says is later."""
    ahead = ClusterDir(worker.settings.cluster_url, worker.settings.launch_id, KEY)
    ahead._signer._wall_clock_ns = lambda: 4_000_000_000_000_000_000
    said = ahead.publish(last, beat=9, exit_code=9)
    worker.main_lives()
    worker.publish(STOP, at=20, reason="done", exit_code=0)
    assert worker.run() == 0
    files = [worker.read(name(node)) for name in (config_file, heartbeat_file, exit_file) for node in ("WORKER_2",)]
    assert min(fields["counter"] for fields in files) > said


def test_what_somebody_says_of_a_workers_end_goes_when_it_begins(worker: Node) -> None:
    """As its predecessor's own word does: nothing that can be taken for its end is there while it runs."""
    worker.forge(exit_file("WORKER_2"), exit_code=9, reason="evil", time=0, has_left=True)
    worker.main_lives()
    there = worker.seen_at(10, lambda: worker.files.is_there(exit_file("WORKER_2")))
    worker.publish(STOP, at=20, reason="done", exit_code=0)
    assert worker.run() == 0
    assert there == [False]


def test_a_dead_workers_heartbeat_does_not_live_on(make: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody writes it again and again: main reads one heartbeat with each of its own, and says so."""
    main = make(MIN_WORKERS="2")
    main.ready_at_once()
    for node in ("WORKER_1", "WORKER_2"):
        main.files.publish(config_file(node), node=node, address="10.0.0.2")
    main.beats("WORKER_1")
    main.beats("WORKER_2", until=100)
    main.world.at(101, lambda: main.world.every(3.0, lambda: main.forge(heartbeat_file("WORKER_2"), beat=0)))
    main.publish(STOP, at=1000, reason="too late", exit_code=5)
    assert main.run() == 76
    assert main.world.now < 200
    assert messages(caplog, "WORKER_2_heartbeat.json", "lost:")[0] == f"WORKER_2_heartbeat.json {UNSIGNED}"


def test_who_starts_nodes_without_a_key_is_told_so(make: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    """Once, by each node."""
    node = make(LAUNCH_KEY="")
    node.cluster_dir._signer = node.files._signer = ClusterDir(node.files.url, node.files.launch_id, "")._signer
    node.child_ends(0, at=30)
    assert node.run() == 0
    (said,) = messages(caplog, "LAUNCH_KEY")
    assert said.startswith("LAUNCH_KEY is not set: whoever can write to the WORK_DIR can command this node")


@pytest.mark.parametrize(("version", "count"), [("0.0.9", 1), (__version__, 0), ("", 0)])
def test_a_launcher_of_another_version_is_named_once(
    make: MakeNode, caplog: pytest.LogCaptureFixture, version: str, count: int
) -> None:
    """By main alone: all nodes have its image."""
    node = make(LAUNCHER_VERSION=version)
    node.child_ends(0, at=30)
    assert node.run() == 0
    told = (
        f"the nodes run version {__version__} of the templates, the launcher is 0.0.9; if something goes wrong, "
        "build the image again: make build push"
    )
    assert messages(caplog, "version") == [told] * count


def test_a_follower_goes_on_with_what_answers_it(make: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    """No warning is said of a healthy exchange."""
    follower = Follower(make)
    assert follower.stops(at=100) == 0
    assert messages(caplog, "ignored") == []
