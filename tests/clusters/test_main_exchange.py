"""A work dir in the memory of main: real agents, as processes of this machine, and no storage that they share."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import SLEEP, UNTIL_GO, listening_of, wait_until
from port_table import read_table
from queued_nodes import QueuedNodes

from oci_cluster.contract.files.cluster_dir import ClusterDir

Launch = Callable[..., QueuedNodes]
FAILS = "import sys; print('entry up', flush=True); raise ValueError('bad row 7')"
SEVEN = "import sys; print('entry up', flush=True); sys.exit(7)"


def free_port(address: str) -> int:
    with socket.socket() as found:
        found.bind((address, 0))
        return int(found.getsockname()[1])


class Nodes(QueuedNodes):
    """Nodes that have an index alone, and main's address."""

    def __init__(self, project: Path, scratch: Path, framework: str, workers: int, **environ: str) -> None:
        given = {"INTERRUPTIBLE": "0", "GRACE_PERIOD": "2", **environ}
        super().__init__(project, scratch, Path(sys.executable), framework, workers, **given)
        address = self.environ("MAIN")["NODE_ADDRESS"]
        self.port = free_port(address)
        for index, node in enumerate(self.names):
            own = self.environ(node)
            own |= {
                "WORK_DIR": f"main://{address}:{self.port}",
                "JOB_COMPLETION_INDEX": str(index),
                "TERMINATION_LOG": str(scratch / f"{node}.last"),
                **{name: text for name, text in environ.items() if name == "WORK_DIR"},
            }
            del own["MODE"], own["NODE_RANK"]
        self._scratch = scratch

    def last_words(self, node: str) -> dict[str, dict[str, Any]]:
        """Return the files that a node has told at its end, as who has the key reads them."""
        return self.checked((self._scratch / f"{node}.last").read_text().splitlines())

    def checked(self, lines: list[str]) -> dict[str, dict[str, Any]]:
        """Return the signed files in *lines*, by name."""
        folder = self._scratch / "told"
        folder.mkdir(exist_ok=True)
        key = self.environ("MAIN")["LAUNCH_KEY"]
        found = {}
        for line in lines:
            name, _, text = line.partition(" ")
            (folder / name).write_text(text)
            fields = ClusterDir(f"file://{folder}", self.launch_id, key).read(name)
            assert fields is not None, f"{name} is not signed: {text}"
            found[name] = fields
        return found

    def told(self) -> dict[str, dict[str, Any]]:
        """Return the files that main has told in its log."""
        return self.checked([line[5:] for line in self.log().splitlines() if line.startswith("told ")])

    def kill(self, node: str) -> None:
        """Kill a node with all that is its own, as the end of a machine does."""
        agent = psutil.Process(self._agents[node].pid)
        for process in [agent, *agent.children(recursive=True)]:
            process.kill()


@pytest.fixture
def launch(checkout_copy: Path, tmp_path: Path) -> Iterator[Launch]:
    """Return a function that prepares the nodes of a launch."""
    made: list[Nodes] = []

    def launch(entry: str, framework: str = "plain", workers: int = 2, **environ: str) -> Nodes:
        nodes = Nodes(checkout_copy, tmp_path, framework, workers, **environ)
        nodes.write_entry(entry)
        made.append(nodes)
        return nodes

    yield launch
    for nodes in made:
        nodes.close()


def test_a_cluster_without_storage_comes_to_its_end(launch: Launch) -> None:
    """Nodes find their roles, main is ready when all have come, all end with 0; and nobody has a work dir."""
    saves = "import os, pathlib; pathlib.Path(os.environ['OUTPUT_DIR'], 'model').touch()"
    nodes = launch(f"{UNTIL_GO}{saves}; print('trained', flush=True)", workers=3)
    nodes.start(reversed(nodes.names))
    nodes.wait_for("told MAIN_ready.json")
    (nodes.code / "go").touch()
    assert nodes.end() == dict.fromkeys(nodes.names, 0), nodes.logs()
    assert "trained\n" in nodes.log()
    assert list(nodes.work_dir.iterdir()) == []
    assert "WARNING" not in nodes.log("WORKER_1")
    assert "files in OUTPUT_DIR go with this node, as WORK_DIR keeps none: 1" in nodes.log()
    assert nodes.told()["MAIN_ready.json"]["facts"] == {"greeting": "hello"}
    assert nodes.last_words("MAIN")["stop"]["exit_code"] == 0
    assert nodes.last_words("WORKER_3")["WORKER_3_exit.json"]["exit_code"] == 0


