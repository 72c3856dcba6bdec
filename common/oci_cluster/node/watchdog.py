"""Ends a node whose agent hangs in a call to storage.

The agent asks storage in its only thread. Once it is to end, an alarm checks whether that thread still comes to its
waits. If it has not for as long as an end may take, the process exits at once, and its children end with it.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable

from oci_cluster.errors import ExitCode
from oci_cluster.system.process import Signals

log = logging.getLogger(__name__)

# Storage that is asked through a network has time-outs of its own, and repeats what may succeed.
REMOTE_S = 30.0
# A machine may be busy.
_LEAST_S = 5.0


class NodeSignals(Signals):
    """The agent's signals; after one, or the TTL, an alarm ends a hung call."""

    def __init__(self, *, ttl_s: float, limit_s: float, end: Callable[[int], object] = os._exit) -> None:
        """Take over the handlers; *end* this process after *limit_s* of hanging."""
        self._limit_s, self._end = max(limit_s, _LEAST_S), end
        self._code = ExitCode.OK
        self._is_waiting, self._moved_at = False, time.monotonic()
        super().__init__()
        signal.signal(signal.SIGALRM, self._look)
        if ttl_s:
            signal.setitimer(signal.ITIMER_REAL, ttl_s + self._limit_s)

    def wait(self, seconds: float) -> None:
        """Sleep *seconds*, less if a signal comes."""
        self._is_waiting = True
        try:
            super().wait(seconds)
        finally:
            self._is_waiting, self._moved_at = False, time.monotonic()

    def _note(self, number: int, frame: object) -> None:
        super()._note(number, frame)
        self._code = ExitCode.STOPPED
        self._moved_at = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, self._limit_s)

    def _look(self, _number: int, _frame: object) -> None:
        held_up_s = 0.0 if self._is_waiting else time.monotonic() - self._moved_at
        if held_up_s < self._limit_s:
            signal.setitimer(signal.ITIMER_REAL, self._limit_s - held_up_s)
            return
        code = self._code or ExitCode.TIMED_OUT
        log.error("ending with %d: storage has held up this node's end for %.0f s", code, held_up_s)
        self._end(code)
