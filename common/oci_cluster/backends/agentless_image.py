"""Mains that have ended with 0 and told nothing: their image runs no agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from oci_cluster.contract.cluster import Cluster, NodeState, Plan
from oci_cluster.contract.files.lives import has_main_reported
from oci_cluster.contract.storage.hanging_disk import asked_dir
from oci_cluster.errors import ClusterError


class ReportedMains:
    """Looks into cluster dirs, once for each main that has ended.

    Args:
        load: Returns the plan of a cluster.
        launched: A file that the launcher has written there. Where it is gone, somebody has cleared the work dir since.
    """

    def __init__(self, load: Callable[[Cluster], Plan], *, launched: str = "") -> None:
        self._load = load
        self._launched = launched
        self._known: dict[str | int, bool] = {}

    def with_reports(self, cluster: Cluster, states: Sequence[NodeState]) -> list[NodeState]:
        """Return *states*, with the answer for a main that has ended with 0."""
        return [
            replace(state, has_reported=self._has_reported(cluster, state))
            if state.node == "MAIN" and state.exit_code == 0
            else state
            for state in states
        ]

    def _has_reported(self, cluster: Cluster, main: NodeState) -> bool:
        if main.id not in self._known:
            try:
                plan = self._load(cluster)
                cluster_dir = asked_dir(cluster, plan)
                is_cleared = bool(self._launched) and self._launched not in cluster_dir.listing()
                self._known[main.id] = is_cleared or has_main_reported(cluster_dir)
            except ClusterError:  # nobody can look, or no launch has made it: the backend's word counts
                return True
        return self._known[main.id]
