"""What Jobs and pods mean for nodes: late, lost, taken away, ended by somebody, never begun, and nonsense."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.backends.kubernetes.pods_of import DISRUPTED, RUNNING, Object, ended, job, pod

from oci_cluster.backends.kubernetes.cluster import states
from oci_cluster.backends.kubernetes.cluster.states import JobView
from oci_cluster.contract.cluster import State
from oci_cluster.errors import LostPlanError


def nodes(found: Object, *pods: Object, **view: Any) -> dict[str, tuple[str, int | None]]:
    """Return state and code of each node."""
    told = states.states_of(replace(JobView.of(found), **view), pods)
    return {one.node: (str(one.state), one.exit_code) for one in told}


def one(found: Object, *pods: Object, node: str = "WORKER_1") -> Any:
    """Return the state of a node."""
    return next(state for state in states.states_of(JobView.of(found), pods) if state.node == node)


def test_each_index_is_a_node() -> None:
    """Main, workers, parameter servers, then workers that joined later."""
    environment = {"WORKER_COUNT": "2", "PS_COUNT": "1"}
    names = [states.node_of(index, environment).name for index in range(5)]
    assert names == ["MAIN", "WORKER_1", "WORKER_2", "PS_3", "WORKER_4"]


def test_running_ended_and_to_come() -> None:
    """As the containers are; what has no pod yet waits."""
    assert nodes(job(4), pod(0, RUNNING), pod(1, ended(0)), pod(2, ended(7))) == {
        "MAIN": ("IN_PROGRESS", None),
        "WORKER_1": ("SUCCEEDED", 0),
        "WORKER_2": ("FAILED", 7),
        "WORKER_3": ("ACCEPTED", None),
    }


@pytest.mark.parametrize(
    ("waiting", "state", "code"),
    [
        ({"reason": "ContainerCreating"}, "ACCEPTED", None),
        ({"reason": "ErrImagePull", "message": "connection refused"}, "NEEDS_ATTENTION", None),
        ({"reason": "ImagePullBackOff", "message": "Back-off: ErrImagePull: not found"}, "FAILED", 69),
        ({"reason": "InvalidImageName", "message": "x"}, "FAILED", 69),
        ({"reason": "CreateContainerConfigError", "message": 'secret "s" not found'}, "FAILED", 69),
        (
            {
                "reason": "CreateContainerConfigError",
                "message": "failed to sync secret cache: timed out waiting for the condition",
            },
            "ACCEPTED",
            None,
        ),
    ],
)
def test_what_a_container_waits_for(waiting: Object, state: str, code: int | None) -> None:
    """What passes is waited for; what will not is told as a node that never started."""
    found = one(job(), pod(1, {"waiting": waiting}, phase="Pending"))
    assert (str(found.state), found.exit_code, found.never_started) == (state, code, code is not None)


def test_a_failed_pull_and_the_pause_after_it_have_the_same_words() -> None:
    """Else each try would be told anew."""
    first = {"reason": "ErrImagePull", "message": "connection refused"}
    pause = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x": ErrImagePull: connection refused'}
    details = {one(job(), pod(1, {"waiting": why}, phase="Pending")).details for why in (first, pause)}
    assert details == {"its image cannot be pulled: connection refused"}


def test_the_scheduler_says_why_a_pod_waits() -> None:
    """In its own words."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    assert one(job(), pod(1, phase="Pending", conditions=[condition])).details == "0/2 nodes"


def test_a_pod_that_kubernetes_takes_away_comes_back() -> None:
    """Until the Job has counted its index: then it has ended."""
    gone = pod(1, ended(143), phase="Failed", conditions=[DISRUPTED])
    found = one(job(), gone)
    assert (found.state, found.is_waiting, found.exit_code) == (State.PREEMPTED, True, None)
    counted = job(status={"failedIndexes": "1"})
    lost = one(counted, gone)
    assert (lost.exit_code, lost.is_lost, lost.cause, lost.is_final) == (None, True, "Eviction API: evicting", True)
    own = pod(1, ended(7), phase="Failed", conditions=[DISRUPTED])
    assert (one(counted, own).exit_code, one(counted, own).is_lost) == (7, False)


