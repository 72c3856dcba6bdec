"""Images of this project in pods of a real Kubernetes: built here, and brought as archives."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from dask_client import assert_computes
from kube import jobs
from kube.api import Api, condition
from kube.cluster import Cluster, User
from kube.launches import CHECKOUT, Site


def said(kubernetes: Cluster, user: User, image: str, script: str) -> list[str]:
    """Return what each of two nodes, one on each machine, prints."""
    api = Api(user.by_token())
    with jobs.running(api, user.namespace, jobs.job("said", 2, script, image=image)) as path:
        api.until(path, lambda job: condition(job, "Complete") or condition(job, "Failed"), "the Job to end")
        pods = jobs.pods(api, user.namespace, "said")
        assert [jobs.ended(pod).get("exitCode") for pod in pods.values()] == [0, 0]
        assert {pod["spec"]["nodeName"] for pod in pods.values()} == {"n1", "n2"}
        logs = [f"api/v1/namespaces/{user.namespace}/pods/{pod['metadata']['name']}/log" for pod in pods.values()]
        return [api.get(log) for log in logs]


def test_the_image_of_the_frameworks_of_tests_runs_on_both_machines(
    kubernetes: Cluster, user: User, toy_image: str
) -> None:
    """Not below its entrypoint: what a container is told to run is the user's."""
    script = "id -u; ls -d /opt/oci-cluster/plain /opt/oci-cluster/common/entrypoint.sh; python -c 'import psutil'"
    expected = "1000\n/opt/oci-cluster/common/entrypoint.sh\n/opt/oci-cluster/plain\n"
    assert said(kubernetes, user, toy_image, script) == [expected] * 2


@pytest.mark.timeout(1800)  # the first time it is built
def test_the_image_of_dask_runs_on_both_machines(
    kubernetes: Cluster, user: User, product_image: Callable[[str], str]
) -> None:
    """As `make build` makes it."""
    script = "id -u; python -c 'import distributed; print(distributed.__name__)'; touch /opt/env/x 2>&- || echo kept"
    assert said(kubernetes, user, product_image("dask"), script) == ["1000\ndistributed\nkept\n"] * 2


@pytest.mark.timeout(1800)  # the first time it is built
def test_the_example_of_dask_is_computed_by_pods(site: Site, product_image: Callable[[str], str]) -> None:
    """The README's first command, with one worker, by somebody with `edit` in one namespace, without storage."""
    shutil.copytree(CHECKOUT / "dask", site.project.path / "dask", dirs_exist_ok=True)
    launch = site.project.launch("dask", "1", IMAGE=product_image("dask"), MEMORY="700m")
    assert launch.wait() == 0, launch.err
    assert "workers: 1" in launch.out
    assert "on the test images: 0.9911" in launch.out
    site.assert_nothing_left()


@pytest.mark.nightly  # what test_new_project.py launches here, and test_images.py of clusters in containers
@pytest.mark.timeout(1800)  # likewise
@pytest.mark.parametrize("framework", ["dask", "horovod", "pytorch", "ray", "tensorflow"])
def test_a_project_of_the_users_own_is_computed_by_pods(
    site: Site, product_image: Callable[[str], str], tmp_path: Path, framework: str
) -> None:
    """What new.sh makes, which has no package but in its wheel, with the user's own code."""
    (own := tmp_path / "my own project" / "src").mkdir(parents=True)
    (own / "mine.py").write_text("WORDS = 'my own code'\n")
    (own / "train.py").write_text("import os, mine\nprint(mine.WORDS, os.environ['MODE'], flush=True)\n")
    words = [framework, str(own.parent), "--code", "src", "--entry", "train.py"]
    subprocess.run([CHECKOUT / "scripts" / "new.sh", *words], check=True, capture_output=True)
    assert not (own.parent / "common" / "oci_cluster").exists()
    (own.parent / ".venv").symlink_to(CHECKOUT / ".venv")
    site.project.path = site.project.code = own.parent
    launch = site.project.launch(framework, "1", IMAGE=product_image(framework), MEMORY="1500m")  # what Ray needs
    assert launch.wait() == 0, launch.err
    assert "my own code MAIN" in launch.out
    site.assert_nothing_left()


@pytest.mark.timeout(1800)  # likewise
def test_a_client_on_this_machine_takes_part_in_pods(site: Site, product_image: Callable[[str], str]) -> None:
    """Through the API alone, with the certificate of a cluster whose files are in main's memory."""
    shutil.copytree(CHECKOUT / "dask", site.project.path / "dask", dirs_exist_ok=True)
    launch = site.project.launch("dask", "1", "--keep", "--name", "mine", IMAGE=product_image("dask"), MEMORY="700m")
    site.wait_for(launch, "ready after")
    assert_computes(site.project, "mine", python_of_dask())
    with site.project.connected("mine", "--port", "dashboard") as url:
        assert url.endswith("/status")
        site.run("connect", "mine", "--port", "dashboard", "--check")
    launch.interrupt()
    assert launch.wait() == 143, launch.err
    site.assert_nothing_left()


def python_of_dask() -> Path:
    """Return the interpreter of Dask's environment on this machine, which is made where it is not there."""
    command = [sys.executable, "-m", "oci_cluster", "prepare", "dask"]
    environ = {**os.environ, "PYTHONPATH": str(CHECKOUT / "common")}
    return Path(subprocess.check_output(command, env=environ, text=True).strip())
