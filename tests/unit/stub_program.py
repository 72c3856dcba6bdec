"""A program of a test's own, in Python."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


def write_program(path: Path, text: str, options: str = "") -> None:
    """Write *text* as a program that this Python runs, also where its path has a blank, which no ``#!`` may have."""
    first = f"#!/bin/sh\n'''exec' {shlex.quote(sys.executable)} {options} \"$0\" \"$@\"\n' '''\n"
    path.write_text(first + text)
    path.chmod(0o755)
