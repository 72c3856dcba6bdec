"""A service that is late: what was made is not seen yet, lists lag, and an answer is older than the one before it."""

from __future__ import annotations

import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.fake_data_science import refusal, silence
from unit.fake_oci import NODES, Launcher, codes

from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.backends.oci.jobs.client import SETTLES_S
from oci_cluster.contract.cluster import State
from oci_cluster.errors import BackendError, StoppedError

NOTHING: tuple[list[str], list[str], list[Path]] = ([], [], [])
UNSEEN = [(404, "NotAuthorizedOrNotFound"), (400, "RelatedResourceNotAuthorizedOrNotFound"), (409, "IncorrectState"),
          (409, "Conflict")]  # fmt: skip


def told(launcher: Launcher, cluster: Any) -> dict[str, str]:
    return {state.node: str(state.state) for state in launcher.states(cluster)}


# --- What has just been made ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "code"), UNSEEN)
def test_a_job_that_is_not_seen_yet_gets_its_runs(launcher: Launcher, status: int, code: str) -> None:
    """The service answered its creation with 200: each run is created once it knows of it."""
    launcher.science.fail("create_job_run", refusal(status, code), times=6)
    launcher.launch()
    assert launcher.science.nodes() == NODES


def test_a_job_that_stays_unseen_ends_the_launch(launcher: Launcher) -> None:
    """After two minutes; then it may be a policy that lacks, and which."""
    launcher.science.fail("create_job_run", refusal(404, "NotAuthorizedOrNotFound"), times=1000)
    begun = launcher.clock.now
    with pytest.raises(ServiceError, match="allow group <yours> to manage data-science-job-runs"):
        launcher.launch()
    assert SETTLES_S <= launcher.clock.now - begun < SETTLES_S + 60
    assert launcher.left() == NOTHING


def test_a_404_to_a_job_that_was_there_long_ago_is_told_at_once(launcher: Launcher) -> None:
    """Nothing is waited out that was not made just now."""
    cluster = launcher.launch()
    launcher.clock.sleep(SETTLES_S)
    launcher.science.fail("create_job_run", refusal(404, "NotAuthorizedOrNotFound"))
    begun = launcher.clock.now
    with pytest.raises(ServiceError):
        launcher.scale(cluster, "+1")
    assert launcher.clock.now - begun < 1


def test_a_stop_ends_the_waiting_for_a_job_that_is_not_seen(launcher: Launcher) -> None:
    """And what was made is ended when it is seen."""
    launcher.science.fail("create_job_run", refusal(404, "NotAuthorizedOrNotFound"), times=1000)
    launcher.science.fail("delete_job", refusal(404, "NotAuthorizedOrNotFound"), times=5)
    launcher.stop_at("create_job_run", 3)
    with pytest.raises(StoppedError):
        launcher.launch()
    assert launcher.left() == NOTHING


def test_a_delete_that_is_answered_with_404_is_not_believed_of_a_job_that_was_made_just_now(launcher: Launcher) -> None:
    """Else it would stay ACTIVE, with whatever runs in it."""
    launcher.science.lag_s = 20.0
    launcher.science.fail("create_job_run", refusal(400, "LimitExceeded"), times=1000)
    launcher.science.fail("list_job_runs", refusal(404, "NotAuthorizedOrNotFound"), times=5)
    launcher.science.fail("delete_job", refusal(404, "NotAuthorizedOrNotFound"), times=5)
    with pytest.raises(ServiceError, match="LimitExceeded"):
        launcher.launch()
    assert launcher.left() == NOTHING
    assert not [text for text in launcher.said if "NOT ENDED" in text]


def test_a_delete_that_is_answered_with_404_is_believed_when_a_list_agrees(launcher: Launcher) -> None:
    """Somebody else has deleted it, or an answer was lost; nobody waits for two minutes."""
    cluster = launcher.launch()
    launcher.science.fail("delete_job", silence(), is_done=True)
    begun = launcher.clock.now
    launcher.stop(cluster, delete=True)
    assert launcher.left() == NOTHING
    assert launcher.clock.now - begun < 10


def test_a_delete_that_is_not_allowed_is_told(launcher: Launcher) -> None:
    """404 is the answer to that, too: the Job is still listed."""
    cluster = launcher.launch()
    launcher.clock.sleep(SETTLES_S)
    launcher.science.fail("delete_job", refusal(404, "NotAuthorizedOrNotFound"), times=1000)
    with pytest.raises(ServiceError, match="allow group <yours> to manage data-science-jobs"):
        launcher.stop(cluster, delete=True)


def test_runs_that_no_list_has_yet_are_canceled_in_roll_back(launcher: Launcher) -> None:
    """At once: they are known, and may have started."""
    launcher.science.lag_s = 60.0
    launcher.science.fail("create_job_run", refusal(400, "LimitExceeded"), after=2)
    begun = launcher.clock.now
    with pytest.raises(ServiceError):
        launcher.launch()
    assert launcher.left() == NOTHING
    assert launcher.clock.now - begun < 10


