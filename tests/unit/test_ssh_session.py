"""What the server of an ssh session reads in the log of an sshd: its lines have words of strangers, too."""

from __future__ import annotations

import importlib.util
import itertools
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness import wait_until

SERVE = Path(__file__).resolve().parents[2] / "scripts" / "sessions" / "ssh" / "serve.py"
LOGGED_IN = b"Accepted publickey for app from 127.0.0.1 port 1 ssh2: ED25519 SHA256:x\n"


class Sshd:
    """A connection whose sshd is a pipe that a test writes to."""

    def __init__(self, module: Any) -> None:
        reader, self._writer = os.pipe()
        self._connection = module._Connection(SimpleNamespace(stderr=os.fdopen(reader, "rb")))

    def says(self, *pieces: bytes) -> bool:
        """Have it print *pieces*, each read by itself; return whether somebody is logged in then."""
        for piece in pieces:
            os.write(self._writer, piece)
            assert self._connection.read()
        return bool(self._connection.is_logged_in)

    def end(self) -> None:
        os.close(self._writer)
        assert not self._connection.read()
        self._connection.log.close()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the script, loaded by its path."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    spec = importlib.util.spec_from_file_location("ssh_serve", SERVE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def sshd(serve: Any) -> Iterator[Sshd]:
    """Return such a connection of the script."""
    found = Sshd(serve)
    yield found
    found.end()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_who_has_a_key_is_logged_in(sshd: Sshd, size: int) -> None:
    """However the line comes here, and whatever stands before it; it stays so."""
    before = b"Server listening\nConnection from 127.0.0.1 port 1\n"
    text = before + LOGGED_IN
    assert not sshd.says(before[:-1])
    assert sshd.says(b"\n", *(text[at : at + size] for at in range(0, len(text), size)))
    assert sshd.says(b"Disconnected from user app\n")


@pytest.mark.parametrize(
    "line",
    [
        b"Invalid user Accepted publickey for app from 127.0.0.1 port 1\n",
        b" Accepted publickey for app\n",
        b"Accepted password for app from 127.0.0.1\n",
        b"Accepted key ED25519 found\n",
        b"Invalid user \\nAccepted publickey for app\n",  # as sshd writes a line break: two characters
        b"Invalid user \rAccepted publickey for app\n",
    ],
)
def test_a_strangers_words_log_nobody_in(sshd: Sshd, line: bytes) -> None:
    """A user's name is chosen by who connects, and stands in lines that begin otherwise."""
    assert not sshd.says(line)
    assert not sshd.says(*(line[at : at + 1] for at in range(len(line))))


@pytest.mark.parametrize("length", [980, 999, 1000, 1001, 5000, 60_000])
@pytest.mark.parametrize("size", [10, 1000, 1 << 16])
def test_the_rest_of_a_long_line_begins_none(sshd: Sshd, length: int, size: int) -> None:
    """Of a line without end its beginning is kept; what is cut off it is not taken for a line."""
    text = b"Invalid user " + b"x" * (length - 13) + LOGGED_IN
    assert not sshd.says(*(text[at : at + size] for at in range(0, len(text), size)))
    assert sshd.says(LOGGED_IN)


def test_the_end_of_a_long_line_is_not_its_beginning(sshd: Sshd) -> None:
    """Whatever is kept of it: what stands at its end may be somebody's words for the log."""
    words = LOGGED_IN[:-1].ljust(1000, b"y")
    assert not sshd.says(b"Invalid user " + b"x" * 500 + words, b"\n")


def test_a_long_line_of_who_has_a_key_counts(sshd: Sshd) -> None:
    """Its beginning is what counts."""
    assert sshd.says(LOGGED_IN[:-1], b"x" * 2000, b"\n")


class Listener:
    """A queue of real connections, whose addresses a test chooses."""

    def __init__(self) -> None:
        self._queue: list[tuple[socket.socket, tuple[str, int]]] = []
        #: The source of each, and its number among that source's.
        self.made: dict[socket.socket, tuple[str, int]] = {}
        self.peers: dict[str, list[socket.socket]] = {}

    def come(self, source: str, count: int = 1) -> None:
        """Have *count* connect from *source*: an address, or `mine` for this user's processes."""
        for _ in range(count):
            peer, connection = socket.socketpair()
            peers = self.peers.setdefault(source, [])
            self.made[connection] = source, len(peers)
            peers.append(peer)
            self._queue.append((connection, ("127.0.0.1" if source == "mine" else source, 1)))

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        if not self._queue:
            raise BlockingIOError
        return self._queue.pop(0)

    def are_own(self, connections: list[socket.socket]) -> list[bool]:
        return [self.made[each][0] == "mine" for each in connections]


