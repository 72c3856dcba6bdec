"""Nodes that share one Job Run with node groups: what the service tells of the groups, and the nodes of themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oci_cluster.contract.cluster import NodeState, Plan, State
from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.names import exit_file
from oci_cluster.contract.outcome import outcome_of
from oci_cluster.errors import ClusterError
from oci_cluster.system.text import printable

if TYPE_CHECKING:
    from oci_cluster.backends.oci.jobs import Jobs

# The groups that a Job with node groups has, by the roles of their nodes.
_GROUPS = {"MAIN": "main", "WORKER": "worker", "PS": "ps"}


def nodes_of(jobs: Jobs, plan: Plan, whole: NodeState, run: Any) -> list[NodeState]:
    """Return the states of the nodes of *plan*: only their own files tell how each of them ended.

    *whole* is the state of the *run* that they share. Of one that has failed, a list does not tell the groups.
    """
    if whole.state is State.FAILED and not hasattr(run, "node_group_details_list"):
        run = jobs.run(run.id) or run
    nodes = nodes_of_group(plan.node_names, whole, run)
    if whole.exit_code is None or whole.never_started or whole.state is State.SUCCEEDED:
        return nodes
    cluster_dir = ClusterDir(plan.url, plan.launch_id, plan.launch_key)
    return [_as_told(state, cluster_dir) for state in nodes]


def nodes_of_group(names: Sequence[str], whole: NodeState, run: Any) -> list[NodeState]:
    """Return the states of the nodes *names*, which share one run: the *whole* one's, and what groups tell."""
    groups = {group.name: group for group in getattr(run, "node_group_details_list", None) or []}
    failed = [group for group in groups.values() if group.lifecycle_state == "FAILED"]
    told = [f"node group {printable(group.name)}: {printable(group.lifecycle_details or 'FAILED')}" for group in failed]
    details = "; ".join(filter(None, [whole.details, *told]))
    found = []
    for name in names:
        group = groups.get(_GROUPS[name.partition("_")[0]])
        state = replace(whole, node=name, details=details)
        if whole.state is State.IN_PROGRESS and group is not None and group.lifecycle_state == "CREATING":
            state = replace(state, state=State.ACCEPTED, is_waiting=True)
        found.append(state)
    return found


def _as_told(state: NodeState, cluster_dir: ClusterDir) -> NodeState:
    """Return *state* with the exit code that the node has left, where it has left one."""
    with contextlib.suppress(ClusterError):
        if (said := cluster_dir.read(exit_file(state.node))) is not None:
            code = outcome_of(said).exit_code
            # Main's 0 does not make a success of a run that the service calls failed; of one that was canceled when
            # main had ended, because another node never started, it does.
            if code or state.node != "MAIN" or state.state is State.CANCELED:
                return replace(state, exit_code=code)
    return state
