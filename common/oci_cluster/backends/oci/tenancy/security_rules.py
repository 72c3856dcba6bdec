"""Security rules that let nodes reach each other in a subnet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, ip_network
from pathlib import Path
from typing import Any

from oci_cluster.contract.settings.config import framework_defaults, framework_words
from oci_cluster.errors import SettingsError

JSON = dict[str, Any]
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
    cidr: str
    vcn: str
    compartment: str
    lists: Sequence[SecurityList]
    unused: SecurityList | None = None
    etag: str = ""

    @property
    def rules(self) -> tuple[list[JSON], list[JSON]]:
        """All rules of ingress and of egress."""
        return [rule for one in self.lists for rule in one.ingress], [rule for one in self.lists for rule in one.egress]


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


def security_rules(cidr: str, ports: Mapping[str, Sequence[tuple[int, int]]]) -> tuple[list[JSON], list[JSON]]:
    """Return the rules of ingress and egress for *ports* of frameworks in *cidr*."""
    ingress, egress = [], []
    for ranges in ports.values():
        for first, last in ranges:
            text = f"oci-cluster: TCP {first}-{last} between nodes"
            ingress.append(rule("ingress", cidr, first, last, text))
            egress.append(rule("egress", cidr, first, last, text))
    egress.append(rule("egress", "0.0.0.0/0", _HTTPS, _HTTPS, "oci-cluster: storage, registry, logging"))
    return _without_covered(ingress), _without_covered(egress)


def _without_covered(rules: Sequence[JSON]) -> list[JSON]:
    """Return *rules* without those that another one of them makes needless."""
    found: list[JSON] = []
    for number, one in enumerate(rules):
        if not any(allows(other, one) for other in (*found, *rules[number + 1 :])):
            found.append(one)
    return found


def allows(given: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether the rule *given* lets all through that our rule *wanted* does.

    One that is stateless does not count: its answers would need a rule, too.
    """
    if given.get("isStateless") or given.get("protocol") not in {"all", "6"}:
        return False
    end = "source" if wanted.get("source") else "destination"
    if (given.get(f"{end}Type") or "CIDR_BLOCK") != "CIDR_BLOCK" or not given.get(end):
        return False
    outer, inner = ip_network(str(given[end])), ip_network(str(wanted[end]))
    if not (isinstance(outer, IPv4Network) and isinstance(inner, IPv4Network) and inner.subnet_of(outer)):
        return False
    options = given.get("tcpOptions") or {}
    if options.get("sourcePortRange"):
        return False
    (low, high), (first, last) = _ports(given), _ports(wanted)
    return low <= first and last <= high


def _ports(given: Mapping[str, Any]) -> tuple[int, int]:
    span = (given.get("tcpOptions") or {}).get("destinationPortRange") or {}
    return int(span.get("min", ALL_TCP[0])), int(span.get("max", ALL_TCP[1]))


def missing_rules(given: Sequence[Mapping[str, Any]], wanted: Sequence[JSON]) -> list[JSON]:
    """Return those of *wanted* that no rule of *given*, of the same direction, allows."""
    return [one for one in wanted if not any(allows(other, one) for other in given)]
