"""The Role of docs/kubernetes-admin.md on a real Kubernetes: enough for all verbs, and each rule is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import Launch, wait_until
from kube.cluster import Cluster, User
from kube.faults import FaultyProxy
from kube.launches import SOON_S, UP, Site, site_of
from kube.teams import Team, teams
from kube.volumes import claim
from kubernetes_rights import CLUSTER_WIDE, Right, documented, rights_of, rules

# A worker that is none of the last is removed by its pod only when it is silent, for minutes: the unit ring has that.
LATE: Right = ("", "pods", "delete")
NOT_GIVEN = (
    "create pods",
    "create pods/exec",
    "update jobs.batch",
    "update secrets",
    "list secrets",
    "patch pods",
    "list nodes",
)
# For a try by hand: the number of a rule to leave out, from 0. The test must fail then, for each of them.
WITHOUT = os.environ.get("WITHOUT_RULE", "")


@dataclass
class Somebody:
    """Who has the Role, and nothing else; all that is asked goes through a proxy."""

    site: Site
    user: User
    team: Team
    proxy: FaultyProxy

    def launch(self, name: str, *options: str, **environ: str) -> Launch:
        return self.site.launch("plain", 1, UP, "--name", name, *options, **environ)

    def asked(self) -> set[Right]:
        return {
            right
            for one in self.proxy.seen
            if (path := one.path.partition("?")[0]) != CLUSTER_WIDE
            for right in rights_of(one.method, path)
        }

    def refused(self) -> set[str]:
        return {f"{one.method} {one.path}" for one in self.proxy.seen if one.status == 403}


@pytest.fixture
def somebody(
    kubernetes: Cluster, toy_image: str, proxy: FaultyProxy, checkout_copy: Path, tmp_path: Path
) -> Iterator[Somebody]:
    """Return somebody in a team whose queue has room for one cluster of two nodes."""
    given = [rule for number, rule in enumerate(rules()) if str(number) != WITHOUT]
    with teams(kubernetes, {"a": {"pods": 3}}) as made:
        team = made["a"]
        user = kubernetes.user(team.namespace, rules=given)
        kubeconfig = user.by_token(proxy.url)
        with (
            claim(kubernetes, team.namespace, "work"),
            site_of(checkout_copy, tmp_path / "mine", kubernetes, team.namespace, kubeconfig) as site,
        ):
            yield Somebody(site, user, team, proxy)


def use_all_verbs(mine: Somebody) -> None:
    """Have a cluster on a volume, with every verb; all that is made is made once without an answer."""
    site = mine.site
    for kind in ("secrets", "services", "networkpolicies"):
        mine.proxy.add(is_lost=True, method="POST", path=f"/{kind}$", times=1)
    volume = {"VOLUMES": "work=pvc:work", "WORK_DIR": "file:///mnt/work"}
    name = site.detached("plain", 1, UP, "--name", "mine", **volume)
    assert name in site.run("list")
    # This main waits for nobody.
    wait_until(lambda: {node["state"] for node in site.status(name)["nodes"]} == {"IN_PROGRESS"}, "all nodes", SOON_S)
    wait_until(lambda: "entry up" in site.run("logs", name), "main's log", SOON_S)
    # Nobody listens there: how soon the kubelet says so is tested elsewhere, and who may not ask ends with 77.
    assert site.project.run("connect", name, "--port", "7", "--check").returncode in {0, 69}
    site.run("scale", name, "+1")
    wait_until(lambda: len(site.pods()) == 3, "a third pod", SOON_S)
    site.run("scale", name, "-1")
    site.run("stop", "--delete", name)


def wait_in_a_queue(mine: Somebody) -> None:
    """Wait behind another cluster, and be told why; and ask for a queue that is not there."""
    first = mine.launch("first", "--queue", mine.team.queue)
    mine.site.wait_for(first, "entry up")
    second = mine.launch("second", "--queue", mine.team.queue)
    mine.site.wait_for(second, ", place 1 of 1 in a-queue: insufficient unused quota for pods in flavor")
    for one in (second, first):
        one.interrupt()
        assert one.wait(SOON_S) == 143, one.err
    nowhere = mine.launch("lost", "--queue", "nowhere")
    assert nowhere.wait(SOON_S) in {69, 77, 78}, nowhere.err
    assert f"there is: {mine.team.queue}" in nowhere.err


def remove_what_was_made_by_hand(mine: Somebody, file: Path) -> None:
    """Have a dry run created by kubectl: nobody owns its objects, and `stop --delete` removes them."""
    site = mine.site
    dry = mine.launch("by-hand", "--dry-run")
    assert dry.wait(SOON_S) == 0, dry.err
    file.write_text(dry.out)
    made = site.kubernetes.kubectl("create", "-f", str(file), kubeconfig=mine.user.by_token())
    assert made.returncode == 0, made.stderr
    site.run("stop", "--delete", "by-hand")


def be_refused_pods(mine: Somebody) -> None:
    """Be told in the words of the API why there are none."""
    quotas = f"api/v1/namespaces/{mine.team.namespace}/resourcequotas"
    api = mine.site.kubernetes.api
    api.create(quotas, {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}})
    api.until(f"{quotas}/small", lambda found: "hard" in found.get("status", {}), "the quota to hold")
    launch = mine.launch("none", PROVISION_TIMEOUT="8")
    assert launch.wait(SOON_S) == 75, launch.err
    assert "exceeded quota: small" in launch.err
    api.delete(f"{quotas}/small")


def test_the_role_of_the_docs_is_enough_and_each_right_is_used(somebody: Somebody, tmp_path: Path) -> None:
    """`kubectl auth can-i` agrees: with each right of the page, and with others that it does not give."""
    use_all_verbs(somebody)
    wait_in_a_queue(somebody)
    remove_what_was_made_by_hand(somebody, tmp_path / "objects.yaml")
    be_refused_pods(somebody)
    wait_until(lambda: somebody.site.left() == ["persistentvolumeclaims/work"], "nothing else to be left", SOON_S)
    assert {path for path in somebody.refused() if CLUSTER_WIDE not in path} == set()
    assert documented() - somebody.asked() <= {LATE}
    assert somebody.asked() <= documented()
    may = {right: can(somebody, *_words(right)) for right in documented()}
    assert set(may.values()) == {"yes"}, may
    may_not = {words: can(somebody, *words.split()) for words in NOT_GIVEN}
    assert set(may_not.values()) == {"no"}, may_not


def can(mine: Somebody, *words: str) -> str:
    """Return what `kubectl auth can-i` says to whom the Role was given."""
    done = mine.site.kubernetes.kubectl(
        "auth", "can-i", *words, f"--namespace={mine.team.namespace}", kubeconfig=mine.user.by_token()
    )
    return done.stdout.strip()


def _words(right: Right) -> list[str]:
    group, resource, verb = right
    kind, _, sub = resource.partition("/")
    return [verb, f"{kind}.{group}" if group else kind, *([f"--subresource={sub}"] if sub else [])]
