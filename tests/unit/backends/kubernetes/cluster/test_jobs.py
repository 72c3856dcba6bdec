"""What a launcher changes in a namespace that others write in, too."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.backends.kubernetes_place import KubernetesPlace
from unit.fake_kubernetes import RefusalError

from oci_cluster.backends.kubernetes.api.service import KubernetesError
from oci_cluster.backends.kubernetes.cluster.manifests import LAUNCH
from oci_cluster.contract.cluster import Cluster, State, cluster_code
from oci_cluster.errors import ExitCode, LostPlanError, SettingsError, UsageError


@pytest.fixture
def place(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesPlace]:
    """Return a Kubernetes."""
    place = KubernetesPlace(tmp_path, clock, monkeypatch)
    yield place
    place.close()


@pytest.mark.parametrize("kind", ["secrets", "pods"])
def test_what_somebody_else_has_labelled_stays(place: KubernetesPlace, kind: str) -> None:
    """A label of a launch makes nothing the cluster's own: it is neither removed, nor waited for."""
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    foreign = copy.deepcopy(next(iter(place.fake.objects[kind].values())))
    for name in ("database", f"{cluster.handle}-0-evil"):
        foreign["metadata"] |= {
            "name": name,
            "ownerReferences": [{"uid": "of-others", "kind": "ConfigMap", "name": cluster.handle}],
        }
        place.fake.objects[kind][name] = copy.deepcopy(foreign)
    place.lifecycle.stop(cluster)
    backend.finish(cluster, place.said.append)
    assert list(place.fake.objects[kind]) == ["database", f"{cluster.handle}-0-evil"]


def copied(place: KubernetesPlace, name: str, launch_id: str, **annotations: str) -> None:
    """Make a Job of the first one's labels, as anybody can who may make Jobs."""
    jobs = place.fake.objects["jobs"]
    made = copy.deepcopy(next(iter(jobs.values())))
    own = {"oci-cluster-name": name, **annotations}
    meta = {"name": f"{name}-{launch_id}", "uid": name, "creationTimestamp": "2999-01-01T00:00:00Z"}
    made["metadata"] |= meta
    made["metadata"]["labels"] |= {LAUNCH: launch_id}
    made["metadata"]["annotations"] |= own
    # A list is by name: theirs is first.
    place.fake.objects["jobs"] = {meta["name"]: made, **jobs}


def test_who_copies_a_launch_id_hides_no_cluster(place: KubernetesPlace) -> None:
    """Neither one that runs, in this checkout and in others, nor one that has ended and is kept here."""
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    copied(place, "evil", cluster.launch_id, **{"oci-cluster-created": "2001-01-01T00:00:00Z"})
    assert [found.name for found in place.make().find()] == ["mine"]
    (cluster.directory / "cluster.json").rename(place.root / "away")
    assert [found.name for found in place.make().find()] == ["mine"]
    (place.root / "away").rename(cluster.directory / "cluster.json")
    place.later()
    place.lifecycle.stop(cluster)
    copied(place, "evil", cluster.launch_id)
    backend.finish(cluster, place.said.append)
    assert [found.name for found in place.make().find()] == ["mine"]


def test_a_job_that_is_no_cluster_takes_no_name(place: KubernetesPlace) -> None:
    """No list shows it: nobody could say who has that name."""
    backend = place.backend
    place.lifecycle.launch(backend.prepare(backend.place(place.plan("first", 1)), place.said.append))
    copied(place, "evil", "no-id", **{"oci-cluster-name": "mine"})
    place.fake.objects["jobs"]["evil-no-id"]["metadata"]["creationTimestamp"] = "2001-01-01T00:00:00Z"
    place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    assert sorted(found.name for found in place.make().find()) == ["first", "mine"]


def launch_beside(place: KubernetesPlace, launch_id: str, *, looks_until_it_goes: int = 0) -> None:
    """Launch a cluster while another Job of its name is made, in the same second, which may go again."""
    looks = itertools.count(1)

    def may_go(*_: Any) -> None:
        if next(looks) == looks_until_it_goes:
            del place.fake.objects["jobs"][f"mine-{launch_id}"]

    backend = place.backend
    plan = backend.prepare(backend.place(place.plan("mine", 1)), place.said.append)

    def launch_another(*_: Any) -> None:
        if made := place.fake.objects.get("jobs", {}).get(plan.placed["object"]):
            place.fake.after = may_go
            other = copy.deepcopy(made)
            other["metadata"] |= {"name": f"mine-{launch_id}", "uid": "other", "labels": {LAUNCH: launch_id}}
            place.fake.objects["jobs"][f"mine-{launch_id}"] = other

    place.fake.after = launch_another
    place.lifecycle.launch(plan)


