"""Lets a worker's last heartbeat come back before it closes: a worker's preload.

Dask cuts that off, and then shows a page of error for it, at the end of a run in which nothing was wrong.
"""

from __future__ import annotations

import asyncio
import os

from distributed import Worker

# A share of GRACE_PERIOD, behind it what it is of the usual 10 s; a nanny kills its worker after 5 s. An answer takes
# milliseconds, and of a scheduler that is gone there is none: then there is an error to be shown.
LAST_HEARTBEAT_SHARE = 0.1  # 1 s

_beating: dict[Worker, asyncio.Lock] = {}


def dask_setup(worker: Worker) -> None:
    """Called by ``dask worker --preload``, before the worker makes itself known."""
    callback = worker.periodic_callbacks.get("heartbeat")
    if callback is None:  # a Dask of the user's own that calls it something else
        return
    beat = callback.callback
    lock = _beating[worker] = asyncio.Lock()

    async def beat_alone() -> None:
        async with lock:
            await beat()

    callback.callback = beat_alone


async def dask_teardown(worker: Worker) -> None:
    """Called as the worker closes, while its connections are there."""
    if worker not in _beating:
        return
    worker.periodic_callbacks["heartbeat"].stop()
    patience_s = LAST_HEARTBEAT_SHARE * float(os.environ.get("GRACE_PERIOD") or 10)
    try:
        await asyncio.wait_for(_beating[worker].acquire(), patience_s)
    except asyncio.TimeoutError:
        return
