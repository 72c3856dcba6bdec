"""What a cluster listens on is what the table in SECURITY.md says: real clusters, looked at from outside."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import sys
from collections.abc import Callable, Iterator

import psutil
import pytest
from harness import PATIENCE_S, Launch, Project, processes_of, wait_until
from port_table import SECURITY, Row, read_table

pytestmark = pytest.mark.timeout(1800)  # the first to need Horovod's environment compiles it
# Ports of their own, as other tests here have the usual ones.
OWN_PORTS = {
    "tensorflow": {"TASK_PORT": 23345},
    "horovod": {"SSH_PORT": 23445, "RENDEZVOUS_PORT": 23440},
}


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
    }
    # A launcher's command line may hold the script's name, but does not begin with it.
    found = [kind for text, kind in kinds.items() if text in words]
    return found[-1] if found else ""


def wrong_sockets(launch: Launch, rows: list[Row], given: dict[str, int]) -> Iterator[str]:
    """Yield what differs between the table and the sockets that a cluster's processes listen on."""
    nodes = {name: node["address"] for name, node in launch.nodes().items()}
    for process in processes_of(launch.launch_id):
        with contextlib.suppress(psutil.NoSuchProcess):
            node, program = process.environ().get("NODE_NAME", ""), program_of(process)
            who = f"{node or 'the runner'}'s {program or process.name()} ({' '.join(process.cmdline())[:300]})"
            expected = [row for row in rows if row.program == program and node.partition("_")[0] in row.roles]
            # Ports that have a name first: `any` is any other.
            expected.sort(key=lambda row: not row.setting)
            for found in process.net_connections("all"):
                if isinstance(found.laddr, str):
                    # Those without a name are pairs; the runner's claim addresses, and nobody can connect to them.
                    if found.laddr and (node or not found.laddr.startswith("@oci-cluster/127.0.0.")):
                        yield f"{who} has the Unix socket '{found.laddr}'"
                    continue
                if found.status != psutil.CONN_LISTEN and found.type != socket.SOCK_DGRAM:
                    continue
                address, port = ipaddress.ip_address(found.laddr.ip.removeprefix("::ffff:")), found.laddr.port
                row = next((row for row in expected if row.has(port, given)), None)
                if row is None:
                    yield f"{who} listens on {address} port {port}, which is not in the table"
                    continue
                expected.remove(row)
                if not address.is_loopback or (row.address == "the node's" and str(address) != nodes[node]):
                    yield f"{who} listens on {address} port {port}: not {row.address} ({nodes[node]})"
            for row in expected:
                if row.when != "while ranks connect":
                    yield f"{who} does not listen on what the table says: {row}"


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
    "plain": ("plain", "", "print('up', flush=True)\n", ("1", "--python", sys.executable), ("MAIN",)),
}


@pytest.mark.parametrize("kind", CLUSTERS)
def test_sockets_are_those_of_the_table(project: Project, kind: str) -> None:
    """Every one is there, none else is; each on an address that no other machine reaches."""
    framework, job, script, arguments, nodes = CLUSTERS[kind]
    given = OWN_PORTS.get(framework, {})
    project.write("entry.py", script + STAYS)
    words = [word for name, port in given.items() for word in ("--env", f"{name}={port}")]
    launch = project.launch(framework, *arguments, "--entry", "entry.py", *words)
    for node in nodes:
        wait_until(
            lambda node=node: re.search(r"^(\[rank \d\] )?up", launch.log(node), re.MULTILINE),
            f"{node}: {launch.err}",
            1700,
        )
    rows = [row for row in read_table() if row.framework == framework and row.when in {"", "while ranks connect", job}]
    assert (framework == "plain") == (not rows)
    # Metrics of a Dask worker, for one, listen some moments after it has come.
    look: Callable[[], list[str]] = lambda: list(wrong_sockets(launch, rows, given))  # noqa: E731
    with contextlib.suppress(AssertionError):
        wait_until(lambda: not look(), "the sockets to be as the table says", 20.0)
    assert look() == []
    launch.interrupt()
    assert launch.wait(PATIENCE_S) == 143


def test_table_has_every_framework_and_every_port_that_is_a_setting() -> None:
    """And no more ports than there are."""
    root = SECURITY.parent
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
