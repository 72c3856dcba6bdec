"""teams.yaml: all that can be wrong with it, and the objects that it becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from oci_cluster.backends.kubernetes.quota.teams import hints, objects, read_table
from oci_cluster.errors import SettingsError

SMALL = """\
flavors:
  a10: {}
teams:
  team-a:
    quota:
      a10: {gpus: 8, cpus: 64, memory: 512Gi}
"""
FULL = """\
name: gpus
cohort: all
preemption: {withinClusterQueue: Never}
priorities: {low: -10, high: 1000}
flavors:
  a10:
    labels: {node.kubernetes.io/instance-type: VM.GPU.A10.1}
    taints: [nvidia.com/gpu=present:NoSchedule]
    tolerations: [nvidia.com/gpu, a=b:NoExecute, c:NoSchedule]
  mi300: {gpu: amd.com/gpu}
teams:
  a:
    namespaces: [train, test]
    queue: main
    preemption: {reclaimWithinCohort: LowerPriority}
    lend: no
    quota:
      a10: {gpus: 8, cpus: "64.5", memory: 512Gi, pods: 100, ephemeral-storage: 1Ti,
            resources: {rdma/ib: 8}, borrow: {gpus: 4}, lend: {gpus: 20}}
      mi300: {gpus: 2, cpus: 500m, memory: 1Gi}
  b:
    namespace: other
    cohort: none
    lend: no
    quota: {a10: {cpus: 1, memory: 1Gi}, mi300: {cpus: 500m, memory: 512Mi}}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def table(text: str) -> dict[str, Any]:
    Path("t.yaml").write_text(text)
    return read_table(Path("t.yaml"))


def made(text: str) -> dict[str, dict[str, Any]]:
    """Return the objects that a table becomes, in their order, by kind, namespace and name."""
    found = {}
    for item in objects(table(text)):
        about = item["metadata"]
        found[f"{item['kind']} {'/'.join(filter(None, [about.get('namespace'), about['name']]))}"] = item
    return found


def refusal(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        table(text)
    head, *lines = str(caught.value).splitlines()
    assert head.endswith("wrong in t.yaml, and nothing was changed:")
    return [line.removeprefix("  ") for line in lines]


# --- What is wrong ----------------------------------------------------------------------------------------------------


def test_all_that_is_wrong_is_told_at_once_with_its_place() -> None:
    text = """\
chort: all
priorities: {low: abc}
flavors:
  a10: {labels: {a: b}, taints: [x], tolerations: [x:Y]}
teams:
  team-a:
    namespaces: [n]
    quota:
      a10: {gpus: eight, cpus: 64, borrow: maybe}
      h100: {cpus: 1, memory: 64}
  team-b:
    namespace: n
    quota: {}
  team-c:
    cohort: none
    quota: {a10: {gpus: 1, cpus: 1, memory: 1Gi, lend: {gpus: 1}}}
"""
    effects = "NoSchedule, PreferNoSchedule, NoExecute"
    told = "all pods request them, and what a quota does not name is never given"
    assert refusal(text) == [
        "chort: is not known; known are name, cohort, preemption, priorities, flavors, teams",
        "priorities.low: expected a number",
        "teams.team-a.quota.a10.borrow: expected yes or no",
        f"flavors.a10.taints: 'x' is not a taint KEY=VALUE:EFFECT with an effect of {effects}",
        f"flavors.a10.tolerations: 'x:Y' is not a toleration KEY, KEY:EFFECT or KEY=VALUE:EFFECT ({effects})",
        f"teams.team-a.quota.a10: memory missing; {told}",
        "teams.team-a.quota.a10: nvidia.com/gpu: 'eight' is not an amount such as 8, 500m or 64Gi",
        "teams.team-a.quota.h100: there is no flavor h100; there is a10",
        "teams.team-a.quota.h100: memory: 64 is less than a megabyte; write the unit, such as 64Gi",
        "teams.team-b: has no quota; write `quota:` with a flavor, its gpus, cpus and memory",
        "teams.team-c: has no cohort, so nobody borrows or lends: take borrow and lend out",
        "teams.team-b: namespace n is already that of team team-a; a namespace has one team",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ["teams: there is no team; write one"]),
        ("- a", ["the file: expected names with values, such as `name: value`", "teams: there is no team; write one"]),
        ("teams: [a]", ["teams: expected names with values", "teams: there is no team; write one"]),
        (SMALL.replace("memory: 512Gi", "memory: lots"), ["teams.team-a.quota.a10: memory: 'lots' is not an amount"]),
        (SMALL.replace("gpus: 8", "gpu: 8"), ["teams.team-a.quota.a10.gpu: is not known; known are gpus, cpus"]),
        (SMALL.replace("gpus: 8", "gpus: [8]"), ["teams.team-a.quota.a10.gpus: expected a word"]),
        (SMALL.replace("gpus: 8", "gpus:"), ["teams.team-a.quota.a10: nvidia.com/gpu: '' is not an amount"]),
        (SMALL.replace("gpus: 8", "gpus: yes"), ["teams.team-a.quota.a10: nvidia.com/gpu: 'True' is not an amount"]),
        (
            SMALL.replace("512Gi", "512Gi, borrow: {pods: 1}"),
            ["teams.team-a.quota.a10.borrow: pods is bounded here, and the quota does not name it"],
        ),
        (SMALL.replace("a10: {}", '"\\e[2Ja": {chips: 1}'), ["flavors.[2Ja.chips: is not known"]),
    ],
)
def test_each_slip_is_named(text: str, said: list[str]) -> None:
    found = refusal(text)
    for line, start in zip(found, said, strict=False):
        assert line.startswith(start)
    assert len(found) >= len(said)


