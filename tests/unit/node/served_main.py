"""A main that serves its cluster dir on this machine, and a connection to it by hand."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable

from unit.fake_cluster import KEY, LAUNCH

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.signing import derived_key
from oci_cluster.contract.storage.coordinator import (
    ASKING,
    CHALLENGE_BYTES,
    GREETING,
    HEAD,
    PROOF_BYTES,
    PURPOSE,
    RemoteFiles,
    Seals,
)
from oci_cluster.node.coordinator import Coordinator

OWN = derived_key(KEY, LAUNCH, PURPOSE)
PATIENCE_S = 20.0
WRITE = {"do": "write", "name": "stop", "is_new": False}


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Served:
    """A main, and how others see it."""

    def __init__(self, prove_s: float = 60.0) -> None:
        self.port = free_port()
        self.coordinator = Coordinator(LAUNCH, KEY, prove_s=prove_s)
        self.coordinator.listen(["127.0.0.1"], self.place, nodes=2)
        self.main = ClusterDir(f"{self.place}/c", LAUNCH, KEY, held=self.coordinator.memory.ask)

    @property
    def place(self) -> str:
        return f"main://127.0.0.1:{self.port}"

    def node(self, key: str = KEY) -> ClusterDir:
        return ClusterDir(f"{self.place}/c", LAUNCH, key)

    def files(self) -> RemoteFiles:
        return RemoteFiles(self.place, OWN)


class Raw:
    """A connection by hand."""

    def __init__(self, port: int, key: bytes = OWN) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.challenge = self.receive(len(GREETING) + CHALLENGE_BYTES)[len(GREETING) :]
        self.own = os.urandom(CHALLENGE_BYTES)
        self.asking = Seals(key, self.challenge + self.own, ASKING)
        self.socket.sendall(self.own)

    def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count and (new := self.socket.recv(count - len(data))):
            data += new
        return data

    def prove(self) -> None:
        self.socket.sendall(self.asking.seal({"do": "nothing"}))
        assert self.answer()

    def answer(self) -> bytes:
        lengths = self.receive(HEAD.size)
        return self.receive(sum(HEAD.unpack(lengths)) + PROOF_BYTES) if lengths else b""

    def is_ended(self) -> bool:
        self.socket.settimeout(PATIENCE_S)
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
