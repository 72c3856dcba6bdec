"""``connect.sh`` on clusters of this machine: what is reachable is named, and a program outside takes part."""

from __future__ import annotations

import subprocess
import urllib.request
from pathlib import Path

from dask_client import assert_computes
from harness import Project, processes_of, wait_until


def python_of(launch_id: str) -> Path:
    """Return the interpreter of the nodes, which has Dask."""
    (scheduler,) = processes_of(launch_id, "MAIN", lambda words: "scheduler" in words)
    return Path(scheduler.cmdline()[0])


def test_a_dask_cluster_is_reached_from_outside(project: Project) -> None:
    launch = project.launch("dask", "1", "--keep", "--name", "mine")
    found = wait_until(lambda: "ready after" in launch.err and launch.err, "readiness")
    usual = found.partition("dashboard ")[2].partition(";")[0]

    named = project.run("connect", "mine")
    assert (named.returncode, named.stdout) == (0, f"{usual}\n")
    assert project.run("connect", "mine", "--port", "scheduler").stdout.startswith("tls://")
    assert_computes(project, "mine", python_of(launch.launch_id))
    assert "handshake" not in launch.log("MAIN")  # a reader takes it for a stranger's
    checked = project.run("connect", "mine", "--port", "scheduler", "--check")
    assert (checked.returncode, checked.stderr) == (0, "connect.sh: scheduler of MAIN is reachable\n")
    assert project.run("connect", "mine", "--port", "9", "--check").returncode == 69

    with project.connected("mine", "--port", "18787:dashboard") as url:
        assert url == "http://127.0.0.1:18787/status"
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - http, as the line before says
            assert b"bokeh" in answer.read().lower()

    ends_with_it = subprocess.Popen(
        [str(project.path / "scripts" / "connect.sh"), "mine", "--port", "18787:dashboard"],
        env=project.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert ends_with_it.stdout is not None
    assert ends_with_it.stdout.readline()
    assert project.run("stop", "mine").returncode == 0
    assert "mine has ended" in ends_with_it.communicate(timeout=60)[1]
    assert ends_with_it.returncode == 0
    refused = project.run("connect", "mine")
    assert refused.returncode == 2
    assert "mine has ended" in refused.stderr
