"""Main: waits for workers, starts all ranks, ends with the first failure's code.

What `horovodrun --gloo` does, by Horovod's own functions. The program itself puts the whole environment on the command
line of every rank, for all users to see, and ends with 1 whatever the rank's code was. Here a rank has its own node's
environment, and what Horovod tells it reaches it over ssh.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import asyncssh
from driver import ElasticJob, Rendezvous
from horovod.runner.common.util.hosts import HostInfo, SlotInfo, get_host_assignments
from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
from nodes import KEY_FILE, Node, Options, name_of, rank_of, read_node, read_nodes
from ranks import STOPPED, Ending, RankError, Unwanted, first_failure, log, run_rank, told_to_end
from ssh import Link

from oci_cluster.contract.first_cause import may_be_a_consequence
from oci_cluster.errors import LostError, SettingsError, TimedOutError
from oci_cluster.system.files import write_whole

_POLL_S = 0.05
_NODES_POLL_S = 0.2
# Others may take so long to end by themselves, once one has failed: as nodes, in common/README.md.
_SETTLE_S = 3.0


class Launcher:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._timeout_s = float(os.environ["TIMEOUT"])
        self._nodes_dir = Path(os.environ["NODES_DIR"])
        try:
            self._main = read_node(self._nodes_dir / "MAIN")
        except (OSError, ValueError) as error:
            raise SettingsError(f"NODES_DIR has no file of MAIN that can be used: {error}") from error
        self._links: dict[str, Link] = {}
        """To every worker that NODES_DIR tells of, by the name of its host."""
        addresses = lambda: {node.address for node in read_nodes(self._nodes_dir)}  # noqa: E731
        self._rendezvous = Rendezvous(os.environ["NODE_ADDRESS"], options.rendezvous_port, addresses)
        self._unwanted = Unwanted()

    async def run(self) -> int:
        told = told_to_end()
        follow, job, stop = map(asyncio.ensure_future, (self._keep_links(), self._run_job(), told.wait()))
        try:
            await asyncio.wait({follow, job, stop}, return_when=asyncio.FIRST_COMPLETED)
            if follow.done():
                follow.result()  # it never ends but by a bug
            if not job.done():
                return STOPPED
            job.result()
        finally:
            await self._unwanted.end_all()
        return 0

    async def _keep_links(self) -> None:
        key = asyncssh.read_private_key(str(Path(os.environ["NODE_DIR"], KEY_FILE)))
        while True:
            there = {node.host: node for node in read_nodes(self._nodes_dir) if node.name != "MAIN"}
            for host in self._links.keys() - there.keys():
                self._links.pop(host).task.cancel()
            for host in there.keys() - self._links.keys():
                self._links[host] = Link(there[host], self._options, key)
            await asyncio.sleep(_NODES_POLL_S)

    def _answering(self) -> list[Node]:
        """Return main and the workers that answer, in the order of their ranks."""
        up = [link.node for link in list(self._links.values()) if link.is_up]
        return [self._main, *sorted(up, key=lambda node: rank_of(node.name))]

    async def _run_job(self) -> None:
        nodes = await self._all_nodes()
        if not self._options.is_elastic:
            self._rendezvous.start()
        hosts = ",".join(f"{node.name}:{node.slots}" for node in nodes)
        write_whole(Path(os.environ["READY_FILE"]), f"hosts={hosts}\n")
        if not self._options.is_elastic:
            await self._run_static(nodes)
            return
        slots = lambda: {node.host: node.slots for node in self._answering()}  # noqa: E731
        job = ElasticJob(self._options, self._rendezvous, slots, self._run_rank)
        await job.run(sum(node.slots for node in nodes), self._timeout_s)

    async def _all_nodes(self) -> list[Node]:
        """Return main and all workers; of an elastic job, those that come in time."""
        deadline = time.monotonic() + self._timeout_s
        asked_for = [f"WORKER_{rank}" for rank in range(1, int(os.environ["WORKER_COUNT"]) + 1)]
        known: set[str] = set()
        while True:
            nodes = self._answering()
            problems = {link.node.name: link.problem for link in self._links.values()}
            missing = [name for name in asked_for if name not in {node.name for node in nodes}]
            if not missing:
                return nodes
            if (gone := sorted(known - problems.keys())) and not self._options.is_elastic:
                raise LostError(f"lost before all nodes were there: {', '.join(gone)}; see its log")
            known |= problems.keys()
            if time.monotonic() >= deadline:
                why = ", ".join(f"{name} ({problems[name]})" if name in problems else name for name in missing)
                if not 0 < self._options.min_np <= sum(node.slots for node in nodes):
                    raise TimedOutError(f"not ready after {self._timeout_s:g} s (TIMEOUT): missing {why}")
                log(f"starting after {self._timeout_s:g} s (TIMEOUT) without {why}")
                return nodes
            await asyncio.sleep(_POLL_S)

    async def _run_rank(self, slot: SlotInfo, unwanted: asyncio.Event) -> Ending:
        node = name_of(slot.hostname)
        if self._unwanted.is_ending:
            return Ending(slot.rank, node, time.monotonic(), STOPPED, was_told=True)
        told = create_run_env_vars(self._rendezvous.address, [""], self._rendezvous.port, self._options.is_elastic)
        del told["HOROVOD_GLOO_IFACE"], told["NCCL_SOCKET_IFNAME"]  # each node knows its own
        environ = {name: str(value) for name, value in {**told, **create_slot_env_vars(slot)}.items()}
        code, printed = None, b""
        with self._unwanted.holding(unwanted):
            if slot.hostname == self._main.host:
                code, printed = await run_rank(environ, unwanted, grace_s=self._options.grace_s)
            elif link := self._links.get(slot.hostname):
                code, printed = await link.run_rank(environ, unwanted)
        return Ending(slot.rank, node, time.monotonic(), code, was_told=unwanted.is_set(), printed=printed)

    async def _run_static(self, nodes: list[Node]) -> None:
        hosts = [HostInfo(node.host, node.slots) for node in nodes]
        slots = get_host_assignments(hosts, sum(node.slots for node in nodes))
        self._rendezvous.init(slots)
        running = {asyncio.ensure_future(self._run_rank(slot, asyncio.Event())): slot for slot in slots}
        endings: list[Ending] = []
        settled_at, is_clear = float("inf"), False
        while running and not is_clear and time.monotonic() < settled_at:
            done, _ = await asyncio.wait(running, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                del running[task]
                endings.append(ending := task.result())
                if ending.is_failure:
                    log(str(ending))
                    settled_at = min(settled_at, time.monotonic() + _SETTLE_S)
                    is_clear = is_clear or not may_be_a_consequence(ending)
        if cause := first_failure(endings):
            others = [f"rank {slot.rank} on {name_of(slot.hostname)}" for slot in running.values()]
            raise RankError(cause, others, _SETTLE_S)


def main(options: Options) -> int:
    return asyncio.run(Launcher(options).run())
