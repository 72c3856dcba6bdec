"""The tables of status.sh and list.sh."""

from __future__ import annotations

import calendar
from typing import Any

import pytest
from unit.fake_backend import CREATED

from oci_cluster.launcher.show.report import list_text, status_text
from oci_cluster.system import text
from oci_cluster.system.screen import Screen


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
    monkeypatch.setattr(text.time, "time", lambda: calendar.timegm((2026, 1, 1, 0, 1, 5)))


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
def test_a_list_says_how_many_nodes_wait_and_for_how_long() -> None:
    """The longest of them."""
    nodes = [{"waiting_s": 125}, {"waiting_s": 7}, {}]
    row = list_text([described(nodes=nodes)]).splitlines()[1]
    assert row.split("  ")[-2].strip() == "3 (2 waiting for 2m)"


@pytest.mark.usefixtures("_a_minute_later")
def test_status_shows_how_a_cluster_ended() -> None:
    """An ended cluster has its code, 0 included, and its reason."""
    shown = status_text(described(state="SUCCEEDED", exit_code=0, reason="the entry point ended with exit code 0"))
    assert shown.splitlines()[:3] == [
        "mine  dask on local, SUCCEEDED, started 1m ago",
        "reason: the entry point ended with exit code 0",
        "files: /data/mine-1",
    ]


@pytest.mark.usefixtures("_a_minute_later")
def test_a_list_has_a_line_for_each_cluster() -> None:
    """Each cluster is one line, with the number of its nodes and its age."""
    assert list_text([described(), described(name="b", state="STOPPED", exit_code=143)]).splitlines() == [
        "NAME  FRAMEWORK  BACKEND  STATE        EXIT  NODES  AGE",
        "mine  dask       local    IN_PROGRESS        2      1m",
        "b     dask       local    STOPPED      143   2      1m",
    ]


def test_an_empty_list_has_its_head() -> None:
    """Without clusters there is the head alone."""
    assert list_text([]) == "NAME  FRAMEWORK  BACKEND  STATE  EXIT  NODES  AGE"


@pytest.mark.usefixtures("_a_minute_later")
def test_what_is_long_fits_a_terminal_of_80_columns() -> None:
    """Both ends of a name, the beginning of what is said; paths are whole, and facts, as people copy them."""
    name, why = (
        "team-vision-resnet-50-imagenet-sweep-17",
        "0/5 nodes are available: 5 Insufficient nvidia.com/gpu. " * 3,
    )
    waiting = {"node": "WORKER_1", "address": "10.0.0.2", "state": "NEEDS_ATTENTION", "exit_code": None}
    found = described(
        name=name,
        backend="kubernetes",
        framework="tensorflow",
        reason=why,
        facts={"connect": "client = Client(" + "'tls://10.0.0.1:8786', " * 5 + ")"},
        directory="/data/" + "long/" * 20,
        nodes=[{**waiting, "phase": f"waiting for 3m: {why}", "waiting_s": 180}],
    )
    lines = status_text(found, Screen(80)).splitlines()
    copied = [f"connect: {found['facts']['connect']}", f"files: {found['directory']}"]
    assert [line for line in lines if len(line) > 80] == copied
    assert lines[:3] == [
        f"{name}  tensorflow on kubernetes, IN_PROGRESS,",
        "  started 1m ago",
        "reason: 0/5 nodes are available: 5 Insufficient nvidia.com/gpu. 0/5 nodes are",
    ]
    assert lines[-1] == "WORKER_1  10.0.0.2  NEEDS_ATTENTION        waiting for 3m: 0/5 nodes are availa…"
    assert list_text([found], Screen(80)).splitlines() == [
        "NAME              FRAMEWORK   BACKEND     STATE        EXIT  NODES           AGE",
        "team-vis…weep-17  tensorflow  kubernetes  IN_PROGRESS        1 (1 waiting…   1m",
    ]
    assert list_text([found], Screen(120)) == list_text([found])
    assert name in list_text([found])


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
    monkeypatch.setattr(text.time, "time", lambda: calendar.timegm(now))
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
