"""What Data Science answers, as clusters and states of nodes."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from unit.fake_oci import NODES, Launcher, codes

from oci_cluster.contract.cluster import Cluster, NodeState, any_running
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import ClusterError, LostPlanError, SettingsError, StorageError, UsageError


def seen_by_another(launcher: Launcher, cluster: Cluster) -> list[NodeState]:
    """Return the nodes of *cluster* as a launcher sees them that has not launched it."""
    return launcher.another().states([cluster])[cluster.launch_id]


# --- State ----------------------------------------------------------------------------------------------------------


def test_nodes_have_the_services_states(launcher: Launcher) -> None:
    """By rank, with the code that the service tells."""
    cluster = launcher.launch(PS_COUNT="1", workers=12)
    launcher.science.end("WORKER_2", "IN_PROGRESS")
    launcher.science.end("WORKER_10", "SUCCEEDED")
    launcher.science.end("WORKER_3", "CANCELED")
    launcher.science.end("WORKER_4", "DELETED")
    launcher.science.end("WORKER_5", "NEEDS_ATTENTION")
    launcher.science.end("WORKER_6", "CANCELING")
    launcher.science.cancel_takes = 0
    states = launcher.states(cluster)
    assert [state.node for state in states] == ["MAIN", *(f"WORKER_{rank}" for rank in range(1, 13)), "PS_13"]
    assert any_running(states)
    found = codes(states)
    assert [found[f"WORKER_{rank}"] for rank in (1, 2, 10, 3, 4, 5)] == [None, None, 0, 143, 76, None]
    assert str(states[1].id).startswith("ocid1.datasciencejobrun.")


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
    cluster = launcher.launch()
    launcher.science.end("MAIN", "FAILED", details)  # type: ignore[arg-type]
    main = launcher.states(cluster)[0]
    assert (main.exit_code, main.never_started) == told


@pytest.mark.parametrize("number", ["256", "512", "999"])
def test_a_code_that_is_none_is_no_success(launcher: Launcher, number: str) -> None:
    """Only 1 to 255 are a process's own: what else stands there is unknown."""
    cluster = launcher.launch()
    launcher.science.end("MAIN", "FAILED", f"failed with exit code {number}")
    assert codes(launcher.states(cluster))["MAIN"] in range(1, 256)


def test_what_to_do_is_said_where_a_run_never_ran(launcher: Launcher) -> None:
    """Beside the service's own words, of which nothing controls a terminal."""
    cluster = launcher.launch()
    launcher.science.end("MAIN", "FAILED", "Out of \x1b[31mhost capacity.")
    assert launcher.states(cluster)[0].details == (
        "Out of [31mhost capacity.; choose another SHAPE, another region, or a CAPACITY_RESERVATION_OCID;"
        " or try again later"
    )


def test_a_cluster_whose_nodes_have_ended_runs_no_more(launcher: Launcher) -> None:
    """All of them, however."""
    cluster = launcher.launch()
    launcher.science.end("MAIN", "SUCCEEDED")
    launcher.science.end("WORKER_1", "FAILED", "exit code 3")
    assert launcher.lifecycle.is_running(cluster)
    launcher.science.end("WORKER_2", "CANCELED")
    assert not launcher.lifecycle.is_running(cluster)


def test_a_node_that_was_replaced_is_what_its_last_run_is(launcher: Launcher) -> None:
    """Two runs have its name: the later one counts, whatever the order of the list."""
    cluster = launcher.launch()
    launcher.science.end("WORKER_1", "FAILED", "exit code 9")
    launcher.scale(cluster, "2")
    runs = launcher.science.runs
    launcher.science.runs = dict(reversed(runs.items()))
    assert codes(launcher.states(cluster)) == dict.fromkeys(NODES)
    assert len(runs) == 4


