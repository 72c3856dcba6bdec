"""Launches while the API misbehaves, nodes are taken away, and quotas are full: what comes out is the truth."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Launch, wait_until
from kube import images
from kube.api import Object
from kube.cluster import Cluster, User
from kube.faults import FaultyProxy
from kube.identity import new_name
from kube.launches import GATE, SOON_S, UNTIL, UP, Site, lines_of, site_of
from kube.volumes import claim

# Prints numbered lines for some seconds, some of them twice: a line that is printed twice comes twice.
COUNTS = """\
import os, sys, time
for i in range(60):
    print('line', i, flush=True)
    if i % 10 == 0: print('the same', flush=True)
    while i == 50 and not os.path.exists('/mnt/gate/go'): time.sleep(0.06)
    time.sleep(0.06)
sys.exit(3)
"""


@contextlib.contextmanager
def counting(site: Site) -> Iterator[Launch]:
    """Launch COUNTS; after the block it ends with 3, not before its worker works, and all that was printed has come.

    Each line once, in its order.
    """
    with claim(site.kubernetes, site.namespace, "gate") as gate:
        launch = site.launch("plain", 1, COUNTS, **GATE)
        yield launch
        site.wait_for(launch, "worker works")
        (gate / "go").touch()
        assert launch.wait(SOON_S) == 3, launch.err
    said = lines_of(launch.out, "MAIN")
    found = [int(line.split()[1]) for line in said if re.fullmatch(r"line \d+", line)]
    assert found == list(range(60)), launch.out + launch.err
    assert said.count("the same") == 6
    assert lines_of(launch.out, "WORKER_1").count("worker works") == 1, launch.out + launch.err


FAULTS: dict[str, list[dict[str, Any]]] = {
    "429 with a time": [{"status": 429, "retry_after_s": 1, "times": 2}],
    "500 of changes": [{"status": 500, "times": 2, "method": "POST|PATCH"}],
    "503 of lists": [{"status": 503, "times": 3, "method": "GET", "path": "/pods\\?|/jobs"}],
    "answers are lost": [{"is_lost": True, "times": 1, "method": method} for method in ("POST", "PATCH", "DELETE")],
    "cut logs": [{"cut_after_s": 1.0, "path": "/log"}],
    "cut in the middle of a line": [{"cut_after_bytes": 333, "path": "/log", "times": 8}],
    "cut answers": [{"cut_after_bytes": 700, "times": 4, "path": "/pods\\?"}],
    "slow": [{"delay_s": 0.2}],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_launch_ends_as_it_does_without_the_fault(site_behind: Site, proxy: FaultyProxy, fault: str) -> None:
    added = [proxy.add(**one) for one in FAULTS[fault]]
    with counting(site_behind) as launch:
        pass
    assert all(one.hits for one in added), [(one.path, one.hits) for one in added]
    assert "ended with 3" in launch.err.splitlines()[-1]
    assert "Traceback" not in launch.err
    site_behind.assert_nothing_left()


def test_the_api_is_away_while_a_cluster_runs(site_behind: Site, proxy: FaultyProxy) -> None:
    """For some seconds everything fails: the cluster goes on, and its follower says so and goes on, too."""
    with counting(site_behind) as launch:
        site_behind.wait_for(launch, "line 5\n")
        with proxy.misbehaving(status=503) as fault:
            wait_until(lambda: fault.hits >= 4, "requests that fail", SOON_S)
    site_behind.assert_nothing_left()


def test_a_token_that_the_api_no_longer_takes_is_asked_for_again(
    checkout_copy: Path, toy_image: str, user: User, tmp_path: Path
) -> None:
    """A kubeconfig's program brings another one, while the cluster runs."""
    config = user.by_plugin()
    with site_of(checkout_copy, tmp_path / "mine", user.cluster, user.namespace, config) as site:
        with counting(site) as launch:
            site.wait_for(launch, "line 1\n")
            calls = user.plugin_calls()
            accounts = f"api/v1/namespaces/{user.namespace}/serviceaccounts"
            old = user.token_file.read_text()
            # The API refuses tokens of an account that was deleted; its successor of the same name has its rights.
            user.cluster.api.delete(f"{accounts}/{user.name}")
            wait_until(
                lambda: user.cluster.api.find(f"{accounts}/{user.name}") is None, "the account to be gone", SOON_S
            )
            user.cluster.api.create(accounts, {"metadata": {"name": user.name}})
            user.show_token(user.token())
            assert user.token_file.read_text() != old
        assert user.plugin_calls() > calls
        site.assert_nothing_left()


