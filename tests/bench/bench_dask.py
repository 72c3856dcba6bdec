"""Measure how a local Dask cluster starts and ends, beside bare Dask, LocalCluster and SSHCluster: `make bench`.

Every round measures all of them once, in an order that rotates, with the same environment .venv/envs/dask and the
same shape: a scheduler and three workers with nannies. The table shows medians of the rounds.

All moments are CLOCK_BOOTTIME, which every process of a machine shares: what a process writes down itself compares to
what the kernel says of another one's start (/proc/<pid>/stat, in steps of 10 ms). Linux only, therefore.

    launch.sh   from before it is started, and from the start of the first of the cluster's agents; its end until it has
                returned and no process is left that inherited its environment. The entry point writes down its own
                first and last moment.
    bare        `dask scheduler` and three `dask worker`, started at once, until a client in a process that has
                imported Dask before sees three workers; then TERM to the workers, then to the scheduler, until all
                have ended. Limits compare with workers that have --no-dashboard, as ours: those are faster.
    LocalCluster, SSHCluster
                from the call until a client sees three workers; then until close() has returned. SSHCluster goes
                through an sshd of this benchmark's own, on loopback, with keys that are thrown away.
    agent       main and worker of a cluster whose start scripts only sleep, each for its whole life of 3 s. CPU and
                memory are the kernel's (wait4), the start script's included.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dask_inside import DASK
from dask_measures import make_sleeping_project, measure_agents, measure_inside, measure_launch
from dask_report import Samples, describe, rows, show
from launching import prepare, read_arguments
from processes import MeasureError, Scratch, busy_share, say
from ssh_server import ssh_server

# What others may take of the machine for seconds to mean something.
QUIET = 0.1


def measure(rounds: int, scratch: Scratch, stack: contextlib.ExitStack) -> Samples:
    """Measure everything once without counting it, then *rounds* times."""
    samples = Samples()
    project = make_sleeping_project(scratch.directory)
    parts: dict[str, Callable[[], dict[str, float]]] = {
        "launch": lambda: measure_launch(scratch),
        "bare": lambda: measure_inside("bare", scratch, "--no-dashboard"),
        "default": lambda: measure_inside("bare", scratch),
        "local": lambda: measure_inside("local", scratch),
        "agent": lambda: measure_agents(scratch, project),
    }
    try:
        folder = scratch.directory / "ssh"
        folder.mkdir()
        server = stack.enter_context(ssh_server(folder))
        server.measure(scratch)
    except MeasureError as error:
        samples.not_measured["SSHCluster"] = str(error)
        say(f"NOT MEASURED: SSHCluster: {error}")
    else:
        parts["ssh"] = lambda: server.measure(scratch)
    names = list(parts)
    for number in range(rounds + 1):
        order = names[number % len(names) :] + names[: number % len(names)]
        for name in order:
            samples.busy.append(busy_share())
            found = parts[name]()
            if number:
                samples.add(name, found)
            shown = ", ".join(f"{key} {value:.2f}" for key, value in found.items())
            say(f"{f'round {number} of {rounds}' if number else 'not counted'}: {name}: {shown}")
    return samples


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    version = subprocess.run(
        [DASK / "python", "-c", "import importlib.metadata as m; print(m.version('distributed'))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        "cpus": os.cpu_count(),
        "python": sys.version.split()[0],
        "distributed": version.stdout.strip(),
    }


def main() -> int:
    """Measure, print the table; 0 when everything but SSHCluster could be measured, whatever came out."""
    args = read_arguments("Measure start and end of a local Dask cluster beside bare Dask.", rounds=7)
    try:
        prepare("dask")
        report: dict[str, Any] = machine()
        with tempfile.TemporaryDirectory(prefix="bench-") as directory, contextlib.ExitStack() as stack:
            scratch = Scratch(Path(directory))
            stack.callback(scratch.end_all)
            samples = measure(args.rounds, scratch, stack)
    except MeasureError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; nothing of it is left running")
        return 130
    report["busy"] = statistics.mean(samples.busy)
    report["not_measured"] = samples.not_measured
    report["rows"] = [describe(row, samples) for row in rows(samples)]
    print(
        f"distributed {report['distributed']}, Python {report['python']}, {report['cpus']} CPUs, of which others took"
        f" {report['busy']:.0%}; {args.rounds} rounds"
    )
    if report["busy"] > QUIET:
        print("NOT QUIET: seconds say little on a busy machine; ratios still do")
    print()
    show(report)
    if args.json:
        args.json.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
