"""What a node prints, in the cluster dir too: so that ``logs.sh`` shows it wherever nodes run.

Objects cannot be added to. So a node's log is in parts: the last is written again, whole, when there is more, until it
has ``PART_BYTES``; then the next begins. ``logs/<node>.<when it started>.<part>.log``, in the order of their names.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from oci_cluster.errors import SettingsError
from oci_cluster.exchange import Exchange

FOLDER = "logs"
# Small enough to be written again every few seconds, large enough that a day's log is not thousands of objects.
PART_BYTES = 1 << 20
# Between two writes: young nodes are watched.
_YOUNG_S, _YOUNG_INTERVAL_S, _INTERVAL_S = 60.0, 1.0, 5.0
# How long the copying of the last lines may take: they are in a pipe of this machine.
_LAST_LINES_S = 5.0
_PART = re.compile(r"(?P<node>MAIN|(WORKER|PS)_[1-9][0-9]{0,5})\.[0-9]{10,15}\.[0-9]{6}\.log")


class OwnLog:
    """The log of this node: all that this process and its children print from now on goes to a file as well.

    By `tee`, a process that nothing here can hold up: what a script prints must not wait for storage. It is nobody's
    child, so that the agent, which ends whatever is left of its own, does not end it.
    """

    def __init__(self, launch_id: str, node: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin. To be called before this process adopts orphans."""
        self._prefix = f"{FOLDER}/{node}.{int(time.time() * 1000)}"
        self._clock = clock
        self._began_at = self._ship_at = clock()
        self._part = 0
        self._part_start = 0
        self._shipped = 0
        descriptor, name = tempfile.mkstemp(prefix=f"{launch_id}-{node}-", suffix=".log")
        os.close(descriptor)
        self._path = Path(name)
        self._stdout, self._stderr = os.dup(1), os.dup(2)
        read_end, write_end = os.pipe()
        self._ended, alive = os.pipe()  # readable as soon as nobody holds `alive`: when tee has ended
        _start_tee(read_end, alive, name)
        os.close(read_end)
        os.close(alive)
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(write_end, 1)
        os.dup2(write_end, 2)
        os.close(write_end)

    def is_due(self) -> bool:
        """Return whether there is something to ship, every few seconds at most."""
        now = self._clock()
        if now < self._ship_at or self._path.stat().st_size == self._shipped:
            return False
        self._ship_at = now + (_YOUNG_INTERVAL_S if now - self._began_at < _YOUNG_S else _INTERVAL_S)
        return True

    def ship(self, exchange: Exchange) -> None:
        """Write what is new to the cluster dir."""
        size = self._path.stat().st_size
        while self._shipped < size:
            end = min(size, self._part_start + PART_BYTES)
            with self._path.open("rb") as file:
                file.seek(self._part_start)
                body = file.read(end - self._part_start)
            exchange.write_bytes(f"{self._prefix}.{self._part:06}.log", body)
            self._shipped = end
            if end - self._part_start == PART_BYTES:
                self._part += 1
                self._part_start = end

    def finish(self, exchange: Exchange) -> None:
        """Write the rest. What this process prints from here on is not in the cluster dir."""
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(self._stdout, 1)
        os.dup2(self._stderr, 2)
        select.select([self._ended], [], [], _LAST_LINES_S)
        self.ship(exchange)

    def close(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)


def _start_tee(read_end: int, alive: int, name: str) -> None:
    """Start a tee from *read_end* to the file *name*, which holds *alive*, as the child of a child that has ended."""
    program = shutil.which("tee")
    if program is None:
        msg = "NODE_LOGS=1 needs tee (coreutils) on this node's PATH; add it to the image, or set NODE_LOGS=0"
        raise SettingsError(msg)
    child = os.fork()
    if child == 0:
        try:
            if os.fork() == 0:
                # TERM to the whole group, as some engines send it, must not cost the last lines.
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
                os.dup2(read_end, 0)
                os.set_inheritable(alive, True)
                os.execv(program, ["tee", "-a", "--", name])  # noqa: S606 - no shell is wanted
        finally:
            os._exit(0)
    os.waitpid(child, 0)


class NodeLogs:
    """The logs of a cluster's nodes, copied from the cluster dir to a directory of this machine: ``<node>.log``."""

    def __init__(self, exchange: Exchange, directory: Path) -> None:
        """Copy to *directory*, which holds no logs yet."""
        self._exchange = exchange
        self._directory = directory
        self._copied: dict[str, int] = {}

    def fetch(self) -> list[str]:
        """Copy what is new; return the nodes that have printed something.

        Raises:
            StorageError: storage did not answer; what was copied stays, the next call goes on from there.
        """
        sizes = self._exchange.sizes(FOLDER)
        nodes = []
        for name in sorted(sizes):
            part = _PART.fullmatch(name)
            if part is None:
                continue
            nodes.append(part["node"])
            start = self._copied.get(name, 0)
            if sizes[name] > start:
                body = self._exchange.read_bytes(f"{FOLDER}/{name}", start)
                with (self._directory / f"{part['node']}.log").open("ab") as file:
                    file.write(body)
                self._copied[name] = start + len(body)
        return list(dict.fromkeys(nodes))
