"""Copies what this node prints to the cluster dir, in the form of ``contract/files/node_logs.py``."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.node_logs import FOLDER, PART_BYTES, sealed

# Between two writes: young nodes are watched.
_YOUNG_S, _YOUNG_INTERVAL_S, _INTERVAL_S = 60.0, 1.0, 5.0
# And where that is longer, so many seconds for each node of the cluster: all together write 100 parts each second while
# they are young, and 40 later, however many they are. At rest they ask 130 times (start.py): less than 200 in all.
_YOUNG_SHARE_S, _SHARE_S = 1 / 100, 1 / 40


class LogShipper:
    """This node's log in a file that the log pump writes: no script waits."""

    def __init__(
        self,
        launch_id: str,
        node: str,
        *,
        nodes: int = 1,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._prefix = f"{FOLDER}/{node}.{int(wall_clock() * 1000)}"
        self._clock = clock
        #: When it may be worth a look whether there is something to ship.
        self.look_at = self._began_at = clock()
        self._young_interval_s = max(_YOUNG_INTERVAL_S, nodes * _YOUNG_SHARE_S)
        self._interval_s = max(_INTERVAL_S, nodes * _SHARE_S)
        self._part = 0
        self._part_start = 0
        self._shipped = 0
        descriptor, name = tempfile.mkstemp(prefix=f"{launch_id}-{node}-", suffix=".log")
        os.close(descriptor)
        self.path = Path(name)

    def is_due(self) -> bool:
        """Return whether there is something to ship, every few seconds at most."""
        now = self._clock()
        if now < self.look_at:
            return False
        is_new = self.path.stat().st_size != self._shipped
        is_young = now - self._began_at < _YOUNG_S
        # To look costs nothing; to write does.
        pause_s = (self._young_interval_s if is_young else self._interval_s) if is_new else _YOUNG_INTERVAL_S
        self.look_at = now + pause_s
        return is_new

    def ship(self, cluster_dir: ClusterDir) -> None:
        """Write what is new to the cluster dir."""
        size = self.path.stat().st_size
        while self._shipped < size:
            end = min(size, self._part_start + PART_BYTES)
            with self.path.open("rb") as file:
                file.seek(self._part_start)
                body = file.read(end - self._part_start)
            name = f"{self._prefix}.{self._part:06}.log"
            cluster_dir.write_bytes(name, sealed(cluster_dir, name, body))
            self._shipped = end
            if end - self._part_start == PART_BYTES:
                self._part += 1
                self._part_start = end

    def close(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)
