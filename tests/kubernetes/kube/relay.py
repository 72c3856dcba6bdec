"""A way from this machine's loopback into the network of a test host: bytes in both directions, and no more."""

from __future__ import annotations

import contextlib
import ctypes
import queue
import socket
import threading
from pathlib import Path


class Relay:
    """Listens on a free port of 127.0.0.1, and passes on to *address* in the network namespace of process *pid*."""

    def __init__(self, pid: int, address: tuple[str, int]) -> None:
        self._address = address
        self._made: queue.Queue[socket.socket | OSError] = queue.Queue()
        self._wanted: queue.Queue[None] = queue.Queue()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._make_sockets, args=(pid,), daemon=True).start()
        threading.Thread(target=self._accept, daemon=True).start()

    def _make_sockets(self, pid: int) -> None:
        """Make what the others connect: a socket belongs to the network of the thread that has made it."""
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/proc/{pid}/ns/net").open() as namespace:
            failed = libc.setns(namespace.fileno(), 0x40000000)  # CLONE_NEWNET, of this thread alone
        while True:
            self._wanted.get()
            self._made.put(OSError(ctypes.get_errno(), "setns") if failed else socket.socket())

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._wanted.put(None)
        server = self._made.get()
        with client:
            if isinstance(server, OSError):
                return
            with server, contextlib.suppress(OSError):
                server.connect(self._address)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                _copy(client, server)
                back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Pass on until the one side ends or the other is gone."""
    with contextlib.suppress(OSError):
        while part := source.recv(1 << 16):
            target.sendall(part)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RD if end is source else socket.SHUT_WR)
