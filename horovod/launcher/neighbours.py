"""Whose process is at the other end of a connection inside this machine: on loopback, an address tells nothing."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

# Linux's list of connections, in a form that has not changed since 2.6: local and remote address, state, queues,
# timers, retransmits, uid, time-out, inode.
_CONNECTIONS = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9


def is_of_this_user(connection: socket.socket, table: Path = _CONNECTIONS) -> bool:
    """Return whether the other end of an IPv4 *connection* inside this machine belongs to this process's user.

    Where the system does not tell, as macOS, the answer is True: there is no other to be had.
    """
    if not table.exists():
        return True
    return uid_of_peer(table.read_text(), connection.getpeername(), connection.getsockname()) == os.getuid()


def uid_of_peer(table: str, peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the uid that has the socket *peer* in *table*; None where nobody has it any more.

    The kernel shows a socket that its process has closed as one of root's.
    """
    ends = [_as_in_table(peer), _as_in_table(own)]
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[_LOCAL : _REMOTE + 1] == ends and fields[_INODE] != "0":
            return int(fields[_UID])
    return None


def _as_in_table(end: tuple[str, int]) -> str:
    """Return an address and a port as the table has them: the four bytes as one number of this machine's."""
    number = int.from_bytes(socket.inet_aton(end[0]), sys.byteorder)
    return f"{number:08X}:{end[1]:04X}"
