from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from oci_cluster.errors import SettingsError
from oci_cluster.node.begin.address import address_in, interface_of, local_addresses, pick_address

LOOPBACK = {"lo": ["127.0.0.1", "::1"]}
ADVICE = "set SUBNET_CIDR to the nodes' subnet, or NODE_ADDRESS"


def test_the_only_ipv4_address_is_this_nodes() -> None:
    """Without a subnet, loopback, link-local and IPv6 addresses do not count and the one that is left is taken."""
    interfaces = {**LOOPBACK, "eth0": ["169.254.7.7", "10.0.0.5", "fe80::1", "fd00::5"]}
    assert pick_address(interfaces) == "10.0.0.5"


def test_several_addresses_are_not_guessed_among() -> None:
    """With several candidates the node fails, and names what it saw and what to set."""
    with pytest.raises(SettingsError) as caught:
        pick_address({**LOOPBACK, "eth0": ["10.0.0.5"], "docker0": ["172.17.0.1"], "down0": []})
    assert str(caught.value) == (
        "this node does not have exactly one IPv4 address that is not loopback;"
        f" seen: lo 127.0.0.1 ::1, eth0 10.0.0.5, docker0 172.17.0.1; {ADVICE}"
    )


def test_no_address_is_said_so() -> None:
    """A machine without any address gets a message that says so."""
    with pytest.raises(SettingsError) as caught:
        pick_address({})
    assert str(caught.value) == (
        f"this node does not have exactly one IPv4 address that is not loopback; seen: none; {ADVICE}"
    )


@pytest.mark.parametrize(
    ("cidr", "address"),
    [
        ("10.1.0.0/16", "10.1.2.3"),
        ("10.1.2.3/16", "10.1.2.3"),
        ("127.0.0.0/8", "127.0.0.1"),
        ("fd00::/8", "fd00::5"),
        ("10.2.0.0/16", "10.2.0.8"),
        ("192.168.0.0/24,10.1.0.0/16", "10.1.2.3"),
    ],
)
def test_the_first_address_in_the_subnet_is_this_nodes(cidr: str, address: str) -> None:
    """SUBNET_CIDR decides, host bits or not, of one block or several, IPv6 and loopback included; the first counts."""
    interfaces = {**LOOPBACK, "eth0": ["10.1.2.3", "fd00::5"], "eth1": ["10.2.0.8", "10.2.0.9"]}
    assert pick_address(interfaces, cidr) == address


def test_a_subnet_that_no_address_is_in_is_named() -> None:
    """A wrong SUBNET_CIDR is named beside what was seen."""
    with pytest.raises(SettingsError) as caught:
        pick_address({"eth0": ["10.1.2.3"]}, "192.168.0.0/24")
    assert str(caught.value) == (
        f"no address of this node is inside SUBNET_CIDR 192.168.0.0/24; seen: eth0 10.1.2.3; {ADVICE}"
    )


def test_addresses_are_read_without_scope_and_hardware_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what the machine reports, IP addresses count; a scope such as %eth0 is no part of one."""
    entries = [
        entry("10.0.0.5"),
        entry("fe80::1%eth0", None, socket.AF_INET6),
        entry("02:42:ac:11:00:02", None, 17),
    ]
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"eth0": entries, "tun0": []})
    assert local_addresses() == {"eth0": ["10.0.0.5", "fe80::1"]}


# --- The interface of an address ------------------------------------------------------------------------------------


def entry(address: str, netmask: str | None = None, family: int = socket.AF_INET) -> SimpleNamespace:
    return SimpleNamespace(family=family, address=address, netmask=netmask)


@pytest.fixture
def _interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "lo": [entry("127.0.0.1", "255.0.0.0"), entry("::1", "ffff:ffff::", socket.AF_INET6)],
        "docker0": [entry("10.0.0.1", "255.255.0.0")],
        "eth0": [
            entry("02:42:ac:11:00:02", None, 17),
            entry("10.0.0.5", "255.255.255.0"),
            entry("fd00::5%eth0", "ffff:ffff::", socket.AF_INET6),
        ],
        "tun0": [entry("192.168.7.1", None)],
        "down0": [],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)


@pytest.mark.usefixtures("_interfaces")
@pytest.mark.parametrize(
    ("address", "interface"),
    [
        ("10.0.0.5", "eth0"),
        ("10.0.0.1", "docker0"),
        ("127.0.0.1", "lo"),
        ("127.0.0.3", "lo"),
        ("::1", "lo"),
        ("fd00::5", "eth0"),
        ("192.168.7.1", "tun0"),
    ],
)
def test_an_interface_is_that_of_its_address(address: str, interface: str) -> None:
    """An interface's own address counts before any network; loopback has all of its network."""
    assert interface_of(address) == interface


