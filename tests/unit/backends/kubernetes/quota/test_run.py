"""What quota.sh and queue.sh ask, send, print and refuse; on objects in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.backends.kubernetes.fake_api import KUEUE, FakeApi, forbidden

from oci_cluster.backends.kubernetes.quota import run as quota
from oci_cluster.errors import BackendError, NotPermittedError, SettingsError, UsageError
from oci_cluster.system.screen import WHOLE, Screen

TABLE = """\
priorities: {low: 1}
flavors: {a10: {}}
teams:
  a: {quota: {a10: {gpus: 8, cpus: 1, memory: 1Gi}}}
"""
JOB_UID = "kueue.x-k8s.io/job-uid"
QUEUES = f"{KUEUE}/v1beta2/clusterqueues"
Run = Callable[..., tuple[str, str]]


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def run(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Return what runs a verb, and returns what it has printed and said; ``table`` is the file's content."""
    monkeypatch.setattr(quota, "open_access", lambda _: None)
    monkeypatch.setattr(quota, "Service", lambda *_, **__: api.service())
    monkeypatch.chdir(tmp_path)

    def run(*words: str, table: str = TABLE, screen: Screen = WHOLE) -> tuple[str, str]:
        Path("t.yaml").write_text(table)
        shown: list[str] = []
        said: list[str] = []
        options = {word: [""] for word in words if word.startswith("--")}
        plain = [word for word in words if not word.startswith("--")]
        assert quota.run(plain[0], plain[1:], options, {}, quota.Out(shown.append, said.append, screen)) == 0
        return "\n".join(shown), "\n".join(said)

    return run


# --- apply ------------------------------------------------------------------------------------------------------------


def test_an_apply_sends_all_once_in_order_and_a_second_one_nothing(api: FakeApi, run: Run) -> None:
    assert run("quota", "apply", "t.yaml", "--dry-run")[1] == "a dry run: nothing was changed; it would be 5 added"
    assert api.sent == []
    assert run("quota", "apply", "t.yaml")[1] == "5 added"
    kinds = ["namespaces", "workloadpriorityclasses", "resourceflavors", "clusterqueues", "localqueues"]
    assert [line.split("/")[-2] for line in api.sent] == kinds
    api.sent.clear()
    assert run("quota", "apply", "t.yaml") == ("", "nothing changes: all is as t.yaml says")
    assert api.sent == []


def test_only_what_changes_is_sent(api: FakeApi, run: Run) -> None:
    run("quota", "apply", "t.yaml")
    api.sent.clear()
    shown, said = run("quota", "apply", "t.yaml", table=TABLE.replace("gpus: 8", "gpus: 9"))
    assert (shown.splitlines()[0], said, api.sent) == ("~ ClusterQueue a changed", "1 changed", [f"PATCH {QUEUES}/a"])


def test_a_change_is_told_with_its_place_and_so_is_another_order(api: FakeApi, run: Run) -> None:
    """Flavors are tried in their order; what the API keeps for itself is no change."""
    two = TABLE.replace("{a10: {}}", "{a10: {}, h100: {}}").replace(
        "1Gi}", "1Gi}, h100: {gpus: 4, cpus: 1, memory: 1Gi}"
    )
    run("quota", "apply", "t.yaml", table=two)
    there = api.objects[f"{QUEUES}/a"]
    there["metadata"] |= {"resourceVersion": "7", "generation": 3, "managedFields": [{"manager": "x"}]}
    there["status"] = {"reservingWorkloads": 1}
    there["spec"] = dict(reversed(there["spec"].items()))
    assert run("quota", "apply", "t.yaml", table=two)[0] == ""
    other = two.replace("gpus: 4,", "gpus: 5, borrow: no,").replace("quota:", "lend: yes, quota:")
    place = "spec.resourceGroups[0].flavors[h100].resources"
    assert run("quota", "apply", "t.yaml", "--dry-run", table=other)[0].splitlines() == [
        "~ ClusterQueue a changed",
        f"    + {place}[cpu].borrowingLimit: 0",
        f"    + {place}[memory].borrowingLimit: 0",
        f"    + {place}[nvidia.com/gpu].borrowingLimit: 0",
        f"    - {place}[nvidia.com/gpu].nominalQuota: 4",
        f"    + {place}[nvidia.com/gpu].nominalQuota: 5",
    ]
    flavors = there["spec"]["resourceGroups"][0]["flavors"]
    flavors.reverse()
    shown = run("quota", "apply", "t.yaml", "--dry-run", table=two)[0].splitlines()
    assert shown[0] == "~ ClusterQueue a changed"
    assert "    + spec.resourceGroups[0].flavors[a10].name: a10" in shown


