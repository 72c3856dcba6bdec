"""A few schedules of random faults, always the same; `make chaos` runs as many others as one likes."""

from __future__ import annotations

import sys
from pathlib import Path

import engine as engines
import hosts
import pytest
from chaos.places import opened
from chaos.runs import run
from chaos.schedules import make_schedule

LINUX = "" if sys.platform == "linux" else "tests/oci_service runs on Linux alone"
NEEDS = {"local": "", "docker": engines.why_not(), "oci": LINUX, "hosts": hosts.why_not()}


@pytest.mark.parametrize(
    ("place", "seed"),
    [("local", 107), ("local", 121), ("local", 125), ("local", 135), ("docker", 4), ("oci", 9), ("hosts", 35)],
)
def test_whatever_goes_wrong_the_outcome_is_true_and_nothing_is_left(
    checkout_copy: Path, tmp_path: Path, place: str, seed: int
) -> None:
    """What really happened is what the cluster ends with, unless a fault explains another code."""
    if NEEDS[place]:
        pytest.skip(f"{place}: {NEEDS[place]}")
    schedule = make_schedule(seed, place=place)
    with opened(place, checkout_copy, tmp_path) as open_place:
        result = run(open_place, tmp_path / "schedule", schedule)
    again = f"make chaos N=1 SEED={seed} BACKEND={place}"
    assert not result.broken, f"{result.broken}\n{schedule}\n{result.seen.said}\nagain: {again}"
