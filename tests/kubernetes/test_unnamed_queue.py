"""Launches that name no queue, where Kueue manages their namespace all the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import wait_until
from kube.cluster import Cluster
from kube.launches import SOON_S, UP, Site, site_of
from kube.teams import teams

QUEUE = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue"}


def uid_of_main(site: Site) -> str:
    return str(site.pods()[0]["metadata"]["uid"])


@pytest.fixture
def site(kubernetes: Cluster, toy_image: str, checkout_copy: Path, tmp_path: Path) -> Iterator[Site]:
    """Return a site in a team's namespace, whose queue is called `vision`."""
    with teams(kubernetes, {"vision": {"pods": 4}}) as made:
        namespace = made["vision"].namespace
        queue = {**QUEUE, "metadata": {"name": "vision"}, "spec": {"clusterQueue": made["vision"].cluster_queue}}
        kubernetes.api.create(f"apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/localqueues", queue)
        kubeconfig = kubernetes.user(namespace).by_certificate()
        with site_of(checkout_copy, tmp_path / "mine", kubernetes, namespace, kubeconfig) as made_site:
            yield made_site


def test_a_cluster_in_the_default_queue_grows_without_an_interruption(site: Site, kubernetes: Cluster) -> None:
    """A queue called `default` takes Jobs that name none, and counts what they grow by."""
    queues = f"apis/kueue.x-k8s.io/v1beta2/namespaces/{site.namespace}/localqueues"
    spec = kubernetes.api.items(queues)[0]["spec"]
    kubernetes.api.create(queues, {**QUEUE, "metadata": {"name": "default"}, "spec": spec})
    name = site.detached("plain", 1, UP, "--name", "grows")
    (job,) = site.jobs()
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    main = uid_of_main(site)
    site.run("scale", name, "+1")
    wait_until(lambda: site.nodes(name).get("WORKER_2", {}).get("state") == "IN_PROGRESS", "the new worker", SOON_S)
    assert uid_of_main(site) == main
    assert "life" not in site.status(name)
    # What it has taken is the queue's: nothing is left for one of two nodes.
    waits = site.launch("plain", 1, UP, "--name", "waits")
    site.wait_for(waits, "queued")
    assert "(TTL, without its time in the queue and lives that were interrupted)" in waits.err
    waits.interrupt()
    assert waits.wait(SOON_S) == 143, waits.err
    site.run("stop", name)
    site.assert_nothing_left()


@pytest.mark.alone
def test_a_launch_without_a_queue_where_every_job_needs_one_ends_at_once(site: Site, kubernetes: Cluster) -> None:
    """`manageJobsWithoutQueueName`: it would wait for ever. The queues that there are stand in the message."""
    kubernetes.do("set_kueue", settings={"manageJobsWithoutQueueName": True})
    try:
        launch = site.launch("plain", 1, UP)
        assert launch.wait(SOON_S) == 78, launch.err
        last = launch.err.splitlines()[-1]
        assert "that names no queue; there are: vision, vision-queue (--queue vision)" in last
        site.assert_nothing_left()
        named = site.launch("plain", 1, "print('done')", "--queue", "vision")
        assert named.wait(SOON_S) == 0, named.err
    finally:
        kubernetes.do("set_kueue", settings={})


def test_a_job_that_somebody_has_suspended_says_so(site: Site, kubernetes: Cluster) -> None:
    """It waits, as long as that person wants."""
    name = site.detached("plain", 1, UP, "--name", "held")
    (job,) = site.jobs()
    path = f"apis/batch/v1/namespaces/{site.namespace}/jobs/{job['metadata']['name']}"
    kubernetes.api.patch(path, {"spec": {"suspend": True}})
    wait_until(lambda: "its Job is suspended" in site.run("status", name), lambda: site.run("status", name), SOON_S)
    found = json.loads(site.run("status", "--json", name))
    assert found["exit_code"] is None
    site.run("stop", name)
    site.assert_nothing_left()
