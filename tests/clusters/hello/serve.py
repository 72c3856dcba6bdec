"""Greets who has the token of the session, and leaves a file with the greeting in the folder."""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from session_token import is_token


class Page(BaseHTTPRequestHandler):
    """The one page."""

    def do_GET(self) -> None:
        """Answer."""
        shown = self.headers.get("Authorization", "").removeprefix("token ") or self.path.removeprefix("/?t=")
        is_mine = is_token(shown)
        self.send_response(200 if is_mine else 403)
        self.end_headers()
        if is_mine:
            self.wfile.write(os.environ["GREETING"].encode())
            Path("greeted").write_text(os.environ["GREETING"])

    def log_message(self, *_: object) -> None:
        """Say nothing: the address has the token in it."""


HTTPServer((os.environ["SESSION_ADDRESS"], int(os.environ["SESSION_PORT"])), Page).serve_forever()
