"""The other nodes of a cluster: what they write, and main, which observes it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oci_cluster.contract.names import config_file, heartbeat_file
from oci_cluster.contract.settings.node import read_settings
from oci_cluster.node.failure_detector import Failure, NodesWatch

UNIX = 1_700_000_000.0


class Cluster:
    """A cluster dir, and main, which observes it."""

    def __init__(self, root: Path, **environ: str) -> None:
        minimum = {"MODE": "MAIN", "FRAMEWORK": "plain", "WORK_DIR": "memory://w", "CLUSTER_ID": "c", "LAUNCH_ID": "l"}
        minimum |= {"ENTRY_POINT": "x", "WORKER_COUNT": "2", "HEARTBEAT_TIMEOUT": "60"}
        self._unusable: dict[str, str] = {}
        settings = read_settings({**minimum, **environ}, root)
        self.watch = NodesWatch(settings, self._unusable, lambda: UNIX)
        self._files: dict[str, tuple[int, Mapping[str, Any] | None]] = {}
        self._versions = itertools.count(1)
        self.reads: list[str] = []
        self._is_silent = False

    def write(self, name: str, **fields: Any) -> None:
        """Have a node write a file."""
        version = next(self._versions)
        self._files[name] = (version, {"counter": version, **fields})

    def write_unusable(self, name: str) -> None:
        """Have somebody write a file that is not whole, or another launch's."""
        self._files[name] = (next(self._versions), None)

    def touch(self, name: str) -> None:
        """Have somebody write once more what is there."""
        self._files[name] = (next(self._versions), self._files[name][1])

    def put_back(self, name: str) -> Callable[[], None]:
        """Return what puts back what is there now."""
        fields = self._files[name][1]
        return lambda: self._files.update({name: (next(self._versions), fields)})

    def answers_no_reads(self, *, is_silent: bool = True) -> None:
        """Have storage answer listings alone."""
        self._is_silent = is_silent

    def remove(self, name: str) -> None:
        """Have a node remove a file."""
        del self._files[name]

    def comes(self, *nodes: str) -> None:
        """Have *nodes* make themselves known, and live."""
        for node in nodes:
            self.write(config_file(node))
        self.beats(*nodes)

    def beats(self, *nodes: str) -> None:
        """Have *nodes* show that they live."""
        for node in nodes:
            self.write(heartbeat_file(node))

    def observe(self, moment: float = 0.0) -> list[str]:
        """Have main observe the others; return the nodes that have joined since the last time."""

        return self.watch.observe(self._listing(), moment, self._read)

    def prove_one(self, moment: float = 0.0) -> None:
        """Have main read one heartbeat."""
        self.watch.prove_one(self._listing(), moment, self._read)

    def _listing(self) -> dict[str, str]:
        return {name: f"version {version}" for name, (version, _) in self._files.items()}

    def _read(self, name: str) -> Mapping[str, Any] | None:
        self.reads.append(name)
        self._unusable.pop(name, None)
        if self._is_silent:
            return None
        fields = self._files[name][1]
        if fields is None:
            self._unusable[name] = "not signed"
        return fields

    def failure(self, node: str = "WORKER_1") -> Failure:
        """Return what main knows of *node*'s failure."""
        return self.watch.failures[node]
