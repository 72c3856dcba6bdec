"""Runs the engine's program for builds and pushes; keeps its output, explains its failures."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from oci_cluster.errors import BackendError, ClusterError, ExitCode, NotPermittedError, SettingsError
from oci_cluster.images.records import records_dir
from oci_cluster.system.console import Say
from oci_cluster.system.engine import Engine, EngineError

# BuildKit's plain output: the step's number, then seconds, then what the step prints.
_STEP_OUTPUT = re.compile(r"^#\d+ \d+\.\d+ ")
_SHOWN = re.compile(r"install-env\.sh:   ")
# What BuildKit, and buildah, say of a step that failed; the step's own words come before.
_FRAME = re.compile(r"#|------| > \[|executor failed running|ERROR: |Error: building at STEP")
_STEP_CODE = re.compile(r"exit (?:code|status):? (\d+)")
_LAST_LINES = 25
_PIECE_S = 0.2
_REFUSED = ("denied", "unauthorized", "no basic auth", "authentication required")
_ADVICE = {
    "no space left on device": "the engine's disk is full; free space there: docker system prune",
    "buildx component is missing": "BuildKit is missing: install docker-buildx-plugin, or name a docker that has it",
    "network bridge not found": "this engine gives builds no network; add BUILD_FLAGS='--network host'",
    **dict.fromkeys(_REFUSED, "log in to the registry, as one who may write there: docs/images.md"),
}


class Client:
    """The client of one engine, at work in one checkout."""

    def __init__(self, program: str, root: Path, environ: Mapping[str, str], say: Say) -> None:
        self.program = program
        self.engine = Engine(program, environ)
        self.root = root
        self.environ = environ
        self.say = say
        # What runs, for each of the frameworks a thread of its own.
        self._running: set[subprocess.Popen[str]] = set()
        self._is_stopped = False

    def ask(self, *words: str) -> str:
        """Run the command *words*, however long it takes; return its output."""
        try:
            return self.engine.call(*words, timeout_s=None).strip()
        except EngineError as error:
            raise BackendError(_advised(str(error))) from error

    def run(self, framework: str, *words: str) -> None:
        """Run the command *words*, log its output, and show lines of progress."""
        log = records_dir(self.root) / f"{framework}{'' if words[0] == 'build' else f'.{words[0]}'}.log"
        with (
            log.open("w") as kept,
            subprocess.Popen(  # noqa: S603 - an argument list, no shell
                [self.program, *words],
                env={**self.environ, "DOCKER_BUILDKIT": "1"},
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            ) as process,
        ):
            self._running.add(process)
            if self._is_stopped:
                process.terminate()
            for line in process.stdout or ():
                kept.write(line)
                kept.flush()
                if _SHOWN.search(line):
                    self.say(f"{framework}: {_STEP_OUTPUT.sub('', line).strip()[:150]}")
        self._running.discard(process)
        if process.returncode:
            raise _failure(framework, [self.program, *words], process.returncode, log)

    def for_each(self, frameworks: Sequence[str], work: Callable[[str], None]) -> None:
        """Do *work* for all *frameworks* at once; report all failures, raise the first."""
        with ThreadPoolExecutor(len(frameworks)) as pool:
            try:
                futures = [pool.submit(work, framework) for framework in frameworks]
                # In pieces: a signal that comes just before a wait without an end is seen only after it.
                while wait(futures, _PIECE_S).not_done:
                    pass
                failed = [error for future in futures if (error := future.exception())]
            except BaseException:  # Ctrl-C, TERM: the pool waits for its threads, and they for these
                self._is_stopped = True
                for process in [*self._running]:
                    process.terminate()
                raise
        for error in failed[1:]:
            self.say(f"error: {error}")
        if failed:
            raise failed[0]


def _failure(framework: str, command: Sequence[str], code: int, log: Path) -> ClusterError:
    """Return the error of a *command*: the last words of its *log*, and advice."""
    lines = log.read_text(errors="replace").splitlines()
    failed = [step[1] for line in lines if (step := re.match(r"#(\d+) ERROR", line))]
    said = [line for line in lines if line.startswith(f"#{failed[-1]} ")] if failed else lines
    told = [line for line in (_STEP_OUTPUT.sub("", line) for line in said) if line.strip() and not _FRAME.match(line)]
    last = "\n".join(f"  {line[:300]}" for line in (told or lines)[-_LAST_LINES:])
    what = f"'{Path(command[0]).name} {command[1]} ...' for {framework} failed with exit code {code}"
    text = _advised(f"{what}; all that it printed is in {log}. Its last lines:\n{last}")
    if command[1] == "push" and any(word in last for word in _REFUSED):
        return NotPermittedError(text)
    codes = _STEP_CODE.findall("\n".join(lines[-_LAST_LINES:]))
    return SettingsError(text) if codes and int(codes[-1]) == ExitCode.SETTINGS else BackendError(text)


def _advised(text: str) -> str:
    advice = next((advice for sign, advice in _ADVICE.items() if sign in text), "")
    return f"{text}\n{advice}" if advice else text
