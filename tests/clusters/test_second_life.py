"""A queue interrupts a cluster by TERM, and starts the same nodes again later: real agents, and no launcher.

The framework ``held`` is ``plain`` with knobs: a cluster of it is kept in any phase, so all five are seen with it. The
frameworks proper are interrupted while they run: there their own processes, ports and secrets could be in the way of
the next life. What they do in the other phases is the agent's alone: before main's configuration nothing of a framework
has begun; before ready, while ending and while uploading, its start scripts are ended as while they run (seen, too).
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import UNTIL_GO, Project, wait_until
from host_cluster import RANKS, interpreter_of
from queued_nodes import QueuedNodes

from oci_cluster.contract.files.cluster_dir import ClusterDir

# The first test of a framework here may have to make its environment.
pytestmark = pytest.mark.timeout(1800)

ADD_UP = {
    **RANKS,
    "held": "def add_up(): return nodes",
    "dask": """\
from distributed import Client
client = Client()
client.wait_for_workers(nodes - 1)
def add_up(): return len(client.run(lambda: 1)) + 1
""",
}
# All ranks wait after the third step for the file `go`. Who leads writes the checkpoint before.
ENTRY = """\
import os, time
from pathlib import Path
nodes = int(os.environ["WORKER_COUNT"]) + 1
checkpoint = Path(os.environ["OUTPUT_DIR"], "checkpoint")
done = int(checkpoint.read_text()) if checkpoint.exists() else 0
{add_up}
print("life", os.environ["LIFE"], "begins with step", done, flush=True)
while done < 6:
    if done == 3:
        print("step 3 is done", flush=True)
        while not os.path.exists("go"): time.sleep(0.02)
    assert add_up() == nodes
    done += 1
    if os.environ["NODE_NAME"] == "MAIN":
        checkpoint.with_suffix(".new").write_text(str(done))
        checkpoint.with_suffix(".new").rename(checkpoint)
