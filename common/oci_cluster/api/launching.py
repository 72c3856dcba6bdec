"""A launch from Python: the steps of ``launch.sh``, without its terminal, its environment and its signals."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from oci_cluster.api.messages import Messages
from oci_cluster.api.place import Place
from oci_cluster.api.request import Wanted, request_of
from oci_cluster.api.running import Running
from oci_cluster.backends.base import Backend
from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.launcher.adapting import followed
from oci_cluster.launcher.guard import Guard
from oci_cluster.launcher.lifecycle import Lifecycle, started
from oci_cluster.launcher.planning import make_plan
from oci_cluster.launcher.provisioning import bounded

# Is called after each look at a cluster that is followed.
OnRound = Callable[[Running], object]


def launched(
    wanted: Wanted, place: Place, *, keep: bool, say: Messages, on_round: OnRound
) -> tuple[Cluster, Running | None]:
    """Launch what is *wanted* at *place*; return it, and what follows it, unless it is to be kept.

    Raises:
        ClusterError: it cannot be launched; nothing of it is left.
    """
    backend = place.open()
    is_followed = False
    try:
        lifecycle = Lifecycle(backend, place.root, say)
        plan = _prepared(wanted, place, backend, lifecycle, say)
        guard = Guard(backend.name, plan.cluster_id, root=place.root, own=place.own)
        try:
            cluster = lifecycle.launch(bounded(plan) if keep else followed(plan, backend))
            try:
                say(started(backend, cluster, plan))
                if keep:
                    return cluster, None
                running = Running(backend, cluster, plan, say, lifecycle)
                running.follow(guard, lambda: on_round(running))
                is_followed = True
            except BaseException:  # an interrupt, just now
                lifecycle.stop(cluster, reason="its launch was interrupted")
                raise
        finally:
            if not is_followed:
                guard.dismiss()
    finally:
        if not is_followed:
            backend.close()
    return cluster, running


def _prepared(wanted: Wanted, place: Place, backend: Backend, lifecycle: Lifecycle, say: Messages) -> Plan:
    """Return the placed plan, when all that can be refused has been, and what its nodes need is there."""
    request = request_of(wanted, place, say)
    environ = {**os.environ, **{name: text for name, text in place.own.items() if name in os.environ}}
    most = backend.max_workers
    plan = make_plan(request, environ, root=place.root, cwd=Path.cwd(), max_workers=most, say=say)
    backend.check()
    backend.check(plan)
    plan = backend.place(plan, say)
    if backend.is_free_to_ask:
        lifecycle.check_name(plan.name)
    return backend.prepare(plan, say)
