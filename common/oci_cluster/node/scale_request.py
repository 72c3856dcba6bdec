"""Publishes the number of workers that main's start script asks for.

The agent starts none itself: it has no permission to, and who follows the cluster bounds what it costs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oci_cluster.contract.names import SCALE_REQUEST, is_worker
from oci_cluster.contract.parsers import parse_count
from oci_cluster.contract.settings.node import NodeSettings
from oci_cluster.node.loop import NoAnswer, NodeLoop
from oci_cluster.system.text import printable

log = logging.getLogger("agent")

# Between two requests that are passed on, at least: each is a request, and where there is no storage a line of the log.
_BETWEEN_S = 1.0
# How many idle workers a request names at most: with more, it would not fit into a line (termination_message.py). The
# others are named when these have left.
_MOST_IDLE = 100
# How long workers may be missing until somebody is told: a host takes a minute or two, where there is one.
_PATIENCE_S = 180.0


class ScaleRequest:
    """The number of workers that the start script on main asks for."""

    def __init__(self, settings: NodeSettings, bounds: tuple[int, int], loop: NodeLoop, path: Path) -> None:
        """Read it from *path*, which the script replaces whole; *bounds* are those of ``ADAPT``."""
        self._settings = settings
        self._bounds = bounds
        self._loop = loop
        self._path = path
        self._told: dict[str, Any] = {}
        self._seen: tuple[int, int] | None = None
        self._wanted: dict[str, Any] = {}
        self._next_at = 0.0
        # Since when as many workers as now have been there, and as many have been asked for.
        self._since: tuple[tuple[int, int], float] = ((0, 0), 0.0)
        self._has_warned = False

    def forget(self) -> None:
        """Forget earlier requests: the start script begins anew."""
        self._told, self._seen, self._wanted = {}, None, {}

    def look(self, members: Sequence[str]) -> Mapping[str, Any] | None:
        """Publish a request that has changed, and return it; *members* are present or expected."""
        self._read()
        if not self._wanted:
            return None
        self._warn(sum(is_worker(node) for node in members))
        now = self._loop.clock()
        if self._wanted == self._told or now < self._next_at:
            return None
        self._next_at = now + max(_BETWEEN_S, self._settings.poll_ceiling_s)
        wanted = self._wanted
        if isinstance(self._loop.ask(lambda: self._loop.cluster_dir.publish(SCALE_REQUEST, **wanted)), NoAnswer):
            return None
        self._told = wanted
        return wanted

    def _read(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return
        if (mark := (status.st_ino, status.st_mtime_ns)) == self._seen:
            return
        self._seen = mark
        text = self._path.read_text(errors="replace")
        try:
            self._wanted = parse_scale_request(text, *self._bounds)
        except ValueError as error:
            log.warning("the scale request of the start script is ignored: %s", error)

    def _warn(self, workers: int) -> None:
        wanted, now = int(self._wanted["workers"]), self._loop.clock()
        if self._since[0] != (wanted, workers):
            self._since = (wanted, workers), now
        if self._has_warned or wanted <= workers:
            return
        why = "nobody who may start nodes follows this cluster: launch it without --detach"
        if self._settings.followed:
            if (lasted_s := now - self._since[1]) < _PATIENCE_S:
                return
            why = f"so it has been for {lasted_s:.0f} s: its launcher says why, if that is there"
        self._has_warned = True
        by_hand = f"scripts/scale.sh {self._settings.cluster_name} +{wanted - workers}"
        log.warning("workers wanted: %d, there: %d; %s; by hand: %s", wanted, workers, why, by_hand)


def parse_scale_request(text: str, minimum: int, maximum: int) -> dict[str, Any]:
    """Return the request in *text*, lines ``workers=3`` and ``idle=WORKER_2``, within the bounds."""
    workers: int | None = None
    idle: list[str] = []
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "workers":
            workers = min(max(parse_count(value), minimum), maximum)
        elif name == "idle" and is_worker(value):
            idle.append(value)
        else:
            raise ValueError(f"line '{printable(line, 80)}' is neither workers=NUMBER nor idle=WORKER_<rank>")
    if workers is None:
        raise ValueError("it has no line workers=NUMBER")
    return {"workers": workers, "idle": idle[:_MOST_IDLE]}
