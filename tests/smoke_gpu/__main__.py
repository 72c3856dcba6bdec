"""Usage: python -m smoke_gpu [--python PATH] [--only RUNG ...] [--budget SECONDS] [--list]

Tries on this machine's GPUs what docs/gpu.md says, one rung after the other, and prints a report that can be pasted.
Each rung tries one sentence of that page. A rung that cannot run here says why; it is not red. What needs no GPU also
runs on CPUs. What it starts ends with it, also at Ctrl-C; then the report has what was seen so far.

  --python PATH     the environment to take (default: PyTorch's of this checkout, which is made where it is not there)
  --only RUNG       climb this rung (repeatable)
  --budget SECONDS  how long all rungs may take (default: 480)
  --list            print the rungs, and what each tries

stdout: the report. Exit: 0 no rung is red; 1 some are; 2 wrong usage; 69, 78 as launch.sh; 143 stopped.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

from oci_cluster.errors import ClusterError
from oci_cluster.system.envs.python_env import ensure_framework
from smoke_gpu.ground import Ground
from smoke_gpu.launching import ROOT, Launcher, NotHereError, RedError, TimeIsOverError
from smoke_gpu.machine import Driver, Environment, driver, environment, memory_used
from smoke_gpu.report import NOT_HERE, NOT_RUN, OK, RED, Result, exit_code, page
from smoke_gpu.rungs import RUNGS, STEPS, Rung

BUDGET_S = 480.0
STOPPED = 143


def main() -> int:
    """Climb the ladder; return the exit code."""
    wanted = _arguments()
    if wanted.list:
        print("\n".join(f"{rung.name:13} {rung.says}" for rung in RUNGS))
        return 0
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    rungs = [rung for rung in RUNGS if not wanted.only or rung.name in wanted.only]
    try:
        python = _python(wanted.python)
        found = environment(python)
    except ClusterError as error:
        _say(f"error: {error}")
        return error.exit_code
    except OSError as error:
        _say(f"error: --python {wanted.python}: {error}")
        return 78
    launcher = Launcher(wanted.budget, python if wanted.python else None)
    steps = tuple(step for step in STEPS if step in {rung.name for rung in rungs})
    ground = Ground(driver(), found, launcher, is_given=wanted.python is not None, steps=steps)
    return _climb(rungs, ground)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="smoke_gpu", description=__doc__, formatter_class=argparse.RawTextHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("--python", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--only", action="append", choices=[rung.name for rung in RUNGS], help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=float, default=BUDGET_S, help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _say(text: str) -> None:
    print(f"smoke-gpu: {text}", file=sys.stderr, flush=True)


def _python(given: Path | None) -> Path:
    """Return the interpreter of the environment *given*, or of PyTorch's own, which is made where it is not there."""
    if given is None:
        return ensure_framework(ROOT, ROOT / "pytorch" / "env.yaml", _say, os.environ.get("TORCH", ""))
    inside = given / "bin" / "python"
    return inside if inside.exists() else given


def _climb(rungs: list[Rung], ground: Ground) -> int:
    results: list[Result] = []
    code, before = 0, memory_used()
    try:
        for rung in rungs:
            _say(f"{rung.name}: {rung.says}")
            results.append(climbed(rung, ground))
            _say(f"{rung.name}: {results[-1].result}, {results[-1].seconds:.1f} s: {results[-1].seen}")
    except KeyboardInterrupt:
        _say("stopped")
        code = STOPPED
        done = {result.name for result in results}
        results += [Result(rung.name, NOT_RUN, 0.0, "stopped", "") for rung in rungs if rung.name not in done]
    ground.launcher.remove()
    facts = _facts(ground.driver, ground.torch)
    if ground.driver.gpus:
        facts["GPU memory in use"] = f"before: {before}; after: {memory_used()}"
    print(page(results, facts), end="", flush=True)
    return code or exit_code(results)


def climbed(rung: Rung, ground: Ground) -> Result:
    """Climb one rung; whatever it raises is its result."""
    began = time.monotonic()
    try:
        result, seen = OK, rung.climb(ground)
    except NotHereError as error:
        result, seen = NOT_HERE, str(error)
    except TimeIsOverError:
        result, seen = NOT_RUN, "time is over"
    except RedError as error:
        result, seen = RED, str(error)
    except Exception as error:  # noqa: BLE001 - a fault of the ladder's own must not hide what the other rungs see
        result, seen = RED, f"the ladder itself failed: {type(error).__name__}: {error}"
    # What CPUs do says nothing of GPUs.
    says = rung.says if ground.gpus or result == RED else ""
    return Result(rung.name, result, time.monotonic() - began, seen, says)


def _facts(of_driver: Driver, found: Environment) -> dict[str, str]:
    version = subprocess.run(
        [ROOT / "scripts" / "launch.sh", "--version"], capture_output=True, text=True, check=False
    ).stdout
    torch = found.torch
    return {
        "project": version.strip(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": f"{platform.platform()}, {os.cpu_count()} CPUs",
        "GPUs": ", ".join(of_driver.gpus) or of_driver.why_not,
        "driver": f"{of_driver.version or 'none'}, CUDA {of_driver.cuda or 'none'}",
        "torch": f"{torch.get('torch', 'none')}, CUDA {torch.get('cuda')}, NCCL {torch.get('nccl')}",
        "Python": f"{found.version}, {found.python}",
    }


if __name__ == "__main__":
    sys.exit(main())
