"""ssh as a way to a port of a node: its command lines, its keys, and one process of it."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from oci_cluster.backends.oci import proxy_connect
from oci_cluster.errors import BackendError, ClusterError, NotPermittedError, SettingsError
from oci_cluster.system.guard import ProcessGuard

if TYPE_CHECKING:
    from oci_cluster.backends.oci.bastion import Session

# A Unix socket's path has 103 bytes at most on macOS, 107 on Linux; ssh's own options may not hold blanks and percents.
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9/._-]{0,70}")
# A connection that nobody answers is given up after three of these.
_ALIVE_S = 15
# As long as a connection to a host far away may take, on a bad line.
_CONNECT_S = 20
# Longest wait for a connection to a socket of this machine.
_DIAL_S = 10.0
_LOOK_S = 0.05


def program() -> str:
    """Return the path of ssh."""
    for name in ("ssh", "ssh-keygen"):
        if shutil.which(name) is None:
            msg = f"there is no {name} on this machine, by which nodes on OCI are reached; install OpenSSH's client"
            raise SettingsError(f"{msg} (Debian: apt install openssh-client)")
    return str(shutil.which("ssh"))


def private_directory() -> Path:
    """Return a new directory of this user's alone, whose path ssh takes as it is."""
    made = Path(tempfile.mkdtemp(prefix="oci-way-"))
    if _PLAIN_PATH.fullmatch(str(made)):
        return made
    made.rmdir()
    return Path(tempfile.mkdtemp(prefix="oci-way-", dir="/tmp"))


