"""The objects of a table: those of Kueue, and those of a Kubernetes without it."""

from __future__ import annotations

from typing import Any

import pytest
from kube.schemas import faults

from oci_cluster.backends.kubernetes import teams
from oci_cluster.backends.kubernetes.team_table import Table, parse_table

TEXT = """\
name: gpus
cohort: all
priorities: {low: 10}
flavors:
  a10:
    labels: {node.kubernetes.io/instance-type: VM.GPU.A10.1}
    taints: [nvidia.com/gpu=present:NoSchedule]
    tolerations: [nvidia.com/gpu]
  mi300: {gpu: amd.com/gpu}
teams:
  a:
    namespaces: [train, test]
    quota:
      a10: {gpus: 8, cpus: 64, memory: 512Gi, borrow: {gpus: 4}, lend: {gpus: 20}}
      mi300: {gpus: 2, cpus: 8, memory: 1Gi, pods: 5, lend: no}
  b:
    cohort: none
    quota: {a10: {gpus: 1, cpus: 500m, memory: 1Gi}}
"""


@pytest.fixture
def table() -> Table:
    return parse_table(TEXT, "t.yaml")


def test_each_object_comes_after_those_that_it_needs(table: Table) -> None:
    assert [teams.name_of(item) for item in teams.objects(table)] == [
        "Namespace train",
        "Namespace test",
        "Namespace b",
        "WorkloadPriorityClass low",
        "ResourceFlavor a10",
        "ResourceFlavor mi300",
        "ClusterQueue a",
        "ClusterQueue b",
        "LocalQueue train/a",
        "LocalQueue test/a",
        "LocalQueue b/b",
    ]


def test_all_flavors_of_a_team_cover_the_same_resources(table: Table) -> None:
    """What a flavor lacks is 0 there; without a cohort there are no bounds, which the API would refuse."""
    found = {teams.name_of(item): item for item in teams.objects(table)}
    spec: dict[str, Any] = found["ClusterQueue a"]["spec"]
    (group,) = spec["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "memory", "nvidia.com/gpu", "amd.com/gpu", "pods"]
    a10, mi300 = group["flavors"]
    assert [one["name"] for one in a10["resources"]] == group["coveredResources"]
    quotas = {one["name"]: one for one in a10["resources"]}
    # More than there is cannot be lent, says the API.
    gpus = {"name": "nvidia.com/gpu", "nominalQuota": "8", "borrowingLimit": "4", "lendingLimit": "8"}
    assert quotas["nvidia.com/gpu"] == gpus
    assert quotas["cpu"] == {"name": "cpu", "nominalQuota": "64"}
    assert quotas["amd.com/gpu"] == {"name": "amd.com/gpu", "nominalQuota": "0"}
    assert {one["lendingLimit"] for one in mi300["resources"]} == {"0"}
    assert spec["namespaceSelector"]["matchExpressions"][0]["values"] == ["train", "test"]
    assert spec["preemption"] == {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    alone = found["ClusterQueue b"]["spec"]
    assert "cohortName" not in alone
    assert set(alone["resourceGroups"][0]["flavors"][0]["resources"][0]) == {"name", "nominalQuota"}
    assert found["LocalQueue test/a"]["spec"] == {"clusterQueue": "a"}


def test_a_hold_is_not_in_what_is_applied(table: Table) -> None:
    """An apply must not resume a team that somebody holds."""
    assert all("stopPolicy" not in item.get("spec", {}) for item in teams.objects(table))


def test_all_is_labelled_with_the_table(table: Table) -> None:
    plain, _ = teams.plain_objects(table)
    for item in (*teams.objects(table), *plain):
        assert item["metadata"]["labels"]["oci-cluster-teams"] == "gpus"


def test_paths_are_those_of_the_api(table: Table) -> None:
    found = {teams.path_of(item) for item in teams.objects(table)}
    assert "/api/v1/namespaces/train" in found
    assert "/apis/kueue.x-k8s.io/v1beta2/namespaces/test/localqueues/a" in found
    assert "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/a" in found


def test_no_namespace_is_ever_removed() -> None:
    assert teams.removable(list(teams.PATHS)) == [
        "ResourceQuota",
        "PriorityClass",
        "LocalQueue",
        "ClusterQueue",
        "ResourceFlavor",
        "WorkloadPriorityClass",
    ]


def test_without_kueue_there_are_quotas_and_what_they_cannot_do_is_told(table: Table) -> None:
    found, lacks = teams.plain_objects(table)
    assert faults(found) == []
    assert [teams.name_of(item) for item in found] == [
        "Namespace train",
        "Namespace test",
        "Namespace b",
        "PriorityClass low",
        "ResourceQuota b/b",
    ]
    hard = {"requests.cpu": "500m", "requests.memory": "1Gi", "requests.nvidia.com/gpu": "1"}
    assert found[-1]["spec"] == {"hard": hard}
    assert found[3]["preemptionPolicy"] == "Never"
    assert [line.partition(":")[0] for line in lacks] == [
        "Kueue is not installed here",
        "a ResourceQuota knows no flavors",
        "a higher priority is scheduled first, and preempts nobody",
        "nobody borrows, lends or preempts; without effect here",
        "a gets no quota",
    ]
    assert "half a cluster may start" in lacks[0]


def test_amounts_of_all_flavors_are_added_where_there_are_none() -> None:
    text = "flavors: {x: {}, y: {}}\nteams: {a: {quota: {x: {cpus: 1, memory: 512Mi}, y: {cpus: 500m, memory: 1Gi}}}}"
    found, _ = teams.plain_objects(parse_table(text, "t.yaml"))
    assert found[-1]["spec"]["hard"] == {"requests.cpu": "1500m", "requests.memory": "1536Mi"}


def test_flavors_of_a_team_with_other_labels_are_told(table: Table) -> None:
    """Kueue compares only those labels that a flavor has: seen on a real one, see test_waiting.py."""
    (hint,) = teams.hints(table)
    assert hint.startswith("a: its flavors a10, mi300 have not the same labels; a cluster that asks for one of them")
    assert "may be given mi300, and never start" in hint
    both = TEXT.replace("mi300: {gpu:", "mi300: {labels: {node.kubernetes.io/instance-type: x}, gpu:")
    assert teams.hints(parse_table(both, "t.yaml")) == []
