"""What a start script is given, and what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from unit.fake_cluster import (
    LAUNCH,
    Gang,
    MakeNode,
    Node,
)
from unit.fake_follower import Follower

from oci_cluster.contract.names import STOP, config_file, exit_file
from oci_cluster.errors import SettingsError
from oci_cluster.node import script

# One memory:// for all tests would be longer to list with each.
pytestmark = pytest.mark.usefixtures("empty_memory")


# --- What it is given -----------------------------------------------------------------------------------------------


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
        "ENTRY_MODULE": "",
        "ENTRY_ARGS_FILE": str(node_dir / "entry-args"),
        "CODE_DIR": str(root / "code"),
        "OUTPUT_DIR": str(root / "out"),
        "NODE_DIR": str(node_dir),
        "CLIENT_DIR": str(node_dir),  # never the cluster dir, where others may write
        "READY_FILE": str(node_dir / "ready"),
        "TIMEOUT": "600",
        "GRACE_PERIOD": "10",
        "MIN_WORKERS": "1",
        "EPHEMERAL": "1",
        "PYTHONPATH": str(root / "code"),
        "SOME_PORT": "1234",
    }
    assert {key: environ.get(key) for key in expected} == expected
    assert "TLS_KEY_FILE" not in environ


def test_a_file_for_programs_outside_is_where_the_backend_says(root: Path) -> None:
    main = Node(root, CLIENT_DIR="/mine")
    main.child_ends(0, at=1)
    main.run()
    assert main.children.environ()["CLIENT_DIR"] == "/mine"


def test_a_module_is_given_by_both_names(root: Path) -> None:
    """Whoever shows what is run has a name for it."""
    main = Node(root, ENTRY_POINT="", ENTRY_MODULE="package.train")
    main.child_ends(0, at=1)
    assert main.run() == 0
    environ = main.children.environ()
    assert (environ["ENTRY_POINT"], environ["ENTRY_MODULE"]) == ("package.train", "package.train")
    assert environ["PYTHONPATH"] == str(root / "code")


def test_the_scripts_own_folder_can_be_imported_from_too(root: Path) -> None:
    """By what the script starts, in the order in which Python itself looks: workers find the same modules."""
    (root / "code" / "jobs").mkdir()
    (root / "code" / "jobs" / "run.py").touch()
    main = Node(root, ENTRY_POINT="jobs/run.py")
    main.child_ends(0, at=1)
    assert main.run() == 0
    assert main.children.environ()["PYTHONPATH"] == f"{root / 'code' / 'jobs'}:{root / 'code'}"


def test_scripts_written_for_ads_find_their_names(root: Path) -> None:
    """The names that ADS gives hold the same values as the contract's; common/README.md lists them, and no others."""
    main = Node(root, OCI__MODE="WORKER", OCI__SYNC_DIR="/elsewhere", ARGS='["--name", "run 1"]')
    main.child_ends(0, at=1)
    main.run()
    environ = main.children.environ()
    expected = {
        "OCI__CLUSTER_TYPE": "PLAIN",
        "OCI__CODE_DIR": str(root / "code"),
        "OCI__ENTRY_SCRIPT": "train.py",
        "OCI__ENTRY_SCRIPT_ARGS": "--name 'run 1'",
        "OCI__EPHEMERAL": "1",
        "OCI__MAIN_IP": "10.0.0.1",
        "OCI__MODE": "MAIN",
        "OCI__PS_COUNT": "0",
        "OCI__SYNC_DIR": str(root / "out"),
        "OCI__TIMEOUT": "600",
        "OCI__WORK_DIR": main.environ["WORK_DIR"],
        "OCI__WORKER_COUNT": "2",
        "tmpdir": f"{main.environ['WORK_DIR']}/{main.environ['CLUSTER_ID']}",
    }
    assert {name: text for name, text in environ.items() if name.startswith("OCI__") or name == "tmpdir"} == expected
    contract = (Path(__file__).parents[3] / "common" / "README.md").read_text()
    told = contract.partition("## What a start script is given")[2].partition("\n## ")[0]
    assert {*re.findall(r"OCI__\w+", told), "tmpdir"} == {*expected, "OCI__WORKER_IP"}


