"""A proxy before the real API server that misbehaves when it is told to: what it passes on is the API's own.

It ends TLS, so it passes tokens on, and no client certificates. What it was asked stands in ``seen``.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from kube.identity import Authority

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


@dataclass
class Fault:
    """What is done to requests that fit; without a bound to all of them, until it is taken away.

    Attributes:
        status: Answer this, with the body that the API has for it; the request is not passed on. 0: pass it on.
        retry_after_s: With a status, what the header ``Retry-After`` says.
        delay_s: Wait so long before all else.
        is_dropped: Close the connection without an answer; nothing is passed on, and nothing is done.
        is_lost: Pass it on, and close the connection without an answer: it is done, and the client does not know.
        cut_after_bytes: Pass it on, and close the connection after so much of the answer's body.
        cut_after_s: Pass it on, and close the connection then, unless the answer is complete: a watch, a log.
        method: Of requests that fit, as a regular expression for the whole word.
        path: Likewise, for a part of the path with its query: ``[?&]watch=true`` is a watch.
        times: For so many requests; -1 for all.
        odds: For so many of those that fit, by chance; the same for the same ``seed``.
    """

    status: int = 0
    retry_after_s: int | None = None
    delay_s: float = 0.0
    is_dropped: bool = False
    is_lost: bool = False
    cut_after_bytes: int | None = None
    cut_after_s: float | None = None
    method: str = ".*"
    path: str = ""
    times: int = -1
    odds: float = 1.0
    seed: int = 0
    hits: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)  # noqa: S311 - is to be the same again

    def fits(self, method: str, path: str) -> bool:
        is_left = self.times < 0 or self.hits < self.times
        is_meant = re.fullmatch(self.method, method) is not None and re.search(self.path, path) is not None
        return is_left and is_meant and self._chance.random() < self.odds


@dataclass
class Request:
    """One that came: its answer's status, or 0 while it has none. It is there before its answer is."""

    method: str
    path: str
    fault: Fault | None
    status: int = 0


