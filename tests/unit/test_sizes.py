"""How long a function may be, and how many modules a folder has. A file, or a class, ends where its subject does."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

import pytest
from doc_pages import ROOT, files

LINES = 60
MODULES = 16
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in *node*, and theirs; no expression is looked into, which would take most of the time."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler):
            yield child
            yield from statements(child)


def too_long(name: str, text: str) -> Iterator[str]:
    """Yield a line for each function in a file of Python that is over the limit."""
    for part in statements(ast.parse(text)):
        if isinstance(part, FUNCTIONS) and (count := (part.end_lineno or 0) - part.lineno + 1) > LINES:
            yield f"{name}: {part.name} has {count} lines: {LINES} at most"


def test_no_folder_has_more_modules_than_one_sees() -> None:
    """What a room is about is seen from its tree."""
    modules = [path.parent for path in files() if path.suffix == ".py" and "oci_cluster" in path.parts]
    counted = Counter(path for path in modules if path.is_relative_to(ROOT / "common" / "oci_cluster"))
    assert len(counted) > 20
    assert {path: count for path, count in counted.items() if count - 1 > MODULES} == {}  # besides __init__.py


def test_no_function_is_too_long() -> None:
    """All that is, at once."""
    code = [path for path in files() if path.suffix == ".py"]
    assert len(code) > 100
    found = [line for path in code for line in too_long(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "def f():\n" + "    x\n" * 60,
        "class A:\n    async def f():\n" + "        x\n" * 60,
        "try:\n    x\nexcept E:\n  def f():\n" + "    x\n" * 60,
    ],
)
def test_what_is_too_long_is_named(text: str) -> None:
    """A line less is none."""
    assert list(too_long("a.py", text)) == ["a.py: f has 61 lines: 60 at most"]
    assert list(too_long("a.py", text[: text.rstrip("\n").rindex("\n") + 1])) == []
