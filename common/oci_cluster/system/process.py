"""Child processes that are never lost sight of: process groups, parent-death signals, reaping, sweeping."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from oci_cluster.system.lost_interrupts import raise_lost

# From <linux/prctl.h>. Other systems have no equal; there the local backend sweeps what a dead agent leaves.
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
# How long a process may take that removes what others have left in shared memory; it takes some milliseconds.
_TRACKERS_TIME_S = 2.0
# How long one look waits for processes that are just being given their programs: in all, as others may have many.
_EXEC_TIME_S = 1.0

# Signals that some process here notes instead of obeying.
_NOTED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")


def name_process(name: str) -> None:
    """Name this process in lists of processes: 15 characters, on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def use_files(output: int, keep: Sequence[int]) -> None:
    """Use *output* as stdout and stderr, no stdin; close all but *keep*."""
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    low = 3
    for descriptor in sorted(keep):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(number: int) -> None:
    """Have the kernel send this process the signal *number* when its parent dies (Linux)."""
    _prctl(_PR_SET_PDEATHSIG, number)


def exit_code(status: int) -> int:
    """Return the shell's code for a ``waitpid`` *status*: 128 + the signal, if any."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def describe(code: int) -> str:
    """Return *code* in words: ``exit code 7``, or ``killed by SIGKILL`` for 137."""
    try:
        return f"killed by {signal.Signals(code - 128).name}" if code > 128 else f"exit code {code}"
    except ValueError:
        return f"exit code {code}"


class Interrupts(Protocol):
    """Ends of a wait, and requests to stop."""

    received: int | None
    """The first signal that nobody has obeyed yet."""

    def wait(self, seconds: float) -> None:
        """Wait *seconds*, less if it is interrupted."""


class Signals:
    """Notes TERM, INT and HUP; any signal, CHLD and USR1 included, ends a wait."""

    def __init__(self, *, children: bool = True, outlives_terminal: bool = False) -> None:
        # Who has typed `nohup` closes the terminal, and wants this to go on: what outlives a terminal ignores HUP where
        # that is ignored. Where a script of ours has started it, that passes HUP on as TERM.
        self.received: int | None = None
        self._counts = Counter[int]()
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        os.set_blocking(self._reader, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            is_kept = outlives_terminal and number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
            if not is_kept:
                signal.signal(number, self._note)
        # These only wake: the default would not write to the pipe.
        for number in (*([signal.SIGCHLD] if children else []), signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        raise_lost()

    def _note(self, number: int, _frame: object) -> None:
        before = max(self._counts.values(), default=0)
        self._counts[number] += 1
        # One Ctrl-C comes twice: from the terminal, and as TERM from a script of ours, seconds later on a busy machine.
        if self._counts[number] > before:
            self.received = self.received or number

    def wait(self, seconds: float) -> None:
        """Sleep *seconds*, less if a signal comes."""
        if select.select([self._reader], [], [], max(seconds, 0))[0]:
            os.read(self._reader, 4096)


class Children:
    """Children of this process, reaped as they end; all processes are started here."""

    def __init__(self) -> None:
        adopt_orphans()
        self._codes: dict[int, int] = {}

    def start(
        self,
        command: Sequence[str],
        *,
        environ: Mapping[str, str],
        cwd: Path,
        output: int | None = None,
        errors: int | None = None,
    ) -> int:
        """Start *command* in a process group of its own; return its pid.

        It is killed when this process dies, whatever it dies of (Linux). *output* is a file descriptor for stdout, and
        for stderr too without *errors*; it inherits no other.
        """

        def before_exec() -> None:
            os.setpgrp()
            die_with_parent(signal.SIGKILL)

        child = subprocess.Popen(  # noqa: S603 - an argument list, no shell
            list(command),
            env=dict(environ),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output if errors is None else errors,
            preexec_fn=before_exec,  # noqa: PLW1509 - one thread only, by design
        )
        child.returncode = 0  # reaped here, by reap(): subprocess must not wait for it too
        return child.pid

    def fork(
        self,
        call: Callable[[], int],
        *,
        name: str,
        cwd: Path,
        output: int,
        parent_death_signal: int,
        keep: Sequence[int] = (),
    ) -> int:
        """Start *call* in a copy of this process; return its pid.

        For what this process has imported already: a new interpreter would take 0.1 s of CPU to do so again. This
        process must have one thread.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        # A signal must not be noted by handlers that are this process's own.
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _NOTED)
        if pid := os.fork():
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
            return pid
        code = 70
        try:
            os.setsid()
            die_with_parent(parent_death_signal)
            if os.getppid() != parent:  # it died just now
                os._exit(128 + signal.SIGKILL)
            name_process(name)
            signal.set_wakeup_fd(-1)
            for number in _NOTED:
                signal.signal(number, signal.SIG_DFL)
            use_files(output, keep)
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
            os.chdir(cwd)
            code = call()
        except BaseException:  # noqa: BLE001 - the copy must never go on as its parent
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def end_all(self, pids: Sequence[int], grace_s: float, *, wait: Callable[[float], None]) -> None:
        """End the children *pids*: TERM, then KILL to those that are there after *grace_s*."""
        deadline = time.monotonic() + grace_s
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        while any(self.code(pid) is None for pid in pids) and time.monotonic() < deadline:
            wait(1.0)
        for pid in pids:
            if self.code(pid) is None:
                os.kill(pid, signal.SIGKILL)

    def reap(self) -> bool:
        """Collect every child that has ended; return whether any is still running."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            self._codes[pid] = exit_code(status)

    def code(self, pid: int) -> int | None:
        """Return the exit code of child *pid*, None while it runs."""
        self.reap()
        return self._codes.get(pid)

    def moved(self, pid: int) -> str:
        """Return what child *pid* has read and written so far; empty: unknown (Linux)."""
        try:
            return Path(f"/proc/{pid}/io").read_text()
        except OSError:
            return ""

    def end(self, pid: int, grace_s: float, *, wait: Callable[[float], None], clock: Callable[[], float]) -> int:
        """End child *pid*: TERM, then KILL to its group; return its exit code.

        TERM goes to the leader only, so that a start script ends its parts in order.
        """
        if self.code(pid) is None:
            os.kill(pid, signal.SIGTERM)
        deadline = clock() + grace_s
        while self.code(pid) is None and clock() < deadline:
            wait(min(1.0, deadline - clock()))
        kill_group(pid)
        while (code := self.code(pid)) is None:
            wait(1.0)
        self.sweep(wait)
        return code

    def sweep(self, wait: Callable[[float], None]) -> None:
        """Kill and reap whatever is left of ended children: this process has adopted it."""
        deadline = time.monotonic() + _TRACKERS_TIME_S
        while self.reap():
            import psutil  # noqa: PLC0415 - 20 ms, and seldom is anything left

            for process in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if not _is_tracker(process.cmdline()) or time.monotonic() > deadline:
                        process.kill()
            wait(0.05)


def _is_tracker(command: Sequence[str]) -> bool:
    """Return whether this is a resource tracker of Python's, which cleans up."""
    # When all who have shared memory and semaphores are gone, it removes what they have left, and ends. Killed with
    # them, it leaves that in /dev/shm until the machine is started again. It ignores TERM, too.
    return any("multiprocessing.resource_tracker" in word for word in command)