def test_of_two_launches_of_one_name_at_once_the_second_is_refused(place: KubernetesPlace) -> None:
    """Each has looked for the name before the other's Job was there; what the second has made is gone again."""
    with pytest.raises(UsageError, match="a cluster named 'mine' was launched at the same moment"):
        launch_beside(place, "0" * 8)
    assert list(place.fake.objects["jobs"]) == ["mine-00000000"]


def test_of_two_launches_of_one_name_at_once_the_first_goes_on(place: KubernetesPlace) -> None:
    """When the other one has seen it, and has gone."""
    launch_beside(place, "f" * 8, looks_until_it_goes=3)
    assert "mine-ffffffff" not in place.fake.objects["jobs"]
    assert len(place.fake.objects["jobs"]) == 1


def test_one_that_was_made_before_in_the_same_second_and_does_not_see_this_one_goes_on(place: KubernetesPlace) -> None:
    """It had looked before this one's Job was there: the order of ids is not that of time. Both once went on."""
    with pytest.raises(UsageError, match="a cluster named 'mine' was launched at the same moment"):
        launch_beside(place, "f" * 8)
    assert list(place.fake.objects["jobs"]) == ["mine-ffffffff"]


def test_a_job_whose_launcher_was_killed_before_it_made_the_secret_has_its_key(place: KubernetesPlace) -> None:
    """The checkout has it. Else whoever ends that cluster signs with another, and nobody reads why it was stopped."""
    backend = place.backend
    plan = backend.prepare(backend.place(place.plan("mine", 1)), place.said.append)
    cluster = place.lifecycle.launch(plan)
    place.fake.objects["secrets"].clear()
    assert place.make().load(cluster).launch_key == plan.launch_key
    (cluster.directory / "cluster.json").unlink()
    assert place.make().load(cluster).launch_key == ""


@pytest.mark.parametrize("there", [None, "{}"])
def test_a_plan_that_the_checkout_has_is_kept_as_it_is(place: KubernetesPlace, there: str | None) -> None:
    """Of a cluster of another checkout, it is written: what has ended has no Job that would tell it."""
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    plan = cluster.directory / "cluster.json"
    plan.unlink()
    if there:
        plan.write_text(there)
    place.lifecycle.stop(cluster)
    backend.finish(cluster, place.said.append)
    assert (plan.read_text() == "{}") is bool(there)
    assert ('"name": "mine"' in plan.read_text()) is not bool(there)


def test_who_may_not_read_logs_is_told(place: KubernetesPlace) -> None:
    """Main says in its log that it is ready: who cannot see that would wait for ever, without a word."""
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))

    def refuse(_method: str, path: str, _body: Any) -> None:
        if path.endswith("/log"):
            raise RefusalError(403, "Forbidden", 'pods is forbidden: User "ann" cannot get resource "pods/log"')

    place.fake.before = refuse
    place.later()
    with pytest.raises(KubernetesError, match=r"pods/log.*docs/kubernetes-admin.md has the rights") as error:
        backend._seen.told(cluster.handle)
    assert error.value.exit_code == ExitCode.NOT_PERMITTED


def test_a_main_that_was_lost_stays_lost_when_the_other_nodes_are_ended(place: KubernetesPlace) -> None:
    """Somebody has deleted its pod: that nobody waits for the others any more is no stop of main."""
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    pod = place.fake.pods()["MAIN"]["metadata"]["name"]
    backend.service.delete(backend.service.path("pods", pod))
    backend.end(cluster, ["WORKER_1"])
    main, worker = backend.states([cluster])[cluster.launch_id]
    assert (main.is_lost, main.exit_code, worker.exit_code) == (True, None, 143)
    assert cluster_code([main, worker], None) == 76


def test_all_that_runs_is_ended_on_purpose_where_main_is_among_it(place: KubernetesPlace) -> None:
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    backend.end(cluster, ["MAIN", "WORKER_1"])
    assert [node.exit_code for node in backend.states([cluster])[cluster.launch_id]] == [143, 143]


@pytest.mark.parametrize("code", [0, 7])
def test_the_end_of_main_is_counted_before_those_that_wait_are_ended(place: KubernetesPlace, code: int) -> None:
    """What has ended is, for a moment, one of the pods that a Job deletes whose time is over."""
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    place.hold("WORKER_1")
    place.fake.end("MAIN", code, "MAIN_exit.json {}", counted_after_s=1.5)
    place.later()
    backend.end(cluster, ["WORKER_1"])
    main, worker = backend.states([cluster])[cluster.launch_id]
    assert (main.exit_code, main.is_lost) == (code, False)
    assert (worker.exit_code, worker.never_started) == (143, True)
    assert cluster_code([main, worker], None) == code


