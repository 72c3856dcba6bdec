"""Usage: python -m chaos [--backend PLACE] [--count N] [--seed SEED] [--frameworks NAME,...].

Runs N schedules of random faults, those of the seeds SEED, SEED + 1, ..., on clusters of this machine, one after the
other. PLACE is local, docker (an engine of its own), oci (the stand-in), hosts (the stand-in, a host for each node) or
kubernetes (a real one, of its own).
What does not hold after a schedule is told with the command that runs it again.

Exit: 0 all held, 1 something did not.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from chaos.places import copy_checkout, opened
from chaos.runs import Result, run
from chaos.schedules import PLACES, TOYS, Schedule, make_schedule


def main() -> int:
    """Run the schedules that the command line asks for."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--backend", default="local", choices=PLACES, metavar="PLACE")
    parser.add_argument("--count", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, default=int(time.time()), metavar="SEED")
    parser.add_argument("--frameworks", default=",".join(TOYS), metavar="NAME,...")
    wanted = parser.parse_args()
    if wanted.backend != "local" and wanted.frameworks != parser.get_default("frameworks"):
        parser.error(
            f"FRAMEWORKS is for the backend local, not '{wanted.backend}', which has the tests' own; leave it out"
        )
    failures = 0
    scratch = Path(tempfile.mkdtemp(prefix="chaos-"))
    with opened(wanted.backend, copy_checkout(scratch), scratch) as open_place:
        for seed in range(wanted.seed, wanted.seed + wanted.count):
            schedule = make_schedule(seed, wanted.frameworks.split(","), wanted.backend)
            began_at = time.monotonic()
            result = run(open_place, scratch / str(seed), schedule)
            tell(schedule, result, time.monotonic() - began_at, wanted.frameworks, scratch / str(seed))
            if result.broken:
                failures += 1
            else:
                shutil.rmtree(scratch / str(seed))
    print(f"{wanted.count - failures} held, {failures} failed; {wanted.backend}, seeds from {wanted.seed}")
    if not failures:
        shutil.rmtree(scratch)
    return 1 if failures else 0


def tell(schedule: Schedule, result: Result, took_s: float, frameworks: str, scratch: Path) -> None:
    """Print what came of *schedule*; of one that did not hold all that helps."""
    print(f"{'FAILED' if result.broken else 'held  '} {took_s:5.1f} s  {schedule}", flush=True)
    if result.missed:
        print(f"       met nobody: {'; '.join(map(str, result.missed))}", flush=True)
    if result.broken:
        for sentence in result.broken:
            print(f"       {sentence}")
        print(f"       launch.sh: {result.seen.launch_code}; {result.seen.said[-600:]}")
        of = f" FRAMEWORKS={frameworks}" if schedule.place == "local" else ""
        print(f"       again: make chaos N=1 SEED={schedule.seed} BACKEND={schedule.place}{of}")
        print(f"       what it left: {scratch}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
