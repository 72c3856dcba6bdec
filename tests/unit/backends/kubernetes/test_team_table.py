"""teams.yaml: what it says, and all that can be wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from oci_cluster.backends.kubernetes.team_table import Flavor, Row, Table, Team, parse_table, read_table
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
  team-a:
    namespaces: [train, test]
    queue: main
    lend: no
    preemption: {reclaimWithinCohort: LowerPriority}
    quota:
      a10: {gpus: 8, cpus: "64.5", memory: 512Gi, pods: 100, ephemeral-storage: 1Ti,
            resources: {rdma/ib: 8}, borrow: {gpus: 4}}
      mi300: {gpus: 2, cpus: 500m, memory: 1Gi, lend: yes}
  team-b:
    namespace: other
    cohort: none
    quota: {a10: {cpus: 1, memory: 1Gi}}
"""


def refusal(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        parse_table(text, "t.yaml")
    head, *lines = str(caught.value).splitlines()
    assert head.endswith("wrong in t.yaml, and nothing was changed:")
    return [line.removeprefix("  t.yaml:") for line in lines]


def test_what_is_left_out_has_a_default_that_suits_most() -> None:
    """Teams borrow and lend what they have, take back what they have lent, and their low priorities give way."""
    amounts = {"nvidia.com/gpu": "8", "cpu": "64", "memory": "512Gi"}
    team = Team("team-a", ["team-a"], "team-a", "teams", [Row("a10", amounts)], "LowerPriority", "Any")
    assert parse_table(SMALL, "t.yaml") == Table("teams", [team], [Flavor("a10", {}, [], [])], {}, [])


def test_all_that_can_be_said_is_understood() -> None:
    table = parse_table(FULL, "t.yaml")
    assert (table.name, table.priorities) == ("gpus", {"low": -10, "high": 1000})
    assert table.flavors == [
        Flavor(
            "a10",
            {"node.kubernetes.io/instance-type": "VM.GPU.A10.1"},
            [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
            [
                {"key": "nvidia.com/gpu", "operator": "Exists"},
                {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"},
                {"key": "c", "operator": "Exists", "effect": "NoSchedule"},
            ],
        ),
        Flavor("mi300", {}, [], [], "amd.com/gpu"),
    ]
    a, b = table.teams
    assert (a.namespaces, a.queue, a.cohort, a.within, a.reclaim) == (
        ["train", "test"],
        "main",
        "all",
        "Never",
        "LowerPriority",
    )
    assert a.rows[0] == Row(
        "a10",
        {
            "nvidia.com/gpu": "8",
            "cpu": "64.5",
            "memory": "512Gi",
            "pods": "100",
            "ephemeral-storage": "1Ti",
            "rdma/ib": "8",
        },
        {"nvidia.com/gpu": "4"},
        {},
        True,
        False,
    )
    assert a.rows[1] == Row("mi300", {"amd.com/gpu": "2", "cpu": "500m", "memory": "1Gi"}, {}, {}, True, True)
    assert (b.namespaces, b.cohort, b.reclaim) == (["other"], "", "Any")
    assert table.given == [
        "preemption",
        "teams.team-a.preemption",
        "teams.team-a.quota.a10.borrow",
        "teams.team-a.lend",
        "teams.team-a.quota.mi300.lend",
    ]


def test_all_that_is_wrong_is_told_at_once_with_its_line() -> None:
    text = """\
name: First
chort: all
priorities: {low: abc, low: 1, huge: 2000000000}
flavors:
  a10: {labels: {a b: c}, taints: [x], tolerations: [x:Y]}
  a10: {}
teams:
  team-a:
    namespaces: [n, n]
    quota:
      a10: {gpus: -8, cpus: 64, borrow: maybe}
      h100: {cpus: 1, memory: 64}
  team-b:
    namespace: n
    quota: {}
  team-b: {}
  team-c:
    cohort: none
    preemption: {withinClusterQueue: Always}
    quota: {a10: {gpus: 1.5, cpus: -1, memory: 1Gi, lend: {gpus: 1}}}
"""
    assert refusal(text) == [
        "1: name: 'First' is not a name of small letters, digits and - (63 at most)",
        "2: chort: is not known; known are name, cohort, preemption, priorities, flavors, teams",
        "3: priorities.low: is there twice, first in line 3",
        "3: priorities.low: 'abc' is not a whole number from -1000000000 to 1000000000",
        "3: priorities.huge: '2000000000' is not a whole number from -1000000000 to 1000000000",
        "5: flavors.a10.labels: 'a b' is not a name such as nvidia.com/gpu",
        (
            "5: flavors.a10.taints: 'x' is not a taint KEY=VALUE:EFFECT with an effect of NoSchedule, "
            "PreferNoSchedule, NoExecute"
        ),
        "5: flavors.a10.tolerations: 'x:Y' is not a toleration KEY, KEY:EFFECT or KEY=VALUE:EFFECT",
        "6: flavors.a10: is there twice, first in line 5",
        "9: teams.team-a: namespace n is there twice",
        "11: teams.team-a.quota.a10.gpus: '-8' is not a whole number from 0 to 1000000",
        (
            "11: teams.team-a.quota.a10: memory missing; all pods request them, and what a quota does not name is "
            "never given"
        ),
        "11: teams.team-a.quota.a10.borrow: 'maybe' is neither yes nor no, nor amounts such as {gpus: 4}",
        "12: teams.team-a.quota.h100: there is no flavor h100; there is a10",
        "12: teams.team-a.quota.h100.memory: 64 is less than a megabyte; write the unit, such as 64Gi",
        "13: teams.team-b: has no quota; write `quota:` with a flavor, its gpus, cpus and memory",
        "13: teams.team-b: namespace n is already that of team team-a; a namespace has one team",
        "16: teams.team-b: is there twice, first in line 13",
        "17: teams.team-c: has no cohort, so nobody borrows or lends: take borrow and lend out of a10",
        (
            "19: teams.team-c.preemption.withinClusterQueue: 'Always' is none of Never, LowerPriority, "
            "LowerOrNewerEqualPriority"
        ),
        "20: teams.team-c.quota.a10.gpus: '1.5' is not a whole number from 0 to 1000000",
        "20: teams.team-c.quota.a10.cpus: -1 is negative; write 0 or more",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ["1: teams: there is no team; write one"]),
        ("- a", ["1: expected names with values, such as `name: value`", "1: teams: there is no team; write one"]),
        ("teams: []", ["1: teams: expected names with values", "1: teams: there is no team; write one"]),
        (SMALL.replace("memory: 512Gi", "memory: lots"), ["6: teams.team-a.quota.a10.memory: 'lots' is not an amount"]),
        (SMALL.replace("gpus: 8", "gpu: 8"), ["6: teams.team-a.quota.a10.gpu: is not known; known are gpus, cpus"]),
        (SMALL.replace("gpus: 8", "gpus: [8]"), ["6: teams.team-a.quota.a10.gpus: expected a word"]),
        (SMALL.replace("gpus: 8", "gpus:"), ["6: teams.team-a.quota.a10.gpus: expected a word"]),
        (
            SMALL.replace("512Gi", "512Gi, borrow: {pods: 1}"),
            ["6: teams.team-a.quota.a10.borrow: pods is bounded here, and the quota does not name it"],
        ),
        (
            SMALL.replace("512Gi", "512Gi, resources: {cpu: 1}"),
            ["6: teams.team-a.quota.a10.resources.cpu: has a word of its own: gpus, cpus, memory, pods"],
        ),
        (
            SMALL.replace("    quota", "    namespace: a\n    namespaces: [b]\n    quota"),
            ["5: teams.team-a: has namespace and namespaces; write one of the two"],
        ),
    ],
)
def test_each_slip_is_named(text: str, said: list[str]) -> None:
    found = refusal(text)
    assert len(found) == len(said)
    for line, start in zip(found, said, strict=True):
        assert line.startswith(start)


def test_what_is_no_yaml_or_no_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^t.yaml:2: this is no YAML: "):
        parse_table("teams: {\n", "t.yaml")
    with pytest.raises(SettingsError, match=r"teams.yaml cannot be read: No such file"):
        read_table(tmp_path / "teams.yaml")
    (tmp_path / "teams.yaml").write_text(SMALL)
    assert read_table(tmp_path / "teams.yaml").teams[0].name == "team-a"


def test_the_example_of_the_guide_is_right() -> None:
    guide = Path(__file__).resolve().parents[4] / "docs" / "kueue.md"
    text = guide.read_text().partition("```yaml\n")[2].partition("```")[0]
    table = parse_table(text, "kueue.md")
    assert [team.name for team in table.teams] == ["vision", "speech", "interns"]
    assert table.priorities == {"low": -10, "high": 1000}
