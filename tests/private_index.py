"""A package index on loopback that asks for a password, and who sees that password in the arguments of processes."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from unit.system.wheels import wheel

PASSWORD = "hunter2-index"  # noqa: S105 - of nobody
_ASKED = "Basic " + base64.b64encode(f"me:{PASSWORD}".encode()).decode()


class _Handler(SimpleHTTPRequestHandler):
    def send_head(self) -> Any:
        if self.headers["Authorization"] == _ASKED:
            return super().send_head()
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="packages"')
        self.send_header("Content-Length", "0")
        self.end_headers()
        return None

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(folder: Path, listening: socket.socket, *packages: str) -> Iterator[str]:
    """Serve *packages*, ``name==version``, to who has the password; yield the URL with it."""
    for package in packages:
        name, _, version = package.partition("==")
        wheel(folder / "simple" / name, name, version)
    server = ThreadingHTTPServer(("", 0), partial(_Handler, directory=str(folder)), bind_and_activate=False)
    server.socket.close()
    server.socket = listening
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://me:{PASSWORD}@127.0.0.1:{listening.getsockname()[1]}/simple"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def nobody_sees_it() -> Iterator[None]:
    """Look at the arguments of all processes meanwhile: none may have the password, as ``ps`` would show it."""
    seen: set[bytes] = set()
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.02):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    seen.add(path.read_bytes())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
    assert [words for words in seen if b"\0pip\0install\0" in words]  # who has the password was seen
    assert [words for words in seen if PASSWORD.encode() in words] == []
