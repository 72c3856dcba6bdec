"""torch's c10d rendezvous as clusters need it; torchrun knows it as ``c10d-ordered``.

- Ranks follow NODE_RANK: rank 0 is on main, after restarts too. torch goes by the text of addresses, in which 10.0.0.10
  comes before 10.0.0.9: rank 0, which keeps the checkpoints, could be on any node, and on another one later.
- Stores listen on the node's own address. torch's listen on all networks, and what it reads from them it unpickles.
- Every attempt has a new store for its ranks. torch 2.13 goes on with the first attempt's, unless it is told not to:
  ranks then find the addresses of their predecessors, and fail or hang in init_process_group.
- Nodes that wait look ten times a second at first. torch looks once, and most of its rendezvous is waiting.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
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
# Nodes leave within some hundredths of a second of each other.
PART_TIMEOUT_S = 1.0


class OrderedRendezvous(RendezvousHandler):
    """A c10d rendezvous in which nodes have the order of their ranks."""

    def __init__(self, handler: RendezvousHandler, store: TCPStore, params: RendezvousParameters) -> None:
        self._handler = handler
        self._store = store
        self._params = params
        self._rank_store: TCPStore | None = None
        self._nodes = 1
        self._is_gone = False
        store.set(f"arrived/{os.environ['NODE_NAME']}", "")

    def get_backend(self) -> str:
        return NAME

    @property
    def use_agent_store(self) -> bool:
        """Ranks are clients of their attempt's store, which the launcher of rank 0 has."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        try:
            with looking_often(self._handler):
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

    def part(self) -> None:
        """Leave after a success, main last: nodes that find their store gone fill the log with warnings."""
        with contextlib.suppress(RuntimeError):
            if not self._params.get_as_bool("is_host"):
                self._store.add("parted", 1)
                return
            deadline = time.monotonic() + PART_TIMEOUT_S
            while self._store.add("parted", 0) < self._nodes - 1 and time.monotonic() < deadline:
                time.sleep(0.01)

    def _missing(self) -> str:
        """Return what a rendezvous lacked that was not complete in time."""
        workers = int(os.environ["WORKER_COUNT"])
        nodes = ["MAIN", *(f"WORKER_{rank}" for rank in range(1, workers + 1))]
        missing = [node for node in nodes if not self._store.check([f"arrived/{node}"])]
        waited = f"waited {self._params.get('join_timeout')} s (TIMEOUT) for {self._params.min_nodes} nodes"
        return f"{waited}; never seen: {', '.join(missing) or 'none'}"


@contextlib.contextmanager
def looking_often(handler: RendezvousHandler) -> Iterator[None]:
    """Have *handler* look every LOOK_S for a while. A torch that does not have these names is only slower."""
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
    """Have *owner* hold another *value* for a while."""
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def serve(listener: socket.socket) -> TCPStore:
    """Return a store that takes connections on *listener*."""
    host, port = listener.getsockname()[:2]
    return TCPStore(
        host,
        port,
        is_master=True,
        timeout=timedelta(seconds=STORE_TIMEOUT_S),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),
    )


def register(listener: socket.socket | None) -> Callable[[], None]:
    """Make the rendezvous known to torchrun; return what is to be called after a success.

    The store of its host, main, takes connections on *listener*.
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
        backend = C10dRendezvousBackend(store, params.run_id)
        made.append(OrderedRendezvous(dynamic_rendezvous.create_handler(store, backend, params), store, params))
        return made[-1]

    def part() -> None:
        for handler in made:
            handler.part()

    rendezvous_handler_registry.register(NAME, create)
    return part
