"""Amounts, and what teams use and lend."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from oci_cluster.backends.kubernetes.quota import usage

# --- Amounts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8),
        ("500m", "0.5"),
        ("64Gi", 64 * 2**30),
        ("1.5Ki", 1536),
        ("1e3", 1000),
        ("2k", 2000),
        (".5", "0.5"),
        ("-1", -1),
    ],
)
def test_an_amount_is_read_as_kubernetes_reads_it(text: str, number: Any) -> None:
    assert usage.amount(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "x", "8 Gi", "8gi", "1_000", "inf", "nan", "1e", "9" * 30])
def test_what_is_no_amount_is_refused(text: str) -> None:
    assert not usage.is_amount(text)
    with pytest.raises(ValueError, match="is not an amount such as 8, 500m or 64Gi"):
        usage.amount(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("0", "0"),
        ("8", "8"),
        ("1000", "1000"),
        ("1024", "1024"),
        ("0.5", "500m"),
        (2**36, "64Gi"),
        (1536 * 2**20, "1536Mi"),
    ],
)
def test_an_amount_is_shown_in_its_largest_unit(number: Any, text: str) -> None:
    assert usage.shown(Decimal(number)) == text


# --- What is used -----------------------------------------------------------------------------------------------------


def queue(name: str, nominal: str, used: str, borrowed: str = "0", **more: Any) -> dict[str, Any]:
    quota = {"name": "gpu", "nominalQuota": nominal, **more}
    reserved = [{"name": "f", "resources": [{"name": "gpu", "total": used, "borrowed": borrowed}]}]
    return {
        "metadata": {"name": name},
        "spec": {"cohortName": "all", "resourceGroups": [{"flavors": [{"name": "f", "resources": [quota]}]}]},
        "status": {"flavorsReservation": reserved, "conditions": [{"type": "Active", "status": "True"}]},
    }


def test_a_team_uses_its_own_and_what_it_borrows() -> None:
    """Its own words stand in the first of its rows."""
    teams = [usage.described(queue("a", "8", "12", "4"), 0, 0), usage.described(queue("b", "8", "2"), 1, 2)]
    assert usage.rows(teams) == [
        ["a", "open", "0", "0", "f", "gpu", "8", "12", "4"],
        ["b", "open", "1", "2", "f", "gpu", "8", "2", "0"],
    ]


@pytest.mark.parametrize(
    ("policy", "active", "state"),
    [
        ("None", {"status": "True"}, "open"),
        (None, {"status": "True"}, "open"),
        ("Hold", {"status": "False", "message": "x"}, "held"),
        ("HoldAndDrain", {"status": "False"}, "held, drained"),
        (
            "None",
            {"status": "False", "message": "references missing ResourceFlavor(s): f"},
            "admits nothing: references missing ResourceFlavor(s): f",
        ),
    ],
)
def test_what_a_team_does_is_a_word(policy: str | None, active: dict[str, str], state: str) -> None:
    found = {"spec": {"stopPolicy": policy}, "status": {"conditions": [{"type": "Active", **active}]}}
    assert usage.state_of(found) == state
    assert usage.state_of({}) == "unknown"
