"""Files of the runner in the cluster's directory: its records, and requests to it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oci_cluster.contract.cluster import State
from oci_cluster.contract.names import is_node
from oci_cluster.system.files import is_locked, read_kept

FILE = "nodes.json"
REQUEST = "scale.json"
# Launcher, runner and agents share the lock of this file: from before the first node until the last has ended.
LOCK = "runner.lock"
# The runner's own words. The file is there from the time on when nodes begin.
LOG = "logs/runner.log"
# In the runner's environment, and so in that of the agents that it forks: they can be found when all else is lost.
RUNNER_MARK = "CLUSTER_RUNNER"

# A file that is being written is read so often: for a second in all.
_READS = 100
_EMPTY: Mapping[str, Any] = {"runner_pid": None, "nodes": []}
# A record takes 120 bytes; the rest is room for a longer address.
_NODE_BYTES = 256
_OWN_BYTES = 1024


class Records:
    """The runner's record of each node's end, written in place, in blocks taken beforehand.

    A disk that fills up later cannot lose an exit code.
    """

    def __init__(self, directory: Path, nodes: int) -> None:
        """Take room in *directory* for the records of so many *nodes*."""
        self._file = os.open(directory / FILE, os.O_RDWR | os.O_CREAT, 0o600)
        self._size = 0
        self.make_room(nodes, _OWN_BYTES)

    def make_room(self, nodes: int, more: int = 0) -> None:
        """Take room for the records of more *nodes*, and for *more* bytes."""
        size = _NODE_BYTES * nodes + more
        os.pwrite(self._file, b" " * size, self._size)
        self._size += size

    def write(self, record: Mapping[str, Any]) -> None:
        """Replace what is recorded."""
        os.pwrite(self._file, json.dumps(record).encode().ljust(self._size), 0)


def read_records(directory: Path) -> Mapping[str, Any]:
    """Return the runner's records; none where it has not begun, or they are damaged."""
    for _ in range(_READS):
        try:
            found = json.loads(read_kept(directory / FILE))
        except (OSError, RecursionError):  # not there, or another thing in its place
            break
        except ValueError:  # in the middle of being written
            time.sleep(0.01)
            continue
        nodes = found.get("nodes") if isinstance(found, dict) else None
        return {**_EMPTY, **found} if isinstance(nodes, list) and all(map(_is_record, nodes)) else _EMPTY
    return _EMPTY


def _is_record(found: Any) -> bool:
    if not isinstance(found, dict):
        return False
    is_ended = found.get("exit_code") is None or isinstance(found["exit_code"], int)
    is_named = isinstance(found.get("node"), str) and is_node(found["node"])
    return is_named and is_ended and isinstance(found.get("pid"), int) and found.get("state") in list(State)


def read_request(directory: Path) -> Mapping[str, Any]:
    """Return the request to the runner: ``id``, ranks to ``start``, nodes to ``end``.

    Empty where there is none, or somebody has written something else there.
    """
    try:
        found = json.loads(read_kept(directory / REQUEST))
        return {"id": str(found["id"]), "start": [*map(int, found["start"])], "end": [*map(str, found["end"])]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def is_orphaned(record: Mapping[str, Any]) -> bool:
    """Return whether the runner of this *record* is gone: nobody records any more."""
    pid = record["runner_pid"]
    if not isinstance(pid, int) or pid <= 0:
        return False
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # of this process's own a rest stays until it is asked for
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's has that number by now: as if it lived
        pass
    return False


def send_signal(launch_id: str, pid: Any, number: int) -> bool:
    """Send *number* (0: none) to runner or agent *pid*; return whether it lives.

    Another program that has the number by now is neither.
    """
    import psutil  # noqa: PLC0415 - 20 ms that most verbs do not spend

    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        process = psutil.Process(pid)
        if process.environ().get(RUNNER_MARK) != launch_id:
            return False
        process.send_signal(number)
    except psutil.Error:  # it does not live
        return False
    return True


def is_running(directory: Path) -> bool:
    """Return whether runner or agents live; true where nobody can ask."""
    try:
        return is_locked(directory / LOCK)
    except OSError:  # unreadable, or another thing in its place: nobody may take this for "has ended"
        return True
