"""How many workers there may be, and which ranks new ones get."""

from __future__ import annotations

import pytest
from unit.launcher.fake_checkout import HINT, Checkout, refusal

from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.launcher.launch.plan import free_ranks, scaled_workers

# --- How many workers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "environ", "minimum"),
    [
        ("", {}, 3),
        ("MIN_WORKERS=1\n", {}, 1),
        ("MIN_WORKERS=1\n", {"MIN_NODES": "3"}, 2),
        ("", {"MIN_NODES": "1"}, 0),
    ],
)
def test_the_least_is_what_the_agents_take_for_it(
    checkout: Checkout, declared: str, environ: dict[str, str], minimum: int
) -> None:
    """MIN_WORKERS, else MIN_NODES less main, else all that were launched; the framework's defaults count."""
    (checkout.root / "dask" / "settings.env").write_text(declared)
    assert checkout.plan(environ, workers="3").limits.min_workers == minimum


@pytest.mark.parametrize("declared", ["", "MIN_WORKERS=1\n", "MIN_WORKERS=0\n"])
def test_a_cluster_without_workers_is_main_alone(checkout: Checkout, declared: str) -> None:
    """What a framework declares as its least is meant for clusters that have workers."""
    (checkout.root / "dask" / "settings.env").write_text(declared)
    plan = checkout.plan(workers="0")
    assert (plan.node_names, plan.limits.min_workers) == (["MAIN"], 0)


def test_a_minimum_of_the_users_own_counts_without_workers_too(checkout: Checkout) -> None:
    said = refusal(SettingsError, checkout, {"MIN_WORKERS": "1"}, workers="0")
    assert "1 is more than the 0 of this launch" in said


def test_parameter_servers_need_workers(checkout: Checkout) -> None:
    (checkout.root / "dask" / "settings.env").write_text("")
    said = refusal(SettingsError, checkout, {"PS_COUNT": "2"}, workers="0")
    assert said == f"bad settings: PS_COUNT: 2 would serve no workers; launch 1 worker or more {HINT}"


@pytest.mark.parametrize(
    ("adapt", "workers", "minimum"),
    [("1:4", "2", 1), ("0:4", "1", 0), ("0:4", "0", 0), ("2:2", "2", 1), ("0:250", "9", 0)],
)
def test_a_cluster_that_adapts_may_have_as_few_as_main_may_wish_for(
    checkout: Checkout, adapt: str, workers: str, minimum: int
) -> None:
    """Else the first worker that is let go would end it. With 0 it may begin without any."""
    plan = checkout.plan({"ADAPT": adapt}, workers=workers)
    assert (plan.limits.min_workers, plan.environment["MIN_WORKERS"]) == (minimum, str(minimum))
    assert plan.environment["ADAPT"] == adapt
    assert len(plan.nodes) == int(workers) + 1


@pytest.mark.parametrize("workers", ["0", "1", "5"])
def test_a_cluster_begins_with_as_many_as_adapt_allows(checkout: Checkout, workers: str) -> None:
    """What was typed, and what is right."""
    assert refusal(UsageError, checkout, {"ADAPT": "2:4"}, workers=workers) == (
        f"workers: {workers} is not within ADAPT=2:4; begin with 2 to 4"
    )


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"ADAPT": "1"}, "ADAPT: '1' is not two numbers, the smaller first, such as 1:10"),
        ({"ADAPT": "3:1"}, "ADAPT: '3:1' is not two numbers, the smaller first, such as 1:10"),
        ({"ADAPT": "1:x"}, "ADAPT: 'x' is not a whole number from 0 to 1000000"),
        ({"ADAPT": "-1:3"}, "ADAPT: '-1' is not a whole number from 0 to 1000000"),
        ({"ADAPT": "1:251"}, "ADAPT: 251 is more than the 250 workers that local takes"),
        (
            {"ADAPT": "1:4", "MIN_WORKERS": "2"},
            "MIN_WORKERS (MIN_NODES less main): 2 is more than the least that ADAPT allows, 1",
        ),
    ],
)
def test_bounds_that_cannot_be_are_bad_settings(checkout: Checkout, given: dict[str, str], why: str) -> None:
    """Each once, before anything starts (78)."""
    assert refusal(SettingsError, checkout, given) == f"bad settings: {why} {HINT}"


