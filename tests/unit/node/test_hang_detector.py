"""Whether all stands still: real processes, whose CPU a false /proc tells, and stacks that real Pythons write."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unit.fake_cluster import MakeNode, Node, all_train

from oci_cluster.contract.names import STOP
from oci_cluster.node.hang_detector import SIGNAL, Standstill, ask_all, waits_in
from oci_cluster.system.process import kill_group

pytestmark = pytest.mark.usefixtures("empty_memory")

ROOT = Path(__file__).parents[3]
TICKS = os.sysconf("SC_CLK_TCK")


class Machine:
    """Processes of this node, as /proc has them, and a clock."""

    def __init__(self, folder: Path) -> None:
        self.now = self.printed = 0.0
        self.proc = folder / "proc"
        self.node_dir = folder / "node"
        self.node_dir.mkdir()
        self._children: dict[int, list[int]] = {}
        self.start(os.getpid(), 0)
        self.start(10, os.getpid())
        self.watch = Standstill(
            60, self.node_dir, [], printed_at=lambda: self.printed, clock=lambda: self.now, proc=self.proc
        )

    def start(self, pid: int, parent: int) -> None:
        (self.proc / str(pid) / "task" / str(pid)).mkdir(parents=True)
        self._children[pid] = []
        self._children.setdefault(parent, []).append(pid)
        self.uses(pid, 0.0)
        for known in {pid, parent} - {0}:
            file = self.proc / str(known) / "task" / str(known) / "children"
            file.write_text(" ".join(map(str, self._children[known])))

    def uses(self, pid: int, seconds: float, thread: float = 0.0) -> None:
        """Have it have used so much CPU until now."""
        for place, used in ((self.proc / str(pid), seconds), (self.proc / str(pid) / "task" / str(pid), thread)):
            ticks = int(used * TICKS)
            (place / "stat").write_text(f"{pid} (a (b) c) S {' '.join(['1'] * 10)} {ticks} 0 0 0 20 0")

    def told_at(self, *moments: float) -> list[object]:
        """Return for how many seconds all stands still, as heartbeats at these moments tell."""
        told = []
        for self.now in moments:
            told.append(self.watch.told().get("still_s"))
        return told


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def beats(start: float, end: float) -> list[float]:
    return [start + 5.0 * number for number in range(int((end - start) / 5))]


def test_what_neither_prints_nor_computes_stands_still(machine: Machine) -> None:
    """From the first look at its processes on; where they wait is asked first, and told with the next heartbeat."""
    assert machine.told_at(*beats(5, 70)) == [None] * 13
    assert machine.told_at(70, 75, 80) == [None, 65, 70]


def test_a_line_ends_a_standstill(machine: Machine) -> None:
    machine.told_at(*beats(5, 80))
    machine.printed = 78.0
    assert machine.told_at(*beats(80, 145)) == [None] * 13
    assert machine.told_at(145, 150, 155)[-1] is not None


def test_a_process_that_computes_does_not_stand_still(machine: Machine) -> None:
    """A long computation, in a thread or in a child that is no Python."""
    for moment in beats(5, 300):
        machine.uses(10, moment * 0.9)
        assert machine.told_at(moment) == [None]


def test_services_that_only_beat_stand_still(machine: Machine) -> None:
    """Ray's and Dask's take some hundredths of a CPU, in their main thread, too."""
    told = []
    for moment in beats(5, 90):
        machine.uses(10, moment * 0.05, thread=moment * 0.05)
        told += machine.told_at(moment)
    assert told[-1] is not None


@pytest.mark.parametrize(("share", "is_still"), [(0.002, True), (0.02, False)])
def test_the_main_thread_of_a_script_counts_for_more(machine: Machine, share: float, *, is_still: bool) -> None:
    """A download takes little CPU: it is in the entry point's own thread; Horovod's own thread is another."""
    (machine.node_dir / "stack-10").write_text("\n")
    told = []
    for moment in beats(5, 90):
        machine.uses(10, moment * 0.05, thread=moment * share)
        told += machine.told_at(moment)
    assert (told[-1] is not None) is is_still


def test_what_has_begun_meanwhile_may_compute(machine: Machine) -> None:
    """It was not there at the first look."""
    machine.told_at(*beats(5, 40))
    machine.start(11, 10)
    machine.uses(11, 20)
    assert machine.told_at(*beats(40, 90)) == [None] * 10


def test_processes_that_end_are_no_work(machine: Machine) -> None:
    machine.start(11, 10)
    machine.told_at(*beats(5, 40))
    shutil.rmtree(machine.proc / "11")
    assert machine.told_at(*beats(40, 90))[-1] is not None


# --- Where Python waits ---------------------------------------------------------------------------------------------

STACK = """Thread 0x01 (most recent call first):
  File "/lib/threading.py", line 5 in wait
  File "/code/other.py", line 1 in main

