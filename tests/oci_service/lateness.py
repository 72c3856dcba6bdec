"""A service that is late: what was made is not seen yet, and what is told was true a while ago."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection
from typing import Any

from oci_service.faults import Controls
from oci_service.resources import JSON, not_found

ACCEPTED = "Job run accepted."
"""What a run says of itself that waits for its host."""
# Between two looks at controls.
_LOOK_S = 0.1
# What changes in the life of a run.
_FIELDS = ("lifecycleState", "lifecycleDetails", "timeStarted", "timeFinished", "nodeGroupDetailsList")


class Lateness:
    """When each resource was made, and what each run was at each moment."""

    def __init__(self, controls: Controls) -> None:
        self._controls = controls
        self._lock = threading.Lock()
        self._made: dict[str, float] = {}
        self._past: dict[str, list[tuple[float, JSON]]] = {}
        self._answers = 0

    def note_made(self, resource: JSON) -> None:
        """Take note that a resource has been made just now."""
        self._made[resource["id"]] = time.monotonic()

    def note(self, run: JSON, **changes: Any) -> None:
        """Change a *run*, and keep what it is from now on."""
        with self._lock:
            run.update(changes)
            now = {name: run[name] for name in _FIELDS if name in run}
            self._past.setdefault(run["id"], []).append((time.monotonic(), now))

    def check_seen(self, resource_id: str) -> None:
        """Refuse what is about a resource that was made too short a time ago: as if it were not there."""
        if self._age(resource_id) < self._controls.unseen_s:
            raise not_found()

    def is_listed(self, resource: JSON) -> bool:
        """Return whether lists have a resource already."""
        return self._age(resource["id"]) >= max(self._controls.list_lag_s, self._controls.unseen_s)

    def answer_age(self) -> float:
        """Return how old what the next answer tells of runs is."""
        with self._lock:
            self._answers += 1
            is_stale = self._controls.stale_every and self._answers % self._controls.stale_every == 0
        return self._controls.state_lag_s + (self._controls.stale_s if is_stale else 0.0)

    def told(self, run: JSON, age_s: float) -> JSON:
        """Return a *run* as it was so long ago; as it was made, where that is not so long ago."""
        if not age_s:
            return run
        until = time.monotonic() - age_s
        with self._lock:
            past = self._past.get(run["id"], [])
            was = next((fields for moment, fields in reversed(past) if moment <= until), past[0][1] if past else {})
        return {**{name: value for name, value in run.items() if name not in _FIELDS}, **was}

    def _age(self, resource_id: str) -> float:
        return time.monotonic() - self._made.get(resource_id, 0.0)


def gets_host(
    names: Collection[str],
    controls: Controls,
    become: Callable[[str, str], object],
    is_canceled_within: Callable[[float | None], bool],
) -> bool:
    """Have a run wait for its host, as *controls* say; return whether it gets one before it is canceled.

    Args:
        names: Of the run: its node's, and the how-many-eth of its job it is.
        controls: Of the service.
        become: Gives the run a state, with its details.
        is_canceled_within: Waits so many seconds, or for ever, until the run is canceled; returns whether it was.
    """
    troubles = (rule for name, rule in controls.needs_attention.items() if name in names)
    if (trouble := next(troubles, None)) is not None:
        become("NEEDS_ATTENTION", trouble.get("details", "Waiting for a host."))
        until = time.monotonic() + trouble.get("for_s", math.inf)
        while time.monotonic() < until and {*names} & {*controls.needs_attention}:
            if is_canceled_within(_LOOK_S):
                return False
        become("ACCEPTED", ACCEPTED)
    while {*names} & {*map(str, controls.stay_accepted)}:
        if is_canceled_within(_LOOK_S):
            return False
    return not is_canceled_within(controls.provisioning_s)
