"""Calls of a Ray cluster's workers by main, for common/live/prove.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def callers(peer: type[Any]) -> list[Callable[..., Any]]:
    """Return a function for each other node that calls a method of *peer* there."""
    ray.init()
    own = ray.get_runtime_context().get_node_id()

    def caller(node: str) -> Callable[..., Any]:
        # An actor: the sockets that it opens stay open between two calls.
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        actor = ray.remote(peer).options(scheduling_strategy=strategy).remote()

        def call(method: str, *arguments: Any) -> Any:
            return ray.get(getattr(actor, method).remote(*arguments))

        return call

    return [caller(node["NodeID"]) for node in ray.nodes() if node["Alive"] and node["NodeID"] != own]