@pytest.mark.parametrize(
    ("framework", "entry", "code", "reason"),
    [
        ("plain", SEVEN, 7, "exit code 7"),
        ("gang", FAILS, 1, "ValueError: bad row 7"),
    ],
)
def test_a_failure_comes_out_of_all_nodes_with_its_reason(
    launch: Launch, framework: str, entry: str, code: int, reason: str
) -> None:
    """The code is the entry point's own, on every node; main serves its last word until they have read it."""
    nodes = launch(entry, framework)
    nodes.start()
    assert nodes.end() == dict.fromkeys(nodes.names, code), nodes.logs()
    for node in nodes.names:
        assert reason in nodes.last_words(node)[f"{node}_exit.json"]["reason"], nodes.logs()
    assert "had not left" not in nodes.log()


def test_who_loses_main_ends_with_76(launch: Launch) -> None:
    """Main is killed: nobody answers there any more, and that is main's silence."""
    nodes = launch(SLEEP, HEARTBEAT_TIMEOUT="6")
    nodes.start()
    nodes.wait_for("entry up")
    for node in ("WORKER_1", "WORKER_2"):
        nodes.wait_for("worker works", node)
    nodes.kill("MAIN")
    codes = nodes.end()
    assert codes == {"MAIN": -signal.SIGKILL, "WORKER_1": 76, "WORKER_2": 76}, nodes.logs()
    assert "main lost: no answer for" in nodes.last_words("WORKER_1")["WORKER_1_exit.json"]["reason"]


def test_a_lost_worker_is_not_waited_for(launch: Launch) -> None:
    """The cluster ends as anywhere: 76 where it cannot do without that node."""
    nodes = launch(SLEEP, MIN_WORKERS="2", HEARTBEAT_TIMEOUT="6")
    nodes.start()
    for node in ("WORKER_1", "WORKER_2"):
        nodes.wait_for("worker works", node)
    nodes.kill("WORKER_2")
    codes = nodes.end()
    assert (codes["MAIN"], codes["WORKER_1"]) == (76, 76), nodes.logs()
    assert "WORKER_2 lost" in nodes.last_words("MAIN")["stop"]["reason"]


def test_term_to_main_ends_the_cluster(launch: Launch) -> None:
    """Main goes on serving until the others know."""
    nodes = launch(SLEEP)
    nodes.start()
    for node in ("WORKER_1", "WORKER_2"):
        nodes.wait_for("worker works", node)
    nodes.interrupt(["MAIN"])
    assert nodes.end() == dict.fromkeys(nodes.names, 143), nodes.logs()


def test_a_worker_without_main_says_where_it_has_looked(launch: Launch) -> None:
    """75, after TIMEOUT; of many tries its log has the first, and the last as the reason."""
    nodes = launch(SLEEP, TIMEOUT="3")
    nodes.start(["WORKER_1"])
    assert nodes.end() == {"WORKER_1": 75}, nodes.logs()
    reason = nodes.last_words("WORKER_1")["WORKER_1_exit.json"]["reason"]
    assert f":{nodes.port}: Connection refused" in reason
    assert nodes.log("WORKER_1").count("refused") == 2, nodes.log("WORKER_1")


