"""docs/security.md: each promise, and each door that stays open, names the tests that prove it; they are there."""

from __future__ import annotations

import re

import pytest
from doc_pages import ROOT

from oci_cluster.backends.docker import commands
from oci_cluster.contract.files import cluster_dir
from oci_cluster.node import coordinator
from oci_cluster.node.begin import code
from oci_cluster.system import files, secret_values

PAGE = ROOT / "docs" / "security.md"
# What each says is a promise: of the first three rows of tables and items of lists, of the last its paragraphs, too.
SECTIONS = (
    "What stays open",
    "What is protected, and from whom",
    "What is read of others' words",
    "The key of a launch",
)
_PROOF = re.compile(r"<!-- proved by (tests/\S+(?:, tests/\S+)*) -->")


def promises(text: str) -> list[str]:
    """Return what is promised: rows of tables, items of lists, and paragraphs about the key."""
    found = []
    for title in SECTIONS:
        section = re.split(r"^## ", text.partition(f"## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
        for block in re.split(r"\n\n", section.strip()):
            if block.startswith("| "):
                found += block.splitlines()[2:]  # without head and rule
            elif block.startswith("- "):
                found += re.split(r"\n(?=- )", block)
            elif block and title == SECTIONS[-1] and not block.endswith(":"):
                found.append(block)
    return found


def unproved(text: str) -> list[str]:
    """Return what is promised in *text* and proved by no test that is there."""
    wrong = []
    for row in promises(text):
        what, proof = row.removeprefix("| ").split(" | ")[0][:60], _PROOF.search(row)
        for by in proof[1].split(", ") if proof else [""]:
            file, _, test = by.partition("::")
            is_there = bool(by) and (ROOT / file).is_file()
            if not is_there or (test and f"def {test}(" not in (ROOT / file).read_text("utf-8")):
                wrong.append(f"{what}: {f'there is no {by}' if by else 'no comment names the tests that prove it'}")
    return wrong


def test_each_promise_is_proved_by_a_test_that_is_there() -> None:
    """A promise without one is taken back."""
    text = PAGE.read_text("utf-8")
    assert len(promises(text)) == 54
    assert unproved(text) == []


def test_its_bounds_are_those_of_the_code() -> None:
    """Tests of what they do take smaller ones."""
    text = " ".join(PAGE.read_text("utf-8").split())
    for bound in (
        f"forgotten after {coordinator.PROVE_S:g} s, {coordinator.MOST_UNPROVED} at most",
        f"before unpacking, after {code._MOST_BYTES >> 30} GiB at most",
        f"known names, {cluster_dir.MAX_BYTES >> 20} MiB at most, signed",
        f"first {secret_values._READ_BYTES >> 10} KiB, or in files from {secret_values._LARGEST_BYTES >> 20} MiB",
        f"regular files of {files._MOST_KEPT_BYTES >> 20} MiB at most",
        f"{int(commands._PIDS):,} processes at most",
    ):
        assert bound in text


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
    text = f"## {SECTIONS[1]}\n\n| what | how | not |\n| --- | --- | --- |\n| a thing | safe {proof} | you |\n"
    assert unproved(text) == [f"a thing: {wrong}"]
