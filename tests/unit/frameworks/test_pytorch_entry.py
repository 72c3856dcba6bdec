"""pytorch/entry/: how a rank ends. tests/clusters/test_pytorch.py has torch's own threads."""

from __future__ import annotations

import atexit
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENTRY = f"{ROOT}/common/entry:{ROOT}/pytorch/entry"
# What /proc/PID/task/TID/syscall says on amd64.
WAITS_FOR_WORK = "202 0x5594 0x189 0x0 0x0 0x0 0xffffffff 0x7ffc 0x7f79\n"
WAITS_FOR_PYTHON = "202 0x5594 0x189 0x0 0x7f12 0x0 0xffffffff 0x7ffc 0x7f79\n"
WAITS_FOR_A_MUTEX = "202 0x5594 0x80 0x2 0x0 0x0 0x0 0x7ffc 0x7f79\n"
SLEEPS = "230 0x1 0x0 0x7f12 0x0 0x0 0x0 0x7ffc 0x7f79\n"
Run = Callable[..., int]


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return on_import.py, in a process whose threads are folders of `tasks`; it registers nothing."""
    spec = importlib.util.spec_from_file_location("pytorch_on_import", ROOT / "pytorch" / "entry" / "on_import.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(atexit, "register", lambda function: None)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TASKS", str(tmp_path / "tasks"))
    (tmp_path / "tasks").mkdir()
    add_thread(tmp_path, "1", "python", "running\n")
    return module


def add_thread(path: Path, number: str, name: str, call: str) -> None:
    folder = path / "tasks" / number
    folder.mkdir(exist_ok=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "syscall").write_text(call)


def nothing(tick: int) -> None:
    """Nothing happens."""


def seconds_of(module: ModuleType, monkeypatch: pytest.MonkeyPatch, at: Callable[[int], None] = nothing) -> float:
    """Return how long *module* waits, where *at* is called in every millisecond."""
    ticks: list[int] = []

    def sleep(seconds: float) -> None:
        assert seconds == 0.001
        ticks.append(1)
        at(len(ticks))

    monkeypatch.setattr(module.time, "sleep", sleep)
    monkeypatch.setattr(module.time, "monotonic", lambda: len(ticks) / 1000)
    module.wait_for_rest()
    return len(ticks) / 1000


def test_nobody_waits_where_gloo_has_no_threads(entry: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert seconds_of(entry, monkeypatch) == 0


def test_threads_that_wait_for_work_cost_two_looks(
    entry: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in ("2", "3"):
        add_thread(tmp_path, number, "pt_gloo_runloop", WAITS_FOR_WORK)
    add_thread(tmp_path, "4", "gloo_tcp_loop", "running\n")
    assert seconds_of(entry, monkeypatch) == 0.002


@pytest.mark.parametrize("call", ["running\n", WAITS_FOR_PYTHON, WAITS_FOR_A_MUTEX, SLEEPS])
def test_a_thread_at_work_is_waited_for(
    entry: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    add_thread(tmp_path, "2", "pt_gloo_runloop", WAITS_FOR_WORK)

    def at(tick: int) -> None:
        """Hand over from one thread to the other in the 5th millisecond, and have both at rest in the 9th."""
        add_thread(tmp_path, "2", "pt_gloo_runloop", call if 5 <= tick < 9 else WAITS_FOR_WORK)
        add_thread(tmp_path, "3", "pt_gloo_runloop", call if tick < 5 else WAITS_FOR_WORK)

    at(0)
    assert seconds_of(entry, monkeypatch, at) == 0.011


@pytest.mark.parametrize("call", ["running\n", ""], ids=["at-work", "the-kernel-does-not-tell"])
def test_an_exit_costs_a_tenth_of_a_second_at_most(
    entry: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    add_thread(tmp_path, "2", "pt_gloo_runloop", call)
    assert seconds_of(entry, monkeypatch) == 0.1


def test_a_system_without_proc_costs_that_too(entry: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "TASKS", "/does/not/exist")
    assert seconds_of(entry, monkeypatch) == 0.1


@pytest.mark.parametrize(
    ("version", "waits_s"),
    [("2.13.0+cpu", 0), ("2.11.0a0+git1", 0), ("3.0", 0), ("2.10.2", 0.1), ("1.13.1", 0.1), ("own", 0.1), (None, 0.1)],
)
def test_a_torch_that_names_no_threads_costs_a_tenth_of_a_second(
    entry: ModuleType, monkeypatch: pytest.MonkeyPatch, version: str | None, waits_s: float
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(entry.time, "sleep", slept.append)
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    if version is not None:
        monkeypatch.setattr(sys.modules["torch"], "__version__", version, raising=False)
    entry.end()
    assert sum(slept) == waits_s


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells what its threads do")
def test_what_this_kernel_says_of_threads(entry: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A condition variable of C++ and a lock of Python wait alike."""
    monkeypatch.setattr(entry, "TASKS", "/proc/self/task")
    lock, until = threading.Lock(), threading.Event()
    lock.acquire()
    waits = threading.Thread(target=lock.acquire)
    sleeps = threading.Thread(target=until.wait, args=(600,))
    for thread in (waits, sleeps):
        thread.start()
    try:
        wait_for(lambda: entry.is_at_rest(str(waits.native_id)))
        assert not entry.is_at_rest(str(sleeps.native_id))
        assert not entry.is_at_rest(str(threading.get_native_id()))
    finally:
        lock.release()
        until.set()
        for thread in (waits, sleeps):
            thread.join()


