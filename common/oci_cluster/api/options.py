"""The words that ``Cluster(...)`` and ``Job(...)`` take, with their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from oci_cluster.api.auth import Auth
from oci_cluster.system.console import Say


class PlaceOptions(TypedDict, total=False):
    """Where a cluster is, and who asks."""

    backend: str
    """``local``, ``docker``, ``oci`` or ``kubernetes``; without, the setting ``BACKEND``, else ``local``."""
    settings: Mapping[str, object]
    """As ``config.env`` has them; they win over it and over the environment."""
    auth: Auth | None
    """Who asks OCI or Kubernetes; without, whom the settings name."""
    project: str | Path | None
    """The checkout; without, the one around the current folder, else where this package came from."""
    say: Say | None
    """Is told of progress, line by line; without, the logger ``oci_cluster``, else stderr."""


class Options(PlaceOptions, total=False):
    """What is launched, besides framework and workers."""

    entry: str | Path
    """Your script or notebook; with it the cluster ends."""
    module: str
    """Instead of *entry*: the module that is run as ``python -m``."""
    arguments: Sequence[object]
    """The script's."""
    code: str | Path
    """Folder of the code; without, that of *entry*."""
    outputs: Sequence[str]
    """Folders of the code that the script writes to."""
    python: str | Path
    """On ``local``: the nodes' interpreter. Without, the one that runs this program, where it has the framework's
    packages, else the framework's own environment."""
    packages: Sequence[str]
    """On ``local``: what is added to the framework's own environment, as pip names it."""
    env: Mapping[str, object]
    """Variables of every node."""
    env_plain: Mapping[str, object]
    """The same, which are no secrets, whatever they look like. Of the name ``ARGS``: the arguments are none."""
    name: str
    """The cluster's; without, one is made from the framework's."""
    ps: int
    """Parameter servers."""
    ttl: str
    """The longest life, such as ``2h``."""
    keep: bool
    """The cluster goes on when this process, or a ``with``, has ended."""
    queue: str
    """Kueue's, on ``kubernetes``."""
    priority: str
    """A WorkloadPriorityClass, on ``kubernetes``."""
    wait_for_quota: str
    """How long to wait in the queue."""
