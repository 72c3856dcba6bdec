"""The local backend's decisions; tests/clusters has its real processes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oci_cluster import local
from oci_cluster.clusters import Cluster
from oci_cluster.errors import BackendError, NotPermittedError, SettingsError, UsageError

linux = pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.x and abstract sockets are Linux's")


def plan(name: str = "mine", launch_id: str = "aaaa1111", **changes: Any) -> dict[str, Any]:
    """Return a plan of 1 + 1 nodes."""
    return {
        "launch_id": launch_id,
        "cluster_id": f"{name}-{launch_id}",
        "name": name,
        "framework": "plain",
        "backend": "local",
        "created": "2026-01-01T00:00:00Z",
        "work_dir": "",
        "environment": {"LAUNCH_ID": launch_id},
        "nodes": [
            {"node": "MAIN", "environment": {"MODE": "MAIN", "NODE_RANK": "0"}},
            {"node": "WORKER_1", "environment": {"MODE": "WORKER", "NODE_RANK": "1"}},
        ],
        **changes,
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project with one framework that binds no port."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "start-master.sh").touch()
    return tmp_path


def keep(root: Path, cluster_plan: dict[str, Any], addresses: list[str]) -> Cluster:
    """Put a cluster's directory where submit would."""
    directory = local.state_dir(root) / cluster_plan["cluster_id"]
    directory.mkdir(parents=True)
    for node, address in zip(cluster_plan["nodes"], addresses, strict=True):
        node["environment"]["NODE_ADDRESS"] = address
    (directory / "cluster.json").write_text(json.dumps(cluster_plan))
    return Cluster.load(directory)


