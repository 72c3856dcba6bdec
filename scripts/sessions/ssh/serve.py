"""serve.py SSHD CONFIG: an sshd for each connection, until there was none for IDLE_LIMIT.

sshd itself does not tell how many connections it has. Started for one connection, as inetd does it, it is a child of
this process, which knows.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from session_end import say_idle

# Connections at once: an editor has several, strangers who only connect are gone after LoginGraceTime.
_MOST = 100
# How often it is looked which have ended.
_LOOK_S = 0.5
# How long they may take to end, of the ten seconds that the node has.
_END_S = 3.0
_PR_SET_PDEATHSIG = 1


class Server:
    """Hands connections to children, and counts these."""

    def __init__(self, command: list[str], limit_s: float) -> None:
        self._command = command
        self._limit_s = limit_s
        self._children: list[subprocess.Popen[bytes]] = []
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def serve(self, listener: socket.socket) -> None:
        """Return when nobody was connected for the limit."""
        used_at = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while not self._limit_s or time.monotonic() - used_at < self._limit_s:
                if selector.select(_LOOK_S):
                    self._accept(listener)
                self._children = [child for child in self._children if child.poll() is None]
                if self._children:
                    used_at = time.monotonic()

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _ = listener.accept()
        except OSError:  # gone again
            return
        with connection:
            if len(self._children) < _MOST:
                # The listener and other connections are not inherited.
                child = subprocess.Popen(  # noqa: S603 - start.sh names it
                    self._command,
                    stdin=connection,
                    stdout=connection,
                    preexec_fn=self._die_with_parent,  # noqa: PLW1509 - there are no threads here
                )
                self._children.append(child)

    def _die_with_parent(self) -> None:
        if self._libc is not None:
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    def end(self) -> None:
        """End the children, and return when they have ended."""
        for child in self._children:
            child.terminate()
        deadline = time.monotonic() + _END_S
        for child in self._children:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()


def _stop(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main() -> None:
    """Serve until the end."""
    sshd, config = sys.argv[1:]
    limit_s = float(os.environ["IDLE_LIMIT"])
    signal.signal(signal.SIGTERM, _stop)
    server = Server([sshd, "-i", "-e", "-f", config], limit_s)
    address = os.environ["SESSION_ADDRESS"], int(os.environ["SESSION_PORT"])
    try:
        with socket.create_server(address, backlog=_MOST) as listener:
            server.serve(listener)
    finally:
        server.end()
    say_idle(limit_s)


if __name__ == "__main__":
    main()