def wait_for(condition: Callable[[], bool]) -> None:
    end = threading.Event()
    assert any(condition() or end.wait(0.01) for _ in range(3000))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return what runs a script as a rank does, and returns its code; its children are not the rank."""

    def run(script: str) -> int:
        (tmp_path / "train.py").write_text(script)
        environ = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environ |= {"NODE_DIR": str(tmp_path), "PYTHON": sys.executable}
        begin = f'export PYTHONPATH={ENTRY!r} RANK_PID="$$"; exec "$PYTHON" -B train.py'
        process = subprocess.Popen(["bash", "-c", begin], env=environ, cwd=tmp_path)
        code = process.wait(60)
        assert noted(tmp_path) <= {f"script-ended-{process.pid}"}
        return code

    return run


def noted(path: Path) -> set[str]:
    return {entry.name for entry in path.glob("script-ended-*")}


@pytest.mark.parametrize(
    ("ends", "code", "is_noted"),
    [
        ("", 0, True),
        ("sys.exit(7)", 7, True),
        ("sys.exit('words')", 1, True),
        ("1 / 0", 1, False),
        ("os._exit(5)", 5, False),
        ("os.abort()", -6, False),
        ("os.kill(os.getpid(), 9)", -9, False),
        ("os.environ.clear()", 0, True),
        ("os.environ['NODE_DIR'] = '/'; sys.modules['torch'] = sys", 0, True),
        ("subprocess.run([sys.executable, '-c', '']); os._exit(5)", 5, False),
        ("os.fork() or sys.exit(); os.wait(); os._exit(5)", 5, False),
    ],
)
def test_a_script_keeps_its_code_and_it_is_noted_where_it_ended_by_itself(
    run: Run, tmp_path: Path, ends: str, code: int, *, is_noted: bool
) -> None:
    assert run(f"import os, subprocess, sys\n{ends}\n") == code
    assert bool(noted(tmp_path)) == is_noted


def test_what_the_script_does_at_its_end_comes_first(run: Run, tmp_path: Path) -> None:
    run("import atexit, os\natexit.register(lambda: open('seen', 'w').write(str(os.listdir())))\n")
    assert "script-ended" not in (tmp_path / "seen").read_text()
    assert noted(tmp_path)


def test_nothing_is_imported_that_takes_time(run: Run, tmp_path: Path) -> None:
    """But for what is built into the interpreter, or what common/entry/ imports for every framework."""
    code = "import sys, __future__, importlib.abc, importlib.util; open('seen', 'w').write(' '.join(sys.modules))"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    bare = set((tmp_path / "seen").read_text().split())
    run("import sys\nopen('seen', 'w').write(' '.join(sys.modules))\n")
    more = set((tmp_path / "seen").read_text().split()) - bare
    assert more - {"sitecustomize"} <= {"atexit"}


C10D = "def init_process_group(backend='gloo'):\n    return 'group of ' + backend\n"
ALONE = "no rank has joined a process group: train.py has run 2 times, each for itself\n"
REFUSED = "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: x\n"


@pytest.mark.parametrize(
    ("script", "environ", "said"),
    [
        ("import torch", {}, ALONE),
        ("import torch\nraise SystemExit(3)", {}, ALONE),
        ("import sys, torch\nsys.exit(0)", {}, ALONE),
        ("import argparse, torch\nargparse.ArgumentParser().parse_args(['x'])", {}, REFUSED),
        ("import sys, torch\nsys.exit('no data')", {}, "no data\n"),
        ("import torch\nassert torch.distributed.init_process_group('x') == 'group of x'", {}, ""),
        ("import torch.distributed.distributed_c10d as c\nc.init_process_group()", {}, ""),
        ("import torch", {"RANK": "1"}, ""),
        ("import torch", {"WORLD_SIZE": "1"}, ""),
        ("import torch", {"RANK_PID": "1"}, ""),  # another process of the script's
        ("print('no torch')", {}, ""),
    ],
)
def test_ranks_that_have_not_met_are_told(tmp_path: Path, script: str, environ: dict[str, str], said: str) -> None:
    """By the first one, at its end: each has done the whole work."""
    (tmp_path / "torch" / "distributed").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '2.13.0'\nimport torch.distributed\n")
    (tmp_path / "torch" / "distributed" / "__init__.py").write_text("from .distributed_c10d import *\n")
    (tmp_path / "torch" / "distributed" / "distributed_c10d.py").write_text(C10D)
    (tmp_path / "train.py").write_text(script)
    run = 'export RANK_PID="${RANK_PID:-${BASHPID}}"; exec "$@"'
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ENTRY}:{tmp_path}", "NODE_DIR": str(tmp_path)}
    ended = subprocess.run(
        ["bash", "-c", run, "bash", sys.executable, "train.py"],
        env={**known, "RANK": "0", "WORLD_SIZE": "2", **environ},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == said