def test_what_a_list_does_not_hold_yet_has_not_ended(launcher: Launcher) -> None:
    """The launcher knows what it has just created."""
    launcher.science.lag_s = 10.0
    cluster = launcher.launch()
    early = launcher.states(cluster)
    launcher.clock.sleep(20)
    late = launcher.states(cluster)
    assert codes(early) == codes(late) == dict.fromkeys(NODES)
    assert any_running(early)
    assert any_running(late)
    assert [state.id for state in early] == [state.id for state in late] == list(launcher.science.runs)


def test_a_run_without_a_nodes_name_is_none(launcher: Launcher) -> None:
    """Somebody may start a run of the Job by hand."""
    cluster = launcher.launch()
    launcher.science.add_run(cluster.handle, freeform_tags=None)
    assert list(codes(launcher.states(cluster))) == NODES


@pytest.mark.parametrize("name", ["x", "WORKER_x", "WORKER_", "WORKER_0", "WORKER_01", "WORKER_1000000", "MAIN_"])
def test_a_run_with_a_name_that_is_no_nodes_breaks_nothing(launcher: Launcher, name: str) -> None:
    """A tag is what somebody has typed: it must not cost the look at all clusters of the compartment."""
    cluster = launcher.launch()
    launcher.science.add_run(cluster.handle, freeform_tags={"oci-cluster-node": name})
    assert list(codes(launcher.states(cluster))) == NODES
    assert len(launcher.overview()) == 1


# --- Found again ----------------------------------------------------------------------------------------------------


def test_clusters_are_found_by_their_tags_alone(launcher: Launcher) -> None:
    """From any machine: the service has all that is needed to look at one and to end it."""
    launched = launcher.launch()
    launcher.science.add_job(freeform_tags={"other": "tag"})
    backend = launcher.another()
    (found,) = backend.find()
    assert (found.name, found.launch_id, found.directory, found.framework, found.backend, found.style) == (
        "mine", launched.launch_id, launched.directory, "plain", "oci", "runs",
    )  # fmt: skip
    assert found.handle == launched.handle
    launcher.science.requests.clear()
    loaded = backend.load(found)
    assert (loaded.url, loaded.work_dir) == (launcher.url(launched), "memory://work")
    assert (loaded.cluster_id, loaded.node_names) == (launched.cluster_id, NODES)
    assert loaded.environment["MIN_WORKERS"] == "1"
    assert loaded.limits == launcher.plan().limits
    assert codes(seen_by_another(launcher, found)) == dict.fromkeys(NODES)
    assert backend.load(found) is loaded
    assert launcher.science.requests.count("get_job") == 1


def test_of_several_jobs_with_the_tags_of_a_launch_the_first_is_the_cluster(launcher: Launcher) -> None:
    """Whoever copies the tags of a cluster that runs comes later, and does not hide it."""
    cluster = launcher.launch()
    job = launcher.science.jobs[cluster.handle]
    launcher.science.add_job(freeform_tags=job.freeform_tags)
    assert [found.handle for found in launcher.another().find()] == [cluster.handle]


@pytest.mark.parametrize(("name", "text"), [("WORKER_COUNT", "1000"), ("PS_COUNT", "many"), ("TTL", "soon\x1b[2J")])
def test_a_job_with_an_environment_that_no_launch_has_made_is_refused(launcher: Launcher, name: str, text: str) -> None:
    """It names a cluster dir, and nothing else that fits: nobody makes a thousand nodes of a number in it."""
    cluster = launcher.launch()
    details = launcher.science.jobs[cluster.handle].job_configuration_details
    details.environment_variables = {**details.environment_variables, name: text}
    with pytest.raises(UsageError, match=rf"is not one that launch\.sh has made: {name}: ") as caught:
        launcher.another().load(cluster)
    assert str(caught.value).isprintable()


def test_a_word_that_is_new_in_the_service_is_not_an_end(launcher: Launcher) -> None:
    """The SDK has a word of its own for it."""
    cluster = launcher.launch()
    launcher.science.end("MAIN", "UNKNOWN_ENUM_VALUE")
    assert codes(launcher.states(cluster)) == dict.fromkeys(NODES)


