"""Things of every kind in the place of a cluster's files: a script could put them there."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.fake_local import keep, make_plan

from oci_cluster.backends.local.backend import LocalBackend
from oci_cluster.contract.cluster import FILE, State
from oci_cluster.errors import LostPlanError
from oci_cluster.launcher.show.report import overview

RUNNING = {"node": "MAIN", "state": "IN_PROGRESS", "exit_code": None, "pid": 4, "address": "127.0.0.1"}


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10 << 30)


def unix_socket(path: Path) -> None:
    """A socket's name is short: it is made elsewhere, and moved."""
    with tempfile.TemporaryDirectory(dir="/tmp") as short, socket.socket(socket.AF_UNIX) as one:
        one.bind(f"{short}/s")
        Path(short, "s").rename(path)


def unreadable(path: Path) -> None:
    path.write_text("{}")
    path.chmod(0)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": Path.mkdir,
    "sparse": sparse,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "socket": unix_socket,
    "loop": lambda path: path.symlink_to(path.name),
    "dangling": lambda path: path.symlink_to("nowhere"),
    "unreadable": unreadable,
    "deep": lambda path: path.write_text("[" * 100_000),
    "binary": lambda path: path.write_bytes(b"\xff\x00" * 100),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [FILE, "nodes.json", "runner.lock"])
def test_one_that_is_damaged_hides_no_other(tmp_path: Path, name: str, kind: str) -> None:
    """Nothing waits for it, it fills no memory, and it is no bug."""
    backend = LocalBackend(tmp_path)
    for launch_id in ("aaaa1111", "bbbb2222"):
        cluster = keep(tmp_path, make_plan(f"mine-{launch_id[0]}", launch_id))
        (cluster.directory / "nodes.json").write_text(json.dumps({"runner_pid": 4, "nodes": [RUNNING]}))
        (cluster.directory / "runner.lock").touch()
        (cluster.directory / "logs" / "runner.log").touch()
    path = tmp_path / ".clusters" / "mine-a-aaaa1111" / name
    path.unlink()
    KINDS[kind](path)
    clusters = backend.find()
    states = backend.states(clusters)
    found = [overview(backend, cluster, states[cluster.launch_id]) for cluster in clusters]
    other = next(one for one in found if one["name"] == "mine-b")
    assert other["nodes"][0]["state"] == State.IN_PROGRESS
    assert {one["name"] for one in found} == {"mine-a", "mine-b"}
    if name == FILE and not (kind == "unreadable" and os.geteuid() == 0):
        damaged = next(cluster for cluster in clusters if cluster.name == "mine-a")
        with pytest.raises(LostPlanError, match="does not say what was launched"):
            backend.load(damaged)


def test_a_lock_that_nobody_can_ask_is_taken_to_be_held(tmp_path: Path) -> None:
    """A cluster that may run is not shown as one that has ended."""
    cluster = keep(tmp_path, make_plan())
    (cluster.directory / "nodes.json").write_text(json.dumps({"runner_pid": None, "nodes": [RUNNING]}))
    unix_socket(cluster.directory / "runner.lock")
    (state,) = LocalBackend(tmp_path).states([cluster])["aaaa1111"]
    assert state.is_running
