"""What check.sh finds of Kueue's queues, priorities and quotas, and of those of a namespace."""

from __future__ import annotations

import pytest
from unit.backends.kubernetes.check_api import NAMESPACE, Api, Launch
from unit.backends.kubernetes.fake_api import KUEUE, Object


def team(api: Api, *, nominal: str = "8", used: str = "0", cohort: str = "", active: str = "True") -> None:
    """Have a team, with a queue in the namespace, and a priority."""
    quotas = {"cpu": nominal, "memory": "100Gi"}
    queue: Object = {
        "metadata": {"name": "team-a"},
        "spec": {
            "cohortName": cohort,
            "resourceGroups": [
                {"flavors": [{"name": "f", "resources": [{"name": n, "nominalQuota": q} for n, q in quotas.items()]}]}
            ],
        },
        "status": {
            "conditions": [{"type": "Active", "status": active, "message": "no flavor"}],
            "flavorsReservation": [{"name": "f", "resources": [{"name": "cpu", "total": used}]}],
        },
    }
    api.objects[f"{KUEUE}/v1beta2/clusterqueues/team-a"] = queue
    local = {"metadata": {"name": "q"}, "spec": {"clusterQueue": "team-a"}, "status": {}}
    api.objects[f"{KUEUE}/v1beta2/namespaces/mine/localqueues/q"] = local
    api.objects[f"{KUEUE}/v1beta2/workloadpriorityclasses/low"] = {"metadata": {"name": "low"}}


def test_a_queue_with_free_quota_is_fine(api: Api, launch: Launch) -> None:
    """Each resource with what is free of it and what is needed."""
    team(api, used="2")
    assert launch.item("queue", QUEUE="q") == [("fine", "LocalQueue q of ClusterQueue team-a", "")]
    found = launch.item("priority", QUEUE="q", PRIORITY="low")
    assert found == [("fine", "WorkloadPriorityClass low is there", "")]
    assert [one[:2] for one in launch.item("quota", QUEUE="q")] == [
        ("fine", "6 of 8 cpu of team-a are free, and 3 are needed"),
        ("fine", "100Gi of 100Gi memory of team-a are free, and 6Gi are needed"),
    ]


@pytest.mark.parametrize(
    ("changes", "settings", "verdict", "text"),
    [
        ({"used": "6"}, {}, "fine", "2 of 8 cpu of team-a are free, and 3 are needed: the cluster waits until others"),
        ({"used": "9"}, {}, "fine", "0 of 8 cpu of team-a are free"),
        ({"nominal": "2"}, {}, "fails", "2 of 2 cpu of team-a are free, and 3 are needed: the cluster could never"),
        ({"nominal": "2", "cohort": "c"}, {}, "unknown", "the rest must be borrowed in the cohort c"),
        ({"active": "False"}, {}, "fails", "ClusterQueue team-a is admits nothing: no flavor: the cluster would wait"),
        ({}, {"GPUS": "1"}, "fails", "the quota of team-a does not name nvidia.com/gpu, which nodes request"),
    ],
)
def test_quota_is_compared_with_what_is_needed(
    api: Api, launch: Launch, *, changes: dict[str, str], settings: dict[str, str], verdict: str, text: str
) -> None:
    """What only has to wait does not fail."""
    team(api, **changes)
    found = launch.item("quota", QUEUE="q", **settings)
    assert any(one[0] == verdict and text in one[1] for one in found), found


def test_a_queue_that_is_not_there_or_held_fails(api: Api, launch: Launch) -> None:
    """With those that there are."""
    team(api)
    why = "QUEUE: there is no LocalQueue 'other' in namespace mine; there is: q"
    assert launch.item("queue", QUEUE="other") == [("fails", why, "QUEUE=<one of: q>")]
    assert launch.item("quota", QUEUE="other")[0][0] == "unknown"
    api.objects[f"{KUEUE}/v1beta2/namespaces/mine/localqueues/q"]["spec"]["stopPolicy"] = "Hold"
    assert launch.item("queue", QUEUE="q")[0][:2] == ("fails", "LocalQueue q is held")
    del api.objects[f"{KUEUE}/v1beta2/clusterqueues/team-a"]
    assert launch.item("quota", QUEUE="q")[0][:2] == (
        "fails",
        "there is no ClusterQueue team-a, of which LocalQueue q is",
    )


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
def test_without_a_queue_the_namespaces_quota_counts(
    api: Api, launch: Launch, used: str, hard: str, verdict: str
) -> None:
    quota = {"metadata": {"name": "cap"}, "status": {"hard": {"requests.cpu": hard}, "used": {"requests.cpu": used}}}
    api.objects[f"{NAMESPACE}/resourcequotas/cap"] = quota
    ((found, text, _),) = launch.item("quota")
    assert (found, "ResourceQuota" in text) == (verdict, True)
