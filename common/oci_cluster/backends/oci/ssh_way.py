"""A way to a port of a node by ssh: its line is made again when it is lost, and replaced before it ends."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from typing import Protocol

from oci_cluster.backends.base import IsStopped
from oci_cluster.errors import BackendError, ClusterError, StoppedError
from oci_cluster.system.console import Say

# Between two looks at ssh; and, after a failure, between two tries at most.
_LOOK_S, _LONGEST_PAUSE_S = 0.5, 60.0
# How long a connection waits for a way that is being made again.
_DIAL_S = 15.0
# A connection to a port where nobody listens ends within a round trip to the node, or some.
_PROVE_S = 1.0


class Line(Protocol):
    """One connection to the place behind which the node is."""

    renew_at: float
    """When another one should take over; by the way's clock."""

    def is_running(self) -> bool:
        """Return whether it carries connections."""

    def dial(self) -> socket.socket:
        """Return a new connection; OSError where it carries none any more."""

    def close(self) -> None:
        """End its connections."""


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
        self._line: Line | None = None
        self._retired: list[Line] = []
        self._failure: ClusterError | None = None
        self._pause_s = _LOOK_S
        self._next_try = 0.0
        self._is_proven = False
        self._thread = threading.Thread(target=self._tend, daemon=True)

    def new_line(self, old: Line | None) -> Line:
        """Return a new line, in the place of an *old* one that has ended, or soon will; None at first.

        Raises:
            StoppedError: none is wanted any more.
            ClusterError: there is none.
        """
        raise NotImplementedError

    def end_of(self, line: Line) -> None:
        """End what was made for a *line* that is closed, while the way goes on.

        Raises:
            ClusterError: it could not be ended.
        """

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
            msg = "stopped before the way to the node was ready"
            raise StoppedError(msg)

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
        msg = "the way to the node is closed" if self._closing.is_set() else "the way to the node is cut; try again"
        raise BackendError(msg)

    def _prove(self, connection: socket.socket) -> None:
        """Raise where a first connection ends before anything was said: ssh takes it, whoever listens behind it."""
        if self._is_proven:
            return
        readable = select.select([connection], [], [], _PROVE_S)[0]
        if readable and not _has_bytes(connection):
            connection.close()
            msg = "nobody listens on that port of the node, or a rule of its network keeps the connection out"
            raise BackendError(msg)
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

    def _end(self, line: Line | None) -> None:
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
