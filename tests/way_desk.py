"""Somebody who opens ways to a node through the stand-in's bastion, and the node: a server that says things again."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
from harness import PATIENCE_S
from oci_service.handle import Service

from oci_cluster.backends.oci.connect import tunnels
from oci_cluster.backends.oci.settings import tunnel_settings

CONTROLS: dict[str, Any] = {
    "bastion_creating_s": 0.2,
    "bastion_fails": "",
    "bastion_ttl_s": 0,
    "bastion_life_s": 0,
    "bastion_key_late_s": 0,
    "bastion_host_key": "",
    "bastion_ssh_metadata": {},
    "bastion_sessions": 20,
    "faults": [],
}


def why_not() -> str:
    """Return why there is no bastion here; empty where there is one."""
    if sys.platform != "linux":
        return "tests/oci_service runs on Linux alone"
    has_sshd = shutil.which("sshd", path="/usr/sbin") and list(Path("/usr/lib").glob("*/libnss_wrapper.so"))
    return "" if has_sshd else "no sshd; Debian: apt install openssh-server libnss-wrapper"


class Node:
    """What a node of the stand-in is here: a server on this machine, which says again what it is told."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.accepted = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self.accepted += 1
                threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while block := connection.recv(1 << 16):
                connection.sendall(block)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


class Desk:
    """Somebody who opens ways to a node."""

    def __init__(self, service: Service, node: Node) -> None:
        self.service, self.node = service, node
        self.said: list[str] = []
        self._opened: list[tunnels.SshTunnel] = []
        self._before = len(service.bastion_sessions())

    def open(self, port: int = 0, **given: str) -> tunnels.SshTunnel:
        from oci_cluster.backends.oci.service import Service as Client  # noqa: PLC0415 - the SDK, where there is one

        given = {"BASTION_ID": self.service.settings["BASTION_ID"], **given}
        asker = tunnels.Asker(given, lambda: Client(os.environ), self.said.append)
        way = tunnels.tunnel_to(tunnel_settings(given), "127.0.0.1", port or self.node.port, "demo-00000000", asker)
        self._opened.append(way)
        return way

    def close(self) -> None:
        """Close what a test that has failed has left open: it would go on during the next ones."""
        for way in self._opened:
            way.close()

    def sessions(self) -> list[dict[str, Any]]:
        """Return the sessions that have been made for it."""
        return self.service.bastion_sessions()[self._before :]

    def states(self) -> list[str]:
        return [session["lifecycleState"] for session in self.sessions()]


def ours(word: str = "") -> dict[int, list[str]]:
    """Return the ssh and the guards that ways of this test's process, and of those it starts, have started, by pid."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            line, mark = process.cmdline(), process.environ().get("WAYS_OF")
            if mark == str(os.getpid()) and "/oci-way-" in " ".join(line) and word in line:
                found[process.pid] = line
    return found


def stop_looking(tunnel: tunnels.SshTunnel) -> bool:
    """Return whether a new connection of *way* leads to the node."""
    with tunnel.dial() as connection:
        return says(connection) == b"hello"


def says(connection: socket.socket, words: bytes = b"hello") -> bytes:
    connection.settimeout(PATIENCE_S)
    connection.sendall(words)
    heard = b""
    while len(heard) < len(words) and (block := connection.recv(1 << 16)):
        heard += block
    return heard
