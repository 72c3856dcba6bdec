"""The last error that an entry point has printed, as each framework shows it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oci_cluster.node.logs.last_error import last_error, uncaught_error

CODE = Path("/code")


def shown(words: str, *frames: tuple[str, int], prefix: str = "") -> str:
    """Return a traceback as Python prints it."""
    lines = ["Traceback (most recent call last):"]
    for file, line in frames:
        lines += [f'  File "{file}", line {line}, in f', "    f(x)", "    ^^^^"]
    return "".join(f"{prefix}{line}\n" for line in [*lines, words])


CELLS = """\
---------------------------------------------------------------------------
ValueError                                Traceback (most recent call last)
Cell In[3], line 3
      1 def f():
      2     rows.check(7)
----> 3 f()

Cell In[3], line 2, in f()
      1 def f():
----> 2     rows.check(7)

{called}ValueError: bad row 7
"""
CALLED = """\
File {}:2, in check(n)
      1 def check(n):
----> 2     raise ValueError(f'bad row {{n}}')

"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        # Without an error the last line that is the script's own.
        ("reading\nno data\n\n", "no data"),
        (shown("A: 1", ("/code/a.py", 1)) + "row 7 left out\ntoo many rows left out\n", "too many rows left out"),
        ("usage: t.py [-h] --data DATA\nt.py: error: --data is required\n", "t.py: error: --data is required"),
        ("12:01:05 trainer: no data\n", "12:01:05 trainer: no data"),
        ("====\nthe table\n====\nit FAILED\n----\nFailures: 3\n", "Failures: 3"),
        ("[rank 1] no data\n[rank 0] other words\n", "other words"),
        (shown("ValueError: bad row 7", ("/code/train.py", 3)), "ValueError: bad row 7 (train.py:3)"),
        (shown("ValueError: x", ("train.py", 3)), "ValueError: x (train.py:3)"),
        # The innermost line of the user's own, not of a library below it; also of one beside the script.
        (
            shown("KeyError: 'x'", ("/code/train.py", 3), ("/code/lib/rows.py", 9), ("/usr/lib/json.py", 5)),
            "KeyError: 'x' (lib/rows.py:9)",
        ),
        (
            shown("E: x", ("/code/train.py", 3), ("/code/venv/lib/python3.11/site-packages/a.py", 9)),
            "E: x (train.py:3)",
        ),
        (shown("E: x", ("/code/train.py", 3), ("<string>", 9)), "E: x (train.py:3)"),
        # Nothing of the user's: the innermost line that there is.
        (
            shown("json.JSONDecodeError", ("/usr/lib/run.py", 1), ("/usr/lib/json.py", 5)),
            "json.JSONDecodeError (json.py:5)",
        ),
        # The last one; a launcher's own, which has nothing of the user's, does not stand for it.
        (shown("A: 1", ("/code/a.py", 1)) + "between\n" + shown("B: 2", ("/code/b.py", 2)), "B: 2 (b.py:2)"),
        (shown("A: 1", ("/code/a.py", 1)) + shown("ChildFailedError:", ("/lib/run.py", 2)), "A: 1 (a.py:1)"),
        (shown("A: 1", ("/lib/a.py", 1)) + shown("B: 2", ("/lib/b.py", 2)), "B: 2 (b.py:2)"),
        # A script that cannot be compiled has no frames of calls.
        (
            '  File "/code/train.py", line 2\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n',
            "SyntaxError: invalid syntax (train.py:2)",
        ),
        # Cut at its beginning, or not finished; a message of several lines.
        ('code/a.py", line 1, in f\n  File "/code/b.py", line 2, in g\n    x\nE: y\n', "E: y (b.py:2)"),
        (shown("E: y", ("/code/b.py", 2)).replace("E: y\n", ""), ""),
        (shown("E: first\nsecond\nthird", ("/code/b.py", 2)), "third"),
        # Lines of ranks: torch's excepthook, torchrun --tee; mixed.
        (shown("E: y", ("/code/b.py", 2), prefix="[rank1]: "), "E: y (b.py:2)"),
        (shown("E: y", ("/code/b.py", 2), prefix="[default0]:[rank0]: "), "E: y (b.py:2)"),
        (shown("E: y", ("/code/b.py", 2), prefix="[rank 3] "), "E: y (b.py:2)"),
        (shown("E: y", ("/code/b.py", 2), prefix="[rank 3] [rank3]: "), "E: y (b.py:2)"),
        # What looks like a frame in a log, without an error behind it; nor is what counts below a cell one by itself.
        ('  File "/code/a.py", line 1, in f\nnothing was wrong here.\n', "nothing was wrong here."),
        ("File count:12\ndone\n", "done"),
        # As a notebook shows it, from the kernel's first line to the last.
        (CELLS.format(called=""), "ValueError: bad row 7 (cell 3:2)"),
        (CELLS.format(called=CALLED.format("/code/lib/rows.py")), "ValueError: bad row 7 (lib/rows.py:2)"),
        (CELLS.format(called=CALLED.format("/usr/lib/json.py")), "ValueError: bad row 7 (cell 3:2)"),
        (
            "  Cell In[12], line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n",
            "SyntaxError: invalid syntax (cell 12:1)",
        ),
    ],
)
def test_the_last_error_is_told_with_the_users_own_line(text: str, expected: str) -> None:
    """Its words are those of the last line of the traceback."""
    assert last_error(text, [CODE]) == expected


