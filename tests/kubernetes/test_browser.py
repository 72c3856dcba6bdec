"""A session of JupyterLab in a pod, in a real browser, by way of the API that forwards ports."""

from __future__ import annotations

import shutil
from pathlib import Path

import browser as browsers
import pytest
from browser import Browser
from kube import images
from kube.cluster import Cluster
from kube.launches import CHECKOUT, Site
from pages import connected_way_ends_with_it, ends_when_idle, nobody_gets_in, url_of, work_in_a_session

WHY_NOT = browsers.why_not()
pytestmark = [
    pytest.mark.skipif(bool(WHY_NOT), reason=f"a browser: {WHY_NOT}"),
    pytest.mark.nightly,  # the image is built in minutes, and both nodes unpack gigabytes
    pytest.mark.timeout(1800),
]


@pytest.fixture
def pods(site: Site, kubernetes: Cluster, tmp_path: Path) -> Site:
    """Return a project whose nodes are pods of an image with JupyterLab, of somebody with `edit`."""
    image, archive = images.session_archive(images.KEPT, tmp_path)
    kubernetes.do("import_image", archive=str(archive))
    shutil.copytree(CHECKOUT / "dask", site.project.path / "dask", dirs_exist_ok=True)
    site.project.environ |= {"IMAGE": image, "CPUS": "1", "MEMORY": "900m"}
    return site


def test_a_session_in_a_pod_is_worked_in_by_its_owner_alone(pods: Site) -> None:
    """Nothing but the API leads to it; when it has ended, nothing of it is left."""
    session = pods.project.session("jupyter", "mine", "--workers", "1", "--idle", "90s", "--env", "SESSION_PORT=18513")
    url = url_of(session)
    with Browser() as browser:
        work_in_a_session(browser, url)
        connected_way_ends_with_it(browser, pods.project, "mine")
        with Browser() as stranger:
            nobody_gets_in(stranger, url)
        ends_when_idle(session)
    pods.assert_nothing_left()
