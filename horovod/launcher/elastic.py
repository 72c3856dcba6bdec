"""Horovod's elastic driver, with the nodes that answer as its hosts.

Two of its faults are mended here. A node that joins before the ranks listen, or while they start again, is never spoken
of again; and when a node is removed next, the old ranks skip a synchronization in which the new one waits for ever
(horovod#3494). So ranks are told again, every second, for as long as Horovod has not taken the hosts that are there,
and always in the words for an addition, after which all ranks synchronize.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from endings import LOST, Ending, first_failure
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.common.util.timeout import TimeoutException
from horovod.runner.elastic.discovery import HostDiscovery
from horovod.runner.elastic.driver import DISCOVER_HOSTS_FREQUENCY_SECS, ElasticDriver
from horovod.runner.elastic.rendezvous import create_rendezvous_handler
from horovod.runner.elastic.worker import HostUpdateResult
from messages import NodeError, RankError, log
from options import Options
from rendezvous import Rendezvous
from unpickling import take_data_only

_POLL_S = 0.1
RunRank = Callable[[SlotInfo, asyncio.Event], Awaitable[Ending]]


class Hosts(HostDiscovery):
    """The hosts that are there, in an order that lasts: Horovod's lowest ranks go to those that it knows longest."""

    def __init__(self, look: Callable[[], Mapping[str, int]]) -> None:
        """Take the hosts from *look*: slots by host, in the order in which they should have their ranks."""
        self._look = look
        self._listed: dict[str, int] = {}
        self.is_complete = False
        """Whether all hosts that were there at the last look have been listed."""

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return the hosts that are there: those that were, and one new one, as Horovod orders new ones at random."""
        there = self._look()
        new = [host for host in there if host not in self._listed]
        self._listed = {host: slots for host, slots in there.items() if host in self._listed or host == new[0]}
        self.is_complete = len(new) <= 1
        return self._listed


class Driver(ElasticDriver):
    def __init__(
        self, rendezvous: Rendezvous, hosts: Hosts, min_np: int, max_np: int | None, **options: object
    ) -> None:
        self._hosts = hosts
        super().__init__(rendezvous, hosts, min_np, max_np, **options)

    def _discover_hosts(self) -> None:
        while not self._shutdown.is_set():
            with self._wait_hosts_cond:
                self._hosts.is_complete = False
                while not self._hosts.is_complete:
                    self._host_manager.update_available_hosts()
                # Says nothing where the ranks already are as they should be.
                self._notify_workers_host_changes(self._host_manager.current_hosts, HostUpdateResult.mixed)
                self._wait_hosts_cond.notify_all()
            self._shutdown.wait(DISCOVER_HOSTS_FREQUENCY_SECS)


class ElasticJob:
    """Ranks that go on as hosts go and come. Horovod's driver lives in threads, the ranks in the event loop."""

    def __init__(
        self, options: Options, rendezvous: Rendezvous, look: Callable[[], Mapping[str, int]], run_rank: RunRank
    ) -> None:
        self._options = options
        self._rendezvous = rendezvous
        self._look = look
        self._run_rank = run_rank
        self._endings: dict[str, Ending] = {}

    async def run(self, slots: int, timeout_s: float) -> int:
        """Start ranks in *slots* slots, more or fewer if MIN_NP and MAX_NP say so; return the job's exit code."""
        min_np = self._options.min_np or slots
        first_np = max(min_np, min(slots, self._options.max_np or slots))
        self._loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = self._loop.create_future()

        def drive() -> None:
            try:
                code = self._drive(min_np, first_np, timeout_s)
            except Exception as error:  # noqa: BLE001 - handed on to whoever waits
                self._loop.call_soon_threadsafe(done.set_exception, error)
            else:
                self._loop.call_soon_threadsafe(done.set_result, code)

        threading.Thread(target=drive, daemon=True).start()
        return await done

    def _drive(self, min_np: int, first_np: int, timeout_s: float) -> int:
        take_data_only()
        driver = Driver(
            self._rendezvous,
            Hosts(self._look),
            min_np,
            self._options.max_np or None,
            timeout=max(int(timeout_s), 1),
            reset_limit=self._options.reset_limit,
            cooldown_range=self._options.cooldown_s,
        )
        self._rendezvous.start(create_rendezvous_handler(driver))
        self._driver = driver
        try:
            driver.wait_for_available_slots(first_np)
        except TimeoutException as error:
            raise NodeError(
                75, f"{first_np} ranks are to start (MIN_NP), and there are fewer slots: {error}"
            ) from error
        driver.start(first_np, self._create_worker)
        results = driver.get_results()
        driver.stop()
        # Of the last time that ranks started together: those that failed before have been done without.
        endings = [self._endings[name] for name in results.worker_results]
        cause = first_failure(endings)
        if cause is not None:
            raise RankError(cause.exit_code, str(cause), cause.node, cause.printed)
        if results.error_message or not endings or any(ending.exit_code for ending in endings):
            msg = results.error_message or f"Horovod gave the job up with fewer than {min_np} ranks left (MIN_NP)"
            raise NodeError(LOST, msg)
        return 0

    def _create_worker(self, slot: SlotInfo, events: Sequence[threading.Event]) -> tuple[int, float]:
        """Run a rank to its end; Horovod calls this in a thread of its own, and sets one of *events* to end it."""
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
