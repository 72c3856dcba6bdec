"""``WORK_DIR=main://host:port``: a cluster dir in the memory of main's agent.

Main has the files. Every other node has one connection to main, over which it asks for them, in frames that the launch
key proves. A connection begins with a random challenge of each side, main's first. After that the node asks and main
answers, one after the other: a frame each, with a number that both count. A frame is the lengths of its two parts, a
JSON object, the content of a file, and an HMAC-SHA256 over all of it, over both challenges, the number and the
direction. So nobody without the launch key can ask or answer, and nobody can play a frame again: not in another
connection, not at another place in this one, not in the other direction.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import json
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oci_cluster.contract.parsers import parse_place
from oci_cluster.contract.storage.retry import RequestFailedError

#: The word of the key by which main and the other nodes know each other.
PURPOSE = "exchange-requests"
# Main's first words, before its challenge: a server that says something else is no main.
GREETING = b"oci-cluster exchange 1\n"
CHALLENGE_BYTES = 32
PROOF_BYTES = 32
HEAD = struct.Struct("!II")

# The first frame of a connection, whose sender nobody knows yet: what is kept for it, somebody else may fill.
MAX_FIRST = 256
# A request: a name and some numbers; an answer: an error in words.
MAX_HEADER = 4 << 10
# A file.
MAX_FILE = 1 << 20
# The list of all files, whose names have 255 characters at most.
MAX_LIST = 8 << 20

ASKING, ANSWERING = b"?", b"!"

# A request, with all that it needs: main answers in milliseconds, and a machine of a busy network within a second.
REQUEST_S = 5.0
# Until main is found and has proved itself. A machine that is gone answers nothing at all, and a node that waits for it
# hears no signal meanwhile.
CONNECT_S = 2.0
# How long main is not looked for again after that time was over.
_PAUSE_S = 1.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")

# Has main do something with its files: the words of a request, and a file's content, become those of the answer. Raises
# FileNotFoundError or FileExistsError where there is no such file, or is one already; else OSError.
Ask = Callable[[dict[str, Any], bytes], tuple[dict[str, Any], bytes]]


class Unproved(Exception):  # noqa: N818 - it is no bug of whoever meets it, and becomes another error there
    """A frame without proof of the launch key, out of order, or too long."""


class Seals:
    """Seals and opens the frames of one connection, in one direction."""

    def __init__(self, key: bytes, challenges: bytes, direction: bytes) -> None:
        """Count from 0; of the *challenges*, main's comes first."""
        self._begun = hmac.new(key, direction + challenges, "sha256")
        self._number = 0

    def seal(self, header: Mapping[str, Any], body: bytes = b"") -> bytes:
        """Return the next frame."""
        text = json.dumps(header).encode()
        lengths = HEAD.pack(len(text), len(body))
        return b"".join((lengths, text, body, self._proof(lengths, text, body)))

    def open(self, lengths: bytes, rest: bytes) -> tuple[dict[str, Any], bytes]:
        """Return header and body of the next frame."""
        header_bytes, body_bytes = HEAD.unpack(lengths)
        text, body = rest[:header_bytes], rest[header_bytes : header_bytes + body_bytes]
        if not hmac.compare_digest(rest[header_bytes + body_bytes :], self._proof(lengths, text, body)):
            raise Unproved("not of this launch: another LAUNCH_KEY")
        header = json.loads(text)
        if not isinstance(header, dict):
            raise Unproved("not a JSON object")
        return header, body

    def _proof(self, lengths: bytes, text: bytes, body: bytes) -> bytes:
        proof = self._begun.copy()
        # Numbers and lengths have a fixed size: two different frames are never the same text.
        proof.update(struct.pack("!Q", self._number) + lengths)
        proof.update(text)
        proof.update(body)
        self._number += 1
        return proof.digest()


def rest_bytes(lengths: bytes, max_header: int, max_body: int) -> int:
    """Return how many bytes of a frame follow its *lengths*."""
    header_bytes, body_bytes = HEAD.unpack(lengths)
    if header_bytes > max_header or body_bytes > max_body:
        raise Unproved(f"a frame of {header_bytes} and {body_bytes} bytes; {max_header} and {max_body} are the limits")
    return int(header_bytes + body_bytes + PROOF_BYTES)


