"""This machine as a place where nodes run, with runners that are no processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from unit.backends.places import Base

from oci_cluster.backends.local import addresses, records
from oci_cluster.backends.local import backend as local
from oci_cluster.contract.cluster import FILE, Cluster, Node, Plan, State
from oci_cluster.contract.files.log_times import times_file
from oci_cluster.errors import BackendError


class LocalPlace(Base):
    """This machine, with runners that are no processes."""

    name = "local"
    can_wait = False

    def set_up(self) -> None:
        self._refused = ""
        self._lost = ""
        self._stops_at = ""
        self._asked = 0
        self._locks: dict[str, Any] = {}
        self._nodes: dict[str, list[dict[str, Any]]] = {}
        self._environments: dict[str, dict[str, str]] = {}
        self._answers: dict[str, dict[str, str]] = {}
        self._directories: dict[str, Path] = {}
        bind = socket.socket.bind

        class Socket(socket.socket):
            def bind(self, address: Any) -> None:
                bind(self, f"{address}/{os.getpid()}" if self.family == socket.AF_UNIX else address)

        self.monkeypatch.setattr(addresses.socket, "socket", Socket)
        self.monkeypatch.setattr(
            local.LocalBackend, "_start_runner", lambda _, cluster, lock: self._start(cluster, lock)
        )
        self.monkeypatch.setattr(records, "send_signal", self._signal)
        self.monkeypatch.setattr(local, "sweep_marked", self._sweep)
        self.monkeypatch.setattr(local, "ensure_framework", lambda *_: Path("/env/bin/python"))

    def make(self) -> local.LocalBackend:
        return local.LocalBackend(
            self.root, is_stopped=lambda: self.is_stopped, clock=self.clock, sleep=self.clock.sleep
        )

    def _start(self, cluster: Cluster, lock: int) -> None:
        launch_id = cluster.launch_id
        self._locks[launch_id] = os.fdopen(os.dup(lock), "w")  # as a process has it that inherits it
        self._nodes[launch_id] = []
        self._directories[launch_id] = cluster.directory
        plan = Plan.load(cluster.directory, self.root)
        for node in plan.nodes:
            self._start_node(plan, node)
        self._record(launch_id)

    def _start_node(self, plan: Plan, node: Node) -> None:
        if node.name == self._stops_at:
            self.is_stopped = True
            raise local.StoppedError("stopped before any node had started")
        if node.name == self._refused:
            raise BackendError(f"{node.name} cannot be started")
        nodes = self._nodes[plan.launch_id]
        nodes[:] = [other for other in nodes if other["node"] != node.name]
        pid = 1000 + 10 * len(self._environments)
        nodes.append({"node": node.name, "state": "IN_PROGRESS", "exit_code": None, "pid": pid, "address": "127.0.0.9"})
        self._environments[node.name] = {**plan.environment, **node.environment}
        (self._directories[plan.launch_id] / "logs" / f"{node.name}.log").touch()
        if node.name == self._lost:
            raise BackendError("the runner did not answer")

    def _record(self, launch_id: str) -> None:
        nodes = self._nodes[launch_id]
        answer = self._answers.get(launch_id, {})
        text = json.dumps({"runner_pid": 1, "nodes": nodes, "answer": answer})
        with contextlib.suppress(FileNotFoundError):
            (self._directories[launch_id] / records.FILE).write_text(text)
        if not any(node["exit_code"] is None for node in nodes):
            self._locks.pop(launch_id, SimpleNamespace(close=lambda: None)).close()

    def _signal(self, launch_id: str, pid: int, number: int) -> bool:
        directory = self._directories[launch_id]
        if number == signal.SIGUSR1:
            request = json.loads((directory / records.REQUEST).read_text())
            error = ""
            try:
                plan = Plan.load(directory, self.root)
                for rank in request["start"]:
                    self._start_node(plan, Node("WORKER", rank, "127.0.0.9"))
            except BackendError as problem:
                error = str(problem)
            for name in request["end"]:
                self._end(launch_id, lambda node, name=name: node["node"] == name, 143)
            self._answers[launch_id] = {"id": request["id"], "error": error}
            self._record(launch_id)
        elif pid == 1:
            self._end(launch_id, lambda _: True, 143)
        else:
            self._end(launch_id, lambda node: node["pid"] == pid, 137)
        return True

    def _sweep(self, marks: dict[str, str], **_: object) -> int:
        launch_id = marks.get("LAUNCH_ID") or marks["CLUSTER_RUNNER"]
        if launch_id in self._nodes:
            self._end(launch_id, lambda _: True, 137)
        return 0

    def _end(self, launch_id: str, is_meant: Callable[[dict[str, Any]], bool], code: int) -> None:
        for node in self._nodes[launch_id]:
            if node["exit_code"] is None and is_meant(node):
                node.update(exit_code=code, state=State.of_exit_code(code))
        self._record(launch_id)

    def running(self) -> list[str]:
        nodes = [node for nodes in self._nodes.values() for node in nodes]
        return sorted(str(node["node"]) for node in nodes if node["exit_code"] is None)

    def requests(self) -> int:
        return 0  # files of this machine

    def refuse(self, node: str) -> None:
        self._refused = node

    def allow(self) -> None:
        self._refused = ""

    def lose_answer_of(self, node: str) -> None:
        self._lost = node

    def stop_launcher_at(self, node: str) -> None:
        self._stops_at = node

    def add_hostile(self) -> None:
        for number, body in enumerate(
            [
                "{",
                "[]",
                json.dumps({"name": "../../etc", "launch_id": "x", "cluster_id": "y", "created": "z"}),
                json.dumps({"name": 1, "launch_id": [], "cluster_id": "1-[]", "created": None, "nodes": 5}),
            ]
        ):
            folder = self.root / ".clusters" / f"hostile-{number}"
            folder.mkdir()
            (folder / "cluster.json").write_text(body)

    def end(self, node: str, code: int) -> None:
        for launch_id in self._nodes:
            self._end(launch_id, lambda found: found["node"] == node, code)

    def hold(self, node: str) -> None:
        raise AssertionError(node)

    def given(self, node: str) -> dict[str, str]:
        return self._environments[node]

    def forge(self, name: str, text: str) -> None:
        for directory in self._directories.values():
            kept = json.loads((directory / FILE).read_text())
            kept["environment"][name] = text
            (directory / FILE).write_text(json.dumps(kept))

    def print(self, node: str, text: str, second: int = 0) -> None:
        for directory in self._directories.values():
            with (directory / "logs" / f"{node}.log").open("a") as log:
                log.write(text)
                size = log.tell()
            with times_file(directory / "logs", node).open("a") as times:
                times.write(f"{second * 1000} {size}\n")

    def close(self) -> None:
        super().close()
        for lock in self._locks.values():
            lock.close()
