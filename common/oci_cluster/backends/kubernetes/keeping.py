"""What is kept in the checkout of a cluster that has ended, before Kubernetes forgets it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from oci_cluster.backends import kept
from oci_cluster.backends.base import LogCopy
from oci_cluster.contract.cluster import FILE, Cluster, NodeState, Plan
from oci_cluster.system.files import not_writable, write_whole


def keep(
    cluster: Cluster,
    plan: Plan,
    states: Sequence[NodeState],
    told: Mapping[str, bytes] | None,
    logs: Callable[[Cluster, Path], LogCopy] | None,
) -> None:
    """Write what is known of *cluster* to its directory.

    Args:
        cluster: One that has ended.
        plan: What it was launched with.
        states: How its nodes ended.
        told: The files that they told; None where a work dir has them, with logs and outputs.
        logs: Copies whole logs of pods to a folder; None where these are to stay with the pods.

    Raises:
        BackendError, NotPermittedError: that cannot be written.
        KubernetesError: the API did not answer.
    """
    directory = cluster.directory
    try:
        if not (directory / FILE).exists():
            write_whole(directory / FILE, json.dumps(plan.to_json(), indent=2))
        for name, body in (told or {}).items():
            if body:
                write_whole(directory / name, body)
        if told is not None and logs is not None:
            with tempfile.TemporaryDirectory(dir=directory) as scratch:
                _bring_logs(logs(cluster, Path(scratch)), directory / "logs")
        kept.write_states(cluster, states)
    except OSError as error:
        raise not_writable(directory, error) from error


def _bring_logs(copy: LogCopy, to: Path) -> None:
    """Have whole logs of pods that are there in place of what was followed; of those that are gone, that is all."""
    copy.fetch()
    copy.close()
    for path in copy.directory.iterdir():
        there = to / path.name
        if not there.exists() or there.stat().st_size <= path.stat().st_size:
            path.replace(there)