@pytest.mark.parametrize(("grace_s", "is_lost"), [(30, False), (0, True)])
def test_a_pod_that_was_removed_by_force_is_lost(grace_s: int, *, is_lost: bool) -> None:
    """It stays until its Job counts it, which it does not: the machine that would say how it ended is gone."""
    meta = {"deletionTimestamp": "2026-01-01T00:00:09Z", "deletionGracePeriodSeconds": grace_s}
    found = one(job(), pod(1, RUNNING, meta=meta))
    assert (found.is_lost, found.is_running, found.exit_code) == (is_lost, not is_lost, None)


@pytest.mark.parametrize("meta", [{}, {"deletionTimestamp": "2026-01-01T00:00:09Z"}])
def test_while_its_job_is_suspended_nobody_has_failed(meta: Object) -> None:
    """A preempted cluster's pods end with 143, and that decides nothing."""
    found = one(job(suspend=True), pod(1, ended(143), meta=meta))
    assert (found.state, found.is_waiting) == (State.PREEMPTED, True)


def test_who_runs_once_is_lost_when_its_job_is_suspended() -> None:
    """Kueue has preempted it; main's own word would be 143, as of a cluster that somebody has stopped."""
    found = one(job(suspend=True, interruptible="0"), pod(1, ended(143)))
    assert (found.is_lost, found.exit_code) == (True, None)
    assert "INTERRUPTIBLE=0" in found.cause


def test_of_two_pods_of_an_index_the_newest_is_the_node() -> None:
    """The other one is what was taken away."""
    old = pod(1, ended(143), conditions=[DISRUPTED])
    new = pod(1, RUNNING, meta={"creationTimestamp": "2026-01-01T00:01:00Z", "uid": "new"})
    assert one(job(), new, old).id == "new"


def test_what_was_asked_for_is_how_a_node_ended() -> None:
    """A pod that is told to end knows 143 alone; who gave the cluster up has said 75."""
    told = job(annotations={"oci-cluster-stop": '{"exit_code": 75}'})
    assert nodes(told, pod(0, ended(143)), pod(1, ended(3))) == {
        "MAIN": ("FAILED", 75),
        "WORKER_1": ("FAILED", 3),
        "WORKER_2": ("FAILED", 75),
    }


@pytest.mark.parametrize(
    "text", ["no json", "[]", '{"exit_code": 0}', '{"exit_code": true}', '{"exit_code": 999}', "[" * 100_000]
)
def test_a_stop_that_tells_no_code_is_a_stop(text: str) -> None:
    """And never a success."""
    assert nodes(job(annotations={"oci-cluster-stop": text}))["MAIN"] == ("CANCELED", 143)


def test_nodes_that_were_ended_one_by_one() -> None:
    """Also those whose places are gone: they are shown as having left."""
    told = job(2, annotations={"oci-cluster-ended": "WORKER_2 WORKER_3", "oci-cluster-unstarted": "WORKER_3"})
    found = states.states_of(JobView.of(told), [pod(0, RUNNING), pod(1, RUNNING)])
    assert [(state.node, state.exit_code, state.never_started) for state in found[2:]] == [
        ("WORKER_2", 143, False),
        ("WORKER_3", 143, True),
    ]


def test_a_job_whose_time_is_over() -> None:
    """By its limit: 75. By a stop: that of the stop. Its pods are gone."""
    over = {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}
    assert nodes(job(status=over))["MAIN"] == ("FAILED", 75)
    stopped = job(status=over, annotations={"oci-cluster-ended": "*"})
    assert nodes(stopped)["MAIN"] == ("CANCELED", 143)


@pytest.mark.parametrize(
    ("state", "more", "cause"),
    [
        (ended(137, "OOMKilled"), {}, "its memory ran out; set MEMORY higher"),
        (ended(137), {"reason": "Evicted", "message": "disk"}, "Evicted: disk"),
    ],
)
def test_why_a_container_was_killed(state: Object, more: Object, cause: str) -> None:
    """Its code does not tell."""
    found = one(job(status={"failedIndexes": "1"}), pod(1, state, **more))
    assert (found.exit_code, found.cause) == (137, cause)


