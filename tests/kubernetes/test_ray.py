"""Ray in pods of a real Kubernetes: its image, under Pod Security `restricted`, by somebody with `edit` alone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable

import pytest
from harness import Launch, wait_until
from kube.launches import CHECKOUT, SOON_S, Site, lines_of

# The first time, an image is built, and both machines unpack it.
pytestmark = pytest.mark.timeout(3600)

# Two nodes start in 10 s on two idle cores; others work there, too.
PATIENCE_S = 300.0
# Says on which node a task is the first; of 400 some are still to come when a worker has come, and one has gone.
WORK = """
import time
import ray

ray.init()

@ray.remote(max_retries=-1)
def square(number):
    time.sleep(0.3)
    return number * number, ray.get_runtime_context().get_node_id()

waiting, seen, total = [square.remote(number) for number in range(400)], set(), 0
while waiting:
    done, waiting = ray.wait(waiting)
    number, node = ray.get(done[0])
    total += number
    if node not in seen:
        seen.add(node)
        names = {found["NodeID"]: found["NodeName"] for found in ray.nodes()}
        print("first task on", names[node], flush=True)
print("total", total, flush=True)
"""
TOTAL = sum(number * number for number in range(400))
UP = "import ray, time\nray.init()\nprint('entry up', flush=True)\ntime.sleep(600)\n"


@pytest.fixture
def pods(site: Site, product_image: Callable[[str], str]) -> Site:
    """Return a project whose nodes are pods of Ray's image."""
    shutil.copytree(CHECKOUT / "ray", site.project.path / "ray", dirs_exist_ok=True)
    # Ray kills workers where 95 % of a node's memory, with its /dev/shm, is used: of 2g the example uses that on main.
    site.project.environ |= {"IMAGE": product_image("ray"), "MEMORY": "3g", "SHM_SIZE": "512m"}
    return site


def wait_for(launch: Launch, text: str) -> None:
    def is_there() -> bool:
        has_ended = launch.process.poll() is not None
        assert text in launch.out or not has_ended, f"it ended before {text!r}:\n{launch.out}\n{launch.err}"
        return text in launch.out

    wait_until(is_there, lambda: f"{text!r}:\n{launch.out}\n{launch.err}", PATIENCE_S)


def test_the_example_is_tuned_and_trained_by_pods(pods: Site) -> None:
    """By both together."""
    launch = pods.project.launch("ray", "1", "--", "--epochs", "2")
    assert launch.wait(PATIENCE_S) == 0, launch.err
    said = lines_of(launch.out, "MAIN")
    assert [line for line in said if re.search(r"epoch +2 of 2\b.* workers 2$", line)], launch.out
    pods.assert_nothing_left()


@pytest.mark.nightly
def test_no_task_is_lost_when_pods_come_and_go(pods: Site) -> None:
    """`scale.sh` beside a script that computes: what the new one takes is computed, and what the last one had, too."""
    launch = pods.launch("ray", 1, WORK, "--name", "mine")
    wait_for(launch, "first task on WORKER_1")
    pods.run("scale", "mine", "+1")
    wait_for(launch, "first task on WORKER_2")
    pods.run("scale", "mine", "-1")
    assert launch.wait(PATIENCE_S) == 0, launch.err
    assert f"total {TOTAL}" in launch.out
    pods.assert_nothing_left()


@pytest.mark.nightly
def test_the_code_of_the_script_comes_out(pods: Site) -> None:
    """7, and the exception's own words."""
    launch = pods.launch("ray", 1, "import ray, sys\nray.init()\nsys.exit(7)\n")
    assert launch.wait(PATIENCE_S) == 7, launch.err
    pods.assert_nothing_left()
    launch = pods.launch("ray", 1, "import ray\nray.init()\nraise ValueError('bad row 7')\n")
    assert launch.wait(PATIENCE_S) == 1, launch.err
    assert "ValueError: bad row 7" in launch.err.splitlines()[-1]
    pods.assert_nothing_left()


@pytest.mark.nightly
def test_a_cluster_of_pods_is_stopped_within_its_grace(pods: Site) -> None:
    """Its outcome is kept, with who has stopped it; every node says its last words."""
    name = pods.detached("ray", 1, UP, GRACE_PERIOD="20")
    wait_until(lambda: "entry up" in pods.run("logs", "--node", "MAIN", name), "the entry point", SOON_S)
    pods.run("stop", name)
    assert "with 143" in pods.run("status", name)
    pods.assert_nothing_left()
