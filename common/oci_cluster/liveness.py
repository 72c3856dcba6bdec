"""Who is still there, judged by heartbeats that change: on the reader's own clock, as clocks of machines differ."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time as unix_time
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


@dataclass(frozen=True)
class Failure:
    """How one node failed."""

    node: str
    exit_code: int
    reason: str
    time: float
    """When, in Unix seconds by that node's own clock."""
    noticed_at: float = field(compare=False)
    """When main saw it, on main's own monotonic clock."""
    attempt: int = 0
    """The attempt in which it failed."""
    has_left: bool = True
    """Whether the node itself is gone, not only its attempt at the entry point."""

    is_silence: bool = False
    """Whether the node has said nothing: its heartbeat has stopped."""

    @property
    def may_be_a_consequence(self) -> bool:
        """Whether a peer's loss would look like this: an exception (1), an abort (134 = 128 + SIGABRT), a lost main."""
        return self.exit_code in {1, 134, ExitCode.LOST} and not self.is_silence


# Failures so close together count as simultaneous. Launchers of ranks look at them every tenth of a second and take up
# to a second to end; clocks kept by NTP are some milliseconds apart.
_SAME_MOMENT_S = 2.0


def first_cause(failures: Sequence[Failure]) -> Failure:
    """Return the failure that brought on the others: the first, unless another of that moment explains it better."""
    first = min(failures, key=lambda failure: failure.time)
    moment = [failure for failure in failures if failure.time - first.time <= _SAME_MOMENT_S]
    return min(moment, key=lambda failure: (failure.may_be_a_consequence, failure.time))


