"""Main: what it publishes, who it misses, what start scripts see of the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.fake_cluster import (
    LAUNCH,
    Gang,
    MakeNode,
    Node,
    Peer,
    leaves,
    tell_facts,
)

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import CERTIFICATE, READY, STOP, config_file, exit_file, heartbeat_file

# One memory:// for all tests would be longer to list with each.
pytestmark = pytest.mark.usefixtures("empty_memory")


# --- What is published ----------------------------------------------------------------------------------------------


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


def test_a_gang_starts_with_the_nodes_of_this_launch(make: MakeNode) -> None:
    """Another launch's configuration is no node that has come."""
    main = make(GANG="1", WORKER_COUNT="1")
    ClusterDir(main.settings.cluster_url, "launch0", "another key").publish(
        config_file("WORKER_1"), node="WORKER_1", address="10.9.9.9"
    )
    main.publish(config_file("WORKER_1"), at=50, node="WORKER_1", address="10.0.0.2")
    main.child_ends(0, at=80)
    assert main.run() == 0
    assert main.children.environ()["WORKER_ADDRESSES"] == "10.0.0.2"


def test_the_script_is_told_who_has_left(make: MakeNode) -> None:
    """It must not wait for them: a worker that was scaled away before the cluster was ready never comes."""
    main = make(WORKER_COUNT="3", MIN_WORKERS="1")
    told: list[str] = []
    members = main.node_dir / "members"
    for moment in (10, 60):
        main.world.at(moment, lambda: told.append(members.read_text()))
    leaves(main, "WORKER_2", 143, 20, failed_at=20)
    main.child_ends(0, at=70)
    assert main.run() == 0
    assert told == ["WORKER_1\nWORKER_2\nWORKER_3\n", "WORKER_1\nWORKER_3\n"]


@pytest.mark.parametrize("address", ["$(touch x)", "10.0.0.2,10.0.0.3", None, ["10.0.0.2"]])
def test_a_worker_without_an_address_ends_the_gang(make: MakeNode, address: object) -> None:
    """It would go into every node's command lines: 78, naming the file."""
    main = make(GANG="1", WORKER_COUNT="1")
    main.publish(config_file("WORKER_1"), node="WORKER_1", address=address)
    assert main.run() == 78
    assert main.read(STOP)["reason"].startswith("WORKER_1_config.json holds no usable address")
    assert main.children.scripts == []


def test_what_a_gang_publishes_is_whole_json(make: MakeNode) -> None:
    """Main's configuration is one object that every node can read."""
    gang = Gang(make)
    gang.succeeds(at=30, attempt=0)
    config = json.loads(gang.main.files._fs.cat_file(f"{gang.main.files._path}/{config_file('MAIN')}"))
    names = {"schema", "launch_id", "node", "rank", "address", "facts", "tls", "attempt", "nodes", "answers"}
    names |= {"counter", "mac"}
    assert set(config) == names


def test_certificate_is_handed_from_main_to_workers_and_removed_at_the_end(root: Path) -> None:
    """Every node of the launch gets the same pair, as files that only its user can read; storage does not keep it."""
    main = Node(root, CLUSTER_TLS="1")
    shared: dict[str, Any] = {}
    plain: list[str] = []

    def look(_: list[str]) -> None:
        shared.update(main.read(CERTIFICATE))
        for name in ("certificate.pem", "key.pem"):
            assert (root / f"{LAUNCH}-MAIN" / name).stat().st_mode & 0o777 == 0o600
            plain.append((root / f"{LAUNCH}-MAIN" / name).read_text())

    main.children.on_start = look
    main.child_ends(0, at=5)
    assert main.run() == 0
    assert main.read(config_file("MAIN"))["tls"] is True
    assert "BEGIN CERTIFICATE" in shared["certificate"]
    assert shared["key"].startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert main.read(CERTIFICATE) == {}

    worker = Node(root, MODE="WORKER", NODE_RANK="1")
    worker.files.publish(config_file("MAIN"), address="10.0.0.1", tls=True)
    worker.files.publish(CERTIFICATE, certificate=shared["certificate"], key=shared["key"])
    got: list[str] = []
    worker.children.on_start = lambda _: got.extend(
        (root / f"{LAUNCH}-WORKER_1" / name).read_text() for name in ("certificate.pem", "key.pem")
    )
    worker.publish(STOP, at=5, reason="done", exit_code=0)
    worker.run()
    assert got == plain
    assert got[1].startswith("-----BEGIN PRIVATE KEY-----")
    assert worker.children.started[0][1]["TLS_KEY_FILE"] == str(root / f"{LAUNCH}-WORKER_1" / "key.pem")


# --- Readiness ------------------------------------------------------------------------------------------------------


def test_not_ready_in_time_ends_the_cluster(main: Node) -> None:
    """A start script that never says ready is ended at TIMEOUT with 75, naming the nodes that were seen."""
    main.beats("WORKER_1")
    assert main.run() == 75
    assert "missing: WORKER_2" in main.read(STOP)["reason"]


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


# --- Losses ---------------------------------------------------------------------------------------------------------


def test_main_goes_on_without_a_worker_that_is_not_needed(main: Node, caplog: pytest.LogCaptureFixture) -> None:
    """One of two workers lost with MIN_WORKERS=1: named in the log, and the entry point's code counts."""
    main.beats("WORKER_1")
    main.beats("WORKER_2", until=50)
    main.children.on_start = lambda _: main.publish("MAIN_started.json")
    main.child_ends(0, at=300)
    assert main.run() == 0
    assert [r.getMessage() for r in caplog.records if "lost" in r.getMessage()] == [
        "WORKER_2 lost: no heartbeat for 60 s (code 76)"
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


def test_lost_parameter_server_is_always_needed(root: Path) -> None:
    """MIN_WORKERS counts workers only."""
    main = Node(root, MIN_WORKERS="0", PS_COUNT="1")
    main.publish(exit_file("PS_3"), at=20, exit_code=5, reason="PS_3 ended with exit code 5")
    assert main.run() == 5


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
