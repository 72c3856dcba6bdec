"""Ports of a pod, which the API forwards: by a WebSocket for each connection.

The protocol is ``v4.channel.k8s.io``. The first byte of each message is its channel: 0 has the bytes, 1 what went
wrong. The first message of each channel holds the port. Nobody says that a connection has been made, and nobody can say
that no more will be sent: a kubelet's runtime ends both directions with the first of them.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import threading
import time
from typing import Any, cast

import httpx2 as httpx
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from oci_cluster.backends.kubernetes.api.kubeconfig import Access
from oci_cluster.backends.kubernetes.api.service import KubernetesError, Object, Service, as_kubernetes_error
from oci_cluster.backends.kubernetes.cluster import states
from oci_cluster.backends.kubernetes.cluster.manifests import INDEX, LAUNCH
from oci_cluster.contract.names import rank_of
from oci_cluster.errors import BackendError, ExitCode, NotPermittedError
from oci_cluster.system.stream_bridge import Lines
from oci_cluster.system.text import printable

_PROTOCOL = Subprotocol("v4.channel.k8s.io")
_DATA, _ERROR = 0, 1
# How long a first connection is watched for a refusal. A kubelet says it some milliseconds after it has said the port.
_REFUSED_S = 0.5
# How long the other end may be silent when nothing more is sent: it is not told, and may wait for more without end.
_SILENT_S = 30.0
_LOOK_S = 5.0
# To be let in took 0.02 s (Kubernetes 1.36).
_OPEN_S = 15.0
# Routers and balancers forget connections that say nothing, the first of them after a minute. Nobody waits for the
# answer: it comes behind what the reader has not taken yet.
_PING_S = 25.0
# When it is closed, its other end may be gone.
_CLOSE_S = 1.0
# Linux calls a socket writable when a third of its buffer is free: what is sent at once must fit into that.
_SEND_BUFFER, _MOST_SENT = 192 << 10, 16 << 10


class PodPortForward:
    """A way to a port of a node, whose pod may change."""

    address = ""

    def __init__(self, service: Service, job: Object | None, node: str, port: int) -> None:
        self._service = service
        self._job, self._node, self._port = job or {}, node, port
        self._lines = Lines()
        # Whether something listens there, as far as is known: then nobody is watched for a refusal.
        self._is_answered = threading.Event()

    def dial(self) -> socket.socket:
        """Returns a new connection to the port."""
        where = f"port {self._port} of {self._node}"
        try:
            line = self._line(self._service.path("pods", states.name_of(self._pod()), sub="portforward"))
        except KubernetesError as error:
            if error.exit_code == ExitCode.NOT_PERMITTED:
                needed = "create and get of pods/portforward, see Rights in docs/kubernetes-admin.md"
                raise NotPermittedError(f"you may not reach {where}: {error}; you need {needed}") from error
            raise
        if not self._is_answered.is_set() and (said := line.refusal(_REFUSED_S)):
            line.close()
            line.free()
            # What is forwarded is loopback: what listens on the pod's own address alone is not reached.
            raise BackendError(f"nobody listens on {where}, on its 127.0.0.1 or all addresses: {said}")
        return self._lines.carry(line)

    def _line(self, path: str) -> PortLine:
        """Returns a line to *path*; without an answer it is asked for once more."""
        try:
            return open_line(self._service.access, path, self._port, self._is_answered)
        except KubernetesError as error:
            if error.code:
                raise
        # It has not been let in, so nothing was done.
        return open_line(self._service.access, path, self._port, self._is_answered)

    def _pod(self) -> Object:
        service = self._service
        chosen = f"{LAUNCH}={states.launch_of(self._job)},{INDEX}={rank_of(self._node)}"
        found = states.owned_by(service.items(service.path("pods"), labelSelector=chosen), self._job)
        running = [pod for pod in found if states.is_running(pod) and not states.termination_of(pod)]
        if not running:
            phases = [(states.name_of(pod), (pod.get("status") or {}).get("phase") or "unknown") for pod in found]
            there = ", ".join(f"{name} is {printable(phase)}" for name, phase in phases) or "there is none"
            raise BackendError(f"{self._node} has no pod that runs: {there}")
        return max(running, key=lambda pod: ("deletionTimestamp" not in pod["metadata"], states.created_of(pod)))

    def close(self) -> None:
        """Ends all connections."""
        self._lines.close()


class PortLine:
    """The bytes of one connection, in the messages of a WebSocket, for two threads."""

    # What is sent has been handed over.
    last_s = 0.0

    def __init__(self, websocket: ClientConnection, beneath: socket.socket, is_answered: threading.Event) -> None:
        self._websocket, self._beneath = websocket, beneath
        self._is_answered = is_answered
        beneath.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self._writable = select.poll()
        self._writable.register(beneath, select.POLLOUT)
        self._begun: set[int] = set()
        self._pending: list[bytes] = []
        self._ended_at = 0.0

    def refusal(self, timeout_s: float) -> str:
        """Returns why the port refuses; empty where bytes come, or nothing."""
        try:
            self._pending.append(self._next(timeout_s))
        except TimeoutError:
            return ""
        except EOFError as error:
            return str(error) or "the connection was ended at once"
        return ""

    def send(self, data: bytes) -> None:
        """Sends *data* in messages that the other end's buffer takes."""
        try:
            for start in range(0, len(data), _MOST_SENT):
                # The library receives nothing while it waits for room, and the other end may first want to send.
                self._writable.poll()
                self._websocket.send(bytes([_DATA]) + data[start : start + _MOST_SENT])
        except WebSocketException as error:
            raise EOFError from error

    def end_sending(self) -> None:
        """Notes that nothing more is sent."""
        self._ended_at = time.monotonic()

    def receive(self) -> bytes:
        """Returns what comes next."""
        if self._pending:
            return self._pending.pop()
        began_at = time.monotonic()
        while True:
            try:
                return self._next(_LOOK_S)
            except TimeoutError:
                if self._ended_at and time.monotonic() - max(began_at, self._ended_at) > _SILENT_S:
                    raise EOFError from None

    def _next(self, timeout_s: float) -> bytes:
        while True:
            try:
                message = self._websocket.recv(timeout=timeout_s)
            except WebSocketException as error:
                raise EOFError from error
            # Messages of text are not of the protocol.
            channel, content = (message[0], message[1:]) if message and isinstance(message, bytes) else (_ERROR, b"")
            if channel not in self._begun:
                self._begun.add(channel)  # the port
            elif channel == _DATA and content:
                self._is_answered.set()
                return content
            elif channel == _ERROR:
                self._is_answered.clear()
                raise EOFError(printable(content.decode(errors="replace"), 1000))

    def close(self) -> None:
        """Ends it at once: other threads that wait for it return."""
        with contextlib.suppress(OSError):  # it has ended
            self._beneath.shutdown(socket.SHUT_RDWR)

    def free(self) -> None:
        """Gives it up."""
        self._websocket.close()
        self._beneath.close()


