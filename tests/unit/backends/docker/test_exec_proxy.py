# The program that the engine runs inside a container, run here: frames on its pipes, bytes on the port.

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from oci_cluster.backends.docker import exec_proxy


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        yield listener


def start(port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", str(Path(exec_proxy.__file__)), str(port)]  # as in a container
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def test_bytes_go_both_ways_and_each_has_its_end(server: socket.socket) -> None:
    """Who has ended its direction still hears the other one to its end."""
    heard = []

    def answer() -> None:
        connection, _ = server.accept()
        with connection:
            while piece := connection.recv(100):
                heard.append(piece)
            connection.sendall(b"all heard")

    thread = threading.Thread(target=answer)
    thread.start()
    with start(server.getsockname()[1]) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(frame(b"one ") + frame(b"two") + frame(b""))
        program.stdin.flush()  # and not closed: then nobody would be there any more
        said = program.stdout.read()
        assert program.wait(60) == 0
    thread.join(60)
    assert (b"".join(heard), said) == (b"one two", b"+" + frame(b"all heard") + frame(b""))


def test_who_breaks_off_ends_the_connection(server: socket.socket) -> None:
    """A client of the engine that is killed closes the pipe, and says nothing."""
    with start(server.getsockname()[1]) as program:
        connection, _ = server.accept()
        assert program.stdin is not None
        program.stdin.close()
        with connection:
            connection.settimeout(60)
            assert connection.recv(1) == b""
        assert program.wait(60) == 0


def test_a_port_where_nobody_listens_is_told(server: socket.socket) -> None:
    port = server.getsockname()[1]
    server.close()
    with start(port) as program:
        said, _ = program.communicate(timeout=60)
    assert (said, program.returncode) == (b"-Connection refused", 0)
