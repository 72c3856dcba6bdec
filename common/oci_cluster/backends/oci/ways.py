"""Ways to a port of a node: through a bastion, whose sessions are renewed, or through a host of the user's."""

from __future__ import annotations

import ipaddress
import itertools
import secrets
import select
import shutil
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import oci_cluster
from oci_cluster.backends.base import IsStopped
from oci_cluster.backends.oci import ssh
from oci_cluster.backends.oci.bastion import Session, Sessions
from oci_cluster.backends.oci.settings import Jump, way_settings
from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.names import config_file
from oci_cluster.errors import BackendError, ClusterError, StoppedError
from oci_cluster.system.console import Say
from oci_cluster.system.guard import ProcessGuard

if TYPE_CHECKING:
    from oci_cluster.backends.oci.service import Service

# Before the end of a session the next one is made, which may take a minute, and be refused at first: this long, or a
# quarter of a shorter life.
_RENEW_BEFORE_S = 300.0
# People tell that a session of OCI's which is ACTIVE takes its key some seconds later. Chosen, not measured.
_KEY_WITHIN_S = 30.0

# Between two looks at ssh; and, after a failure, between two tries at most.
_LOOK_S, _LONGEST_PAUSE_S = 0.5, 60.0
# How long a connection waits for a way that is being made again.
_DIAL_S = 15.0
# A connection to a port where nobody listens ends within a round trip to the node, or some.
_PROVE_S = 1.0

_GUARD = """
import sys
sys.path[0] = sys.argv.pop(1)
from oci_cluster.backends.oci.bastion import guard_main
guard_main(sys.argv[1:])
"""


@dataclass(frozen=True)
class Asker:
    """Who wants a way: a launcher."""

    given: Mapping[str, str]
    """Its settings."""
    open_service: Callable[[], Service]
    """Returns OCI's services."""
    say: Say
    is_stopped: IsStopped = lambda: False
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def open_way(cluster: Cluster, plan: Plan, node: str, port: int, asker: Asker) -> SshWay:
    """Return an open way to *port* of *node*: through a host of the user's, or a session of a bastion.

    Raises:
        SettingsError: it is not said how, or there is no ssh on this machine.
        ClusterError: there is no way; says why, and the next step.
    """
    chosen = way_settings(asker.given)
    ssh.program()
    asker.open_service()  # which leads to the bucket, too
    told = ClusterDir(plan.url, cluster.launch_id, plan.launch_key).read(config_file(node))
    return way_to(chosen, address_of(node, told), port, f"{cluster.name}-{cluster.launch_id[:8]}", asker)


def way_to(chosen: Jump | str, address: str, port: int, whose: str, asker: Asker) -> SshWay:
    """Return an open way to *port* of *address*, by what is *chosen*; sessions have *whose* in their names.

    Raises:
        ClusterError: as :func:`open_way`.
    """
    service = asker.open_service()
    way: SshWay
    if isinstance(chosen, Jump):
        way = JumpWay(chosen, Place(service.environ, address, port), asker)
    else:
        name = f"oci-cluster-{whose}-{secrets.token_hex(4)}"
        sessions = Sessions(service, chosen, name, clock=asker.clock, sleep=asker.sleep)
        sessions.check()
        asker.say(f"making a session of the bastion to {address}:{port}, which may take a minute")
        way = BastionWay(sessions, Place(service.environ, address, port, chosen, name), asker)
    way.open()
    return way


