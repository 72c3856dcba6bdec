"""Clusters of one framework that run on this machine at once, where that has ports of all its addresses."""

from __future__ import annotations

import re
import socket

import pytest
from harness import Launch, Project, wait_until

# Both clusters have added up before either may end.
TOGETHER = """
import os, sys, time

print("total", total, flush=True)
open("up-" + os.environ["CLUSTER_NAME"] + "-" + os.environ["NODE_NAME"], "w").close()
while not os.path.exists("go"):
    time.sleep(0.05)
"""
TENSORFLOW = """
import os
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()

@tf.function
def step():
    part = float(os.environ["PART"])
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(part)))

total = strategy.experimental_local_results(step())[0].numpy()
"""
RAY = """
import os
import ray

ray.init()

@ray.remote(num_cpus=0, scheduling_strategy="SPREAD")
def part():
    return float(os.environ["PART"])

total = sum(ray.get([part.remote() for _ in range(2)]))
"""
# Script, nodes that run it, the fact that tells main's port, its default, and its setting.
CLUSTERS = {
    "tensorflow": (TENSORFLOW, ("MAIN", "WORKER_1"), "chief", 12345, "TASK_PORT"),
    "ray": (RAY, ("MAIN",), "address", 6379, "GCS_PORT"),
}
# The first launch of a framework makes its environment.
PATIENCE_S = 1700.0


@pytest.mark.parametrize("framework", CLUSTERS)
def test_two_clusters_that_are_launched_at_once_both_succeed(project: Project, framework: str) -> None:
    """Each with its own result; the ready line and `status` tell the port that each has, and who connects finds it."""
    script, nodes, fact, default, setting = CLUSTERS[framework]
    entry = project.write("train.py", script + TOGETHER)

    def launch(name: str, part: str) -> Launch:
        return project.launch(framework, "1", "--entry", entry, "--name", name, "--env", f"PART={part}")

    launches = {"one": launch("one", "1"), "two": launch("two", "10")}

    def are_up() -> bool:
        assert all(launch.process.poll() is None for launch in launches.values()), told(launches)
        are_told = all("ready after " in launch.err for launch in launches.values())
        return are_told and all((project.code / f"up-{name}-{node}").exists() for name in launches for node in nodes)

    wait_until(are_up, lambda: told(launches), PATIENCE_S)
    ports = {}
    for name, launched in launches.items():
        host, port = re.findall(rf"ready after .*\b{fact} ([\d.]+):(\d+)", launched.err)[0]
        assert f"{fact}: {host}:{port}\n" in project.run("status", name).stdout
        socket.create_connection((host, int(port)), 10).close()
        assert (f"{setting} {default} is taken; this cluster has {port}\n" in launched.err) == (int(port) != default)
        ports[name] = port
    assert ports["one"] != ports["two"]
    project.go()
    assert {name: launch.wait(PATIENCE_S) for name, launch in launches.items()} == {"one": 0, "two": 0}, told(launches)
    for name, total in (("one", "2.0"), ("two", "20.0")):
        assert re.search(rf"^MAIN +\| total {re.escape(total)}$", launches[name].out, re.MULTILINE), told(launches)
        launches[name].assert_nothing_left()


def told(launches: dict[str, Launch]) -> str:
    """Return all that was said."""
    return "\n".join(launch.out + launch.err for launch in launches.values())


@pytest.mark.parametrize("framework", CLUSTERS)
def test_a_chosen_port_that_another_cluster_has_is_refused(project: Project, framework: str) -> None:
    """Before anything starts: also one that the other has on an address of its own."""
    *_, setting = CLUSTERS[framework]
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        entry = project.write("train.py", "")
        for given in (("--env", f"{setting}={port}"), ()):
            environ = {} if given else {setting: str(port)}
            launch = project.launch(framework, "1", "--entry", entry, *given, **environ)
            assert launch.wait() == 78
            assert f"port {port} of this machine is taken" in launch.err
            assert f"--env {setting}={port + 100}" in launch.err
    assert project.cluster_dirs() == []
