"""The verb ``session``: a cluster whose main runs a server for one person."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from oci_cluster.backends.base import Backend, IsStopped
from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.contract.session import TOKEN_FILE, verifier_of
from oci_cluster.contract.settings.settings_files import (
    PROJECT_ROOT,
    SettingsReader,
    framework_defaults,
    framework_dir,
    read_config,
)
from oci_cluster.contract.storage.hanging_disk import asked, asked_dir
from oci_cluster.errors import ClusterError, UsageError
from oci_cluster.launcher.args.command_line import CommandLine
from oci_cluster.launcher.connect.connect import Connected, Port, open_in_browser
from oci_cluster.launcher.context import open_named, opened
from oci_cluster.launcher.launch.launch import launch, planned, request_of
from oci_cluster.launcher.launch.plan import Request
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.launcher.session.kinds import SETTING, Kind, read_kind
from oci_cluster.launcher.show.report import outputs_of
from oci_cluster.system.console import Say, program, say_to_stderr
from oci_cluster.system.files import at_home, write_whole
from oci_cluster.system.text import printable

# A day's work, and a long lunch: what nobody uses any more costs no longer.
_LIMITS = {"TTL": "8h", "IDLE_LIMIT": "1h"}
# A public key as ssh-keygen writes it: its kind, the key, and a comment that nobody needs.
_PUBLIC_KEY = re.compile(r"((?:sk-)?(?:ssh|ecdsa)-[a-z0-9@.-]{3,60} [A-Za-z0-9+/]{40,20000}={0,3})(?:[ \t].*)?")
_PUBLIC_KEYS = "~/.ssh/id_*.pub"


def run_session(line: CommandLine) -> int:
    """Launch a session, tell how to reach it, follow it; return its exit code."""
    kind = read_kind(PROJECT_ROOT, line.words[0])
    session = _Session(line, kind)
    session.check()
    if line.has("--in"):
        session.cluster_variables = cluster_variables(line, kind)
    code = launch(line, session.plan, session.attend)
    if code == 0 and line.has("--detach"):
        say_to_stderr(program())(f"connect.sh {session.name} prints how to reach it; it {session.limits}")
    return code


@dataclass
class _Session:
    line: CommandLine
    kind: Kind
    cluster_variables: Mapping[str, str] = field(default_factory=dict)
    """What main is given of the cluster that it is beside."""
    name: str = ""
    limits: str = ""
    """When it ends by itself, in words."""

    def check(self) -> None:
        """Refuse what this kind has no use for."""
        line, kind = self.line, self.kind
        if line.has("--in") and not kind.attaches_to:
            raise UsageError(
                f"--in: a session of {kind.name} is not beside a cluster; connect.sh reaches the ports of one"
            )
        if line.has("--key") and not _is_ssh(kind):
            raise UsageError(f"--key is for sessions of ssh; {kind.name} is reached by a token: leave it out")
        if line.has("--open") and (not kind.url or line.has("--detach")):
            why = "no browser opens it" if not kind.url else "with --detach nobody waits for it: connect.sh NAME --open"
            raise UsageError(f"--open: {kind.name}: {why}")

    def plan(self, line: CommandLine, backend: Backend) -> Plan:
        """Return the plan of the session."""
        framework, workers = line.value("--framework", "dask"), line.value("--workers", "0")
        request = request_of(replace(line, words=[framework, workers], rest=[]), backend.name)
        typed = dict(pair.partition("=")[::2] for pair in request.environment)
        settings, session = self._settings(request, typed), self._given_to_main(typed)
        request = replace(request, settings=settings, session=session)
        plan = planned(request, backend, say_to_stderr(program()))
        self._check_workers(plan)
        if backend.shows_key:
            token = secrets.token_hex(32)
            told = {**plan.environment, "SESSION_VERIFIER": verifier_of(token)}
            plan = replace(plan, environment=told, kept={TOKEN_FILE: token})
        self.name = plan.name
        ttl, idle = plan.environment.get("TTL", "0"), plan.environment.get("IDLE_LIMIT", "0")
        ends = [f"after {ttl}"] if ttl != "0" else []
        ends += [f"after {idle} without use"] if idle != "0" else []
        self.limits = f"ends {', or '.join(ends)}" if ends else "does not end by itself"
        return plan

    def _settings(self, request: Request, typed: Mapping[str, str]) -> dict[str, str]:
        line, settings = self.line, dict(request.settings)
        if line.has("--idle"):
            settings["IDLE_LIMIT"] = line.value("--idle")
        if len(line.words) == 2:
            settings["CLUSTER_NAME"] = line.words[1]
        chosen = SettingsReader(settings, typed, os.environ, read_config(PROJECT_ROOT))
        settings |= {name: text for name, text in _LIMITS.items() if not chosen.text(name)}
        # Main alone is enough; a framework's own minimum is meant for training.
        return {**settings, "EPHEMERAL": "1", **({"MIN_WORKERS": "0"} if request.workers.strip("0") == "" else {})}

    def _given_to_main(self, typed: Mapping[str, str]) -> dict[str, str]:
        own = {name: typed.get(name, text) for name, text in self.kind.settings.items()}
        keys = {"SSH_AUTHORIZED": ",".join(public_keys(self.line.given.get("--key", [])))} if _is_ssh(self.kind) else {}
        return {**own, **keys, **self.cluster_variables, SETTING: self.kind.name}

    def _check_workers(self, plan: Plan) -> None:
        """Refuse workers where all nodes run the entry point."""
        defaults = framework_defaults(framework_dir(plan.framework, PROJECT_ROOT))
        runs_on_all = defaults.get("ENTRY_ON") == "all" or defaults.get("GANG") == "1"
        if runs_on_all and len(plan.nodes) > 1:
            raise UsageError(
                f"--workers: a session of {plan.framework} has only main; workers are for --framework dask"
            )

    @contextlib.contextmanager
    def attend(self, cluster: Cluster, plan: Plan) -> Iterator[Callable[[], None]]:
        """Tell how the session is reached, when it is ready."""
        say = say_to_stderr(program())
        say(f"a session of {self.kind.name}, which {self.limits}; Ctrl-C ends it")
        opens = self.line.has("--open")
        door = Door(
            lambda is_stopped: open_named(self.line, is_stopped), self.kind, cluster, plan, opens=opens, say=say
        )
        try:
            yield door.ready
        finally:
            door.close()


def _is_ssh(kind: Kind) -> bool:
    return "{ssh_config}" in kind.command


def public_keys(files: list[str]) -> list[str]:
    """Return the public keys in *files*, or in ``~/.ssh``, without comments."""
    home = at_home("~/.ssh")
    paths = [at_home(file) for file in files] or sorted(home.glob("id_*.pub"))
    if not paths:
        raise UsageError(
            f"there is no {_PUBLIC_KEYS}; make a key with ssh-keygen -t ed25519, or name one: --key FILE.pub"
        )
    return [_public_key(path) for path in paths]


def _public_key(path: Path) -> str:
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise UsageError(
            f"--key {path} cannot be read: {error.strerror}; name the file with your public key, such as id_ed25519.pub"
        ) from error
    if "PRIVATE KEY" in text:
        raise UsageError(f"--key {path} is a private key, which stays with you; name the public one: {path}.pub")
    if not (found := _PUBLIC_KEY.fullmatch(text.strip())):
        raise UsageError(
            f"--key {path} holds no single public key as ssh-keygen writes it, such as 'ssh-ed25519 AAAA... me@here'"
        )
    return found[1]


# How often it is asked whether the session's server answers.
_LOOK_S = 0.2
# What has the address with its token where stderr is no terminal: whoever reads a log must not get in.
URL_FILE = "session-url"
_PAGE = "session-url.html"


@dataclass
class Door:
    """The way to one session, beside who follows its cluster."""

    open_backend: Callable[[IsStopped], Backend]
    """Returns a backend for a thread of its own."""
    kind: Kind
    cluster: Cluster
    plan: Plan
    opens: bool = field(kw_only=True)
    say: Say = field(kw_only=True)
    _is_over: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def ready(self) -> None:
        """Begin to open it, in a thread; in another life once more."""
        self.close()
        self._is_over.clear()
        self._thread = threading.Thread(target=self._keep_open, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close it."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        for name in (URL_FILE, _PAGE):
            (self.cluster.directory / name).unlink(missing_ok=True)

    def _keep_open(self) -> None:
        try:
            with (
                contextlib.closing(self.open_backend(self._is_over.is_set)) as backend,
                contextlib.closing(Connected(backend, self.cluster, self.plan, self.say)) as connected,
            ):
                port = Port(int(self.plan.environment["SESSION_PORT"]), name=self.kind.name)
                deadline = time.monotonic() + self.plan.limits.timeout_s

                def looks_again() -> bool:
                    return time.monotonic() < deadline and not self._is_over.wait(_LOOK_S)

                self._tell(connected.url_in_time(port, looks_again))
                self._is_over.wait()
        except ClusterError as error:
            if not self._is_over.is_set():
                self.say(f"{self.kind.name} cannot be reached: {error}; connect.sh {self.cluster.name} tries again")

    def _tell(self, how: str) -> None:
        """Show *how* the session is reached; its token never to a log."""
        directory = self.cluster.directory
        if "{token}" not in self.kind.url + self.kind.command:
            self.say(f"{self.kind.name} answers: {how}")
        elif sys.stderr.isatty():
            self.say(f"{self.kind.name} answers:")
            sys.stderr.write(f"\n  {how}\n\n")
            sys.stderr.flush()
        else:
            write_whole(directory / URL_FILE, f"{how}\n")
            self.say(f"{self.kind.name} answers; how to reach it is in {directory / URL_FILE}")
        if self.opens:
            open_in_browser(how, directory / _PAGE)


def cluster_variables(line: CommandLine, kind: Kind) -> dict[str, str]:
    """Return what main of a session is given of the cluster that ``--in`` names.

    TensorBoard shows what this machine can read: it is then a session of this machine, wherever the cluster is.
    """
    say = say_to_stderr(program())
    with contextlib.closing(opened(line)) as backend:
        lifecycle = Lifecycle(backend, PROJECT_ROOT, say)
        cluster = lifecycle.choose(line.value("--in"))
        plan = backend.load(cluster)
        if kind.attaches_to == "dask":
            return _client_of(lifecycle, cluster, plan)
        place = _outputs(cluster, plan, is_running=lifecycle.is_running(cluster))
    say(f"showing {printable(place)}")
    line.given["--backend"] = ["local"]
    return {"IN_OUTPUTS": place}


def _client_of(lifecycle: Lifecycle, cluster: Cluster, plan: Plan) -> dict[str, str]:
    backend = lifecycle.backend
    are_here = all(node.address.startswith("127.") for node in plan.nodes)  # processes of this machine
    if not (backend.is_this_machine and backend.is_free_to_ask and are_here):
        raise UsageError(
            f"--in {cluster.name}: nodes of another cluster do not reach a scheduler on {backend.name}; "
            f"run the notebook on main instead: session.sh jupyter --workers N, or on your machine: "
            f"connect.sh {cluster.name} --python"
        )
    if plan.framework != "dask" or "DASHBOARD_PORT" not in plan.limits.ports:
        raise UsageError(
            f"--in {cluster.name}: Client() connects to clusters of Dask, and this one is of {plan.framework}"
        )
    if not lifecycle.is_running(cluster):
        raise UsageError(f"--in {cluster.name}: it has ended; list.sh shows the clusters that run")
    with contextlib.closing(Connected(backend, cluster, plan, lifecycle.say)) as connected:
        host, port = connected.connections.reach("MAIN", plan.limits.ports["DASHBOARD_PORT"])
        target = cluster.directory / "client"
        target.mkdir(mode=0o700, exist_ok=True)
        variables = connected.client(target)
    return {**variables, "IN_DASHBOARD": f"{host}:{port}", "SESSION_ALONE": "1"}


def _outputs(cluster: Cluster, plan: Plan, *, is_running: bool) -> str:
    if place := outputs_of(cluster, plan):
        return place
    try:
        here = asked_dir(cluster, plan).local_path
        if here is not None and asked(cluster, plan, here.is_dir):  # nothing has been written, yet
            return str(Path(plan.environment.get("OUTPUT_DIR") or here / "outputs"))
        if here is None and is_running and "://" in plan.url and not plan.url.startswith("main:"):
            return f"{plan.url}/outputs"
    except ClusterError:  # this machine does not read its work dir
        pass
    why = "they come here when it has ended" if is_running else "it has left none"
    raise UsageError(f"--in {cluster.name}: there are no outputs to show: {why}")
