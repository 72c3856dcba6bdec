"""Times of log lines, so that lines of several nodes have an order.

Beside ``<node>.log`` stands ``<node>.times``: a line ``<Unix milliseconds> <bytes of the log>`` for what was written up
to there. Where nodes run elsewhere, each line comes with its time before it, ``2026-01-31T23:59:59.123Z text``, as
container engines print it; :class:`StampedLog` makes these two files of it.
"""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

# Closer than that is a coincidence to people, and 250 nodes that print without a pause cost little.
_STEP_MS = 100
_ENTRY = re.compile(rb"([0-9]{1,15}) ([0-9]{1,18})\n")
# A line's time: ours has milliseconds, docker's nanoseconds, podman's an offset too.
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
# The beginning of a stamp that has not come as a whole.
_BEGUN = re.compile(rb"[0-9TZ:.+-]{0,35} ?")
# Docker has a long line in pieces of so many bytes, each with the line's time before it.
_PIECE = 16 << 10
# A line is held back no longer than this; of a longer one, docker's times stay in it.
_LONGEST = 16 << 20
# The last moment that a stamp can tell: of the year 9999.
_LAST_MS = 253_402_300_799_999


def times_file(logs: Path, node: str) -> Path:
    """Return the file with the times of *node*'s log in the folder *logs*."""
    return logs / f"{node}.times"


class TimesWriter:
    """Keeps the times of one log, twenty in a second at most."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._noted_ms = 0
        # The last entry, if it came too soon after that: it must not get the time of the next one, an hour later.
        self._pending = b""

    def note(self, size: int) -> None:
        """Take note that the log has *size* bytes now."""
        now_ms = int(self._clock() * 1000)
        entry = b"%d %d\n" % (now_ms, size)
        if 0 <= now_ms - self._noted_ms < _STEP_MS:
            self._pending = entry
            return
        self._noted_ms = now_ms
        self._write(self._pending + entry)
        self._pending = b""

    def close(self) -> None:
        """Write what is still to be written."""
        self._write(self._pending)

    def _write(self, entries: bytes) -> None:
        try:
            with self._path.open("ab") as file:
                file.write(entries)
        except OSError:  # full disk: the order is lost, and nothing else
            return


class LogTimes:
    """Times of the lines of one growing log, asked for in their order.

    A clock that was set back, or a file that is damaged, costs the order, not the lines.
    """

    # Bytes of the file that are read at once: the times of a long log are many.
    _BLOCK = 1 << 14

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._rest = b""
        self._entries: deque[tuple[int, int]] = deque()
        self._last = (0, 0)
        self._is_over = False

    def refresh(self) -> None:
        """Note that the log has grown: there may be more times now."""
        self._is_over = False

    def of(self, size: int) -> float:
        """Return when the log had *size* bytes, Unix milliseconds; infinity where unknown."""
        while self._last[1] < size:
            if not self._entries and not self._read_more():
                return math.inf
            ms, end = self._entries.popleft()
            self._last = max(self._last[0], ms), max(self._last[1], end)
        return self._last[0]

    def _read_more(self) -> bool:
        while not self._entries and not self._is_over:
            try:
                with self._path.open("rb") as file:
                    file.seek(self._read)
                    data = file.read(self._BLOCK)
            except FileNotFoundError:
                data = b""
            self._read += len(data)
            self._is_over = not data
            *lines, self._rest = (self._rest + data).split(b"\n")
            found = (_ENTRY.fullmatch(line + b"\n") for line in lines)
            self._entries += [(int(entry[1]), int(entry[2])) for entry in found if entry]
        return bool(self._entries)


def stamp(ms: int) -> bytes:
    """Return what stands before a line that was printed at *ms* (Unix milliseconds)."""
    seconds, rest = divmod(min(max(ms, 0), _LAST_MS), 1000)
    return _second(seconds) + b".%03dZ " % rest


@lru_cache(maxsize=1)
def _second(seconds: int) -> bytes:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)).encode()


class Stamper:
    """Puts the time before each line of a log that comes bit by bit."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        #: True if the last addition is no whole line.
        self.is_open = False

    def add(self, data: bytes) -> bytes:
        """Return what to write for the next *data*, which is not empty."""
        now = stamp(int(self._clock() * 1000))
        was_open, self.is_open = self.is_open, not data.endswith(b"\n")
        stamped = (b"" if was_open else now) + data.replace(b"\n", b"\n" + now)
        return stamped if self.is_open else stamped[: -len(now)]


class StampedLog:
    """Splits a log with a time before each line into ``<node>.log`` and ``<node>.times``.

    A line without a time, whoever has written it, is added as it is; it was printed when the one before it was.
    """

    def __init__(self, logs: Path, node: str) -> None:
        self._log, self._times = logs / f"{node}.log", times_file(logs, node)
        self._rest = b""
        self._is_open = False
        self._ms: int | None = None
        self._stamp = b""
        self._second = (b"", 0)

    def add(self, data: bytes) -> None:
        """Add the lines that *data* ends; the last one waits for its end."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._write([line + b"\n" for line in lines])
        if len(self._rest) > _LONGEST:
            self.flush()

    def flush(self) -> None:
        """Add what has come of a line that has no end."""
        if self._rest and (self._is_open or not _BEGUN.fullmatch(self._rest)):
            line, self._rest = self._rest, b""
            self._write([line])

    def _write(self, lines: Sequence[bytes]) -> None:
        if not lines:
            return
        texts: list[bytes] = []
        # The last size at each moment.
        sizes: dict[int, int] = {}
        with self._log.open("ab") as log:
            size = log.tell()
            for line in lines:
                text = line if self._is_open else self._without_stamp(line)
                self._is_open = not line.endswith(b"\n")
                size += len(text)
                texts.append(text)
                if self._ms is not None:
                    sizes[self._ms] = size
            log.write(b"".join(texts))
        if sizes:
            with self._times.open("ab") as times:
                times.write(b"".join([b"%d %d\n" % entry for entry in sizes.items()]))

    def _without_stamp(self, line: bytes) -> bytes:
        """Return *line* as it was printed; take note of when."""
        if not self._stamp or not line.startswith(self._stamp):
            if (found := _STAMP.match(line)) is None or (ms := self._moment(*found.groups())) is None:
                return line
            self._stamp, self._ms = found[0], ms
        text = line[len(self._stamp) :]
        return text.replace(self._stamp, b"") if len(text) > _PIECE else text

    def _moment(self, second: bytes, fraction: bytes | None, zone: bytes) -> int | None:
        """Return Unix milliseconds; None where there is no such moment."""
        from datetime import datetime  # noqa: PLC0415 - nodes have no use for it

        if self._second[0] != second + zone:  # not for every line
            try:
                moment = datetime.fromisoformat((second + zone.replace(b"Z", b"+00:00")).decode())
            except ValueError:
                return None
            self._second = second + zone, int(moment.timestamp()) * 1000
        return self._second[1] + int((fraction or b"").ljust(3, b"0")[:3])
