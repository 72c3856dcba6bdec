"""Clusters of Job Runs, with a Data Science that the test plays: requests fail, lists lag behind, somebody stops it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.played_oci import COMPARTMENT, Checkout, DataScience, PlayedService, refusal, silence

from oci_cluster.clusters import Cluster
from oci_cluster.errors import BackendError, ClusterError, SettingsError, StoppedError, StorageError, UsageError
from oci_cluster.exchange import Exchange
from oci_cluster.jobs import Jobs
from oci_cluster.oci_service import ServiceError

pytestmark = pytest.mark.usefixtures("empty_memory")

NODES = ["MAIN", "WORKER_1", "WORKER_2"]
# memory:// is seen by the one node that a test is.
MOUNT = {"WORK_DIR": "memory://work", "STORAGE_MOUNTS": "data=oci://data@ns"}


class Launcher:
    """One launcher, the service that it asks, and what a launch says and leaves."""

    def __init__(self, place: Path, clock: Any) -> None:
        self.checkout = Checkout(place)
        self.clock = clock
        self.science = DataScience(clock)
        self.is_stopped = False
        self.said: list[str] = []
        self.directory = place / ".clusters"
        self.service = PlayedService(self.science, is_stopped=lambda: self.is_stopped, clock=clock)
        self.jobs = self.another()

    def another(self, **settings: str) -> Jobs:
        """Return what another launcher, on another machine, sees."""
        return Jobs(
            self.service,
            {"COMPARTMENT_OCID": COMPARTMENT, **settings},
            self.directory,
            is_stopped=lambda: self.is_stopped,
            clock=self.clock,
            sleep=self.clock.sleep,
        )

    def plan(self, workers: int = 2, **settings: str) -> dict[str, Any]:
        return self.checkout.plan(workers, **{**MOUNT, "CLUSTER_NAME": "mine", **settings})

    def submit(self, plan: dict[str, Any] | None = None, **settings: str) -> Cluster:
        return self.jobs.submit(plan or self.plan(**settings), self.checkout.root, self.said.append)

    def scale(self, cluster: Cluster, text: str, most: int = 999) -> int:
        return self.jobs.scale(cluster, text, self.checkout.root, self.said.append, most=most)

    def stop(self, cluster: Cluster, *, delete: bool = False) -> None:
        self.jobs.stop(cluster, self.said.append, delete=delete)

    def stop_at(self, request: str, count: int = 1) -> None:
        """Have Ctrl-C come while a *request* is made for the so-many-eth time."""
        seen = 0

        def look(made: str) -> None:
            nonlocal seen
            seen += made == request
            self.is_stopped |= seen >= count

        self.science.on_request = look

    def left(self) -> tuple[list[str], list[str], list[Path]]:
        """Return all that costs money or takes room: nodes, Jobs and directories."""
        return self.science.nodes(), list(self.science.jobs), list(self.directory.glob("*"))


@pytest.fixture
def launcher(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    monkeypatch.setattr("oci_cluster.oci_service.random.uniform", lambda _low, high: high)
    return Launcher(tmp_path.resolve(), clock)


NOTHING: tuple[list[str], list[str], list[Path]] = ([], [], [])


# --- Submit ---------------------------------------------------------------------------------------------------------


def test_a_launch_is_one_job_and_a_run_for_each_node(launcher: Launcher) -> None:
    """Main's run is the first; the launcher keeps the plan, with what the nodes got, for nobody else to read."""
    plan = launcher.plan()
    cluster = launcher.submit(plan)
    assert (launcher.science.nodes(), len(launcher.science.jobs)) == (NODES, 1)
    assert launcher.science.created[1]["displayName"] == "mine-MAIN"
    assert launcher.said[-1] == "3 Job Runs created"
    assert cluster.plan["job"] == next(iter(launcher.science.jobs))
    path = cluster.directory / "cluster.json"
    assert (cluster.directory.stat().st_mode & 0o777, (cluster.directory / "logs").is_dir()) == (0o700, True)
    kept = json.loads(path.read_text())
    assert kept["environment"]["CODE_URI"].startswith("memory://work/code/")
    assert {key: value for key, value in kept.items() if key != "environment"} == {
        key: value for key, value in plan.items() if key != "environment"
    }


def test_all_nodes_of_a_large_launch_are_created_once(launcher: Launcher) -> None:
    """Many at once, each under a token of its own."""
    launcher.submit(workers=40)
    assert launcher.science.nodes() == sorted(["MAIN", *(f"WORKER_{rank}" for rank in range(1, 41))])
    assert len(launcher.science.runs) == 41


def test_code_is_sent_once(launcher: Launcher) -> None:
    """What is there under its own digest is not sent again."""
    launcher.submit()
    first = [text for text in launcher.said if text.startswith("sending the code in ")]
    launcher.said.clear()
    launcher.submit(CLUSTER_NAME="other")
    assert (len(first), launcher.said) == (1, ["3 Job Runs created"])


