"""Which ring runs which tests of real clusters: the core of ``make test``, and what ``make test-nightly`` alone runs.

A name is a folder, a file, a test (with all its parameters) or a test with one of them. A test in neither table, here
or in ``nightly.txt``, is run by ``make test-all``, which is what the gate runs. What takes minutes or gigabytes by its
nature, and proves what no other test does, has the mark ``nightly`` where it stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

# What needs no root, Go, container engine or compiler: Dask, PyTorch, losses and codes of the toy frameworks, and
# launches on the stand-in for OCI.
CORE = (
    "clusters/test_dask.py::test_example_shows_each_workers_share_and_its_result",
    "clusters/test_gang.py::test_first_cause_is_the_clusters_code_and_named",
    "clusters/test_gang.py::test_gang_starts_again_together_until_restarts_are_used_up",
    "clusters/test_local_backend.py",
    "clusters/test_local_losses.py::test_killed_main_agent_ends_every_worker_with_76",
    "clusters/test_local_losses.py::test_killed_worker_agent_leaves_no_grandchild_and_is_named",
    "clusters/test_local_losses.py::test_second_ctrl_c_ends_a_cluster_that_does_not_listen",
    "clusters/test_local_losses.py::test_signal_to_a_running_launch_stops_the_cluster",
    "clusters/test_lost_launcher.py",
    "clusters/test_oci.py::test_exit_code_comes_through_and_logs_and_outputs_stay[runs]",
    "clusters/test_pytorch.py::test_example_trains_alike_on_one_process_and_on_three_nodes",
)


def _nightly() -> dict[str, str]:
    """Return the names of ``nightly.txt``, each with what proves the same in the gate."""
    found, proof = {}, ""
    for line in Path(__file__).with_name("nightly.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("by: "):
            proof = line.removeprefix("by: ")
        elif line and not line.startswith("#"):
            found[line] = proof
    return found


NIGHTLY = _nightly()


def is_named(test: str, name: str) -> bool:
    """Return whether *name* is that of *test*, ``clusters/test_x.py::test_y[z]``, or of what it is a part of."""
    return test == name or test.startswith((f"{name}/", f"{name}::", f"{name}["))


def mark(items: Iterable[pytest.Item]) -> None:
    """Give tests the marks ``core`` and ``nightly`` that their names have in the tables."""
    for item in items:
        test = item.nodeid.removeprefix("tests/")
        if any(is_named(test, name) for name in CORE):
            item.add_marker(pytest.mark.core)
        if any(is_named(test, name) for name in NIGHTLY):
            item.add_marker(pytest.mark.nightly)
