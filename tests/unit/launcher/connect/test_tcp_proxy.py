# A port of this machine that leads to a port of a node: bytes, half-closed ends, servers that are not there.

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from harness import wait_until

from oci_cluster.backends.base import DirectConnection
from oci_cluster.errors import BackendError, UsageError
from oci_cluster.launcher.connect.tcp_proxy import Connections, Forwarder, check_reachable


@contextlib.contextmanager
def serving(handle: Callable[[socket.socket], object]) -> Iterator[int]:
    """Serve each connection by *handle*, in a thread of its own; yield the port."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):  # closed by the test
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=run, args=(connection,), daemon=True).start()

        def run(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                handle(connection)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def digest_all(connection: socket.socket) -> None:
    """Answer the hash of all that is said, when all has been said."""
    digest = hashlib.sha256()
    while piece := connection.recv(1 << 16):
        digest.update(piece)
    connection.sendall(digest.digest())


def ask(port: int, said: bytes) -> bytes:
    """Say all, close that half, and return all that is answered."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:

        def say_all() -> None:
            with contextlib.suppress(OSError):  # nobody listens: the answer tells
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=say_all)
        sender.start()
        answer = b""
        while piece := connection.recv(1 << 16):
            answer += piece
        sender.join()
        return answer


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def forward(said: list[str]) -> Iterator[Callable[[int], Forwarder]]:
    """Return what makes a forwarder to a port; all are closed at the end."""
    with contextlib.ExitStack() as made:

        def make(port: int) -> Forwarder:
            forwarder = Forwarder(DirectConnection("127.0.0.1", port), 0, said.append)
            made.callback(forwarder.close)
            return forwarder

        yield make


def test_bytes_come_through_both_ways_with_the_end_of_each(forward: Callable[[int], Forwarder]) -> None:
    """The server answers only when it has been told that nothing more comes."""
    text = os.urandom(8 << 20)
    with serving(digest_all) as port:
        assert ask(forward(port).port, text) == hashlib.sha256(text).digest()