def test_an_end_of_main_that_nobody_counts_is_not_waited_for_long(place: KubernetesPlace) -> None:
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    place.hold("WORKER_1")
    place.fake.end("MAIN", 0, counted_after_s=1000)
    place.later()
    began = place.clock()
    backend.end(cluster, ["WORKER_1"])
    assert 10 <= place.clock() - began < 11
    assert not place.running()


def test_the_end_of_a_main_that_never_began_is_not_waited_for(place: KubernetesPlace) -> None:
    """As of a cluster in a queue: no Job ever counts it."""
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    (job,) = place.fake.objects["jobs"].values()
    job["spec"]["suspend"] = True
    place.fake.objects["pods"].clear()
    # As somebody has asked for; the deadline of a Job that is suspended does not run.
    job["metadata"]["annotations"]["oci-cluster-stop"] = "{}"
    began = place.clock()
    backend.end(cluster, ["MAIN", "WORKER_1"])
    assert place.clock() - began < 1


def test_a_job_that_names_no_queue_is_elastic_in_the_one_that_it_is_given(place: KubernetesPlace) -> None:
    """Kueue counts what it grows by, and decides when it begins. In no queue it would hold its pods back."""
    backend, elastic = place.backend, "kueue.x-k8s.io/elastic-job"
    place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    (alone,) = place.fake.objects["jobs"].values()
    assert elastic not in alone["metadata"]["annotations"]
    assert alone["spec"]["suspend"] is False
    place.fake.queue_of_unnamed = "default"
    place.lifecycle.launch(backend.prepare(backend.place(place.plan("other", 1)), place.said.append))
    _, queued = place.fake.objects["jobs"].values()
    assert queued["metadata"]["annotations"][elastic] == "true"
    assert queued["spec"]["suspend"] is True


@pytest.mark.parametrize(
    ("queues", "advice"),
    [
        (["vision", "audio"], "there are: audio, vision (--queue audio)"),
        ([], "ask its administrator for one, and set --queue"),
    ],
)
def test_a_job_that_kueue_would_suspend_for_ever_is_not_made(
    place: KubernetesPlace, queues: list[str], advice: str
) -> None:
    backend = place.backend
    place.fake.objects["localqueues"] = {name: {"metadata": {"name": name}} for name in queues}
    place.fake.suspends_unnamed = True
    plan = backend.prepare(backend.place(place.plan("mine", 1)), place.said.append)
    with pytest.raises(SettingsError) as error:
        place.lifecycle.launch(plan)
    assert str(error.value) == f"Kueue suspends each Job of namespace default that names no queue; {advice}"
    assert not place.fake.objects.get("jobs")


def named_by_a_job(place: KubernetesPlace, url: str) -> Cluster:
    """Return a cluster whose Job somebody has changed: its work dir is at *url*."""
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    (job,) = place.fake.objects["jobs"].values()
    for variable in job["spec"]["template"]["spec"]["containers"][0]["env"]:
        if variable["name"] == "WORK_DIR":
            variable["value"] = url
    return cluster


def test_a_work_dir_that_who_reads_has_set_is_opened(place: KubernetesPlace) -> None:
    cluster = named_by_a_job(place, "s3://mine/work")
    place.settings["WORK_DIR"] = "s3://mine/work"
    assert place.make().load(cluster).work_dir == "s3://mine/work"


@pytest.mark.parametrize("url", ["dask://evil:1::file:///x", "ftp://evil/x", "s3://others/work"])
def test_a_work_dir_of_anybodys_job_is_not_opened(place: KubernetesPlace, url: str) -> None:
    """Nor is one that the reader has not set; the cluster is listed, and can be ended, all the same."""
    cluster, other = named_by_a_job(place, url), place.make()
    with pytest.raises(LostPlanError, match="that is not opened without being asked"):
        other.load(cluster)
    assert [state.node for state in other.states([cluster])[cluster.launch_id]] == ["MAIN", "WORKER_1"]


@pytest.mark.parametrize(("most", "state"), [("0", State.FAILED), ("9" * 5000, State.PREEMPTED), ("", State.PREEMPTED)])
def test_a_limit_of_preemptions_that_nobody_can_count_is_none(place: KubernetesPlace, most: str, state: State) -> None:
    """Anybody may have written it, into a Job that all lists look at."""
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    (job,) = place.fake.objects["jobs"].values()
    job["spec"]["suspend"] = True
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team"
    job["metadata"]["annotations"]["oci-cluster-max-preemptions"] = most
    place.fake.objects["pods"].clear()
    preempted = {"type": "Preempted", "status": "True", "reason": "InClusterQueue", "message": ""}
    of_job = {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]}
    place.fake.objects["workloads"] = {
        "w": {"metadata": {"name": "w", "labels": of_job}, "status": {"conditions": [preempted]}}
    }
    other = place.make()
    assert other.states(other.find())[cluster.launch_id][0].state is state
