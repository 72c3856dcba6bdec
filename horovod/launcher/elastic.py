"""Horovod's elastic driver, with the nodes that answer as its hosts.

Two of its faults are fixed here. A node that joins before the ranks listen, or while they start again, is never spoken
of again; and when a node is removed next, the old ranks skip a synchronization in which the new one waits for ever
(horovod#3494). So ranks are told again, every second, for as long as Horovod has not taken the hosts that are there,
and always in the words for an addition, after which all ranks synchronize.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from endings import Ending, RankError, first_failure, log
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.common.util.timeout import TimeoutException
from horovod.runner.elastic.discovery import HostDiscovery, HostManager
from horovod.runner.elastic.driver import DISCOVER_HOSTS_FREQUENCY_SECS, ElasticDriver
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.elastic.worker import HostUpdateResult
from nodes import rank_of
from options import Options
from rendezvous import Rendezvous

from oci_cluster.errors import LostError, TimedOutError

_POLL_S = 0.1


def ordered(available: Collection[str], before: Sequence[str]) -> list[str]:
    """Return hosts in the order of ranks: those in use, then new ones."""
    return sorted(available, key=lambda host: (before.index(host) if host in before else len(before), rank_of(host)))


HostManager.order_available_hosts = staticmethod(ordered)


class Driver(ElasticDriver):
    def __init__(self, rendezvous: Rendezvous, look: Callable[[], Mapping[str, int]], *args: object, **options: object):
        """Take the hosts that are there from *look*: their slots by name."""
        hosts = HostDiscovery()
        hosts.find_available_hosts_and_slots = look
        super().__init__(rendezvous, hosts, *args, **options)

    def _discover_hosts(self) -> None:
        while not self._shutdown.is_set():
            with self._wait_hosts_cond:
                self._host_manager.update_available_hosts()
                # Says nothing where the ranks already are as they should be.
                self._notify_workers_host_changes(self._host_manager.current_hosts, HostUpdateResult.mixed)
                self._wait_hosts_cond.notify_all()
            self._shutdown.wait(DISCOVER_HOSTS_FREQUENCY_SECS)


class ElasticJob:
    """Ranks on hosts that come and go: Horovod's driver in threads, ranks in the event loop."""

    def __init__(
        self,
        options: Options,
        rendezvous: Rendezvous,
        look: Callable[[], Mapping[str, int]],
        run_rank: Callable[[SlotInfo, asyncio.Event], Awaitable[Ending]],
    ) -> None:
        self._options, self._rendezvous, self._look, self._run_rank = options, rendezvous, look, run_rank
        self._endings: dict[str, Ending] = {}
        self._loop = asyncio.get_running_loop()

    async def run(self, slots: int, timeout_s: float) -> None:
        """Start ranks in *slots* slots, within MIN_NP and MAX_NP, and wait for success."""
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def drive() -> None:
            try:
                done.set_result(self._drive(slots, timeout_s))
            except Exception as error:  # noqa: BLE001 - handed on to whoever waits
                done.set_exception(error)

        threading.Thread(target=drive, daemon=True).start()
        await asyncio.wrap_future(done)

    def _drive(self, slots: int, timeout_s: float) -> None:
        options = self._options
        min_np, max_np = options.min_np or slots, options.max_np or None
        first_np = max(min_np, min(slots, max_np or slots))
        limits = {"reset_limit": options.reset_limit, "cooldown_range": options.cooldown_s}
        self._driver = driver = Driver(
            self._rendezvous, self._look, min_np, max_np, timeout=max(int(timeout_s), 1), **limits
        )
        self._rendezvous.start(create_rendezvous_handler(driver))
        try:
            driver.wait_for_available_slots(first_np)
        except TimeoutException as error:
            raise TimedOutError(
                f"{first_np} ranks are to start (MIN_NP), and there are fewer slots: {error}"
            ) from error
        driver.start(first_np, self._create_worker)
        results = driver.get_results()
        driver.stop()
        # Of the last time that ranks started together: those that failed before have been done without.
        endings = [self._endings[name] for name in results.worker_results]
        if cause := first_failure(endings):
            raise RankError(cause)
        if results.error_message or not endings or any(ending.exit_code for ending in endings):
            raise LostError(
                results.error_message or f"Horovod gave the job up with fewer than {min_np} ranks left (MIN_NP)"
            )

    def _create_worker(self, slot: SlotInfo, events: Sequence[threading.Event]) -> tuple[int, float]:
        """Run a rank to its end, or until one of *events* is set; has its own thread."""
        unwanted = asyncio.Event()
        running = asyncio.run_coroutine_threadsafe(self._run_rank(slot, unwanted), self._loop)
        while not concurrent.futures.wait([running], timeout=_POLL_S).done:
            if any(event.is_set() for event in events):
                self._loop.call_soon_threadsafe(unwanted.set)
        ending = running.result()
        if ending.code is None or not self._driver.has_rank_assignment(slot.hostname, slot.local_rank):
            # A rank that is taken out ends with an abort, which is no failure.
            log(f"{ending.node} has left the job")
        elif ending.is_failure:
            log(str(ending))
        self._endings[f"{slot.hostname}[{slot.local_rank}]"] = ending
        return ending.exit_code, time.time()
