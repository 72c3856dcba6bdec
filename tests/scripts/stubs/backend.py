"""Backend ``stub`` of the tests: it starts nothing and notes in ``${STUB_DIR}/calls`` what it is asked to do.

STUB_CODES  "prepare=69 start=77": what these methods end with; "run=7": what the nodes end with, instead of 0
STUB_BLOCK  the method that stays, or "run": the nodes do; until ``${STUB_DIR}/opened`` is there.
            ``${STUB_DIR}/reached`` tells that it stays.
STUB_DEAF   1: what stays goes on when it has been stopped, of which ``${STUB_DIR}/told`` tells

Questions that change nothing and are asked again and again, such as ``states``, are not noted.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from oci_cluster.backends.base import LogsInPlace
from oci_cluster.contract.cluster import FILE, Cluster, Node, NodeState, Plan, State, clusters_dir, kept_clusters
from oci_cluster.errors import ClusterError, StoppedError
from oci_cluster.system.console import Say


def open_backend(
    root: Path, _given: Mapping[str, str], is_stopped: Callable[[], bool], *, is_looking: bool = False
) -> StubBackend:
    """Return the backend of the checkout *root*."""
    return StubBackend(root, is_stopped)


class StubBackend:
    """Fulfils the protocol of ``oci_cluster.backends.base``."""

    name = "stub"
    max_workers = 250
    poll_s = 0.02
    end_margin_s = 5.0
    why_gone = "its nodes are gone"
    end_timeout_s = 0.0
    shows_key = False
    is_this_machine = True
    is_free_to_ask = True
    node_fields: Mapping[str, str] = {name: name for name in ("node", "state", "exit_code")}
    ends_workers = "any"
    handle_name = ""

    def __init__(self, root: Path, is_stopped: Callable[[], bool]) -> None:
        self._root = root
        self._is_stopped = is_stopped
        self._place = Path(os.environ["STUB_DIR"])
        codes = os.environ.get("STUB_CODES", "").split()
        self._codes = {name: int(code) for name, _, code in (word.partition("=") for word in codes)}
        self._blocked = os.environ.get("STUB_BLOCK", "")

    def _note(self, text: str) -> None:
        with (self._place / "calls").open("a") as file:
            file.write(f"{text}\n")

    @property
    def _is_open(self) -> bool:
        return (self._place / "opened").exists()

    @contextlib.contextmanager
    def _call(self, method: str, *words: str) -> Iterator[None]:
        """Note the call, do the work, stay if told so, end with the code of *method*."""
        self._note(" ".join([method, *words]))
        yield
        if self._blocked == method:
            try:
                (self._place / "reached").touch()
                while not self._is_open:
                    if self._is_stopped():
                        (self._place / "told").touch()
                        if not os.environ.get("STUB_DEAF"):
                            msg = f"{method} was stopped"
                            raise StoppedError(msg)
                    time.sleep(0.02)
            except BaseException:
                self._note(f"{method} was told to end")
                raise
        if code := self._codes.get(method):
            msg = f"{method} failed"
            raise ClusterError(msg, exit_code=code)

    def check(self, plan: Plan | None = None) -> None:
        pass

    def place(self, plan: Plan, say: Say = lambda _: None) -> Plan:
        with self._call("place"):
            return replace(plan, work_dir=plan.work_dir or f"file://{clusters_dir(self._root)}")

    def preview(self, plan: Plan, *, as_json: bool) -> str:
        with self._call("preview", *(["json"] if as_json else [])):
            return json.dumps(plan.to_json())

    def prepare(self, plan: Plan, say: Say) -> Plan:
        with self._call("prepare", *([plan.python] if plan.python else [])):
            return plan

    def start(self, plan: Plan, nodes: Sequence[Node], say: Say) -> Cluster:
        cluster = Cluster.of(plan, clusters_dir(self._root))
        with self._call("start", *(node.name for node in nodes)):
            # As the plan was made: what the backend has added says nothing of launch.sh.
            (self._place / "plan.json").write_text(json.dumps(plan.to_json()))
            (cluster.directory / FILE).write_text(json.dumps(plan.to_json()))
            (cluster.directory / "logs" / "MAIN.log").write_text("hello\n")
        return cluster

    def files(self, cluster: Cluster, plan: Plan) -> str:
        return str(cluster.directory)

    def started(self, cluster: Cluster, plan: Plan) -> str:
        return f"files in {self.files(cluster, plan)}"

    def find(self, name: str = "") -> list[Cluster]:
        with self._call("find"):
            return [cluster for cluster in kept_clusters(self._root, self.name, "begun") if name in {"", cluster.name}]

    def load(self, cluster: Cluster) -> Plan:
        return Plan.load(cluster.directory, self._root)

    def states(self, clusters: Sequence[Cluster]) -> dict[str, list[NodeState]]:
        return {cluster.launch_id: self._states(cluster) for cluster in clusters}

    def _states(self, cluster: Cluster) -> list[NodeState]:
        names = self.load(cluster).node_names
        if self._blocked == "run" and not self._is_open:
            if not (cluster.directory / "stop").exists():
                (self._place / "reached").touch()
                return [NodeState(name, State.IN_PROGRESS) for name in names]
            return [NodeState(name, State.CANCELED, 143) for name in names]
        code = self._codes.get("run", 0)
        return [NodeState(name, State.of_exit_code(code), code) for name in names]

    def keep_end(self, cluster: Cluster, states: Sequence[NodeState]) -> None:
        """Nothing is forgotten."""

    def why_fixed(self, cluster: Cluster) -> str:
        return ""

    def end(self, cluster: Cluster, nodes: Collection[str], *, at_once: bool = False) -> None:
        with self._call("end", *sorted(nodes), *(["at once"] if at_once else [])):
            pass

    def finish(self, cluster: Cluster, say: Say) -> None:
        with self._call("finish"):
            pass

    def remove(self, cluster: Cluster, say: Say) -> None:
        with self._call("remove"):
            pass

    def logs(self, cluster: Cluster, directory: Path, *, follow: bool) -> LogsInPlace:
        with self._call("logs", *(["follow"] if follow else [])):
            return LogsInPlace(cluster.directory / "logs")

    def close(self) -> None:
        return
