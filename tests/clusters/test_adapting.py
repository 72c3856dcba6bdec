"""Clusters that adapt: Dask's grow with their work and shrink without, and nothing is lost on the way."""

from __future__ import annotations

import re

from harness import Project, wait_until
from oci_cloud import Cloud, wait
from wishing import wishing

# Dask looks once a second, and lets a node go that has had no work at three looks; here five times as often. And it
# wants as many nodes as have all done within a second, not five.
OFTEN = (
    *("--env", "DASK_DISTRIBUTED__ADAPTIVE__INTERVAL=200ms"),
    *("--env", "DASK_DISTRIBUTED__ADAPTIVE__TARGET_DURATION=1s"),
)
# Tasks that sleep until all workers are there, however long these take to come. What is scattered is on one worker
# each, and so on those that leave.
BURST = """
import os, time
from distributed import Client, wait

def slow(number, grown):
    while not os.path.exists(grown):
        time.sleep(0.05)
    return number * number

def until(condition, what):
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)

with Client() as client:
    def workers():
        return {worker["name"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()}

    print("at first", sorted(workers()), flush=True)
    futures = client.map(slow, range(40), grown=os.path.abspath("grown"))
    until(lambda: len(workers()) == 3, "no third worker")
    kept = client.scatter(list(range(100, 130)), hash=False)
    until(lambda: len({name for names in client.who_has(kept).values() for name in names}) == 3, "not on all")
    open("grown", "w").close()
    wait(futures)
    print("sum", sum(client.gather(futures)), flush=True)
    until(lambda: len(workers()) == LEAST, "the others stay")
    print("shrunk to", len(workers()), "sums", sum(client.gather(futures)), sum(client.gather(kept)), flush=True)
    until(lambda: os.path.exists("go"), "no go")
    print("again", client.submit(sum, [1, 2]).result(), flush=True)
"""
SUMS = f"sums {sum(number * number for number in range(40))} {sum(range(100, 130))}"


def changes(text: str) -> list[tuple[int, int]]:
    return [(int(one), int(other)) for one, other in re.findall(r"adapting: (\d+) -> (\d+) workers", text)]


def test_a_burst_of_tasks_grows_the_cluster_and_nothing_is_lost_when_it_shrinks(project: Project) -> None:
    """From 1 to 3 and back, within ADAPT though there is work for more; the launcher says each change."""
    entry = project.write("burst.py", BURST.replace("LEAST", "1"))
    launch = project.launch("dask", "1", "--entry", entry, *OFTEN, ADAPT="1:3")
    launch.wait_for("shrunk to 1")
    wait_until(lambda: launch.err.count("has left") >= 2, lambda: f"two nodes to leave: {launch.err}")
    project.go()
    assert launch.wait() == 0, launch.err
    assert "at first ['WORKER_1']" in launch.out
    assert f"shrunk to 1 {SUMS}" in launch.out
    assert "again 3" in launch.out
    found = changes(launch.err)
    assert (found[0][0], found[-1][1]) == (1, 1)
    assert max(after for _, after in found) == 3
    assert "Traceback" not in launch.out
    launch.assert_nothing_left()


def test_a_cluster_without_workers_is_ready_at_once_and_gets_them_with_its_first_task(project: Project) -> None:
    """Nobody is waited for; and at the end none is there again."""
    script = (
        "import os, time\nfrom distributed import Client\n"
        "with Client() as client:\n"
        "    def count(): return len(client.scheduler_info(n_workers=-1)['workers'])\n"
        "    print('at first', count(), flush=True)\n"
        "    print('sum', client.submit(sum, [1, 2]).result(), flush=True)\n"
        "    while count(): time.sleep(0.05)\n"
        "    print('none left', flush=True)\n"
        "    while not os.path.exists('go'): time.sleep(0.05)\n"
    )
    launch = project.launch("dask", "0", "--entry", project.write("none.py", script), "--env", "ADAPT=0:2", *OFTEN)
    wait_until(lambda: changes(launch.err)[:2] == [(0, 1), (1, 0)], lambda: f"both changes:\n{launch.err}")
    project.go()
    assert launch.wait() == 0, launch.err
    assert re.search(r"at first 0\n(.*\n)*.*sum 3\n(.*\n)*.*none left\n", launch.out)
    launch.assert_nothing_left()


def test_a_detached_cluster_says_that_nobody_can_start_what_it_wishes_for(project: Project) -> None:
    """Once, with what a person can do; that is what then happens. None of its workers is let go."""
    script = (
        "import os, time\nfrom distributed import Client\n"
        "def slow(number, grown):\n    while not os.path.exists(grown): time.sleep(0.05)\n    return number\n"
        "with Client() as client:\n"
        "    futures = client.map(slow, range(30), grown=os.path.abspath('grown'))\n"
        "    while len(client.scheduler_info(n_workers=-1)['workers']) < 2: time.sleep(0.05)\n"
        "    open('grown', 'w').close()\n"
        "    print('sum', sum(client.gather(futures)), flush=True)\n"
        "    while not os.path.exists('go'): time.sleep(0.05)\n"
    )
    entry = project.write("detached.py", script)
    launch = project.launch("dask", "1", "--entry", entry, "--detach", "--name", "mine", *OFTEN, ADAPT="1:3")
    assert launch.wait() == 0, launch.err
    launch.wait_for("workers wanted: 3, there: 1")
    launch.wait_for("by hand: scripts/scale.sh mine +2")
    assert project.run("scale", "mine", "+1").stdout == "2\n"
    launch.wait_for(f"sum {sum(range(30))}")
    assert launch.log("MAIN").count("workers wanted") == 1
    project.go()
    wait_until(lambda: "ending with 0" in launch.log("MAIN"), "the end")
    assert project.run("stop", "mine").returncode == 0
    launch.assert_nothing_left()


def test_on_oci_any_worker_may_go(cloud: Cloud) -> None:
    """By files in the bucket; the Job Run that is canceled is not the last one's."""
    script, steps = wishing(("workers=2", (1, 2)), ("workers=1 idle=WORKER_1", (2,)))
    launch = cloud.launch_plain(1, script, "--", steps, ADAPT="1:3", POLL_CEILING="0.5")
    assert wait(launch) == 0, launch.err + launch.out
    assert changes(launch.err) == [(1, 2), (2, 1)]
    cloud.assert_nothing_runs()