def test_a_worker_has_its_own_address_under_the_name_of_ads(worker: Node) -> None:
    """And main's, as there."""
    worker.files.publish(config_file("MAIN"), node="MAIN", rank=0, address="10.0.0.1")
    worker.publish(STOP, at=20, reason="done", exit_code=0)
    worker.run()
    environ = worker.children.environ()
    assert (environ["OCI__MODE"], environ["OCI__WORKER_IP"]) == ("WORKER", worker.environ["NODE_ADDRESS"])
    assert environ["OCI__MAIN_IP"] == "10.0.0.1"


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("1.5m", "90"), ("2h", "7200"), ("7.9", "7.9"), ("0.5", "0.5"), ("0", "0"), ("12d", "1036800")],
)
def test_the_grace_period_is_given_in_plain_seconds(root: Path, given: str, seconds: str) -> None:
    """A script counts with it: no unit, no exponent."""
    main = Node(root, GRACE_PERIOD=given)
    main.child_ends(0, at=1)
    main.run()
    assert main.children.environ()["GRACE_PERIOD"] == seconds


@pytest.mark.parametrize(
    ("given", "count"),
    [({}, "2"), ({"MIN_NODES": "2"}, "1")],
)
def test_the_least_number_of_workers_is_given(root: Path, given: dict[str, str], count: str) -> None:
    """Whichever name the user has for it, and where there is none the number of workers."""
    main = Node(root, **{"MIN_WORKERS": "", **given})
    main.child_ends(0, at=1)
    main.run()
    assert main.children.environ()["MIN_WORKERS"] == count


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
    ours = Path(__file__).parents[3] / "common"
    main = Node(root, PYTHONPATH=f"{ours}:/opt/mine:")
    main.child_ends(0, at=1)
    main.run()
    assert main.children.started[0][1]["PYTHONPATH"] == f"{root / 'code'}:/opt/mine"


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
    monkeypatch.setattr(script, "interface_of", {"10.0.0.1": "eth7"}.__getitem__)
    main = make(FIND_INTERFACE="1")
    main.child_ends(0, at=10)
    assert main.run() == 0
    assert main.children.environ()["NODE_INTERFACE"] == "eth7"


def test_an_address_without_an_interface_ends_the_node(make: MakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message of the look-up is the cluster's reason (78)."""

    def none(address: str) -> str:
        raise SettingsError(f"no network interface has {address}")

    monkeypatch.setattr(script, "interface_of", none)
    main = make(FIND_INTERFACE="1")
    assert main.run() == 78
    assert main.read(STOP)["reason"] == "no network interface has 10.0.0.1"


# --- What it says ---------------------------------------------------------------------------------------------------


def test_start_script_that_says_why_it_ended_is_believed(main: Node, root: Path) -> None:
    """What `die` of a start script leaves is the cluster's reason, as one clean line."""
    main.children.on_start = lambda _: (root / f"{LAUNCH}-MAIN" / "reason").write_text("the service broke\x1b[31m\n")
    main.child_ends(76, at=10)
    assert main.run() == 76
    assert main.read(STOP)["reason"] == "the service broke[31m"


def test_start_script_that_cannot_be_started_is_named(main: Node) -> None:
    """A start script without its executable bit is a matter of set-up, not a bug."""

    def refuse(command: list[str]) -> None:
        raise PermissionError(13, "Permission denied", command[0])

    main.children.on_start = refuse
    assert main.run() == 78
    assert "start-master.sh cannot be started" in main.read(STOP)["reason"]


# --- PROFILE_CMD ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "words"), [("", b"true\0-o\0{output}.svg\0"), ("WORKER_1", b"")])
def test_a_profilers_words_lie_beside_the_node(make: MakeNode, nodes: str, words: bytes) -> None:
    """Where it is not profiled nothing does, also of an attempt before."""
    main = make(PROFILE_CMD="true -o '{output}.svg'", PROFILE_NODES=nodes, ENTRY_ON="all", PATH="/usr/bin:/bin")
    seen = main.seen_at(5, (main.node_dir / "profile-cmd").read_bytes)
    main.child_ends(0, at=10)
    assert main.run() == 0
    assert seen == [words]


def test_a_profiler_that_is_not_there_ends_the_cluster_before_anything_runs(make: MakeNode) -> None:
    main = make(PROFILE_CMD="py-spy-nowhere record --", PATH="/usr/bin:/bin")
    assert main.run() == 78
    assert main.read(STOP)["reason"].startswith(
        "PROFILE_CMD: there is no program 'py-spy-nowhere': --with py-spy-nowhere adds it"
    )
    assert main.children.started == []
