"""Asks for as many worker nodes as there is work for: a scheduler's preload.

How many that are, Dask itself decides (:class:`AdaptiveCore`, ``distributed.adaptive`` of its configuration). The
request is a file, which the agent passes on to the launcher. Nodes that are not needed are retired first: they
take no more tasks, and what they alone have is copied to others. So nothing is lost with them.
"""

from __future__ import annotations

import functools
import math
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import dask.config
from dask.utils import parse_timedelta
from distributed import Scheduler
from distributed.deploy.adaptive_core import AdaptiveCore
from distributed.metrics import time
from tornado.ioloop import PeriodicCallback

# A retired node that is still there after so long works again: nobody has ended it, or can. Job Runs of OCI take a
# minute to be canceled.
WORKS_AGAIN_S = 180.0


class Adapting(AdaptiveCore):  # type: ignore[misc] # Dask has no types here
    """The worker nodes of one scheduler, and the file ``scale-request``."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        bounds: tuple[int, int],
        processes: int,
        followed: str,
        directory: Path,
        may_begin: Callable[[], bool],
        forget: Callable[[Iterable[str]], None],
    ) -> None:
        # *followed* says which nodes can be ended: any, the last, or none, where nobody follows the cluster.
        super().__init__(bounds[0], bounds[1], dask.config.get("distributed.adaptive.wait-count"))
        self._scheduler, self._processes, self._followed = scheduler, processes, followed
        self._file, self._may_begin, self._forget = directory / "scale-request", may_begin, forget
        self._has_begun = False
        # The number of nodes to be, without retired ones; and the retired ones, and since when.
        self._wanted = 0
        self._retired: dict[str, float] = {}
        self._may_end: set[str] = set()
        # Since when clients scatter what has not arrived yet.
        self._scatters: dict[object, float] = {}
        scheduler.handlers["scatter"] = self._noted(scheduler.handlers["scatter"])
        self._nannies: dict[str, list[str]] = {}
        self._written = ""

    # --- What Dask's logic asks for ------------------------------------------------------------------------

    @property
    def observed(self) -> set[str]:
        """The nodes that work, but for workers that somebody has started otherwise."""
        return {node_of(state) for state in self._scheduler.workers.values()} - self._retired.keys() - {""}

    @property
    def plan(self) -> set[str]:
        """The same, and a word for each node that is to come."""
        observed = self.observed
        return observed | {f"to come {number}" for number in range(self._wanted - len(observed))}

    requested = plan  # a request needs no time

    async def target(self) -> int:
        """Return how many nodes there is work for."""
        return math.ceil(self._scheduler.adaptive_target() / self._processes)

    async def workers_to_close(self, target: int) -> list[str]:
        """Return nodes without work, the last first, so that *target* of all nodes stay.

        None while retired ones are still there: what those have counts as a copy, and what had been copied from them to
        another node would go with that node.
        """
        if not self._followed or self._retired:
            return []
        observed = self.observed
        # Without a number: Dask names only such as have nothing to do, and keeps twice the memory that is used.
        names = self._scheduler.workers_to_close(key=node_of, attribute="name")
        idle = {node_of_name(str(name)) for name in names}
        last_first = sorted(observed, key=rank_of, reverse=True)
        if self._followed == "last":
            busy = next((place for place, node in enumerate(last_first) if node not in idle), len(last_first))
            last_first = last_first[:busy]
        return [node for node in last_first if node in idle][: max(0, len(observed) - target)]

    async def scale_up(self, n: int) -> None:
        """Ask for *n* nodes."""
        self._wanted = n

    async def scale_down(self, workers: Iterable[str]) -> None:
        """Ask for less: of *workers*, those that have come are retired."""
        observed, chosen = self.observed, set(workers)
        self._wanted = len(self.plan) - len(chosen - observed)
        for node in await self._retire(sorted(chosen & observed)):
            self._retired[node] = time()
            self._wanted -= 1
            states = (self._scheduler.workers.get(address) for address in self._addresses(node))
            self._nannies[node] = [state.nanny for state in states if state and state.nanny]

    # --- Nodes ---------------------------------------------------------------------------------------------

    async def _retire(self, nodes: list[str]) -> list[str]:
        """Move tasks and data of *nodes* to others; return nodes with nothing left."""
        places = {node: self._addresses(node) for node in nodes}
        addresses = [address for found in places.values() for address in found]
        if not addresses:
            return []
        done = await self._scheduler.retire_workers(workers=addresses, close_workers=False, remove=False)
        retired = []
        for node, found in places.items():
            states = [self._scheduler.workers.get(address) for address in found]
            # A task may have come before it was told.
            if all(address in done for address in found) and not any(state and state.processing for state in states):
                retired.append(node)
            else:
                self._work_again(node)
        return retired

    def _work_again(self, node: str) -> None:
        """Have *node* take tasks again, as Dask does with workers that it cannot retire."""
        for address in self._addresses(node):
            word = {"op": "worker-status-change", "status": "running", "stimulus_id": f"works-again-{time()}"}
            self._scheduler.stream_comms[address].send(word)

    def _addresses(self, node: str) -> list[str]:
        return [address for address, state in self._scheduler.workers.items() if node_of(state) == node]

    def _look_at_retired(self) -> None:
        """Forget those that have left; have those work again that nobody ends."""
        there = {node_of(state) for state in self._scheduler.workers.values()}
        for node in self._retired.keys() - there:
            del self._retired[node]
            self._forget(self._nannies.pop(node))
        for node in [node for node, since in self._retired.items() if time() - since > WORKS_AGAIN_S]:
            self._take_back(node)
            self._work_again(node)

    async def _move_what_came_late(self) -> None:
        """Retire those again that have data alone; the others may be ended.

        What a client scatters may be on its way to a node while that is retired: it has chosen its workers before.
        """
        alone = {node for node in self._retired if self._has_alone(node)}
        arrived_s = min(self._scatters.values(), default=math.inf)
        self._may_end = {node for node, since in self._retired.items() if since < arrived_s} - alone
        for node in alone.difference(await self._retire(sorted(alone))):
            if self._addresses(node):  # else it has left meanwhile
                self._take_back(node)

    def _noted(self, scatter: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(scatter)  # the scheduler looks at its arguments
        async def noted(*arguments: Any, **named: Any) -> Any:
            one = object()
            self._scatters[one] = time()
            try:
                return await scatter(*arguments, **named)
            finally:
                del self._scatters[one]

        return noted

    def _has_alone(self, node: str) -> bool:
        """Whether *node* has data that no working node has."""
        running = self._scheduler.running
        found = [self._scheduler.workers[address] for address in self._addresses(node)]
        return any(not task.who_has & running for state in found for task in state.has_what)

    def _take_back(self, node: str) -> None:
        del self._retired[node], self._nannies[node]
        self._wanted += 1

    # --- The request ------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Adapt, and write the request where it has changed."""
        if not self._has_begun:
            if not self._may_begin():
                return
            self._has_begun, self._wanted = True, len(self.observed)
        self._look_at_retired()
        await self._move_what_came_late()
        await self.adapt()
        self._write()

    def _write(self) -> None:
        text = f"workers={len(self.plan)}\n"
        text += "".join(f"idle={node}\n" for node in sorted(self._retired.keys() & self._may_end, key=rank_of))
        if text == self._written:
            return
        temporary = self._file.with_suffix(".new")
        temporary.write_text(text)
        temporary.replace(self._file)
        self._written = text


