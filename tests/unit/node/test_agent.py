"""A node's whole life, with an injected clock: other nodes, storage and processes are played by the test."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from unit.fake_cluster import (
    LAUNCH,
    Gang,
    MakeNode,
    Node,
    messages,
    tell_facts,
)

from oci_cluster.contract.names import STOP, config_file, exit_file
from oci_cluster.errors import SettingsError, StorageError
from oci_cluster.node import agent
from oci_cluster.node.agent import Agent
from oci_cluster.node.start import run_agent

# One memory:// for all tests would be longer to list with each.
pytestmark = pytest.mark.usefixtures("empty_memory")


# --- Success and failure of the entry point -------------------------------------------------------------------------


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


def test_nothing_of_it_is_left(make: MakeNode, root: Path) -> None:
    """NODES_DIR and the facts are in the node's private directory."""
    tell_facts(root)
    gang = Gang(make)
    gang.succeeds(at=30, attempt=0)
    assert not list(root.glob(f"{LAUNCH}-*"))


# --- Bad starts -----------------------------------------------------------------------------------------------------


def test_missing_entry_point_ends_main_and_tells_the_workers(root: Path) -> None:
    """Workers do not wait TIMEOUT for a main that cannot start."""
    main = Node(root, ENTRY_POINT="nope.py")
    assert main.run() == 78
    assert "nope.py" in main.read(STOP)["reason"]


def test_files_of_the_cluster_tell_no_password(root: Path) -> None:
    """Who reads the work dir, or the status, is not who may read the repository."""
    main = Node(root, CODE_URI="https://me:hunter2@host/code.tar", CODE_DIR=str(root / "fetched"))
    assert main.run() == 78
    for name in (STOP, exit_file("MAIN")):
        assert "CODE_URI 'https://***@host/code.tar' is neither" in main.read(name)["reason"]


