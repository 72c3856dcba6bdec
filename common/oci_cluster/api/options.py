"""The words that ``Cluster(...)`` and ``Job(...)`` take, with their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from oci_cluster.api.auth import Auth
from oci_cluster.system.console import Say


class PlaceOptions(TypedDict, total=False):
    """Where a cluster is, and who asks."""

    backend: str  # local, docker, oci or kubernetes; without, the setting BACKEND, else local
    settings: Mapping[str, object]  # as config.env has them; they win over it and over the environment
    auth: Auth | None  # who asks; without, whom the environment and config.env name
    project: str | Path | None  # the checkout; without, OCI_CLUSTER_PROJECT, else the one around, else the package's
    say: Say | None  # is told of progress, line by line; without, the logger oci_cluster, else stderr


class Options(PlaceOptions, total=False):
    """What is launched, besides framework and workers."""

    entry: str | Path  # your script or notebook; with it the cluster ends
    module: str  # instead of entry: the module that is run as `python -m`
    arguments: Sequence[object]  # the script's
    code: str | Path  # folder of the code; without, that of entry
    outputs: Sequence[str]  # folders of the code that the script writes to
    # On local: the nodes' interpreter. Without, this program's, where it has the framework's packages, else the
    # framework's own environment, to which packages adds what pip names so.
    python: str | Path
    packages: Sequence[str]
    env: Mapping[str, object]  # variables of every node
    env_plain: Mapping[str, object]  # those that are no secrets, whatever they look like; ARGS: the arguments are none
    name: str  # the cluster's; without, one is made from the framework's
    ps: int  # parameter servers
    ttl: str  # the longest life, such as 2h
    keep: bool  # the cluster goes on when this process, or a `with`, has ended
    queue: str  # Kueue's, on kubernetes
    priority: str  # a WorkloadPriorityClass, on kubernetes
    wait_for_quota: str  # how long to wait in the queue
