"""`make demo-oci`, as README has it: a launch on the stand-in for OCI, by somebody who has nothing but the checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from harness import PATIENCE_S, Project, wait_until

CHECKOUT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")


def running_with(mark: str) -> list[psutil.Process]:
    """Return all processes that have *mark* in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DEMO_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.mark.timeout(900)
def test_the_rehearsal_ends_with_0_and_leaves_nothing(project: Project, tmp_path: Path) -> None:
    """The launch that LAUNCH names: its result, its line of the list, what was asked; then neither process nor file."""
    demo = tmp_path / "demo"
    shutil.copytree(project.path, demo, symlinks=True)
    shutil.copytree(CHECKOUT / "tests", demo / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "requirements-dev.txt"):
        shutil.copy(CHECKOUT / name, demo)
    done = subprocess.run(
        # The tools of developers are there: the test's own.
        ["make", "--old-file=.venv/.dev-installed", "demo-oci", "LAUNCH=dask 2 --name mine"],
        cwd=demo,
        env={**project.environ, "DEMO_MARK": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE_S,  # most of it is the example itself, on two workers of one machine
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^MAIN     \| mean score of 4 folds: 0\.\d+", done.stdout, re.MULTILINE)
    assert re.search(r"^launch\.sh: cluster mine ended with 0 after ", done.stderr, re.MULTILINE)
    assert re.search(r"^mine +dask +.*SUCCEEDED", done.stdout, re.MULTILINE)
    assert re.search(r"^ +3  launcher  data_science\.create_job_run +200$", done.stdout, re.MULTILINE)
    assert re.search(r"^ +\d+  nodes     object_storage\.put_object +200$", done.stdout, re.MULTILINE)
    assert not re.search(r"^Traceback", done.stdout + done.stderr, re.MULTILINE)  # a node's own is behind its name
    wait_until(lambda: not running_with(str(tmp_path)), lambda: f"the end of {running_with(str(tmp_path))}")
    assert list(project.temporary.iterdir()) == []
