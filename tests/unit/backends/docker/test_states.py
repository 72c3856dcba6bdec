"""What an engine's answers mean; anybody may have written the labels in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.fake_engine import Launcher

from oci_cluster.backends.archive import record_of, recorded_state
from oci_cluster.backends.docker.states import state_of
from oci_cluster.contract.cluster import NodeState, State


@pytest.mark.parametrize(
    ("said", "state", "code"),
    [
        ({"Status": "running", "ExitCode": 0}, "IN_PROGRESS", None),
        ({"Status": "created", "ExitCode": 0}, "ACCEPTED", None),
        ({"Status": "paused", "ExitCode": 0}, "IN_PROGRESS", None),
        ({"Status": "exited", "ExitCode": 0}, "SUCCEEDED", 0),
        ({"Status": "exited", "ExitCode": 143}, "CANCELED", 143),
        ({"Status": "exited", "ExitCode": 7}, "FAILED", 7),
        ({"Status": "dead"}, "FAILED", 76),
        ({"Status": "created", "ExitCode": 127, "Error": "no such file"}, "FAILED", 69),
    ],
)
def test_the_engine_tells_how_a_node_is(launcher: Launcher, said: dict[str, Any], state: str, code: int | None) -> None:
    """A node that could not be started has no exit code of anybody's script."""
    cluster = launcher.launch(1)
    launcher.fake.set("WORKER_1", **said)
    node = launcher.states(cluster)[1]
    assert (node.state, node.exit_code, node.never_started) == (state, code, "Error" in said)
    assert node.address == "172.18.0.3"


@pytest.mark.parametrize(
    ("limit", "cause"),
    [
        (64 << 20, "its memory ran out; set MEMORY higher than 64m, or leave it out"),
        (1_000_000, "its memory ran out; set MEMORY higher than 1000000, or leave it out"),
        (0, "the memory of its machine ran out"),
        (None, "the memory of its machine ran out"),
    ],
)
def test_memory_that_ran_out_is_the_cause(limit: int | None, cause: str) -> None:
    """The code alone is any SIGKILL's."""
    said = {"Status": "exited", "ExitCode": 137, "OOMKilled": True}
    assert state_of("MAIN", {"Id": "x", "State": said, "HostConfig": {"Memory": limit}}).cause == cause


def test_a_record_is_the_state_again() -> None:
    """Of all that is recorded, under the names that status.sh shows; of what is none, nothing."""
    state = NodeState("WORKER_1", State.FAILED, 137, id="ab12", address="172.18.0.3", details="x", cause="memory")
    record = record_of(state)
    assert (record["ocid"], record["state"], recorded_state(record)) == ("ab12", "FAILED", state)
    with pytest.raises(ValueError, match="'GONE' is not a valid State"):
        recorded_state({**record, "state": "GONE"})


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("name", "../../x"),
        ("name", "a/b"),
        ("name", ""),
        ("launch", "../x"),
        ("launch", "none0fit"),
        ("created", "now"),
        ("created", "2026-99-99T00:00:00Z"),
        ("name", ".x"),
    ],
)
def test_labels_that_are_nobodys_of_ours_are_no_cluster(launcher: Launcher, label: str, text: str) -> None:
    """They would become names of files."""
    launcher.launch(1)
    launcher.fake.label(label, text)
    for path in (launcher.root / ".clusters").glob("*/cluster.json"):
        path.unlink()
    assert launcher.backend.find() == []


@pytest.mark.parametrize("label", ["../../WORKER_1", "WORKER_", "WORKER_0", "WORKER_01", "WORKER_1000000", "MAIN_1"])
def test_a_node_label_that_is_no_nodes_is_left_out(launcher: Launcher, label: str) -> None:
    """It would become a log's name."""
    cluster = launcher.launch(1)
    launcher.fake.label("node", label, "WORKER_1")
    assert list(launcher.codes(cluster)) == ["MAIN"]


def test_a_plan_is_what_main_was_given(launcher: Launcher) -> None:
    """Without what is each node's own; with limits that the launcher obeys."""
    placed = launcher.plan(2, env=("PLAIN=a=b c",), GRACE_PERIOD="3", CPUS="2", TTL="1h")
    cluster = launcher.lifecycle.launch(placed)
    plan = launcher.backend.load(cluster)
    assert (plan.environment, plan.nodes, plan.limits) == (placed.environment, placed.nodes, placed.limits)
    assert (plan.url, plan.placed["code"]) == (placed.url, placed.placed["code"])
    assert {**placed.settings, **plan.settings} == placed.settings
    assert (plan.limits.grace_period_s, plan.limits.ttl_s, plan.limits.ports) == (3, 3600, {"SOME_PORT": 1234})


def test_a_cluster_with_settings_that_no_launch_gives_can_be_ended(launcher: Launcher) -> None:
    """An image may add such ones: its nodes end with 78, and their logs are wanted."""
    cluster = launcher.launch(1, TIMEOUT="3m")
    launcher.fake.give("MAIN", "GRACE_PERIOD=for ever")
    limits = launcher.backend.load(cluster).limits
    assert (limits.grace_period_s, limits.timeout_s, limits.min_workers) == (10, 600, 1)
    launcher.fake.end_all(78)
    launcher.stop(cluster)
    assert launcher.fake.left() == ([], [], [])
    assert launcher.codes(cluster) == {"MAIN": 78, "WORKER_1": 78}


def test_a_framework_label_leads_to_no_other_folder(launcher: Launcher, tmp_path: Path) -> None:
    """Its settings would be those of anybody's file."""
    cluster = launcher.launch(1)
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "settings.env").write_text("TTL=1s\n")
    for field in ("framework", "project"):
        launcher.fake.label(field, "../evil\x1b[2J")
    assert (launcher.found().framework, launcher.found().project) == ("../evil[2J",) * 2
    launcher.fake.label("framework", "../evil")
    found = launcher.found()
    assert (found.launch_id, found.framework) == (cluster.launch_id, "../evil")
    assert launcher.backend.load(found).limits.ttl_s == 0
