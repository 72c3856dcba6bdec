"""What the nodes of a cluster have printed: from its cluster dir, or from OCI Logging."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oci_cluster.backends.oci.states import node_of
from oci_cluster.contract.cluster_dir import ClusterDir
from oci_cluster.contract.log_times import StampedLog, stamp
from oci_cluster.contract.node_logs import NodeLogs
from oci_cluster.system.console import Say, program, say_to_stderr

if TYPE_CHECKING:
    from oci_cluster.backends.oci.jobs import Jobs

_TIME = "%Y-%m-%dT%H:%M:%SZ"


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

    def close(self) -> None:
        """Do nothing: each copying is over when its call is."""


class ServiceLogs:
    """The logs of a cluster's nodes, copied from OCI Logging to a directory of this machine."""

    def __init__(self, jobs: Jobs, job: str, group: str, directory: Path) -> None:
        """Copy to *directory*, which holds no logs yet, what the runs of *job* have left in the log group *group*."""
        self.directory = directory
        self._jobs = jobs
        self._job = job
        self._place = f"{jobs.compartment}/{group}"
        self._copied: dict[str, int] = {}
        self._logs: dict[str, StampedLog] = {}

    def fetch(self) -> None:
        """Copy what is new.

        Raises:
            ServiceError: the service did not answer; the next call goes on from there.
        """
        for run in [run for run in self._jobs.runs(self._job) if run.time_accepted]:
            node = node_of(run) or "MAIN"  # with node groups, one run is all nodes
            log = self._logs.setdefault(run.id, StampedLog(self.directory, node))
            lines = self._search(run)
            log.add(b"".join(lines[self._copied.get(run.id, 0) :]))
            self._copied[run.id] = len(lines)

    def close(self) -> None:
        """Do nothing: each copying is over when its call is."""

    def _search(self, run: Any) -> list[bytes]:
        """Return what the node of *run* has printed, each line after its time, as OCI Logging has it: seconds late."""
        words = [
            *("--search-query", f"search \"{self._place}\" | where source = '*{run.id}' | sort by datetime asc"),
            *("--time-start", run.time_accepted.strftime(_TIME)),
            *("--time-end", time.strftime(_TIME, time.gmtime(time.time() + 60))),
        ]
        lines: list[bytes] = []
        page: list[str] = []
        while True:
            answer = self._jobs.service.cli(
                "search the logs", "logging-search", "search-logs", "--limit", "1000", *words, *page
            )
            results = answer.get("data", {}).get("results") or []
            lines += [_stamped(result["data"]) for result in results]
            if "opc-next-page" not in answer:
                return lines
            page = ["--page", answer["opc-next-page"]]


def _stamped(data: Mapping[str, Any]) -> bytes:
    """Return a line of OCI Logging's after its time."""
    ms = data.get("datetime")
    line = f"{data['logContent']['data'].get('message', '')}\n"
    return stamp(ms if isinstance(ms, int) else 0) + line.encode(errors="replace")
