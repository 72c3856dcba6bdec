"""Logs whose lines begin with their time, of engines and Kubernetes: taken apart."""

from __future__ import annotations

import tempfile
from pathlib import Path

from oci_cluster.contract.files.log_times import StampedLog, times_file

_BLOCK = 1 << 20


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
