"""A place where nodes run, played by a test: what one for each backend is, and what a test may do to it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from oci_cluster.backends.base import Backend
from oci_cluster.contract.cluster import Plan
from oci_cluster.launcher.launch.plan import Request, make_plan
from oci_cluster.launcher.lifecycle import Lifecycle

ROOT = Path(__file__).resolve().parents[3]


class Place(Protocol):
    """One place where nodes run."""

    root: Path
    backend: Backend
    lifecycle: Lifecycle
    can_wait: bool
    """Whether a node may be accepted, and start later."""
    gives_ranks_again: bool
    """Whether the rank of a lost node can be another's."""
    said: list[str]
    settings: dict[str, str]

    def plan(self, name: str, workers: int) -> Plan:
        """Return the plan of a launch."""

    def another(self) -> Backend:
        """Return the backend as a later process sees it."""

    def running(self) -> list[str]:
        """Return the names of the nodes that run."""

    def requests(self) -> int:
        """Return how often the place has been asked something."""

    def refuse(self, node: str) -> None:
        """Have no node of this name be started."""

    def allow(self) -> None:
        """Refuse nothing from here on."""

    def lose_answer_of(self, node: str) -> None:
        """Start the node of this name, and do not say so."""

    def stop_launcher_at(self, node: str) -> None:
        """Tell the launcher to stop when this node is being started."""

    def add_hostile(self) -> None:
        """Have things that look like clusters, and were made by somebody else."""

    def end(self, node: str, code: int) -> None:
        """Have a node end by itself."""

    def hold(self, node: str) -> None:
        """Have a node be accepted, and not started."""

    def begin(self) -> None:
        """Have the nodes start that are accepted."""

    def given(self, node: str) -> dict[str, str]:
        """Return the environment that a node was given."""

    def forge(self, name: str, text: str) -> None:
        """Have what was launched say another value of a variable, as what somebody else has made may."""

    def print(self, node: str, text: str, second: int = 0) -> None:
        """Have a node print a line, in this second."""

    def settle(self) -> None:
        """Let what was asked for happen."""

    def later(self) -> None:
        """Let a second pass."""

    def close(self) -> None:
        """Leave nothing open."""


class Base:
    """What the places share: a checkout with one framework, and whether the launcher was told to stop."""

    name = ""
    can_wait = True
    gives_ranks_again = True

    def __init__(self, tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = tmp_path / "my project"
        example = self.root / "plain" / "example"
        example.mkdir(parents=True)
        (example / "train.py").write_text("print('hello')\n")
        for script in ("start-master.sh", "start-worker.sh"):
            (self.root / "plain" / script).touch()
        (self.root / "plain" / "settings.env").write_text("MIN_WORKERS=1\n")
        (self.root / "scripts").symlink_to(ROOT / "scripts")
        self.clock = clock
        self.monkeypatch = monkeypatch
        self.said: list[str] = []
        self.settings: dict[str, str] = {}
        self.is_stopped = False
        self._opened: list[Any] = []
        self.set_up()
        self.backend = self.another()
        self.lifecycle = Lifecycle(self.backend, self.root, self.said.append, clock=clock, sleep=self.sleep)

    def set_up(self) -> None:
        """Make what is the place's own."""

    def make(self) -> Any:
        """Return a new backend."""
        raise NotImplementedError

    def another(self) -> Any:
        backend = self.make()
        self._opened.append(backend)
        return backend

    def plan(self, name: str, workers: int) -> Plan:
        given = {"CLUSTER_NAME": name, **self.settings}
        request = Request("plain", str(workers), self.name)
        plan = make_plan(request, given, root=self.root, cwd=self.root, max_workers=100)
        return self.dated(plan)

    def dated(self, plan: Plan) -> Plan:
        """Return *plan* as of the test's own time: clusters are sorted by it."""
        minutes, seconds = divmod(int(self.clock()), 60)
        return replace(plan, created=f"2026-01-01T00:{minutes:02}:{seconds:02}Z")

    def sleep(self, seconds: float) -> None:
        self.clock.sleep(seconds)
        self.settle()

    def settle(self) -> None:
        """Happen at once."""

    def begin(self) -> None:
        """Have done so."""

    def later(self) -> None:
        self.clock.sleep(1)

    def close(self) -> None:
        for backend in self._opened:
            backend.close()
