"""A checkout whose backend is a fake one: what the tests of the verbs go through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from unit.fake_backend import LAUNCH, FakeBackend, keep, plan_of

from oci_cluster.contract.cluster import clusters_dir


class Door:
    """A checkout whose backend is a fake one, and signals that do not reach the tests."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.backend = FakeBackend(clusters_dir(root))
        self.opened: list[str] = []

    def open(
        self, name: str, root: Path, given: dict[str, str], is_stopped: Callable[[], bool], *, is_looking: bool = False
    ) -> FakeBackend:
        assert root == self.root
        self.opened.append(name)
        self.backend.name = name
        self.given = given
        self.is_stopped = is_stopped
        return self.backend

    def run(self, name: str = "mine", launch_id: str = LAUNCH, **codes: int | None) -> None:
        """Have a cluster be there, with a log of each node."""
        plan = plan_of(clusters_dir(self.root), name, launch_id, workers=1)
        logs = keep(clusters_dir(self.root), plan).directory / "logs"
        logs.mkdir()
        for node in plan.node_names:
            (logs / f"{node}.log").write_text(f"hello of {node}\n")
        self.backend.run(plan, **codes)


def ended(door: Door, code: int) -> None:
    """Have what is launched end with *code* by itself."""

    def end() -> None:
        for cluster in door.backend.clusters:
            door.backend.end_nodes(cluster, code=code)

    door.backend.on["start"] = end
