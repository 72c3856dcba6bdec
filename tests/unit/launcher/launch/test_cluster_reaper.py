"""Guards, with real processes in the place of launchers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from harness import wait_until

from oci_cluster.errors import SettingsError
from oci_cluster.launcher.launch.cluster_reaper import Reaper

COMMON = Path(__file__).resolve().parents[4] / "common"
PATIENCE_S = 240.0  # nothing is measured; a busy machine takes its time
# A launcher that has a guard, which becomes STUB in the place of the verb that ends clusters.
LAUNCHER = """
import json, os, sys, time
from oci_cluster.launcher.launch import cluster_reaper
cluster_reaper.sys = type("", (), {"executable": os.environ["STUB"]})
os.dup2(1, 9)  # what a guard must not keep open
os.set_inheritable(9, True)
guarded = cluster_reaper.Reaper("local", "mine-1f2e3d4c", own=json.load(open("own.json")))
print(guarded._process.pid, flush=True)
if "FORKS" in os.environ and os.fork() == 0:  # a worker of the launcher's, which outlives it
    open("fork", "w").write(str(os.getpid()))
    os.closerange(0, 3), os.close(9)
    time.sleep(600)
guarded.dismiss() if sys.stdin.read(1) == "." else guarded.release()
sys.stdin.read()
"""
STUB = """#!/bin/sh
words="$*" given="$6"
set -- /proc/$$/fd/* # no pipe to another program, of which this shell has one end or both
printf '%s\\n' "$words" "$CLUSTER_CWD" "$*" >"$STUB.new"
[ -z "$given" ] || cat "/proc/self/fd/$given" >>"$STUB.new"
mv "$STUB.new" "$STUB.called"
"""


class Launcher:
    """One launcher with its guard."""

    def __init__(self, place: Path, own: dict[str, str]) -> None:
        self.stub = place / "stub"
        self.stub.write_text(STUB)
        self.stub.chmod(0o755)
        self.called = place / "stub.called"
        (place / "own.json").write_text(json.dumps(own))
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER],
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(COMMON), "STUB": str(self.stub)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.reaper = psutil.Process(int(self.process.stdout.readline()))


@pytest.fixture
def launcher(tmp_path: Path) -> Launcher:
    return Launcher(tmp_path, {})


def test_a_guard_ends_the_cluster_of_a_launcher_that_was_killed(launcher: Launcher, tmp_path: Path) -> None:
    """With the verb for it, where the launcher was; a KILL of the whole process group does not reach the guard."""
    os.killpg(launcher.process.pid, signal.SIGKILL)
    out, _ = launcher.process.communicate(timeout=PATIENCE_S)  # the guard keeps no pipe of the launcher's open
    gone, _ = psutil.wait_procs([launcher.reaper], timeout=PATIENCE_S)
    assert gone
    words, directory, files = launcher.called.read_text().splitlines()
    assert (out, words, directory) == (b"", "-m oci_cluster orphan local mine-1f2e3d4c  ", str(tmp_path))
    assert {Path(file).name for file in files.split()} <= {"0", "1", "2", "3", "10"}  # a shell's own


def test_a_fork_that_outlives_the_launcher_keeps_no_guard_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As workers of multiprocessing do."""
    monkeypatch.setenv("FORKS", "1")
    launcher = Launcher(tmp_path, {})
    fork = tmp_path / "fork"
    wait_until(lambda: fork.is_file() and fork.read_text(), "the fork")
    launcher.process.kill()
    gone, _ = psutil.wait_procs([launcher.reaper], timeout=30)
    os.kill(int(fork.read_text()), signal.SIGKILL)
    launcher.process.communicate()
    assert gone
    assert launcher.called.exists()


def test_a_guard_that_was_dismissed_does_nothing(launcher: Launcher) -> None:
    """Its launcher waits for its end."""
    launcher.process.communicate(b".", timeout=PATIENCE_S)
    assert (launcher.process.returncode, launcher.reaper.is_running(), launcher.called.exists()) == (0, False, False)


def test_a_guard_that_is_released_ends_the_cluster_while_its_launcher_lives(launcher: Launcher) -> None:
    assert launcher.process.stdin is not None
    launcher.process.stdin.write(b"r")
    launcher.process.stdin.flush()
    wait_until(launcher.called.exists, "the end of the cluster")
    assert launcher.process.poll() is None
    launcher.process.communicate()


def test_settings_are_handed_on_in_no_word_and_no_variable(tmp_path: Path) -> None:
    """They may be secrets: a guard has them where nobody else can look."""
    launcher = Launcher(tmp_path, {"kubernetes.token": "s3cret"})
    assert "s3cret" not in f"{launcher.reaper.cmdline()} {launcher.reaper.environ()}"
    launcher.process.kill()
    launcher.process.communicate(timeout=PATIENCE_S)
    psutil.wait_procs([launcher.reaper], timeout=PATIENCE_S)
    words, _, _, own = launcher.called.read_text().splitlines()
    assert (words.split()[:5], json.loads(own)) == (
        ["-m", "oci_cluster", "orphan", "local", "mine-1f2e3d4c"],
        {"kubernetes.token": "s3cret"},
    )


def test_more_settings_than_a_pipe_holds_are_refused() -> None:
    """Else the launcher would wait for a reader that is not there yet."""
    with pytest.raises(SettingsError, match=r"settings: they have 60\d+ bytes, 60000 at most"):
        Reaper("local", "mine-1f2e3d4c", own={"A": "x" * 60_000})
