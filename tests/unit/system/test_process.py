"""Child processes: real ones, each of which ends in milliseconds or is ended by the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from oci_cluster.system import process as module
from oci_cluster.system.process import Children, Signals, describe, exit_code, kill_group, sweep_marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="parent-death signals and subreapers are Linux's")


@pytest.fixture
def children() -> Iterator[Children]:
    """Return the children of this process, none of which outlives the test."""
    children = Children()
    yield children
    children.sweep(time.sleep)
    module._prctl(module._PR_SET_CHILD_SUBREAPER, 0)


def start(children: Children, script: str, cwd: Path) -> int:
    """Start a bash script."""
    return children.start(["bash", "-c", script], environ=dict(os.environ), cwd=cwd)


def wait_for(path: Path) -> str:
    """Return the content of *path* as soon as it has any."""
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline, path
        time.sleep(0.005)
    return path.read_text()


def code_of(children: Children, pid: int) -> int:
    """Return the code of *pid*, waiting for its end."""
    deadline = time.monotonic() + 120
    while (code := children.code(pid)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return code


def is_alive(pid: int) -> bool:
    """Return whether *pid* runs: a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)])
def test_exit_codes_are_the_shells(children: Children, tmp_path: Path, script: str, code: int) -> None:
    """A signal's death is 128 + its number, as in every shell."""
    assert code_of(children, start(children, script, tmp_path)) == code


