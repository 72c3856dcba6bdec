"""Main's side of ``WORK_DIR=main://``: the files in its memory, and their server.

Each connection has a thread, which reads one request after the other, never more than the frame that is due, and for a
limited time. ``contract/storage/coordinator.py`` has what is said.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from oci_cluster.contract.files.signing import derived_key
from oci_cluster.contract.names import STOP, heartbeat_file
from oci_cluster.contract.parsers import parse_place
from oci_cluster.contract.storage.coordinator import (
    ANSWERING,
    ASKING,
    CHALLENGE_BYTES,
    GREETING,
    HEAD,
    MAX_FILE,
    MAX_FIRST,
    MAX_HEADER,
    PURPOSE,
    Channel,
    Seals,
    Unproved,
    check_name,
    rest_bytes,
)
from oci_cluster.contract.storage.retry import RequestFailedError
from oci_cluster.errors import StorageError

log = logging.getLogger("agent")

# A node leaves five files of some hundred bytes: enough for many more nodes than one main can lead.
MOST_FILES = 20_000
MOST_BYTES = 64 << 20
# A node proves itself in the time of one message there and back. A silent client has a place for so long at most.
PROVE_S = 5.0
# From the first byte of a request to its last, and the same of an answer.
FRAME_S = 10.0
# Connections that have not proved themselves. One more ends the oldest: so a flood of connections keeps out no node
# that proves itself before as many others have come.
MOST_UNPROVED = 256
# Connections that have: nodes, and machines that are gone, which the system finds out after half a minute.
MOST_PROVED = 4096
# Files that a process has open besides.
_OTHER_FILES = 256
# Between two looks whether it is over; and until the next try where the system allows no connection more.
_LOOK_S, _PAUSE_S = 0.5, 0.05
# How long the others may take to leave beside GRACE_PERIOD: a look at `stop`, and what a node does at its end.
LEAVE_S = 5.0

_OF_NODE = re.compile(r"((?:WORKER|PS)_[1-9][0-9]{0,6})_[a-z]+\.json")
# How long after main's start a node may find out where main is: names of pods are known after seconds, and a server of
# names that was asked before remembers for up to half a minute that there was none (CoreDNS' default).
FOUND_S = 40.0
# The files that the others have to read before main ends.
_WORDS = frozenset({STOP, heartbeat_file("MAIN")})


class MainMemory:
    """Files by name, which several threads may use."""

    def __init__(self, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES) -> None:
        # Content and number of its version: every file that is written has a new one.
        self._files: dict[str, tuple[bytes, int]] = {}
        self._most_files, self._most_bytes = most_files, most_bytes
        self._bytes = 0
        self._version = 0
        self._lock = threading.Lock()

    def ask(self, request: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Do what a *request* wants, see ``Ask``. An unknown one raises ValueError, TypeError or KeyError."""
        what, name = request.get("do"), str(request.get("name", ""))
        with self._lock:
            if what in {"read", "describe", "remove"} and name not in self._files:
                raise FileNotFoundError(name)
            if what == "read":
                return {}, self._files[name][0][int(request["start"]) : request["end"]]
            if what == "describe":
                content, version = self._files[name]
                return {"size": len(content), "version": version}, b""
            if what == "list":
                files = [(name, len(content), version) for name, (content, version) in self._files.items()]
                return {}, json.dumps(files).encode()
            if what == "write":
                self._write(check_name(name), body, is_new=request["is_new"] is True)
            elif what == "remove":
                self._bytes -= len(self._files.pop(name)[0])
            elif what == "clear":
                self._files.clear()
                self._bytes = 0
            elif what != "nothing":
                raise ValueError(f"main does not know what {str(what)[:64]!r} is; run the same version on every node")
        return {}, b""

    def _write(self, name: str, body: bytes, *, is_new: bool) -> None:
        before = self._files.get(name)
        if is_new and before is not None:
            raise FileExistsError(name)
        total = self._bytes + len(body) - len(before[0] if before else b"")
        count = len(self._files) + (before is None)
        if len(body) > MAX_FILE or total > self._most_bytes or count > self._most_files:
            raise RequestFailedError(
                f"no room for {name}, {len(body)} bytes, in the memory of main: {count} files and {total} bytes;"
                f" {self._most_files} files, {self._most_bytes} bytes, and {MAX_FILE} in one file are the limits",
                is_passing=False,
            )
        self._version += 1
        self._files[name] = (body, self._version)
        self._bytes = total

    def version(self, name: str) -> int:
        """Return the number of the version of a file; 0 where there is none."""
        with self._lock:
            return self._files.get(name, (b"", 0))[1]


