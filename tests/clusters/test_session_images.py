"""Sessions in containers of an image as users build it: of JupyterLab in a real browser, and of ssh."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import browser as browsers
import engine as engines
import pytest
from browser import Browser
from harness import Project, wait_until
from kube import images
from pages import connected_way_ends_with_it, ends_when_idle, nobody_gets_in, url_of, work_in_a_session
from ssh_client import make_keys, ssh

WHY_NOT = browsers.why_not() or engines.why_not()
pytestmark = [
    pytest.mark.skipif(bool(WHY_NOT), reason=f"a browser and an engine: {WHY_NOT}"),
    pytest.mark.nightly,  # the image is built in minutes, and has gigabytes
    pytest.mark.timeout(1800),
]


@pytest.fixture
def containers(project: Project, tmp_path: Path) -> Iterator[Project]:
    """Return a project whose nodes are containers of an image with JupyterLab; in the end the engine has none."""
    image, archive = images.session_archive(images.KEPT, tmp_path)
    with engines.running(tmp_path / "e") as engine:
        engine.run("load", "--quiet", "--input", str(archive))
        project.environ |= {"BACKEND": "docker", "DOCKER": engine.docker, "IMAGE": image}
        project.environ["DOCKER_HOST"] = engine.environ["DOCKER_HOST"]
        yield project
        assert engine.run("ps", "--all", "--quiet").stdout == ""
        project.end_all()


def test_a_session_in_a_container_is_worked_in_by_its_owner_alone(containers: Project) -> None:
    """Its port is published nowhere; the notebook comes back with the outputs."""
    session = containers.session("jupyter", "mine", "--workers", "1", "--idle", "90s", "--env", "SESSION_PORT=18512")
    url = url_of(session)
    with Browser() as browser:
        work_in_a_session(browser, url)
        connected_way_ends_with_it(browser, containers, "mine")
        with Browser() as stranger:
            nobody_gets_in(stranger, url)
        ends_when_idle(session)
    (directory,) = containers.cluster_dirs()
    assert list(directory.glob("outputs/**/Untitled.ipynb"))


def test_a_shell_in_a_container_has_no_rights_but_its_users(containers: Project, tmp_path: Path) -> None:
    """No root, no capability, and no way to get one; files come back, and another key is refused."""
    mine, other = make_keys(tmp_path)
    (containers.code / "data.txt").write_text("there")
    session = containers.session("ssh", "box", "--key", f"{mine}.pub")
    wait_until(lambda: "ssh answers: " in session.err, lambda: session.err)
    (directory,) = containers.cluster_dirs()
    config = directory / "ssh" / "config"

    rights = ssh(
        "ssh", config, mine, "box", "id -u; grep -E '^(Cap|NoNewPrivs)' /proc/self/status; echo key=$LAUNCH_KEY"
    )
    uid, *limits, key = rights.stdout.split("\n")[:-1]
    assert (uid, key) == ("1000", "key="), rights
    assert {name: int(value, 16) for name, value in (line.split(":") for line in limits)} == {
        **{f"Cap{what}": 0 for what in ("Inh", "Prm", "Eff", "Bnd", "Amb")},
        "NoNewPrivs": 1,
    }
    assert ssh("ssh", config, mine, "box", "cat data.txt; python -c 'import dask'; cp data.txt made").stdout == "there"
    assert ssh("scp", config, mine, "box:made", str(tmp_path / "copied")).returncode == 0
    assert (tmp_path / "copied").read_text() == "there"
    assert ssh("sftp", config, mine, "-b", "-", "box", typed="rename made moved\n").returncode == 0
    assert "Permission denied (publickey)" in ssh("ssh", config, other, "box", "id").stderr
    session.interrupt()
    assert session.wait() == 143, session.err
    assert list(directory.glob("outputs/**/moved"))
