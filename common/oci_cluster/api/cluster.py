"""Clusters and jobs as objects, by the code of the verbs."""

from __future__ import annotations

import contextlib
import html
import importlib.util
import io
import os
import re
import runpy
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oci_cluster.api.background import Messages, Running, Waiter
from oci_cluster.api.place import Place
from oci_cluster.api.request import asked, line_of, no_dask
from oci_cluster.contract.storage.retry import poll_delays
from oci_cluster.errors import ClusterFailedError, ExitCode, StoppedError, TimedOutError, UsageError
from oci_cluster.launcher.connect.connect import Connected, parse_port
from oci_cluster.launcher.follow.follower import Follower
from oci_cluster.launcher.launch.launch import launched, placed
from oci_cluster.launcher.launch.plan import make_plan
from oci_cluster.launcher.lifecycle import Lifecycle, started
from oci_cluster.launcher.show.logs import Output, Shown, view_logs
from oci_cluster.launcher.show.report import FAILED, GONE, outputs_of, overview, status_text, tell

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from oci_cluster.api.dask import DaskCluster
    from oci_cluster.api.request import Options, PlaceOptions
    from oci_cluster.backends.base import Backend
    from oci_cluster.contract.cluster import Cluster as Launched

# What a client of distributed asks of a cluster.
_DASK = ("scheduler_address", "security", "dashboard_link", "loop")
_NODE = re.compile(r"(MAIN|(?:WORKER|PS)_\d+)\b")


