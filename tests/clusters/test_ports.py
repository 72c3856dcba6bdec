"""What a cluster listens on is what the table in docs/network.md says: real clusters, looked at from outside."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from harness import PATIENCE_S, Launch, Project, parts_of, wait_until
from port_table import PAGE, Row, read_table

pytestmark = pytest.mark.timeout(1800)  # the first to need Horovod's environment compiles it


def program_of(process: psutil.Process) -> str:
    """Return the table's word for a process; empty for one that may not listen."""
    words = " ".join(process.cmdline())
    kinds = {
        "entry.py": "script",
        "dask scheduler": "scheduler",
        "dask worker": "nanny",
        "spawn_main": "worker",
        "/launch/launcher.py": "launcher",
        "/launcher launch": "launcher",
        "/launcher serve": "launcher",
        "ray.util.client.server": "client server",
        "ray/dashboard/dashboard.py": "dashboard",
        "/monitor.py": "monitor",
        "ray::": "worker",
        "ray::DashboardAgent": "dashboard agent",
        "ray::RuntimeEnvAgent": "runtime env agent",
        "/gcs/gcs_server": "gcs",
        # Its command line has those of all that it starts.
        "/raylet/raylet": "raylet",
    }
    # A launcher's command line may hold the script's name, but does not begin with it.
    found = [kind for text, kind in kinds.items() if text in words]
    return found[-1] if found else ""


def is_at(row: Row, address: ipaddress.IPv4Address | ipaddress.IPv6Address, node_address: str) -> bool:
    """Return whether a socket on *address* is where the table says, for the node at *node_address*."""
    if row.address == "all":
        return address.is_unspecified
    # Ray knows a node that is at 127.0.0.1 by another address.
    own = {node_address, "127.1.0.1"} if row.framework == "ray" and node_address == "127.0.0.1" else {node_address}
    exact = {"the node's": own, "127.0.0.1": {"127.0.0.1"}}.get(row.address, {str(address)})
    return address.is_loopback and str(address) in exact


def is_private(path: str, node_dir: Path | None) -> bool:
    """Return whether a Unix socket is in a directory into which its owner alone comes."""
    if node_dir is None or path.startswith("@"):
        return False
    # Where its path is too long for a socket, a directory has a shorter one in /proc.
    return Path(path).resolve().is_relative_to(node_dir.resolve()) and node_dir.stat().st_mode & 0o077 == 0


def wrong_sockets(launch: Launch, rows: list[Row], given: dict[str, int]) -> Iterator[str]:
    """Yield what differs between the table and the sockets that a cluster's processes listen on."""
    nodes = {name: node["address"] for name, node in launch.nodes().items()}
    missing = {row.program for row in rows}
    for node, process, node_dir in parts_of(launch.launch_id):
        with contextlib.suppress(psutil.NoSuchProcess):
            program = program_of(process)
            missing.discard(program)
            who = f"{node or 'the runner'}'s {program or process.name()} ({' '.join(process.cmdline())[:300]})"
            expected = [row for row in rows if row.program == program and node.partition("_")[0] in row.roles]
            # Ports that have a name first: `any` is any other. The same port of an address that has a name, too.
            expected.sort(key=lambda row: (not row.setting, row.address != "127.0.0.1"))
            for found in process.net_connections("all"):
                if isinstance(found.laddr, str):
                    # Those without a name are pairs; the runner's claim addresses and ports, and nobody can connect.
                    is_claim = not node and re.fullmatch(r"@oci-cluster/(127\.0\.0\.\d+|\*)(:\d+)?", found.laddr)
                    if found.laddr and not is_claim and not is_private(found.laddr, node_dir):
                        yield f"{who} has the Unix socket '{found.laddr}'"
                    continue
                if found.status != psutil.CONN_LISTEN and found.type != socket.SOCK_DGRAM:
                    continue
                address, port = ipaddress.ip_address(found.laddr.ip.removeprefix("::ffff:")), found.laddr.port
                possible = [row for row in expected if row.has(port, given)]
                if not possible:
                    yield f"{who} listens on {address} port {port}, which is not in the table"
                    continue
                right = [row for row in possible if is_at(row, address, nodes[node])]
                if not right:
                    yield f"{who} listens on {address} port {port}: not {possible[0].address} ({nodes[node]})"
                expected.remove((right or possible)[0])
            for row in expected:
                if row.when != "while ranks connect":
                    yield f"{who} does not listen on what the table says: {row}"
    yield from (f"no process is a {program}" for program in sorted(missing))