class SshWay:
    """A way whose line is made again when it is lost, and replaced before its end; open connections stay on theirs."""

    address = ""

    def __init__(self, say: Say, is_stopped: IsStopped, clock: Callable[[], float]) -> None:
        """Have no line yet; :meth:`open` makes the first."""
        self._say = say
        self._is_told_to_stop = is_stopped
        self._clock = clock
        self._closing = threading.Event()
        self._changed = threading.Condition()
        self._line: ssh.Tunnel | None = None
        self._retired: list[ssh.Tunnel] = []
        self._failure: ClusterError | None = None
        self._pause_s = _LOOK_S
        self._next_try = 0.0
        self._is_proven = False
        self._thread = threading.Thread(target=self._tend, daemon=True)

    def new_line(self, old: ssh.Tunnel | None) -> ssh.Tunnel:
        """Return a new line, in the place of an *old* one that has ended, or soon will; None at first.

        Raises:
            StoppedError: none is wanted any more.
        """
        raise NotImplementedError

    def end_of(self, line: ssh.Tunnel) -> None:
        """End what was made for a *line* that is closed, while the way goes on."""

    def end_rest(self, *, is_quiet: bool) -> None:
        """End all that was made for lines; where not *is_quiet*, something may still be made."""
        raise NotImplementedError

    def open(self) -> None:
        """Make the first line, and look after it from now on.

        Raises:
            ClusterError: as :meth:`new_line` raises; nothing is left.
        """
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
        """Return a new connection to the port.

        Raises:
            BackendError: nobody listens there, or the way to it is cut.
            NotPermittedError: this person may not go there any more.
        """
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
        """Raise where a first connection ends before anything was said: ssh takes it, whoever listens behind it."""
        if self._is_proven:
            return
        readable = select.select([connection], [], [], _PROVE_S)[0]
        if readable and not _has_bytes(connection):
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
        """Look after the line once: make another one where it has ended, or soon will."""
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

    def _end(self, line: ssh.Tunnel | None) -> None:
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


class Place:
    """The private directory of one way, and the guard that ends what is left when this process is killed."""

    def __init__(self, environ: Mapping[str, str], address: str, port: int, *bastion: str) -> None:
        """Make them, for ways to *port* of *address*; *bastion*: its OCID, and the sessions' name, for the guard.

        Raises:
            BackendError: no further process can be started.
        """
        self.address, self.port = address, port
        self.directory = ssh.private_directory()
        self._numbers = itertools.count(1)
        root = str(Path(oci_cluster.__file__).resolve().parents[1])
        try:
            self._guard = ProcessGuard(_GUARD, [root, str(self.directory), *bastion], environ)
        except OSError as error:
            shutil.rmtree(self.directory)
            raise BackendError(f"no further process can be started on this machine: {error}") from error

    def tunnel(self, command: list[str]) -> ssh.Tunnel:
        """Start ssh by *command*; it ends with this process."""
        path = self.directory / f"{next(self._numbers)}"
        return ssh.Tunnel(self._guard, command, path, self.address, self.port)

    def close(self, *, is_done: bool) -> None:
        """Remove the directory, and let the guard go; where not all *is_done*, it does the rest."""
        self._guard.dismiss(is_done=is_done)
        if is_done:
            shutil.rmtree(self.directory, ignore_errors=True)


class JumpWay(SshWay):
    """Through a host of the user's, by the user's own configuration of ssh."""

    def __init__(self, jump: Jump, place: Place, asker: Asker) -> None:
        """Lead through the host *jump*."""
        super().__init__(asker.say, asker.is_stopped, asker.clock)
        self._jump = jump
        self._place = place

    def new_line(self, old: ssh.Tunnel | None) -> ssh.Tunnel:  # noqa: ARG002 - one is as good as another
        """Return a connected ssh."""
        jump = self._jump
        tunnel = self._place.tunnel(ssh.jump_command(jump.user, jump.host, jump.port))
        if tunnel.wait_until_open(self.is_unwanted):
            return tunnel
        tunnel.close()
        self.check_wanted()
        words = f"{f'-p {jump.port} ' if jump.port else ''}{f'{jump.user}@' if jump.user else ''}{jump.host}"
        unknown = f"ssh does not know the host key of {jump.host}: look at it once with 'ssh {words}'"
        advice = f"'ssh -o BatchMode=yes {words}' must log in without a question"
        raise ssh.refusal(tunnel.why(), f"{jump.host} (SSH_JUMP)", advice, unknown_key=unknown)

    def end_rest(self, *, is_quiet: bool) -> None:
        """Let the guard go."""
        self._place.close(is_done=is_quiet)


