"""What this process has been told of Job Runs: lists lag, and an answer may be older than the one before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

ENDED = {"SUCCEEDED", "FAILED", "CANCELED", "DELETED"}


def _stage(run: Any) -> int:
    """Return how far *run* has come: it never comes back to an earlier stage."""
    word = run.lifecycle_state
    if word in ENDED:
        return 3
    if word == "CANCELING":
        return 2
    has_started = getattr(run, "time_started", None) is not None
    return 0 if word in {"ACCEPTED", "NEEDS_ATTENTION"} and not has_started else 1


class Seen:
    """The furthest that each run is known to have come, and since when no list has had it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Have been told nothing."""
        self._clock = clock
        self._runs: dict[str, Any] = {}
        self._missing_since: dict[str, float] = {}

    def furthest(self, run: Any) -> Any:
        """Return *run*, or what has been told of it before, where that is later in its life."""
        known = self._runs.get(run.id)
        # How it has ended, stays: a deleted run has still succeeded.
        has_another_end = known is not None and _stage(known) == 3 and known.lifecycle_state != run.lifecycle_state
        if known is None or (_stage(run) >= _stage(known) and not has_another_end):
            self._runs[run.id] = run
        return self._runs[run.id]

    def told(self, job: str, listed: Sequence[Any]) -> list[Any]:
        """Return the runs of *job*: those *listed*, and those that lists have had before, at their furthest."""
        found = [self.furthest(run) for run in listed]
        there = {run.id for run in found}
        found += [run for run in self._runs.values() if run.job_id == job and run.id not in there]
        return found

    def missing_s(self, run: str, *, is_listed: bool) -> float:
        """Return for how long no list has had *run*, an OCID."""
        if is_listed:
            self._missing_since.pop(run, None)
            return 0.0
        return self._clock() - self._missing_since.setdefault(run, self._clock())

    def forget(self, run: str) -> None:
        """Count *run* as gone."""
        self._runs.pop(run, None)
