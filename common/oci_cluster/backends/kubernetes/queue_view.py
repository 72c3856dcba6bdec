"""``queue.sh``: who waits for what, and who runs, as far as the user may see it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oci_cluster.backends.kubernetes import queue
from oci_cluster.backends.kubernetes.requests import NAME, OWNER, PRIORITY
from oci_cluster.backends.kubernetes.service import KubernetesError, Object, Service
from oci_cluster.backends.kubernetes.teams import KUEUE
from oci_cluster.errors import NotPermittedError, UsageError
from oci_cluster.system.text import printable

_FORBIDDEN = 403
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_JOB_UID = "kueue.x-k8s.io/job-uid"
_VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2"
# Those that run first, then those that wait.
_ORDER = ("ENDING", "RUNNING", "STARTING", "WAITING")


@dataclass
class View:
    """What was seen, and a sentence on what was not."""

    workloads: list[Object]
    local_queues: list[Object]
    jobs: dict[str, Object] = field(default_factory=dict)
    pending: list[Object] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def look(service: Service) -> View:
    """Return the queues of all the Kubernetes, or of the user's own namespace where it may see no other.

    Raises:
        NotPermittedError: it may not even see those.
    """
    scope, notes = "", []
    try:
        workloads = service.items(f"/apis/{KUEUE}/workloads")
    except KubernetesError as error:
        if error.code != _FORBIDDEN:
            raise
        scope = f"/namespaces/{service.namespace}"
        notes.append(f"only namespace {service.namespace} is shown: you may not see the clusters of others")
        workloads = _of_namespace(service)
    found = View(workloads, service.items(f"/apis/{KUEUE}{scope}/localqueues"), notes=notes)
    try:
        jobs = service.items(f"/apis/batch/v1{scope}/jobs", labelSelector=_QUEUE_LABEL)
        found.jobs = {job["metadata"]["uid"]: job for job in jobs}
    except KubernetesError as error:
        if error.code != _FORBIDDEN:
            raise
    waiting = {_queue_of(one) for one in workloads if queue.state_of(one) == "WAITING"}
    known = {(one["metadata"]["namespace"], one["metadata"]["name"]) for one in found.local_queues}
    try:
        for namespace, name in sorted(waiting & known):
            found.pending += pending_workloads(service, namespace, name)
    except KubernetesError as error:
        found.notes.append(f"places are not shown: Kueue's visibility API did not tell: {printable(error, 200)}")
    return found


def pending_workloads(service: Service, namespace: str, local_queue: str) -> list[Object]:
    """Return what waits in a queue, the first first, as Kueue's visibility API has it.

    Raises:
        KubernetesError: it does not answer, or the user may not ask it.
    """
    path = f"{_VISIBILITY}/namespaces/{namespace}/localqueues/{local_queue}/pendingworkloads"
    return list(service.glance(path).get("items") or [])


def _of_namespace(service: Service) -> list[Object]:
    try:
        return service.items(service.path("workloads"))
    except KubernetesError as error:
        if error.code != _FORBIDDEN:
            raise
        msg = (
            f"you may not list workloads.kueue.x-k8s.io in namespace {service.namespace}; ask its administrator for "
            "Kueue's role kueue-batch-user-role (docs/kueue.md)"
        )
        raise NotPermittedError(msg) from error


def _queue_of(workload: Object) -> tuple[str, str]:
    return workload["metadata"]["namespace"], str((workload.get("spec") or {}).get("queueName") or "")


def described(view: View, team: str = "", now: float | None = None) -> list[dict[str, Any]]:
    """Return what ``queue.sh --json`` prints of a *view*: the clusters of *team*, or of all.

    Raises:
        UsageError: no queue is that team's, or has that name.
    """
    teams = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): str((one.get("spec") or {}).get("clusterQueue") or "")
        for one in view.local_queues
    }
    wanted = [key for key, its_team in teams.items() if not team or team in {its_team, key[1]}]
    if team and not wanted:
        known = ", ".join(sorted({name for name in teams.values() if name})) or "none"
        msg = f"there is no team '{team}' whose queue you can see; there is: {known}"
        raise UsageError(msg)
    moment = time.time() if now is None else now
    shown = [one for one in view.workloads if queue.state_of(one) != "ENDED" and (not team or _queue_of(one) in wanted)]
    rows = [_row(one, view, teams.get(_queue_of(one), ""), moment) for one in shown]
    unseen = [one for one in _unseen(view) if not team or _queue_of(one) in wanted]
    rows += [_unseen_row(one, view, teams.get(_queue_of(one), ""), moment) for one in unseen]
    return sorted(rows, key=_order)


def _unseen(view: View) -> list[Object]:
    """Return, as Workloads, the Jobs that wait for Kueue and of which it has made none."""
    seen = {(one["metadata"].get("labels") or {}).get(_JOB_UID) for one in view.workloads}
    found = []
    for uid, job in view.jobs.items():
        about, spec = job["metadata"], job.get("spec") or {}
        is_over = any(queue.condition(job, kind).get("status") == "True" for kind in ("Failed", "Complete"))
        if uid in seen or is_over or spec.get("suspend") is not True:
            continue
        known = {name: about.get(name) for name in ("namespace", "name", "creationTimestamp")}
        pods = {"count": spec.get("parallelism"), "template": spec.get("template")}
        priority = {"name": about["labels"].get(PRIORITY, "")}
        made = {"queueName": about["labels"][_QUEUE_LABEL], "podSets": [pods], "priorityClassRef": priority}
        found.append({"metadata": {**known, "labels": {_JOB_UID: uid}}, "spec": made})
    return found


def _unseen_row(made: Object, view: View, team: str, now: float) -> dict[str, Any]:
    job = view.jobs[made["metadata"]["labels"][_JOB_UID]]
    told = {"line": queue.waiting_line(job, None, [], now), "why": queue.why_unseen(job, now)}
    return _row(made, view, team, now) | told


def _row(workload: Object, view: View, team: str, now: float) -> dict[str, Any]:
    about, spec = workload["metadata"], workload.get("spec") or {}
    job = view.jobs.get((about.get("labels") or {}).get(_JOB_UID, ""), {})
    told = (job.get("metadata") or {}).get("annotations") or {}
    owners = about.get("ownerReferences") or [{}]
    state = queue.state_of(workload)
    is_waiting = state == "WAITING"
    place = queue.position(workload, view.pending)
    count, reason, by_whom = queue.preemptions(workload)
    since = queue.since_of(workload)
    return {
        "cluster": printable(told.get(NAME) or owners[0].get("name") or about["name"]),
        "namespace": about["namespace"],
        "team": team,
        "queue": printable(spec.get("queueName", "")),
        "owner": printable(told.get(OWNER, "")),
        "state": state,
        "place": place[0] if place and is_waiting else None,
        "waiting": place[1] if place and is_waiting else None,
        "place_in_team": place[2] if place and is_waiting else None,
        "nodes": queue.nodes_of(workload),
        "gpus": queue.gpus_of(workload),
        "requests": queue.requests_of(workload),
        "priority": spec.get("priority"),
        "priority_class": printable((spec.get("priorityClassRef") or {}).get("name", "")),
        "created": about.get("creationTimestamp"),
        "since": since,
        "since_s": queue.seconds_since(since, now),
        "line": queue.waiting_line(job, workload, view.pending, now) if is_waiting else "",
        "why": (queue.is_impossible(workload) or queue.reason_of(workload)) if is_waiting else "",
        "is_impossible": bool(is_waiting and queue.is_impossible(workload)),
        "preempted": {"count": count, "reason": reason, "by": by_whom},
    }


def _order(row: Mapping[str, Any]) -> tuple[object, ...]:
    place = row["place_in_team"] if row["place_in_team"] is not None else 1_000_000
    return row["team"], _ORDER.index(row["state"]), place, row["created"] or "", row["cluster"]


HEAD = ("TEAM", "QUEUE", "CLUSTER", "OWNER", "STATE", "PLACE", "NODES", "GPUS", "PRIORITY", "FOR", "WHY")
BELOW = frozenset({"QUEUE", "OWNER", "GPUS", "PRIORITY", "WHY"})
"""What stands under a row where a terminal is too narrow: the reason, and what is asked for once a place is known."""


def table(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the table that ``queue.sh`` prints of what :func:`described` returns, under :data:`HEAD`."""
    return [
        [
            printable(row["team"]) or "?",
            f"{row['namespace']}/{row['queue']}",
            row["cluster"],
            row["owner"],
            row["state"],
            f"{row['place']} of {row['waiting']}" if row["place"] else "",
            str(row["nodes"]),
            ", ".join(_devices(row["gpus"])),
            row["priority_class"] or str(row["priority"] or ""),
            queue.spell(row["since_s"]) if row["since_s"] is not None else "",
            _why(row),
        ]
        for row in rows
    ]


def _devices(gpus: Mapping[str, str]) -> Iterable[str]:
    return (f"{count} {printable(name)}" for name, count in gpus.items())


def _why(row: Mapping[str, Any]) -> str:
    """Return the last column: what is waited for, and what happened before."""
    before = row["preempted"]
    parts = [row["why"]] if row["why"] else []
    if before["count"]:
        times = "once" if before["count"] == 1 else f"{before['count']} times"
        by_whom = f", last by {before['by']}" if before["by"] else ""
        parts.append(f"preempted {times}{by_whom}")
    return "; ".join(parts)
