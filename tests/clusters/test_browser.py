"""What a cluster shows on 127.0.0.1, looked at with a real browser."""

from __future__ import annotations

import contextlib
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import browser as browsers
import pytest
from browser import Browser
from harness import Project, wait_until
from pages import COMPUTE, Lab, dashboard_moves, nobody_gets_in, url_of, work_in_a_session

from oci_cluster.backends.base import DirectConnection
from oci_cluster.launcher.connect.tcp_proxy import Forwarder

WHY_NOT = browsers.why_not()
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=f"a browser: {WHY_NOT}")


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Return a browser without a past."""
    with Browser() as browser:
        yield browser


@contextlib.contextmanager
def looked_at(url: str) -> Iterator[None]:
    """Open a page of the session again and again: a browser on a busy machine takes longer than its idle limit."""
    is_enough = threading.Event()

    def look() -> None:
        while not is_enough.wait(1):
            with urllib.request.urlopen(url, timeout=60) as page:  # noqa: S310 - http of this machine
                page.read()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        is_enough.set()
        thread.join()


@contextlib.contextmanager
def way_that_is_cut(url: str) -> Iterator[tuple[str, threading.Event]]:
    """Yield another URL of the same server, and what has all its connections cut every 3 s when it is set."""
    place = urlsplit(url)
    tunnel = DirectConnection(str(place.hostname), int(place.port or 0))
    cut, is_enough = threading.Event(), threading.Event()
    forwarders = [Forwarder(tunnel, 0, lambda _: None)]
    port = forwarders[0].port

    def cut_again_and_again() -> None:
        while not is_enough.wait(3):
            if cut.is_set():
                forwarders.pop().close()
                forwarders.append(Forwarder(tunnel, port, lambda _: None))

    thread = threading.Thread(target=cut_again_and_again)
    thread.start()
    try:
        yield place._replace(netloc=f"127.0.0.1:{port}").geturl(), cut
    finally:
        is_enough.set()
        thread.join()
        forwarders.pop().close()


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
    # The wrong one that was tried is almost the right one.
    assert url.partition("token=")[2][:-1] not in session.log("MAIN")
    session.interrupt()
    assert session.wait() == 143
    session.assert_nothing_left()


@pytest.mark.quiet
def test_a_session_ends_at_its_idle_limit_and_never_while_a_cell_runs(project: Project, browser: Browser) -> None:
    """With its tab open, which asks for this and that, and connects again after each cut; the end is no failure."""
    session = project.session("jupyter", "--idle", "10s", "--env", "SESSION_PORT=18511")
    url = url_of(session)
    with way_that_is_cut(url) as (url_of_way, cut):
        with looked_at(url):
            lab = Lab(browser, url_of_way)
            lab.new_notebook()
            number = lab.start("import time; print('begins'); time.sleep(13); print(f'slept {time.time()};')")
            wait_until(lambda: "begins" in lab.output(number), "the cell to begin")
        slept = wait_until(
            lambda: re.search(r"slept (\d+\.\d+);", lab.output(number)),
            lambda: f"the cell: {session.err}{session.log('MAIN')}",
        )
        cut.set()
        assert session.wait() == 0, session.err
        # By the kernel's word: the page shows it later.
        assert time.time() - float(slept[1]) > 8
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
