"""One rank: a process group of its own, which ends, whole, when it is no longer wanted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

RANK_SH = Path(__file__).resolve().parent.parent / "rank.sh"
# What a rank may be told: who it is, and where it finds the others. Its node's own environment says all else.
_VARIABLE = re.compile(r"HOROVOD_[A-Z_]{1,40}")
_VALUE = re.compile(r"[A-Za-z0-9_.:,-]{0,256}")
# Between TERM and KILL: less than a node's own GRACE_PERIOD of 10.
GRACE_S = 5.0


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


async def run_rank(environ: Mapping[str, str], unwanted: asyncio.Event) -> int:
    """Run a rank to its end, or until it is *unwanted*; return its exit code, 128 + the signal that ended it."""
    process = await asyncio.create_subprocess_exec(
        str(RANK_SH), env={**os.environ, **environ}, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    await until_first(process.wait(), unwanted.wait())
    if process.returncode is None:
        _signal_group(process.pid, signal.SIGTERM)
        await until_first(process.wait(), asyncio.sleep(GRACE_S))
    # What the rank has started itself, such as data loaders, goes with it.
    _signal_group(process.pid, signal.SIGKILL)
    code = await process.wait()
    return code if code >= 0 else 128 - code


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
