"""Clusters of the backend `oci` grow, shrink and end; the service is one that the test plays."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.fake_data_science import refusal, silence
from unit.fake_oci import NODES, Launcher

from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.contract.cluster import Cluster
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import BackendError, StorageError, UsageError

NOTHING: tuple[list[str], list[str], list[Path]] = ([], [], [])


# --- Scale ----------------------------------------------------------------------------------------------------------


def test_workers_are_added(launcher: Launcher) -> None:
    """Under the next ranks, in the same Job, with the tags of the others."""
    cluster = launcher.launch()
    assert launcher.scale(cluster, "+2") == 4
    assert launcher.science.nodes() == [*NODES, "WORKER_3", "WORKER_4"]
    body, first = launcher.science.created[-1], launcher.science.created[1]
    assert body["jobConfigurationOverrideDetails"]["environmentVariables"] == {"MODE": "WORKER", "NODE_RANK": "4"}
    assert body["freeformTags"] == {**first["freeformTags"], "oci-cluster-node": "WORKER_4"}
    assert (body["compartmentId"], body["projectId"], body["jobId"]) == (
        first["compartmentId"], first["projectId"], cluster.handle,
    )  # fmt: skip
    assert launcher.said[-2:] == ["WORKER_3 started", "WORKER_4 started"]


def test_workers_are_added_from_another_machine(launcher: Launcher) -> None:
    """All that is needed is in the Job: the same body as from the machine that has launched it."""
    launcher.launch()
    backend = launcher.another()
    launcher.lifecycle_of(backend).scale(backend.find()[0], "3")
    first, added = (launcher.science.created[index]["freeformTags"] for index in (1, -1))
    expires = added["oci-cluster-expires"]  # counted from when the service created the Job
    assert added == {**first, "oci-cluster-node": "WORKER_3", "oci-cluster-expires": expires}
    assert launcher.science.created[-1]["displayName"] == "mine-WORKER_3"


def test_a_lost_worker_is_replaced_by_its_rank_each_time(launcher: Launcher) -> None:
    """Each life of a rank is a run of its own: the service must not take the second for a repetition of the first."""
    cluster = launcher.launch()
    for count in (4, 5, 6):
        launcher.science.end("WORKER_2", "FAILED", "exit code 1")
        assert launcher.scale(cluster, "2") == 2
        assert (launcher.science.nodes(), len(launcher.science.runs)) == (NODES, count)


def test_an_added_worker_whose_creation_is_not_answered_is_created_once(launcher: Launcher) -> None:
    """As at the launch."""
    cluster = launcher.launch()
    launcher.science.fail("create_job_run", silence(), is_done=True, times=2)
    launcher.scale(cluster, "+1")
    assert (launcher.science.nodes(), len(launcher.science.runs)) == ([*NODES, "WORKER_3"], 4)


def test_workers_are_ended_from_the_highest_rank(launcher: Launcher) -> None:
    """Their runs are canceled, and waited for."""
    cluster = launcher.launch(workers=4)
    launcher.science.cancel_takes = 3
    assert launcher.scale(cluster, "-2") == 2
    assert launcher.science.nodes() == NODES
    assert launcher.said[-1] == "ending WORKER_3, WORKER_4"


def test_a_size_that_is_there_changes_nothing(launcher: Launcher) -> None:
    """No run is created or canceled."""
    cluster = launcher.launch()
    assert launcher.scale(cluster, "2") == 2
    assert (launcher.science.nodes(), len(launcher.science.runs)) == (NODES, 3)


@pytest.mark.parametrize("text", ["0", "-2", "1000", "x"])
def test_a_size_that_cannot_be_is_refused(launcher: Launcher, text: str) -> None:
    """Fewer than the cluster can do with, or more than the backend takes."""
    cluster = launcher.launch()
    with pytest.raises(UsageError):
        launcher.scale(cluster, text)
    assert launcher.science.nodes() == NODES


def test_a_cluster_that_has_ended_is_not_scaled(launcher: Launcher) -> None:
    """It is launched again."""
    cluster = launcher.launch()
    for node in NODES:
        launcher.science.end(node, "SUCCEEDED")
    with pytest.raises(UsageError, match=r"mine has ended; launch it again: scripts/launch\.sh"):
        launcher.scale(cluster, "+1")


def test_runs_that_do_not_end_when_there_are_too_many_are_told(launcher: Launcher) -> None:
    """Waiting has an end."""
    cluster = launcher.launch()
    launcher.science.cancel_takes = 1_000_000
    begun = launcher.clock.now
    with pytest.raises(
        BackendError, match=r"^WORKER_2 did not end; end the whole cluster: scripts/stop\.sh mine --backend oci$"
    ):
        launcher.scale(cluster, "1")
    assert 300 < launcher.clock.now - begun < 320


# --- Stop -----------------------------------------------------------------------------------------------------------


def ends_by_itself(launcher: Launcher, cluster: Cluster, after_s: float) -> None:
    """Have the nodes of *cluster* see the stop file, and end after so many seconds."""
    seen: list[float] = []

    def look(_: str) -> None:
        if launcher.cluster_dir(cluster).read("stop") is None:
            return
        seen.append(launcher.clock.now)
        if launcher.clock.now >= seen[0] + after_s:
            for run in launcher.science.runs.values():
                run.lifecycle_state = "FAILED" if run.lifecycle_state == "IN_PROGRESS" else run.lifecycle_state

    launcher.science.on_request = look


def test_a_cluster_is_stopped_by_its_stop_file(launcher: Launcher) -> None:
    """Its nodes end by themselves; nobody is canceled, and the Job stays with its logs."""
    cluster = launcher.launch()
    launcher.science.begin()
    ends_by_itself(launcher, cluster, 15.0)
    launcher.stop(cluster)
    stop = launcher.cluster_dir(cluster).read("stop") or {}
    assert (stop["reason"], stop["exit_code"]) == ("stopped by stop.sh", 143)
    assert "cancel_job_run" not in launcher.science.requests
    assert (launcher.science.nodes(), len(launcher.science.jobs)) == ([], 1)
    assert launcher.said[-1] == "stopping mine"
    assert cluster.directory.is_dir()


@pytest.mark.parametrize(("given", "patience_s"), [({}, 40), ({"GRACE_PERIOD": "30"}, 60)])
def test_what_does_not_end_by_itself_is_canceled(launcher: Launcher, given: dict[str, str], patience_s: float) -> None:
    """After the time that a node may take to end its script and to upload."""
    cluster = launcher.launch(**given)
    launcher.science.begin()
    begun = launcher.clock.now
    launcher.stop(cluster)
    assert launcher.science.nodes() == []
    assert patience_s < launcher.clock.now - begun < patience_s + 15
    assert launcher.said[-1] == "mine has not ended by itself; ending its nodes"


def test_without_storage_runs_are_canceled_at_once(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop file cannot be written: the service is asked."""
    cluster = launcher.launch()

    def fail(*_: object, **_named: object) -> None:
        raise StorageError("no route to storage")

    monkeypatch.setattr(ClusterDir, "read", fail)
    begun = launcher.clock.now
    launcher.stop(cluster)
    assert launcher.science.nodes() == []
    assert launcher.clock.now - begun < 5


