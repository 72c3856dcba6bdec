"""Logs of a cluster's nodes, out of its cluster dir. ``service_logs.py`` has them out of OCI Logging."""

from __future__ import annotations

from pathlib import Path

from oci_cluster.backends.base import LogsInPlace
from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.node_logs import NodeLogs
from oci_cluster.system.console import Say, program, say_to_stderr


class SayOnce:
    """Says what logs leave out, each text once: they are copied twice where only the last lines are shown."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, text: str) -> None:
        """Say *text*, unless it has been said."""
        if text not in self._said:
            self._said.add(text)
            say_to_stderr(program())(text)


class StoredLogs(LogsInPlace):
    """The logs of a cluster's nodes, which leave their last lines in the cluster dir before they end."""

    def __init__(self, cluster_dir: ClusterDir, directory: Path, say: Say) -> None:
        """Copy to *directory*, which holds no logs yet; *say* is told what is left out."""
        super().__init__(directory)
        self._logs = NodeLogs(cluster_dir, directory, say)

    def fetch(self) -> None:
        """Copy what is new; after a StorageError the next call goes on from there."""
        self._logs.fetch()