def test_what_is_no_yaml_or_no_file_is_named() -> None:
    with pytest.raises(SettingsError, match=r"^t.yaml:2: this is no YAML: "):
        table("teams: {\n")
    with pytest.raises(SettingsError, match=r"^t.yaml:7: this is no YAML: team-a is there twice"):
        table(f"{SMALL}  team-a: {{}}\n")
    with pytest.raises(SettingsError, match=r"teams.yaml cannot be read: No such file"):
        read_table(Path("teams.yaml"))


# --- Objects ----------------------------------------------------------------------------------------------------------


def test_each_object_comes_after_those_that_it_needs_and_has_the_tables_label() -> None:
    found = made(FULL)
    assert list(found) == [
        "Namespace train",
        "Namespace test",
        "Namespace other",
        "WorkloadPriorityClass low",
        "WorkloadPriorityClass high",
        "ResourceFlavor a10",
        "ResourceFlavor mi300",
        "ClusterQueue a",
        "ClusterQueue b",
        "LocalQueue train/main",
        "LocalQueue test/main",
        "LocalQueue other/b",
    ]
    assert {item["metadata"]["labels"]["oci-cluster-teams"] for item in found.values()} == {"gpus"}
    assert found["LocalQueue test/main"]["spec"] == {"clusterQueue": "a"}
    assert found["WorkloadPriorityClass low"]["value"] == -10
    assert found["ResourceFlavor a10"]["spec"] == {
        "nodeLabels": {"node.kubernetes.io/instance-type": "VM.GPU.A10.1"},
        "nodeTaints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"},
            {"key": "c", "operator": "Exists", "effect": "NoSchedule"},
        ],
    }
    # An apply that takes the last one away would make the spec null, which is refused.
    assert found["ResourceFlavor mi300"]["spec"] == {"nodeLabels": {}, "nodeTaints": [], "tolerations": []}


