"""A session of JupyterLab as a Job of the stand-in for OCI, in a real browser, through a bastion whose sessions end."""

from __future__ import annotations

import shutil
import sys

import browser as browsers
import pytest
from browser import Browser
from harness import Launch, wait_until
from oci_cloud import Cloud, environment_of, image_of
from pages import ends_when_idle, nobody_gets_in, url_of, work_in_a_session

from oci_cluster.system.envs.python_env import with_packages

NEEDS_SSHD = "" if shutil.which("sshd", path="/usr/sbin") else "needs sshd (Debian's openssh-server, libnss-wrapper)"
WHY_NOT = browsers.why_not() or NEEDS_SSHD
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone"),
    pytest.mark.skipif(bool(WHY_NOT), reason=f"a browser and a bastion: {WHY_NOT}"),
]


def session_on(cloud: Cloud, *, idle_s: int) -> Launch:
    """Start a session, with a worker, of an image that has JupyterLab; it ends after *idle_s* without use."""
    project = cloud.project
    packages = project.path / "scripts" / "sessions" / "jupyter" / "env.yaml"
    cloud.add_image("dask", with_packages(project.path, environment_of(project, "dask"), [], [packages], print))
    environ = {**cloud.environ, "IMAGE": image_of("dask")}
    words = ("--workers", "1", "--idle", f"{idle_s}s", "--env", "SESSION_PORT=18514")
    return project.session("jupyter", *words, **environ)


@pytest.mark.parametrize("life_s", [30, pytest.param(180, marks=[pytest.mark.nightly, pytest.mark.timeout(1200)])])
def test_a_bastions_session_is_renewed_and_the_browser_does_not_notice(cloud: Cloud, life_s: int) -> None:
    """Connections are cut when it ends: the kernel goes on with what it knows, later cells work, no dialog comes."""
    cloud.service.control({"bastion_ttl_s": life_s})
    # Longer than the wait for another session below; where its end is not waited for, than a busy machine takes.
    session = session_on(cloud, idle_s=2 * life_s + 60 if life_s > 60 else 600)
    url = url_of(session)
    with Browser() as stranger:
        nobody_gets_in(stranger, url)
    with Browser() as browser:
        lab = work_in_a_session(browser, url)
        assert lab.run("kept = object(); known = id(kept)") == ""
        ways = {found["id"]: found["lifecycleState"] for found in cloud.service.bastion_sessions()}
        assert "ACTIVE" in ways.values()

        def are_over() -> bool:
            now = {found["id"]: found["lifecycleState"] for found in cloud.service.bastion_sessions()}
            return all(now[name] != "ACTIVE" for name in ways) and "ACTIVE" in now.values()

        wait_until(are_over, lambda: f"other sessions: {cloud.service.bastion_sessions()}", 2.0 * life_s + 60)
        assert lab.run("id(kept) == known and client.submit(lambda: 6 * 7).result()").strip().endswith("42")
        assert [lab.dialogs, lab.page.complaints] == [[], []]
        if life_s > 60:
            ends_when_idle(session)
        else:
            session.interrupt()
            assert session.wait() == 143, session.err
    assert [one for one in cloud.service.bastion_sessions() if one["lifecycleState"] == "ACTIVE"] == []
    cloud.assert_nothing_runs()
