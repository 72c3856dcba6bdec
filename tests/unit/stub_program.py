"""A program of a test's own, in Python."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar


def write_program(path: Path, text: str, options: str = "") -> None:
    """Write *text* as a program that this Python runs, also where its path has a blank, which no ``#!`` may have."""
    first = f"#!/bin/sh\n'''exec' {shlex.quote(sys.executable)} {options} \"$0\" \"$@\"\n' '''\n"
    path.write_text(first + text)
    path.chmod(0o755)


class InterruptedStart(subprocess.Popen):  # type: ignore[type-arg]
    """In place of `Popen`: a signal comes when the program runs already, and before anybody here knows of it."""

    started: ClassVar[list[subprocess.Popen[str]]] = []

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.started[:] = [self]
        os.kill(os.getpid(), signal.SIGINT)