print("trained", flush=True)
{end}
"""
# Else a rank that is a little later finds its peers gone.
END = {"pytorch": "dist.barrier(); dist.destroy_process_group()", "horovod": "hvd.shutdown()"}
HELD_MAIN = """\
#!/usr/bin/env bash
set -Eeuo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../common/start-lib.sh"
while [[ -e "${CODE_DIR}/not-ready" ]]; do sleep 0.02; done
touch "${READY_FILE}"
run_entry_point
"""
HELD_WORKER = """\
#!/usr/bin/env bash
set -Eeuo pipefail
[[ -e "${CODE_DIR}/obstinate" ]] && trap '' TERM
echo "worker works"
while :; do sleep 0.02; done
"""

FRAMEWORKS = ("dask", "pytorch", "tensorflow", "horovod")
Launch = Callable[..., QueuedNodes]


@pytest.fixture(scope="session")
def held(checkout_copy: Path) -> None:
    """Add a framework whose clusters can be held in each phase."""
    folder = checkout_copy / "held"
    folder.mkdir(exist_ok=True)
    for name, text in (("start-master.sh", HELD_MAIN), ("start-worker.sh", HELD_WORKER)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "settings.env").write_text("HELD_PORT=18998\nMIN_WORKERS=1\n")


@pytest.fixture
def launch(checkout_copy: Path, held: None, tmp_path: Path) -> Iterator[Launch]:
    """Return a function that prepares the nodes of a launch."""
    made = []

    def launch(framework: str = "held", workers: int = 2, **environ: str) -> QueuedNodes:
        python = Path(sys.executable) if framework == "held" else interpreter_of(framework)
        nodes = QueuedNodes(checkout_copy, tmp_path, python, framework, workers, **environ)
        # No launcher looks which are free. Tasks' ports are as far apart as addresses: no other cluster here has them.
        nodes.give(TASK_PORT=str(24400 + int(nodes.main_address.rpartition(".")[2])), SSH_PORT="24345")
        nodes.write_entry(ENTRY.format(add_up=ADD_UP[framework], end=END.get(framework, "")))
        made.append(nodes)
        return nodes

    yield launch
    for nodes in made:
        nodes.close()


def comes_to_an_end(nodes: QueuedNodes, *, begins_with: int, life: int = 2) -> None:
    """Start all nodes once more: they end with success, from the checkpoint on."""
    nodes.start()
    for node in nodes.names:
        nodes.wait_for(f"life={life}\n", node)
    (nodes.code / "go").touch()
    assert nodes.end() == dict.fromkeys(nodes.names, 0), nodes.logs()
    assert f"life {life} begins with step {begins_with}\n" in nodes.log(), nodes.logs()
    assert nodes.file("stop")["exit_code"] == 0
    assert nodes.file("MAIN_life.json")["number"] == life


def was_interrupted(nodes: QueuedNodes) -> None:
    """Interrupt all nodes that run: each tells so, and nothing says that the launch is over."""
    nodes.interrupt()
    codes = nodes.end()
    assert set(codes.values()) == {143}, nodes.logs()
    assert not nodes.file("stop")


def before_mains_configuration(nodes: QueuedNodes) -> int:
    """Workers have arrived, and main has not."""
    workers = nodes.names[1:]
    nodes.start(workers)
    for worker in workers:
        nodes.wait_for_file(f"{worker}_arrival.json")
    was_interrupted(nodes)
    return 1


def before_ready(nodes: QueuedNodes) -> int:
    """Main has told where it is, and waits for its start script."""
    (nodes.code / "not-ready").touch()
    nodes.start()
    for node in nodes.names:
        nodes.wait_for_file(f"{node}_config.json")
    was_interrupted(nodes)
    (nodes.code / "not-ready").unlink()
    return 2


def running(nodes: QueuedNodes) -> int:
    """The entry point has left a checkpoint."""
    nodes.start()
    nodes.wait_for("step 3 is done")
    was_interrupted(nodes)
    assert nodes.file("MAIN_exit.json")["reason"].startswith("interrupted: MAIN ")
    assert nodes.file("MAIN_exit.json")["interrupted"] is True
    return 2


@pytest.mark.parametrize("phase", [before_mains_configuration, before_ready, running])
def test_an_interrupted_cluster_begins_clean(launch: Launch, phase: Callable[[QueuedNodes], int]) -> None:
    """As if it were the first time, but for the checkpoint."""
    nodes = launch()
    life = phase(nodes)
    comes_to_an_end(nodes, begins_with=3 if phase is running else 0, life=life)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_resumes_from_its_checkpoint(launch: Launch, framework: str) -> None:
    """Interrupted while all ranks compute, with processes, ports and secrets of its own."""
    nodes = launch(framework, 1 if framework == "tensorflow" else 2)
    running(nodes)
    comes_to_an_end(nodes, begins_with=3)


# --- At the end of a life


def test_nodes_that_are_interrupted_in_their_end_end_as_the_cluster_has(launch: Launch) -> None:
    """Main has succeeded; workers are still ending their scripts. Whoever is started again finds nothing to do."""
    nodes = launch(GRACE_PERIOD="5")
    (nodes.code / "obstinate").touch()
    nodes.start()
    for node in nodes.names[1:]:
        nodes.wait_for("worker works", node)
    (nodes.code / "go").touch()
    for node in nodes.names[1:]:
        nodes.wait_for("ending with 0", node)
    nodes.interrupt()
    assert nodes.end() == dict.fromkeys(nodes.names, 0), nodes.logs()
    nodes.start()
    assert nodes.end() == dict.fromkeys(nodes.names, 0), nodes.logs()
    assert "begins with step" not in nodes.log(), nodes.logs()
    assert nodes.file("MAIN_life.json")["number"] == 1


def test_a_cluster_that_is_killed_begins_clean(launch: Launch) -> None:
    """The queue's grace period was over, or the machines are gone: no node has said anything."""
    nodes = launch(GRACE_PERIOD="1")
    nodes.start()
    nodes.wait_for("step 3 is done")
    for node in nodes.names[1:]:
        nodes.wait_for("life=1", node)
    nodes.interrupt(number=signal.SIGKILL)
    nodes.end()
    nodes.kill_processes()
    comes_to_an_end(nodes, begins_with=3)


