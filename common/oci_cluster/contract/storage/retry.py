"""Paces polls of what others change, and retries of requests after transient errors."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

# Between two tries. The first is shorter than a person notices, the longest far below any patience here.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 10.0
# The longest wait that a service's retry-after can ask for: it may be wrong, and nobody waits for hours.
LONGEST_RETRY_AFTER_S = 60.0
# An outage that nobody has met for so long may be over: the next failure is another one.
_FORGET_S = 60.0
# Before a person who waits for an answer is told why there is none.
_SILENCE_S = 2.0
# What is left of any patience when the launcher has been told to stop: long enough to get a `stop` file through to a
# busy service, short enough for somebody who has pressed Ctrl-C.
_PATIENCE_WHEN_STOPPED_S = 10.0


def poll_delays(
    ceiling_s: float,
    *,
    first_s: float = 0.2,
    spread: float = 0.1,
    uniform: Callable[[float, float], float] = random.uniform,
) -> Iterator[float]:
    """Yield seconds between polls: from *first_s*, growing by half, to *ceiling_s*.

    Each is spread by the share *spread* either way, so that a thousand nodes that started together do not ask together.
    *first_s* is the design's: young clusters poll often.
    """
    delay = min(first_s, ceiling_s)
    while True:
        yield delay * uniform(1 - spread, 1 + spread)
        delay = min(delay * 1.5, ceiling_s)


class RequestFailedError(OSError):
    """Storage refused, or did not answer; the text tells people the next step."""

    def __init__(self, message: str, *, is_passing: bool, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.is_passing = is_passing
        self.retry_after_s = min(max(retry_after_s, 0.0), LONGEST_RETRY_AFTER_S)


@dataclass(frozen=True)
class Waiting:
    """The way in which this process waits between two tries."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    is_stopped: Callable[[], bool] = lambda: False
    """Whether it has been told to stop."""
    say: Callable[[str], None] = lambda _: None
    """Tells a person of an outage that lasts."""


class Repeats:
    """Repeats requests that fail in passing, until none has been answered for *patience_s* seconds.

    An outage so costs *patience_s* once, however many requests fall into it. One answer begins the count anew: a large
    upload to a busy service comes to its end. With a patience of 0 nothing is repeated: for who has a loop of its own.

    Only for requests that may be done twice: those that read, delete, or write the same content to the same name.
    """

    def __init__(self, patience_s: float, waiting: Waiting) -> None:
        self._patience_s = patience_s
        self._waiting = waiting
        self._failing_since: float | None = None
        self._failed_at = 0.0
        self._has_reported = False

    def call(self, request: Callable[[], T]) -> T:
        """Return what *request* returns.

        The error, where it failed for good or too long, says how often it was tried.
        """
        began_at = self._waiting.clock()
        # Spread widely, so that clients that were refused together do not come back together.
        for tries, delay_s in enumerate(poll_delays(_LONGEST_PAUSE_S, first_s=_FIRST_PAUSE_S, spread=0.5), start=1):
            try:
                answer = request()
            except RequestFailedError as error:
                if not error.is_passing:
                    raise
                now = self._waiting.clock()
                if self._failing_since is None or now - self._failed_at > _FORGET_S:
                    self._failing_since, self._has_reported = now, False
                self._failed_at = now
                pause_s = error.retry_after_s + delay_s
                if now + pause_s - self._failing_since > self._limit_s():
                    if tries == 1:
                        raise
                    told = f"{error}; tried {tries} times in {now - began_at:.0f} s"
                    raise RequestFailedError(told, is_passing=True, retry_after_s=error.retry_after_s) from error
                if not self._has_reported and now + pause_s - self._failing_since >= _SILENCE_S:
                    self._has_reported = True
                    left_s = self._limit_s() - (now - self._failing_since)
                    self._waiting.say(f"{error}; trying again for {left_s:.0f} s")
                self._waiting.sleep(pause_s)
            else:
                self._failing_since = None
                return answer
        raise AssertionError  # poll_delays never ends

    def _limit_s(self) -> float:
        return min(self._patience_s, _PATIENCE_WHEN_STOPPED_S) if self._waiting.is_stopped() else self._patience_s
