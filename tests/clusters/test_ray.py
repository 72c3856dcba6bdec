"""Real Ray clusters: the example, what ends them, nodes that come and go."""

from __future__ import annotations

import re
import time

import psutil
import pytest
from harness import Launch, Project, processes_of, wait_until

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
    """Launch a cluster of Ray; the first one may have to make the environment."""
    entry = project.write("train.py", script)
    return project.launch("ray", str(workers), "--entry", entry, *words)


def part_of(launch: Launch, node: str, part: str) -> psutil.Process:
    """Return the process of *node* whose command line holds *part*."""
    found = processes_of(launch.launch_id, node, lambda command: part in " ".join(command))
    return min(found, key=lambda process: process.create_time())


def all_of(launch: Launch) -> list[psutil.Process]:
    """Return all processes of the launch; Ray's agents write a title over the environment by which others are known."""
    return psutil.Process(launch.runner_pid()).children(recursive=True)


def assert_ended(launch: Launch, processes: list[psutil.Process]) -> None:
    """Nothing of the launch is left, and none of its *processes* of before."""
    launch.assert_nothing_left()
    wait_until(lambda: not any(process.is_running() for process in processes), "the end of Ray's agents")


def last_line(launch: Launch) -> str:
    """Return what the launch said at its end."""
    return launch.err.strip().splitlines()[-1]


def test_the_example_tunes_and_trains(project: Project) -> None:
    """On all nodes, each with its share."""
    said = run_example(project, epochs=2)
    shares = dict(re.findall(r"^(MAIN|WORKER_1) +\d+ +\d+ +(\d+%)$", said, re.MULTILINE))
    assert shares == {"MAIN": "50%", "WORKER_1": "50%"}
    assert said.count("trial ") == 6
    assert re.search(r"epoch  2 of 2 .* workers 2\n", said)


def test_the_example_goes_on_where_it_was(project: Project) -> None:
    """What it has found and learned is kept, and not looked for again."""
    run_example(project, epochs=2)
    said = run_example(project, epochs=3)
    assert "going on after epoch 2 of 3" in said
    assert "trial " not in said
    accuracy = re.search(r"on the test images after 3 epochs: (0\.\d+)", said)
    assert accuracy, said
    assert float(accuracy[1]) > 0.8


def run_example(project: Project, epochs: int) -> str:
    """Return what main prints of the example, whose outputs are kept."""
    outputs = project.code.with_name("outputs")
    launch = project.launch("ray", "1", "--env", f"OUTPUT_DIR={outputs}", "--", "--epochs", str(epochs))
    assert launch.wait() == 0, launch.out
    launch.assert_nothing_left()
    return launch.log("MAIN")


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


WORKERS = {
    "WORKER_1": (lambda launch: raylet(launch, "WORKER_1").kill(), "WORKER_1 lost: .*raylet"),
    "WORKER_2": (lambda launch: part_of(launch, "WORKER_2", "ray start").kill(), "WORKER_2 lost"),
    "WORKER_3": (lambda launch: launch.kill_agent("WORKER_3"), "WORKER_3 lost"),
}


def test_workers_that_are_killed_are_named_and_their_tasks_done_by_others(project: Project) -> None:
    """Their raylet, their `ray start`, their agent: main is left, and all results are right."""
    launch = launch_ray(project, 3, TASKS, "--env", "HEARTBEAT_TIMEOUT=20", "--env", "MIN_WORKERS=0")
    launch.wait_for("round 1 ")
    processes = all_of(launch)
    for kill, words in WORKERS.values():
        kill(launch)
        wait_until(lambda words=words: re.search(words, launch.out), lambda: f"{WORKERS}:\n{launch.out}{launch.err}")
    project.go()
    assert launch.wait() == 0, launch.err
    assert "all right" in launch.out
    assert_ended(launch, processes)


MAINS = {
    "raylet": (lambda launch: raylet(launch, "MAIN").kill(), 76, "the head ended .*raylet"),
    "GCS": (lambda launch: part_of(launch, "MAIN", "gcs/gcs_server").kill(), 76, "the head ended .*gcs_server"),
    "driver": (lambda launch: part_of(launch, "MAIN", "train.py").kill(), 137, "killed by SIGKILL"),
    "agent": (lambda launch: launch.kill_agent("MAIN"), 76, "main lost"),
}


@pytest.mark.parametrize("what", MAINS)
def test_a_main_without_a_part_ends_the_cluster(project: Project, what: str) -> None:
    """At once, with that as the reason and not what the driver says of it, and nothing is left."""
    kill, code, words = MAINS[what]
    launch = launch_ray(project, 1, TASKS, "--env", "HEARTBEAT_TIMEOUT=20")
    launch.wait_for("round 1 ")
    processes = all_of(launch)
    kill(launch)
    assert launch.wait() == code, launch.err
    assert re.search(words, last_line(launch)), launch.err
    assert_ended(launch, processes)


def test_nodes_come_and_go_while_tasks_run(project: Project) -> None:
    """No result is lost: who leaves finishes its tasks, or others compute them again.

    The script's code and arguments are the cluster's; sizes of a Ray of its own are not asked of it.
    """
    script = TASKS.replace("ray.init()", "ray.init(num_cpus=4)") + "import sys\nprint(sys.argv[1:])\nsys.exit(7)\n"
    launch = launch_ray(project, 1, script, "--", "a", "b c")
    launch.wait_for("round 1 ")
    name = launch.directory.name.rpartition("-")[0]
    for change in ("+1", "-1"):
        scaled = project.run("scale", name, change)
        assert scaled.returncode == 0, scaled.stderr
        launch.wait_for("'WORKER_2'")  # it has done tasks
    project.go()
    assert launch.wait() == 7, launch.out
    assert "all right" in launch.out
    assert "MAIN     | ['a', 'b c']\n" in launch.out
    assert "ray.init(num_cpus=4) uses this cluster, of 1 workers" in launch.out
    page, gcs = (launch.ports()[name] for name in ("DASHBOARD_PORT", "GCS_PORT"))
    assert re.search(rf"ready after .*; dashboard http://127\.0\.0\.\d+:{page}; address 127\.\S+:{gcs}\n", launch.err)
    assert (launch.directory / "outputs" / "ray-logs" / "MAIN" / "gcs_server.out").stat().st_size > 0
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
