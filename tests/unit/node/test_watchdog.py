"""An agent whose storage does not answer any more: a real one, of whose work dir every call waits for ever."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import wait_until

from oci_cluster.node.watchdog import REMOTE_S, NodeSignals
from oci_cluster.system.process import Signals

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="children of an agent that is gone end on Linux alone")

ROOT = Path(__file__).parents[3]
GRACE_S, TTL_S = 5, 8
# Arguments: the folder with the framework, and a file: when it is there, no call returns.
AGENT = """
import os, signal, sys, threading, time
from pathlib import Path
from oci_cluster.node import outputs, start
from oci_cluster.contract.settings.node import read_settings
from oci_cluster.system.files import LocalFiles

def held_up(call):
    def held_up_call(*arguments, **options):
        while os.path.exists(sys.argv[2]):
            if os.environ.get("INTERRUPTS_NO_CALL"):
                # As where TERM comes just before the call: Python has noted it, and the call is not interrupted.
                threading.Thread(target=time.sleep, args=[1000], daemon=True).start()
                signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            open(sys.argv[2], "rb").read()  # a pipe, to which nobody writes
        return call(*arguments, **options)
    return held_up_call

for name in ("makedirs", "make_folders", "pipe_file", "cat_file", "info", "ls", "put_file", "rm_file"):
    setattr(LocalFiles, name, held_up(getattr(LocalFiles, name)))
# Where there are uploads, no upload ends.
outputs.REMOTE_S = 0
outputs.Uploads._start = lambda self, _: self._children.start(["sleep", "1000"], environ=os.environ, cwd=Path("/"))
start.read_settings = lambda environ: read_settings(environ, Path(sys.argv[1]))
code = start.run_agent(os.environ)
signal.signal(signal.SIGALRM, signal.SIG_IGN)  # as `python -m oci_cluster` does: Python's own end may outlast a tick
sys.exit(code)
"""
TRAIN = """
import os, time
open(os.environ["OUTPUT_DIR"] + "/model", "w").close()
open("up", "w").close()
time.sleep(1000)
"""
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return what starts a main whose entry point runs; ``held-up`` holds its storage up."""
    (tmp_path / "common").symlink_to(ROOT / "common")
    shutil.copytree(ROOT / "tests" / "clusters" / "plain", tmp_path / "plain")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(TRAIN)
    (tmp_path / "tmp").mkdir()
    (tmp_path / "work").mkdir()
    started: list[subprocess.Popen[bytes]] = []

    def start(**environ: str) -> subprocess.Popen[bytes]:
        told = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "common"),
            "TMPDIR": str(tmp_path / "tmp"),
            "MODE": "MAIN",
            "WORKER_COUNT": "0",
            "MIN_WORKERS": "0",
            "FRAMEWORK": "plain",
            "CLUSTER_ID": "c",
            "LAUNCH_ID": "1f2e3d4c",
            "LAUNCH_KEY": "k" * 32,
            "WORK_DIR": f"file://{tmp_path}/work",
            "CODE_DIR": str(tmp_path / "code"),
            "ENTRY_POINT": "train.py",
            "NODE_ADDRESS": "127.0.0.1",
            "GRACE_PERIOD": str(GRACE_S),
            "HEARTBEAT_INTERVAL": "1",
            "POLL_CEILING": "1",
            **environ,
        }
        command = [sys.executable, "-c", AGENT, str(tmp_path), str(tmp_path / "held-up")]
        with (tmp_path / "log").open("wb") as output:
            process = subprocess.Popen(command, env=told, stdout=output, stderr=output)
        started.append(process)
        up, log = tmp_path / "code" / "up", tmp_path / "log"
        wait_until(lambda: up.exists() or process.poll() is not None, "the entry point")
        assert process.poll() is None, log.read_text()
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def hold_up(folder: Path) -> None:
    """Return when the agent waits in a call."""
    os.mkfifo(folder / "held-up")
    # Who opens a pipe to write succeeds when another one reads.
    descriptor = wait_until(lambda: _opened(folder / "held-up"), "a call that is held up")
    assert isinstance(descriptor, int)


def _opened(path: Path) -> int | None:
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("told", [{}, {"INTERRUPTS_NO_CALL": "1"}], ids=["in the call", "just before it"])
def test_term_ends_a_node_that_its_storage_holds_up(start: Start, tmp_path: Path, told: dict[str, str]) -> None:
    """Within its grace; with its script, and a word of why."""
    agent = start(**told)
    hold_up(tmp_path)
    began = time.monotonic()
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(60) == 143
    assert time.monotonic() - began < REMOTE_S  # which it is for storage of others
    held_up = re.search(
        r"ending with 143: storage has held up this node's end for (\d+) s", (tmp_path / "log").read_text()
    )
    assert held_up
    assert int(held_up[1]) >= GRACE_S  # a machine may be busy


@pytest.mark.slow
def test_the_ttl_ends_a_node_that_its_storage_holds_up(start: Start, tmp_path: Path) -> None:
    agent = start(TTL=f"{TTL_S}s")
    hold_up(tmp_path)
    assert agent.wait(60) == 75
    assert "ending with 75: storage has held up this node's end" in (tmp_path / "log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("ttl", "code"), [("0", 143), (f"{TTL_S}s", 75)])
def test_an_upload_without_an_end_holds_up_no_node_that_has_to_end(
    start: Start, tmp_path: Path, ttl: str, code: int
) -> None:
    """Within its grace; the node says where its outputs are, and there they are."""
    agent = start(WORK_DIR="memory://work", TTL=ttl)
    if ttl == "0":
        agent.send_signal(signal.SIGTERM)
    assert agent.wait(60) == code
    printed = (tmp_path / "log").read_text()
    left = re.search(r"storage has taken nothing for \d+ s, .*; they are in (\S+) on that node", printed)
    assert left, printed
    assert (Path(left[1]) / "model").exists()
    assert "held up" not in printed


def test_ticks_of_the_time_before_cut_no_wait_short() -> None:
    """Storage that takes a second to answer would be asked without a pause; any other signal counts."""
    signals = NodeSignals(ttl_s=0, limit_s=5, end=lambda _: None)
    try:
        signal.raise_signal(signal.SIGALRM)
        began = time.monotonic()
        signals.wait(0.2)
        assert time.monotonic() - began >= 0.2
        signal.raise_signal(signal.SIGALRM)
        signal.raise_signal(signal.SIGCHLD)
        began = time.monotonic()
        signals.wait(60)
        assert time.monotonic() - began < 30
    finally:
        _reset_signals()


def test_a_wait_is_no_call_that_does_not_return(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long: no alarm comes in it; and what has come to a wait a moment ago goes on."""
    ends: list[int] = []
    signals = NodeSignals(ttl_s=0, limit_s=5, end=ends.append)
    in_wait: list[tuple[float, float]] = []
    monkeypatch.setattr(Signals, "wait", lambda *_: in_wait.append(signal.getitimer(signal.ITIMER_REAL)))
    try:
        signals._note(signal.SIGTERM, None)
        assert signal.getitimer(signal.ITIMER_REAL)[1] > 0
        signals._is_to_end_at -= 100
        signals._moved_at -= 100
        signals.wait(1000)
        assert in_wait == [(0, 0)]
        assert signal.getitimer(signal.ITIMER_REAL)[1] > 0
        signals._look(signal.SIGALRM, None)
        assert ends == []
        signals._moved_at -= 100
        signals._look(signal.SIGALRM, None)
        assert ends == [143]
    finally:
        _reset_signals()


def _reset_signals() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
    signal.set_wakeup_fd(-1)
