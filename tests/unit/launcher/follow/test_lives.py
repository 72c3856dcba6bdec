"""What a person is told of a cluster that was interrupted, and goes on: the truth of the life that it is in."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.fake_backend import KEY, LAUNCH, FakeSignals
from unit.launcher.following import Run, nothing

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import LIFE, READY, STOP, config_file, exit_file, heartbeat_file
from oci_cluster.launcher.lifecycle import request_stop
from oci_cluster.launcher.show.report import describe, overview, status_text

ONE, TWO = "1" * 32, "2" * 32


@pytest.fixture
def run(tmp_path: Path, clock: Any) -> Run:
    """Return a cluster that can be interrupted."""
    run = Run(tmp_path, clock, FakeSignals(clock))
    run.plan = replace(run.plan, environment={**run.plan.environment, "INTERRUPTIBLE": "1"})
    run.backend.plans[LAUNCH] = run.plan
    return run


def of(run: Run, life: str) -> ClusterDir:
    """Return the cluster dir as a node of *life* sees it."""
    cluster_dir = ClusterDir(run.plan.url, LAUNCH, KEY)
    cluster_dir.enter_life(life)
    return cluster_dir


def begin(run: Run, life: str, number: int, *workers: str) -> ClusterDir:
    """Have main begin a life, and answer *workers*."""
    nodes = of(run, life)
    nodes.publish(LIFE, number=number, answers=dict.fromkeys(workers, 1))
    return nodes


def described(run: Run) -> dict[str, Any]:
    """Return what status.sh knows."""
    return describe(run.backend, run.cluster, run.plan, run.backend.states([run.cluster])[LAUNCH])


def test_each_life_is_followed_from_its_beginning(run: Run) -> None:
    """Its workers arrive anew, and it is ready anew; what is left of the one before tells nothing.

    Not even the counters of its files: main may be on another machine, whose clock is behind.
    """
    workers = ("WORKER_1", "WORKER_2")

    def arrive() -> None:
        first = begin(run, ONE, 1, *workers)
        for node in workers:
            first.publish(config_file(node))
        first._signer._wall_clock_ns = lambda: time.time_ns() + 3600 * 10**9
        first.publish(READY, facts={"dashboard": "old"})

    code = run.follow(
        arrive,
        lambda: begin(run, TWO, 2),
        nothing,
        lambda: begin(run, TWO, 2, "WORKER_2"),
        lambda: begin(run, TWO, 2, *workers),
        lambda: of(run, TWO).publish(READY, facts={"dashboard": "new"}),
        lambda: run.end(0, 0, 0),
    )
    assert code == 0
    assert run.said == [
        "ready after 0.1 s; dashboard old",
        "life 2 of mine begins: its nodes were interrupted",
        "1 of 2 workers arrived",
        "2 of 2 workers arrived",
        "ready after 0.6 s; dashboard new",
        "cluster mine ended with 0 after 0.7 s",
    ]


def test_the_end_is_told_with_the_reason_of_the_last_life(run: Run) -> None:
    """A main that was cut off in its end has left another one."""
    begin(run, ONE, 1).publish(STOP, reason="old", exit_code=3)
    code = run.follow(lambda: begin(run, TWO, 2).publish(STOP, reason="new", exit_code=7), lambda: run.end(7, 7, 7))
    assert (code, run.said[-1]) == (7, "cluster mine ended with 7 (new) after 0.2 s")


def test_a_stop_of_a_life_that_was_cut_off_ends_no_waiting_node(run: Run) -> None:
    """The nodes of the next life wait for their hosts."""
    begin(run, ONE, 1).publish(STOP, reason="the entry point ended", exit_code=0)
    begin(run, TWO, 2)
    run.node("WORKER_1", None, is_waiting=True)
    run.follow(nothing, nothing, lambda: run.end(0, 0, 0))
    assert run.backend.asked("end", "cancel") == []


def test_status_shows_the_life_and_its_files_alone(run: Run) -> None:
    """Phases and facts are those of now; the number is shown where it is more than one."""
    first = begin(run, ONE, 1)
    first.publish(READY, facts={"dashboard": "old"})
    for node in ("MAIN", "WORKER_1"):
        first.publish(heartbeat_file(node), beat=1, phase="ready", attempt=0)
    assert "life" not in described(run)
    begin(run, TWO, 2).publish(heartbeat_file("MAIN"), beat=1, phase="running", attempt=0)
    found = described(run)
    assert (found["life"], found["facts"]) == (2, {})
    assert [node["phase"] for node in found["nodes"]] == ["running", "starting", "starting"]
    assert status_text(found).startswith("mine  dask on local, IN_PROGRESS, life 2, started ")
    assert "refused" not in found


def test_the_outcome_is_that_of_the_second_life(run: Run) -> None:
    """In status.sh and in list.sh."""
    first = begin(run, ONE, 1)
    first.publish(STOP, reason="old", exit_code=3)
    first.publish(exit_file("MAIN"), exit_code=143, reason="x", interrupted=True)
    begin(run, TWO, 2).publish(STOP, reason="the entry point ended", exit_code=0)
    run.nodes(MAIN=0, WORKER_1=0, WORKER_2=0)
    found = described(run)
    assert (found["state"], found["exit_code"], found["reason"]) == ("SUCCEEDED", 0, "the entry point ended")
    assert overview(run.backend, run.cluster, run.backend.states([run.cluster])[LAUNCH])["exit_code"] == 0


def test_a_launch_of_one_life_costs_no_request_more(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks for what cannot be there."""
    run.plan = replace(run.plan, environment={"LAUNCH_KEY": KEY})
    asked: list[str] = []
    read = ClusterDir.read

    def note(self: ClusterDir, name: str, **named: bool) -> Any:
        asked.append(name)
        return read(self, name, **named)

    monkeypatch.setattr(ClusterDir, "read", note)
    described(run)
    assert LIFE not in asked


def test_a_stop_by_hand_takes_the_place_of_one_that_counts_for_nothing(run: Run) -> None:
    """Else the next life would begin: what main has left when it was cut off ends no launch."""
    first = begin(run, ONE, 1)
    first.publish(STOP, reason="the entry point ended", exit_code=0)
    request_stop(run.backend, run.cluster, run.plan, "stopped by stop.sh")
    assert (run.cluster_dir.read(STOP) or {})["reason"] == "stopped by stop.sh"
    # And does not where main has come to its end.
    first.publish(STOP, reason="the entry point ended", exit_code=0)
    first.publish(exit_file("MAIN"), exit_code=0, reason="the entry point ended")
    request_stop(run.backend, run.cluster, run.plan, "stopped by stop.sh")
    assert (run.cluster_dir.read(STOP) or {})["reason"] == "the entry point ended"
