"""Tells which nodes are alive, by heartbeats that change and the reader's own clock."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from oci_cluster.contract.files.signing import OTHER_LIFE
from oci_cluster.contract.first_cause import first_cause
from oci_cluster.contract.names import exit_file, heartbeat_file, is_node, rank_of
from oci_cluster.contract.outcome import Outcome, outcome_of
from oci_cluster.contract.settings.node import NodeSettings
from oci_cluster.errors import ExitCode, LostError

log = logging.getLogger("agent")

# Returns the fields of a file; None where it cannot say, and is asked again the next time.
Read = Callable[[str], Mapping[str, Any] | None]


# How much later than a node is lost it is looked at: clocks have steps, and a silence of just the limit is none.
AFTER_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Failure(Outcome):
    """The way in which one node failed."""

    node: str
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

    @classmethod
    def of(cls, node: str, outcome: Outcome, **when: Any) -> Failure:
        """Return the failure of a node with this *outcome*, which is no success."""
        return cls(**{**vars(outcome), "exit_code": outcome.exit_code or ExitCode.LOST}, node=node, **when)

    def outcome(self, reason: str = "") -> Outcome:
        """Return what it means for the cluster, for its own reason or for *reason*."""
        return Outcome(self.exit_code, reason or self.reason, is_unasked=self.is_unasked)

    @property
    def is_consequence(self) -> bool | None:
        """False where no other node can have brought it on; else nobody knows."""
        return False if self.is_silence or self.is_own_error else None

    def told(self, how: str = "") -> str:
        """Return the reason after the node and *how*, unless it begins with the node."""
        return self.reason if self.reason.startswith(f"{self.node}: ") else f"{self.node}{how}: {self.reason}"


@dataclass(frozen=True)
class Restart:
    """The gang is to start again."""

    reason: str
    is_failure: bool
    begins_life: bool = False
    """Whether main begins the next life: not all nodes can come to another attempt of this one."""


class NodesWatch:
    """The other nodes as main sees them: present, joined or failed."""

    def __init__(self, settings: NodeSettings, unusable: Mapping[str, str], wall_clock: Callable[[], float]) -> None:
        self._settings, self._unusable, self._wall_clock = settings, unusable, wall_clock
        self._expected = frozenset(settings.other_nodes)
        # Latest fingerprint of each heartbeat, and when it changed.
        self._alive: dict[str, tuple[str, float]] = {}
        # Fingerprint of each configuration: where it changes, the node has been started anew.
        self._configs: dict[str, str] = {}
        # Counters: of the configuration with which a node has begun, and of the last heartbeat that was read.
        self._begun: dict[str, int] = {}
        self._proved: dict[str, int] = {}
        # Fingerprint of the heartbeat, and when, at a node's last proof; those whose heartbeat somebody else writes.
        self._proofs: dict[str, tuple[str, float]] = {}
        self._doubted: set[str] = set()
        self._told: set[str] = set()
        # Fingerprints of files of other lives: until they change, they need not be read again.
        self._others: dict[str, str] = {}
        #: When nodes were interrupted last.
        self.interrupted: dict[str, float] = {}
        self.failures: dict[str, Failure] = {}
        self.attempt = 0
        self._observed_at = 0.0

    @property
    def seen(self) -> list[str]:
        """Nodes that have shown a sign of life: a configuration or a heartbeat."""
        return list(self._alive)

    @property
    def missing(self) -> list[str]:
        """Nodes that the launch asked for and that are not present."""
        present = {*self._configs, *self._alive}
        return [node for node in self._settings.other_nodes if node not in present or self._has_left(node)]

    @property
    def members(self) -> list[str]:
        """Nodes that have not left, expected or joined later, by role and rank."""
        joined = [node for node in self._configs if node not in self._expected]
        nodes = [*self._settings.other_nodes, *joined]
        return sorted((node for node in nodes if not self._has_left(node)), key=by_role_and_rank)

    @property
    def awaited(self) -> list[str]:
        """Interrupted nodes that the cluster needs, while they may still come back."""
        since = self._observed_at - self._settings.timeout_s
        failures = self.failures.values()
        nodes = [found.node for found in failures if found.is_interruption and found.noticed_at >= since]
        workers = sum(node.startswith("WORKER") for node in self.members)
        is_short = workers < self._settings.min_workers
        return [node for node in nodes if is_short or node.startswith("PS")]

    @property
    def suspect_at(self) -> float:
        """The moment when the first node would be lost: list the cluster dir then."""
        left = [changed_at for node, (_, changed_at) in self._alive.items() if not self._has_left(node)]
        return min(left, default=math.inf) + self._settings.heartbeat_timeout_s + AFTER_S

    def begin(self, attempt: int) -> None:
        """Forget failed attempts, not nodes that are gone: all that are left start again."""
        self.attempt = attempt
        self.failures = {node: failure for node, failure in self.failures.items() if failure.has_left}

    def observe(self, listing: Mapping[str, str], moment: float, read: Read) -> list[str]:
        """Note the *listing* at *moment*; return the nodes that have joined since the last."""
        self._observed_at = moment
        joined = self._joined(listing, read)
        for node in self.members:
            failure = self._reported(node, listing, moment, read)
            if failure is None or not failure.has_left:
                failure = self._unresponsive(node, listing, moment, read) or failure
            if failure is not None and failure != self.failures.get(node):
                self.failures[node] = failure
                if failure.is_interruption:
                    self.interrupted[node] = failure.noticed_at
                was_stopped = failure.exit_code == ExitCode.STOPPED and not failure.is_unasked
                if failure.has_left and was_stopped:  # scale.sh, and nothing is wrong
                    log.info("%s %s: %s", node, "ended" if failure.is_interruption else "left", failure.reason)
                    continue
                what = "lost" if failure.has_left else "failed"
                log.warning("%s %s: %s (code %d)", node, what, failure.reason, failure.exit_code)
        return joined

    def count_outage(self, moment: float) -> None:
        """Note that storage did not answer at *moment*: no node was silent meanwhile."""
        pause = moment - self._observed_at
        self._observed_at = moment
        self._alive = {node: (latest, changed_at + pause) for node, (latest, changed_at) in self._alive.items()}

    def check(self) -> None:
        """Raise a LostError with the first cause's code if too few nodes are left."""
        awaited = self.awaited
        gone = [failure for failure in self.failures.values() if failure.has_left and failure.node not in awaited]
        servers_gone = any(failure.node.startswith("PS") for failure in gone)
        workers = sum(node.startswith("WORKER") for node in (*self.members, *awaited))
        if gone and (servers_gone or workers < self._settings.min_workers):
            cause = first_cause(gone)
            names = ", ".join(failure.node for failure in gone)
            msg = f"{names} lost, MIN_WORKERS is {self._settings.min_workers}; first {cause.told()}"
            # Nobody has asked the cluster to stop.
            is_no_stop = cause.is_interruption or cause.is_unasked
            raise LostError(msg, exit_code=ExitCode.LOST if is_no_stop else cause.exit_code)

    def _has_left(self, node: str) -> bool:
        return node in self.failures and self.failures[node].has_left

    def _joined(self, listing: Mapping[str, str], read: Read) -> list[str]:
        joined = []
        for name, fingerprint in listing.items():
            node = name.removesuffix("_config.json")
            if node == name or not is_member(node) or self._configs.get(node) == fingerprint:
                continue
            # Where it can be of another life, a file says nothing by being there.
            is_expected = node in self._expected and node not in self._configs and not self._settings.interruptible
            if not is_expected:
                if self._others.get(name) == fingerprint or (config := self._read_own(name, fingerprint, read)) is None:
                    continue  # of another launch or life, or not whole yet
                self._begun[node] = config.get("counter", 0)
            self._configs[node] = fingerprint
            self._alive.pop(node, None)
            joined.append(node)
        joined += [node for node in self._alive if self._has_left(node) and self._beats_again(node, listing, read)]
        for node in joined:
            if self.failures.pop(node, None):
                log.info("%s is back", node)
        return sorted(joined, key=by_role_and_rank)

    def _read_own(self, name: str, fingerprint: str, read: Read) -> Mapping[str, Any] | None:
        """Return the fields of the file *name*; one of another life is read once."""
        fields = read(name)
        if fields is None and self._unusable.get(name) == OTHER_LIFE:
            self._others[name] = fingerprint
        return fields

    def _beats_again(self, node: str, listing: Mapping[str, str], read: Read) -> bool:
        """Return whether a node that was taken for lost was only cut off."""
        latest, _ = self._alive[node]
        has_changed = exit_file(node) not in listing and listing.get(heartbeat_file(node), latest) != latest
        return has_changed and bool(self._is_proved(node, read))

    def prove_one(self, listing: Mapping[str, str], moment: float, read: Read) -> None:
        """Read the heartbeat of the node whose last proof is the oldest.

        A *listing* tells that a heartbeat has changed, but not who has changed it. This is one request for each
        heartbeat of main, whatever the size of the cluster.
        """
        nodes = [node for node in self.members if heartbeat_file(node) in listing and node not in self._doubted]
        if not nodes:
            return
        node = min(nodes, key=lambda node: self._proofs.get(node, ("", -1.0))[1])
        heartbeat = listing[heartbeat_file(node)]
        proved, _ = self._proofs.get(node, ("", moment))
        is_proved = self._is_proved(node, read)
        self._proofs[node] = (proved if is_proved is None else heartbeat, moment)
        if is_proved is False and (heartbeat_file(node) in self._unusable or proved not in {"", heartbeat}):
            self._doubted.add(node)

    def _is_proved(self, node: str, read: Read) -> bool | None:
        """Return whether *node* wrote a new heartbeat itself; None where that is unknown."""
        name = heartbeat_file(node)
        fields = read(name)
        if fields is None:
            return False if name in self._unusable else None
        counter = fields.get("counter", 0)
        is_new = bool(counter > self._proved.get(node, 0))
        if is_new:
            self._proved[node] = counter
            self._doubted.discard(node)
        return is_new

    def _reported(self, node: str, listing: Mapping[str, str], moment: float, read: Read) -> Failure | None:
        name = exit_file(node)
        if name not in listing or self._others.get(name) == listing[name]:
            return None
        fields = self._read_own(name, listing[name], read)
        # One from before it began is its predecessor's, whom somebody else makes speak.
        if fields is None or fields.get("counter", 0) < self._begun.get(node, 0):
            return None
        has_left = fields.get("has_left") is not False
        if not has_left and fields.get("attempt") != self.attempt:
            return None
        outcome = outcome_of(fields)
        time = _seconds(fields.get("time"))
        if time is None:  # when main first saw it
            time = self.failures[node].time if node in self.failures else self._wall_clock()
        return Failure.of(node, outcome, time=time, noticed_at=moment, attempt=self.attempt, has_left=has_left)

    def _unresponsive(self, node: str, listing: Mapping[str, str], moment: float, read: Read) -> Failure | None:
        if self._settings.interruptible and node not in self._configs:
            return None  # its heartbeat is of another life, or of none yet
        # A file that somebody has deleted does not change either. A node's configuration is its first sign of life: who
        # dies between that and the first heartbeat is silent, too.
        heartbeat = listing.get(heartbeat_file(node), self._alive.get(node, (self._configs.get(node),))[0])
        if heartbeat is None:
            return None  # has not come yet: the start script waits for it, and names it if it does not come
        latest, changed_at = self._alive.setdefault(node, (heartbeat, moment))
        if heartbeat != latest:
            if node not in self._doubted or self._is_proved(node, read) is not False:
                self._alive[node] = (heartbeat, moment)
                return None
            self._alive[node] = (heartbeat, changed_at)
            if node not in self._told:
                self._told.add(node)
                log.warning("%s changes, but %s does not write it: that counts for nothing", heartbeat_file(node), node)
        silence = moment - changed_at
        if silence <= self._settings.heartbeat_timeout_s:
            return None
        return Failure(
            ExitCode.LOST,
            f"no heartbeat for {silence:.0f} s",
            node=node,
            time=self._wall_clock() - silence,
            noticed_at=moment,
            attempt=self.attempt,
            is_silence=True,
        )


def is_member(node: str) -> bool:
    """Return whether *node* is the name of a worker or of a parameter server."""
    return node != "MAIN" and is_node(node)


def _seconds(value: Any) -> float | None:
    return float(value) if type(value) in {int, float} and 0 <= value < 1e11 else None


def by_role_and_rank(node: str) -> tuple[bool, int]:
    """Return what sorts names of nodes: workers, then parameter servers, each by rank."""
    return node.startswith("PS"), rank_of(node)
