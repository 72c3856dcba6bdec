"""Whose process listens: real sockets of this user, and the kernel's tables with others' ones."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from oci_cluster.system.listeners import is_of_this_user, peer_is_of_this_user, peers_of_this_user

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system tells of listeners on Linux alone")

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
MINE, OTHER = os.geteuid(), os.geteuid() + 1
# 127.0.0.2 and its port 8888, as the tables have them; all addresses; both again in the table of IPv6.
HERE, ANY, ANY_6, MAPPED = "0200007F", "0" * 8, "0" * 32, "0000000000000000FFFF00000200007F"


def row(address: str, uid: int, *, port: int = 8888, state: str = "0A") -> str:
    return f"   0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {uid:5} 0 1\n"


@pytest.mark.parametrize(("address", "family"), [("127.0.0.2", socket.AF_INET), ("", socket.AF_INET6)])
def test_a_socket_of_ones_own_is(address: str, family: int) -> None:
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        port = listener.getsockname()[1]
        assert not is_of_this_user("127.0.0.2", port)  # it does not listen yet
        listener.listen()
        assert is_of_this_user("127.0.0.2", port)
    assert not is_of_this_user("127.0.0.2", port)


@pytest.mark.parametrize(
    ("rows", "rows_6", "expected"),
    [
        ([row(HERE, MINE)], [], True),
        ([row(HERE, OTHER)], [], False),
        ([row(ANY, OTHER)], [], False),
        ([], [row(ANY_6, OTHER)], False),
        ([], [row(MAPPED, OTHER)], False),
        ([row(HERE, MINE)], [row(ANY_6, OTHER)], False),
        ([row(HERE, MINE), row(HERE, OTHER, port=8889)], [], True),
        ([row(HERE, MINE), row("0300007F", OTHER)], [], True),
        ([row(HERE, MINE), row(HERE, OTHER, state="01")], [], True),  # somebody's connection
        ([row(HERE, MINE, state="01")], [], False),
        ([], [], False),
    ],
)
def test_of_others_there_may_be_none(tmp_path: Path, rows: list[str], rows_6: list[str], *, expected: bool) -> None:
    (tmp_path / "tcp").write_text(HEAD + "".join(rows))
    (tmp_path / "tcp6").write_text(HEAD + "".join(rows_6))
    assert is_of_this_user("127.0.0.2", 8888, tmp_path) is expected


def test_a_system_that_does_not_tell_is_taken_as_it_is(tmp_path: Path) -> None:
    assert is_of_this_user("127.0.0.2", 8888, tmp_path)
    with socket.create_server(("127.0.0.2", 0)) as server, socket.create_connection(server.getsockname()) as peer:
        assert peer_is_of_this_user(peer, tmp_path)


@pytest.mark.parametrize(("uid", "inode", "expected"), [(MINE, 1, True), (OTHER, 1, False), (MINE, 0, False)])
def test_the_peers_own_socket_tells_its_user(tmp_path: Path, uid: int, inode: int, *, expected: bool) -> None:
    """Not this end's, which is there too; a socket without a process is nobody's, though it is shown as somebody's."""
    with socket.create_server(("127.0.0.2", 0)) as server, socket.socket() as peer:
        peer.bind(("127.0.0.2", 0))
        peer.connect(server.getsockname())
        connection, _ = server.accept()
        with connection:
            ends = [f"{HERE}:{end.getsockname()[1]:04X}" for end in (peer, connection)]
            rest = "01 00000000:00000000 00:00000000 00000000"
            rows = [
                f"   0: {ends[0]} {ends[1]} {rest} {uid:5} 0 {inode}\n",
                f"   1: {ends[1]} {ends[0]} {rest} 4711 0 1\n",
            ]
            (tmp_path / "tcp").write_text(HEAD + "".join(rows))
            assert peer_is_of_this_user(connection, tmp_path) is expected


def test_connections_of_this_user_are_known_and_those_of_others_too() -> None:
    """A real connection; one that its owner has closed is nobody's."""
    connect = "import socket, sys; c = socket.create_connection(('127.0.0.2', int(sys.argv[1]))); sys.stdin.read()"
    with socket.create_server(("127.0.0.2", 0)) as server:
        command = [sys.executable, "-c", connect, str(server.getsockname()[1])]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as peer:
            connection, _ = server.accept()
            with connection:
                assert peer_is_of_this_user(connection)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(os, "geteuid", lambda: OTHER)
                    assert not peer_is_of_this_user(connection)
                peer.communicate(b"")
                assert not peer_is_of_this_user(connection)


def test_of_many_connections_each_is_known() -> None:
    """A connection that is cut is nobody's, and no error."""
    with socket.create_server(("127.0.0.2", 0)) as server, contextlib.ExitStack() as kept:
        mine, cut = (kept.enter_context(socket.create_connection(server.getsockname())) for _ in range(2))
        accepted = [kept.enter_context(server.accept()[0]) for _ in range(2)]
        cut.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        cut.close()  # with a reset
        assert peers_of_this_user(accepted) == [True, False]
        assert mine.getsockname() == accepted[0].getpeername()
    assert peers_of_this_user([]) == []
