"""What a cluster listens on is what the table in docs/network.md says: real clusters, looked at from outside."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import pytest
from harness import PATIENCE_S, Project, wait_until
from port_table import PAGE, read_table, wrong_sockets

pytestmark = pytest.mark.timeout(1800)  # the first to need Horovod's environment compiles it


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
    wait_until(lambda: not look(), lambda: f"the sockets to be as the table says: {look()}", 60.0)
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
