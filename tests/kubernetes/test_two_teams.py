"""Two teams of 8 GPUs each, which lend to each other: whole clusters of theirs are preempted, wait, and come back."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from harness import UNTIL_GO, Launch, wait_until
from kube.api import Object
from kube.cluster import Cluster
from kube.identity import new_name
from kube.launches import SOON_S, UP, Site, copy_checkout, lines_of, site_of
from kube.teams import Team, teams
from kube.volumes import claim

# Those of both teams, which borrow from each other; and what a pod is that holds none any more.
MACHINES = 16
ENDED = {"Succeeded", "Failed"}

# Of each worker alone: others give theirs to the nodes, and take them away, at the same time.
GPU = f"teams.example/gpu-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
# Main does six steps, and waits after the third for a file on the volume.
STEPS = """\
import os, time
from pathlib import Path
checkpoint = Path(os.environ["OUTPUT_DIR"], "checkpoint")
done = int(checkpoint.read_text()) if checkpoint.exists() else 0
print("life", os.environ["LIFE"], "begins with step", done, flush=True)
while done < 6:
    if done == 3:
        print("step 3 is done", flush=True)
        while not Path("/mnt/work/go").exists(): time.sleep(0.05)
    done += 1
    checkpoint.with_suffix(".new").write_text(str(done))
    checkpoint.with_suffix(".new").rename(checkpoint)
print("trained", flush=True)
"""


class OfTeam:
    """Somebody with `edit` in a team's namespace, and nothing else."""

    def __init__(self, team: Team, site: Site, volume: Path) -> None:
        self.team = team
        self.site = site
        self.volume = volume

    def launch(self, name: str, nodes: int, script: str, **environ: str) -> Launch:
        """Launch a cluster of *nodes*, with a GPU each."""
        given = {"GPUS": "1", "GPU_RESOURCE": GPU, "VOLUMES": "work=pvc:work", "WORK_DIR": "file:///mnt/work"}
        options = ("--name", name, "--queue", self.team.queue)
        return self.site.launch("plain", nodes - 1, script, *options, **given, **environ)

    def states(self, name: str) -> set[str]:
        return {node["state"] for node in self.site.status(name)["nodes"]}

    def assert_only_the_claim_is_left(self) -> None:
        wait_until(lambda: self.site.left() == ["persistentvolumeclaims/work"], lambda: str(self.site.left()), SOON_S)

    def holding(self) -> int:
        """Return how many machines the team's clusters hold: pods that are there, and have not ended."""
        pods = self.site.kubernetes.api.items(f"api/v1/namespaces/{self.site.namespace}/pods")
        return sum(pod["status"].get("phase") not in ENDED for pod in pods)


@pytest.fixture
def low(kubernetes: Cluster) -> str:
    return new_name("low")


@pytest.fixture
def two(
    kubernetes: Cluster, toy_image: str, checkout_copy: Path, tmp_path_factory: pytest.TempPathFactory, low: str
) -> Iterator[dict[str, OfTeam]]:
    """Return somebody of team a and somebody of team b, each with a checkout and a volume."""
    checkouts = {"a": checkout_copy, "b": copy_checkout(tmp_path_factory.mktemp("b") / "another project")}
    with ExitStack() as stack:
        for node in kubernetes.nodes:
            kubernetes.set_resource(node, GPU, 8)
            stack.callback(kubernetes.set_resource, node, GPU, 0)
        made = stack.enter_context(teams(kubernetes, {"a": {GPU: 8}, "b": {GPU: 8}}, priorities={low: -10}))
        found = {}
        for name, team in made.items():
            volume = stack.enter_context(claim(kubernetes, team.namespace, "work"))
            kubeconfig = kubernetes.user(team.namespace).by_certificate()
            scratch = tmp_path_factory.mktemp(name) / "mine"
            site = stack.enter_context(site_of(checkouts[name], scratch, kubernetes, team.namespace, kubeconfig))
            found[name] = OfTeam(team, site, volume)
        yield found


