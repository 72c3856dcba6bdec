"""tensorflow/entry/: what main says at the end of a script whose tasks have not met."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CONTEXT = """
class Context:
    _server_def = _collective_ops_server_def = None

_context = None
"""
USE = "import tensorflow.python.eager.context as c\nc._context = c.Context()\n"
CLUSTER = {"worker": ["10.0.0.1:1", "10.0.0.2:1"]}
ALONE = "no task has met another one: train.py has run 2 times, each for itself\n"


@pytest.mark.parametrize(
    ("script", "mode", "cluster", "said"),
    [
        (USE, "MAIN", CLUSTER, ALONE),
        (USE + "c._context._server_def = object()\n", "MAIN", CLUSTER, ""),
        (USE + "c._context._collective_ops_server_def = object()\n", "MAIN", CLUSTER, ""),
        (USE + "del c.Context._server_def\n", "MAIN", CLUSTER, ""),  # another TensorFlow: nothing is known
        (USE, "WORKER", CLUSTER, ""),
        (USE, "MAIN", {"worker": ["10.0.0.1:1"]}, ""),
        (USE + "raise ValueError\n", "MAIN", CLUSTER, ""),
        ("print('no TensorFlow')\n", "MAIN", CLUSTER, ""),
    ],
)
def test_tasks_that_have_not_met_are_told(
    tmp_path: Path, script: str, mode: str, cluster: dict[str, list[str]], said: str
) -> None:
    """By main, at its end: each has done the whole work."""
    eager = tmp_path / "tensorflow" / "python" / "eager"
    eager.mkdir(parents=True)
    for folder in (eager, *eager.parents[:2]):
        (folder / "__init__.py").touch()
    (eager / "context.py").write_text(CONTEXT)
    (tmp_path / "train.py").write_text(script)
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}/common/entry:{ROOT}/tensorflow/entry:{tmp_path}",
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}),
        "NODE_ADDRESS": "10.0.0.1",
        "MODE": mode,
    }
    ended = subprocess.run(
        [sys.executable, "train.py"], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    lines = [line for line in ended.stderr.splitlines(keepends=True) if "each for itself" in line]
    assert "".join(lines) == said
