"""A process that waits for the end of this one, and then cleans up."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence

# What a guard is told that has nothing left to do.
_DISMISSED = b"."


class ProcessReaper:
    """Runs Python's source *program*, which calls :func:`wait`, as a group's leader.

    KILL and a crash leave a process no time. The kernel closes its end of a pipe all the same.
    """

    def __init__(self, program: str, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        reader, self._writer = os.pipe()
        null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        try:
            #: Its pid, and the number of its process group. What is started in that group ends with this process.
            self.group = os.posix_spawn(
                sys.executable,
                [sys.executable, "-c", program, *arguments],
                dict(environ),
                file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0), *null],
                setpgroup=0,  # so that a Ctrl-C is not its own
            )
        finally:
            os.close(reader)

    def start(self, command: Sequence[str], environ: Mapping[str, str], errors: str) -> int:
        """Start *command* in the guard's group, with a new file for *errors*; return its pid."""
        return os.posix_spawn(
            command[0],
            list(command),
            dict(environ),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            ],
            setpgroup=self.group,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
        )

    def dismiss(self, *, is_done: bool = True) -> None:
        """Let the guard go; unless *is_done*, it does its work now."""
        if self._writer < 0:
            return
        if is_done:
            with contextlib.suppress(BrokenPipeError):  # somebody has killed it
                os.write(self._writer, _DISMISSED)
        os.close(self._writer)
        self._writer = -1
        if is_done:
            os.waitpid(self.group, 0)


def wait() -> bool:
    """Wait, in a guard; return whether there is something to do. Then its group was told to end."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if os.read(0, 1) == _DISMISSED:
        return False
    os.killpg(0, signal.SIGTERM)
    return True