def kill_group(pid: int) -> None:
    """Kill the process group that *pid* leads or led; none left is as good."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS: EPERM where only zombies are left
        return


def _maybe_marked(marks: Mapping[str, str]) -> list[int]:
    """Return processes that may have *marks*: on Linux exactly those, elsewhere all."""
    if sys.platform != "linux":
        import psutil  # noqa: PLC0415

        return list(psutil.pids())
    wanted = {os.fsencode(f"{key}={value}") for key, value in marks.items()}
    found = []
    deadline = time.monotonic() + _EXEC_TIME_S
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            environ = _environ_of(path, deadline)
        except OSError:  # ended meanwhile, another user's, or the kernel's
            continue
        if wanted <= set(environ.split(b"\0")):
            found.append(int(path.name))
    return found


def _environ_of(path: Path, deadline: float) -> bytes:
    """Return the environment of the process whose folder of /proc is *path*."""
    # One that is just being given its program has none for a moment: of 1500 on a busy machine 17 were seen so, for
    # 22 ms at most. It is waited for; who has no environment at all is not.
    while not (environ := (path / "environ").read_bytes()) and time.monotonic() < deadline:
        # Fields 23 and 51 of proc(5): its memory, which the kernel's own have not, and where its environment ends.
        fields = (path / "stat").read_text().rpartition(")")[2].split()
        if fields[20] == "0" or fields[48] != "0":
            break
        time.sleep(0.001)
    return environ


def sweep_marked(marks: Mapping[str, str], *, spared: int | None = None) -> int:
    """Kill this user's processes whose environment holds *marks*, and their descendants, but for *spared*.

    A launch id is random and in the environment of all that a node starts, so this finds what left its process group
    and session too, and nothing else. Some programs write a title over their environment: they are found by who has
    started them. Return how many there were.
    """
    own = {os.getpid(), os.getppid(), spared}
    if not (pids := [pid for pid in _maybe_marked(marks) if pid not in own]):
        return 0
    import psutil  # noqa: PLC0415 - 20 ms, and seldom is anybody left

    found: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # ended meanwhile, or another user's
            process = psutil.Process(pid)
            environ = process.environ()
            if all(environ.get(key) == value for key, value in marks.items()):
                found |= {part.pid: part for part in (process, *process.children(recursive=True))}
    killed, trackers = 0, []
    for process in (part for pid, part in found.items() if pid not in own):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if _is_tracker(process.cmdline()):
                trackers.append(process)
            else:
                process.kill()
                killed += 1
    for process in psutil.wait_procs(trackers, timeout=_TRACKERS_TIME_S)[1]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
            killed += 1
    return killed
