"""Ways to nodes by ssh: through a bastion, or a host of the user's."""

from __future__ import annotations

import ipaddress
import itertools
import math
import os
import re
import secrets
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import oci_cluster
from oci_cluster.backends.base import IsStopped
from oci_cluster.backends.oci.connect import http_proxy
from oci_cluster.backends.oci.connect.bastion import Session, Sessions, host_of
from oci_cluster.backends.oci.settings import Jump, tunnel_settings
from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import config_file
from oci_cluster.errors import BackendError, ClusterError, NotPermittedError, SettingsError, StoppedError
from oci_cluster.system.console import Say
from oci_cluster.system.process_reaper import ProcessReaper

if TYPE_CHECKING:
    from oci_cluster.backends.oci.service import Service

# Before the end of a session the next one is made, which may take a minute, and be refused at first: this long, or a
# quarter of a shorter life.
_RENEW_BEFORE_S = 300.0
# People wait 10 to 60 s until a session of OCI's which is ACTIVE takes its key. Chosen, not measured.
_KEY_WITHIN_S = 75.0
# Between two looks at ssh; and, after a failure, between two tries at most.
_LOOK_S, _LONGEST_PAUSE_S = 0.5, 60.0
# How long a connection waits for a way that is being made again; and for a socket of this machine.
_DIAL_S, _SOCKET_S = 15.0, 10.0
# A connection to a port where nobody listens ends within a round trip to the node, or some.
_PROVE_S = 1.0
# A Unix socket's path has 103 bytes at most on macOS, 107 on Linux; ssh's own options may not hold blanks and percents.
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9/._-]{0,70}")
# As long as a connection to a host far away may take, on a bad line.
_CONNECT_S = 20
_OPTIONS = {
    "BatchMode": "yes",  # nobody is there to be asked
    "ExitOnForwardFailure": "yes",
    "ServerAliveInterval": "15",  # a connection that nobody answers is given up after three of these
    "ServerAliveCountMax": "3",
    "ConnectTimeout": str(_CONNECT_S),
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "LogLevel": "ERROR",
}
# Of all users of this machine. Source: ssh_config(5), GlobalKnownHostsFile. ssh-keygen -F reads the user's own alone.
_GLOBAL_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")
_GUARD = """
import sys
sys.path[0] = sys.argv.pop(1)
from oci_cluster.backends.oci.connect.bastion import guard_main
guard_main(sys.argv[1:])
"""


@dataclass(frozen=True)
class Asker:
    """A launcher that wants a way: its settings, OCI's services, and whom it tells."""

    given: Mapping[str, str]
    open_service: Callable[[], Service]
    say: Say
    is_stopped: IsStopped = lambda: False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def open_tunnel(cluster: Cluster, plan: Plan, node: str, port: int, asker: Asker) -> SshTunnel:
    """Return an open way to *port* of *node*.

    Raises:
        SettingsError: no bastion or host is named, or there is no ssh on this machine.
        ClusterError: there is no way; says why, and the next step.
    """
    chosen = tunnel_settings(asker.given)
    program()
    asker.open_service()  # which leads to the bucket, too
    told = ClusterDir(plan.url, cluster.launch_id, plan.launch_key).read(config_file(node))
    return tunnel_to(chosen, address_of(node, told), port, f"{cluster.name}-{cluster.launch_id[:8]}", asker)


def tunnel_to(chosen: Jump | str, address: str, port: int, whose: str, asker: Asker) -> SshTunnel:
    """Return an open way to *port* of *address*; *whose* is in sessions' names."""
    service = asker.open_service()
    tunnel: SshTunnel
    if isinstance(chosen, Jump):
        tunnel = JumpTunnel(chosen, Place(service.environ, address, port), asker)
    else:
        name = f"oci-cluster-{whose}-{secrets.token_hex(4)}"
        sessions = Sessions(service, chosen, name, clock=asker.clock, sleep=asker.sleep)
        sessions.pinned = tuple(filter(None, [asker.given.get("BASTION_HOST_KEY", "")]))
        sessions.check()
        asker.say(f"making a session of the bastion to {address}:{port}, which may take a minute")
        tunnel = BastionTunnel(sessions, Place(service.environ, address, port, chosen, name), asker)
    tunnel.open()
    return tunnel


