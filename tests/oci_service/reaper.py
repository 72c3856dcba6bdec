"""Runs one command and ends with it all that it has started. Starts without the site packages, so in some 15 ms.

    reaper.py STATUS_FD DIRECTORY COMMAND...

Its stdin is held open by the service. The line ``term`` there sends TERM to the command's process group; the end of
the stream, as when the service is killed, kills everything that the command has started, daemons too: they become this
program's children. ``exit CODE`` is written to STATUS_FD when nothing is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    status, directory, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    own = os.getpid()
    first = os.fork()
    if first == 0:
        os.setsid()
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != own:
            os._exit(137)
        os.close(status)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        try:
            os.chdir(directory)
            # As it was given: Python itself may have added LC_CTYPE to its own.
            given = Path("/proc/self/environ").read_bytes().split(b"\0")
            environ = dict(variable.split(b"=", 1) for variable in given if variable)
            os.execvpe(command[0], command, environ)  # noqa: S606 - no shell is wanted
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
            os._exit(126 if isinstance(error, PermissionError) else 127)
    threading.Thread(target=obey, args=[first], daemon=True).start()
    found = None
    while found is None:
        pid, wait_status = os.waitpid(-1, 0)
        found = os.waitstatus_to_exitcode(wait_status) if pid == first else None
    while children := children_of(own):
        for pid in children:
            kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
    os.write(status, f"exit {128 - found if found < 0 else found}\n".encode())
    os._exit(0)


def obey(first: int) -> None:
    """Do what the service says until it has nothing more to say."""
    for line in sys.stdin:
        if line == "term\n":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(first, signal.SIGTERM)
    kill(first, signal.SIGKILL)


def kill(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def children_of(parent: int) -> list[int]:
    """Return the pids of all children, those included that have ended and wait to be reaped."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


if __name__ == "__main__":
    main()
