"""The Kubernetes of tests itself: who shares it, what is left after it, and how large it can be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from harness import wait_until
from kube import cgroups
from kube.api import condition
from kube.cluster import Cluster
from kube.keeper import CGROUPS

HERE = Path(__file__).resolve().parents[1]
HOLD = "import sys; sys.path[:0] = sys.argv[1:3]; from kube.__main__ import hold; hold(sys.argv[3])"


def mounts() -> set[str]:
    return {line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()}


def processes_in(place: Path) -> list[str]:
    """Return the command lines that name a directory."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(place) in line and process.pid != os.getpid():
            found.append(line)
    return found


def holder(directory: Path) -> subprocess.Popen[str]:
    """Start another process that holds the cluster, and return when it does."""
    command = [sys.executable, "-I", "-c", HOLD, str(HERE), str(HERE.parent), str(directory)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.alone
def test_after_the_last_holder_nothing_is_left_also_where_all_were_killed(tmp_path: Path) -> None:
    """It is held by two, and lives while one of them does; both are killed while a pod runs."""
    before, netns = mounts(), sorted(Path("/run/netns").glob("*"))
    directory = tmp_path / "k"
    first, second = holder(directory), holder(directory)
    with Cluster(directory) as cluster:
        place, keeper = cluster.place, cluster.about["pid"]
        group = f"{CGROUPS}-{keeper}"
        assert cgroups.left(group)
        assert processes_in(place)
        pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "localhost/pause:1"}]}}
        cluster.api.create("api/v1/namespaces/default/pods", pod)
        path = "api/v1/namespaces/default/pods/a"
        cluster.api.until(path, lambda found: found["status"]["phase"] == "Running", "the pod to run")
    first.kill()
    first.wait()
    assert cluster.api.get("readyz") == "ok"  # one still holds it
    second.send_signal(signal.SIGKILL)
    second.wait()
    wait_until(lambda: not psutil.pid_exists(keeper), "the keeper to end")
    assert not place.exists()
    assert processes_in(place) == []
    assert cgroups.left(group) == []
    assert mounts() - before == set()
    assert sorted(Path("/run/netns").glob("*")) == netns
    for process in (first, second):
        process.communicate()


@pytest.mark.alone
def test_what_a_killed_keeper_has_left_is_removed_by_the_next(tmp_path: Path) -> None:
    """Its processes end with it; its cgroups are empty then, and its files the caller's."""
    directory = tmp_path / "k"
    with Cluster(directory, node_count=1, with_kueue=False) as cluster:
        place, keeper = cluster.place, psutil.Process(cluster.about["pid"])
        keeper.kill()
        wait_until(lambda: not keeper.is_running(), "the keeper to be dead")
        wait_until(lambda: not processes_in(place), "all that it has started to end")
    group = f"{CGROUPS}-{keeper.pid}"
    assert cgroups.left(group)
    with Cluster(directory, node_count=1, with_kueue=False) as again:
        assert cgroups.left(group) == []
        assert again.place != place
        assert again.api.get("readyz") == "ok"


@pytest.mark.alone
def test_the_kernel_of_this_machine_is_not_changed(tmp_path: Path) -> None:
    """A kubelet wants other settings of the whole kernel; it sees them, and this machine keeps its own."""
    names = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
    before = {name: Path("/proc/sys", name).read_text() for name in names}
    with Cluster(tmp_path / "k", node_count=1, with_kueue=False) as cluster:
        cluster.wait_for_node("n1")
    assert {name: Path("/proc/sys", name).read_text() for name in names} == before


@pytest.mark.alone
@pytest.mark.timeout(300)
def test_a_thousand_nodes_come_up(tmp_path: Path) -> None:
    """Nodes in name only, beside a real one: all are Ready, and a pod that tolerates them is said to run there."""
    with Cluster(tmp_path / "k", node_count=1) as cluster:
        resources = {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"}
        begin = time.monotonic()
        names = cluster.do("add_fake_nodes", count=1000, resources=resources)
        assert len(set(names)) == 1000

        def ready() -> int:
            nodes = cluster.api.items("api/v1/nodes", labelSelector="type=kwok")
            return sum(condition(node, "Ready").get("status") == "True" for node in nodes)

        wait_until(lambda: ready() == 1000, lambda: f"1000 nodes to be ready: {ready()}", 200)
        sys.stderr.write(f"1000 nodes after {time.monotonic() - begin:.1f} s\n")
        toleration = {"key": "kwok.x-k8s.io/node", "operator": "Exists"}
        container = {"name": "a", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
        pod = {"metadata": {"name": "a"}, "spec": {"tolerations": [toleration], "containers": [container]}}
        cluster.api.create("api/v1/namespaces/default/pods", pod)
        path = "api/v1/namespaces/default/pods/a"
        found = cluster.api.until(path, lambda pod: pod["status"]["phase"] == "Running", "the pod to run")
        assert found["spec"]["nodeName"] in names