def node_of(state: Any) -> str:
    return node_of_name(str(state.name))


def node_of_name(name: str) -> str:
    """Return the node of the process *name*, WORKER_1 or WORKER_1-0; else an empty text."""
    found = re.fullmatch(r"(WORKER_\d+)(-\d+)?", name)
    return found[1] if found else ""


def rank_of(node: str) -> int:
    return int(node.rpartition("_")[2])


def dask_setup(scheduler: Scheduler) -> None:
    """Called by ``dask scheduler --preload``, before the first worker can come."""
    least, _, most = os.environ["ADAPT"].partition(":")
    ready, stays = Path(os.environ["READY_FILE"]), os.environ["EPHEMERAL"] == "0"

    def may_begin() -> bool:
        # Until the entry point has its client, there is no work, and workers that were asked for would be ended. One
        # client is the scheduler's own.
        return ready.exists() and (stays or len(scheduler.clients) > 1)

    adapting = Adapting(
        scheduler,
        bounds=(int(least), int(most)),
        processes=int(os.environ["NPROCS"]),
        followed=os.environ.get("FOLLOWED", ""),
        directory=Path(os.environ["NODE_DIR"]),
        may_begin=may_begin,
        forget=scheduler.plugins["worker-nodes"].forget,
    )
    interval_s = parse_timedelta(dask.config.get("distributed.adaptive.interval"))
    # The scheduler starts these, and ends them with itself.
    scheduler.periodic_callbacks["adapting"] = PeriodicCallback(adapting.look, interval_s * 1000)
