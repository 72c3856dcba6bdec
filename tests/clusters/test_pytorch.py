"""Real PyTorch clusters: the example, users' scripts, exit codes, hangs, lost ranks and lost nodes, launchers."""

from __future__ import annotations

import ast
import ipaddress
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import PATIENCE_S, Launch, Project, listening_of, processes_of, wait_until

# As a user writes it who has only ever known torchrun. Ranks do what is asked of them, in step 3 of a first attempt. Of
# the 15 s after which others give up, the start is no part: on a busy machine a rank begins as much later than another.
TRAIN = """
import datetime, os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
steps = dist.new_group(timeout=datetime.timedelta(seconds=15))
rank, world = dist.get_rank(), dist.get_world_size()
print(f"rank {rank} of {world} on {os.environ['NODE_NAME']}:", sys.argv[1:], flush=True)
for step in range(6):
    total = torch.ones(1)
    dist.all_reduce(total, group=steps)
    assert total.item() == world
    if step == 3:
        exec(os.environ.get(f"RANK_{rank}", ""))
dist.destroy_process_group()
print(f"rank {rank} has ended", flush=True)
"""
# Trains until the file `go` is there, in steps that show who takes part.
UNTIL_GO = """
import os, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print(f"start: rank {dist.get_rank()} of {dist.get_world_size()}", flush=True)
go = torch.zeros(1)
while not go.item():
    go = torch.tensor([float(os.path.exists("go"))])
    dist.all_reduce(go, op=dist.ReduceOp.MIN)
    time.sleep(0.05)
dist.destroy_process_group()
"""


@pytest.fixture(scope="session")
def torch_python(checkout_copy: Path) -> Path:
    """Return the interpreter of the PyTorch environment, which the first launch has made."""
    return checkout_copy / ".venv" / "envs" / "pytorch" / "bin" / "python"


def ranks_of(launch: Launch, node: str, script: str) -> list[psutil.Process]:
    """Return the ranks of *node*: the processes that run *script* itself."""
    return processes_of(launch.launch_id, node, lambda command: command[1:2] == [script])


def name_of(launch: Launch) -> str:
    return str(json.loads((launch.directory / "cluster.json").read_bytes())["name"])


@pytest.mark.timeout(1000)  # torch's CUDA build is of gigabytes
def test_example_trains_alike_on_one_process_and_on_three_nodes(project: Project, torch_python: Path) -> None:
    """What a newcomer sees first: real learning on every node; and the number of nodes does not change the result."""
    launch = project.launch("pytorch", "2", "--", "--epochs", "2")
    assert launch.wait(800) == 0  # the first test here may have to make the environment
    assert "[W" not in launch.out, "warnings of torch after a success"
    epochs = re.findall(r"MAIN +\| epoch +(\d) of 2 .* world size 3\n", launch.out)
    assert epochs == ["1", "2"]
    assert re.search(r"rendezvous 127\.0\.0\.\d+:29400; nodes 3; world_size 3", launch.err)
    on_three = json.loads((launch.directory / "outputs" / "result.json").read_text())

    def alone(epochs: int) -> dict[str, Any]:
        command = [torch_python, project.path / "pytorch" / "example" / "train.py", "--epochs", str(epochs)]
        environ = {**project.environ, "OUTPUT_DIR": str(project.temporary), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=project.code, env=environ, check=True, timeout=PATIENCE_S)
        return dict(json.loads((project.temporary / "result.json").read_text()))

    alone(1)
    on_one = alone(2)  # from the checkpoint of the first epoch
    assert on_one == {
        "epoch": 2,
        "loss": pytest.approx(on_three["loss"], abs=0.001),
        "accuracy": pytest.approx(on_three["accuracy"], abs=0.005),
        "world_size": 1,
    }
    assert on_one["accuracy"] > 0.7  # of ten digits
    launch.assert_nothing_left()