class Cluster:
    """A cluster: it ends with its entry point, or without one stays until ended.

    It is launched by :meth:`up`, or by ``with``, which also ends it. One that this process has launched ends with this
    process, whatever ends that, unless it is to be kept. Methods may be called by any thread.
    """

    def __init__(self, framework: str, workers: int, **options: Unpack[Options]) -> None:
        """Note what is to be launched; nothing happens yet.

        *framework* is a folder of the project: ``dask``, ``pytorch``, or your own. *workers* are beside main;
        0: main alone, which computes. :class:`oci_cluster.api.request.Options` has each of *options*.
        """
        self.framework = framework
        self._auth, self._keep = options.get("auth"), options.get("keep", False)
        self._line = line_of(framework, workers, options)
        self._settings = {name: str(value) for name, value in (options.get("settings") or {}).items()}
        self._place = Place.of(options.get("backend", ""), options.get("project"), self._settings, self._auth)
        self.backend, self.project = self._place.backend, self._place.root
        self._say = Messages(options.get("say"))
        self._lock = threading.RLock()
        self._cluster: Launched | None = None
        self._is_deleted = False
        self._running: Running | None = None
        self._opened: Lifecycle | None = None
        self._connected: Connected | None = None
        self._dask: DaskCluster | None = None

    @classmethod
    def find(cls, name: str = "", **options: Unpack[PlaceOptions]) -> Self:
        """Return the cluster called *name*, whoever launched it, or the only one that runs.

        The running one comes before the latest. This process does not end it, unless it is told to.
        """
        found = cls("", 0, keep=True, **options)
        found._cluster = found._open().choose(name)
        found.framework = found._cluster.framework
        return found

    def up(self) -> Self:
        """Launch it, and return when its nodes have started; a failure leaves nothing."""
        with self._lock:
            if self._cluster is not None:
                raise UsageError(f"{self.name} has been launched already; make another {type(self).__name__}(...)")
            is_for_clients = self.framework == "dask" and self._line.has("--keep") and not self._keep
            if is_for_clients and importlib.util.find_spec("distributed") is None:
                raise no_dask()
            backend = self._place.open()
            try:
                self._cluster = self._launch(backend)
            finally:
                if self._running is None:  # else the thread that follows it has the backend
                    backend.close()
        return self

    def _launch(self, backend: Backend) -> Launched:
        say, place, lifecycle = self._say, self._place, Lifecycle(backend, self._place.root, self._say)
        request, most = asked(self._line, self._settings, place, say), backend.max_workers
        environ = {**os.environ, **{name: text for name, text in place.own.items() if name in os.environ}}
        plan = make_plan(request, environ, root=place.root, cwd=Path.cwd(), max_workers=most, say=say)
        plan = backend.prepare(placed(plan, lifecycle), say)
        with contextlib.ExitStack() as stack:
            launch = launched(plan, lifecycle, is_followed=not self._keep, own=place.own)
            cluster, reaper = stack.enter_context(launch)
            say(started(backend, cluster, plan))
            if not self._keep:
                running = Running(backend, cluster, plan, say)
                running.follow(reaper, stack)
                self._running = running
        return cluster

    def down(self, *, delete: bool = False) -> None:
        """End it, and return when nothing of it runs; with *delete* remove its files."""
        if self._dask is not None:
            self._dask.disconnect()
        if self._cluster is None or self._is_deleted:
            return
        with self._lock:
            if (connected := self._connected) is not None:
                self._connected = None
                connected.close()
                connected.backend.close()
        if self._running is None or self._running.code is None:  # else its files may have been deleted by somebody
            with self._acting() as (lifecycle, cluster):
                lifecycle.stop(cluster, reason="stopped by its program")
        if self._running is not None:
            self._running.wait_until_over()
        if delete:
            with self._acting() as (lifecycle, cluster):
                lifecycle.stop(cluster, delete=True)
            self._is_deleted = True

    def __enter__(self) -> Self:
        return self if self._cluster is not None else self.up()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End it; one that is to be kept only where something was raised."""
        if kind is not None or not self._keep:
            self.down()

    def scale(self, workers: int | str) -> int:
        """Have so many workers, or ``+1`` and ``-1``; return how many there are then."""
        with self._acting() as (lifecycle, cluster):
            return lifecycle.scale(cluster, str(workers))

    def wait_ready(self, timeout: float | None = None) -> Self:
        """Return when all its nodes work together; raise as :meth:`wait` where it has ended.

        TimedOutError says that it is not ready after *timeout* seconds, and goes on; its own limits hold without.
        """
        cluster, running = self._launched(), self._running
        if running is None:  # looked at as `launch.sh --detach --wait` does
            lifecycle, waiter = self._open(), self._watch(timeout, "is not ready")
            backend = lifecycle.backend
            plan = backend.load(cluster)  # in this thread, which from here on sees what its nodes tell
            code = Follower(backend, cluster, plan, say=self._say, signals=waiter).until_ready()
            is_ready = code is None and lifecycle.is_running(cluster)  # it may have been ready, and have ended since
        else:
            if not running.begun.wait(timeout):
                raise self._too_late(timeout, "is not ready")
            if running.unseen is not None:
                raise running.unseen
            is_ready = running.is_ready and not running.over.is_set()
        if not is_ready:
            self.wait()
        return self

    def wait(self, timeout: float | None = None) -> int:
        """Return 0 when it has ended with success.

        TimedOutError says that it goes on after *timeout* seconds, StoppedError that it was ended on purpose;
        ClusterFailedError has another exit code, the reason, and the node that failed.
        """
        cluster, running = self._launched(), self._running
        if running is None:
            self._look_until_end(cluster, timeout)
        elif not running.over.wait(timeout):
            raise self._too_late(timeout, "has not ended")
        elif running.failure is not None:
            raise running.failure
        found = self.details()
        if found["state"] == GONE:
            raise _failed(cluster, ExitCode.LOST, found)
        code = int(found["exit_code"]) if running is None or running.code is None else running.code
        if code:
            raise _failed(cluster, code, found)
        return code

    def _look_until_end(self, cluster: Launched, timeout: float | None) -> None:
        lifecycle, waiter = self._open(), self._watch(timeout, "has not ended")
        poll_s = lifecycle.backend.poll_s
        for delay in poll_delays(max(poll_s, 1.0), first_s=poll_s):
            if not lifecycle.is_running(cluster):
                return
            waiter.wait(delay)

    def _watch(self, timeout: float | None, what: str) -> Waiter:
        """Return what waits for *timeout* seconds at most, and then raises that it *what*."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout

        def check() -> None:
            if time.monotonic() > deadline:
                raise self._too_late(timeout, what)

        return Waiter(check)

    def _too_late(self, timeout: float | None, what: str) -> TimedOutError:
        return TimedOutError(f"{self.name} {what} after {timeout:g} s, and goes on; wait again, or end it: down()")

    @property
    def name(self) -> str:
        """Its name; before it is launched the one that was asked for."""
        return self._line.value("--name") if self._cluster is None else self._cluster.name

    def __repr__(self) -> str:
        state = f"name={self.name!r}" if self._cluster is not None else "not launched"
        return f"<{type(self).__name__} {self.framework} on {self.backend}: {state}>"

    def status(self) -> str:
        """Return ``IN_PROGRESS``, ``SUCCEEDED``, ``FAILED`` or ``STOPPED``, or what it waits for in a queue."""
        with self._acting() as (lifecycle, cluster):
            return str(overview(lifecycle.backend, cluster, lifecycle.states(cluster))["state"])

    def details(self) -> dict[str, Any]:
        """Return all that is known of it: what ``status.sh --json`` prints."""
        with self._acting() as (lifecycle, cluster):
            return tell(lifecycle.backend, cluster, lifecycle.states(cluster))

    def logs(self, node: str = "", *, tail: int | None = None) -> str:
        """Return what its nodes, or one *node*, have printed, or the *tail*."""
        out = io.StringIO()
        with self._acting() as (lifecycle, _):
            self._view(lifecycle.backend, Shown(node, tail), out)
        return out.getvalue()

    def follow(self, node: str = "", *, out: Output | None = None) -> None:
        """Print its logs to *out*, else stdout; an interrupt ends this alone."""
        self._launched()
        with contextlib.closing(self._place.open()) as backend:  # others must not wait until the cluster has ended
            self._view(backend, Shown(node, follow=True), out or sys.stdout)

    def _view(self, backend: Backend, shown: Shown, out: Output) -> None:
        view_logs(backend, self._launched(), shown, out=out, signals=Waiter(), say=self._say)

    @property
    def outputs(self) -> Path | str:
        """The folder or URL of its files, when it has ended; or empty."""
        with self._acting() as (lifecycle, cluster):
            found = outputs_of(cluster, lifecycle.backend.load(cluster))
        return Path(found) if found and "://" not in found else found

    def url(self, port: str | int = "dashboard", node: str = "MAIN") -> str:
        """Make a port reachable here until the cluster is ended; return its URL.

        *port* is a name, a number, or ``HERE:THERE``, as ``connect.sh --port`` has it.
        """
        connected = self._connect()
        return connected.url(node, parse_port(str(port), connected.known_ports()), check=True)

    def client_files(self, target: Path) -> dict[str, str]:
        """Write client files to *target*, a private folder; return a program's variables."""
        return self._connect().client(target)

    @contextlib.contextmanager
    def client_environment(self) -> Iterator[dict[str, str]]:
        """Let this process take part until the block ends; yield the variables for that."""
        self.wait_ready()
        # Tells the framework's modules, where they are imported already, that variables have changed.
        module = self.project / self.framework / "client" / "imported.py"
        with tempfile.TemporaryDirectory(prefix="oci-cluster-client-") as target:
            variables = self.client_files(Path(target))
            before = {name: os.environ.get(name) for name in variables}
            _change_environment(variables, module)
            try:
                yield variables
            finally:
                _change_environment(before, module)

    def _connect(self) -> Connected:
        cluster = self._launched()
        with self._lock:
            if self._connected is None:
                backend = self._place.open()  # of its own: connections are served by threads
                self._connected = Connected(backend, cluster, backend.load(cluster), self._say, self._place.root)
            return self._connected

    @property
    def dask(self) -> DaskCluster:
        """It as ``distributed`` knows clusters: a :class:`distributed.deploy.Cluster`; waits until it is ready."""
        from oci_cluster.api import dask  # noqa: PLC0415 - distributed need not be there

        if self._dask is None:
            self._dask = dask.connected(self)
        return self._dask

    def client(self) -> Any:
        """Return a ``distributed.Client`` of it; waits until it is ready."""
        if self._running is not None and self._running.over.is_set():
            self.wait_ready()  # tells how it has ended; a client would look for it for half a minute
        return self.dask.get_client()

    def adapt(self, minimum: int, maximum: int, **options: Any) -> Any:
        """Have Dask decide the number of workers, as long as this process lives.

        Other *options* are those of ``distributed.deploy.Adaptive``.
        """
        return self.dask.adapt(minimum=minimum, maximum=maximum, **options)

    def __getattr__(self, name: str) -> Any:
        """Return what ``Client(cluster)`` asks of a cluster."""
        if name in _DASK and self.__dict__.get("framework") == "dask":
            return getattr(self.dask, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __await__(self) -> Any:
        """Be awaited by ``Client(cluster)``, which is what it does first."""
        return self.dask.__await__()

    async def close(self) -> None:
        """End it: what ``client.shutdown()`` does."""
        await self.dask.close_all()

    def _repr_html_(self) -> str:
        if self._cluster is None:
            return f"<code>{html.escape(repr(self))}</code>"
        return f"<pre>{html.escape(status_text(self.details()))}</pre>"

    def _launched(self) -> Launched:
        if self._cluster is None:
            raise UsageError(f"this {type(self).__name__} is not launched; call up()")
        return self._cluster

    @contextlib.contextmanager
    def _acting(self) -> Iterator[tuple[Lifecycle, Launched]]:
        """Yield what one thread at a time acts through."""
        cluster = self._launched()
        with self._lock:
            yield self._open(), cluster

    def _open(self) -> Lifecycle:
        if self._auth is not None:
            self._auth.settings()  # raises where it has logged out
        if self._opened is None:
            self._opened = Lifecycle(self._place.open(), self._place.root, self._say)
        return self._opened


class Job(Cluster):
    """A script and the cluster that is made for it, and ends with it."""

    def __init__(self, framework: str, workers: int, **options: Unpack[Options]) -> None:
        """Note what is to be run; ``entry`` or ``module`` must be among *options*."""
        if not (options.get("entry") or options.get("module")):
            raise UsageError("a Job runs a script; name it: entry='train.py', or module='package.train'")
        super().__init__(framework, workers, **options)

    submit, cancel = Cluster.up, Cluster.down


def _failed(cluster: Launched, code: int, found: Mapping[str, Any]) -> ClusterFailedError | StoppedError:
    lost = "MAIN was lost" if code == ExitCode.LOST else "no reason is known"
    reason = str(found.get("reason") or found.get("unreadable") or lost)
    if code == ExitCode.STOPPED and found["state"] != FAILED:
        return StoppedError(f"{cluster.name} was ended: {reason}")
    named = _NODE.match(reason)
    failed = [node["node"] for node in found["nodes"] if node.get("exit_code") == code]
    node = named[1] if named else (failed[0] if len(failed) == 1 else "")
    msg = f"{cluster.name} ended with {code} ({reason}); what its nodes have printed: logs()"
    return ClusterFailedError(msg, exit_code=code, reason=reason, node=node)


def _change_environment(variables: Mapping[str, str | None], module: Path) -> None:
    """Set *variables*, None: unset; then run a framework's *module*, if there is one."""
    for name, text in variables.items():
        os.environ.pop(name, None)
        if text is not None:
            os.environ[name] = text
    if module.is_file():
        runpy.run_path(str(module))
