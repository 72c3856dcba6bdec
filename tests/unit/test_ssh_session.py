"""What the server of an ssh session reads in the log of an sshd: its lines have words of strangers, too."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import threading
import time
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
        thread = threading.Thread(target=server.serve, args=(listener,), daemon=True)
        thread.start()
        wait_until(lambda: now[0] > 5 * limit_s or not thread.is_alive(), "five times the limit")
        assert thread.is_alive() is is_use
        (connection,) = server._connections
        assert connection.is_logged_in is is_use
        server.end()
        wait_until(lambda: not thread.is_alive(), "the end of the session")
        connection.log.close()
