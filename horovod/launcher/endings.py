"""How ranks end, and which of them brought on the end of the others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from messages import describe

from oci_cluster.contract.first_cause import PEER_LOST, first_cause

LOST = 76
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
    def is_consequence(self) -> bool | None:
        """True where what it printed says so; False where its node was lost."""
        if self.code is None:
            return False
        return True if self.code in PEER_LOST and _TELLS_OF_A_PEER.search(self.printed) else None

    def told(self, others: Sequence[str], later_s: float) -> str:
        """Return it in words; where it has lost a peer, with *others* who had not ended *later_s* seconds later.

        One that has failed by itself has none: the others compute, and do not know of it yet.
        """
        if not (self.is_consequence and others):
            return str(self)
        return f"{self}; {', '.join(others)} had not ended {later_s:g} s later, which is what a hang looks like"

    def __str__(self) -> str:
        if self.code is None:
            return f"{self.node} was lost, with rank {self.rank}"
        return f"rank {self.rank} on {self.node} ended: {describe(self.code)}"


def first_failure(endings: Sequence[Ending]) -> Ending | None:
    """Return the failure that brought on the others; None where there is none.

    A rank that fails tells the others before it ends: they may end sooner. What they print says so.
    """
    failures = [ending for ending in endings if ending.is_failure]
    return first_cause(failures) if failures else None
