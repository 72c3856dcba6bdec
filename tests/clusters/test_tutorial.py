"""docs/tutorial.md: what it runs on this machine, and what it says of it."""

from __future__ import annotations

import re
import subprocess

import pytest
from doc_pages import ROOT
from harness import PATIENCE_S, Project

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
# Its index is PyTorch's own, which tests do not ask: they take what pip's settings name.
CPU = re.compile(r"^echo TORCH=cpu .*$", re.MULTILINE)
BLOCKS = re.findall(r"<!-- run by tests/clusters/test_tutorial.py -->\n```sh\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.nightly
def test_a_script_trains_and_goes_on_from_its_checkpoint(project: Project) -> None:
    """As the page says: three processes; the second launch begins where the first one ended."""
    environ = {**project.environ, "PWD": str(project.path)}
    printed = [
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", CPU.sub("", block)],
            cwd=project.path,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE_S,
            check=True,
        )
        for block in BLOCKS
    ]
    first, listed, second = (done.stdout + done.stderr for done in printed)
    assert "1797 images in " in first
    assert "MAIN     | epoch 1 world 3 loss " in first
    assert "cluster first ended with 0 " in first
    assert "/outputs/checkpoints/last.pt" in listed
    assert re.findall(r"epoch (\d) world 3", second) == ["2", "3"]
    assert list(project.path.glob(".clusters/second-*/outputs/runs/events*"))
