"""What each cluster has of this machine alone: loopback addresses and, where they are of all addresses, ports."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from oci_cluster.errors import BackendError

#: What the names of all claims begin with.
CLAIMS = "oci-cluster"
# Where Linux lists sockets of every user that have names; the name is what a line ends with.
_NAMES = Path("/proc/net/unix")
_INODE = 6


def has_loopback_range() -> bool:
    """Return whether every 127.0.0.x is an address of this machine (Linux), not 127.0.0.1 alone (macOS)."""
    return sys.platform == "linux"


class Addresses:
    """Loopback addresses that no other cluster of this machine has, whosever it is and from whichever checkout.

    Each is claimed by a socket in Linux's abstract namespace: the kernel knows of it as long as a process holds it, and
    no longer. A lock file in a directory that all users share would need an owner. Where 127.0.0.1 is the only address,
    nodes share it and nothing is claimed. Ports are claimed in the same way.
    """

    def __init__(self, count: int, suits: Callable[[Addresses, str], bool] = lambda *_: True) -> None:
        """Claim *count* addresses, the lowest that are free.

        Args:
            count: How many.
            suits: Whether an address that has been claimed here can be used; it may claim more.

        Raises:
            BackendError: the addresses do not suffice.
        """
        self._claims: dict[str, socket.socket] = {}
        self.texts: list[str] = []
        if not has_loopback_range():
            self.texts = ["127.0.0.1"] * count
            return
        for number in range(1, 255):
            if len(self.texts) == count:
                return
            text = f"127.0.0.{number}"
            if not self.claim([text]):
                continue
            if suits(self, text):
                self.texts.append(text)
            else:
                self.give_up([text])
        if len(self.texts) < count:
            free = len(self.texts)
            self.close()
            msg = f"{count} nodes do not fit: running clusters leave {free} addresses; end one: scripts/stop.sh"
            if others := _claims_of_others():
                msg += (
                    f"; other users of this machine hold {others} claims: 'sudo ss -xap | grep @{CLAIMS}/' names them"
                )
            raise BackendError(msg)

    def __enter__(self) -> Addresses:
        """Hold the claims."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give them up, unless a child holds them too."""
        self.close()

    def claim(self, names: Sequence[str]) -> bool:
        """Claim all of *names*, or none where somebody has one of them; return whether they are claimed."""
        if not has_loopback_range():
            return True
        for count, name in enumerate(names):
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0{CLAIMS}/{name}")
            except OSError:
                claim.close()
                self.give_up(names[:count])
                return False
            self._claims[name] = claim
        return True

    def give_up(self, names: Sequence[str]) -> None:
        """Give up those of *names* that are claimed here."""
        for name in names:
            if claim := self._claims.pop(name, None):
                claim.close()

    def close(self) -> None:
        """Give up the claims of this process."""
        for claim in self._claims.values():
            claim.close()

    def descriptors(self) -> list[int]:
        """Return what a child must inherit to hold the claims."""
        return [claim.fileno() for claim in self._claims.values()]


def _claims_of_others() -> int:
    """Return how many claims no process of this user holds: anybody may take their names."""
    lines = [line.split() for line in _NAMES.read_text(errors="replace").splitlines()]
    # A name may have line breaks of its own.
    claims = {line[_INODE] for line in lines if len(line) > _INODE and line[-1].startswith(f"@{CLAIMS}/")}
    for file in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # it has just been closed
            if file.parent.stat().st_uid == os.geteuid():
                claims.discard(str(file.readlink()).removeprefix("socket:[").removesuffix("]"))
    return len(claims)


def all_claims() -> set[str]:
    """Return the names of what clusters of this machine have claimed, whosever they are."""
    if not has_loopback_range():
        return set()
    names = [line.split(" ")[-1] for line in _NAMES.read_text(errors="replace").splitlines()]
    begin = f"@{CLAIMS}/"
    return {name.removeprefix(begin) for name in names if name.startswith(begin)}
