"""Finds the failure that brought on the others, of nodes or of ranks.

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
    """The failure of a node or of a rank."""

    @property
    def exit_code(self) -> int:
        """As a shell has it: 128 + the signal."""

    @property
    def time(self) -> float:
        """Seconds of one clock for all failures that are compared."""

    @property
    def is_consequence(self) -> bool | None:
        """True if the end of another brought it on; None: its exit code alone tells."""


F = TypeVar("F", bound=Failure)


def may_be_a_consequence(failure: Failure) -> bool:
    """Return whether the loss of a peer would look like *failure*."""
    return failure.exit_code in PEER_LOST if failure.is_consequence is None else failure.is_consequence


def first_cause(failures: Collection[F]) -> F:
    """Return the failure that brought on the others.

    It is the first one, unless another of that moment explains it better. A known consequence counts only if there is
    nothing else.
    """
    failures = [failure for failure in failures if not failure.is_consequence] or failures
    first = min(failure.time for failure in failures)
    moment = [failure for failure in failures if failure.time - first <= _SAME_MOMENT_S]
    return min(moment, key=lambda failure: (may_be_a_consequence(failure), failure.time))
