"""Measure how a local Ray cluster starts and ends, beside `ray start` by hand.

Every round measures both once, in turns, with the same environment .venv/envs/ray, a head and two workers, one CPU for
each, and the same script. The table shows medians of the rounds. Moments are CLOCK_BOOTTIME, as in bench_dask.py. Linux
only.

    first line  from the start of the first of the cluster's agents, or of `ray start --head`, until the script begins.
                By hand, the workers are started when the head says that it runs, and the script when they do
    connected   until the script has seen all three nodes, and a task on one of them has returned
    end         from the script's last line until the last process is gone; by hand TERM to the workers, then the head

By hand there is the token that launch.sh gives, but no encryption; no two nodes want one port.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import statistics
import sys
import tempfile
from pathlib import Path

from launching import AGENT_STARTS, launch, prepare, read_arguments
from processes import ADDRESSES, ROOT, MeasureError, Scratch, busy_share, finish, free_port, now, say, started, wait_for

BIN = ROOT / ".venv" / "envs" / "ray" / "bin"
WORKERS = 2
# Ray replaces 127.0.0.1 by another address.
HEAD = "127.1.0.1"
PORTS = ("GCS_PORT", "DASHBOARD_PORT", "RAY_CLIENT_PORT")

# The design's number.
MAX_FIRST_LINE = 1.15

ENTRY = f"""\
import time
found = dict(first=time.clock_gettime(time.CLOCK_BOOTTIME))
{AGENT_STARTS}
import json, sys
from pathlib import Path
import ray

ray.init()
while sum(node["Alive"] for node in ray.nodes()) < {WORKERS + 1}:
    time.sleep(0.02)

@ray.remote
def one():
    return 1

ray.get(one.remote())
found["connected"] = time.clock_gettime(time.CLOCK_BOOTTIME)
found["agents"] = agent_starts()
ray.shutdown()
found["last"] = time.clock_gettime(time.CLOCK_BOOTTIME)
Path(sys.argv[1]).write_text(json.dumps(found))
"""


def moments(seen: dict[str, float], began: float, gone: float) -> dict[str, float]:
    """Return what the table shows, in seconds."""
    return {
        "first line": seen["first"] - began,
        "connected": seen["connected"] - began,
        "end": gone - seen["last"],
    }


def measure_launch(scratch: Scratch) -> dict[str, float]:
    """Launch a cluster of ours."""
    done = launch(scratch, "ray", WORKERS, ENTRY, ports=PORTS)
    return moments(done.seen, done.agents, done.gone)


def measure_bare(scratch: Scratch) -> dict[str, float]:
    """Start Ray on three nodes, as one would by hand."""
    folder = Path(tempfile.mkdtemp(dir=scratch.directory))
    entry, result, token = folder / "entry.py", folder / "result.json", folder / "token"
    entry.write_text(ENTRY)
    token.write_text(secrets.token_hex(32))
    ports = {name: free_port(ADDRESSES[0]) for name in PORTS}
    address = f"{HEAD}:{ports['GCS_PORT']}"
    environ = scratch.environ(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(token), RAY_ADDRESS=address)
    ray = [BIN / "ray", "start", "--block", "--disable-usage-stats", "--num-cpus", "1"]
    # Else all nodes of this machine want port 52365, for which a worker tries some seconds.
    ray += ["--dashboard-agent-listen-port", "0"]

    def start(name: str, *options: str) -> contextlib.AbstractContextManager[object]:
        own = ["--node-name", name, "--temp-dir", str(folder / name)]
        return started([*ray, *own, *options], environ, folder / f"{name}.log")

    def runs(name: str) -> bool:
        return "Ray runtime started" in (folder / f"{name}.log").read_text()

    head = ("--head", "--node-ip-address", HEAD, "--port", str(ports["GCS_PORT"]))
    head += ("--dashboard-port", str(ports["DASHBOARD_PORT"]))
    head += ("--ray-client-server-port", str(ports["RAY_CLIENT_PORT"]))
    names = [f"w{number}" for number in range(1, WORKERS + 1)]
    began = now()
    with start("head", *head), contextlib.ExitStack() as workers:
        wait_for(lambda: runs("head"), "head of Ray")
        for name, own in zip(names, ADDRESSES[1:], strict=False):
            workers.enter_context(start(name, "--address", address, "--node-ip-address", own))
        wait_for(lambda: all(map(runs, names)), "workers of Ray")
        log = folder / "log"
        with started([BIN / "python", entry, result], environ, log) as process:
            finish(process, "the script", log)
    gone = wait_for(lambda: not scratch.processes(), "end of Ray's processes")
    return moments(json.loads(result.read_text()), began, gone)


def show(found: dict[str, list[dict[str, float]]]) -> None:
    """Print the table."""
    print(f"{'':<12} {'launch.sh':>10} {'by hand':>10} {'ratio':>7}")
    ratios = {}
    for figure in found["launch"][0]:
        ours, bare = (statistics.median(sample[figure] for sample in found[what]) for what in ("launch", "bare"))
        ratios[figure] = ours / bare
        print(f"{figure:<12} {ours:>8.2f} s {bare:>8.2f} s {ratios[figure]:>7.2f}")
    holds = "holds" if ratios["first line"] <= MAX_FIRST_LINE else "DOES NOT HOLD"
    print(f"\nfirst line: {ratios['first line']:.2f} of that by hand, limit {MAX_FIRST_LINE:g}: {holds}")


def main() -> int:
    """Measure and print the table; 0 when all could be measured, whatever came out."""
    args = read_arguments("Measure start and end of a local Ray cluster beside `ray start`.", rounds=5)
    found: dict[str, list[dict[str, float]]] = {"launch": [], "bare": []}
    busy = []
    # Short: the sockets of Ray have long names of their own.
    with tempfile.TemporaryDirectory(prefix="b-", dir="/tmp") as directory, contextlib.ExitStack() as stack:
        scratch = Scratch(Path(directory))
        stack.callback(scratch.end_all)
        try:
            prepare("ray")
            for number in range(args.rounds + 1):  # the first does not count
                for what, measure in (("launch", measure_launch), ("bare", measure_bare)):
                    busy.append(busy_share())
                    sample = measure(scratch)
                    say(f"{number} of {args.rounds}: {what}: {', '.join(f'{k} {v:.2f}' for k, v in sample.items())}")
                    if number:
                        found[what].append(sample)
        except MeasureError as error:
            say(f"error: {error}")
            return 1
    print(f"{os.cpu_count()} CPUs, of which others took {statistics.mean(busy):.0%}; {args.rounds} rounds\n")
    show(found)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
