"""The table of ports in docs/network.md, for tests that compare it with sockets."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from harness import Launch, parts_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "network.md"
PORT = re.compile(r"(?:(\d+)(?:-(\d+))? `(\w+)`|any)(?:, (.*))?")


@dataclass(frozen=True)
class Row:
    """A line of the table: a process of *program*, on nodes of *roles*, has one socket that listens so."""

    framework: str
    roles: tuple[str, ...]
    program: str
    first: int
    last: int
    setting: str
    when: str
    address: str

    def has(self, port: int, given: dict[str, int]) -> bool:
        """Return whether the line is about *port*, where settings are *given*."""
        # Where nodes share a machine, these of Ray are any.
        if self.framework == "ray" and self.setting in {"RAYLET_PORTS", "WORKER_PORTS"}:
            return True
        first = given.get(self.setting, self.first)
        # Where nodes share a machine, TensorFlow's have the ports that follow main's.
        last = first + 255 if self.setting == "TASK_PORT" else max(first, self.last)
        return first <= port <= last


def read_table() -> list[Row]:
    """Return the lines of the table of ports."""
    section = PAGE.read_text().partition("\n## Ports\n")[2].partition("\n## ")[0]
    rows = []
    for line in re.findall(r"^\| (.*) \|$", section, re.MULTILINE)[2:]:
        framework, nodes, program, port, address, *_ = line.split(" | ")
        found = PORT.fullmatch(port)
        assert found, f"'{port}' is no port that can be compared"
        first, last, setting, when = found.groups()
        roles = {"main": ("MAIN",), "workers": ("WORKER",), "all": ("MAIN", "WORKER", "PS")}[nodes]
        span = (int(first), int(last or first)) if first else (1024, 65535)
        rows.append(Row(framework.lower(), roles, program, *span, setting or "", when or "", address))
    return rows


def program_of(process: psutil.Process) -> str:
    """Return the table's word for a process; empty for one that may not listen."""
    words = " ".join(process.cmdline())
    kinds = {
        "entry.py": "script",
        "dask scheduler": "scheduler",
        "dask worker": "nanny",
        "spawn_main": "worker",
        "/launch/launcher.py": "launcher",
        "/launcher launch": "launcher",
        "/launcher serve": "launcher",
        "ray.util.client.server": "client server",
        "ray/dashboard/dashboard.py": "dashboard",
        "/monitor.py": "monitor",
        "ray::": "worker",
        "ray::DashboardAgent": "dashboard agent",
        "ray::RuntimeEnvAgent": "runtime env agent",
        "/gcs/gcs_server": "gcs",
        # Its command line has those of all that it starts.
        "/raylet/raylet": "raylet",
    }
    # A launcher's command line may hold the script's name, but does not begin with it.
    found = [kind for text, kind in kinds.items() if text in words]
    return found[-1] if found else ""


def is_at(row: Row, address: ipaddress.IPv4Address | ipaddress.IPv6Address, node_address: str) -> bool:
    """Return whether a socket on *address* is where the table says, for the node at *node_address*."""
    if row.address == "all":
        return address.is_unspecified
    # Ray knows a node that is at 127.0.0.1 by another address.
    own = {node_address, "127.1.0.1"} if row.framework == "ray" and node_address == "127.0.0.1" else {node_address}
    exact = {"the node's": own, "127.0.0.1": {"127.0.0.1"}}.get(row.address, {str(address)})
    return address.is_loopback and str(address) in exact


def is_private(path: str, node_dir: Path | None) -> bool:
    """Return whether a Unix socket is in a directory into which its owner alone comes."""
    if node_dir is None or path.startswith("@"):
        return False
    # Where its path is too long for a socket, a directory has a shorter one in /proc.
    return Path(path).resolve().is_relative_to(node_dir.resolve()) and node_dir.stat().st_mode & 0o077 == 0


def wrong_sockets(launch: Launch, rows: list[Row], given: dict[str, int]) -> Iterator[str]:
    """Yield what differs between the table and the sockets that a cluster's processes listen on."""
    nodes = {name: node["address"] for name, node in launch.nodes().items()}
    missing = {row.program for row in rows}
    for node, process, node_dir in parts_of(launch.launch_id):
        with contextlib.suppress(psutil.NoSuchProcess):
            program = program_of(process)
            missing.discard(program)
            who = f"{node or 'the runner'}'s {program or process.name()} ({' '.join(process.cmdline())[:300]})"
            expected = [row for row in rows if row.program == program and node.partition("_")[0] in row.roles]
            # Ports that have a name first: `any` is any other. The same port of an address that has a name, too.
            expected.sort(key=lambda row: (not row.setting, row.address != "127.0.0.1"))
            for found in process.net_connections("all"):
                if isinstance(found.laddr, str):
                    # Those without a name are pairs; the runner's claim addresses and ports, and nobody can connect.
                    is_claim = not node and re.fullmatch(r"@oci-cluster/(127\.0\.0\.\d+|\*)(:\d+)?", found.laddr)
                    if found.laddr and not is_claim and not is_private(found.laddr, node_dir):
                        yield f"{who} has the Unix socket '{found.laddr}'"
                    continue
                if found.status != psutil.CONN_LISTEN and found.type != socket.SOCK_DGRAM:
                    continue
                address, port = ipaddress.ip_address(found.laddr.ip.removeprefix("::ffff:")), found.laddr.port
                possible = [row for row in expected if row.has(port, given)]
                if not possible:
                    yield f"{who} listens on {address} port {port}, which is not in the table"
                    continue
                right = [row for row in possible if is_at(row, address, nodes[node])]
                if not right:
                    yield f"{who} listens on {address} port {port}: not {possible[0].address} ({nodes[node]})"
                expected.remove((right or possible)[0])
            for row in expected:
                if row.when != "while ranks connect":
                    yield f"{who} does not listen on what the table says: {row}"
    yield from (f"no process is a {program}" for program in sorted(missing))
