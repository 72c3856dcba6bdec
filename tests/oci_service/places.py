"""Where the nodes of job runs are: processes of this machine, or hosts of their own as tests/hosts.py makes them.

Containers, which are the third place, have a module of their own.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import hosts

REAPER = Path(__file__).resolve().parent / "reaper.py"


class Executed:
    """A command under a reaper, which has ended with everything that it had started when ``wait`` returns."""

    def __init__(
        self, prefix: Sequence[str], directory: str, command: Sequence[str], environ: Mapping[str, str]
    ) -> None:
        status, for_reaper = os.pipe()
        self.stdout, stdout = os.pipe()
        self.stderr, stderr = os.pipe()
        reaper = [sys.executable, "-I", "-S", str(REAPER), str(for_reaper), directory, *command]
        self._process = subprocess.Popen(
            [*prefix, *reaper],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            pass_fds=[for_reaper],
            start_new_session=True,
            bufsize=0,
        )
        for end in (for_reaper, stdout, stderr):
            os.close(end)
        self.pid = self._process.pid
        self._status = status
        self._lock = threading.Lock()

    def term(self) -> None:
        """Send TERM to the command's process group."""
        with self._lock, contextlib.suppress(BrokenPipeError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.write(b"term\n")

    def kill(self) -> None:
        """Kill all of it."""
        with self._lock, contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def wait(self) -> int | None:
        """Return the command's exit code; None where even the reaper was killed."""
        with os.fdopen(self._status, "rb") as stream:
            text = stream.read()
        self.kill()
        self._process.wait()
        return int(text.split()[1]) if text else None


class Node:
    """A place for one node: an address, a directory that it sees at the same path, and what can be started there."""

    mode = 0o600  # of its files

    def __init__(self, address: str, directory: Path) -> None:
        self.address = address
        self.directory = directory
        self.environ = {"HOME": str(directory / "home"), "TMPDIR": str(directory / "tmp"), "NODE_ADDRESS": address}
        self.working_directory = str(directory / "home")
        self.hostname = socket.gethostname()
        for name in ("home", "tmp"):
            (directory / name).mkdir()

    def start(self, directory: str, command: Sequence[str], environ: Mapping[str, str]) -> Executed:
        """Start *command* there."""
        return Executed([], directory, command, environ)

    def close(self) -> None:
        """Take the place away."""


class _Table:
    """A place whose images stand in a table."""

    def image(self, wanted: str, digest: str, table: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the image that is *wanted* by name, tag or digest, and by *digest* where that is not empty."""
        name, _, of_name = wanted.partition("@")
        has_tag = ":" in name.rpartition("/")[2]
        for known, image in table.items():
            is_it = known == name if has_tag else known.rpartition(":")[0] == name and of_name
            if is_it and {of_name, digest} <= {"", image.get("digest")}:
                return dict(image)
        return None


class Loopback(_Table):
    """Nodes are processes of this machine, each with a loopback address of a network that is this service's own."""

    def __init__(self) -> None:
        self._claim = socket.socket(socket.AF_UNIX)
        while True:
            number = secrets.randbelow(1 << 12)
            self.network = ipaddress.IPv4Network(((127 << 24) + (1 << 20) + (number << 8), 24))
            with contextlib.suppress(OSError):
                self._claim.bind(f"\0oci-service/{self.network}")  # goes with this process
                break
        self.addresses = [str(address) for address in self.network.hosts()][1:]
        self.proxy_address = "127.0.0.1"
        self.enter: list[str] = []  # what runs a program in the network of the nodes

    def node(self, address: str, directory: Path, image: Mapping[str, Any]) -> Node:
        """Return a place for a node."""
        return Node(address, directory)

    def close(self) -> None:
        """End it."""
        self._claim.close()


class _OnHost(Node):
    """A node that has a host of its own; NODE_ADDRESS is not given, there is an interface that has it."""

    def __init__(self, host: hosts.Host, directory: Path) -> None:
        self.address = host.address
        self.directory = directory
        self.environ = {"HOME": "/root"}
        self.working_directory = "/"
        self.hostname = host.name
        self._host = host
        self._enter = [str(shutil.which("nsenter")), f"--target={host.pid}", *hosts._NAMESPACES]

    def start(self, directory: str, command: Sequence[str], environ: Mapping[str, str]) -> Executed:
        return Executed(self._enter, directory, command, environ)

    def close(self) -> None:
        self._host.kill()


class Machines(_Table):
    """Nodes are hosts of their own, in a subnet that this machine itself does not reach; the service is at its end."""

    def __init__(self) -> None:
        if why_not := hosts.why_not():
            raise SystemExit(f"hosts of their own: {why_not}")
        self.network = hosts.SUBNET
        # The last host address is the service's.
        *addresses, self.proxy_address = (str(address) for address in self.network.hosts())
        self.addresses = addresses[1:]
        self._count = 0
        self._lock = threading.Lock()
        self._guard = start_guard()
        self._switch = hosts._first_process("--net", "cat")
        hosts._ip(
            self._switch.pid,
            "link set lo up",
            "link add bridge type bridge",
            f"address add {self.proxy_address}/{self.network.prefixlen} dev bridge",
            "link set bridge up",
        )
        self.enter = hosts.enter_network(self._switch.pid)

    def listening_socket(self) -> socket.socket:
        """Return a socket at the service's address in the subnet, which is no address of this machine."""
        return hosts.listen_in(self._switch.pid, self.proxy_address)

    def node(self, address: str, directory: Path, image: Mapping[str, Any]) -> Node:
        """Return a host with that address, to which the image's directories are readable."""
        with self._lock:
            self._count += 1
            name = f"node{self._count}"
        readable = {str(REAPER.parent), sys.prefix, sys.base_prefix, *image.get("readable", [])}
        directories = {**dict.fromkeys(sorted(readable), "ro"), str(directory): "rw"}
        host = hosts.Host(name, int(ipaddress.IPv4Address(address)) - int(self.network[0]), directories)
        hosts._ip(
            self._switch.pid,
            f"link add name {name}-decoy type veth peer name eth0 netns {host.pid}",
            f"link set dev {name}-decoy up",
            f"link add name {name} type veth peer name eth1 netns {host.pid}",
            f"link set dev {name} master bridge up",
        )
        hosts._ip(
            host.pid,
            "link set lo up",
            f"address add {host.decoy}/{hosts.DECOYS.prefixlen} dev eth0",
            "link set eth0 up",
            "route add default dev eth0",
            f"address add {host.address}/{self.network.prefixlen} dev eth1",
            "link set eth1 up",
        )
        for inside, outside in image.get("copy", {}).items():
            shutil.copytree(outside, host.root / inside.lstrip("/"), dirs_exist_ok=True)
        return _OnHost(host, directory)

    def close(self) -> None:
        """End the network, and the route that keeps it to itself."""
        self._switch.communicate(timeout=60)
        self._guard.communicate(timeout=60)


def start_guard(imports: str = "", clear: str = "", *arguments: str) -> subprocess.Popen[bytes]:
    """Have what this machine sends to the nodes' network go nowhere until stdin ends, and call *clear* then.

    In a process that outlives this one when that is killed: the route must go, too, and what *clear* removes.
    """
    program = (
        "import sys; sys.path[0:0] = sys.argv[1:2]; import hosts\n"
        f"{imports}\n"
        "with hosts._guard(): print(flush=True); sys.stdin.read()\n"
        f"{clear and f'{clear}(*sys.argv[2:])'}"
    )
    guard = subprocess.Popen(
        [sys.executable, "-I", "-c", program, str(Path(hosts.__file__).parent), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert guard.stdout is not None
    if not guard.stdout.readline():
        raise SystemExit("hosts of their own: the route of their network cannot be set")
    return guard
