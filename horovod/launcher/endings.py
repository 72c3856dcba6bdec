"""How ranks end, and which of them brought on the end of the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from messages import describe

LOST = 76
# What a rank looks like that has lost a peer: an exception (1), an abort (134 = 128 + SIGABRT).
_CONSEQUENCES = {1, 134}
# Ranks that lose a peer end within a second of it, on busy CPUs two.
_SAME_MOMENT_S = 2.0
# What Horovod says in a rank of which another one has left.
_TELLS_OF_A_PEER = re.compile(rb"HorovodInternalError|Horovod has been shut down")


@dataclass(frozen=True)
class Ending:
    rank: int
    node: str
    time: float
    """Monotonic seconds, on main."""
    code: int | None
    """None where the connection to its node broke: nobody knows how it ended."""
    was_told: bool = False
    """Whether it was ended, not ended by itself."""
    printed: bytes = b""
    """The end of what it printed to stderr."""

    @property
    def exit_code(self) -> int:
        return LOST if self.code is None else self.code

    @property
    def is_failure(self) -> bool:
        return self.exit_code != 0 and not self.was_told

    @property
    def may_be_a_consequence(self) -> bool:
        return self.code in _CONSEQUENCES

    @property
    def tells_of_a_peer(self) -> bool:
        return self.code in _CONSEQUENCES and bool(_TELLS_OF_A_PEER.search(self.printed))

    def told(self, others: Sequence[str], later_s: float) -> str:
        """Return it in words; where it has lost a peer, with *others* who had not ended *later_s* seconds later.

        One that has failed by itself has none: the others compute, and do not know of it yet.
        """
        if not (self.tells_of_a_peer and others):
            return str(self)
        return f"{self}; {', '.join(others)} had not ended {later_s:g} s later, which is what a hang looks like"

    def __str__(self) -> str:
        if self.code is None:
            return f"{self.node} was lost, with rank {self.rank}"
        return f"rank {self.rank} on {self.node} ended: {describe(self.code)}"


def first_cause(endings: Sequence[Ending]) -> Ending | None:
    """Return the failure that brought on the others: the first, unless another of that moment explains it better.

    A rank that fails tells the others before it ends: they may end sooner. What they print says so.
    """
    failures = [ending for ending in endings if ending.is_failure]
    failures = [ending for ending in failures if not ending.tells_of_a_peer] or failures
    if not failures:
        return None
    first = min(ending.time for ending in failures)
    moment = [ending for ending in failures if ending.time - first <= _SAME_MOMENT_S]
    return min(moment, key=lambda ending: (ending.may_be_a_consequence, ending.time))
