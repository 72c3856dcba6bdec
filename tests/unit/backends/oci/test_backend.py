"""Launches of the backend `oci`: requests fail, lists lag behind, somebody stops it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.fake_data_science import refusal, silence
from unit.fake_oci import NODES, Launcher

from oci_cluster.backends.oci import settings as oci_settings
from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.backends.oci.jobs import requests as oci_requests
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import BackendError, ClusterError, SettingsError, StoppedError, StorageError, UsageError
from oci_cluster.system import archive

NOTHING: tuple[list[str], list[str], list[Path]] = ([], [], [])


# --- Submit ---------------------------------------------------------------------------------------------------------


def test_a_launch_is_one_job_and_a_run_for_each_node(launcher: Launcher) -> None:
    """Main's run is the first; the launcher keeps the plan, with what the nodes got, for nobody else to read."""
    plan = launcher.plan()
    placed = launcher.backend.place(plan)
    cluster = launcher.lifecycle.launch(placed)
    assert (launcher.science.nodes(), len(launcher.science.jobs)) == (NODES, 1)
    assert launcher.science.created[1]["displayName"] == "mine-MAIN"
    assert launcher.said[-1] == "3 Job Runs created"
    assert cluster.handle == next(iter(launcher.science.jobs))
    path = cluster.directory / "cluster.json"
    assert (cluster.directory.stat().st_mode & 0o777, (cluster.directory / "logs").is_dir()) == (0o700, True)
    kept = json.loads(path.read_text())
    assert kept["environment"]["CODE_URI"].startswith("memory://work/code/")
    assert kept["placed"] == placed.placed
    assert {key: value for key, value in kept.items() if key not in {"environment", "placed"}} == {
        key: value for key, value in plan.to_json().items() if key != "environment"
    }