def test_a_notebook_that_is_in_the_users_home_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython shortens the path."""
    monkeypatch.setenv("HOME", "/code")
    text = CELLS.format(called=CALLED.format("~/lib/rows.py"))
    assert last_error(text, [CODE]) == "ValueError: bad row 7 (lib/rows.py:2)"


@pytest.mark.parametrize("prefix", ["[rank{}]: ", "[rank {}] ", "[rank {0}] [rank{0}]: "])
def test_lines_of_ranks_may_be_mixed(prefix: str) -> None:
    """Each rank's lines are one traceback, whatever stands between; the rank that is asked for is told."""
    one = shown("A: 1", ("/code/a.py", 1), prefix=prefix.format(0)).splitlines()
    two = shown("B: 2", ("/code/b.py", 2), prefix=prefix.format(1)).splitlines()
    mixed = "".join(f"{line}\n" for pair in zip(one, two, strict=True) for line in pair)
    assert [last_error(mixed, [CODE], rank=rank) for rank in ("0", "1", "", "2")] == [
        "A: 1 (a.py:1)",
        "B: 2 (b.py:2)",
        "B: 2 (b.py:2)",
        "",
    ]


def test_a_rank_whose_lines_do_not_say_so_is_told_all_the_same() -> None:
    """Before its process group is there, torch marks nothing."""
    assert last_error(shown("A: 1", ("/code/a.py", 1)), [CODE], rank="3") == "A: 1 (a.py:1)"


def test_what_is_told_is_short_and_fit_for_a_terminal() -> None:
    """A message can be a page, and can hold what controls a terminal."""
    error = last_error(shown(f"E: \033[31m{'x' * 5000}", (f"/code/{'y' * 500}.py", 2)), [CODE])
    assert len(error) <= 304
    assert error.isprintable()


@pytest.mark.parametrize(
    "noise",
    [
        "",
        "11:20:33 start-master.sh: error: it ended with 1",
        "launcher.py: rank 1 ended with 1",
        "no rank has joined a process group: train.py has run 2 times, each for itself",
        'told MAIN_ready.json {"schema": 1}',
        "W1127 11:20:33.123000 7 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 8",
        "[rank0]:[W1127 11:20:33.123 ProcessGroupNCCL.cpp:1250] Warning: destroy_process_group() was not called",
        "2026-11-27 11:20:33.123456: W tensorflow/core/local_rendezvous.cc:404] Local rendezvous is aborting",
        "2026-11-27 11:20:33,123 - distributed.worker - WARNING - Closing",
        "/lib/python3.11/resource_tracker.py:254: UserWarning: 3 leaked semaphores\n  warnings.warn(",
        "Exception ignored in: <function f>\n" + shown("RuntimeError: late", ("/lib/a.py", 3)),
        "=====\nt.py FAILED\n-----\nFailures:\n  <NO_OTHER_FAILURES>\n-----\nRoot Cause:\n[0]:\n  rank : 1\n=====",
        "100%|##########| 10/10 [00:01<00:00]",
        "An exception has occurred, use %tb to see the full traceback.\n\nSystemExit: 3",
        "[Gloo] Rank 0 is connected to 1 peer ranks.",
    ],
)
@pytest.mark.parametrize(
    ("said", "expected"),
    [(shown("A: 1", ("/code/a.py", 1)), "A: 1 (a.py:1)"), ("no data\n", "no data")],
)
def test_what_libraries_and_launchers_say_is_no_word_of_the_script(said: str, expected: str, noise: str) -> None:
    assert last_error(f"{said}{noise}\n", [CODE]) == expected