def test_a_port_that_is_taken_ends_main(launch: Launch) -> None:
    """With what to do about it."""
    nodes = launch(SLEEP)
    with socket.socket() as taken:
        taken.bind((nodes.environ("MAIN")["NODE_ADDRESS"], nodes.port))
        taken.listen()
        nodes.start(["MAIN"])
        assert nodes.end() == {"MAIN": 69}, nodes.logs()
    assert "set another one in WORK_DIR" in nodes.last_words("MAIN")["stop"]["reason"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_main_that_is_started_again_begins_another_life(launch: Launch, number: int) -> None:
    """The others wait for it, join it, and end with its success: whether it could say goodbye or not."""
    nodes = launch(UNTIL_GO, INTERRUPTIBLE="1")
    nodes.start()
    for node in ("WORKER_1", "WORKER_2"):
        nodes.wait_for("worker works", node)
    nodes.wait_for("entry up")
    first = nodes.told()["MAIN_life.json"]["life"]
    if number == signal.SIGTERM:
        nodes.interrupt(["MAIN"])
        for node in ("WORKER_1", "WORKER_2"):
            nodes.wait_for("main was interrupted", node)
    else:
        nodes.kill("MAIN")
    nodes.start(["MAIN"])
    nodes.wait_for("entry up")
    assert nodes.told()["MAIN_life.json"]["life"] != first
    for node in ("WORKER_1", "WORKER_2"):
        wait_until(lambda node=node: nodes.log(node).count("worker works") == 2, nodes.logs)
    (nodes.code / "go").touch()
    assert nodes.end() == dict.fromkeys(nodes.names, 0), nodes.logs()


def test_an_interrupted_cluster_begins_again(launch: Launch) -> None:
    """All nodes get TERM, and are started again later: nothing is left of the life before."""
    nodes = launch(UNTIL_GO, "gang", INTERRUPTIBLE="1")
    nodes.start()
    for node in nodes.names:
        nodes.wait_for("entry up", node)
    nodes.interrupt()
    assert nodes.end() == dict.fromkeys(nodes.names, 143), nodes.logs()
    assert nodes.last_words("MAIN")["MAIN_exit.json"]["interrupted"] is True
    assert "stop" not in nodes.last_words("MAIN")
    nodes.start()
    for node in nodes.names:
        nodes.wait_for("entry up", node)
    (nodes.code / "go").touch()
    assert nodes.end() == dict.fromkeys(nodes.names, 0), nodes.logs()


def test_main_listens_on_its_port_and_nobody_else_on_anything(launch: Launch) -> None:
    """As the row of the table of ports in docs/network.md says that is about any framework."""
    (row,) = [row for row in read_table() if row.framework == "any"]
    assert (row.roles, row.program, row.when, row.address) == (("MAIN",), "agent", "with main://", "the node's")
    nodes = launch(UNTIL_GO)
    nodes.start()
    for node in ("WORKER_1", "WORKER_2"):
        nodes.wait_for("worker works", node)
    nodes.wait_for("entry up")
    found = {(address, port) for _, address, port in listening_of(nodes.launch_id)}
    assert found == {(nodes.environ("MAIN")["NODE_ADDRESS"], nodes.port)}
    (nodes.code / "go").touch()
    assert nodes.end() == dict.fromkeys(nodes.names, 0), nodes.logs()


def test_a_stranger_holds_nothing_up(launch: Launch) -> None:
    """Connections that say nothing, half a message and nonsense, from before the others have come."""
    nodes = launch(UNTIL_GO, MIN_WORKERS="2")
    nodes.start(["MAIN"])
    address = (nodes.environ("MAIN")["NODE_ADDRESS"], nodes.port)
    nodes.wait_for("entry up")
    with contextlib.ExitStack() as stack:
        for said in (b"", b"half", b"x" * 5000) * 100:
            guest = stack.enter_context(socket.create_connection(address, 10))
            with contextlib.suppress(OSError):
                guest.sendall(said)
        nodes.start(["WORKER_1", "WORKER_2"])
        for node in ("WORKER_1", "WORKER_2"):
            nodes.wait_for("worker works", node)
        (nodes.code / "go").touch()
        assert nodes.end() == dict.fromkeys(nodes.names, 0), nodes.logs()


def test_thirty_nodes(launch: Launch) -> None:
    """All join one main, and all have its word."""
    nodes = launch("print('trained', flush=True); raise SystemExit(7)", workers=29, MIN_WORKERS="29")
    nodes.start()
    assert nodes.end() == dict.fromkeys(nodes.names, 7), nodes.logs()
    assert json.dumps(nodes.last_words("WORKER_29")).count("exit code 7") == 1
