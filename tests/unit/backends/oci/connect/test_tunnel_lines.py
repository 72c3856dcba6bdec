# Ways on OCI with an ssh that a test plays: what is made, renewed, made again, deleted, and said.

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness import wait_until
from unit.fake_backend import KEY, LAUNCH, keep, plan_of
from unit.stub_program import write_program

from oci_cluster.backends.oci.connect import tunnels
from oci_cluster.backends.oci.connect.bastion import Session
from oci_cluster.backends.oci.settings import Jump
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import BackendError, ClusterError, StoppedError

BASTION = "ocid1.bastion.oc1.iad.aaaabastion"
# It is connected at once, and forwards; or says why not.
SSH = """import os, socket, sys, threading
if why := os.environ["PLAYED_SSH"]:
    sys.exit(why)
path, _, place = sys.argv[sys.argv.index("-L") + 1].partition(":")
host, _, port = place.rpartition(":")
def pour(source, target):
    while piece := source.recv(4096):
        target.sendall(piece)
    target.shutdown(socket.SHUT_WR)
with socket.socket(socket.AF_UNIX) as server:
    server.bind(path)
    server.listen()
    while True:
        near, _ = server.accept()
        far = socket.create_connection((host, int(port)))
        for ends in ((near, far), (far, near)):
            threading.Thread(target=pour, args=ends, daemon=True).start()
"""


TIMED_OUT = "connect to host host.bastion.example port 22: Connection timed out"
KEY_WITHIN_S = tunnels._KEY_WITHIN_S
LATE = "Permission denied (publickey)."


class PlayedSessions:
    """Sessions of a bastion that a test plays."""

    allowed_from: tuple[str, ...] = ("10.0.0.0/8",)
    is_unsure = False

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.active: dict[str, str] = {}
        self.deleted: list[str] = []
        self.asked: list[tuple[str, int]] = []
        self.host_keys = ("ssh-ed25519 AAAA",)
        self.refused = ""
        self.is_unwanted: Callable[[], bool] = lambda: False

    @property
    def left(self) -> list[str]:
        return list(self.active)

    def going(self) -> list[Any]:
        if self.refused:
            raise BackendError(self.refused)
        return []

    def create(self, address: str, port: int, public_key: str) -> Session:
        self.asked.append((address, port))
        name = f"session-{len(self.asked)}"
        self.active[name] = public_key
        return Session(name, "host.bastion.example", 22, self.host_keys, self.clock(), self.clock() + 10800)

    def is_active(self, session: str) -> bool:
        return session in self.active

    def delete(self, session: str) -> None:
        if self.refused:
            raise BackendError(self.refused)
        self.active.pop(session, None)
        self.deleted.append(session)


class Table:
    """A node that greets, the ssh that is played, and who asks."""

    def __init__(self, place: Path) -> None:
        self.now = 1000.0
        self.said: list[str] = []
        self.is_stopped = False
        self.place = place
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()
        service = SimpleNamespace(environ=dict(os.environ))
        self.asker = tunnels.Asker(
            {"SSH_JUMP": "me@jump:2222"},
            lambda: service,  # type: ignore[return-value,arg-type]
            self.said.append,
            lambda: self.is_stopped,
            lambda: self.now,
            lambda _: None,
        )
        self.sessions = PlayedSessions(lambda: self.now)
        self.opened: list[Any] = []

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                connection.sendall(b"hello")
                connection.close()

    def through_bastion(self) -> tunnels.BastionTunnel:
        """Return a way through sessions, which nobody but the test looks after."""
        place = tunnels.Place(dict(os.environ), "127.0.0.1", self.port)
        tunnel = tunnels.BastionTunnel(self.sessions, place, self.asker)  # type: ignore[arg-type]
        tunnel._tend = lambda: None  # type: ignore[method-assign]
        tunnel._thread = threading.Thread(target=tunnel._tend)
        self.opened.append(tunnel)
        tunnel.open()
        return tunnel

    def greeting(self, tunnel: Any) -> bytes:
        with tunnel.dial() as connection:
            return bytes(connection.recv(5))

    def close(self) -> None:
        for tunnel in self.opened:
            tunnel.close()
        self._server.close()


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    write_program(program, SSH, "-IS")
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PLAYED_SSH", "")
    monkeypatch.setattr(tunnels, "_KEY_WITHIN_S", 0.0)
    found = Table(tmp_path)
    yield found
    found.close()


def test_a_host_of_the_users_leads_to_the_node_and_leaves_nothing(table: Table) -> None:
    tunnel = tunnels.tunnel_to(Jump("me", "jump", 2222), "127.0.0.1", table.port, "mine-1f2e3d4c", table.asker)
    assert isinstance(tunnel, tunnels.JumpTunnel)
    directory = tunnel._place.directory
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [table.greeting(tunnel) for _ in range(2)] == [b"hello"] * 2
    tunnel.close()
    assert not directory.exists()
    with pytest.raises(BackendError, match="the way to the node is closed"):
        tunnel.dial()


