"""What ``check.sh`` looks at of Kueue: the queue, the priority, and what of the quota is free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from oci_cluster.backends.findings import Finding, fails, fine, unknown
from oci_cluster.backends.kubernetes import checks, usage
from oci_cluster.backends.kubernetes.quantities import amount, is_amount, shown
from oci_cluster.backends.kubernetes.service import Service
from oci_cluster.system.text import printable

_KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
Wanted = Mapping[str, Decimal]


def queue(service: Service, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield whether the LocalQueue is there, and open.

    Raises:
        KubernetesError: the API refused, or did not answer.
    """
    name = settings["queue"]
    if problems := checks.queue_problems(service, name):
        told, _, listed = problems[0].partition("; ")
        yield fails("queue", told, f"QUEUE=<one of: {listed.removeprefix('there is: ')}>" if listed else "")
        return
    found = service.get(service.path("localqueues", name))
    state = usage.state_of(found)
    if state not in {"open", "unknown"}:
        yield fails("queue", f"LocalQueue {name} is {state}", "ask your administrator: quota.sh resume TEAM")
    else:
        yield fine("queue", f"LocalQueue {name} of ClusterQueue {printable(_cluster_queue(found))}")


def priority(service: Service, settings: Mapping[str, Any], setting: str) -> Iterator[Finding]:
    """Yield whether the class that a *setting* names is there: ``PRIORITY``, or ``PRIORITY_CLASS``.

    Raises:
        KubernetesError: the API refused, or did not answer.
    """
    kind, path = checks.CLASSES[setting]
    name = settings[setting.lower()]
    there = [printable(item["metadata"]["name"]) for item in service.items(path)]
    if name in there:
        yield fine("priority", f"{kind} {name} is there")
    else:
        listed = ", ".join(there) or "none"
        told = f"there is no {kind} {name}; there is: {listed}"
        yield fails("priority", told, f"{setting}=<one of: {listed}>" if there else f"leave {setting} out")


def quota(service: Service, settings: Mapping[str, Any], wanted: Wanted, count: int) -> Iterator[Finding]:
    """Yield whether what is *wanted* for each of *count* pods fits what their team, or their namespace, may have.

    Raises:
        KubernetesError: the API refused, or did not answer.
    """
    if settings["queue"]:
        yield from _of_team(service, settings["queue"], wanted, count)
    else:
        yield from _of_namespace(service, wanted, count)


def _of_team(service: Service, name: str, wanted: Wanted, count: int) -> Iterator[Finding]:
    found = service.find(service.path("localqueues", name))
    if found is None:
        yield unknown("quota", f"there is no LocalQueue {name}, which would say whose quota counts")
        return
    team = _cluster_queue(found)
    cluster_queue = service.find(f"{_KUEUE}/clusterqueues/{team}")
    team = printable(team)
    if cluster_queue is None:
        told = f"there is no ClusterQueue {team}, of which LocalQueue {name} is"
        yield fails("quota", told, "tell your administrator: the queue admits nothing")
        return
    state = usage.state_of(cluster_queue)
    if state not in {"open", "unknown"}:
        told = f"ClusterQueue {team} is {state}: the cluster would wait"
        yield fails("quota", told, f"ask your administrator: quota.sh resume {team}")
        return
    uses = usage.uses([cluster_queue])
    for resource, each in wanted.items():
        yield _use_of(team, resource, each * count, [one for one in uses if one.resource == resource])


def _use_of(team: str, resource: str, need: Decimal, uses: list[usage.Use]) -> Finding:
    """Return whether the *need* of a *resource* fits one of the flavors that a team has of it."""
    if not uses:
        told = f"the quota of {team} does not name {resource}, which nodes request: the cluster could never start"
        return fails("quota", told, f"ask your administrator for {resource} in the quota of {team}")
    free, most = max(one.nominal - one.used for one in uses), max(one.nominal for one in uses)
    told = _told(free, shown(most), f"{resource} of {team}", need)
    if need <= free:
        return fine("quota", told)
    if need <= most:
        return fine("quota", f"{told}: the cluster waits until others of its team end")
    if uses[0].cohort:
        return unknown("quota", f"{told}: the rest must be borrowed in the cohort {printable(uses[0].cohort)}")
    return fails("quota", f"{told}: the cluster could never start", "launch fewer workers, or ask for more quota")


def _told(free: Decimal, most: str, of_what: str, need: Decimal) -> str:
    return f"{shown(max(free, Decimal(0)))} of {most} {of_what} are free, and {shown(need)} are needed"


def _of_namespace(service: Service, wanted: Wanted, count: int) -> Iterator[Finding]:
    path = f"/api/v1/namespaces/{service.namespace}/resourcequotas"
    need = {name: each * count for name, each in wanted.items()} | {"pods": Decimal(count)}
    bounded = False
    for row in usage.plain_rows(service.items(path)):
        resource = row["resource"].removeprefix("requests.")
        if resource not in need or not (is_amount(row["nominal"]) and is_amount(row["used"])):
            continue
        bounded = True
        most, used = amount(row["nominal"]), amount(row["used"])
        of_what = f"{printable(resource)} of ResourceQuota {printable(row['team'])}"
        told = _told(most - used, row["nominal"], of_what, need[resource])
        if need[resource] <= most - used:
            yield fine("quota", told)
        elif need[resource] <= most:
            yield fails("quota", told, "end other clusters of the namespace, or launch fewer workers")
        else:
            yield fails("quota", told, "launch fewer workers, or ask for more quota")
    if not bounded:
        yield fine("quota", f"no ResourceQuota bounds namespace {service.namespace}")


def _cluster_queue(queue: Mapping[str, Any]) -> str:
    return str((queue.get("spec") or {}).get("clusterQueue") or "")
