"""Random faults: that a seed tells all of them, and that what is looked at afterwards can be found broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from chaos.invariants import Seen, broken
from chaos.schedules import FILE_FAULTS, PHASES, SIGNALS, VERBS, Fault, Schedule, make_schedule


def schedule(*faults: Fault, code: int = 0) -> Schedule:
    """Return a schedule of *faults* in a cluster of 1 + 1, whose entry point ends with *code*."""
    return Schedule(1, "plain", 1, code, 1.0, (), faults)


def seen(code: int = 0, **other: Any) -> Seen:
    """Return what is seen of a cluster without faults, but for *other*."""
    return replace(Seen(code, "", {"MAIN": code}, {"state": "SUCCEEDED", "exit_code": code}, []), **other)


def test_a_seed_makes_the_same_schedule_again() -> None:
    """And another seed another one."""
    assert make_schedule(7) == make_schedule(7)
    assert len({str(make_schedule(seed)) for seed in range(50)}) == 50


def test_every_fault_has_its_turn() -> None:
    """In every phase, and so do clusters without any."""
    schedules = [make_schedule(seed) for seed in range(500)]
    faults = [fault for schedule in schedules for fault in schedule.faults]
    assert {fault.kind for fault in faults} == {
        *(*SIGNALS, *FILE_FAULTS, *VERBS, "away"),
        *("disk full", "temporary full"),
    }
    assert {fault.phase for fault in faults} == set(PHASES)
    parts = {fault.target.partition(" ")[0] for fault in faults if fault.kind in SIGNALS}
    assert parts == {"launcher", "follower", "guard", "runner", "agent", "script", "entry"}
    assert any(not schedule.faults for schedule in schedules)


@pytest.mark.parametrize("code", [0, 7])
def test_a_cluster_that_ends_as_its_entry_point_holds(code: int) -> None:
    """Without faults, and where a fault did nothing."""
    assert broken(schedule(code=code), seen(code)) == []
    assert broken(schedule(Fault("stop", "", "up", 0.0), code=code), seen(code)) == []


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"left": ["a process"]}, "left behind: a process"),
        ({"launch_code": None}, "launch.sh did not end"),
        ({"said": "Traceback (most recent call last)"}, "a traceback was shown"),
        ({"launch_code": 3}, "launch.sh ended with 3, the cluster with 0"),
        ({"truth": {"MAIN": 7}}, "a false success: the cluster ended with 0, main's entry point with 7"),
        ({"truth": {}}, "a false success: the cluster ended with 0, main's entry point with None"),
        ({"cluster": None}, "there is no cluster to be seen"),
        ({"cluster": {"state": "RUNNING", "exit_code": None}}, "the cluster is shown as RUNNING, without a code"),
        ({"cluster": {"exit_code": 70}}, "the cluster ended with 70, which is a fault of this project"),
        ({"verbs": [(["stop"], 70, "oops")]}, "stop ended with 70: oops"),
        ({"verbs": [(["stop"], None, "took longer")]}, "stop ended with None: took longer"),
        ({"afterwards": ["launched again, it ended with 2"]}, "launched again, it ended with 2"),
    ],
)
def test_what_does_not_hold_is_told(other: dict[str, Any], told: str) -> None:
    """Each by itself."""
    assert told in broken(schedule(), seen(**other))


def test_a_code_needs_something_that_explains_it() -> None:
    """A stop explains 143, and not 76; a lost code is told."""
    stop = Fault("stop", "", "up", 0.0)
    stopped = seen(143, truth={})
    assert broken(schedule(stop), stopped) == []
    assert "nothing explains it" in " ".join(broken(schedule(), stopped))
    assert "nothing explains it" in " ".join(broken(schedule(stop, code=7), seen(76, truth={"MAIN": 7})))


def test_a_killed_launcher_has_a_code_of_its_own() -> None:
    """The cluster's is what list.sh shows."""
    killed = seen(143, launch_code=-9, truth={})
    assert broken(schedule(Fault("KILL", "launcher", "up", 0.0)), killed) == []
    assert broken(schedule(Fault("stop", "", "up", 0.0)), killed) == ["launch.sh ended with -9, the cluster with 143"]


def test_a_launch_that_was_not_the_first_of_its_name_shows_anothers_cluster() -> None:
    """It was refused, or ended before it had begun: what is there ended as the other's entry point did."""
    twice = Fault("same name", "", "start", 0.0)
    others = seen(0, truth={}, verbs=[(["launch"], 0, "")])
    for code in (2, -1, 143):
        assert broken(schedule(twice), replace(others, launch_code=code)) == []
    for other in ({}, {"launch_code": 2, "verbs": [(["launch"], 2, "")]}, {"launch_code": -1, "said": "x started: y"}):
        assert "a false success" in " ".join(broken(schedule(twice), replace(others, **other)))
