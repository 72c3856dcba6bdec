"""The verb ``connect``: ports of a cluster's nodes, made reachable on this machine."""

from __future__ import annotations

import contextlib
import html
import re
import shlex
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from oci_cluster.backends.base import Backend
from oci_cluster.contract import parsers
from oci_cluster.contract.cluster import Cluster, NodeState, Plan
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import READY
from oci_cluster.contract.session import TOKEN_FILE, session_token
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT, framework_dir
from oci_cluster.contract.storage.hanging_disk import asked_dir
from oci_cluster.errors import BackendError, ClusterError, StoppedError, UsageError
from oci_cluster.launcher.args.command_line import CommandLine
from oci_cluster.launcher.connect.client_files import Gate, client_port, write_client_files
from oci_cluster.launcher.connect.tcp_proxy import Connections, check_reachable
from oci_cluster.launcher.context import chosen
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.launcher.session import kinds
from oci_cluster.launcher.show.report import facts_of
from oci_cluster.system.console import Say
from oci_cluster.system.files import not_writable, write_whole
from oci_cluster.system.listeners import is_of_this_user
from oci_cluster.system.process import Signals, die_with_parent


@dataclass(frozen=True)
class Port:
    """A port of a node that is to be reached."""

    number: int
    local: int | None = None
    """The port of this machine that was asked for."""
    name: str = ""
    """What the cluster calls it."""


def parse_port(text: str, known: Mapping[str, int]) -> Port:
    """Return the port that *text* names: a name, a number, or ``HERE:THERE``."""
    here, colon, there = text.rpartition(":")
    try:
        local = parsers.parse_port(here) if colon else None
        if there in known:
            return Port(known[there], local, there)
        number = parsers.parse_port(there)
    except ValueError as error:
        names = ", ".join(sorted(known)) or "none"
        raise UsageError(
            f"--port {text}: {error}; a port is a name of this cluster ({names}), a number, or 8888:6006, yours first"
        ) from error
    return Port(number, local, next((name for name, port in known.items() if port == number), ""))


