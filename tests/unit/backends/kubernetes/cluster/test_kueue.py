"""Why a cluster waits: out of what Kueue 0.19 really says, and of what it might; and the table of who waits."""

from __future__ import annotations

from typing import Any

import pytest

from oci_cluster.backends.kubernetes.cluster import kueue as queue

NOW = 1_795_474_800.0  # 2026-11-23T23:00:00Z
GPU = "nvidia.com/gpu"
UNUSED = f"couldn't assign flavors to pod set main: insufficient unused quota for {GPU} in flavor a10, 4 more needed"
WAITS = UNUSED.partition(": ")[2]
TOO_LARGE = (
    f"couldn't assign flavors to pod set main: insufficient quota for {GPU} in flavor a10, previously considered "
    "podsets requests (0) + current podset request (20) > maximum capacity (16)"
)
PREEMPTED = (
    "Preempted to accommodate a workload (UID: 260f2727, JobUID: a64b59ce) due to reclamation within the cohort; "
    "preemptor path: /all/team-b; preemptee path: /all/team-a"
)
POD = {
    "spec": {
        "containers": [{"resources": {"requests": {"cpu": "10m", GPU: "2"}, "limits": {GPU: "2", "memory": "1Gi"}}}]
    }
}


def condition(kind: str, status: str, reason: str, message: str, time: str = "2026-11-23T22:57:00Z") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time}


def workload(message: str = UNUSED, *conditions: dict[str, str], **spec: Any) -> dict[str, Any]:
    """Return what waits since 12 minutes in the queue team-a."""
    waits = [condition("QuotaReserved", "False", "Pending", message)] if message else []
    return {
        "metadata": {"name": "job-x-1", "namespace": "n", "creationTimestamp": "2026-11-23T22:47:30Z"},
        "spec": {"queueName": "team-a", "active": True, "podSets": [{"count": 4, "template": POD}], **spec},
        "status": {"conditions": [*waits, *conditions]},
    }


def pending(*places: tuple[str, int, int], queue: str = "team-a") -> list[dict[str, Any]]:
    return [
        {
            "metadata": {"name": name, "namespace": "n"},
            "localQueueName": queue,
            "positionInLocalQueue": own,
            "positionInClusterQueue": of_all,
        }
        for name, own, of_all in places
    ]


def evicted(reason: str, message: str = "") -> dict[str, str]:
    return condition("Evicted", "True", reason, message)


SEVEN = pending(("a", 0, 0), ("b", 1, 1), ("job-x-1", 2, 2), *((f"c{i}", i, i) for i in range(3, 7)))


def line(found: dict[str, Any], others: list[dict[str, Any]] | None = None) -> str:
    return queue.waiting_line({}, found, others or [], NOW)


def test_the_line_says_since_when_where_and_why() -> None:
    assert line(workload(), SEVEN) == f"queued 12m, place 3 of 7 in team-a: {WAITS}"
    assert line(workload()) == f"queued 12m: {WAITS}"


def test_a_place_behind_other_queues_of_the_team_is_told() -> None:
    others = pending(("job-x-1", 0, 4)) + pending(("z", 0, 0), queue="other")
    assert line(workload(), others) == f"queued 12m, place 1 of 1 in team-a (5 of all its team): {WAITS}"
    assert line(workload(), pending(("job-x-1", 0, 0), queue="other")) == f"queued 12m: {WAITS}"


@pytest.mark.parametrize(
    "message",
    [
        "ClusterQueue team-a is inactive",
        "LocalQueue q is stopped",
        f"{UNUSED}. Pending the preemption of 3 workload(s)",
        "something new in Kueue 0.30",
        # A flavor in which it never fits is no hope, another one is.
        (
            f"{TOO_LARGE.replace(GPU, 'cpu')}, insufficient unused quota for {GPU} in flavor a10, 3 more needed, "
            f"insufficient unused quota for {GPU} in flavor h100, 8 more needed"
        ),
        TOO_LARGE.replace("a10", "h100") + ", " + WAITS,
    ],
)
def test_what_is_waited_for_is_told_as_kueue_says_it(message: str) -> None:
    found = workload(message)
    said = message.removeprefix("couldn't assign flavors to pod set main: ")
    assert queue.is_impossible(found) == ""
    assert queue.reason_of(found) == said
    assert line(found).endswith(f": {said}")


def test_what_kueue_says_is_no_danger_to_a_terminal() -> None:
    assert queue.reason_of(workload("\x1b[2Jwiped")) == "[2Jwiped"
    assert queue.reason_of(workload("")) == "Kueue has not looked at it yet"