def test_code_that_cannot_be_sent_ends_the_launch_first(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is created."""

    def fail(*_: object) -> None:
        raise StorageError("no route to storage")

    monkeypatch.setattr(Exchange, "upload", fail)
    with pytest.raises(StorageError):
        launcher.submit()
    assert (launcher.left(), launcher.science.created) == (NOTHING, [])


@pytest.mark.parametrize(
    ("given", "cidr", "asked"),
    [
        ({"SUBNET_OCID": "ocid1.subnet.oc1.iad.x"}, "10.0.0.0/24", 1),
        ({"SUBNET_OCID": "ocid1.subnet.oc1.iad.x", "SUBNET_CIDR": "10.1.0.0/16"}, "10.1.0.0/16", 0),
        ({}, None, 0),
    ],
)
def test_the_subnets_addresses_are_looked_up_where_they_are_not_given(
    launcher: Launcher, given: dict[str, str], cidr: str | None, asked: int
) -> None:
    """Nodes learn by them which of their addresses is their own."""
    launcher.submit(**given)
    environment = launcher.science.created[0]["jobConfigurationDetails"]["environmentVariables"]
    assert (environment.get("SUBNET_CIDR"), len(launcher.service.looked_up)) == (cidr, asked)


def test_bad_settings_end_a_launch_before_anybody_is_asked(launcher: Launcher) -> None:
    """No request, no file."""
    with pytest.raises(SettingsError):
        launcher.submit(IMAGE="x")
    assert (launcher.science.requests, launcher.left()) == ([], NOTHING)


def test_a_name_that_is_taken_is_refused(launcher: Launcher) -> None:
    """While a cluster of that name runs there is no second; how to end the first is said."""
    launcher.submit()
    before = launcher.left()
    with pytest.raises(UsageError) as caught:
        launcher.submit()
    assert str(caught.value) == (
        "a cluster named 'mine' is running, with 3 nodes; choose another --name, or end it:"
        " scripts/stop.sh mine --backend oci"
    )
    assert launcher.left() == before


def test_the_name_of_one_that_has_ended_is_free(launcher: Launcher) -> None:
    """Its Job stays, with its logs and codes."""
    launcher.submit()
    for node in NODES:
        launcher.science.end(node, "SUCCEEDED")
    launcher.submit()
    assert (len(launcher.science.jobs), launcher.science.nodes()) == (2, NODES)


def test_other_peoples_jobs_do_not_matter(launcher: Launcher) -> None:
    """A Job of that name without our tags is none of ours, and is left alone."""
    job = launcher.science.add_job(display_name="mine", freeform_tags=None)
    launcher.science.add_run(job.id)
    launcher.submit()
    assert len(launcher.science.jobs) == 2


def test_a_directory_that_cannot_be_written_is_named(launcher: Launcher) -> None:
    """Before anything is created."""
    launcher.directory.write_text("a file")
    with pytest.raises(BackendError, match=r"cannot be written: .*; make room there or allow it"):
        launcher.submit()
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
        launcher.submit()
        assert (launcher.science.nodes(), len(launcher.science.jobs)) == (NODES, 1)
        return
    with pytest.raises(ServiceError):
        launcher.submit()
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
    launcher.submit()
    assert (launcher.science.nodes(), len(launcher.science.runs)) == (NODES, 3)


@pytest.mark.parametrize("code", ["IncorrectState", "Conflict"])
def test_a_job_that_is_not_ready_yet_is_waited_for(launcher: Launcher, code: str) -> None:
    """What has just been created may not be ready for what needs it."""
    launcher.science.fail("create_job_run", refusal(409, code), times=3)
    launcher.submit()
    assert launcher.science.nodes() == NODES


@pytest.mark.parametrize("how", ["refused", "stopped"])
def test_the_first_failure_ends_the_creating_of_others(launcher: Launcher, how: str) -> None:
    """Of a hundred nodes not all are started before they are ended again: a few are under way, no more."""
    if how == "refused":
        launcher.science.fail("create_job_run", refusal(400, "InvalidParameter"), after=2)
    else:
        launcher.stop_at("create_job_run", 3)
    with pytest.raises(ClusterError):
        launcher.submit(launcher.plan(100))
    assert launcher.science.requests.count("create_job_run") < 50
    assert launcher.left() == NOTHING


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("request_", REQUESTS)
def test_a_stop_at_any_moment_leaves_nothing(launcher: Launcher, request_: str, count: int) -> None:
    """Ctrl-C while a request is under way: what it has made, and what came before it, is ended."""
    launcher.stop_at(request_, count)
    if (request_, count) in {("list_jobs", 2), ("list_jobs", 3), ("create_job", 2), ("create_job", 3)}:
        launcher.submit()
        assert launcher.science.nodes() == NODES
        return
    with pytest.raises(StoppedError):
        launcher.submit()
    assert (launcher.science.nodes(), list(launcher.science.jobs)) == ([], [])


def test_a_stop_before_the_job_leaves_no_directory(launcher: Launcher) -> None:
    """Another backend would take it for a cluster that has ended."""
    launcher.stop_at("list_jobs")
    with pytest.raises(StoppedError):
        launcher.submit()
    assert launcher.left() == NOTHING


def test_a_stop_ends_trying_again(launcher: Launcher) -> None:
    """Who has been told to stop does not wait for a service that is busy, and leaves nothing."""
    launcher.science.fail("create_job_run", refusal(503), after=1, times=1000)
    launcher.stop_at("create_job_run", 2)
    begun = launcher.clock.now
    with pytest.raises(StoppedError):
        launcher.submit()
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
        launcher.submit()
    assert launcher.left() == NOTHING


@pytest.mark.parametrize("request_", ["list_jobs", "list_job_runs", "cancel_job_run", "delete_job"])
def test_ending_what_was_started_is_tried_again_after_ctrl_c(launcher: Launcher, request_: str) -> None:
    """Ctrl-C means that nothing is to be left, not that cleaning up is done by halves."""
    launcher.science.fail(request_, refusal(429), after=1 if request_ in {"list_jobs", "list_job_runs"} else 0)
    launcher.stop_at("create_job_run", 3)
    with pytest.raises(StoppedError):
        launcher.submit()
    assert launcher.left() == NOTHING


@pytest.mark.parametrize("request_", ["list_job_runs", "cancel_job_run", "delete_job"])
def test_what_could_not_be_ended_is_named(launcher: Launcher, request_: str) -> None:
    """The error is the launch's own; that something may cost money is said, and how to end it."""
    launcher.science.fail("create_job_run", refusal(400, "InvalidParameter", "bad node"), after=2)
    launcher.science.fail(request_, refusal(503), times=10_000)
    with pytest.raises(ServiceError, match="bad node"):
        launcher.submit()
    assert launcher.said[-1].startswith("NOT ENDED: mine may still be running and cost money (cannot ")
    assert launcher.said[-1].endswith("; end it: scripts/stop.sh mine --delete --backend oci")
    assert list(launcher.directory.glob("*/cluster.json"))


def test_runs_that_do_not_end_are_named(launcher: Launcher) -> None:
    """Five minutes are waited for the service to end them."""
    launcher.science.cancel_takes = 1_000_000
    launcher.science.fail("create_job_run", refusal(400, "InvalidParameter"), after=2)
    begun = launcher.clock.now
    with pytest.raises(ServiceError):
        launcher.submit()
    assert "(its runs have not ended within 300 s)" in launcher.said[-1]
    assert 300 < launcher.clock.now - begun < 320


def test_runs_that_take_their_time_are_waited_for(launcher: Launcher) -> None:
    """A Job is deleted when its last run has ended."""
    launcher.science.cancel_takes = 20
    launcher.science.fail("create_job_run", refusal(400, "InvalidParameter"), after=2)
    with pytest.raises(ServiceError):
        launcher.submit()
    assert launcher.left() == NOTHING


def test_runs_that_a_list_does_not_hold_yet_are_ended(launcher: Launcher) -> None:
    """Lists lag behind: that one is empty does not mean that nothing runs."""
    launcher.science.fail("create_job_run", refusal(400, "InvalidParameter"), after=2)
    launcher.science.on_request = lambda made: setattr(launcher.science, "lag_s", 10.0 * (made == "create_job_run"))
    with pytest.raises(ServiceError):
        launcher.submit()
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
        launcher.submit()
    assert launcher.left() == NOTHING or any("NOT ENDED" in text for text in launcher.said)


def test_an_answer_that_makes_no_sense_leaves_nothing(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of anybody's ends what was started too."""
    create = launcher.science.create_job

    def create_and_say_nothing(body: Any, **words: Any) -> SimpleNamespace:
        create(body, **words)
        return SimpleNamespace(data=None)

    monkeypatch.setattr(launcher.science, "create_job", create_and_say_nothing)
    with pytest.raises(AttributeError):
        launcher.submit()
    assert launcher.left() == NOTHING


def test_another_launchs_job_of_that_name_is_left_alone(launcher: Launcher) -> None:
    """What is ended has the launch's own id, not only its name."""
    launcher.submit()
    for node in NODES:
        launcher.science.end(node, "SUCCEEDED")
    before = list(launcher.science.jobs)
    launcher.science.fail("create_job", refusal(400, "InvalidParameter"))
    with pytest.raises(ServiceError):
        launcher.submit()
    assert list(launcher.science.jobs) == before


# --- State ----------------------------------------------------------------------------------------------------------


def codes(state: dict[str, Any]) -> dict[str, int | None]:
    return {node["node"]: node["exit_code"] for node in state["nodes"]}


def test_nodes_have_the_services_states(launcher: Launcher) -> None:
    """By rank, with the code that the service tells."""
    cluster = launcher.submit(PS_COUNT="1", workers=12)
    launcher.science.end("WORKER_2", "IN_PROGRESS")
    launcher.science.end("WORKER_10", "SUCCEEDED")
    launcher.science.end("WORKER_3", "CANCELED")
    launcher.science.end("WORKER_4", "DELETED")
    launcher.science.end("WORKER_5", "NEEDS_ATTENTION")
    launcher.science.end("WORKER_6", "CANCELING")
    launcher.science.cancel_takes = 0
    state = launcher.jobs.state(cluster)
    assert [node["node"] for node in state["nodes"]] == ["MAIN", *(f"WORKER_{rank}" for rank in range(1, 13)), "PS_13"]
    assert state["running"] is True
    found = codes(state)
    assert [found[f"WORKER_{rank}"] for rank in (1, 2, 10, 3, 4, 5)] == [None, None, 0, 143, 76, None]
    assert state["nodes"][1]["ocid"].startswith("ocid1.datasciencejobrun.")


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ("Job run artifact execution failed with exit code 21.", (21, False)),
        ("exit code 255", (255, False)),
        ("Container ended: exit code 1 (Error)", (1, False)),
        ("failed with exit code 0", (69, False)),
        ("", (69, True)),
        (None, (69, True)),
        ("Out of host capacity.", (69, True)),
    ],
)
def test_a_failed_run_has_its_scripts_code(launcher: Launcher, details: str | None, told: tuple[int, bool]) -> None:
    """The service tells it in a sentence; without one the run never ran, which is nobody's exit code."""
    cluster = launcher.submit()
    launcher.science.end("MAIN", "FAILED", details)  # type: ignore[arg-type]
    main = launcher.jobs.state(cluster)["nodes"][0]
    assert (main["exit_code"], main["never_started"]) == told