def test_a_job_with_our_tags_and_another_environment_is_left_alone(launcher: Launcher) -> None:
    """Nobody knows what it is."""
    job = launcher.science.add_job(freeform_tags={"oci-cluster": "mine", "oci-cluster-launch": "00000001"})
    launcher.science.add_run(job.id, freeform_tags={"oci-cluster-node": "MAIN"})
    with pytest.raises(UsageError, match="is not one that "):
        launcher.backend.load(launcher.backend.find()[0])


def test_a_cluster_that_has_ended_is_stopped_already(launcher: Launcher) -> None:
    """Nothing is written or said."""
    cluster = launcher.launch()
    for node in NODES:
        launcher.science.end(node, "SUCCEEDED")
    launcher.said.clear()
    launcher.stop(cluster)
    assert launcher.said == []
    assert launcher.cluster_dir(cluster).read("stop") is None


def test_all_of_a_cluster_is_deleted(launcher: Launcher) -> None:
    """Job, runs, cluster dir, and what this machine keeps of it; what another cluster has stays."""
    cluster = launcher.launch()
    other = launcher.launch(CLUSTER_NAME="other")
    for one in (cluster, other):
        launcher.cluster_dir(one).write_bytes("outputs/MAIN/a", b"1")
    launcher.stop(cluster, delete=True)
    assert [job.display_name for job in launcher.science.jobs.values()] == ["other"]
    assert launcher.science.nodes() == NODES
    assert not launcher.cluster_dir(cluster).is_there("outputs/MAIN/a")
    assert launcher.cluster_dir(other).is_there("outputs/MAIN/a")
    assert (cluster.directory.exists(), other.directory.exists()) == (False, True)


def test_a_job_that_somebody_else_has_deleted_is_deleted(launcher: Launcher) -> None:
    """Two people may clean up at once."""
    cluster = launcher.launch()
    launcher.science.fail("delete_job", refusal(404, "NotAuthorizedOrNotFound"), is_done=True)
    launcher.stop(cluster, delete=True)
    assert launcher.left() == NOTHING


@pytest.mark.parametrize("status", [400, 403])
def test_a_job_that_may_not_be_deleted_is_told(launcher: Launcher, status: int) -> None:
    """A refusal is no success."""
    cluster = launcher.launch()
    launcher.science.fail("delete_job", refusal(status))
    with pytest.raises(ServiceError):
        launcher.stop(cluster, delete=True)


