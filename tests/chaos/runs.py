"""One schedule, run where it says."""

from __future__ import annotations

import contextlib
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from harness import PATIENCE_S, Launch, wait_until

from chaos.faults import Faults
from chaos.invariants import STAYS, Seen, broken
from chaos.places import Opened, Place, wait_for_nothing
from chaos.schedules import BEFORE_ENTER, PHASES, Fault, Schedule

# Says when it begins and when it is about to end, and notes what it ends with: what really happened.
_ENTRY = """
import os, sys, time
node, attempt = os.environ["NODE_NAME"], os.environ["ATTEMPT"]
pipe = os.open({truth!r}, os.O_WRONLY | os.O_NONBLOCK)
def note(what):
    os.write(pipe, f"{{node}} {{attempt}} {{what}}\\n".encode())
note("up")
deadline = time.monotonic() + {runs_s}
while time.monotonic() < deadline:
    print("working", flush=True)
    time.sleep(0.05)
code = {code} if node == "MAIN" else 0
note("end")
time.sleep(0.3)
note(f"code {{code}}")
sys.exit(code)
"""


@dataclass
class Result:
    """What came of a schedule."""

    seen: Seen
    broken: list[str]
    missed: list[Fault]
    """Faults that met nobody, such as a process that was not there any more."""


def run(open_place: Opened, scratch: Path, schedule: Schedule) -> Result:
    """Run *schedule* in the place that *open_place* opens, with its files in *scratch*; return what does not hold."""
    with open_place(scratch, schedule) as place:
        return _run(place, schedule)


def _run(place: Place, schedule: Schedule) -> Result:
    text = _ENTRY.format(runs_s=schedule.runs_s, code=schedule.code, truth=place.truth_path())
    place.project.write("entry.py", text)
    place.project.write("other.py", "")
    place.prepare()
    launch = place.launch()
    faults = Faults(place, launch)
    _let_go_wrong(place, launch, faults, schedule)
    code: int | None = None
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = launch.process.wait(PATIENCE_S)
    faults.finish()
    # What met nobody explains nothing.
    met = replace(schedule, faults=tuple(fault for fault in schedule.faults if fault not in faults.missed))
    is_taken = any(fault.may_take_the_launcher for fault in met.faults) or code is None or STAYS in launch.err
    left = wait_for_nothing(lambda: place.left(launcher_is_gone=is_taken))
    seen = Seen(
        launch_code=code,
        said=launch.err + place.said(),
        truth={node: own_code(place.truth(), node) for node in ("MAIN", "WORKER_1", "WORKER_2", "WORKER_3")},
        left=left,
        cluster=place.shown(),
        verbs=faults.verbs,
        afterwards=_afterwards(place),
    )
    return Result(seen, broken(met, seen), faults.missed)


def _let_go_wrong(place: Place, launch: Launch, faults: Faults, schedule: Schedule) -> None:
    """Carry out the faults of *schedule*, each when its time has come, or at once when the launch is over."""
    began = {"start": time.monotonic()}

    def is_over() -> bool:
        return launch.process.poll() is not None

    due = [fault for fault in schedule.faults if fault.kind not in BEFORE_ENTER]
    for fault in sorted(due, key=lambda fault: (PHASES.index(fault.phase), fault.delay_s)):
        if fault.phase not in began:
            with contextlib.suppress(AssertionError):  # a phase that never comes is a launch that does not end
                wait_until(lambda phase=fault.phase: has_begun(place.truth(), phase) or is_over(), "the phase to begin")
            began[fault.phase] = time.monotonic()
        while time.monotonic() < began[fault.phase] + fault.delay_s and not is_over():
            time.sleep(0.01)
            faults.remember()
        # Where a service has to start nodes first, a fault at the start is one as soon as there is somebody to meet.
        deadline = time.monotonic() + (place.start_s if fault.phase == "start" else 0.0)
        while not (has_met := faults.carry_out(fault)) and time.monotonic() < deadline and not is_over():
            time.sleep(0.05)
            faults.remember()
        if not has_met:
            faults.missed.append(fault)


def has_begun(truth: str, phase: str) -> bool:
    """Return whether main's entry point has come to *phase*."""
    return any(line.split()[::2] == ["MAIN", phase] for line in truth.splitlines())


def own_code(truth: str, node: str) -> int | None:
    """Return what the last entry point on *node* ended with by itself; None where it did not come to its end."""
    last = [line.split() for line in truth.splitlines() if line.startswith(f"{node} ")][-1:]
    return int(last[0][3]) if last and last[0][2] == "code" else None


def _afterwards(place: Place) -> list[str]:
    """Return what does not hold of the next: what was left by contract can be removed, and the name is free again."""
    found = place.tidy()
    place.heal()
    try:
        done = place.project.run("launch", *place.another())
    except subprocess.TimeoutExpired:
        return [*found, f"launched again, it took longer than {PATIENCE_S:g} s"]
    if done.returncode:
        found.append(f"launched again, it ended with {done.returncode}: {done.stderr[-600:]}")
    left = wait_for_nothing(lambda: place.left(launcher_is_gone=False))
    return [*found, *(f"launched again, it left {thing}" for thing in left)]