class _Connection(Channel):
    """The connection of another node, or of who has not proved to be one."""

    def __init__(self, connected: socket.socket, clock: Callable[[], float]) -> None:
        super().__init__(connected, clock)
        # The system ends it when the other machine is gone.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):  # Linux; elsewhere the system's own apply
                connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self.is_proved = False
        self.heard_at = 0.0
        #: Its name, as far as the files tell that it writes.
        self.node = ""
        #: The versions of main's words that it has read.
        self.heard: dict[str, int] = {}


class Coordinator:
    """Serves main's cluster dir; until :meth:`listen`, main alone has the files."""

    def __init__(
        self, launch_id: str, launch_key: str, *, clock: Callable[[], float] = time.monotonic, prove_s: float = PROVE_S
    ) -> None:
        self.memory = MainMemory()
        self._key = derived_key(launch_key, launch_id, PURPOSE)
        self._clock = clock
        self._prove_s = prove_s
        self._listeners: dict[socket.socket, threading.Thread] = {}
        self._is_over = False
        # For what follows: each connection has a thread.
        self._lock = threading.Lock()
        # In the order in which they have come; and those that have proved themselves.
        self._unproved: dict[_Connection, None] = {}
        self._proved: dict[_Connection, None] = {}
        self._began_at = clock()
        # The nodes that have been here, and how many more whose names nobody knows: they have written nothing.
        self._seen: set[str] = set()
        self._nameless = 0

    # --- Main's own thread ---------------------------------------------------------------------------------

    def listen(self, addresses: Sequence[str], work_dir: str, *, nodes: int) -> None:
        """Serve so many other *nodes* on *addresses*, on the port in *work_dir*."""
        _, port = parse_place(work_dir)
        _allow_files(nodes + MOST_UNPROVED + _OTHER_FILES)
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                listener = socket.create_server((address, port), family=family, backlog=1024)
            except OSError as error:
                raise StorageError(
                    f"main cannot listen on {address} port {port} for the other nodes: {os.strerror(error.errno or 0)};"
                    " end what has that port, or set another one in WORK_DIR"
                ) from error
            listener.settimeout(_LOOK_S)
            thread = threading.Thread(target=self._accept, args=(listener,), daemon=True, name="exchange")
            self._listeners[listener] = thread
            thread.start()

    def remaining(self, lost: Collection[str] = (), *, is_interruption: bool = False) -> list[str]:
        """Return the nodes that are not *lost* and have yet to read main's end."""
        version = self.memory.version(heartbeat_file("MAIN"))
        left = []
        for connection in tuple(self._proved):
            has_heard = is_interruption and connection.heard.get(heartbeat_file("MAIN"), 0) >= version
            if connection.node not in lost and not has_heard:
                left.append(connection.node or "a node without a name")
        return sorted(left)

    def leave(
        self,
        *,
        wait: Callable[[float], None],
        lost: Collection[str],
        is_interruption: bool,
        grace_period_s: float,
        expected: Collection[str] = (),
    ) -> None:
        """Serve until the other nodes have read main's end; then close.

        Those of the *expected* ones that have never been here may not have found main yet, where that has just begun.
        """
        while self._listeners and not is_interruption and self._clock() < self._began_at + FOUND_S:
            if len(set(expected) - self._seen - set(lost)) <= self._nameless:
                break
            wait(0.05)
        until = self._clock() + grace_period_s + LEAVE_S
        while left := self.remaining(lost, is_interruption=is_interruption):
            if self._clock() >= until:
                log.warning("%s had not left %g s after main's last word", ", ".join(left), grace_period_s + LEAVE_S)
                break
            wait(0.05)
        self.close()

    def close(self) -> None:
        """End all connections, whose threads end with them."""
        self._is_over = True
        for listener, thread in self._listeners.items():
            with contextlib.suppress(OSError):  # on Linux it ends the wait
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(FRAME_S)
            listener.close()
        for connection in (*self._unproved, *self._proved):
            self._end(connection)

    # --- The other threads ---------------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        # TERM and CHLD are for the agent, which waits for them; threads that are started here have this mask, too.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while not self._is_over:
            try:
                connection = _Connection(listener.accept()[0], self._clock)
            except TimeoutError:
                continue
            except OSError:  # no more files are allowed; or who has come is gone already
                self._end_oldest()
                time.sleep(_PAUSE_S)
                continue
            self._unproved[connection] = None
            try:
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            except RuntimeError:  # no more threads are allowed
                self._end(connection)
            if len(self._unproved) > MOST_UNPROVED:
                self._end_oldest()

    def _end_oldest(self) -> None:
        for connection in tuple(self._unproved)[:1]:
            self._end(connection)

    def _serve(self, connection: _Connection) -> None:
        """Answer on *connection* until it ends, or proves to be no node's."""
        try:
            until: float | None = self._clock() + self._prove_s
            challenge = os.urandom(CHALLENGE_BYTES)
            connection.send(GREETING + challenge, self._clock() + self._prove_s)
            challenges = challenge + connection.receive(CHALLENGE_BYTES, until)
            asking, answering = (Seals(self._key, challenges, direction) for direction in (ASKING, ANSWERING))
            limits = MAX_FIRST, 0
            while True:
                lengths = connection.receive(1, until)
                until = until or self._clock() + FRAME_S
                lengths += connection.receive(HEAD.size - 1, until)
                request, body = asking.open(lengths, connection.receive(rest_bytes(lengths, *limits), until))
                self._welcome(connection)
                answer = answering.seal(*self._answer(connection, request, body))
                connection.send(answer, self._clock() + FRAME_S)
                until, limits = None, (MAX_HEADER, MAX_FILE)
        except (EOFError, OSError, Unproved, ValueError, RecursionError):
            return
        finally:
            self._end(connection)
            connection.socket.close()

    def _welcome(self, connection: _Connection) -> None:
        connection.heard_at = self._clock()
        if connection.is_proved:  # main's own thread looks at who is there: nobody may be missing for a moment
            return
        with self._lock:
            connection.is_proved = True
            self._nameless += 1
            self._proved[connection] = None
            self._unproved.pop(connection, None)
        if len(self._proved) > MOST_PROVED:
            self._end(min(tuple(self._proved), key=lambda connection: connection.heard_at))

    def _answer(self, connection: _Connection, request: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        what, name = request.get("do"), str(request.get("name", ""))
        try:
            if what == "read" and name in _WORDS:
                connection.heard[name] = self.memory.version(name)
            answer = self.memory.ask(request, body)
        except FileNotFoundError:
            return {"error": "absent"}, b""
        except FileExistsError:
            return {"error": "there"}, b""
        except (RequestFailedError, ValueError, TypeError, KeyError) as error:
            return {"error": f"{error}"[:300]}, b""
        if what == "write":
            self._take_note(connection, name)
        return answer

    def _take_note(self, connection: _Connection, name: str) -> None:
        found = _OF_NODE.fullmatch(name)
        if found is None or connection.node == found[1]:
            return
        for other in [other for other in tuple(self._proved) if other.node == found[1]]:
            self._end(other)
        with self._lock:
            self._nameless -= not connection.node
            connection.node = found[1]
            self._seen.add(found[1])

    def _end(self, connection: _Connection) -> None:
        """Forget *connection*, and wake its thread, which closes it."""
        self._unproved.pop(connection, None)
        self._proved.pop(connection, None)
        with contextlib.suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)


def _allow_files(count: int) -> None:
    """Let this process open *count* files, as far as the system allows it."""
    import resource  # noqa: PLC0415 - where it is used

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
