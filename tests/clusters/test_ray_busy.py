"""Ray on a machine that is busy, for which the limits of its own parts are too short: no start may fail there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from harness import Project

LAUNCHES = int(os.environ.get("RAY_LAUNCHES", "20"))


@pytest.fixture
def busy() -> Iterator[None]:
    """Have each core do something else all the time, and one process more than there are cores."""
    words = [sys.executable, "-I", "-c", "while True: pass"]
    others = [subprocess.Popen(words) for _ in range((os.cpu_count() or 1) + 1)]
    yield
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.nightly
@pytest.mark.timeout(240 * LAUNCHES)
@pytest.mark.usefixtures("busy")
def test_every_launch_of_a_row_starts(project: Project, record_property: Callable[[str, object], None]) -> None:
    """As many as RAY_LAUNCHES says, one after the other. What each took is in the report, and how many tries."""
    entry = project.write("train.py", "import ray\nray.init()\nprint('connected', len(ray.nodes()), flush=True)\n")
    for number in range(LAUNCHES):
        launch = project.launch("ray", "2", "--entry", entry)
        assert launch.wait() == 0, f"launch {number}: {launch.err}"
        assert "MAIN     | connected 3\n" in launch.out
        launch.assert_nothing_left()
        found = re.search(r"ready after (.*) s;", launch.err)
        record_property(f"launch {number}", (found and found[1], launch.out.count("Ray has not started")))
