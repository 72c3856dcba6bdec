"""Reasons why clusters wait, their places, and what has preempted them, in sentences; ``queue.sh``.

What Kueue says is shown as it says it. No time is promised, as Kueue knows none.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from oci_cluster.backends.kubernetes.api.service import KUEUE, KubernetesError, Object, Service
from oci_cluster.backends.kubernetes.cluster.manifests import NAME, OWNER, PRIORITY, QUEUE
from oci_cluster.backends.kubernetes.cluster.states import annotations_of, condition, labels_of, name_of, uid_of
from oci_cluster.backends.kubernetes.quota.usage import amount, is_amount, shown
from oci_cluster.contract.parsers import parse_time
from oci_cluster.errors import UsageError
from oci_cluster.system.text import printable, span

JOB_UID = "kueue.x-k8s.io/job-uid"
_FORBIDDEN = 403
_VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2"
# Those that run first, then those that wait.
_ORDER = ("ENDING", "RUNNING", "STARTING", "WAITING")
UNSEEN_S = 20.0
"""Within so many seconds Kueue makes a Workload of each Job, also when it starts anew; where it works, within one."""

# Sentences of Kueue 0.19, pkg/scheduler/flavorassigner and pkg/controller/core, by which a cluster never starts; in
# _FITS_NEVER by a flavor's name, in _FITS_LATER those by which it waits for one.
_GONE = "(doesn't exist|not found|is terminating or missing)"
_NEVER = re.compile(
    rf"(LocalQueue|ClusterQueue) \S+ {_GONE}|namespace doesn't match ClusterQueue selector"
    r"|resource \S+ unavailable in ClusterQueue"
)
_FITS_NEVER = re.compile(
    r"insufficient quota for \S+ in flavor (?P<too_small>[^\s,]+)|flavor (?P<other>\S+) doesn't match node affinity"
    r"|untolerated taint (\{[^}]*\}|\S+) in flavor (?P<tainted>[^\s,]+)"
)
_FITS_LATER = re.compile(r"insufficient unused quota for \S+ in flavor ([^\s,]+)")
_POD_SET = re.compile(r"couldn't assign flavors to pod set \S+: ")
_PREEMPTOR = re.compile(r"preemptor path: (?P<path>[^\s;]+)")


def waiting_line(job: Object | None, workload: Object | None, pending_workloads: Sequence[Object], now: float) -> str:
    """Returns why a cluster waits, with its place, in a line.

    Such as ``queued 12m, place 3 of 7 in team-a: insufficient unused quota for nvidia.com/gpu in flavor a10, 8 more
    needed``. Of the *job* only the age counts, where Kueue has made no *workload* of it yet.
    """
    since, place = f"queued {_age(job or {}, now)}", None
    if workload:
        since, place = _since(workload, now), position(workload, pending_workloads)
    if place:
        own, count, of_all = place
        more = f" ({of_all} of all its team)" if of_all > own else ""
        since += f", place {own} of {count} in {printable(_queue_of(workload or {})[1])}{more}"
    return f"{since}: {why(job, workload, now)}"


def why(job: Object | None, workload: Object | None, now: float) -> str:
    """Returns why a cluster waits; without a *workload*, Kueue's own log alone tells."""
    if workload:
        return is_impossible(workload) or reason_of(workload)
    waited_s = seconds_since(_meta(job or {}, "creationTimestamp"), now)
    if waited_s is None or waited_s < UNSEEN_S:
        return "Kueue has not seen it yet"
    priority = labels_of(job or {}).get(PRIORITY, "")
    missing = f"there is no WorkloadPriorityClass {printable(priority)} (PRIORITY), or " if priority else ""
    return f"Kueue has made nothing of it: {missing}Kueue does not work; ask your administrator"


def is_impossible(workload: Object | None) -> str:
    """Returns why a cluster can never start, with the next step, if so."""
    if ((workload or {}).get("spec") or {}).get("active") is False:
        told = printable(condition(workload or {}, "Evicted").get("message") or "")
        return f"Kueue has deactivated it{told and f': {told}'}; ask your administrator, and launch it again"
    said = _waits(workload or {})
    if _NEVER.search(said) or any(map(_never_fits, _POD_SET.split(said))):
        return printable(f"it can never start: {_POD_SET.sub('', said)}; request less, or ask your administrator")
    return ""


