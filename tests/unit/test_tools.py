"""Tools of tests that are started without pytest find what they import, with the paths that they are started with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest
from doc_pages import ROOT

_COMMAND = re.compile(r"PYTHONPATH=(tests\S*) .* -m ([\w.]+)")
STARTED = sorted(
    {
        found
        for file in ("Makefile", ".ci/run", "CONTRIBUTING.md")
        for found in _COMMAND.findall((ROOT / file).read_text())
    }
)


def test_some_are_found() -> None:
    assert {module for _, module in STARTED} >= {"chaos", "kube", "kube.images", "smoke_gpu", "smoke_oci"}


@pytest.mark.parametrize(("paths", "module"), STARTED)
def test_a_tool_can_be_started(paths: str, module: str) -> None:
    spec = find_spec(module)
    started = f"{module}.__main__" if spec is None or spec.submodule_search_locations else module
    environ = {**os.environ, "PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", f"import {started}"]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
