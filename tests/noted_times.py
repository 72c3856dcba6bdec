"""Reads the file in which a node's log has its times."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path


def read_times(path: Path) -> Iterator[tuple[int, int]]:
    """Yield times (Unix milliseconds) and sizes of the log (bytes), both ascending as `LogTimes` takes them."""
    last_ms, last_size = 0, 0
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        if entry := re.fullmatch(rb"([0-9]{1,15}) ([0-9]{1,18})\n", line):
            last_ms, last_size = max(last_ms, int(entry[1])), max(last_size, int(entry[2]))
            yield last_ms, last_size
