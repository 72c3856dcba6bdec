"""Lets a nanny wait for a scheduler that is slow to begin: a nanny's preload.

Dask gives that 30 s. Where CPUs or disks are busy, a scheduler's imports take longer, and the worker would be lost.
"""

from __future__ import annotations

from distributed import Nanny


def dask_setup(nanny: Nanny) -> None:
    """Called by ``dask worker --preload-nanny``, before the nanny looks for the scheduler."""
    nanny.rpc.timeout = nanny.death_timeout  # which bounds the whole start
