"""A cluster of 0 workers: main alone, which computes with all that its machine has."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from harness import SLEEP, UNTIL_GO, Project, processes_of, wait_until
from oci_cloud import Cloud, environment_of, image_of, wait
from one_node import EXAMPLES, assert_runs_alone


def status(project: Project, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(project, "status", name, "--json"))
    return found


def run(project: Project, verb: str, *words: str) -> str:
    done = project.run(verb, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(1200)  # the first one may have to wait until Horovod is compiled
@pytest.mark.parametrize("framework", EXAMPLES)
def test_the_example_and_a_scripts_code(project: Project, framework: str) -> None:
    """`list`, `status` and `logs` know of main alone."""
    assert_runs_alone(project, framework, 600)
    assert {line.partition(" |")[0] for line in run(project, "logs", "alone").splitlines()} == {"MAIN"}
    assert [node["node"] for node in status(project, "alone")["nodes"]] == ["MAIN"]
    for launch in project.launches:
        launch.assert_nothing_left()


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("framework", EXAMPLES)
def test_the_same_on_the_stand_in_for_oci(cloud: Cloud, framework: str) -> None:
    """One Job with one Job Run."""
    cloud.add_image(framework, environment_of(cloud.project, framework))
    assert_runs_alone(cloud.project, framework, 600, IMAGE=image_of(framework), **cloud.environ)
    assert [run["lifecycleState"] for run in cloud.service.job_runs()] == ["SUCCEEDED", "FAILED"]
    cloud.assert_nothing_runs()


@pytest.mark.parametrize("style", ["runs", "multinode"])
def test_a_toy_on_the_stand_in_for_oci(cloud: Cloud, style: str) -> None:
    """With node groups there is main's alone."""
    launch = cloud.launch_plain(0, "raise SystemExit(7)", OCI_JOB_STYLE=style)
    assert wait(launch) == 7, launch.err
    (run,) = cloud.service.job_runs()
    assert run["lifecycleState"] == "FAILED"
    cloud.assert_nothing_runs()


@pytest.mark.parametrize("end", ["stop", "ctrl-c", "ttl"])
def test_it_ends_as_others_do(project: Project, end: str) -> None:
    """By `stop.sh` though nobody follows it, by Ctrl-C, and when its time is over."""
    options = {"stop": ["--detach", "--wait"], "ttl": ["--ttl", "2s"]}.get(end, [])
    launch = project.launch_plain(0, SLEEP, "--name", "alone", *options)
    if end == "stop":
        assert launch.wait() == 0, launch.err
        run(project, "stop", "alone")
        assert status(project, "alone")["exit_code"] == 143
    else:
        if end == "ctrl-c":
            launch.wait_for("entry up")
            launch.interrupt()
        assert launch.wait() == (143 if end == "ctrl-c" else 75), launch.err
    launch.assert_nothing_left()


# Says which nodes compute, and goes on when there are two.
COMPUTES = {
    "dask": """
from distributed import Client
client = Client()
for nodes in (1, 2):
    client.wait_for_workers(nodes)
    names = sorted(worker["name"] for worker in client.scheduler_info()["workers"].values())
    print(names, client.submit(sum, [nodes, 2, 3], pure=False).result(), flush=True)
""",
    "ray": """
import ray, time
ray.init(logging_level="ERROR")
for nodes in (1, 2):
    while len(names := sorted(node["NodeName"] for node in ray.nodes() if node["Alive"])) < nodes: time.sleep(0.1)
    print(names, ray.get(ray.remote(lambda number: number + 5).remote(nodes)), flush=True)
""",
}


@pytest.mark.parametrize("framework", COMPUTES)
def test_main_computes_alone_and_the_cluster_grows(project: Project, framework: str) -> None:
    """Tasks run on main; `scale.sh +1` adds a worker to it."""
    entry = project.write("grow.py", COMPUTES[framework])
    launch = project.launch(framework, "0", "--name", "grows", "--entry", entry)
    launch.wait_for("['MAIN'] 6")
    assert run(project, "scale", "grows", "+1").split() == ["1"]
    assert launch.wait() == 0, launch.err
    assert "['MAIN', 'WORKER_1'] 7" in launch.log("MAIN")
    launch.assert_nothing_left()


@pytest.mark.parametrize("framework", COMPUTES)
def test_one_that_is_kept_grows_and_shrinks(project: Project, framework: str) -> None:
    """`--keep` with 0 workers is ready with main alone; so it is again after `-1`."""
    launch = project.launch(framework, "0", "--keep", "--detach", "--wait", "--name", "kept")
    assert launch.wait() == 0, launch.err
    assert run(project, "scale", "kept", "+1").split() == ["1"]
    assert run(project, "scale", "kept", "-1").split() == ["0"]
    assert status(project, "kept")["exit_code"] is None
    run(project, "stop", "kept")
    launch.assert_nothing_left()


def test_a_dask_whose_only_worker_is_lost_ends(project: Project) -> None:
    """Its tasks would wait for ever; the worker is a process of main's, and no node that others watch."""
    launch = project.launch("dask", "0", "--entry", project.write("entry.py", UNTIL_GO), "--", "never")
    launch.wait_for("entry up")

    def nannies() -> list[int]:
        found = processes_of(launch.launch_id, command=lambda words: "worker" in words and "--nanny-port" in words)
        return [process.pid for process in found]

    (nanny,) = wait_until(nannies, "the worker's nanny")
    os.kill(nanny, signal.SIGKILL)
    assert launch.wait() == 76, launch.err
    assert "main's own worker ended with 137 before the entry point did" in launch.err
    launch.assert_nothing_left()
