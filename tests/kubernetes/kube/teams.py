"""Teams with a quota each, as an administrator of Kueue makes them; removed at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kube.api import Object
from kube.cluster import Cluster
from kube.identity import new_name

_API = "apis/kueue.x-k8s.io/v1beta2"
# Generous: what is scarce in a test is named by the test. Each that pods request must be covered, or none is admitted.
_PLENTY = {"cpu": "1000", "memory": "1000Gi", "pods": "1000", "ephemeral-storage": "1000Gi"}


@dataclass(frozen=True)
class Team:
    """A namespace, and a queue in it."""

    namespace: str
    queue: str
    cluster_queue: str


@contextlib.contextmanager
def teams(
    cluster: Cluster,
    quotas: Mapping[str, Mapping[str, int | str]],
    *,
    priorities: Mapping[str, int] | None = None,
    preemption: Object | None = None,
    spec: Object | None = None,
) -> Iterator[dict[str, Team]]:
    """Have a team for each name in *quotas*, with so much of each resource, in one cohort of their own.

    Args:
        cluster: Where.
        quotas: By team and resource, such as ``{"a": {"nvidia.com/gpu": 8}}``; of cpu, memory and pods there is plenty
            unless it is named.
        priorities: WorkloadPriorityClasses by name, with their values. They belong to the cluster: use names of yours.
        preemption: Of the ClusterQueues; at first what is lent is taken back, and a higher priority preempts.
        spec: More of the ClusterQueues' spec.
    """
    cohort = new_name("cohort")
    policies = preemption or {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    api = cluster.api
    with contextlib.ExitStack() as stack:

        def make(path: str, kind: str, name: str, **more: object) -> None:
            body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, **more}
            api.create(f"{_API}/{path}", body)
            stack.callback(api.delete, f"{_API}/{path}/{name}")

        made = {}
        for name, value in (priorities or {}).items():
            make("workloadpriorityclasses", "WorkloadPriorityClass", name, value=value, description="of tests")
        make("resourceflavors", "ResourceFlavor", cohort, spec={})
        for name, quota in quotas.items():
            namespace = stack.enter_context(cluster.namespace())
            resources = [{"name": key, "nominalQuota": str(value)} for key, value in {**_PLENTY, **quota}.items()]
            group = {"coveredResources": [one["name"] for one in resources]}
            queue_spec: dict[str, Any] = {
                "cohortName": cohort,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceGroups": [{**group, "flavors": [{"name": cohort, "resources": resources}]}],
                "preemption": policies,
                **(spec or {}),
            }
            team = made[name] = Team(namespace, f"{name}-queue", f"{cohort}-{name}")
            make("clusterqueues", "ClusterQueue", team.cluster_queue, spec=queue_spec)
            queues = f"namespaces/{namespace}/localqueues"
            make(queues, "LocalQueue", team.queue, spec={"clusterQueue": team.cluster_queue})
        yield made