def test_many_at_once(forward: Callable[[int], Forwarder]) -> None:
    """A page has dozens of parts; none waits for another to end."""
    together = threading.Barrier(20, timeout=30)

    def answer(connection: socket.socket) -> None:
        together.wait()
        digest_all(connection)

    with serving(answer) as port:
        here = forward(port).port
        answers: list[bytes] = []
        threads = [threading.Thread(target=lambda: answers.append(ask(here, b"x"))) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert answers == [hashlib.sha256(b"x").digest()] * 20


def test_a_server_that_goes_ends_the_connection_here(forward: Callable[[int], Forwarder]) -> None:
    with (
        serving(lambda connection: connection.recv(1)) as port,
        socket.create_connection(("127.0.0.1", forward(port).port), timeout=30) as connection,
    ):
        connection.sendall(b"x")
        assert connection.recv(1) == b""


def test_a_caller_that_breaks_off_ends_the_connection_there(forward: Callable[[int], Forwarder]) -> None:
    ended = threading.Event()

    def listen(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # a reset is an end, too
            while connection.recv(1):
                pass
        ended.set()

    with serving(listen) as port:
        connection = socket.create_connection(("127.0.0.1", forward(port).port), timeout=30)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.sendall(b"x")
        connection.close()
        assert ended.wait(30)


def test_a_server_that_is_not_there_is_told_once_and_so_is_its_coming(
    forward: Callable[[int], Forwarder], said: list[str]
) -> None:
    with serving(digest_all) as port:
        pass
    here = forward(port).port
    for _ in range(3):
        assert ask_or_nothing(here) == b""
    assert said == [f"nobody listens on 127.0.0.1:{port} (Connection refused)"]

    with socket.create_server(("127.0.0.1", port)) as server:
        thread = threading.Thread(target=lambda: digest_all_of(server), daemon=True)
        thread.start()
        assert ask(here, b"x") == hashlib.sha256(b"x").digest()
        thread.join(30)
    assert said[1:] == ["reachable again"]


def digest_all_of(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        digest_all(connection)


def ask_or_nothing(port: int) -> bytes:
    try:
        return ask(port, b"x")
    except OSError:  # reset before all was said
        return b""


def test_a_connection_at_rest_stays(forward: Callable[[int], Forwarder]) -> None:
    """A page that is just looked at says nothing for hours: no limit on making a connection may end it."""
    made: list[socket.socket] = []
    with serving(digest_all) as port:
        forwarder, dial = forward(port), DirectConnection("127.0.0.1", port).dial

        def noted() -> socket.socket:
            made.append(dial())
            return made[0]

        forwarder.way.dial = noted  # type: ignore[method-assign]
        with socket.create_connection(("127.0.0.1", forwarder.port), timeout=30):
            wait_until(lambda: made and made[0].gettimeout() is None, "a connection without a limit")


def test_an_end_gives_the_port_back(forward: Callable[[int], Forwarder]) -> None:
    with serving(lambda connection: connection.recv(1)) as port:
        forwarder = forward(port)
        forwarder.close()
        Forwarder(DirectConnection("127.0.0.1", port), forwarder.port, print).close()


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        connections = Connections(lambda _, number: DirectConnection("127.0.0.1", number), print)
        with pytest.raises(UsageError, match=f"port {port} of this machine is taken; choose .* --port OTHER:9$"):
            connections.reach("MAIN", 9, port, is_asked=False)
        connections.close()


class FakeWay(DirectConnection):
    """A way that has to be dialled."""

    def __init__(self, port: int, closed: list[int]) -> None:
        super().__init__("127.0.0.1", port)
        self.address = ""
        self.closed = closed

    def close(self) -> None:
        self.closed.append(self._place[1])


def test_a_way_is_made_where_one_is_needed_and_closed_in_the_end(said: list[str]) -> None:
    closed: list[int] = []
    with serving(digest_all) as port:
        direct = Connections(lambda _, number: DirectConnection("127.0.0.1", number), said.append)
        assert direct.reach("MAIN", port) == ("127.0.0.1", port)
        assert not direct.has_forwarders
        direct.close()

        made = Connections(lambda _, number: FakeWay(number, closed), said.append)
        host, here = made.reach("MAIN", port)  # the same number is taken here: by the server itself
        assert (host, made.has_forwarders) == ("127.0.0.1", True)
        assert ask(here, b"x") == hashlib.sha256(b"x").digest()
        made.close()
    assert (closed, said) == ([port], [])


def test_a_port_that_is_asked_for_again_is_at_the_same_place(said: list[str]) -> None:
    """As a notebook's cell asks that runs once more: a port of this machine is not taken by itself."""
    closed: list[int] = []
    with serving(digest_all) as port, socket.create_server(("127.0.0.1", 0)) as free:
        here = free.getsockname()[1]
        free.close()
        made = Connections(lambda _, number: FakeWay(number, closed), said.append)
        usual = made.reach("MAIN", port)
        named = made.reach("MAIN", port, here)
        assert (made.reach("MAIN", port), made.reach("MAIN", port, here)) == (usual, named)
        assert named == ("127.0.0.1", here) != usual
        made.close()
    assert (closed, said) == ([port], [])


def test_a_server_that_must_answer_is_asked_at_once(said: list[str]) -> None:
    closed: list[int] = []
    with serving(digest_all) as port:
        pass
    connections = Connections(lambda _, number: FakeWay(number, closed), said.append)
    with pytest.raises(BackendError, match=f"nobody listens on 127.0.0.1:{port}"):
        connections.reach("MAIN", port, must_answer=True)
    connections.reach("MAIN", port)
    assert said == [
        f"nobody listens on 127.0.0.1:{port} (Connection refused); this goes on, for somebody may listen there later"
    ]
    connections.close()
    assert closed == [port]


@pytest.mark.parametrize(("is_direct", "asks"), [(True, 0), (False, 1)])
def test_a_server_is_not_asked_without_need(said: list[str], *, is_direct: bool, asks: int) -> None:
    """To TLS a mere look is a failed handshake. A way that has to be dialled may be forbidden, which is told now."""
    with serving(digest_all) as port:
        pass
    way = DirectConnection("127.0.0.1", port) if is_direct else FakeWay(port, [])
    connections = Connections(lambda *_: way, said.append)
    connections.reach("MAIN", port, is_asked=False)
    connections.close()
    assert len(said) == asks


def test_who_answers_is_reachable() -> None:
    def say_no(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(b"HTTP/1.1 403 no\r\nContent-Length: 0\r\n\r\n")

    with serving(say_no) as port:
        check_reachable("127.0.0.1", port, "/")
    with serving(lambda connection: connection.recv(1)) as port:  # waits for a first word
        check_reachable("127.0.0.1", port, "")


@pytest.mark.parametrize("path", ["", "/"])
def test_who_closes_at_once_is_not(path: str) -> None:
    with serving(lambda _: None) as port, pytest.raises(BackendError, match="nothing answers there"):
        check_reachable("127.0.0.1", port, path)
