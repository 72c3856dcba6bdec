"""Sockets whose bytes a line carries: what ends when, on either side."""

from __future__ import annotations

import queue
import socket
import threading
import time
from typing import Any

import pytest
from port_servers import read_all

from oci_cluster.system.stream_bridge import Lines


class Played:
    """A line whose other end is the test."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.came: queue.Queue[bytes | None] = queue.Queue()
        self.closed = 0
        self.is_free = threading.Event()
        self.is_closed = threading.Event()
        self.is_deaf = False
        self.takes_s = 0.0
        self.last_s = 0.1

    def send(self, data: bytes) -> None:
        if self.is_deaf or self.is_closed.wait(self.takes_s):
            raise OSError
        self.sent.append(data)

    def end_sending(self) -> None:
        self.sent.append(b"the end")

    def receive(self) -> bytes:
        if (data := self.came.get()) is None:
            raise EOFError
        return data

    def close(self) -> None:
        self.closed += 1
        self.is_closed.set()
        self.came.put(None)

    def free(self) -> None:
        assert not self.is_free.is_set()
        self.is_free.set()


@pytest.fixture
def line() -> Played:
    return Played()


def until(what: Any) -> None:
    deadline = time.monotonic() + 30
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_each_direction_ends_by_itself(line: Played) -> None:
    """What comes after one's own end is still given; both ends together are the line's."""
    line.last_s = 0.0
    with Lines().carry(line) as ours:
        ours.sendall(b"asked")
        ours.shutdown(socket.SHUT_WR)
        until(lambda: line.sent == [b"asked", b"the end"])
        line.came.put(b"answer")
        assert ours.recv(100) == b"answer"
        assert not line.closed
        line.came.put(b"")
        assert read_all(ours) == b""
    assert line.is_free.wait(30)


def test_a_socket_that_is_closed_ends_a_line_that_is_silent(line: Played) -> None:
    """What was sent before goes first, however long that takes."""
    line.last_s = 0.3
    line.takes_s = 0.02
    ours = Lines().carry(line)
    ours.sendall(b"last words")
    ours.close()
    assert line.is_free.wait(30)
    assert line.sent[0] == b"last words"
    assert line.closed


def test_a_line_that_breaks_ends_the_socket(line: Played) -> None:
    with Lines().carry(line) as ours:
        line.came.put(b"half an ans")
        line.came.put(None)
        assert read_all(ours) == b"half an ans"
        assert line.is_free.wait(30)


def test_a_line_that_takes_nothing_ends_the_socket(line: Played) -> None:
    line.is_deaf = True
    with Lines().carry(line) as ours:
        ours.sendall(b"x")
        assert read_all(ours) == b""
        assert line.is_free.wait(30)


def test_all_are_ended_together(line: Played) -> None:
    """Those that have ended are not ended again."""
    lines, over = Lines(), Played()
    with lines.carry(over), lines.carry(line) as ours:
        over.came.put(None)
        assert over.is_free.wait(30)
        until(lambda: over not in lines._open)
        closed = over.closed
        lines.close()
        assert read_all(ours) == b""
        assert line.is_free.wait(30)
    assert over.closed == closed