class NodesWatch:
    """The other nodes, as main sees them: who is there, who has joined, who has failed."""

    def __init__(self, settings: NodeSettings) -> None:
        """Watch the nodes that *settings* ask for, and those that join them."""
        self._settings = settings
        self._expected = frozenset(settings.other_nodes)
        # Latest fingerprint of each heartbeat, and when it changed.
        self._alive: dict[str, tuple[str, float]] = {}
        # Fingerprint of each configuration: where it changes, the node has been started anew.
        self._configs: dict[str, str] = {}
        self.failures: dict[str, Failure] = {}
        self.attempt = 0
        self._looked_at = 0.0

    @property
    def seen(self) -> list[str]:
        """Nodes that have shown a heartbeat."""
        return list(self._alive)

    @property
    def missing(self) -> list[str]:
        """Nodes that the launch asked for and that are not there."""
        known = {*self._configs, *self._alive}
        return [node for node in self._settings.other_nodes if node not in known or self._has_left(node)]

    @property
    def members(self) -> list[str]:
        """Nodes that have not left, by role and rank: asked for and still expected, or joined later."""
        joined = [node for node in self._configs if node not in self._expected]
        nodes = [*self._settings.other_nodes, *joined]
        return sorted((node for node in nodes if not self._has_left(node)), key=_by_role_and_rank)

    def begin(self, attempt: int) -> None:
        """Forget failed attempts, not nodes that are gone: all that are left start again."""
        self.attempt = attempt
        self.failures = {node: failure for node, failure in self.failures.items() if failure.has_left}

    def look(
        self, there: Mapping[str, str], moment: float, read: Callable[[str], Mapping[str, Any] | None]
    ) -> list[str]:
        """Take note of the cluster dir's listing *there* at *moment*; return the nodes that have joined since.

        Args:
            there: Fingerprints by file name, see :meth:`Exchange.listing`.
            moment: Now.
            read: Returns the fields of a file; None where it cannot say, and is asked again at the next look.
        """
        self._looked_at = moment
        joined = self._joined(there, read)
        for node in self.members:
            failure = self._told(node, there, moment, read)
            if failure is None or not failure.has_left:
                failure = self._silent(node, there, moment) or failure
            if failure is not None and failure != self.failures.get(node):
                self.failures[node] = failure
                what = "lost" if failure.has_left else "failed"
                log.warning("%s %s: %s (code %d)", node, what, failure.reason, failure.exit_code)
        return joined

    def look_in_vain(self, moment: float) -> None:
        """Take note that storage did not answer at *moment*: the time since the last look is its silence, no node's."""
        pause = moment - self._looked_at
        self._looked_at = moment
        self._alive = {node: (latest, changed_at + pause) for node, (latest, changed_at) in self._alive.items()}

    def check(self) -> None:
        """Raise where too few nodes are left.

        Raises:
            LostError: fewer than ``MIN_WORKERS`` workers, or a parameter server is gone. Its exit code is that of the
                first cause, 76 if that vanished without a word.
        """
        gone = [failure for failure in self.failures.values() if failure.has_left]
        servers_gone = any(failure.node.startswith("PS") for failure in gone)
        workers = sum(node.startswith("WORKER") for node in self.members)
        if gone and (servers_gone or workers < self._settings.min_workers):
            cause = first_cause(gone)
            names = ", ".join(failure.node for failure in gone)
            msg = f"{names} lost, MIN_WORKERS is {self._settings.min_workers}; first {cause.node}: {cause.reason}"
            raise LostError(msg, exit_code=cause.exit_code)

    def _has_left(self, node: str) -> bool:
        return node in self.failures and self.failures[node].has_left

    def _joined(self, there: Mapping[str, str], read: Callable[[str], Mapping[str, Any] | None]) -> list[str]:
        joined = []
        for name, fingerprint in there.items():
            node = name.removesuffix("_config.json")
            if node == name or not _MEMBER.fullmatch(node) or self._configs.get(node) == fingerprint:
                continue
            is_expected = node in self._expected and node not in self._configs
            if not is_expected and read(name) is None:
                continue  # of another launch, or not whole yet
            self._configs[node] = fingerprint
            self._alive.pop(node, None)
            joined.append(node)
        joined += [node for node in self._alive if self._has_left(node) and self._beats_again(node, there)]
        for node in joined:
            if self.failures.pop(node, None):
                log.info("%s is back", node)
        return sorted(joined, key=_by_role_and_rank)

    def _beats_again(self, node: str, there: Mapping[str, str]) -> bool:
        """Return whether a node that was taken for lost was only cut off."""
        latest, _ = self._alive[node]
        return exit_file(node) not in there and there.get(heartbeat_file(node), latest) != latest

    def _told(
        self, node: str, there: Mapping[str, str], moment: float, read: Callable[[str], Mapping[str, Any] | None]
    ) -> Failure | None:
        """Return the failure that *node* itself tells of."""
        fields = read(exit_file(node)) if exit_file(node) in there else None
        if fields is None:
            return None
        has_left = fields.get("has_left") is not False
        if not has_left and fields.get("attempt") != self.attempt:
            return None
        outcome = outcome_of(fields)
        time = _seconds(fields.get("time"))
        if time is None:  # when main first saw it
            time = self.failures[node].time if node in self.failures else unix_time()
        return Failure(
            node,
            outcome.exit_code or ExitCode.LOST,  # success before the cluster's end is a contradiction
            outcome.reason,
            time,
            moment,
            attempt=self.attempt,
            has_left=has_left,
        )

    def _silent(self, node: str, there: Mapping[str, str], moment: float) -> Failure | None:
        """Return the failure that *node*'s silence means."""
        heartbeat = there.get(heartbeat_file(node))
        if heartbeat is None:
            return None  # has not come yet: the start script waits for it, and names it if it does not come
        latest, changed_at = self._alive.setdefault(node, (heartbeat, moment))
        if heartbeat != latest:
            self._alive[node] = (heartbeat, moment)
            return None
        silence = moment - changed_at
        if silence <= self._settings.heartbeat_timeout_s:
            return None
        return Failure(
            node,
            ExitCode.LOST,
            f"no heartbeat for {silence:.0f} s",
            unix_time() - silence,
            moment,
            self.attempt,
            is_silence=True,
        )


_MEMBER = re.compile(r"(WORKER|PS)_([1-9][0-9]{0,6})")


def is_member(node: str) -> bool:
    """Return whether *node* is the name of a worker or of a parameter server."""
    return _MEMBER.fullmatch(node) is not None


def _seconds(value: Any) -> float | None:
    """Return *value* as Unix seconds, None where no clock shows it: a bool, NaN, beyond the year 5138."""
    return float(value) if type(value) in {int, float} and 0 <= value < 1e11 else None


def _by_role_and_rank(node: str) -> tuple[bool, int]:
    return node.startswith("PS"), int(node.rpartition("_")[2])
