"""Endings of ranks, the first cause, and the reason of a node's end."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oci_cluster.contract.first_cause import PEER_LOST, first_cause
from oci_cluster.errors import ClusterError, ExitCode
from oci_cluster.system.process import describe

# Horovod says so in a rank that another one has left.
_TELLS_OF_A_PEER = re.compile(rb"HorovodInternalError|Horovod has been shut down")
_said: set[str] = set()


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
        return ExitCode.LOST if self.code is None else self.code

    @property
    def is_failure(self) -> bool:
        return self.exit_code != 0 and not self.was_told

    @property
    def is_consequence(self) -> bool | None:
        """True where what it printed says so; False where its node was lost."""
        if self.code is None:
            return False
        return True if self.code in PEER_LOST and _TELLS_OF_A_PEER.search(self.printed) else None

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


class RankError(ClusterError):
    """A rank has failed: the agent shows its error, its node, then this text."""

    def __init__(self, cause: Ending, others: Sequence[str] = (), later_s: float = 0) -> None:
        """Name *others* that outlived a cause that has lost a peer by *later_s* seconds.

        Where the cause has failed by itself, these are no hang: they compute, and do not know of it yet.
        """
        text = str(cause)
        if cause.is_consequence and others:
            text += f"; {', '.join(others)} had not ended {later_s:g} s later, which is what a hang looks like"
        super().__init__(text, exit_code=cause.exit_code)
        self.printed = cause.node.encode() + b"\n" + cause.printed


def log(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} horovod: {text}\n")
    sys.stderr.flush()


def log_once(text: str) -> None:
    """Write a new line only: others must not fill the log."""
    if text not in _said and len(_said) < 200:
        _said.add(text)
        log(text)


def report(error: ClusterError) -> None:
    """Tell log and agent why the node ends, as `die` of start-lib.sh does."""
    log(f"error: {error}")
    if node_dir := os.environ.get("NODE_DIR"):
        is_rank = isinstance(error, RankError)
        Path(node_dir, "entry-point-ended" if is_rank else "reason").write_text(f"{error}\n")
        if is_rank:
            Path(node_dir, "entry-point-printed").write_bytes(error.printed)
