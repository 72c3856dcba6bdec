"""What is asked of storage once more."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
from unit.conftest import Clock

from oci_cluster.contract.storage.retry import LONGEST_RETRY_AFTER_S, Repeats, RequestFailedError, Waiting, poll_delays


def failing(times: int, *, is_passing: bool = True, retry_after_s: float = 0.0) -> Callable[[], str]:
    """Return a request that fails so often, and is answered then."""
    left = iter(range(times))

    def request() -> str:
        if next(left, None) is not None:
            raise RequestFailedError("HTTP 503", is_passing=is_passing, retry_after_s=retry_after_s)
        return "answer"

    return request


def repeats(clock: Clock, patience_s: float, *, is_stopped: bool = False) -> Repeats:
    return Repeats(patience_s, Waiting(clock, clock.sleep, lambda: is_stopped))


def test_what_passes_is_waited_out(clock: Clock) -> None:
    """With pauses that grow and are spread."""
    assert repeats(clock, 60).call(failing(6)) == "answer"
    assert len(clock.waits) == 6
    assert all(0.25 <= pause <= 15 for pause in clock.waits)


def test_what_does_not_pass_is_not_repeated(clock: Clock) -> None:
    """A missing bucket is missing the next time, too."""
    with pytest.raises(RequestFailedError, match=r"^HTTP 503$"):
        repeats(clock, 60).call(failing(1, is_passing=False))
    assert clock.waits == []


def test_without_patience_nothing_is_repeated(clock: Clock) -> None:
    """Who asks has a loop."""
    with pytest.raises(RequestFailedError, match=r"^HTTP 503$"):
        repeats(clock, 0).call(failing(1))
    assert clock.waits == []


def test_patience_ends_in_time(clock: Clock) -> None:
    """And the error says what was tried."""
    with pytest.raises(RequestFailedError, match=r"^HTTP 503; tried \d+ times in [3-6]\d s$"):
        repeats(clock, 60).call(failing(10**6))
    assert clock.now <= 1060


def test_an_outage_costs_patience_once(clock: Clock) -> None:
    """Whatever falls into it; an answer ends it."""
    asked = repeats(clock, 60)
    down = failing(10**6)
    for _ in range(20):
        with pytest.raises(RequestFailedError):
            asked.call(down)
    assert clock.now <= 1060
    assert asked.call(failing(0)) == "answer"
    with pytest.raises(RequestFailedError):
        asked.call(down)
    assert 1060 < clock.now <= 1120


def test_an_outage_of_long_ago_takes_no_patience_from_another(clock: Clock) -> None:
    """Nobody has asked since."""
    asked = repeats(clock, 20)
    with pytest.raises(RequestFailedError):
        asked.call(failing(10**6))
    clock.now += 100
    assert asked.call(failing(3)) == "answer"


def test_many_requests_to_a_busy_service_need_no_longer_patience(clock: Clock) -> None:
    """Each answer begins the count anew."""
    asked = repeats(clock, 10)
    assert {asked.call(failing(2)) for _ in range(100)} == {"answer"}
    assert clock.now > 1100


def test_a_service_is_left_alone_for_as_long_as_it_asks(clock: Clock) -> None:
    """And somewhat longer; not for hours, and not where patience ends before."""
    repeats(clock, 100).call(failing(2, retry_after_s=20))
    assert all(20 < pause < 23 for pause in clock.waits)
    assert RequestFailedError("", is_passing=True, retry_after_s=9999).retry_after_s == LONGEST_RETRY_AFTER_S
    before = len(clock.waits)
    with pytest.raises(RequestFailedError):
        repeats(clock, 15).call(failing(1, retry_after_s=20))
    assert len(clock.waits) == before


def test_who_is_told_to_stop_waits_for_seconds(clock: Clock) -> None:
    """Long enough for a service that is only busy."""
    assert repeats(clock, 180, is_stopped=True).call(failing(3)) == "answer"
    with pytest.raises(RequestFailedError):
        repeats(clock, 180, is_stopped=True).call(failing(10**6))
    assert clock.now <= 1020


def test_an_outage_is_told_once_before_a_person_has_waited_for_two_seconds(clock: Clock) -> None:
    """What is tried, and for how long; a hiccup is not worth a line. The next outage is another one."""
    said: list[tuple[float, str]] = []
    began = clock.now
    waiting = Waiting(clock, clock.sleep, say=lambda text: said.append((clock.now - began, text)))
    asked = Repeats(15, waiting)
    assert asked.call(failing(1)) == "answer"
    assert said == []
    with pytest.raises(RequestFailedError):
        asked.call(failing(10**6))
    ((when_s, text),) = said
    assert when_s <= 2 + 0.75
    assert re.fullmatch(r"HTTP 503; trying again for 1[345] s", text)
    assert asked.call(failing(0)) == "answer"
    with pytest.raises(RequestFailedError):
        asked.call(failing(10**6))
    assert len(said) == 2


# --- Polls ------------------------------------------------------------------------------------------------------------


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