def test_a_right_that_is_missing_is_named(
    checkout_copy: Path, toy_image: str, kubernetes: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Somebody with `view` alone: 77, and nothing was made, which is not said to cost."""
    viewer = kubernetes.user(namespace, role="view")
    with site_of(checkout_copy, tmp_path / "mine", kubernetes, namespace, viewer.by_certificate()) as site:
        launch = site.launch("plain", 1, UP)
        assert launch.wait(SOON_S) == 77, launch.err
        assert "jobs" in launch.err
        assert "NOT ENDED" not in launch.err
        assert "Traceback" not in launch.err
        assert site.left() == []


def test_the_api_server_starts_again_while_a_cluster_runs(
    own_kubernetes: Cluster, checkout_copy: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    archive = images.toy_archive(images.KEPT, tmp_path_factory.mktemp("engine") / "e")
    own_kubernetes.do("import_image", archive=str(archive))
    with own_kubernetes.namespace() as namespace:
        user = own_kubernetes.user(namespace)
        with site_of(checkout_copy, tmp_path / "mine", own_kubernetes, namespace, user.by_certificate()) as site:
            with counting(site) as launch:
                site.wait_for(launch, "line 5\n")
                own_kubernetes.do("restart_api")  # which has just started refuses all for a moment (403)
            site.assert_nothing_left()


# --- Nodes are lost


def test_a_node_that_wants_too_much_memory(site: Site) -> None:
    """What the kernel has killed says so in words, whoever sees it first: the agent, or Kubernetes."""
    greedy = "x = bytearray(600 * 2**20); print(len(x))"
    launch = site.launch("plain", 1, greedy)
    assert launch.wait(SOON_S) in {76, 137}, launch.err
    why = "its memory ran out; set MEMORY higher than 256Mi"
    assert f"MAIN ended with 137 ({why})" in launch.err
    last = launch.err.splitlines()[-1]
    assert re.search(rf"ended with (76 \(main lost|137 \(MAIN): {why}\) after ", last), last
    assert site.status(site.name)["reason"] in {f"main lost: {why}", f"MAIN: {why}"}
    site.assert_nothing_left()
    # Nobody follows it: while it is there its pods tell, and afterwards what was kept.
    detached = site.launch("plain", 1, greedy, "--detach", "--name", "greedy")
    assert detached.wait(SOON_S) == 0, detached.err
    wait_until(lambda: site.status("greedy")["exit_code"] is not None, lambda: detached.err, SOON_S)
    assert why in site.run("status", "greedy")
    site.run("stop", "greedy")
    assert why in site.run("status", "greedy")


def test_somebody_deletes_the_pod_of_a_gangs_rank(site: Site, kubernetes: Cluster) -> None:
    """Kubernetes makes no other for it, which the launcher says at once, and ends the cluster: main would wait on."""
    launch = site.launch("gang", 2, UP, GRACE_PERIOD="3")
    wait_until(lambda: launch.out.count("| entry up") == 3, lambda: launch.out + launch.err, SOON_S)
    name = site.pods()[2]["metadata"]["name"]
    done = kubernetes.kubectl("delete", "pod", name, f"--namespace={site.namespace}", "--wait=false")
    assert done.returncode == 0, done.stderr
    assert launch.wait(SOON_S) == 76, launch.out + launch.err
    assert "WORKER_2 is lost" in launch.err
    assert "ended with 76 (WORKER_2 lost" in launch.err.splitlines()[-1]
    site.assert_nothing_left()


@pytest.mark.parametrize("node", ["MAIN", "WORKER_1"])
def test_a_pod_is_evicted_and_lives_again(site: Site, kubernetes: Cluster, node: str) -> None:
    """By the Eviction API, as a drain does: the next life has the same launch id, and ends with 0."""
    with claim(kubernetes, site.namespace, "gate") as gate:
        launch = site.launch("gang", 1, UNTIL, **GATE)
        wait_until(lambda: launch.out.count("| life ") == 2, lambda: launch.out + launch.err, SOON_S)
        evict(kubernetes, site.pod(["MAIN", "WORKER_1"].index(node)))
        for one in ("MAIN", "WORKER_1"):  # a gang begins again as a whole
            wait_until(lambda o=one: len(lives_of(launch, o)) >= 2, lambda: launch.out + launch.err, SOON_S)
        (gate / "go").touch()
        assert launch.wait(SOON_S) == 0, launch.out + launch.err
    for one in ("MAIN", "WORKER_1"):
        assert {life.split()[2] for life in lives_of(launch, one)} == {site.launch_id}
        # Main's end is the cluster's: a worker that its machine holds up is ended before it has seen the file.
        assert lines_of(launch.out, one).count("trained") in ({1} if one == "MAIN" else {0, 1}), launch.out + launch.err
    site.assert_nothing_left()


def test_a_cluster_that_the_scheduler_preempts_comes_back(site: Site, kubernetes: Cluster) -> None:
    """Without a queue: pods of a higher PriorityClass take the place, and give it back."""
    gpu, names = "tests.example/preempted", {}
    for word, value in (("low", 10), ("high", 1000)):
        names[word] = new_name(word)
        about = {"metadata": {"name": names[word]}, "value": value}
        kubernetes.api.create("apis/scheduling.k8s.io/v1/priorityclasses", about)
    kubernetes.set_resource(kubernetes.nodes[0], gpu, 2)
    wanted = {"GPUS": "1", "GPU_RESOURCE": gpu, "GRACE_PERIOD": "2"}
    with claim(kubernetes, site.namespace, "gate") as gate:
        low = site.launch("gang", 1, UNTIL, "--name", "low", PRIORITY_CLASS=names["low"], **GATE, **wanted)
        wait_until(lambda: low.out.count("| life ") == 2, lambda: low.out + low.err, SOON_S)
        high = site.launch("plain", 1, "print('the result')", "--name", "high", PRIORITY_CLASS=names["high"], **wanted)
        assert high.wait(SOON_S) == 0, high.err + low.err
        wait_until(lambda: low.out.count("| life ") >= 4, lambda: low.out + low.err, SOON_S)
        (gate / "go").touch()
        assert low.wait(SOON_S) == 0, low.out + low.err
    kubernetes.set_resource(kubernetes.nodes[0], gpu, 0)
    site.assert_nothing_left()


def test_who_may_not_be_interrupted_has_one_life(site: Site, kubernetes: Cluster) -> None:
    """With INTERRUPTIBLE=0 nobody makes another pod for a main that was evicted: a script would run twice."""
    launch = site.launch("plain", 1, f"print('runs', flush=True)\n{UP}", INTERRUPTIBLE="0", GRACE_PERIOD="2")
    site.wait_for(launch, "entry up")
    evict(kubernetes, site.pod(0))
    assert launch.wait(SOON_S) == 76, launch.out + launch.err
    # Its pod may be gone before anybody has looked.
    why = site.status(site.name)["reason"]
    assert why in {"main lost: Eviction API: evicting", "main lost: its pod was deleted"}
    assert f"ended with 76 ({why}) after " in launch.err.splitlines()[-1], launch.err
    assert lines_of(launch.out, "MAIN").count("runs") == 1
    site.assert_nothing_left()


@pytest.mark.parametrize("code", [0, 7])
def test_the_scripts_end_is_the_clusters_while_an_evicted_worker_has_no_place(
    site: Site, kubernetes: Cluster, code: int
) -> None:
    """A drained machine in a full cluster: that its worker waits makes no failure of a success, nor another one."""
    gpu = f"tests.example/drained-{code}"
    kubernetes.set_resource(kubernetes.nodes[0], gpu, 2)
    wanted = {"GPUS": "1", "GPU_RESOURCE": gpu, "GRACE_PERIOD": "2"}
    with claim(kubernetes, site.namespace, "gate") as gate:
        launch = site.launch("plain", 1, f"{UNTIL}raise SystemExit({code})\n", **GATE, **wanted)
        wait_until(lambda: "worker works" in launch.out and "| life " in launch.out, lambda: launch.err, SOON_S)
        kubernetes.set_resource(kubernetes.nodes[0], gpu, 0)  # nor has it a place when main's is free
        evict(kubernetes, site.pod(1))
        wait_until(lambda: is_pending(site.pods().get(1, {})), "the worker's next pod to wait", SOON_S)
        (gate / "go").touch()
        assert launch.wait(SOON_S) == code, launch.err
    # Where the launcher has seen it wait, it says for how long after a failure.
    named = r"never started: WORKER_1|WORKER_1 had no place when the cluster ended"
    assert re.search(named, launch.err.splitlines()[-1]), launch.err
    shown = site.status(site.name)
    why = f"MAIN: trained; exit code {code}" if code else "the entry point ended: exit code 0"
    assert (shown["exit_code"], shown["reason"]) == (code, why)
    assert [node["phase"] for node in shown["nodes"]] == ["ended", "never started"]
    site.assert_nothing_left()


def lives_of(launch: Launch, node: str) -> list[str]:
    return [line for line in lines_of(launch.out, node) if line.startswith("life ")]


def is_pending(pod: Object) -> bool:
    return bool(pod) and pod["status"].get("phase") == "Pending" and "deletionTimestamp" not in pod["metadata"]


def evict(kubernetes: Cluster, pod: str) -> None:
    namespace, _, name = pod.partition("/namespaces/")[2].partition("/pods/")
    about = {"name": name, "namespace": namespace}
    kubernetes.api.create(f"{pod}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about})


# --- The namespace


def test_a_quota_of_the_namespace_that_is_full_is_told(site: Site, kubernetes: Cluster) -> None:
    """Pods are refused one by one, so main may run: the launch ends with 75, in the words of the API."""
    quotas = f"api/v1/namespaces/{site.namespace}/resourcequotas"
    kubernetes.api.create(quotas, {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}})
    kubernetes.api.until(f"{quotas}/small", lambda found: "hard" in found.get("status", {}), "the quota to hold")
    launch = site.launch("plain", 1, UP, PROVISION_TIMEOUT="8")
    assert launch.wait(SOON_S) == 75, launch.err
    assert "exceeded quota: small" in launch.err
    assert "Traceback" not in launch.err
    site.assert_nothing_left()


def test_a_namespace_that_is_removed_takes_its_clusters_along(
    checkout_copy: Path, toy_image: str, kubernetes: Cluster, tmp_path: Path
) -> None:
    """Whoever follows one ends with a failure, and not before it is gone; nothing can be launched there any more."""
    with kubernetes.namespace() as namespace:
        user = kubernetes.user(namespace)
        with site_of(checkout_copy, tmp_path / "mine", kubernetes, namespace, user.by_certificate()) as site:
            launch = site.launch("plain", 1, UP)
            site.wait_for(launch, "entry up")
            # What a person may do there goes with the namespace, at any moment: here it is the last to go.
            rights = f"apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/{user.name}"
            kubernetes.api.patch(rights, {"metadata": {"finalizers": ["tests.invalid/held"]}})
            kubernetes.api.delete(f"api/v1/namespaces/{namespace}")
            assert launch.wait(SOON_S) in {76, 143}, launch.err
            assert "Traceback" not in launch.err
            site.assert_nothing_left()
            again = site.launch("plain", 1, UP, "--name", "again")
            assert again.wait(SOON_S) == 77, again.err
            assert "because it is being terminated" in again.err.splitlines()[-1]
            assert "Traceback" not in again.err
            kubernetes.api.patch(rights, {"metadata": {"finalizers": None}})
