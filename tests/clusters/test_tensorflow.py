"""Real TensorFlow clusters: the example, scripts of others, failures inside TensorFlow, gangs that start again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import PATIENCE_S, Launch, Project, processes_of, wait_until

# As TensorFlow's own tutorial on multi-worker training with Keras has it.
KERAS_SCRIPT = """
import json
import os
import sys
import time

import numpy as np
import tensorflow as tf

per_worker_batch_size = 16
tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])
task = "{type}:{index}".format(**tf_config["task"])

options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=float(os.environ.get("GIVES_UP_S", "600")))
strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)

global_batch_size = per_worker_batch_size * num_workers
x = np.random.RandomState(0).rand(480, 8).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1))).shuffle(480, seed=0).repeat().batch(global_batch_size)

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(8,))])
    model.compile(loss="mse", optimizer=tf.keras.optimizers.SGD(learning_rate=0.05))

class Trouble(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if task == "worker:2" and epoch == 1:
            print("in trouble", flush=True)
            exec(os.environ.get("TROUBLE", "pass"))

model.fit(dataset, epochs=3, steps_per_epoch=10, verbose=2, callbacks=[Trouble()])
assert strategy.num_replicas_in_sync == num_workers
print("trained by", num_workers)
"""

# As TensorFlow's own guide to parameter servers has it: a loop of one's own, and servers that never end.
COORDINATOR_SCRIPT = """
import os
import sys

import tensorflow as tf

cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if cluster_resolver.task_type in ("worker", "ps"):
    os.environ["GRPC_FAIL_FAST"] = "use_caller"
    server = tf.distribute.Server(
        cluster_resolver.cluster_spec(),
        job_name=cluster_resolver.task_type,
        task_index=cluster_resolver.task_id,
        protocol=cluster_resolver.rpc_layer or "grpc",
        start=True,
    )
    print("serving", flush=True)
    server.join()

strategy = tf.distribute.ParameterServerStrategy(cluster_resolver)
with strategy.scope():
    weights = tf.Variable(tf.zeros([8, 1]))
print("variable on", weights.device)

def dataset_fn(input_context):
    x = tf.random.stateless_normal([512, 8], [1, 2])
    return tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, 1, keepdims=True))).repeat().batch(32)

@tf.function
def per_worker_dataset_fn():
    return strategy.distribute_datasets_from_function(dataset_fn)

@tf.function
def step_fn(iterator):
    def replica_fn(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.matmul(x, weights) - y) ** 2)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))
        return loss
    return strategy.reduce("SUM", strategy.run(replica_fn, args=next(iterator)), axis=None)

coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
for epoch in range(3):
    for _ in range(20):
        loss = coordinator.schedule(step_fn, args=(iterator,))
    coordinator.join()
    print("epoch", epoch, "loss %.6f" % loss.fetch(), flush=True)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="session")
def tensorflow_python(checkout_copy: Path) -> Path:
    """Return the interpreter of the TensorFlow environment, which the first launch has made."""
    return checkout_copy / ".venv" / "envs" / "tensorflow" / "bin" / "python"


def wait_for_code(launch: Launch, code: int, patience_s: float = PATIENCE_S) -> None:
    """Return when the cluster has ended, with *code*; show what it said where that is another one."""
    ended_with = launch.wait(patience_s)
    assert ended_with == code, f"{launch.out}\n{launch.err}"


def epochs(launch: Launch, world: int) -> list[int]:
    """Return the epochs that the example has trained so far in a cluster of size *world*, in order."""
    return [int(number) for number in re.findall(rf"epoch +(\d+) of .* world size {world}\n", launch.log("MAIN"))]


def entry_pid(launch: Launch, node: str) -> int:
    """Return the pid of the Python that runs *node*'s entry point."""
    (found,) = processes_of(launch.launch_id, node, lambda command: "train.py" in command)
    return found.pid


