"""What a cluster shows on 127.0.0.1, looked at with a real browser."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import browser as browsers
import pytest
from browser import Browser
from harness import Project, wait_until
from pages import COMPUTE, Lab, dashboard_moves, nobody_gets_in, url_of, work_in_a_session

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


def test_a_session_is_worked_in_by_its_owner_alone(project: Project, browser: Browser) -> None:
    """A notebook computes on the workers, the session's port has the dashboard, and a wrong token gets nothing."""
    session = project.session("jupyter", "--workers", "2", "--env", "SESSION_PORT=18510")
    url = url_of(session)
    assert project.run("connect").stdout.strip() == url
    work_in_a_session(browser, url)
    assert list(project.code.glob("*.ipynb"))
    with Browser() as stranger:
        nobody_gets_in(stranger, url)
    session.interrupt()
    assert session.wait() == 143
    session.assert_nothing_left()


@pytest.mark.quiet
def test_a_session_ends_at_its_idle_limit_and_never_while_a_cell_runs(project: Project, browser: Browser) -> None:
    """With its tab open, which asks for this and that all the time; the end is no failure."""
    session = project.session("jupyter", "--idle", "10s", "--env", "SESSION_PORT=18511")
    lab = Lab(browser, url_of(session))
    lab.new_notebook()
    assert lab.run("import time; time.sleep(13); print('slept')").strip() == "slept"
    used_at = time.monotonic()
    assert session.wait() == 0, session.err
    assert time.monotonic() - used_at > 8
    assert "idle for 10s: the session ends" in session.log("MAIN")
    session.assert_nothing_left()


def test_the_browser_of_tests_reaches_loopback_alone_and_leaves_nothing() -> None:
    """By name or address, whatever the machine has for a network; and none of its processes or files stays."""
    with Browser() as browser:
        for url in ("http://192.0.2.1/", "http://stranger.invalid/", "https://[2001:db8::1]/"):
            with pytest.raises(AssertionError, match="ERR_PROXY_CONNECTION_FAILED"):
                browser.open(url)
        assert browser.processes()
    assert browser.processes() == []
    assert not Path(browser.home).exists()