def test_a_run_that_has_finished_has_ended_by_whatever_word(launcher: Launcher) -> None:
    """Else it would be followed, and its Job not be deleted, for ever."""
    cluster = launcher.launch(workers=0)
    (run,) = launcher.science.runs.values()
    run.lifecycle_state, run.time_finished = "UNKNOWN_ENUM_VALUE", run.time_accepted
    assert codes(launcher.states(cluster)) == {"MAIN": 69}
    launcher.backend._jobs.end_runs(cluster.handle)
    assert "cancel_job_run" not in launcher.science.requests


@pytest.mark.parametrize("word", ["CANCELING", "NEEDS_ATTENTION"])
def test_the_services_own_words_are_shown(launcher: Launcher, word: str) -> None:
    """As it says them."""
    launcher.launch()
    launcher.science.cancel_takes = 10
    run = next(iter(launcher.science.runs.values()))
    run.lifecycle_state, run.looks_to_end = word, 10
    assert json.loads(json.dumps(launcher.overview()))[0]["nodes"][0]["state"] == word


def test_clusters_are_listed_from_the_oldest(launcher: Launcher) -> None:
    """By the time at which the service made them."""
    for name in ("b", "a", "c"):
        launcher.launch(CLUSTER_NAME=name)
    launcher.science.jobs = dict(reversed(launcher.science.jobs.items()))
    assert [cluster.name for cluster in launcher.backend.find()] == ["b", "a", "c"]


def test_without_a_compartment_nobody_is_asked(launcher: Launcher) -> None:
    """It is said which setting names it."""
    with pytest.raises(SettingsError, match=r"COMPARTMENT_OCID is not set; .*config\.env\.example"):
        launcher.another("").find()
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
    ClusterDir("memory://other/their-cluster", "x", "").write_bytes("a", b"1")
    ClusterDir("memory://precious", "x", "").write_bytes("a", b"1")
    with contextlib.suppress(ClusterError):
        launcher.stop(launcher.backend.load(launcher.backend.find()[0]), delete=True)
    assert (tmp_path / "precious").is_dir()
    assert (launcher.directory / "other-cluster").is_dir()
    assert ClusterDir("memory://other/their-cluster", "x", "").is_there("a")
    assert ClusterDir("memory://precious", "x", "").is_there("a")


def test_a_jobs_tags_do_not_control_a_terminal(launcher: Launcher) -> None:
    """Names are shown: such a Job is none of ours."""
    launcher.science.add_job(freeform_tags={"oci-cluster": "a\x1b[2Jb", "oci-cluster-launch": "00000001"})
    assert launcher.backend.find() == []
    hostile = {f"oci-cluster-{field}": f"{field}\x1b[2J" for field in ("framework", "project")}
    launcher.science.add_job(freeform_tags={"oci-cluster": "a", "oci-cluster-launch": "00000001", **hostile})
    assert [(one.framework, one.project) for one in launcher.backend.find()] == [("framework[2J", "project[2J")]


# --- All clusters ---------------------------------------------------------------------------------------------------


def test_the_overview_has_all_clusters_for_two_lists(launcher: Launcher) -> None:
    """However many there are: one list of Jobs, one of runs."""
    launcher.launch(CLUSTER_NAME="a")
    launcher.launch(CLUSTER_NAME="b")
    launcher.launch(CLUSTER_NAME="c", OCI_JOB_STYLE="multinode")
    launcher.launch(CLUSTER_NAME="d", OCI_JOB_STYLE="multinode")
    launcher.science.add_job(freeform_tags={"oci-cluster": "e", "oci-cluster-launch": "00000001"})
    runs = list(launcher.science.runs.values())
    for run in runs[3:6]:
        run.lifecycle_state, run.lifecycle_details = "FAILED", "exit code 7"
    runs[-1].lifecycle_state = "SUCCEEDED"
    launcher.science.requests.clear()
    launcher.science.page_size = 100
    found = launcher.overview()
    assert launcher.science.requests == ["list_jobs", "list_job_runs"]
    assert [(one["name"], one["state"], one["exit_code"], len(one["nodes"])) for one in found] == [
        ("a", "IN_PROGRESS", None, 3),
        ("b", "FAILED", 7, 3),
        ("c", "IN_PROGRESS", None, 3),
        ("d", "SUCCEEDED", 0, 3),
        ("e", "GONE", None, 0),
    ]
    assert found[0]["job"] in launcher.science.jobs
    assert {(one["framework"], one["backend"]) for one in found[:4]} == {("plain", "oci")}