class Running:
    """A cluster whose runner's lock is held."""

    def __init__(self, cluster: Cluster) -> None:
        self._lock = (cluster.directory / "runner.lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def __enter__(self) -> None:
        """Hold it."""

    def __exit__(self, *_: object) -> None:
        """Let it go, as the kernel does for a process that ends."""
        self._lock.close()


@pytest.fixture(autouse=True)
def no_other_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep clusters that run on this machine out of these tests: claims get a namespace of this process's own."""
    bind = socket.socket.bind

    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            bind(self, f"{address}/{os.getpid()}" if self.family == socket.AF_UNIX else address)

    monkeypatch.setattr(local.socket, "socket", Socket)


@linux
def test_nodes_get_the_lowest_addresses_that_no_other_cluster_has() -> None:
    """The first cluster's main is where people look for it; two clusters share no address, so they may share ports."""
    with local.Addresses(3) as first:
        assert first.texts == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
        with local.Addresses(2) as second:
            assert second.texts == ["127.0.0.4", "127.0.0.5"]
    with local.Addresses(1) as third:
        assert third.texts == ["127.0.0.1"]


@linux
def test_addresses_that_do_not_suffice_are_counted_and_given_up() -> None:
    """The message holds the value, the limit and the next step; nothing stays claimed."""
    with local.Addresses(252):
        with pytest.raises(BackendError, match=r"3 nodes do not fit: running clusters leave 2 addresses; end one"):
            local.Addresses(3)
        with local.Addresses(2) as rest:
            assert rest.texts == ["127.0.0.253", "127.0.0.254"]


@linux
def test_claim_lives_as_long_as_a_process_that_inherited_it() -> None:
    """The runner holds its cluster's addresses, not the launcher."""
    with local.Addresses(1) as claimed:
        holder = subprocess.Popen(["sleep", "100"], pass_fds=claimed.descriptors())
    try:
        with local.Addresses(1) as other:
            assert other.texts == ["127.0.0.2"]
    finally:
        holder.kill()
        holder.wait()
    with local.Addresses(1) as again:
        assert again.texts == ["127.0.0.1"]


def test_without_a_loopback_range_nodes_share_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """MacOS has 127.0.0.1 alone."""
    monkeypatch.setattr(local, "has_loopback_range", lambda: False)
    with local.Addresses(2) as addresses:
        assert (addresses.texts, addresses.descriptors()) == (["127.0.0.1", "127.0.0.1"], [])


def test_taken_port_is_named_with_its_setting() -> None:
    """Somebody else's listener is found before anything starts."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"port {port} of .* --env MY_PORT={port + 100}"):
            local.check_ports("127.0.0.1", {"MY_PORT": port})
    assert local.port_is_free("127.0.0.1", port)


def test_check_fills_in_what_this_machine_decides(root: Path) -> None:
    """Addresses, the work dir, and each node's share of the machine; nothing is written."""
    checked = local.check(plan(), root)
    assert [node["environment"]["NODE_ADDRESS"] for node in checked["nodes"]] == ["127.0.0.1", "127.0.0.2"]
    assert checked["environment"]["WORK_DIR"] == f"file://{root}/.clusters"
    assert int(checked["environment"]["NODE_CPUS"]) >= 1
    assert int(checked["environment"]["NODE_MEMORY"]) > 0
    assert not local.state_dir(root).exists()


def test_settings_of_the_launch_win_over_those_of_the_backend(root: Path) -> None:
    """Defaults that suit one machine are defaults."""
    checked = local.check(plan(environment={"HEARTBEAT_TIMEOUT": "7"}), root)
    assert checked["environment"]["HEARTBEAT_TIMEOUT"] == "7"


def test_running_clusters_name_is_taken(root: Path) -> None:
    """Only while it runs."""
    cluster = keep(root, plan(), ["127.0.0.1", "127.0.0.2"])
    with Running(cluster):
        with pytest.raises(UsageError, match="a cluster named 'mine' is running"):
            local.check(plan(), root)
        assert local.check(plan("yours"), root)["name"] == "yours"
    assert local.check(plan(), root)["name"] == "mine"


def test_memory_work_dir_is_refused(root: Path) -> None:
    """Processes cannot see each other's memory."""
    with pytest.raises(SettingsError, match="memory://x is seen by one process only"):
        local.check(plan(work_dir="memory://x"), root)


def test_nodes_of_a_dead_runner_keep_no_exit_code(root: Path) -> None:
    """Not known is not success."""
    cluster = keep(root, plan(), ["127.0.0.1", "127.0.0.2"])
    nodes = [{"node": "MAIN", "state": "IN_PROGRESS", "exit_code": None, "pid": 1}]
    (cluster.directory / "nodes.json").write_text(json.dumps({"runner_pid": 1, "nodes": nodes}).ljust(2000))
    with Running(cluster):
        assert local.state(cluster) == {"nodes": nodes, "running": True}
    assert local.state(cluster) == {"nodes": nodes, "running": False}


def test_records_are_waited_for_while_they_are_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn read is read again; one that stays torn holds nothing."""
    cluster = keep(root, plan(), ["127.0.0.1", "127.0.0.2"])
    path = cluster.directory / "nodes.json"
    path.write_text('{"runner_pid"')
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            path.write_text('{"runner_pid": 5, "nodes": []}')

    monkeypatch.setattr("time.sleep", nap)
    assert local._records(cluster) == {"runner_pid": 5, "nodes": []}
    assert len(naps) == 3
    path.write_text("{")
    assert local._records(cluster) == {"runner_pid": None, "nodes": []}


def test_terminate_tells_the_runner_only_while_it_lives(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pid of a dead runner may be another program's by now."""
    cluster = keep(root, plan(), ["127.0.0.1", "127.0.0.2"])
    (cluster.directory / "nodes.json").write_text(json.dumps({"runner_pid": 4242, "nodes": []}))
    told: list[tuple[int, int]] = []
    monkeypatch.setattr("os.kill", lambda pid, number: told.append((pid, number)))
    local.terminate(cluster)
    assert told == []
    with Running(cluster):
        local.terminate(cluster)
    assert told == [(4242, signal.SIGTERM)]


def test_stop_ends_what_does_not_end_by_itself(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop file, then TERM, then KILL: each only after the one before did not do."""
    cluster = keep(root, plan(work_dir=f"file://{root}/.clusters", environment={"GRACE_PERIOD": "0"}), ["a", "b"])
    steps: list[str] = []
    monkeypatch.setattr(local, "is_running", lambda _: True)
    monkeypatch.setattr(local, "terminate", lambda _: steps.append("terminate"))
    monkeypatch.setattr(local, "kill", lambda _: steps.append("kill"))
    monkeypatch.setattr(local, "_wait_for_end", lambda _, patience_s: steps.append(f"wait {patience_s:g}"))
    local.stop(cluster, steps.append, delete=True)
    assert steps == [
        "stopping mine",
        "wait 10",
        "mine has not ended by itself; ending its nodes",
        "terminate",
        "wait 20",
        "kill",
    ]
    assert not cluster.directory.exists()


def test_runner_that_does_not_start_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The last line that it said is the message; no directory, no process."""
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(BackendError, match="the nodes of mine could not be started: the runner did not answer"):
        local.submit(plan(), root, tmp_path / "python")
    assert list(local.state_dir(root).glob("mine*")) == []


def test_directory_that_cannot_be_made_is_named(root: Path, tmp_path: Path) -> None:
    """A file where .clusters should be."""
    local.state_dir(root).touch()
    with pytest.raises(BackendError, match=r"\.clusters cannot be written: File exists"):
        local.submit(plan(), root, tmp_path / "python")


def test_refused_directory_is_77(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a matter of room: of permission."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(NotPermittedError, match="Permission denied; allow writing there"):
        local.submit(plan(), root, tmp_path / "python")