@pytest.mark.parametrize(
    "message",
    [
        "LocalQueue nix doesn't exist",
        "LocalQueue x not found",
        "ClusterQueue team-a doesn't exist",
        "ClusterQueue team-a is terminating or missing",
        "couldn't assign flavors to pod set main: resource amd.com/gpu unavailable in ClusterQueue",
        TOO_LARGE,
        (
            "couldn't assign flavors to pod set main: flavor a10 doesn't match node affinity, untolerated taint "
            "{gpu present NoSchedule <nil>} in flavor h100"
        ),
        # A flavor that has too few of one resource ever is no hope, also where another one is only used up.
        f"{TOO_LARGE}, insufficient unused quota for cpu in flavor a10, 1 more needed",
        # One part that can never start is enough.
        f"{UNUSED.replace('a10', 'h100')}; {TOO_LARGE}",
        "workload namespace doesn't match ClusterQueue selector",
    ],
)
def test_what_can_never_start_is_told(message: str) -> None:
    found = workload(message)
    said = message.replace("couldn't assign flavors to pod set main: ", "")
    told = f"it can never start: {said}; request less, or ask your administrator"
    assert queue.is_impossible(found) == told
    assert line(found) == f"queued 12m: {told}"


def test_a_condition_of_the_past_makes_nothing_impossible() -> None:
    found = workload("", condition("QuotaReserved", "True", "QuotaReserved", TOO_LARGE))
    assert queue.is_impossible(found) == ""
    assert queue.reason_of(found) == "its quota is reserved; an admission check is not through yet"


def test_a_cluster_that_is_admitted_waits_for_no_check() -> None:
    """Its Job is still suspended for a moment; or for good, if something refuses what Kueue changes of it."""
    has_quota = condition("QuotaReserved", "True", "QuotaReserved", "")
    found = workload("", has_quota, condition("Admitted", "True", "Admitted", ""))
    assert queue.reason_of(found) == "it is admitted, and Kueue starts its Job; if that lasts, Kueue's log says why"
    assert queue.reason_of(workload("", has_quota, evicted("Preempted"))) == "its nodes are ending"


def test_who_has_preempted_a_cluster_is_told() -> None:
    found = workload(UNUSED, evicted("Preempted"), condition("Preempted", "True", "InCohortReclamation", PREEMPTED))
    assert queue.preemptions(found) == (1, "InCohortReclamation", "team-b")
    assert line(found, SEVEN) == (f"preempted 3m ago by team-b and queued again, place 3 of 7 in team-a: {WAITS}")
    found["status"]["schedulingStats"] = {
        "evictions": [
            {"reason": "Preempted", "count": 2},
            {"reason": "Preempted", "count": 1},
            {"reason": "X", "count": 9},
        ]
    }
    assert queue.preemptions(found)[0] == 3
    assert line(found).startswith("preempted 3m ago by team-b (3 times in all) and queued again: ")


def test_a_higher_priority_of_ones_own_team_is_told_as_that() -> None:
    said = PREEMPTED.replace("/all/team-b;", "/all/team-a;")
    found = workload(UNUSED, evicted("Preempted"), condition("Preempted", "True", "InClusterQueue", said))
    assert line(found).startswith("preempted 3m ago by a higher priority in team-a and queued again: ")


def test_who_was_never_preempted() -> None:
    assert queue.preemptions(workload()) == (0, "", "")
    assert queue.preemptions(None) == (0, "", "")


def test_other_ends_are_told_as_kueue_says_them() -> None:
    found = line(workload(UNUSED, evicted("PodsReadyTimeout", "Exceeded the PodsReady timeout n/job-x-1")))
    assert found == f"ended 3m ago and queued again: Exceeded the PodsReady timeout n/job-x-1: {WAITS}"
    assert line(workload(UNUSED, evicted("Odd"))) == f"ended 3m ago and queued again: Odd: {WAITS}"


def test_a_job_that_kueue_makes_nothing_of_may_name_a_priority_that_is_not_there() -> None:
    """Kueue's log alone tells: whoever waits is told what to look for."""
    about: dict[str, Any] = {"creationTimestamp": "2026-11-23T22:59:40Z"}
    assert queue.why({"metadata": about}, None, NOW) == (
        "Kueue has made nothing of it: Kueue does not work; ask your administrator"
    )
    named = {"metadata": {**about, "labels": {"kueue.x-k8s.io/priority-class": "gold"}}}
    assert "there is no WorkloadPriorityClass gold (PRIORITY), or Kueue" in queue.why(named, None, NOW)


