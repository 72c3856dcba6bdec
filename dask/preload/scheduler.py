"""Reports missing worker nodes, and ends workers before the scheduler: a scheduler's preload.

Both inside the scheduler, where it costs nothing: a client that asks would import Dask once more and poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

# Shares of GRACE_PERIOD, after which the scheduler itself would be killed; behind each what it is of the usual 10 s.
# Workers that are told to leave are gone after 0.2 s; told twice, or together with a closing scheduler, they took 8 s.
LEAVE_SHARE = 0.3  # 3 s
# A nanny that lives answers in milliseconds; one whose node is gone never does.
REACH_SHARE = 0.05  # 0.5 s
# Workers find the `stop` file at their next look, 4 s apart at most (POLL_CEILING), and need a moment to end.
TOLD_SHARE = 0.7  # 7 s


class WorkerNodes(SchedulerPlugin):
    """Keeps the file ``missing-workers``: names of nodes whose processes are not all there yet."""

    name = "worker-nodes"

    def __init__(
        self, scheduler: Scheduler, nodes: list[str], processes: int, directory: Path, grace_period_s: float
    ) -> None:
        self._scheduler, self._nodes, self._processes = scheduler, nodes, processes
        self._grace_period_s = grace_period_s
        self._nannies: set[str] = set()
        self._file = directory / "missing-workers"
        self._told = directory / "workers-are-told"
        self._write()

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:  # noqa: ARG002 - Dask's signature
        if nanny := self._scheduler.workers[worker].nanny:
            self._nannies.add(nanny)
        self._write()

    def forget(self, nannies: Iterable[str]) -> None:
        """Forget *nannies* that have left for good: nobody waits for them at the end."""
        self._nannies -= set(nannies)

    async def before_close(self) -> None:
        """Have every worker and nanny leave while the scheduler is still there."""
        if self._told.exists():
            await self._gone(TOLD_SHARE * self._grace_period_s)
        # Nannies, not workers: a nanny that is told ends its worker and itself; a worker that is told leaves it to its
        # nanny to find out, which took two seconds. Every nanny ever seen: one that is just replacing its worker is not
        # known to the scheduler.
        telling = [asyncio.ensure_future(self._terminate(nanny)) for nanny in self._nannies]
        if telling:
            _, unreached = await asyncio.wait(telling, timeout=REACH_SHARE * self._grace_period_s)
            for task in unreached:
                task.cancel()
        await self._gone(LEAVE_SHARE * self._grace_period_s)

    async def _terminate(self, nanny: str) -> None:
        with contextlib.suppress(OSError):  # its node is gone
            await self._scheduler.rpc(nanny).terminate(reply=False)

    async def _gone(self, timeout_s: float) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self._scheduler.workers and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.02)

    def _write(self) -> None:
        names = [str(state.name) for state in self._scheduler.workers.values()]
        # `dask worker --name WORKER_1 --nworkers 2` calls its processes WORKER_1-0 and WORKER_1-1.
        missing = [
            node
            for node in self._nodes
            if sum(name == node or name.rpartition("-")[0] == node for name in names) < self._processes
        ]
        temporary = self._file.with_suffix(".new")
        temporary.write_text("".join(f"{node}\n" for node in missing))
        temporary.replace(self._file)


def dask_setup(scheduler: Scheduler) -> None:
    """Called by ``dask scheduler --preload``, before the first worker can come."""
    nodes = [f"WORKER_{rank}" for rank in range(1, int(os.environ["WORKER_COUNT"]) + 1)]
    nodes += ["MAIN"] if os.environ.get("MAIN_WORKS") == "needed" else []
    grace_period_s = float(os.environ.get("GRACE_PERIOD") or 10)
    directory = Path(os.environ["NODE_DIR"])
    scheduler.add_plugin(WorkerNodes(scheduler, nodes, int(os.environ["NPROCS"]), directory, grace_period_s))
