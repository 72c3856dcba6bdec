"""The way to the service: a proxy that takes CONNECT to OCI's host names, and ends TLS."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from oci_service import bastion
from oci_service.resources import Answer

if TYPE_CHECKING:
    from oci_service.server import Service


_MAX_BYTES = 1 << 30


class Server(ThreadingHTTPServer):
    """Takes connections; one thread for each."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], service: Service, listening: socket.socket | None = None) -> None:
        super().__init__(address, Handler, bind_and_activate=listening is None)
        self.service = service
        if listening is not None:
            self.socket.close()
            self.socket = listening

    def server_bind(self) -> None:
        """Bind, without HTTPServer's look-up of the host's name."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that go away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server
    _host = ""
    _headers_buffer: list[bytes]

    def do_CONNECT(self) -> None:
        """End TLS for a host of OCI's, or be a bastion's; what it does not know it does not reach."""
        host, _, port = self.path.partition(":")
        service = self.server.service
        if (host, port) == (bastion.HOST, bastion.PORT) and not self._host:
            self.close_connection = True
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            service.bastions.serve(self.connection)
            return
        if host not in service.routers or port != "443" or self._host:
            self.close_connection = True
            self.send_error(502, f"no such host: {self.path}")
            return
        context = service.authority.context(host)
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            self.connection = context.wrap_socket(self.connection, server_side=True)
        except (ssl.SSLError, OSError):  # the client does not trust it, or is gone
            self.close_connection = True
            return
        self._host = host
        self.rfile = self.connection.makefile("rb", -1)
        self.wfile = socketserver._SocketWriter(self.connection)  # type: ignore[attr-defined]
        self.close_connection = False

    def _serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        size = int(headers.get("content-length", 0))
        if "transfer-encoding" in headers or size > _MAX_BYTES:
            self.close_connection = True
            self._send(Answer({"code": "MissingContentLength", "message": "Content-Length is required"}, 411))
            return
        body = self.rfile.read(size)
        if len(body) < size:
            self.close_connection = True
            return
        service = self.server.service
        if self._host:
            answer = service.serve(self._host, self.command, self.path, headers, body)
        elif self.path.startswith("/_/"):
            answer = service.control(self.command, self.path, headers, body)
        else:
            answer = Answer({"code": "NotFound", "message": "Only a proxy here: use HTTPS_PROXY"}, 404)
        if answer is None:
            self.close_connection = True
        else:
            self._send(answer)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the service's time, for the header Date."""
        return super().date_time_string(timestamp or time.time() + self.server.service.keys.ahead_s)

    def _send(self, answer: Answer) -> None:
        body = answer.encoded()
        self.log_request = lambda *_: None  # type: ignore[method-assign]
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.status not in {204, 304}:
            self.send_header("content-length", str(len(body) if answer.length is None else answer.length))
        is_torn = answer.torn_s is not None and bool(body)
        if self.close_connection:
            self.send_header("connection", "close")
        head = b"".join([*self._headers_buffer, b"\r\n"])
        self._headers_buffer = []
        is_bare = self.command == "HEAD" or answer.status in {204, 304}
        self.wfile.write(head if is_bare else head + (body[: len(body) // 2] if is_torn else body))
        if is_torn:
            time.sleep(answer.torn_s or 0.0)
            self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815

    def finish(self) -> None:
        """Close the connection, through TLS where there is."""
        with contextlib.suppress(OSError, ValueError):
            super().finish()
        with contextlib.suppress(OSError):
            self.connection.close()

    def log_message(self, *_: Any) -> None:
        """Say nothing: calls are recorded."""
