"""What main and every other node do differently: the methods that both roles have, and what they return."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from oci_cluster.contract.outcome import Outcome


@dataclass(frozen=True)
class Restart:
    """The gang is to start again."""

    reason: str
    is_failure: bool
    begins_life: bool = False
    """Whether main begins the next life: not all nodes can come to another attempt of this one."""


class Role(Protocol):
    """This node's part in its cluster."""

    def begin(self) -> None:
        """Begin this launch's next life, where this role does."""

    def join(self, own: Mapping[str, Any]) -> Mapping[str, Any]:
        """Publish this node's *own* configuration for the next attempt; return main's, when that can begin."""

    def ended(self, code: int) -> Outcome | None:
        """Take note that the start script has ended with *code*; return this node's outcome if that is clear now."""

    def poll(self) -> Outcome | Restart | None:
        """Return how the attempt ends; None while it goes on."""

    def restart(self, restart: Restart) -> None:
        """Turn to the next attempt; this node's start script has yet to be ended."""

    @property
    def lost(self) -> Collection[str]:
        """The other nodes that say nothing any more, as far as this role watches them."""

    def announce(self, outcome: Outcome) -> bool:
        """Announce the cluster's end to the other nodes, where this role does; return whether that is done."""

    def leave(self, outcome: Outcome) -> None:
        """Publish how this node has ended, its last word. Raises what storage raises."""
