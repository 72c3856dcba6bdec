from __future__ import annotations

import calendar
import json
from pathlib import Path
from typing import Any

import pytest

from oci_cluster import report
from oci_cluster.clusters import Cluster
from oci_cluster.errors import ExitCode
from oci_cluster.exchange import Exchange
from oci_cluster.report import describe_cluster, list_text, status_text, table

CREATED = "2026-01-01T00:00:00Z"
LAUNCH = "1f2e3d4c"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Return a cluster of main and one worker whose cluster dir is on this machine."""
    plan = {
        "name": "mine",
        "framework": "dask",
        "backend": "local",
        "launch_id": LAUNCH,
        "cluster_id": "mine-1",
        "work_dir": f"file://{tmp_path}",
        "created": CREATED,
        "nodes": [
            {"node": "MAIN", "environment": {"NODE_ADDRESS": "127.0.0.1"}},
            {"node": "WORKER_1", "environment": {}},
        ],
    }
    (tmp_path / "mine-1").mkdir()
    return Cluster(tmp_path / "mine-1", plan)


@pytest.fixture
def exchange(cluster: Cluster) -> Exchange:
    return Exchange(cluster.url, LAUNCH)


def nodes(*states: tuple[str, int | None]) -> list[dict[str, Any]]:
    names = ("MAIN", "WORKER_1")
    return [
        {"node": name, "state": state, "exit_code": code, "pid": 7}
        for name, (state, code) in zip(names, states, strict=True)
    ]


def running() -> dict[str, Any]:
    return {"running": True, "nodes": nodes(("IN_PROGRESS", None), ("IN_PROGRESS", None))}


def ended(main: int, worker: int) -> dict[str, Any]:
    return {"running": False, "nodes": nodes(("FAILED", main), ("FAILED", worker))}


# --- What is known of a cluster -------------------------------------------------------------------------------------


def test_a_running_cluster_is_described_whole(cluster: Cluster, exchange: Exchange) -> None:
    """Plan, backend and the nodes' own files together say all that is known."""
    exchange.publish("MAIN_heartbeat.json", beat=3, phase="ready")
    exchange.publish("MAIN_ready.json", facts={"dashboard": "https://127.0.0.1:8787"})
    assert describe_cluster(cluster, running()) == {
        "name": "mine",
        "framework": "dask",
        "backend": "local",
        "state": "IN_PROGRESS",
        "exit_code": None,
        "reason": None,
        "created": CREATED,
        "directory": str(cluster.directory),
        "facts": {"dashboard": "https://127.0.0.1:8787"},
        "nodes": [
            {
                "node": "MAIN",
                "state": "IN_PROGRESS",
                "exit_code": None,
                "pid": 7,
                "address": "127.0.0.1",
                "phase": "ready",
            },
            {
                "node": "WORKER_1",
                "state": "IN_PROGRESS",
                "exit_code": None,
                "pid": 7,
                "address": "",
                "phase": "starting",
            },
        ],
    }


def test_a_node_that_was_added_has_the_backends_address(cluster: Cluster) -> None:
    """The plan does not know it; where both know one, the backend's word is the newer."""
    added = {"node": "WORKER_2", "state": "IN_PROGRESS", "exit_code": None, "pid": 8, "address": "127.0.0.9"}
    state = running()
    state["nodes"][0]["address"] = "127.0.0.8"
    state["nodes"].append(added)
    shown = describe_cluster(cluster, state)["nodes"]
    assert [(node["node"], node["address"]) for node in shown] == [
        ("MAIN", "127.0.0.8"),
        ("WORKER_1", ""),
        ("WORKER_2", "127.0.0.9"),
    ]


def test_an_ended_cluster_has_its_code_and_reason(cluster: Cluster, exchange: Exchange) -> None:
    """Main's code is the cluster's, the stop file says why, and addresses that lead nowhere now are not shown."""
    exchange.publish("stop", reason="the entry point ended with exit code 7", exit_code=7)
    exchange.publish("MAIN_ready.json", facts={"dashboard": "https://127.0.0.1:8787"})
    exchange.publish("MAIN_heartbeat.json", beat=3, phase="stopping")
    found = describe_cluster(cluster, ended(7, 7))
    assert {name: found[name] for name in ("state", "exit_code", "reason", "facts")} == {
        "state": "ENDED",
        "exit_code": 7,
        "reason": "the entry point ended with exit code 7",
        "facts": {},
    }
    assert [node["phase"] for node in found["nodes"]] == ["ended", "ended"]


