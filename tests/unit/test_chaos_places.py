"""Random faults in every place: what a seed makes there, and what is looked at afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chaos.invariants import Seen, broken
from chaos.runs import has_begun, own_code
from chaos.schedules import FILE_FAULTS, PLACES, SIGNALS, VERBS, WORK_DIR, Fault, make_schedule

SEEDS = range(300)


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        (107, "away 1.32 s after end; PAUSE guard 0.00 s after up"),
        (121, "away 0.00 s after up; FREEZE script MAIN 0.37 s after up"),
        (125, "away 0.00 s after end; FREEZE script MAIN 0.00 s after end; INT entry MAIN 1.01 s after up"),
        (135, "away 0.24 s after end"),
    ],
)
def test_seeds_that_found_a_fault_once_keep_their_schedule(seed: int, faults: str) -> None:
    assert str(make_schedule(seed)).endswith(f": {faults}")


@pytest.mark.parametrize("place", PLACES)
def test_a_place_gets_every_kind_of_fault_and_says_what_each_may_end_with(place: str) -> None:
    schedules = [make_schedule(seed, place=place) for seed in SEEDS]
    assert schedules == [make_schedule(seed, place=place) for seed in SEEDS]
    kinds = {fault.kind for schedule in schedules for fault in schedule.faults}
    assert kinds >= {*SIGNALS, *FILE_FAULTS, *VERBS}
    for schedule in schedules:
        assert 0 not in schedule.excuses, "nothing explains a false success"
        assert 70 not in schedule.excuses, "nothing explains a bug"


def test_files_are_damaged_in_pods_only_where_they_are_on_a_volume() -> None:
    """In main's memory nobody can: both kinds of clusters are seen, as the seed has it."""
    schedules = [make_schedule(seed, place="kubernetes") for seed in SEEDS]
    on_volume = [schedule for schedule in schedules if ("WORK_DIR", WORK_DIR) in schedule.settings]
    assert 100 < len(on_volume) < 200
    for schedule in schedules:
        is_damaged = any(fault.kind in FILE_FAULTS for fault in schedule.faults)
        assert not is_damaged or schedule in on_volume


@pytest.mark.parametrize(
    ("kind", "codes"),
    [("evicted", set()), ("deleted", {76}), ("machine away", {76}), ("kubelet killed", set()), ("API killed", set())],
)
def test_what_kubernetes_takes_away_comes_back_and_what_somebody_deletes_does_not(kind: str, codes: set[int]) -> None:
    assert Fault(kind, "MAIN", "up", 0.0).excuses == codes


SCHEDULE = replace(make_schedule(1, place="oci"), code=7, faults=(Fault("KILL", "agent MAIN", "up", 0.0),))
LOST = Seen(launch_code=76, said="", truth={"MAIN": None}, cluster={"exit_code": 76}, left=[])


def test_a_success_that_could_not_be_brought_was_told() -> None:
    """By a code of the launcher's own, and with what to do."""
    seen = Seen(69, "error: ...; it stays in the engine; try again: stop.sh x", {"MAIN": 0}, {"exit_code": 0}, [])
    assert broken(replace(SCHEDULE, code=0), seen) == []
    assert broken(replace(SCHEDULE, code=0), replace(seen, said="error"))


def test_of_two_launches_of_one_name_the_one_that_was_refused_has_no_cluster() -> None:
    verb = (["launch", "plain"], 0, "")
    seen = replace(LOST, launch_code=2, cluster={"exit_code": 0}, verbs=[verb])
    assert broken(SCHEDULE, seen) == []
    assert broken(SCHEDULE, replace(seen, verbs=[(["launch", "plain"], 2, "")]))


def test_what_really_happened_is_what_the_last_entry_point_of_a_node_noted() -> None:
    truth = "MAIN 0 up\nWORKER_1 0 up\nMAIN 0 end\nMAIN 0 code 0\nMAIN 1 up\nWORKER_1 0 end\nWORKER_1 0 code 3\n"
    assert (own_code(truth, "MAIN"), own_code(truth, "WORKER_1"), own_code(truth, "WORKER_2")) == (None, 3, None)
    assert has_begun(truth, "end")
    assert not has_begun("WORKER_1 0 end\n", "end")