def test_what_others_have_written_is_no_danger_to_a_terminal(api: FakeApi, run: Run) -> None:
    run("quota", "apply", "t.yaml")
    api.objects[f"{QUEUES}/a"]["spec"]["cohortName"] = "teams\x1b"  # what cannot be shown is a difference, too
    assert "    - spec.cohortName: teams" in run("quota", "apply", "t.yaml")[0].splitlines()
    api.objects[f"{QUEUES}/a"]["metadata"]["labels"]["oci-cluster-teams"] = "o\x1b[2J"
    with pytest.raises(BackendError, match=r"whose name is 'o\[2J'; --force takes it over"):
        run("quota", "apply", "t.yaml")


def test_what_is_not_in_the_table_goes_with_prune_alone(api: FakeApi, run: Run) -> None:
    run("quota", "apply", "t.yaml")
    api.sent.clear()
    other = TABLE.replace("  a: {", "  b: {")
    shown, said = run("quota", "apply", "t.yaml", table=other)
    assert "! LocalQueue a/a kept\n! ClusterQueue a kept" in shown
    assert "--prune removes it" in said
    assert not [line for line in api.sent if line.startswith("DELETE") or line.endswith("/a")]
    shown, said = run("quota", "apply", "t.yaml", "--prune", table=other)
    assert shown == "- LocalQueue a/a removed\n- ClusterQueue a removed"
    assert said.splitlines() == [
        "2 removed",
        "a team that is removed starts nothing more, and is gone when its clusters have ended",
    ]
    assert f"{QUEUES}/a" not in api.objects
    assert "/api/v1/namespaces/a" in api.objects


def test_a_selector_that_the_api_ignores_removes_nothing_of_others(api: FakeApi, run: Run) -> None:
    run("quota", "apply", "t.yaml")
    labels = {"oci-cluster-teams": "of-others"}
    api.objects[f"{QUEUES}/foreign"] = {"kind": "ClusterQueue", "metadata": {"name": "foreign", "labels": labels}}
    api.objects[f"{QUEUES}"] = {"items": [{"metadata": {"name": "foreign", "labels": labels}}]}
    assert run("quota", "apply", "t.yaml", "--prune") == ("", "nothing changes: all is as t.yaml says")


def test_two_tables_do_not_take_each_others_objects(api: FakeApi, run: Run) -> None:
    run("quota", "apply", "t.yaml")
    api.sent.clear()
    with pytest.raises(BackendError) as caught:
        run("quota", "apply", "t.yaml", table=f"name: second\n{TABLE}")
    assert "ResourceFlavor a10: is that of another table, whose name is 'teams'; --force takes it over" in str(
        caught.value
    )
    assert api.sent == []
    assert run("quota", "apply", "t.yaml", "--force", table=f"name: second\n{TABLE}")[1] == "5 changed"


def test_all_that_is_forbidden_is_told_at_once_and_nothing_is_sent(api: FakeApi, run: Run) -> None:
    api.refusals = {
        "GET /api/v1/namespaces/a": forbidden("get", "namespaces", ""),
        f"GET {QUEUES}": forbidden("get", "clusterqueues", "kueue.x-k8s.io"),
    }
    with pytest.raises(NotPermittedError) as caught:
        run("quota", "apply", "t.yaml")
    assert str(caught.value).startswith(
        "you may not get namespaces, get clusterqueues.kueue.x-k8s.io in this Kubernetes"
    )
    assert caught.value.exit_code == 77
    assert api.sent == []


def test_each_manager_of_each_field_is_named(api: FakeApi, run: Run) -> None:
    said = (
        'Apply failed with 2 conflicts: conflicts with "bob" using kueue.x-k8s.io/v1beta2 at 2026-11-23T22:41:52Z:\n'
        "- .spec.cohortName\n- .spec.preemption.withinClusterQueue"
    )
    api.refusals = {f"PATCH {QUEUES}/a": (409, "Conflict", said)}
    with pytest.raises(BackendError) as caught:
        run("quota", "apply", "t.yaml")
    told = str(caught.value).splitlines()[1]
    assert told.startswith("  ClusterQueue a: Kubernetes refused PATCH")
    assert 'conflicts with "bob"' in told
    assert told.endswith(": .spec.cohortName .spec.preemption.withinClusterQueue; --force takes over what is named")
    assert api.sent == []


