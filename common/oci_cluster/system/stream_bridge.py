"""Sockets whose bytes a program or a WebSocket carries."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import Protocol

# What is read at once: what a pipe of Linux holds.
_CHUNK = 64 << 10


class Line(Protocol):
    """A carrier of the bytes of one connection: one thread sends, another one receives."""

    last_s: float
    """How long what was sent last may take to arrive, when its sender is gone already."""

    def send(self, data: bytes) -> None:
        """Send *data*."""

    def end_sending(self) -> None:
        """Tell the other end that nothing more is sent; it may still send."""

    def receive(self) -> bytes:
        """Return what has come; empty when the other end has sent its last byte."""

    def close(self) -> None:
        """End the line, so that both threads return; any thread may, and again."""

    def free(self) -> None:
        """Give up what it holds; nobody uses it any more."""


class Lines:
    """The lines that one way has opened."""

    def __init__(self) -> None:
        self._open: set[Line] = set()
        self._lock = threading.Lock()

    def carry(self, line: Line) -> socket.socket:
        """Return a socket whose bytes *line* carries, until one of the two is closed."""
        ours, theirs = socket.socketpair()
        with self._lock:
            self._open.add(line)
        threading.Thread(target=self._tend, args=(line, theirs), daemon=True, name="line").start()
        return ours

    def _tend(self, line: Line, theirs: socket.socket) -> None:
        """Carry until *theirs* is closed, or *line* is over; then leave nothing of them."""
        up = threading.Thread(target=_send_all, args=(line, theirs), daemon=True, name="line up")
        down = threading.Thread(target=_receive_all, args=(line, theirs), daemon=True, name="line down")
        up.start()
        down.start()
        poll = select.poll()
        poll.register(theirs, 0)  # that both directions have ended is told without being asked for
        poll.poll()
        for thread in (up, down):  # what was sent last is on its way, and the other end's own end
            thread.join(line.last_s)
        line.close()
        _shut(theirs)
        up.join()
        down.join()
        theirs.close()
        line.free()
        with self._lock:
            self._open.discard(line)

    def close(self) -> None:
        """End all that are open."""
        with self._lock:
            lines = list(self._open)
        for line in lines:
            line.close()


def _send_all(line: Line, theirs: socket.socket) -> None:
    try:
        while data := theirs.recv(_CHUNK):
            line.send(data)
        line.end_sending()
    except (OSError, EOFError):
        _shut(theirs)


def _receive_all(line: Line, theirs: socket.socket) -> None:
    with contextlib.suppress(OSError, EOFError):
        while True:
            if data := line.receive():
                theirs.sendall(data)
            else:
                theirs.shutdown(socket.SHUT_WR)
    _shut(theirs)


def _shut(theirs: socket.socket) -> None:
    with contextlib.suppress(OSError):  # its other end may have been first
        theirs.shutdown(socket.SHUT_RDWR)
