"""Measure how a local PyTorch cluster starts and trains, beside bare torchrun.

Every round measures both once, in turns, with the same environment .venv/envs/pytorch, three nodes each, and the same
script: one all_reduce, then a small network that DistributedDataParallel trains. The table shows medians of the
rounds. Moments are CLOCK_BOOTTIME, as in bench_dask.py. Linux only.

    start       from the start of the first of the cluster's agents, or of the first of three `torchrun` with the c10d
                rendezvous, until rank 0 has the result of its first all_reduce
    end         from the end of the last training step until the last process is gone, launch.sh or torchrun included
    throughput  training steps a second, as rank 0 counts them
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from launching import AGENT_STARTS, launch, prepare, read_arguments
from processes import ADDRESSES, ROOT, MeasureError, Scratch, busy_share, finish, free_port, now, say, started, wait_for

BIN = ROOT / ".venv" / "envs" / "pytorch" / "bin"
WORKERS = 2
STEPS = 300

# The design's numbers.
MAX_MORE_START_S = 0.8
MIN_THROUGHPUT = 0.99

ENTRY = f"""\
{AGENT_STARTS}
import json, sys, time
from pathlib import Path
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
found = dict(first=time.clock_gettime(time.CLOCK_BOOTTIME))
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
    Path(sys.argv[1]).write_text(json.dumps(dict(found, agents=agent_starts())))
dist.destroy_process_group()
"""


def measure_launch(scratch: Scratch) -> dict[str, float]:
    """Launch a cluster of ours."""
    done = launch(scratch, "pytorch", WORKERS, ENTRY, ports=["RENDEZVOUS_PORT"], arguments=[str(STEPS)])
    first, last = done.seen["first"], done.seen["last"]
    return {"start": first - done.agents, "end": done.gone - last, "throughput": done.seen["throughput"]}


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
        gone = wait_for(lambda: not scratch.processes(), "end of torchrun's processes")
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
    print(f"\nstart: {more:+.2f} s, limit {MAX_MORE_START_S:+g} s: {holds[more <= MAX_MORE_START_S]}")
    print(f"throughput: {ratio:.3f} of torchrun's, limit {MIN_THROUGHPUT:g}: {holds[ratio >= MIN_THROUGHPUT]}")


def main() -> int:
    """Measure and print the table; 0 when all could be measured, whatever came out."""
    args = read_arguments("Measure start and training of a local PyTorch cluster.", rounds=5)
    found: dict[str, list[dict[str, float]]] = {"launch": [], "bare": []}
    busy = []
    with tempfile.TemporaryDirectory(prefix="bench-") as directory, contextlib.ExitStack() as stack:
        scratch = Scratch(Path(directory))
        stack.callback(scratch.end_all)
        try:
            prepare("pytorch")
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
