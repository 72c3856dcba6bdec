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


@pytest.mark.parametrize("text", ["", "x", "8 Gi", "8gi", "1_000", "٣", "inf", "nan", "1e", "9" * 30])
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


def lent(*queues: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {use.team: (int(use.lent_least), int(use.lent_most)) for use in usage.uses(queues)}


def test_what_is_lent_is_what_others_borrow() -> None:
    assert lent(queue("a", "8", "12", "4"), queue("b", "8", "2")) == {"a": (0, 0), "b": (4, 4)}


def test_where_several_could_lend_it_is_told_from_how_much_to_how_much() -> None:
    a, b, c = queue("a", "8", "12", "4"), queue("b", "8", "2"), queue("c", "8", "7")
    assert lent(a, b, c) == {"a": (0, 0), "b": (3, 4), "c": (0, 1)}
    teams = usage.described([a, b, c], {"b": (1, 2)})
    assert [row[-1] for row in usage.rows(teams)] == ["0", "3 to 4", "0 to 1"]
    assert [row[:4] for row in usage.rows(teams)] == [
        ["a", "open", "0", "0"],
        ["b", "open", "1", "2"],
        ["c", "open", "0", "0"],
    ]


def test_who_may_not_lend_lends_nothing() -> None:
    assert lent(queue("a", "8", "12", "4"), queue("b", "8", "0", lendingLimit="0"), queue("c", "8", "0")) == {
        "a": (0, 0),
        "b": (0, 0),
        "c": (4, 4),
    }


def test_who_has_no_cohort_lends_nothing() -> None:
    alone = queue("b", "8", "0")
    del alone["spec"]["cohortName"]
    assert lent(alone, queue("a", "8", "12", "4"))["b"] == (0, 0)


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
