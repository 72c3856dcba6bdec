"""Launches of the ladder: each is bounded, its RESULT lines are read, and whatever happens nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
# After its --ttl a launch ends its nodes, which takes them 10 s at most (common/README.md: the agent's grace).
_GRACE_S = 25.0
# What a launch costs before its script begins: two imports of torch with CUDA, and a start of nodes.
LEAST_S = 15.0
_TAIL = 30
_RESULT = re.compile(r"RESULT (\{.*\})\s*$", re.MULTILINE)


class NotHereError(Exception):
    """The rung cannot run on this machine; the text says why."""


class RedError(Exception):
    """What was seen is not what docs/gpu.md says."""


class TimeIsOverError(Exception):
    """The ladder's own time is over."""


@dataclass(frozen=True)
class Launched:
    """How a launch ended: its code, its last line, and all that it printed."""

    code: int
    text: str
    seconds: float
    cluster: str

    @property
    def last(self) -> str:
        """The launcher's last line, without the cluster's own name."""
        lines = [line for line in self.text.splitlines() if line.startswith("launch.sh: ")]
        return lines[-1].removeprefix("launch.sh: ").replace(f"{self.cluster} ", "") if lines else "it said nothing"

    def results(self, name: str) -> list[dict[str, Any]]:
        """Return what each rank has told under *name*."""
        found = []
        for text in _RESULT.findall(self.text):
            # Two ranks at once can spoil a line: that rank's word is missed then, which is red.
            with contextlib.suppress(ValueError):
                found.append(json.loads(text))
        return [one for one in found if one.get("name") == name]


@dataclass
class Launcher:
    """Starts launches, one after the other, within *budget_s* in all."""

    budget_s: float
    python: Path | None
    clock: Callable[[], float] = time.monotonic
    ended: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def left_s(self) -> float:
        """Return how much of the budget is left."""
        return self.budget_s - (self.clock() - self._began)

    def launch(
        self,
        framework: str,
        workers: int,
        script: str,
        *arguments: str,
        env: Mapping[str, str],
        limit_s: float,
        options: tuple[str, ...] = (),
    ) -> Launched:
        """Launch *script* of the ladder's own, and return how that ended.

        Raises:
            TimeIsOverError: too little of the budget is left, or it was over before the launch was.
        """
        if (left := self.left_s()) < LEAST_S:
            raise TimeIsOverError
        name = f"gpu-{script.partition('.')[0].replace('_', '-')}-{secrets.token_hex(2)}"
        ttl = int(min(limit_s, left))
        command = [str(ROOT / "scripts" / "launch.sh"), framework, str(workers), "--entry", str(SCRIPTS / script)]
        command += ["--name", name, "--ttl", f"{ttl}s", *options]
        command += ["--python", str(self.python)] if self.python and "--backend" not in options else []
        for setting, value in env.items():
            command += ["--env", f"{setting}={value}"]
        command += ["--", *arguments]
        began = time.monotonic()
        with tempfile.TemporaryFile("w+") as out:
            code = run(command, out, ttl + _GRACE_S)
            out.seek(0)
            launched = Launched(code, out.read(), time.monotonic() - began, name)
        if f"cluster {name} started" in launched.text:
            self.ended.append(name)
        if code == 75 and ttl < limit_s:
            raise TimeIsOverError
        return launched

    def keep(self, launched: Launched) -> None:
        """Leave the logs of a launch that was not as it should be, and show their end, for whoever looks for why."""
        if launched.cluster in self.ended:
            self.ended.remove(launched.cluster)
            sys.stderr.write("".join(f"    {line}\n" for line in launched.text.splitlines()[-_TAIL:]))

    def remove(self) -> None:
        """Remove logs and outputs of all launches that were as they should be."""
        if self.ended:
            with tempfile.TemporaryFile("w+") as out:
                run([str(ROOT / "scripts" / "stop.sh"), "--delete", *self.ended], out, 60)


def run(command: list[str], out: Any, patience_s: float) -> int:
    """Run *command* in a session of its own; return its exit code. It ends with this call, whatever ends that."""
    # Without the paths of this program: nodes' Python would import tests/ as if they were packages.
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, env=environ
    ) as process:
        try:
            return process.wait(patience_s)
        except subprocess.TimeoutExpired:
            return 75
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a launch in order; kill what does not listen."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
