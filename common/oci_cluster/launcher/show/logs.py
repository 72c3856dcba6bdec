"""The nodes' logs as one, each line after its node's name."""

from __future__ import annotations

import contextlib
import heapq
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO, TypeAlias

from oci_cluster.backends.base import Backend, LogCopy
from oci_cluster.contract.cluster import Cluster, NodeState, any_running
from oci_cluster.contract.files.log_times import LogTimes, times_file
from oci_cluster.contract.storage.retry import poll_delays
from oci_cluster.errors import ClusterError, UsageError
from oci_cluster.system.console import LastingOutput, Say
from oci_cluster.system.process import Interrupts
from oci_cluster.system.text import harmless

# How much is read at once: a log may be larger than this machine's memory.
_BLOCK = 1 << 16
# Between two looks at logs and records of this machine: short enough to feel live, long enough to cost nothing.
_POLL_S = 0.1
# How often lines are looked for that have not come for a while, where a look costs a request: nodes send them as often.
_IDLE_S = 5.0
# A line without an end is shown after so many bytes, so that none is held that fills the memory.
_MAX_BYTES = 1 << 16
# Cyan, green, yellow, magenta, blue; the same node has the same one in every run.
_COLOURS = (36, 32, 33, 35, 34)

Output: TypeAlias = "TextIO | LastingOutput"


@dataclass
class _Log:
    """The log of one node, as far as it has been shown."""

    path: Path
    times: LogTimes
    colour: int
    offset: int = 0
    """Bytes that have been shown."""
    rest: bytes = b""
    """What has been read behind these: a line without its end."""

    def new(self, block: int) -> Iterator[tuple[float, str]]:
        """Yield time and text of each new line, read in blocks of *block* bytes."""
        try:
            with self.path.open("rb") as file:
                begin = self.offset + len(self.rest)
                left = file.seek(0, os.SEEK_END) - begin
                if left <= 0:
                    return
                file.seek(begin)
                self.times.refresh()
                # No further than it is long now: one that grows fast must not keep the others waiting.
                while left > 0 and (piece := file.read(min(left, block))):
                    left -= len(piece)
                    yield from self._lines(piece)
        except FileNotFoundError:
            return

    def _lines(self, piece: bytes) -> Iterator[tuple[float, str]]:
        *ended, self.rest = (self.rest + piece).split(b"\n")
        for line in ended:
            self.offset += len(line) + 1
            yield self.times.of(self.offset), line.decode(errors="replace")
        if len(self.rest) > _MAX_BYTES:
            self.offset += len(self.rest)
            line, self.rest = self.rest, b""
            yield self.times.of(self.offset), line.decode(errors="replace")


