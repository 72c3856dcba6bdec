"""A Ctrl-C that comes where no exception gets out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oci_cluster.system import interrupts

BEGIN = (
    "import os, signal, time\n"
    "from oci_cluster.system.interrupts import keep_interrupts\n"
    "keep_interrupts()\n"
    "class Dropped:\n"
    "    def __del__(self): {inside}\n"
    "class Waits:\n"
    "    def __del__(self): time.sleep(60)\n"
    "try:\n"
    "    {drops}\n"
    "    time.sleep(60)\n"
    "except KeyboardInterrupt:\n"
    "    print('caught')\n"
)


def run(inside: str, drops: str = "Dropped()") -> subprocess.CompletedProcess[str]:
    """Run a program that drops an object whose destructor does something."""
    environ = {"PYTHONPATH": str(Path(interrupts.__file__).parents[2])}
    program = [sys.executable, "-c", BEGIN.format(inside=inside, drops=drops)]
    return subprocess.run(program, env=environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("inside", ["raise KeyboardInterrupt", "signal.raise_signal(signal.SIGINT)"])
def test_it_is_raised_again_where_it_can_be_caught(inside: str) -> None:
    """Without the traceback."""
    done = run(inside)
    assert (done.stdout, done.stderr, done.returncode) == ("caught\n", "", 0)


def test_one_that_is_lost_twice_is_raised_once_more() -> None:
    """As where two such callbacks follow each other."""
    done = run("signal.raise_signal(signal.SIGINT)", drops="Dropped(); Waits()")
    assert (done.stdout, done.stderr, done.returncode) == ("caught\n", "", 0)


def test_other_exceptions_are_shown_as_ever() -> None:
    """They are faults."""
    done = run("1 / 0", drops="Dropped(); raise SystemExit(3)")
    assert "ZeroDivisionError" in done.stderr
    assert (done.stdout, done.returncode) == ("", 3)
