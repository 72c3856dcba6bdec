"""WebSockets to the API, as the user that all other requests are of."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlencode

import httpx2 as httpx
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from oci_cluster.backends.kubernetes.access import Access

# To be let in took 0.02 s (Kubernetes 1.36).
_OPEN_S = 15.0
# Routers and balancers forget connections that say nothing, the first of them after a minute. Nobody waits for the
# answer: it comes behind what the reader has not taken yet.
_PING_S = 25.0
# When it is closed, its other end may be gone.
_CLOSE_S = 1.0
# Linux calls a socket writable when a third of its buffer is free: what is sent at once must fit into that.
_SEND_BUFFER, _MOST_SENT = 192 << 10, 16 << 10


class WebSocket:
    """One connection. One thread may send, and another one receive."""

    def __init__(self, connection: ClientConnection, beneath: socket.socket) -> None:
        """Have *connection*, and the socket *beneath* it as a copy of one's own."""
        self._connection = connection
        self._beneath = beneath
        beneath.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self._writable = select.poll()
        self._writable.register(beneath, select.POLLOUT)

    def send(self, head: bytes, data: bytes) -> None:
        """Send *data* in messages, each of which begins with *head*.

        Raises:
            EOFError: the connection is over.
        """
        try:
            for start in range(0, len(data), _MOST_SENT):
                # The library receives nothing while it waits for room, and the other end may first want to send.
                self._writable.poll()
                self._connection.send(head + data[start : start + _MOST_SENT])
        except WebSocketException as error:
            raise EOFError from error

    def receive(self, timeout_s: float) -> bytes:
        """Return the next message; one of text is nobody's here.

        Raises:
            EOFError: the connection is over.
            TimeoutError: none has come for *timeout_s*.
        """
        try:
            message = self._connection.recv(timeout=timeout_s)
        except WebSocketException as error:
            raise EOFError from error
        return message if isinstance(message, bytes) else b""

    def cut(self) -> None:
        """End it at once: other threads that wait for it return. May be called by any thread, and again."""
        with contextlib.suppress(OSError):  # it has ended
            self._beneath.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give it up; nobody uses it any more."""
        self._connection.close()
        self._beneath.close()


def open_websocket(access: Access, path: str, subprotocol: str, query: Mapping[str, str]) -> WebSocket:
    """Return a WebSocket to what is at *path*.

    Raises:
        httpx.HTTPStatusError: the API refused.
        OSError: it did not answer, or with something else.
    """
    tls = _older(access.tls)
    url = f"{access.server.rstrip('/')}{path}?{urlencode(query)}"
    requests = access.auth_with(tls).sync_auth_flow(httpx.Request("GET", url))
    request = next(requests)
    while True:
        try:
            return _connect(request, subprotocol, tls, access)
        except ssl.SSLError as error:
            if "PROTOCOL" not in (error.reason or "") or tls.maximum_version != ssl.TLSVersion.TLSv1_2:
                raise
            tls.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED  # a server that wants nothing but 1.3
        except InvalidStatus as error:
            refusal = _refusal(error, request)
            try:
                request = requests.send(refusal)  # a token that is not taken any more is asked for again
            except StopIteration:
                raise httpx.HTTPStatusError("refused", request=request, response=refusal) from error
        except (InvalidHandshake, WebSocketException) as error:
            raise OSError(str(error)) from error


def _older(tls: ssl.SSLContext) -> ssl.SSLContext:
    """Return *tls* without version 1.3, whose servers send tickets when they like.

    The library reads and writes in two threads. A ticket that is read while the first request is written was seen to
    lose that request (OpenSSL 3.0): nobody answers then.
    """
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    return tls


def _refusal(error: InvalidStatus, request: httpx.Request) -> httpx.Response:
    answer = error.response
    headers, body = list(answer.headers.raw_items()), bytes(answer.body or b"")
    return httpx.Response(answer.status_code, headers=headers, content=body, request=request)


def _connect(request: httpx.Request, subprotocol: str, tls: ssl.SSLContext, access: Access) -> WebSocket:
    url = str(request.url)
    copies: list[socket.socket] = []

    def copying(connected: socket.socket, *arguments: Any, **options: Any) -> ClientConnection:
        # Now: the library closes its own as soon as the other end has closed it.
        copies.append(socket.socket(fileno=os.dup(connected.fileno())))
        return ClientConnection(connected, *arguments, **options)

    headers = request.headers.multi_items()
    who = [(name, text) for name, text in headers if name == "authorization" or name.startswith("impersonate-")]
    is_tls = url.startswith("https:")
    try:
        opened = connect(
            url.replace("http", "ws", 1),
            ssl=tls if is_tls else None,
            server_hostname=access.server_name if is_tls else None,
            proxy=access.proxy or True,  # True: those of the environment
            additional_headers=who,
            subprotocols=[Subprotocol(subprotocol)],
            compression=None,
            open_timeout=_OPEN_S,
            ping_interval=_PING_S,
            ping_timeout=None,
            close_timeout=_CLOSE_S,
            create_connection=cast("type[ClientConnection]", copying),  # it is called, and nothing else
        ).__enter__()  # version 17 wants to be entered; its close() leaves it
        return WebSocket(opened, copies[-1])
    except BaseException:
        for copy in copies:
            copy.close()
        raise