def test_several_ranks_run_on_each_node(project: Project) -> None:
    """Ranks in the order of the nodes, main's first; exact arguments; whose line it is where a node has several."""
    script = """
import os, sys
known = [os.environ[name] for name in ("RANK", "WORLD_SIZE", "NODE_NAME")]
sys.stdout.write("rank {} of {} on {}: {}\\n".format(*known, sys.argv[1:]))  # torchrun mixes pieces of lines
"""
    entry = project.write("my train.py", script)
    launch = project.launch("pytorch", "1", "--entry", entry, "--env", "NPROC_PER_NODE=2", "--", "a", "b c")
    assert launch.wait() == 0
    for node, ranks in (("MAIN", (0, 1)), ("WORKER_1", (2, 3))):
        for rank in ranks:
            assert f"[rank {rank}] rank {rank} of 4 on {node}: ['a', 'b c']\n" in launch.log(node)
    assert "nodes 2; world_size 4" in launch.err
    launch.assert_nothing_left()


def test_error_of_one_of_a_nodes_ranks_is_the_reason(project: Project) -> None:
    """In its own words, though its lines say whose they are; the others wait."""
    script = "import os, time\nif os.environ['RANK'] == '3':\n    raise ValueError('bad row 7')\ntime.sleep(1000)\n"
    entry = project.write("train.py", script)
    launch = project.launch("pytorch", "1", "--entry", entry, "--env", "NPROC_PER_NODE=2")
    assert launch.wait() == 1
    assert " ended with 1 (WORKER_1: ValueError: bad row 7 (train.py:3); rank 3 ended with 1" in launch.err
    launch.assert_nothing_left()


@pytest.mark.parametrize(("rank", "code", "node"), [(0, 7, "MAIN"), (2, 9, "WORKER_2")])
def test_exit_code_of_a_rank_is_the_clusters(project: Project, rank: int, code: int, node: str) -> None:
    """Not torchrun's 1, nor that of the ranks that lose their peer."""
    setting = f"RANK_{rank}=os._exit({code})"
    launch = project.launch("pytorch", "2", "--entry", project.write("train.py", TRAIN), "--env", setting)
    assert launch.wait() == code
    assert f"rank {rank} ended with {code}" in launch.err
    assert "train.py FAILED" in launch.log(node), "torch's own report"
    launch.assert_nothing_left()


def test_hang_ends_at_the_frameworks_timeout_with_its_node_named(project: Project) -> None:
    """One rank sleeps: the others' all_reduce gives up after 15 s. Until then, nothing listens to other machines."""
    setting = "RANK_1=print('hangs', flush=True); time.sleep(3600)"
    launch = project.launch("pytorch", "2", "--entry", project.write("train.py", TRAIN), "--env", setting)
    launch.wait_for("hangs", "WORKER_1")
    listening = listening_of(launch.launch_id)
    assert 29400 in {port for _, _, port in listening}
    assert {ipaddress.ip_address(address).is_loopback for _, address, _ in listening} == {True}
    assert launch.wait() == 1
    assert re.search(r"; WORKER_1 had not failed \d+ s later", launch.err)
    launch.assert_nothing_left()


def test_killed_rank_is_restarted_with_a_store_of_its_own(project: Project) -> None:
    """torch 2.13 by itself keeps the store of the first attempt: ranks find dead addresses, and hang or fail.

    Rank 0 comes back late, so that all that the other one can find in the store is old.
    """
    script = f"""
import os, pathlib, time
import torch.distributed as dist
mark = pathlib.Path(os.environ["OUTPUT_DIR"], "attempt-of-" + os.environ["RANK"])
looked = mark.with_name("looked")
if mark.exists() and os.environ["RANK"] == "1":
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    print("keys of others:", store.num_keys(), "in all", flush=True)
    looked.touch()
while mark.exists() and os.environ["RANK"] == "0" and not looked.exists():
    time.sleep(0.05)
mark.touch()
{UNTIL_GO}
"""
    entry = project.write("train.py", script)
    launch = project.launch("pytorch", "1", "--entry", entry, "--env", "MAX_RESTARTS=1")
    launch.wait_for("start: rank 0 of 2")
    launch.wait_for("start: rank 1 of 2", "WORKER_1")
    (rank,) = ranks_of(launch, "WORKER_1", "train.py")
    rank.kill()
    wait_until(lambda: launch.log("WORKER_1").count("start: rank 1 of 2") == 2, "the restart")
    project.go()
    assert launch.wait() == 0
    assert "keys of others: 0 " in launch.log("WORKER_1")
    launch.assert_nothing_left()


