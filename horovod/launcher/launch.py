"""Main: waits for the workers, starts all ranks, and ends with the exit code of the one that failed first.

What `horovodrun --gloo` does, by Horovod's own functions. The program itself puts the whole environment on the command
line of every rank, for all users to see, and ends with 1 whatever the rank's code was. Here a rank has its own node's
environment, and what Horovod tells it reaches it over ssh.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from elastic import ElasticJob
from endings import LOST, Ending, first_failure
from facts import KEY_FILE
from horovod.runner.common.util.hosts import HostInfo, SlotInfo, get_host_assignments
from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
from links import Workers
from messages import NodeError, RankError, log
from nodes import Node, NodesDir
from options import Options, check_binding, read_options
from ranks import run_rank
from rendezvous import Rendezvous

from oci_cluster.contract.first_cause import may_be_a_consequence

_STOPPED = 128 + signal.SIGTERM
_POLL_S = 0.05
# How long others may take to end by themselves, once one has failed: what common/README.md says of nodes.
_SETTLE_S = 3.0


class Launcher:
    def __init__(self, options: Options, environ: Mapping[str, str]) -> None:
        self._options = options
        self._timeout_s = float(environ["TIMEOUT"])
        self._deadline = time.monotonic() + self._timeout_s
        self._asked_for = [f"WORKER_{rank}" for rank in range(1, int(environ["WORKER_COUNT"]) + 1)]
        self._ready_file = Path(environ["READY_FILE"])
        self._nodes_dir = NodesDir(Path(environ["NODES_DIR"]))
        main = self._nodes_dir.read().get("MAIN")
        if main is None:
            raise NodeError(78, f"NODES_DIR ({environ['NODES_DIR']}) has no file of MAIN that can be used")
        self._main = main
        self._workers = Workers(self._nodes_dir, options, Path(environ["NODE_DIR"], KEY_FILE))
        self._rendezvous = Rendezvous(environ["NODE_ADDRESS"], options.rendezvous_port, self._addresses)
        self._unwanted: set[asyncio.Event] = set()
        self._is_ending = False

    async def run(self) -> int:
        """Run the job; return its exit code."""
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told.set)
        follow = asyncio.ensure_future(self._workers.keep())
        job = asyncio.ensure_future(self._run_job())
        stop = asyncio.ensure_future(told.wait())
        try:
            await asyncio.wait({follow, job, stop}, return_when=asyncio.FIRST_COMPLETED)
            if follow.done():
                follow.result()  # it never ends but by a bug
            return job.result() if job.done() else _STOPPED
        finally:
            await self._end_ranks()

    async def _run_job(self) -> int:
        nodes = await self._all_nodes()
        slots = sum(node.slots for node in nodes)
        if not self._options.is_elastic:
            self._rendezvous.start()
            self._say_ready(nodes)
            return await self._run_static(nodes)
        self._say_ready(nodes)
        job = ElasticJob(self._options, self._rendezvous, self._hosts, self._run_rank)
        return await job.run(slots, self._timeout_s)

    # --- Nodes ---------------------------------------------------------------------------------------------

    def _addresses(self) -> set[str]:
        return {node.address for node in self._nodes_dir.read().values()}

    def _hosts(self) -> dict[str, int]:
        """Return the slots of the nodes that answer, main first."""
        return {node.life: node.slots for node in [self._main, *self._workers.up()]}

    async def _all_nodes(self) -> list[Node]:
        """Return main and the workers that were asked for, when all answer; elastic, those that do in time."""
        known: set[str] = set()
        while True:
            nodes = [self._main, *self._workers.up()]
            answering = {node.name for node in nodes}
            missing = [name for name in self._asked_for if name not in answering]
            if not missing:
                return nodes
            there = self._workers.names()
            if (gone := sorted(known - there)) and not self._options.is_elastic:
                raise NodeError(LOST, f"lost before all nodes were there: {', '.join(gone)}; see its log")
            known |= there
            if time.monotonic() >= self._deadline:
                why = ", ".join(self._workers.describe(name) for name in missing)
                if not 0 < self._options.min_np <= sum(node.slots for node in nodes):
                    raise NodeError(75, f"not ready after {self._timeout_s:g} s (TIMEOUT): missing {why}")
                log(f"starting after {self._timeout_s:g} s (TIMEOUT) without {why}")
                return nodes
            await asyncio.sleep(_POLL_S)

    def _say_ready(self, nodes: list[Node]) -> None:
        temporary = self._ready_file.with_suffix(".new")
        temporary.write_text(f"hosts={','.join(f'{node.name}:{node.slots}' for node in nodes)}\n")
        temporary.replace(self._ready_file)

    # --- Ranks ---------------------------------------------------------------------------------------------

    async def _run_rank(self, slot: SlotInfo, unwanted: asyncio.Event) -> Ending:
        """Run one rank, on the node that is its slot's host, to its end or until it is *unwanted*."""
        node = slot.hostname.partition("-")[0]
        if self._is_ending:
            return Ending(slot.rank, node, time.monotonic(), _STOPPED, was_told=True)
        told = create_run_env_vars(self._rendezvous.address, [""], self._rendezvous.port, self._options.is_elastic)
        del told["HOROVOD_GLOO_IFACE"], told["NCCL_SOCKET_IFNAME"]  # each node knows its own
        environ = {name: str(value) for name, value in {**told, **create_slot_env_vars(slot)}.items()}
        self._unwanted.add(unwanted)
        try:
            code: int | None = None
            printed = b""
            if slot.hostname == self._main.life:
                code, printed = await run_rank(environ, unwanted, grace_s=self._options.rank_grace_s)
            elif link := self._workers.links.get(slot.hostname):
                code, printed = await link.run_rank(environ, unwanted)
        finally:
            self._unwanted.discard(unwanted)
        return Ending(slot.rank, node, time.monotonic(), code, was_told=unwanted.is_set(), printed=printed)

    async def _end_ranks(self) -> None:
        self._is_ending = True
        for unwanted in self._unwanted:
            unwanted.set()
        while self._unwanted:
            await asyncio.sleep(_POLL_S)

    async def _run_static(self, nodes: list[Node]) -> int:
        hosts = [HostInfo(node.life, node.slots) for node in nodes]
        slots = get_host_assignments(hosts, sum(node.slots for node in nodes))
        self._rendezvous.init(slots)
        running = {asyncio.ensure_future(self._run_rank(slot, asyncio.Event())): slot for slot in slots}
        endings: list[Ending] = []
        settled_at = float("inf")
        is_clear = False
        while running and not is_clear and time.monotonic() < settled_at:
            done, _ = await asyncio.wait(running, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
            for ending in [task.result() for task in done]:
                endings.append(ending)
                if ending.is_failure:
                    log(str(ending))
                    settled_at = min(settled_at, time.monotonic() + _SETTLE_S)
                    is_clear = is_clear or not may_be_a_consequence(ending)
            for task in done:
                del running[task]
        cause = first_failure(endings)
        if cause is None:
            return 0
        others = [f"rank {slot.rank} on {slot.hostname.partition('-')[0]}" for slot in running.values()]
        raise RankError(cause.exit_code, cause.told(others, _SETTLE_S), cause.node, cause.printed)


def main() -> int:
    options = read_options(os.environ)
    check_binding(options.framework)
    return asyncio.run(Launcher(options, os.environ).run())
