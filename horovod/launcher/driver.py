"""Horovod's rendezvous server and elastic driver, guarded, and with two faults of the driver fixed.

Horovod's own server takes a random port on all interfaces, and whoever reaches it can change the job, or run code in it
where it is elastic: what ranks put there is unpickled, and so is what answers at the address that came there, signed
with the key that came there. So only addresses of nodes may talk to it, on loopback only this user may change anything,
nobody can read the keys that ranks put there, and what is unpickled is plain data.

A node that joins before the ranks listen, or while they start again, is never spoken of again; and when a node is
removed next, the old ranks skip a synchronization in which the new one waits for ever (horovod#3494). So ranks are told
again, every second, for as long as Horovod has not taken the hosts that are there, and always in the words for an
addition, after which all ranks synchronize.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import ipaddress
import pickle
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import cloudpickle
from horovod.runner.common.util import codec, network
from horovod.runner.common.util.hosts import SlotInfo
from horovod.runner.common.util.timeout import TimeoutException
from horovod.runner.elastic.discovery import HostDiscovery, HostManager
from horovod.runner.elastic.driver import DISCOVER_HOSTS_FREQUENCY_SECS, ElasticDriver
from horovod.runner.elastic.rendezvous import GET_RANK_AND_SIZE, PUT_WORKER_ADDRESSES, create_rendezvous_handler
from horovod.runner.elastic.worker import HostUpdateResult
from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer, RendezvousServer
from horovod.runner.util.threads import in_thread
from nodes import Options, rank_of
from ranks import Ending, RankError, first_failure, log, log_once

from oci_cluster.errors import LostError, SettingsError, TimedOutError
from oci_cluster.system.listeners import peer_is_of_this_user

# Ranks put some hundred bytes there: addresses, and a key.
_LONGEST_VALUE = 1 << 20
_ANSWERS = {(network.__name__, "PingResponse"), (network.__name__, "AckResponse")}


class _DataUnpickler(pickle.Unpickler):
    """Takes plain data, and the two answers of ranks. Other pickles may run anything."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ANSWERS:
            raise pickle.UnpicklingError(f"{module[:50]}.{name[:50]} is not what ranks send")
        return super().find_class(module, name)


# Horovod's own code unpickles so in this process.
codec.cloudpickle = network.cloudpickle = SimpleNamespace(
    dumps=cloudpickle.dumps, loads=lambda pickled: _DataUnpickler(io.BytesIO(pickled)).load()
)


class _Guard:
    """Precedes a handler of Horovod's: refuses whoever may not change the server's data."""

    def parse_request(self) -> bool:
        """Return whether http.server is to answer a request; a refused one has its answer."""
        if not super().parse_request():
            return False
        if code := self._refusal():
            self.close_connection = True  # what follows would be taken for the next request
            self.send_status_code(code)
        return not code

    def _refusal(self) -> int:
        """Return the status of a request that is refused, else 0."""
        scope, length = self.path.split("/")[1:2], self.headers.get("Content-Length", "")
        if self.command not in {"GET", "PUT", "DELETE"}:  # http.server's HEAD tells of files in the working directory
            return 405
        if self.command == "PUT" and not (length.isdecimal() and int(length) <= _LONGEST_VALUE):
            return 413
        # A request for a rank counts as ready. The ranks' addresses, with their keys, are for the driver alone.
        if self.command == "GET" and scope != [GET_RANK_AND_SIZE]:
            return 403 if scope == [PUT_WORKER_ADDRESSES] else 0
        # On loopback all nodes' connections come from one address.
        if ipaddress.ip_address(self.client_address[0]).is_loopback and not peer_is_of_this_user(self.connection):
            log_once("rendezvous: refused a process of another user of this machine")
            return 403
        return 0


class _Server(RendezvousHTTPServer):
    daemon_threads = True  # one that waits for ranks that never come must not keep main from ending
    request_queue_size = 1024  # all ranks ask at once, and again every 10 ms

    def __init__(self, address: tuple[str, int], handler: type, node_addresses: Callable[[], set[str]]) -> None:
        self._node_addresses, self._known = node_addresses, {address[0]}
        super().__init__(address, handler, 0)

    def server_bind(self) -> None:
        # http.server asks DNS for this machine's name here, which can take longer than all else.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]

    def verify_request(self, request: socket.socket, client_address: tuple[str, int]) -> bool:  # noqa: ARG002
        peer, own = map(ipaddress.ip_address, (client_address[0], self.server_address[0]))
        if own.is_loopback and peer.is_loopback:
            return True
        # Kept: a rank whose node has just been taken out asks once more, and must hear that it is out.
        self._known |= self._node_addresses()
        if str(peer) not in self._known:
            log_once(f"rendezvous: refused {peer}, which is no node's address")
        return str(peer) in self._known

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's signature
        """Log a failed request in one line: nonsense must not fill the log."""
        log_once(f"rendezvous: a request of {client_address[0]} failed: {sys.exc_info()[1]!r}")


class Rendezvous(RendezvousServer):
    def __init__(self, address: str, port: int, node_addresses: Callable[[], set[str]]) -> None:
        super().__init__()
        self.address, self.port, self._node_addresses = address, port, node_addresses

    def start(self, handler_cls: type = RendezvousHandler) -> int:
        handler = type("Guarded", (_Guard, handler_cls), {})
        try:
            self._httpd = _Server((self.address, self.port), handler, self._node_addresses)
        except OSError as error:
            msg = f"the rendezvous server cannot listen on {self.address} port {self.port}: {error.strerror}"
            msg += "; choose another: RENDEZVOUS_PORT=..."
            raise SettingsError(msg) from error
        self._listen_thread = in_thread(target=self._httpd.serve_forever)
        return self.port


# --- Hosts that come and go: those of the nodes that answer -----------------------------------------------------------

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