Current thread 0x02 (most recent call first):
  File "/env/torch/c10d.py", line 99 in _store
  File "/env/torch/c10d.py", line 88 in init_process_group
  File "/env/torch/logger.py", line 77 in wrapper
  File "/code/train.py", line 10 in main
  File "/code/train.py", line 20 in <module>
"""


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (STACK, "waits in init_process_group (train.py:10)"),
        (STACK.replace("/code/train.py", "/lib/x.py"), "waits in _store (c10d.py:99)"),
        ('Current thread 0x02 (most recent call first):\n  File "/code/a.py", line 3 in go\n', "waits in go (a.py:3)"),
        ("", ""),
        ("0\nnot a stack\n", ""),
    ],
)
def test_the_main_thread_and_the_users_line_are_told(stack: str, expected: str) -> None:
    """And what that has called, but for wrappers."""
    assert waits_in(stack, [Path("/code")]) == expected


def test_a_line_of_the_users_that_waits_itself_is_shown(tmp_path: Path) -> None:
    """A function of C has no frame."""
    (tmp_path / "a.py").write_text("import time\n\ntime.sleep(600)\n")
    stack = f'Current thread 0x1 (most recent call first):\n  File "{tmp_path}/a.py", line 3 in <module>\n'
    assert waits_in(stack, [tmp_path]) == "waits in time.sleep(600) (a.py:3)"


def test_a_pipe_in_the_codes_place_is_not_waited_for(tmp_path: Path) -> None:
    """The agent has more to do."""
    os.mkfifo(tmp_path / "a.py")
    stack = f'Current thread 0x1 (most recent call first):\n  File "{tmp_path}/a.py", line 3 in go\n'
    assert waits_in(stack, [tmp_path]) == "waits in go (a.py:3)"


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts an entry point, and returns when it says that it is up."""
    started = []

    def start(code: str, program: str = sys.executable, **environ: str) -> subprocess.Popen[str]:
        (tmp_path / "train.py").write_text(code)
        node_dir = tmp_path / "node"
        node_dir.mkdir(exist_ok=True)
        path = f"{ROOT}/common/entry:{ROOT}/dask/entry"
        own = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "NODE_DIR": str(node_dir), "ENTRY_PID": "1", **environ}
        command = [program, str(tmp_path / "train.py")]
        # A group of its own: some of them start others.
        process = subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True, start_new_session=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        return process

    yield start
    for process in started:
        kill_group(process.pid)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def told_of(folder: Path, looks: int = 20_000) -> dict[str, object]:
    """Return what is told in the end of the real processes of this test, which all wait; half a millisecond a look."""
    moment = iter([0.0, *(5.0 * number for number in range(1, 16))])
    now = [0.0]
    watch = Standstill(60, folder / "node", [folder], printed_at=lambda: 0.0, clock=lambda: now[0])
    for now[0] in moment:
        told = watch.told()
    for now[0] in (now[0] + 0.001 * number for number in range(looks)):
        if (told := watch.told()).get("waits"):
            break
    return dict(told)


WAITS = "import threading\nprint('up', flush=True)\nthreading.Event().wait()\n"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, "waits in wait (train.py:3)"),
        ({"RANK": "2"}, "rank 2 waits in wait (train.py:3)"),
        ({"ENTRY_RANK": "1"}, "rank 1 waits in wait (train.py:3)"),
    ],
)
def test_a_python_that_waits_says_where(start: Start, tmp_path: Path, environ: dict[str, str], expected: str) -> None:
    """It goes on, and leaves no file when it ends."""
    process = start(WAITS + "print('over', flush=True)\n", **environ)
    deadline = time.monotonic() + 60
    while (waits := told_of(tmp_path)["waits"]) != [expected] and time.monotonic() < deadline:
        pass  # it has said that it is up, and does not wait yet
    assert waits == [expected]
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.wait()
    assert list((tmp_path / "node").glob("stack-*")) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(
    "code",
    [
        # It has become another program, which knows nothing of the signal.
        "import os\nprint('up', flush=True)\nos.execvp('sleep', ['sleep', '600'])\n",
        # Its copy has a handler and no file; and one that handles the signal in its own way goes on.
        "import os, time\nif os.fork() == 0: time.sleep(600)\nprint('up', flush=True)\nos.wait()\n",
        "import subprocess\nprint('up', flush=True)\nsubprocess.run(['sleep', '600'])\n",
    ],
    ids=["exec", "fork", "child"],
)
def test_nobody_dies_of_the_signal(start: Start, tmp_path: Path, code: str) -> None:
    process = start(code)
    # Who stands still has done so for a minute: here it may be on its way.
    deadline = time.monotonic() + 60
    while "exec" in code and Path(f"/proc/{process.pid}/comm").read_text() != "sleep\n":
        assert time.monotonic() < deadline
    told_of(tmp_path, looks=1000)  # nobody answers, and who dies of a signal does so at once
    assert process.poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_file_that_somebody_else_has_left_signals_nobody(start: Start, tmp_path: Path) -> None:
    """A number may have become another process's: a shell, say, which is none of the entry point's Pythons."""
    process = start("sleep 600 &\necho up\nwait\n", program="bash")
    (tmp_path / "node" / f"stack-{process.pid}").write_text("\n")
    (tmp_path / "node" / "stack-x").write_text("\n")
    told_of(tmp_path, looks=1000)
    assert process.poll() is None


