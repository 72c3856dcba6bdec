"""One cluster that was launched, by whomever: what can be seen of it and done to it, by the code of the verbs."""

from __future__ import annotations

import html
import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oci_cluster.api.auth import Auth
from oci_cluster.api.messages import Messages
from oci_cluster.api.place import Place
from oci_cluster.api.running import Bell, Running
from oci_cluster.api.table import table_html
from oci_cluster.backends.base import Backend
from oci_cluster.contract import cluster as contract
from oci_cluster.errors import UsageError
from oci_cluster.launcher.connecting import Connected
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.launcher.logs import Output, Shown, view_logs
from oci_cluster.launcher.ports import parse_port
from oci_cluster.launcher.report import outputs_of, overview, tell
from oci_cluster.system.console import Say

_STOPPED = "stopped by its program"


class Handle:
    """A cluster at a place. Methods may be called by any thread."""

    def __init__(self, place: Place, framework: str, name: str, auth: Auth | None, say: Say | None) -> None:
        """Handle one of *framework* that is not launched yet.

        Args:
            place: Where it is, or will be.
            framework: Its framework.
            name: Its name, where one was asked for.
            auth: Who asks; None: whom the settings name.
            say: Is told of progress.
        """
        self.framework = framework
        self._place = place
        self._asked_name = name
        self._auth = auth
        self._say = Messages(say, self._show)
        self._lock = threading.RLock()
        self._cluster: contract.Cluster | None = None
        self._running: Running | None = None
        self._opened: tuple[Backend, Lifecycle] | None = None
        self._connected: Connected | None = None

    def _show(self) -> None:
        """Show that something has been said."""

    # --- What it is ----------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name; before it is launched the one that was asked for."""
        return self._asked_name if self._cluster is None else self._cluster.name

    @property
    def backend(self) -> str:
        """Where its nodes run."""
        return self._place.backend

    @property
    def project(self) -> Path:
        """The checkout that it is launched from."""
        return self._place.root

    def __repr__(self) -> str:
        """Return what it is, without asking anybody."""
        state = f"name={self.name!r}" if self._cluster is not None else "not launched"
        return f"<{type(self).__name__} {self.framework} on {self.backend}: {state}>"

    # --- Look ----------------------------------------------------------------------------------------------

    def status(self) -> str:
        """Return ``IN_PROGRESS``, ``SUCCEEDED``, ``FAILED`` or ``STOPPED``, or what it waits for in a queue."""
        with self._acting() as (backend, lifecycle, cluster):
            return str(overview(backend, cluster, lifecycle.states(cluster))["state"])

    def details(self) -> dict[str, Any]:
        """Return all that is known of it: what ``status.sh --json`` prints."""
        with self._acting() as (backend, lifecycle, cluster):
            return tell(backend, cluster, lifecycle.states(cluster))

    def logs(self, node: str = "", *, tail: int | None = None) -> str:
        """Return what its nodes have printed, each line after its node's name, in the order of time.

        Args:
            node: Only this one's.
            tail: The last so many lines of each node.

        Raises:
            UsageError: there is no such node.
        """
        out = io.StringIO()
        with self._acting() as (backend, _, _):
            self._view(backend, Shown(node, tail), out)
        return out.getvalue()

    def follow(self, node: str = "", *, out: Output | None = None) -> None:
        """Print what its nodes print, to its end; an interrupt ends this, and not the cluster.

        Args:
            node: Only this one's.
            out: Where to; None: stdout.

        Raises:
            UsageError: there is no such node.
        """
        self._launched()
        backend = self._place.open()  # of its own: others must not wait until the cluster has ended
        try:
            self._view(backend, Shown(node, follow=True), out or sys.stdout)
        finally:
            backend.close()

    def _view(self, backend: Backend, shown: Shown, out: Output) -> None:
        lifecycle, cluster = Lifecycle(backend, self._place.root, self._say), self._launched()
        view_logs(backend, cluster, lifecycle.states, shown, out=out, signals=Bell(lambda: None), say=self._say)

    @property
    def outputs(self) -> Path | str:
        """Where its files are when it has ended: a folder of this machine, or a URL; empty where it left none."""
        with self._acting() as (backend, _, cluster):
            found = outputs_of(cluster, backend.load(cluster))
        return Path(found) if found and "://" not in found else found

    def url(self, port: str | int = "dashboard", node: str = "MAIN") -> str:
        """Make a port of a node reachable on this machine until the cluster is ended; return the URL under which it is.

        Args:
            port: As ``connect.sh --port`` has it: a name, a number, or ``HERE:THERE``.
            node: Its name.

        Raises:
            UsageError: there is no such port.
            BackendError: there is no way to it, or nobody answers.
        """
        connected = self._connect()
        return connected.url(node, parse_port(str(port), connected.known_ports()), check=True)

    def client_files(self, target: Path) -> dict[str, str]:
        """Write to *target*, a private folder, what a program here needs to take part; return its variables."""
        return self._connect().client(target)

    def _connect(self) -> Connected:
        cluster = self._launched()
        with self._lock:
            if self._connected is None:
                backend = self._place.open()  # of its own: connections are served by threads
                self._connected = Connected(backend, cluster, backend.load(cluster), self._say, self._place.root)
            return self._connected

    def _disconnect(self) -> None:
        with self._lock:
            connected, self._connected = self._connected, None
        if connected is not None:
            connected.close()
            connected.backend.close()

    def _repr_html_(self) -> str:
        """Return a table of its nodes."""
        if self._cluster is None:
            return f"<code>{html.escape(repr(self))}</code>"
        return table_html(self.details(), self._say.last)

    # --- Change --------------------------------------------------------------------------------------------

    def scale(self, workers: int | str) -> int:
        """Have so many workers, or with ``+1`` and ``-1`` so many more or fewer; return how many there are then.

        Raises:
            UsageError: so many cannot be, or it has ended.
        """
        with self._acting() as (_, lifecycle, cluster):
            return lifecycle.scale(cluster, str(workers))

    def down(self, *, delete: bool = False) -> None:
        """End it, and return when nothing of it runs; one that has ended, or was not launched, is as good.

        Args:
            delete: Remove its logs and outputs as well.

        Raises:
            BackendError: something did not end; names it.
        """
        if self._cluster is None:
            return
        self._disconnect()
        with self._acting() as (_, lifecycle, cluster):
            lifecycle.stop(cluster, reason=_STOPPED)
        if self._running is not None:
            self._running.wait_until_over()
        if delete:
            with self._acting() as (_, lifecycle, cluster):
                lifecycle.stop(cluster, delete=True)

    # --- What acts on it -----------------------------------------------------------------------------------

    def _launched(self) -> contract.Cluster:
        if self._cluster is None:
            msg = f"this {type(self).__name__} is not launched; call up()"
            raise UsageError(msg)
        return self._cluster

    @contextmanager
    def _acting(self) -> Iterator[tuple[Backend, Lifecycle, contract.Cluster]]:
        """Yield what one thread at a time acts through."""
        cluster = self._launched()
        with self._lock:
            yield (*self._open(), cluster)

    def _open(self) -> tuple[Backend, Lifecycle]:
        """Return a backend of this object's own, and what acts there: the thread that follows it has another."""
        if self._auth is not None:
            self._auth.settings()  # raises where it has logged out
        if self._opened is None:
            backend = self._place.open()
            self._opened = backend, Lifecycle(backend, self._place.root, self._say)
        return self._opened