def test_a_third_life_goes_on_where_the_second_was_interrupted(launch: Launch) -> None:
    """By TERM each time."""
    nodes = launch()
    running(nodes)
    running(nodes)
    comes_to_an_end(nodes, begins_with=3, life=3)


def test_stop_ends_a_launch_that_waits_for_its_next_life(launch: Launch) -> None:
    """Written while nobody ran, as stop.sh does."""
    nodes = launch()
    running(nodes)
    key = nodes.environ("MAIN")["LAUNCH_KEY"]
    ClusterDir(f"file://{nodes.work_dir}/cluster", nodes.launch_id, key).publish("stop", reason="asked", exit_code=143)
    nodes.start()
    assert nodes.end() == dict.fromkeys(nodes.names, 143), nodes.logs()
    assert "begins with step" not in nodes.log()


# --- Single nodes


def test_a_worker_that_is_interrupted_alone_comes_back(launch: Launch) -> None:
    """To the main that has gone on: the same life."""
    nodes = launch(MIN_WORKERS="2")
    nodes.start()
    for node in nodes.names[1:]:
        nodes.wait_for("worker works", node)
    nodes.wait_for("step 3 is done")
    nodes.interrupt(["WORKER_1"])
    nodes.wait_for("WORKER_1 ended: interrupted")
    nodes.start(["WORKER_1"])
    nodes.wait_for("WORKER_1 is back", "MAIN", start=1)
    (nodes.code / "go").touch()
    assert nodes.end() == dict.fromkeys(nodes.names, 0), nodes.logs()
    assert nodes.file("MAIN_life.json")["number"] == 1


def test_a_main_that_is_interrupted_alone_is_followed_by_its_workers(launch: Launch) -> None:
    """They end their scripts, wait, and begin again with it."""
    nodes = launch()
    nodes.start()
    for node in nodes.names[1:]:
        nodes.wait_for("worker works", node)
    nodes.wait_for("step 3 is done")
    nodes.interrupt(["MAIN"])
    nodes.wait_for("starting again: main was interrupted", "WORKER_1")
    nodes.start(["MAIN"])
    for node in nodes.names[1:]:
        nodes.wait_for("life=2", node, start=1)
    (nodes.code / "go").touch()
    assert nodes.end() == dict.fromkeys(nodes.names, 0), nodes.logs()
    assert "life 2 begins with step 3\n" in nodes.log()


# --- With a launcher


@pytest.mark.parametrize("how", ["entry point", "stop.sh", "TERM"])
def test_a_launch_that_can_be_interrupted_ends_as_others_do(project: Project, how: str) -> None:
    """By its entry point, by stop.sh; by TERM to all agents it ends for the launcher, and not for the launch."""
    launch = project.launch_plain(2, UNTIL_GO, "--env", "INTERRUPTIBLE=1", "--name", "mine")
    launch.wait_for("entry up")
    launch.wait_for("worker works", "WORKER_1")
    if how == "entry point":
        project.go()
    elif how == "stop.sh":
        assert project.run("stop", "mine").returncode == 0
    else:
        for node in launch.nodes().values():
            os.kill(node["pid"], signal.SIGTERM)
    assert launch.wait() == (0 if how == "entry point" else 143), launch.err
    assert (launch.directory / "stop").exists() == (how != "TERM")
    assert json.loads(project.run("status", "--json", "mine").stdout)["exit_code"] == launch.wait()
    launch.assert_nothing_left()


# --- Storage of which nothing is on the node's own disk


