"""docs/security.md: each promise names the tests that prove it, and they are there."""

from __future__ import annotations

import re

import pytest
from doc_pages import ROOT

PAGE = ROOT / "docs" / "security.md"
# Tables whose rows promise something.
TABLES = ("What is protected, and from whom", "What is read of others' words")
_PROOF = re.compile(r"<!-- proved by (tests/\S+(?:, tests/\S+)*) -->")


def promises(text: str) -> list[str]:
    """Return the rows of the tables that promise something."""
    found = []
    for title in TABLES:
        section = re.split(r"^## ", text.partition(f"## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
        found += [line for line in section.splitlines() if line.startswith("| ")][2:]  # without head and rule
    return found


def unproved(text: str) -> list[str]:
    """Return what is promised in *text* and proved by no test that is there."""
    wrong = []
    for row in promises(text):
        what, proof = row.split(" | ")[0].removeprefix("| "), _PROOF.search(row)
        for by in proof[1].split(", ") if proof else [""]:
            file, _, test = by.partition("::")
            is_there = bool(by) and (ROOT / file).is_file()
            if not is_there or (test and f"def {test}(" not in (ROOT / file).read_text("utf-8")):
                wrong.append(f"{what}: {f'there is no {by}' if by else 'no comment names the tests that prove it'}")
    return wrong


def test_each_promise_is_proved_by_a_test_that_is_there() -> None:
    """A promise without one is taken back."""
    text = PAGE.read_text("utf-8")
    assert len(promises(text)) > 35
    assert unproved(text) == []


@pytest.mark.parametrize(
    ("proof", "wrong"),
    [
        ("", "no comment names the tests that prove it"),
        ("<!-- proved by luck -->", "no comment names the tests that prove it"),
        ("<!-- proved by tests/nobody.py -->", "there is no tests/nobody.py"),
        ("<!-- proved by tests/unit -->", "there is no tests/unit"),
        (
            "<!-- proved by tests/unit/test_doc_security.py, tests/unit/test_walls.py::test_it -->",
            "there is no tests/unit/test_walls.py::test_it",
        ),
    ],
)
def test_a_promise_without_a_proof_is_named(proof: str, wrong: str) -> None:
    text = f"## {TABLES[0]}\n\n| what | how | not |\n| --- | --- | --- |\n| a thing | safe {proof} | you |\n"
    assert unproved(text) == [f"a thing: {wrong}"]
