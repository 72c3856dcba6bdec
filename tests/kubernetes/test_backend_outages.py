"""Launches through what lasts: a minute in which the API refuses, a login that has ended, a machine that is lost."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Launch, wait_until
from kube import images
from kube.api import Object
from kube.cluster import Cluster, User
from kube.faults import FaultyProxy
from kube.launches import GATE, SOON_S, UNTIL, UP, Site, lines_of, site_of
from kube.volumes import claim

HALF_A_MINUTE_S = 30.0
# A lost node is told to end when it has been silent for HEARTBEAT_TIMEOUT, grace and margin (48 s), and killed after
# twice grace and margin, and a minute (126 s). Machines that others use, too, are slower.
LOST_S = 300.0
SHORT_LIMITS = {"HEARTBEAT_TIMEOUT": "15", "GRACE_PERIOD": "3"}
SHORT = "import sys, time\nprint('line 1', flush=True)\ntime.sleep(2)\nprint('line 2', flush=True)\nsys.exit(3)\n"


# --- The API


def refuse_for_a_minute(proxy: FaultyProxy, launch: Launch) -> None:
    """Have the API refuse everything: half a minute as it is busy, half a minute as it is broken."""
    for status in (429, 500):
        until = time.monotonic() + HALF_A_MINUTE_S
        with proxy.misbehaving(status=status) as fault:
            wait_until(lambda u=until: time.monotonic() > u, "half a minute to be over")
        assert fault.hits, (status, launch.err)
    assert launch.process.poll() is None, launch.err


def test_who_looks_while_the_api_is_away_is_told_and_not_kept_for_long(site_behind: Site, proxy: FaultyProxy) -> None:
    """A line after two seconds says what is tried; after 15 the person may try again, or ask somebody."""
    with proxy.misbehaving(status=503):
        began = time.monotonic()
        said = site_behind.run("list", code=69)
        # Pauses are spread by half, and one that would end after the 15 s is not waited for.
        assert 5 < time.monotonic() - began < 60
    first, last = said.splitlines()
    assert re.fullmatch(r"list\.sh: Kubernetes refused GET \S+: 503 .*; trying again for 1\d s", first)
    assert re.search(r"tried \d+ times in \d+ s", last)


@pytest.mark.nightly
@pytest.mark.parametrize("moment", ["before it starts", "while it runs"])
def test_the_api_refuses_for_a_minute(site_behind: Site, proxy: FaultyProxy, moment: str) -> None:
    """The launch waits, and ends as it does without; each refusal is said once."""
    if moment == "before it starts":
        with proxy.misbehaving(status=429) as fault:
            launch = site_behind.launch("plain", 1, SHORT)
            wait_until(lambda: fault.hits, lambda: launch.err, SOON_S)
    else:
        launch = site_behind.launch("plain", 1, SHORT)
        site_behind.wait_for(launch, "line 1")
    refuse_for_a_minute(proxy, launch)
    assert launch.wait(SOON_S) == 3, launch.err
    said = lines_of(launch.out, "MAIN")
    assert [said.count(line) for line in ("line 1", "line 2")] == [1, 1], launch.out
    assert "ended with 3" in launch.err.splitlines()[-1]
    assert "Traceback" not in launch.err
    assert len([line for line in launch.err.splitlines() if "429" in line or "500" in line]) <= 2, launch.err
    site_behind.assert_nothing_left()


def test_a_token_that_has_ended_is_told_before_anything_is_made(
    checkout_copy: Path, toy_image: str, user: User, tmp_path: Path
) -> None:
    """There is no program that would bring another one."""
    config = user.by_token()
    path = f"api/v1/namespaces/{user.namespace}/serviceaccounts/{user.name}"
    user.cluster.api.delete(path)
    wait_until(lambda: user.cluster.api.find(path) is None, "the account to be gone", SOON_S)
    with site_of(checkout_copy, tmp_path / "mine", user.cluster, user.namespace, config) as site:
        launch = site.launch("plain", 1, UP)
        assert launch.wait(SOON_S) == 77, launch.err
        told = [line for line in launch.err.splitlines() if "401" in line]
        assert len(told) == 1, launch.err
        assert "get a new token" in told[0]
        assert "NOT ENDED" not in launch.err
        assert "Traceback" not in launch.err
        assert site.left() == []


# --- A machine


@pytest.fixture
def one_pod_each(
    own_kubernetes: Cluster, checkout_copy: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """Return a project in a Kubernetes whose two machines take one node each."""
    archive = images.toy_archive(images.KEPT, tmp_path_factory.mktemp("engine") / "e")
    own_kubernetes.do("import_image", archive=str(archive))
    for node in own_kubernetes.nodes:
        own_kubernetes.set_resource(node, "tests.example/gpu", 1)
    with own_kubernetes.namespace() as namespace:
        user = own_kubernetes.user(namespace)
        with site_of(checkout_copy, tmp_path / "mine", own_kubernetes, namespace, user.by_certificate()) as site:
            site.project.environ |= {"GPUS": "1", "GPU_RESOURCE": "tests.example/gpu"}
            yield site


def is_given_up(machine: Object) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "Unknown" for one in machine["status"]["conditions"])


@pytest.mark.nightly
def test_a_kubelet_is_killed_and_its_node_works_on(one_pod_each: Site) -> None:
    """Kubernetes gives the pod up, which nobody can end; the cluster ends by itself, and its end is true."""
    site, kubernetes = one_pod_each, one_pod_each.kubernetes
    with claim(kubernetes, site.namespace, "gate") as gate:
        launch = site.launch("gang", 1, UNTIL, **GATE, **SHORT_LIMITS)
        wait_until(lambda: launch.out.count("| life ") == 2, lambda: launch.out + launch.err, SOON_S)
        machine = kubernetes.api.get(site.pod(1))["spec"]["nodeName"]
        kubernetes.do("kill_kubelet", node=machine)
        kubernetes.api.until(f"api/v1/nodes/{machine}", is_given_up, "the machine to be given up")
        (gate / "go").touch()
        assert launch.wait(LOST_S) == 0, launch.out + launch.err
    assert "Traceback" not in launch.err
    site.assert_nothing_left()


@pytest.mark.nightly
def test_a_machine_is_lost(one_pod_each: Site) -> None:
    """Neither its kubelet nor its node is heard of again: who follows is told which node it was."""
    site, kubernetes = one_pod_each, one_pod_each.kubernetes
    launch = site.launch("gang", 1, UP, **SHORT_LIMITS)
    wait_until(lambda: launch.out.count("| entry up") == 2, lambda: launch.out + launch.err, SOON_S)
    machine = kubernetes.api.get(site.pod(1))["spec"]["nodeName"]
    kubernetes.do("kill_kubelet", node=machine)
    kubernetes.do("cut", node=machine)
    assert launch.wait(LOST_S) == 76, launch.out + launch.err
    assert "ended with 76" in launch.err.splitlines()[-1]
    assert "WORKER_1 failed first: no heartbeat for 15 s" in launch.err.splitlines()[-1]
    assert "Traceback" not in launch.err
    site.assert_nothing_left()