def test_what_a_webhook_refuses_is_told_by_its_object(api: FakeApi, run: Run) -> None:
    api.refusals = {
        f"PATCH {QUEUES}/a": (422, "Invalid", "spec.x: no"),
        "resourceflavors/a10": (400, "BadRequest", "y"),
    }
    with pytest.raises(BackendError) as caught:
        run("quota", "apply", "t.yaml")
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "the table cannot be applied, and nothing was changed",
        "  ResourceFlavor a10",
        "  ClusterQueue a",
    ]


def test_an_api_that_fails_is_no_refusal_of_the_table(api: FakeApi, run: Run) -> None:
    api.refusals = {"resourceflavors/a10": (401, "Unauthorized", "who?")}
    with pytest.raises(BackendError, match=r"^Kubernetes refused .* your login is not known"):
        run("quota", "apply", "t.yaml")


def test_without_kueue_there_are_no_teams(api: FakeApi, run: Run) -> None:
    del api.objects[f"{KUEUE}/v1beta2"]
    for words in (["quota", "apply", "t.yaml"], ["quota", "show"], ["quota", "hold", "a"], ["queue"]):
        with pytest.raises(BackendError, match=r"Kueue 0\.19 or newer is not installed here"):
            run(*words)
    assert api.sent == []


# --- hold, resume, show, queue ----------------------------------------------------------------------------------------


def workload(name: str, *conditions: tuple[str, str], queue: str = "a", message: str = "") -> dict[str, Any]:
    told = [{"type": kind, "status": status, "message": message} for kind, status in conditions]
    return {
        "metadata": {"name": name, "namespace": "a", "creationTimestamp": "2026-11-23T22:00:00Z"},
        "spec": {"queueName": queue},
        "status": {"conditions": told},
    }


@pytest.fixture
def busy(api: FakeApi, run: Run) -> FakeApi:
    """Return team a with a cluster that runs, two that wait, and one that waits in a queue that is not there."""
    run("quota", "apply", "t.yaml")
    local = f"{KUEUE}/v1beta2/namespaces/a/localqueues/a"
    api.objects[local]["metadata"]["namespace"] = "a"
    runs = workload("runs", ("QuotaReserved", "True"), ("Admitted", "True"))
    lost = workload("lost", ("QuotaReserved", "False"), queue="nix", message="LocalQueue nix doesn't exist")
    waiting = [workload(name, ("QuotaReserved", "False"), message="x") for name in ("one", "two")]
    ended = workload("ended", ("Finished", "True"))
    for item in (runs, lost, ended, *waiting):
        api.objects[f"{KUEUE}/v1beta2/namespaces/a/workloads/{item['metadata']['name']}"] = item
    places = [
        {
            "metadata": {"name": name, "namespace": "a"},
            "localQueueName": "a",
            "positionInLocalQueue": place,
            "positionInClusterQueue": place,
        }
        for place, name in enumerate(("two", "one"))
    ]
    visible = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/a/localqueues/a/pendingworkloads"
    api.objects[visible] = {"items": places}
    api.sent.clear()
    return api


def test_a_hold_says_what_it_means(busy: FakeApi, run: Run) -> None:
    assert run("quota", "hold", "a")[1] == (
        "a is held: of its clusters, 1 that run go on to their end; 2 that wait, and new ones, wait until: "
        "scripts/quota.sh resume a"
    )
    assert busy.objects[f"{QUEUES}/a"]["spec"]["stopPolicy"] == "Hold"
    assert run("quota", "hold", "a")[1] == "a is held already: nothing was changed"
    assert "1 that run are ended, and wait again at their old place" in run("quota", "hold", "a", "--drain")[1]
    assert run("quota", "resume", "a")[1] == (
        "a is resumed: 2 that wait start in their order, as quota becomes free; 1 that run go on as they are"
    )
    assert run("quota", "resume", "a")[1] == "a is not held: nothing was changed"
    assert busy.sent == [f"PATCH {QUEUES}/a"] * 3
    with pytest.raises(UsageError, match="there is no team 'b'; there is: a"):
        run("quota", "hold", "b")


def test_who_may_not_see_teams_or_clusters_is_told_so(busy: FakeApi, run: Run) -> None:
    for kind in ("clusterqueues", "workloads"):
        busy.refusals = {f"GET {KUEUE}/v1beta2/{kind}": forbidden("list", kind, "kueue.x-k8s.io")}
        told = rf"^you may not list {kind}\.kueue\.x-k8s\.io in this Kubernetes; docs/kueue.md has the rights; ask its"
        for words in (["show"], ["hold", "a"]):
            with pytest.raises(NotPermittedError, match=told):
                run("quota", *words)
    assert busy.sent == []


