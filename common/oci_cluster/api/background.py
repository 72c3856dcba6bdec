"""Clusters that this process follows, each in a thread of its own."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable

from oci_cluster.backends.base import Backend, LogsInPlace
from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.errors import ClusterError
from oci_cluster.launcher.follow.follower import Follower
from oci_cluster.launcher.launch.cluster_reaper import Reaper
from oci_cluster.launcher.show.logs import NoLogs
from oci_cluster.system.console import LastingOutput, Say
from oci_cluster.system.redaction import redact

LOGGER = logging.getLogger("oci_cluster")
# How a line begins that somebody must read who reads nothing else: something failed, or may still cost money.
_URGENT = ("NOT ENDED", "error:")


class Messages:
    """Says lines of progress; passwords of URLs are hidden."""

    def __init__(self, say: Say | None) -> None:
        self._say = say

    def __call__(self, text: str) -> None:
        """Say one line; after a failure of *say*, without it."""
        line = redact(text)
        if self._say is not None:
            try:
                self._say(line)
            except Exception as error:  # noqa: BLE001 - somebody's function: no cluster must end for it, or stay
                self._say = None
                self(f"error: the function that was given with say= has failed ({error!r}); it gets no more lines")
                self(line)
        elif LOGGER.hasHandlers():
            LOGGER.log(logging.WARNING if line.startswith(_URGENT) else logging.INFO, "%s", line)
        else:
            with contextlib.suppress(OSError, ValueError):  # nobody is left who could be told
                sys.stderr.write(f"oci_cluster: {line}\n")


# How long the thread of a cluster that has been ended may take to bring what it leaves.
_LAST_S = 60.0


class Waiter:
    """Waits for a follower; nobody stops it."""

    def __init__(self, on_round: Callable[[], object] = lambda: None) -> None:
        """Call *on_round* before each wait."""
        self.received: int | None = None
        self._rung = threading.Event()
        self._on_round = on_round

    def wait(self, seconds: float) -> None:
        """Wait *seconds*, less if :meth:`ring` is called."""
        self._on_round()
        self._rung.wait(seconds)
        self._rung.clear()

    def ring(self) -> None:
        """End the wait."""
        self._rung.set()


class Running:
    """One cluster that is followed to its end."""

    def __init__(self, backend: Backend, cluster: Cluster, plan: Plan, say: Messages) -> None:
        self.begun, self.over, self.is_ready = threading.Event(), threading.Event(), False
        """Set when a wait for ready is over; and when it has ended, and what it leaves has been brought."""
        self.code: int | None = None
        """The exit code, when it has ended."""
        self.failure: BaseException | None = None
        """Why it could not be followed to its end."""
        self.unseen: ClusterError | None = None
        """Why nobody may see how far it is."""
        self._backend, self._cluster, self._plan, self._say = backend, cluster, plan, say
        self._waiter = Waiter()

    def follow(self, reaper: Reaper, launched: contextlib.ExitStack) -> None:
        """Begin; *launched* is left when the cluster has ended, or cannot be followed."""
        self._reaper, self._launched = reaper, launched.pop_all()
        with _lock:
            _followed[self] = os.getpid()
        try:  # a daemon: the interpreter's end must not wait for a cluster that nobody ends
            threading.Thread(target=self._run, name=f"oci_cluster {self._cluster.name}", daemon=True).start()
        except BaseException:  # an interrupt, just now
            _followed.pop(self, None)
            with self._launched:
                raise

    def wait_until_over(self) -> None:
        """Return when the end is known, and what the cluster leaves has been brought."""
        self._waiter.ring()
        self.over.wait()

    def _run(self) -> None:
        with contextlib.closing(self._backend):
            try:
                with self._launched:
                    self.code = self._to_the_end()
            except BaseException as error:  # noqa: BLE001 - told to whoever waits
                self.failure = error
                self._say(f"error: {self._cluster.name} could not be followed to its end: {error}")
            with _lock:  # before anybody is told: who ends the program then has forgotten nothing
                _followed.pop(self, None)
            self.over.set()
            self.begun.set()

    def _to_the_end(self) -> int:
        self._backend.load(self._cluster)  # in this thread, which from here on sees what its nodes tell
        follower = Follower(self._backend, self._cluster, self._plan, say=self._say, signals=self._waiter)
        code = None
        try:
            code = follower.until_ready()
            self.is_ready = code is None
        except ClusterError as error:
            self.unseen = error
        if self.is_ready or self.unseen:
            self.begun.set()
        if code is not None:
            return follower.conclude(code)
        logs = self._cluster.directory / "logs"
        return follower.run(NoLogs(logs, [], LastingOutput(lambda _: None)), LogsInPlace(logs))

    def end_at_exit(self) -> None:
        """End the cluster of a program that ends, by its reaper: threads cannot start."""
        self._say(f"ending {self._cluster.name}, which still runs; end clusters with down(), or keep them: keep=True")
        self._reaper.end_cluster("its program has ended")
        self.over.wait(_LAST_S)


_followed: dict[Running, int] = {}
_lock = threading.Lock()


@atexit.register
def _end_the_forgotten() -> None:
    """End what this process, not a fork of it, has launched and not ended."""
    with _lock:
        forgotten = [running for running, pid in _followed.items() if pid == os.getpid()]
    for running in forgotten:
        running.end_at_exit()
