"""What those cannot do who reach main, or sit where it should be, and have no key. Real connections."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from unit.fake_cluster import KEY, LAUNCH
from unit.node.served_main import OWN, PATIENCE_S, WRITE, Raw, Served, until

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.storage import coordinator
from oci_cluster.contract.storage.coordinator import (
    ANSWERING,
    CHALLENGE_BYTES,
    GREETING,
    HEAD,
    MAX_FILE,
    PROOF_BYTES,
    RemoteFiles,
    Seals,
)
from oci_cluster.contract.storage.retry import RequestFailedError
from oci_cluster.errors import StorageError
from oci_cluster.node import coordinator as exchange_module

pytestmark = pytest.mark.usefixtures("connections")

# --- What others cannot do ------------------------------------------------------------------------------------------


def test_who_has_another_key_is_told_so(served: Served) -> None:
    """And gets nothing."""
    with pytest.raises(StorageError, match="another LAUNCH_KEY"):
        served.node("another key").publish("stop", exit_code=0)
    assert served.main.listing() == {}


def test_a_request_cannot_be_played_again(served: Served) -> None:
    """Not in its own connection, and not in another."""
    first = Raw(served.port)
    first.prove()
    frame = first.asking.seal(WRITE, b"one")
    first.socket.sendall(frame)
    first.answer()
    served.main.remove("stop")
    first.socket.sendall(frame)
    assert first.is_ended()
    other = Raw(served.port)
    other.prove()
    other.socket.sendall(frame)
    assert other.is_ended()
    assert served.main.listing() == {}


def test_requests_cannot_change_places(served: Served) -> None:
    """The number is signed."""
    raw = Raw(served.port)
    raw.prove()
    raw.asking.seal({"do": "nothing"})
    raw.socket.sendall(raw.asking.seal(WRITE, b"second"))
    assert raw.is_ended()
    assert served.main.listing() == {}


@pytest.mark.parametrize("place", [0, HEAD.size + 3, -PROOF_BYTES - 1, -1])
def test_a_request_cannot_be_changed(served: Served, place: int) -> None:
    """No bit of it: lengths, header, content, proof."""
    raw = Raw(served.port)
    raw.prove()
    frame = bytearray(raw.asking.seal(WRITE, b"content"))
    frame[place] ^= 1
    raw.socket.sendall(frame + bytes(64))
    with contextlib.suppress(OSError):  # main may have ended it already
        raw.socket.shutdown(socket.SHUT_WR)
    assert raw.is_ended()
    assert served.main.listing() == {}


def test_an_answer_is_no_request(served: Served) -> None:
    """What main says to a node cannot be said to main: the direction is signed."""
    raw = Raw(served.port)
    raw.asking = Seals(OWN, raw.challenge + raw.own, ANSWERING)
    raw.socket.sendall(raw.asking.seal({"do": "nothing"}))
    assert raw.is_ended()


@pytest.mark.parametrize("lengths", [(257, 0), (20, 1), (2**32 - 1, 2**32 - 1)])
def test_a_first_frame_is_small(served: Served, lengths: tuple[int, int]) -> None:
    """Nothing is kept of who has not proved itself."""
    raw = Raw(served.port)
    raw.socket.sendall(HEAD.pack(*lengths))
    assert raw.is_ended()


def test_a_later_frame_is_bounded_too(served: Served) -> None:
    """A node that is damaged does not fill main's memory."""
    raw = Raw(served.port)
    raw.prove()
    raw.socket.sendall(HEAD.pack(20, MAX_FILE + 1))
    assert raw.is_ended()


@pytest.mark.parametrize(
    "said",
    [b"", b"x", b"x" * CHALLENGE_BYTES, b"x" * CHALLENGE_BYTES + HEAD.pack(40, 0) + b"{"],
    ids=["nothing", "half a challenge", "a challenge", "half a frame"],
)
def test_who_does_not_prove_itself_has_to_go(said: bytes) -> None:
    """Silence, half a frame: after a limited time, however often another byte comes."""
    served = Served(prove_s=0.3)
    try:
        connection = socket.create_connection(("127.0.0.1", served.port), PATIENCE_S)
        connection.sendall(said)
        until(lambda: served.coordinator._unproved, "the connection")
        until(lambda: not served.coordinator._unproved, "its end")
        assert served.node().read("stop") is None
    finally:
        served.coordinator.close()


