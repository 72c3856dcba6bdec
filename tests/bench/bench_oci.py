"""Measure how fast runs are submitted to Data Science, beside one SDK process with the same requests: `make bench`.

Every round measures both once, in turns, against the stand-in of tests/oci_service, whose runs are accepted and never
begin. Linux only.

    launch.sh   `launch.sh plain 100 --detach`, from its start until it has printed the cluster's name and returned.
                Memory is the most that any of its processes had, by the kernel.
    SDK         a process that imports the SDK, creates a Job and 101 Job Runs, with as many threads.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from oci_service.handle import Service  # noqa: E402 - after sys.path is in order

WORKERS = 100
IMAGE = "iad.ocir.io/stand-in/plain:1"
LIMIT_S = 300.0

# The numbers to hold.
MAX_TIMES_SDK = 1.5
MAX_MB = 150.0

SDK = """\
import json, os, sys
from concurrent.futures import ThreadPoolExecutor
import oci
job, runs = json.load(open(sys.argv[1]))
client = oci.data_science.DataScienceClient(oci.config.from_file(os.environ["OCI_CLI_CONFIG_FILE"]))
job_id = client.create_job(job).data.id
with ThreadPoolExecutor(8) as pool:
    made = list(pool.map(lambda run: client.create_job_run({**run, "jobId": job_id}).data.id, runs))
assert len(made) == 101
"""


def timed(command: list[str | Path], environ: Mapping[str, str]) -> tuple[float, str]:
    """Run *command* to its end; return the seconds that it took, and what it has printed."""
    started = time.monotonic()
    done = subprocess.run(
        command,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stderr}")
    return time.monotonic() - started, done.stdout


def main() -> int:
    """Measure and print the table; 0 when all could be measured, whatever came out."""
    parser = argparse.ArgumentParser(description="Measure how fast Job Runs are submitted.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default: 5)")
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="of each request (default: 0)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oci-") as directory:
        project = Path(directory) / "project"
        for folder in ("common", "scripts"):
            shutil.copytree(ROOT / folder, project / folder)
        shutil.copytree(ROOT / "tests" / "clusters" / "plain", project / "plain")
        (project / ".venv").symlink_to(ROOT / ".venv")
        entry = Path(directory) / "code" / "entry.py"
        entry.parent.mkdir()
        entry.write_text("print('never run')\n")
        with Service(Path(directory) / "service") as service:
            faults = [{"operation": "*", "kind": "latency", "seconds": args.latency}] if args.latency else []
            service.control(
                {"images": {IMAGE: {"entrypoint": ["/bin/true"]}}, "provisioning_s": 3600, "faults": faults}
            )
            environ = {**os.environ, **service.environ, **service.settings, "BACKEND": "oci", "IMAGE": IMAGE}
            found: dict[str, list[float]] = {"launch": [], "sdk": []}
            launch = [project / "scripts" / "launch.sh", "plain", str(WORKERS), "--entry", entry]
            for number in range(args.rounds + 1):  # the first does not count
                took = {"launch": timed([*launch, "--detach"], environ)[0]}
                shown = json.loads(timed([*launch, "--dry-run", "--json"], environ)[1])
                bodies = Path(directory) / "bodies.json"
                bodies.write_text(json.dumps([shown["job"], shown["job_runs"]]))
                took["sdk"] = timed([ROOT / ".venv" / "bin" / "python", "-c", SDK, bodies], environ)[0]
                print(
                    f"{number} of {args.rounds}: launch.sh {took['launch']:.2f} s, SDK {took['sdk']:.2f} s", flush=True
                )
                if number:
                    for name, seconds in took.items():
                        found[name].append(seconds)
    median = {name: statistics.median(samples) for name, samples in found.items()}
    max_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    holds = {True: "holds", False: "DOES NOT HOLD"}
    ratio = median["launch"] / median["sdk"]
    seconds = ", ".join(f"{name} {median[name]:.2f} s" for name in median)
    print(f"\n1 + {WORKERS} runs: {seconds}")
    print(f"launch.sh: {ratio:.2f} x SDK, limit {MAX_TIMES_SDK:g} x: {holds[ratio <= MAX_TIMES_SDK]}")
    print(f"memory: {max_mb:.0f} MB at most of any process, limit {MAX_MB:g} MB: {holds[max_mb <= MAX_MB]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