@pytest.mark.parametrize(
    ("error", "message", "expected"),
    [
        ("ValueError", "bad row 7", "ValueError: bad row 7 (a.py:1)"),
        ("KeyError", "'x'", "KeyError: 'x' (a.py:1)"),
        ("AssertionError", "", "AssertionError (a.py:1)"),
        # First lines that say nothing.
        ("RuntimeError", "\nmodel and file differ:\n  layer1: 10 x 2", "RuntimeError: layer1: 10 x 2 (a.py:1)"),
        ("tf.E", "Graph execution error:\n\nat node\nno file\n", "tf.E: no file (a.py:1)"),
        ("E", "Graph execution error:\n\nno file\n\t [[{{node x}}]]\n\t [[y]] [Op:z]", "E: no file (a.py:1)"),
        ("RuntimeError", "Error(s) in Net:\n\tsize of fc", "RuntimeError: Error(s) in Net: size of fc (a.py:1)"),
        ("ValueError", "first\nsecond", "ValueError: first (a.py:1)"),
        ("ValueError", "what:", "ValueError: what: (a.py:1)"),
        (
            "ModuleNotFoundError",
            "No module named 'humanize.filesize'",
            "ModuleNotFoundError: No module named 'humanize.filesize' (a.py:1); --with humanize adds it",
        ),
        (
            "ModuleNotFoundError",
            "No module named 'cv2'",
            "ModuleNotFoundError: No module named 'cv2' (a.py:1); --with opencv-python-headless adds it",
        ),
    ],
)
def test_what_python_has_noted(error: str, message: str, expected: str) -> None:
    note = {"error": error, "message": message, "frames": [["/code/a.py", 1], ["/lib/b.py", 2]]}
    found = uncaught_error(json.dumps(note).encode(), [CODE])
    assert found is not None
    assert found.text == expected


@pytest.mark.parametrize("venv", [".venv", ".venv-clusters"])
def test_a_missing_package_of_this_machine_is_added_by_an_option(monkeypatch: pytest.MonkeyPatch, venv: str) -> None:
    """The second is there where the user has a ``.venv`` of his own."""
    monkeypatch.setattr(sys, "prefix", f"/home/me/digits/{venv}")
    note = {"error": "ModuleNotFoundError", "message": "No module named 'x'", "frames": [["/code/a.py", 1]]}
    found = uncaught_error(json.dumps(note).encode(), [CODE])
    assert found is not None
    assert found.text.endswith("; --with x adds it")


@pytest.mark.parametrize("note", [b"", b"[]", b"{}", b'{"error": 1, "message": 2, "frames": [3]}', b"\xff"])
def test_a_note_that_is_none_tells_nothing(note: bytes) -> None:
    """A script may write there, too."""
    assert uncaught_error(note, [CODE]) is None


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("def f():\n    raise ValueError('bad row 7')\nf()\n", "ValueError: bad row 7 (train.py:2)"),
        ("import json\njson.loads('{')\n", "json.decoder.JSONDecodeError: Expecting property name"),
        ("import nope\n", "ModuleNotFoundError: No module named 'nope' (train.py:1)"),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError(1)\n", "KeyError: 1 (train.py:4)"),
        ("def f():\n    f()\nf()\n", "RecursionError: maximum recursion depth exceeded (train.py:2)"),
        ("x = = 1\n", "SyntaxError: invalid syntax (train.py:1)"),
        ("raise SystemExit('no data')\n", "no data"),
    ],
)
def test_as_this_python_prints_it(tmp_path: Path, script: str, expected: str) -> None:
    """Real tracebacks of real scripts."""
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (
        last_error(done.stderr, [tmp_path]).startswith(expected)
        if expected
        else not last_error(done.stderr, [tmp_path])
    )
