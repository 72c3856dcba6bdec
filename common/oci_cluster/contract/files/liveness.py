"""Measures a node's silence, by heartbeats and the reader's own clock.

A heartbeat is read some time after it was written. The counters of heartbeats, which are the writer's clock, tell how
much later one is read than others: only differences count. So a reader that reads less often does not judge later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Two heartbeats are further apart than this, in seconds of a clock.
_LEAST_GROWTH_S = 0.01


class Liveness:
    """One node, as another process sees it that reads its heartbeats."""

    def __init__(self, moment: float) -> None:
        """Count the node as alive at *moment*, in monotonic seconds of the reader."""
        self._beat: Any = None
        #: When the node was alive for certain, in monotonic seconds of the reader.
        self.alive_at = moment
        self._observed_at = moment
        # The last counter, and the least that the reader's clock has shown more than one: that was read soonest.
        self._counter = 0
        self._least_s: float | None = None

    def observe(self, heartbeat: Mapping[str, Any] | None, moment: float, *, answered: bool) -> float:
        """Note a *heartbeat* at *moment*; return the seconds of the node's silence.

        Where storage has not *answered*, the time since the last observation is storage's silence, not the node's.
        """
        if not answered:
            self.alive_at += moment - self._observed_at
        elif heartbeat is not None and heartbeat.get("beat") != self._beat:
            self._beat = heartbeat.get("beat")
            self.alive_at = moment - self._lateness_s(heartbeat.get("counter"), moment)
        self._observed_at = moment
        return moment - self.alive_at

    def _lateness_s(self, counter: Any, moment: float) -> float:
        """Return how long before *moment* the heartbeat of *counter* was written, if known.

        Not before the last observation, which did not find it: a clock that is set does not make a node silent. A node
        that has read a counter of a clock far ahead counts on from there by ones, which tell no time.
        """
        if type(counter) is not int:
            return 0.0
        grown_s, self._counter = (counter - self._counter) / 1e9, counter
        if grown_s < _LEAST_GROWTH_S:
            self._least_s = None
            return 0.0
        apart_s = moment - counter / 1e9
        self._least_s = apart_s if self._least_s is None else min(self._least_s, apart_s)
        return max(0.0, min(apart_s - self._least_s, moment - self._observed_at))
