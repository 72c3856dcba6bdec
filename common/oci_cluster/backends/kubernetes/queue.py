"""Why a cluster waits, in which place, and what has preempted it: read from Kueue's objects, and put in sentences.

Nothing is asked here. What Kueue says is text for people, by whatever version of it: what is not understood is shown as
it is. No time is promised, as Kueue knows none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from oci_cluster.backends.kubernetes.quantities import amount, is_amount, shown
from oci_cluster.backends.kubernetes.requests import PRIORITY
from oci_cluster.contract.values import parse_time
from oci_cluster.system.text import printable

Object = Mapping[str, Any]

UNSEEN_S = 20.0
"""Within so many seconds Kueue makes a Workload of each Job, also when it starts anew; where it works, within one."""

# Sentences of Kueue 0.19, pkg/scheduler/flavorassigner and pkg/controller/core; all were seen but for the last three.
_UNUSED = re.compile(
    r"insufficient unused quota for (?P<resource>\S+) in flavor (?P<flavor>\S+), (?P<more>\S+) more needed"
)
_TOO_LARGE = re.compile(
    r"insufficient quota for (?P<resource>\S+) in flavor (?P<flavor>\S+?), (previously considered podsets requests "
    r"\((?P<before>[^)]*)\) \+ current podset )?requests? \(?(?P<wanted>[^)>]*?)\)? "
    r"> maximum capacity \((?P<most>[^)]*)\)"
)
_UNCOVERED = re.compile(r"resource (?P<resource>\S+) unavailable in ClusterQueue")
_ELSEWHERE = re.compile(r"flavor (?P<flavor>\S+) doesn't match node affinity")
_TAINTED = re.compile(r"untolerated taint (?P<taint>\{[^}]*\}|\S+) in flavor (?P<flavor>\S+)")
_GONE = re.compile(
    r"(?P<kind>LocalQueue|ClusterQueue) (?P<name>\S+) (doesn't exist|not found|is terminating or missing)"
)
_HELD = re.compile(r"(?P<kind>LocalQueue|ClusterQueue) (?P<name>\S+) is (?P<how>inactive|stopped)")
_WRONG_TEAM = re.compile(r"namespace doesn't match ClusterQueue selector")
_PREEMPTING = re.compile(r"Pending the preemption of (?P<count>\d+) workload")
_POD_SET = re.compile(r"couldn't assign flavors to pod set \S+: ")
_PREEMPTOR = re.compile(r"preemptor path: (?P<path>[^\s;]+)")
# Reasons of Evicted, but for Preempted.
_EVICTED = {
    "PodsReadyTimeout": "its nodes were not all ready in time (waitForPodsReady of Kueue)",
    "ClusterQueueStopped": "its team was held, and its clusters were ended",
    "LocalQueueStopped": "its queue was held, and its clusters were ended",
    "NodeFailures": "a machine failed",
    "AdmissionCheck": "an admission check no longer holds",
    "Deactivated": "it was deactivated",
    "InactiveWorkload": "it was deactivated",
}


def waiting_line(job: Object | None, workload: Object | None, pending_workloads: Sequence[Object], now: float) -> str:
    """Return why a cluster waits: ``queued 12 min, 3rd of 7 in team-a: 8 more nvidia.com/gpu needed in flavor a10``.

    Args:
        job: Of batch/v1; only its age is looked at, where Kueue has made no Workload yet.
        workload: What Kueue made of it; None or empty where that is not there.
        pending_workloads: The items of ``pendingworkloads`` of its queue, or of all the team; none where nobody tells.
        now: Seconds since 1970.
    """
    workload = workload or {}
    if not workload:
        return f"queued {_age(job or {}, now)}: {why_unseen(job or {}, now)}"
    line = _since(workload, now)
    if place := place_of(workload, pending_workloads):
        line += f", {place}"
    return f"{line}: {is_impossible(workload) or reason_of(workload)}"


def why_unseen(job: Object, now: float) -> str:
    """Return why Kueue may have made no Workload of a *job*, which only its own log tells for certain."""
    waited_s = seconds_since(str(_meta(job, "creationTimestamp") or ""), now)
    if waited_s is None or waited_s < UNSEEN_S:
        return "Kueue has not seen it yet"
    priority = ((job.get("metadata") or {}).get("labels") or {}).get(PRIORITY, "")
    missing = f"there is no WorkloadPriorityClass {printable(priority)} (PRIORITY), or " if priority else ""
    return f"Kueue has made nothing of it: {missing}Kueue does not work; ask your administrator"


def is_impossible(workload: Object | None) -> str:
    """Return why a cluster can never start as it is, in a sentence with the next step; empty where it can."""
    if ((workload or {}).get("spec") or {}).get("active") is False:
        told = printable(condition(workload or {}, "Evicted").get("message") or "")
        return f"Kueue has deactivated it{told and f': {told}'}; ask your administrator, and launch it again"
    said = _waits(workload or {})
    if gone := _GONE.search(said):
        what = f"{gone['kind']} {gone['name']}"
        step = "ask your administrator for its name" if gone["kind"] == "LocalQueue" else "tell your administrator"
        return printable(f"there is no {what}; {step}")
    if _WRONG_TEAM.search(said):
        return "its queue belongs to a team that has not this namespace; tell your administrator"
    for part in _POD_SET.split(said):
        if uncovered := _UNCOVERED.search(part):
            resource = uncovered["resource"]
            return printable(
                f"its team's quota does not name {resource}, which its nodes request; have it added, or request none"
            )
        impossible: dict[str, str] = {}
        for found in _TOO_LARGE.finditer(part):
            wanted = _sum(found["before"], found["wanted"])
            impossible[found["flavor"]] = (
                f"it requests {wanted} {found['resource']}, and {found['most']} is all that it can ever get in flavor "
                f"{found['flavor']}"
            )
        for found in _ELSEWHERE.finditer(part):
            impossible[found["flavor"]] = f"its nodes want other machines than those of flavor {found['flavor']}"
        for found in _TAINTED.finditer(part):
            impossible[found["flavor"]] = f"its nodes do not tolerate the taint of flavor {found['flavor']}"
        possible = {found["flavor"] for found in _UNUSED.finditer(part)} - set(impossible)
        if impossible and not possible:
            return printable(
                f"{', and '.join(dict.fromkeys(impossible.values()))}; request less, or ask for more quota"
            )
    return ""


def preemptions(workload: Object | None) -> tuple[int, str, str]:
    """Return how often a cluster was preempted, Kueue's reason of the last time, and for which team's cluster."""
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
    """Return whether a preemption is why a cluster waits: then the line of :func:`waiting_line` tells of it."""
    evicted = condition(workload or {}, "Evicted")
    return evicted.get("status") == "True" and evicted.get("reason") == "Preempted"


def place_of(workload: Object, pending_workloads: Sequence[Object]) -> str:
    """Return the place of a cluster in its queue, such as ``3rd of 7 in team-a``; empty where it is not known."""
    found = position(workload, pending_workloads)
    if found is None:
        return ""
    own, count, of_all = found
    queue = printable((workload.get("spec") or {}).get("queueName", ""))
    more = f" ({_ordinal(of_all)} of all its team)" if of_all > own else ""
    return f"{_ordinal(own)} of {count} in {queue}{more}"


def position(workload: Object, pending_workloads: Sequence[Object]) -> tuple[int, int, int] | None:
    """Return a cluster's place in its queue, how many wait there, and its place in all the team; from 1."""
    about = workload.get("metadata") or {}
    queue = (about.get("namespace"), (workload.get("spec") or {}).get("queueName"))
    others = [one for one in pending_workloads if (_meta(one, "namespace"), one.get("localQueueName")) == queue]
    for one in others:
        if _meta(one, "name") == about.get("name"):
            own, of_all = one.get("positionInLocalQueue") or 0, one.get("positionInClusterQueue") or 0
            return int(own) + 1, len(others), int(of_all) + 1
    return None


