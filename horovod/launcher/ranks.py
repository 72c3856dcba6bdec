"""Ranks of this node, which are process groups and end whole; how ranks end, and which failure was first."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oci_cluster.contract.first_cause import PEER_LOST, first_cause
from oci_cluster.errors import ClusterError, ExitCode
from oci_cluster.system.process import describe, kill_group

RANK_SH = Path(__file__).resolve().parent.parent / "rank.sh"
# A rank may be told who it is, and where it finds the others. Its node's own environment says all else.
_VARIABLE = re.compile(r"HOROVOD_[A-Z_]{1,40}=[A-Za-z0-9_.:,-]{0,256}")
# So much of a rank's errors is kept: several tracebacks, of which the last is asked for.
PRINTED_BYTES = 16 << 10
# After a rank's end, its errors are in a pipe of this machine, unless something that has left its group holds that.
_LAST_ERRORS_S = 1.0
_POLL_S = 0.02
STOPPED = 128 + signal.SIGTERM


def told_to_end() -> asyncio.Event:
    """Return an event that TERM and INT set from now on."""
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    return told


async def until_first(*events: Coroutine[Any, Any, Any]) -> None:
    """Return when the first of *events* has come; leave the others."""
    tasks = [asyncio.ensure_future(event) for event in events]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


class Unwanted(set[asyncio.Event]):
    """An event for each running rank, to be set when it is unwanted."""

    is_ending = False
    """Whether no other rank may start."""

    @contextlib.contextmanager
    def holding(self, unwanted: asyncio.Event) -> Iterator[None]:
        self.add(unwanted)
        try:
            yield
        finally:
            self.discard(unwanted)

    async def none_left(self) -> None:
        while self:
            await asyncio.sleep(_POLL_S)

    async def end_all(self) -> None:
        self.is_ending = True
        for unwanted in self:
            unwanted.set()
        await self.none_left()


def checked_environ(fields: Mapping[str, str]) -> dict[str, str]:
    """Return *fields*, if they are what a rank may be told; else a ValueError."""
    for name, value in fields.items():
        if not _VARIABLE.fullmatch(f"{name}={value}"):
            raise ValueError(f"a rank is not told {name[:50]!r}")
    return dict(fields)


def _pass_on(source: int, kept: bytearray) -> None:
    """Pass a rank's stderr on to this process's own, and have its end *kept*.

    In a thread: a log that takes no more must hold up the rank, as it does without this, and nothing else.
    """
    # A pipe takes so much in one piece: lines of others do not come between.
    while data := os.read(source, select.PIPE_BUF):
        kept += data
        del kept[:-PRINTED_BYTES]
        with contextlib.suppress(OSError):  # nobody reads this node's log: the rank goes on without
            os.write(sys.stderr.fileno(), data)
    os.close(source)


async def run_rank(environ: Mapping[str, str], unwanted: asyncio.Event, *, grace_s: float) -> tuple[int, bytes]:
    """Run a rank to its end or until *unwanted*: TERM, KILL after *grace_s*.

    Returns its exit code, 128 + the signal that ended it, and the end of what it printed to stderr.
    """
    source, errors = os.pipe()
    passing = threading.Thread(target=_pass_on, args=(source, printed := bytearray()), daemon=True)
    passing.start()
    try:
        process = await asyncio.create_subprocess_exec(
            str(RANK_SH),
            env={**os.environ, **environ},
            stdin=asyncio.subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
    finally:
        os.close(errors)
    await until_first(process.wait(), unwanted.wait())
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # as kill_group
            os.killpg(process.pid, signal.SIGTERM)
        await until_first(process.wait(), asyncio.sleep(grace_s))
    # Children of the rank, such as data loaders, go with it.
    kill_group(process.pid)
    code = await process.wait()
    await asyncio.to_thread(passing.join, _LAST_ERRORS_S)
    # The user's files have the names that they have in CODE_DIR, which is another folder on every node.
    told = bytes(printed).replace(f'"{os.environ["CODE_DIR"]}/'.encode(), b'"')
    return code if code >= 0 else 128 - code, told


# --- Endings, the first cause, and the reason of a node's end ---------------------------------------------------------

# Horovod says so in a rank that another one has left.
_TELLS_OF_A_PEER = re.compile(rb"HorovodInternalError|Horovod has been shut down")
_said: set[str] = set()


@dataclass(frozen=True)
class Ending:
    rank: int
    node: str
    time: float
    """Monotonic seconds, on main."""
    code: int | None
    """None where the connection to its node broke: nobody knows how it ended."""
    was_told: bool = False
    """Whether it was ended, not ended by itself."""
    printed: bytes = b""
    """The end of what it printed to stderr."""

    @property
    def exit_code(self) -> int:
        return ExitCode.LOST if self.code is None else self.code

    @property
    def is_failure(self) -> bool:
        return self.exit_code != 0 and not self.was_told

    @property
    def is_consequence(self) -> bool | None:
        """True where what it printed says so; False where its node was lost."""
        if self.code is None:
            return False
        return True if self.code in PEER_LOST and _TELLS_OF_A_PEER.search(self.printed) else None

    def __str__(self) -> str:
        if self.code is None:
            return f"{self.node} was lost, with rank {self.rank}"
        return f"rank {self.rank} on {self.node} ended: {describe(self.code)}"


def first_failure(endings: Sequence[Ending]) -> Ending | None:
    """Return the failure that brought on the others; None where there is none.

    A rank that fails tells the others before it ends: they may end sooner. What they print says so.
    """
    failures = [ending for ending in endings if ending.is_failure]
    return first_cause(failures) if failures else None


class RankError(ClusterError):
    """A rank has failed: the agent shows its error, its node, then this text."""

    def __init__(self, cause: Ending, others: Sequence[str] = (), later_s: float = 0) -> None:
        """Name *others* that outlived a cause that has lost a peer by *later_s* seconds.

        Where the cause has failed by itself, these are no hang: they compute, and do not know of it yet.
        """
        text = str(cause)
        if cause.is_consequence and others:
            text += f"; {', '.join(others)} had not ended {later_s:g} s later, which is what a hang looks like"
        super().__init__(text, exit_code=cause.exit_code)
        self.printed = cause.node.encode() + b"\n" + cause.printed


def log(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} horovod: {text}\n")
    sys.stderr.flush()


def log_once(text: str) -> None:
    """Write a new line only: others must not fill the log."""
    if text not in _said and len(_said) < 200:
        _said.add(text)
        log(text)


def report(error: ClusterError) -> None:
    """Tell log and agent why the node ends, as `die` of start-lib.sh does."""
    log(f"error: {error}")
    if node_dir := os.environ.get("NODE_DIR"):
        is_rank = isinstance(error, RankError)
        Path(node_dir, "entry-point-ended" if is_rank else "reason").write_text(f"{error}\n")
        if is_rank:
            Path(node_dir, "entry-point-printed").write_bytes(error.printed)
