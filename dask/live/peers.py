"""Calls of a Dask cluster's workers by main, for common/live/prove.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from distributed import Client


def callers(peer: type[Any]) -> list[Callable[..., Any]]:
    """Return a function for each worker that calls a method of *peer* there."""
    client = Client()

    def caller(worker: str) -> Callable[..., Any]:
        def call(method: str, *arguments: Any) -> Any:
            return client.submit(getattr(peer(), method), *arguments, workers=[worker], pure=False).result()

        return call

    return [caller(worker) for worker in client.scheduler_info(n_workers=-1)["workers"]]