class Channel:
    """A connection on which all that is due has a common deadline."""

    def __init__(self, connected: socket.socket, clock: Callable[[], float]) -> None:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected
        self._clock = clock

    def send(self, data: bytes, until: float) -> None:
        """Send *data*, which has to be taken *until* then."""
        self.socket.settimeout(max(0.01, until - self._clock()))
        self.socket.sendall(data)

    def receive(self, count: int, until: float | None) -> bytes:
        """Return the next *count* bytes, which have to be here *until* then. EOFError: it has ended."""
        data = bytearray()
        while len(data) < count:
            # All of it has its time, and not each part: who sends a byte now and then holds up nobody.
            if until is not None and until <= self._clock():
                raise TimeoutError
            self.socket.settimeout(None if until is None else max(0.01, until - self._clock()))
            if not (new := self.socket.recv(min(count - len(data), 64 << 10))):
                raise EOFError
            data += new
        return bytes(data)


def check_name(name: str) -> str:
    """Return *name* if a file can have it: there are no folders."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"{name[:300]!r} cannot be the name of a file in the memory of main: a work dir of main:// has no folders"
        )
    return name


class MainFiles:
    """Files in the memory of main, by the calls that :class:`ClusterDir` makes.

    A path is the cluster dir's name, or that and the name of a file.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def invalidate_cache(self) -> None:
        """Do nothing: nothing is kept."""

    def makedirs(self, path: str, *, exist_ok: bool = True) -> None:  # noqa: ARG002 - as file systems have it
        """Return when main answers: there are no folders."""
        self._ask({"do": "nothing"}, b"")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite") -> None:
        """Replace the file *path* by *value*; with the mode ``create`` only make it."""
        self._ask({"do": "write", "name": _name(path), "is_new": mode == "create"}, value)

    def cat_file(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return the bytes of the file *path* from *start* to *end*."""
        return self._ask({"do": "read", "name": _name(path), "start": start, "end": end}, b"")[1]

    def info(self, path: str) -> dict[str, Any]:
        """Describe the file *path*."""
        found, _ = self._ask({"do": "describe", "name": _name(path)}, b"")
        return _description(path, found["size"], found["version"])

    def ls(self, path: str, *, detail: bool) -> list[dict[str, Any]]:
        """Describe all files, always in *detail*; a new description is a changed file."""
        assert detail  # noqa: S101 - nobody asks for less
        if "/" in path:
            raise FileNotFoundError(path)
        return [_description(f"{path}/{name}", *mark) for name, *mark in json.loads(self._ask({"do": "list"}, b"")[1])]

    def put_file(self, source: str, path: str) -> None:
        """Copy the file *source* of this machine to *path*."""
        self.pipe_file(path, Path(source).read_bytes())

    def rm_file(self, path: str) -> None:
        """Delete the file *path*."""
        self._ask({"do": "remove", "name": _name(path)}, b"")

    def rm(self, path: str, *, recursive: bool) -> None:
        """Delete all files."""
        assert recursive and "/" not in path  # noqa: S101, PT018 - a single file is rm_file's
        self._ask({"do": "clear"}, b"")


def _name(path: str) -> str:
    return check_name(path.partition("/")[2])


def _description(path: str, size: Any, version: Any) -> dict[str, Any]:
    return {"name": path, "size": int(size), "type": "file", "version": int(version)}


class RemoteFiles:
    """Main's files as another node sees them, over a connection made on demand.

    Each request is answered within :data:`REQUEST_S`, or fails with :class:`RequestFailedError`; it is made once. After
    a failure the next one connects anew, and resolves main's name anew: main may have been started on another machine.
    """

    def __init__(
        self,
        url: str,
        key: bytes,
        *,
        request_s: float = REQUEST_S,
        connect_s: float = CONNECT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = parse_place(url)
        self._key = key
        self._request_s, self._connect_s = request_s, connect_s
        self._clock = clock
        self._lookup = _Lookup(*self._place)
        self._connection: _Connection | None = None
        self._paused: tuple[float, str] = (0.0, "")

    def ask(self, request: dict[str, Any], body: bytes = b"") -> tuple[dict[str, Any], bytes]:
        """Return the answer to a *request*, see :data:`Ask`."""
        if len(body) > MAX_FILE:
            raise RequestFailedError(
                f"{len(body)} bytes are more than a file in the memory of main can have ({MAX_FILE})", is_passing=False
            )
        until = self._clock() + self._request_s
        try:
            connection = self._connection or self._connect()
            self._connection = None  # until it has answered
            try:
                answer, content = connection.ask(request, body, until)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        except RequestFailedError:
            raise
        except (OSError, Unproved, ValueError, RecursionError) as error:
            raise self._failed(error) from error
        if (said := answer.get("error")) is None:
            return answer, content
        if said in _ERRORS:
            raise _ERRORS[said](request.get("name", ""))
        raise RequestFailedError(f"main at {self._where} refuses: {str(said)[:300]}", is_passing=False)

    @property
    def _where(self) -> str:
        host, port = self._place
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def _connect(self) -> _Connection:
        now = self._clock()
        until, why = self._paused
        if now < until:
            raise RequestFailedError(why, is_passing=True)
        try:
            return self._connected(now + self._connect_s)
        except (OSError, Unproved, ValueError) as error:
            failed = self._failed(error)
            if self._clock() - now >= self._connect_s:  # soon refused, it costs nothing to ask again
                self._paused = (self._clock() + _PAUSE_S, str(failed))
            raise failed from error

    def _connected(self, until: float) -> _Connection:
        *others, last = self._lookup.addresses(max(0.0, until - self._clock()))
        for address in others:
            with contextlib.suppress(OSError):
                return self._connected_to(address, until)
        return self._connected_to(last, until)

    def _connected_to(self, address: tuple[str, int], until: float) -> _Connection:
        connected = socket.create_connection(address, max(0.01, until - self._clock()))
        try:
            return _Connection(connected, self._key, self._clock, until)
        except BaseException:
            connected.close()
            raise

    def _failed(self, error: Exception) -> RequestFailedError:
        is_late = isinstance(error, TimeoutError)
        why = "no answer in time" if is_late else getattr(error, "strerror", None) or str(error)
        return RequestFailedError(f"main does not answer at {self._where}: {why}", is_passing=True)


_ERRORS: dict[str, type[OSError]] = {"absent": FileNotFoundError, "there": FileExistsError}


class _Lookup:
    """Resolves main's name in another thread: the system's resolver has no time-out."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._thread: threading.Thread | None = None
        self._found: list[list[tuple[str, int]] | OSError] = []

    def addresses(self, patience_s: float) -> list[tuple[str, int]]:
        """Return the addresses of main, one at least."""
        with contextlib.suppress(ValueError):
            return [(str(ipaddress.ip_address(self._host)), self._port)]
        if self._thread is None:
            self._found = []
            self._thread = threading.Thread(target=self._resolve, daemon=True, name="main's address")
            self._thread.start()
        self._thread.join(patience_s)
        if not self._found:
            raise TimeoutError
        self._thread = None
        if isinstance(found := self._found[0], OSError):
            raise found
        return found

    def _resolve(self) -> None:
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._found.append([(str(end[0]), int(end[1])) for *_, end in found])
        except OSError as error:
            self._found.append(error)
        except UnicodeError as error:  # a part of the name is too long
            self._found.append(OSError(f"{self._host}: {error}"))


class _Connection:
    def __init__(self, connected: socket.socket, key: bytes, clock: Callable[[], float], until: float) -> None:
        """Prove this node on *connected*, and have main prove itself until then."""
        self._channel = Channel(connected, clock)
        self._is_proved = False
        if self._receive(len(GREETING), until) != GREETING:
            raise Unproved("who listens there is no main of this version")
        challenges = self._receive(CHALLENGE_BYTES, until)
        own = os.urandom(CHALLENGE_BYTES)
        self._asking = Seals(key, challenges + own, ASKING)
        self._answering = Seals(key, challenges + own, ANSWERING)
        self._channel.send(own, until)
        self.ask({"do": "nothing"}, b"", until)
        self._is_proved = True

    def ask(self, request: dict[str, Any], body: bytes, until: float) -> tuple[dict[str, Any], bytes]:
        """Return the answer to a request, which has to be there until then."""
        self._channel.send(self._asking.seal(request, body), until)
        lengths = self._receive(HEAD.size, until)
        # A server that has not proved itself may announce a list of 8 MiB.
        limits = (MAX_HEADER, MAX_LIST) if self._is_proved else (MAX_FIRST, 0)
        return self._answering.open(lengths, self._receive(rest_bytes(lengths, *limits), until))

    def close(self) -> None:
        """End it."""
        self._channel.socket.close()

    def _receive(self, count: int, until: float) -> bytes:
        try:
            return self._channel.receive(count, until)
        except EOFError:
            why = "" if self._is_proved else "; is it main of another launch, or another LAUNCH_KEY?"
            raise ConnectionError(f"it has closed the connection{why}") from None
