"""Passes bytes between a port and pipes; runs in a container by ``python -c``.

It needs nothing but Python. First it says ``+``, or ``-`` and why it could not connect. After that, both ways, come
frames: a length of four bytes, and so many bytes; the length 0 is the end of that direction. A pipe that ends without
it tells that nobody is there any more: a client of the engine that is killed ends what it has started in no other way.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading

_CHUNK = 64 << 10
# On one machine who listens is there at once, and who does not refuses at once.
_CONNECT_S = 5.0


def read(count: int) -> bytes:
    """Return *count* bytes of stdin; fewer where it has ended."""
    found = b""
    while len(found) < count and (more := os.read(0, count - len(found))):
        found += more
    return found


def write(data: bytes) -> None:
    """Write all of *data* to stdout."""
    while data:
        data = data[os.write(1, data) :]


def connect(port: int) -> socket.socket | str:
    """Return a connection to *port* of loopback, else of the container; else why not."""
    addresses, why = ["127.0.0.1"], ""
    with contextlib.suppress(OSError):  # a name that its own /etc/hosts does not have
        addresses.append(socket.gethostbyname(socket.gethostname()))
    for address in addresses:
        try:
            return socket.create_connection((address, port), _CONNECT_S)
        except OSError as error:
            why = error.strerror or str(error)
    return why


def pass_down(connection: socket.socket, is_sent: threading.Event) -> None:
    """Pass on the port's bytes; end this program when both directions have ended."""
    try:
        while data := connection.recv(_CHUNK):
            write(len(data).to_bytes(4, "big") + data)
        write(bytes(4))
        is_sent.wait()
    finally:
        os._exit(0)  # stdin may say nothing for ever


def main() -> None:
    """Connect to the port that is the first argument."""
    connection = connect(int(sys.argv[1]))
    if isinstance(connection, str):
        write(b"-" + connection.encode())
        return
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    write(b"+")
    is_sent = threading.Event()
    threading.Thread(target=pass_down, args=(connection, is_sent), daemon=True).start()
    with contextlib.suppress(OSError):  # the port's end is gone
        while len(head := read(4)) == 4:
            if length := int.from_bytes(head, "big"):
                connection.sendall(read(length))
            else:
                connection.shutdown(socket.SHUT_WR)
                is_sent.set()
    os._exit(0)  # a thread that waits for the port would hold it up


if __name__ == "__main__":
    main()
