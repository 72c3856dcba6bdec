"""Security rules of nodes in a subnet: all rules together count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, collapse_addresses, ip_network
from pathlib import Path
from typing import Any

from oci_cluster.contract.parsers import parse_network
from oci_cluster.contract.settings.settings_files import framework_defaults, framework_words
from oci_cluster.errors import SettingsError

JSON = dict[str, Any]
#: Rules of ingress, and of egress.
Rules = tuple[Sequence[JSON], Sequence[JSON]]
#: First and last port of all.
ALL_TCP = (1, 65535)
_HTTPS = 443
#: What our security list is called; by this it is found again.
SECURITY_LIST = "oci-cluster"


@dataclass(frozen=True)
class SecurityList:
    """A security list that is there."""

    id: str
    name: str
    ingress: Sequence[JSON]
    egress: Sequence[JSON]
    etag: str = ""


@dataclass(frozen=True)
class Subnet:
    """A subnet, its security lists, and one of ours that is not attached."""

    id: str
    blocks: Sequence[str]
    vcn: str
    compartment: str
    lists: Sequence[SecurityList]
    unused: SecurityList | None = None
    etag: str = ""

    @property
    def rules(self) -> Rules:
        """All rules of ingress and of egress."""
        return [rule for one in self.lists for rule in one.ingress], [rule for one in self.lists for rule in one.egress]


def blocks_in(text: str) -> list[IPv4Network]:
    """Return the blocks of ``SUBNET_CIDR``, as a launch reads it, or raise ValueError."""
    return [IPv4Network(one) for one in parse_network(text).split(",")]


def blocks_of(subnet: Any) -> list[str]:
    """Return the IPv4 addresses of a subnet of the SDK, one block or several."""
    blocks = getattr(subnet, "ipv4_cidr_blocks", None) or [subnet.cidr_block]
    return [str(block) for block in blocks if block]  # none, where all addresses are IPv6


def rule(direction: str, cidr: str, first: int, last: int, description: str) -> JSON:
    """Return a rule for TCP ports *first* to *last* from or to *cidr*."""
    end = "source" if direction == "ingress" else "destination"
    ports = {"destinationPortRange": {"min": first, "max": last}}
    place = {end: cidr, f"{end}Type": "CIDR_BLOCK"}
    return {"description": description, **place, "protocol": "6", "isStateless": False, "tcpOptions": ports}


def ports_of(root: Path, name: str, given: Mapping[str, str]) -> list[tuple[int, int]]:
    """Return the ports between nodes of the framework *name*: of ``NODE_PORTS``, else all."""
    names, defaults = framework_words(root / name, "NODE_PORTS"), framework_defaults(root / name)
    own = {key: given.get(key) or defaults.get(key, "") for key in names}
    spans = [(first, last or first) for first, _, last in (text.partition(":") for text in own.values())]
    try:
        return [(int(first), int(last)) for first, last in spans] or [ALL_TCP]
    except ValueError as error:
        said = ", ".join(f"{key}={text}" for key, text in own.items())
        raise SettingsError(f"{name}: {said}: {error}; ports are a number or first:last") from error


def security_rules(blocks: Sequence[str], ports: Mapping[str, Sequence[tuple[int, int]]]) -> Rules:
    """Return the rules for *ports* of frameworks between all *blocks* of a subnet."""
    ingress: list[JSON] = []
    egress: list[JSON] = []
    for cidr, (first, last) in ((cidr, span) for cidr in blocks for ranges in ports.values() for span in ranges):
        text = f"oci-cluster: TCP {first}-{last} between nodes"
        ingress.append(rule("ingress", cidr, first, last, text))
        egress.append(rule("egress", cidr, first, last, text))
    egress.append(rule("egress", "0.0.0.0/0", _HTTPS, _HTTPS, "oci-cluster: storage, registry, logging"))
    return _without_covered(ingress), _without_covered(egress)


def _without_covered(rules: Sequence[JSON]) -> list[JSON]:
    """Return *rules* without those that the others make needless."""
    found: list[JSON] = []
    for number, one in enumerate(rules):
        if not allows([*found, *rules[number + 1 :]], one):
            found.append(one)
    return found


@dataclass(frozen=True)
class _Traffic:
    """TCP that one rule lets through."""

    network: IPv4Network
    sources: tuple[int, int]
    ports: tuple[int, int]
    is_stateless: bool


def _traffic(rules: Iterable[Mapping[str, Any]], end: str) -> Iterator[_Traffic]:
    """Yield what *rules* let through, without other protocols, IPv6 and services."""
    for given in rules:
        is_tcp = given.get("protocol") in {"all", "6"} and (given.get(f"{end}Type") or "CIDR_BLOCK") == "CIDR_BLOCK"
        network = ip_network(str(given[end])) if is_tcp and given.get(end) else None
        if isinstance(network, IPv4Network):
            options = given.get("tcpOptions") or {}
            sources, ports = (_span(options.get(f"{name}PortRange") or {}) for name in ("source", "destination"))
            yield _Traffic(network, sources, ports, bool(given.get("isStateless")))


def _span(given: Mapping[str, Any]) -> tuple[int, int]:
    return int(given.get("min", ALL_TCP[0])), int(given.get("max", ALL_TCP[1]))


def allows(given: Iterable[JSON], wanted: JSON, back: Iterable[JSON] = ()) -> bool:
    """Return whether the rules *given* together let all through that our rule *wanted* does.

    One that is stateless counts where rules *back*, of the other direction, let its answers through.
    """
    end, other = ("source", "destination") if "source" in wanted else ("destination", "source")
    (inner,) = _traffic([wanted], end)
    answers = list(_traffic(back, other))
    there = [one for one in _traffic(given, end) if one.sources == ALL_TCP and one.network.overlaps(inner.network)]
    first, last = inner.ports
    starts = sorted(
        {first, *(port for one in there for port in (one.ports[0], one.ports[1] + 1) if first < port <= last)}
    )
    for low, high in zip(starts, [*(start - 1 for start in starts[1:]), last], strict=True):
        own = [one for one in there if _has(one.ports, (low, high))]
        networks = [one.network for one in own if not one.is_stateless]
        for one in own:
            if one.is_stateless:
                networks += _common(
                    one.network, [a for a in answers if a.ports == ALL_TCP and _has(a.sources, (low, high))]
                )
        if not any(inner.network.subnet_of(network) for network in collapse_addresses(networks)):
            return False
    return True


def _has(outer: tuple[int, int], inner: tuple[int, int]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _common(network: IPv4Network, others: Iterable[_Traffic]) -> list[IPv4Network]:
    """Return the parts of *network* that the others have."""
    return [min(network, one.network, key=lambda n: n.num_addresses) for one in others if network.overlaps(one.network)]


def missing_rules(given: Rules, wanted: Rules) -> Rules:
    """Return those of *wanted* that the rules *given* do not let through."""
    ingress, egress = given
    lacking_in = [one for one in wanted[0] if not allows(ingress, one, egress)]
    return lacking_in, [one for one in wanted[1] if not allows(egress, one, ingress)]


def rule_line(rule: Mapping[str, Any]) -> str:
    """Return a security rule of ours for people: ``ingress, TCP 8786, from 10.0.0.0/20``."""
    span = rule["tcpOptions"]["destinationPortRange"]
    ports = f"{span['min']}" if span["min"] == span["max"] else f"{span['min']}-{span['max']}"
    if "source" in rule:
        return f"ingress, TCP {ports}, from {rule['source']}"
    return f"egress, TCP {ports}, to {rule['destination']}"
