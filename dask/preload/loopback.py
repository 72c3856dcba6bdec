"""Has the scheduler of a network of its own listen on loopback, too: a preload.

A port of a pod is forwarded to its loopback, and to nothing else.
"""

from __future__ import annotations

from distributed import Scheduler
from distributed.comm import parse_address
from distributed.comm.addressing import get_address_host_port

LOOPBACK = "127.0.0.1"


async def dask_setup(scheduler: Scheduler) -> None:
    """Called by ``dask scheduler --preload``, when it listens on the node's address."""
    scheme, _ = parse_address(scheduler.address)
    _, port = get_address_host_port(scheduler.address)
    # As its own first address: Dask listens on each that it is given in this way.
    await scheduler.listen(
        f"{scheme}://{LOOPBACK}:{port}",
        allow_offload=False,
        handshake_overrides={"pickle-protocol": 4, "compression": None},
        **scheduler.security.get_listen_args("scheduler"),
    )
    scheduler.http_server.listen(scheduler.http_server.port, address=LOOPBACK)
