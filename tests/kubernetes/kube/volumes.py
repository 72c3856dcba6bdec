"""Volumes that all nodes see, as a file service has them: a directory of the cluster's, bound to a claim."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from kube.cluster import Cluster
from kube.identity import new_name


@contextlib.contextmanager
def claim(
    cluster: Cluster, namespace: str, name: str, *, mode: str = "ReadWriteMany", size: str = "1Gi"
) -> Iterator[Path]:
    """Have a bound claim *name*; yield its directory as this machine sees it. What *size* says is not enforced."""
    volume = new_name("volume")
    directory = cluster.place / volume
    directory.mkdir()
    directory.chmod(0o777)  # fsGroup does nothing to such a volume
    claims = f"api/v1/namespaces/{namespace}/persistentvolumeclaims"
    bounds = {"accessModes": [mode], "storageClassName": "", "volumeMode": "Filesystem"}
    spec = {
        **bounds,
        "capacity": {"storage": size},
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": str(directory), "type": "Directory"},
        "claimRef": {"namespace": namespace, "name": name},
    }
    cluster.api.create("api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": spec})
    asked = {**bounds, "resources": {"requests": {"storage": size}}, "volumeName": volume}
    cluster.api.create(claims, {"metadata": {"name": name}, "spec": asked})
    try:
        cluster.api.until(
            f"{claims}/{name}", lambda found: found["status"]["phase"] == "Bound", "the claim to be bound"
        )
        yield directory
    finally:
        cluster.api.delete(f"{claims}/{name}")
        cluster.api.delete(f"api/v1/persistentvolumes/{volume}")
