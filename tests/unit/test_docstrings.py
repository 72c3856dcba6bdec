"""First lines of docstrings, as CONTRIBUTING.md wants them: counted, with bounds that only go down."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import oci_cluster

PACKAGE = Path(oci_cluster.__file__).parent
# A first line begins with a verb or a noun that one would search for.
QUESTIONS = frozenset({"What", "How", "Which", "Whether", "Where", "Who", "Why", "When"})
MOST_WORDS = 14
MOST_QUESTIONS, MOST_LONG = 15, 40


@functools.cache
def first_lines() -> list[tuple[str, str]]:
    """Return the first sentence of each docstring of the package, with its place."""
    return list(_first_lines())


def _first_lines() -> Iterator[tuple[str, str]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text:
                    place = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)}"
                    yield place, " ".join(text.partition("\n\n")[0].split()).partition(". ")[0]


def test_few_docstrings_begin_with_a_question() -> None:
    """A reader looks for what it does, and not for a clause about it."""
    found = [f"{place}: {line}" for place, line in first_lines() if line.split()[0].strip("`") in QUESTIONS]
    assert len(found) <= MOST_QUESTIONS, "\n".join(found)


def test_few_first_lines_are_long() -> None:
    """Fourteen words can be read at once."""
    found = [f"{place}: {line}" for place, line in first_lines() if len(line.split()) > MOST_WORDS]
    assert len(found) <= MOST_LONG, "\n".join(found)