@pytest.fixture
def listener(serve: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    found = Listener()
    monkeypatch.setattr(serve, "peers_of_this_user", found.are_own)
    yield found
    for peer in [peer for peers in found.peers.values() for peer in peers]:
        peer.close()
    for connection in found.made:
        connection.close()


def test_each_source_has_its_share_of_the_places(serve: Any, listener: Listener) -> None:
    """A source is an address, this user, or all others of this machine, who may choose among its addresses."""
    waiting, places = serve.Waiting(), Counter({"others of this machine": 9, "10.0.0.7": 3})
    for address in ("127.0.0.1", "127.0.0.9", "127.6.6.6"):
        listener.come(address, 40)
    listener.come("10.0.0.7", 40)
    listener.come("mine", 2)
    listener.come("10.0.0.9")
    waiting.take(listener)
    served = []
    for _ in range(6):
        connection, source = waiting.next(places)
        places[source] += 1
        served.append(source)
        connection.close()
    assert served == ["this user", "10.0.0.9", "this user", "10.0.0.7", "10.0.0.7", "10.0.0.7"]


def test_where_too_many_wait_the_source_that_has_most_loses_some(
    serve: Any, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its first nor its last, either of which is served next; and whoever is gone counts no more."""
    monkeypatch.setattr(serve, "_MOST_WAITING", 10)
    turns = itertools.cycle([-1, -1, 0, 0])  # two sources
    monkeypatch.setattr(serve.random, "choice", lambda indices: next(index for index in turns if index in indices))
    waiting = serve.Waiting()
    listener.come("10.0.0.9", 2)
    waiting.take(listener)
    for _ in range(3):
        listener.come("127.0.0.1", 10)
        waiting.take(listener)
    listener.peers["127.0.0.1"][0].close()
    waiting.take(listener)
    served = [listener.made[waiting.next(Counter())[0]] for _ in range(9)]
    assert not waiting
    assert [number for source, number in served if source == "10.0.0.9"] == [1, 0]
    assert [number for source, number in served if source != "10.0.0.9"][:3] == [29, 1, 28]


def test_one_makes_place_for_one(serve: Any, listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stranger who has had its time, of the source that has most; whoever has just come keeps its own."""
    monkeypatch.setattr(serve, "_MOST_STRANGERS", 3)
    server = serve.Server(["sleep", "1000"], 0)
    listener.come("10.0.0.9")
    server._waiting.take(listener)
    listener.come("127.0.0.1", 5)
    server._waiting.take(listener)
    try:
        first = [server._start_next() for _ in range(3)]
        assert not server._has_place()
        for each in first:
            each.since = time.monotonic() - 2 * serve._LOGIN_S
        listener.come("10.0.0.7", 9)
        server._waiting.take(listener)
        came = []
        while server._has_place():
            came.append(server._start_next())
        assert [each.source for each in first] == ["10.0.0.9", *["others of this machine"] * 2]
        assert [each.source for each in came] == ["10.0.0.7", "others of this machine", "10.0.0.7"]
        assert [each.is_to_go for each in (*first, *came)] == [True, True, True, False, False, False]
    finally:
        server.end()
        for each in server._connections:
            each.log.close()


def test_the_time_to_log_in_begins_with_sshds_first_word(
    serve: Any, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine an sshd takes seconds to begin: who waits for it keeps its place until then."""
    now = [0.0]
    monkeypatch.setattr(serve, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))
    monkeypatch.setattr(serve, "_MOST_STRANGERS", 2)
    server = serve.Server(["sh", "-c", "read word; echo 'Connection from 10.0.0.9' >&2; exec sleep 1000"], 0)
    listener.come("10.0.0.9", 2)
    server._waiting.take(listener)
    monkeypatch.setattr(serve.random, "choice", lambda _: 0)
    try:
        _, quick = server._start_next(), server._start_next()
        now[0] = 10 * serve._LOGIN_S
        assert not server._has_place()
        listener.peers["10.0.0.9"][1].send(b"begin\n")
        wait_until(lambda: quick.read() and quick.since == now[0], "its first word")
        assert not server._has_place()
        now[0] += 1.1 * serve._LOGIN_S
        assert server._has_place()
        assert server._next_to_go() is quick
    finally:
        server.end()
        for each in server._connections:
            each.log.close()


@pytest.mark.parametrize("is_use", [False, True])
def test_only_who_has_logged_in_keeps_a_session(serve: Any, monkeypatch: pytest.MonkeyPatch, *, is_use: bool) -> None:
    """A stranger's connection, as long as it is held, is no use of it: it would keep a bill alive."""
    says, limit_s, now = LOGGED_IN.decode().strip() if is_use else "Connection from 127.0.0.1", 1.0, [0.0]
    server = serve.Server(["sh", "-c", f"echo '{says}' >&2; exec sleep 1000"], limit_s)

    def clock() -> float:
        """Return a time that goes on when the connection is what it is to be: ten looks are the limit."""
        if now[0] or any(each.is_logged_in is is_use for each in server._connections):
            now[0] += limit_s / 20
        return now[0]

    monkeypatch.setattr(serve, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    monkeypatch.setattr(serve, "_LOOK_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        listener.setblocking(False)
        thread = threading.Thread(target=server.serve, args=(listener,), daemon=True)
        thread.start()
        wait_until(lambda: now[0] > 5 * limit_s or not thread.is_alive(), "five times the limit")
        assert thread.is_alive() is is_use
        (connection,) = server._connections
        assert connection.is_logged_in is is_use
        server.end()
        wait_until(lambda: not thread.is_alive(), "the end of the session")
        connection.log.close()