@pytest.mark.parametrize("status", [404, 409])
def test_a_run_that_ends_while_it_is_canceled_has_ended(launcher: Launcher, status: int) -> None:
    """The service refuses to cancel it: that is what was wanted."""
    cluster = launcher.launch()
    launcher.science.fail("cancel_job_run", refusal(status, "IncorrectState"))
    launcher.backend.end(cluster, NODES)
    launcher.backend.end(cluster, NODES, at_once=True)
    launcher.lifecycle.is_running(cluster)
    assert launcher.science.nodes() == []


def test_a_run_that_may_not_be_canceled_is_told(launcher: Launcher) -> None:
    """A refusal is no success."""
    cluster = launcher.launch()
    launcher.science.fail("cancel_job_run", refusal(403, "NotAuthorized"))
    with pytest.raises(ServiceError):
        launcher.backend.end(cluster, NODES)


def test_only_the_nodes_that_are_named_are_ended(launcher: Launcher) -> None:
    """Nobody waits, and whatever is going on: those that have ended, or are unknown, are no error."""
    cluster = launcher.launch()
    launcher.science.cancel_takes = 1_000_000
    launcher.science.end("WORKER_1", "FAILED", "exit code 3")
    before = launcher.clock.now
    for _ in range(2):
        launcher.backend.end(cluster, ["WORKER_1", "WORKER_2", "WORKER_9"])
    assert launcher.science.requests.count("cancel_job_run") == 1
    assert [state.state for state in launcher.states(cluster)] == ["ACCEPTED", "FAILED", "CANCELING"]
    assert launcher.clock.now == before


def test_a_node_that_a_list_does_not_hold_yet_is_ended(launcher: Launcher) -> None:
    """The launcher knows what it has just created."""
    launcher.science.lag_s = 10.0
    cluster = launcher.launch()
    launcher.backend.end(cluster, ["WORKER_2"])
    launcher.science.lag_s = 0.0
    launcher.clock.sleep(20)
    launcher.states(cluster)
    assert launcher.science.nodes() == ["MAIN", "WORKER_1"]


def test_one_run_is_ended_with_any_of_its_nodes(launcher: Launcher) -> None:
    """The service ends all of them, or none."""
    cluster = launcher.launch(OCI_JOB_STYLE="multinode")
    launcher.backend.end(cluster, [])
    assert launcher.lifecycle.is_running(cluster)
    launcher.backend.end(cluster, ["WORKER_1"])
    launcher.states(cluster)
    assert not launcher.lifecycle.is_running(cluster)


@pytest.mark.parametrize("is_another", [False, True])
def test_a_cluster_is_removed_twice(launcher: Launcher, *, is_another: bool) -> None:
    """From any machine; that nothing is left is what was wanted."""
    cluster = launcher.launch()
    for _ in range(2):
        (launcher.another() if is_another else launcher.backend).remove(cluster, launcher.said.append)
    assert (launcher.science.nodes(), launcher.science.jobs) == ([], {})


def test_files_that_a_made_up_job_names_stay(launcher: Launcher) -> None:
    """Its key has signed none of them; neither is code removed. The Job goes."""
    cluster = launcher.launch()
    (job,) = launcher.science.jobs.values()
    environment = job.job_configuration_details.environment_variables
    plan = launcher.backend.load(cluster)
    theirs, code = ClusterDir(plan.url, cluster.launch_id, plan.launch_key), ClusterDir(f"{plan.work_dir}/code", "", "")
    theirs.write_bytes("outputs/model", b"x")
    assert code.sizes("")
    environment["LAUNCH_KEY"] = "00" * 32
    launcher.another().remove(cluster, launcher.said.append)
    assert theirs.read_bytes("outputs/model", 0) == b"x"
    assert theirs.read("launched.json") is not None
    assert code.sizes("")
    places = f"{plan.url} and {environment['CODE_URI'].partition('#')[0]}"
    assert [said for said in launcher.said if f"files stay in {places}: no file of the cluster" in said]
    assert launcher.science.jobs == {}


def test_code_of_a_cluster_that_has_no_file_yet_stays_and_is_told(launcher: Launcher) -> None:
    """One that a dry run's script has made, for one: nothing there is signed before main begins."""
    cluster = launcher.launch()
    plan = launcher.backend.load(cluster)
    ClusterDir(plan.url, cluster.launch_id, plan.launch_key).remove_all()
    launcher.another().remove(cluster, launcher.said.append)
    place = plan.environment["CODE_URI"].partition("#")[0]
    assert [said for said in launcher.said if f"files stay in {place}: no file of the cluster" in said]
    assert launcher.science.jobs == {}


@pytest.mark.parametrize("error", [refusal(403, "NotAllowed"), refusal(400)])
def test_a_cluster_that_nobody_may_look_at_is_not_removed(launcher: Launcher, error: Exception) -> None:
    """Nobody knows whose files those are."""
    cluster = launcher.launch()
    launcher.science.fail("get_job", error)
    with pytest.raises(ServiceError):
        launcher.another().remove(cluster, launcher.said.append)
    assert launcher.science.nodes() == NODES
