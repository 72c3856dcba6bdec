"""A process that waits for the end of another one: real processes, which are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from oci_cluster.system.process_reaper import ProcessReaper

COMMON = str(Path(__file__).resolve().parents[3] / "common")
# What a guard does at the end: it leaves a file.
PROGRAM = """
import pathlib, sys
sys.path[0] = sys.argv[1]
from oci_cluster.system.process_reaper import wait
if wait():
    pathlib.Path(sys.argv[2]).touch()
"""
# Has a guard and a program in its group, says their pids, and waits to be killed.
OWNER = f"""
import os, sys, time
sys.path[0] = {COMMON!r}
from oci_cluster.system.process_reaper import ProcessReaper
guard = ProcessReaper({PROGRAM!r}, [{COMMON!r}, sys.argv[1]], os.environ)
print(guard.group, guard.start(["/bin/sleep", "1000"], os.environ, sys.argv[1] + ".err"), flush=True)
time.sleep(1000)
"""


def is_gone(pid: int) -> bool:
    """Return whether the process has ended; whether or not this one has adopted it, as tests before may have it do."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_in_its_group_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    """And what is left to do is done."""
    left = tmp_path / "left"
    with subprocess.Popen([sys.executable, "-c", OWNER, str(left)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        reaper, program = map(int, owner.stdout.readline().split())
        assert os.getpgid(program) == os.getpgid(reaper) == reaper
        assert not left.exists()
        owner.kill()
    until(lambda: is_gone(program))
    until(lambda: is_gone(reaper))
    assert left.exists()


def test_one_whose_work_is_not_done_does_it_at_once(tmp_path: Path) -> None:
    left = tmp_path / "left"
    reaper = ProcessReaper(PROGRAM, [COMMON, str(left)], os.environ)
    reaper.dismiss(is_done=False)
    until(left.exists)
    os.waitpid(reaper.group, 0)


def test_one_that_is_dismissed_does_nothing(tmp_path: Path) -> None:
    left = tmp_path / "left"
    reaper = ProcessReaper(PROGRAM, [COMMON, str(left)], os.environ)
    reaper.dismiss()
    reaper.dismiss()
    assert not psutil.pid_exists(reaper.group)
    assert not left.exists()


def test_one_that_somebody_has_killed_is_no_error(tmp_path: Path) -> None:
    reaper = ProcessReaper(PROGRAM, [COMMON, str(tmp_path / "left")], os.environ)
    os.kill(reaper.group, signal.SIGKILL)
    reaper.dismiss()