def new_key(directory: Path) -> str:
    """Make a key pair in *directory*, ``key`` and ``key.pub``; return the public key, one line.

    Raises:
        BackendError: ssh-keygen did not do it.
    """
    command = [str(shutil.which("ssh-keygen")), "-q", "-t", "ed25519", "-N", "", "-C", "oci-cluster"]
    done = subprocess.run([*command, "-f", directory / "key"], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise BackendError(f"no key for ssh could be made in {directory}: {done.stderr.strip() or done.returncode}")
    return (directory / "key.pub").read_text(encoding="ascii").strip()


def bastion_command(directory: Path, host: str, port: int, user: str, *, is_pinned: bool) -> list[str]:
    """Return the ssh that reaches a bastion's *host* as *user*, a session, with the key of *directory* alone.

    Where OCI has said which key the host has, *is_pinned*, ``known_hosts`` there has it; else the user's list counts.

    Raises:
        SettingsError: the proxy of the environment is not one that ssh can be led through.
    """
    options = {
        "IdentityFile": f"{directory}/key",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "PreferredAuthentications": "publickey",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "HostKeyAlias": host,
        **_through_proxy(host, port),
    }
    if is_pinned:
        options |= {"UserKnownHostsFile": f"{directory}/known_hosts", "GlobalKnownHostsFile": "/dev/null"}
    return [program(), "-F", "/dev/null", *_words(options), "-p", str(port), "-l", user, host]


def jump_command(user: str, host: str, port: int) -> list[str]:
    """Return the ssh that reaches a host of the user's, as the user's own configuration says."""
    words = [*(["-l", user] if user else []), *(["-p", str(port)] if port else [])]
    # A connection that others share would keep the port forwarded when this ssh is gone.
    return [program(), *_words({"ControlMaster": "no", "ControlPath": "none", "RemoteCommand": "none"}), *words, host]


def _words(options: dict[str, str]) -> list[str]:
    common = {
        "BatchMode": "yes",  # nobody is there to be asked
        "ExitOnForwardFailure": "yes",
        "ServerAliveInterval": str(_ALIVE_S),
        "ServerAliveCountMax": "3",
        "ConnectTimeout": str(_CONNECT_S),
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "PermitLocalCommand": "no",
        "LogLevel": "ERROR",
    }
    return [word for name, value in {**common, **options}.items() for word in ("-o", f"{name}={value}")]


def _through_proxy(host: str, port: int) -> dict[str, str]:
    """Return the options that lead through the proxy of ``HTTPS_PROXY``, as requests to OCI go; none without one."""
    if not (proxy := proxy_connect.proxy_for(host)):
        return {}
    if "://" in proxy and urlsplit(proxy).scheme != "http":
        where = f"{urlsplit(proxy).scheme}://{urlsplit(proxy).hostname}"
        raise SettingsError(
            f"HTTPS_PROXY is {where}, and ssh can be led through http:// alone; add {host} to NO_PROXY, or set SSH_JUMP"
        )
    words = [sys.executable, "-I", "-S", str(Path(proxy_connect.__file__).resolve()), host, str(port)]
    return {"ProxyCommand": shlex.join(words).replace("%", "%%"), "ProxyUseFdpass": "yes"}


class Tunnel:
    """One ssh that leads from a socket of this user's to a port of a node."""

    def __init__(self, guard: ProcessGuard, command: Sequence[str], path: Path, address: str, port: int) -> None:
        """Start ssh by *command*, which ends with the guard's process. It listens at *path*, when it is connected.

        Raises:
            BackendError: it cannot be started.
        """
        self.path = path
        #: When another one should take over, by the way's clock.
        self.renew_at = math.inf
        #: The bastion's session that it is connected by.
        self.session: Session | None = None
        self._errors = path.with_suffix(".err")
        inside = f"[{address}]" if ":" in address else address
        program_path, *words = command
        forward = [program_path, "-N", "-T", "-L", f"{path}:{inside}:{port}", *words]
        try:
            self._pid = guard.start(forward, os.environ, str(self._errors))
        except OSError as error:
            raise BackendError(f"ssh could not be started: {error}") from error
        self._is_running = True
        self._lock = threading.Lock()

    def is_running(self) -> bool:
        """Return whether ssh runs."""
        with self._lock:
            if self._is_running:
                self._is_running = os.waitpid(self._pid, os.WNOHANG) == (0, 0)
            return self._is_running

    def why(self) -> str:
        """Return what ssh has said last."""
        try:
            lines = self._errors.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        said = [re.sub(r"[^\x20-\x7e]", "?", line).strip() for line in lines]
        return next((line[:300] for line in reversed(said) if line), "")

    def wait_until_open(self, is_stopped: Callable[[], bool], timeout_s: float = 3 * _CONNECT_S) -> bool:
        """Return whether ssh is connected; False where it has ended instead, or was ended as that took too long."""
        deadline = time.monotonic() + timeout_s
        while not self.path.exists():
            if not self.is_running():
                return False
            if is_stopped() or time.monotonic() > deadline:
                self.close()
                return False
            time.sleep(_LOOK_S)
        return self.is_running()

    def dial(self) -> socket.socket:
        """Return a new connection to the port.

        Raises:
            OSError: ssh does not run any more.
        """
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_DIAL_S)
            connection.connect(str(self.path))
            connection.settimeout(None)
        except OSError:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """End ssh, and all its connections."""
        with self._lock:
            if self._is_running:
                os.kill(self._pid, signal.SIGKILL)  # not waited for yet, so no other process has this number
                os.waitpid(self._pid, 0)
                self._is_running = False
        self.path.unlink(missing_ok=True)


def is_about_host_key(said: str) -> bool:
    """Return whether ssh has ended because of the host's key, by what it has *said*."""
    return "host key" in said.lower()


def refusal(said: str, where: str, advice: str, *, unknown_key: str = "") -> ClusterError:
    """Return what to raise where ssh did not get to *where*, by what it has *said*; *unknown_key* if none is known."""
    said = said or "ssh said nothing, and took too long"
    if is_about_host_key(said):
        wrong = f"{where} has another host key than it should have, so somebody else may answer in its place"
        return NotPermittedError(f"{unknown_key or wrong}; nothing was sent there ({said})")
    if "Permission denied" in said:
        return NotPermittedError(f"{where} does not let ssh in: {said}; {advice}")
    return BackendError(f"ssh does not get to {where}: {said}; {advice}")
