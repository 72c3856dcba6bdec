"""A queue interrupts a cluster by TERM, and starts the same nodes again later: real agents, and no launcher.

The framework ``held`` is ``plain`` with knobs: a cluster of it is kept in any phase, so all five are seen with it. The
frameworks proper are interrupted while they run: there their own processes, ports and secrets could be in the way of
the next life. What they do in the other phases is the agent's alone: before main's configuration nothing of a framework
has begun; before ready, while ending and while uploading, its start scripts are ended as they are while running.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from host_cluster import RANKS, interpreter_of
from queued_nodes import QueuedNodes

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
        nodes.write_entry(ENTRY.format(add_up=ADD_UP[framework], end=END.get(framework, "")))
        made.append(nodes)
        return nodes

    yield launch
    for nodes in made:
        nodes.kill_all()


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


@pytest.mark.parametrize("framework", ["dask", "pytorch", "tensorflow", "horovod"])
def test_every_framework_resumes_from_its_checkpoint(launch: Launch, framework: str) -> None:
    """Interrupted while all ranks compute, with processes, ports and secrets of its own."""
    nodes = launch(framework, 1 if framework == "tensorflow" else 2)
    running(nodes)
    comes_to_an_end(nodes, begins_with=3)
