"""A cluster that launch.sh starts for a benchmark, and what all benchmarks of local clusters are told."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import ADDRESSES, LIMIT_S, ROOT, MeasureError, Scratch, finish, free_port, now, started, wait_for

# For entry points: the moments at which the agents of their launch were started, none where there is no launch.
AGENT_STARTS = """\
def agent_starts():
    import os
    from pathlib import Path
    mark = f"CLUSTER_RUNNER={os.environ.get('LAUNCH_ID')}".encode()
    starts = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().startswith(("MAIN", "WORKER_")):  # agents are copies of the runner
                if mark in (process / "environ").read_bytes().split(b"\\0"):
                    ticks = int((process / "stat").read_text().rpartition(")")[2].split()[19])
                    starts.append(ticks / os.sysconf("SC_CLK_TCK"))
        except OSError:
            pass
    return starts
"""


@dataclass(frozen=True)
class Launched:
    """The moments of a cluster's life, and what its entry point has written down."""

    typed: float
    agents: float
    """When the first of the cluster's agents was started."""
    gone: float
    """When launch.sh had returned, and no process was left."""
    seen: dict[str, Any]


def launch(
    scratch: Scratch, framework: str, workers: int, text: str, *, ports: Sequence[str], arguments: Sequence[str] = ()
) -> Launched:
    """Launch a cluster for the entry point *text*, to its end; the settings *ports* are ports that nobody has.

    The entry point's first argument is the file for what it sees; the moments of its agents are to be in there.
    """
    name = f"bench-{secrets.token_hex(3)}"
    folder = Path(tempfile.mkdtemp(dir=scratch.directory))
    entry, result, log = folder / "entry.py", folder / "result.json", folder / "log"
    entry.write_text(text)
    options: list[str | Path] = ["--name", name, "--entry", entry]
    for setting in ports:
        options += ["--env", f"{setting}={free_port(ADDRESSES[0])}"]
    command = [ROOT / "scripts" / "launch.sh", framework, str(workers), *options, "--", result, *arguments]
    environ = scratch.environ(BACKEND="local")
    typed = now()
    try:
        with started(command, environ, log) as process:
            finish(process, "launch.sh", log)
            gone = wait_for(lambda: not scratch.processes(), "end of the cluster's processes")
            seen = json.loads(result.read_text())
    finally:
        # In order while it runs, as after a Ctrl-C; a cluster that has ended only loses its files here.
        with started([ROOT / "scripts" / "stop.sh", "--delete", name], environ, log) as process:
            process.wait(LIMIT_S)
    if len(seen["agents"]) != workers + 1:
        msg = f"expected {workers + 1} agents of {name}, found {len(seen['agents'])}"
        raise MeasureError(msg)
    return Launched(typed, min(seen["agents"]), gone, seen)


def read_arguments(description: str, rounds: int) -> argparse.Namespace:
    """Return what the benchmark is asked for; from now on TERM ends it as Ctrl-C does, with nothing left running."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"rounds that count (default: {rounds})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples there, too")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds must be 1 or more, got {args.rounds}")
    if sys.platform != "linux":
        parser.exit(1, f"{parser.prog}: this reads /proc; it needs Linux\n")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return args


def prepare(framework: str) -> None:
    """Make the environments unless they are there."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "common"), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "oci_cluster", "prepare", framework]
    if subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=False).returncode:
        msg = f"the environment of {framework} could not be made; see above"
        raise MeasureError(msg)
