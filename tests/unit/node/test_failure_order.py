"""Which of several failures came first, by what is known of each."""

from __future__ import annotations

import itertools

import pytest

from oci_cluster.contract.first_cause import first_cause, may_be_a_consequence
from oci_cluster.node.failure_detector import Failure


def failed(node: str, code: int, time: float, *, is_silence: bool = False) -> Failure:
    return Failure(code, f"exit code {code}", node=node, time=time, noticed_at=0, is_silence=is_silence)


@pytest.mark.parametrize(
    ("code", "is_silence", "may_be"),
    [
        (1, False, True),
        (134, False, True),
        (76, False, True),
        (76, True, False),
        (2, False, False),
        (9, False, False),
        (75, False, False),
        (137, False, False),
        (139, False, False),
        (143, False, False),
    ],
)
def test_what_a_lost_peer_explains(code: int, *, is_silence: bool, may_be: bool) -> None:
    """An exception, an abort and a word of a lost main can be brought on by a peer; silence and a kill can not."""
    assert may_be_a_consequence(failed("WORKER_1", code, 0, is_silence=is_silence)) is may_be


def cause(*failures: Failure) -> str:
    """Return the node that failed first, whatever order the failures were seen in."""
    named = {first_cause(order).node for order in itertools.permutations(failures)}
    assert len(named) == 1, named
    return named.pop()


def test_the_first_failure_is_the_cause() -> None:
    """The nodes' own clocks decide, not the order in which main hears of it."""
    assert cause(failed("A", 5, 30), failed("B", 6, 10), failed("C", 7, 20)) == "B"


@pytest.mark.parametrize(("later_s", "first"), [(0.5, "B"), (2.0, "B"), (2.1, "A")])
def test_within_two_seconds_a_failure_with_a_reason_of_its_own_comes_first(later_s: float, first: str) -> None:
    """B was killed, A's connection broke and A said so sooner: B is the cause; after 2 s that explains nothing."""
    assert cause(failed("A", 1, 100), failed("B", 137, 100 + later_s)) == first


def test_of_several_with_a_reason_of_their_own_the_first_counts() -> None:
    """Two kills: the earlier one."""
    assert cause(failed("A", 1, 100), failed("B", 137, 101.5), failed("C", 9, 101)) == "C"


def test_of_consequences_alone_the_first_counts() -> None:
    """Nobody has a better reason: the time decides."""
    assert cause(failed("A", 134, 100.2), failed("B", 1, 100.1), failed("C", 76, 100.3)) == "B"


def test_silence_explains_what_came_within_two_seconds() -> None:
    """A vanished node is a cause, where 76 that a node *says* is what happened to it."""
    assert cause(failed("A", 1, 100), failed("B", 76, 101, is_silence=True)) == "B"
    assert cause(failed("A", 1, 100), failed("B", 76, 101)) == "A"
