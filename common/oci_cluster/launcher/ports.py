"""What a person calls a port of a node, and the URL under which it answers here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from oci_cluster.contract.values import parse_count
from oci_cluster.errors import UsageError


@dataclass(frozen=True)
class Port:
    """A port of a node that is to be reached."""

    number: int
    local: int | None = None
    """The port of this machine that was asked for."""
    name: str = ""
    """What the cluster calls it."""


def known_ports(settings: Mapping[str, int], session: Port | None) -> dict[str, int]:
    """Return the ports of main by the names that a person may use: those of the framework's ``*_PORT`` settings.

    Args:
        settings: The framework's ports, by setting.
        session: That of the session that main runs.
    """
    named = {setting.removesuffix("_PORT").lower().replace("_", "-"): port for setting, port in settings.items()}
    return {**named, **({session.name: session.number} if session else {})}


def parse_port(text: str, known: Mapping[str, int]) -> Port:
    """Return the port that *text* names: a name, a number, or ``HERE:THERE``, where HERE is a port of this machine.

    Raises:
        UsageError: it is none of these.
    """
    here, colon, there = text.rpartition(":")
    try:
        local = parse_count(here, minimum=1, maximum=65535) if colon else None
        if there in known:
            return Port(known[there], local, there)
        number = parse_count(there, minimum=1, maximum=65535)
    except ValueError as error:
        names = ", ".join(sorted(known)) or "none"
        raise UsageError(
            f"--port {text}: {error}; a port is a name of this cluster ({names}), a number, or 8888:6006, yours first"
        ) from error
    return Port(number, local, next((name for name, port in known.items() if port == number), ""))


def url_here(host: str, port: int, number: int, facts: Mapping[str, str]) -> str:
    """Return the URL under which port *number* of main answers on *port* of *host*.

    Args:
        host: Of this machine.
        port: There.
        number: The port that the node itself has.
        facts: What main says of itself when it is ready: a URL there has the scheme and the path of its port.
    """
    for told in facts.values():
        try:
            parts = urlsplit(told)
            is_it = parts.port == number and bool(parts.scheme)
        except ValueError:  # no URL
            continue
        if is_it:
            return parts._replace(netloc=f"{host}:{port}").geturl()
    return f"http://{host}:{port}/"