def test_a_run_that_is_just_being_accepted_breaks_nothing(launcher: Launcher) -> None:
    """It has no time yet, and comes last."""
    cluster = launcher.launch()
    next(iter(launcher.science.runs.values())).time_accepted = None
    assert [state.node for state in launcher.states(cluster)] == ["MAIN", "WORKER_1", "WORKER_2"]
    assert launcher.overview()[0]["state"] == "IN_PROGRESS"


@pytest.mark.parametrize("tags", [{"oci-cluster-size": "many"}, {"oci-cluster-size": "-1"}, None])
def test_a_size_that_is_none_breaks_no_list(launcher: Launcher, tags: dict[str, str] | None) -> None:
    """A list of all clusters of a compartment must not end at one that somebody has spoiled."""
    launcher.launch(CLUSTER_NAME="a")
    launcher.launch(CLUSTER_NAME="b", OCI_JOB_STYLE="multinode")
    list(launcher.science.runs.values())[-1].freeform_tags = tags
    assert [one["state"] for one in launcher.overview()] == ["IN_PROGRESS", "IN_PROGRESS"]


# --- One run with node groups ---------------------------------------------------------------------------------------


@pytest.fixture
def multinode(launcher: Launcher) -> Cluster:
    """Return a cluster of main, two workers and a parameter server that the service starts as one run."""
    return launcher.launch(OCI_JOB_STYLE="multinode", PS_COUNT="1")


GROUP = ["MAIN", "WORKER_1", "WORKER_2", "PS_3"]


def test_a_cluster_can_be_one_run(launcher: Launcher, multinode: Cluster) -> None:
    """One request creates it, and its state is that of all nodes."""
    assert len(launcher.science.runs) == 1
    assert launcher.states(multinode)[0].state == "ACCEPTED"
    states = seen_by_another(launcher, multinode)
    assert codes(states) == dict.fromkeys(GROUP)
    assert any_running(states)


def test_the_nodes_of_one_run_tell_themselves_how_they_ended(launcher: Launcher, multinode: Cluster) -> None:
    """The service knows one code for all; a node that has told none has that."""
    cluster_dir = launcher.cluster_dir(multinode)
    cluster_dir.publish("WORKER_1_exit.json", exit_code=9, reason="x")
    cluster_dir.publish("MAIN_exit.json", exit_code=3, reason="x")
    run = next(iter(launcher.science.runs.values()))
    run.lifecycle_state, run.lifecycle_details = "FAILED", "exit code 5"
    states = seen_by_another(launcher, launcher.another().find()[0])
    assert codes(states) == dict(zip(GROUP, [3, 9, 5, 5], strict=True))
    assert not any_running(states)


def test_mains_own_0_makes_no_success_of_a_run_that_failed(launcher: Launcher, multinode: Cluster) -> None:
    """Too few of its workers did, say: the service knows."""
    run = next(iter(launcher.science.runs.values()))
    run.lifecycle_state, run.lifecycle_details = "FAILED", "exit code 9"
    cluster_dir = launcher.cluster_dir(multinode)
    for node in ("MAIN", "WORKER_1"):
        cluster_dir.publish(f"{node}_exit.json", exit_code=0, reason="done")
    found = codes(launcher.states(multinode))
    assert (found["MAIN"], found["WORKER_1"]) == (9, 0)