def address_of(node: str, config: Mapping[str, Any] | None) -> str:
    """Return the address that *node* has told in its *config*."""
    if config is None:
        raise BackendError(
            f"{node} has not told its address yet: it has not started, or has just done so; try again later (status.sh)"
        )
    try:
        return str(ipaddress.ip_address(str(config.get("address"))))
    except ValueError as error:
        raise BackendError(f"{node} has told an address that is none: {error}") from error


# --- Ways -----------------------------------------------------------------------------------------------------------


class SshTunnel:
    """A way whose line is replaced in time; open connections stay on theirs."""

    address = ""

    def __init__(self, asker: Asker) -> None:
        self._say = asker.say
        self._is_told_to_stop = asker.is_stopped
        self._clock = asker.clock
        self._closing = threading.Event()
        self._changed = threading.Condition()
        self._line: Tunnel | None = None
        self._retired: list[Tunnel] = []
        self._failure: ClusterError | None = None
        self._pause_s = _LOOK_S
        self._next_try = 0.0
        self._is_proven = False
        self._thread = threading.Thread(target=self._tend, daemon=True)

    def new_line(self, old: Tunnel | None) -> Tunnel:
        """Return a new line in the place of *old*; StoppedError if unwanted."""
        raise NotImplementedError

    def end_of(self, line: Tunnel) -> None:
        """End what belongs to a closed *line*, while the way goes on."""

    def end_rest(self, *, is_quiet: bool) -> None:
        """End all that belongs to lines; if not *is_quiet*, more may still be made."""
        raise NotImplementedError

    def open(self) -> None:
        """Make the first line and look after it; a failure leaves nothing."""
        try:
            self._line = self.new_line(None)
        except BaseException:
            self.close()
            raise
        self._thread.start()

    def is_unwanted(self) -> bool:
        """Return whether the way is closed, or the launcher is told to stop."""
        return self._closing.is_set() or self._is_told_to_stop()

    def check_wanted(self) -> None:
        """Raise StoppedError where no way is wanted any more."""
        if self.is_unwanted():
            raise StoppedError("stopped before the way to the node was ready")

    # --- Connections

    def dial(self) -> socket.socket:
        """Return a new connection to the port."""
        deadline = self._clock() + _DIAL_S
        while not self._closing.is_set() and self._clock() < deadline:
            with self._changed:
                line, failure = self._line, self._failure
            if line is not None:
                try:
                    connection = line.dial()
                except OSError:
                    if failure is not None:
                        raise failure from None
                else:
                    self._prove(connection)
                    return connection
            with self._changed:  # ssh has just ended, and is started again
                self._changed.wait(_LOOK_S)
        raise BackendError(
            "the way to the node is closed" if self._closing.is_set() else "the way to the node is cut; try again"
        )

    def _prove(self, connection: socket.socket) -> None:
        """Raise where a first connection ends at once: ssh takes any."""
        if not self._is_proven and select.select([connection], [], [], _PROVE_S)[0] and not _has_bytes(connection):
            connection.close()
            raise BackendError(
                "nobody listens on that port of the node, or a rule of its network keeps the connection out"
            )
        self._is_proven = True

    # --- The line

    def _tend(self) -> None:
        while not self._closing.wait(_LOOK_S):
            self.tend()

    def tend(self) -> None:
        """Look after the line once: replace it where it has ended, or soon will."""
        for line in [line for line in self._retired if not line.is_running()]:
            self._retired.remove(line)
            self._end(line)
        old, now = self._line, self._clock()
        is_lost = old is None or not old.is_running()
        if (not is_lost and old is not None and now < old.renew_at) or now < self._next_try:
            return
        try:
            line = self.new_line(old)
        except StoppedError:
            return
        except (ClusterError, OSError) as error:
            self._failed(error if isinstance(error, ClusterError) else BackendError(str(error)), is_lost=is_lost)
            return
        with self._changed:
            self._line, self._failure = line, None
            self._changed.notify_all()
        self._pause_s, self._next_try = _LOOK_S, 0.0
        if is_lost:
            self._say("the way to the node was cut, and is there again")
            self._end(old)
        elif old is not None:
            self._retired.append(old)

    def _failed(self, failure: ClusterError, *, is_lost: bool) -> None:
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._next_try = self._clock() + self._pause_s
        is_new = self._failure is None or str(failure) != str(self._failure)
        with self._changed:
            # While there is a line still, connections get through.
            self._failure = failure if is_lost else None
            self._changed.notify_all()
        if is_new:
            self._say(f"{failure}; tried again in {self._pause_s:.0f} s")

    def _end(self, line: Tunnel | None) -> None:
        if line is None:
            return
        line.close()
        try:
            self.end_of(line)
        except ClusterError as error:  # at the way's end it is tried once more
            self._say(str(error))

    def close(self) -> None:
        """End ssh, and all that was made for it."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._thread.is_alive():
            # It gives up at its next look. A request may take longer, and then the guard ends what it makes.
            self._thread.join(_DIAL_S)
        for line in [*self._retired, self._line]:
            if line is not None:
                line.close()
        self.end_rest(is_quiet=not self._thread.is_alive())


def _has_bytes(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


class JumpTunnel(SshTunnel):
    """A way through a host of the user's, by the user's ssh configuration."""

    def __init__(self, jump: Jump, place: Place, asker: Asker) -> None:
        super().__init__(asker)
        self._jump = jump
        self._place = place

    def new_line(self, old: Tunnel | None) -> Tunnel:  # noqa: ARG002 - one is as good as another
        """Return a connected ssh."""
        jump = self._jump
        tunnel = self._place.tunnel(jump_command(jump))
        if tunnel.wait_until_open(self.is_unwanted):
            return tunnel
        tunnel.close()
        self.check_wanted()
        words = f"{f'-p {jump.port} ' if jump.port else ''}{f'{jump.user}@' if jump.user else ''}{jump.host}"
        unknown = f"ssh does not know the host key of {jump.host}: look at it once with 'ssh {words}'"
        advice = f"'ssh -o BatchMode=yes {words}' must log in without a question"
        raise refusal(tunnel.why(), f"{jump.host} (SSH_JUMP)", advice, unknown_key=unknown)

    def end_rest(self, *, is_quiet: bool) -> None:
        """Let the guard go."""
        self._place.close(is_done=is_quiet)


class BastionTunnel(SshTunnel):
    """A way through an OCI Bastion, with sessions that nobody else uses."""

    def __init__(self, sessions: Sessions, place: Place, asker: Asker) -> None:
        super().__init__(asker)
        self._sessions = sessions
        sessions.is_unwanted = self.is_unwanted
        self._place = place
        self._public_key = ""

    def new_line(self, old: Tunnel | None) -> Tunnel:
        """Return a connected ssh, of the old session if only ssh has ended."""
        place = self._place
        self._public_key = self._public_key or new_key(place.directory)
        session = self._session_of(old) or self._sessions.create(place.address, place.port, self._public_key)
        try:
            tunnel = self._connect(session)
        except BaseException:
            self._sessions.delete(session.id)
            raise
        life_s = session.ends_at - session.asked_at
        tunnel.renew_at, tunnel.session = session.ends_at - min(_RENEW_BEFORE_S, life_s / 4), session
        return tunnel

    def _session_of(self, old: Tunnel | None) -> Session | None:
        """Take the session of a line that has ended, if it is good."""
        if old is None or old.is_running() or old.session is None or self._clock() >= old.renew_at:
            return None
        session = old.session
        if not self._sessions.is_active(session.id):
            return None
        old.session = None
        return session

    def _connect(self, session: Session) -> Tunnel:
        directory = self._place.directory
        lines = "".join(f"{session.host} {key}\n" for key in session.host_keys)
        (directory / "known_hosts").write_text(lines, encoding="ascii")
        is_pinned = bool(session.host_keys)
        command = bastion_command(directory, session.host, session.port, session.id, is_pinned=is_pinned)
        deadline = self._clock() + _KEY_WITHIN_S
        while True:
            tunnel = self._place.tunnel(command)
            if tunnel.wait_until_open(self.is_unwanted):
                return tunnel
            tunnel.close()
            self.check_wanted()
            if is_about_host_key(tunnel.why()) or self._clock() > deadline:
                raise self._refusal(tunnel.why(), session)
            self._closing.wait(1.0)

    def _refusal(self, said: str, session: Session) -> ClusterError:
        allowed, advices = self._sessions.allowed_from, list[str]()
        if "Permission denied" in said:
            advices.append(f"its session has not taken its key within {_KEY_WITHIN_S:g} s: try again")
        if "0.0.0.0/0" not in allowed:
            from_where = ", ".join(allowed) or "nowhere"
            advices.append(f"the bastion lets ssh in from {from_where}: this machine's address must be among these")
        advice = ", or ".join(advices) or "is port 22 of it open for this machine, or HTTPS_PROXY set?"
        unknown = (
            f"OCI has not told the host key of {session.host}, and neither BASTION_HOST_KEY nor ~/.ssh/known_hosts has"
            f" it: ask your administrator which one of 'ssh-keyscan {session.host}' is right, and set BASTION_HOST_KEY"
        )
        return refusal(said, session.host, advice, unknown_key="" if session.host_keys else unknown)

    def end_of(self, line: Tunnel) -> None:
        """Delete the session of *line*."""
        if line.session is not None:
            self._sessions.delete(line.session.id)

    def end_rest(self, *, is_quiet: bool) -> None:
        """Delete every session that is left, or say how; let the guard go."""
        left = dict.fromkeys(self._sessions.left)
        try:
            left |= dict.fromkeys(str(found.id) for found in self._sessions.going())
        except ClusterError:  # those that are known are tried all the same
            is_quiet = is_quiet and not self._sessions.is_unsure
        for session in left:
            try:
                self._sessions.delete(session)
            except ClusterError as error:
                self._say(f"{error}; delete it with: oci bastion session delete --force --session-id {session}")
        self._place.close(is_done=is_quiet)


# --- ssh ------------------------------------------------------------------------------------------------------------


def program() -> str:
    """Return the path of ssh."""
    for name in ("ssh", "ssh-keygen"):
        if shutil.which(name) is None:
            msg = f"there is no {name} on this machine, by which nodes on OCI are reached; install OpenSSH's client"
            raise SettingsError(f"{msg} (Debian: apt install openssh-client)")
    return str(shutil.which("ssh"))


def lacking_host_key(given: Mapping[str, str], service: Service) -> tuple[str, str] | None:
    """Return that the key of the bastion's host may lack, and the fix."""
    if not given.get("BASTION_ID") or given.get("BASTION_HOST_KEY") or given.get("SSH_JUMP"):
        return None
    host = host_of(service)
    known = [shutil.which("ssh-keygen") or "false", "-F", host]
    for words in ([], ["-f", str(_GLOBAL_KNOWN_HOSTS)]):
        if subprocess.run([*known, *words], capture_output=True, check=False).returncode == 0:  # noqa: S603
            return None
    text = f"OCI may not tell the key of {host}, and neither BASTION_HOST_KEY nor ~/.ssh/known_hosts has it"
    key = f"$(ssh-keyscan -t ed25519 {host} | cut -d' ' -f2-)"
    trusted = "# once, from a network that you trust; your team gets the same line"
    return text, f"""{trusted}\necho "BASTION_HOST_KEY='{key}'" >>config.env"""