def reason_of(workload: Object) -> str:
    """Return what a cluster waits for."""
    if (workload.get("spec") or {}).get("active") is False:
        return "it was deactivated, and does not start again"
    if condition(workload, "QuotaReserved").get("status") == "True":
        return "its quota is reserved; an admission check is not through yet"
    said = _waits(workload)
    if not said:
        return "Kueue has not looked at it yet"
    if held := _HELD.search(said):
        # Kueue says "inactive" of a queue whose flavors are missing, too.
        why = "is held" if held["how"] == "stopped" else "is held, or not set up in full"
        return printable(f"{held['name']} {why}: it starts nothing until its administrator changes that")
    if pending := _PREEMPTING.search(said):
        return f"{pending['count']} of lower priority, or of borrowers, are ended for it"
    needed = list(dict.fromkeys(_needed(said)))
    return printable(" or ".join(needed) if needed else _POD_SET.sub("", said))


def state_of(workload: Object) -> str:
    """Return a word for what becomes of a cluster: ``WAITING STARTING RUNNING ENDING ENDED``."""
    conditions = {one: condition(workload, one).get("status") == "True" for one in _STATES}
    if conditions["Finished"]:
        return "ENDED"
    if conditions["Evicted"] and conditions["QuotaReserved"]:
        return "ENDING"
    if not conditions["Admitted"]:
        return "WAITING"
    # Without waitForPodsReady Kueue does not tell.
    return "RUNNING" if condition(workload, "PodsReady").get("status", "True") == "True" else "STARTING"


_STATES = ("Finished", "Evicted", "QuotaReserved", "Admitted")


def nodes_of(workload: Object) -> int:
    """Return how many nodes a cluster has."""
    return sum(_count(one) for one in _pod_sets(workload))