def test_a_node_that_ended_well_has_ended(cluster: Cluster, exchange: Exchange) -> None:
    """A node with exit code 0 is not the phase that it last told."""
    exchange.publish("MAIN_heartbeat.json", beat=3, phase="stopping")
    state = {"running": True, "nodes": nodes(("SUCCEEDED", 0), ("IN_PROGRESS", None))}
    assert [node["phase"] for node in describe_cluster(cluster, state)["nodes"]] == ["ended", "starting"]


def test_a_killed_main_is_a_lost_cluster(cluster: Cluster) -> None:
    """A main that was killed left no word: 76, a plain number for programs."""
    code = describe_cluster(cluster, ended(137, 0))["exit_code"]
    assert (code, type(code)) == (76, int)


def test_a_killed_entry_point_is_no_lost_cluster(cluster: Cluster, exchange: Exchange) -> None:
    """A main whose entry point was killed said so in the stop file: its code stands."""
    exchange.publish("stop", reason="killed", exit_code=137)
    assert describe_cluster(cluster, ended(137, 0))["exit_code"] == 137


def test_a_cluster_is_described_where_its_work_dir_is_not_readable(cluster: Cluster) -> None:
    """A report shows what it can: an unknown schema, or no answer, leaves out what only the work dir knows."""
    (cluster.directory / "stop").mkdir()
    for name in ("MAIN_ready.json", "MAIN_heartbeat.json"):
        (cluster.directory / name).write_text(json.dumps({"schema": 9, "launch_id": LAUNCH, "facts": {"a": "b"}}))
    found = describe_cluster(cluster, running())
    assert (found["facts"], found["reason"], found["nodes"][0]["phase"]) == ({}, None, "starting")


@pytest.mark.parametrize("facts", [None, ["a"], "a", 7, True])
def test_facts_of_another_shape_are_not_shown(cluster: Cluster, exchange: Exchange, facts: Any) -> None:
    """Facts that are no object are nothing."""
    exchange.publish("MAIN_ready.json", facts=facts)
    assert describe_cluster(cluster, running())["facts"] == {}


@pytest.mark.parametrize("code", [float("nan"), True, [137], "137", None])
def test_a_stop_file_with_no_exit_code_makes_no_success(cluster: Cluster, exchange: Exchange, code: Any) -> None:
    """What is no exit code in a file cannot stand for one: a killed main stays lost."""
    exchange.publish("stop", reason="r", exit_code=code)
    assert describe_cluster(cluster, ended(137, 0))["exit_code"] == ExitCode.LOST


def test_files_of_another_launch_are_not_shown(cluster: Cluster, tmp_path: Path) -> None:
    """What an older launch left in the same place says nothing of this one."""
    older = Exchange(f"file://{tmp_path}/mine-1", "0000")
    older.publish("stop", reason="older", exit_code=0)
    older.publish("MAIN_ready.json", facts={"dashboard": "older"})
    older.publish("WORKER_1_heartbeat.json", beat=1, phase="older")
    found = describe_cluster(cluster, running())
    assert (found["reason"], found["facts"], found["nodes"][1]["phase"]) == (None, {}, "starting")


def test_nothing_but_the_phase_of_a_heartbeat_is_shown(cluster: Cluster, exchange: Exchange) -> None:
    """LD_PRELOAD in a node's file appears in no report."""
    for name in ("MAIN_heartbeat.json", "MAIN_config.json", "stop", "MAIN_ready.json"):
        exchange.publish(name, LD_PRELOAD="/evil.so", phase="ready")
    assert "evil" not in json.dumps(describe_cluster(cluster, running()))


# --- Tables ---------------------------------------------------------------------------------------------------------