@pytest.fixture
def ftp(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Serve files by FTP; yield what a node has to know of it."""
    (tmp_path / "served").mkdir()
    log = tmp_path / "ftp.log"
    command = [sys.executable, "-m", "pyftpdlib", "--interface", "127.0.0.1", "--port", "0", "--write"]
    with log.open("wb") as output:
        server = subprocess.Popen([*command, "--directory", str(tmp_path / "served")], stdout=output, stderr=output)
    try:
        (port,) = wait_until(
            lambda: re.findall(r"starting FTP server on \S+:(\d+),", log.read_text()), "the FTP server"
        )
        # Its client's own 30 s would make a test of each request that gets no answer.
        yield {"WORK_DIR": f"ftp://127.0.0.1:{port}/", "FSSPEC_FTP": json.dumps({"timeout": 2})}
    finally:
        server.kill()
        server.wait()


def test_outputs_come_back_to_a_node_that_has_lost_its_disk(launch: Launch, ftp: dict[str, str]) -> None:
    """The checkpoint of the first life is where the second looks for it; what somebody has added is not."""
    nodes = launch(**ftp)
    nodes.work_dir = nodes.work_dir.parent / "served"
    running(nodes)
    kept = nodes.work_dir / "cluster" / "outputs" / "MAIN"
    assert (kept / "checkpoint").read_text() == "3"
    (kept / "sitecustomize.py").write_text("evil")
    nodes.write_entry(ENTRY.format(add_up=ADD_UP["held"], end="print(sorted(os.listdir(checkpoint.parent)))"))
    comes_to_an_end(nodes, begins_with=3)
    assert "['checkpoint']\n" in nodes.log()
    assert (kept / "checkpoint").read_text() == "6"


def test_a_cluster_that_is_interrupted_while_it_uploads_begins_again(launch: Launch, ftp: dict[str, str]) -> None:
    """It has succeeded, and said so; what it has computed has not arrived. So the success counts for nothing."""
    is_interrupted_while_it_uploads(launch(GRACE_PERIOD="1", **ftp))


def is_interrupted_while_it_uploads(nodes: QueuedNodes) -> None:
    nodes.work_dir = nodes.work_dir.parent / "served"
    nodes.start()
    for node in nodes.names:
        nodes.wait_for("life=1", node)
    nodes.wait_for("step 3 is done")
    # Storage takes main's word, and no outputs.
    in_the_way = nodes.work_dir / "cluster" / "outputs"
    in_the_way.touch()
    (nodes.code / "go").touch()
    nodes.wait_for("uploading outputs")
    wait_until(lambda: nodes.file("stop"), "main's stop file")
    nodes.interrupt()
    nodes.interrupt(number=signal.SIGKILL)
    nodes.end()
    nodes.kill_processes()
    in_the_way.unlink()
    (nodes.code / "go").unlink()
    assert nodes.file("stop")["exit_code"] == 0
    comes_to_an_end(nodes, begins_with=0)
    assert (in_the_way / "MAIN" / "checkpoint").read_text() == "6"


# --- Every framework in the other phases


def has_just_configured(nodes: QueuedNodes) -> int:
    """All start scripts are beginning, and main is not ready."""
    nodes.start()
    for node in nodes.names:
        nodes.wait_for_file(f"{node}_config.json")
    was_interrupted(nodes)
    assert not nodes.file("MAIN_ready.json")
    return 2


@pytest.mark.nightly
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("phase", [before_mains_configuration, has_just_configured])
def test_every_framework_begins_clean(launch: Launch, framework: str, phase: Callable[[QueuedNodes], int]) -> None:
    """Nothing of what it had begun to start is in the way."""
    nodes = launch(framework, 2)
    life = phase(nodes)
    comes_to_an_end(nodes, begins_with=0, life=life)


@pytest.mark.nightly
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_is_over_that_is_interrupted_in_its_end(launch: Launch, framework: str) -> None:
    """It has succeeded, and said so; whoever is started again finds nothing to do."""
    nodes = launch(framework, 2)
    nodes.start()
    nodes.wait_for("step 3 is done")
    (nodes.code / "go").touch()
    nodes.wait_for("ending with 0")
    nodes.interrupt()
    assert nodes.end() == dict.fromkeys(nodes.names, 0), nodes.logs()
    nodes.start()
    assert nodes.end() == dict.fromkeys(nodes.names, 0), nodes.logs()
    assert "begins with step" not in nodes.log(), nodes.logs()


@pytest.mark.nightly
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_framework_begins_again_that_is_interrupted_while_it_uploads(
    launch: Launch, ftp: dict[str, str], framework: str
) -> None:
    is_interrupted_while_it_uploads(launch(framework, 2, GRACE_PERIOD="1", **ftp))
