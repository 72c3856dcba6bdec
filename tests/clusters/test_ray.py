"""Real Ray clusters: the example, what ends them, nodes that come and go."""

from __future__ import annotations

import re
import time

import psutil
import pytest
from harness import Launch, Project, processes_of, wait_until

# Ray listens on all addresses, so a cluster beside this one, a developer's, needs other ports.
PORTS = {"GCS_PORT": "26379", "DASHBOARD_PORT": "28265", "RAY_CLIENT_PORT": "20001"}
CONNECT = "import ray\nray.init()\nprint('connected', len(ray.nodes()), flush=True)\n"
# Tasks until the test says go(), each of which tells its node.
TASKS = (
    CONNECT
    + """
import collections, os, time

@ray.remote
def where(number):
    time.sleep(0.2)
    return number, os.environ["NODE_NAME"]

seen = collections.Counter()
results = set()
round = 0
while not os.path.exists("go") or round < 2:
    for number, node in ray.get([where.remote((round, n)) for n in range(12)]):
        results.add(number)
        seen[node] += 1
    round += 1
    print("round", round, dict(seen), flush=True)
assert len(results) == 12 * round, (len(results), round)
print("all right", flush=True)
"""
)


def launch_ray(project: Project, workers: int, script: str, *words: str) -> Launch:
    """Launch a cluster of Ray with ports of the tests' own; the first one may have to make the environment."""
    entry = project.write("train.py", script)
    return project.launch("ray", str(workers), "--entry", entry, *words, **PORTS)


def part_of(launch: Launch, node: str, part: str) -> psutil.Process:
    """Return the process of *node* whose command line holds *part*."""
    found = processes_of(launch.launch_id, node, lambda command: part in " ".join(command))
    return min(found, key=lambda process: process.create_time())


def last_line(launch: Launch) -> str:
    """Return what the launch said at its end."""
    return launch.err.strip().splitlines()[-1]


def test_the_entry_points_end_is_the_clusters(project: Project) -> None:
    """Its code and arguments; sizes of a Ray of its own are not asked of the cluster; quick to end; nothing left."""
    script = (
        "import ray, sys\nray.init(num_cpus=4)\nprint(sys.argv[1:], sorted(n['NodeName'] for n in ray.nodes()))\n"
        "sys.exit(7)"
    )
    launch = launch_ray(project, 1, script, "--", "a", "b c")
    assert launch.wait() == 7, launch.out
    assert "MAIN     | ['a', 'b c'] ['MAIN', 'WORKER_1']\n" in launch.out
    assert "ray.init(num_cpus=4) uses this cluster, of 1 workers" in launch.out
    assert re.search(r"ready after .*; dashboard http://127\.0\.0\.\d+:28265; address 127\.\S+:26379", launch.err)
    logs = launch.directory / "outputs" / "ray-logs" / "MAIN"
    assert (logs / "gcs_server.out").stat().st_size > 0
    launch.assert_nothing_left()


def test_an_error_of_a_task_is_the_reason(project: Project) -> None:
    """In its own words, which Ray hands to whoever waits for the task."""
    script = CONNECT + "@ray.remote\ndef bad():\n    raise ValueError('bad row 7')\n\nray.get(bad.remote())\n"
    launch = launch_ray(project, 1, script)
    assert launch.wait() == 1
    assert re.search(r"ended with 1 \(MAIN: .*ValueError.*bad row 7", last_line(launch)), last_line(launch)
    launch.assert_nothing_left()


def raylet(launch: Launch, node: str) -> psutil.Process:
    """Return the raylet of *node*."""
    return part_of(launch, node, "raylet/raylet")


LOST = {
    "a raylet of a worker": (lambda launch: raylet(launch, "WORKER_1").kill(), 0, "WORKER_1 lost: .*raylet"),
    "ray start of a worker": (lambda launch: part_of(launch, "WORKER_1", "ray start").kill(), 0, "WORKER_1 lost"),
    "the agent of a worker": (lambda launch: launch.kill_agent("WORKER_1"), 0, "WORKER_1 lost"),
    "the raylet of the head": (lambda launch: raylet(launch, "MAIN").kill(), 76, "the head ended .*raylet"),
    "the head's table": (
        lambda launch: part_of(launch, "MAIN", "gcs/gcs_server").kill(),
        76,
        "the head ended .*gcs_server",
    ),
    "the driver": (lambda launch: part_of(launch, "MAIN", "train.py").kill(), 137, "killed by SIGKILL"),
    "the agent of main": (lambda launch: launch.kill_agent("MAIN"), 76, "main lost"),
}


@pytest.mark.parametrize("what", LOST)
def test_what_is_killed_is_named_and_leaves_nothing(project: Project, what: str) -> None:
    """A cluster goes on without a worker; without its head it ends at once, and not with the driver's own words."""
    kill, code, words = LOST[what]
    launch = launch_ray(project, 2, TASKS, "--env", "HEARTBEAT_TIMEOUT=10")
    launch.wait_for("round 1 ")
    kill(launch)
    if code == 0:
        wait_until(lambda: re.search(words, launch.out + launch.err), lambda: f"{words} in {launch.out}{launch.err}")
        project.go()
    assert launch.wait() == code, launch.err
    assert re.search(words, launch.out + last_line(launch)), launch.err
    assert code or "all right" in launch.out
    launch.assert_nothing_left()


def test_nodes_come_and_go_while_tasks_run(project: Project) -> None:
    """No result is lost: who leaves finishes its tasks, or others compute them again."""
    launch = launch_ray(project, 1, TASKS)
    launch.wait_for("round 1 ")
    name = launch.directory.name.rpartition("-")[0]
    for change, there in (("+1", "WORKER_2"), ("-1", ""), ("+2", "WORKER_3")):
        scaled = project.run("scale", name, change)
        assert scaled.returncode == 0, scaled.stderr
        if there:
            launch.wait_for(f"'{there}'")
    project.go()
    assert launch.wait() == 0, launch.out
    assert "all right" in launch.out
    launch.assert_nothing_left()


def test_stop_ends_workers_before_the_head(project: Project) -> None:
    """In order and in seconds, though tasks still run."""
    sleeps = "@ray.remote\ndef sleep():\n    import time\n    time.sleep(1000)\n\nray.get(sleep.remote())\n"
    launch = launch_ray(project, 1, CONNECT + sleeps)
    launch.wait_for("connected")
    began_at = time.monotonic()
    assert project.run("stop", launch.directory.name.rpartition("-")[0]).returncode == 0
    assert launch.wait() == 143
    assert time.monotonic() - began_at < 60
    launch.assert_nothing_left()
