"""Real Horovod clusters: both frameworks, whose code counts, who gets in by ssh, nodes that go and come."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from harness import PATIENCE_S, Launch, Project, listening_of, processes_of, wait_until

# The first test here may have to compile Horovod.
pytestmark = pytest.mark.timeout(1800)

# A script as people write it: it knows nothing of this project.
INIT = """
import os, sys, time
import torch
import horovod.torch as hvd
hvd.init()
print("rank", hvd.rank(), "of", hvd.size(), sys.argv[1:], flush=True)
"""
UNTIL_GO = INIT + "while not os.path.exists('go'): time.sleep(0.05)\n"
# Ranks meet in a step until rank 0 sees `go`.
ELASTIC = """
import os, time
import torch
import horovod.torch as hvd
hvd.init()

@hvd.elastic.run
def train(state):
    print("training", "rank", hvd.rank(), "of", hvd.size(), flush=True)
    while not hvd.broadcast(torch.tensor(int(os.path.exists("go"))), 0, name="go"):
        state.step += 1
        time.sleep(0.05)
        state.commit()

state = hvd.elastic.TorchState(step=0)
train(state)
print("trained", state.step > 10, hvd.size(), flush=True)
"""


def launch_horovod(project: Project, workers: str, *arguments: str) -> Launch:
    return project.launch("horovod", workers, *arguments)


@pytest.fixture(scope="session")
def horovod_python(checkout_copy: Path) -> Path:
    """Return the interpreter of the Horovod environment, which the first launch makes."""
    return checkout_copy / ".venv" / "envs" / "horovod" / "bin" / "python"


def alone(python: Path, project: Project, framework: str) -> dict[str, float]:
    """Return the example's result from one rank, without a cluster."""
    outputs = project.scratch.parent / "alone"
    outputs.mkdir()
    environ = {**project.environ, "HOROVOD_FRAMEWORK": framework, "OUTPUT_DIR": str(outputs), "OMP_NUM_THREADS": "1"}
    script = project.path / "horovod" / "example" / "train.py"
    subprocess.run([python, script], env={**environ, "TF_CPP_MIN_LOG_LEVEL": "2"}, check=True, timeout=PATIENCE_S)
    return dict(json.loads((outputs / "result.json").read_text()))


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_example_gives_the_same_result_on_three_nodes_as_on_one(
    project: Project, horovod_python: Path, framework: str
) -> None:
    """What a newcomer sees: every epoch's loss and accuracy, from rank 0, and a model that has learned."""
    launch = launch_horovod(project, "2", "--env", f"HOROVOD_FRAMEWORK={framework}")
    assert launch.wait(1700) == 0
    epochs = re.findall(r"MAIN     \| epoch +\d+  loss [\d.]+  test accuracy [\d.]+  ranks 3\n", launch.out)
    assert len(epochs) == 12
    result = json.loads((launch.directory / "outputs" / "result.json").read_text())
    assert result["accuracy"] > 0.95
    one = alone(horovod_python, project, framework)
    assert result["loss"] == pytest.approx(one["loss"], rel=0.01)
    assert result["accuracy"] == pytest.approx(one["accuracy"], abs=0.01)
    launch.assert_nothing_left()


@pytest.mark.parametrize(("rank", "node", "code"), [(0, "MAIN", 7), (1, "WORKER_1", 9)])
def test_code_of_the_rank_that_failed_is_the_clusters(project: Project, rank: int, node: str, code: int) -> None:
    """The others lose it in the middle of a step, and end with codes of their own. Arguments arrive as they are."""
    step = f"hvd.rank() == {rank} and sys.exit({code})\nhvd.allreduce(torch.ones(1))\n"
    entry = project.write("codes.py", INIT + step)
    launch = launch_horovod(project, "1", "--entry", entry, "--", "a", "b c", "d'e")
    assert launch.wait(PATIENCE_S) == code
    assert f"ended with {code} (rank {rank} on {node} ended: exit code {code})" in launch.err
    assert {record["exit_code"] for record in launch.nodes().values()} == {code}
    for number, where in enumerate(("MAIN", "WORKER_1")):
        assert f"rank {number} of 2 ['a', 'b c', \"d'e\"]\n" in launch.log(where)
    launch.assert_nothing_left()


