"""docs/adding-a-framework.md, followed word by word: its files make a framework, which runs as the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from doc_pages import ROOT
from harness import PATIENCE_S, Project

PAGE = (ROOT / "docs" / "adding-a-framework.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^\*\*`(jax/\S+)`\*\*.*?\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^<!-- run by .*-->\n```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SHOWN = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# Before the ranks know of each other, as a script that does not find its data does.
FAILS_ONCE = """
import os
if os.environ["NODE_NAME"] == "WORKER_1" and os.environ["ATTEMPT"] == "0":
    raise FileNotFoundError("no such shard")
"""


@pytest.fixture
def reader(project: Project) -> Iterator[Project]:
    """Return a project with the folder of the page, whose scripts can be run."""
    for name, text in FILES.items():
        path = project.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    yield project
    shutil.rmtree(project.path / "jax")


def test_the_example_is_as_long_as_its_heading_says() -> None:
    """And the page has all of the files that it speaks of."""
    assert set(FILES) == {
        *("jax/env.yaml", "jax/settings.env", "jax/start-master.sh", "jax/start-worker.sh"),
        "jax/example/train.py",
    }
    said = re.search(r"^## An example: JAX, in (\d+) lines$", PAGE, re.MULTILINE)
    assert said
    assert sum(len(text.splitlines()) for text in FILES.values()) == int(said[1])


@pytest.mark.slow
def test_the_folder_of_the_page_is_a_framework(reader: Project) -> None:
    """Launched as the page says, it prints what the page shows; and restarts are the agent's, for any framework."""
    (block,), (shown,) = COMMANDS, SHOWN
    prepare, _, launch = block.strip().rpartition("\n")
    subprocess.run(["bash", "-euc", prepare], cwd=reader.path, check=True)
    script, *words = shlex.split(launch)
    assert script == "./scripts/launch.sh"
    done = reader.launch(*words)
    assert done.wait(PATIENCE_S) == 0, done.err
    nodes = [line for line in shown.splitlines() if not line.startswith("launch.sh:")]
    assert len(nodes) == 3
    assert set(nodes) <= set(done.out.splitlines())
    assert "; coordinator 127.0.0." in done.err

    entry = reader.write("train.py", FAILS_ONCE + FILES["jax/example/train.py"])
    again = reader.launch(*words, "--entry", entry, MAX_RESTARTS="1")
    assert again.wait(PATIENCE_S) == 0, again.err
    assert set(nodes) <= set(again.out.splitlines())
    assert "no such shard" in again.out
