"""Copies of a process that go on as something else: in processes of their own, as pytest's may have threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

# What stands before each program: a fork of `call` whose output goes to a file, and its exit code.
PRELUDE = """
import json, os, signal, sys, time
from pathlib import Path
from oci_cluster.system.process import Children, Signals

signals, children = Signals(), Children()

def fork(call, keep=(), name="NODE_1", death=signal.SIGTERM):
    output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    pid = children.fork(call, name=name, cwd=Path("folder"), output=output, parent_death_signal=death, keep=keep)
    os.close(output)
    return pid

def code_of(pid):
    while (code := children.code(pid)) is None:
        signals.wait(1)
    return code
"""


def run(tmp_path: Path, program: str, timeout_s: float = 30) -> Any:
    """Return the JSON that *program* prints."""
    (tmp_path / "folder").mkdir(exist_ok=True)
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "common")}
    command = [sys.executable, "-c", PRELUDE + program]
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_a_copy_ends_with_what_its_call_returns(tmp_path: Path) -> None:
    """What it prints goes to its output alone, unbuffered or not; it is in its folder, under its name."""
    program = """
def call():
    print("to stdout", os.getcwd(), Path("/proc/self/comm").read_text().strip())
    sys.stderr.write("to stderr\\n")
    return 7
print(json.dumps(code_of(fork(call))))
"""
    assert run(tmp_path, program) == 7
    lines = (tmp_path / "output").read_text().splitlines()
    assert sorted(lines) == ["to stderr", f"to stdout {tmp_path}/folder NODE_1"]


def test_a_copy_never_goes_on_as_its_parent(tmp_path: Path) -> None:
    """Whatever its call raises: a traceback in its output, and the code of a bug."""
    program = """
def fail():
    raise SystemExit(0) if "exit" in names.pop() else ValueError("oh")
names = ["raise", "exit"]
codes = [code_of(fork(fail))]
names.pop()
codes.append(code_of(fork(fail)))
print(json.dumps(codes))
"""
    assert run(tmp_path, program) == [70, 70]
    assert "ValueError: oh" in (tmp_path / "output").read_text()


def test_a_copy_has_the_files_that_it_is_given(tmp_path: Path) -> None:
    """A lock that is handed on lives as long as the copy; anything else stays with the parent."""
    program = """
given, kept = open("given", "w"), open("kept", "w")
def call():
    files = {os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")
             if os.path.lexists(f"/proc/self/fd/{number}")}
    print(json.dumps(sorted(os.path.basename(file) for file in files)))
    return 0
print(json.dumps(code_of(fork(call, keep=[given.fileno()]))))
"""
    assert run(tmp_path, program) == 0
    assert json.loads((tmp_path / "output").read_text()) == ["given", "null", "output"]


def test_a_copy_obeys_signals_as_a_new_process_does(tmp_path: Path) -> None:
    """Its parent notes TERM; the copy dies of it, until it notes signals itself. It is in a session of its own."""
    program = """
def sleep():
    time.sleep(100)
    return 0
pid = fork(sleep)
session = os.getsid(pid)
while session != pid:
    session = os.getsid(pid)
os.kill(pid, signal.SIGTERM)
print(json.dumps([code_of(pid), signals.received]))
"""
    assert run(tmp_path, program) == [143, None]


def test_a_copy_dies_with_its_parent(tmp_path: Path) -> None:
    """kill -9 of the parent: the kernel sends the signal that was chosen."""
    program = """
def call():
    own = Signals()
    Path("pid").write_text(str(os.getpid()))
    while own.received is None:
        own.wait(60)
    Path("told").write_text(str(own.received))
    return 0
pid = fork(call)
while not Path("folder/pid").exists():
    signals.wait(0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "common")}
    (tmp_path / "folder").mkdir()
    subprocess.run([sys.executable, "-c", PRELUDE + program], cwd=tmp_path, env=environ, check=False, timeout=60)
    deadline = time.monotonic() + 120
    while not (tmp_path / "folder" / "told").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_children_are_ended_by_term_and_then_by_kill(tmp_path: Path) -> None:
    """All are told at once; one that does not obey is killed when the grace is over, and no sooner."""
    program = """
def deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path("deaf").touch()
    time.sleep(100)
    return 0
def obedient():
    time.sleep(100)
    return 0
pids = [fork(obedient), fork(deaf)]
while not Path("folder/deaf").exists():
    signals.wait(0.01)
began = time.monotonic()
children.end_all(pids, 0.3, wait=signals.wait)
codes = [code_of(pid) for pid in pids]
print(json.dumps([codes, time.monotonic() - began >= 0.3]))
"""
    assert run(tmp_path, program) == [[143, 137], True]
