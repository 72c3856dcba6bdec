"""One rank: a process group of its own, which ends, whole, when it is no longer wanted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import signal
import sys
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

RANK_SH = Path(__file__).resolve().parent.parent / "rank.sh"
# What a rank may be told: who it is, and where it finds the others. Its node's own environment says all else.
_VARIABLE = re.compile(r"HOROVOD_[A-Z_]{1,40}")
_VALUE = re.compile(r"[A-Za-z0-9_.:,-]{0,256}")
# What is kept of a rank's errors: several tracebacks, of which the last is asked for.
PRINTED_BYTES = 16 << 10
# After a rank's end, its errors are in a pipe of this machine, unless something that has left its group holds that.
_LAST_ERRORS_S = 1.0


def checked_environ(fields: Any) -> dict[str, str]:
    """Return *fields*, if they are what a rank may be told; else a ValueError."""
    if not isinstance(fields, dict):
        msg = "a rank is told its variables as an object"
        raise ValueError(msg)
    for name, value in fields.items():
        if not (_VARIABLE.fullmatch(name) and isinstance(value, str) and _VALUE.fullmatch(value)):
            msg = f"a rank is not told {name[:50]!r}"
            raise ValueError(msg)
    return fields


class Errors:
    """What a rank prints to stderr: passed on to this process's own, and its end kept.

    In a thread: a log that takes no more must hold up the rank, as it does without this, and nothing else.
    """

    def __init__(self) -> None:
        self._source, self.output = os.pipe()
        self._kept = bytearray()
        self._thread = threading.Thread(target=self._pass_on, daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        # A pipe takes so much in one piece: lines of others do not come between.
        while data := os.read(self._source, select.PIPE_BUF):
            self._kept += data
            del self._kept[:-PRINTED_BYTES]
            with contextlib.suppress(OSError):  # nobody reads this node's log: the rank goes on without
                os.write(sys.stderr.fileno(), data)
        os.close(self._source)

    async def end(self) -> bytes:
        """Return what was printed last; in it, the user's files have the names that they have in ``CODE_DIR``."""
        await asyncio.to_thread(self._thread.join, _LAST_ERRORS_S)
        # That is another folder on every node.
        return bytes(self._kept).replace(f'"{os.environ["CODE_DIR"]}/'.encode(), b'"')


async def run_rank(environ: Mapping[str, str], unwanted: asyncio.Event, *, grace_s: float) -> tuple[int, bytes]:
    """Run a rank to its end, or until it is *unwanted*: TERM, KILL after *grace_s*.

    Returns its exit code, 128 + the signal that ended it, and the end of what it printed to stderr.
    """
    errors = Errors()
    try:
        process = await asyncio.create_subprocess_exec(
            str(RANK_SH),
            env={**os.environ, **environ},
            stdin=asyncio.subprocess.DEVNULL,
            stderr=errors.output,
            start_new_session=True,
        )
    finally:
        os.close(errors.output)
    await until_first(process.wait(), unwanted.wait())
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGTERM)
        await until_first(process.wait(), asyncio.sleep(grace_s))
    # What the rank has started itself, such as data loaders, goes with it.
    _signal_group(process.pid, signal.SIGKILL)
    code = await process.wait()
    return code if code >= 0 else 128 - code, await errors.end()


async def until_first(*events: Coroutine[Any, Any, Any]) -> None:
    """Return as soon as one of *events* has come, and wait for the others no more."""
    tasks = [asyncio.ensure_future(event) for event in events]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _signal_group(pid: int, number: int) -> None:
    # Nobody left; macOS says EPERM where only zombies are.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