def test_before_kueue_has_made_anything_the_age_is_the_jobs() -> None:
    job = {"metadata": {"creationTimestamp": "2026-11-23T22:59:41Z"}}
    assert queue.waiting_line(job, {}, [], NOW) == "queued 19s: Kueue has not seen it yet"
    assert queue.waiting_line({}, None, [], NOW) == "queued for an unknown time: Kueue has not seen it yet"


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], "WAITING"),
        ([("QuotaReserved", "True")], "WAITING"),
        ([("QuotaReserved", "True"), ("Admitted", "True"), ("PodsReady", "False")], "STARTING"),
        ([("QuotaReserved", "True"), ("Admitted", "True"), ("PodsReady", "True")], "RUNNING"),
        ([("QuotaReserved", "True"), ("Admitted", "True")], "RUNNING"),
        ([("QuotaReserved", "True"), ("Admitted", "True"), ("Evicted", "True")], "ENDING"),
        ([("QuotaReserved", "False"), ("Admitted", "False"), ("Evicted", "True")], "WAITING"),
        ([("QuotaReserved", "True"), ("Admitted", "True"), ("Evicted", "False")], "RUNNING"),
        ([("QuotaReserved", "True"), ("Admitted", "True"), ("Finished", "True")], "ENDED"),
    ],
)
def test_a_state_is_that_of_the_conditions(conditions: list[tuple[str, str]], state: str) -> None:
    found = workload("", *(condition(kind, status, "", "") for kind, status in conditions))
    assert queue.state_of(found) == state


def test_what_is_requested_is_that_of_all_nodes() -> None:
    assert queue.size_of(workload()) == (4, {GPU: "8", "memory": "4Gi", "cpu": "40m"})


def test_what_lacks_all_is_no_failure() -> None:
    assert queue.state_of({}) == "WAITING"
    assert line({"metadata": {}, "spec": None, "status": None}) == (
        "queued for an unknown time: Kueue has not looked at it yet"
    )
    assert (queue.size_of({}), queue.since_of({})) == ((0, {}), "")


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ([], "Kueue has deactivated it; ask"),
        ([{"type": "Evicted", "message": "too many tries"}], "Kueue has deactivated it: too many tries; ask"),
    ],
)
def test_one_that_is_deactivated_never_starts(conditions: list[dict[str, str]], said: str) -> None:
    """By an administrator, or by Kueue after so many tries."""
    assert queue.is_impossible({"spec": {"active": False}, "status": {"conditions": conditions}}).startswith(said)


# --- The table of who waits -------------------------------------------------------------------------------------------


def row(**changes: Any) -> dict[str, str]:
    """Return what the table shows of a cluster, by the head of each column."""
    found: dict[str, Any] = {
        "cluster": "train",
        "namespace": "a",
        "team": "vision",
        "queue": "lq",
        "owner": "ada",
        "state": "WAITING",
        "place": 2,
        "waiting": 5,
        "nodes": 3,
        "gpus": {"nvidia.com/gpu": "6"},
        "priority": 10,
        "priority_class": "low",
        "since_s": 3.0,
        "why": "no room",
        "preempted": {"count": 0, "reason": "", "by": ""},
        **changes,
    }
    (cells,) = queue.table([found])
    return dict(zip(queue.HEAD, cells, strict=True))


def test_a_row_has_what_is_known() -> None:
    """A class by its name, and the place among those that wait."""
    assert row() == {
        "TEAM": "vision",
        "QUEUE": "a/lq",
        "CLUSTER": "train",
        "OWNER": "ada",
        "STATE": "WAITING",
        "PLACE": "2 of 5",
        "NODES": "3",
        "GPUS": "6 nvidia.com/gpu",
        "PRIORITY": "low",
        "FOR": "3s",
        "WHY": "no room",
    }


def test_what_is_not_known_is_empty() -> None:
    """A priority without a class is its number."""
    found = row(team="", place=None, gpus={}, priority=None, priority_class="", since_s=None, why="")
    assert (found["TEAM"], found["PLACE"], found["GPUS"], found["PRIORITY"]) == ("?", "", "", "")
    assert (found["FOR"], found["WHY"]) == ("", "")
    assert row(priority_class="")["PRIORITY"] == "10"


@pytest.mark.parametrize(
    ("count", "by", "said"),
    [(1, "", "preempted once"), (2, "speech", "preempted 2 times, last by speech")],
)
def test_what_happened_before_stands_behind_the_reason(count: int, by: str, said: str) -> None:
    before = {"count": count, "reason": "", "by": by}
    assert row(preempted=before)["WHY"] == f"no room; {said}"
    assert row(preempted=before, why="")["WHY"] == said
