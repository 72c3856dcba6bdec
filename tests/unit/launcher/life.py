"""A checkout with one backend, and time that only a test moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.fake_backend import LAUNCH, LIMITS, FakeBackend, plan_of

from oci_cluster.contract.cluster import Cluster, Plan, clusters_dir
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import UsageError
from oci_cluster.launcher.lifecycle import Lifecycle


class Life:
    """A checkout with one backend, time that only a test moves, and what a person was told."""

    def __init__(self, root: Path, clock: Any) -> None:
        self.root = root
        self.place = clusters_dir(root)
        self.backend = FakeBackend(self.place)
        self.clock = clock
        self.said: list[str] = []
        # What happens at moments; all else is waiting.
        self.events: list[tuple[float, Callable[[], object]]] = []
        self.began = clock.now
        self.lifecycle = Lifecycle(self.backend, root, self.said.append, clock=clock, sleep=self.sleep)

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        assert len(self.clock.waits) < 5000, "waits for something that never comes"
        for event in [event for event in self.events if event[0] <= self.passed]:
            self.events.remove(event)
            event[1]()

    @property
    def passed(self) -> float:
        return float(self.clock.now - self.began)

    def at(self, moment: float, event: Callable[[], object]) -> None:
        self.events.append((moment, event))

    def plan(self, name: str = "mine", launch_id: str = LAUNCH, **changes: Any) -> Plan:
        self.place.mkdir(parents=True, exist_ok=True)
        return plan_of(self.place, name, launch_id, **changes)

    def run(self, name: str = "mine", launch_id: str = LAUNCH, *, workers: int = 2, **codes: int | None) -> Cluster:
        """Have a cluster be there."""
        cluster = self.backend.run(self.plan(name, launch_id, workers=workers), **codes)
        (cluster.directory / "logs").mkdir(parents=True)
        return cluster

    def ended(self, name: str, launch_id: str) -> Cluster:
        return self.run(name, launch_id, MAIN=0, WORKER_1=0, WORKER_2=0)

    def stop_file(self, cluster: Cluster) -> dict[str, Any]:
        plan = self.backend.load(cluster)
        return dict(ClusterDir(plan.url, cluster.launch_id, plan.launch_key).read("stop") or {})

    def elsewhere(self) -> None:
        """Have the backend be one that costs money and time to ask."""
        self.backend.name = "oci"
        self.backend.is_this_machine = self.backend.is_free_to_ask = False


def fail(error: BaseException) -> Callable[[], None]:
    def do() -> None:
        raise error

    return do


def refusal(call: Callable[[], object], kind: type[Exception] = UsageError) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def patience(life: Life) -> float:
    return LIMITS.grace_period_s + life.backend.end_margin_s