def private_directory() -> Path:
    """Return a new private directory, with a path that ssh takes as it is."""
    made = Path(tempfile.mkdtemp(prefix="oci-way-"))
    if _PLAIN_PATH.fullmatch(str(made)):
        return made
    made.rmdir()
    return Path(tempfile.mkdtemp(prefix="oci-way-", dir="/tmp"))


def new_key(directory: Path) -> str:
    """Make ``key`` and ``key.pub`` in *directory*; return the public key, one line."""
    command = [str(shutil.which("ssh-keygen")), "-q", "-t", "ed25519", "-N", "", "-C", "oci-cluster"]
    done = subprocess.run([*command, "-f", directory / "key"], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        raise BackendError(f"no key for ssh could be made in {directory}: {done.stderr.strip() or done.returncode}")
    return (directory / "key.pub").read_text(encoding="ascii").strip()


def bastion_command(directory: Path, host: str, port: int, user: str, *, is_pinned: bool) -> list[str]:
    """Return the ssh to a bastion's *host* as *user*, a session, with *directory*'s key.

    If *is_pinned*, ``known_hosts`` there has the host's key, as OCI or a setting tells; else the user's list counts.
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


def jump_command(jump: Jump) -> list[str]:
    """Return the ssh to the user's host, by the user's own configuration."""
    words = [*(["-l", jump.user] if jump.user else []), *(["-p", str(jump.port)] if jump.port else [])]
    # A connection that others share would keep the port forwarded when this ssh is gone.
    options = {"ControlMaster": "no", "ControlPath": "none", "RemoteCommand": "none"}
    return [program(), *_words(options), *words, jump.host]


def _words(options: dict[str, str]) -> list[str]:
    return [word for name, value in {**_OPTIONS, **options}.items() for word in ("-o", f"{name}={value}")]


def _through_proxy(host: str, port: int) -> dict[str, str]:
    """Return the options for the proxy of ``HTTPS_PROXY``; none without one."""
    if not (proxy := http_proxy.proxy_for(host)):
        return {}
    if "://" in proxy and urlsplit(proxy).scheme != "http":
        where = f"{urlsplit(proxy).scheme}://{urlsplit(proxy).hostname}"
        raise SettingsError(
            f"HTTPS_PROXY is {where}, and ssh can be led through http:// alone; add {host} to NO_PROXY, or set SSH_JUMP"
        )
    words = [sys.executable, "-I", "-S", str(Path(http_proxy.__file__).resolve()), host, str(port)]
    return {"ProxyCommand": shlex.join(words).replace("%", "%%"), "ProxyUseFdpass": "yes"}


def is_about_host_key(said: str) -> bool:
    """Return whether ssh has ended because of the host's key."""
    return "host key" in said.lower()


def refusal(said: str, where: str, advice: str, *, unknown_key: str = "") -> ClusterError:
    """Return the error of an ssh that did not get to *where*."""
    said = said or "ssh said nothing, and took too long"
    if is_about_host_key(said):
        wrong = f"{where} has another host key than it should have, so somebody else may answer in its place"
        return NotPermittedError(f"{unknown_key or wrong}; nothing was sent there ({said})")
    if "Permission denied" in said:
        return NotPermittedError(f"{where} does not let ssh in: {said}; {advice}")
    return BackendError(f"ssh does not get to {where}: {said}; {advice}")


class Place:
    """The private directory of a way, and a guard that outlives this process."""

    def __init__(self, environ: Mapping[str, str], address: str, port: int, *bastion: str) -> None:
        self.address, self.port = address, port
        self.directory = private_directory()
        self._numbers = itertools.count(1)
        root = str(Path(oci_cluster.__file__).resolve().parents[1])
        try:
            self._reaper = ProcessReaper(_GUARD, [root, str(self.directory), *bastion], environ)
        except OSError as error:
            shutil.rmtree(self.directory)
            raise BackendError(f"no further process can be started on this machine: {error}") from error

    def tunnel(self, command: list[str]) -> Tunnel:
        """Start ssh by *command*; it ends with this process."""
        path = self.directory / f"{next(self._numbers)}"
        return Tunnel(self._reaper, command, path, self.address, self.port)

    def close(self, *, is_done: bool) -> None:
        """Let the guard go and remove the directory; not *is_done*: the guard cleans up."""
        self._reaper.dismiss(is_done=is_done)
        if is_done:
            shutil.rmtree(self.directory, ignore_errors=True)


class Tunnel:
    """An ssh from a socket at *path* to a port of a node."""

    def __init__(self, reaper: ProcessReaper, command: Sequence[str], path: Path, address: str, port: int) -> None:
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
            self._pid = reaper.start(forward, os.environ, str(self._errors))
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

    def wait_until_open(self, is_stopped: IsStopped) -> bool:
        """Return whether ssh is connected; False if it has ended, or took too long."""
        deadline = time.monotonic() + 3 * _CONNECT_S
        while not self.path.exists():
            if not self.is_running():
                return False
            if is_stopped() or time.monotonic() > deadline:
                self.close()
                return False
            time.sleep(0.05)
        return self.is_running()

    def dial(self) -> socket.socket:
        """Return a new connection to the port; OSError if ssh has ended."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_SOCKET_S)
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
