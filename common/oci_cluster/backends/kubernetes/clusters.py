"""Jobs as clusters, and as the plans that these were launched with. Nobody is asked here.

Whoever may write in the namespace can write labels and annotations: none of them is a name before it has been checked.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from oci_cluster.backends.kubernetes.requests import CREATED, FRAMEWORK, NAME, PROJECT, PROTOCOL
from oci_cluster.backends.kubernetes.settings import is_stored
from oci_cluster.backends.kubernetes.states import (
    annotations_of,
    environment_of,
    launch_of,
    name_of,
    node_of,
    size_of,
)
from oci_cluster.contract import told_work_dir
from oci_cluster.contract.cluster import Cluster, Plan, limits_of
from oci_cluster.contract.values import parse_name
from oci_cluster.errors import LostPlanError, SettingsError
from oci_cluster.system.text import printable

Object = dict[str, Any]

_LAUNCH_ID = re.compile(r"[0-9a-f]{8}")
_CREATED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_OBJECT = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def cluster_of(job: Object, clusters_dir: Path) -> Cluster | None:
    """Return the cluster that *job* is; None where it is none of ours. Name and launch id become names of files."""
    told, launch_id = annotations_of(job), launch_of(job)
    name, created = told.get(NAME, ""), told.get(CREATED, "")
    try:
        cluster_id = parse_name(f"{parse_name(name)}-{launch_id}")
    except ValueError:
        return None
    is_ours = _LAUNCH_ID.fullmatch(launch_id) and _CREATED.fullmatch(created) and _OBJECT.fullmatch(name_of(job))
    # Its name ends with the launch id: nobody takes another's place by copying labels.
    if not is_ours or not name_of(job).endswith(f"-{launch_id}"):
        return None
    return Cluster(
        name=name,
        launch_id=launch_id,
        framework=printable(told.get(FRAMEWORK, "")),
        backend="kubernetes",
        created=created,
        project=printable(told.get(PROJECT, "")),
        directory=clusters_dir / cluster_id,
        handle=name_of(job),
    )


def plan_of(cluster: Cluster, job: Object, launch_key: str, root: Path, own: Collection[str] = ()) -> Plan:
    """Return what *cluster* was launched with, as its *job* and its Secret tell.

    Raises:
        LostPlanError: the Job is not one that a launch has made.
    """
    environment = environment_of(job)
    namespace = str((job.get("metadata") or {}).get("namespace", ""))
    try:
        folder = root / parse_name(cluster.framework)
        limits = limits_of(environment, folder)
        count = size_of(job)
        nodes = [node_of(index, environment) for index in range(count)]
    except (ValueError, SettingsError) as error:
        raise LostPlanError(f"the Job {cluster.handle} does not tell what was launched: {printable(error)}") from error
    work_dir = environment.get("WORK_DIR", "")
    if is_stored(work_dir):
        told_work_dir.checked(work_dir, own, f"the Job {cluster.handle}")
    return Plan(
        name=cluster.name,
        launch_id=cluster.launch_id,
        framework=cluster.framework,
        backend=cluster.backend,
        created=cluster.created,
        project=cluster.project,
        nodes=tuple(nodes),
        environment={**environment, "LAUNCH_KEY": launch_key},
        settings={},
        limits=limits,
        work_dir=work_dir if is_stored(work_dir) else f"{PROTOCOL}://{namespace}/{cluster.handle}",
        placed={"object": cluster.handle, "namespace": namespace},
    )
