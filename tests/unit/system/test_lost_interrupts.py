"""A Ctrl-C that comes where no exception gets out."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oci_cluster.system import lost_interrupts

BEGIN = (
    "import gc, io, os, signal, time\n"
    "from oci_cluster.system.lost_interrupts import stop_looking, keep_interrupts, raise_at\n"
    "from oci_cluster.system.process import Signals\n"
    "keep_interrupts()\n"
    "raise_at(signal.SIGINT)\n"
    "class File(io.IOBase):\n"
    "    @property\n"
    "    def closed(self): {inside}\n"
    "class Dropped:\n"
    "    def __del__(self): {inside}\n"
    "class Waits:\n"
    "    def __del__(self): time.sleep(60)\n"
    "try:\n"
    "    {drops}\n"
    "    time.sleep(60)\n"
    "except KeyboardInterrupt:\n"
    "    stop_looking()\n"
    "    print('caught')\n"
)


def run(inside: str, drops: str = "Dropped()") -> subprocess.CompletedProcess[str]:
    """Run a program that drops an object whose destructor does something."""
    environ = {"PYTHONPATH": str(Path(lost_interrupts.__file__).parents[2])}
    program = [sys.executable, "-c", BEGIN.format(inside=inside, drops=drops)]
    return subprocess.run(program, env=environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("inside", ["raise KeyboardInterrupt", "signal.raise_signal(signal.SIGINT)"])
def test_it_is_raised_again_where_it_can_be_caught(inside: str) -> None:
    """Without the traceback."""
    done = run(inside)
    assert (done.stdout, done.stderr, done.returncode) == ("caught\n", "", 0)


def test_one_that_the_garbage_collector_drops_is_raised_again() -> None:
    """It asks a file that it takes away whether it is closed, and nobody hears of what that raises."""
    done = run("signal.raise_signal(signal.SIGINT)", drops="file = File(); file.own = file; del file; gc.collect()")
    assert (done.stdout, done.stderr, done.returncode) == ("caught\n", "", 0)


def test_one_that_was_lost_just_before_signals_are_noted_is_raised_there() -> None:
    """What is begun next would not be ended by it."""
    drops = "Dropped(); Signals(); print('begun')"
    done = run("signal.raise_signal(signal.SIGINT)", drops=drops)
    assert (done.stdout, done.stderr, done.returncode) == ("caught\n", "", 0)


@pytest.mark.parametrize("way_out", ["finally", "except BaseException"])
def test_what_ends_for_it_is_not_cut_short(way_out: str) -> None:
    """Neither by itself nor by a second signal, whatever else fails there."""
    program = (
        f"import signal, time\n"
        f"from oci_cluster.system.lost_interrupts import stop_looking, raise_at\n"
        f"raise_at(signal.SIGINT)\n"
        f"try:\n"
        f"    try:\n"
        f"        signal.raise_signal(signal.SIGINT)\n"
        f"    {way_out}:\n"
        f"        try:\n"
        f"            1 / 0\n"
        f"        except ZeroDivisionError:\n"
        f"            time.sleep(0.1)\n"
        f"        signal.raise_signal(signal.SIGINT)\n"
        f"        time.sleep(0.1)\n"
        f"        ignores = signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # so would what it starts\n"
        f"        print('ended', ignores)\n"
        f"        raise\n"
        f"except KeyboardInterrupt:\n"
        f"    stop_looking()\n"
        f"    print('caught')\n"
    )
    program = program.replace("        raise\n", "") if way_out == "finally" else program
    environ = {"PYTHONPATH": str(Path(lost_interrupts.__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ended False\ncaught\n", "", 0)


def test_a_look_that_comes_as_the_looking_ends_sets_no_timer() -> None:
    """Python runs a handler some time after its signal; at its end it has none, and the next signal would kill."""
    lost_interrupts.stop_looking()
    lost_interrupts._interrupt._look(signal.SIGALRM, None)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_one_that_is_lost_twice_is_raised_once_more() -> None:
    """As where two such callbacks follow each other."""
    done = run("signal.raise_signal(signal.SIGINT)", drops="Dropped(); Waits()")
    assert (done.stdout, done.stderr, done.returncode) == ("caught\n", "", 0)


def test_other_exceptions_are_shown_as_ever() -> None:
    """They are faults."""
    done = run("1 / 0", drops="Dropped(); raise SystemExit(3)")
    assert "ZeroDivisionError" in done.stderr
    assert (done.stdout, done.returncode) == ("", 3)
