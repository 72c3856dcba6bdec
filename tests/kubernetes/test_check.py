"""``check.sh`` against a real Kubernetes: nothing where all is right, and what a launch would meet there."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kube.cluster import Cluster
from kube.launches import Site

# What somebody with `edit` in one namespace sees.
OF_THE_NAMESPACE = {"settings", "ports", "entry point", "API", "rights", "namespace", "Job"}


def check(site: Site, *options: str, code: int, **environ: str) -> dict[str, Mapping[str, str]]:
    """Return what check.sh finds of a cluster of two nodes, by item."""
    entry = site.project.write("t.py", "print('never run')")
    done = site.project.run("check", "plain", "1", "--entry", entry, *options, "--json", **environ)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return {one["item"]: one for one in json.loads(done.stdout)["findings"]}


def test_an_administrator_sees_that_all_is_right(site: Site, kubernetes: Cluster) -> None:
    """Nothing is made of what was tried."""
    found = check(site, code=0, KUBECONFIG=str(kubernetes.admin))
    assert {one["verdict"] for one in found.values()} == {"fine"}
    assert {*OF_THE_NAMESPACE, "quota"} <= found.keys()
    site.assert_nothing_left()


def test_who_may_edit_one_namespace_sees_that_too(site: Site) -> None:
    found = check(site, code=0)
    assert {*OF_THE_NAMESPACE, "quota"} <= found.keys()
    site.assert_nothing_left()


def test_what_a_launch_would_meet_is_named(site: Site, kubernetes: Cluster) -> None:
    """All at once."""
    wrong = {
        "QUEUE": "nobodys",
        "IMAGE_PULL_SECRETS": "no-login",
        "ENV_SECRETS": "no-secret",
        "VOLUMES": "data=pvc:no-claim",
        "KUBECONFIG": str(kubernetes.admin),
    }
    found = check(site, code=1, **wrong)
    fails = {item: one for item, one in found.items() if one["verdict"] == "fails"}
    assert {"queue", "pull secret", "Secret", "storage"} <= fails.keys()
    assert all(one["fix"] for one in fails.values())
    assert "no-login" in fails["pull secret"]["fix"]


def test_a_namespace_that_is_not_there(site: Site, kubernetes: Cluster) -> None:
    """Its fix is the command that makes it; what belongs into it is not known before."""
    wanted = f"{site.namespace}-new"
    found = check(site, code=1, KUBECONFIG=str(kubernetes.admin), NAMESPACE=wanted)
    assert found["namespace"]["fix"] == f"kubectl create namespace {wanted}"
    assert found["Job"]["verdict"] == "unknown"
    done = kubernetes.kubectl(*found["namespace"]["fix"].split()[1:])
    assert done.returncode == 0, done.stderr
    try:
        assert check(site, code=0, KUBECONFIG=str(kubernetes.admin), NAMESPACE=wanted)["Job"]["verdict"] == "fine"
    finally:
        kubernetes.kubectl("delete", "namespace", wanted, "--wait=false")


def test_live_proves_from_inside(site: Site) -> None:
    """Two pods reach each other and the work dir, which is main's memory; nothing of them is left."""
    entry = site.project.write("t.py", "print('never run')")
    done = site.project.run("check", "gang", "3", "--entry", entry, "--live", "--json")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    live = [one for one in json.loads(done.stdout)["findings"] if one["item"] == "live"]
    assert len(live) == 3, done.stderr
    assert {one["verdict"] for one in live} == {"fine"}
    site.assert_nothing_left()