def test_running_child_has_no_code(children: Children, tmp_path: Path) -> None:
    """None is not an exit code."""
    assert children.code(start(children, "sleep 100", tmp_path)) is None


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel does not tell")
def test_a_child_moves_while_it_reads_or_writes(children: Children, tmp_path: Path) -> None:
    """What only waits does not."""
    os.mkfifo(tmp_path / "pipe")
    script = f"echo >{tmp_path}/begun; while read -r line; do echo $line >>{tmp_path}/read; done"
    command = ["bash", "-c", f"exec <>{tmp_path}/pipe; {script}"]
    pid = children.start(command, environ=dict(os.environ), cwd=tmp_path)
    wait_for(tmp_path / "begun")
    deadline, before = time.monotonic() + 20, ""
    while before != (before := children.moved(pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "rchar" in before
    (tmp_path / "pipe").write_text("one\n")
    wait_for(tmp_path / "read")
    assert children.moved(pid) != before
    children.end(pid, 1, wait=time.sleep, clock=time.monotonic)
    assert children.moved(pid) == ""


def test_child_leads_a_process_group_of_its_own(children: Children, tmp_path: Path) -> None:
    """So that its whole group can be ended, and a terminal's Ctrl-C passes it by."""
    pid = start(children, "sleep 100", tmp_path)
    assert os.getpgid(pid) == pid
    assert os.getsid(pid) == os.getsid(0)


def test_program_that_is_not_there_is_an_error(children: Children, tmp_path: Path) -> None:
    """No child, no pid."""
    with pytest.raises(FileNotFoundError):
        children.start(["/nope"], environ={}, cwd=tmp_path)


def test_end_gives_the_leader_time_to_end_its_parts(children: Children, tmp_path: Path) -> None:
    """TERM goes to the leader alone; what it ends with is what counts."""
    script = f"trap 'kill $part; wait $part; exit 9' TERM; sleep 100 & part=$!; echo $part >{tmp_path}/part; wait"
    pid = start(children, script, tmp_path)
    part = int(wait_for(tmp_path / "part"))
    assert children.end(pid, 10, wait=time.sleep, clock=time.monotonic) == 9
    assert not is_alive(part)


def test_end_kills_the_group_of_a_leader_that_does_not_listen(children: Children, tmp_path: Path) -> None:
    """After the grace period nothing is asked any more."""
    pid = start(children, f"trap '' TERM; sleep 100 & echo $! >{tmp_path}/part; wait; wait", tmp_path)
    part = int(wait_for(tmp_path / "part"))
    assert children.end(pid, 0.1, wait=time.sleep, clock=time.monotonic) == 137
    assert not is_alive(part)


def test_end_of_an_ended_child_returns_its_code_and_sweeps_its_group(children: Children, tmp_path: Path) -> None:
    """A start script that left something behind is tidied up after."""
    pid = start(children, f"sleep 100 & echo $! >{tmp_path}/part; exit 3", tmp_path)
    assert code_of(children, pid) == 3
    part = int(wait_for(tmp_path / "part"))
    assert is_alive(part)
    assert children.end(pid, 10, wait=time.sleep, clock=time.monotonic) == 3
    assert not is_alive(part)


def test_what_left_group_and_session_is_adopted_and_swept(children: Children, tmp_path: Path) -> None:
    """A daemon's double fork does not escape: orphans become children of this process."""
    pid = start(children, f"setsid sleep 100 & echo $! >{tmp_path}/part; exit 0", tmp_path)
    code_of(children, pid)
    part = int(wait_for(tmp_path / "part"))
    children.sweep(time.sleep)
    assert not is_alive(part)
    assert not children.reap()


def test_orphans_do_not_stay_zombies(children: Children, tmp_path: Path) -> None:
    """Adopted children are reaped as they end."""
    pid = start(children, f"(sleep 0.05; echo >{tmp_path}/late) & echo $! >{tmp_path}/part; exit 0", tmp_path)
    code_of(children, pid)
    part = int(wait_for(tmp_path / "part"))
    wait_for(tmp_path / "late")
    assert code_of(children, part) == 0
    assert not Path(f"/proc/{part}").exists()


def test_child_dies_with_its_parent(tmp_path: Path) -> None:
    """kill -9 of the parent: the kernel kills the child."""
    code = (
        "import os, pathlib, signal, sys, time\n"
        "from oci_cluster.system.process import Children\n"
        "script = 'echo $$ >pid; exec sleep 100'\n"
        "Children().start(['bash', '-c', script], environ=dict(os.environ), cwd=pathlib.Path.cwd())\n"
        "time.sleep(100)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "common")}
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environ)
    child = int(wait_for(tmp_path / "pid"))
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_alive(child)


def test_child_inherits_no_file(children: Children, tmp_path: Path) -> None:
    """A lock of ours stays with us."""
    with (tmp_path / "kept").open("w") as kept:
        pid = children.start(
            ["bash", "-c", f"ls -l /proc/self/fd >{tmp_path}/fds; echo >{tmp_path}/done"],
            environ=dict(os.environ),
            cwd=tmp_path,
        )
        code_of(children, pid)
        assert str(tmp_path / "kept") not in (tmp_path / "fds").read_text()
        assert not kept.closed


def test_output_and_errors_go_where_they_are_sent(children: Children, tmp_path: Path) -> None:
    """Together, unless errors have a place of their own: a script's facts are not mixed with its talk."""
    paths = [tmp_path / name for name in ("both", "output", "errors")]
    both, output, errors = [os.open(path, os.O_WRONLY | os.O_CREAT) for path in paths]
    script = ["bash", "-c", "echo out; echo err >&2"]
    pids = [
        children.start(script, environ=dict(os.environ), cwd=tmp_path, output=both),
        children.start(script, environ=dict(os.environ), cwd=tmp_path, output=output, errors=errors),
    ]
    for descriptor in (both, output, errors):
        os.close(descriptor)
    assert [code_of(children, pid) for pid in pids] == [0, 0]
    assert [path.read_text() for path in paths] == ["out\nerr\n", "out\n", "err\n"]


def test_sweep_by_mark_finds_what_has_no_environment_any_more(tmp_path: Path) -> None:
    """By who has started it: some programs write a title over theirs."""
    mark = {"LAUNCH_ID": uuid.uuid4().hex}
    said = tmp_path / "said"
    hidden = f"env -i sleep 1000 & echo $! >{said}.new; mv {said}.new {said}; wait"
    with subprocess.Popen(["bash", "-c", hidden], env={**os.environ, **mark}) as process:
        pid = int(wait_for(said))
        while sweep_marked(mark):
            time.sleep(0.01)
        assert process.wait(60) == -signal.SIGKILL
    deadline = time.monotonic() + 60
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.005)


TRACKED = """
import multiprocessing, os, time
locks = [multiprocessing.get_context("spawn").Lock() for _ in range(3)]
print(" ".join(lock._semlock.name for lock in locks), flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("how", ["as children", "by mark"])
def test_what_is_swept_leaves_no_semaphores(
    children: Children, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own tracker removes them, when it is the last one that is left."""
    monkeypatch.setattr(module, "_TRACKERS_TIME_S", 60.0)  # on a busy machine
    mark = {"LAUNCH_ID": uuid.uuid4().hex}
    said = tmp_path / "said"
    with said.open("wb") as output:
        pid = children.start(
            [sys.executable, "-c", TRACKED], environ={**os.environ, **mark}, cwd=tmp_path, output=output.fileno()
        )
    files = [Path("/dev/shm", f"sem.{name.lstrip('/')}") for name in wait_for(said).split()]
    assert all(file.exists() for file in files)
    if how == "by mark":
        while sweep_marked(mark):
            pass
    else:
        os.kill(pid, signal.SIGKILL)
        children.sweep(time.sleep)
    assert not any(file.exists() for file in files)


def test_sweep_by_mark_finds_processes_without_any_tie(tmp_path: Path) -> None:
    """The launch id in the environment is enough; a process that lacks one mark of several is not touched."""
    mark = {"LAUNCH_ID": f"test-{os.getpid()}"}
    marked = subprocess.Popen(["sleep", "100"], env={**os.environ, **mark, "NODE_NAME": "A"}, start_new_session=True)
    other = subprocess.Popen(["sleep", "100"], env={**os.environ, **mark, "NODE_NAME": "B"}, start_new_session=True)
    try:
        assert sweep_marked({**mark, "NODE_NAME": "A"}, spared=marked.pid) == 0
        assert marked.poll() is None
        assert sweep_marked({**mark, "NODE_NAME": "A"}) == 1
        assert marked.wait(10) == -signal.SIGKILL
        assert other.poll() is None
        assert sweep_marked(mark) == 1
        assert other.wait(10) == -signal.SIGKILL
        assert sweep_marked(mark) == 0
    finally:
        for process in (marked, other):
            process.kill()
            process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@pytest.mark.parametrize(
    ("memory", "end", "environ"),
    [("4096", "0", b"A=1\0"), ("4096", "140737", b""), ("0", "0", b"")],
    ids=["is given its program", "has no environment", "is the kernel's, or over"],
)
def test_the_environment_of_a_process_that_is_given_its_program_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str, end: str, environ: bytes
) -> None:
    """For a moment it has none: whoever swept then would leave it behind. Nobody else is waited for."""
    fields = ["S", *["1"] * 19, memory, *["1"] * 27, end, "0"]
    (tmp_path / "stat").write_text(f"7 (a) b) {' '.join(fields)}\n")
    (tmp_path / "environ").touch()
    monkeypatch.setattr(module.time, "sleep", lambda _: (tmp_path / "environ").write_bytes(b"A=1\0"))
    assert module._environ_of(tmp_path, time.monotonic() + 60) == environ


