"""What goes wrong between a client and the API, and on the nodes: does whoever is concerned really see it?"""

from __future__ import annotations

import threading
import time

import pytest
import requests
from harness import wait_until
from kube import jobs
from kube.api import Api, RefusedError, condition
from kube.cluster import Cluster, User
from kube.faults import FaultyProxy

CONFIGMAP = {"metadata": {"name": "a"}, "data": {"a": "b" * 10_000}}


@pytest.fixture
def api(user: User, proxy: FaultyProxy) -> Api:
    """Return the API behind the proxy."""
    return Api(user.by_token(proxy.url))


def maps(user: User) -> str:
    return f"api/v1/namespaces/{user.namespace}/configmaps"


@pytest.mark.parametrize("status", [401, 403, 409, 410, 429, 500, 503, 504])
def test_a_refusal_comes_as_the_api_words_it_and_as_often_as_wanted(
    api: Api, user: User, proxy: FaultyProxy, status: int
) -> None:
    with proxy.misbehaving(status=status, retry_after_s=3, times=2, method="GET", path="/configmaps$") as fault:
        for _ in range(2):
            with pytest.raises(RefusedError, match=f"{status} [A-Z]"):
                api.get(maps(user))
            answer = api.session.get(f"{proxy.url}/api/v1/namespaces/{user.namespace}/pods")
            assert answer.ok  # another path
        assert len(api.items(maps(user))) == 1  # the third time
        assert fault.hits == 2
    statuses = [request.status for request in proxy.seen if request.path.endswith("/configmaps")]
    assert statuses == [status, status, 200]


def test_a_refusal_says_when_to_come_back(api: Api, user: User, proxy: FaultyProxy) -> None:
    with proxy.misbehaving(status=429, retry_after_s=3):
        answer = api.session.get(f"{proxy.url}/{maps(user)}")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "3")


def test_an_answer_is_lost_after_the_deed(api: Api, user: User, proxy: FaultyProxy) -> None:
    """The client is told nothing, and what it asked for is done."""
    with proxy.misbehaving(is_lost=True, method="POST"), pytest.raises(requests.ConnectionError):
        api.create(maps(user), CONFIGMAP)
    with pytest.raises(RefusedError, match="409 AlreadyExists"):
        api.create(maps(user), CONFIGMAP)
    api.delete(f"{maps(user)}/a")


def test_a_connection_is_cut_before_the_deed(api: Api, user: User, proxy: FaultyProxy) -> None:
    """The client is told nothing, and nothing is done."""
    with proxy.misbehaving(is_dropped=True, method="POST"), pytest.raises(requests.ConnectionError):
        api.create(maps(user), CONFIGMAP)
    assert api.find(f"{maps(user)}/a") is None


def test_by_chance_some_requests_fail_and_the_same_with_the_same_seed(api: Api, user: User, proxy: FaultyProxy) -> None:
    def answers() -> list[int]:
        with proxy.misbehaving(status=503, odds=0.5, seed=7):
            return [api.session.get(f"{proxy.url}/{maps(user)}").status_code for _ in range(20)]

    first = answers()
    assert set(first) == {200, 503}
    assert answers() == first


def test_all_connections_are_cut_at_once(api: Api, user: User, proxy: FaultyProxy) -> None:
    """A watch that is open, too, and nobody who comes later."""
    ended = threading.Event()

    def watch() -> None:
        with pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)):
            list(api.watch(maps(user)))
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    wait_until(lambda: any("watch=true" in request.path and request.status for request in proxy.seen), "the watch")
    assert not ended.is_set()
    proxy.hang_up()
    assert ended.wait(30)
    assert Api(user.by_token(proxy.url)).items(maps(user))


def test_a_connection_is_cut_in_the_middle_of_an_answer(api: Api, user: User, proxy: FaultyProxy) -> None:
    api.create(maps(user), CONFIGMAP)
    with proxy.misbehaving(cut_after_bytes=5_000), pytest.raises(requests.exceptions.ChunkedEncodingError):
        api.get(f"{maps(user)}/a")
    assert api.get(f"{maps(user)}/a")["data"] == CONFIGMAP["data"]
    api.delete(f"{maps(user)}/a")


def test_a_watch_is_cut_and_another_one_begins_where_it_was(api: Api, user: User, proxy: FaultyProxy) -> None:
    version = api.get(maps(user))["metadata"]["resourceVersion"]
    begin = time.monotonic()
    with (
        proxy.misbehaving(cut_after_s=1, path="[?&]watch=true"),
        pytest.raises((requests.ConnectionError, requests.exceptions.ChunkedEncodingError)),
    ):
        list(api.watch(maps(user), resourceVersion=version))
    assert 0.9 < time.monotonic() - begin < 30
    api.create(maps(user), CONFIGMAP)
    event = next(iter(api.watch(maps(user), resourceVersion=version)))
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
    api.delete(f"{maps(user)}/a")


def test_an_answer_is_late(api: Api, user: User, proxy: FaultyProxy) -> None:
    with proxy.misbehaving(delay_s=2, times=1), pytest.raises(requests.ReadTimeout):
        api.get(maps(user), timeout=0.5)
    assert api.items(maps(user), timeout=30)


