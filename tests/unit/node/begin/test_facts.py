"""The script that tells a node's facts, which others find in its configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.fake_cluster import (
    MakeNode,
    Node,
    tell_facts,
)
from unit.fake_follower import Follower

from oci_cluster.contract.names import STOP, config_file

# One memory:// for all tests would be longer to list with each.
pytestmark = pytest.mark.usefixtures("empty_memory")


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
