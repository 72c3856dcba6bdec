"""TensorBoard behind the session's token, until nobody has asked it for anything for IDLE_LIMIT.

TensorBoard itself serves whoever reaches its port. Here a request needs the token: in the address of the first one,
which answers with a cookie, and then in that cookie.
"""

from __future__ import annotations

import hmac
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from tensorboard import default, program

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from session_end import say_idle
from session_token import is_token

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]


class Gate:
    """Lets those in who have the token, and knows when they last came."""

    def __init__(self, app: App, cookie: str) -> None:
        self._app = app
        self._cookie = cookie
        # Browsers send it to all ports of this address: it opens this server alone, and no other one with the token.
        self._pass = secrets.token_hex(32)
        self.used_at = time.monotonic()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        words = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        shown = next((value for name, value in words if name == "token"), "")
        if is_token(shown):
            self.used_at = time.monotonic()
            # Out of the address line: of that pictures are taken.
            rest = urlencode([(name, value) for name, value in words if name != "token"])
            # Never another host, nor another line: a browser takes a backslash for a slash.
            place = "/" + quote(environ.get("PATH_INFO", "/"), safe="/").lstrip("/") + (f"?{rest}" if rest else "")
            cookie = f"{self._cookie}={self._pass}; HttpOnly; SameSite=Strict; Path=/"
            start_response(f"{HTTPStatus.FOUND} Found", [("Location", place), ("Set-Cookie", cookie)])
            return [b""]
        if hmac.compare_digest(self._kept(environ).encode(errors="replace"), self._pass.encode()):
            self.used_at = time.monotonic()
            return self._app(environ, start_response)
        start_response(f"{HTTPStatus.FORBIDDEN} Forbidden", [("Content-Type", "text/plain")])
        return [b"The token is missing or wrong: connect.sh NAME prints the whole address.\n"]

    def _kept(self, environ: Environ) -> str:
        try:
            found = SimpleCookie(environ.get("HTTP_COOKIE", "")).get(self._cookie)
        except CookieError:
            return ""
        return found.value if found else ""


class GatedServer(program.WerkzeugServer):  # type: ignore[misc] - untyped
    """TensorBoard's own server, with the gate in front."""

    def __init__(self, app: App, flags: Any) -> None:
        gate = Gate(app, f"session-{os.environ['LAUNCH_ID']}")
        super().__init__(gate, flags)
        if limit_s := float(os.environ["IDLE_LIMIT"]):
            threading.Thread(target=self._end_when_idle, args=(gate, limit_s), daemon=True).start()

    def _end_when_idle(self, gate: Gate, limit_s: float) -> None:
        while (left_s := gate.used_at + limit_s - time.monotonic()) > 0:
            time.sleep(left_s)
        say_idle(limit_s)
        self.shutdown()


def main() -> int:
    """Serve until the end."""
    board = program.TensorBoard(default.get_plugins(), server_class=GatedServer)
    board.configure(
        logdir=os.environ["LOGDIR"],
        host=os.environ["SESSION_ADDRESS"],
        port=int(os.environ["SESSION_PORT"]),
        # Its quick loader is a server of its own, which asks nobody for a token.
        load_fast="false",
        reload_interval=5.0,
    )
    return int(board.main())


if __name__ == "__main__":
    sys.exit(main())
