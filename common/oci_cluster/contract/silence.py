"""How long a node has said nothing: judged by heartbeats that change, on the reader's own clock, as clocks differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Silence:
    """One node, as another process sees it that reads its heartbeats."""

    def __init__(self, moment: float) -> None:
        """Count the node as alive at *moment*, in monotonic seconds of the reader."""
        self._beat: Any = None
        self._alive_at = moment
        self._observed_at = moment

    def observe(self, heartbeat: Mapping[str, Any] | None, moment: float, *, answered: bool) -> float:
        """Take note of a *heartbeat* at *moment*; return for how many seconds the node has been silent.

        Args:
            heartbeat: Its fields; None where there is none.
            moment: Now.
            answered: Whether storage answered. Where it did not, the time since the last observation is storage's
                silence, not the node's.
        """
        if not answered:
            self._alive_at += moment - self._observed_at
        elif heartbeat is not None and heartbeat.get("beat") != self._beat:
            self._beat = heartbeat.get("beat")
            self._alive_at = moment
        self._observed_at = moment
        return moment - self._alive_at
