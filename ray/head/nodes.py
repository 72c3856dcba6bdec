"""Watches nodes in Ray's table: missing ones first, remaining ones in the end.

    python nodes.py ADDRESS     beside the head, until TERM

Until every worker node is there it keeps NODE_DIR/missing-workers, a name in each line. With TERM it has all workers
leave, and ends when they have, or after a part of GRACE_PERIOD.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from ray._raylet import GcsClient
from ray.core.generated.autoscaler_pb2 import DrainNodeReason
from ray.exceptions import RayError

_ALIVE = 0  # GcsNodeInfo.GcsNodeState.ALIVE
_REQUEST_S = 5
# Of GRACE_PERIOD: the entry point and the head need some of it, too.
_SHARE = 0.3


def alive(client: Any) -> dict[str, str]:
    """Return the ids of the nodes that live, by name."""
    found = client.get_all_node_info(timeout=_REQUEST_S)
    return {node.node_name: node_id.hex() for node_id, node in found.items() if node.state == _ALIVE}


def watch(client: Any, expected: list[str], path: Path) -> None:
    """Write which of the *expected* workers are missing, until none is."""
    said: list[str] | None = None
    while said != []:
        nodes = alive(client)
        missing = [name for name in expected if name not in nodes]
        # Main's own node is what the entry point connects to.
        if "MAIN" in nodes and missing != said:
            new = path.with_suffix(".new")
            new.write_text("".join(f"{name}\n" for name in missing))
            new.replace(path)
            said = missing
        time.sleep(0.05)


def end_workers(client: Any, limit_s: float) -> None:
    """Have all workers leave: each ends when it has no work, or after *limit_s*."""
    deadline = time.monotonic() + limit_s
    told: set[str] = set()
    while time.monotonic() < deadline:
        workers = {node_id for name, node_id in alive(client).items() if name != "MAIN"}
        if not workers:
            return
        for node_id in workers - told:
            until_ms = int((time.time() + limit_s) * 1000)
            reason = DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION  # the one that a node cannot refuse
            client.drain_node(node_id, reason, "the cluster ends", until_ms, timeout=limit_s)
        told |= workers
        time.sleep(0.02)


def main() -> None:
    client = GcsClient(address=sys.argv[1])
    workers = [f"WORKER_{rank}" for rank in range(1, int(os.environ["WORKER_COUNT"]) + 1)]

    class Told(Exception):  # noqa: N818 - no error
        pass

    def tell(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Told

    try:
        signal.signal(signal.SIGTERM, tell)
        watch(client, workers, Path(os.environ["NODE_DIR"], "missing-workers"))
        while True:
            signal.pause()
    except Told:
        with contextlib.suppress(RayError):  # the head is gone: so are its workers, soon
            end_workers(client, float(os.environ.get("GRACE_PERIOD", "10")) * _SHARE)


if __name__ == "__main__":
    main()
