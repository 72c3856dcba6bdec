"""What a cluster shows on 127.0.0.1, looked at with a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import browser as browsers
import pytest
from browser import Browser
from harness import Project, wait_until
from pages import COMPUTE, dashboard_moves

WHY_NOT = browsers.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=f"a browser: {WHY_NOT}")


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Return a browser without a past."""
    with Browser() as browser:
        yield browser


def test_dashboard_of_a_cluster_moves(project: Project, browser: Browser) -> None:
    """By the address that the launch tells: the page follows what the workers do, and complains of nothing."""
    launch = project.launch("dask", "2", "--entry", project.write("compute.py", COMPUTE))
    launch.wait_for("computing")
    told = wait_until(lambda: re.search(r"dashboard (\S+/status);", launch.err), "the dashboard's address")
    page = browser.open(told[1])
    dashboard_moves(page)
    assert page.complaints == []
    project.go()
    assert launch.wait() == 0, launch.err
