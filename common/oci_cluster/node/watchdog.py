"""Ends a node whose agent hangs in a call to storage.

The agent asks storage in its only thread. Outside its waits an alarm ticks: once the node is to end, and that thread
has not come to a wait for as long as an end may take, the process exits at once, and its children end with it.
"""

from __future__ import annotations

import contextlib
import logging
import math
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
# A tick also ends what a signal has missed: Python calls no handler while a system call goes on that began just after
# the signal came.
_TICK_S = 1.0


class NodeSignals(Signals):
    """The agent's signals; after one, or the TTL, an alarm ends a hung call."""

    def __init__(self, *, ttl_s: float, limit_s: float, end: Callable[[int], object] = os._exit) -> None:
        """Take over the handlers; *end* this process after *limit_s* of hanging."""
        self._limit_s, self._end = max(limit_s, _LEAST_S), end
        self._code = ExitCode.TIMED_OUT
        self._moved_at = time.monotonic()
        self._is_to_end_at = self._moved_at + ttl_s if ttl_s else math.inf
        super().__init__()
        signal.signal(signal.SIGALRM, self._look)
        signal.setitimer(signal.ITIMER_REAL, _TICK_S, _TICK_S)

    def wait(self, seconds: float) -> None:
        """Sleep *seconds*, less if a signal comes."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            come = b""
            with contextlib.suppress(BlockingIOError):  # nothing has come
                come = os.read(self._reader, 4096)
            # Ticks are no reason to look again: storage that takes a second would be asked without a pause.
            if not come.strip(bytes([signal.SIGALRM])):
                super().wait(seconds)
        finally:
            self._moved_at = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, _TICK_S, _TICK_S)

    def _note(self, number: int, frame: object) -> None:
        super()._note(number, frame)
        self._code = ExitCode.STOPPED
        self._is_to_end_at = min(self._is_to_end_at, time.monotonic())

    def _look(self, _number: int, _frame: object) -> None:
        held_up_s = time.monotonic() - max(self._moved_at, self._is_to_end_at)
        if held_up_s >= self._limit_s:
            log.error("ending with %d: storage has held up this node's end for %.0f s", self._code, held_up_s)
            self._end(self._code)
