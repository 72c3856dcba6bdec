"""common/entry/: which error has ended a script, as its Python notes it for the agent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
# As `run_entry_point` starts it.
RUN = 'export ENTRY_PID="${BASHPID}"; exec "$@"'


def noted(folder: Path, script: str, *, is_entry: bool = True) -> Any:
    """Return what a script's Python has noted; None where that was nothing."""
    (folder / "train.py").write_text(script, encoding="latin-1")
    path = f"{ROOT}/common/entry:{ROOT}/dask/entry"
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "NODE_DIR": str(folder)}
    run = RUN if is_entry else 'export ENTRY_PID="${BASHPID}"; "$@" || :'
    subprocess.run(
        ["bash", "-c", run, "bash", sys.executable, "train.py"],
        env=environ,
        cwd=folder,
        capture_output=True,
        check=False,
    )
    notes = [json.loads(path.read_text()) for path in folder.glob("uncaught-*")]
    assert len(notes) <= 1
    return notes[0] if notes else None


@pytest.mark.parametrize(
    ("script", "error", "message", "line"),
    [
        ("x = 1\nraise ValueError('bad row 7')\n", "ValueError", "bad row 7", 2),
        ("class Mine(Exception): pass\nraise Mine\n", "Mine", "", 2),
        ("import json\njson.loads('{')\n", "json.decoder.JSONDecodeError", "Expecting property name", 2),
        ("x = = 1\n", "SyntaxError", "invalid syntax", 1),
        ("print('\xe9')\n", "SyntaxError", "train.py on line ", 0),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError(1)\n", "KeyError", "1", 4),
        ("import atexit\natexit.register(print, 'bye')\nassert 0, 'never'\n", "AssertionError", "never", 3),
    ],
)
def test_what_nothing_has_caught(tmp_path: Path, script: str, error: str, message: str, line: int) -> None:
    """Whatever is printed later; each frame's file and line, from the script's inwards."""
    found = noted(tmp_path, script)
    assert found["error"] == error
    assert message in found["message"]
    assert found["is_first"] is (error != "KeyError")
    places = [(Path(file).name, number) for file, number in found["frames"]]
    assert places[:1] == ([("train.py", line)] if line else [])


@pytest.mark.parametrize(
    "script",
    [
        "print('done')\n",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    import traceback as t; t.print_exc()\nexit('no')\n",
        # Who shows errors in a way of their own has chosen the words.
        "import sys\nsys.excepthook = lambda *_: print('stopped')\nraise ValueError('bad')\n",
        "import os\nif os.fork() == 0:\n    raise ValueError('a child of its own')\nos.wait()\n",
        "class Bad(Exception):\n    def __str__(self): raise KeyError\nraise Bad\n",
    ],
)
def test_nothing_is_noted_of_what_did_not_end_it(tmp_path: Path, script: str) -> None:
    """Nor of an error that cannot be told."""
    assert noted(tmp_path, script) is None


def test_another_python_that_the_script_starts_notes_nothing(tmp_path: Path) -> None:
    assert noted(tmp_path, "raise ValueError\n", is_entry=False) is None
