"""serve.py SSHD CONFIG: an sshd for each connection, until nobody was logged in for IDLE_LIMIT.

sshd itself does not tell how many connections it has. Started for one connection, as inetd does it, it is a child of
this process, which reads in its log whether somebody has logged in. Who only connects uses nothing, and takes no place
from who logs in. What sshd has against floods counts the connections of one sshd, so it is here: each source, which is
an address or this user, has its share of the places.
"""

from __future__ import annotations

import ctypes
import math
import os
import random
import resource
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "common"))
from session_end import say_idle

from oci_cluster.system.listeners import peers_of_this_user

# Who is logged in at once: an editor has several.
_MOST = 100
# Of those who are not, one who has had its time to log in makes place for the next: the oldest of the source that has
# most. More places would cost the logins their CPU: an sshd needs 50 ms of it to begin. On a busy machine that takes
# seconds, which are not its client's: the time begins with the first word of sshd's log.
_MOST_STRANGERS, _LOGIN_S = 20, 5.0
# Who waits for a place, without an sshd: a file descriptor each. A process may have 1024 of them, or 256 (macOS).
_MOST_WAITING = max(20, min(400, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _MOST - 2 * _MOST_STRANGERS))
_OWN, _OTHERS_HERE = "this user", "others of this machine"
_LOGGED_IN = b"Accepted publickey for "
# How often it is looked which have ended, and for a place where there is none.
_LOOK_S, _FULL_S = 0.5, 0.05
# How long they may take to end, of the ten seconds that the node has.
_END_S = 3.0
_PR_SET_PDEATHSIG = 1


class _Connection:
    """One connection, and the sshd that serves it."""

    def __init__(self, child: subprocess.Popen[bytes], source: str = "") -> None:
        self.child = child
        self.source = source
        self.is_logged_in = False
        self.is_to_go = False
        self.since = math.inf
        assert child.stderr is not None  # noqa: S101 - it is a pipe
        self.log = child.stderr
        os.set_blocking(self.log.fileno(), False)
        self._line = b""

    def read(self) -> bool:
        """Look in the log whether somebody has logged in; return whether there may be more of it."""
        found = self.log.read()
        if found:
            self.since = min(self.since, time.monotonic())
        lines = (self._line + (found or b"")).split(b"\n")
        self._line = lines[-1][:1000]  # its beginning counts: what follows may be a stranger's words
        self.is_logged_in = self.is_logged_in or any(line.startswith(_LOGGED_IN) for line in lines)
        return found != b""


class Waiting:
    """Connections that have no sshd yet, by their source.

    They are taken out of the listener's queue at once, however many come: in that one nobody could pass them. Strangers
    of this machine choose their address, 127.x.y.z, but not their user.
    """

    def __init__(self) -> None:
        self._of: dict[str, list[socket.socket]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def take(self, listener: socket.socket) -> None:
        """Accept who has come, and forget who is gone.

        Where too many wait, the source that has most loses some.
        """
        new = []
        try:
            while len(new) < _MOST_WAITING:
                new.append(listener.accept())
        except OSError:  # there are no more, or one is gone again
            pass
        are_here = [host.startswith("127.") for _, (host, _) in new]
        # Where nobody of this machine comes, the kernel's tables are not read.
        are_own = peers_of_this_user([connection for connection, _ in new]) if any(are_here) else are_here
        for (connection, (host, _)), is_here, is_own in zip(new, are_here, are_own, strict=True):
            source = host if not is_here else _OWN if is_own else _OTHERS_HERE
            self._of.setdefault(source, []).append(connection)
        for source, connections in list(self._of.items()):
            for index in reversed([index for index, each in enumerate(connections) if _is_cut(each)]):
                self._pop(source, index).close()
        while sum(map(len, self._of.values())) > _MOST_WAITING:
            source = max(self._of, key=lambda source: len(self._of[source]))
            self._pop(source, len(self._of[source]) // 2).close()  # next() tells why

    def next(self, places: Counter[str]) -> tuple[socket.socket, str]:
        """Return the next connection, and its source: one with fewest *places*.

        Of several such sources each has its turn. Of one source it is the newest, which passes strangers who hold what
        they have, or the oldest, which has outlasted those that come and go.
        """
        source = min(self._of, key=places.__getitem__)
        connection = self._pop(source, random.choice((0, -1)))  # noqa: S311 - nothing to be guessed
        if source in self._of:  # the others' turn
            self._of[source] = self._of.pop(source)
        return connection, source

    def _pop(self, source: str, index: int) -> socket.socket:
        connection = self._of[source].pop(index)
        if not self._of[source]:
            del self._of[source]
        return connection


def _is_cut(connection: socket.socket) -> bool:
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


class Server:
    """Hands connections to children, and counts these."""

    def __init__(self, command: list[str], limit_s: float) -> None:
        self._command = command
        self._limit_s = limit_s
        self._connections: list[_Connection] = []
        self._waiting = Waiting()
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def serve(self, listener: socket.socket) -> None:
        """Return when nobody was logged in for the limit."""
        used_at = time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            while not self._limit_s or time.monotonic() - used_at < self._limit_s:
                for key, _ in selector.select(0 if self._waiting else _LOOK_S):
                    if key.fileobj is listener:
                        self._waiting.take(listener)
                    elif not key.data.read():
                        selector.unregister(key.fileobj)
                self._forget_ended(selector)
                while self._waiting and self._has_place():
                    if (new := self._start_next()) is not None:
                        selector.register(new.log, selectors.EVENT_READ, new)
                if self._waiting:
                    time.sleep(_FULL_S)
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
        return [each for each in self._connections if not (each.is_logged_in or each.is_to_go)]

    def _has_place(self) -> bool:
        return len(self._strangers()) < _MOST_STRANGERS or time.monotonic() - self._next_to_go().since > _LOGIN_S

    def _next_to_go(self) -> _Connection:
        """Return the one that has had most time, of the source that has most strangers."""
        strangers = self._strangers()
        places = Counter(each.source for each in strangers)
        return max(strangers, key=lambda each: (places[each.source], -each.since))

    def _start_next(self) -> _Connection | None:
        """Return the next connection with its sshd; None where there is no place for one."""
        strangers = self._strangers()
        connection, source = self._waiting.next(Counter(each.source for each in strangers))
        if len(strangers) >= _MOST_STRANGERS:
            gone = self._next_to_go()
            gone.is_to_go = True
            gone.child.kill()
        with connection:
            if sum(each.is_logged_in for each in self._connections) >= _MOST:
                return None
            connection.setblocking(True)
            # The listener and other connections are not inherited.
            child = subprocess.Popen(  # noqa: S603 - start.sh names it
                self._command,
                stdin=connection,
                stdout=connection,
                stderr=subprocess.PIPE,
                preexec_fn=self._die_with_parent,  # noqa: PLW1509 - there are no threads here
            )
        self._connections.append(_Connection(child, source))
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
        with socket.create_server(address, backlog=_MOST_WAITING) as listener:
            listener.setblocking(False)
            server.serve(listener)
    finally:
        server.end()
    say_idle(limit_s)


if __name__ == "__main__":
    main()
