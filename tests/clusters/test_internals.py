"""docs/internals.md, held to a real launch: which files its processes enter."""

from __future__ import annotations

import re
from pathlib import Path

from doc_pages import ROOT
from harness import Project

PAGE = (ROOT / "docs" / "internals.md").read_text(encoding="utf-8")
TRACE = ROOT / "tests" / "trace"
# Tools that everything uses.
LEFT_OUT = ("contract/", "system/", "errors.py", "backends/base.py")


def told(heading: str) -> set[str]:
    """Return the files in the first cells of the table below *heading*."""
    table = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+\.py)`", cell)} - {*LEFT_OUT}


def entered(text: str) -> set[str]:
    """Return the files of a process, without the tools."""
    return {line.split()[0] for line in text.splitlines() if not line.startswith(LEFT_OUT)}


def test_a_launch_enters_the_files_that_the_page_tells(project: Project, tmp_path: Path) -> None:
    """All of them, and no others: of the launcher, the runner, and the agents of main and of workers."""
    traces = tmp_path / "traces"
    traces.mkdir()
    launch = project.launch_plain(3, "print('done')\n", TRACE_DIR=str(traces), PYTHONPATH=str(TRACE))
    assert launch.wait() == 0
    texts = [path.read_text(encoding="utf-8") for path in traces.iterdir()]
    launchers = [text for text in texts if "launcher/verbs.py" in text]
    runners = [text for text in texts if "backends/local/runner.py run_nodes" in text]
    agents = [text for text in texts if "node/start.py" in text]
    assert (len(launchers), len(runners), len(agents)) == (1, 1, 4)
    assert entered(launchers[0]) == told("The launcher")
    assert entered(runners[0]) == told("The runner")
    assert set().union(*map(entered, agents)) == told("An agent, on each node")
    assert len(told("The launcher") | told("The runner") | told("An agent, on each node")) <= 42