@pytest.mark.parametrize("number", ["256", "512", "999"])
def test_a_code_that_is_none_is_no_success(launcher: Launcher, number: str) -> None:
    """Only 1 to 255 are a process's own: what else stands there is unknown."""
    cluster = launcher.submit()
    launcher.science.end("MAIN", "FAILED", f"failed with exit code {number}")
    assert codes(launcher.jobs.state(cluster))["MAIN"] in range(1, 256)


def test_what_to_do_is_said_where_a_run_never_ran(launcher: Launcher) -> None:
    """Beside the service's own words, of which nothing controls a terminal."""
    cluster = launcher.submit()
    launcher.science.end("MAIN", "FAILED", "Out of \x1b[31mhost capacity.")
    assert launcher.jobs.state(cluster)["nodes"][0]["details"] == (
        "Out of [31mhost capacity.; choose another SHAPE, another region, or a CAPACITY_RESERVATION_OCID;"
        " or try again later"
    )


def test_a_cluster_whose_nodes_have_ended_runs_no_more(launcher: Launcher) -> None:
    """All of them, however."""
    cluster = launcher.submit()
    launcher.science.end("MAIN", "SUCCEEDED")
    launcher.science.end("WORKER_1", "FAILED", "exit code 3")
    assert (launcher.jobs.state(cluster)["running"], launcher.jobs.is_running(cluster)) == (True, True)
    launcher.science.end("WORKER_2", "CANCELED")
    assert (launcher.jobs.state(cluster)["running"], launcher.jobs.is_running(cluster)) == (False, False)


