"""How often Kubernetes is asked for what a verb tells: as seldom as what it tells stays true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.backends.kubernetes.pods_of import DISRUPTED, Object, failed
from unit.backends.kubernetes_place import KubernetesPlace

from oci_cluster.contract.cluster import Cluster

JOBS, PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"


@pytest.fixture
def place(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesPlace]:
    """Return a Kubernetes."""
    place = KubernetesPlace(tmp_path, clock, monkeypatch)
    yield place
    place.close()


def launch(place: KubernetesPlace, name: str) -> Cluster:
    backend = place.backend
    return place.lifecycle.launch(backend.prepare(backend.place(place.plan(name, 1)), place.said.append))


def asked(place: KubernetesPlace) -> list[str]:
    """Return what has been asked for since the last call."""
    found = [path for _, path in place.fake.asked]
    place.fake.asked.clear()
    return found


@pytest.mark.parametrize("count", [1, 3])
def test_all_clusters_are_two_lists(place: KubernetesPlace, count: int) -> None:
    for number in range(count):
        launch(place, f"mine-{number}")
    asked(place)
    found = place.backend.find()
    assert len(found) == count
    assert {len(states) for states in place.backend.states(found).values()} == {2}
    assert asked(place) == [JOBS, PODS]


def test_a_cluster_that_is_chosen_is_not_asked_for_once_more(place: KubernetesPlace) -> None:
    """Neither its nodes, nor what they tell."""
    cluster = launch(place, "mine")
    asked(place)
    chosen = place.lifecycle.choose("mine")
    assert [state.node for state in place.lifecycle.states(chosen)] == ["MAIN", "WORKER_1"]
    place.backend._seen.told(cluster.handle)
    main = next(iter(place.fake.objects["pods"]))
    assert asked(place) == [JOBS, PODS, f"{PODS}/{main}/log"]


def test_what_was_found_some_time_ago_is_asked_for_again(place: KubernetesPlace) -> None:
    cluster = launch(place, "mine")
    found = place.backend.find()
    place.clock.sleep(3)
    asked(place)
    place.backend.states(found)
    assert asked(place) == [f"{JOBS}/{cluster.handle}", PODS]


def test_what_was_found_before_a_change_is_asked_for_again(place: KubernetesPlace) -> None:
    """A cluster that somebody ends must not be told to run on."""
    cluster = launch(place, "mine")
    place.backend.find()
    place.backend.end(cluster, ["MAIN", "WORKER_1"])
    assert {state.exit_code for state in place.lifecycle.states(cluster)} == {143}


DELETED = (None, "its pod was deleted")


@pytest.mark.parametrize(
    ("code", "status", "is_final", "expected"),
    [
        (7, {}, True, (7, "")),
        (143, failed(DISRUPTED), True, (None, "Eviction API: evicting")),
        (143, {}, True, DELETED),  # by somebody who deleted it: then it is lost, and a gang waits in vain
        (7, {}, False, (None, "")),  # another pod takes its place
    ],
)
def test_how_a_node_has_ended_is_not_forgotten_with_its_pod(
    place: KubernetesPlace, *, code: int, status: Object, is_final: bool, expected: tuple[int | None, str]
) -> None:
    """What the launcher says last is what it keeps, though pods go meanwhile."""
    cluster = launch(place, "mine")
    job, pods = place.fake.objects["jobs"][cluster.handle], place.fake.objects["pods"]
    place.fake.pods()["MAIN"]["status"] |= status
    place.end("MAIN", code)
    if not is_final:
        job["status"] = {}
    place.lifecycle.states(cluster)
    pods.clear()
    main = place.lifecycle.states(cluster)[0]
    assert (main.exit_code, main.details) == expected
    assert (main.is_lost, main.is_waiting) == (is_final and main.exit_code is None, not is_final)


def test_a_pod_that_another_one_has_followed_tells_nothing_more(place: KubernetesPlace) -> None:
    cluster = launch(place, "mine")
    job, pods = place.fake.objects["jobs"][cluster.handle], place.fake.objects["pods"]
    worker = place.fake.pods()["WORKER_1"]
    place.fake.end("WORKER_1", 143)
    worker["status"] |= failed(DISRUPTED)
    job["status"] = {}
    assert place.lifecycle.states(cluster)[1].is_waiting
    del pods[worker["metadata"]["name"]]
    place.fake._control()
    assert place.lifecycle.states(cluster)[1].is_running
    pods.clear()
    job["status"] = {"conditions": [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]}
    assert place.lifecycle.states(cluster)[1].details == "its time was over"


def test_a_list_that_takes_long_is_not_asked_for_again_for_each_file(place: KubernetesPlace) -> None:
    """Of a thousand nodes it is 8 MB, and their files are a thousand: it is as fresh as its answer."""
    cluster = launch(place, "mine")
    place.backend.find()
    place.clock.sleep(10)
    asked(place)
    place.fake.before = lambda _method, _path, _body: place.clock.sleep(2)
    for _ in range(3):
        assert "WORKER_1_config.json" in place.backend._seen.told(cluster.handle)
    assert asked(place).count(PODS) == 1


def test_a_cluster_of_any_size_is_one_page(place: KubernetesPlace) -> None:
    launch(place, "mine")
    limits: list[int] = []
    answer = place.fake._answer

    def with_limit(method: str, path: str, query: dict[str, str], body: Any) -> Any:
        limits.append(int(query.get("limit", 0)))
        return answer(method, path, query, body)

    place.fake._answer = with_limit  # type: ignore[method-assign]
    place.backend.find()
    assert min(limits) > place.backend.max_workers


def test_a_server_of_places_that_hangs_is_not_asked_with_each_look(place: KubernetesPlace) -> None:
    """Kueue's visibility API is a server of its own: who follows a cluster that waits would see nothing else."""
    place.fake.queue_of_unnamed = "team-a"
    cluster = launch(place, "mine")
    asked(place)
    times: list[int] = []
    for _ in range(12):
        place.clock.sleep(5)
        assert place.lifecycle.is_running(cluster)
        times.append(sum("pendingworkloads" in path for path in asked(place)))
    assert times == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]
