"""horovod/launcher/neighbours.py: whose connections come in on loopback."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parents[3] / "horovod" / "launcher" / "neighbours.py"
# As Linux prints it: a connection of uid 1000 from port 4660 to port 12340, its other end, which is root's, and one
# that its process has closed.
TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1234 0100007F:3034 01 00000000:00000000 00:00000000 00000000  1000        0 4242 1 0 100 0 0 10 0
   1: 0100007F:3034 0100007F:1234 01 00000000:00000000 00:00000000 00000000     0        0 4243 1 0 100 0 0 10 0
   2: 0100007F:1235 0100007F:3034 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 100 0 0 10 0
"""


@pytest.fixture
def neighbours() -> ModuleType:
    """Return the module."""
    spec = importlib.util.spec_from_file_location("horovod_neighbours", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(sys.byteorder != "little", reason="the table's text is that of a little-endian machine")
@pytest.mark.parametrize(("port", "uid"), [(0x1234, 1000), (0x1235, None), (0x1236, None)])
def test_the_peers_own_socket_tells_its_user(neighbours: ModuleType, port: int, uid: int | None) -> None:
    """Not this end's, which is there too; a socket without a process is nobody's, though it is shown as root's."""
    assert neighbours.uid_of_peer(TABLE, ("127.0.0.1", port), ("127.0.0.1", 0x3034)) == uid


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
def test_connections_of_this_user_are_known_and_those_of_others_too(neighbours: ModuleType) -> None:
    """A real connection; one that its owner has closed is nobody's."""
    connect = "import socket, sys; c = socket.create_connection(('127.0.0.2', int(sys.argv[1]))); sys.stdin.read()"
    with socket.create_server(("127.0.0.2", 0)) as server:
        command = [sys.executable, "-c", connect, str(server.getsockname()[1])]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as peer:
            connection, _ = server.accept()
            with connection:
                assert neighbours.is_of_this_user(connection)
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(os, "getuid", lambda: 4711)
                    assert not neighbours.is_of_this_user(connection)
                peer.communicate(b"")
                assert not neighbours.is_of_this_user(connection)


def test_a_system_that_does_not_tell_refuses_nobody(neighbours: ModuleType, tmp_path: Path) -> None:
    near, far = socket.socketpair()
    with near, far:
        assert neighbours.is_of_this_user(near, tmp_path / "nothing")