def test_a_node_that_was_replaced_is_what_its_last_run_is(launcher: Launcher) -> None:
    """Two runs have its name: the later one counts, whatever the order of the list."""
    cluster = launcher.submit()
    launcher.science.end("WORKER_1", "FAILED", "exit code 9")
    launcher.scale(cluster, "2")
    runs = launcher.science.runs
    launcher.science.runs = dict(reversed(runs.items()))
    assert codes(launcher.jobs.state(cluster)) == dict.fromkeys(NODES)
    assert len(runs) == 4


def test_what_a_list_does_not_hold_yet_has_not_ended(launcher: Launcher) -> None:
    """The launcher knows what it has just created."""
    launcher.science.lag_s = 10.0
    cluster = launcher.submit()
    early = launcher.jobs.state(cluster)
    launcher.clock.sleep(20)
    late = launcher.jobs.state(cluster)
    assert (codes(early), early["running"]) == (codes(late), late["running"]) == (dict.fromkeys(NODES), True)
    assert [node["ocid"] for node in early["nodes"]] == ["", "", ""]


def test_a_run_without_a_nodes_name_is_none(launcher: Launcher) -> None:
    """Somebody may start a run of the Job by hand."""
    cluster = launcher.submit()
    launcher.science.add_run(cluster.plan["job"], freeform_tags=None)
    assert list(codes(launcher.jobs.state(cluster))) == NODES


@pytest.mark.parametrize("name", ["x", "WORKER_x", "WORKER_", "MAIN_"])
def test_a_run_with_a_name_that_is_no_nodes_breaks_nothing(launcher: Launcher, name: str) -> None:
    """A tag is what somebody has typed: it must not cost the look at all clusters of the compartment."""
    cluster = launcher.submit()
    launcher.science.add_run(cluster.plan["job"], freeform_tags={"oci-cluster-node": name})
    assert list(codes(launcher.jobs.state(cluster))) == NODES
    assert len(launcher.jobs.overview()) == 1


# --- Found again ----------------------------------------------------------------------------------------------------


def test_clusters_are_found_by_their_tags_alone(launcher: Launcher) -> None:
    """From any machine: the service has all that is needed to look at one and to end it."""
    launched = launcher.submit()
    launcher.science.add_job(freeform_tags={"other": "tag"})
    jobs = launcher.another()
    (found,) = jobs.find()
    loaded = jobs.load(found)
    assert (loaded.name, loaded.launch_id, loaded.url, loaded.directory) == (
        "mine", launched.launch_id, launched.url, launched.directory,
    )  # fmt: skip
    assert {key: loaded.plan[key] for key in ("framework", "backend", "job", "style", "work_dir")} == {
        "framework": "plain",
        "backend": "oci",
        "job": launched.plan["job"],
        "style": "runs",
        "work_dir": "memory://work",
    }
    assert loaded.plan["environment"]["MIN_WORKERS"] == "1"
    assert codes(jobs.state(loaded)) == dict.fromkeys(NODES)
    assert jobs.load(loaded) is loaded