@pytest.mark.parametrize(
    ("failing", "waits_s", "others_wait_s"),
    [(0, 2.0, 0.0), (1, 2.0, 0.0), (1, 0.2, 0.6)],
    ids=["main", "worker", "at-once"],
)
def test_a_rank_that_fails_when_others_have_ended_well_ends_the_job(
    project: Project, failing: int, waits_s: float, others_wait_s: float
) -> None:
    """It saved the model, say. Those others come to no other attempt: it must not wait for them, and its code counts.

    In the third case the others end well when it waits already. Launchers that wait for ranks of other nodes heed TERM:
    nobody waits for GRACE_PERIOD.
    """
    script = f"""
import os, sys, time
from pathlib import Path
rank = int(os.environ["RANK"])
Path(f"begun-{{rank}}").touch()
while len(list(Path().glob("begun-*"))) < 3:
    time.sleep(0.02)
time.sleep({waits_s} if rank == {failing} else {others_wait_s})
sys.exit(7 if rank == {failing} else 0)
"""
    entry = project.write("train.py", script)
    settings = ("--env", "MAX_RESTARTS=2", "--env", "TIMEOUT=300", "--env", "GRACE_PERIOD=500")
    launch = project.launch("pytorch", "2", "--entry", entry, *settings)
    assert launch.wait() == 7, launch.err
    assert f"rank {failing} ended with 7" in launch.err
    launch.assert_nothing_left()


# What pytorch/launch uses of torch that torch may take away unannounced, by the place whose source must have it. Code
# that replaces or reads a name there is no use for any more fails nowhere: ranks start slower, or restart in vain.
PRIVATE = {
    "_delay": "rendezvous.dynamic_rendezvous",
    "_state_holder": "rendezvous.dynamic_rendezvous.DynamicRendezvousHandler",
    "_cache_duration": "rendezvous.dynamic_rendezvous._BackendRendezvousStateHolder.sync",
    "_monitor_workers": "agent.server.api.SimpleElasticAgent._invoke_run",
    "_stop_workers": "agent.server.api.SimpleElasticAgent._invoke_run",
    "_exit_barrier": "agent.server.api.SimpleElasticAgent._invoke_run",
    "_remaining_restarts": "agent.server.api.SimpleElasticAgent._invoke_run",
    # Not private, but replaced, too.
    "LocalElasticAgent": "launcher.api.launch_agent",
}
LACKING = """
import inspect, json, pkgutil, re, sys

for name, place in json.loads(sys.argv[1]).items():
    package = "torch.distributed." + ("" if place.startswith("launcher") else "elastic.")
    if not re.search(rf"\\b{name}\\b", inspect.getsource(pkgutil.resolve_name(package + place))):
        print(place, "has no", name)
"""


