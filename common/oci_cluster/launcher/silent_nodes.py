"""Nodes that say nothing while their cluster is over, such as frozen ones: nobody else would end them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oci_cluster.backends.base import Backend
from oci_cluster.contract.cluster import Cluster, NodeState, Plan
from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.names import STOP, heartbeat_file
from oci_cluster.contract.silence import Silence
from oci_cluster.errors import ClusterError, ExitCode
from oci_cluster.launcher.lifecycle import request_stop
from oci_cluster.system.console import Say

# How a node ends that has waited in vain for main, or has given it up.
_GAVE_MAIN_UP = {int(ExitCode.TIMED_OUT), int(ExitCode.LOST)}


class SilentNodes:
    """The nodes of one cluster: each that is still there when the cluster is over has to show that it lives."""

    def __init__(
        self,
        backend: Backend,
        cluster: Cluster,
        plan: Plan,
        cluster_dir: ClusterDir,
        *,
        say: Say,
        clock: Callable[[], float],
    ) -> None:
        """Watch *cluster*; see :class:`~oci_cluster.launcher.follow.Follower` for the arguments."""
        self._backend = backend
        self._cluster = cluster
        self._plan = plan
        self._cluster_dir = cluster_dir
        self._say = say
        self._clock = clock
        self._watched: dict[str, Silence] = {}
        self._told: dict[str, float] = {}
        # A node that ends its start script shows nothing meanwhile.
        self._patience_s = plan.limits.grace_period_s + backend.end_margin_s

    def end(self, nodes: Sequence[NodeState]) -> None:
        """End those of *nodes* that have been silent since the cluster was over, for as long as a lost node is.

        They are told to end, and those that do not are killed. A node whose storage does not answer this process
        either is not ended: nothing is known of it then.
        """
        # Who has not started cannot show anything.
        running = [state.node for state in nodes if state.is_running and not state.is_waiting]
        if not self._is_over(nodes, running):
            return
        for node in running:
            if node in self._told:
                self._kill(node)
            elif (silent_s := self._silence_of(node)) > self._plan.limits.heartbeat_timeout_s + self._patience_s:
                self._tell(node, silent_s)

    def _is_over(self, nodes: Sequence[NodeState], running: Sequence[str]) -> bool:
        """Return whether nothing that runs can change the outcome: main has ended, or others have given it up."""
        if any(state.node == "MAIN" and not state.is_running for state in nodes):
            return True
        if any(state.exit_code in _GAVE_MAIN_UP for state in nodes):
            return True
        try:
            return len(running) == 1 < len(nodes) and self._cluster_dir.is_there(STOP)
        except ClusterError:
            return False

    def _silence_of(self, node: str) -> float:
        watch = self._watched.setdefault(node, Silence(self._clock()))
        try:
            heartbeat, answered = self._cluster_dir.read(heartbeat_file(node)), True
        except ClusterError:
            heartbeat, answered = None, False
        return watch.observe(heartbeat, self._clock(), answered=answered)

    def _tell(self, node: str, silent_s: float) -> None:
        self._say(f"{node} has shown no sign of life for {silent_s:.0f} s; ending it")
        try:
            if node == "MAIN":
                reason = f"main lost: no heartbeat for {silent_s:.0f} s"
                request_stop(self._backend, self._cluster, self._plan, reason, ExitCode.LOST)
            self._backend.end(self._cluster, [node])
        except ClusterError as error:
            self._say(f"{node} could not be ended: {error}; trying again")
            return
        self._told[node] = self._clock()

    def _kill(self, node: str) -> None:
        # The backend has a deadline of its own, after which it kills, and tells how the node ended.
        if self._clock() - self._told[node] < 2 * self._patience_s + self._backend.end_timeout_s:
            return
        self._say(f"{node} has not ended; killing it")
        try:
            self._backend.end(self._cluster, [node], at_once=True)
        except ClusterError as error:
            self._say(f"{node} could not be killed: {error}; trying again")
        self._told[node] = self._clock()
