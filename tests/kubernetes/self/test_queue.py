"""Kueue: two teams, what one lends and takes back, and why something waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness import wait_until
from kube import jobs
from kube.api import Api, Object, condition
from kube.cluster import Cluster
from kube.teams import Team, teams

GPU = "nvidia.com/gpu"
LOW = "tests-low"


@pytest.fixture
def two(kubernetes: Cluster) -> Iterator[dict[str, Team]]:
    """Return teams a and b with 8 GPUs each, which may borrow from each other; the nodes have 8 each."""
    for node in kubernetes.nodes:
        kubernetes.set_resource(node, GPU, 8)
    with teams(kubernetes, {"a": {GPU: 8}, "b": {GPU: 8}}, priorities={LOW: 10}) as made:
        yield made
    for node in kubernetes.nodes:
        kubernetes.set_resource(node, GPU, 0)


def workload(api: Api, namespace: str, path: str) -> Object:
    """Return what Kueue made of a Job."""
    uid = api.get(path)["metadata"]["uid"]
    query = {"labelSelector": f"kueue.x-k8s.io/job-uid={uid}"}
    found = api.items(f"apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads", **query)
    return found[0] if found else {}


def test_a_cluster_is_preempted_as_a_whole_and_comes_back_by_itself(kubernetes: Cluster, two: dict[str, Team]) -> None:
    """A borrows 4 of B's 8 GPUs; B wants its own: all of A's 12 nodes end, B's 8 run, and then A's 12 again."""
    api, (a, b) = kubernetes.api, (two["a"], two["b"])
    low = {"kueue.x-k8s.io/queue-name": a.queue, "kueue.x-k8s.io/priority-class": LOW}
    script = "trap 'exit 143' TERM; while :; do sleep 0.2; done"
    with jobs.running(api, a.namespace, jobs.job("low", 12, script, labels=low, **{GPU: "1"})) as path:
        api.until(path, lambda job: job["status"].get("ready") == 12, "A's 12 to run")
        first = {pod["metadata"]["uid"] for pod in jobs.pods(api, a.namespace, "low").values()}
        labels = {"kueue.x-k8s.io/queue-name": b.queue}
        with jobs.running(api, b.namespace, jobs.job("own", 8, script, labels=labels, **{GPU: "1"})) as other:
            api.until(other, lambda job: job["status"].get("ready") == 8, "B's 8 to run")
            suspended = api.get(path)
            assert suspended["spec"]["suspend"] is True
            assert not suspended["status"].get("ready")
            held = workload(api, a.namespace, path)
            evicted, preempted = condition(held, "Evicted"), condition(held, "Preempted")
            assert (evicted["reason"], preempted["reason"]) == ("Preempted", "InCohortReclamation")
            assert api.get(other)["metadata"]["uid"] in preempted["message"]
            waiting = condition(held, "QuotaReserved")
            assert waiting["status"] == "False"
            assert f"insufficient unused quota for {GPU}" in waiting["message"]
        api.until(path, lambda job: job["status"].get("ready") == 12, "A's 12 to run again")
        again = {pod["metadata"]["uid"] for pod in jobs.pods(api, a.namespace, "low").values()}
        assert len(again) == 12
        assert not first & again


def test_a_user_sees_its_place_in_the_queue(kubernetes: Cluster, two: dict[str, Team]) -> None:
    """Two clusters of 16 GPUs: one runs, the other waits as a whole; the visibility API is asked by a user's rights."""
    team = two["a"]
    user = kubernetes.user(team.namespace)
    api = Api(user.by_token())
    labels = {"kueue.x-k8s.io/queue-name": team.queue}
    script = "trap exit TERM; while :; do sleep 0.2; done"
    first = jobs.job("first", 2, script, labels=labels, **{GPU: "8"})
    second = jobs.job("second", 2, script, labels=labels, **{GPU: "8"})
    with jobs.running(api, team.namespace, first) as path:
        api.until(path, lambda job: job["status"].get("ready") == 2, "the first to run")
        with jobs.running(api, team.namespace, second) as other:
            place = f"namespaces/{team.namespace}/localqueues/{team.queue}/pendingworkloads"
            visible = f"apis/visibility.kueue.x-k8s.io/v1beta2/{place}"
            wait_until(lambda: api.items(visible), "the second to be listed as pending")
            assert [item["positionInLocalQueue"] for item in api.items(visible)] == [0]
            assert jobs.pods(api, team.namespace, "second") == {}
            assert condition(workload(api, team.namespace, other), "QuotaReserved").get("status") != "True"
