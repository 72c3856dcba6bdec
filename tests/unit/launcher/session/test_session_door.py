"""When a person is told how to reach a session, and where."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from unit.fake_backend import KEY, LAUNCH, LIMITS, FakeBackend, keep, plan_of

from oci_cluster.backends.base import DirectConnection
from oci_cluster.contract.session import session_token
from oci_cluster.errors import BackendError
from oci_cluster.launcher.connect import connect
from oci_cluster.launcher.session.kinds import read_kind
from oci_cluster.launcher.session.session import Door

TOKEN = session_token(KEY, LAUNCH)


class Terminal(io.StringIO):
    """What a person looks at."""

    def isatty(self) -> bool:
        return True


class Page(BaseHTTPRequestHandler):
    """A session's server."""

    def do_GET(self) -> None:
        self.send_response(200 if TOKEN in self.path else 403)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


class Desk:
    """A session whose server a test starts, and its door."""

    def __init__(self, root: Path, **kind: str) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Page, bind_and_activate=False)
        self.server.server_bind()
        self.port = self.server.server_address[1]
        folder = root / "scripts" / "sessions" / "book"
        folder.mkdir(parents=True)
        lines = {"SESSION_PORT": "1", "SESSION_PROBE": "'/?t={token}'", **kind}
        (folder / "session.env").write_text("".join(f"{name}={text}\n" for name, text in lines.items()))
        self.said: list[str] = []
        environment = {"LAUNCH_KEY": KEY, "SESSION": "book", "SESSION_PORT": str(self.port)}
        self.plan = plan_of(root, environment=environment)
        self.cluster = keep(root, self.plan)
        self.backend = FakeBackend(root)
        self.root = root

    def door(self, **limits: Any) -> Door:
        plan = replace(self.plan, limits=replace(LIMITS, ports={"SESSION_PORT": self.port}, **limits))
        kind = read_kind(self.root, "book")
        return Door(self._open, kind, self.cluster, plan, opens=False, say=self.said.append)

    def _open(self, is_stopped: Callable[[], bool]) -> Any:
        assert not is_stopped()
        self.backend.port_forward = lambda *words: DirectConnection("127.0.0.1", words[3])  # type: ignore[attr-defined]
        return self.backend

    def serve(self) -> None:
        self.server.server_activate()
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def until_said(self) -> str:
        deadline = time.monotonic() + 60
        while not self.said:
            assert time.monotonic() < deadline, "nothing is said"
            time.sleep(0.01)
        return self.said[-1]


URL = {"SESSION_URL": "'http://{host}:{port}/?t={token}'"}


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Desk]:
    monkeypatch.setattr(connect, "PROJECT_ROOT", tmp_path)
    desk = Desk(tmp_path, **getattr(request, "param", URL))
    yield desk
    if desk.said:
        threading.Thread(target=desk.server.shutdown, daemon=True).start()
    desk.server.server_close()


def test_it_is_told_when_the_server_answers_and_to_no_log(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stderr is no terminal: in a file of the user's own, for as long as the session is there."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    door, path = desk.door(), desk.cluster.directory / "session-url"
    door.ready()
    assert (desk.said, path.exists()) == ([], False)
    desk.serve()
    assert desk.until_said() == f"book answers; how to reach it is in {path}"
    assert path.read_text() == f"http://127.0.0.1:{desk.port}/?t={TOKEN}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    door.close()
    assert not path.exists()


def test_a_person_at_a_terminal_sees_it_once(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """And there is no file."""
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    desk.serve()
    door = desk.door()
    door.ready()
    assert desk.until_said() == "book answers:"
    door.close()
    assert terminal.getvalue() == f"\n  http://127.0.0.1:{desk.port}/?t={TOKEN}\n\n"
    assert not (desk.cluster.directory / "session-url").exists()


@pytest.mark.parametrize("desk", [{"SESSION_COMMAND": "'talk {host} {port} {name}'"}], indirect=True)
def test_a_command_without_a_token_is_no_secret(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    desk.serve()
    door = desk.door()
    door.ready()
    assert desk.until_said() == f"book answers: talk 127.0.0.1 {desk.port} mine"
    door.close()


def test_another_program_on_the_port_is_no_session(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know the token; nobody is sent there."""
    monkeypatch.setattr(Page, "do_GET", lambda self: (self.send_response(403), self.end_headers()))
    desk.serve()
    door = desk.door(timeout_s=0.1)
    door.ready()
    said = desk.until_said()
    assert said.startswith("book cannot be reached: what answers there is not this session: it refuses the session's")
    assert said.endswith("connect.sh mine tries again")
    door.close()


@pytest.mark.parametrize("is_of", ["this machine", "elsewhere"])
def test_nobody_is_asked_before_the_port_is_this_users(desk: Desk, monkeypatch: pytest.MonkeyPatch, is_of: str) -> None:
    """The address has the token. Where a node is elsewhere nobody can look whose its port is."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    heard, looked = [], []
    monkeypatch.setattr(Page, "do_GET", lambda self: (heard.append(self.path), self.send_error(403)))
    monkeypatch.setattr(connect, "is_of_this_user", lambda *place: bool(looked.append(place)))
    desk.backend.is_this_machine = is_of == "this machine"
    desk.serve()
    door = desk.door(timeout_s=0.1)
    door.ready()
    said = desk.until_said()
    door.close()
    if desk.backend.is_this_machine:
        assert f"it is not this user's process that listens on port {desk.port} of 127.0.0.1; SESSION_PORT" in said
        assert set(looked) == {("127.0.0.1", desk.port)}
        assert heard == []
    else:
        assert looked == []
        assert set(heard) == {f"/?t={TOKEN}"}


def test_it_is_the_nodes_own_port_that_is_looked_at(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A forwarder, to it from a port of one's own, is this user's in any case."""
    looked = []
    monkeypatch.setattr(connect, "is_of_this_user", lambda *place: bool(looked.append(place)))
    desk.serve()
    way = DirectConnection("127.0.0.1", desk.port)
    monkeypatch.setattr(desk.backend, "port_forward", lambda *_: way, raising=False)
    plan = replace(desk.plan, limits=replace(LIMITS, ports={"SESSION_PORT": desk.port}))
    connected = connect.Connected(desk.backend, desk.cluster, plan, desk.said.append, desk.root)
    with contextlib.closing(connected), pytest.raises(BackendError, match="it is not this user's process"):
        connected.url("MAIN", connect.Port(desk.port, 0), check=True)
    assert looked == [("127.0.0.1", desk.port)]
    desk.said.append("")


def test_a_session_that_ends_before_it_answers_says_nothing(desk: Desk) -> None:
    """Its end has a line of its own."""
    door = desk.door()
    door.ready()
    door.close()
    assert desk.said == []
