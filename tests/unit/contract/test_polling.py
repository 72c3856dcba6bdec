"""How long a node waits before it looks again."""

from __future__ import annotations

import itertools

from oci_cluster.contract.polling import poll_delays


def test_polling_backs_off_to_its_ceiling() -> None:
    """Delays begin at 0.2 s, grow by half and stay at the ceiling."""
    delays = poll_delays(1.0, uniform=lambda _low, _high: 1.0)
    assert [round(delay, 4) for delay in itertools.islice(delays, 7)] == [0.2, 0.3, 0.45, 0.675, 1.0, 1.0, 1.0]


def test_a_ceiling_below_the_first_delay_holds_from_the_start() -> None:
    """No delay is ever above the ceiling, the first included."""
    assert list(itertools.islice(poll_delays(0.05, uniform=lambda _low, _high: 1.0), 3)) == [0.05, 0.05, 0.05]


def test_delays_are_spread_by_a_tenth() -> None:
    """Nodes that started together do not ask together: each delay is spread by a tenth either way."""
    asked: list[tuple[float, float]] = []

    def minimum(low: float, high: float) -> float:
        asked.append((low, high))
        return low

    assert [round(delay, 4) for delay in itertools.islice(poll_delays(0.2, uniform=minimum), 2)] == [0.18, 0.18]
    assert asked == [(0.9, 1.1), (0.9, 1.1)]
