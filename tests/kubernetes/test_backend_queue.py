"""Launches into a queue of Kueue's whose quota is full, too small, or taken by a higher priority."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import wait_until
from kube.cluster import Cluster
from kube.identity import new_name
from kube.launches import GATE, SOON_S, UNTIL, UP, Site, lines_of, site_of
from kube.teams import Team, teams
from kube.volumes import claim

RESULT = "print('the result')"


@dataclass
class Queued:
    """A site, and a queue in its namespace that has room for one cluster of two nodes."""

    site: Site
    team: Team
    low: str
    high: str

    @property
    def options(self) -> tuple[str, ...]:
        return ("--queue", self.team.queue)


@pytest.fixture
def queued(kubernetes: Cluster, toy_image: str, checkout_copy: Path, tmp_path: Path) -> Iterator[Queued]:
    """Return a site of somebody with `edit` in a team's namespace."""
    low, high = new_name("low"), new_name("high")
    with teams(kubernetes, {"a": {"pods": 3}}, priorities={low: 1, high: 1000}) as made:
        team = made["a"]
        kubeconfig = kubernetes.user(team.namespace).by_certificate()
        with site_of(checkout_copy, tmp_path / "mine", kubernetes, team.namespace, kubeconfig) as site:
            yield Queued(site, team, low, high)


def names(site: Site) -> list[str]:
    return [job["metadata"]["annotations"]["oci-cluster-name"] for job in site.jobs()]


def test_a_launch_that_waits_says_so_and_starts_when_there_is_room(queued: Queued) -> None:
    """Its time in the queue is no time for its machines: PROVISION_TIMEOUT does not count there."""
    site, began = queued.site, time.monotonic()
    first = site.launch("plain", 1, UP, "--name", "first", *queued.options)
    site.wait_for(first, "entry up")
    # Four times what a launch takes here and now: others may begin to work beside it.
    limit_s = round(4 * (time.monotonic() - began))
    second = site.launch("plain", 1, RESULT, "--name", "second", *queued.options, PROVISION_TIMEOUT=str(limit_s))
    site.wait_for(second, "second: queued")
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > limit_s + 1, "longer than PROVISION_TIMEOUT", limit_s + SOON_S)
    assert second.process.poll() is None, second.err
    assert {node["state"] for node in site.status("second")["nodes"]} == {"QUEUED"}
    assert "second" in site.run("list")
    assert "at the latest (TTL, without its time in the queue and lives that were interrupted)" in second.err
    first.interrupt()
    assert first.wait(SOON_S) == 143, first.err
    assert second.wait(SOON_S) == 0, second.err
    assert lines_of(second.out, "MAIN").count("the result") == 1
    site.assert_nothing_left()


def test_ctrl_c_while_queued(queued: Queued) -> None:
    """143, and nothing of it is left; who runs goes on."""
    site = queued.site
    first = site.launch("plain", 1, UP, "--name", "first", *queued.options)
    site.wait_for(first, "entry up")
    second = site.launch("plain", 1, UP, "--name", "second", *queued.options)
    site.wait_for(second, "second: queued")
    second.interrupt()
    assert second.wait(SOON_S) == 143, second.err
    assert names(site) == ["first"]
    assert first.process.poll() is None
    first.interrupt()
    assert first.wait(SOON_S) == 143, first.err
    site.assert_nothing_left()


def test_a_wait_has_a_limit(queued: Queued) -> None:
    site = queued.site
    first = site.launch("plain", 1, UP, "--name", "first", *queued.options)
    site.wait_for(first, "entry up")
    second = site.launch("plain", 1, UP, "--name", "second", *queued.options, "--wait-for-quota", "5s")
    assert second.wait(SOON_S) == 75, second.err
    assert "WAIT_FOR_QUOTA" in second.err
    assert names(site) == ["first"]
    first.interrupt()
    assert first.wait(SOON_S) == 143, first.err
    site.assert_nothing_left()


def test_a_priority_that_is_not_there_is_told_to_who_may_not_list_them(queued: Queued) -> None:
    """Kueue makes nothing of such a Job, and tells its own log alone: the launch says so after 20 s."""
    site = queued.site
    launch = site.launch("plain", 1, RESULT, "--name", "lost", *queued.options, "--priority", "nowhere")
    site.wait_for(launch, "lost: queued")
    told = "Kueue has made nothing of it: there is no WorkloadPriorityClass nowhere (PRIORITY), or Kueue does not work"
    assert told in launch.err
    launch.interrupt()
    assert launch.wait(SOON_S) == 143, launch.err
    site.assert_nothing_left()


