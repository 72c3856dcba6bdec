"""Hosts of their own on this machine, as Linux namespaces: each with its addresses, mounts, processes and ``/code``.

A host has two network interfaces. ``eth0`` is a decoy: it comes first, has the default route and the hostname's
address, and leads nowhere. ``eth1`` reaches the other hosts, whose names it does not know, over a bridge in a namespace
of its own: nothing can leave through this machine's interface, and test runs at the same time do not meet.

A host lives as long as the pipe to its first process, so it cannot outlive who made it; with that process the kernel
ends all others of the host, its mounts and interfaces. A crash leaves one route at most, which the next use removes.

Needs root on Linux, allowed to mount and to set up interfaces; iproute2, mount and util-linux.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import ipaddress
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

# Of a range that is set aside for tests of networks (RFC 2544).
NETWORK = ipaddress.IPv4Network("198.18.0.0/24")
SUBNET, DECOYS = NETWORK.subnets()
_NAMESPACES = ("--net", "--mount", "--uts", "--ipc", "--pid")


def why_not() -> str:
    """Return what is missing to make hosts here; empty where nothing is."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "needs root on Linux"
    commands = ("ip", "mount", "nsenter", "pivot_root", "ss", "umount", "unshare")
    if missing := [command for command in commands if not shutil.which(command)]:
        return f"needs {', '.join(missing)} (Debian's iproute2, mount, util-linux)"
    for probe in ("mount -t overlay -o lowerdir=/etc:/usr overlay /tmp", "ip link add type veth"):
        command = ["unshare", *_NAMESPACES, "--fork", *probe.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return f"needs to be allowed '{probe}' in a namespace of its own: {done.stderr.strip()}"
    return ""


@functools.cache
def why_no_mount() -> str:
    """Return why no small disk can be mounted here; empty where one can. Root of a container may not always."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "mounts a small disk: needs root on Linux"
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"mounts a small disk: {done.stderr.strip()}" if done.returncode else ""


class Host:
    """One host; ``host.root`` is its ``/``, as seen from this machine."""

    def __init__(self, name: str, number: int, directories: Mapping[str, str]) -> None:
        self.name = name
        self.address = str(SUBNET[number])
        self.decoy = str(DECOYS[number])
        program = [sys.executable, "-I", __file__, json.dumps([name, self.decoy, directories])]
        self._unshare = _first_process(*_NAMESPACES, "--fork", *program)
        self.pid = psutil.Process(self._unshare.pid).children()[0].pid
        self.root = Path(f"/proc/{self.pid}/root")
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, command: Sequence[str], environ: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Start *command* there, in ``/``; its output goes to the file *log* of this machine."""
        enter = [str(shutil.which("nsenter")), f"--target={self.pid}", *_NAMESPACES]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*enter, *command], env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        self._started.append(process)
        return process

    def processes(self) -> list[str]:
        """Return the command lines of all that runs there, but for the host's own first process."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(FileNotFoundError, PermissionError, psutil.NoSuchProcess):
                is_here = Path(f"/proc/{process.pid}/ns/pid").samefile(f"/proc/{self.pid}/ns/pid")
                if is_here and process.pid != self.pid:
                    found.append(" ".join(process.cmdline()))
        return found

    def listening(self) -> set[tuple[str, int]]:
        """Return the addresses and ports on which anything listens there."""
        command = ["nsenter", f"--target={self.pid}", "--net", "ss", "--no-header", "--listening", "--numeric", "--tcp"]
        lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
        ends = [line.split()[3].rpartition(":") for line in lines]
        return {(address.strip("[]").removeprefix("::ffff:"), int(port)) for address, _, port in ends}

    def is_up(self) -> bool:
        """Return whether it has not been killed."""
        return self._unshare.poll() is None

    def kill(self) -> None:
        """End the host at once, as a power cut does; when this returns, nothing of it runs."""
        self._unshare.communicate(timeout=240)  # closes the pipe
        for process in self._started:
            process.wait(60)


class Hosts(dict[str, Host]):
    """Hosts by name. A context manager: at its end nothing of them is left.

    Args:
        names: Their hostnames.
        shared: A directory of this machine that all of them have, at the same path.
        readable: Others that they may read. What is mounted on this machine is on no host otherwise.
    """

    def __init__(self, *names: str, shared: Path, readable: Sequence[Path] = ()) -> None:
        super().__init__()
        self.shared = shared
        self._names = names
        self._directories = {str(shared): "rw", **{str(path): "ro" for path in readable}}

    def __enter__(self) -> Hosts:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_guard())
            switch = _first_process("--net", "cat")
            stack.callback(switch.communicate, timeout=240)
            self._switch = switch.pid
            _ip(self._switch, "link add bridge type bridge", "link set bridge up")
            for number, name in enumerate(self._names, start=1):
                host = self[name] = Host(name, number, self._directories)
                stack.callback(host.kill)
                _ip(
                    self._switch,
                    f"link add name {name}-decoy type veth peer name eth0 netns {host.pid}",
                    f"link set dev {name}-decoy up",
                    f"link add name {name} type veth peer name eth1 netns {host.pid}",
                    f"link set dev {name} master bridge up",
                )
                _ip(
                    host.pid,
                    "link set lo up",
                    f"address add {host.decoy}/{DECOYS.prefixlen} dev eth0",
                    "link set eth0 up",
                    "route add default dev eth0",
                    f"address add {host.address}/{SUBNET.prefixlen} dev eth1",
                    "link set eth1 up",
                )
            self._closing = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def cut(self, name: str) -> None:
        """Take away the link of a host to the others."""
        _ip(self._switch, f"link set dev {name} down")

    def heal(self, name: str) -> None:
        """Give it back."""
        _ip(self._switch, f"link set dev {name} up")


def enter_network(pid: int) -> list[str]:
    """Return what runs a program in the network namespace of process *pid*."""
    return [str(shutil.which("nsenter")), f"--net=/proc/{pid}/ns/net"]


def listen_in(pid: int, address: str, port: int = 0) -> socket.socket:
    """Return a socket that listens in the network namespace of process *pid*, for use in this one."""
    made: list[socket.socket] = []

    def make() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with Path(f"/proc/{pid}/ns/net").open() as namespace:
            if libc.setns(namespace.fileno(), 0x40000000):  # CLONE_NEWNET, of this thread alone
                raise OSError(ctypes.get_errno(), "setns")
        made.append(socket.create_server((address, port), backlog=128))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


@contextlib.contextmanager
def _guard() -> Iterator[None]:
    """Have what this machine itself sends to NETWORK go nowhere, not out; who uses that last takes it away."""
    # The lock is on this machine's network namespace, which is where the route is.
    with Path("/proc/self/ns/net").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        subprocess.run(["ip", "route", "replace", "unreachable", str(NETWORK)], check=True, timeout=240)
        try:
            yield
        finally:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                subprocess.run(["ip", "route", "del", "unreachable", str(NETWORK)], check=True, timeout=240)


def _ip(pid: int, *commands: str) -> None:
    """Run *commands* of ``ip`` in the network namespace of process *pid*."""
    command = ["nsenter", f"--target={pid}", "--net", "ip", "-batch", "-"]
    subprocess.run(command, input="\n".join(commands), text=True, check=True, timeout=240)


def _first_process(*arguments: str) -> subprocess.Popen[bytes]:
    """Run ``unshare`` with *arguments*; return it when the program in there, which ends as ``cat``, is set up."""
    process = subprocess.Popen(["unshare", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"\n")
    if process.stdout.read(1) != b"\n":
        process.communicate()
        raise RuntimeError(f"'unshare {' '.join(arguments)}' ended with {process.returncode}; stderr says why")
    return process


def _become_host(name: str, address: str, directories: Mapping[str, str]) -> None:
    """Be the first process in a host's namespaces: build its mounts, leave this machine's, and reap."""

    def run(*command: object) -> None:
        subprocess.run([str(word) for word in command], check=True, timeout=240)

    stage = Path("/sys")  # to build at: there on every machine, and not needed for it
    run("mount", "-t", "tmpfs", "tmpfs", stage)
    root, upper, work = (stage / part for part in ("root", "upper", "work"))
    for path in (root, upper, work):
        path.mkdir()
    run("mount", "-t", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", "overlay", root)
    run("mount", "--rbind", "/dev", root / "dev")
    for kind, places in {"tmpfs": ("dev/shm", "tmp", "run", "code"), "proc": ("proc",), "sysfs": ("sys",)}.items():
        for place in places:
            (root / place).mkdir(exist_ok=True)
            run("mount", "-t", kind, kind, root / place)
    for directory, access in directories.items():
        inside = root / directory.lstrip("/")
        inside.mkdir(parents=True, exist_ok=True)
        run("mount", "-o", f"bind,{access}", directory, inside)
    old = root / "tmp" / "old"
    old.mkdir()
    os.chdir(root)
    run("pivot_root", ".", "tmp/old")
    run("umount", "--lazy", "/tmp/old")
    Path("/tmp/old").rmdir()
    socket.sethostname(name)
    for file, text in {
        "hostname": f"{name}\n",
        "hosts": f"127.0.0.1 localhost\n{address} {name}\n",
        "resolv.conf": "",
    }.items():
        path = Path("/etc", file)
        path.unlink(missing_ok=True)  # may be a link that leads out of /etc
        path.write_text(text)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # kept across exec: orphans are reaped as they end
    os.execlp("cat", "cat")  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    _become_host(*json.loads(sys.argv[1]))
