"""A Ctrl-C that comes where no exception gets out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from oci_cluster.system import lost_interrupts

BEGIN = (
    "import gc, io, os, signal, time\n"
    "from oci_cluster.system.lost_interrupts import forget, raise_at\n"
    "from oci_cluster.system.process import Signals\n"
    "raise_at(signal.SIGINT)\n"
    "class File(io.IOBase):\n"
    "    @property\n"
    "    def closed(self): {inside}\n"
    "class Dropped:\n"
    "    def __del__(self): {inside}\n"
    "try:\n"
    "    {drops}\n"
    "    time.sleep(60)\n"
    "except KeyboardInterrupt:\n"
    "    forget()\n"
    "    print('caught')\n"
)


def run(inside: str, drops: str = "Dropped()") -> subprocess.CompletedProcess[str]:
    """Run a program that drops an object whose destructor does something."""
    environ = {"PYTHONPATH": str(Path(lost_interrupts.__file__).parents[2])}
    program = [sys.executable, "-c", BEGIN.format(inside=inside, drops=drops)]
    return subprocess.run(program, env=environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    "drops", ["Dropped()", "file = File(); file.own = file; del file; gc.collect()"], ids=["destructor", "collector"]
)
def test_the_next_signal_raises_it_where_it_can_be_caught(drops: str) -> None:
    """The garbage collector asks a file that it takes away whether it is closed; nobody hears of what that raises."""
    done = run("signal.raise_signal(signal.SIGINT)", drops=f"{drops}; signal.raise_signal(signal.SIGINT)")
    assert (done.stdout, done.returncode) == ("caught\n", 0)


def test_one_that_was_lost_just_before_signals_are_noted_is_raised_there() -> None:
    """What is begun next would not be ended by it."""
    drops = "Dropped(); Signals(); print('begun')"
    done = run("signal.raise_signal(signal.SIGINT)", drops=drops)
    assert (done.stdout, done.returncode) == ("caught\n", 0)


@pytest.mark.parametrize("way_out", ["finally", "except BaseException"])
def test_what_ends_for_it_is_not_cut_short(way_out: str) -> None:
    """Neither by itself nor by a second signal, whatever else fails there."""
    program = (
        f"import signal, time\n"
        f"from oci_cluster.system.lost_interrupts import forget, raise_at\n"
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
        f"    forget()\n"
        f"    print('caught')\n"
    )
    program = program.replace("        raise\n", "") if way_out == "finally" else program
    environ = {"PYTHONPATH": str(Path(lost_interrupts.__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ended False\ncaught\n", "", 0)
