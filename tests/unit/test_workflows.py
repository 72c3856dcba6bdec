"""What runs for a change: by whose code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

WORKFLOWS = Path(__file__).resolve().parents[2] / ".github" / "workflows"
_PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def unpinned(text: str) -> list[str]:
    """Return the actions of a workflow that are named otherwise than by a commit, with its tag for people."""
    uses = re.findall(r"uses:\s*(.+?)\s*$", text, re.MULTILINE)
    return [action for action in uses if not action.startswith("./") and not _PINNED.fullmatch(action)]


@pytest.mark.parametrize("action", ["a/b@v5", "a/b@v5.0.0", f"a/b@{'0' * 40}", f"a/b@{'0' * 39} # v1.0.0", "a/b"])
def test_a_tag_can_be_moved(action: str) -> None:
    """To other code, by whoever may write there."""
    assert unpinned(f"      - uses: {action}\n") == [action]


def test_actions_are_named_by_commits() -> None:
    """All, in all workflows."""
    texts = [path.read_text() for path in WORKFLOWS.iterdir()]
    assert sum(text.count("uses:") for text in texts) >= 7
    assert [action for text in texts for action in unpinned(text)] == []


def test_each_change_is_audited() -> None:
    """Locks are looked up by the workflow that runs for a push and a pull request."""
    text = (WORKFLOWS / "ci.yml").read_text()
    assert "- run: make audit\n" in text
    assert re.search(r"^on:\n(?:  .*\n)*  pull_request:", text, re.MULTILINE)
