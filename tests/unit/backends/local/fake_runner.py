"""What a cluster's runner records and answers, where a test plays it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from oci_cluster.contract.cluster import Cluster

#: A process that lives.
RUNNER_PID = os.getpid()


def record(cluster: Cluster, *nodes: Mapping[str, Any], **fields: Any) -> None:
    """Write what its runner would."""
    text = json.dumps({"runner_pid": RUNNER_PID, "nodes": nodes, **fields})
    (cluster.directory / "nodes.json").write_text(text.ljust(2000))


def node_record(name: str, state: str = "IN_PROGRESS", **fields: Any) -> dict[str, Any]:
    """Return the runner's word on a node."""
    code = None if state == "IN_PROGRESS" else 9
    return {"node": name, "state": state, "exit_code": code, "pid": 4243, "address": "127.0.0.1", **fields}


class FakeRunner:
    """A runner's process, which answers when it is woken."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, launch_id: str = "aaaa1111") -> None:
        self._cluster = cluster
        self._launch_id = launch_id
        self.nodes = [node_record("MAIN"), node_record("WORKER_1", pid=4244)]
        self.signals: list[tuple[int | None, int]] = []
        self.requests: list[dict[str, Any]] = []
        self.error = ""
        self._pid: int | None = None
        monkeypatch.setattr("psutil.Process", self._process)
        self.answer()

    def answer(self, **answer: Any) -> None:
        """Have the records hold an answer."""
        record(self._cluster, *self.nodes, answer=answer)

    def _process(self, pid: int | None) -> FakeRunner:
        self._pid = pid
        return self

    def environ(self) -> dict[str, str]:
        """Return the mark by which it is known."""
        return {"CLUSTER_RUNNER": self._launch_id}

    def send_signal(self, number: int) -> None:
        """Read the request, and answer it."""
        self.signals.append((self._pid, number))
        if number == signal.SIGUSR1:
            request = json.loads((self._cluster.directory / "scale.json").read_text())
            self.requests.append({"start": request["start"], "end": request["end"]})
            self.answer(id=request["id"], error=self.error)
