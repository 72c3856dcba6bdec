"""Processes of a benchmark, none of which may stay, and the clock that all of them share."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# For as many nodes as any benchmark has.
ADDRESSES = [f"127.0.0.{number}" for number in range(1, 5)]
# In the environment of all that is started here, so that nothing of it stays.
MARK = "OCI_CLUSTER_BENCH"
# Far above what was ever seen (15 s); what takes longer hangs.
LIMIT_S = 60.0


class MeasureError(Exception):
    """Something could not be measured."""


def now() -> float:
    """Return seconds since boot, the clock that the kernel notes a process's start by."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass
class Scratch:
    """Where a run of the benchmark keeps its files, and the mark that its processes bear."""

    directory: Path
    mark: str = field(default_factory=lambda: secrets.token_hex(8))

    def environ(self, **more: str) -> dict[str, str]:
        """Return the environment for a process: the user's, less what would make one side slower than it is."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DASK_")}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)  # a checkout that was just edited would be compiled at every start
        return {**kept, MARK: self.mark, **more}

    def processes(self) -> list[int]:
        """Return the processes that bear the mark; one that has ended and waits to be reaped does not count."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if wanted in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    def end_all(self) -> int:
        """Kill what still bears the mark; return how many processes that were."""
        killed: set[int] = set()
        while left := self.processes():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            killed.update(left)
            time.sleep(0.02)
        return len(killed)


@contextlib.contextmanager
def started(command: Sequence[str | Path], environ: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start *command* out of reach of this terminal's Ctrl-C; if it runs at the end, TERM, and KILL after 20 s."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            env=dict(environ),
            cwd=log.parent,  # never the checkout: its folder dask/ would pass for the package
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def finish(process: subprocess.Popen[bytes], what: str, log: Path) -> None:
    """Wait until *process* has ended well; else raise with its last words."""
    try:
        code = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        code = None
    if code != 0:
        how = f"did not end within {LIMIT_S:g} s" if code is None else f"ended with {code}"
        msg = f"{what} {how}:\n{tail(log)}"
        raise MeasureError(msg)


def tail(log: Path) -> str:
    """Return the last lines of *log*."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def wait_for(look: Callable[[], bool], what: str, step_s: float = 0.005) -> float:
    """Return the moment at which *look* succeeded."""
    deadline = now() + LIMIT_S
    while not look():
        if now() > deadline:
            msg = f"no {what} within {LIMIT_S:g} s"
            raise MeasureError(msg)
        time.sleep(step_s)
    return now()


def free_port(address: str) -> int:
    """Return a port that nobody has on *address*, now."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def listens(address: str, port: int) -> bool:
    """Return whether somebody takes connections there."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0


def children(pid: int) -> list[int]:
    """Return the children of process *pid*."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def busy_share(seconds: float = 0.3) -> float:
    """Return the part of this machine's CPU time that is used while nothing of the benchmark runs, 0 to 1."""

    def look() -> tuple[int, int]:
        times = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(times), times[3] + times[4]  # idle, and waiting for a disk

    total, idle = look()
    time.sleep(seconds)
    total_after, idle_after = look()
    return 1 - (idle_after - idle) / max(1, total_after - total)


def say(text: str) -> None:
    """Show a line of progress, on stderr."""
    sys.stderr.write(f"{Path(sys.argv[0]).name}: {text}\n")
    sys.stderr.flush()
