"""The way to a port of a pod: the API forwards it, by a WebSocket for each connection.

What is said there is the protocol ``v4.channel.k8s.io``. The first byte of each message is its channel: 0 has the
bytes, 1 what went wrong. The first message of each channel holds the port. Nobody says that a connection has been made,
and nobody can say that no more will be sent: a kubelet's runtime ends both directions with the first of them.
"""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

from oci_cluster.backends.kubernetes import states
from oci_cluster.backends.kubernetes.requests import INDEX, LAUNCH
from oci_cluster.backends.kubernetes.service import KubernetesError, Object, Service
from oci_cluster.contract.names import rank_of
from oci_cluster.errors import BackendError, ExitCode, NotPermittedError
from oci_cluster.system.lines import Lines
from oci_cluster.system.text import printable

if TYPE_CHECKING:
    from oci_cluster.backends.kubernetes.websocket import WebSocket

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
# How long a first connection is watched for a refusal. A kubelet says it some milliseconds after it has said the port.
_REFUSED_S = 0.5
# How long the other end may be silent when nothing more is sent: it is not told, and may wait for more without end.
_SILENT_S = 30.0
_LOOK_S = 5.0


class PodWay:
    """A way to a port of one node, whose pod may be another one at each connection."""

    address = ""

    def __init__(self, service: Service, job: Object | None, node: str, port: int) -> None:
        """Lead to *port* of the *node*, whose rank is an index of *job*, where there is one."""
        self._service = service
        self._job, self._node, self._port = job, node, port
        self._lines = Lines()
        # Whether something listens there, as far as is known: then nobody is watched for a refusal.
        self._is_answered = threading.Event()

    def dial(self) -> socket.socket:
        """Return a new connection to the port.

        Raises:
            BackendError: nobody listens there, no pod is the node now, or the API does not answer.
            NotPermittedError: this person may not go there.
        """
        service, where = self._service, f"port {self._port} of {self._node}"
        try:
            path = service.path("pods", states.name_of(self._pod()), sub="portforward")
            line = _PortLine(self._websocket(path), self._is_answered)
        except KubernetesError as error:
            if error.exit_code == ExitCode.NOT_PERMITTED:
                needed = "create and get of pods/portforward, see Rights in docs/kubernetes.md"
                raise NotPermittedError(f"you may not reach {where}: {error}; you need {needed}") from error
            raise
        if not self._is_answered.is_set() and (said := line.refusal(_REFUSED_S)):
            line.close()
            line.free()
            # What is forwarded is loopback: what listens on the pod's own address alone is not reached.
            raise BackendError(f"nobody listens on {where}, on its 127.0.0.1 or all addresses: {said}")
        return self._lines.carry(line)

    def _websocket(self, path: str) -> WebSocket:
        """Return a WebSocket to *path*; where nobody answers, it is asked for once more."""
        try:
            return self._service.websocket(path, _PROTOCOL, ports=self._port)
        except KubernetesError as error:
            if error.code:
                raise
        # It has not been let in, so nothing was done.
        return self._service.websocket(path, _PROTOCOL, ports=self._port)

    def _pod(self) -> Object:
        """Return the pod that the node is now."""
        service, job = self._service, self._job or {}
        chosen = f"{LAUNCH}={states.launch_of(job)},{INDEX}={rank_of(self._node)}"
        found = states.owned_by(service.items(service.path("pods"), labelSelector=chosen), job)
        running = [pod for pod in found if states.is_running(pod) and not states.termination_of(pod)]
        if not running:
            there = ", ".join(f"{states.name_of(pod)} is {_phase_of(pod)}" for pod in found) or "there is none"
            raise BackendError(f"{self._node} has no pod that runs: {there}")
        return max(running, key=lambda pod: ("deletionTimestamp" not in pod["metadata"], states.created_of(pod)))

    def close(self) -> None:
        """End all connections."""
        self._lines.close()


def _phase_of(pod: Object) -> str:
    return printable((pod.get("status") or {}).get("phase") or "unknown")


class _PortLine:
    """The bytes of one connection, in the messages of a WebSocket."""

    # What is sent has been handed over.
    last_s = 0.0

    def __init__(self, websocket: WebSocket, is_answered: threading.Event) -> None:
        self._websocket = websocket
        self._is_answered = is_answered
        self._begun: set[int] = set()
        self._pending: list[bytes] = []
        self._ended_at = 0.0

    def refusal(self, timeout_s: float) -> str:
        """Return why the port does not take the connection; empty where nothing is said for so long, or bytes come."""
        try:
            self._pending.append(self._next(timeout_s))
        except TimeoutError:
            return ""
        except EOFError as error:
            return str(error) or "the connection was ended at once"
        return ""

    def send(self, data: bytes) -> None:
        self._websocket.send(bytes([_DATA]), data)

    def end_sending(self) -> None:
        self._ended_at = time.monotonic()

    def receive(self) -> bytes:
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
        """Return the next bytes that come."""
        while True:
            message = self._websocket.receive(timeout_s)
            channel, content = (message[0], message[1:]) if message else (_ERROR, b"")
            if channel not in self._begun:
                self._begun.add(channel)  # the port
            elif channel == _DATA and content:
                self._is_answered.set()
                return content
            elif channel == _ERROR:
                self._is_answered.clear()
                raise EOFError(printable(content.decode(errors="replace"), 1000))

    def close(self) -> None:
        self._websocket.cut()

    def free(self) -> None:
        self._websocket.close()