def test_killing_a_group_that_is_gone_is_no_error(children: Children, tmp_path: Path) -> None:
    """None left is as good as killed."""
    pid = start(children, "exit 0", tmp_path)
    code_of(children, pid)
    kill_group(pid)


def test_signals_are_noted_and_end_a_wait() -> None:
    """In a process of its own: the first signal is remembered, and no wait is slept out."""
    code = (
        "import json, os, signal, time\n"
        "from oci_cluster.system.process import Signals\n"
        "signals = Signals()\n"
        "started = time.monotonic()\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "signals.wait(100)\n"  # USR1 wakes, and is not noted: nobody is told to end by it
        "assert signals.received is None\n"
        "if os.fork() == 0:\n"
        "    os.kill(os.getppid(), signal.SIGTERM); os._exit(0)\n"
        "while signals.received is None: signals.wait(100)\n"
        "first = signals.received\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "signals.wait(100)\n"
        "if os.fork() == 0: os._exit(0)\n"
        "signals.wait(100)\n"  # SIGCHLD of the second child, if not of the first
        "signals.wait(-1)\n"
        "print(json.dumps([first, signals.received, time.monotonic() - started]))\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "common")}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    first, received, took_s = json.loads(done.stdout)
    assert (first, received) == (signal.SIGTERM, signal.SIGTERM)
    assert took_s < 50


@pytest.mark.parametrize(("children", "woken"), [(True, True), (False, False)])
def test_the_end_of_a_child_ends_a_wait_if_wanted(*, children: bool, woken: bool) -> None:
    """Who starts programs to look at something would otherwise never wait between two looks."""
    code = (
        "import os, select, sys\n"
        "from oci_cluster.system.process import Signals\n"
        f"signals = Signals(children={children})\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(bool(select.select([signals._reader], [], [], 0)[0]))\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "common")}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == f"{woken}\n"


@pytest.fixture
def signals() -> Iterator[Signals]:
    """Return what notes the signals of this process."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield Signals()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)


def test_signals_object_takes_over_handlers_in_this_process(signals: Signals) -> None:
    """TERM, INT and HUP do not raise; they are asked for."""
    signal.raise_signal(signal.SIGHUP)
    signals.wait(100)
    assert signals.received == signal.SIGHUP


def test_what_a_script_passes_on_late_is_no_second_ctrl_c(signals: Signals) -> None:
    """Each comes from the terminal, and as TERM, from the script, in any order; what else is sent counts."""
    noted = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGINT, signal.SIGTERM):
        signal.raise_signal(number)
        noted.append(signals.received)
        signals.received = None
    assert noted == [signal.SIGINT, None, signal.SIGTERM, None, signal.SIGINT, None]


@pytest.mark.parametrize(
    ("code", "text"), [(0, "exit code 0"), (7, "exit code 7"), (137, "killed by SIGKILL"), (255, "exit code 255")]
)
def test_codes_in_words(code: int, text: str) -> None:
    """What a person reads."""
    assert describe(code) == text


def test_wait_status_of_a_signal() -> None:
    """The kernel's word, in the shell's."""
    assert exit_code(signal.SIGKILL) == 137
    assert exit_code(7 << 8) == 7


@pytest.mark.parametrize(
    ("number", "outlives", "received"),
    [(signal.SIGHUP, True, "None"), (signal.SIGTERM, True, "15"), (signal.SIGHUP, False, "1")],
)
def test_under_nohup_the_end_of_the_terminal_is_no_signal_for_a_launcher(
    number: int, received: str, *, outlives: bool
) -> None:
    """As the shell of somebody who goes home starts it; what else ends a process does so there, too."""
    script = (
        "import os, sys\nfrom oci_cluster.system.process import Signals\n"
        f"signals = Signals(outlives_terminal={outlives})\n"
        f"os.kill(os.getpid(), {int(number)})\nsignals.wait(0)\nprint(signals.received)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "common")}
    command = ["nohup", sys.executable, "-c", script]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == received
