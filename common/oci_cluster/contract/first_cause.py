"""Which of several failures brought on the others: of nodes for the agent, of ranks for their launchers.

Launchers of ranks import it in the user's own Python: it needs the standard library alone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, TypeVar

# How what has lost a peer ends: with an exception (1), aborted (134 = 128 + SIGABRT), or by saying that main is lost.
PEER_LOST = frozenset({1, 134, 76})
# Failures so close together count as simultaneous. Launchers of ranks look at them every tenth of a second and take up
# to a second to end, on busy CPUs two; clocks kept by NTP are some milliseconds apart.
_SAME_MOMENT_S = 2.0


class Failure(Protocol):
    """How a node or a rank has failed."""

    @property
    def exit_code(self) -> int:
        """As a shell has it: 128 + the signal."""

    @property
    def time(self) -> float:
        """When, in seconds of one clock for all that are compared."""

    @property
    def is_consequence(self) -> bool | None:
        """Whether the end of another brought it on; None where nothing but its exit code tells."""


F = TypeVar("F", bound=Failure)


def may_be_a_consequence(failure: Failure) -> bool:
    """Return whether the loss of a peer would look like *failure*."""
    return failure.exit_code in PEER_LOST if failure.is_consequence is None else failure.is_consequence


def first_cause(failures: Collection[F]) -> F:
    """Return the failure that brought on the others: the first, unless another of that moment explains it better.

    One that is known to be a consequence counts only where there are no others.
    """
    failures = [failure for failure in failures if not failure.is_consequence] or failures
    first = min(failure.time for failure in failures)
    moment = [failure for failure in failures if failure.time - first <= _SAME_MOMENT_S]
    return min(moment, key=lambda failure: (may_be_a_consequence(failure), failure.time))