def open_line(access: Access, path: str, port: int, is_answered: threading.Event) -> PortLine:
    """Returns a line to *port*; bytes set *is_answered*, a refusal clears it.

    Raises:
        KubernetesError: the API refused, or did not answer.
    """
    with as_kubernetes_error(path):
        tls = access.tls
        # Servers of version 1.3 send tickets when they like. The library reads and writes in two threads, and a ticket
        # that is read while the first request is written was seen to lose that request (OpenSSL 3.0).
        tls.maximum_version = ssl.TLSVersion.TLSv1_2
        url = f"{access.server.rstrip('/')}{path}?ports={port}"
        requests = access.auth_with(tls).sync_auth_flow(httpx.Request("GET", url))
        request = next(requests)
        while True:
            try:
                return PortLine(*_connect(request, tls, access), is_answered)
            except ssl.SSLError as error:
                if "PROTOCOL" not in (error.reason or "") or tls.maximum_version != ssl.TLSVersion.TLSv1_2:
                    raise
                tls.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED  # a server that wants nothing but 1.3
            except InvalidStatus as error:
                answer = error.response
                headers, body = list(answer.headers.raw_items()), bytes(answer.body or b"")
                refusal = httpx.Response(answer.status_code, headers=headers, content=body, request=request)
                try:
                    request = requests.send(refusal)  # a token that is not taken any more is asked for again
                except StopIteration:
                    raise httpx.HTTPStatusError("refused", request=request, response=refusal) from error
            except (InvalidHandshake, WebSocketException) as error:
                raise OSError(str(error)) from error


def _connect(request: httpx.Request, tls: ssl.SSLContext, access: Access) -> tuple[ClientConnection, socket.socket]:
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
            subprotocols=[_PROTOCOL],
            compression=None,
            open_timeout=_OPEN_S,
            ping_interval=_PING_S,
            ping_timeout=None,
            close_timeout=_CLOSE_S,
            create_connection=cast("type[ClientConnection]", copying),  # it is called, and nothing else
        ).__enter__()  # version 17 wants to be entered; its close() leaves it
        return opened, copies[-1]
    except BaseException:
        for copy in copies:
            copy.close()
        raise
