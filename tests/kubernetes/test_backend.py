"""Clusters as Indexed Jobs of a real Kubernetes, by somebody with `edit` in one namespace: what comes out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from harness import wait_until
from kube.cluster import Cluster
from kube.images import DEBIAN
from kube.launches import GATE, SOON_S, UP, Site, lines_of
from kube.volumes import claim

# --- Followed to the end


def test_a_followed_cluster_ends_with_0_and_leaves_its_logs(site: Site) -> None:
    """Lines of all nodes, each after its name; arguments and settings arrive exactly; nothing is left."""
    arguments = ["a", "b c", "d'e", "", "two\nlines", "$HOME", "*"]
    script = (
        "import json, os, sys\n"
        "print('found', json.dumps([os.getuid(), sys.argv[1:], os.environ['GREETING_OF_MINE']]), flush=True)\n"
        "import time\n"
        "while not os.path.exists('/mnt/gate/go'): time.sleep(0.1)\n"
        "print('the result')\n"
    )
    with claim(site.kubernetes, site.namespace, "gate") as gate:
        launch = site.launch("plain", 2, script, "--env", "GREETING_OF_MINE=hel lo#1", "--", *arguments, **GATE)
        # Else main may have ended before the workers have found it.
        wait_until(lambda: launch.out.count("worker works") == 2, lambda: launch.out + launch.err, SOON_S)
        (gate / "go").touch()
        assert launch.wait(SOON_S) == 0, launch.err
    said = lines_of(launch.out, "MAIN")
    assert f"found {json.dumps([1000, arguments, 'hel lo#1'])}" in said
    assert "the result" in said
    assert [lines_of(launch.out, f"WORKER_{rank}").count("worker works") for rank in (1, 2)] == [1, 1]
    # Not for people: what main's agent tells the launcher.
    assert "told " not in launch.out
    site.assert_nothing_left()
    name = site.name
    found = site.status(name)
    codes = {node["node"]: node["exit_code"] for node in found["nodes"]}
    assert (codes.pop("MAIN"), codes.keys()) == (0, {"WORKER_1", "WORKER_2"})
    # Of a Job that has succeeded Kubernetes ends the pods: a slow one hears of that first.
    assert set(codes.values()) <= {0, 143}
    assert lines_of(site.run("logs", name), "MAIN").count("the result") == 1
    assert (site.directory / "logs" / "WORKER_2.log").read_text().count("worker works\n") == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_scripts_code_comes_out_with_the_reason(site: Site, workers: int) -> None:
    """As the last line, and in `status.sh` when all is gone."""
    launch = site.launch("plain", workers, "raise SystemExit(7)")
    assert launch.wait(SOON_S) == 7, launch.err
    last = launch.err.splitlines()[-1]
    assert "ended with 7" in last
    assert "exit code 7" in last
    site.assert_nothing_left()
    shown = site.run("status", site.name)
    assert "with 7" in shown
    assert "exit code 7" in shown


def test_of_two_launches_of_one_name_one_is_refused(site: Site) -> None:
    """At the same moment; the other one does not notice."""
    both = [site.launch("plain", 0, UP, "--name", "same") for _ in range(2)]
    wait_until(lambda: any(launch.process.poll() is not None for launch in both), "the end of one of them", SOON_S)
    second, first = sorted(both, key=lambda launch: launch.process.poll() is None)
    assert second.wait(SOON_S) == 2, second.err
    assert "a cluster named 'same' " in second.err
    site.wait_for(first, "entry up")
    (job,) = site.jobs()
    assert job["metadata"]["annotations"]["oci-cluster-name"] == "same"
    first.interrupt()
    assert first.wait(SOON_S) == 143, first.err
    site.assert_nothing_left()


def test_an_exception_is_the_reason(site: Site) -> None:
    launch = site.launch("plain", 1, "def load(): raise ValueError('bad row 7')\nload()\n")
    assert launch.wait(SOON_S) == 1, launch.err
    assert "ValueError: bad row 7 (t.py:1)" in launch.err.splitlines()[-1]
    site.assert_nothing_left()


def test_an_image_that_does_not_run_the_agent_is_no_success(site: Site) -> None:
    """Its command ends with 0: nothing of the user's has run. Followed, and waited for."""
    launch = site.launch("plain", 1, "raise SystemExit(7)", IMAGE=DEBIAN)
    assert launch.wait(SOON_S) == 78, launch.err
    # Whichever node is first.
    told = f" ended with 0 and reported nothing: the image {DEBIAN} does not run this project's agent"
    assert told in launch.err.splitlines()[-1]
    site.assert_nothing_left()
    waited = site.launch("plain", 1, "raise SystemExit(7)", "--detach", "--wait", IMAGE=DEBIAN)
    assert waited.wait(SOON_S) == 78, waited.err
    assert told in waited.err
    site.assert_nothing_left()