class FaultyProxy:
    """The proxy; a context manager. ``url`` is what a kubeconfig names as its server."""

    def __init__(self, server: str, authority: Authority) -> None:
        self.seen: list[Request] = []
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._open: set[_Handler] = set()
        self._server = urlsplit(server)
        self._trust = ssl.create_default_context(cafile=str(authority.file))
        # Of this process alone: tests beside it make proxies, too.
        files = authority.sign(f"proxy-{os.getpid()}", "proxy", hosts=("127.0.0.1", "localhost"))
        self._shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._shown.load_cert_chain(*files)
        self.url = ""

    def __enter__(self) -> FaultyProxy:
        self._http = _Server(("127.0.0.1", 0), _Handler)
        self._http.proxy = self
        self.url = f"https://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @contextlib.contextmanager
    def misbehaving(self, **fault: Any) -> Iterator[Fault]:
        """Do something bad to requests as long as the block lasts; ``hits`` counts those."""
        added = self.add(**fault)
        try:
            yield added
        finally:
            self.remove(added)

    def add(self, **fault: Any) -> Fault:
        added = Fault(**fault)
        with self._lock:
            self._faults.append(added)
        return added

    def remove(self, fault: Fault) -> None:
        with self._lock:
            self._faults.remove(fault)

    def fault_of(self, method: str, path: str) -> Fault | None:
        """Return the first that fits a request, which then counts as one of its times."""
        with self._lock:
            for fault in self._faults:
                if fault.fits(method, path):
                    fault.hits += 1
                    return fault
        return None

    def hang_up(self) -> None:
        """Close all connections that there are, whatever goes over them."""
        with self._lock:
            handlers = list(self._open)
        for handler in handlers:
            handler.hang_up()

    def note(self, handler: _Handler, *, is_open: bool) -> None:
        """Take note of a connection that has come, or is over."""
        with self._lock:
            (self._open.add if is_open else self._open.discard)(handler)

    def connect(self) -> ssl.SSLSocket:
        assert self._server.hostname is not None
        plain = socket.create_connection((self._server.hostname, self._server.port or 443), timeout=30)
        return self._trust.wrap_socket(plain, server_hostname=self._server.hostname)

    def shake_hands(self, client: socket.socket) -> ssl.SSLSocket:
        return self._shown.wrap_socket(client, server_side=True)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    proxy: FaultyProxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients are killed in tests, and cut connections are what this is for."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        self.request = self.server.proxy.shake_hands(self.request)
        super().setup()
        self.server.proxy.note(self, is_open=True)

    def finish(self) -> None:
        self.server.proxy.note(self, is_open=False)
        with contextlib.suppress(OSError):  # what is left to write, to a connection that was cut
            super().finish()
        self.request.close()  # the server knows only the socket below it

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's own name
        """Keep quiet; ``seen`` has it all."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._do
        raise AttributeError(name)

    def _do(self) -> None:
        found = self.server.proxy.fault_of(self.command, self.path)
        fault = found or Fault()
        self._seen = Request(self.command, self.path, found)
        self.server.proxy.seen.append(self._seen)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if fault.delay_s:
            time.sleep(fault.delay_s)
        try:
            if fault.is_dropped:
                self.hang_up()
            elif fault.status:
                self._refuse(fault)
            elif self.headers.get("Upgrade"):
                self._tunnel(body)
            else:
                self._pass_on(body, fault)
        except (OSError, http.client.HTTPException):
            self.hang_up()

    def _refuse(self, fault: Fault) -> None:
        reason = _REASONS.get(fault.status, "Unknown")
        text = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": fault.status}
        body = json.dumps({**text, "reason": reason, "message": f"the proxy of tests says {reason}"}).encode()
        self._seen.status = fault.status
        self.send_response(fault.status)
        if fault.retry_after_s is not None:
            self.send_header("Retry-After", str(fault.retry_after_s))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _pass_on(self, body: bytes, fault: Fault) -> None:
        """Ask the API server, and hand its answer over as it comes."""
        with contextlib.closing(self.server.proxy.connect()) as upstream:
            upstream.settimeout(None)
            upstream.sendall(self._head(upstream="close") + body)
            answer = http.client.HTTPResponse(upstream, method=self.command)
            answer.begin()
            if fault.is_lost:
                answer.read()
                self.hang_up()
                return
            if fault.cut_after_s is not None:
                timer = threading.Timer(fault.cut_after_s, self.hang_up)
                timer.daemon = True
                timer.start()
            self._seen.status = answer.status
            self.send_response_only(answer.status, answer.reason)
            is_whole = answer.length is not None
            for name, value in answer.getheaders():
                if name.lower() not in {"connection", "transfer-encoding"}:
                    self.send_header(name, value)
            if not is_whole:
                self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._copy_body(answer, fault, is_chunked=not is_whole)

    def _copy_body(self, answer: http.client.HTTPResponse, fault: Fault, *, is_chunked: bool) -> None:
        left = fault.cut_after_bytes
        while part := answer.read1(1 << 16):
            is_last = left is not None and len(part) >= left
            if left is not None:
                part = part[:left]
                left -= len(part)
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part) if is_chunked else part)
            self.wfile.flush()
            if is_last:
                self.hang_up()
                return
        if is_chunked and self.command != "HEAD":
            self.wfile.write(b"0\r\n\r\n")

    def _tunnel(self, body: bytes) -> None:
        """Pass bytes both ways: exec, port-forward."""
        self._seen.status = 101
        with contextlib.closing(self.server.proxy.connect()) as upstream:
            upstream.settimeout(None)
            upstream.sendall(self._head(upstream="") + body)
            up = threading.Thread(target=self._send_up, args=(upstream,), daemon=True)
            up.start()
            while part := upstream.recv(1 << 16):
                self.wfile.write(part)
            self.hang_up()
            up.join()

    def _send_up(self, upstream: ssl.SSLSocket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while part := self.rfile.read1(1 << 16):
                upstream.sendall(part)

    def _head(self, *, upstream: str) -> bytes:
        lines = [f"{self.command} {self.path} HTTP/1.1"]
        dropped = {"accept-encoding", *({"connection"} if upstream else ())}
        lines += [f"{name}: {value}" for name, value in self.headers.items() if name.lower() not in dropped]
        lines += [f"Connection: {upstream}"] if upstream else []
        return "\r\n".join([*lines, "", ""]).encode()

    def hang_up(self) -> None:
        """Close the connection at once, in the middle of what it is."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)