def requests_of(workload: Object) -> dict[str, str]:
    """Return what all nodes of a cluster request together, by resource; limits count where nothing is requested."""
    total: dict[str, Decimal] = {}
    for one in _pod_sets(workload):
        pod = (one.get("template") or {}).get("spec") or {}
        for container in pod.get("containers") or []:
            resources = container.get("resources") or {}
            for name, value in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
                if is_amount(value):
                    total[name] = total.get(name, Decimal(0)) + amount(value) * _count(one)
    return {name: shown(value) for name, value in total.items()}


def gpus_of(workload: Object) -> dict[str, str]:
    """Return the devices that a cluster requests: resources with a ``/`` in their names, such as ``nvidia.com/gpu``."""
    return {name: value for name, value in requests_of(workload).items() if "/" in name and value != "0"}


def condition(item: Object, kind: str) -> Mapping[str, Any]:
    """Return a condition of an object, empty where there is none."""
    found = (item.get("status") or {}).get("conditions") or []
    return next((one for one in found if isinstance(one, Mapping) and one.get("type") == kind), {})


def since_of(workload: Object) -> str:
    """Return since when a cluster is what it is: that of the condition which says so, or its creation."""
    state = state_of(workload)
    names = {
        "RUNNING": ["PodsReady", "Admitted"],
        "STARTING": ["Admitted"],
        "ENDING": ["Evicted"],
        "ENDED": ["Finished"],
    }
    for name in names.get(state, ["Evicted"]):
        if (found := condition(workload, name)).get("status") == "True":
            return str(found.get("lastTransitionTime", ""))
    return str(_meta(workload, "creationTimestamp") or "")


def spell(seconds: float) -> str:
    """Return so many *seconds* for a sentence: ``45 s``, ``12 min``, ``3 h``, ``2 d``."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def seconds_since(told: str, now: float) -> float | None:
    """Return the seconds from a time that the API has *told* to *now*; None where it is none."""
    try:
        return max(0.0, now - parse_time(told))
    except ValueError:
        return None


# --- Parts of sentences -----------------------------------------------------------------------------------------------


def _since(workload: Object, now: float) -> str:
    """Return how long a cluster has been waiting, and what had ended it where it ran before."""
    evicted = condition(workload, "Evicted")
    if evicted.get("status") != "True":
        return f"queued {_age(workload, now)}"
    ago = seconds_since(str(evicted.get("lastTransitionTime", "")), now)
    when = "" if ago is None else f" {spell(ago)} ago"
    if not was_just_preempted(workload):
        reason = str(evicted.get("reason", ""))
        return printable(f"ended{when} and queued again, because {_EVICTED.get(reason, reason)}")
    count, why, by_whom = preemptions(workload)
    # Who has preempted it is in its own team, where that is why.
    whom = f" by a higher priority in {by_whom}" if why == "InClusterQueue" else f" by {by_whom}"
    times = f" ({_times(count)} in all)" if count > 1 else ""
    return f"preempted{when}{whom if by_whom else ''}{times} and queued again"


def _waits(workload: Object) -> str:
    """Return Kueue's own sentence on why a cluster has no quota; empty where it has."""
    found = condition(workload, "QuotaReserved")
    return str(found.get("message", "")) if found.get("status") == "False" else ""


def _needed(said: str) -> Iterator[str]:
    """Yield what is missing, flavor by flavor; a flavor in which the cluster can never fit is left out."""
    never = {found["flavor"] for pattern in (_TOO_LARGE, _ELSEWHERE, _TAINTED) for found in pattern.finditer(said)}
    missing: dict[str, list[str]] = {}
    for found in _UNUSED.finditer(said):
        if found["flavor"] not in never:
            missing.setdefault(found["flavor"], []).append(f"{found['more']} more {found['resource']}")
    for flavor, parts in missing.items():
        yield f"{' and '.join(dict.fromkeys(parts))} needed in flavor {flavor}"


def _age(item: Object, now: float) -> str:
    age = seconds_since(str(_meta(item, "creationTimestamp") or ""), now)
    return "for an unknown time" if age is None else spell(age)


def _sum(before: str | None, wanted: str) -> str:
    try:
        return shown(amount(before or "0") + amount(wanted))
    except ValueError:
        return wanted


def _meta(item: Object, name: str) -> Any:
    return (item.get("metadata") or {}).get(name)


def _pod_sets(workload: Object) -> list[Mapping[str, Any]]:
    found = (workload.get("spec") or {}).get("podSets") or []
    return [one for one in found if isinstance(one, Mapping)]


def _count(pod_set: Mapping[str, Any]) -> int:
    count = pod_set.get("count")
    return count if isinstance(count, int) else 1


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _ordinal(number: int) -> str:
    if 10 <= number % 100 <= 20:
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