def test_a_rank_of_a_gang_that_fails_is_named(site: Site) -> None:
    """The first cause's code, not that of those that it takes along."""
    script = "import os, sys, time\nif os.environ['NODE_NAME'] == 'WORKER_2': sys.exit(5)\ntime.sleep(100)\n"
    launch = site.launch("gang", 2, script)
    assert launch.wait(SOON_S) == 5, launch.err
    last = launch.err.splitlines()[-1]
    assert "with 5" in last
    assert "WORKER_2" in last
    site.assert_nothing_left()
    assert "WORKER_2" in site.run("status", site.name)
    assert set(site.nodes(site.name)) == {"MAIN", "WORKER_1", "WORKER_2"}


def test_all_ranks_of_a_gang_know_each_other(site: Site, kubernetes: Cluster) -> None:
    """And each gets what was given as it was given: Kubernetes knows words of its own in values."""
    script = (
        "import os, sys, time\n"
        "names = ('NODE_NAME', 'NODE_RANK', 'WORKER_COUNT', 'GIVEN')\n"
        "print('I am', *map(os.environ.get, names), *sys.argv[1:], flush=True)\n"
        "while not os.path.exists('/mnt/gate/go'): time.sleep(0.1)\n"
    )
    given = ("--env", "GIVEN=$(LAUNCH_KEY) $$ \U0001f600", "--", "$(HOME)", "$$")
    with claim(kubernetes, site.namespace, "gate") as gate:
        launch = site.launch("gang", 2, script, *given, **GATE)
        # The end of main is that of all: a worker that its machine holds up would not have begun.
        wait_until(lambda: launch.out.count("I am") == 3, lambda: launch.out + launch.err, SOON_S)
        (gate / "go").touch()
        assert launch.wait(SOON_S) == 0, launch.err
    for rank, node in enumerate(("MAIN", "WORKER_1", "WORKER_2")):
        said = f"I am {node} {rank} 2 $(LAUNCH_KEY) $$ \U0001f600 $(HOME) $$"
        assert lines_of(launch.out, node).count(said) == 1, launch.out
    site.assert_nothing_left()


# --- Detached, and looked after from another checkout


def test_another_checkout_sees_and_scales_and_stops_a_cluster(site: Site, other_site: Site) -> None:
    """With the rights of the same user, and nothing of the first checkout's own files."""
    name = site.detached("plain", 2, UP, "--name", "mine")
    assert name
    launch_id = site.launch_id
    listed = json.loads(other_site.run("list", "--json"))
    assert [one["name"] for one in listed] == [name]
    assert name in other_site.run("list")
    all_run = ["MAIN", "WORKER_1", "WORKER_2"]
    wait_until(lambda: running(other_site, name) == all_run, lambda: f"3 nodes: {other_site.nodes(name)}", SOON_S)
    wait_until(lambda: "entry up" in other_site.run("logs", "--node", "MAIN", name), "main's log", SOON_S)
    assert "worker works" not in other_site.run("logs", "--node", "MAIN", name)
    wait_until(lambda: "worker works" in other_site.run("logs", name), "a worker's log", SOON_S)

    other_site.run("scale", name, "+1")
    wait_until(lambda: "worker works" in other_site.run("logs", "--node", "WORKER_3", name), "the third worker", SOON_S)
    assert "WORKER_3" in running(other_site, name)
    other_site.run("scale", name, "-1")
    wait_until(lambda: len(running(other_site, name)) == 3, lambda: f"3 nodes: {other_site.nodes(name)}", SOON_S)
    assert site.status(name)["nodes"]  # the first checkout sees it as the other one does

    other_site.run("stop", "--delete", name)
    other_site.assert_nothing_left()
    assert other_site.left_cluster_wide(launch_id) == []
    assert name not in other_site.run("list")