@pytest.mark.usefixtures("_interfaces")
@pytest.mark.parametrize("address", ["192.168.7.2", "172.16.0.1", "fd00::6", "::2"])
def test_an_address_without_an_interface_is_named(address: str) -> None:
    """No network without a mask, none of IPv6 is guessed at; the message says what was seen (78)."""
    with pytest.raises(SettingsError) as caught:
        interface_of(address)
    assert str(caught.value) == (
        f"no network interface of this node has NODE_ADDRESS {address}; seen: lo 127.0.0.1, lo ::1,"
        " docker0 10.0.0.1, eth0 10.0.0.5, eth0 fd00::5, tun0 192.168.7.1"
    )


def test_a_node_without_interfaces_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any address gets a message that says so."""
    monkeypatch.setattr(psutil, "net_if_addrs", dict)
    with pytest.raises(SettingsError, match=r"has NODE_ADDRESS 10\.0\.0\.5; seen: none$"):
        interface_of("10.0.0.5")


# --- The address that the service tells -----------------------------------------------------------------------------

NODES = '[{"Rank": 0, "IPAddress": "10.0.0.5"}, {"Rank": 0, "IPAddress": "fd00:0::1"}, {"Rank": 2, "IPAddress": "x"}]'


@pytest.mark.parametrize(
    ("own", "address"), [("10.0.0.5", "10.0.0.5"), ("fd00::1", "fd00::1"), ("10.0.0.6", None), ("127.0.0.1", None)]
)
def test_the_service_tells_this_nodes_address(tmp_path: Path, own: str, address: str | None) -> None:
    """Where it starts all nodes itself: the one that this node has, whatever the ranks are; a decoy is none."""
    (tmp_path / "nodes.json").write_text(NODES.replace('"x"', '"127.0.0.1"'))
    assert address_in(tmp_path / "nodes.json", {"eth0": [own], "eth1": ["192.168.0.1"], "lo": ["127.0.0.1"]}) == address


@pytest.mark.parametrize("rest", ['"x"', '""', "null", "7"])
def test_what_is_no_address_is_passed_over(tmp_path: Path, rest: str) -> None:
    """A name, or what somebody has written there."""
    (tmp_path / "nodes.json").write_text(f'[{{"IPAddress": {rest}}}, {{"IPAddress": "10.0.0.5"}}]')
    assert address_in(tmp_path / "nodes.json", {"eth0": ["10.0.0.5"]}) == "10.0.0.5"


@pytest.mark.parametrize(
    "body",
    [b"", b"[", b"{}", b"null", b"[1]", b"[null]", b'[{"Rank": 0}]', b'{"IPAddress": "10.0.0.5"}', b"\xff",
     NODES[:40].encode()],
)  # fmt: skip
def test_what_is_half_written_tells_nothing_yet(tmp_path: Path, body: bytes) -> None:
    """The file appears late and grows: it is looked at again."""
    (tmp_path / "nodes.json").write_bytes(body)
    assert address_in(tmp_path / "nodes.json", {"eth0": ["10.0.0.5"]}) is None
    assert address_in(tmp_path / "none.json", {"eth0": ["10.0.0.5"]}) is None