def test_a_host_that_lets_nobody_in_is_named_with_what_must_work(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYED_SSH", "me@jump: Permission denied (publickey).")
    with pytest.raises(ClusterError, match=r"Permission denied .*'ssh -o BatchMode=yes -p 2222 me@jump' must log in"):
        tunnels.tunnel_to(Jump("me", "jump", 2222), "127.0.0.1", table.port, "mine", table.asker)


def test_the_address_comes_from_the_cluster_dir(table: Table) -> None:
    """As main has told it; before that there is no way."""
    plan = plan_of(table.place)
    cluster = keep(table.place, plan)
    with pytest.raises(BackendError, match="MAIN has not told its address yet"):
        tunnels.open_tunnel(cluster, plan, "MAIN", table.port, table.asker)
    told = {"node": "MAIN", "rank": 0, "address": "127.0.0.1", "facts": {}, "attempt": 0}
    ClusterDir(plan.url, LAUNCH, KEY).publish("MAIN_config.json", **told)
    tunnel = tunnels.open_tunnel(cluster, plan, "MAIN", table.port, table.asker)
    assert table.greeting(tunnel) == b"hello"
    tunnel.close()


def test_a_session_is_made_with_a_key_of_its_own_and_deleted(table: Table) -> None:
    tunnel = table.through_bastion()
    assert table.greeting(tunnel) == b"hello"
    assert table.sessions.asked == [("127.0.0.1", table.port)]
    assert table.sessions.active["session-1"].startswith("ssh-ed25519 ")
    known = tunnel._place.directory / "known_hosts"
    assert known.read_text() == "host.bastion.example ssh-ed25519 AAAA\n"
    tunnel.close()
    assert (table.sessions.active, set(table.sessions.deleted)) == ({}, {"session-1"})
    assert not known.parent.exists()


def test_a_session_is_renewed_before_its_end_and_the_old_one_goes_on(table: Table) -> None:
    tunnel = table.through_bastion()
    old = tunnel.dial()
    table.now += 10800 - 299
    tunnel.tend()
    assert list(table.sessions.active) == ["session-1", "session-2"]
    assert (old.recv(5), table.greeting(tunnel)) == (b"hello", b"hello")
    old.close()
    table.now += 1
    tunnel.tend()
    assert len(table.sessions.asked) == 2


def kill_ssh(tunnel: tunnels.BastionTunnel) -> None:
    line: Any = tunnel._line
    tunnel = line.is_running.__self__
    os.kill(tunnel._pid, signal.SIGKILL)
    wait_until(lambda: not line.is_running(), "the end of ssh")
    tunnel.path.unlink(missing_ok=True)


def test_an_ssh_that_ends_is_started_again_in_its_session_while_that_lives(table: Table) -> None:
    tunnel = table.through_bastion()
    kill_ssh(tunnel)
    tunnel.tend()
    assert (table.greeting(tunnel), list(table.sessions.active), table.sessions.deleted) == (
        b"hello",
        ["session-1"],
        [],
    )
    table.sessions.active.clear()
    kill_ssh(tunnel)
    tunnel.tend()
    assert (table.greeting(tunnel), list(table.sessions.active)) == (b"hello", ["session-2"])


@pytest.mark.parametrize(
    ("said", "seen", "why"),
    [
        ("Host key verification failed.", ("10.0.0.0/8", "ssh-ed25519 AAAA"), "host.bastion.example has another"),
        ("Host key verification failed.", ("10.0.0.0/8",), "OCI has not told the host key of host.bastion.example"),
        (TIMED_OUT, ("10.0.0.0/8", "k"), r"; the bastion lets ssh in from 10\.0\.0\.0/8: this machine's address must"),
        (TIMED_OUT, ("0.0.0.0/0", "k"), "; is port 22 of it open for this machine, or HTTPS_PROXY set"),
        (LATE, ("0.0.0.0/0", "k"), r"; its session has not taken its key within \S+ s: try again$"),
        (LATE, ("10.0.0.0/8", "k"), r"try again, or the bastion lets ssh in from 10\.0\.0\.0/8"),
    ],
)
def test_a_bastion_that_is_not_reached_says_why_and_leaves_no_session(
    table: Table, monkeypatch: pytest.MonkeyPatch, said: str, seen: tuple[str, ...], why: str
) -> None:
    """By what ssh says; *seen* are the addresses that are let in, and the host's key where OCI tells it."""
    table.sessions.host_keys, table.sessions.allowed_from = seen[1:], seen[:1]
    monkeypatch.setenv("PLAYED_SSH", said)
    table.now += 1
    monkeypatch.setattr(tunnels, "_KEY_WITHIN_S", -1.0)
    with pytest.raises(ClusterError, match=why):
        table.through_bastion()
    assert (table.sessions.active, set(table.sessions.deleted)) == ({}, {"session-1"})


def test_a_session_has_more_than_a_minute_to_take_its_key(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the way's clock: ssh is let in 70 s after the first try."""
    monkeypatch.setattr(tunnels, "_KEY_WITHIN_S", KEY_WITHIN_S)
    monkeypatch.setenv("PLAYED_SSH", LATE)

    def later() -> bool:
        if os.environ["PLAYED_SSH"]:
            table.now += 70
            monkeypatch.setenv("PLAYED_SSH", "")
        return False

    table.asker = replace(table.asker, is_stopped=later)
    assert table.greeting(table.through_bastion()) == b"hello"
    assert len(table.sessions.asked) == 1


def test_a_launcher_that_is_told_to_stop_makes_no_way(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYED_SSH", "no")
    table.is_stopped = True
    with pytest.raises(StoppedError):
        table.through_bastion()
    assert table.sessions.active == {}


def test_a_session_that_cannot_be_deleted_is_named_with_the_command(table: Table) -> None:
    tunnel = table.through_bastion()
    table.sessions.refused = "OCI does not answer"
    tunnel.close()
    assert table.said[-1] == (
        "OCI does not answer; delete it with: oci bastion session delete --force --session-id session-1"
    )
    table.sessions.refused = ""
