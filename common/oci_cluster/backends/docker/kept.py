"""What is kept of an ended cluster in the checkout: copied from the engine in the end."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from oci_cluster.backends.docker import commands
from oci_cluster.backends.docker.logs import start_whole
from oci_cluster.backends.docker.states import Container
from oci_cluster.backends.kept import write_states
from oci_cluster.backends.stamped import take_apart
from oci_cluster.contract.cluster import FILE, Cluster, NodeState, Plan
from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.errors import BackendError, StorageError
from oci_cluster.system.engine import Engine, EngineError
from oci_cluster.system.files import write_whole
from oci_cluster.system.text import printable

# What nodes say of themselves, in the words of the contract. Not the certificate, whose key is nobody's any more.
_KEPT_FILE = re.compile(r"(MAIN|(WORKER|PS)_[1-9][0-9]{0,5})_(config|heartbeat|exit|ready)\.json|stop")


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
        write_states(cluster, states)
    except (OSError, EngineError, StorageError) as error:
        raise BackendError(
            f"what {cluster.name} leaves could not be copied to {directory}: {error}; it stays in the "
            f"engine; try again: scripts/stop.sh {cluster.name} --backend docker"
        ) from error


def _copy_log(engine: Engine, container: str, logs: Path, node: str) -> None:
    stamped = logs / f"{node}.new"
    if start_whole(engine, container, stamped).wait() != 0:
        raise EngineError(f"{engine.program} logs: {printable(stamped.read_text(errors='replace'))}")
    take_apart(stamped, logs, node)
    stamped.unlink()
