"""What is kept of an ended cluster in the checkout: copied from the engine in the end, and read afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from oci_cluster.backends.docker import commands
from oci_cluster.backends.docker.logs import start_whole, take_apart
from oci_cluster.backends.docker.states import Container, record_of, recorded_state
from oci_cluster.contract.cluster import FILE, Cluster, NodeState, Plan
from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.names import rank_of
from oci_cluster.errors import BackendError, StorageError
from oci_cluster.system.engine import Engine, EngineError
from oci_cluster.system.files import locked, not_writable, write_whole
from oci_cluster.system.text import printable

_RECORDS = "nodes.json"
LOCK = ".lock"
"""Held by who copies; so a cluster of this backend has it in its directory from its end on."""
# What nodes say of themselves, in the words of the contract. Not the certificate, whose key is nobody's any more.
_KEPT_FILE = re.compile(r"(MAIN|(WORKER|PS)_[1-9][0-9]{0,5})_(config|heartbeat|exit|ready)\.json|stop")


@contextmanager
def alone(cluster: Cluster) -> Iterator[None]:
    """Make the directory of *cluster*, and hold its lock: a launcher and a stop.sh may come to the same end.

    Raises:
        BackendError, NotPermittedError: it cannot be made.
    """
    make_directory(cluster)
    with locked(cluster.directory / LOCK):
        yield


def make_directory(cluster: Cluster) -> None:
    """Make the directory of *cluster* where it is not there: it was launched from another checkout.

    Raises:
        BackendError, NotPermittedError: it cannot be made.
    """
    try:
        cluster.directory.parent.mkdir(exist_ok=True)
        cluster.directory.mkdir(mode=0o700, exist_ok=True)
        (cluster.directory / "logs").mkdir(exist_ok=True)
    except OSError as error:
        raise not_writable(cluster.directory, error) from error


def open_volumes(engine: Engine) -> None:
    """Have the cluster dirs in the volumes of *engine* opened, as :attr:`Plan.url` names them, from here on."""
    # Imported here: a dry run has no .venv, which the packages of this are in.
    from oci_cluster.backends.docker.volume_files import register  # noqa: PLC0415

    register(engine)


def copy_all(
    engine: Engine, cluster: Cluster, plan: Plan, nodes: Mapping[str, Container], states: Sequence[NodeState]
) -> None:
    """Copy logs, outputs, what the *nodes* of *cluster* said and how they ended, their *states*, to its directory.

    Raises:
        BackendError: not all could be copied.
    """
    from oci_cluster.backends.docker.volume_files import copy_outputs  # noqa: PLC0415 - as open_volumes

    open_volumes(engine)
    directory = cluster.directory
    try:
        if not (directory / FILE).exists():
            write_whole(directory / FILE, json.dumps(replace(plan, work_dir="").to_json(), indent=2))
        for node, container in nodes.items():
            _copy_log(engine, str(container["Id"]), directory / "logs", node)
        cluster_dir = ClusterDir(plan.url, cluster.launch_id, plan.launch_key)
        for name in cluster_dir.listing():
            if _KEPT_FILE.fullmatch(name):
                write_whole(directory / name, cluster_dir.read_bytes(name, 0))
        copy_outputs(engine, commands.container_name(cluster.cluster_id, "MAIN"), directory)
        records = [record_of(state) for state in states]
        write_whole(directory / _RECORDS, json.dumps({"nodes": records}))
    except (OSError, EngineError, StorageError) as error:
        msg = (
            f"what {cluster.name} leaves could not be copied to {directory}: {error}; it stays in the "
            f"engine; try again: scripts/stop.sh {cluster.name} --backend docker"
        )
        raise BackendError(msg) from error


def _copy_log(engine: Engine, container: str, logs: Path, node: str) -> None:
    stamped = logs / f"{node}.new"
    if start_whole(engine, container, stamped).wait() != 0:
        msg = f"{engine.program} logs: {printable(stamped.read_text(errors='replace'))}"
        raise EngineError(msg)
    take_apart(stamped, logs, node)
    stamped.unlink()


def read_states(cluster: Cluster) -> list[NodeState]:
    """Return how the nodes of *cluster* ended, main first; none where that was not kept."""
    try:
        records = json.loads((cluster.directory / _RECORDS).read_bytes())["nodes"]
        # One without a code was there when it was removed, whatever it did then.
        states = (replace(state, is_lost=state.exit_code is None) for state in map(recorded_state, records))
        return sorted(states, key=lambda state: rank_of(state.node))
    except (OSError, ValueError, KeyError, TypeError):
        return []