DASK = (
    "from distributed import Client\nclient = Client()\nprint('up', client.submit(sum, [1, 2]).result(), flush=True)\n"
)
PYTORCH = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print("up", flush=True)
"""
TENSORFLOW = """
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

@tf.function
def step():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))

print("up", strategy.experimental_local_results(step())[0].numpy(), flush=True)
"""
PS = """
import json, os
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    print("up", flush=True)
    server.join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
print("up", flush=True)
"""
HOROVOD = (
    "import torch\nimport horovod.torch as hvd\nhvd.init()\nhvd.allreduce(torch.ones(1))\nprint('up', flush=True)\n"
)
ELASTIC = """
import time
import torch
import horovod.torch as hvd
hvd.init()

@hvd.elastic.run
def train(state):
    print("up", flush=True)
    while True:
        hvd.allreduce(torch.ones(1), name="one")
        time.sleep(0.05)

train(hvd.elastic.TorchState(step=0))
"""
RAY = """
import ray

ray.init()

@ray.remote(num_cpus=0, scheduling_strategy="SPREAD")
class Part:
    def works(self):
        return True

parts = [Part.remote() for _ in range(4)]
print("up", ray.get([part.works.remote() for part in parts]), flush=True)
"""
STAYS = "import time\ntime.sleep(1000)\n"
ON_ALL = ("MAIN", "WORKER_1")
# Framework, what the table calls this kind of job, script, arguments, nodes on which the script says that it is up.
CLUSTERS = {
    "dask": ("dask", "", DASK, ("2",), ("MAIN",)),
    "pytorch": ("pytorch", "", PYTORCH, ("1", "--env", "NPROC_PER_NODE=2"), ON_ALL),
    "tensorflow": ("tensorflow", "", TENSORFLOW, ("1",), ON_ALL),
    "tensorflow-ps": ("tensorflow", "", PS, ("1", "--ps", "1"), (*ON_ALL, "PS_2")),
    "horovod": ("horovod", "", HOROVOD, ("1",), ON_ALL),
    "horovod-elastic": ("horovod", "elastic", ELASTIC, ("1", "--env", "MIN_NP=2"), ON_ALL),
    "ray": ("ray", "", RAY, ("1",), ("MAIN",)),
    "plain": ("plain", "", "print('up', flush=True)\n", ("1", "--python", sys.executable), ("MAIN",)),
}


@pytest.mark.parametrize("kind", CLUSTERS)
def test_sockets_are_those_of_the_table(project: Project, kind: str) -> None:
    """Every one is there, none else is; each on an address that no other machine reaches."""
    framework, job, script, arguments, nodes = CLUSTERS[kind]
    project.write("entry.py", script + STAYS)
    launch = project.launch(framework, *arguments, "--entry", "entry.py")

    def is_up(node: str) -> bool:
        assert launch.process.poll() is None, launch.out + launch.err
        return re.search(r"^(\[rank \d\] )?up", launch.log(node), re.MULTILINE) is not None

    wait_until(lambda: all(map(is_up, nodes)), lambda: launch.out + launch.err, 1700)
    rows = [row for row in read_table() if row.framework == framework and row.when in {"", "while ranks connect", job}]
    assert (framework == "plain") == (not rows)
    # Metrics of a Dask worker, for one, listen some moments after it has come.
    look: Callable[[], list[str]] = lambda: list(wrong_sockets(launch, rows, launch.ports()))  # noqa: E731
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not look(), "the sockets to be as the table says", 20.0)
    assert look() == []
    launch.interrupt()
    assert launch.wait(PATIENCE_S) == 143


def test_table_has_every_framework_and_every_port_that_is_a_setting() -> None:
    """And no more ports than there are."""
    root = PAGE.parents[1]
    frameworks = {path.parent.name for path in root.glob("*/start-master.sh")}
    rows = read_table()
    # "any": what there is with each, as test_main_exchange.py looks at it.
    assert {row.framework for row in rows} == {*frameworks, "any"}
    for framework in frameworks:
        text = (root / framework / "settings.env").read_text()
        settings = dict(re.findall(r"^(\w+_PORTS?)=([\d:]+)$", text, re.MULTILINE))
        told = {
            row.setting: f"{row.first}:{row.last}" if row.last > row.first else f"{row.first}"
            for row in rows
            if row.framework == framework and row.setting
        }
        assert told == settings
