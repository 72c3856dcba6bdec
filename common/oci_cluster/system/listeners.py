"""Owners of sockets at a port: another user may have been first there."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

# Linux's lists of sockets, in a form that has not changed since 2.6: number, local and remote address, state, queues,
# timers, retransmits, uid, time-out, inode. Of an IPv6 one an IPv4 address is the end.
_TABLES = ("tcp", "tcp6")
_LOCAL, _REMOTE, _STATE, _UID, _INODE = 1, 2, 3, 7, 9
_LISTENS = "0A"
_ALL, _ALL_6, _MAPPED = "0" * 8, "0" * 32, "0000000000000000FFFF0000"


def is_of_this_user(host: str, port: int, net: Path = Path("/proc/net")) -> bool:
    """Return whether this user alone listens at *port* of the IPv4 *host*.

    Where the system does not tell, as macOS, the answer is True: there is no other to be had.
    """
    own = _as_in_table(host)
    ends = {f"{address}:{port:04X}" for address in (own, _ALL, _ALL_6, f"{_MAPPED}{own}")}
    sockets = _sockets(net)
    users = {int(each[_UID]) for each in sockets or [] if each[_LOCAL] in ends and each[_STATE] == _LISTENS}
    return sockets is None or users == {os.geteuid()}


def peer_is_of_this_user(connection: socket.socket, net: Path = Path("/proc/net")) -> bool:
    """Return whether the other end of an IPv4 *connection* is this user's.

    False where nobody has it any more: the kernel shows a socket that its process has closed as one of root's, without
    an inode. True where the system does not tell.
    """
    return peers_of_this_user([connection], net)[0]


def peers_of_this_user(connections: Sequence[socket.socket], net: Path = Path("/proc/net")) -> list[bool]:
    """Return which of *connections* are from this user, with one look at all."""
    sockets = _sockets(net)
    users: dict[tuple[str, ...], list[int]] = {}
    for each in sockets or []:
        if each[_INODE] != "0":
            users.setdefault((each[_LOCAL], each[_REMOTE]), []).append(int(each[_UID]))
    return [sockets is None or users.get(_ends(one)) == [os.geteuid()] for one in connections]


def _ends(connection: socket.socket) -> tuple[str, ...]:
    """Return the ends of *connection* as the other one tells them."""
    try:
        ends = connection.getpeername(), connection.getsockname()
    except OSError:
        return ()
    return tuple(f"{_as_in_table(host)}:{port:04X}" for host, port in ends)


def _as_in_table(host: str) -> str:
    """Return an IPv4 address as the tables have it: one number of this machine's."""
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}"


def _sockets(net: Path) -> list[list[str]] | None:
    """Return the fields of each line of the tables; None where there are none."""
    tables = [net / name for name in _TABLES if (net / name).exists()]
    lines = [line for table in tables for line in table.read_text().splitlines()[1:]]
    return [line.split() for line in lines] if tables else None
