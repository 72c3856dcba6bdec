"""Logs of a cluster's nodes, out of its cluster dir; backends/oci/logs.py has OCI Logging's."""

from __future__ import annotations

from pathlib import Path

from oci_cluster.backends.base import LogsInPlace
from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.node_logs import NodeLogs
from oci_cluster.contract.parsers import parse_switch
from oci_cluster.contract.settings.settings_files import SettingsReader
from oci_cluster.system.console import Say, program, say_to_stderr


class SayOnce:
    """Says each text once: where only last lines are shown, logs are copied twice."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, text: str) -> None:
        """Say *text*, unless it has been said."""
        if text not in self._said:
            self._said.add(text)
            say_to_stderr(program())(text)


class StoredLogs(LogsInPlace):
    """Logs that nodes put whole into the cluster dir before they end."""

    @classmethod
    def of(cls, plan: Plan, directory: Path, say: Say) -> StoredLogs | None:
        """Return those of *plan*'s nodes, for *directory*; None where there are none."""
        if not SettingsReader(plan.environment).value("NODE_LOGS", parse_switch, False):
            return None
        # Who fetches has a loop.
        return cls(ClusterDir(plan.url, plan.launch_id, plan.launch_key, patience_s=0.0), directory, say)

    def __init__(self, cluster_dir: ClusterDir, directory: Path, say: Say) -> None:
        """Copy to the empty *directory*; *say* is told what is left out."""
        super().__init__(directory)
        self._logs = NodeLogs(cluster_dir, directory, say)

    def fetch(self) -> None:
        """Copy what is new; after a StorageError the next call goes on from there."""
        self._logs.fetch()
