"""Logs of the nodes, from the engine to files of this machine."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from oci_cluster.backends.archive import copy_logs
from oci_cluster.backends.base import LogsInPlace
from oci_cluster.backends.docker.states import Container, state_of
from oci_cluster.contract.cluster import Cluster
from oci_cluster.contract.files.log_times import StampedLog, times_file
from oci_cluster.system.engine import Engine

# A client may take so long to print the rest of an ended node's log; then the next call goes on.
_REST_S = 10.0
_BLOCK = 1 << 20


def start_whole(engine: Engine, container: str, stamped: Path) -> subprocess.Popen[bytes]:
    """Start copying the log of *container* to *stamped*, each line after its time."""
    return engine.start("logs", "--timestamps", container, output=stamped)


def take_apart(stamped: Path, logs: Path, node: str) -> None:
    """Make the log of *node*, and its times, anew of the file *stamped*.

    Whoever is killed meanwhile leaves what was there before: the engine may have nothing more to copy.
    """
    with tempfile.TemporaryDirectory(dir=logs, prefix=f".{node}.") as scratch:
        made = [Path(scratch) / f"{node}.log", times_file(Path(scratch), node)]
        for path in made:
            path.touch()
        log = StampedLog(Path(scratch), node)
        with stamped.open("rb") as file:
            while data := file.read(_BLOCK):
                log.add(data)
        log.flush()
        # Not written over: another launcher's client may be writing there.
        for path in made:
            path.replace(logs / path.name)


class ContainerLogs(LogsInPlace):
    """Logs of a cluster's nodes, copied from the engine as they are printed."""

    def __init__(
        self,
        engine: Engine,
        nodes: Callable[[], Mapping[str, Container]],
        cluster: Cluster,
        directory: Path,
        *,
        follow: bool,
    ) -> None:
        """Copy the logs of *cluster* to *directory*; with *follow* what is printed later, too.

        *nodes* returns their containers by node; where there are none any more, the kept logs are copied.
        """
        super().__init__(directory)
        self._engine, self._nodes, self._cluster, self._follow = engine, nodes, cluster, follow
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        self._stamped: dict[str, Path] = {}
        self._done: set[str] = set()

    def fetch(self) -> None:
        """Have new lines copied, and all, with times, once a node has ended."""
        nodes = self._nodes()
        if not nodes and not self._clients:
            copy_logs(self._cluster, self.directory)
        for node, container in nodes.items():
            id_ = str(container["Id"])
            is_whole = not self._follow or not state_of(node, container).is_running
            client = self._clients.get(id_)
            if client is None or (client.poll() is not None and id_ not in self._done):
                client = self._start(node, id_, is_whole=is_whole)
                self._clients[id_] = client
            if is_whole and id_ not in self._done:
                # It ends by itself at the end of the log.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    if client.wait(_REST_S) == 0:
                        self._done.add(id_)
                if stamped := self._stamped.get(id_):
                    take_apart(stamped, self.directory, node)

    def _start(self, node: str, container: str, *, is_whole: bool) -> subprocess.Popen[bytes]:
        if is_whole:
            self._stamped[container] = self.directory / f"{node}.stamped"
            return start_whole(self._engine, container, self._stamped[container])
        return self._engine.start("logs", "--follow", container, output=self.directory / f"{node}.log")

    def close(self) -> None:
        """End the copying."""
        for client in self._clients.values():
            client.kill()
            client.wait()
        for stamped in self._stamped.values():
            stamped.unlink(missing_ok=True)
