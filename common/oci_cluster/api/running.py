"""Clusters that this process has launched and follows, each in a thread: what a terminal is for a launch of the script.

Whoever forgets one has it ended with the interpreter, and is told. A process that is killed has a guard.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from typing import Any

from oci_cluster.api.messages import Messages
from oci_cluster.backends.base import Backend, LogsInPlace
from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.errors import ClusterError
from oci_cluster.launcher.follow import Follower, conclude
from oci_cluster.launcher.guard import Guard
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.launcher.logs import NoLogs
from oci_cluster.launcher.report import overview
from oci_cluster.system.console import LastingOutput

# How long the thread of a cluster that has been ended may take to bring what it leaves.
_LAST_S = 60.0


class Bell:
    """What a follower waits with; nobody stops it, as who wants the cluster's end asks the cluster."""

    def __init__(self, on_round: Callable[[], object]) -> None:
        """Call *on_round* before each wait."""
        self.received: int | None = None
        self._rung = threading.Event()
        self._on_round = on_round

    def wait(self, seconds: float) -> None:
        """Wait *seconds*, less if the bell is rung."""
        self._on_round()
        self._rung.wait(seconds)
        self._rung.clear()

    def ring(self) -> None:
        """End the wait."""
        self._rung.set()


class Running:
    """One cluster that is followed to its end."""

    def __init__(self, backend: Backend, cluster: Cluster, plan: Plan, say: Messages, lifecycle: Lifecycle) -> None:
        """Prepare to follow *cluster*, which runs on *backend*; *lifecycle* ends it where it cannot be followed."""
        self.cluster = cluster
        self.plan = plan
        self.is_ready = False
        self.code: int | None = None
        """The exit code, when it has ended."""
        self.failure: BaseException | None = None
        """Why it could not be followed to its end."""
        self._unseen: ClusterError | None = None
        self._backend = backend
        self._lifecycle = lifecycle
        self._say = say
        self._guard: Guard | None = None
        self._changed = threading.Condition()
        self._is_over = False
        self._bell = Bell(lambda: None)

    def follow(self, guard: Guard, on_round: Callable[[], object]) -> None:
        """Begin; *guard* is dismissed when the cluster has ended; *on_round* is called after each look at it."""
        self._guard = guard
        self._bell = Bell(on_round)
        with _lock:
            _followed[self] = os.getpid()
        # A daemon: the interpreter's end must not wait for a cluster that nobody ends.
        threading.Thread(target=self._run, name=f"oci_cluster {self.cluster.name}", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether the cluster has ended, and what it leaves has been brought."""
        return self._is_over

    def wait(self, is_done: Callable[[], bool], timeout_s: float | None) -> bool:
        """Return whether *is_done* before *timeout_s* are over; it is asked again after each change."""
        with self._changed:
            return self._changed.wait_for(is_done, timeout_s)

    @property
    def has_begun(self) -> bool:
        """Whether a wait for ready is over.

        Raises:
            ClusterError: nobody may see how far it is.
        """
        if self._unseen is not None:
            raise self._unseen
        return self.is_ready or self._is_over

    @property
    def is_free_to_ask(self) -> bool:
        """Whether a look at it costs nothing."""
        return self._backend.is_free_to_ask

    def overview(self) -> dict[str, Any]:
        """Return what a list tells of it; only for the thread that follows it.

        Raises:
            ClusterError: the backend does not answer.
        """
        states = self._backend.states([self.cluster])[self.cluster.launch_id]
        return overview(self._backend, self.cluster, states)

    def wait_until_over(self) -> None:
        """Return when a cluster that has ended is known to have, and what it leaves has been brought."""
        self._bell.ring()
        self.wait(lambda: self._is_over, None)

    def _run(self) -> None:
        try:
            self.code = self._to_the_end()
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            self.failure = error
            self._say(f"error: {error}; ending {self.cluster.name}, which nobody can follow")
            try:
                self._lifecycle.stop(self.cluster, reason="its launcher cannot follow it")
            except ClusterError as problem:
                self._say(f"NOT ENDED: {self.cluster.name} may still be running: {problem}")
        finally:
            self._finish()

    def _to_the_end(self) -> int:
        self._backend.load(self.cluster)  # in this thread, which from here on sees what its nodes tell
        follower = Follower(self._backend, self.cluster, self.plan, say=self._say, signals=self._bell)
        code = None
        try:
            code = follower.until_ready()
            self._tell(ready=code is None)
        except ClusterError as error:
            self._unseen = error
            self._tell(ready=False)
        if code is None:
            logs = self.cluster.directory / "logs"
            code = follower.run(NoLogs(logs, [], LastingOutput(lambda _: None)), LogsInPlace(logs))
        return conclude(follower, code, self._say)

    def _tell(self, *, ready: bool) -> None:
        with self._changed:
            self.is_ready = ready
            self._changed.notify_all()

    def _finish(self) -> None:
        if self._has_ended() and (guard := self._take_guard()):
            guard.dismiss()
        with _lock:  # before anybody is told: who ends the program then has forgotten nothing
            _followed.pop(self, None)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._bell.wait(0)  # once more, for what is shown
        self._backend.close()

    def _has_ended(self) -> bool:
        """Return whether nothing runs any more; where that is not known, the guard stays."""
        try:
            return self.failure is None or not self._lifecycle.is_running(self.cluster)
        except ClusterError:
            return False

    def _take_guard(self) -> Guard | None:
        """Return the guard to the one who tells it something, once."""
        with self._changed:
            guard, self._guard = self._guard, None
        return guard

    def end_at_exit(self) -> None:
        """End the cluster of a program that ends: by its guard, as this interpreter can start no threads any more."""
        name = self.cluster.name
        self._say(f"ending {name}, which still runs; end clusters with down(), or keep them: keep=True")
        if guard := self._take_guard():
            guard.end_cluster("its program has ended")
        self.wait(lambda: self._is_over, _LAST_S)


_followed: dict[Running, int] = {}
_lock = threading.Lock()


@atexit.register
def _end_the_forgotten() -> None:
    """End what this process has launched and not ended; a fork of it has launched nothing."""
    with _lock:
        forgotten = [running for running, pid in _followed.items() if pid == os.getpid()]
    for running in forgotten:
        running.end_at_exit()
