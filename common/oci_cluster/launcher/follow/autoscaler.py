"""Adds and ends workers of a cluster as main asks, within ADAPT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oci_cluster.backends.base import Backend
from oci_cluster.contract.cluster import NodeState, Plan
from oci_cluster.contract.files.lives import read_stop
from oci_cluster.contract.names import SCALE_REQUEST, is_worker, rank_of
from oci_cluster.contract.parsers import parse_bounds
from oci_cluster.errors import ClusterError, ExitCode
from oci_cluster.launcher.follow.provisioning import Watcher
from oci_cluster.launcher.lifecycle import Lifecycle

# How often the request is read that is on no disk of this machine: as often as nodes look for `stop` (POLL_CEILING).
_LOOK_S = 4.0
# How long nothing is added after a refusal, and how long at most: each one costs requests, and perhaps a host that was
# started in vain. The pause doubles; it begins anew when it was quiet for longer than twice the last one.
_FIRST_PAUSE_S = 5.0
_LONGEST_PAUSE_S = 600.0
# After so long a node that has been told to end, and has not, is told again.
_TELL_AGAIN_S = 120.0
# How workers end that were asked to, or whose cluster is over.
_IN_ORDER = {int(ExitCode.OK), int(ExitCode.STOPPED)}

Life = tuple[str, "str | int"]


def followed(plan: Plan, backend: Backend) -> Plan:
    """Return *plan* with what an adapting main must know of its launcher and *backend*."""
    if not plan.environment.get("ADAPT"):
        return plan
    return replace(plan, environment={**plan.environment, "FOLLOWED": backend.ends_workers})


@dataclass(frozen=True)
class Change:
    """Workers that a cluster is to get, and to lose, at once."""

    added: int = 0
    ended: tuple[str, ...] = ()


def change_of(
    request: Mapping[str, Any], workers: Sequence[NodeState], ending: set[Life], bounds: tuple[int, int], *, ends: str
) -> Change:
    """Return what brings a cluster of *workers* to what main's *request* says, within *bounds*.

    *ending* have been told to end; *ends* is :attr:`Backend.ends_workers`.
    """
    idle = request.get("idle")
    idle = [str(name) for name in idle] if isinstance(idle, list) else []
    wanted = min(max(int(request["workers"]), bounds[0]), bounds[1])
    by_rank = sorted(workers, key=lambda node: rank_of(node.node))
    staying = [node for node in by_rank if (node.node, node.id) not in ending]
    named = [node.node for node in staying if node.node in idle]
    ended = {*named[max(0, len(named) - max(0, len(staying) - bounds[0])) :]}
    # Who waits for a host has nothing to do yet; what works and is too many, main has to let go first.
    waiting = [node.node for node in staying if node.is_waiting and node.node not in ended]
    surplus = max(0, len(staying) - len(ended) - wanted)
    ended |= {*waiting[max(0, len(waiting) - surplus) :]}
    if ends == "last":
        last = max((rank_of(node.node) for node in staying if node.node not in ended), default=0)
        ended = {name for name in ended if rank_of(name) > last}
    # Those that end cost until they have ended.
    added = min(wanted - (len(staying) - len(ended)), bounds[1] - len(workers))
    return Change(max(0, added), tuple(sorted(ended, key=rank_of)))


class Autoscaler(Watcher):
    """The workers of one cluster, as who follows it has them come and go."""

    def __post_init__(self) -> None:
        self._lifecycle = Lifecycle(self.backend, self.cluster.directory.parents[1], self.say, clock=self.clock)
        text = self.plan.environment.get("ADAPT", "")
        self._bounds = parse_bounds(text, maximum=self.backend.max_workers) if text else None
        self._ends = self.backend.ends_workers
        self._look_at = self.clock()
        self._told_at: dict[Life, float] = {}
        self._lost: set[Life] = set()
        self._pause_s, self._refused_at = 0.0, self.clock()
        # When workers may be added again; and when any may be ended, where that was refused.
        self._add_at = self._end_at = self.clock()

    def look(self, nodes: Sequence[NodeState]) -> None:
        """Do what main asks for; to be called while the cluster is ready."""
        if self._bounds is None or self.clock() < self._look_at:
            return
        self._look_at = self.clock() + (0.0 if self.cluster_dir.local_path is not None else _LOOK_S)
        workers = {(node.node, node.id): node for node in nodes if is_worker(node.node)}
        try:
            request, stop = self.cluster_dir.read(SCALE_REQUEST), None
            running = [node for node in workers.values() if node.is_running]
            ended = [life for life, node in workers.items() if not node.is_running and life not in self._lost]
            change = Change()
            if request is not None and type(request.get("workers")) is int:
                change = change_of(request, running, self._ending(), self._bounds, ends=self._ends)
            if change != Change() or ended:
                stop = read_stop(self.cluster_dir)
        except ClusterError:
            return  # nothing is known; the next look is soon
        if stop is not None:
            return  # who ends now is not to be replaced
        self._note_ended(workers, ended)
        if self.clock() < self._end_at:
            return
        if self.clock() < self._add_at:
            change = replace(change, added=0)
        if change != Change():
            self._do(change, running)

    def _note_ended(self, workers: Mapping[Life, NodeState], ended: Sequence[Life]) -> None:
        """Take note of *ended* workers, and add none at once in their place."""
        for life in ended:
            node = workers[life]
            if life not in self._told_at and node.exit_code not in _IN_ORDER:
                self._pause(f"{node.node} has ended by itself")
            elif life not in self._told_at:  # by scale.sh; or with the cluster, whose `stop` may be seen later
                self._add_at = max(self._add_at, self.clock() + _FIRST_PAUSE_S)
        self._lost |= {*ended}
        self._told_at = {life: told_at for life, told_at in self._told_at.items() if life not in self._lost}

    def _ending(self) -> set[Life]:
        again = self.clock() - _TELL_AGAIN_S
        return {life for life, told_at in self._told_at.items() if told_at > again}

    def _do(self, change: Change, running: Sequence[NodeState]) -> None:
        ending = self._ending()
        now = sum((node.node, node.id) not in ending for node in running)
        try:
            added = self._lifecycle.resize(self.cluster, change.added, change.ended)
        except ClusterError as error:
            self._pause(f"{now} workers cannot become {now + change.added - len(change.ended)}: {error}")
            if change.ended:
                self._end_at = self._add_at
            return
        for node in running:
            if node.node in change.ended:
                self._told_at[node.node, node.id] = self.clock()
        self.say(f"adapting: {now} -> {now + len(added) - len(change.ended)} workers")

    def _pause(self, why: str) -> None:
        """Say *why* no worker is added for a while, which is longer each time."""
        now = self.clock()
        is_new = now - self._refused_at > 2 * self._pause_s + _FIRST_PAUSE_S
        self._pause_s = _FIRST_PAUSE_S if is_new or not self._pause_s else min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._refused_at, self._add_at = now, now + self._pause_s
        self.say(f"adapting: {why}; no worker is added for {self._pause_s:.0f} s")