def test_a_launch_is_resolved_once(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings, code and templates are read once, and what a dry run has shown is what is sent."""
    made: Counter[str] = Counter()

    def count(module: Any, name: str, what: Callable[..., str]) -> None:
        original = getattr(module, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            made[what(*args)] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, counted)

    count(oci_settings, "_read_settings", lambda *_: "settings")
    count(oci_settings, "_freeform_tags", lambda *_: "tags")
    count(archive, "pack_code", lambda *_: "code")
    count(oci_requests, "_render", lambda root, template: template)
    plan = launcher.plan(FREEFORM_TAGS="team=vision")
    launcher.backend.check(plan)
    placed = launcher.backend.place(plan)
    shown = json.loads(launcher.backend.preview(placed, as_json=True))
    cluster = launcher.lifecycle.launch(replace(placed, environment={**placed.environment, "START_BY": "then"}))
    assert made == {"settings": 1, "tags": 1, "code": 1, "job.json.j2": 1, "job-run.json.j2": 3}
    job, *runs = launcher.science.created
    variables = job["jobConfigurationDetails"]["environmentVariables"]
    assert variables.pop("START_BY") == "then"  # which the launcher has added since
    assert job == shown["job"]
    by_name = sorted(runs, key=lambda run: str(run["displayName"]))
    assert by_name == [{**run, "jobId": cluster.handle} for run in shown["job_runs"]]


def test_all_nodes_of_a_large_launch_are_created_once(launcher: Launcher) -> None:
    """Many at once, each under a token of its own."""
    launcher.launch(workers=40)
    assert launcher.science.nodes() == sorted(["MAIN", *(f"WORKER_{rank}" for rank in range(1, 41))])
    assert len(launcher.science.runs) == 41


def test_code_is_sent_once(launcher: Launcher) -> None:
    """What is there under its own digest is not sent again."""
    launcher.launch()
    first = [text for text in launcher.said if text.startswith("sending the code in ")]
    launcher.said.clear()
    launcher.launch(CLUSTER_NAME="other")
    assert (len(first), launcher.said) == (1, ["3 Job Runs created"])


def test_code_that_cannot_be_sent_ends_the_launch_first(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is created."""

    def fail(*_: object) -> None:
        raise StorageError("no route to storage")

    monkeypatch.setattr(ClusterDir, "upload", fail)
    with pytest.raises(StorageError):
        launcher.launch()
    assert (launcher.left(), launcher.science.created) == (NOTHING, [])


@pytest.mark.parametrize(
    ("given", "cidr", "asked"),
    [
        ({"SUBNET_OCID": "ocid1.subnet.oc1.iad.x", "SUBNET_CIDR": ""}, "10.0.0.0/24", 1),
        ({"SUBNET_OCID": "ocid1.subnet.oc1.iad.x", "SUBNET_CIDR": "10.1.0.0/16"}, "10.1.0.0/16", 0),
        ({"SUBNET_OCID": "", "SUBNET_CIDR": "", "OCI_JOB_STYLE": "multinode"}, None, 0),
    ],
)
def test_the_subnets_addresses_are_looked_up_where_they_are_not_given(
    launcher: Launcher, given: dict[str, str], cidr: str | None, asked: int
) -> None:
    """Nodes learn by them which of their addresses is their own."""
    launcher.launch(**given)
    job = launcher.science.created[0]
    groups = job.get("jobNodeConfigurationDetails", {}).get("jobNodeGroupConfigurationDetailsList", [job])
    environment = groups[0]["jobConfigurationDetails"]["environmentVariables"]
    assert (environment.get("SUBNET_CIDR"), len(launcher.service.looked_up)) == (cidr, asked)


def test_bad_settings_end_a_launch_before_anybody_is_asked(launcher: Launcher) -> None:
    """No request, no file."""
    with pytest.raises(SettingsError):
        launcher.launch(IMAGE="x")
    assert (launcher.science.requests, launcher.left()) == ([], NOTHING)


def test_a_name_that_is_taken_is_refused(launcher: Launcher) -> None:
    """While a cluster of that name runs there is no second; how to end the first is said."""
    launcher.launch()
    before = launcher.left()
    with pytest.raises(UsageError) as caught:
        launcher.launch()
    assert str(caught.value) == (
        "a cluster named 'mine' is running; choose another --name, or end it: scripts/stop.sh mine --backend oci"
    )
    assert launcher.left() == before


def test_the_name_of_one_that_has_ended_is_free(launcher: Launcher) -> None:
    """Its Job stays, with its logs and codes."""
    launcher.launch()
    for node in NODES:
        launcher.science.end(node, "SUCCEEDED")
    launcher.launch()
    assert (len(launcher.science.jobs), launcher.science.nodes()) == (2, NODES)


def test_other_peoples_jobs_do_not_matter(launcher: Launcher) -> None:
    """A Job of that name without our tags is none of ours, and is left alone."""
    job = launcher.science.add_job(display_name="mine", freeform_tags=None)
    launcher.science.add_run(job.id)
    launcher.launch()
    assert len(launcher.science.jobs) == 2


def test_a_directory_that_cannot_be_written_is_named(launcher: Launcher) -> None:
    """Before anything is created."""
    launcher.directory.write_text("a file")
    with pytest.raises(BackendError, match=r"cannot be written: .*; make room there"):
        launcher.launch()
    assert launcher.science.created == []


# --- All or nothing -------------------------------------------------------------------------------------------------

REQUESTS = ["list_jobs", "create_job", "create_job_run"]
# What a request's answer can be other than an answer, and whether it has been done all the same.
FAILURES: dict[str, tuple[Callable[[], Exception], bool]] = {
    "refused": (lambda: refusal(400, "InvalidParameter"), False),
    "not permitted": (lambda: refusal(404, "NotAuthorizedOrNotFound"), False),
    "no answer, not done": (silence, False),
    "no answer, but done": (silence, True),
    "throttled for ever": (lambda: refusal(429, "TooManyRequests"), False),
    "broken, but done": (lambda: refusal(500, "InternalError"), True),
}


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("how", FAILURES)
@pytest.mark.parametrize("request_", REQUESTS)
def test_a_request_that_fails_for_good_leaves_nothing(launcher: Launcher, request_: str, how: str, after: int) -> None:
    """Whatever request fails and however, once or for as long as anyone tries: no node, no Job, no file is left."""
    error, is_done = FAILURES[how]
    launcher.science.fail(request_, error(), is_done=is_done, after=after, times=1000)
    made = 3 if request_ == "create_job_run" else 1
    if after >= made:
        launcher.launch()
        assert (launcher.science.nodes(), len(launcher.science.jobs)) == (NODES, 1)
        return
    with pytest.raises(ServiceError):
        launcher.launch()
    assert launcher.left() == NOTHING
    assert not any("NOT ENDED" in text for text in launcher.said)


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize(
    "how", ["no answer, not done", "no answer, but done", "throttled for ever", "broken, but done"]
)
def test_a_run_whose_creation_fails_for_a_while_is_created_once(launcher: Launcher, how: str, after: int) -> None:
    """A request that was done is not done a second time when it is repeated."""
    error, is_done = FAILURES[how]
    launcher.science.fail("create_job_run", error(), is_done=is_done, after=after, times=3)
    launcher.launch()
    assert (launcher.science.nodes(), len(launcher.science.runs)) == (NODES, 3)


@pytest.mark.parametrize("code", ["IncorrectState", "Conflict"])
def test_a_job_that_is_not_ready_yet_is_waited_for(launcher: Launcher, code: str) -> None:
    """What has just been created may not be ready for what needs it."""
    launcher.science.fail("create_job_run", refusal(409, code), times=3)
    launcher.launch()
    assert launcher.science.nodes() == NODES


@pytest.mark.parametrize("how", ["refused", "stopped"])
def test_the_first_failure_ends_the_creating_of_others(launcher: Launcher, how: str) -> None:
    """Of a hundred nodes not all are started before they are ended again: a few are under way, no more."""
    if how == "refused":
        launcher.science.fail("create_job_run", refusal(400, "InvalidParameter"), after=2)
    else:
        launcher.stop_at("create_job_run", 3)
    with pytest.raises(ClusterError):
        launcher.launch(launcher.plan(100))
    assert launcher.science.requests.count("create_job_run") < 50
    assert launcher.left() == NOTHING


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("request_", REQUESTS)
def test_a_stop_at_any_moment_leaves_nothing(launcher: Launcher, request_: str, count: int) -> None:
    """Ctrl-C while a request is under way: what it has made, and what came before it, is ended."""
    launcher.stop_at(request_, count)
    if (request_, count) in {("list_jobs", 2), ("list_jobs", 3), ("create_job", 2), ("create_job", 3)}:
        launcher.launch()
        assert launcher.science.nodes() == NODES
        return
    with pytest.raises(StoppedError):
        launcher.launch()
    assert (launcher.science.nodes(), list(launcher.science.jobs)) == ([], [])


def test_a_stop_before_the_job_leaves_no_directory(launcher: Launcher) -> None:
    """Another backend would take it for a cluster that has ended."""
    launcher.stop_at("list_jobs")
    with pytest.raises(StoppedError):
        launcher.launch()
    assert launcher.left() == NOTHING


def test_a_stop_ends_trying_again(launcher: Launcher) -> None:
    """Who has been told to stop does not wait for a service that is busy, and leaves nothing."""
    launcher.science.fail("create_job_run", refusal(503), after=1, times=1000)
    launcher.stop_at("create_job_run", 2)
    begun = launcher.clock.now
    with pytest.raises(StoppedError):
        launcher.launch()
    assert launcher.left() == NOTHING
    assert launcher.clock.now - begun < 20
    assert any(text.startswith("stopped while trying again: ") for text in launcher.said)


@pytest.mark.parametrize("request_", ["list_jobs", "list_job_runs", "cancel_job_run", "delete_job"])
@pytest.mark.parametrize(
    "how", ["no answer, not done", "no answer, but done", "throttled for ever", "broken, but done"]
)
def test_ending_what_was_started_is_tried_again(launcher: Launcher, request_: str, how: str) -> None:
    """A service that throttles a launch throttles its end too."""
    error, is_done = FAILURES[how]
    launcher.science.fail("create_job_run", refusal(400, "InvalidParameter"), after=2)
    launcher.science.fail(request_, error(), is_done=is_done, after=1 if request_ == "list_jobs" else 0, times=2)
    with pytest.raises(ServiceError):
        launcher.launch()
    assert launcher.left() == NOTHING


@pytest.mark.parametrize("request_", ["list_jobs", "list_job_runs", "cancel_job_run", "delete_job"])
def test_ending_what_was_started_is_tried_again_after_ctrl_c(launcher: Launcher, request_: str) -> None:
    """Ctrl-C means that nothing is to be left, not that cleaning up is done by halves."""
    launcher.science.fail(request_, refusal(429), after=1 if request_ in {"list_jobs", "list_job_runs"} else 0)
    launcher.stop_at("create_job_run", 3)
    with pytest.raises(StoppedError):
        launcher.launch()
    assert launcher.left() == NOTHING


@pytest.mark.parametrize("request_", ["list_job_runs", "cancel_job_run", "delete_job"])
def test_what_could_not_be_ended_is_named(launcher: Launcher, request_: str) -> None:
    """The error is the launch's own; that something may cost money is said, and how to end it."""
    launcher.science.fail("create_job_run", refusal(400, "InvalidParameter", "bad node"), after=2)
    launcher.science.fail(request_, refusal(503), times=10_000)
    with pytest.raises(ServiceError, match="bad node"):
        launcher.launch()
    assert launcher.said[-1].startswith("NOT ENDED: mine may still be running and cost money (cannot ")
    assert launcher.said[-1].endswith("; end it: scripts/stop.sh mine --delete --backend oci")
    assert list(launcher.directory.glob("*/cluster.json"))


def test_runs_that_do_not_end_are_named(launcher: Launcher) -> None:
    """Five minutes are waited for the service to end them."""
    launcher.science.cancel_takes = 1_000_000
    launcher.science.fail("create_job_run", refusal(400, "InvalidParameter"), after=2)
    begun = launcher.clock.now
    with pytest.raises(ServiceError):
        launcher.launch()
    assert "(its runs have not ended within 300 s)" in launcher.said[-1]
    assert 300 < launcher.clock.now - begun < 320


def test_runs_that_take_their_time_are_waited_for(launcher: Launcher) -> None:
    """A Job is deleted when its last run has ended."""
    launcher.science.cancel_takes = 20
    launcher.science.fail("create_job_run", refusal(400, "InvalidParameter"), after=2)
    with pytest.raises(ServiceError):
        launcher.launch()
    assert launcher.left() == NOTHING


def test_runs_that_a_list_does_not_hold_yet_are_ended(launcher: Launcher) -> None:
    """Lists lag behind: that one is empty does not mean that nothing runs."""
    launcher.science.fail("create_job_run", refusal(400, "InvalidParameter"), after=2)
    launcher.science.on_request = lambda made: setattr(launcher.science, "lag_s", 10.0 * (made == "create_job_run"))
    with pytest.raises(ServiceError):
        launcher.launch()
    assert launcher.left() == NOTHING


@pytest.mark.parametrize("delay", ["lag", "CREATING"])
def test_a_job_that_a_list_does_not_hold_yet_is_ended_or_named(launcher: Launcher, delay: str) -> None:
    """Where the creation of a Job was not answered, it may have been done, and show up a little later."""
    launcher.science.fail("create_job", silence(), is_done=True, times=10_000)

    def be_late(made: str) -> None:
        if made == "create_job":
            launcher.science.lag_s = 10.0 if delay == "lag" else 0.0
        for job in launcher.science.jobs.values():
            is_young = job.seen_from + 10.0 > launcher.clock.now
            job.lifecycle_state = "CREATING" if delay == "CREATING" and is_young else "ACTIVE"

    launcher.science.on_request = be_late
    with pytest.raises(ServiceError):
        launcher.launch()
    assert launcher.left() == NOTHING or any("NOT ENDED" in text for text in launcher.said)


def test_an_answer_that_makes_no_sense_leaves_nothing(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of anybody's ends what was started too."""
    create = launcher.science.create_job

    def create_and_say_nothing(body: Any, **words: Any) -> SimpleNamespace:
        create(body, **words)
        return SimpleNamespace(data=None)

    monkeypatch.setattr(launcher.science, "create_job", create_and_say_nothing)
    with pytest.raises(AttributeError):
        launcher.launch()
    assert launcher.left() == NOTHING


def test_another_launchs_job_of_that_name_is_left_alone(launcher: Launcher) -> None:
    """What is ended has the launch's own id, not only its name."""
    launcher.launch()
    for node in NODES:
        launcher.science.end(node, "SUCCEEDED")
    before = list(launcher.science.jobs)
    launcher.science.fail("create_job", refusal(400, "InvalidParameter"))
    with pytest.raises(ServiceError):
        launcher.launch()
    assert list(launcher.science.jobs) == before


@pytest.mark.parametrize(("error", "looks", "is_told"), [(refusal(400), 0, False), (silence(), 2, True)])
def test_a_job_is_looked_for_only_where_its_creation_was_not_refused(
    launcher: Launcher, error: Exception, looks: int, *, is_told: bool
) -> None:
    """A refusal is an answer: nobody waits for a Job to appear. Else it is looked for, and its price is told."""
    launcher.science.fail("create_job", error, times=1000)
    with pytest.raises(ServiceError):
        launcher.launch()
    found = launcher.science.requests.count("list_jobs") - 1  # the first is for the name
    assert (found >= looks, found > 0) == (True, looks > 0)
    assert any("a Job mine may still appear later" in text for text in launcher.said) == is_told


def test_a_stop_says_nothing_of_a_job_that_may_appear(launcher: Launcher) -> None:
    """Who has stopped a launch knows that there is none."""
    launcher.science.fail("create_job", silence(), times=1000)
    launcher.stop_at("create_job")
    with pytest.raises(StoppedError):
        launcher.launch()
    assert not any("appear later" in text for text in launcher.said)


def test_a_launch_is_looked_for_where_it_was_sent(launcher: Launcher) -> None:
    """A plan has the compartment that a flag named, whatever the environment does."""
    backend = launcher.another("")
    launcher.lifecycle_of(backend).launch(backend.place(launcher.plan()))
    assert launcher.science.nodes() == NODES
