"""torch's c10d rendezvous as clusters need it; torchrun knows it as ``c10d-ordered``.

- Ranks follow NODE_RANK: rank 0 is on main, after restarts too. torch goes by the text of addresses, in which 10.0.0.10
  comes before 10.0.0.9: rank 0, which keeps the checkpoints, could be on any node, and on another one later.
- Stores listen on the node's own address. torch's listen on all networks.
- What is unpickled is signed. Whoever can connect to a store can write to it, and a pickle runs what it likes.
- Every attempt has a new store for its ranks. torch 2.13 goes on with the first attempt's, unless it is told not to:
  ranks then find the addresses of their predecessors, and fail or hang in init_process_group.
- Nodes that wait look ten times a second at first. torch looks once, and most of its rendezvous is waiting.
- No attempt follows one in which a node has ended well. That node does not come to it: torch's waits for it in vain.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed.launcher.api as launcher_api
from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
    dynamic_rendezvous,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend

NAME = "c10d-ordered"
# torch's default, for a connection and for an answer; less where less is left of TIMEOUT.
STORE_TIMEOUT_S = 60
LOOK_S = 0.1
# A node that comes later than that is noticed within torch's own second.
LOOK_OFTEN_FOR_S = 10.0
# Of the store: somebody's ranks have all ended with 0.
_SUCCESS = "success"
# A node whose ranks have ended well waits so long for those of the others, where none can be missed. torch's 300 s
# would end ranks that still save a model, as those of a success. Main notices a node that is lost.
EXIT_BARRIER_S = 7 * 86400
# Nodes leave within some hundredths of a second of each other.
PART_TIMEOUT_S = 1.0


class SignedBackend(C10dRendezvousBackend):
    """Keeps the rendezvous' state in a store, signed: torch unpickles what it reads."""

    def __init__(self, store: TCPStore, run_id: str, key: bytes) -> None:
        super().__init__(store, run_id)
        self._signing = hmac.new(key, run_id.encode(), "sha256")
        self.before_look: Callable[[], object] = lambda: None
        """Called before each look at the state; may raise."""

    def get_state(self) -> tuple[bytes, Any] | None:
        """Return the state and its token, if any; it must be signed."""
        self.before_look()
        found = super().get_state()
        return None if found is None else (self._opened(found[0]), found[1])

    def set_state(self, state: bytes, token: Any = None) -> tuple[bytes, Any, bool] | None:
        """Replace the state that had *token*; return the valid one, its token, whether replaced."""
        if token and not isinstance(token, bytes):  # torch's own answer to a token that it has not made
            found = self.get_state()
            return None if found is None else (*found, False)
        kept = super().set_state(self._mac(state) + state, token)
        return None if kept is None else (self._opened(kept[0]), kept[1], kept[2])

    def _mac(self, state: bytes) -> bytes:
        signing = self._signing.copy()
        signing.update(state)
        return signing.digest()

    def _opened(self, signed: bytes) -> bytes:
        mac, state = signed[: self._signing.digest_size], signed[self._signing.digest_size :]
        if not hmac.compare_digest(mac, self._mac(state)):
            raise RendezvousStateError(
                "the rendezvous holds a state that this launch has not signed: others write to main's store"
            )
        return state