def test_the_queue_has_those_that_run_and_then_those_that_wait_by_their_places(busy: FakeApi, run: Run) -> None:
    shown, said = run("queue", "--json")
    rows = [(row["cluster"], row["state"], row["place"], row["team"]) for row in json.loads(shown)]
    assert rows == [
        ("lost", "WAITING", None, ""),
        ("runs", "RUNNING", None, "a"),
        ("two", "WAITING", 1, "a"),
        ("one", "WAITING", 2, "a"),
    ]
    assert said == ""
    assert [row["cluster"] for row in json.loads(run("queue", "a", "--json")[0])] == ["runs", "two", "one"]
    table = run("queue")[0]
    assert "1 of 2" in table
    assert "LocalQueue nix doesn't exist" in table
    assert run("queue", screen=Screen(200))[0] == table


def test_on_a_narrow_terminal_reasons_stand_under_their_rows(busy: FakeApi, run: Run) -> None:
    """Queue and quota fit 80 columns, and nothing is lost."""
    shown = run("queue", screen=Screen(80))[0].splitlines()
    assert shown[0].split() == ["TEAM", "CLUSTER", "STATE", "PLACE", "NODES", "FOR"]
    assert shown[2].startswith("  queue: a/nix; ")
    assert "why: it can never start: LocalQueue nix doesn't exist; request" in " ".join(line.strip() for line in shown)
    quota = run("quota", "show", screen=Screen(70))[0].splitlines()
    assert quota[0].split() == ["TEAM", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "BORROWED"]
    assert quota[2].strip() == "state: unknown; running: 1; waiting: 2"
    assert [line for line in [*shown, *quota] if len(line) > 80] == []


def test_without_the_visibility_api_there_are_no_places(busy: FakeApi, run: Run) -> None:
    busy.refusals = {"visibility.kueue": (503, "ServiceUnavailable", "x")}
    shown, said = run("queue", "a", "--json")
    assert [row["place"] for row in json.loads(shown)] == [None, None, None]
    assert said.startswith("places are not shown: Kueue's visibility API did not tell: ")


def test_a_user_of_one_namespace_sees_that(busy: FakeApi, run: Run) -> None:
    busy.refusals = {
        f"GET {KUEUE}/v1beta2/workloads": forbidden("list", "workloads", "kueue.x-k8s.io"),
        "GET /apis/batch": forbidden("list", "jobs", "batch"),
    }
    shown, said = run("queue", "--json")
    assert (json.loads(shown), said) == ([], "only namespace mine is shown: you may not see the clusters of others")
    busy.refusals["namespaces/mine/workloads"] = forbidden("list", "workloads", "kueue.x-k8s.io")
    with pytest.raises(
        NotPermittedError, match=r"you may not list workloads\.kueue\.x-k8s\.io in this Kubernetes; docs"
    ):
        run("queue")


def test_a_cluster_has_the_name_and_the_owner_of_its_job(busy: FakeApi, run: Run) -> None:
    one = busy.objects[f"{KUEUE}/v1beta2/namespaces/a/workloads/one"]
    one["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": "u1"}
    told = {"oci-cluster-name": "mine", "oci-cluster-owner": "ann\x1b[2J"}
    busy.objects["/apis/batch/v1/namespaces/a/jobs/x"] = {"metadata": {"name": "x", "uid": "u1", "annotations": told}}
    rows = {row["cluster"]: row["owner"] for row in json.loads(run("queue", "a", "--json")[0])}
    assert rows["mine"] == "ann[2J"


def test_a_team_whose_queue_nobody_sees_is_named_with_those_that_are(busy: FakeApi, run: Run) -> None:
    assert {row["cluster"] for row in json.loads(run("queue", "a", "--json")[0])} == {"runs", "one", "two"}
    with pytest.raises(UsageError, match="there is no team 'b' whose queue you can see; there is: a"):
        run("queue", "b")


def test_what_kubernetes_warns_of_is_passed_on(api: FakeApi, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    service = api.service()
    service.warnings = ["v1beta2 ends"]
    monkeypatch.setattr(quota, "Service", lambda *_, **__: service)
    assert run("quota", "show")[1] == "Kubernetes warns: v1beta2 ends"


def test_a_table_that_is_wrong_is_told_before_anybody_is_asked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota, "open_access", lambda _: pytest.fail("nobody needs to be asked"))
    with pytest.raises(SettingsError, match=r"1 thing is wrong in t\.yaml"):
        run("quota", "apply", "t.yaml", table=TABLE.replace("gpus: 8", "gpus: no"))
