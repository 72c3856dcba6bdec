"""A backend whose clusters a test plays: it notes what it is asked, and answers what the test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from oci_cluster.backends.base import LogsInPlace
from oci_cluster.contract.cluster import FILE, Cluster, Limits, Node, NodeState, Plan, State
from oci_cluster.system.console import Say

LAUNCH = "1f2e3d4c"
KEY = "5eed" * 16
CREATED = "2026-01-01T00:00:00Z"
LIMITS = Limits(
    min_workers=1,
    workers_to_begin=2,
    timeout_s=600.0,
    ttl_s=0.0,
    grace_period_s=10.0,
    heartbeat_timeout_s=60.0,
    ports={},
)


def plan_of(place: Path, name: str = "mine", launch_id: str = LAUNCH, *, workers: int = 2, **changes: Any) -> Plan:
    """Return the placed plan of a cluster of main and *workers*, whose cluster dir is under *place*."""
    plan = Plan(
        name=name,
        launch_id=launch_id,
        framework="dask",
        backend="local",
        created=CREATED,
        project="my project",
        nodes=(Node("MAIN", 0, "127.0.0.1"), *(Node("WORKER", rank) for rank in range(1, workers + 1))),
        environment={"LAUNCH_KEY": KEY},
        settings={},
        limits=LIMITS,
        work_dir=f"file://{place}",
    )
    return replace(plan, **changes)


def keep(place: Path, plan: Plan) -> Cluster:
    """Return the cluster of *plan*, with its ``cluster.json`` kept under *place*."""
    cluster = Cluster.of(plan, place)
    cluster.directory.mkdir(parents=True)
    (cluster.directory / FILE).write_text(json.dumps(plan.to_json()))
    return cluster


class FakeBackend:
    """Fulfils the protocol; nodes live as long as a test lets them."""

    name = "local"
    max_workers = 250
    poll_s = 0.1
    why_gone = "its nodes are gone"
    end_margin_s = 5.0
    end_timeout_s = 0.0
    shows_key = False
    is_this_machine = True
    is_free_to_ask = True
    ends_workers = "any"
    handle_name = ""

    def __init__(self, place: Path) -> None:
        """Keep clusters in *place*."""
        self.clusters_dir = place
        self.node_fields: Mapping[str, str] = {
            **{name: name for name in ("node", "state", "exit_code")},
            "pid": "id",
            "address": "address",
        }
        self.calls: list[Any] = []
        self.plans: dict[str, Plan] = {}
        self.clusters: list[Cluster] = []
        self.nodes: dict[str, dict[str, NodeState]] = {}
        self.fixed = ""
        # What a method does besides: raise, end a node, look at what is there.
        self.on: dict[str, Callable[[], object]] = {}

    def _note(self, name: str, *words: Any) -> None:
        self.calls.append((name, *words) if words else name)
        if name in self.on:
            self.on[name]()

    def asked(self, *names: str) -> list[Any]:
        """Return the calls of the methods *names*, in their order."""
        return [call for call in self.calls if (call if isinstance(call, str) else call[0]) in names]

    def run(self, plan: Plan, **codes: int | None) -> Cluster:
        """Have a cluster of *plan* be there; its nodes run unless they have ended with one of *codes*."""
        cluster = Cluster.of(plan, self.clusters_dir)
        self.plans[plan.launch_id] = plan
        self.clusters.append(cluster)
        self.nodes[plan.launch_id] = {}
        for node in plan.nodes:
            self.set_node(cluster, node.name, codes.get(node.name))
        return cluster

    def set_node(self, cluster: Cluster, node: str, code: int | None, **fields: Any) -> None:
        """Have *node* run, or have ended with *code*."""
        state = State.IN_PROGRESS if code is None else State.of_exit_code(code)
        found = self.nodes[cluster.launch_id].get(node, NodeState(node, state, id=7))
        self.nodes[cluster.launch_id][node] = replace(found, state=state, exit_code=code, **fields)

    def end_nodes(self, cluster: Cluster, nodes: Collection[str] | None = None, code: int = 143) -> None:
        """Have *nodes*, or all, of *cluster* end."""
        for node, state in self.nodes[cluster.launch_id].items():
            if state.is_running and (nodes is None or node in nodes):
                self.set_node(cluster, node, code)

    # --- The protocol: see backends/base.py ------------------------------------------------------------

    def check(self, plan: Plan | None = None) -> None:
        pass

    def place(self, plan: Plan, say: Say = lambda _: None) -> Plan:
        self._note("place")
        return replace(plan, work_dir=plan.work_dir or f"file://{self.clusters_dir}")

    def preview(self, plan: Plan, *, as_json: bool) -> str:
        self._note("preview", as_json)
        return json.dumps(plan.to_json())

    def prepare(self, plan: Plan, say: Say) -> Plan:
        self._note("prepare")
        say("preparing")
        return replace(plan, python="/the/python")

    def start(self, plan: Plan, nodes: Sequence[Node], say: Say) -> Cluster:
        if plan.launch_id not in self.nodes:
            self.run(replace(plan, nodes=()))
            self.plans[plan.launch_id] = plan
        cluster = Cluster.of(plan, self.clusters_dir)
        for node in nodes:
            self.set_node(cluster, node.name, None)
        self._note("start", *(node.name for node in nodes))
        return cluster

    def files(self, cluster: Cluster, plan: Plan) -> str:
        return str(cluster.directory)

    def started(self, cluster: Cluster, plan: Plan) -> str:
        return f"files in {self.files(cluster, plan)}"

    def connect(self, cluster: Cluster, plan: Plan, words: str) -> str:
        return f"at home: {words}"

    def find(self, name: str = "") -> list[Cluster]:
        self._note("find")
        return [cluster for cluster in self.clusters if name in {"", cluster.name}]

    def load(self, cluster: Cluster) -> Plan:
        return self.plans[cluster.launch_id]

    def states(self, clusters: Sequence[Cluster]) -> dict[str, list[NodeState]]:
        if "states" in self.on:
            self.on["states"]()
        return {cluster.launch_id: list(self.nodes[cluster.launch_id].values()) for cluster in clusters}

    def keep_end(self, cluster: Cluster, states: Sequence[NodeState]) -> None:
        """Nothing is forgotten."""

    def why_fixed(self, cluster: Cluster) -> str:
        return self.fixed

    def end(self, cluster: Cluster, nodes: Collection[str], *, at_once: bool = False) -> None:
        self._note("kill" if at_once else "end", *sorted(nodes))
        del cluster

    def finish(self, cluster: Cluster, say: Say) -> None:
        self._note("finish", cluster.name)

    def remove(self, cluster: Cluster, say: Say) -> None:
        self._note("remove", cluster.name)

    def logs(self, cluster: Cluster, directory: Path, *, follow: bool) -> LogsInPlace:
        self._note("logs", follow)
        return LogsInPlace(cluster.directory / "logs")

    def close(self) -> None:
        self._note("close")


class FakeSignals:
    """Signals that come when a test says so: each wait runs the next step of a script."""

    def __init__(self, clock: Any) -> None:
        self.received: int | None = None
        self.steps: list[Callable[[], object]] = []
        self.waits: list[float] = []
        self._clock = clock

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self._clock.now += seconds
        assert len(self.waits) < 100, "waits for something that never comes"
        if self.steps:
            self.steps.pop(0)()

    def send(self) -> None:
        self.received = 2
