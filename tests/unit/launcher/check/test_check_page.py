"""docs/check.md, held to the code: the items that it lists, and the exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oci_cluster.backends import known_backends
from oci_cluster.errors import ExitCode
from oci_cluster.launcher.check import check, live

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
# An item where a finding is made of it, or where it is looked for; and names in capitals that stand for items.
_SAID = re.compile(r'(?:fine|fails|unknown|refused|advice|yield|_of)\(?[ (]"([^"{]+)"')
_NAMED = re.compile(r"^[A-Z][A-Z_]*(?:, [A-Z][A-Z_]*)* = (\"[^\n]+\")$", re.MULTILINE)


def listed(section: str) -> set[str]:
    """Return the items of the table of a *section*."""
    text = PAGE.partition(f"### {section}\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    return {item for row in rows for item in re.findall(r"`([^`]+)`", row)}


def made(path: Path) -> set[str]:
    """Return the items of which the module at *path* makes findings."""
    text = path.read_text(encoding="utf-8")
    named = {item for line in _NAMED.findall(text) for item in re.findall(r'"([^"]+)"', line)}
    return {*_SAID.findall(text), *(named if "settings" not in path.stem else set())}


@pytest.mark.parametrize("backend", known_backends())
def test_it_lists_the_items_of_each_backend(backend: str) -> None:
    """Those that findings are made of, and no other."""
    folder = ROOT / "common" / "oci_cluster" / "backends" / backend
    modules = (path for place in ("check*.py", "check/*.py", "*/preflight.py") for path in folder.glob(place))
    found = {item for path in modules for item in made(path)}
    assert found - listed(f"`{backend}`") == set()
    assert len(found) > 3, "what is looked for is still how items are written"
    if backend != "oci":  # some of its items are put together where they are found
        assert listed(f"`{backend}`") - found == set()


def test_it_lists_the_items_of_every_backend_and_the_exit_codes() -> None:
    assert listed("On every backend") == {"settings", "ports", "entry point", live.ITEM}
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert codes == {ExitCode.OK, ExitCode.FAILED, ExitCode.USAGE, check.UNTOLD, ExitCode.SETTINGS}


def test_lines_can_be_read() -> None:
    """Outside tables, which cannot be wrapped."""
    assert [line for line in PAGE.splitlines() if len(line) > 125 and not line.startswith("|")] == []
