"""Nodes that are lost, and whose ranks their backend gives to no other node: main waits for them in vain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oci_cluster.contract.cluster import Limits, NodeState
from oci_cluster.system.console import Say


class GoneNodes:
    """The nodes of one cluster, as its launcher sees them go.

    Main sees a node that was told to end, and which may live again, as after an eviction. Only the backend knows that
    this one will not.
    """

    def __init__(self, limits: Limits, *, say: Say, clock: Callable[[], float]) -> None:
        """Watch a cluster of *limits*; *clock* tells monotonic seconds."""
        self._limits = limits
        self._say = say
        self._clock = clock
        self._since: dict[str, float] = {}

    def why_hopeless(self, nodes: Sequence[NodeState]) -> str:
        """Say once of each of *nodes* that it is gone; return why the cluster cannot go on, empty where it may.

        What main can end by itself it has ended after ``GRACE_PERIOD``.
        """
        gone = [node for node in nodes if node.is_lost and node.is_final]
        is_main_there = any(node.node == "MAIN" and node.is_running for node in nodes)
        if not gone or not is_main_there:
            return ""
        for node in gone:
            if node.node not in self._since:
                self._since[node.node] = self._clock()
                self._say(f"{node.node} is lost, and no other node takes its place: {node.details}")
        names = {node.node for node in gone}
        left = sum(node.node.startswith("WORKER") and node.node not in names for node in nodes)
        is_needed = any(not name.startswith("WORKER") for name in names)  # parameter servers
        if left >= self._limits.min_workers and not is_needed:
            return ""
        if self._clock() - min(self._since[name] for name in names) < self._limits.grace_period_s:
            return ""
        return f"{gone[0].node} lost: {gone[0].details}; MIN_WORKERS is {self._limits.min_workers}"