def test_what_is_borrowed_is_given_back_and_the_borrower_comes_back(two: dict[str, OfTeam], low: str) -> None:
    """A's cluster of 12 runs on B's GPUs, too. B asks for its 8: A's ends as a whole, waits, and resumes after B's."""
    a, b = two["a"], two["b"]
    first = a.launch("large", 12, STEPS, PRIORITY=low)
    wait_until(lambda: "step 3 is done" in first.out, lambda: first.out + first.err, SOON_S)
    wait_until(lambda: a.states("large") == {"IN_PROGRESS"}, lambda: str(a.site.status("large")), SOON_S)
    second = b.launch("own", 8, UP)
    wait_until(lambda: "entry up" in second.out, lambda: second.out + second.err, SOON_S)
    # As a whole: also the four that its own quota would have let run, whose end B need not wait for.
    wait_until(lambda: a.holding() == 0, lambda: f"nothing to be held: {a.holding()}", SOON_S)
    told = rf"preempted (\w+ ago )?by {b.team.cluster_queue} and queued again: insufficient unused quota for {GPU} in"
    a.site.wait_for(first, f"by {b.team.cluster_queue} and queued again")
    # Kueue says what is missing when it has tried it again.
    wait_until(lambda: re.search(told, a.site.run("status", "large")), lambda: a.site.run("status", "large"), SOON_S)
    waiting = a.site.status("large")
    assert (waiting["state"], a.states("large")) == ("PREEMPTED", {"PREEMPTED"})
    assert re.match(told, waiting["queue"]), waiting["queue"]
    wait_until(lambda: b.states("own") == {"IN_PROGRESS"}, lambda: str(b.site.status("own")), SOON_S)
    (a.volume / "go").touch()
    second.interrupt()
    assert second.wait(SOON_S) == 143, second.err
    assert first.wait(SOON_S) == 0, first.out + first.err
    said = lines_of(first.out, "MAIN")
    assert [line for line in said if line.startswith("life ")] == [
        "life 1 begins with step 0",
        "life 2 begins with step 3",
    ]
    assert said.count("trained") == 1
    for one in (a, b):
        one.assert_only_the_claim_is_left()


def test_a_cluster_larger_than_all_quotas_together_is_told_at_once(two: dict[str, OfTeam]) -> None:
    launch = two["a"].launch("huge", 17, UP)
    assert launch.wait(SOON_S) == 69, launch.err
    last = launch.err.splitlines()[-1]
    assert f"it can never start: insufficient quota for {GPU} in flavor" in last
    assert "(17) > maximum capacity (16)" in last
    two["a"].assert_only_the_claim_is_left()


def test_two_that_do_not_fit_together_never_hold_half_each(two: dict[str, OfTeam]) -> None:
    """Both borrow, and are launched together: one runs whole, and the other after it."""
    until_go = UNTIL_GO.replace("'go'", "'/mnt/work/go'")
    clusters = [(one, one.launch("nine", 9, until_go)) for one in two.values()]
    namespaces = [one.site.namespace for one, _ in clusters]

    def state_of(pod: Object) -> str:
        phase = str(pod["status"].get("phase"))
        return "ending" if "deletionTimestamp" in pod["metadata"] and phase not in ENDED else phase

    def are_over() -> bool:
        pods = clusters[0][0].site.kubernetes.api.items("api/v1/pods")  # of both, at one moment
        states = [[state_of(pod) for pod in pods if pod["metadata"]["namespace"] == it] for it in namespaces]
        held = [[state for state in states_of if state not in ENDED] for states_of in states]
        # The quota of pods that have ended is free: the second may begin while the last ones of the first are ending,
        # also when those that have ended are gone.
        is_ending = any(not {"Succeeded", "ending"}.isdisjoint(states_of) for states_of in states)
        assert [] in held or is_ending, f"both hold machines: {states}"
        assert sum(map(len, held)) <= MACHINES, f"more than there are: {states}"
        if any("queued" in launch.err for _, launch in clusters):
            for one in two.values():
                (one.volume / "go").touch()
        return all(launch.process.poll() is not None for _, launch in clusters)

    # One after the other, and each has nine pods to start. The first waits for the second to be told that it waits.
    wait_until(are_over, lambda: "\n".join(launch.err for _, launch in clusters), 2 * SOON_S)
    for one, launch in clusters:
        assert launch.wait(0) == 0, launch.err
        one.assert_only_the_claim_is_left()
