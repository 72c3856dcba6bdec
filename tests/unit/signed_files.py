"""Files as nodes write them, without a node."""

from __future__ import annotations

from typing import Any

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.node_logs import sealed
from oci_cluster.contract.files.signing import Signer, derived_key


def signed(name: str, launch_id: str, launch_key: str, **fields: Any) -> bytes:
    """Return what a node of a launch writes to the file *name*; *fields* may be what none would write."""
    signer = Signer(derived_key(launch_key, launch_id, "exchange"))
    return signer.sign(name, {"schema": 1, "launch_id": launch_id, **fields})[0]


def leave_log(cluster_dir: ClusterDir, node: str, text: bytes) -> None:
    """Have *node* leave the first part of its log."""
    name = f"logs/{node}.1700000000000.000000.log"
    cluster_dir.create()
    cluster_dir.write_bytes(name, sealed(cluster_dir, name, text))
