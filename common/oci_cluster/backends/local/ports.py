"""Ports of this machine for a cluster: those of its settings, or the next free ones where nobody has chosen them.

Each cluster has addresses of its own, so most of its ports are nobody else's. A framework names in ``MACHINE_PORTS``
those that it has on all addresses, and in ``PORTS_BY_ADDRESS`` those of which each node has its own there, too: as far
from main's as its address is. A port is claimed before it is looked at, and for as long as the cluster runs: until its
nodes listen, two launches would both find it free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from oci_cluster.backends.base import port_is_free
from oci_cluster.backends.local.addresses import Addresses, all_claims
from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.config import framework_words
from oci_cluster.errors import SettingsError
from oci_cluster.system.console import Say

_LAST = 65535
# So many are looked at: where none of these can be bound, none can.
_TRIES = 1000
# In the name of a claim: all addresses of the machine. And so bound.
_ALL, _ANY = "*", "0.0.0.0"  # noqa: S104 - tried, not served


def take_ports(plan: Plan, folder: Path, addresses: Addresses, say: Say) -> dict[str, str]:
    """Take main's ports for a cluster of *plan* at *addresses*; return those that are others than its settings say.

    Args:
        plan: What is to be launched.
        folder: The framework's.
        addresses: Those of the nodes, main's first; gets the claims.
        say: Is told which ports are others.

    Raises:
        SettingsError: one that somebody has chosen is taken; names the setting that chooses another.
    """
    ports = Ports(plan, folder, addresses)
    for take in ports.takes():
        take()
    for text in ports.said():
        say(text)
    return {name: str(port) for name, port in ports.moved.items()}


class Ports:
    """The ports of main for one cluster."""

    moved: dict[str, int]
    """Those that are others than the settings say, by setting."""

    def __init__(self, plan: Plan, folder: Path, addresses: Addresses) -> None:
        """Take ports for *plan* of the framework in *folder*, whose nodes have *addresses*."""
        self._plan, self._addresses = plan, addresses
        self.moved = {}
        self._by_address = framework_words(folder, "PORTS_BY_ADDRESS")
        self._of_machine = [*framework_words(folder, "MACHINE_PORTS"), *self._by_address]

    def takes(self) -> list[Callable[[], None]]:
        """Return what takes one port each; it raises SettingsError where one that somebody has chosen is taken."""
        limits = self._plan.limits
        named = [partial(self._take_named, name) for name in limits.ports]
        return [*named, *(partial(self._take_exposed, port) for port in limits.exposed)]

    def said(self) -> list[str]:
        """Return which ports are others, in words."""
        ports = self._plan.limits.ports
        return [f"{name} {ports[name]} is taken; this cluster has {other}" for name, other in self.moved.items()]

    def _take_named(self, name: str) -> None:
        limits = self._plan.limits
        port, main = limits.ports[name], self._addresses.texts[0]
        place = _ALL if name in self._of_machine else main
        distances = _distances(self._addresses.texts) if name in self._by_address else [0]
        if _take(self._addresses, place, [port + distance for distance in distances]):
            return
        own = {*limits.ports.values(), *limits.exposed}
        last = min(port + _TRIES, _LAST - max(distances)) if name not in self._plan.chosen else port
        for other in range(port + 1, last + 1):
            numbers = [other + distance for distance in distances]
            if own.isdisjoint(numbers) and _take(self._addresses, place, numbers):
                self.moved[name] = other
                return
        where = "this machine" if place == _ALL else main
        instead = f"--env {name}={port + 100}"
        raise SettingsError(
            f"port {port} of {where} is taken by another program; end it, or choose another port: {instead}"
        )

    def _take_exposed(self, port: int) -> None:
        main = self._addresses.texts[0]
        if not _take(self._addresses, main, [port]):
            raise SettingsError(
                f"EXPOSE: port {port} of {main} is taken by another program; end it, or expose another port"
            )


def suits(plan: Plan, folder: Path) -> Callable[[Addresses, str], bool]:
    """Return what tells whether a node that joins the cluster of *plan* can have an address: its own ports are free."""
    names, main = framework_words(folder, "PORTS_BY_ADDRESS"), plan.nodes[0].address

    def take(addresses: Addresses, text: str) -> bool:
        _, distance = _distances([main, text])
        return _take(addresses, _ALL, [plan.limits.ports[name] + distance for name in names])

    return take


def _distances(texts: Sequence[str]) -> list[int]:
    """Return how far each node's port is from main's; nodes that share an address have one port after the other."""
    numbers = [int(text.rpartition(".")[2]) for text in texts]
    return [number - numbers[0] + numbers[:count].count(number) for count, number in enumerate(numbers)]


def _take(addresses: Addresses, place: str, ports: Sequence[int]) -> bool:
    """Claim *ports* of *place*, an address or all of them; return whether nobody has one. What is no port, is not."""
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
