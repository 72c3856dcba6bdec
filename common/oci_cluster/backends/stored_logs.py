"""What the nodes of a cluster have printed, out of its cluster dir. ``service_logs.py`` has it out of OCI Logging."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.node_logs import NodeLogs
from oci_cluster.system.console import Say, program, say_to_stderr


class SayOnce:
    """Says what logs leave out, each text once: they are copied twice where only the last lines are shown."""

    def __init__(self) -> None:
        """Have said nothing yet."""
        self._said: set[str] = set()

    def __call__(self, text: str) -> None:
        """Say *text* to the person, unless it has been said."""
        if text not in self._said:
            self._said.add(text)
            say_to_stderr(program())(text)


class StoredLogs:
    """The logs of a cluster's nodes, copied from the cluster dir to a directory of this machine."""

    def __init__(self, cluster_dir: ClusterDir, directory: Path, say: Say) -> None:
        """Copy to *directory*, which holds no logs yet; *say* is told what is left out."""
        self.directory = directory
        self._logs = NodeLogs(cluster_dir, directory, say)

    def fetch(self) -> None:
        """Copy what is new.

        Raises:
            StorageError: storage did not answer; the next call goes on from there.
        """
        self._logs.fetch()

    def drain(self, pause: Callable[[], bool], say: Say) -> None:
        """Do nothing: a node has left its last lines there before it ends."""

    def close(self) -> None:
        """Do nothing: each copying is over when its call is."""
