"""Main's side of ``WORK_DIR=main://``: the files in its memory, and their server.

One thread with one selector: a connection costs a socket and some hundred bytes. What reads a connection never takes
more than the frame that is due, and never waits for it. ``contract/storage/coordinator.py`` has what is said.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import selectors
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
# At once; the others have their turn before the next.
_ACCEPTED_AT_ONCE = 64
# How often connections are ended that are late.
_LATE_S = 0.5
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
        """Do what a *request* wants, and return the answer; see :data:`~oci_cluster.contract.storage.coordinator.Ask`.

        Where there is no room, it raises RequestFailedError; where there is no such request, ValueError, TypeError,
        KeyError.
        """
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


class _Connection:
    def __init__(self, connected: socket.socket, challenge: bytes, until: float) -> None:
        self.socket = connected
        self.until: float | None = until
        self.challenge = challenge
        self.asking: Seals | None = None
        self.answering: Seals | None = None
        self.is_proved = False
        self.heard_at = 0.0
        #: Its name, as far as the files tell that it writes.
        self.node = ""
        #: The versions of main's words that it has read.
        self.heard: dict[str, int] = {}
        self.lengths = b""
        self.got = bytearray()
        self.wanted = CHALLENGE_BYTES
        self.to_send = memoryview(GREETING + challenge)


class Coordinator:
    """Serves main's cluster dir; until :meth:`listen`, main alone has the files."""

    def __init__(
        self, launch_id: str, launch_key: str, *, clock: Callable[[], float] = time.monotonic, prove_s: float = PROVE_S
    ) -> None:
        self.memory = MainMemory()
        self._key = derived_key(launch_key, launch_id, PURPOSE)
        self._clock = clock
        self._prove_s = prove_s
        self._selector = selectors.DefaultSelector()
        self._listeners: list[socket.socket] = []
        self._thread: threading.Thread | None = None
        self._waker, self._awaited = socket.socketpair()
        self._is_over = False
        self._late_at = 0.0
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
            self._listen(address, port)
        self._selector.register(self._awaited, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, daemon=True, name="exchange")
        self._thread.start()

    def _listen(self, address: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        self._listeners.append(listener)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a life before may have left connections
            listener.bind((address, port))
            listener.listen(1024)
        except OSError as error:
            listener.close()
            raise StorageError(
                f"main cannot listen on {address} port {port} for the other nodes: {error.strerror};"
                " end what has that port, or set another one in WORK_DIR"
            ) from error
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, listener)

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
        while not is_interruption and self._clock() < self._began_at + FOUND_S:
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
        """End all connections, and the thread."""
        self._is_over = True
        self._waker.send(b"x")
        if self._thread is not None:
            self._thread.join(FRAME_S)
        for connection in (*self._unproved, *self._proved):
            connection.socket.close()
        for each in (*self._listeners, self._waker, self._awaited):
            each.close()
        self._selector.close()

    # --- The other thread ----------------------------------------------------------------------------------

    def _serve(self) -> None:
        # TERM and CHLD are for the agent, which waits for them.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            while not self._is_over:
                # Late connections are looked for twice a second, and not with each request.
                for key, events in self._selector.select(_LATE_S if self._unproved or self._proved else None):
                    if isinstance(key.data, _Connection):
                        self._attend(key.data, events)
                    elif key.data is not None:
                        self._accept(key.data)
                self._end_late()
        except Exception:  # main goes on, and the others lose it
            log.exception("bug in the agent: the other nodes cannot reach main any more")

    def _end_late(self) -> None:
        now = self._clock()
        if now < self._late_at:
            return
        self._late_at = now + _LATE_S
        for connection in (*self._unproved, *self._proved):
            if connection.until is not None and connection.until < now:
                self._end(connection)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connected, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                    # Else this thread would do nothing but try.
                    self._end(next(iter(self._unproved))) if self._unproved else time.sleep(0.05)
                return  # who has come is gone already
            connected.setblocking(False)
            _have_the_system_notice(connected)
            connection = _Connection(connected, os.urandom(CHALLENGE_BYTES), self._clock() + self._prove_s)
            self._selector.register(connected, selectors.EVENT_READ, connection)
            self._unproved[connection] = None
            if len(self._unproved) > MOST_UNPROVED:
                self._end(next(iter(self._unproved)))
            self._attend(connection, selectors.EVENT_WRITE)

    def _attend(self, connection: _Connection, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE and connection.to_send:
                self._send(connection)
            elif events & selectors.EVENT_READ:
                self._receive(connection)
        except BlockingIOError:
            return
        except (OSError, Unproved, ValueError, RecursionError):
            self._end(connection)

    def _send(self, connection: _Connection) -> None:
        while connection.to_send:
            try:
                connection.to_send = connection.to_send[connection.socket.send(connection.to_send) :]
            except BlockingIOError:
                # The next request is not read before this one's answer has been taken.
                if connection.is_proved:
                    connection.until = connection.until or self._clock() + FRAME_S
                self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
                return
        if connection.is_proved:
            connection.until = None
        self._selector.modify(connection.socket, selectors.EVENT_READ, connection)

    def _receive(self, connection: _Connection) -> None:
        new = connection.socket.recv(min(connection.wanted - len(connection.got), 64 << 10))
        if not new:
            raise ConnectionResetError
        connection.got += new
        if connection.is_proved:
            connection.until = connection.until or self._clock() + FRAME_S
        if len(connection.got) < connection.wanted:
            return
        got, connection.got = bytes(connection.got), bytearray()
        if connection.asking is None:
            challenges = connection.challenge + got
            connection.asking = Seals(self._key, challenges, ASKING)
            connection.answering = Seals(self._key, challenges, ANSWERING)
            connection.wanted = HEAD.size
        elif not connection.lengths:
            limits = (MAX_HEADER, MAX_FILE) if connection.is_proved else (MAX_FIRST, 0)
            connection.wanted, connection.lengths = rest_bytes(got, *limits), got
        else:
            request, body = connection.asking.open(connection.lengths, got)
            connection.wanted, connection.lengths = HEAD.size, b""
            self._welcome(connection)
            self._answer(connection, request, body)

    def _welcome(self, connection: _Connection) -> None:
        connection.heard_at = self._clock()
        if connection.is_proved:  # main's own thread looks at who is there: nobody may be missing for a moment
            return
        self._nameless += 1
        connection.is_proved = True
        self._proved[connection] = None
        del self._unproved[connection]
        if len(self._proved) > MOST_PROVED:
            self._end(min(self._proved, key=lambda connection: connection.heard_at))

    def _answer(self, connection: _Connection, request: dict[str, Any], body: bytes) -> None:
        answer: dict[str, Any] = {}
        content = b""
        try:
            answer, content = self._done(connection, request, body)
        except FileNotFoundError:
            answer = {"error": "absent"}
        except FileExistsError:
            answer = {"error": "there"}
        except (RequestFailedError, ValueError, TypeError, KeyError) as error:
            answer = {"error": f"{error}"[:300]}
        assert connection.answering is not None  # noqa: S101 - it has asked
        connection.to_send = memoryview(connection.answering.seal(answer, content))
        connection.until = None
        self._send(connection)

    def _done(self, connection: _Connection, request: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        what, name = request.get("do"), str(request.get("name", ""))
        if what == "read" and name in _WORDS:
            connection.heard[name] = self.memory.version(name)
        answer = self.memory.ask(request, body)
        if what == "write":
            self._take_note(connection, name)
        return answer

    def _take_note(self, connection: _Connection, name: str) -> None:
        found = _OF_NODE.fullmatch(name)
        if found is None or connection.node == found[1]:
            return
        for other in [other for other in self._proved if other.node == found[1]]:
            self._end(other)
        self._nameless -= not connection.node
        connection.node = found[1]
        self._seen.add(found[1])

    def _end(self, connection: _Connection) -> None:
        self._unproved.pop(connection, None)
        self._proved.pop(connection, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        connection.socket.close()


def _have_the_system_notice(connected: socket.socket) -> None:
    """Have the system end a connection when the other machine is gone."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # Linux; elsewhere the system's own apply
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _allow_files(count: int) -> None:
    """Let this process open *count* files, as far as the system allows it."""
    import resource  # noqa: PLC0415 - where it is used

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
