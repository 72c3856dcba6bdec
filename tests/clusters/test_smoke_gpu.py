"""`make smoke-gpu` without a GPU: what CPUs can do is right, the rest says why not; it stops, and leaves nothing."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from harness import Project, processes_of, wait_until

ROOT = Path(__file__).resolve().parents[2]
# Of a machine without a driver, also where there is one; and two GPUs that nobody can use.
NONE = "#!/bin/sh\necho 'no driver is loaded' >&2\nexit 9\n"
GPUS = [f"GPU-{index}a5c0000-1111-2222-3333-444455556666" for index in range(2)]
STUB = f"""#!/bin/sh
echo "| NVIDIA-SMI 580.1   Driver Version: 580.1   CUDA Version: 13.0 |"
[ "$1" != -L ] || printf 'GPU %s: NVIDIA A10 (UUID: %s)\\n' 0 {GPUS[0]} 1 {GPUS[1]}
"""


class Ladder:
    """The ladder, in a copy of the checkout."""

    def __init__(self, project: Project, driver: str, *rungs: str) -> None:
        (project.temporary / "nvidia-smi").write_text(driver)
        (project.temporary / "nvidia-smi").chmod(0o755)
        shutil.copytree(ROOT / "tests" / "smoke_gpu", project.path / "tests" / "smoke_gpu", dirs_exist_ok=True)
        # So torch sees none, also where there are some.
        visible = ",".join(GPUS) if driver == STUB else ""
        words = [word for rung in rungs for word in ("--only", rung)]
        # -S: without any package. Where the launcher has its own, the ladder needs none.
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-m", "smoke_gpu", *words],
            cwd=project.path,
            env={
                **project.environ,
                "PATH": f"{project.temporary}:{os.environ['PATH']}",
                "PYTHONPATH": "tests:common",
                "CUDA_VISIBLE_DEVICES": visible,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, dict[str, tuple[str, str]]]:
        """Return the exit code, and of each rung what became of it and what was seen."""
        out, said = self.process.communicate(timeout=600)  # it gives itself 480
        rows = re.findall(r"^\| ([\w-]+) \| (ok|RED|not here|not run) \| [\d.]+ \| (.*) \|$", out, re.MULTILINE)
        assert rows, said
        return self.process.returncode, {name: (result, seen) for name, result, seen in rows}


def test_without_a_gpu_no_rung_is_red(project: Project) -> None:
    """Those that need none run on CPUs, with two ranks."""
    rungs = ("driver", "torch", "refusals", "collectives", "ddp", "fsdp", "precision", "resume", "memory", "docker")
    code, seen = Ladder(project, NONE, *rungs).end()
    assert code == 0, seen
    on_cpus = ("collectives", "ddp", "fsdp", "precision", "resume")
    assert {name: result for name, (result, _) in seen.items()} == {
        name: "ok" if name in on_cpus else "not here" for name in rungs
    }
    assert seen["memory"][1] == "no GPU"
    assert "backend gloo, world 2, device cpu" in seen["collectives"][1]
    assert project.cluster_dirs() == []  # what was as it should be leaves no logs


def test_gpus_that_torch_cannot_use_are_red_and_all_else_is_not(project: Project) -> None:
    """The launcher counts them, and refuses what is more."""
    code, seen = Ladder(project, STUB, "driver", "torch", "refusals", "ddp", "memory").end()
    assert {name: result for name, (result, _) in seen.items()} == {
        "driver": "ok",
        "torch": "RED",
        "refusals": "ok",
        "ddp": "ok",
        "memory": "not here",
    }, seen
    assert code == 1
    assert seen["driver"][1] == "driver 580.1, CUDA 13.0: NVIDIA A10, NVIDIA A10"
    assert seen["torch"][1].startswith("nvidia-smi names 2 GPUs, and torch ")


def test_ctrl_c_ends_the_launch_and_prints_what_was_seen(project: Project) -> None:
    ladder = Ladder(project, NONE, "driver", "resume", "memory")
    (directory,) = wait_until(project.cluster_dirs, "the first launch")
    launch_id = directory.name.rpartition("-")[2]
    wait_until(lambda: processes_of(launch_id, "MAIN"), "its main")
    ladder.process.send_signal(signal.SIGINT)
    code, seen = ladder.end()
    assert code == 143
    assert seen["driver"][0] == "not here"
    assert seen["resume"] == seen["memory"] == ("not run", "stopped")
    wait_until(lambda: not processes_of(launch_id), lambda: f"the end of {processes_of(launch_id)}")
