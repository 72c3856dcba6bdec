"""How a person gets to a session: told once, when it answers, and open until the session ends."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.errors import ClusterError
from oci_cluster.launcher.connecting import Connected, open_in_browser
from oci_cluster.launcher.kinds import Kind
from oci_cluster.launcher.ports import Port
from oci_cluster.system.console import Say
from oci_cluster.system.files import write_whole

if TYPE_CHECKING:
    from oci_cluster.backends.base import Backend, IsStopped

# How often it is asked whether the session's server answers.
_LOOK_S = 0.2
# What has the address with its token where stderr is no terminal: whoever reads a log must not get in.
URL_FILE = "session-url"
_PAGE = "session-url.html"


class Door:
    """The way to one session, beside who follows its cluster."""

    def __init__(
        self,
        open_backend: Callable[[IsStopped], Backend],
        kind: Kind,
        cluster: Cluster,
        plan: Plan,
        *,
        opens: bool,
        say: Say,
    ) -> None:
        """Prepare it.

        Args:
            open_backend: Returns a backend of the door's own, for a thread of its own; told when waits must end.
            kind: The session's.
            cluster: What was launched.
            plan: What it was launched with.
            opens: Whether the browser opens the URL.
            say: Shows a line.
        """
        self._open_backend = open_backend
        self._kind, self._cluster, self._plan = kind, cluster, plan
        self._opens = opens
        self._say = say
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def ready(self) -> None:
        """Begin to open it, in a thread: the cluster is ready. In another life once more."""
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
            (self._cluster.directory / name).unlink(missing_ok=True)

    def _keep_open(self) -> None:
        try:
            with (
                contextlib.closing(self._open_backend(self._is_over.is_set)) as backend,
                self._connected(backend) as connected,
            ):
                port = Port(int(self._plan.environment["SESSION_PORT"]), name=self._kind.name)
                deadline = time.monotonic() + self._plan.limits.timeout_s
                how = connected.url(
                    "MAIN",
                    port,
                    check=True,
                    looks_again=lambda: time.monotonic() < deadline and not self._is_over.wait(_LOOK_S),
                )
                self._tell(how)
                self._is_over.wait()
        except ClusterError as error:
            if not self._is_over.is_set():
                self._say(f"{self._kind.name} cannot be reached: {error}; connect.sh {self._cluster.name} tries again")

    @contextlib.contextmanager
    def _connected(self, backend: Backend) -> Iterator[Connected]:
        connected = Connected(backend, self._cluster, self._plan, self._say)
        try:
            yield connected
        finally:
            connected.close()

    def _tell(self, how: str) -> None:
        """Show *how* the session is reached: once; and where its token is in that, to a person, and never to a log."""
        directory = self._cluster.directory
        if "{token}" not in self._kind.url + self._kind.command:
            self._say(f"{self._kind.name} answers: {how}")
        elif sys.stderr.isatty():
            self._say(f"{self._kind.name} answers:")
            sys.stderr.write(f"\n  {how}\n\n")
            sys.stderr.flush()
        else:
            write_whole(directory / URL_FILE, f"{how}\n")
            self._say(f"{self._kind.name} answers; how to reach it is in {directory / URL_FILE}")
        if self._opens:
            open_in_browser(how, directory / _PAGE)