def running(site: Site, name: str) -> list[str]:
    return [node for node, found in site.nodes(name).items() if found["state"] == "IN_PROGRESS"]


def test_another_checkout_follows_the_logs_to_the_end(site: Site, other_site: Site) -> None:
    """`logs.sh -f` prints each line once, and ends with the cluster, which is there until somebody deletes it."""
    script = "import sys, time\nfor i in range(40): print('line', i, flush=True); time.sleep(0.1)\nsys.exit(3)\n"
    name = site.detached("plain", 1, script)
    shown = other_site.project.run("logs", "-f", name)
    found = [int(n) for n in re.findall(r"^MAIN\s+\| line (\d+)$", shown.stdout, re.MULTILINE)]
    assert found == list(range(40)), shown.stdout + shown.stderr
    wait_until(lambda: "with 3" in other_site.run("status", name), lambda: other_site.run("status", name), SOON_S)
    assert site.jobs()
    # Later, too, from the pods that have ended.
    assert "line 39" in other_site.run("logs", name)
    other_site.run("stop", "--delete", name)
    other_site.assert_nothing_left()


def test_a_log_without_its_beginning_says_so_and_what_main_told_stays(site: Site, other_site: Site) -> None:
    """Of a detached cluster, whose log nobody has copied: a kubelet keeps the last lines of a long one."""
    script = (
        "import time\ntime.sleep(6)\nfor i in range(30_000): print('line', i, 'x' * 80, flush=True)\n"
        "while True: print('and on', flush=True); time.sleep(0.1)\n"
    )
    name = site.detached("plain", 1, script)
    log: Callable[[], str] = lambda: other_site.run("logs", "--node", "MAIN", name)  # noqa: E731
    # The beginning may go while lines are still to come.
    shown = wait_until(
        lambda: "and on" in (text := log()) and "is gone: Kubernetes keeps" in text and text,
        lambda: f"the log to lose its beginning: {log()[-2000:]}",
        SOON_S,
    )
    assert shown.startswith("MAIN | ... the beginning of this log, ")
    assert "line 0 x" not in shown
    # Main tells it anew, every few seconds.
    facts: Callable[[], Any] = lambda: other_site.status(name)["facts"]  # noqa: E731
    head: Callable[[], str] = lambda: site.kubernetes.api.get(  # noqa: E731
        f"{site.pod(0)}/log", container="node", limitBytes=1 << 20
    )
    seen: Callable[[], str] = lambda: f"the facts: {facts()}; told in {head().count('told ready')} lines"  # noqa: E731
    wait_until(lambda: facts().get("greeting") == "hello", seen, SOON_S)
    other_site.run("stop", "--delete", name)


def test_an_image_that_nobody_has_is_told_once_and_ends_with_75(site: Site) -> None:
    """`--detach --wait` ends with the launch's code. What Kubernetes says of it changes every few seconds."""
    options = ("--detach", "--wait", "--name", "never")
    launch = site.launch("plain", 1, UP, *options, IMAGE="localhost/not-there:1", PROVISION_TIMEOUT="20")
    assert launch.wait(SOON_S) == 75, launch.err
    site.assert_nothing_left()
    said = [line for line in launch.err.splitlines() if "image" in line and "localhost/not-there:1" in line]
    assert 1 <= len(said) <= 3, launch.err  # once for each node, or for both; and at the end


def test_nodes_without_a_place_end_with_75(site: Site) -> None:
    """Nobody has 100 CPUs."""
    launch = site.launch("plain", 1, UP, CPUS="100", PROVISION_TIMEOUT="6")
    assert launch.wait(SOON_S) == 75, launch.err
    site.assert_nothing_left()
    assert "MAIN, WORKER_1 did not start" in launch.err.splitlines()[-1]
    assert "Insufficient cpu" in launch.err  # in the scheduler's words
