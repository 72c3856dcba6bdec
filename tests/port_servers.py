"""Servers on ports of this machine, and what clients do with a way to them: for tests of ways."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

Serve = Callable[[socket.socket], None]
Dial = Callable[[], socket.socket]
# Far above what any of this takes; a connection that hangs fails its test.
_PATIENCE_S = 60.0


@contextlib.contextmanager
def serving(serve: Serve, host: str = "127.0.0.1") -> Iterator[int]:
    """Have *serve* called with each connection to a new port of *host*, in threads; give the port."""
    with socket.create_server((host, 0), backlog=128) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # closed: the test is over
                    return
                threading.Thread(target=attend, args=(connection,), daemon=True).start()

        def attend(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                serve(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def echo(connection: socket.socket) -> None:
    """Send back what comes, until nothing more does."""
    while data := connection.recv(1 << 16):
        connection.sendall(data)


def answer_at_the_end(connection: socket.socket) -> None:
    """Read all; only then, when nothing more comes, say how much it was, and which."""
    hashed, size = hashlib.sha256(), 0
    while data := connection.recv(1 << 16):
        hashed.update(data)
        size += len(data)
    connection.sendall(f"{size} {hashed.hexdigest()}".encode())


def read_all(connection: socket.socket) -> bytes:
    """Return what comes until nothing more does."""
    connection.settimeout(_PATIENCE_S)
    found = bytearray()
    while data := connection.recv(1 << 16):
        found += data
    return bytes(found)


def send_and_read(dial: Dial, data: bytes) -> bytes:
    """Send *data*, say that it is all, and return what comes back."""
    with dial() as connection, _sending(connection, data, is_all=True):
        return read_all(connection)


def echoed(dial: Dial, data: bytes) -> bytes:
    """Return what an echo sends back of *data*, which is read meanwhile; nobody ends a direction."""
    with dial() as connection, _sending(connection, data, is_all=False):
        return read_some(connection, len(data))


def read_some(connection: socket.socket, count: int) -> bytes:
    """Return *count* bytes; fewer where no more come."""
    connection.settimeout(_PATIENCE_S)
    found = bytearray()
    while len(found) < count and (more := connection.recv(1 << 16)):
        found += more
    return bytes(found)


@contextlib.contextmanager
def _sending(connection: socket.socket, data: bytes, *, is_all: bool) -> Iterator[None]:
    def send() -> None:
        with contextlib.suppress(OSError):
            connection.sendall(data)
            if is_all:
                connection.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    yield
    sender.join(_PATIENCE_S)


def many_at_once(dial: Dial, count: int) -> int:
    """Have *count* connections at the same time, each with bytes of its own; return how many got theirs back."""
    ready = threading.Barrier(count)

    def one(_: int) -> bool:
        data = os.urandom(20_000)
        with dial() as connection:
            ready.wait(_PATIENCE_S)
            connection.sendall(data)
            return read_some(connection, len(data)) == data

    with ThreadPoolExecutor(count) as pool:
        return sum(pool.map(one, range(count)))
