"""Objects out of ``teams.yaml``: those of Kueue, or what a Kubernetes without it can do. Nothing is asked or sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oci_cluster.backends.kubernetes.quantities import amount, shown
from oci_cluster.backends.kubernetes.team_table import Flavor, Row, Table, Team

Object = dict[str, Any]

KUEUE = "kueue.x-k8s.io/v1beta2"
# What is ours carries it, with the table's name: only such objects are ever removed.
LABEL = "oci-cluster-teams"
TEAM_LABEL = "oci-cluster-team"
# Kinds in the order in which one needs the other, with the paths of their lists; {} is a namespace.
PATHS: Mapping[str, str] = {
    "Namespace": "/api/v1/namespaces",
    "WorkloadPriorityClass": f"/apis/{KUEUE}/workloadpriorityclasses",
    "ResourceFlavor": f"/apis/{KUEUE}/resourceflavors",
    "ClusterQueue": f"/apis/{KUEUE}/clusterqueues",
    "LocalQueue": f"/apis/{KUEUE}/namespaces/{{}}/localqueues",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
}
NO_QUEUE = (
    "Kueue is not installed here: a ResourceQuota refuses pods one by one, there is no queue, and nothing is all or "
    "nothing: half a cluster may start (docs/kueue.md)"
)
OF_KUEUE = ("WorkloadPriorityClass", "ResourceFlavor", "ClusterQueue", "LocalQueue")
OF_PLAIN = ("PriorityClass", "ResourceQuota")


def objects(table: Table) -> list[Object]:
    """Return the objects of *table* for Kueue, each after those that it needs."""
    found = [_namespace(table, team, name) for team in table.teams for name in team.namespaces]
    found += [
        _object(KUEUE, "WorkloadPriorityClass", name, table, value=value, description=f"priority {value} of clusters")
        for name, value in table.priorities.items()
    ]
    found += [_object(KUEUE, "ResourceFlavor", one.name, table, spec=_flavor_spec(one)) for one in table.flavors]
    found += [_object(KUEUE, "ClusterQueue", team.name, table, team, spec=_queue_spec(team)) for team in table.teams]
    for team in table.teams:
        for namespace in team.namespaces:
            made = _object(KUEUE, "LocalQueue", team.queue, table, team, spec={"clusterQueue": team.name})
            made["metadata"]["namespace"] = namespace
            found.append(made)
    return found


def hints(table: Table) -> list[str]:
    """Return a sentence on each thing in *table* that Kueue takes, and that hardly does what is meant.

    Seen with Kueue 0.19: of a node selector it compares the labels alone that a flavor has. A cluster that asks for the
    machines of one flavor is admitted to another that lacks that label, and its nodes never find a machine.
    """
    labels = {one.name: set(one.labels) for one in table.flavors}
    found = []
    for team in table.teams:
        names = [row.flavor for row in team.rows]
        missing = [name for name in names if labels[name] != set().union(*(labels[other] for other in names))]
        if missing:
            found.append(
                f"{team.name}: its flavors {', '.join(names)} have not the same labels; a cluster that asks for one of "
                f"them by a label may be given {' or '.join(missing)}, and never start: give all the same label names"
            )
    return found


def plain_objects(table: Table) -> tuple[list[Object], list[str]]:
    """Return the objects of *table* for a Kubernetes without Kueue, and a sentence on each thing they cannot do."""
    found = [_namespace(table, team, name) for team in table.teams for name in team.namespaces]
    found += [
        # Preemption by the scheduler ends single pods: half a cluster would be worse than a cluster that waits.
        _object(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            name,
            table,
            value=value,
            preemptionPolicy="Never",
            description=f"priority {value} of clusters",
        )
        for name, value in table.priorities.items()
    ]
    lacks = [NO_QUEUE]
    if len(table.flavors) > 1:
        lacks.append("a ResourceQuota knows no flavors: the amounts of all flavors of a team are added up")
    if table.priorities:
        lacks.append("a higher priority is scheduled first, and preempts nobody")
    if table.given:
        lacks.append(f"nobody borrows, lends or preempts; without effect here: {', '.join(table.given)}")
    for team in table.teams:
        if len(team.namespaces) > 1:
            names = ", ".join(team.namespaces)
            lacks.append(f"{team.name} gets no quota: a ResourceQuota bounds one namespace, and it has {names}")
            continue
        made = _object("v1", "ResourceQuota", team.name, table, team, spec={"hard": _hard(team)})
        made["metadata"]["namespace"] = team.namespaces[0]
        found.append(made)
    return found, lacks


def path_of(item: Mapping[str, Any]) -> str:
    """Return where the API has the object *item*."""
    about = item["metadata"]
    return f"{PATHS[item['kind']].format(about.get('namespace', ''))}/{about['name']}"


def name_of(item: Mapping[str, Any]) -> str:
    """Return what a person calls the object *item*: ``ClusterQueue team-a``, ``LocalQueue team-a/train``."""
    about = item["metadata"]
    place = f"{about['namespace']}/" if about.get("namespace") else ""
    return f"{item['kind']} {place}{about['name']}"


def _object(version: str, kind: str, name: str, table: Table, team: Team | None = None, **more: Any) -> Object:
    labels = {LABEL: table.name, **({TEAM_LABEL: team.name} if team else {})}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": labels}, **more}


def _namespace(table: Table, team: Team, name: str) -> Object:
    return _object("v1", "Namespace", name, table, team)


def _flavor_spec(flavor: Flavor) -> Object:
    # All three, also where they are empty: an apply that takes the last one away makes the spec null, which is refused.
    taints, tolerations = ([dict(one) for one in found] for found in (flavor.taints, flavor.tolerations))
    return {"nodeLabels": dict(flavor.labels), "nodeTaints": taints, "tolerations": tolerations}


def _queue_spec(team: Team) -> Object:
    covered = covered_resources(team)
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(team.namespaces)}
    group = {
        "coveredResources": covered,
        "flavors": [
            {"name": row.flavor, "resources": [_quota(row, name, team) for name in covered]} for row in team.rows
        ],
    }
    return {
        **({"cohortName": team.cohort} if team.cohort else {}),
        "namespaceSelector": {"matchExpressions": [names]},
        "resourceGroups": [group],
        "preemption": {"withinClusterQueue": team.within, "reclaimWithinCohort": team.reclaim},
    }


def covered_resources(team: Team) -> list[str]:
    """Return the resources that the quota of *team* names: in Kueue all flavors of a group have the same ones."""
    first = ["cpu", "memory"]
    return [*first, *dict.fromkeys(name for row in team.rows for name in row.amounts if name not in first)]


def _quota(row: Row, resource: str, team: Team) -> Object:
    """Return the quota of one resource in one flavor; a flavor that lacks what others have, has 0 of it."""
    found: Object = {"name": resource, "nominalQuota": row.amounts.get(resource, "0")}
    if not team.cohort:
        return found
    for key, is_allowed, limits in (
        ("borrowingLimit", row.may_borrow, row.borrow),
        ("lendingLimit", row.may_lend, row.lend),
    ):
        limit = limits.get(resource) if is_allowed else "0"
        if limit is not None:
            found[key] = limit
    if "lendingLimit" in found and amount(found["lendingLimit"]) > amount(found["nominalQuota"]):
        found["lendingLimit"] = found["nominalQuota"]  # the API refuses more than there is
    return found


def _hard(team: Team) -> Object:
    """Return what all pods of a team may request at the same time."""
    found: Object = {}
    for resource in covered_resources(team):
        total = shown(sum((amount(row.amounts.get(resource, "0")) for row in team.rows), amount("0")))
        found[resource if resource == "pods" else f"requests.{resource}"] = total
    return found


def removable(kinds: Sequence[str]) -> list[str]:
    """Return of *kinds* those whose objects may be removed, in the order in which they go: never a namespace."""
    return [kind for kind in reversed(list(PATHS)) if kind in kinds and kind != "Namespace"]
