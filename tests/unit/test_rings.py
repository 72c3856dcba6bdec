"""The tables of tests/rings.py: every name in them is that of a test."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import rings
from doc_pages import ROOT

# Where the tables name a proof: a file, or a test in it.
_PROOF = re.compile(r"(?:clusters|kubernetes|scripts|unit)/[\w/*.-]+(?:::\w+)?")


@pytest.mark.slow  # a second or two of imports
@pytest.mark.skipif(sys.platform != "linux", reason="some tests of clusters are collected on Linux alone")
def test_every_name_is_that_of_a_test() -> None:
    """A test that was renamed would move into another ring without a word."""
    command = [sys.executable, "-I", "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "--quiet"]
    done = subprocess.run(
        [*command, "tests/clusters", "tests/kubernetes"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = [line.removeprefix("tests/") for line in done.stdout.splitlines() if "::" in line]
    assert len(found) > 500
    missing = [name for name in (*rings.CORE, *rings.NIGHTLY) if not any(rings.is_named(test, name) for test in found)]
    assert missing == []


def test_no_test_is_in_both_tables() -> None:
    both = [(core, late) for core in rings.CORE for late in rings.NIGHTLY if rings.is_named(core, late)]
    assert both == []


@pytest.mark.parametrize("proofs", sorted(set(rings.NIGHTLY.values())))
def test_the_proof_in_the_gate_is_there(proofs: str) -> None:
    """It is another test, which is not nightly itself."""
    for proof in _PROOF.findall(proofs):
        file, _, function = proof.partition("::")
        paths = [*(ROOT / "tests").glob(file)]
        assert paths, proof
        if function:
            assert f"def {function}(" in paths[0].read_text(encoding="utf-8"), proof
        assert proof not in rings.NIGHTLY, proof