def test_a_young_cluster_whose_runs_no_list_has_yet_is_no_ended_one(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks from another machine must not launch its name again, or take it for stopped."""
    cluster = launcher.launch()
    for run in launcher.science.runs.values():
        run.seen_from = launcher.clock.now + 30
    now = datetime.datetime(2026, 1, 2, 3, 5, tzinfo=datetime.timezone.utc).timestamp()
    monkeypatch.setattr("oci_cluster.system.text.time.time", lambda: now)
    launcher.science.jobs[cluster.handle].time_created = datetime.datetime.fromtimestamp(
        now - 10, datetime.timezone.utc
    )
    backend = launcher.another()
    (found,) = backend.find()
    assert [(state.node, state.is_waiting) for state in backend.states([found])[found.launch_id]] == [("MAIN", True)]
    launcher.lifecycle_of(backend).stop(found)
    assert launcher.science.nodes() == []


def test_an_old_cluster_without_runs_has_ended(launcher: Launcher) -> None:
    """They have been deleted."""
    cluster = launcher.launch()
    launcher.science.runs.clear()
    assert launcher.another().states([cluster])[cluster.launch_id] == []


# --- Lists and states that lag --------------------------------------------------------------------------------------


def test_a_state_never_goes_backwards(launcher: Launcher) -> None:
    """Every second answer is an older one: who has ended has ended, who has started has started."""
    cluster = launcher.launch()
    launcher.science.begin("WORKER_2")
    launcher.science.end("MAIN", "SUCCEEDED")
    assert told(launcher, cluster) == {"MAIN": "SUCCEEDED", "WORKER_1": "ACCEPTED", "WORKER_2": "IN_PROGRESS"}
    runs = {run.freeform_tags["oci-cluster-node"]: run for run in launcher.science.runs.values()}
    late = {node: SimpleNamespace(**vars(run)) for node, run in runs.items()}
    for run in late.values():
        run.lifecycle_state, run.time_started = "ACCEPTED", None
    launcher.science.runs = {run.id: run for run in late.values()}
    assert told(launcher, cluster) == {"MAIN": "SUCCEEDED", "WORKER_1": "ACCEPTED", "WORKER_2": "IN_PROGRESS"}
    launcher.science.end("WORKER_2", "FAILED", "exit code 3")
    assert codes(launcher.states(cluster)) == {"MAIN": 0, "WORKER_1": None, "WORKER_2": 3}


def test_a_run_that_needs_attention_may_recover_before_it_has_started(launcher: Launcher) -> None:
    """Both are of one stage: the newest answer counts."""
    cluster = launcher.launch()
    for state in ("NEEDS_ATTENTION", "ACCEPTED", "NEEDS_ATTENTION"):
        next(iter(launcher.science.runs.values())).lifecycle_state = state
        main = launcher.states(cluster)[0]
        assert (main.state, main.is_waiting, main.is_running) == (state, True, True)


def test_a_run_that_needs_attention_after_its_start_does_not_wait_for_a_host(launcher: Launcher) -> None:
    """Its own files tell how it is."""
    cluster = launcher.launch()
    launcher.science.begin()
    launcher.science.end("MAIN", "NEEDS_ATTENTION")
    main = launcher.states(cluster)[0]
    assert (main.state, main.is_waiting, main.is_running) == (State.NEEDS_ATTENTION, False, True)


def test_a_deleted_run_has_ended_as_it_did(launcher: Launcher) -> None:
    """What was told of it before it was deleted."""
    cluster = launcher.launch()
    launcher.science.end("WORKER_1", "SUCCEEDED")
    launcher.states(cluster)
    launcher.science.runs = {ocid: SimpleNamespace(**vars(run)) for ocid, run in launcher.science.runs.items()}
    launcher.science.end("WORKER_1", "DELETED")
    assert codes(launcher.states(cluster))["WORKER_1"] == 0


def test_a_run_that_a_list_leaves_out_is_still_there(launcher: Launcher) -> None:
    """And is ended with the others."""
    cluster = launcher.launch()
    launcher.science.begin()
    launcher.states(cluster)
    for run in launcher.science.runs.values():
        run.seen_from = launcher.clock.now + 60
    assert told(launcher, cluster) == dict.fromkeys(NODES, "IN_PROGRESS")
    launcher.backend.end(cluster, NODES)
    launcher.clock.sleep(61)
    assert told(launcher, cluster) == dict.fromkeys(NODES, "CANCELED")


def test_a_run_that_no_list_has_for_long_is_looked_for(launcher: Launcher) -> None:
    """One that the service knows is there; one that it does not know is gone, and nobody waits for it for ever."""
    cluster = launcher.launch()
    launcher.states(cluster)
    # By its tag: the runs of workers are created side by side, in any order.
    runs = launcher.science.runs
    del runs[next(ocid for ocid, run in runs.items() if run.freeform_tags["oci-cluster-node"] == "WORKER_2")]
    next(iter(runs.values())).seen_from = launcher.clock.now + 1000
    assert sorted(told(launcher, cluster)) == NODES
    launcher.clock.sleep(SETTLES_S + 1)
    assert told(launcher, cluster) == {"MAIN": "ACCEPTED", "WORKER_1": "ACCEPTED"}
    assert launcher.science.requests.count("get_job_run") == 2


def test_looking_at_a_cluster_is_one_request(launcher: Launcher) -> None:
    """While its nodes wait, too; with node groups, whose states a list does not tell, one of another kind."""
    launcher.science.page_size = 1000
    for style, request in (("runs", "list_job_runs"), ("multinode", "get_job_run")):
        cluster = launcher.launch(CLUSTER_NAME=style, OCI_JOB_STYLE=style)
        before = len(launcher.science.requests)
        launcher.states(cluster)
        assert launcher.science.requests[before:] == [request]


def test_a_run_that_is_canceled_before_it_starts_never_started(launcher: Launcher) -> None:
    """One that was canceled later has."""
    cluster = launcher.launch()
    launcher.science.begin("WORKER_1")
    launcher.backend.end(cluster, ["WORKER_1", "WORKER_2"])
    launcher.states(cluster)
    found = {state.node: (state.exit_code, state.never_started) for state in launcher.states(cluster)}
    assert found == {"MAIN": (None, False), "WORKER_1": (143, False), "WORKER_2": (143, True)}


# --- Node groups ----------------------------------------------------------------------------------------------------


def group(name: str, state: str, details: str = "") -> SimpleNamespace:
    return SimpleNamespace(name=name, lifecycle_state=state, lifecycle_details=details)


def test_nodes_whose_group_is_being_made_wait(launcher: Launcher) -> None:
    """Main is there, and the workers' hosts are not."""
    cluster = launcher.launch(OCI_JOB_STYLE="multinode")
    (run,) = launcher.science.runs.values()
    run.lifecycle_state, run.time_started = "IN_PROGRESS", run.time_accepted
    run.node_group_details_list = [group("main", "ACTIVE"), group("worker", "CREATING")]
    assert [state.is_waiting for state in launcher.states(cluster)] == [False, True, True]
    run.node_group_details_list = [group("main", "ACTIVE"), group("worker", "ACTIVE")]
    assert [state.is_waiting for state in launcher.states(cluster)] == [False, False, False]


@pytest.mark.parametrize("is_another", [False, True])
def test_which_group_failed_is_told_and_why(launcher: Launcher, *, is_another: bool) -> None:
    """Also to who has not launched it; what the service says controls no terminal."""
    cluster = launcher.launch(OCI_JOB_STYLE="multinode")
    (run,) = launcher.science.runs.values()
    run.lifecycle_state, run.lifecycle_details = "FAILED", "Job run failed."
    run.node_group_details_list = [group("main", "DELETED"), group("worker", "FAILED", "no host\x1b[0m for 2 of 2")]
    backend = launcher.another() if is_another else launcher.backend
    (main, *_) = backend.states([cluster])[cluster.launch_id]
    assert main.details == "Job run failed.; node group worker: no host[0m for 2 of 2"


def test_a_code_that_a_group_alone_tells_is_one_of_a_node_that_ran(launcher: Launcher) -> None:
    """Then nodes have left theirs, too."""
    cluster = launcher.launch(OCI_JOB_STYLE="multinode")
    (run,) = launcher.science.runs.values()
    run.lifecycle_state, run.lifecycle_details = "FAILED", "Job run failed."
    run.node_group_details_list = [group("main", "DELETED"), group("worker", "FAILED", "failed with exit code 5")]
    states = launcher.states(cluster)
    assert (codes(states), states[0].never_started) == (dict.fromkeys(NODES, 5), False)
    launcher.cluster_dir(cluster).publish("MAIN_exit.json", exit_code=7, reason="x")
    assert codes(launcher.states(cluster))["MAIN"] == 7


def test_a_canceled_run_whose_main_had_succeeded_has_succeeded(launcher: Launcher) -> None:
    """Another group's hosts never came, and nobody needed them any more."""
    cluster = launcher.launch(OCI_JOB_STYLE="multinode")
    (run,) = launcher.science.runs.values()
    run.lifecycle_state, run.time_started = "CANCELED", run.time_accepted
    launcher.cluster_dir(cluster).publish("MAIN_exit.json", exit_code=0, reason="done")
    assert codes(launcher.states(cluster))["MAIN"] == 0


def test_runs_that_cannot_be_ended_are_told_after_their_time(launcher: Launcher) -> None:
    """A Job that stays unseen for longer than anybody waits is named."""
    cluster = launcher.launch()
    launcher.science.cancel_takes = 1_000_000
    with pytest.raises(BackendError, match="its runs have not ended within 300 s"):
        launcher.backend.remove(cluster, launcher.said.append)
