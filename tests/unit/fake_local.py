"""A plan of this machine, and what a cluster of it keeps."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oci_cluster.contract.cluster import FILE, Cluster, Limits, Node, Plan, clusters_dir

LIMITS = Limits(1, 1, 600.0, 0.0, 10.0, 60.0, {})


def make_plan(name: str = "mine", launch_id: str = "aaaa1111", **changes: Any) -> Plan:
    """Return a plan of 1 + 1 nodes."""
    plan = Plan(
        name=name,
        launch_id=launch_id,
        framework="plain",
        backend="local",
        created="2026-01-01T00:00:00Z",
        project="p",
        nodes=(Node("MAIN", 0), Node("WORKER", 1)),
        environment={"LAUNCH_ID": launch_id},
        settings={},
        limits=LIMITS,
    )
    return replace(plan, **changes)


def keep(root: Path, plan: Plan, texts: Sequence[str] = ("127.0.0.1", "127.0.0.2")) -> Cluster:
    """Put a cluster's directory where a launch would."""
    nodes = tuple(replace(node, address=text) for node, text in zip(plan.nodes, texts, strict=True))
    cluster = Cluster.of(plan, clusters_dir(root))
    (cluster.directory / "logs").mkdir(parents=True)
    (cluster.directory / FILE).write_text(json.dumps(replace(plan, nodes=nodes).to_json()))
    return cluster


class Running:
    """A cluster whose runner's lock is held."""

    def __init__(self, cluster: Cluster) -> None:
        self._lock = (cluster.directory / "runner.lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def __enter__(self) -> None:
        """Hold it."""

    def __exit__(self, *_: object) -> None:
        """Let it go, as the kernel does for a process that ends."""
        self._lock.close()
