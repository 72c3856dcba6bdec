"""Finds the address of this machine that the other nodes can reach."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from oci_cluster.errors import SettingsError


def _interfaces() -> list[tuple[str, str, str | None]]:
    import psutil  # noqa: PLC0415 - 20 ms that a node with NODE_ADDRESS does not spend

    families = (socket.AF_INET, socket.AF_INET6)
    return [
        (name, entry.address.partition("%")[0], entry.netmask)
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family in families
    ]


def local_addresses() -> dict[str, list[str]]:
    """Return every IP address of every network interface, by interface name."""
    found: dict[str, list[str]] = {}
    for name, text, _ in _interfaces():
        found.setdefault(name, []).append(text)
    return found


def pick_address(interfaces: Mapping[str, Sequence[str]], cidr: str = "") -> str:
    """Return this node's address out of *interfaces*, addresses by interface.

    It is the first one inside the subnet *cidr*, which may have several blocks; without, the only IPv4 address
    that is neither loopback nor link-local.
    """
    candidates = [ipaddress.ip_address(text) for addresses in interfaces.values() for text in addresses]
    if cidr:
        networks = [ipaddress.ip_network(one, strict=False) for one in cidr.split(",")]
        fitting = [address for address in candidates if any(address in network for network in networks)][:1]
        wanted = f"no address of this node is inside SUBNET_CIDR {cidr}"
    else:
        fitting = [a for a in candidates if a.version == 4 and not (a.is_loopback or a.is_link_local)]
        wanted = "this node does not have exactly one IPv4 address that is not loopback"
    if len(fitting) != 1:
        seen = ", ".join(f"{name} {' '.join(found)}" for name, found in interfaces.items() if found) or "none"
        raise SettingsError(f"{wanted}; seen: {seen}; set SUBNET_CIDR to the nodes' subnet, or NODE_ADDRESS")
    return str(fitting[0])


def address_in(metadata: Path, interfaces: Mapping[str, Sequence[str]]) -> str | None:
    """Return this node's address in the list that OCI's node groups write.

    That file appears late and grows, and may be read half-written: None then. Its ranks are not looked at: nobody tells
    whether they count through all groups.
    """
    own = {ipaddress.ip_address(text) for addresses in interfaces.values() for text in addresses}
    try:
        listed = [str(node["IPAddress"]) for node in json.loads(metadata.read_text())]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    for text in listed:
        with contextlib.suppress(ValueError):  # a name, or what somebody has written there
            address = ipaddress.ip_address(text)
            if address in own and not address.is_loopback:
                return str(address)
    return None


def interface_of(address: str) -> str:
    """Return the network interface that has *address*, or its network: loopback has all 127.x."""
    wanted = ipaddress.ip_address(address)
    found = _interfaces()
    for name, text, _ in found:
        if ipaddress.ip_address(text) == wanted:
            return name
    for name, text, mask in found:
        is_v4 = mask and "." in text
        if is_v4 and wanted in ipaddress.ip_network(f"{text}/{mask}", strict=False):
            return name
    seen = ", ".join(f"{name} {text}" for name, text, _ in found) or "none"
    raise SettingsError(f"no network interface of this node has NODE_ADDRESS {address}; seen: {seen}")