def url_here(host: str, port: int, number: int, facts: Mapping[str, str]) -> str:
    """Return the URL of main's port *number*, which answers on *port* of *host*.

    Its scheme and path are those of the URL that main tells among its *facts*.
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


# As ssh-keygen writes it. What main tells is data from outside.
_HOST_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]{68}")
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}\$?")
_PLACE = re.compile(r"^  HostName (\S+)\n  Port (\d{1,5})$", re.MULTILINE)
# To a port of this machine, or of its network.
_DIAL_S = 2.0


def write_ssh_config(cluster: Cluster, host: str, port: int, facts: Mapping[str, str]) -> Path:
    """Write a configuration for ``ssh -F``, in which the session has the cluster's name.

    Beside it is the one key that the host may have, as main tells it among its *facts*. One by which somebody else
    may be connected is left to them, and this one has the port in its name.
    """
    key, user = facts.get("ssh_host_key", ""), facts.get("ssh_user", "")
    if not _HOST_KEY.fullmatch(key) or not _USER.fullmatch(user):
        raise BackendError(
            f"{cluster.name} has not published its ssh host key: wait until it is ready; "
            f"scripts/status.sh {cluster.name} shows ssh_host_key then"
        )
    directory = cluster.directory / "ssh"
    path = directory / "config"
    path = directory / f"config-{port}" if _leads_elsewhere(path, host, port) else path
    config = {
        "HostName": host,
        "Port": str(port),
        "User": user,
        "HostKeyAlias": cluster.name,
        "HostKeyAlgorithms": "ssh-ed25519",
        "UserKnownHostsFile": '"{}"'.format(str(directory / "known_hosts").replace("%", "%%")),  # special to ssh
        "GlobalKnownHostsFile": "none",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
    }
    lines = [f"Host {cluster.name}", *(f"  {name} {value}" for name, value in config.items())]
    # What else ssh is told is the user's own.
    lines += ["Host *", "  Include ~/.ssh/config", ""]
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(directory / "known_hosts", f"{cluster.name} {key}\n")
        write_whole(path, "\n".join(lines))
    except OSError as error:
        raise not_writable(directory, error) from error
    return path


def _leads_elsewhere(config: Path, host: str, port: int) -> bool:
    """Return whether *config* leads to another place than this one, where somebody listens."""
    with contextlib.suppress(OSError):  # there is none, or nobody listens there any more
        found = _PLACE.search(config.read_text())
        if found and (found[1], int(found[2])) != (host, port):
            socket.create_connection((found[1], int(found[2])), _DIAL_S).close()
            return True
    return False


# Seconds between two looks whether the cluster still runs: elsewhere each is a request.
_LOOK_S = 15.0
_LOOK_HERE_S = 1.0
# The same for a session that has not started, and its server that does not listen yet: a person waits.
_START_LOOK_S = 2.0
# How long that may take once main runs: what starts it may install packages first, and says so in its log.
_SERVER_S = 300.0


@dataclass
class Connected:
    """One cluster, and the ports of it that are reachable from this machine."""

    backend: Backend
    cluster: Cluster
    plan: Plan
    say: Say
    root: Path = field(default_factory=lambda: PROJECT_ROOT)
    """The checkout that has the framework."""
    connections: Connections = field(init=False)

    def __post_init__(self) -> None:
        self.connections = Connections(
            lambda node, port: self.backend.port_forward(self.cluster, self.plan, node, port, self.say), self.say
        )

    @property
    def kind(self) -> kinds.Kind | None:
        """The kind of the session that main runs, where it runs one."""
        name = self.plan.environment.get(kinds.SETTING, "")
        if not name:
            return None
        kind = kinds.read_kind(self.root, name)
        return replace(kind, port=self.plan.limits.ports.get("SESSION_PORT", kind.port))

    @property
    def token(self) -> str:
        """The session's token; UsageError where another machine has it."""
        if not self.plan.environment.get("SESSION_VERIFIER"):
            return session_token(self.plan.launch_key, self.cluster.launch_id)
        path = self.cluster.directory / TOKEN_FILE
        try:
            return path.read_text()
        except FileNotFoundError:
            raise UsageError(
                f"the token of {self.cluster.name} is on the machine that launched it, and there is no {path}: "
                "run connect.sh there, or bring that file here"
            ) from None

    def known_ports(self) -> dict[str, int]:
        """Return main's ports by their names: the framework's ``*_PORT`` settings, and the session."""
        ports = self.plan.limits.ports.items()
        named = {setting.removesuffix("_PORT").lower().replace("_", "-"): port for setting, port in ports}
        return {**named, **({self.kind.name: self.kind.port} if self.kind else {})}

    def url_in_time(self, port: Port, looks_again: Callable[[], bool]) -> str:
        """Return the URL of main's *port* when it answers.

        *looks_again* waits a little, and returns whether to ask again one that has not answered yet.
        """
        while True:
            try:
                return self.url("MAIN", port, check=True)
            except BackendError:
                if not looks_again():
                    raise

    def url(self, node: str, port: Port, *, check: bool = False) -> str:
        """Make *port* of *node* reachable; return its URL, or a person's command.

        With *check* an answer is needed, and not somebody who listens.
        """
        kind = self.kind if node == "MAIN" and self.kind and port.number == self.kind.port else None
        token = self.token if kind and "{token}" in kind.probe + kind.url + kind.command else ""
        probe = kind.probe.format(token=token) if kind else "/" if port.name == "dashboard" else ""
        is_asked = check or node != "MAIN" or port.number != self._client_port
        host, here = self.connections.reach(node, port.number, port.local, is_asked=is_asked, must_answer=check)
        if check:
            if kind and self.backend.is_this_machine:  # before its server begins, somebody else may listen
                self._refuse_another_user(node, port.number)
            status = check_reachable(host, here, probe)
            if kind and status in {401, 403}:
                raise BackendError(f"what answers there is not this session: it refuses the session's token ({status})")
        if kind is None:
            return url_here(host, here, port.number, self._facts() if node == "MAIN" else {})
        words = {"host": host, "port": here, "token": token, "name": self.cluster.name}
        if "{ssh_config}" in kind.command:
            words["ssh_config"] = shlex.quote(str(write_ssh_config(self.cluster, host, here, self._told())))
        return (kind.url or kind.command).format(**words)

    def client(self, target: Path, *, check: bool = False) -> dict[str, str]:
        """Write client files to *target*; return the variables that a program needs.

        With *check* somebody must listen.
        """
        folder = framework_dir(self.plan.framework, self.root)
        port = client_port(self.plan, folder)
        host, here = self.connections.reach("MAIN", port, is_asked=check, must_answer=check)
        gate = Gate(host, here, url_here(host, here, port, self._facts()), self.connections.reach)
        return write_client_files(self.cluster, self.plan, folder, target, gate)

    def close(self) -> None:
        """End all connections, and what they cost."""
        self.connections.close()

    @property
    def _client_port(self) -> int | None:
        """Main's port for programs outside: to TLS a mere look is a failed handshake."""
        with contextlib.suppress(UsageError, ValueError):  # there is none, or another checkout has the framework
            return client_port(self.plan, framework_dir(self.plan.framework, self.root))
        return None

    def _refuse_another_user(self, node: str, port: int) -> None:
        """Raise BackendError where another user listens, who would get the token.

        While this user's server listens, nobody else can. Asked is the node's own port, also where a forwarder leads
        there: that is this user's in any case. A container's port is nobody else's.
        """
        host, _, _ = self.connections.forward(node, port).address.rpartition(":")
        if host and not is_of_this_user(host, port):
            raise BackendError(
                f"it is not this user's process that listens on port {port} of {host}; SESSION_PORT names another port"
            )

    @cached_property
    def _cluster_dir(self) -> ClusterDir:
        return asked_dir(self.cluster, self.plan)  # one that does not answer is waited for once

    def _told(self) -> dict[str, str]:
        """Return what main tells of itself; ClusterError where nobody can look."""
        ready = self._cluster_dir.read(READY, any_life=True) or {}
        return facts_of(self.backend, self.cluster, self.plan, ready)

    def _facts(self) -> dict[str, str]:
        try:
            return self._told()
        except ClusterError:  # what main says of its URLs is not known; its ports are
            return {}


