"""Main as the server of its cluster dir: who may ask, and what those cannot do who have no key. Real connections."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from unit.fake_cluster import KEY, LAUNCH

from oci_cluster.contract import main_files
from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.main_files import RemoteFiles
from oci_cluster.contract.main_frames import (
    ANSWERING,
    ASKING,
    CHALLENGE_BYTES,
    GREETING,
    HEAD,
    MAX_FILE,
    PROOF_BYTES,
    Seals,
)
from oci_cluster.contract.main_place import PURPOSE
from oci_cluster.contract.repeats import RequestFailedError
from oci_cluster.contract.signing import derived_key
from oci_cluster.errors import StorageError
from oci_cluster.node import exchange as exchange_module
from oci_cluster.node.exchange import Exchange

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
        self.exchange = Exchange(LAUNCH, KEY, prove_s=prove_s)
        self.exchange.listen("127.0.0.1", self.place, nodes=2)
        self.main = ClusterDir(f"{self.place}/c", LAUNCH, KEY, held=self.exchange.memory)

    @property
    def place(self) -> str:
        return f"main://127.0.0.1:{self.port}"

    def node(self, key: str = KEY) -> ClusterDir:
        return ClusterDir(f"{self.place}/c", LAUNCH, key)

    def files(self) -> RemoteFiles:
        return RemoteFiles(self.place, OWN)


@pytest.fixture(autouse=True)
def _connections_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what nodes and others have opened: a process does that by its end."""
    opened: list[socket.socket] = []
    create = socket.create_connection

    def note(*args: Any, **named: Any) -> socket.socket:
        opened.append(create(*args, **named))
        return opened[-1]

    monkeypatch.setattr(socket, "create_connection", note)
    yield
    for each in opened:
        each.close()


@pytest.fixture
def served() -> Iterator[Served]:
    found = Served()
    yield found
    found.exchange.close()


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


# --- What nodes do --------------------------------------------------------------------------------------------------


def test_nodes_share_the_files_of_main(served: Served) -> None:
    """All that a cluster dir can do, from both sides."""
    worker = served.node()
    worker.create()
    counter = served.main.publish("MAIN_config.json", address="10.0.0.1")
    assert (worker.read("MAIN_config.json") or {})["counter"] == counter
    before = worker.listing()
    worker.publish("WORKER_1_heartbeat.json", beat=1)
    assert set(served.main.listing()) == {"MAIN_config.json", "WORKER_1_heartbeat.json"}
    served.main.publish("MAIN_config.json", address="10.0.0.1")
    assert worker.listing()["MAIN_config.json"] != before["MAIN_config.json"]
    assert (worker.is_there("stop"), worker.is_there("MAIN_config.json"), worker.read("stop")) == (False, True, None)
    worker.remove("MAIN_config.json")
    worker.remove("MAIN_config.json")
    assert list(served.main.listing()) == ["WORKER_1_heartbeat.json"]
    worker.remove_all()
    assert served.main.listing() == worker.listing() == {}


def test_a_file_that_is_written_again_has_another_fingerprint_each_time(served: Served) -> None:
    """The same content, removed and written: the list tells."""
    seen = set()
    for _ in range(3):
        served.main.write_bytes("x", b"same")
        seen.add(served.node().listing()["x"])
    served.main.remove_all()
    served.main.write_bytes("x", b"same")
    assert len(seen | {served.node().listing()["x"]}) == 4


