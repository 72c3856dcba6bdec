"""Times in which storage does not answer, as the log tells of them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from oci_cluster.errors import ClusterError

log = logging.getLogger("agent")

# Between two lines about outages that come and go.
_SAY_OUTAGE_S = 10.0


class Outages:
    """Times in which storage does not answer: each is logged once, and those that come and go not every time."""

    def __init__(self, clock: Callable[[], float], *, is_main: bool = False) -> None:
        """Begin with a storage that answers; where it *is_main*, that may have yet to come."""
        self._clock = clock
        self._who = "main" if is_main else "storage"
        self._may_have_yet_to_come = is_main
        #: When it has answered last; None before it has.
        self.answered_at: float | None = None
        self._since = self._say_at = clock()
        self._is_said = False
        #: Storage's last words while it does not answer; None while it does.
        self.error: ClusterError | None = None

    @property
    def duration_s(self) -> float:
        """How long storage has not answered; 0 where it does."""
        return 0.0 if self.error is None else self._clock() - self._since

    def fail(self, error: ClusterError) -> None:
        """Take note of a request that failed."""
        if self.error is None:
            self._since = self._clock()
            # A full disk refuses writes and answers reads, in turns: once in a while is enough to say so.
            self._is_said = self._since >= self._say_at
            if self._is_said and self._may_have_yet_to_come:
                log.info("waiting for main: %s", error)
            elif self._is_said:
                log.warning("no answer: %s; trying again", error)
                self._say_at = self._since + _SAY_OUTAGE_S
        self.error = error

    def end(self) -> None:
        """Take note of an answer."""
        if self.error is not None and self._is_said:
            again = "" if self._may_have_yet_to_come else " again"
            log.info("%s answers%s after %.1f s", self._who, again, self.duration_s)
        self.error = None
        self.answered_at = self._clock()
        self._may_have_yet_to_come = False