def test_a_folder_that_somebody_has_made_in_a_nodes_place_is_named(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever has seen the id of a launch can make it: no disk is full."""
    main = Node(root)
    main.node_dir.mkdir()
    caplog.set_level("INFO")
    assert main.run() == 78
    assert messages(caplog, f"{main.node_dir} exists already and is not this node's; set TMPDIR")


def test_missing_code_dir_is_named(root: Path) -> None:
    """CODE_DIR must be there before anything runs."""
    assert Node(root, CODE_DIR=str(root / "nope")).run() == 78


def test_bug_is_never_a_success_and_leaves_nothing(main: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever breaks inside, the child is ended, the others are told, 70."""

    def break_down() -> None:
        raise ZeroDivisionError

    main.children.on_start = lambda _: monkeypatch.setattr(main.agent._loop, "run_due", break_down)
    assert main.run() == 70
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

    def run_due(agent: Agent) -> int:
        lived.append(agent)
        return 7

    monkeypatch.setattr("oci_cluster.node.start.read_settings", lambda environ: node.settings if environ else None)
    monkeypatch.setattr("oci_cluster.node.start.Children", lambda: node.children)
    monkeypatch.setattr("oci_cluster.node.start.NodeSignals", lambda **_: node.world)
    monkeypatch.setattr(Agent, "run", run_due)
    assert run_agent(node.environ) == 7
    cluster_dir = lived[0]._loop.cluster_dir
    assert (lived[0]._settings, cluster_dir.url) == (node.settings, node.settings.cluster_url)
    assert (cluster_dir.launch_id, lived[0]._environ) == (LAUNCH, node.environ)


# A process that has all modules already, and an environment and arguments that are another's.
FORKING = """
import json, os, sys
from pathlib import Path
from oci_cluster.contract.settings.node import read_settings
from oci_cluster.node import main, start
from oci_cluster.node.logs import shipper

root, environ = Path(sys.argv[1]), json.loads(sys.argv[2])
start.read_settings = lambda given: read_settings(given, root)
sys.argv[:] = ["another program", "--help"]
os.environ.update(MODE="WORKER", LAUNCH_ID="another", LEAKED="1", PATH="/nowhere", PYTHONPATH="/nowhere")
child = os.fork()
if child == 0:
    os._exit(start.run_agent(environ))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_an_agent_is_what_its_environ_says(root: Path) -> None:
    """Whatever this process was started with: a forked one is a node as any other, and nothing leaks to its script."""
    script = root / "plain" / "start-master.sh"
    script.write_text('#!/bin/sh\necho "from the script"\nenv >"$OUTPUT_DIR/env"\nexit 7\n')
    script.chmod(0o755)
    (root / "tmp").mkdir()
    environ = {
        **Node(root).environ,
        "WORK_DIR": f"file://{root}/work",
        "NODE_LOGS": "1",
        "PATH": "/usr/bin:/bin",
        "TMPDIR": str(root / "tmp"),
    }
    done = subprocess.run(
        [sys.executable, "-c", FORKING, str(root), json.dumps(environ)],
        env={**os.environ, "TMPDIR": environ["TMPDIR"], "PYTHONPATH": str(Path(agent.__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, "from the script\n"), done.stderr
    given = dict(line.split("=", 1) for line in (root / "out" / "env").read_text().splitlines())
    assert (given["MODE"], given["LAUNCH_ID"], given["PATH"]) == ("MAIN", LAUNCH, environ["PATH"])
    assert given["PYTHONPATH"] == environ["CODE_DIR"]
    assert "LEAKED" not in given
    (part,) = (root / "work" / "c" / "logs").iterdir()
    assert re.fullmatch(r"20\S+Z from the script\n\nsigned [0-9a-f]{64}\n", part.read_text())
    assert list((root / "tmp").iterdir()) == []


def test_agent_does_not_start_with_bad_settings() -> None:
    """All that is wrong is said in one message before anything happens."""
    with pytest.raises(SettingsError, match=r"MODE is not set.*WORKER_COUNT.*WORK_DIR.*LAUNCH_ID"):
        run_agent({"FRAMEWORK": "dask"})


def test_code_is_fetched_before_anything_is_published(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CODE_URI goes to CODE_DIR."""
    fetched: list[tuple[str, Path]] = []

    def fetch(uri: str, target: Path, *, environ: Mapping[str, str]) -> None:
        assert environ is main.environ
        fetched.append((uri, target))
        target.mkdir()
        (target / "train.py").touch()

    monkeypatch.setattr("oci_cluster.node.begin.code.fetch_code", fetch)
    main = Node(root, CODE_URI="git+file:///x@main", CODE_DIR=str(root / "fetched"))
    main.child_ends(0, at=1)
    assert main.run() == 0
    assert fetched == [("git+file:///x@main", root / "fetched")]


@pytest.mark.parametrize("failures", [0, 3, 10**6])
def test_storage_that_does_not_answer_is_asked_for_the_code_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """A request that fails is no answer; after TIMEOUT it is the node's end, with what was said last."""
    asked: list[str] = []

    def fetch(uri: str, target: Path, *, environ: Mapping[str, str]) -> None:
        asked.append(uri)
        if len(asked) <= failures:
            raise StorageError("CODE_URI x: 503")
        target.mkdir()
        (target / "train.py").touch()

    monkeypatch.setattr("oci_cluster.node.begin.code.fetch_code", fetch)
    main = Node(root, CODE_URI="git+file:///x@main", CODE_DIR=str(root / "fetched"), TIMEOUT="60")
    if failures < 10:
        main.child_ends(0, at=50)
        assert main.run() == 0
        assert len(asked) == failures + 1
    else:
        assert main.run() == 69
        assert main.read("stop")["reason"] == "CODE_URI x: 503"


# --- Where the service starts all nodes -----------------------------------------------------------------------------


@pytest.fixture
def interfaces(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    found = {"lo": ["127.0.0.1"], "eth0": ["10.0.0.7"], "eth1": ["192.168.0.7"]}
    monkeypatch.setattr("oci_cluster.node.agent.local_addresses", lambda: found)
    return found


def test_the_address_is_the_one_that_the_service_tells(root: Path, interfaces: dict[str, list[str]]) -> None:
    """Its file appears late and grows: it is waited for. Its ranks may begin anew in each group."""
    path = root / "nodes.json"
    node = Node(root, NODE_ADDRESS="", CLUSTER_NODES_METADATA_FILE=str(path), SUBNET_CIDR="10.9.0.0/16")
    node.world.at(3, lambda: path.write_text("["))
    node.world.at(6, lambda: path.write_text('[{"Rank": 0, "IPAddress": "10.0.0.8"}]'))
    node.world.at(
        9, lambda: path.write_text('[{"Rank": 0, "IPAddress": "10.0.0.8"}, {"Rank": 0, "IPAddress": "10.0.0.7"}]')
    )
    node.child_ends(0, at=30)
    assert node.run() == 0
    assert node.children.environ()["NODE_ADDRESS"] == "10.0.0.7"
    assert node.read(config_file("MAIN"))["address"] == "10.0.0.7"


def test_an_address_that_the_service_never_tells_is_not_waited_for_for_ever(
    root: Path, interfaces: dict[str, list[str]]
) -> None:
    """After half of TIMEOUT, the node takes its only one; one that has several says so (78)."""
    node = Node(root, NODE_ADDRESS="", CLUSTER_NODES_METADATA_FILE=str(root / "none.json"))
    assert node.run() == 78
    assert "seen: lo 127.0.0.1, eth0 10.0.0.7, eth1 192.168.0.7" in node.read(exit_file("MAIN"))["reason"]
    del interfaces["eth1"]
    node = Node(root, NODE_ADDRESS="", CLUSTER_NODES_METADATA_FILE=str(root / "none.json"), LAUNCH_ID="launch2")
    node.child_ends(0, at=400)
    assert node.run() == 0
    assert node.children.environ()["NODE_ADDRESS"] == "10.0.0.7"


def test_an_address_that_is_given_is_taken(root: Path) -> None:
    """Whatever the service tells."""
    node = Node(root, CLUSTER_NODES_METADATA_FILE=str(root / "none.json"))
    node.child_ends(0, at=1)
    assert node.run() == 0
    assert node.children.environ()["NODE_ADDRESS"] == "10.0.0.1"


@pytest.mark.parametrize(
    ("given", "environ"),
    [
        ({}, {"LISTEN_ADDRESS": "10.0.0.1", "EXPOSED_PORTS": ""}),
        ({"EXPOSE": "6006,9000"}, {"LISTEN_ADDRESS": "10.0.0.1", "EXPOSED_PORTS": "6006 9000"}),
        ({"OWN_NETWORK": "1"}, {"LISTEN_ADDRESS": "0.0.0.0", "EXPOSED_PORTS": ""}),  # noqa: S104 - no socket
    ],
)
def test_servers_of_the_user_listen_where_they_are_reached(
    root: Path, given: dict[str, str], environ: dict[str, str]
) -> None:
    """On this node's address; on all of a network that is its own."""
    node = Node(root, NODE_ADDRESS="10.0.0.1", **given)
    node.child_ends(0, at=3)
    assert node.run() == 0
    assert {name: node.children.environ()[name] for name in environ} == environ
