"""Watches nodes that wait for a host, and cancels them in the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from oci_cluster.backends.base import Backend
from oci_cluster.contract.cluster import QUEUE_STATES, Cluster, NodeState, Plan, State
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import config_file, heartbeat_file
from oci_cluster.errors import ClusterError
from oci_cluster.system.console import Say
from oci_cluster.system.text import moment, now, span, timestamp

# Between two lines about nodes that wait: as often as somebody looks who waits for minutes.
_TELL_S = 60.0
# A cancel is seen some seconds later.
_CANCEL_AGAIN_S = 10.0
# More names than these make no line that anybody reads.
_MOST_NAMES = 5
# In the place of a life: the wait for a quota, in which a node has none.
_QUEUE = "queue"
# How much later than START_BY a node may think that it is: OCI refuses requests whose date is five minutes off, so the
# clocks of a launcher and of a node that both reach it differ by ten at most.
_CLOCKS_S = 600.0


def bounded(plan: Plan) -> Plan:
    """Return *plan* with a time after which its nodes need not start."""
    bounds = [seconds for seconds in (plan.provision_timeout_s, plan.limits.ttl_s) if seconds]
    if not bounds:
        return plan
    start_by = timestamp(moment(now()) + min(bounds) + _CLOCKS_S)
    return replace(plan, environment={**plan.environment, "START_BY": start_by})


def names_of(nodes: Sequence[str]) -> str:
    """Return the names of *nodes* for a line; of many the first."""
    shown = ", ".join(nodes[:_MOST_NAMES])
    more = len(nodes) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


@dataclass(eq=False)
class Watcher:
    """Watches one aspect of a cluster that is followed, from look to look."""

    backend: Backend
    cluster: Cluster
    plan: Plan
    cluster_dir: ClusterDir
    say: Say = field(kw_only=True)
    clock: Callable[[], float] = field(kw_only=True)

    def __post_init__(self) -> None:
        """Begin; each kind has a state of its own."""


@dataclass(frozen=True)
class Overdue:
    """Nodes that have waited for too long, and the limit in words."""

    nodes: tuple[str, ...] = ()
    reason: str = ""


class Provisioning(Watcher):
    """Nodes of one cluster that have not started, from look to look."""

    def __post_init__(self) -> None:
        self._began = self._told_at = self.clock()
        # Since when each life of a node has been seen to wait, and how long it did when it was seen to no more.
        self._since: dict[tuple[str, str | int], float] = {}
        self._waited: dict[str, str] = {}
        self._lives: dict[str, str | int] = {}
        self._troubles: dict[str, str] = {}
        # Nodes that have left a file: they have started, whatever the backend says that may be late.
        self._alive: set[str] = set()
        self._over_at: float | None = None
        self._queue_told_at: float | None = None
        self._quota_timeout_s = float(self.plan.placed.get("wait_for_quota_s") or 0)
        self._told: set[str] = set()
        self._canceled_at: dict[tuple[str, str | int], float] = {}

    def look(self, nodes: Sequence[NodeState]) -> None:
        """Take note of *nodes*; say which of them wait, and what needs attention."""
        for node in nodes:
            self._lives.setdefault(node.node, node.id)
            if node.is_waiting:
                # One that has its machine's name, or whose quota has come, waits on; in a queue it is another wait.
                before = self._since.get((node.node, ""), self.clock())
                since = self._since.setdefault(_wait_of(node), self.clock() if _is_queued(node) else before)
                why = f": {node.details}" if node.details and node.state not in QUEUE_STATES else ""
                self._waited[node.node] = f"{node.state} for {span(self.clock() - since)}{why}"
            elif node.is_running:
                self._waited.pop(node.node, None)
                for wait in ("", _QUEUE):  # it may wait again for a place, and that is another wait
                    self._since.pop((node.node, wait), None)
        self._tell_troubles(nodes)
        waiting = self.waiting(nodes)
        self._tell_queue(waiting)
        if waiting and self._over_at is None and self.clock() - self._told_at >= _TELL_S:
            self._told_at = self.clock()
            self._tell(nodes, waiting)

    def note_files(self, listing: Collection[str]) -> None:
        """Take note of the nodes whose files are in the *listing*."""
        self._alive |= {name for name in self._lives if {config_file(name), heartbeat_file(name)} & {*listing}}

    def waiting(self, nodes: Sequence[NodeState]) -> list[NodeState]:
        """Return those of *nodes* that have not started.

        A backend may be late; a node's file tells that it has, but not in which of its later lives.
        """
        return [
            node
            for node in nodes
            if node.is_waiting and not (node.id and node.node in self._alive and self._lives.get(node.node) == node.id)
        ]

    def overdue(self, nodes: Sequence[NodeState]) -> Overdue:
        """Return which of *nodes* have waited for longer than they may."""
        limit_s, ttl_s, waiting = self.plan.provision_timeout_s, self.plan.limits.ttl_s, self.waiting(nodes)
        if queued := [node for node in waiting if _is_queued(node)]:
            late = self._late(queued, self._quota_timeout_s)
            why = f"{self.cluster.name} had no place in its queue within {self._quota_timeout_s:g} s (WAIT_FOR_QUOTA)"
            return Overdue(late, f"{why}: {queued[0].details}") if late else Overdue()
        if late := self._late(waiting, limit_s):
            return Overdue(late, f"{names_of(late)} did not start within {limit_s:g} s (PROVISION_TIMEOUT)")
        if "MAIN" in self._late(waiting, ttl_s):
            return Overdue(("MAIN",), f"TTL of {ttl_s:g} s reached before MAIN had started; launch with a longer --ttl")
        return Overdue()

    def _late(self, nodes: Sequence[NodeState], limit_s: float) -> tuple[str, ...]:
        """Return those of *nodes* that have waited for *limit_s*; 0: there is no limit."""
        return tuple(node.node for node in nodes if 0 < limit_s <= self._waited_s(node))

    def _waited_s(self, node: NodeState) -> float:
        return self.clock() - self._since[_wait_of(node)]

    def give_up(self, nodes: Sequence[NodeState], overdue: Overdue) -> None:
        """Cancel the nodes that are *overdue*: the cluster works without them."""
        self._cancel(nodes, overdue.nodes, f"{overdue.reason}; the cluster goes on without")

    def end(self, nodes: Sequence[NodeState]) -> None:
        """Cancel nodes of an ended cluster that have not started: they read no file."""
        is_new, now_s = self._over_at is None, self.clock()
        over_at = self._over_at = now_s if self._over_at is None else self._over_at
        if is_new and self.waiting(nodes):
            with contextlib.suppress(ClusterError):  # what the backend says is all that is known, then
                self.note_files(self.cluster_dir.listing())
        waiting = self.waiting(nodes)
        # What shares its life with a node that ends in order is canceled with it, after the time that this may take.
        patience_s = self.plan.limits.grace_period_s + self.backend.end_margin_s
        if now_s - over_at < patience_s:
            working = {node.id for node in nodes if node.is_running and not node.is_waiting}
            waiting = [node for node in waiting if node.id not in working]
        names = [node.node for node in waiting]
        self._cancel(nodes, names, f"the cluster is over; canceling what has not started: {names_of(names)}")

    def never_started(self, nodes: Sequence[NodeState]) -> str:
        """Return in words which of *nodes*, which have ended, never started."""
        told = [node.node for node in nodes if node.never_started and node.node in self._waited]
        return names_of([f"{name} ({self._waited[name]})" for name in told])

    def _cancel(self, nodes: Sequence[NodeState], names: Collection[str], words: str) -> None:
        # One that is canceled still waits, to the eyes of a backend that tells late.
        again = self.clock() - _CANCEL_AGAIN_S
        lives = [(node.node, node.id) for node in nodes if node.node in names]
        lives = [life for life in lives if self._canceled_at.get(life, again) <= again]
        if not lives:
            return
        wanted = [name for name, _ in lives]
        if words not in self._told:
            self._told.add(words)
            self.say(words)
        try:
            self.backend.end(self.cluster, wanted)
        except ClusterError as error:
            self.say(f"{names_of(wanted)} could not be canceled: {error}; trying again")
        else:
            self._canceled_at.update(dict.fromkeys(lives, self.clock()))

    def _tell(self, nodes: Sequence[NodeState], waiting: Sequence[NodeState]) -> None:
        groups: dict[tuple[State, str], list[NodeState]] = {}
        for node in waiting:
            groups.setdefault((node.state, node.details), []).append(node)
        parts = []
        for (state, details), members in groups.items():
            longest_s = max(map(self._waited_s, members))
            names = names_of([node.node for node in members])
            why = f" ({details})" if details else ""
            parts.append(f"{len(members)} {state} for {span(longest_s)}{why}: {names}")
        self.say(f"{len(nodes) - len(waiting)} of {len(nodes)} nodes have started; {'; '.join(parts)}")

    def _tell_queue(self, waiting: Sequence[NodeState]) -> None:
        queued = next((node for node in waiting if node.state in QUEUE_STATES and node.details), None)
        if queued is None or self._over_at is not None:
            self._queue_told_at = None
            return
        now_s = self.clock()
        if self._queue_told_at is None or now_s - self._queue_told_at >= _TELL_S:
            self._queue_told_at = self._told_at = now_s
            self.say(f"{self.cluster.name}: {queued.details}")

    def _tell_troubles(self, nodes: Sequence[NodeState]) -> None:
        troubles = {node.node: node.details for node in nodes if node.state is State.NEEDS_ATTENTION}
        by_details: dict[str, list[str]] = {}
        for name, details in troubles.items():
            if self._troubles.get(name) != details:
                by_details.setdefault(details, []).append(name)
        for details, names in by_details.items():
            are = "is" if len(names) == 1 else "are"
            self.say(f"{names_of(names)} {are} NEEDS_ATTENTION: {details or 'the service does not say why'}")
        now_states: Mapping[str, State] = {node.node: node.state for node in nodes if node.is_running}
        gone = [name for name in self._troubles if name not in troubles and name in now_states]
        if gone and self._over_at is None:
            self.say(f"{names_of(gone)} needed attention; now {now_states[gone[0]]}")
        self._troubles = troubles


def _is_queued(node: NodeState) -> bool:
    return node.state in QUEUE_STATES


def _wait_of(node: NodeState) -> tuple[str, str | int]:
    """Return a key for the wait of *node*: quota or host."""
    return node.node, _QUEUE if _is_queued(node) else node.id