def test_clusters_are_listed_from_the_oldest(launcher: Launcher) -> None:
    """By the time at which the service made them."""
    for name in ("b", "a", "c"):
        launcher.submit(CLUSTER_NAME=name)
    launcher.science.jobs = dict(reversed(launcher.science.jobs.items()))
    assert [cluster.name for cluster in launcher.jobs.find()] == ["b", "a", "c"]


def test_without_a_compartment_nobody_is_asked(launcher: Launcher) -> None:
    """It is said which setting names it."""
    with pytest.raises(SettingsError, match=r"COMPARTMENT_OCID is not set: .*config\.env\.example"):
        launcher.another(COMPARTMENT_OCID="").find()
    assert launcher.science.requests == []


@pytest.mark.parametrize("cluster_id", ["", ".", "..", "../precious", "/ABSOLUTE"])
def test_a_job_of_anybodys_cannot_have_other_folders_removed(
    launcher: Launcher, tmp_path: Path, cluster_id: str
) -> None:
    """Whoever may make Jobs in the compartment can make one with our tags: deleting it must not reach beyond it."""
    launcher.directory.mkdir()
    (launcher.directory / "other-cluster").mkdir()
    (tmp_path / "precious").mkdir()
    environment = {
        "WORK_DIR": "memory://other",
        "CLUSTER_ID": cluster_id.replace("/ABSOLUTE", str(tmp_path / "precious")),
    }
    launcher.science.add_job(
        freeform_tags={"oci-cluster": "mine", "oci-cluster-launch": "00000001"},
        job_configuration_details=SimpleNamespace(environment_variables=environment),
    )
    Exchange("memory://other/their-cluster", "x").write_bytes("a", b"1")
    Exchange("memory://precious", "x").write_bytes("a", b"1")
    with contextlib.suppress(ClusterError):
        launcher.stop(launcher.jobs.load(launcher.jobs.find()[0]), delete=True)
    assert (tmp_path / "precious").is_dir()
    assert (launcher.directory / "other-cluster").is_dir()
    assert Exchange("memory://other/their-cluster", "x").is_there("a")
    assert Exchange("memory://precious", "x").is_there("a")


