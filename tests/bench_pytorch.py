"""Measure how a local PyTorch cluster starts and trains, beside bare torchrun.

Every round measures both once, in turns, with the same environment .venv/envs/pytorch, three nodes each, and the same
script: one all_reduce, then a small network that DistributedDataParallel trains. The table shows medians of the
rounds. Moments are CLOCK_BOOTTIME, as in bench.py. Linux only.

    start       from the start of the first of the cluster's agents, or of the first of three `torchrun` with the c10d
                rendezvous, until rank 0 has the result of its first all_reduce
    end         from the end of the last training step until the last process is gone, launch.sh or torchrun included
    throughput  training steps a second, as rank 0 counts them
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# ruff: noqa: T201 - the table is printed
from bench import ADDRESSES, LIMIT_S, ROOT, MeasureError, Scratch, busy_share, finish, free_port, now, say, started
from bench import wait_for as wait_until

BIN = ROOT / ".venv" / "envs" / "pytorch" / "bin"
WORKERS = 2
STEPS = 300

# The design's numbers.
MOST_MORE_START_S = 0.8
LEAST_THROUGHPUT = 0.99

ENTRY = """\
import json, os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
found = {"first": time.clock_gettime(time.CLOCK_BOOTTIME)}
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
images, digits = torch.randn(256, 64), torch.randint(10, (256,))
steps = int(sys.argv[2])
for step in range(steps + 20):
    if step == 20:
        dist.barrier()
        began = time.monotonic()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), digits).backward()
    optimizer.step()
dist.barrier()
found["throughput"] = steps / (time.monotonic() - began)
found["last"] = time.clock_gettime(time.CLOCK_BOOTTIME)
if dist.get_rank() == 0:
    starts = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"oci_cluster\\0agent\\0" in (process / "cmdline").read_bytes():
                mark = f"LAUNCH_ID={os.environ['LAUNCH_ID']}".encode()
                if mark in (process / "environ").read_bytes().split(b"\\0"):
                    ticks = int((process / "stat").read_text().rpartition(")")[2].split()[19])
                    starts.append(ticks / os.sysconf("SC_CLK_TCK"))
        except (OSError, KeyError):
            pass
    Path(sys.argv[1]).write_text(json.dumps({**found, "agents": starts}))
dist.destroy_process_group()
"""


def measure_launch(scratch: Scratch) -> dict[str, float]:
    """Launch a cluster of ours."""
    name = f"bench-{secrets.token_hex(3)}"
    folder = Path(tempfile.mkdtemp(dir=scratch.directory))
    entry, result, log = folder / "entry.py", folder / "result.json", folder / "log"
    entry.write_text(ENTRY)
    options = ["--name", name, "--entry", entry, "--env", f"RENDEZVOUS_PORT={free_port(ADDRESSES[0])}"]
    environ = scratch.environ(BACKEND="local")
    command = [ROOT / "scripts" / "launch.sh", "pytorch", str(WORKERS), *options, "--", result, str(STEPS)]
    try:
        with started(command, environ, log) as process:
            finish(process, "launch.sh", log)
            gone = wait_until(lambda: not scratch.processes(), "end of the cluster's processes")
        seen = json.loads(result.read_text())
    finally:
        with started([ROOT / "scripts" / "stop.sh", "--delete", name], environ, log) as process:
            process.wait(LIMIT_S)
    if len(seen["agents"]) != WORKERS + 1:
        msg = f"expected {WORKERS + 1} agents, found {len(seen['agents'])}"
        raise MeasureError(msg)
    began = min(seen["agents"])
    return {"start": seen["first"] - began, "end": gone - seen["last"], "throughput": seen["throughput"]}


def measure_bare(scratch: Scratch) -> dict[str, float]:
    """Start torchrun three times, as one would by hand."""
    folder = Path(tempfile.mkdtemp(dir=scratch.directory))
    entry, result, log = folder / "entry.py", folder / "result.json", folder / "log"
    entry.write_text(ENTRY)
    endpoint = f"{ADDRESSES[0]}:{free_port(ADDRESSES[0])}"
    options = [f"--nnodes={WORKERS + 1}", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}"]
    # The threads that launch.sh gives each node. With torch's own choice, all CPUs for every node, three nodes on
    # 2 cores trained at a tenth of the speed, which would say nothing about launch.sh.
    threads = max(1, (os.cpu_count() or 1) // (WORKERS + 1))
    environ = scratch.environ(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS=str(threads))
    began = now()
    with contextlib.ExitStack() as stack:
        nodes = []
        for rank, address in enumerate(ADDRESSES[: WORKERS + 1]):
            own = ["--rdzv-id=bench", f"--local-addr={address}", f"--rdzv-conf=is_host={int(rank == 0)}"]
            command = [BIN / "torchrun", *options, *own, entry, result, str(STEPS)]
            nodes.append(stack.enter_context(started(command, environ, log)))
        for process in nodes:
            finish(process, "torchrun", log)
        gone = wait_until(lambda: not scratch.processes(), "end of torchrun's processes")
    seen = json.loads(result.read_text())
    return {"start": seen["first"] - began, "end": gone - seen["last"], "throughput": seen["throughput"]}


def show(found: dict[str, list[dict[str, float]]]) -> None:
    """Print the table."""
    median = {
        (what, figure): statistics.median(sample[figure] for sample in samples)
        for what, samples in found.items()
        for figure in samples[0]
    }
    print(f"{'':<12} {'launch.sh':>10} {'torchrun':>10}")
    for figure, unit in (("start", "s"), ("end", "s"), ("throughput", "1/s")):
        print(f"{figure:<12} {median['launch', figure]:>10.2f} {median['bare', figure]:>10.2f} {unit}")
    more = median["launch", "start"] - median["bare", "start"]
    ratio = median["launch", "throughput"] / median["bare", "throughput"]
    holds = {True: "holds", False: "DOES NOT HOLD"}
    print(f"\nstart: {more:+.2f} s, limit {MOST_MORE_START_S:+g} s: {holds[more <= MOST_MORE_START_S]}")
    print(f"throughput: {ratio:.3f} of torchrun's, limit {LEAST_THROUGHPUT:g}: {holds[ratio >= LEAST_THROUGHPUT]}")


def main() -> int:
    """Measure and print the table; 0 when all could be measured, whatever came out."""
    parser = argparse.ArgumentParser(description="Measure start and training of a local PyTorch cluster.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default: 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all samples there, too")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds must be 1 or more, got {args.rounds}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # nothing of it is left running then either
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "common"), "PYTHONSAFEPATH": "1"}
    prepare = [sys.executable, "-m", "oci_cluster", "prepare", "pytorch"]
    if subprocess.run(prepare, env=environ, stdout=subprocess.DEVNULL, check=False).returncode:
        say("error: the environment of pytorch could not be made; see above")
        return 1
    found: dict[str, list[dict[str, float]]] = {"launch": [], "bare": []}
    busy = []
    with tempfile.TemporaryDirectory(prefix="bench-") as directory, contextlib.ExitStack() as stack:
        scratch = Scratch(Path(directory))
        stack.callback(scratch.end_all)
        try:
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
