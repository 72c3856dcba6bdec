"""Whose process listens: real sockets of this user, and the kernel's tables with others' ones."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from oci_cluster.system.listeners import is_of_this_user

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