def test_the_signal_is_the_one_of_the_entry_points_python() -> None:
    assert f"_STACK_SIGNAL = {SIGNAL}\n" in (ROOT / "common" / "entry" / "sitecustomize.py").read_text()


# --- What main says -------------------------------------------------------------------------------------------------


def still(seconds: int, *waits: str) -> dict[str, object]:
    return {"still_s": seconds, "waits": list(waits)}


def test_all_nodes_are_named_and_where_they_wait() -> None:
    told = {
        "WORKER_1_heartbeat.json": still(70, "rank 1 waits in init (a.py:1)"),
        "WORKER_2_heartbeat.json": still(65, "rank 2 waits in all_reduce (a.py:2)\x1b", "waits in get (a.py:3)"),
    }
    text = ask_all(still(80, "rank 0 waits in init (a.py:1)"), ["WORKER_1", "WORKER_2"], told.get)
    assert text == (
        "nothing printed and nothing computed for 65 s: MAIN rank 0 waits in init (a.py:1), WORKER_1 rank 1 the same,"
        " WORKER_2 rank 2 waits in all_reduce (a.py:2), WORKER_2 waits in get (a.py:3); --ttl limits this"
    )


def test_many_are_counted() -> None:
    waits = [f"rank {number} waits in f (a.py:{number})" for number in range(12)]
    assert "rank 7 waits in f (a.py:7), and 4 more; --ttl" in ask_all(still(80, *waits), [], {}.get)


@pytest.mark.parametrize("other", [None, {}, {"still_s": "61"}, {"phase": "running"}])
def test_a_node_that_does_not_stand_still_is_enough(other: dict[str, object] | None) -> None:
    """It computes, has ended, or says what is no number."""
    assert ask_all(still(80), ["WORKER_1"], lambda _: other) == ""


@pytest.mark.parametrize("waits", [7, "rank 1", None, [7, None], {"a": 1}])
def test_where_a_node_waits_may_be_told_in_another_shape(waits: object) -> None:
    """By a node of another version: that is no bug of main's, which ends the cluster."""
    told = {"still_s": 70, "waits": waits}
    assert ask_all(still(80), ["WORKER_1"], lambda _: told).startswith("nothing printed and nothing computed for 70 s")


def test_more_nodes_than_can_be_asked_are_not() -> None:
    asked: list[str] = []
    assert ask_all(still(80), [f"WORKER_{rank}" for rank in range(1, 66)], asked.append) == ""
    assert asked == []


def stands_still(main: Node, since: float) -> None:
    main.world.at(since, lambda: setattr(main.agent._script, "standstill", still(60, "waits in f (a.py:1)")))


def test_main_says_it_once(make: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    main = all_train(make)
    for node in ("WORKER_1", "WORKER_2"):
        main.ended_well[node] = still(61)
    main.agent._script.told = dict
    stands_still(main, 100)
    main.child_ends(0, at=1000)
    assert main.run() == 0
    told = [text for text in caplog.messages if "nothing printed" in text]
    assert told == [
        "nothing printed and nothing computed for 60 s: MAIN waits in f (a.py:1); --ttl limits this",
    ]
    assert main.read(STOP)["exit_code"] == 0


def test_main_asks_less_and_less_often_where_others_compute(make: MakeNode, caplog: pytest.LogCaptureFixture) -> None:
    """Dask's main waits for an hour for what its workers compute."""

    def looks_at_worker(*, is_still: bool) -> int:
        main = all_train(make)
        main.agent._script.told = dict
        if is_still:
            stands_still(main, 100)
        requests = main.requests()
        main.child_ends(0, at=3700)
        assert main.run() == 0
        return requests.count("WORKER_1_heartbeat.json")

    without = looks_at_worker(is_still=False)
    assert 10 < looks_at_worker(is_still=True) - without < 25
    assert not any("nothing printed" in text for text in caplog.messages)