@pytest.mark.parametrize("moment", ["it waits", "it runs"])
def test_one_that_kueue_has_deactivated_ends_with_69_and_why(queued: Queued, moment: str) -> None:
    """By an administrator here, or after so many tries: it would wait for ever."""
    site, api = queued.site, queued.site.kubernetes.api
    first = site.launch("plain", 1, UP, "--name", "first", *queued.options)
    site.wait_for(first, "entry up")
    second = site.launch("plain", 1, UP, "--name", "second", *queued.options)
    site.wait_for(second, "second: queued")
    launch, other = (second, first) if moment == "it waits" else (first, second)
    name = "second" if moment == "it waits" else "first"
    (job,) = (job for job in site.jobs() if job["metadata"]["annotations"]["oci-cluster-name"] == name)
    workloads = f"apis/kueue.x-k8s.io/v1beta2/namespaces/{site.namespace}/workloads"
    (workload,) = (
        one
        for one in api.items(workloads)
        if one["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == job["metadata"]["uid"]
    )
    api.patch(f"{workloads}/{workload['metadata']['name']}", {"spec": {"active": False}})
    assert launch.wait(SOON_S) == 69, launch.err
    assert "Kueue has deactivated it" in launch.err.splitlines()[-1]
    other.interrupt()
    assert other.wait(SOON_S) == 143, other.err
    site.assert_nothing_left()


def test_a_cluster_that_is_larger_than_any_quota_says_so(queued: Queued) -> None:
    """Before it waits for ever."""
    site = queued.site
    launch = site.launch("plain", 5, UP, *queued.options)
    site.wait_for(launch, "it can never start: insufficient quota for pods in flavor")
    if launch.process.poll() is None:
        launch.interrupt()
    assert launch.wait(SOON_S) not in {0, 70}, launch.err
    assert "Traceback" not in launch.err
    site.assert_nothing_left()


def test_a_queue_that_is_not_there(queued: Queued) -> None:
    """A typing error: it ends at once, before anything waits, and names what was given."""
    launch = queued.site.launch("plain", 1, UP, "--queue", "nowhere")
    code = launch.wait(SOON_S)
    assert code in {69, 77, 78}, launch.err
    assert "nowhere" in launch.err.splitlines()[-1]
    queued.site.assert_nothing_left()


def test_a_preempted_cluster_comes_back_by_itself(queued: Queued) -> None:
    """A higher priority takes its place; then it lives again under its launch id, and ends with 0."""
    site = queued.site
    options = ("--name", "low", *queued.options, "--priority", queued.low)
    with claim(site.kubernetes, site.namespace, "gate") as gate:
        low = site.launch("gang", 1, UNTIL, *options, **GATE)
        wait_until(lambda: low.out.count("| life ") == 2, lambda: low.out + low.err, SOON_S)
        high = site.launch("plain", 1, RESULT, "--name", "high", *queued.options, "--priority", queued.high)
        site.wait_for(low, "preempted")
        assert high.wait(SOON_S) == 0, high.err
        (gate / "go").touch()
        assert low.wait(SOON_S) == 0, low.out + low.err
    said = lines_of(low.out, "MAIN")
    lives = [line.split() for line in said if line.startswith("life ")]
    assert len(lives) == 2, low.out + low.err
    assert len({life[2] for life in lives}) == 1
    assert said.count("trained") == 1
    site.assert_nothing_left()


def test_a_script_that_is_to_run_once_does_not_come_back(queued: Queued) -> None:
    """Its launch is stopped after so many preemptions, and none is what INTERRUPTIBLE=0 means."""
    site = queued.site
    options = ("--name", "low", *queued.options, "--priority", queued.low)
    low = site.launch("plain", 1, UP, *options, INTERRUPTIBLE="0")
    site.wait_for(low, "entry up")
    high = site.launch("plain", 1, UP, "--name", "high", *queued.options, "--priority", queued.high)
    # As its pods end, or, where that was not seen, as it would wait again.
    assert low.wait(SOON_S) in {76, 69}, low.err
    assert "INTERRUPTIBLE=0" in low.err.splitlines()[-1], low.err
    assert low.out.count("entry up") == 1
    site.wait_for(high, "entry up")
    high.interrupt()
    assert high.wait(SOON_S) == 143, high.err
    site.assert_nothing_left()
