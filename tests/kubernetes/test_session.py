"""A session in a pod: reached through the API, by who has its token."""

# URLs here are those of a server that the test has started.
# ruff: noqa: S310

from __future__ import annotations

import shutil
import urllib.error
import urllib.request

import pytest
from harness import wait_until
from kube.launches import CHECKOUT, SOON_S, Site


def test_a_session_in_a_pod_is_reached_by_who_has_its_token(site: Site) -> None:
    """Nothing but the API leads there; its server is on the pod's own loopback, and nothing is left."""
    hello = CHECKOUT / "tests" / "clusters" / "hello"
    shutil.copytree(hello, site.project.path / "scripts" / "sessions" / "hello", dirs_exist_ok=True)
    (site.project.code / "mine.txt").write_text("mine")
    session = site.project.session("hello", "talk", "--framework", "plain")
    (path,) = wait_until(lambda: [*site.project.path.glob(".clusters/talk-*/session-url")], lambda: session.err, SOON_S)
    url = path.read_text().strip()
    with urllib.request.urlopen(url, timeout=60) as page:
        assert page.read() == b"hello"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(url[:-1], timeout=60)
    site.run("connect", "talk", "--check")
    session.interrupt()
    assert session.wait(SOON_S) == 143, session.err
    site.assert_nothing_left()
