"""Loopback addresses and ports that each cluster has of this machine alone.

Ports are those of its settings, or the next free ones where nobody has chosen them. Each cluster has addresses of its
own, so most of its ports are nobody else's. A framework names in ``MACHINE_PORTS`` those that it has on all addresses,
and in ``PORTS_BY_ADDRESS`` those of which each node has its own there, too: as far from main's as its address is. A
port is claimed before it is looked at, and for as long as the cluster runs: until its nodes listen, two launches would
both find it free.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from oci_cluster.backends.base import port_is_free
from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.settings.settings_files import framework_words
from oci_cluster.errors import BackendError, SettingsError

#: What the names of all claims begin with.
CLAIMS = "oci-cluster"
# Linux lists sockets of every user that have names here; each line ends with the name.
_NAMES = Path("/proc/net/unix")
_LAST = 65535
# So many are looked at: where none of these can be bound, none can.
_TRIES = 1000
# In the name of a claim: all addresses of the machine. And so bound.
_ALL, _ANY = "*", "0.0.0.0"  # noqa: S104 - tried, not served


def has_loopback_range() -> bool:
    """Return whether every 127.0.0.x is this machine's (Linux), not 127.0.0.1 alone (macOS)."""
    return sys.platform == "linux"


class Addresses:
    """Claims on loopback addresses and ports, against all clusters of this machine.

    Each claim is a socket in Linux's abstract namespace: the kernel knows of it as long as a process holds it, and no
    longer. A lock file in a directory that all users share would need an owner. Where 127.0.0.1 is the only address,
    nodes share it and nothing is claimed.
    """

    def __init__(self, count: int, suits: Callable[[Addresses, str], bool] = lambda *_: True) -> None:
        """Claim *count* addresses, the lowest that are free; raise BackendError where there are fewer.

        *suits* tells whether an address that has been claimed here can be used; it may claim more.
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
            raise BackendError(
                f"{count} nodes do not fit: running clusters leave {free} addresses; end one: scripts/stop.sh"
            )

    def __enter__(self) -> Addresses:
        """Hold the claims."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give them up, unless a child holds them too."""
        self.close()

    def claim(self, names: Sequence[str]) -> bool:
        """Claim all of *names*; return whether nobody has one of them."""
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


def all_claims() -> set[str]:
    """Return the names of what clusters of this machine have claimed, whosever they are."""
    if not has_loopback_range():
        return set()
    names = [line.split(" ")[-1] for line in _NAMES.read_text(errors="replace").splitlines()]
    begin = f"@{CLAIMS}/"
    return {name.removeprefix(begin) for name in names if name.startswith(begin)}


class Ports:
    """The ports of main for one cluster, taken at *addresses*, main's first, which get the claims."""

    def __init__(self, plan: Plan, folder: Path, addresses: Addresses) -> None:
        self._limits, self._chosen, self._addresses = plan.limits, plan.chosen, addresses
        self._by_address = framework_words(folder, "PORTS_BY_ADDRESS")
        self._of_machine = [*framework_words(folder, "MACHINE_PORTS"), *self._by_address]
        #: Those that are others than the settings say, by setting.
        self.moved: dict[str, int] = {}
        #: What is wrong: a port is taken that somebody has chosen.
        self.problems: list[SettingsError] = []
        for name in self._limits.ports:
            self._take_named(name)
        for port in self._limits.exposed:
            if not _take(addresses, addresses.texts[0], [port]):
                self._complain(f"EXPOSE: port {port}", addresses.texts[0], "expose another port")

    def said(self) -> list[str]:
        """Return which ports are others, in words."""
        ports = self._limits.ports
        return [f"{name} {ports[name]} is taken; this cluster has {other}" for name, other in self.moved.items()]

    def _take_named(self, name: str) -> None:
        port, main = self._limits.ports[name], self._addresses.texts[0]
        place = _ALL if name in self._of_machine else main
        distances = _distances(self._addresses.texts) if name in self._by_address else [0]
        own = {*self._limits.ports.values(), *self._limits.exposed}
        last = min(port + _TRIES, _LAST - max(distances)) if name not in self._chosen else port
        for other in [port, *range(port + 1, last + 1)]:
            numbers = [other + distance for distance in distances]
            if (other == port or own.isdisjoint(numbers)) and _take(self._addresses, place, numbers):
                if other != port:
                    self.moved[name] = other
                return
        where = "this machine" if place == _ALL else main
        self._complain(f"port {port}", where, f"choose another port: --env {name}={port + 100}")

    def _complain(self, port: str, where: str, advice: str) -> None:
        self.problems.append(SettingsError(f"{port} of {where} is taken by another program; end it, or {advice}"))


def suits(plan: Plan, folder: Path) -> Callable[[Addresses, str], bool]:
    """Return a test of addresses for a joining node: are its ports free?"""
    names, main = framework_words(folder, "PORTS_BY_ADDRESS"), plan.nodes[0].address

    def take(addresses: Addresses, text: str) -> bool:
        _, distance = _distances([main, text])
        return _take(addresses, _ALL, [plan.limits.ports[name] + distance for name in names])

    return take


def _distances(texts: Sequence[str]) -> list[int]:
    """Return the distance of each node's port from main's; nodes may share an address."""
    numbers = [int(text.rpartition(".")[2]) for text in texts]
    return [number - numbers[0] + numbers[:count].count(number) for count, number in enumerate(numbers)]


def _take(addresses: Addresses, place: str, ports: Sequence[int]) -> bool:
    """Claim *ports* of *place*, an address or all; return whether nobody has one."""
    numbers = [port for port in ports if 1 <= port <= _LAST]
    names = [f"{place}:{port}" for port in numbers]
    if not addresses.claim(names):
        return False
    # After the claim: of two that take a port at once, one on an address and one on all, at least one sees the other.
    others = [name.rpartition(":")[::2] for name in all_claims() - set(names)]
    there = {port for at, port in others if place == _ALL or at in {_ALL, place}}
    where = _ANY if place == _ALL else place
    if all(str(port) not in there and port_is_free(where, port) for port in numbers):
        return True
    addresses.give_up(names)
    return False
