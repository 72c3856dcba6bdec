"""Clusters that were launched from here, as their ``cluster.json`` tells."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oci_cluster.errors import UsageError


@dataclass(frozen=True)
class Cluster:
    """One cluster: the directory of its ``cluster.json`` and logs on this machine, and what was launched."""

    directory: Path
    plan: Mapping[str, Any]

    @classmethod
    def load(cls, directory: Path) -> Cluster:
        """Read the cluster that is kept in *directory*.

        Raises:
            UsageError: there is none.
        """
        try:
            plan = json.loads((directory / "cluster.json").read_text())
            if not isinstance(plan, dict) or not {"name", "launch_id", "cluster_id", "created"} <= set(plan):
                msg = "not what launch.sh writes"
                raise ValueError(msg)
        except (OSError, ValueError) as error:
            msg = f"there is no cluster in {directory}: {error}"
            raise UsageError(msg) from error
        return cls(directory, plan)

    @property
    def name(self) -> str:
        """What people call it."""
        return str(self.plan["name"])

    @property
    def launch_id(self) -> str:
        """The launch that it belongs to."""
        return str(self.plan["launch_id"])

    @property
    def files(self) -> str:
        """Where its logs and outputs are: on this machine, or where the backend says."""
        return str(self.plan.get("files") or self.directory)

    @property
    def url(self) -> str:
        """Its cluster dir."""
        return f"{self.plan['work_dir'].rstrip('/')}/{self.plan['cluster_id']}"


def find_clusters(directory: Path, backend: str = "local") -> list[Cluster]:
    """Return the clusters of *backend* that are kept in *directory*, the oldest first.

    One that is just being written is not one yet.
    """
    found = []
    for path in directory.glob("*/cluster.json"):
        with contextlib.suppress(UsageError):
            cluster = Cluster.load(path.parent)
            if cluster.plan.get("backend", "local") == backend:
                found.append(cluster)
    return sorted(found, key=lambda cluster: (cluster.plan["created"], cluster.launch_id))


def choose_cluster(name: str, clusters: Sequence[Cluster], is_running: Callable[[Cluster], bool]) -> Cluster:
    """Return the cluster called *name*: the running one, else the latest. No *name*: the only one that runs.

    Raises:
        UsageError: none or several fit; names those that there are.
    """
    running = [cluster for cluster in clusters if is_running(cluster)]
    if not name:
        if len(running) == 1:
            return running[0]
        names = ", ".join(cluster.name for cluster in running) or "none"
        msg = f"which cluster? running: {names}; scripts/list.sh --all shows those that have ended"
        raise UsageError(msg)
    fitting = [cluster for cluster in running if cluster.name == name] or [
        cluster for cluster in clusters if name in {cluster.name, cluster.plan["cluster_id"]}
    ]
    if not fitting:
        known = ", ".join(dict.fromkeys(cluster.name for cluster in clusters)) or "none"
        msg = f"there is no cluster '{name}'; known: {known}"
        raise UsageError(msg)
    return fitting[-1]