@pytest.mark.parametrize("state", [ended(137, "ContainerStatusUnknown"), {"terminated": {"exitCode": "7"}}, None])
def test_nobody_knows_how_it_ended(state: Object | None) -> None:
    """Its machine was lost, or its record is nonsense: lost, and never a success."""
    found = one(job(status={"failedIndexes": "1"}), pod(1, state, phase="Failed"))
    assert (found.exit_code, found.is_lost) == (None, True)


@pytest.mark.parametrize(
    ("reason", "cause"), [("", "its pod was deleted"), ("FailedIndexes", "its pod was deleted"), ("Unheard", "Unheard")]
)
def test_a_failed_index_without_a_pod_is_lost(reason: str, cause: str) -> None:
    """Somebody has deleted it: that pods have failed is no news."""
    over = {"conditions": [{"type": "Failed", "status": "True", "reason": reason}]} if reason else {}
    found = one(job(status={"failedIndexes": "0-1", **over}))
    assert (found.exit_code, found.is_lost, found.is_final, found.cause) == (None, True, True, cause)


def test_a_node_without_a_pod_in_a_job_that_main_has_completed_never_had_a_place() -> None:
    """Main leaves last. One that Kubernetes has counted as failed had one, and is lost."""
    done = {"conditions": [{"type": "Complete", "status": "True", "reason": "SuccessPolicy"}], "completedIndexes": "0"}
    assert nodes(job(status=done), pod(0, ended(0))) == {
        "MAIN": ("SUCCEEDED", 0),
        "WORKER_1": ("CANCELED", 143),
        "WORKER_2": ("CANCELED", 143),
    }
    assert nodes(job(status={**done, "failedIndexes": "2"}), pod(0, ended(0)))["WORKER_2"] == ("FAILED", None)


@pytest.mark.parametrize(
    "told",
    [
        job(annotations={"oci-cluster-ended": "WORKER_1", "oci-cluster-unstarted": "WORKER_1"}),
        job(status={"conditions": [{"type": "Complete", "status": "True"}], "completedIndexes": "0"}),
    ],
)
def test_a_pod_that_was_evicted_does_not_tell_of_a_worker_whose_next_one_never_began(told: Object) -> None:
    """That is gone at once, and this one may still be there."""
    found = one(told, pod(1, ended(143), phase="Failed", conditions=[DISRUPTED]))
    assert (str(found.state), found.exit_code, found.never_started) == ("CANCELED", 143, True)


@pytest.mark.parametrize("state", [ended(137, "ContainerStatusUnknown"), None])
def test_a_pod_that_was_told_to_end_before_it_began_is_not_lost(state: Object | None) -> None:
    """The kubelet says for a moment that it does not know how a container ended that it has never made."""
    stop = {"oci-cluster-ended": "*", "oci-cluster-unstarted": "MAIN", "oci-cluster-stop": '{"exit_code": 75}'}
    gone = pod(0, state, phase="Failed")
    found = one(job(annotations=stop), gone, node="MAIN")
    assert (found.exit_code, found.never_started, found.is_lost) == (75, True, False)
    # One that had begun, or that nobody has ended, is.
    for other in ({**stop, "oci-cluster-unstarted": ""}, {**stop, "oci-cluster-ended": ""}):
        del other["oci-cluster-stop"]
        assert one(job(annotations=other), gone, node="MAIN").is_lost


def test_why_it_waits_in_a_queue() -> None:
    """All wait; where that is for ever, main alone tells."""
    queued = nodes(job(suspend=True), waiting=(State.QUEUED, "1st"))
    assert set(queued.values()) == {("QUEUED", None)}
    never = nodes(job(suspend=True), waiting=(State.FAILED, "too large"))
    assert never == {"MAIN": ("FAILED", 69), "WORKER_1": ("QUEUED", None), "WORKER_2": ("QUEUED", None)}
    no_more = nodes(job(suspend=True), waiting=(State.CANCELED, "preempted 1 time"))
    assert no_more == {"MAIN": ("FAILED", None), "WORKER_1": ("QUEUED", None), "WORKER_2": ("QUEUED", None)}


@pytest.mark.parametrize("completions", [0, -1, "many", None, 10**9])
def test_a_job_of_nonsense_has_no_nodes(completions: Any) -> None:
    """Anybody may have written it."""
    assert nodes(job(completions)) == {}


