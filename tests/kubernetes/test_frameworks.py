"""The frameworks whose images have gigabytes, in pods: their nodes find each other there, and say how they ended."""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Callable

import pytest
from harness import wait_until
from kube.launches import CHECKOUT, SOON_S, Site, lines_of
from one_node import EXAMPLES, assert_runs_alone

# The first time, an image is built, and both nodes unpack it.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

PATIENCE_S = 300.0
FAILS = {
    "pytorch": "import torch.distributed as dist\ndist.init_process_group()\nrank = dist.get_rank()\n",
    "tensorflow": "import json, os\nimport tensorflow\nrank = json.loads(os.environ['TF_CONFIG'])['task']['index']\n",
    "horovod": "import horovod.torch as hvd\nhvd.init()\nrank = hvd.rank()\n",
}
WITH_7 = "import sys\nif rank == 1: sys.exit(7)\nimport time; time.sleep(600)\n"
UP = "if rank == 0: print('entry up', flush=True)\nimport time; time.sleep(600)\n"


@pytest.fixture(params=[*FAILS])
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pods(site: Site, product_image: Callable[[str], str], framework: str) -> Site:
    """Return a project whose nodes are pods of the framework's image; without storage, of somebody with `edit`."""
    shutil.copytree(CHECKOUT / framework, site.project.path / framework, dirs_exist_ok=True)
    site.project.environ |= {"IMAGE": product_image(framework), "MEMORY": "1500m"}
    return site


def test_the_example_is_trained_by_pods(pods: Site, framework: str) -> None:
    """By all of them together."""
    launch = pods.project.launch(framework, "1", "--", "--epochs", "2")
    assert launch.wait(PATIENCE_S) == 0, launch.err
    said = lines_of(launch.out, "MAIN")
    assert [line for line in said if re.search(r"epoch +2\b.* (world size|ranks) 2$", line)], launch.out
    pods.assert_nothing_left()


def test_the_code_of_a_worker_comes_out_with_its_name(pods: Site, framework: str) -> None:
    """7, of the node that ended first."""
    launch = pods.launch(framework, 1, FAILS[framework] + WITH_7)
    assert launch.wait(PATIENCE_S) == 7, launch.err
    assert re.search(r" ended with 7 \(.*WORKER_1.*\)", launch.err.splitlines()[-1]), launch.err
    pods.assert_nothing_left()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_stays_of_one_whose_launcher_ends(pods: Site, framework: str, how: signal.Signals) -> None:
    """By Ctrl-C, and killed."""
    launch = pods.launch(framework, 1, FAILS[framework] + UP)
    wait_until(lambda: "entry up" in launch.out, lambda: launch.out + launch.err, PATIENCE_S)
    if how == signal.SIGINT:
        launch.interrupt()
        assert launch.wait(SOON_S) == 143, launch.err
    else:
        launch.kill()
    pods.assert_nothing_left()


def test_a_detached_launch_is_stopped(pods: Site, framework: str) -> None:
    """Its outcome is kept, with who has stopped it."""
    name = pods.detached(framework, 1, FAILS[framework] + UP)
    assert {node["state"] for node in pods.status(name)["nodes"]} == {"IN_PROGRESS"}
    pods.run("stop", name)
    assert "with 143" in pods.run("status", name)
    pods.assert_nothing_left()


@pytest.mark.parametrize("framework", EXAMPLES)
def test_one_pod_is_a_cluster(site: Site, product_image: Callable[[str], str], framework: str) -> None:
    """The example's result and 0, and 7, of all five."""
    shutil.copytree(CHECKOUT / framework, site.project.path / framework, dirs_exist_ok=True)
    assert_runs_alone(site.project, framework, PATIENCE_S, IMAGE=product_image(framework), MEMORY="3g", SHM_SIZE="512m")
    site.assert_nothing_left()
