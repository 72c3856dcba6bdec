"""Connects ssh through the proxy of ``HTTPS_PROXY``: ``http_proxy.py HOST PORT``.

ssh runs it as its ``ProxyCommand`` and takes the connection from its stdout (``ProxyUseFdpass``), so it does not stay.
It is run by its path, with the standard library alone. The proxy's password comes with the environment.
"""

from __future__ import annotations

import base64
import socket
import sys
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass_environment  # type: ignore[attr-defined]

# As long as ssh itself is given.
_TIMEOUT_S = 20.0
# Far above what a proxy answers.
_LONGEST_ANSWER = 1 << 14


def proxy_for(host: str) -> str:
    """Return the environment's proxy for *host*, a URL; empty where none is needed."""
    if proxy_bypass_environment(host):
        return ""
    found = getproxies_environment()
    return found.get("https") or found.get("all") or ""


def connect(host: str, port: int, proxy: str) -> socket.socket:
    """Return a connection to *port* of *host* through *proxy*."""
    url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    connection = socket.create_connection((url.hostname or "", url.port or 80), timeout=_TIMEOUT_S)
    try:
        status = _ask(connection, f"{host}:{port}", url)
        if status.split()[1:2] != ["200"]:
            where = f"{url.hostname}:{url.port or 80}"
            raise OSError(f"the proxy {where} does not lead to {host}:{port}: {status or 'no answer'}")
    except OSError:
        connection.close()
        raise
    connection.settimeout(None)
    return connection


def _ask(connection: socket.socket, place: str, url: SplitResult) -> str:
    """Ask the proxy for *place*; return the first line of its whole answer."""
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    if url.username:
        words = f"{unquote(url.username)}:{unquote(url.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(words.encode()).decode()}")
    connection.sendall("\r\n".join([*lines, "", ""]).encode())
    answer = b""
    # Byte by byte: what follows is ssh's.
    while not answer.endswith(b"\r\n\r\n") and len(answer) < _LONGEST_ANSWER:
        if not (byte := connection.recv(1)):
            break
        answer += byte
    return answer.split(b"\r\n", 1)[0].decode("latin-1")


def main() -> int:
    """Pass the connection to ssh."""
    host, port = sys.argv[1], int(sys.argv[2])
    try:
        connection = connect(host, port, proxy_for(host))
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    with socket.socket(fileno=1) as ssh:
        socket.send_fds(ssh, [b"\0"], [connection.fileno()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
