"""dask/preload/scheduler.py: how long it waits for workers to leave. tests/clusters has what needs Dask."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[3] / "dask" / "preload" / "scheduler.py"


class FakeScheduler:
    """A scheduler whose workers and nannies never answer, and never leave."""

    def __init__(self) -> None:
        self.workers = {"tls://10.0.0.2": SimpleNamespace(name="WORKER_1", nanny="tls://10.0.0.2:3000")}
        self.told: list[str] = []
        self.plugin: Any = None

    def add_plugin(self, plugin: Any) -> None:
        self.plugin = plugin

    def rpc(self, nanny: str) -> Any:
        async def terminate(*, reply: bool) -> None:
            self.told.append(nanny)
            await asyncio.Event().wait()

        return SimpleNamespace(terminate=terminate)


@pytest.fixture
def scheduler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeScheduler:
    """Return a scheduler that has loaded the file, with one worker that has come."""
    names = {
        "distributed": "Scheduler",
        "distributed.diagnostics": "",
        "distributed.diagnostics.plugin": "SchedulerPlugin",
    }
    for module_name, name in names.items():
        module = ModuleType(module_name)
        setattr(module, name or "unused", object)
        monkeypatch.setitem(sys.modules, module_name, module)
    spec = importlib.util.spec_from_file_location("dask_preload_scheduler", FILE)
    assert spec
    assert spec.loader
    preload = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(preload)
    for name, value in {"WORKER_COUNT": "2", "NPROCS": "1", "NODE_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    fake = FakeScheduler()
    fake.setup = lambda: preload.dask_setup(fake)  # type: ignore[attr-defined]
    return fake


def waited_s(scheduler: Any) -> float:
    """Return the seconds, by the loop's own clock, for which the scheduler holds up its end."""

    class Loop(asyncio.SelectorEventLoop):
        """Time passes when there is nothing to do but to wait."""

        def __init__(self) -> None:
            super().__init__()
            self.now = 0.0
            select = self._selector.select  # type: ignore[attr-defined]

            def pass_time(timeout: float | None = None) -> Any:
                assert timeout is not None, "nobody will ever wake this"
                self.now += timeout
                return select(0)

            self._selector.select = pass_time  # type: ignore[attr-defined]

        def time(self) -> float:
            return self.now

    loop = Loop()
    try:
        loop.run_until_complete(scheduler.plugin.before_close())
    finally:
        loop.close()
    return loop.now


@pytest.mark.parametrize(
    ("period", "is_told", "seconds"),
    [("", False, 3.5), ("10", True, 10.5), ("3", False, 1.05), ("3", True, 3.15), ("0", True, 0)],
)
def test_workers_have_a_share_of_the_grace_period_to_leave(
    scheduler: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, period: str, *, is_told: bool, seconds: float
) -> None:
    """A scheduler that waits longer is killed before it has told its workers; 10 s is what there is by default."""
    monkeypatch.setenv("GRACE_PERIOD", period)
    scheduler.setup()
    scheduler.plugin.add_worker(scheduler, "tls://10.0.0.2")
    if is_told:
        (tmp_path / "workers-are-told").touch()
    assert waited_s(scheduler) == pytest.approx(seconds, abs=0.1)
    assert scheduler.told == ["tls://10.0.0.2:3000"]


def test_nobody_waits_for_workers_that_have_left(scheduler: Any, tmp_path: Path) -> None:
    """The shares are limits."""
    scheduler.setup()
    scheduler.plugin.add_worker(scheduler, "tls://10.0.0.2")
    assert (tmp_path / "missing-workers").read_text() == "WORKER_2\n"
    scheduler.workers.clear()
    (tmp_path / "workers-are-told").touch()
    assert waited_s(scheduler) == pytest.approx(0.5, abs=0.1)
