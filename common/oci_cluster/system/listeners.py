"""Who listens on a port of this machine: another user may have been first there."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

# Linux's lists of sockets, in a form that has not changed since 2.6: number, local and remote address, state, queues,
# timers, retransmits, uid. Of an IPv6 one an IPv4 address is the end.
_TABLES = ("tcp", "tcp6")
_LOCAL, _STATE, _UID = 1, 3, 7
_LISTENS = "0A"
_ALL, _ALL_6, _MAPPED = "0" * 8, "0" * 32, "0000000000000000FFFF0000"


def is_of_this_user(host: str, port: int, net: Path = Path("/proc/net")) -> bool:
    """Return whether this user, and nobody else, listens where a connection to *port* of *host*, IPv4, may get.

    Where the system does not tell, as macOS, the answer is True: there is no other to be had.
    """
    own = f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}"
    ends = {f"{address}:{port:04X}" for address in (own, _ALL, _ALL_6, f"{_MAPPED}{own}")}
    tables = [net / name for name in _TABLES if (net / name).exists()]
    sockets = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    users = {int(each[_UID]) for each in sockets if each[_LOCAL] in ends and each[_STATE] == _LISTENS}
    return not tables or users == {os.geteuid()}