def described(**changes: Any) -> dict[str, Any]:
    return {
        "name": "mine",
        "framework": "dask",
        "backend": "local",
        "state": "IN_PROGRESS",
        "exit_code": None,
        "reason": None,
        "created": CREATED,
        "directory": "/data/mine-1",
        "facts": {},
        "nodes": [
            {"node": "MAIN", "address": "127.0.0.1", "state": "IN_PROGRESS", "exit_code": None, "phase": "ready"},
            {"node": "WORKER_1", "address": "", "state": "FAILED", "exit_code": 0, "phase": "ended"},
        ],
        **changes,
    }


@pytest.fixture
def _a_minute_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report.time, "time", lambda: calendar.timegm((2026, 1, 1, 0, 1, 5)))


@pytest.mark.usefixtures("_a_minute_later")
def test_status_shows_a_running_cluster() -> None:
    """A head, the facts, where the files are, and a line for each node."""
    assert status_text(described(facts={"dashboard": "https://127.0.0.1:8787"})).splitlines() == [
        "mine  dask on local, IN_PROGRESS, started 1m ago",
        "dashboard: https://127.0.0.1:8787",
        "files: /data/mine-1",
        "",
        "NODE      ADDRESS    STATE        EXIT  PHASE",
        "MAIN      127.0.0.1  IN_PROGRESS        ready",
        "WORKER_1             FAILED       0     ended",
    ]


@pytest.mark.usefixtures("_a_minute_later")
def test_status_shows_how_a_cluster_ended() -> None:
    """An ended cluster has its code, 0 included, and its reason."""
    shown = status_text(described(state="ENDED", exit_code=0, reason="the entry point ended with exit code 0"))
    assert shown.splitlines()[:3] == [
        "mine  dask on local, ENDED with 0, started 1m ago",
        "reason: the entry point ended with exit code 0",
        "files: /data/mine-1",
    ]


@pytest.mark.usefixtures("_a_minute_later")
def test_a_list_has_a_line_for_each_cluster() -> None:
    """Each cluster is one line, with the number of its nodes and its age."""
    assert list_text([described(), described(name="b", state="ENDED", exit_code=143)]).splitlines() == [
        "NAME  FRAMEWORK  BACKEND  STATE        EXIT  NODES  AGE",
        "mine  dask       local    IN_PROGRESS        2      1m",
        "b     dask       local    ENDED        143   2      1m",
    ]


def test_an_empty_list_has_its_head() -> None:
    """Without clusters there is the head alone."""
    assert list_text([]) == "NAME  FRAMEWORK  BACKEND  STATE  EXIT  NODES  AGE"


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    """Cells stand under their head, two blanks apart, and no line ends in blanks."""
    assert table(["A", "LONG", "C"], [["wide", "x", ""], ["", "", "z"]]) == "A     LONG  C\nwide  x\n            z"


@pytest.mark.parametrize(
    ("now", "age"),
    [
        ((2025, 12, 31, 23, 59, 59), "0s"),
        ((2026, 1, 1, 0, 0, 59), "59s"),
        ((2026, 1, 1, 0, 1, 0), "1m"),
        ((2026, 1, 1, 0, 59, 59), "59m"),
        ((2026, 1, 1, 1, 0, 0), "1h"),
        ((2026, 1, 1, 23, 59, 59), "23h"),
        ((2026, 1, 2, 0, 0, 0), "1d"),
        ((2026, 2, 1, 0, 0, 0), "31d"),
    ],
)
def test_an_age_is_in_its_largest_unit(
    monkeypatch: pytest.MonkeyPatch, now: tuple[int, int, int, int, int, int], age: str
) -> None:
    """Ages are whole units, never negative where a clock is behind."""
    monkeypatch.setattr(report.time, "time", lambda: calendar.timegm(now))
    assert list_text([described()]).split()[-1] == age


@pytest.mark.parametrize(
    "change",
    [{"facts": {"dashboard": "\033[2Jx"}}, {"facts": {"a\033[2J": "x"}}, {"reason": "a\033]0;evil\a"}],
    ids=["fact", "name of a fact", "reason"],
)
def test_control_characters_do_not_reach_a_terminal(change: dict[str, Any]) -> None:
    """Who can write to the bucket cannot write to a terminal: control characters of files are not shown."""
    shown = status_text(described(**change))
    assert [character for character in shown if not character.isprintable() and character != "\n"] == []