class OrderedRendezvous(RendezvousHandler):
    """A c10d rendezvous in which nodes have the order of their ranks."""

    def __init__(self, backend: SignedBackend, store: TCPStore, params: RendezvousParameters) -> None:
        self._backend = backend
        self._handler = dynamic_rendezvous.create_handler(store, backend, params)
        self._store, self._params = store, params
        self._rank_store: TCPStore | None = None
        self._nodes = 1
        self._is_gone = False
        self.failures: dict[int, ProcessFailure] = {}
        store.set(f"arrived/{os.environ['NODE_NAME']}", "")

    def get_backend(self) -> str:
        return NAME

    @property
    def use_agent_store(self) -> bool:
        """Ranks are clients of their attempt's store, which the launcher of rank 0 has."""
        return True

    @property
    def is_elastic(self) -> bool:
        """Whether nodes may be lost."""
        return self._params.min_nodes != self._params.max_nodes

    def next_rendezvous(self) -> RendezvousInfo:
        try:
            with looking_often(self._handler), replaced(self._backend, "before_look", self._check_open):
                info = self._handler.next_rendezvous()
        except RendezvousTimeoutError as error:
            raise RendezvousTimeoutError(self._missing()) from error
        self._nodes = info.world_size
        node_rank = int(os.environ["NODE_RANK"])
        info.store.set(f"node_rank/{info.rank}", str(node_rank))
        node_ranks = info.store.multi_get([f"node_rank/{rank}" for rank in range(self._nodes)])
        rank = sorted((int(text), rank) for rank, text in enumerate(node_ranks)).index((node_rank, info.rank))
        port = 0
        if rank == 0:
            self._rank_store = serve(socket.create_server((self._params.local_addr, 0), backlog=1024))
            port = self._rank_store.port
        address = RendezvousStoreInfo.build(rank, PrefixStore("ordered", info.store), self._params.local_addr, port)
        return RendezvousInfo(info.store, rank, self._nodes, address)

    def is_closed(self) -> bool:
        return self._handler.is_closed()

    def set_closed(self) -> None:
        self._handler.set_closed()

    def num_nodes_waiting(self) -> int:
        if not self._is_gone:
            try:
                return self._handler.num_nodes_waiting()
            except RendezvousConnectionError:
                # Main's launcher has ended, and main's agent will end this node. Until then the ranks here are watched:
                # how they end tells what happened, and the one that does not end is the one that hangs.
                self._is_gone = True
        return 0

    def get_run_id(self) -> str:
        return self._handler.get_run_id()

    def shutdown(self) -> bool:
        return self._handler.shutdown()

    def note(self, result: RunResult) -> bool:
        """Note this node's *result*; return whether a failure in it is final."""
        if result.state == WorkerState.SUCCEEDED:
            self._store.set(_SUCCESS, "")
        self.failures = result.failures
        return bool(result.failures) and self._has_success()

    def _has_success(self) -> bool:
        try:
            return bool(self._store.check([_SUCCESS]))
        except RuntimeError:  # main's launcher has ended
            return False

    def _check_open(self) -> None:
        if self._has_success():
            raise RendezvousClosedError("another node has ended well, and comes to no other attempt")

    def part(self) -> None:
        """Leave after a success, main last: a lost store fills nodes' logs with warnings."""
        with contextlib.suppress(RuntimeError):
            if not self._params.get_as_bool("is_host"):
                self._store.add("parted", 1)
                return
            deadline = time.monotonic() + PART_TIMEOUT_S
            while self._store.add("parted", 0) < self._nodes - 1 and time.monotonic() < deadline:
                time.sleep(0.01)

    def _missing(self) -> str:
        workers = int(os.environ["WORKER_COUNT"])
        nodes = ["MAIN", *(f"WORKER_{rank}" for rank in range(1, workers + 1))]
        missing = [node for node in nodes if not self._store.check([f"arrived/{node}"])]
        waited = f"waited {self._params.get('join_timeout')} s (TIMEOUT) for {self._params.min_nodes} nodes"
        return f"{waited}; never seen: {', '.join(missing) or 'none'}"


@contextlib.contextmanager
def looking_often(handler: RendezvousHandler) -> Iterator[None]:
    """Have *handler* look every LOOK_S for a while; without these names torch is slower."""
    holder = getattr(handler, "_state_holder", None)
    delay = getattr(dynamic_rendezvous, "_delay", None)
    if delay is None or not hasattr(holder, "_cache_duration"):
        yield
        return
    began = time.monotonic()

    def shorter(seconds: float | tuple[float, float]) -> None:
        # A range is the random time by which torch keeps apart nodes that come at once: a tenth of it is enough.
        if isinstance(seconds, tuple):
            delay((seconds[0] * LOOK_S, seconds[1] * LOOK_S))
        else:
            delay(LOOK_S if time.monotonic() - began < LOOK_OFTEN_FOR_S else seconds)

    with replaced(dynamic_rendezvous, "_delay", shorter), replaced(holder, "_cache_duration", LOOK_S / 2):
        yield