def _never_fits(said: str) -> bool:
    """Returns whether Kueue has *said* that something fits into no flavor."""
    never = {name for found in _FITS_NEVER.finditer(said) for name in found.groupdict().values() if name}
    return bool(never) and never >= set(_FITS_LATER.findall(said))


def reason_of(workload: Object) -> str:
    """Returns the reason in *workload*, in words."""
    state = state_of(workload)
    if state in {"STARTING", "RUNNING"}:
        return "it is admitted, and Kueue starts its Job; if that lasts, Kueue's log says why"
    if state == "ENDING":
        return "its nodes are ending"
    if condition(workload, "QuotaReserved").get("status") == "True":
        return "its quota is reserved; an admission check is not through yet"
    return printable(_POD_SET.sub("", _waits(workload))) or "Kueue has not looked at it yet"


def preemptions(workload: Object | None) -> tuple[int, str, str]:
    """Returns how often a cluster was preempted, Kueue's last reason, and for which team."""
    status = (workload or {}).get("status") or {}
    evictions = (status.get("schedulingStats") or {}).get("evictions") or []
    counts = [one.get("count") or 0 for one in evictions if one.get("reason") == "Preempted"]
    count = sum(one for one in counts if isinstance(one, int))
    last = condition(workload or {}, "Preempted")
    if not last:
        return count, "", ""
    found = _PREEMPTOR.search(str(last.get("message", "")))
    by_whom = printable(found["path"].rstrip("/").rpartition("/")[2]) if found else ""
    return max(count, 1), printable(last.get("reason", "")), by_whom


def was_just_preempted(workload: Object | None) -> bool:
    """Returns whether a preemption is why a cluster waits, as its line tells then."""
    evicted = condition(workload or {}, "Evicted")
    return evicted.get("status") == "True" and evicted.get("reason") == "Preempted"


def position(workload: Object, pending_workloads: Sequence[Object]) -> tuple[int, int, int] | None:
    """Returns a cluster's place, how many wait there, and its place in the team."""
    queue = _queue_of(workload)
    others = [one for one in pending_workloads if (_meta(one, "namespace"), one.get("localQueueName")) == queue]
    for one in others:
        if name_of(one) == name_of(workload):
            own, of_all = one.get("positionInLocalQueue") or 0, one.get("positionInClusterQueue") or 0
            return int(own) + 1, len(others), int(of_all) + 1
    return None


def state_of(workload: Object) -> str:
    """Returns a cluster's state: ``WAITING STARTING RUNNING ENDING ENDED``."""

    def is_true(kind: str, default: str = "") -> bool:
        return bool(condition(workload, kind).get("status", default) == "True")

    if is_true("Finished"):
        return "ENDED"
    if is_true("Evicted") and is_true("QuotaReserved"):
        return "ENDING"
    if not is_true("Admitted"):
        return "WAITING"
    return "RUNNING" if is_true("PodsReady", "True") else "STARTING"  # without waitForPodsReady Kueue does not tell


def size_of(workload: Object) -> tuple[int, dict[str, str]]:
    """Returns a cluster's nodes and all their requests, or else limits."""
    count, total = 0, dict[str, Decimal]()
    for one in (workload.get("spec") or {}).get("podSets") or []:
        nodes = one["count"] if isinstance(one.get("count"), int) else 1
        count += nodes
        for container in ((one.get("template") or {}).get("spec") or {}).get("containers") or []:
            resources = container.get("resources") or {}
            for name, value in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
                if is_amount(value):
                    total[name] = total.get(name, Decimal(0)) + amount(value) * nodes
    return count, {name: shown(value) for name, value in total.items()}


def since_of(workload: Object) -> str:
    """Returns the time since which a cluster is in its state."""
    names = {"RUNNING": ["PodsReady", "Admitted"], "STARTING": ["Admitted"], "ENDED": ["Finished"]}
    for name in names.get(state_of(workload), ["Evicted"]):
        if (found := condition(workload, name)).get("status") == "True":
            return str(found.get("lastTransitionTime", ""))
    return _meta(workload, "creationTimestamp")


