"""Ranks of this node: process groups, which end whole when they are unwanted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any

from oci_cluster.system.process import kill_group

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