@pytest.mark.parametrize(
    ("name", "text"), [("WORKER_COUNT", "many"), ("PS_COUNT", "-1"), ("INTERRUPTIBLE", "\x1b[2J"), ("TTL", "nan")]
)
def test_variables_of_nonsense_are_no_nodes_and_no_plan(name: str, text: str, tmp_path: Path) -> None:
    """One Job of anybody's, and all lists of the namespace would end with an error."""
    made = job(annotations={"oci-cluster-name": "mine", "oci-cluster-created": "2026-01-01T00:00:00Z"})
    made["metadata"]["labels"] = {"oci-cluster-launch": "0123abcd"}
    env = made["spec"]["template"]["spec"]["containers"][0]["env"]
    env[:] = [*(one for one in env if one["name"] != name), {"name": name, "value": text}]
    cluster = states.cluster_of(made, tmp_path)
    assert cluster is not None
    assert set(nodes(made, pod(0, RUNNING))) == ({"MAIN", "WORKER_1", "WORKER_2"} if name == "TTL" else set())
    with pytest.raises(LostPlanError, match="the Job mine-0123abcd does not say what was launched"):
        states.plan_of(replace(cluster, framework="plain"), made, "", tmp_path)


@pytest.mark.parametrize("number", ["9" * 5000, "99999", "\u0663", "-1"])
def test_a_number_that_no_node_has_is_no_node(number: str) -> None:
    told = job(1, annotations={"oci-cluster-ended": f"WORKER_{number} WORKER_7"})
    assert list(nodes(told, pod(0, RUNNING))) == ["MAIN", "WORKER_7"]


@pytest.mark.parametrize(("text", "numbers"), [(None, []), ("", []), ("7", [7]), ("1,3-5", [1, 3, 4, 5])])
def test_lists_of_indexes(text: str | None, numbers: list[int]) -> None:
    assert list(states.indexes(text)) == numbers


def test_a_pod_of_no_index_is_no_node() -> None:
    """Whoever copies labels makes no node."""
    stranger = pod(1, ended(7), meta={"annotations": {}})
    assert nodes(job(), stranger)["WORKER_1"] == ("ACCEPTED", None)


@pytest.mark.parametrize(
    "change",
    [
        {"annotations": {"oci-cluster-name": "../x", "oci-cluster-created": "2026-01-01T00:00:00Z"}},
        *(
            {"annotations": {"oci-cluster-name": "mine", "oci-cluster-created": created}}
            for created in ("yesterday", "2026-99-99T00:00:00Z", "\u0662\u0660\u0662\u0666-01-01T00:00:00Z")
        ),
        {"labels": {"oci-cluster-launch": "0123"}},
        {"name": "other-ffffffff"},
        {"name": "other-0123abcd"},
    ],
)
def test_a_job_that_no_launch_has_made_is_no_cluster(change: Object, tmp_path: Path) -> None:
    """Its annotations become names of files."""
    made = job(annotations={"oci-cluster-name": "mine", "oci-cluster-created": "2026-01-01T00:00:00Z"})
    made["metadata"]["labels"] = {"oci-cluster-launch": "0123abcd"}
    assert states.cluster_of(made, tmp_path) is not None
    made["metadata"].update(change)
    assert states.cluster_of(made, tmp_path) is None


@pytest.mark.parametrize(
    ("beside", "meta", "holds"),
    [
        ({"running": {}}, {}, "container mesh"),
        ({"terminated": {"exitCode": 0}}, {}, ""),
        ({"waiting": {}}, {}, ""),
        ({"running": {}}, {"deletionTimestamp": "2026-01-01T00:00:09Z"}, ""),
    ],
)
def test_what_others_have_put_beside_a_node_that_has_ended_holds_its_machine(
    beside: Object, meta: Object, holds: str
) -> None:
    """As long as it runs, and nobody ends it."""
    found = pod(1, ended(0), meta={**pod(1)["metadata"], **meta})
    found["status"]["containerStatuses"].append({"name": "mesh", "state": beside})
    assert one(job(2), pod(0, RUNNING), found).holds == holds
    running = pod(1, RUNNING)
    running["status"]["containerStatuses"].append({"name": "mesh", "state": beside})
    assert one(job(2), pod(0, RUNNING), running).holds == ""
