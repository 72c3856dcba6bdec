"""Containers that others put beside a node's, as a service mesh does: main's end is the cluster's all the same."""

from __future__ import annotations

import pytest
import yaml
from harness import wait_until
from kube.launches import SOON_S, Site

MESH = {
    "name": "mesh",
    "image": "busybox:1",
    "command": ["sh", "-c", "trap exit TERM; sleep 1000 & wait"],
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
}
# As Kubernetes has them since 1.29, and as meshes put them in before.
KINDS = {"native": {"initContainers": [{**MESH, "restartPolicy": "Always"}]}, "ordinary": {"containers": [MESH]}}


def patch_of(site: Site, kind: str) -> str:
    image = {"image": site.project.environ["IMAGE"]}
    spec = {name: [{**one, **image} for one in found] for name, found in KINDS[kind].items()}
    return str(site.project.write("patch.yaml", yaml.safe_dump({"spec": spec})))


@pytest.mark.parametrize("kind", KINDS)
def test_a_followed_cluster_with_a_sidecar_ends_with_its_script(site: Site, kind: str) -> None:
    """With its code, at once, and nothing is left, whatever still runs in its pods."""
    launch = site.launch("plain", 1, "raise SystemExit(7)", POD_PATCH=patch_of(site, kind))
    assert launch.wait(SOON_S) == 7, launch.err
    site.assert_nothing_left()


@pytest.mark.parametrize("kind", KINDS)
def test_a_detached_cluster_with_a_sidecar_holds_no_machine_without_a_word(site: Site, kind: str) -> None:
    """A native one ends with its node. For an ordinary one nobody can, but who launched it, and is told how."""
    name = site.detached("plain", 1, "import time\ntime.sleep(5)", "--name", "mine", POD_PATCH=patch_of(site, kind))
    wait_until(lambda: site.status(name)["exit_code"] == 0, lambda: str(site.status(name)), SOON_S)
    if kind == "native":
        is_done = lambda: any(one["type"] == "Complete" for one in site.jobs()[0]["status"].get("conditions", []))  # noqa: E731
        wait_until(is_done, lambda: str(site.jobs()[0]["status"]), SOON_S)
        assert "held" not in site.status(name)
        return
    told = "container mesh still runs, and takes its machines: scripts/stop.sh mine --backend kubernetes ends it"
    assert site.status(name)["held"] == told
    assert told in site.run("list")
    site.run("stop", name)
    site.assert_nothing_left()
