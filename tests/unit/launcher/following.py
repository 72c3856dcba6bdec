"""A cluster that is followed, with all its surroundings in a test's hand."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unit.fake_backend import LAUNCH, LIMITS, FakeBackend, FakeSignals, keep, plan_of

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.launcher.follow.follower import Follower
from oci_cluster.launcher.show.logs import MergedLogs


class Copy:
    """Copies of the nodes' logs, which a backend that is elsewhere may not be able to bring."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.fetched = 0
        self.on_fetch: Callable[[], object] = lambda: None
        self.on_drain: Callable[[Callable[[], bool], Callable[[str], object]], object] = lambda _, __: None

    def fetch(self) -> None:
        self.fetched += 1
        self.on_fetch()

    def drain(self, pause: Callable[[], bool], say: Callable[[str], object]) -> None:
        self.on_drain(pause, say)

    def close(self) -> None:
        pass


class Run:
    """A cluster of main and two workers, the backend's word on it, and a follower with all its surroundings."""

    def __init__(self, place: Path, clock: Any, signals: FakeSignals) -> None:
        self.backend = FakeBackend(place)
        self.plan = plan_of(place)
        self.directory = keep(place, self.plan).directory
        self.cluster = self.backend.run(self.plan)
        self.cluster_dir = ClusterDir(self.plan.url, LAUNCH, self.plan.launch_key)
        self.clock = clock
        self.signals = signals
        self.said: list[str] = []
        self.out = io.StringIO()
        self.copy = Copy(place)

    @property
    def calls(self) -> list[Any]:
        return self.backend.calls

    def node(self, name: str, code: int | None, **fields: Any) -> None:
        """Have a node run, or have ended with *code*."""
        self.backend.set_node(self.cluster, name, code, **fields)

    def nodes(self, **codes: int | None) -> None:
        for name, code in codes.items():
            self.node(name, code)

    def end(self, *codes: int | None, stop: Mapping[str, Any] | None = None) -> None:
        """Have all nodes end with *codes*; None is one that is lost without a code."""
        if stop:
            self.cluster_dir.publish("stop", **stop)
        names = [*self.backend.nodes[LAUNCH]]
        for name, code in zip(names, [*codes, *[None] * len(names)], strict=False):
            known = self.backend.nodes[LAUNCH][name].exit_code
            self.node(name, known if code is None else code, is_lost=code is None and known is None)

    def follower(self, *steps: Callable[[], object], **limits: int) -> Follower:
        self.signals.steps = list(steps)
        return Follower(
            self.backend,
            self.cluster,
            replace(self.plan, limits=replace(LIMITS, **limits)),
            say=self.said.append,
            signals=self.signals,  # type: ignore[arg-type]
            clock=self.clock,
        )

    def follow(self, *steps: Callable[[], object], **limits: int) -> int:
        follower = self.follower(*steps, **limits)
        follower.finish = lambda: None  # type: ignore[method-assign]  # has tests of its own
        return follower.run(MergedLogs(self.copy.directory, self.plan.node_names, self.out), self.copy)

    def pause(self) -> None:
        self.clock.now += 2


def nothing() -> None:
    """Let one look pass."""
