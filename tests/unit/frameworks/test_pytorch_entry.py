"""pytorch/entry/: how a rank ends. tests/clusters/test_pytorch.py has torch's own threads."""

from __future__ import annotations

import atexit
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENTRY = f"{ROOT}/common/entry:{ROOT}/pytorch/entry"
Run = Callable[..., int]


@pytest.fixture
def entry(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return on_import.py, which registers nothing."""
    spec = importlib.util.spec_from_file_location("pytorch_on_import", ROOT / "pytorch" / "entry" / "on_import.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(atexit, "register", lambda function: None)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("imported", "waits_s"), [("torch", [0.1]), ("other", [])])
def test_a_script_that_uses_torch_ends_a_tenth_of_a_second_later(
    entry: ModuleType, monkeypatch: pytest.MonkeyPatch, imported: str, waits_s: list[float]
) -> None:
    """Its threads give back what they have kept."""
    slept: list[float] = []
    monkeypatch.setattr(entry.time, "sleep", slept.append)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setitem(sys.modules, imported, ModuleType(imported))
    entry.end()
    assert slept == waits_s


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
