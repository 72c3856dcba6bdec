"""quota.sh on a real Kueue: teams are made, changed, pruned, shown, held and resumed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import wait_until
from kube.cluster import Cluster
from kube.identity import new_name
from quotas import API, GPU, Two, ready, run, two_teams

from oci_cluster.errors import BackendError, NotPermittedError, UsageError


@pytest.fixture
def two(kubernetes: Cluster, tmp_path: Path) -> Iterator[Two]:
    """Return two teams, whose table is not applied yet."""
    with two_teams(kubernetes, tmp_path / "teams.yaml") as made:
        yield made


# --- apply ------------------------------------------------------------------------------------------------------------


def test_a_table_is_applied_once_and_a_second_time_changes_nothing(two: Two) -> None:
    tried = two.apply("--dry-run")
    assert two.objects() == {}
    assert tried.said == "a dry run: nothing was changed; it would be 7 added, 2 changed"  # of namespaces the labels
    done = two.apply()
    assert (done.shown, done.said) == (tried.shown, "7 added, 2 changed")
    assert f"+ ClusterQueue {two.a} added" in done.shown
    assert f"flavors[{two.flavor}].resources[{GPU}].nominalQuota: 8" in done.shown
    before = two.generations()
    assert len(before) == 7
    again = two.apply()
    assert (again.shown, again.said) == ("", f"nothing changes: all is as {two.file} says")
    assert two.generations() == before


def test_a_change_is_told_from_what_to_what(two: Two) -> None:
    two.apply()
    row = two.table["teams"][two.a]["quota"][two.flavor]
    row |= {"gpus": 12, "borrow": {"gpus": 4}}
    done = two.apply()
    place = f"spec.resourceGroups[0].flavors[{two.flavor}].resources[{GPU}]"
    assert done.shown.splitlines() == [
        f"~ ClusterQueue {two.a} changed",
        f"    + {place}.borrowingLimit: 4",
        f"    - {place}.nominalQuota: 8",
        f"    + {place}.nominalQuota: 12",
    ]
    del row["borrow"]
    assert f"    - {place}.borrowingLimit: 4" in two.apply().shown
    assert two.apply().shown == ""


def test_labels_of_a_flavor_can_come_and_go(two: Two) -> None:
    two.apply()
    flavor = two.table["flavors"][two.flavor]
    flavor |= {"labels": {"quota.example/shape": "x"}, "taints": ["a=b:NoSchedule"], "tolerations": ["a"]}
    assert "+ spec.nodeLabels.quota.example/shape: x" in two.apply().shown
    for key in ("labels", "taints", "tolerations"):
        del flavor[key]
    assert "- spec.nodeLabels.quota.example/shape: x" in two.apply().shown
    assert two.apply().shown == ""


def test_a_queue_that_would_change_its_team_is_named_with_what_helps(two: Two) -> None:
    two.table["teams"][two.a]["queue"] = "main"
    two.apply()
    two.table["teams"] = {new_name("other"): {**two.table["teams"][two.a], "namespace": two.a}}
    with pytest.raises(BackendError) as caught:
        two.apply()
    assert f"remove it, and apply again: kubectl delete localqueue main -n {two.a}" in str(caught.value)
    two.cluster.api.delete(f"{API}/namespaces/{two.a}/localqueues/main")
    assert f"+ LocalQueue {two.a}/main added" in two.apply().shown


def test_a_team_that_is_not_in_the_table_any_more_goes_with_prune_alone(two: Two) -> None:
    """What others have made stays, as do namespaces."""
    two.apply()
    foreign = f"{API}/clusterqueues/{new_name('foreign')}"
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "spec": {}}
    labels = {"oci-cluster-teams": "of-another-table"}
    two.cluster.api.create(
        f"{API}/clusterqueues", body | {"metadata": {"name": foreign.rpartition("/")[2], "labels": labels}}
    )
    try:
        del two.table["teams"][two.b]
        kept = two.apply()
        assert kept.shown.splitlines() == [f"! LocalQueue {two.b}/{two.b} kept", f"! ClusterQueue {two.b} kept"]
        assert "--prune removes it" in kept.said
        assert len(two.objects()) == 7
        done = two.apply("--prune")
        assert done.shown.splitlines() == [f"- LocalQueue {two.b}/{two.b} removed", f"- ClusterQueue {two.b} removed"]
        wait_until(lambda: len(two.objects()) == 5, lambda: f"two to be gone: {list(two.objects())}")
        assert two.cluster.api.get(f"api/v1/namespaces/{two.b}")["status"]["phase"] == "Active"
        assert two.cluster.api.get(foreign)
    finally:
        two.cluster.api.delete(foreign)


def test_what_somebody_else_manages_is_named_and_taken_by_force_alone(two: Two) -> None:
    two.apply()
    path = f"{API}/clusterqueues/{two.a}"
    two.cluster.api.ask(
        "PATCH", path, {"spec": {"cohortName": "of-others"}}, kind="merge-patch+json", fieldManager="bob"
    )
    two.table["teams"][two.b]["quota"][two.flavor]["gpus"] = 9
    with pytest.raises(BackendError) as caught:
        two.apply()
    assert f"  ClusterQueue {two.a}: Kubernetes refused" in str(caught.value)
    assert 'conflict with "bob"' in str(caught.value)
    assert ".spec.cohortName; --force takes over what is named" in str(caught.value)
    assert "nothing was changed" in str(caught.value)
    assert two.row(two.b)["nominal"] == "8"
    forced = two.apply("--force").shown
    assert f"    - spec.cohortName: of-others\n    + spec.cohortName: {two.table['cohort']}" in forced
    assert two.row(two.b)["nominal"] == "9"
    assert two.apply().shown == ""


def test_a_namespace_that_is_not_there_is_made_and_stays(two: Two) -> None:
    name = new_name("made")
    two.table["teams"][two.a]["namespaces"] = [two.a, name]
    try:
        done = two.apply()
        assert f"+ Namespace {name} added" in done.shown
        assert f"+ LocalQueue {name}/{two.a} added" in done.shown
        assert two.apply().shown == ""
    finally:
        two.cluster.api.delete(f"api/v1/namespaces/{name}")


# --- Who may what -----------------------------------------------------------------------------------------------------


def test_who_has_the_role_edit_is_told_what_it_may_not(two: Two) -> None:
    two.apply()
    before = two.generations()
    user = two.cluster.user(two.a).by_token()
    two.table["teams"][two.a]["quota"][two.flavor]["gpus"] = 100
    two.apply("--dry-run")  # writes the file
    with pytest.raises(NotPermittedError) as caught:
        run(user, "quota", "apply", str(two.file))
    said = str(caught.value)
    assert said.startswith("you may not patch namespaces, get namespaces, ")
    assert "get clusterqueues.kueue.x-k8s.io" in said
    assert "scripts/queue.sh shows your own clusters" in said
    for words in (["show"], ["hold", two.a], ["resume", two.a]):
        with pytest.raises(NotPermittedError, match=r"you may not \w+ clusterqueues.kueue.x-k8s.io"):
            run(user, "quota", *words)
    assert two.generations() == before


# --- show, hold, resume -----------------------------------------------------------------------------------------------


def test_amounts_are_right_while_a_cluster_borrows(two: Two) -> None:
    two.apply()
    api = two.cluster.api
    with two.job(two.a, "large", 12) as path:
        api.until(path, ready(12), "all nodes to run")
        wait_until(lambda: two.row(two.a)["used"] == "12", lambda: f"12 used: {two.row(two.a)}")
        a, b = two.row(two.a), two.row(two.b)
        assert [a[key] for key in ("state", "running", "waiting", "nominal", "borrowed")] == ["open", 1, 0, "8", "4"]
        assert [b[key] for key in ("used", "borrowed")] == ["0", "0"]
        rows = [line.split() for line in two.quota("show").shown.splitlines()]
        assert rows[0][:2] == ["TEAM", "STATE"]
        assert [two.flavor, GPU, "8", "12", "4"] in [row[-5:] for row in rows]
    wait_until(lambda: two.row(two.a)["used"] == "0", lambda: f"none used: {two.row(two.a)}")


def test_a_team_that_is_held_starts_nothing_until_it_is_resumed(two: Two) -> None:
    """What runs goes on; an apply in between resumes nothing."""
    two.apply()
    api = two.cluster.api
    with two.job(two.a, "before", 2) as running:
        api.until(running, ready(2), "the first to run")
        said = two.quota("hold", two.a).said
        assert said.startswith(f"{two.a} is held: of its clusters, 1 that run go on to their end; 0 that wait")
        assert "held already" in two.quota("hold", two.a).said
        with two.job(two.a, "later", 2) as waiting:
            held = f"ClusterQueue {two.a} is inactive"
            wait_until(lambda: two.row_of(two.a, "later").get("why") == held, lambda: str(two.row_of(two.a, "later")))
            assert two.apply().shown == ""
            assert two.row(two.a)["state"] == "held"
            assert api.get(waiting)["spec"]["suspend"] is True
            assert api.get(running)["status"]["ready"] == 2
            assert f"{two.a} is resumed: 1 that wait start in their order" in two.quota("resume", two.a).said
            api.until(waiting, ready(2), "the second to run")
        assert "is not held" in two.quota("resume", two.a).said


def test_a_hold_with_drain_ends_what_runs_and_a_resume_runs_it_again(two: Two) -> None:
    two.apply()
    api = two.cluster.api
    with two.job(two.a, "drained", 2) as path:
        api.until(path, ready(2), "it to run")
        assert "1 that run are ended" in two.quota("hold", two.a, "--drain").said
        api.until(path, lambda job: job["spec"]["suspend"] and not job["status"].get("active"), "it to end")
        wait_until(lambda: two.row_of(two.a, "drained").get("state") == "WAITING", lambda: str(two.queue().shown))
        line = two.row_of(two.a, "drained")["line"]
        assert "The ClusterQueue is stopped" in line
        assert two.row(two.a)["state"] == "held, drained"
        two.quota("resume", two.a)
        api.until(path, ready(2), "it to run again")


def test_a_team_that_is_not_there_is_named_with_those_that_are(two: Two) -> None:
    two.apply()
    with pytest.raises(UsageError, match=f"there is no team 'nobody'; there is: .*{two.a}"):
        two.quota("hold", "nobody")
    with pytest.raises(UsageError, match=f"there is no team 'nobody' whose queue you can see; there is: .*{two.a}"):
        two.queue("nobody")