def test_torch_has_the_private_names_that_are_used(torch_python: Path) -> None:
    """The pinned one; a new one names those that it lacks."""
    command = [torch_python, "-c", LACKING, json.dumps(PRIVATE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.stdout, done.returncode) == ("", 0), done.stderr


def test_private_names_of_torch_are_all_watched() -> None:
    """Attributes of what is not this module's own, and what a class here has of torch's."""
    source = (Path(__file__).resolve().parents[2] / "pytorch" / "launch" / "rendezvous.py").read_text()
    names, own, inherited = set(), set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
            if isinstance(node.value, ast.Call):  # super()
                inherited.add(node.attr)
            elif isinstance(node.ctx, ast.Store):
                own.add(node.attr)
        elif isinstance(node, ast.Constant):
            names.add(str(node.value))
        elif isinstance(node, ast.FunctionDef):
            own.add(node.name)
    torchs = {name for name in names - own | inherited if re.fullmatch("_[a-z][a-z_]*", name)}
    assert torchs <= PRIVATE.keys()
    assert {name for name in PRIVATE if name.startswith("_")} <= names


# A rank that is well when it is looked at, and has failed when it is ended for a node that waits.
ENDED_FOR_ANOTHER = """
import sys
from types import SimpleNamespace as Things
sys.path.append(sys.argv[1])
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
import rendezvous

stopped = []
LocalElasticAgent._stop_workers = lambda agent, group: stopped.append(group)
failed = Things(is_failed=lambda: True, failures={0: "ended with 7"})
looks = iter([None, failed])
handler = Things(failures={}, note=lambda result: False)
agent = object.__new__(rendezvous.Agent)
agent._pcontext = Things(pids=lambda: {0: 1}, wait=lambda _: next(looks))
agent._uninterruptible_state_timeout = 0
group = Things(spec=Things(role="x", rdzv_handler=handler), workers=[Things(id=1, global_rank=5)])
agent._monitor_workers(group)
agent._stop_workers(group)
print(handler.failures, stopped == [group])
"""


def test_the_code_of_a_rank_that_fails_as_it_is_ended_for_another_node_is_known(torch_python: Path) -> None:
    """Where others have ended well meanwhile there is no other attempt that would fail again: this code counts."""
    place = Path(__file__).resolve().parents[2] / "pytorch" / "launch"
    command = [torch_python, "-c", ENDED_FOR_ANOTHER, place]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.stdout == "{5: 'ended with 7'} True\n", done.stderr


# Waits for other nodes as a store's C++ does: no handler of Python's is run meanwhile.
WAITS_FOR_OTHERS = """
import ctypes, os, signal, sys, threading
from types import SimpleNamespace as Things
sys.path.append(sys.argv[1])
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
import rendezvous

def make(agent, spec, exit_barrier_timeout=300):
    agent._exit_barrier_timeout = exit_barrier_timeout

def barrier(agent):
    print(agent._exit_barrier_timeout, flush=True)
    if sys.argv[2] == "TERM":
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        libc = ctypes.CDLL(None)
        while True: libc.sleep(100)  # in one bytecode or the next, it waits

signal.signal(signal.SIGTERM, lambda *_: None)
LocalElasticAgent.__init__, LocalElasticAgent._exit_barrier = make, barrier
handler = Things(is_elastic=sys.argv[2] == "elastic")
rendezvous.Agent(Things(rdzv_handler=handler), os._exit)._exit_barrier()
print("went on")
"""


@pytest.mark.parametrize(
    ("case", "code", "printed"),
    [("static", 0, "604800\nwent on\n"), ("elastic", 0, "300\nwent on\n"), ("TERM", 143, "604800\n")],
)
def test_a_node_whose_ranks_have_ended_waits_for_all_others(
    torch_python: Path, case: str, code: int, printed: str
) -> None:
    """A rank that still saves a model after torch's 300 s was ended as one of a success. A signal ends the wait."""
    place = Path(__file__).resolve().parents[2] / "pytorch" / "launch"
    command = [torch_python, "-c", WAITS_FOR_OTHERS, place, case]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (code, printed), done.stderr


def test_lost_node_is_survived_and_its_replacement_joins(project: Project) -> None:
    """Three nodes, two, three again, without a new launch; rank 0 stays on main."""
    entry = project.write("train.py", UNTIL_GO)
    options = ["--entry", entry, "--env", "MIN_NODES=2", "--env", "LAST_CALL_TIMEOUT=2"]
    launch = project.launch("pytorch", "2", *options, HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="20")

    def begun(size: int, after: int) -> int:
        """Return how often training has begun, when that was with *size* nodes after the first *after* times."""
        starts = lambda: re.findall(r"start: rank 0 of (\d)", launch.log("MAIN"))  # noqa: E731
        wait_until(lambda: str(size) in starts()[after:], lambda: f"a start with {size} after {after}: {starts()}")
        return len(starts())

    count = begun(3, 0)  # the first was with two where the third is late
    launch.kill_agent("WORKER_1")
    count = begun(2, count)
    assert project.run("scale", name_of(launch), "+1").stdout == "2\n"
    begun(3, count)
    launch.wait_for("start: rank 1 of 3", "WORKER_1")
    project.go()
    assert launch.wait() == 0
    assert "WORKER_1 ended with 137 (killed by SIGKILL)" in launch.err
    launch.assert_nothing_left()


def test_accelerate_trains_on_all_nodes_and_keeps_exit_codes(project: Project) -> None:
    """Its own launcher on each node; without GPUs too the ranks know of each other."""
    script = """
import sys
import torch
from accelerate import Accelerator

accelerator = Accelerator()
torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
x = torch.full((1, 1), float(accelerator.process_index))  # each learns from another number
for _ in range(40):
    optimizer.zero_grad()
    loss = ((model(x) - 3 * x - 1) ** 2).mean()
    accelerator.backward(loss)
    optimizer.step()
weight, bias = (parameter.item() for parameter in model.parameters())
print(f"{accelerator.num_processes} processes learned {weight:.1f} x + {bias:.1f}", flush=True)
accelerator.wait_for_everyone()
# Without it, PyTorch may abort a rank that is still ending when the rank that has the store is gone.
accelerator.end_training()
sys.exit(9 * accelerator.process_index)
"""
    entry = project.write("train.py", script)
    launch = project.launch("pytorch", "1", "--entry", entry, "--env", "LAUNCHER=accelerate")
    assert launch.wait() == 9
    for node in ("MAIN", "WORKER_1"):
        assert "2 processes learned" in launch.log(node)
    learned = {re.findall(r"learned (.*)", launch.log(node))[0] for node in ("MAIN", "WORKER_1")}
    assert len(learned) == 1
    launch.assert_nothing_left()


def test_accelerate_runs_a_single_rank_with_the_clusters_rendezvous_and_exit_code(project: Project) -> None:
    """Its own command takes torchrun for several ranks alone, and 1 for every failure."""
    script = """
import os, sys
from accelerate import Accelerator

accelerator = Accelerator()
print(accelerator.num_processes, accelerator.mixed_precision, os.environ["TORCHELASTIC_RUN_ID"], flush=True)
accelerator.end_training()
sys.exit(9)
"""
    entry = project.write("train.py", script)
    settings = ("--env", "LAUNCHER=accelerate", "--env", "LAUNCHER_ARGS=--mixed_precision bf16")
    launch = project.launch("pytorch", "0", "--entry", entry, *settings)
    assert launch.wait() == 9
    assert f"1 bf16 {launch.launch_id}" in launch.log("MAIN")
    launch.assert_nothing_left()


def test_ctrl_c_ends_ranks_at_once_after_they_had_their_say(project: Project) -> None:
    """TERM reaches the ranks, which are in sessions of their own, and their last line is in the log."""
    say = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(print('saved')))\n"
    waits = "print('trains', flush=True)\ntime.sleep(1000)\n"
    launch = project.launch("pytorch", "1", "--entry", project.write("train.py", say + waits))
    for node in ("MAIN", "WORKER_1"):
        launch.wait_for("trains", node)
    launch.interrupt(signal.SIGINT)
    assert launch.wait() == 143
    assert "saved" in launch.log("MAIN")
    assert "saved" in launch.log("WORKER_1")
    launch.assert_nothing_left()