def test_kubectl_reaches_a_pod_through_the_proxy(kubernetes: Cluster, user: User, proxy: FaultyProxy) -> None:
    """An upgraded connection: exec, as port-forward."""
    config = user.by_token(proxy.url)
    api = Api(config)
    with jobs.running(
        api, user.namespace, jobs.job("reached", 1, "trap exit TERM; while :; do sleep 0.2; done")
    ) as path:
        api.until(path, lambda job: job["status"].get("ready"), "the node to run")
        done = kubernetes.kubectl("exec", "job/reached", "--", "sh", "-c", "echo $((6 * 7)); exit 9", kubeconfig=config)
    assert (done.returncode, done.stdout) == (9, "42\n"), done.stderr
    assert any(request.status == 101 for request in proxy.seen)


def test_a_token_that_ends_is_refused_and_a_plugin_brings_another(
    kubernetes: Cluster, user: User, namespace: str
) -> None:
    """A token that the API no longer takes: its user is deleted, as the API takes none of less than ten minutes."""
    config = user.by_plugin()
    assert kubernetes.kubectl("get", "pods", kubeconfig=config).returncode == 0
    good = user.token_file.read_text()
    user.show_token(f"{good[:-8]}AAAAAAAA")
    refused = kubernetes.kubectl("get", "pods", kubeconfig=config)
    assert "Unauthorized" in refused.stderr or "must be logged in" in refused.stderr
    user.show_token(good)
    assert kubernetes.kubectl("get", "pods", kubeconfig=config).returncode == 0
    assert user.plugin_calls() >= 3


@pytest.mark.alone
def test_a_cluster_lives_through_the_death_of_the_api_server_and_of_a_node(own_kubernetes: Cluster) -> None:
    """In one cluster, which is harmed four times: the API restarts, Kueue dies, a kubelet dies, a link is cut."""
    cluster, api = own_kubernetes, own_kubernetes.api
    # Not 0: then the Job counts the lost node as one that has done its part, and makes no other.
    script = "trap 'exit 143' TERM; while :; do sleep 0.2; done"
    with cluster.namespace() as namespace, jobs.running(api, namespace, jobs.job("kept", 2, script)) as path:
        api.until(path, lambda job: job["status"].get("ready") == 2, "both to run")
        before = uids(api, namespace)

        gaps: list[Exception] = []
        stop = threading.Event()
        watcher = threading.Thread(target=ask_on, args=(cluster, stop, gaps), daemon=True)
        watcher.start()
        cluster.do("restart_api")
        api.until(path, lambda job: job["status"].get("ready") == 2, "both to run on")
        stop.set()
        watcher.join(60)
        assert gaps, "nobody saw that the API server was away"
        assert uids(api, namespace) == before

        other = jobs.job("other", 1, script, labels={"kueue.x-k8s.io/queue-name": "none"})
        cluster.do("kill_kueue")
        with pytest.raises(RefusedError, match=r"failed calling webhook .*kb\.io"):
            api.create(f"apis/batch/v1/namespaces/{namespace}/jobs", other)
        cluster.do("set_kueue", settings={})
        queued = api.ask("POST", f"apis/batch/v1/namespaces/{namespace}/jobs", other, dryRun="All").json()
        assert queued["spec"]["suspend"] is True

        cluster.do("kill_kubelet", node="n2")
        cluster.wait_for_node("n2", is_ready=False)
        cluster.do("start_kubelet", node="n2")
        cluster.wait_for_node("n2")
        api.until(path, lambda job: job["status"].get("ready") == 2, "both to run after the kubelet's death")

        lost = {pod["spec"]["nodeName"]: index for index, pod in jobs.pods(api, namespace, "kept").items()}["n2"]
        before = uids(api, namespace)
        cluster.do("cut", node="n2")
        cluster.wait_for_node("n2", is_ready=False)
        wait_until(lambda: is_disrupted(api, namespace, lost), "the lost node's pod to be given up")
        cluster.do("heal", node="n2")
        cluster.wait_for_node("n2")
        wait_until(
            lambda: uids(api, namespace).get(lost, before[lost]) != before[lost], "the same index to be made again", 90
        )
        api.until(path, lambda job: job["status"].get("ready") == 2, "both to run in the end")
        after = uids(api, namespace)
        assert after[1 - lost] == before[1 - lost]
        assert not api.get(path)["status"].get("failed")


def uids(api: Api, namespace: str) -> dict[int, str]:
    return {index: pod["metadata"]["uid"] for index, pod in jobs.pods(api, namespace, "kept").items()}


def is_disrupted(api: Api, namespace: str, index: int) -> bool:
    return condition(jobs.pods(api, namespace, "kept")[index], "DisruptionTarget").get("status") == "True"


def ask_on(cluster: Cluster, stop: threading.Event, gaps: list[Exception]) -> None:
    """Ask again and again, and note what is not answered."""
    while not stop.is_set():
        try:
            Api(cluster.admin).get("readyz", timeout=5)
        except (OSError, RefusedError) as error:
            gaps.append(error)
        time.sleep(0.05)