def test_example_gives_the_same_on_three_nodes_and_on_one(project: Project, tensorflow_python: Path) -> None:
    """Rank 0 alone reports, with the world size; plain `python train.py` has the same result within 0.01."""
    launch = project.launch("tensorflow", "2")
    wait_for_code(launch, 0, 400)  # the first test here may have to make the environment
    assert epochs(launch, 3) == list(range(1, 11))
    assert {node["exit_code"] for node in launch.nodes().values()} == {0}
    assert re.search(rf"chief 127\.0\.0\.\d+:{launch.ports()['TASK_PORT']}; tasks 3 worker; ", launch.err)
    for node in ("WORKER_1", "WORKER_2"):
        assert "epoch" not in launch.log(node)
    launch.assert_nothing_left()
    outputs = launch.directory / "outputs"
    assert (outputs / "model.keras").stat().st_size > 0

    alone = project.scratch / "alone"
    alone.mkdir()
    done = subprocess.run(
        [tensorflow_python, project.path / "tensorflow" / "example" / "train.py"],
        cwd=alone,
        env={**project.environ, "OUTPUT_DIR": str(alone)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "world size 1\n" in done.stdout
    results = [json.loads((directory / "result.json").read_text()) for directory in (outputs, alone)]
    assert results[0] == pytest.approx(results[1], abs=0.01)
    assert results[0]["test_accuracy"] > 0.94


def test_example_with_parameter_servers_ends_them_and_succeeds(project: Project) -> None:
    """Servers never end by themselves: they are ended when the chief is done, and that is success on every node."""
    launch = project.launch("tensorflow", "2", "--ps", "1")
    wait_for_code(launch, 0)
    assert "epoch 10 of 10" in launch.log("MAIN")
    assert "world size 2 and 1 ps" in launch.log("MAIN")
    assert {name: node["exit_code"] for name, node in launch.nodes().items()} == dict.fromkeys(
        ("MAIN", "WORKER_1", "WORKER_2", "PS_3"), 0
    )
    assert json.loads((launch.directory / "outputs" / "result.json").read_text())["test_accuracy"] > 0.9
    launch.assert_nothing_left()


def test_coordinator_script_of_others_runs_unchanged_and_its_code_is_the_clusters(project: Project) -> None:
    """A loop of one's own with parameter servers; exit code 7 of the chief comes out as 7."""
    entry = project.write("theirs.py", COORDINATOR_SCRIPT)
    launch = project.launch("tensorflow", "1", "--ps", "1", "--entry", entry, "--", "7")
    wait_for_code(launch, 7)
    assert "/job:ps/" in launch.log("MAIN")
    losses = [float(loss) for loss in re.findall(r"^epoch \d loss (\S+)", launch.log("MAIN"), re.MULTILINE)]
    assert len(losses) == 3
    assert losses[2] < losses[0]
    for node in ("WORKER_1", "PS_2"):
        assert "serving" in launch.log(node)
    assert "ended with 7 (" in launch.err
    launch.assert_nothing_left()


def test_keras_script_of_others_runs_unchanged_and_rank_2s_code_is_the_clusters(project: Project) -> None:
    """model.fit with MultiWorkerMirroredStrategy; behind a proxy that nobody answers at; 9 of rank 2 comes out as 9."""
    entry = project.write("theirs.py", KERAS_SCRIPT)
    nowhere = "http://127.0.0.1:9"
    launch = project.launch(
        "tensorflow", "2", "--entry", entry, TROUBLE="sys.exit(9)", http_proxy=nowhere, https_proxy=nowhere
    )
    wait_for_code(launch, 9)
    assert "Epoch 2/3" in launch.log("MAIN")
    assert "ended with 9 (WORKER_2: in trouble; exit code 9)" in launch.err
    assert {node["exit_code"] for node in launch.nodes().values()} == {9}
    launch.assert_nothing_left()


def test_hang_of_one_node_ends_at_tensorflows_timeout_with_its_name(project: Project) -> None:
    """The others give up after timeout_seconds; the node that did not is named."""
    entry = project.write("theirs.py", KERAS_SCRIPT)
    launch = project.launch("tensorflow", "2", "--entry", entry, TROUBLE="time.sleep(3600)", GIVES_UP_S="15")
    wait_for_code(launch, 1)
    assert "in trouble" in launch.log("WORKER_2")
    assert "Collective has timed out" in launch.out
    # Only the node that hangs, however late the others report.
    assert re.search(r"; WORKER_2 had not failed \d+ s later", launch.err)
    launch.assert_nothing_left()


# Runs the script of the first argument, whose training does not go on in the first attempt after its fourth epoch.
HELD = """
import os, runpy, sys, time
from tf_keras import callbacks

class Held(callbacks.BackupAndRestore):
    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        while epoch == 3 and os.environ["NODE_NAME"] == "WORKER_2" and os.environ["ATTEMPT"] == "0":
            time.sleep(1)

callbacks.BackupAndRestore = Held
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def test_killed_task_starts_the_gang_again_from_its_backup(project: Project) -> None:
    """All tasks again, once, from a later epoch than the first; the end is a success."""
    example = project.path / "tensorflow" / "example" / "train.py"
    words = ("--entry", project.write("train.py", HELD), "--", str(example), "--epochs", "12")
    launch = project.launch("tensorflow", "2", *words, MAX_RESTARTS="1")
    wait_until(lambda: 4 in epochs(launch, 3), f"the fourth epoch:\n{launch.err}")
    os.kill(entry_pid(launch, "WORKER_2"), signal.SIGKILL)
    wait_for_code(launch, 0)
    log = launch.log("MAIN")
    assert re.search(r"restart 1 of 1: WORKER_2 .*SIGKILL", log)
    before, _, after = log.partition("restart 1 of 1")
    resumed = int(re.findall(r"going on after epoch (\d+), from the backup", after)[0])
    assert resumed >= 2
    assert "going on" not in before
    assert epochs(launch, 3)[-(12 - resumed) :] == list(range(resumed + 1, 13))
    launch.assert_nothing_left()


def test_gang_goes_on_without_a_lost_node_and_takes_in_a_new_one(project: Project) -> None:
    """Three nodes, then two, then three again, each time from the backup; stopped in the middle of training."""
    settings = {"MAX_RESTARTS": "3", "MIN_WORKERS": "1", "HEARTBEAT_INTERVAL": "0.5", "HEARTBEAT_TIMEOUT": "20"}
    launch = project.launch("tensorflow", "2", "--", "--epochs", "2000", **settings)

    def trained_by(world: int, after: int = 0) -> Any:
        return wait_until(
            lambda: [epoch for epoch in epochs(launch, world) if epoch > after],
            lambda: f"an epoch of {world} tasks:\n{launch.err}\n{launch.log('MAIN')}",
        )

    last = trained_by(3, after=1)[-1]
    name = re.search(r"cluster (\S+) started", launch.err)[1]  # type: ignore[index]
    launch.kill_agent("WORKER_1")
    last = trained_by(2, after=last)[-1]
    assert project.run("scale", name, "+1").stdout == "2\n"
    trained_by(3, after=last)
    launch.interrupt()
    wait_for_code(launch, 143)
    launch.assert_nothing_left()