def test_a_half_frame_of_a_node_has_a_time_too(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine may be gone."""
    monkeypatch.setattr(exchange_module, "FRAME_S", 0.3)
    raw = Raw(served.port)
    raw.prove()
    raw.socket.sendall(HEAD.pack(20, 20) + b"{")
    assert raw.is_ended()
    assert not served.coordinator._proved


def test_a_flood_keeps_no_node_out_and_is_bounded(served: Served) -> None:
    """Who comes later drives out the oldest that has not proved itself; nodes that have stay."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, limits[1]))
    worker = served.node()
    worker.create()
    flood = [socket.create_connection(("127.0.0.1", served.port), PATIENCE_S) for _ in range(600)]
    try:
        assert served.node().read("stop") is None
        assert worker.read("stop") is None
        assert len(served.coordinator._unproved) <= exchange_module.MOST_UNPROVED
        assert len(served.coordinator._proved) >= 1
    finally:
        for connection in flood:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("request_", [{}, {"do": "launch"}, {"do": "read"}, {"do": "read", "name": 5, "start": "x"}])
def test_a_request_that_main_does_not_understand_is_refused(served: Served, request_: dict[str, object]) -> None:
    """A node of another version is told so, and its connection stays."""
    raw = Raw(served.port)
    raw.prove()
    served.main.write_bytes("5", b"")
    raw.socket.sendall(raw.asking.seal(request_))
    assert b"error" in raw.answer()
    raw.socket.sendall(raw.asking.seal({"do": "nothing"}))
    assert raw.answer()


# --- Who answers in main's name -------------------------------------------------------------------------------------


class Impostor:
    """Listens where main should, and answers as a test wants it."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.place = f"main://127.0.0.1:{self._listener.getsockname()[1]}"
        self._answer = answer
        self._guests: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._guests.append(connection)
            with connection:
                try:
                    self._answer(connection)
                except OSError:
                    continue

    def close(self) -> None:
        self._listener.close()


def lies(connection: socket.socket) -> None:
    """Answer with another key."""
    challenge = bytes(CHALLENGE_BYTES)
    connection.sendall(GREETING + challenge)
    own = connection.recv(CHALLENGE_BYTES)
    connection.recv(4096)
    connection.sendall(Seals(bytes(32), challenge + own, ANSWERING).seal({}))
    connection.recv(1)


def boasts(connection: socket.socket) -> None:
    """Say that more will come than can."""
    connection.sendall(GREETING + bytes(CHALLENGE_BYTES))
    connection.recv(4096)
    connection.sendall(HEAD.pack(100, 8 << 20))
    connection.recv(1)


def echoes(connection: socket.socket) -> None:
    """Send back what the node has sealed itself."""
    connection.sendall(GREETING + bytes(CHALLENGE_BYTES))
    connection.recv(CHALLENGE_BYTES)
    connection.sendall(connection.recv(4096))
    connection.recv(1)


def is_another(connection: socket.socket) -> None:
    """Be something else."""
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize("answer", [lies, boasts, echoes, is_another])
def test_nobody_answers_in_mains_name(answer: Callable[[socket.socket], None]) -> None:
    """What it says is no answer: neither a file nor "absent"."""
    impostor = Impostor(answer)
    try:
        with pytest.raises(StorageError, match=r"main does not answer at 127\.0\.0\.1:\d+: "):
            ClusterDir(f"{impostor.place}/c", LAUNCH, KEY).read("stop")
    finally:
        impostor.close()


def test_who_boasts_is_not_listened_to() -> None:
    """Main proves itself with a small answer; lists come later."""
    impostor = Impostor(boasts)
    try:
        with pytest.raises(RequestFailedError, match="a frame of 100 and 8388608 bytes; 256 and 0 are the limits"):
            RemoteFiles(impostor.place, OWN).ask({"do": "nothing"})
    finally:
        impostor.close()


def test_who_answers_slowly_does_not_answer() -> None:
    """A byte now and then: the request has its time, and no single byte."""
    ended = threading.Event()

    def drips(connection: socket.socket) -> None:
        for byte in GREETING + bytes(CHALLENGE_BYTES):
            connection.sendall(bytes([byte]))
            if ended.wait(0.1):
                return

    impostor = Impostor(drips)
    try:
        files = RemoteFiles(impostor.place, OWN, request_s=0.4, connect_s=0.4)
        began_at = time.monotonic()
        with pytest.raises(RequestFailedError, match="no answer in time"):
            files.ask({"do": "nothing"})
        assert time.monotonic() - began_at < 5
        # Nor is it asked again at once: a node has other things to do.
        again_at = time.monotonic()
        with pytest.raises(RequestFailedError, match="no answer in time"):
            files.ask({"do": "nothing"})
        assert time.monotonic() - again_at < 0.1
    finally:
        ended.set()
        impostor.close()


def test_a_name_that_is_not_known_yet_is_resolved_anew(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Main's pod has a name some seconds after it has begun, and another address in its next life."""
    known: list[tuple[str, int]] = []

    system = socket.getaddrinfo

    def resolve(host: str, *args: Any, **named: Any) -> Any:
        if host != "main-0.service":
            return system(host, *args, **named)
        if not known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", end) for end in known]

    monkeypatch.setattr(coordinator.socket, "getaddrinfo", resolve)
    files = RemoteFiles(f"main://main-0.service:{served.port}", OWN)
    with pytest.raises(RequestFailedError, match="Name or service not known"):
        files.ask({"do": "nothing"})
    known[:] = [("127.0.0.9", served.port), ("127.0.0.1", served.port)]
    files.ask({"do": "nothing"})


def test_a_resolver_that_takes_its_time_holds_nobody_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for the next time."""
    go = threading.Event()

    def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
        go.wait(PATIENCE_S)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", served.port))]

    monkeypatch.setattr(coordinator.socket, "getaddrinfo", resolve)
    now = [0.0]
    files = RemoteFiles(f"main://main-0.service:{served.port}", OWN, connect_s=0.05, clock=lambda: now[0])
    with pytest.raises(RequestFailedError, match="no answer in time"):
        files.ask({"do": "nothing"})
    go.set()
    until(lambda: files._lookup._found, "the resolver")
    now[0] += 10
    files._connect_s = PATIENCE_S  # what comes now is no matter of a resolver
    files.ask({"do": "nothing"})
