"""Finds out that nothing on this node prints or computes, and where its Python waits.

Every Python of the entry point leaves a file ``stack-<pid>`` in the node's directory, and writes there where its
threads are when it gets ``SIGNAL`` (``common/entry/sitecustomize.py``). No other process gets the signal: it would end
one that does not expect it. Processes are looked at in Linux's ``/proc``; on other systems nothing stands still.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from oci_cluster.contract.names import heartbeat_file
from oci_cluster.node.logs.last_error import own_place
from oci_cluster.system.text import printable

# A real-time signal that no library is known to use. `common/entry/sitecustomize.py` has the same.
SIGNAL = 59
# Between two looks at the processes, and so many in the time that is waited: each costs some reads of /proc.
_LOOK_S, _LOOKS = 10.0, 6
# Shares of a CPU. The main thread of a script that waits takes less; a slow download in it takes more. Whole processes
# take more while they wait: frameworks' threads look for work every millisecond, and their services beat (1 to 5 %).
_BUSY_THREAD, _BUSY_PROCESS = 0.005, 0.1
# Of a stack of a hundred frames and some dozens of threads.
_MOST_BYTES = 1 << 18
# Of a node's Pythons, in each heartbeat, and of all nodes' in main's line.
_MOST_TOLD, _MOST_SHOWN = 64, 8
# How many nodes main asks: each is a request.
_MOST_ASKED = 64
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x.*$", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<file>.+)", line (?P<line>[0-9]+) in (?P<name>.+)$', re.MULTILINE)
# Between a call and what is called: names that say nothing.
_WRAPPERS = {
    *("wrapper", "wrapped", "inner", "_fn", "<lambda>", "auto_init_wrapper"),
    *("decorate_context", "_call_impl", "_wrapped_call_impl"),
}
_MOST_LINE = 60


class _Usage(NamedTuple):
    """Seconds of CPU: of a process with its ended children, and its main thread."""

    process: float
    thread: float


class Standstill:
    """The standstill of this node, if there is one."""

    def __init__(
        self,
        timeout_s: float,
        node_dir: Path,
        places: Sequence[Path],
        *,
        printed_at: Callable[[], float],
        clock: Callable[[], float],
        proc: Path = Path("/proc"),
    ) -> None:
        self._timeout_s, self._node_dir, self._places = timeout_s, node_dir, places
        self._look_s = min(_LOOK_S, timeout_s / _LOOKS)
        self._printed_at, self._clock, self._proc = printed_at, clock, proc
        self._busy_at = self._looked_at = clock()
        self._usages: dict[int, _Usage] = {}
        self._in_entry: set[int] = set()
        # Sizes of the files when they were asked for more; None: they were not.
        self._sizes: dict[Path, int] | None = None
        self._told: dict[str, Any] = {}

    def told(self) -> Mapping[str, Any]:
        """Return what a heartbeat tells: seconds of standstill, and where Python waits."""
        now = self._clock()
        if now - self._looked_at >= self._look_s:
            self._look(now)
        still_s = now - max(self._busy_at, self._printed_at())
        if still_s < self._timeout_s:
            self._sizes, self._told = None, {}
        elif self._sizes is None:
            self._look(now, is_for_all=True)  # what has begun since the last one may compute
            if self._busy_at < now:
                self._sizes = self._ask()  # they have until the next heartbeat
        else:
            self._told = {
                "still_s": int(still_s),
                "waits": self._told.get("waits") or [*islice(self._answers(), _MOST_TOLD)],
            }
        return self._told

    def _look(self, now: float, *, is_for_all: bool = False) -> None:
        """Note whether anything computed since the last look; *is_for_all*: new processes, too."""
        span_s = now - (self._busy_at if is_for_all else self._looked_at)
        before, none = self._usages, _Usage(0.0, 0.0)
        pids = self._find() if is_for_all or not before else list(before)
        usages = {pid: usage for pid in pids if (usage := self._usage(pid)) is not None}
        has_printed = self._printed_at() > self._looked_at
        if (
            has_printed
            or not before
            or any(self._is_busy(pid, usage, before.get(pid, none), span_s) for pid, usage in usages.items())
        ):
            self._busy_at = now
        self._usages, self._looked_at = usages, now

    def _is_busy(self, pid: int, usage: _Usage, before: _Usage, span_s: float) -> bool:
        share = (usage.process - before.process) / max(span_s, 1.0)
        share_of_thread = (usage.thread - before.thread) / max(span_s, 1.0)
        return share > _BUSY_PROCESS or (pid in self._in_entry and share_of_thread > _BUSY_THREAD)

    def _find(self) -> list[int]:
        """Return all descendants of this process, and note the entry point's."""
        marked = {int(path.name.rpartition("-")[2]) for path in self._marks()}
        found, self._in_entry = [], set()
        new = [(pid, False) for pid in self._children(os.getpid())]
        while new:
            pid, is_in_entry = new.pop()
            found.append(pid)
            if is_in_entry := is_in_entry or pid in marked:
                self._in_entry.add(pid)
            new += [(child, is_in_entry) for child in self._children(pid)]
        return found

    def _children(self, pid: int) -> Iterator[int]:
        with contextlib.suppress(OSError):  # it has ended; or a kernel that does not list them
            for task in os.listdir(self._proc / str(pid) / "task"):  # noqa: PTH208 - names alone
                yield from map(int, (self._proc / str(pid) / "task" / task / "children").read_text().split())

    def _usage(self, pid: int) -> _Usage | None:
        try:
            process = self._seconds(self._proc / str(pid) / "stat", 4)
            return _Usage(process, self._seconds(self._proc / str(pid) / "task" / str(pid) / "stat", 2))
        except (OSError, ValueError, IndexError):  # it has ended
            return None

    def _seconds(self, stat: Path, times: int) -> float:
        # utime, stime, cutime, cstime; before them the name, which may hold blanks and brackets.
        fields = stat.read_text(errors="replace").rpartition(")")[2].split()[11 : 11 + times]
        return sum(map(int, fields)) / os.sysconf("SC_CLK_TCK")

    def _marks(self) -> list[Path]:
        return [path for path in self._node_dir.glob("stack-*") if path.name[6:].isdecimal()]

    def _ask(self) -> dict[Path, int]:
        """Have each Python of the entry point write its stack; return files' sizes."""
        sizes = {}
        for path in sorted(self._marks(), key=lambda path: int(path.name[6:])):
            pid = int(path.name[6:])
            with contextlib.suppress(OSError, ValueError):  # it has ended
                size = path.stat().st_size
                if pid in self._in_entry and self._is_caught(pid):
                    os.kill(pid, SIGNAL)
                    sizes[path] = size
        return sizes

    def _is_caught(self, pid: int) -> bool:
        """Return whether the process handles the signal: another program would not."""
        status = (self._proc / str(pid) / "status").read_text(errors="replace")
        caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
        return caught is not None and bool(int(caught[1], 16) >> (SIGNAL - 1) & 1)

    def _answers(self) -> Iterator[str]:
        """Yield what each that was asked waits in: ``rank 0 waits in init_process_group (train.py:10)``."""
        for path, size in (self._sizes or {}).items():
            try:
                if not path.is_file():  # the script may do there what it likes: a pipe would be waited for
                    continue
                with path.open("rb") as file:
                    rank = printable(file.readline(200).decode(errors="replace").strip(), 20)
                    file.seek(size)
                    stack = file.read(_MOST_BYTES).decode(errors="replace")
            except OSError:
                continue
            if waits := waits_in(stack, self._places):
                yield f"rank {rank} {waits}" if rank.isdecimal() else waits