@contextlib.contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def serve(listener: socket.socket) -> TCPStore:
    host, port = listener.getsockname()[:2]
    return TCPStore(
        host,
        port,
        is_master=True,
        timeout=timedelta(seconds=STORE_TIMEOUT_S),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def own_key(environ: Mapping[str, str]) -> bytes:
    """Return the rendezvous' key, made of the launch's: files' signatures are worth nothing here."""
    # In the environment alone: others on this machine see command lines.
    launch_key = environ.get("LAUNCH_KEY", "")
    if not launch_key:
        sys.stderr.write(
            f"{Path(__file__).name}: LAUNCH_KEY is not set: who reaches main's rendezvous can run code on all nodes;"
            " give all nodes of the launch the same random one\n"
        )
    return hmac.digest(launch_key.encode(), b"rendezvous", "sha256")


def register(listener: socket.socket | None, leave: Callable[[int], object]) -> list[OrderedRendezvous]:
    """Make rendezvous and agent known to torchrun; return a list that gets the rendezvous.

    The store of main, the rendezvous' host, takes connections on *listener*. *leave* ends this process with a code.
    """
    made: list[OrderedRendezvous] = []

    def create(params: RendezvousParameters) -> RendezvousHandler:
        host, _, port = params.endpoint.rpartition(":")
        try:
            if listener and params.get_as_bool("is_host"):
                store = serve(listener)
            else:
                timeout_s = min(STORE_TIMEOUT_S, params.get_as_int("join_timeout", STORE_TIMEOUT_S))
                store = TCPStore(host, int(port), timeout=timedelta(seconds=timeout_s))
        except (RuntimeError, ValueError) as error:
            raise RendezvousConnectionError(str(error)) from error
        backend = SignedBackend(store, params.run_id, own_key(os.environ))
        made.append(OrderedRendezvous(backend, store, params))
        return made[-1]

    def make_agent(spec: WorkerSpec, **options: Any) -> LocalElasticAgent:
        is_ours = isinstance(spec.rdzv_handler, OrderedRendezvous)
        return Agent(spec, leave, **options) if is_ours else LocalElasticAgent(spec, **options)

    launcher_api.LocalElasticAgent = make_agent
    rendezvous_handler_registry.register(NAME, create)
    return made


class Agent(LocalElasticAgent):
    """torch's agent of a node; it heeds how ranks of others end.

    The methods are those that torch documents for subclasses. A torch that calls them otherwise restarts and waits as
    it likes.
    """

    def __init__(self, spec: WorkerSpec, leave: Callable[[int], object], **options: Any) -> None:
        if not spec.rdzv_handler.is_elastic:  # else nobody would end the wait for a node that is lost
            options["exit_barrier_timeout"] = EXIT_BARRIER_S
        super().__init__(spec, **options)
        self._leave = leave

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result = super()._monitor_workers(worker_group)
        if worker_group.spec.rdzv_handler.note(result):
            self._remaining_restarts = 0  # torch has no other way to say so
        return result

    def _stop_workers(self, worker_group: WorkerGroup, *args: Any, **options: Any) -> None:
        # A node that waits has all ranks here ended. One that has failed since the last look would leave no code, and
        # where others have ended well meanwhile there is no other attempt.
        handler = worker_group.spec.rdzv_handler
        if not handler.failures:
            handler.failures = super()._monitor_workers(worker_group).failures
        super()._stop_workers(worker_group, *args, **options)

    def _exit_barrier(self) -> None:
        """Wait for the ranks of all others, and heed a signal meanwhile.

        The wait is a call of a library, in which Python's own handlers of signals are not run.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        before = signal.set_wakeup_fd(writer)

        def obey() -> None:
            if number := os.read(reader, 1):
                self._leave(128 + number[0])

        threading.Thread(target=obey, daemon=True).start()
        try:
            super()._exit_barrier()
        finally:
            signal.set_wakeup_fd(before)
            os.close(writer)
