"""Forwards a port of this machine to a port of a node."""

from __future__ import annotations

import contextlib
import errno
import socket
import socketserver
import threading
from collections.abc import Callable

from oci_cluster.backends.base import PortForward
from oci_cluster.errors import BackendError, ClusterError, UsageError
from oci_cluster.system.console import Say

# Only programs of this machine may go this way.
HERE = "127.0.0.1"
# How much is passed on at once: what a socket's buffer holds by default on Linux is some times that.
_PIECE = 1 << 16

# Returns the way to a port of a node.
OpenPortForward = Callable[[str, int], PortForward]


class Forwarder(socketserver.ThreadingTCPServer):
    """A listener on 127.0.0.1 that passes connections on, each by its own."""

    allow_reuse_address = True  # one that has just been closed is no reason to refuse
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, forward: PortForward, port: int, say: Say) -> None:
        """Listen on *port*, 0: any; raise UsageError where it is taken."""
        self.way = forward
        self._say = say
        self._problem = ""
        try:
            super().__init__((HERE, port), socketserver.BaseRequestHandler)
        except OSError as error:
            why = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
            raise UsageError(f"port {port} of this machine {why}") from error
        self.port: int = self.server_address[1]
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()

    def close(self) -> None:
        """Listen no more; connections end with the way, which is its maker's."""
        self.shutdown()
        self.server_close()

    def finish_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:  # noqa: ARG002
        """Pass on one connection to its end."""
        assert isinstance(request, socket.socket)  # noqa: S101 - it is of TCP
        try:
            far = self.way.dial()
        except ClusterError as error:
            return self._note(str(error))
        self._note("")
        far.settimeout(None)  # a page that is just looked at says nothing for hours
        with far:
            back = threading.Thread(target=_pour, args=(far, request), daemon=True)
            back.start()
            _pour(request, far)
            back.join()
        return None

    def _note(self, problem: str) -> None:
        """Say what is new: a browser asks again and again."""
        is_new, self._problem = problem != self._problem, problem
        if is_new:
            self._say(problem or "reachable again")


def _pour(source: socket.socket, target: socket.socket) -> None:
    """Pass on what *source* says to its end; one that breaks off ends both."""
    try:
        while piece := source.recv(_PIECE):
            target.sendall(piece)
    except OSError:
        _end(source, socket.SHUT_RDWR)
        _end(target, socket.SHUT_RDWR)
    else:
        _end(target, socket.SHUT_WR)


def _end(end: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):  # the other side has ended it
        end.shutdown(how)


class Connections:
    """Ports of one cluster's nodes, reachable from this machine until it is closed."""

    def __init__(self, open_port_forward: OpenPortForward, say: Say) -> None:
        self._open_port_forward = open_port_forward
        self._say = say
        self._opened: contextlib.ExitStack = contextlib.ExitStack()
        self._forwards: dict[tuple[str, int], PortForward] = {}
        self._forwarders: dict[tuple[str, int, int | None], Forwarder] = {}

    @property
    def has_forwarders(self) -> bool:
        """Return whether any port is reachable only as long as this process lives."""
        return bool(self._forwarders)

    def forward(self, node: str, port: int) -> PortForward:
        """Return the way to *port* of *node*."""
        if (node, port) not in self._forwards:
            self._forwards[node, port] = self._open_port_forward(node, port)
            self._opened.callback(self._forwards[node, port].close)
        return self._forwards[node, port]

    def reach(
        self, node: str, port: int, local: int | None = None, *, is_asked: bool = True, must_answer: bool = False
    ) -> tuple[str, int]:
        """Return host and port under which this machine reaches *port* of *node*.

        Without a *local* port it is the same where that is free, else any; where this machine reaches the node itself,
        nothing is made. With *must_answer* somebody has to listen there.
        Unless it *is_asked*, nobody connects to a node that this machine reaches itself: who connects next finds out.
        Asked again, it is the same place.
        """
        forward = self.forward(node, port)
        try:
            if is_asked or not forward.address:
                forward.dial().close()
        except BackendError as error:  # not for ever: a server may be about to begin
            if must_answer:
                raise
            self._say(f"{error}; this goes on, for somebody may listen there later")
        if forward.address and local is None:
            host, _, text = forward.address.rpartition(":")
            return host, int(text)
        if (node, port, local) not in self._forwarders:
            forwarder = self._forwarders[node, port, local] = self._forwarder(forward, port, local)
            self._opened.callback(forwarder.close)
        return HERE, self._forwarders[node, port, local].port

    def _forwarder(self, forward: PortForward, port: int, local: int | None) -> Forwarder:
        try:
            return Forwarder(forward, port if local is None else local, self._say)
        except UsageError as error:
            if local is not None:
                raise UsageError(f"{error}; choose another: --port OTHER:{port}") from error
            return Forwarder(forward, 0, self._say)

    def close(self) -> None:
        """End them all."""
        self._opened.close()


def check_reachable(host: str, port: int, path: str) -> int:
    """Ask an HTTP server for *path*, others for a connection; return the status.

    It is 0 where no *path* is asked for. Raise BackendError where nobody answers.
    """
    import http.client  # noqa: PLC0415 - 30 ms that only this needs

    client = http.client.HTTPConnection(host, port, timeout=30)
    try:
        if path:
            client.request("GET", path)
            return client.getresponse().status
        client.connect()
        assert client.sock is not None  # noqa: S101 - it is connected
        client.sock.settimeout(1.0)
        with contextlib.suppress(TimeoutError):  # it waits for the first word of who connects
            if not client.sock.recv(1):
                raise ConnectionResetError(errno.ECONNRESET, "the connection was closed at once")
    except (OSError, http.client.HTTPException) as error:
        raise BackendError(f"nothing answers there ({error})") from error
    else:
        return 0
    finally:
        client.close()