def test_what_another_framework_adapts_to_is_nothing_to_one_that_does_not(checkout: Checkout) -> None:
    """A config.env may be for several; --env is for this launch alone."""
    (checkout.root / "dask" / "settings.env").write_text("MIN_WORKERS=2\nUNUSED_SETTINGS=ADAPT\n")
    checkout.config("ADAPT=5:9")
    plan = checkout.plan(workers="2")
    assert ("ADAPT" in plan.environment, plan.limits.min_workers) == (False, 2)
    said = refusal(SettingsError, checkout, environment=["ADAPT=1:3"])
    assert "ADAPT is not for dask, which asks for no workers; leave it out" in said


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("4", 4), ("+1", 4), ("-1", 2), ("+0", 3), ("-0", 3), ("3", 3), ("1", 1), ("+7", 10), ("10", 10)],
)
def test_workers_are_asked_for_by_number_or_by_difference(text: str, wanted: int) -> None:
    """A sign makes a difference of it; both limits are allowed."""
    assert scaled_workers(text, 3, minimum=1, maximum=10) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"), [("0", 0), ("-3", 0), ("-4", -1), ("+8", 11), ("11", 11), ("1000000", 1_000_000)]
)
def test_workers_out_of_the_limits_are_wrong_usage(text: str, wanted: int) -> None:
    """The number that would be, the limits and the number that is are in one line."""
    with pytest.raises(UsageError) as caught:
        scaled_workers(text, 3, minimum=1, maximum=10)
    assert str(caught.value) == (
        f"{wanted} workers are not possible; choose 1 to 10 (3 now); MIN_WORKERS sets the minimum"
    )


@pytest.mark.parametrize("text", ["", "+", "-", "++1", "+-1", "--1", "1.5", "two", "1+", "1000001", "+ "])
def test_what_is_no_number_of_workers_is_wrong_usage(text: str) -> None:
    """Named as it was typed, with the forms that are right."""
    with pytest.raises(UsageError) as caught:
        scaled_workers(text, 3, minimum=1, maximum=10)
    assert str(caught.value) == f"'{text}' is not a number of workers; write 4, +1 or -1"


# --- Ranks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "running", "count", "ranks"),
    [
        (["MAIN", "WORKER_1", "WORKER_2"], ["MAIN", "WORKER_1", "WORKER_2"], 2, [3, 4]),
        (["MAIN", "WORKER_1", "WORKER_2"], ["MAIN", "WORKER_1"], 1, [2]),
        (["MAIN", "WORKER_1", "WORKER_2"], ["MAIN"], 3, [1, 2, 3]),
        (["MAIN", "WORKER_1", "PS_2"], ["MAIN", "WORKER_1", "PS_2"], 2, [3, 4]),
        (["MAIN", "WORKER_1", "PS_2"], ["MAIN", "WORKER_1"], 1, [3]),
        (["MAIN", "WORKER_10", "WORKER_9"], ["MAIN"], 3, [9, 10, 11]),
        (["MAIN", "WORKER_1", "WORKER_2"], ["MAIN", "WORKER_1"], 0, []),
        (["MAIN", "WORKER_1", "WORKER_2"], ["MAIN", "WORKER_1"], -1, []),
    ],
)
def test_new_workers_get_the_ranks_of_lost_ones_first(
    known: list[str], running: list[str], count: int, ranks: list[int]
) -> None:
    """Then the next that no node has had: a parameter server's rank is never a worker's."""
    assert free_ranks(known, running, count) == ranks