def test_ranks_that_do_not_listen_are_ended_within_a_short_grace_period(project: Project) -> None:
    """By their launcher, which has time to: the agent kills what is left after 8 s."""
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    launch = project.launch("pytorch", "1", "--entry", project.write("train.py", deaf + UNTIL_GO), GRACE_PERIOD="8")
    launch.wait_for("start: rank 0 of 2")
    launch.interrupt()
    assert launch.wait() == 143
    for node in ("MAIN", "WORKER_1"):
        assert "forcefully exiting via" in launch.log(node), "torch's own word for KILL"
    launch.assert_nothing_left()


@pytest.fixture
def start_by_hand(project: Project, torch_python: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that runs the start script of a node, (name, address), without an agent.

    Nobody claims these addresses: they are none that a cluster can have, and each test has others.
    """
    settings = (project.path / "pytorch" / "settings.env").read_text()
    launch_id = f"by-hand-{os.getpid()}"  # what is left is ended, and a test beside this one has its own

    def start(node: tuple[str, str], main_address: str, **more: str) -> subprocess.Popen[str]:
        name, address = node
        directory = project.temporary / name
        directory.mkdir()
        (directory / "args").touch()
        environ = {
            **project.environ,
            **dict(re.findall(r"^(\w+)=(.*)$", settings, re.MULTILINE)),
            "PATH": f"{torch_python.parent}{os.pathsep}{project.environ['PATH']}",
            "MODE": name.partition("_")[0],
            "NODE_NAME": name,
            "NODE_RANK": name.partition("_")[2] or "0",
            "NODE_ADDRESS": address,
            "NODE_DIR": str(directory),
            "MAIN_ADDRESS": main_address,
            "READY_FILE": str(directory / "ready"),
            "LAUNCH_ID": launch_id,
            "LAUNCH_KEY": "5eed",
            "EPHEMERAL": "1",
            "CODE_DIR": str(project.code),
            "ENTRY_POINT": "train.py",
            "ENTRY_ARGS_FILE": str(directory / "args"),
            **more,
        }
        script = project.path / "pytorch" / ("start-master.sh" if name == "MAIN" else "start-worker.sh")
        pipe = subprocess.PIPE
        started.append(subprocess.Popen([script], env=environ, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    started: list[subprocess.Popen[str]] = []
    yield start
    for process in processes_of(launch_id):
        process.kill()
    for node in started:
        node.communicate()


def test_rank_0_is_on_main_whatever_the_addresses(
    project: Project, start_by_hand: Callable[..., subprocess.Popen[str]]
) -> None:
    """By text 127.1.1.10 comes before 127.1.1.9, and torch would have the first rank there."""
    project.write("train.py", "import os; print(os.environ['RANK'], os.environ['MASTER_ADDR'])")
    nodes = {"MAIN": "127.1.1.9", "WORKER_1": "127.1.1.10"}
    started = [start_by_hand(node, nodes["MAIN"], WORKER_COUNT="1", TIMEOUT="60") for node in nodes.items()]
    outputs = [process.communicate(timeout=PATIENCE_S) for process in started]
    assert outputs == [("0 127.1.1.9\n", ""), ("1 127.1.1.9\n", "")]
    assert [process.returncode for process in started] == [0, 0]


def test_nodes_that_do_not_come_are_named(
    project: Project, start_by_hand: Callable[..., subprocess.Popen[str]]
) -> None:
    """Main with nobody else: 75, and who was not seen, for the log and for the agent."""
    main = start_by_hand(("MAIN", "127.1.2.9"), "127.1.2.9", WORKER_COUNT="2", TIMEOUT="1")
    _, err = main.communicate(timeout=PATIENCE_S)
    assert main.returncode == 75
    reason = "waited 1 s (TIMEOUT) for 3 nodes; never seen: WORKER_1, WORKER_2\n"
    assert (project.temporary / "MAIN" / "reason").read_text() == reason
    assert err.endswith(f"launcher.py: error: {reason}")
