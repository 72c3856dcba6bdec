"""The only way out of an engine's namespaces: an HTTP proxy that lets nobody go but to the package registries."""

from __future__ import annotations

import contextlib
import http.client
import io
import itertools
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, unquote, urlsplit

PORT = 3128
ADDRESS = f"http://127.0.0.1:{PORT}"
WHEELS = "/find-links/"
# Said to one neighbour, and not to be handed on.
_HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}


class Proxy(ThreadingHTTPServer):
    """Lets clients go to the package registries, and serves pip's ``find-links``."""

    daemon_threads = True

    def __init__(self, listening: socket.socket) -> None:
        super().__init__(("", 0), _ProxyHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.allowed = {*_pip_hosts(), *(urlsplit(uri).hostname for uri in apt_uris())}
        self.wheels = {file.name: file for directory in _find_links() for file in directory.iterdir()}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that go away."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_CONNECT(self) -> None:
        """Connect the client with a host."""
        self.close_connection = True
        host, _, port = self.path.rpartition(":")
        if host not in self.server.allowed or port != "443":
            self.send_error(403, f"{self.path} is no package registry")
            return
        with socket.create_connection((host, 443), 60) as outside:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            up = threading.Thread(target=_copy, args=[self.connection, outside], daemon=True)
            up.start()
            _copy(outside, self.connection)
            up.join()

    def do_GET(self) -> None:
        """Hand on a request in which the whole address stands, as apt makes them, or answer it from here."""
        parts = urlsplit(self.path)
        if parts.netloc in {"", urlsplit(ADDRESS).netloc}:
            self._send_wheels(parts.path)
            return
        if parts.scheme != "http" or parts.hostname not in self.server.allowed or parts.port not in {None, 80}:
            self.close_connection = True
            self.send_error(403, f"{parts.netloc} is no package registry")
            return
        outside = http.client.HTTPConnection(str(parts.hostname), 80, timeout=240)
        with contextlib.closing(outside):
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
            outside.request(self.command, parts._replace(scheme="", netloc="").geturl(), headers=headers)
            answer = outside.getresponse()
            self.send_response_only(answer.status, answer.reason)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            if answer.length is None:
                self.close_connection = True
                self.send_header("Connection", "close")
            self.end_headers()
            shutil.copyfileobj(answer, self.wfile)

    do_HEAD = do_GET  # noqa: N815 - the name that it needs

    def _send_wheels(self, path: str) -> None:
        file = self.server.wheels.get(unquote(path.removeprefix(WHEELS)))
        with contextlib.ExitStack() as stack:
            body: BinaryIO
            if path == WHEELS:
                text = "".join(f'<a href="{quote(name)}">{name}</a>\n' for name in sorted(self.server.wheels))
                body, kind = io.BytesIO(text.encode()), "text/html"
            elif path.startswith(WHEELS) and file is not None:
                body, kind = stack.enter_context(file.open("rb")), "application/octet-stream"
            else:
                self.send_error(404)
                return
            self.send_response_only(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(body.seek(0, io.SEEK_END)))
            self.end_headers()
            body.seek(0)
            if self.command != "HEAD":
                shutil.copyfileobj(body, self.wfile)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until the source ends, and say so to the target."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def apt_uris() -> Iterator[str]:
    """Yield the addresses in this machine's list of apt's sources."""
    apt = Path("/etc/apt")
    for file in (apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))):
        lines = file.read_text().splitlines() if file.is_file() else []
        yield from itertools.chain.from_iterable(
            re.findall(r"https?://\S+", line) for line in lines if not line.startswith("#")
        )


def _pip_hosts() -> list[str]:
    """Return the hosts of pip's own index."""
    code = "from pip._internal.models.index import PyPI; print(PyPI.netloc, PyPI.file_storage_domain)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def _find_links() -> list[Path]:
    """Return the local directories of pip's ``find-links``."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.findall(r"^\S*\.find-links='(.*)'$", done.stdout, re.MULTILINE)
    words = dict.fromkeys(itertools.chain.from_iterable(text.replace("\\n", " ").split() for text in found))
    paths = [Path(urlsplit(word).path) for word in words if urlsplit(word).scheme in {"", "file"}]
    return [path for path in paths if path.is_dir()]