def connect(line: CommandLine) -> int:
    """Make ports reachable until Ctrl-C or the cluster's end; or name them."""
    signals = Signals(children=False, outlives_terminal=True)
    # A script that is killed tells nobody: without it, nobody could end this, and what it costs.
    die_with_parent(signal.SIGTERM)
    lifecycle, cluster = chosen(line, lambda: signals.received is not None)
    backend, say = lifecycle.backend, lifecycle.say
    with contextlib.ExitStack() as kept:
        kept.callback(backend.close)
        _stop_if_told(signals)
        plan = backend.load(cluster)
        node = line.value("--node", "MAIN")
        is_session = bool(plan.environment.get(kinds.SETTING)) and not line.has("--check")
        _wait_for_start(lifecycle, cluster, node, signals if is_session else None)
        connected = Connected(backend, cluster, plan, say)
        kept.callback(connected.close)
        private = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="oci-cluster-connect-")))
        if line.has("--python") and line.has("--check"):  # no files are left to be named
            connected.client(private, check=True)
            say(f"{cluster.name} is reachable")
        elif line.has("--python"):
            print("export", *(f"{name}={shlex.quote(text)}" for name, text in connected.client(private).items()))
        else:
            looks_again = _until_answer(lifecycle, cluster, signals)
            _show_ports(line, connected, node, private, looks_again)
        _stop_if_told(signals)
        sys.stdout.flush()
        if line.has("--check") or not (line.has("--python") or connected.connections.has_forwarders):
            return 0
        say("Ctrl-C ends the connection; the cluster goes on")
        _stay(lifecycle, cluster, signals, _LOOK_HERE_S if backend.is_this_machine else _LOOK_S)
    return 0


