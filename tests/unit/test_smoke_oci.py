"""The ladder of `make smoke-oci`: its guesses are those of the stand-in's page, and its bounds are what it starts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from oci_service.faults import FLIPS
from smoke_oci.guesses import GUESSES, RUNGS, Findings
from smoke_oci.page import page
from smoke_oci.prices import NODES, bound, price_of
from smoke_oci.reads_and_jobs import SHAPES

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "shape": "VM.Standard.E4.Flex",
    "ocpus": 1,
    "memory_gbs": 8,
    "storage_gbs": 50,
    "image": "iad.ocir.io/x/dask:1",
}


def test_the_guesses_are_those_of_the_stand_in() -> None:
    """Each with the same id, words and rung, or the same reason why none tells."""
    text = (ROOT / "tests" / "oci_service" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.+) \| (rung `(\w+)`|not tested: (.+)) \|$", text, re.MULTILINE)
    listed = {name: (words, rung, why_not) for name, words, _, rung, why_not in rows}
    assert listed == {name: (guess.text, guess.rung, guess.why_not) for name, guess in GUESSES.items()}
    assert {guess.rung for guess in GUESSES.values()} == {"", *RUNGS}


def test_what_can_be_turned_around_is_a_guess_that_is_tested() -> None:
    assert {name for name, guess in GUESSES.items() if guess.rung} >= FLIPS


def test_the_table_of_shapes_is_the_stand_ins() -> None:
    from oci_service.data_science import _SHAPES  # noqa: PLC0415 - needs the SDK

    assert {name: size[:2] for name, size in _SHAPES.items()} == SHAPES


@pytest.mark.parametrize(
    ("shape", "ocpus", "memory", "price"),
    [
        ("VM.Standard.E4.Flex", 1, 16, 0.025 + 16 * 0.0015),
        ("VM.Standard2.4", 0, 0, 4 * 0.0638),
        ("VM.Standard2.x", 0, 0, 0.0),
        ("BM.GPU.H100.8", 0, 0, None),
    ],
)
def test_a_price_is_that_of_the_shape(shape: str, ocpus: float, memory: float, price: float | None) -> None:
    assert price_of(shape, ocpus, memory) == pytest.approx(price)


def test_the_bound_counts_all_nodes_and_the_time_to_start_them() -> None:
    """The service ends each after ten minutes."""
    assert sum(NODES.values()) == 13
    said = bound(RUNGS, SETTINGS, 0.6)
    assert said.startswith(
        "at most 13 nodes of VM.Standard.E4.Flex (1 OCPUs, 8 GB), 10 minutes each, 160 minutes in all"
    )
    assert "at most $5.23, with $0.6000 for a node and hour" in said
    assert bound(RUNGS[:1], SETTINGS, 0.6).startswith("at most 0 nodes")


def test_the_page_has_what_is_wrong_first() -> None:
    """A service's words are no markup. What was not reached could not be told."""
    findings = Findings()
    findings.note("job-active", is_right=True, evidence="it is ACTIVE", request_id="REQ1")
    findings.note("list-order", is_right=False, evidence="a | b\nc", request_id="REQ2")
    rows = [line for line in page(findings, RUNGS[:2], SETTINGS, 0).splitlines() if line.startswith("| `")]
    assert rows[0] == "| `list-order` | lists have the newest first | WRONG | a \\| b c | REQ2 |"
    assert len(rows) == len(GUESSES)
    assert "| `groups-rank` | ranks count through the groups | could not tell | this rung was not wanted |  |" in rows
    assert findings.wrong() == ["list-order"]