def test_words_of_the_rank_that_failed_are_the_clusters(project: Project) -> None:
    """On whichever node: here on the last, whose peers lose it, and end with errors of their own."""
    step = "if hvd.rank() == 2:\n    raise ValueError('bad row 7')\nhvd.allreduce(torch.ones(1))\n"
    launch = launch_horovod(project, "2", "--entry", project.write("words.py", INIT + step))
    assert launch.wait(PATIENCE_S) == 1
    line = len(INIT.splitlines()) + 2
    words = f"WORKER_2: ValueError: bad row 7 (words.py:{line}); rank 2 on WORKER_2 ended: exit code 1"
    assert f"ended with 1 ({words})" in launch.err
    # Once in the log of its own node, and in no other.
    said = [launch.log(node).count("ValueError: bad row 7\n") for node in ("MAIN", "WORKER_1", "WORKER_2")]
    assert said == [0, 0, 1]
    launch.assert_nothing_left()


def test_rank_that_hangs_is_named_after_the_stall_timeout(project: Project) -> None:
    """Horovod sees that rank 2 does not come, and ends the others; by its message and ours people find the node."""
    hang = "hvd.rank() == 2 and time.sleep(1000)\nhvd.allreduce(torch.ones(1), name='step')\n"
    settings = ["--env", "HOROVOD_STALL_CHECK_TIME_SECONDS=2", "--env", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=3"]
    launch = launch_horovod(project, "2", "--entry", project.write("hang.py", INIT + hang), *settings)
    assert launch.wait(PATIENCE_S) == 1
    assert "rank 2 on WORKER_2 had not ended" in launch.err
    assert re.search(r"Missing ranks:\s+(MAIN +\| )?2!", launch.out)
    launch.assert_nothing_left()


def test_worker_that_is_killed_ends_a_static_job_with_76_and_its_name(project: Project) -> None:
    """Soon, not after HEARTBEAT_TIMEOUT."""
    timeout = ["--env", "HEARTBEAT_TIMEOUT=600"]
    launch = launch_horovod(project, "2", "--entry", project.write("go.py", UNTIL_GO), *timeout)
    launch.wait_for("rank 2 of 3", "WORKER_2")
    launch.kill_agent("WORKER_2")
    assert launch.wait(PATIENCE_S) == 76
    assert "ended with 76 (WORKER_2 was lost, with rank 2)" in launch.err
    launch.assert_nothing_left()


# Asks a worker's server for things, as somebody who reaches its port.
STRANGER = """
import asyncio, json, sys
launcher = sys.argv[1]
sys.path[:0] = [launcher, launcher + "/../../common"]
import asyncssh
from ssh import Link
from nodes import read_node, read_options
from pathlib import Path

worker, key_file, port = read_node(Path(sys.argv[2])), sys.argv[3], int(sys.argv[4])

known = ([asyncssh.import_public_key(worker.key)], [], [])

def connect(key):
    options = {"config": None, "username": "horovod", "client_keys": [key], "known_hosts": known}
    return asyncssh.connect(worker.address, port, **options)

async def run(connection, command, **environ):
    try:
        code = (await connection.run(command, env=environ)).exit_status
    except OSError:  # it does not even listen
        code = 2
    return "refused" if code == 2 else code

async def ask():
    said = {}
    try:
        await connect(asyncssh.generate_private_key("ssh-ed25519"))
    except asyncssh.PermissionDenied:
        said["another key"] = "refused"
    async with await connect(key_file) as connection:
        said["a command"] = await run(connection, "id", HOROVOD_LOCAL_SIZE="1")
        said["a shell"] = await run(connection, None, HOROVOD_LOCAL_SIZE="1")
        said["a rank's LD_PRELOAD"] = await run(connection, "rank", HOROVOD_LOCAL_SIZE="1", LD_PRELOAD="x.so")
        try:
            await connection.open_connection("127.0.0.1", 22)
        except asyncssh.ChannelOpenError:
            said["a forwarded connection"] = "refused"
    another = worker.__class__(worker.name, worker.address, worker.key[:-6] + "AAAAAA", 1)
    link = Link(another, read_options({"SSH_PORT": str(port)}), asyncssh.read_private_key(key_file))
    while link.problem == "no answer yet":
        await asyncio.sleep(0.05)
    said["another host key"] = link.problem
    print(json.dumps(said))

asyncio.run(ask())
"""


def test_ssh_lets_main_start_ranks_and_nobody_do_anything_else(project: Project, horovod_python: Path) -> None:
    """Who reaches the port gets nothing; who has main's key gets ranks; a worker that is not who it was is not used.

    And what ranks are given by --env is on no command line, where all users of a machine could read it.
    """
    token = "what-no-one-may-see"  # noqa: S105 - it is none
    launch = launch_horovod(project, "1", "--entry", project.write("go.py", UNTIL_GO), "--env", f"TOKEN={token}")
    launch.wait_for("rank 1 of 2", "WORKER_1")
    assert len(processes_of(launch.launch_id, command=lambda command: "go.py" in " ".join(command))) == 2
    for secret in (token, "SECRET"):
        assert not processes_of(launch.launch_id, command=lambda command, secret=secret: secret in " ".join(command))

    directory = project.temporary / f"{launch.launch_id}-MAIN"
    stranger = project.path.parent / "stranger.py"
    stranger.write_text(STRANGER)
    arguments = [project.path / "horovod" / "launcher", directory / "nodes" / "WORKER_1", directory / "ssh_key"]
    done = subprocess.run(
        [horovod_python, stranger, *arguments, str(launch.ports()["SSH_PORT"])],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "another key": "refused",
        "a command": "refused",
        "a shell": "refused",
        "a rank's LD_PRELOAD": "refused",
        "a forwarded connection": "refused",
        "another host key": "its host key is not the one that it has published",
    }
    listening = listening_of(launch.launch_id, lambda command: "launcher" in " ".join(command))
    own = [("MAIN", launch.ports()["RENDEZVOUS_PORT"]), ("WORKER_1", launch.ports()["SSH_PORT"])]
    assert sorted((node, port) for node, _, port in listening) == own
    assert {address.startswith("127.") for _, address, _ in listening} == {True}

    launch.interrupt()
    assert launch.wait() == 143
    launch.assert_nothing_left()


def wait_for_sizes(launch: Launch, *sizes: int, patience_s: float = PATIENCE_S) -> None:
    """Return when training has begun with so many ranks, one number for each change; ranks may be told of one twice."""

    def have_come() -> bool:
        assert launch.process.poll() is None, launch.out
        begun = re.findall(r"training rank \d+ of (\d+)", launch.log("MAIN"))
        return [int(size) for size, _ in itertools.groupby(begun)] == [*sizes]

    wait_until(have_come, f"{sizes} ranks", patience_s)


def test_elastic_job_goes_on_as_nodes_are_killed_replaced_added_and_ended(project: Project) -> None:
    """One job from beginning to end; each change is in effect in seconds, and what was trained is kept."""
    entry = project.write("elastic.py", ELASTIC)
    launch = launch_horovod(project, "2", "--entry", entry, "--env", "MIN_NP=2")
    wait_for_sizes(launch, 3)
    name = re.search(r"cluster (\S+) started", launch.err)[1]  # type: ignore[index]

    launch.kill_agent("WORKER_1")
    wait_for_sizes(launch, 3, 2)
    assert project.run("scale", name, "+1").stdout == "2\n"
    wait_for_sizes(launch, 3, 2, 3)
    assert project.run("scale", name, "+1").stdout == "3\n"
    wait_for_sizes(launch, 3, 2, 3, 4)
    assert project.run("scale", name, "-1").stdout == "2\n"
    wait_for_sizes(launch, 3, 2, 3, 4, 3)
    assert "WORKER_3 has left the job" in launch.log("MAIN")

    project.go()
    assert launch.wait(PATIENCE_S) == 0
    assert "MAIN     | trained True 3\n" in launch.out
    launch.assert_nothing_left()


def test_rank_of_a_worker_that_leaves_has_its_say_within_a_short_grace_period(project: Project) -> None:
    """It never commits, so the job does not let it go: its node ends it after 4.8 s of 8, before the agent kills it."""
    say = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(print('saved')))\n"
    entry = project.write("deaf.py", UNTIL_GO.replace("while", f"{say}print('training', flush=True)\nwhile"))
    launch = launch_horovod(project, "1", "--entry", entry, "--env", "MIN_NP=1", "--env", "GRACE_PERIOD=8")
    launch.wait_for("training", "WORKER_1")
    os.kill(launch.nodes()["WORKER_1"]["pid"], signal.SIGTERM)
    launch.wait_for("saved", "WORKER_1")
    launch.interrupt()
    assert launch.wait() == 143
    launch.assert_nothing_left()


