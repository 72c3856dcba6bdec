"""What an apply changes, as a person reads it; amounts, and what is used and lent."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from oci_cluster.backends.kubernetes import quantities, usage
from oci_cluster.backends.kubernetes.differences import Change, change, text

# --- Differences ------------------------------------------------------------------------------------------------------


def item(spec: Any = None, **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "ClusterQueue",
        "metadata": {"name": "a", **metadata},
        "spec": spec or {},
        "status": {"x": metadata},
    }


def group(*resources: dict[str, Any]) -> dict[str, Any]:
    names = [one["name"] for one in resources]
    return {"resourceGroups": [{"coveredResources": names, "flavors": [{"name": "f", "resources": list(resources)}]}]}


def lines(now: dict[str, Any], then: dict[str, Any]) -> list[str]:
    found = change(now, then)
    assert found is not None
    assert found.what == "changed"
    return list(found.lines)


def test_what_the_api_keeps_for_itself_is_no_difference() -> None:
    now = item(resourceVersion="1", managedFields=[{"x": 1}], generation=1)
    assert change(now, item(resourceVersion="2", generation=1)) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [("8", 8), ("1000m", "1"), ("1Ti", "1024Gi"), ("1k", "1000"), ([], None), ({}, None)],
)
def test_one_thing_said_in_two_ways_is_no_difference(one: Any, other: Any) -> None:
    assert change(item({"x": one}), item({"x": other})) is None


def test_a_field_is_told_from_what_to_what() -> None:
    assert lines(item({"a": "8", "b": {"c": 1}}), item({"a": 9, "b": {}})) == ["spec.a: 8 -> 9", "spec.b.c: 1 -> none"]
    assert lines(item(), item(labels={"x": "y"})) == ["labels: none -> x: y"]
    assert lines(item(labels={"x": "y"}), item(labels={"x": "z", "v": "w"})) == [
        "labels.x: y -> z",
        "labels.v: none -> w",
    ]


def test_entries_are_compared_by_their_names_wherever_they_stand() -> None:
    cpu, memory = {"name": "cpu", "nominalQuota": "1"}, {"name": "memory", "nominalQuota": "1Gi"}
    found = lines(item(group(cpu)), item(group(memory, {**cpu, "nominalQuota": "2"})))
    place = "spec.resourceGroups[0].flavors[f].resources"
    assert found == [
        "spec.resourceGroups[0].coveredResources: cpu -> memory, cpu",
        f"{place}[cpu].nominalQuota: 1 -> 2",
        f"{place}[memory]: none -> name: memory, nominalQuota: 1Gi",
    ]


def test_another_order_of_flavors_is_a_difference() -> None:
    """They are tried in their order."""
    one, two = {"name": "one"}, {"name": "two"}
    assert lines(item({"flavors": [one, two]}), item({"flavors": [two, one]})) == [
        "spec.flavors: one, two -> two, one",
    ]


def test_changes_are_shown_with_a_sign() -> None:
    shown = text([Change("added", item(), ("a: 1",)), Change("removed", item()), Change("kept", item(namespace="n"))])
    assert shown == "+ ClusterQueue a added\n    a: 1\n- ClusterQueue a removed\n! ClusterQueue n/a kept"


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
    assert quantities.amount(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "x", "8 Gi", "8gi", "1_000", "٣", "inf", "nan", "1e", "9" * 30])
def test_what_is_no_amount_is_refused(text: str) -> None:
    assert not quantities.is_amount(text)
    with pytest.raises(ValueError, match="is not an amount such as 8, 500m or 64Gi"):
        quantities.amount(text)


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
    assert quantities.shown(Decimal(number)) == text


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
