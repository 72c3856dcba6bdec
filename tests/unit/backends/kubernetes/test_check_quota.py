"""What check.sh finds of Kueue's queues and priorities, and of the quotas of a namespace."""

from __future__ import annotations

import pytest
from unit.backends.kubernetes.check_api import NAMESPACE, Api, Launch
from unit.backends.kubernetes.fake_api import KUEUE


def team(api: Api) -> None:
    """Have a team, with a queue in the namespace, and a priority."""
    local = {"metadata": {"name": "q"}, "spec": {"clusterQueue": "team-a"}, "status": {}}
    api.objects[f"{KUEUE}/v1beta2/namespaces/mine/localqueues/q"] = local
    api.objects[f"{KUEUE}/v1beta2/workloadpriorityclasses/low"] = {"metadata": {"name": "low"}}


def test_a_queue_that_is_there_is_fine(api: Api, launch: Launch) -> None:
    team(api)
    assert launch.item("queue", QUEUE="q") == [("fine", "LocalQueue q of ClusterQueue team-a", "")]
    found = launch.item("priority", QUEUE="q", PRIORITY="low")
    assert found == [("fine", "WorkloadPriorityClass low is there", "")]


def test_a_queue_that_is_not_there_fails_and_one_that_is_held_is_told(api: Api, launch: Launch) -> None:
    """With those that there are. What only has to wait does not fail."""
    team(api)
    why = "QUEUE: there is no LocalQueue 'other' in namespace mine; there is: q"
    assert launch.item("queue", QUEUE="other") == [("fails", why, "QUEUE=<one of: q>")]
    queue = api.objects[f"{KUEUE}/v1beta2/namespaces/mine/localqueues/q"]
    queue["status"] = {"conditions": [{"type": "Active", "status": "False", "message": "ClusterQueue is stopped"}]}
    told = "LocalQueue q, admits nothing: ClusterQueue is stopped: the cluster would wait"
    assert launch.item("queue", QUEUE="q")[0][:2] == ("unknown", told)
    queue["spec"]["stopPolicy"] = "Hold"
    told = "LocalQueue q, held: the cluster would wait"
    assert launch.item("queue", QUEUE="q") == [("unknown", told, "ask your administrator: quota.sh resume team-a")]


def test_without_kueue_there_is_no_queue(api: Api, launch: Launch) -> None:
    """And nothing that QUEUE could be."""
    api.refusals["/localqueues"] = (404, "NotFound", "the server could not find the requested resource")
    ((verdict, told, fix),) = launch.item("queue", QUEUE="q")
    assert (verdict, told.startswith("QUEUE: this Kubernetes has no Kueue"), fix) == ("fails", True, "leave QUEUE out")


def test_a_priority_that_is_not_there_fails(api: Api, launch: Launch) -> None:
    team(api)
    told = "PRIORITY: there is no WorkloadPriorityClass 'high'; there is: low"
    assert launch.item("priority", QUEUE="q", PRIORITY="high") == [("fails", told, "PRIORITY=<one of: low>")]
    del api.objects[f"{KUEUE}/v1beta2/workloadpriorityclasses/low"]
    assert launch.item("priority", QUEUE="q", PRIORITY="high")[0][2] == "leave PRIORITY out"


def test_a_class_of_kubernetes_own_is_looked_for(api: Api, launch: Launch) -> None:
    """It needs no queue."""
    api.objects["/apis/scheduling.k8s.io/v1/priorityclasses/batch"] = {"metadata": {"name": "batch"}}
    told = "PRIORITY_CLASS: there is no PriorityClass 'mine'; there is: batch"
    assert launch.item("priority", PRIORITY_CLASS="mine") == [("fails", told, "PRIORITY_CLASS=<one of: batch>")]
    assert launch.item("priority", PRIORITY_CLASS="batch") == [("fine", "PriorityClass batch is there", "")]


@pytest.mark.parametrize(
    ("used", "hard", "verdict"), [("1", "4", "fine"), ("2", "4", "fails"), ("0", "2", "fails"), ("0", "?", "fine")]
)
def test_the_namespaces_quota_counts(api: Api, launch: Launch, used: str, hard: str, verdict: str) -> None:
    quota = {"metadata": {"name": "cap"}, "status": {"hard": {"requests.cpu": hard}, "used": {"requests.cpu": used}}}
    api.objects[f"{NAMESPACE}/resourcequotas/cap"] = quota
    ((found, text, _),) = launch.item("quota")
    assert (found, "ResourceQuota" in text) == (verdict, True)