# Horovod's elastic driver as this project has it, with hosts that the script decides about and ranks that do nothing.
DRIVER = """
import sys, threading, time
launcher = sys.argv[1]
sys.path[:0] = [launcher, launcher + "/../../common"]
from elastic import Driver

class Rendezvous:
    init = stop = lambda *_: None

class Rank0:
    def __init__(self):
        self.heard = []
    def notify_hosts_updated(self, moment, update):
        self.heard.append(update.name)

def wait_for(condition):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

hosts = {"MAIN": 1, **{f"WORKER_{rank}": 1 for rank in range(1, 9)}}
driver = Driver(Rendezvous(), lambda: dict(hosts), 1, None, timeout=20)
driver.wait_for_available_slots(9)
driver.start(9, lambda slot, events: (threading.Event().wait(), (0, 0))[1])
print(list(driver.host_assignments))

hosts["WORKER_9"] = 1  # while rank 0 does not listen yet
wait_for(lambda: "WORKER_9" in driver._host_manager.current_hosts.host_slots)
rank_0 = driver._worker_clients["MAIN", 0] = Rank0()
wait_for(lambda: len(rank_0.heard) > 1)  # the first may have come while ranks started again
del hosts["WORKER_9"], hosts["WORKER_8"]
count = len(rank_0.heard)
wait_for(lambda: len(rank_0.heard) > count + 1)
print(set(rank_0.heard))
"""


def test_elastic_driver_tells_ranks_until_they_have_heard_and_gives_low_ranks_to_old_nodes(
    checkout_copy: Path, horovod_python: Path, tmp_path: Path
) -> None:
    """Horovod's own says it once, to nobody if nobody listens yet, and orders hosts at random."""
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    command = [horovod_python, script, checkout_copy / "horovod" / "launcher"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    hosts = ["MAIN", *(f"WORKER_{rank}" for rank in range(1, 9))]
    assert done.stdout == f"{hosts}\n{{'mixed'}}\n", done.stderr


def test_framework_that_horovod_was_not_built_for_is_refused(project: Project) -> None:
    """Before anything is started: 78, and what there is."""
    launch = launch_horovod(project, "1", "--env", "HOROVOD_FRAMEWORK=mxnet")
    assert launch.wait(PATIENCE_S) == 78
    assert "HOROVOD_FRAMEWORK: 'mxnet' is not one of pytorch, tensorflow" in launch.err
    assert not project.cluster_dirs()
