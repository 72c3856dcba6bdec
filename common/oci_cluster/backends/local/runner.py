"""The runner: a cluster's process that stands for the service that runs nodes elsewhere."""

from __future__ import annotations

import gc
import os
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from oci_cluster.backends.local import records
from oci_cluster.backends.local.addresses import Addresses, suits
from oci_cluster.backends.local.gpus import share_of
from oci_cluster.contract.cluster import Node, Plan, State
from oci_cluster.contract.names import node_dir, remove_node_dir
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
from oci_cluster.contract.storage.retry import poll_delays
from oci_cluster.errors import ClusterError
from oci_cluster.system.files import not_writable, write_whole
from oci_cluster.system.process import Children, Signals, sweep_marked

# Agents get so much beyond their own grace, to tidy up.
_MARGIN_S = 10.0
# Is the agent of the node that an environment describes; returns its exit code.
BeAgent = Callable[[Mapping[str, str]], int]


def run_nodes(directory: Path, lock: int, be_agent: BeAgent) -> int:
    """Be the runner of the cluster in *directory*, whose lock the descriptor *lock* holds.

    Agents are forked: this process has imported all that they need, and each starts in 5 ms instead of 150.
    """
    return Runner(Plan.load(directory, PROJECT_ROOT), directory, os.environ, lock, be_agent).run()


class Runner:
    """The nodes of one cluster, as their parent sees them."""

    def __init__(self, plan: Plan, directory: Path, environ: Mapping[str, str], lock: int, be_agent: BeAgent) -> None:
        self._plan, self._directory, self._environ = plan, directory, environ
        self._lock, self._be_agent = lock, be_agent
        self._children = Children()
        self._signals = Signals()
        self._nodes: list[dict[str, Any]] = []
        self._claims: list[Addresses] = []
        self._answer: dict[str, Any] = {}
        self._records = records.Records(directory, len(plan.nodes))

    def run(self) -> int:
        """Start the nodes, and return when the last has ended."""
        gc.freeze()  # what is there stays shared with the agents: the collector would write to all of it
        for node in self._plan.nodes:
            self._start(node)
        self._record()
        is_ending = False
        while self._running():
            if self._signals.received and not is_ending:
                is_ending = True
                self._end_all()
            if self._collect():
                continue  # meanwhile others may have ended, and their signals been waited for already
            if not is_ending:
                self._scale()
            self._signals.wait(3600)
        self._sweep({})
        return 0

    def _running(self) -> list[dict[str, Any]]:
        return [node for node in self._nodes if node["state"] == State.IN_PROGRESS]

    def _scale(self) -> None:
        """Do what a request that is new asks for, and answer it."""
        request = records.read_request(self._directory)
        if not request or request["id"] == self._answer.get("id"):
            return
        error = ""
        try:
            self._add(request["start"])
        except (ClusterError, OSError) as problem:
            error = str(problem)
        for node in self._running():
            if node["node"] in request["end"]:
                os.kill(node["pid"], signal.SIGTERM)
        self._answer = {"id": request["id"], "error": error}
        self._record()

    def _add(self, ranks: Sequence[int]) -> None:
        self._records.make_room(len(ranks))  # for their exit codes, first
        claims = Addresses(len(ranks), suits(self._plan, PROJECT_ROOT / self._plan.framework))
        self._claims.append(claims)  # held as long as this process lives
        for rank, address in zip(ranks, claims.texts, strict=True):
            node = Node("WORKER", rank, address)
            self._nodes = [other for other in self._nodes if other["node"] != node.name]  # its predecessor
            self._start(node)

    def _start(self, node: Node) -> None:
        environ = {**self._environ, "PATH": self._path, **self._plan.environment, **node.environment}
        environ |= share_of(self._plan, node)
        # The launcher's own folder: where the work dir is, others may write.
        environ["CLIENT_DIR"] = str(self._directory)
        environ.pop(records.RUNNER_MARK, None)
        log_path = self._directory / "logs" / f"{node.name}.log"
        try:
            output = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise not_writable(log_path, error) from error
        try:
            pid = self._children.fork(
                lambda: self._be_agent(environ),
                name=node.name,
                cwd=self._directory,
                output=output,
                # Without its runner an agent ends its node in order, and the cluster counts as running until it has.
                parent_death_signal=signal.SIGTERM,
                keep=[self._lock],
            )
        finally:
            os.close(output)
        record = {"node": node.name, "state": State.IN_PROGRESS, "exit_code": None, "pid": pid, "address": node.address}
        self._nodes.append(record)

    @cached_property
    def _path(self) -> str:
        """The nodes' ``PATH``, where ``python`` is the launch's interpreter."""
        python = Path(self._plan.python)
        places = [str(python.parent), self._environ.get("PATH", os.defpath)]
        # What start scripts call may be another one beside python3.12, or none, as in /usr/bin.
        if python.with_name("python").resolve() != python.resolve():
            own = self._directory / "bin"
            try:
                own.mkdir(exist_ok=True)
                # No link: an environment's Python would not find that.
                write_whole(own / "python", f'#!/bin/sh\nexec {shlex.quote(str(python))} "$@"\n', mode=0o700)
            except OSError as error:
                raise not_writable(own, error) from error
            places.insert(0, str(own))
        return os.pathsep.join(places)

    def _collect(self) -> bool:
        """Record the nodes that have ended; return whether there were any."""
        has_ended = False
        for node in self._running():
            if (code := self._children.code(node["pid"])) is None:
                continue
            has_ended = True
            # The agent is gone; so is, from now on, whatever it left.
            self._sweep({"NODE_NAME": node["node"]})
            remove_node_dir(node_dir(self._plan.launch_id, node["node"]))
            node.update(exit_code=code, state=State.of_exit_code(code))
            self._record()
        return has_ended

    def _end_all(self) -> None:
        margin_s = self._plan.limits.grace_period_s + _MARGIN_S
        pids = [node["pid"] for node in self._nodes if self._children.code(node["pid"]) is None]
        self._children.end_all(pids, margin_s, wait=self._signals.wait)

    def _sweep(self, marks: Mapping[str, str]) -> None:
        delays = poll_delays(1.0, first_s=0.05)  # what waits for a disk that hangs is there until that answers
        while sweep_marked({"LAUNCH_ID": self._plan.launch_id, **marks}):
            self._signals.wait(next(delays))
            self._children.reap()

    def _record(self) -> None:
        self._records.write({"runner_pid": os.getpid(), "nodes": self._nodes, "answer": self._answer})
