"""An image that does not run the agent: nothing of the user's has run, and no backend may call that a success."""

from __future__ import annotations

import sys
from pathlib import Path

import engine as engines
import pytest
from engine import Engine
from harness import Project
from oci_cloud import Cloud, image_of, wait

needs_engine = pytest.mark.skipif(bool(engines.why_not()), reason=engines.why_not() or "runs")
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")
WHY = "MAIN ended with 0 and reported nothing: {} does not run this project's agent"
TOLD = WHY.format("the image {}") + "; build one: make build-plain"


@pytest.fixture(scope="module")
def engine(toy_engine: Engine) -> Engine:
    """Return an engine that has ``foreign:1``, whose command ends with 0 whatever it is given."""
    container = toy_engine.run("create", "plain:1").stdout.strip()
    toy_engine.run("commit", "--change", 'ENTRYPOINT ["true"]', container, "foreign:1")
    toy_engine.run("rm", container)
    return toy_engine


@needs_engine
def test_a_container_that_ends_with_0_and_tells_nothing_is_no_success(project: Project, engine: Engine) -> None:
    """Followed, and detached and waited for; `status.sh` says the same later, from what was kept."""
    project.environ |= {
        "BACKEND": "docker",
        "DOCKER": engine.docker,
        "DOCKER_HOST": engine.environ["DOCKER_HOST"],
        "IMAGE": "foreign:1",
    }
    entry = project.write("entry.py", "raise SystemExit(7)")
    followed = project.launch("plain", "1", "--entry", entry, "--name", "followed")
    assert followed.wait() == 78, followed.err
    assert TOLD.format("foreign:1") in followed.err.splitlines()[-1]
    waited = project.launch("plain", "1", "--entry", entry, "--name", "waited", "--detach", "--wait")
    assert waited.wait() == 78, waited.err
    for name in ("followed", "waited"):
        shown = project.run("status", name)
        assert "FAILED" in shown.stdout, shown.stdout + shown.stderr
        assert TOLD.format("foreign:1") in " ".join(shown.stdout.split())
    assert engine.run("ps", "--all", "--quiet", "--filter=label=oci-cluster.launch").stdout == ""


@needs_linux
@pytest.mark.parametrize("style", ["runs", "multinode"])
def test_a_run_that_succeeds_and_tells_nothing_is_no_success(cloud: Cloud, style: str) -> None:
    """Followed, and looked at later."""
    about = {**cloud.image(Path(sys.executable)), "entrypoint": ["/bin/true"]}
    cloud.service.control({"images": {image_of("plain"): about}})
    launch = cloud.launch_plain(1, "raise SystemExit(7)", "--name", "mine", OCI_JOB_STYLE=style)
    assert wait(launch) == 78, launch.err
    assert TOLD.format(image_of("plain")) in launch.err.splitlines()[-1]
    shown = cloud.run("status", "mine")
    assert "FAILED with 78" in shown.stdout, shown.stdout + shown.stderr
    assert WHY.format("its image") in " ".join(shown.stdout.split())
