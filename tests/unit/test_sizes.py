"""How long files, functions and classes may be: what is longer is hard to find one's way in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_pages import ROOT, files

LINES = 400
LIMITS = {ast.FunctionDef: 60, ast.AsyncFunctionDef: 60, ast.ClassDef: 300}
SHELL = (".sh", ".bash", ".bats")


def is_shell(path: Path) -> bool:
    with path.open("rb") as file:
        return path.suffix in SHELL or (not path.suffix and file.readline(100).startswith(b"#!/usr/bin/env bash"))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in *node*, and theirs; no expression is looked into, which would take most of the time."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler):
            yield child
            yield from statements(child)


def too_long(name: str, text: str) -> Iterator[str]:
    """Yield a line for each thing in a file that is over a limit."""
    if (count := len(text.splitlines())) > LINES:
        yield f"{name} has {count} lines: {LINES} at most"
    for part in statements(ast.parse(text)) if name.endswith(".py") else ():
        limit = LIMITS.get(type(part))
        if limit is not None and (count := part.end_lineno - part.lineno + 1) > limit:  # type: ignore[attr-defined]
            yield f"{name}: {part.name} has {count} lines: {limit} at most"  # type: ignore[attr-defined]


def test_nothing_is_too_long() -> None:
    """All that is, at once."""
    code = [path for path in files() if path.suffix == ".py" or is_shell(path)]
    assert {path.suffix for path in code} >= {".py", ".sh", ".bats"}
    found = [line for path in code for line in too_long(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.sh", "x\n" * 401, "a.sh has 401 lines: 400 at most"),
        ("a.py", "x\n" * 401, "a.py has 401 lines: 400 at most"),
        ("a.py", "def f():\n" + "    x\n" * 60, "a.py: f has 61 lines: 60 at most"),
        ("a.py", "class A:\n    async def f():\n" + "        x\n" * 60, "a.py: f has 61 lines: 60 at most"),
        ("a.py", "try:\n    x\nexcept E:\n  def f():\n" + "    x\n" * 60, "a.py: f has 61 lines: 60 at most"),
        ("a.py", "class A:\n" + "    x = 1\n" * 300, "a.py: A has 301 lines: 300 at most"),
    ],
)
def test_what_is_too_long_is_named(name: str, text: str, said: str) -> None:
    """A line less is none."""
    assert list(too_long(name, text)) == [said]
    assert list(too_long(name, text[: text.rstrip("\n").rindex("\n") + 1])) == []