def test_a_runs_tag_is_no_path(launcher: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What OCI Logging has of a run that somebody has made is not written beyond the folder of the logs."""
    cluster = launcher.submit(NODE_LOGS="0", LOG_GROUP_OCID="ocid1.loggroup.oc1.iad.x")
    launcher.science.add_run(cluster.plan["job"], freeform_tags={"oci-cluster-node": "../outside"})
    for job in launcher.science.jobs.values():
        job.job_log_configuration_details = SimpleNamespace(log_group_id="ocid1.loggroup.oc1.iad.x")
    line = {"data": {"logContent": {"data": {"message": "hello"}}}}
    monkeypatch.setattr(launcher.service, "cli", lambda *_: {"data": {"results": [line]}})
    (tmp_path / "logs").mkdir()
    with contextlib.suppress(ClusterError):
        launcher.jobs.logs(cluster, tmp_path / "logs")()
    assert not (tmp_path / "outside.log").exists()


def test_a_jobs_tags_do_not_control_a_terminal(launcher: Launcher) -> None:
    """Names are shown: such a Job is none of ours."""
    launcher.science.add_job(freeform_tags={"oci-cluster": "a\x1b[2Jb", "oci-cluster-launch": "00000001"})
    assert launcher.jobs.find() == []


# --- All clusters ---------------------------------------------------------------------------------------------------


def test_the_overview_has_all_clusters_for_two_lists(launcher: Launcher) -> None:
    """However many there are: one list of Jobs, one of runs."""
    launcher.submit(CLUSTER_NAME="a")
    launcher.submit(CLUSTER_NAME="b")
    launcher.submit(CLUSTER_NAME="c", OCI_JOB_STYLE="multinode")
    launcher.submit(CLUSTER_NAME="d", OCI_JOB_STYLE="multinode")
    launcher.science.add_job(freeform_tags={"oci-cluster": "e", "oci-cluster-launch": "00000001"})
    runs = list(launcher.science.runs.values())
    for run in runs[3:6]:
        run.lifecycle_state, run.lifecycle_details = "FAILED", "exit code 7"
    runs[-1].lifecycle_state = "SUCCEEDED"
    launcher.science.requests.clear()
    launcher.science.page_size = 100
    found = launcher.jobs.overview()
    assert launcher.science.requests == ["list_jobs", "list_job_runs"]
    assert [(one["name"], one["state"], one["exit_code"], len(one["nodes"])) for one in found] == [
        ("a", "IN_PROGRESS", None, 3),
        ("b", "ENDED", 7, 3),
        ("c", "IN_PROGRESS", None, 3),
        ("d", "ENDED", 0, 3),
        ("e", "ENDED", 76, 0),
    ]
    assert found[0]["job"] in launcher.science.jobs
    assert {(one["framework"], one["backend"]) for one in found[:4]} == {("plain", "oci")}


def test_a_run_that_is_just_being_accepted_breaks_nothing(launcher: Launcher) -> None:
    """It has no time yet, and comes last."""
    cluster = launcher.submit()
    next(iter(launcher.science.runs.values())).time_accepted = None
    assert [node["node"] for node in launcher.jobs.state(cluster)["nodes"]] == ["MAIN", "WORKER_1", "WORKER_2"]
    assert launcher.jobs.overview()[0]["state"] == "IN_PROGRESS"


@pytest.mark.parametrize("tags", [{"oci-cluster-size": "many"}, {"oci-cluster-size": "-1"}, None])
def test_a_size_that_is_none_breaks_no_list(launcher: Launcher, tags: dict[str, str] | None) -> None:
    """A list of all clusters of a compartment must not end at one that somebody has spoiled."""
    launcher.submit(CLUSTER_NAME="a")
    launcher.submit(CLUSTER_NAME="b", OCI_JOB_STYLE="multinode")
    list(launcher.science.runs.values())[-1].freeform_tags = tags
    assert [one["state"] for one in launcher.jobs.overview()] == ["IN_PROGRESS", "IN_PROGRESS"]


# --- One run with node groups ---------------------------------------------------------------------------------------


@pytest.fixture
def multinode(launcher: Launcher) -> Cluster:
    """Return a cluster of main, two workers and a parameter server that the service starts as one run."""
    return launcher.submit(OCI_JOB_STYLE="multinode", PS_COUNT="1")


GROUP = ["MAIN", "WORKER_1", "WORKER_2", "PS_3"]


def test_a_cluster_can_be_one_run(launcher: Launcher, multinode: Cluster) -> None:
    """One request creates it, and its state is that of all nodes."""
    assert len(launcher.science.runs) == 1
    assert launcher.jobs.state(multinode)["nodes"][0]["state"] == "ACCEPTED"
    state = launcher.another().state(multinode)
    assert (codes(state), state["running"]) == (dict.fromkeys(GROUP), True)


def test_the_nodes_of_one_run_tell_themselves_how_they_ended(launcher: Launcher, multinode: Cluster) -> None:
    """The service knows one code for all; a node that has told none has that."""
    exchange = Exchange(multinode.url, multinode.launch_id)
    exchange.publish("WORKER_1_exit.json", exit_code=9, reason="x")
    exchange.publish("MAIN_exit.json", exit_code=3, reason="x")
    run = next(iter(launcher.science.runs.values()))
    run.lifecycle_state, run.lifecycle_details = "FAILED", "exit code 5"
    state = launcher.another().state(launcher.another().load(launcher.another().find()[0]))
    assert (codes(state), state["running"]) == (dict(zip(GROUP, [3, 9, 5, 5], strict=True)), False)


def test_mains_own_0_makes_no_success_of_a_run_that_failed(launcher: Launcher, multinode: Cluster) -> None:
    """Too few of its workers did, say: the service knows."""
    run = next(iter(launcher.science.runs.values()))
    run.lifecycle_state, run.lifecycle_details = "FAILED", "exit code 9"
    exchange = Exchange(multinode.url, multinode.launch_id)
    for node in ("MAIN", "WORKER_1"):
        exchange.publish(f"{node}_exit.json", exit_code=0, reason="done")
    codes = {node["node"]: node["exit_code"] for node in launcher.jobs.state(multinode)["nodes"]}
    assert (codes["MAIN"], codes["WORKER_1"]) == (9, 0)


def test_one_run_that_never_ran_has_asked_nobody(launcher: Launcher, multinode: Cluster) -> None:
    """No node was there to tell anything."""
    Exchange(multinode.url, multinode.launch_id).publish("MAIN_exit.json", exit_code=3, reason="x")
    run = next(iter(launcher.science.runs.values()))
    run.lifecycle_state, run.lifecycle_details = "FAILED", "Out of capacity"
    assert codes(launcher.jobs.state(multinode)) == dict.fromkeys(GROUP, 69)


def test_one_run_that_succeeded_has_no_other_codes(launcher: Launcher, multinode: Cluster) -> None:
    """What a node wrote before the service said so is older."""
    Exchange(multinode.url, multinode.launch_id).publish("WORKER_1_exit.json", exit_code=9, reason="x")
    next(iter(launcher.science.runs.values())).lifecycle_state = "SUCCEEDED"
    assert codes(launcher.jobs.state(multinode)) == dict.fromkeys(GROUP, 0)


def test_one_run_with_storage_that_does_not_answer_has_the_services_code(
    launcher: Launcher, multinode: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster's code is known all the same."""

    def fail(*_: object) -> None:
        raise StorageError("no route to storage")

    next(iter(launcher.science.runs.values())).lifecycle_state = "CANCELED"
    monkeypatch.setattr(Exchange, "read", fail)
    assert codes(launcher.jobs.state(multinode)) == dict.fromkeys(GROUP, 143)


def test_one_run_that_a_list_does_not_hold_yet_has_not_ended(launcher: Launcher) -> None:
    """As with runs for each node; where nobody knows of one there is none."""
    launcher.science.lag_s = 10.0
    cluster = launcher.submit(OCI_JOB_STYLE="multinode")
    assert launcher.jobs.state(cluster)["running"] is True
    assert launcher.another().state(cluster) == {"nodes": [], "running": False}


def test_one_run_keeps_its_size(launcher: Launcher, multinode: Cluster) -> None:
    """The service has given it its nodes."""
    with pytest.raises(UsageError, match=r"mine has the nodes that the service gave it \(OCI_JOB_STYLE=multinode\)"):
        launcher.scale(multinode, "+1")


# --- Scale ----------------------------------------------------------------------------------------------------------


def test_workers_are_added(launcher: Launcher) -> None:
    """Under the next ranks, in the same Job, with the tags of the others."""
    cluster = launcher.submit()
    assert launcher.scale(cluster, "+2") == 4
    assert launcher.science.nodes() == [*NODES, "WORKER_3", "WORKER_4"]
    body, first = launcher.science.created[-1], launcher.science.created[1]
    assert body["jobConfigurationOverrideDetails"]["environmentVariables"] == {"MODE": "WORKER", "NODE_RANK": "4"}
    assert body["freeformTags"] == {**first["freeformTags"], "oci-cluster-node": "WORKER_4"}
    assert (body["compartmentId"], body["projectId"], body["jobId"]) == (
        first["compartmentId"], first["projectId"], cluster.plan["job"],
    )  # fmt: skip
    assert launcher.said[-2:] == ["WORKER_3 started", "WORKER_4 started"]


def test_workers_are_added_from_another_machine(launcher: Launcher) -> None:
    """All that is needed is in the Job: the same body as from the machine that has launched it."""
    launcher.submit()
    jobs = launcher.another()
    cluster = jobs.load(jobs.find()[0])
    jobs.scale(cluster, "3", launcher.checkout.root, launcher.said.append, most=999)
    assert launcher.science.created[-1]["freeformTags"] == {
        **launcher.science.created[1]["freeformTags"],
        "oci-cluster-node": "WORKER_3",
    }
    assert launcher.science.created[-1]["displayName"] == "mine-WORKER_3"


def test_a_lost_worker_is_replaced_by_its_rank_each_time(launcher: Launcher) -> None:
    """Each life of a rank is a run of its own: the service must not take the second for a repetition of the first."""
    cluster = launcher.submit()
    for count in (4, 5, 6):
        launcher.science.end("WORKER_2", "FAILED", "exit code 1")
        assert launcher.scale(cluster, "2") == 2
        assert (launcher.science.nodes(), len(launcher.science.runs)) == (NODES, count)


def test_an_added_worker_whose_creation_is_not_answered_is_created_once(launcher: Launcher) -> None:
    """As at the launch."""
    cluster = launcher.submit()
    launcher.science.fail("create_job_run", silence(), is_done=True, times=2)
    launcher.scale(cluster, "+1")
    assert (launcher.science.nodes(), len(launcher.science.runs)) == ([*NODES, "WORKER_3"], 4)


def test_workers_are_ended_from_the_highest_rank(launcher: Launcher) -> None:
    """Their runs are canceled, and waited for."""
    cluster = launcher.submit(workers=4)
    launcher.science.cancel_takes = 3
    assert launcher.scale(cluster, "-2") == 2
    assert launcher.science.nodes() == NODES
    assert launcher.said[-1] == "ending WORKER_3, WORKER_4"


def test_a_size_that_is_there_changes_nothing(launcher: Launcher) -> None:
    """No run is created or canceled."""
    cluster = launcher.submit()
    assert launcher.scale(cluster, "2") == 2
    assert (launcher.science.nodes(), len(launcher.science.runs)) == (NODES, 3)


@pytest.mark.parametrize("text", ["0", "-2", "1000", "x"])
def test_a_size_that_cannot_be_is_refused(launcher: Launcher, text: str) -> None:
    """Fewer than the cluster can do with, or more than the backend takes."""
    cluster = launcher.submit()
    with pytest.raises(UsageError):
        launcher.scale(cluster, text)
    assert launcher.science.nodes() == NODES


def test_a_cluster_that_has_ended_is_not_scaled(launcher: Launcher) -> None:
    """It is launched again."""
    cluster = launcher.submit()
    for node in NODES:
        launcher.science.end(node, "SUCCEEDED")
    with pytest.raises(UsageError, match=r"mine has ended; launch it again: scripts/launch\.sh"):
        launcher.scale(cluster, "+1")


def test_runs_that_do_not_end_when_there_are_too_many_are_told(launcher: Launcher) -> None:
    """Waiting has an end."""
    cluster = launcher.submit()
    launcher.science.cancel_takes = 1_000_000
    with pytest.raises(BackendError, match="Job Runs have not ended within 300 s; look at them in the console"):
        launcher.scale(cluster, "1")


# --- Stop -----------------------------------------------------------------------------------------------------------


def ends_by_itself(launcher: Launcher, cluster: Cluster, after_s: float) -> None:
    """Have the nodes of *cluster* see the stop file, and end after so many seconds."""
    seen: list[float] = []

    def look(_: str) -> None:
        if Exchange(cluster.url, cluster.launch_id).read("stop") is None:
            return
        seen.append(launcher.clock.now)
        if launcher.clock.now >= seen[0] + after_s:
            for run in launcher.science.runs.values():
                run.lifecycle_state = "FAILED" if run.lifecycle_state == "ACCEPTED" else run.lifecycle_state

    launcher.science.on_request = look


def test_a_cluster_is_stopped_by_its_stop_file(launcher: Launcher) -> None:
    """Its nodes end by themselves; nobody is canceled, and the Job stays with its logs."""
    cluster = launcher.submit()
    ends_by_itself(launcher, cluster, 15.0)
    launcher.stop(cluster)
    stop = Exchange(cluster.url, cluster.launch_id).read("stop") or {}
    assert (stop["reason"], stop["exit_code"]) == ("stopped by stop.sh", 143)
    assert "cancel_job_run" not in launcher.science.requests
    assert (launcher.science.nodes(), len(launcher.science.jobs)) == ([], 1)
    assert launcher.said[-1] == "stopping mine"
    assert cluster.directory.is_dir()


@pytest.mark.parametrize(("given", "patience_s"), [({}, 40), ({"GRACE_PERIOD": "30"}, 80)])
def test_what_does_not_end_by_itself_is_canceled(launcher: Launcher, given: dict[str, str], patience_s: float) -> None:
    """After the time that a node may take to end its script and to upload."""
    cluster = launcher.submit(**given)
    begun = launcher.clock.now
    launcher.stop(cluster)
    assert launcher.science.nodes() == []
    assert patience_s < launcher.clock.now - begun < patience_s + 15
    assert launcher.said[-1] == "mine has not ended by itself; canceling its Job Runs"


def test_without_storage_runs_are_canceled_at_once(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop file cannot be written: the service is asked."""
    cluster = launcher.submit()

    def fail(*_: object) -> None:
        raise StorageError("no route to storage")

    monkeypatch.setattr(Exchange, "read", fail)
    begun = launcher.clock.now
    launcher.stop(cluster)
    assert launcher.science.nodes() == []
    assert launcher.clock.now - begun < 5


def test_a_job_with_our_tags_and_another_environment_is_left_alone(launcher: Launcher) -> None:
    """Nobody knows what it is."""
    job = launcher.science.add_job(freeform_tags={"oci-cluster": "mine", "oci-cluster-launch": "00000001"})
    launcher.science.add_run(job.id, freeform_tags={"oci-cluster-node": "MAIN"})
    with pytest.raises(UsageError, match="is not one that "):
        launcher.jobs.load(launcher.jobs.find()[0])


def test_a_cluster_that_has_ended_is_stopped_already(launcher: Launcher) -> None:
    """Nothing is written or said."""
    cluster = launcher.submit()
    for node in NODES:
        launcher.science.end(node, "SUCCEEDED")
    launcher.said.clear()
    launcher.stop(cluster)
    assert launcher.said == []
    assert Exchange(cluster.url, cluster.launch_id).read("stop") is None


def test_all_of_a_cluster_is_deleted(launcher: Launcher) -> None:
    """Job, runs, cluster dir, and what this machine keeps of it; what another cluster has stays."""
    cluster = launcher.submit()
    other = launcher.submit(CLUSTER_NAME="other")
    for one in (cluster, other):
        Exchange(one.url, one.launch_id).write_bytes("outputs/MAIN/a", b"1")
    launcher.stop(cluster, delete=True)
    assert [job.display_name for job in launcher.science.jobs.values()] == ["other"]
    assert launcher.science.nodes() == NODES
    assert not Exchange(cluster.url, cluster.launch_id).is_there("outputs/MAIN/a")
    assert Exchange(other.url, other.launch_id).is_there("outputs/MAIN/a")
    assert (cluster.directory.exists(), other.directory.exists()) == (False, True)


def test_a_job_that_somebody_else_has_deleted_is_deleted(launcher: Launcher) -> None:
    """Two people may clean up at once."""
    cluster = launcher.submit()
    launcher.science.fail("delete_job", refusal(404, "NotAuthorizedOrNotFound"), is_done=True)
    launcher.stop(cluster, delete=True)
    assert launcher.left() == NOTHING


@pytest.mark.parametrize("status", [400, 403])
def test_a_job_that_may_not_be_deleted_is_told(launcher: Launcher, status: int) -> None:
    """A refusal is no success."""
    cluster = launcher.submit()
    launcher.science.fail("delete_job", refusal(status))
    with pytest.raises(ServiceError):
        launcher.stop(cluster, delete=True)


@pytest.mark.parametrize("status", [404, 409])
def test_a_run_that_ends_while_it_is_canceled_has_ended(launcher: Launcher, status: int) -> None:
    """The service refuses to cancel it: that is what was wanted."""
    cluster = launcher.submit()
    launcher.science.fail("cancel_job_run", refusal(status, "IncorrectState"))
    launcher.jobs.terminate(cluster)
    launcher.jobs.kill(cluster)
    launcher.jobs.is_running(cluster)
    assert launcher.science.nodes() == []


def test_a_run_that_may_not_be_canceled_is_told(launcher: Launcher) -> None:
    """A refusal is no success."""
    cluster = launcher.submit()
    launcher.science.fail("cancel_job_run", refusal(403, "NotAuthorized"))
    with pytest.raises(ServiceError):
        launcher.jobs.terminate(cluster)