def seconds_since(timestamp: str, now: float) -> float | None:
    """Returns the seconds from a time of the API to *now*, or None."""
    try:
        return max(0.0, now - parse_time(timestamp))
    except ValueError:
        return None


# --- Parts of sentences -----------------------------------------------------------------------------------------------


def _since(workload: Object, now: float) -> str:
    evicted = condition(workload, "Evicted")
    if evicted.get("status") != "True":
        return f"queued {_age(workload, now)}"
    ago = seconds_since(str(evicted.get("lastTransitionTime", "")), now)
    when = "" if ago is None else f" {span(ago)} ago"
    if not was_just_preempted(workload):
        return printable(f"ended{when} and queued again: {evicted.get('message') or evicted.get('reason')}")
    count, why, by_whom = preemptions(workload)
    # Who has preempted it is in its own team, where that is why.
    whom = f" by a higher priority in {by_whom}" if why == "InClusterQueue" else f" by {by_whom}"
    times = f" ({count} times in all)" if count > 1 else ""
    return f"preempted{when}{whom if by_whom else ''}{times} and queued again"


def _waits(workload: Object) -> str:
    """Returns Kueue's own sentence on why a cluster has no quota."""
    found = condition(workload, "QuotaReserved")
    return str(found.get("message", "")) if found.get("status") == "False" else ""


def _age(item: Object, now: float) -> str:
    age = seconds_since(_meta(item, "creationTimestamp"), now)
    return "for an unknown time" if age is None else span(age)


def _meta(item: Object, name: str) -> str:
    return str((item.get("metadata") or {}).get(name) or "")


# --- Who waits, and who runs: queue.sh --------------------------------------------------------------------------------


def look(service: Service, team: str = "") -> tuple[list[Object], list[str]]:
    """Returns the rows of ``queue.sh --json``, and notes on what was not seen.

    They are of all the Kubernetes, or of the user's own namespace where it may see no other.
    """
    scope, notes, now = "", list[str](), time.time()
    try:
        workloads = service.items(f"{KUEUE}/workloads")
    except KubernetesError as error:
        if error.code != _FORBIDDEN:
            raise
        scope = f"/namespaces/{service.namespace}"
        notes.append(f"only namespace {service.namespace} is shown: you may not see the clusters of others")
        workloads = service.items(service.path("workloads"))
    teams = team_of(service.items(f"{KUEUE}{scope}/localqueues"))
    wanted = [key for key, its_team in teams.items() if not team or team in {its_team, key[1]}]
    if team and not wanted:
        known = ", ".join(sorted({name for name in teams.values() if name})) or "none"
        raise UsageError(f"there is no team '{team}' whose queue you can see; there is: {known}")
    jobs = _jobs(service, scope)
    shown = [one for one in workloads if state_of(one) != "ENDED" and (not team or _queue_of(one) in wanted)]
    pending: list[Object] = []
    try:
        for namespace, name in sorted({_queue_of(one) for one in shown if state_of(one) == "WAITING"} & teams.keys()):
            pending += pending_workloads(service, namespace, name)
    except KubernetesError as error:
        notes.append(f"places are not shown: Kueue's visibility API did not tell: {printable(error, 200)}")
    rows = [_row(one, jobs.get(labels_of(one).get(JOB_UID, ""), {}), pending, now) for one in shown]
    for row in rows:
        row["team"] = teams.get((row["namespace"], row["queue"]), "")
    return sorted((row for row in rows if not team or (row["namespace"], row["queue"]) in wanted), key=_order), notes


def pending_workloads(service: Service, namespace: str, local_queue: str) -> list[Object]:
    """Returns what waits in a queue, in order, from Kueue's visibility API."""
    path = f"{_VISIBILITY}/namespaces/{namespace}/localqueues/{local_queue}/pendingworkloads"
    return list(service.glance(path).get("items") or [])


def _queue_of(workload: Object) -> tuple[str, str]:
    return _meta(workload, "namespace"), str((workload.get("spec") or {}).get("queueName") or "")