def test_of_several_who_make_a_file_one_does(served: Served) -> None:
    """Claims of ranks rely on it; main may be one of them."""
    nodes = [served.node() for _ in range(8)] + [served.main]
    made: list[int] = []

    def make(number: int) -> None:
        try:
            nodes[number].publish_once("WORKER_1_claim.json", holder=number)
        except StorageError:
            return
        made.append(number)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(len(nodes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert (served.main.read("WORKER_1_claim.json") or {})["holder"] == made[0]


@pytest.mark.parametrize("name", ["../x", "logs/x", ".x", "", "a b", "x" * 256, "a\n"])
def test_there_are_plain_names_alone(served: Served, name: str) -> None:
    """Whoever asks, and however."""
    with pytest.raises(RequestFailedError, match="cannot be the name"):
        served.files().write(name, b"", is_new=False)
    with pytest.raises(ValueError, match="cannot be the name"):
        served.exchange.memory.write(name, b"", is_new=False)


def test_memory_is_bounded() -> None:
    """By the number of files, by their sizes, and by all of them together; what is replaced makes room."""
    memory = exchange_module.MainMemory(most_files=2, most_bytes=10)
    memory.write("a", b"12345", is_new=False)
    memory.write("b", b"12345", is_new=False)
    for name, body in (("c", b""), ("a", b"123456")):
        with pytest.raises(RequestFailedError, match="no room for"):
            memory.write(name, body, is_new=False)
    memory.write("a", b"", is_new=False)
    memory.write("b", b"1234567890", is_new=False)
    memory.remove("a")
    memory.write("c", b"", is_new=True)
    assert [name for name, *_ in memory.names()] == ["b", "c"]


def test_a_file_has_one_mebibyte_at_most(served: Served) -> None:
    """And that comes through whole."""
    body = os.urandom(MAX_FILE)
    files = served.files()
    files.write("big", body, is_new=False)
    assert files.read("big", 0, None) == body
    assert files.read("big", 5, 9) == body[5:9]
    for store in (files, served.exchange.memory):
        with pytest.raises(RequestFailedError, match="1048577 bytes"):
            store.write("big", body + b"x", is_new=False)


def test_a_node_connects_again(served: Served) -> None:
    """The failure is one request's; it is no "absent", and what comes after is answered."""
    worker = served.node()
    worker.create()
    for guest in tuple(served.exchange._proved):
        guest.socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(StorageError, match="it has closed the connection"):
        worker.read("stop")
    assert worker.read("stop") is None


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


@pytest.mark.parametrize("said", [b"", b"x", b"x" * CHALLENGE_BYTES, b"x" * CHALLENGE_BYTES + HEAD.pack(40, 0) + b"{"])
def test_who_does_not_prove_itself_has_to_go(said: bytes) -> None:
    """Silence, half a frame: after a limited time, however often another byte comes."""
    served = Served(prove_s=0.3)
    try:
        guest = socket.create_connection(("127.0.0.1", served.port), PATIENCE_S)
        guest.sendall(said)
        until(lambda: served.exchange._unproved, "the connection")
        until(lambda: not served.exchange._unproved, "its end")
        assert served.node().read("stop") is None
    finally:
        served.exchange.close()


def test_a_half_frame_of_a_node_has_a_time_too(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine may be gone."""
    monkeypatch.setattr(exchange_module, "FRAME_S", 0.3)
    raw = Raw(served.port)
    raw.prove()
    raw.socket.sendall(HEAD.pack(20, 20) + b"{")
    assert raw.is_ended()
    assert not served.exchange._proved


def test_a_flood_keeps_no_node_out_and_is_bounded(served: Served) -> None:
    """Who comes later drives out the oldest that has not proved itself; nodes that have stay."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    worker = served.node()
    worker.create()
    flood = [socket.create_connection(("127.0.0.1", served.port), PATIENCE_S) for _ in range(600)]
    try:
        assert served.node().read("stop") is None
        assert worker.read("stop") is None
        assert len(served.exchange._unproved) <= exchange_module.MOST_UNPROVED
        assert len(served.exchange._proved) >= 1
    finally:
        for guest in flood:
            guest.close()


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
                guest, _ = self._listener.accept()
            except OSError:
                return
            self._guests.append(guest)
            with guest:
                try:
                    self._answer(guest)
                except OSError:
                    continue

    def close(self) -> None:
        self._listener.close()


def lies(guest: socket.socket) -> None:
    """Answer with another key."""
    challenge = bytes(CHALLENGE_BYTES)
    guest.sendall(GREETING + challenge)
    own = guest.recv(CHALLENGE_BYTES)
    guest.recv(4096)
    guest.sendall(Seals(bytes(32), challenge + own, ANSWERING).seal({}))
    guest.recv(1)


def boasts(guest: socket.socket) -> None:
    """Say that more will come than can."""
    guest.sendall(GREETING + bytes(CHALLENGE_BYTES))
    guest.recv(4096)
    guest.sendall(HEAD.pack(100, 8 << 20))
    guest.recv(1)


def echoes(guest: socket.socket) -> None:
    """Send back what the node has sealed itself."""
    guest.sendall(GREETING + bytes(CHALLENGE_BYTES))
    guest.recv(CHALLENGE_BYTES)
    guest.sendall(guest.recv(4096))
    guest.recv(1)


def is_another(guest: socket.socket) -> None:
    """Be something else."""
    guest.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize("answer", [lies, boasts, echoes, is_another])
def test_nobody_answers_in_mains_name(answer: Callable[[socket.socket], None]) -> None:
    """What it says is no answer: neither a file nor "absent"."""
    impostor = Impostor(answer)
    try:
        with pytest.raises(StorageError, match=r"main does not answer at 127\.0\.0\.1:\d+: "):
            ClusterDir(f"{impostor.place}/c", LAUNCH, KEY).read("stop")
    finally:
        impostor.close()


def test_who_answers_slowly_does_not_answer() -> None:
    """A byte now and then: the request has its time, and no single byte."""
    ended = threading.Event()

    def drips(guest: socket.socket) -> None:
        for byte in GREETING + bytes(CHALLENGE_BYTES):
            guest.sendall(bytes([byte]))
            if ended.wait(0.1):
                return

    impostor = Impostor(drips)
    try:
        files = RemoteFiles(impostor.place, OWN, request_s=0.4, connect_s=0.4)
        began_at = time.monotonic()
        with pytest.raises(RequestFailedError, match="no answer in time"):
            files.reach()
        assert time.monotonic() - began_at < 5
        # Nor is it asked again at once: a node has other things to do.
        again_at = time.monotonic()
        with pytest.raises(RequestFailedError, match="no answer in time"):
            files.reach()
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

    monkeypatch.setattr(main_files.socket, "getaddrinfo", resolve)
    files = RemoteFiles(f"main://main-0.service:{served.port}", OWN)
    with pytest.raises(RequestFailedError, match="Name or service not known"):
        files.reach()
    known[:] = [("127.0.0.9", served.port), ("127.0.0.1", served.port)]
    files.reach()


def test_a_resolver_that_takes_its_time_holds_nobody_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for the next time."""
    go = threading.Event()

    def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
        go.wait(PATIENCE_S)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", served.port))]

    monkeypatch.setattr(main_files.socket, "getaddrinfo", resolve)
    now = [0.0]
    files = RemoteFiles(f"main://main-0.service:{served.port}", OWN, connect_s=0.05, clock=lambda: now[0])
    with pytest.raises(RequestFailedError, match="no answer in time"):
        files.reach()
    go.set()
    until(lambda: files._lookup._found, "the resolver")
    now[0] += 10
    files.reach()


# --- The end --------------------------------------------------------------------------------------------------------


def leave(served: Served, *, lost: tuple[str, ...] = (), is_interruption: bool = False, grace_s: float = 30.0) -> float:
    began_at = time.monotonic()
    served.exchange.leave(wait=time.sleep, lost=lost, is_interruption=is_interruption, grace_period_s=grace_s)
    return time.monotonic() - began_at


@pytest.fixture
def ending() -> Served:
    """Return a main that a test ends."""
    return Served()


def test_main_leaves_when_the_others_have(ending: Served) -> None:
    """Its last word can be read until then."""
    worker = ending.node()
    worker.publish("WORKER_1_heartbeat.json", beat=1)
    ending.main.publish("stop", exit_code=7)
    assert ending.exchange.remaining() == ["WORKER_1"]
    read: list[object] = []

    def end() -> None:
        read.append(worker.read("stop"))
        worker._fs._store.close()

    threading.Timer(0.3, end).start()
    assert 0.3 <= leave(ending) < 10
    assert read[0]


def test_main_does_not_wait_for_who_is_lost_or_never_leaves(
    ending: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One has said nothing for too long, one is told of in the log."""
    monkeypatch.setattr(exchange_module, "LEAVE_S", 0.2)
    nodes = [ending.node(), ending.node()]
    for rank, node in enumerate(nodes, start=1):
        node.publish(f"WORKER_{rank}_heartbeat.json", beat=1)
    assert ending.exchange.remaining(("WORKER_2",)) == ["WORKER_1"]
    assert 0.2 <= leave(ending, lost=("WORKER_2",), grace_s=0.1) < 10
    assert [record.getMessage() for record in caplog.records] == ["WORKER_1 had not left 0.3 s after main's last word"]


def test_an_interrupted_main_leaves_when_the_others_have_heard(ending: Served) -> None:
    """They stay connected, and wait for its next life."""
    worker = ending.node()
    ending.main.publish("MAIN_heartbeat.json", phase="ready")
    worker.read("MAIN_heartbeat.json")
    ending.main.publish("MAIN_heartbeat.json", phase="interrupted")
    assert ending.exchange.remaining(is_interruption=True)
    worker.read("MAIN_heartbeat.json")
    assert ending.exchange.remaining()
    assert leave(ending, is_interruption=True) < 5


def test_a_connection_that_a_node_has_given_up_is_ended(served: Served) -> None:
    """Its machine's network was cut, and the node has come back."""
    old, new = served.node(), served.node()
    for node in (old, new):
        node.publish("WORKER_1_heartbeat.json", beat=1)
    assert served.exchange.remaining() == ["WORKER_1"]


def test_a_port_that_is_taken_is_named(served: Served) -> None:
    """With the next step."""
    with pytest.raises(StorageError, match=r"127\.0\.0\.1 port \d+ .*in use; .*set another one in WORK_DIR") as caught:
        Exchange(LAUNCH, KEY).listen("127.0.0.1", served.place, nodes=1)
    assert caught.value.exit_code == 69


def test_nodes_on_storage_load_nothing_of_it() -> None:
    """It costs nobody else anything."""
    import subprocess  # noqa: PLC0415 - here alone
    import sys  # noqa: PLC0415 - here alone
    from pathlib import Path  # noqa: PLC0415 - here alone

    code = (
        "import sys, oci_cluster.node.start, oci_cluster.node.main, oci_cluster.node.worker\n"
        "from oci_cluster.contract.cluster_dir import ClusterDir\n"
        "ClusterDir('file:///tmp', 'x', 'k')\n"
        "print(sorted(name for name in sys.modules if name.rpartition('.')[2] in"
        " {'asyncio', 'exchange', 'main_files', 'main_frames', 'main_memory', 'last_words', 'socketserver'}))"
    )
    path = str(Path(exchange_module.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout.replace("'", '"')) == []
