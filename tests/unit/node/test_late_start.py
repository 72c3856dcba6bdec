"""A node whose host has come late finds out whether anybody still wants it, before anything of the user's begins."""

from __future__ import annotations

import time

import pytest
from unit.fake_cluster import BEGINNING, MakeNode, Node

from oci_cluster.contract.names import STOP, config_file, exit_file


def at(seconds: float) -> str:
    """Return the moment so many *seconds* after the world has begun, as START_BY has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(BEGINNING + seconds))


@pytest.mark.parametrize("mode", ["MAIN", "WORKER"])
@pytest.mark.parametrize("code", [0, 7, 75, 143])
def test_a_node_that_starts_when_its_launch_is_over_ends_at_once(make: MakeNode, mode: str, code: int) -> None:
    """With the launch's code; no script, no code, no facts."""
    node = make(MODE=mode, NODE_RANK="0" if mode == "MAIN" else "1", CODE_URI="git+https://example.org/r@main")
    node.files.publish(STOP, reason="the entry point ended", exit_code=code)
    assert (node.run(), node.children.started, node.world.now) == (code, [], 0.0)
    assert node.read(exit_file(node.settings.node))["exit_code"] == code


@pytest.mark.parametrize(("start_by", "code", "scripts"), [(-1, 75, 0), (1, 5, 1)])
def test_a_main_that_starts_too_late_does_not_begin(make: MakeNode, start_by: float, code: int, scripts: int) -> None:
    """Nobody has waited for it; the others learn it from the stop file."""
    main = make(START_BY=at(start_by))
    main.child_ends(5, at=3.0)
    assert (main.run(), len(main.children.scripts)) == (code, scripts)
    assert main.read(STOP)["exit_code"] == code
    if not scripts:
        assert main.read(STOP)["reason"] == "MAIN started 1 s after START_BY, when nobody waited for it any more"


@pytest.mark.parametrize(("has_main", "code"), [(False, 75), (True, 0)])
def test_a_worker_that_starts_too_late_joins_a_main_that_is_there(make: MakeNode, *, has_main: bool, code: int) -> None:
    """One that was added to a cluster that works, say. Without a main there is nobody to wait for."""
    worker = make(MODE="WORKER", NODE_RANK="1", START_BY=at(-100))
    if has_main:
        worker.main_lives()
        worker.publish(STOP, at=20.0, reason="done", exit_code=0)
    assert (worker.run(), bool(worker.children.scripts)) == (code, has_main)
    assert worker.read(config_file("WORKER_1")).get("rank") == (1 if has_main else None)


def test_a_node_in_time_waits_for_main(make: MakeNode) -> None:
    """As long as TIMEOUT says."""
    worker: Node = make(MODE="WORKER", NODE_RANK="1", START_BY=at(1), TIMEOUT="30")
    assert (worker.run(), worker.world.now >= 30) == (75, True)