class BastionWay(SshWay):
    """Through an OCI Bastion, by sessions that are made, renewed and deleted here."""

    def __init__(self, sessions: Sessions, place: Place, asker: Asker) -> None:
        """Lead through *sessions*, which nobody else uses."""
        super().__init__(asker.say, asker.is_stopped, asker.clock)
        self._sessions = sessions
        sessions.is_unwanted = self.is_unwanted
        self._place = place
        self._public_key = ""

    def new_line(self, old: ssh.Tunnel | None) -> ssh.Tunnel:
        """Return a connected ssh: of a new session, or of the old one's where only ssh has ended."""
        place = self._place
        self._public_key = self._public_key or ssh.new_key(place.directory)
        session = self._session_of(old)
        if session is None:
            session = self._sessions.create(place.address, place.port, self._public_key)
        try:
            tunnel = self._connect(session)
        except BaseException:
            self._sessions.delete(session.id)
            raise
        life_s = session.ends_at - session.asked_at
        tunnel.renew_at, tunnel.session = session.ends_at - min(_RENEW_BEFORE_S, life_s / 4), session
        return tunnel

    def _session_of(self, old: ssh.Tunnel | None) -> Session | None:
        """Return the session of a line that has ended, where the session has not; from now on it is not that line's."""
        if old is None or old.is_running() or old.session is None or self._clock() >= old.renew_at:
            return None
        session = old.session
        if not self._sessions.is_active(session.id):
            return None
        old.session = None
        return session

    def _connect(self, session: Session) -> ssh.Tunnel:
        directory = self._place.directory
        lines = "".join(f"{session.host} {key}\n" for key in session.host_keys)
        (directory / "known_hosts").write_text(lines, encoding="ascii")
        command = ssh.bastion_command(
            directory, session.host, session.port, session.id, is_pinned=bool(session.host_keys)
        )
        deadline = self._clock() + _KEY_WITHIN_S
        while True:
            tunnel = self._place.tunnel(command)
            if tunnel.wait_until_open(self.is_unwanted):
                return tunnel
            tunnel.close()
            self.check_wanted()
            failure = self._refusal(tunnel.why(), session)
            if ssh.is_about_host_key(tunnel.why()) or self._clock() > deadline:
                raise failure
            self._closing.wait(1.0)

    def _refusal(self, said: str, session: Session) -> ClusterError:
        from_where = ", ".join(self._sessions.allowed_from) or "nowhere"
        advice = f"the bastion lets ssh in from {from_where}: this machine's address must be among these"
        unknown = (
            ""
            if session.host_keys
            else f"OCI has not told the host key of {session.host}, and ~/.ssh/known_hosts does not have it: ask your"
            f" administrator which one of 'ssh-keyscan {session.host}' is right, and add that line"
        )
        return ssh.refusal(said, session.host, advice, unknown_key=unknown)

    def end_of(self, line: ssh.Tunnel) -> None:
        """Delete the session of *line*."""
        if line.session is not None:
            self._sessions.delete(line.session.id)

    def end_rest(self, *, is_quiet: bool) -> None:
        """Delete every session that is left, and let the guard go; what cannot be deleted is said."""
        left = dict.fromkeys(self._sessions.left)
        try:
            left |= dict.fromkeys(str(found.id) for found in self._sessions.going())
        except ClusterError:  # those that are known are tried all the same
            if self._sessions.is_unsure:
                is_quiet = False
        for session in left:
            try:
                self._sessions.delete(session)
            except ClusterError as error:
                self._say(f"{error}; delete it with: oci bastion session delete --force --session-id {session}")
        self._place.close(is_done=is_quiet)


def address_of(node: str, told: Mapping[str, Any] | None) -> str:
    """Return the address of *node*, by what it has *told* in its configuration.

    Raises:
        BackendError: it has told none yet; or what it has told is none.
    """
    if told is None:
        raise BackendError(
            f"{node} has not told its address yet: it has not started, or has just done so; try again later (status.sh)"
        )
    try:
        return str(ipaddress.ip_address(str(told.get("address"))))
    except ValueError as error:
        raise BackendError(f"{node} has told an address that is none: {error}") from error