class MergedLogs:
    """The logs of all nodes, each line with its node's name before it."""

    def __init__(self, directory: Path, nodes: Sequence[str], out: Output, *, colour: bool = False) -> None:
        """Merge ``<node>.log`` in *directory* for each of *nodes* into *out*."""
        self._directory, self._out, self._colour, self._width = directory, out, colour, 0
        self._logs: dict[str, _Log] = {}
        for node in nodes:
            self.add(node)

    def add(self, node: str) -> None:
        """Merge the log of *node* too, from its beginning, unless it is merged already."""
        if node not in self._logs:
            self._width = max(self._width, len(node))
            times, colour = LogTimes(times_file(self._directory, node)), _COLOURS[len(self._logs) % len(_COLOURS)]
            self._logs[node] = _Log(self._directory / f"{node}.log", times, colour)

    def copy_old(self, tail: Mapping[str, int] | None = None) -> None:
        """Write the whole lines that are there; to be called first, if at all.

        *tail* says where each node's log begins, in bytes.
        """
        for node, offset in (tail or {}).items():
            log = self._logs[node]
            with contextlib.suppress(FileNotFoundError), log.path.open("rb") as file:
                # Lines that came late have moved the others: no line is shown in half.
                file.seek(max(offset - 1, 0))
                log.offset = offset + len(file.readline(_MAX_BYTES)) - 1 if offset else 0
        self.copy_new()

    def copy_new(self) -> None:
        """Write the whole lines since the last call, by time as far as known.

        Lines of different nodes within a tenth of a second, and of nodes whose times are not known, are in the order of
        the nodes.
        """
        # Of all logs together a bounded amount is read at once.
        block = max(_BLOCK // 16, min(_BLOCK, _BLOCK * 64 // max(len(self._logs), 1)))

        def lines(node: str, log: _Log) -> Iterator[tuple[float, str, str]]:
            return ((moment, node, line) for moment, line in log.new(block))

        for _, node, line in heapq.merge(*(lines(*one) for one in self._logs.items()), key=lambda entry: entry[0]):
            self._write(node, line)
        self._out.flush()

    def finish(self) -> None:
        """Write what is left, also lines that were never ended."""
        self.copy_new()
        for node, log in self._logs.items():
            if log.rest:
                self._write(node, log.rest.decode(errors="replace"))
                log.offset, log.rest = log.offset + len(log.rest), b""
        self._out.flush()

    def _write(self, node: str, line: str) -> None:
        prefix = f"{node:<{self._width}} |"
        if self._colour:
            prefix = f"\033[{self._logs[node].colour}m{prefix}\033[0m"
        shown = harmless(line.rstrip("\r").rpartition("\r")[2], colour=self._colour)
        self._out.write(f"{prefix} {shown}\n" if shown else f"{prefix}\n")


def starts_of_tail(whole: LogCopy, nodes: Sequence[str], lines: int) -> dict[str, int]:
    """Return where the last so many *lines* of each node's log begin, in bytes.

    *whole* is a copy of the logs that is not followed: one that is may have come half-way.
    """
    try:
        whole.fetch()
        return {node: _start_of_tail(whole.directory / f"{node}.log", lines) for node in nodes}
    finally:
        whole.close()


def _start_of_tail(path: Path, lines: int) -> int:
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        end = file.seek(0, os.SEEK_END)
        if not lines:
            return end
        # What the last line ends with, if it does, begins no other line.
        left, start = lines, max(0, end - 1)
        while start > 0:
            block = min(start, _BLOCK)
            file.seek(start - block)
            text = file.read(block)
            at = len(text)
            while (at := text.rfind(b"\n", 0, at)) >= 0:
                left -= 1
                if left <= 0:
                    return start - block + at + 1
            start -= block
    return 0


def show_logs(
    logs: MergedLogs,
    is_running: Callable[[], bool],
    signals: Interrupts,
    *,
    copy: LogCopy,
    say: Say,
    poll_s: float = _POLL_S,
    tail: Mapping[str, int] | None = None,
) -> None:
    """Show *logs*, and new lines while *is_running*; Ctrl-C ends this, not the cluster.

    *copy* brings them to where *logs* looks, every *poll_s* seconds; *tail* says where each begins.
    """

    def pause() -> bool:
        logs.copy_new()
        signals.wait(poll_s)
        return signals.received is None

    goes_on = is_running() and signals.received is None
    copy.fetch()
    logs.copy_old(tail)
    while goes_on:
        pause()
        goes_on = is_running() and signals.received is None
        copy.fetch()
    if signals.received is None:
        copy.drain(pause, say)
    logs.finish()


@dataclass(frozen=True)
class Shown:
    """Lines of a cluster's logs that somebody wants to see."""

    node: str = ""
    """Those of one node; empty: of all."""
    lines: int | None = None
    """The last so many of each node; None: all."""
    follow: bool = False
    """New ones, too, as long as the cluster runs."""
    colour: bool = False


def view_logs(
    backend: Backend,
    cluster: Cluster,
    shown: Shown,
    *,
    out: Output,
    signals: Interrupts,
    say: Say,
) -> None:
    """Write the logs of *cluster*, as *shown* says, to *out*; *signals* end this."""

    def states() -> Sequence[NodeState]:
        return backend.states([cluster])[cluster.launch_id]

    nodes = [state.node for state in states()]
    if shown.node and shown.node not in nodes:
        raise UsageError(f"{cluster.name} has no node '{shown.node}'; it has {', '.join(nodes)}")
    nodes = [shown.node] if shown.node else nodes

    def is_running() -> bool:
        now = states() if shown.follow else []
        for state in now if not shown.node else []:  # scale.sh adds some
            merged.add(state.node)
        return any_running(now)

    tail = None
    if shown.lines is not None:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as other:
            tail = starts_of_tail(backend.logs(cluster, Path(other), follow=False), nodes, shown.lines)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:  # a reader may still write its last line
        copy = backend.logs(cluster, Path(scratch), follow=shown.follow)
        merged = MergedLogs(copy.directory, nodes, out, colour=shown.colour)
        try:
            show_logs(merged, is_running, signals, copy=copy, say=say, poll_s=backend.poll_s, tail=tail)
        finally:
            copy.close()


class NoLogs(MergedLogs):
    """Logs of a followed cluster that are shown to nobody."""

    def add(self, node: str) -> None:
        """Merge nothing."""


class Fetches:
    """Brings a copy of logs up to date: less often where nothing comes."""

    def __init__(self, backend: Backend, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._clock = clock
        self._next_at = clock()
        self._delays = self._often()

    def fetch(self, copy: LogCopy) -> None:
        """Bring what nodes have printed, if it is time; the next call repeats failures."""
        if self._clock() < self._next_at:
            return
        before = _size_of(copy.directory)
        with contextlib.suppress(ClusterError):
            copy.fetch()
        if self._backend.is_free_to_ask:
            return
        if _size_of(copy.directory) != before:
            self._delays = self._often()
        self._next_at = self._clock() + next(self._delays)

    def _often(self) -> Iterator[float]:
        return poll_delays(_IDLE_S, first_s=self._backend.poll_s / 2)


def _size_of(directory: Path) -> int:
    size = 0
    for path in directory.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):  # somebody deletes the cluster meanwhile
            size += path.stat().st_size
    return size