def waits_in(stack: str, places: Sequence[Path]) -> str:
    """Return where the main thread of a faulthandler *stack* waits; empty where unknown.

    What the user's own code has called stands first, and then the line that has; *places* are the folders with it.
    """
    main = _THREAD.split(stack)[-1]  # of the threads, it is the last
    frames = [(match["file"], match["line"], match["name"]) for match in _FRAME.finditer(main)]
    if not frames:
        return ""
    called = ""
    for file, line, name in frames:  # from the innermost one
        if place := own_place(file, line, places):
            what = called or _source(file, line) or name
            return f"waits in {printable(what, _MOST_LINE)} ({printable(place, 80)})"
        called = called if name in _WRAPPERS and called else name
    file, line, name = frames[0]
    return f"waits in {printable(name, _MOST_LINE)} ({printable(Path(file).name, 80)}:{line})"


def _source(file: str, line: str) -> str:
    """Return a line of a user's *file*, if it is a regular one."""
    with contextlib.suppress(OSError, ValueError):
        if Path(file).is_file():
            with Path(file).open("rb") as source:
                text = next(islice(source.readlines(_MOST_BYTES), int(line) - 1, None), b"")
                return text.decode(errors="replace").strip()
    return ""


def ask_all(own: Mapping[str, Any], members: Sequence[str], read: Callable[[str], Mapping[str, Any] | None]) -> str:
    """Return what main says of a standstill on all nodes; empty without one."""
    if len(members) > _MOST_ASKED:
        return ""
    told = {"MAIN": own, **{node: read(heartbeat_file(node)) or {} for node in members}}
    still_s = [seconds for beat in told.values() if type(seconds := beat.get("still_s")) is int]
    if len(still_s) < len(told):
        return ""
    shown, before = [], ""
    for node, beat in told.items():
        waits = beat.get("waits")
        for line in waits if isinstance(waits, list) else []:
            rank, _, what = printable(line, 200).partition("waits in ")
            shown.append(f"{node} {rank}the same" if what == before else f"{node} {rank}waits in {what}")
            before = what
    more = f", and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
    where = f": {', '.join(shown[:_MOST_SHOWN])}{more}" if shown else ""
    return f"nothing printed and nothing computed for {min(still_s)} s{where}; --ttl limits this"