def _wait_for_start(lifecycle: Lifecycle, cluster: Cluster, node: str, signals: Signals | None) -> None:
    """Return when *node* runs; without *signals* it must run already."""
    told = ""
    while (state := _running(lifecycle, cluster, node)).is_waiting:
        why = f": {state.details}" if state.details else ""
        if signals is None:
            command = f"scripts/status.sh {cluster.name}"
            raise UsageError(f"{node} of {cluster.name} has not started yet{why}; {command} says what it waits for")
        _stop_if_told(signals)
        line = f"waiting for {node} of {cluster.name} to start{why}"
        if line != told:
            lifecycle.say(line)
        told = line
        signals.wait(_START_LOOK_S)


def _running(lifecycle: Lifecycle, cluster: Cluster, node: str) -> NodeState:
    states = {state.node: state for state in lifecycle.states(cluster)}
    if node not in states:
        raise UsageError(f"{cluster.name} has no node '{node}'; it has {', '.join(states)}")
    if not states[node].is_running:
        what = f"{node} of {cluster.name}" if lifecycle.is_running(cluster) else cluster.name
        raise UsageError(f"{what} has ended: nothing of it can be reached; scripts/list.sh shows the clusters that run")
    return states[node]


def _until_answer(lifecycle: Lifecycle, cluster: Cluster, signals: Signals) -> Callable[[], bool]:
    """Return what waits a moment for a session's server, and says so once."""
    deadline = time.monotonic() + _SERVER_S
    told: list[str] = []

    def look() -> bool:
        if not told:
            told.append(f"waiting for the session of {cluster.name} to answer, for {_SERVER_S:.0f} s")
            lifecycle.say(told[0])
        signals.wait(_START_LOOK_S)
        _stop_if_told(signals)
        _running(lifecycle, cluster, "MAIN")
        return time.monotonic() < deadline

    return look


def _show_ports(
    line: CommandLine, connected: Connected, node: str, private: Path, looks_again: Callable[[], bool]
) -> None:
    known, kind = connected.known_ports(), connected.kind
    texts = line.given.get("--port") or [_usual(connected, known)]
    for port in [parse_port(text, known) for text in texts]:
        name = port.name or str(port.number)
        is_session = node == "MAIN" and kind is not None and port.number == kind.port and not line.has("--check")
        if is_session:
            url = connected.url_in_time(port, looks_again)
        else:
            url = connected.url(node, port, check=line.has("--check"))
        if line.has("--check"):
            connected.say(f"{name} of {node} is reachable")
        print(url if len(texts) == 1 else f"{name} {url}")
        if line.has("--open") and url.startswith(("http://", "https://")):
            open_in_browser(url, private / f"{port.number}.html")


def _usual(connected: Connected, known: dict[str, int]) -> str:
    if connected.kind:
        return connected.kind.name
    if "dashboard" in known:
        return "dashboard"
    raise UsageError(
        f"which port? --port NAME or --port NUMBER; {connected.cluster.name} has: {', '.join(known) or 'none'}"
    )


def open_in_browser(url: str, page: Path) -> None:
    """Open *url* by a private *page*: a command line would show its token."""
    import webbrowser  # noqa: PLC0415 - where it is asked for

    write_whole(page, f'<meta http-equiv="refresh" content="0; url={html.escape(url)}">')
    webbrowser.open(page.as_uri())


def _stop_if_told(signals: Signals) -> None:
    if signals.received is not None:
        raise StoppedError("stopped")


def _stay(lifecycle: Lifecycle, cluster: Cluster, signals: Signals, look_s: float) -> None:
    looked_at = time.monotonic()
    while signals.received is None:
        signals.wait(look_s)
        if time.monotonic() - looked_at < look_s:
            continue
        looked_at = time.monotonic()
        try:
            if not lifecycle.is_running(cluster):
                lifecycle.say(f"{cluster.name} has ended")
                return
        except ClusterError:  # what does not answer tells nothing
            continue
