"""serve.py SSHD CONFIG: an sshd for each connection, until nobody was logged in for IDLE_LIMIT.

sshd itself does not tell how many connections it has. Started for one connection, as inetd does it, it is a child of
this process, which reads in its log whether somebody has logged in. Who only connects uses nothing, and takes no place
from who logs in.
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

# Who is logged in at once: an editor has several.
_MOST = 100
# Of those who are not, the oldest makes place for the next. It has had its time to log in: as long as nobody has, the
# next wait in the listener's queue. So a flood of strangers costs an owner a wait, 25 s for 100 of them, not the login.
# More places would cost the logins their CPU: an sshd needs 50 ms of it to begin.
_MOST_STRANGERS, _LOGIN_S = 20, 5.0
_LOGGED_IN = b"Accepted publickey for "
# How often it is looked which have ended, and for a place where there is none.
_LOOK_S, _FULL_S = 0.5, 0.05
# How long they may take to end, of the ten seconds that the node has.
_END_S = 3.0
_PR_SET_PDEATHSIG = 1


class _Connection:
    """One connection, and the sshd that serves it."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.child = child
        self.is_logged_in = False
        self.since = time.monotonic()
        assert child.stderr is not None  # noqa: S101 - it is a pipe
        self.log = child.stderr
        os.set_blocking(self.log.fileno(), False)
        self._line = b""

    def read(self) -> bool:
        """Look in the log whether somebody has logged in; return whether there may be more of it."""
        found = self.log.read()
        lines = (self._line + (found or b"")).split(b"\n")
        self._line = lines[-1][:1000]  # its beginning counts: what follows may be a stranger's words
        self.is_logged_in = self.is_logged_in or any(line.startswith(_LOGGED_IN) for line in lines)
        return found != b""


class Server:
    """Hands connections to children, and counts these."""

    def __init__(self, command: list[str], limit_s: float) -> None:
        self._command = command
        self._limit_s = limit_s
        self._connections: list[_Connection] = []
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def serve(self, listener: socket.socket) -> None:
        """Return when nobody was logged in for the limit."""
        used_at = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while not self._limit_s or time.monotonic() - used_at < self._limit_s:
                for key, _ in selector.select(_LOOK_S):
                    if key.fileobj is listener:
                        if not self._has_place():
                            time.sleep(_FULL_S)
                        elif (new := self._accept(listener)) is not None:
                            selector.register(new.log, selectors.EVENT_READ, new)
                    elif not key.data.read():
                        selector.unregister(key.fileobj)
                self._forget_ended(selector)
                if any(each.is_logged_in for each in self._connections):
                    used_at = time.monotonic()

    def _forget_ended(self, selector: selectors.BaseSelector) -> None:
        for each in [each for each in self._connections if each.child.poll() is not None]:
            self._connections.remove(each)
            if each.log in (key.fileobj for key in selector.get_map().values()):
                selector.unregister(each.log)
            each.log.close()

    def _strangers(self) -> list[_Connection]:
        """Return those that nobody has logged in on, the oldest first."""
        return [each for each in self._connections if not each.is_logged_in]

    def _has_place(self) -> bool:
        strangers = self._strangers()
        return len(strangers) < _MOST_STRANGERS or time.monotonic() - strangers[0].since > _LOGIN_S

    def _accept(self, listener: socket.socket) -> _Connection | None:
        """Return a new connection; None where there is no place for one."""
        try:
            connection, _ = listener.accept()
        except OSError:  # gone again
            return None
        strangers = self._strangers()
        if len(strangers) >= _MOST_STRANGERS:
            strangers[0].child.kill()
        with connection:
            if len(self._connections) - len(strangers) >= _MOST:
                return None
            # The listener and other connections are not inherited.
            child = subprocess.Popen(  # noqa: S603 - start.sh names it
                self._command,
                stdin=connection,
                stdout=connection,
                stderr=subprocess.PIPE,
                preexec_fn=self._die_with_parent,  # noqa: PLW1509 - there are no threads here
            )
        self._connections.append(_Connection(child))
        return self._connections[-1]

    def _die_with_parent(self) -> None:
        if self._libc is not None:
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    def end(self) -> None:
        """End the children, and return when they have ended."""
        children = [each.child for each in self._connections]
        for child in children:
            child.terminate()
        deadline = time.monotonic() + _END_S
        for child in children:
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