def test_all_flavors_of_a_team_cover_the_same_resources() -> None:
    """What a flavor lacks is 0 there; without a cohort there are no bounds, which the API would refuse."""
    found = made(FULL)
    spec = found["ClusterQueue a"]["spec"]
    (group,) = spec["resourceGroups"]
    others = ["nvidia.com/gpu", "pods", "ephemeral-storage", "rdma/ib", "amd.com/gpu"]
    assert group["coveredResources"] == ["cpu", "memory", *others]
    a10, mi300 = ({one["name"]: one for one in flavor["resources"]} for flavor in group["flavors"])
    assert list(a10) == list(mi300) == group["coveredResources"]
    # More than there is cannot be lent, says the API.
    gpus = {"name": "nvidia.com/gpu", "nominalQuota": "8", "borrowingLimit": "4", "lendingLimit": "8"}
    assert a10["nvidia.com/gpu"] == gpus
    assert a10["cpu"] == {"name": "cpu", "nominalQuota": "64.5"}
    assert a10["amd.com/gpu"] == {"name": "amd.com/gpu", "nominalQuota": "0"}
    assert {one["lendingLimit"] for one in mi300.values()} == {"0"}
    assert spec["cohortName"] == "all"
    assert spec["namespaceSelector"]["matchExpressions"][0]["values"] == ["train", "test"]
    assert spec["preemption"] == {"withinClusterQueue": "Never", "reclaimWithinCohort": "LowerPriority"}
    alone = found["ClusterQueue b"]["spec"]
    assert "cohortName" not in alone
    assert set(alone["resourceGroups"][0]["flavors"][0]["resources"][0]) == {"name", "nominalQuota"}


def test_what_is_left_out_has_a_default_that_suits_most() -> None:
    """Teams borrow and lend what they have, take back what they have lent, and their low priorities give way."""
    found = made(SMALL)
    assert "LocalQueue team-a/team-a" in found
    assert found["Namespace team-a"]["metadata"]["labels"]["oci-cluster-teams"] == "teams"
    spec = found["ClusterQueue team-a"]["spec"]
    assert spec["preemption"] == {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    assert spec["cohortName"] == "teams"
    quotas = spec["resourceGroups"][0]["flavors"][0]["resources"]
    assert quotas[2] == {"name": "nvidia.com/gpu", "nominalQuota": "8"}


@pytest.mark.parametrize(("word", "limit"), [("lend: No", "lendingLimit"), ("borrow: no", "borrowingLimit")])
def test_what_stands_at_a_team_is_for_all_its_quotas_that_say_nothing_else(word: str, limit: str) -> None:
    text = SMALL.replace("    quota", f"    {word}\n    quota")
    own = text.replace("512Gi", f"512Gi, {word.partition(':')[0]}: yes")
    first, second = (made(one)["ClusterQueue team-a"]["spec"]["resourceGroups"][0] for one in (text, own))
    assert {one[limit] for one in first["flavors"][0]["resources"]} == {"0"}
    assert not any(limit in one for one in second["flavors"][0]["resources"])


def test_a_hold_is_not_in_what_is_applied() -> None:
    """An apply must not resume a team that somebody holds."""
    assert all("stopPolicy" not in item.get("spec", {}) for item in made(FULL).values())


def test_flavors_of_a_team_with_other_labels_are_told() -> None:
    """Kueue compares only those labels that a flavor has: seen on a real one, see test_waiting.py."""
    hint, _ = hints(table(FULL))
    assert hint.startswith("a: its flavors a10, mi300 have not the same labels; a cluster that asks for one of them")
    assert "may be given mi300, and never start" in hint
    both = FULL.replace("mi300: {gpu:", "mi300: {labels: {node.kubernetes.io/instance-type: x}, gpu:")
    assert hints(table(both)) == []


def test_the_example_of_the_guide_is_right() -> None:
    guide = Path(__file__).resolve().parents[5] / "docs" / "kueue.md"
    found = made(guide.read_text().partition("```yaml\n")[2].partition("```")[0])
    assert [name for name in found if name.startswith("ClusterQueue")] == [
        "ClusterQueue vision",
        "ClusterQueue speech",
        "ClusterQueue interns",
    ]
    assert found["WorkloadPriorityClass high"]["value"] == 1000
