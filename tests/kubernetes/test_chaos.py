"""A few schedules of random faults in pods, always the same; `make chaos BACKEND=kubernetes` runs others."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.places import opened_in
from chaos.runs import run
from chaos.schedules import make_schedule
from kube.cluster import Cluster

# With the start of the Kubernetes; a schedule has its own patience.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]


# None of these harms the Kubernetes itself, which other tests share.
@pytest.mark.parametrize("seed", [213, 242])
def test_whatever_goes_wrong_the_outcome_is_true_and_nothing_is_left(
    kubernetes: Cluster, toy_image: str, checkout_copy: Path, tmp_path: Path, seed: int
) -> None:
    """What really happened is what the cluster ends with, unless a fault explains another code."""
    schedule = make_schedule(seed, place="kubernetes")
    result = run(opened_in("kubernetes", checkout_copy, kubernetes), tmp_path / "schedule", schedule)
    again = f"make chaos N=1 SEED={seed} BACKEND=kubernetes"
    assert not result.broken, f"{result.broken}\n{schedule}\n{result.seen.said}\nagain: {again}"
