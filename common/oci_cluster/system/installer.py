"""Programs that install, and uv, which makes all environments: in images too. Imports the standard library only."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from oci_cluster.errors import BackendError, SettingsError
from oci_cluster.system.console import Say
from oci_cluster.system.pip_config import pip_settings, uv_options

_PROGRESS = re.compile(r"^\s*(Downloading|Building|Installing collected|Resolved|Prepared|Installed) ?.*")
# What a post-install.sh means to be shown begins with two blanks.
_HOOK_PROGRESS = re.compile(rf"^  \S|{_PROGRESS.pattern}")
# uv's words where requirements contradict each other, or are none; and where something is on no index.
_CONTRADICTION = re.compile(r"No solution found|Couldn't parse")
_MISSING = re.compile(r"was not found in|[Tt]here (is|are) no versions? of")
# How long processes of an installer that is killed are looked for: meanwhile one may start another.
_SESSION_ENDS_S = 5.0


class Uv:
    """The program uv, told all that pip is told by its files and variables."""

    def __init__(self, program: str | Path, say: Say, *, torch: str = "", **variables: str) -> None:
        self._program = str(program)
        self._say = say
        self.settings = pip_settings(os.environ)
        self._options, environ = uv_options(self.settings, say)
        # Compiled here and now: an uncompiled start costs seconds, every time.
        self._environ = {"UV_COMPILE_BYTECODE": "1", **environ, **variables}
        if torch:  # PyTorch's own index for torch and what goes with it, and no other
            self._environ["UV_TORCH_BACKEND"] = torch

    def venv(self, directory: Path, base: str | Path) -> None:
        """Make the environment *directory* for the interpreter *base*; what is there stays."""
        words = ["venv", "--quiet", "--allow-existing", "--python", base, directory]
        run_installer([self._program, *words], self._say, self._environ)

    def install(self, directory: Path, words: Sequence[str | Path]) -> None:
        """Install what *words* say into the environment *directory*.

        Raises:
            SettingsError: what is asked for contradicts itself, or what is there.
            BackendError: it cannot be had. Both hold uv's last words.
        """
        try:
            run_installer([*self._command(directory), *words], self._say, self._environ)
        except BackendError as error:
            if _CONTRADICTION.search(str(error)) and not _MISSING.search(str(error)):
                raise SettingsError(str(error)) from error
            raise

    def run_hook(self, hook: Path, directory: Path, kept: Path, **variables: str) -> None:
        """Run the ``post-install.sh`` *hook*, which gets interpreter, cache, and the command that installs."""
        told: list[str | Path] = [hook.absolute(), directory / "bin" / "python", kept]
        run_installer([*told, *self._command(directory)], self._say, {**self._environ, **variables}, _HOOK_PROGRESS)

    def _command(self, directory: Path) -> list[str]:
        return [self._program, "pip", "install", "--python", str(directory / "bin" / "python"), *self._options]


def run_installer(
    command: Sequence[str | Path],
    say: Say,
    extra: Mapping[str, str] | None = None,
    progress: re.Pattern[str] = _PROGRESS,
) -> None:
    """Run *command*, in an environment with *extra*, and show those of its lines that tell of *progress*.

    Raises:
        BackendError: it cannot be run, or failed; holds its last words.
    """
    said: list[str] = []
    # A signal that comes while a program is being started would leave one that nobody knows of.
    release_signals = _hold_signals()
    try:
        process = subprocess.Popen(  # noqa: S603 - an argument list, no shell
            [str(part) for part in command],
            env={**os.environ, **(extra or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # to be ended with all that it has started
        )
    except OSError as error:
        release_signals()
        raise BackendError(f"{command[0]} cannot be run: {error.strerror}") from error
    try:
        release_signals()
        for line in process.stdout or ():
            said.append(line.rstrip())
            if progress.match(line):
                say(f"  {line.strip()[:100]}")
        process.wait()
    except BaseException:  # Ctrl-C, TERM: what it makes is wanted by nobody now
        _kill_session(process.pid)
        process.wait()
        raise
    finally:
        if process.stdout:
            process.stdout.close()
    if process.returncode:
        shown = " ".join(str(part) for part in command[:4])
        raise BackendError(f"'{shown} ...' failed with exit code {process.returncode}:\n" + "\n".join(said[-15:]))


def _kill_session(leader: int) -> None:
    """Kill *leader*, a child of this process, with its session: ninja gives each compiler a group of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
    deadline = time.monotonic() + _SESSION_ENDS_S
    while (members := _members_of(leader)) and time.monotonic() < deadline:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _members_of(session: int) -> list[int]:
    """Return which processes of a *session* run; where there is no /proc, none."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            state, _, _, of_session, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(of_session) == session and state != "Z":
                found.append(int(stat.parent.name))
    return found


def _hold_signals() -> Callable[[], None]:
    """Have signals wait; return what lets them through. By handlers: a mask is inherited by what is started."""
    held: dict[int, None] = {}
    if threading.current_thread() is not threading.main_thread():  # no handler runs there
        return held.clear
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)  # the last by system/interrupts.py
    old = {number: handler for number in numbers if (handler := signal.getsignal(number)) not in {signal.SIG_IGN, None}}
    for number in old:
        signal.signal(number, lambda came, _: held.setdefault(came))

    def release() -> None:
        for number, handler in old.items():
            signal.signal(number, handler)
        for came in held:
            signal.raise_signal(came)

    return release
