"""Loopback addresses and ports of this machine, of which each cluster has its own."""

from __future__ import annotations

import socket
import sys
from collections.abc import Collection, Mapping

from oci_cluster.backends.base import port_is_free
from oci_cluster.errors import BackendError, SettingsError


def has_loopback_range() -> bool:
    """Return whether every 127.0.0.x is an address of this machine (Linux), not 127.0.0.1 alone (macOS)."""
    return sys.platform == "linux"


class Addresses:
    """Loopback addresses that no other cluster of this machine has, whosever it is and from whichever checkout.

    Each is claimed by a socket in Linux's abstract namespace: the kernel knows of it as long as a process holds it, and
    no longer. A lock file in a directory that all users share would need an owner. Where 127.0.0.1 is the only address,
    nodes share it and nothing is claimed.
    """

    def __init__(self, count: int) -> None:
        """Claim *count* addresses, the lowest that are free.

        Raises:
            BackendError: the addresses do not suffice.
        """
        self._claims: list[socket.socket] = []
        self.texts: list[str] = []
        if not has_loopback_range():
            self.texts = ["127.0.0.1"] * count
            return
        for number in range(1, 255):
            if len(self.texts) == count:
                return
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0oci-cluster/127.0.0.{number}")
            except OSError:
                claim.close()
            else:
                self._claims.append(claim)
                self.texts.append(f"127.0.0.{number}")
        if len(self.texts) < count:
            free = len(self.texts)
            self.close()
            msg = f"{count} nodes do not fit: running clusters leave {free} addresses; end one: scripts/stop.sh"
            raise BackendError(msg)

    def __enter__(self) -> Addresses:
        """Hold the claims."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give them up, unless a child holds them too."""
        self.close()

    def close(self) -> None:
        """Give up the claims of this process."""
        for claim in self._claims:
            claim.close()

    def descriptors(self) -> list[int]:
        """Return what a child must inherit to hold the claims."""
        return [claim.fileno() for claim in self._claims]


def check_ports(address: str, ports: Mapping[str, int], exposed: Collection[int] = ()) -> None:
    """Check that main's *ports*, by setting, and those that are *exposed* are free on its *address*.

    Raises:
        SettingsError: somebody has one of them; names the setting that chooses another.
    """
    for name, port in ports.items():
        if not port_is_free(address, port):
            other = f"--env {name}={port + 100}"
            msg = f"port {port} of {address} is taken by another program; end it, or choose another port: {other}"
            raise SettingsError(msg)
    for port in exposed:
        if not port_is_free(address, port):
            msg = f"EXPOSE: port {port} of {address} is taken by another program; end it, or expose another port"
            raise SettingsError(msg)
