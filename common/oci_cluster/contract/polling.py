"""Paces the polling of what somebody else changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator


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