def team_of(local_queues: Iterable[Object]) -> dict[tuple[str, str], str]:
    """Returns the team, which is a ClusterQueue, by namespace and name of each LocalQueue."""
    return {
        (_meta(one, "namespace"), name_of(one)): str((one.get("spec") or {}).get("clusterQueue") or "")
        for one in local_queues
    }


def counts(local_queues: Iterable[Object], workloads: Iterable[Object]) -> dict[str, tuple[int, int]]:
    """Returns how many clusters of each team run, and how many wait."""
    owners = team_of(local_queues)
    states: dict[str, list[str]] = {}
    for one in workloads:
        states.setdefault(owners.get(_queue_of(one), ""), []).append(state_of(one))
    return {
        team: (sum(one not in {"WAITING", "ENDED"} for one in its), its.count("WAITING"))
        for team, its in states.items()
    }


def _jobs(service: Service, scope: str) -> dict[str, Object]:
    """Returns the Jobs with a queue by their ids, if the user may see them."""
    try:
        return {uid_of(job): job for job in service.items(f"/apis/batch/v1{scope}/jobs", labelSelector=QUEUE)}
    except KubernetesError as error:
        if error.code != _FORBIDDEN:
            raise
        return {}


def _row(workload: Object, job: Object, pending: Sequence[Object], now: float) -> Object:
    about, spec, told = workload["metadata"], workload.get("spec") or {}, annotations_of(job)
    owners = about.get("ownerReferences") or [{}]
    state, since = state_of(workload), since_of(workload)
    is_waiting = state == "WAITING"
    place = position(workload, pending) if is_waiting else None
    (nodes, requests), (count, reason, by_whom) = size_of(workload), preemptions(workload)
    return {
        "cluster": printable(told.get(NAME) or owners[0].get("name") or about["name"]),
        "namespace": about["namespace"],
        "team": "",
        "queue": printable(spec.get("queueName", "")),
        "owner": printable(told.get(OWNER, "")),
        "state": state,
        **dict(zip(("place", "waiting", "place_in_team"), place or (None, None, None), strict=True)),
        "nodes": nodes,
        "gpus": {name: value for name, value in requests.items() if "/" in name and value != "0"},  # nvidia.com/gpu
        "requests": requests,
        "priority": spec.get("priority"),
        "priority_class": printable((spec.get("priorityClassRef") or {}).get("name", "")),
        "created": about.get("creationTimestamp"),
        "since": since,
        "since_s": seconds_since(since, now),
        "line": waiting_line(job, workload, pending, now) if is_waiting else "",
        "why": why(job, workload, now) if is_waiting else "",
        "is_impossible": is_waiting and bool(is_impossible(workload)),
        "preempted": {"count": count, "reason": reason, "by": by_whom},
    }


def _order(row: Mapping[str, Any]) -> tuple[object, ...]:
    place = row["place_in_team"] if row["place_in_team"] is not None else 1_000_000
    return row["team"], _ORDER.index(row["state"]), place, row["created"] or "", row["cluster"]


HEAD = ("TEAM", "QUEUE", "CLUSTER", "OWNER", "STATE", "PLACE", "NODES", "GPUS", "PRIORITY", "FOR", "WHY")
BELOW = frozenset({"QUEUE", "OWNER", "GPUS", "PRIORITY", "WHY"})
"""Columns that stand under a row where a terminal is too narrow: the reason, and what is asked for."""


def table(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Returns the table of *rows* under :data:`HEAD`."""
    found = []
    for row in rows:
        before = row["preempted"]
        times = "once" if before["count"] == 1 else f"{before['count']} times"
        preempted = f"preempted {times}" + (f", last by {before['by']}" if before["by"] else "")
        found.append(
            [
                printable(row["team"]) or "?",
                f"{row['namespace']}/{row['queue']}",
                row["cluster"],
                row["owner"],
                row["state"],
                f"{row['place']} of {row['waiting']}" if row["place"] else "",
                str(row["nodes"]),
                ", ".join(f"{count} {printable(name)}" for name, count in row["gpus"].items()),
                row["priority_class"] or str(row["priority"] or ""),
                span(row["since_s"]) if row["since_s"] is not None else "",
                "; ".join(filter(None, [row["why"], preempted if before["count"] else ""])),
            ]
        )
    return found
