"""Who is still there, judged by heartbeats that change: on the reader's own clock, as clocks of machines differ."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oci_cluster.errors import ExitCode, LostError
from oci_cluster.exchange import exit_file, heartbeat_file, printable
from oci_cluster.settings import NodeSettings

log = logging.getLogger("agent")


@dataclass(frozen=True)
class Outcome:
    """How a node, or the cluster, ended."""

    exit_code: int
    reason: str


def outcome_of(fields: Mapping[str, Any]) -> Outcome:
    """Return the outcome that a file's *fields* tell; an ``exit_code`` that is none never is a success."""
    code = fields.get("exit_code")
    if type(code) is not int or not 0 <= code <= 255:  # True is an int too
        code = ExitCode.BUG
    return Outcome(code, printable(fields.get("reason"), 1000))


class MainWatch:
    """Main, as another node sees it."""

    def __init__(self, timeout_s: float, moment: float) -> None:
        """Count main as alive at *moment*, and as lost after *timeout_s* seconds of silence."""
        self._timeout_s = timeout_s
        self._beat: Any = None
        self._alive_at = moment
        self._looked_at = moment

    def look(self, heartbeat: Mapping[str, Any] | None, moment: float, *, answered: bool) -> None:
        """Take note of main's *heartbeat* at *moment*.

        Args:
            heartbeat: Its fields; None where there is none.
            moment: Now.
            answered: Whether storage answered. Where it did not, the time since the last look is storage's silence, not
                main's.

        Raises:
            LostError: main has been silent for too long.
        """
        if not answered:
            self._alive_at += moment - self._looked_at
        elif heartbeat is not None and heartbeat.get("beat") != self._beat:
            self._beat = heartbeat.get("beat")
            self._alive_at = moment
        self._looked_at = moment
        silence = moment - self._alive_at
        if silence > self._timeout_s:
            msg = f"main lost: no heartbeat for {silence:.0f} s (HEARTBEAT_TIMEOUT {self._timeout_s:g} s)"
            raise LostError(msg)


class NodesWatch:
    """The other nodes, as main sees them."""

    def __init__(self, settings: NodeSettings) -> None:
        """Watch the nodes that *settings* ask for."""
        self._settings = settings
        # Latest fingerprint of each heartbeat, and when it changed.
        self._alive: dict[str, tuple[str, float]] = {}
        self._gone: dict[str, Outcome] = {}

    @property
    def seen(self) -> list[str]:
        """Nodes that have shown a heartbeat."""
        return list(self._alive)

    def look(self, there: Mapping[str, str], moment: float, read: Callable[[str], Mapping[str, Any] | None]) -> None:
        """Take note of the cluster dir's listing *there* at *moment*.

        Args:
            there: Fingerprints by file name, see :meth:`Exchange.listing`.
            moment: Now.
            read: Returns the fields of a file; None where it cannot say, and is asked again at the next look.

        Raises:
            LostError: fewer than ``MIN_WORKERS`` are left, or a parameter server is gone. Its exit code is the own one
                of the node that was lost first, 76 if that vanished without a word.
        """
        for node in self._settings.other_nodes:
            if node not in self._gone and (outcome := self._look_at(node, there, moment, read)):
                self._gone[node] = outcome
                log.warning("%s lost: %s (code %d)", node, outcome.reason, outcome.exit_code)
        workers_gone = sum(node.startswith("WORKER") for node in self._gone)
        least = self._settings.min_workers
        if self._settings.worker_count - workers_gone < least or workers_gone < len(self._gone):
            first, outcome = next(iter(self._gone.items()))
            msg = f"{', '.join(self._gone)} lost, MIN_WORKERS is {least}; first {first}: {outcome.reason}"
            raise LostError(msg, exit_code=outcome.exit_code)

    def _look_at(
        self, node: str, there: Mapping[str, str], moment: float, read: Callable[[str], Mapping[str, Any] | None]
    ) -> Outcome | None:
        if exit_file(node) in there:
            fields = read(exit_file(node))
            if fields is None:
                return None
            outcome = outcome_of(fields)
            # Success before the cluster's end is a contradiction.
            return Outcome(outcome.exit_code or ExitCode.LOST, outcome.reason)
        heartbeat = there.get(heartbeat_file(node))
        if heartbeat is None:
            return None  # has not come yet: the start script waits for it, and names it if it does not come
        latest, changed_at = self._alive.setdefault(node, (heartbeat, moment))
        if heartbeat != latest:
            self._alive[node] = (heartbeat, moment)
        elif moment - changed_at > self._settings.heartbeat_timeout_s:
            return Outcome(ExitCode.LOST, f"no heartbeat for {moment - changed_at:.0f} s")
        return None
