"""An API server that forwards ports of pods by WebSocket, as Kubernetes 1.36 does; pods are this machine."""

from __future__ import annotations

import contextlib
import http
import json
import socket
import ssl
import threading
from urllib.parse import parse_qs, urlsplit

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import Server, ServerConnection, serve


class FakeForwarder:
    """A context manager. What it was asked, and by whom, is in ``asked``; it answers with ``refusals`` first."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        # Of TLS, of each connection.
        self.versions: list[str | None] = []
        self.asked: list[tuple[str, str]] = []
        self.refusals: list[tuple[int, str]] = []
        # How many more requests get no answer.
        self.drops = 0
        self.open: set[ServerConnection] = set()
        self._server: Server | None = None
        self.url = ""

    def __enter__(self) -> FakeForwarder:
        self._server = serve(
            self._forward,
            "127.0.0.1",
            0,
            process_request=self._admit,
            ssl=self._tls,
            subprotocols=["v4.channel.k8s.io"],  # type: ignore[list-item]
        )
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._server.socket.getsockname()[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        self.asked.append((request.path, request.headers.get("Authorization", "")))
        if isinstance(connection.socket, ssl.SSLSocket):
            self.versions.append(connection.socket.version())
        if self.drops:
            self.drops -= 1
            connection.socket.shutdown(socket.SHUT_RDWR)
            return None  # the refusals are of those who get an answer: the caller may have gone on
        if not self.refusals:
            return None
        code, message = self.refusals.pop(0)
        body = json.dumps({"kind": "Status", "code": code, "message": message, "reason": http.HTTPStatus(code).name})
        headers = Headers({"Content-Type": "application/json", "Content-Length": str(len(body))})
        return Response(code, http.HTTPStatus(code).phrase, headers, body.encode())

    def _forward(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        port = int(parse_qs(urlsplit(connection.request.path).query)["ports"][0])
        for channel in (0, 1):
            connection.send(bytes([channel]) + port.to_bytes(2, "little"))
        try:
            there = socket.create_connection(("127.0.0.1", port))
        except OSError as error:
            connection.send(b"\1error forwarding port: " + str(error).encode())
            return
        self.open.add(connection)
        for one in (there, connection.socket):  # little is on its way, as over a long one
            for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                one.setsockopt(socket.SOL_SOCKET, buffer, 1 << 16)
        with there, contextlib.suppress(ConnectionClosed, OSError):
            threading.Thread(target=self._send_down, args=(connection, there), daemon=True).start()
            for message in connection:
                assert isinstance(message, bytes)
                assert message[0] == 0
                there.sendall(message[1:])
        self.open.discard(connection)

    def _send_down(self, connection: ServerConnection, there: socket.socket) -> None:
        with contextlib.suppress(ConnectionClosed, OSError):
            while data := there.recv(1 << 15):
                connection.send(b"\0" + data)
            connection.close()  # of one direction's end a runtime makes that of both

    def cut(self) -> None:
        """Cut all connections, as a router does that forgets them."""
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.socket.shutdown(socket.SHUT_RDWR)

    def rights(self) -> list[tuple[str, str]]:
        """Return what it was asked, as method and path without its query."""
        return [("GET", path.partition("?")[0]) for path, _ in self.asked]