def test_one_run_that_never_ran_has_asked_nobody(launcher: Launcher, multinode: Cluster) -> None:
    """No node was there to tell anything."""
    launcher.cluster_dir(multinode).publish("MAIN_exit.json", exit_code=3, reason="x")
    run = next(iter(launcher.science.runs.values()))
    run.lifecycle_state, run.lifecycle_details = "FAILED", "Out of capacity"
    assert codes(launcher.states(multinode)) == dict.fromkeys(GROUP, 69)


def test_one_run_that_succeeded_has_no_other_codes(launcher: Launcher, multinode: Cluster) -> None:
    """What a node wrote before the service said so is older."""
    launcher.cluster_dir(multinode).publish("WORKER_1_exit.json", exit_code=9, reason="x")
    next(iter(launcher.science.runs.values())).lifecycle_state = "SUCCEEDED"
    assert codes(launcher.states(multinode)) == dict.fromkeys(GROUP, 0)


def test_one_run_with_storage_that_does_not_answer_has_the_services_code(
    launcher: Launcher, multinode: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster's code is known all the same."""

    def fail(*_: object) -> None:
        raise StorageError("no route to storage")

    next(iter(launcher.science.runs.values())).lifecycle_state = "CANCELED"
    monkeypatch.setattr(ClusterDir, "read", fail)
    assert codes(launcher.states(multinode)) == dict.fromkeys(GROUP, 143)


def test_one_run_that_a_list_does_not_hold_yet_has_not_ended(launcher: Launcher) -> None:
    """As with runs for each node; where nobody knows of one there is none."""
    launcher.science.lag_s = 10.0
    cluster = launcher.launch(OCI_JOB_STYLE="multinode")
    assert launcher.lifecycle.is_running(cluster)
    assert seen_by_another(launcher, cluster) == []


def test_one_run_keeps_its_size(launcher: Launcher, multinode: Cluster) -> None:
    """The service has given it its nodes."""
    with pytest.raises(UsageError, match="mine cannot grow or shrink: the service starts its nodes"):
        launcher.scale(multinode, "+1")


def test_a_list_survives_one_run_of_a_job_that_no_launch_has_made(launcher: Launcher) -> None:
    """It is shown as far as its tags tell."""
    cluster = launcher.launch(OCI_JOB_STYLE="multinode")
    job = launcher.science.jobs[cluster.handle]
    job.job_node_configuration_details = None
    (found,) = launcher.another().find()
    assert len(seen_by_another(launcher, found)) == 3


def test_a_framework_in_a_tag_is_no_path(launcher: Launcher, tmp_path: Path) -> None:
    """Nothing is read beyond the checkout."""
    cluster = launcher.launch()
    (tmp_path / "settings.env").write_text("EVIL_PORT=1\n")
    job = launcher.science.jobs[cluster.handle]
    job.freeform_tags = {**job.freeform_tags, "oci-cluster-framework": ".."}
    backend = launcher.another()
    assert backend.load(backend.find()[0]).limits.ports == {}


@pytest.mark.parametrize("url", ["dask://evil:1::file:///x", "ftp://evil/x", "file:///home/ann"])
def test_a_work_dir_of_anybodys_job_is_not_opened(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """Who may make a Job in the compartment would have those who look at it dial, and run, what they like."""
    cluster = launcher.launch()
    job = launcher.science.jobs[cluster.handle]
    job.job_configuration_details.environment_variables["WORK_DIR"] = url
    (cluster.directory / "cluster.json").unlink()  # as on another machine
    monkeypatch.setattr("fsspec.url_to_fs", lambda *_, **__: pytest.fail("it was opened"))
    with pytest.raises(LostPlanError, match="that is not opened without being asked"):
        launcher.another().load(cluster)
    assert [node["node"] for node in launcher.overview()[0]["nodes"]] == ["MAIN", "WORKER_1", "WORKER_2"]
