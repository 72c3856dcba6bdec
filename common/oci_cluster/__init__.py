"""Launch, exchange and supervision of training clusters; see ``common/README.md`` for the contract.

For Python, :class:`Cluster` and :class:`Job` are what the scripts are for a shell; ``docs/python.md`` tells more.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oci_cluster.api.auth import (
        ConfigProfile,
        InstancePrincipal,
        Kubeconfig,
        ResourcePrincipal,
        SessionToken,
        Token,
    )
    from oci_cluster.api.cluster import Cluster, Job
    from oci_cluster.errors import (
        BackendError,
        ClusterError,
        ClusterFailedError,
        LostError,
        NotPermittedError,
        SettingsError,
        StoppedError,
        StorageError,
        TimedOutError,
        UsageError,
    )

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 - what people look for first
    "Cluster",
    "Job",
    "ConfigProfile",
    "InstancePrincipal",
    "Kubeconfig",
    "ResourcePrincipal",
    "SessionToken",
    "Token",
    "BackendError",
    "ClusterError",
    "ClusterFailedError",
    "LostError",
    "NotPermittedError",
    "SettingsError",
    "StoppedError",
    "StorageError",
    "TimedOutError",
    "UsageError",
]


# Where each name is: nothing of it is imported before somebody uses it, as agents import this package, too.
_PLACES = {name: "errors" if name.endswith("Error") else "api.auth" for name in __all__}
_PLACES |= dict.fromkeys(("Cluster", "Job"), "api.cluster")


def __getattr__(name: str) -> Any:
    """Return what the Python API has under *name* (PEP 562)."""
    if name not in _PLACES:
        raise AttributeError(f"module 'oci_cluster' has no attribute '{name}'")
    return getattr(importlib.import_module(f"oci_cluster.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    """Return the names that there are, also before they are imported."""
    return sorted({*globals(), *__all__})
