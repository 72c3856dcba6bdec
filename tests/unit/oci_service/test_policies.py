"""The language of policies: what is a statement, whom it names, and when its condition holds."""

from __future__ import annotations

import itertools
from collections.abc import Collection

import pytest
from oci_service.permissions import FAMILIES, OPERATIONS, OTHER, TYPES, VERBS, permissions_of
from oci_service.policies import NotPolicy, Subject, parse_condition, parse_statement

STATEMENT = "allow group people to read objects in compartment c"


@pytest.mark.parametrize(
    ("text", "subjects"),
    [
        ("group people", [Subject("group", name="people")]),
        ("GROUP 'my domain'/'the people'", [Subject("group", domain="my domain", name="the people")]),
        (
            "group Default/people, id ocid1.group.oc1..x",
            [Subject("group", name="people"), Subject("group", "ocid1.group.oc1..x")],
        ),
        ("dynamic-group runs", [Subject("dynamic-group", name="runs")]),
        ("dynamic-group id ocid1.dynamicgroup.oc1..x", [Subject("dynamic-group", "ocid1.dynamicgroup.oc1..x")]),
        ("service datascience", [Subject("service", name="datascience")]),
        ("any-user", [Subject("any-user")]),
        ("any-group", [Subject("any-group")]),
    ],
)
def test_subjects(text: str, subjects: list[Subject]) -> None:
    assert list(parse_statement(f"Allow {text} to read objects in tenancy").subjects) == subjects


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (Subject("group", name="People"), Subject("group", "ocid1.group", name="people"), True),
        (Subject("group", "ocid1.group"), Subject("group", "ocid1.group", name="people"), True),
        (Subject("group", "ocid1.other"), Subject("group", "ocid1.group", name="people"), False),
        (Subject("group", domain="other", name="people"), Subject("group", name="people"), False),
        (Subject("dynamic-group", name="people"), Subject("group", name="people"), False),
    ],
)
def test_a_subject_is_known_by_ocid_or_by_domain_and_name(one: Subject, other: Subject, *, is_same: bool) -> None:
    """A name without a domain is one of the domain Default; case does not count."""
    assert one.matches(other) is is_same


@pytest.mark.parametrize(
    ("place", "compartment", "compartment_id"),
    [
        ("tenancy", (), ""),
        ("compartment c", ("c",), ""),
        ("compartment a:b:c", ("a", "b", "c"), ""),
        ("compartment id ocid1.compartment.oc1..x", (), "ocid1.compartment.oc1..x"),
    ],
)
def test_locations(place: str, compartment: tuple[str, ...], compartment_id: str) -> None:
    statement = parse_statement(f"allow group people to read objects in {place}")
    assert (statement.compartment, statement.compartment_id) == (compartment, compartment_id)


def test_permissions_can_be_named_instead_of_verb_and_type() -> None:
    statement = parse_statement("allow group people to {OBJECT_READ, object_inspect} in tenancy")
    assert statement.permissions == {"OBJECT_READ", "OBJECT_INSPECT"}
    assert statement.lowered() is None


@pytest.mark.parametrize(
    "text",
    [
        "deny people to read objects in tenancy",
        "deny endorse group people to read objects in any-tenancy",
        "allow people to read objects in tenancy",
        "allow group to read objects in tenancy",
        "allow any-user people to read objects in tenancy",
        "allow group a b to read objects in tenancy",
        "allow group people to write objects in tenancy",
        "allow group people to read object in tenancy",
        "allow group people to read objects",
        f"{STATEMENT} where",
        f"{STATEMENT} where target.bucket.name",
        f"{STATEMENT} where target.bucket.name = clusters",
        f"{STATEMENT} where target.bucket.name like 'clusters'",
        f"{STATEMENT} where all {{target.bucket.name = 'clusters'",
        f"{STATEMENT} where all target.bucket.name = 'clusters'",
        f"{STATEMENT} where all {{}}",
        f"{STATEMENT} where target.bucket.name = 'clusters' and request.user.id = 'x'",
        f"{STATEMENT} where any {{target.bucket.name = 'a'; target.bucket.name = 'b'}}",
    ],
)
def test_what_is_no_statement(text: str) -> None:
    with pytest.raises(NotPolicy):
        parse_statement(text)


def test_a_statement_has_a_lower_one_until_inspect() -> None:
    found = parse_statement("allow group people to manage objects in tenancy where target.object.name = 'to manage/*'")
    texts = []
    while found := found.lowered():  # type: ignore[assignment]
        texts.append(found.text.partition(" in ")[0])
        assert found.text.endswith("'to manage/*'")
    assert texts == [f"allow group people to {verb} objects" for verb in ("use", "read", "inspect")]


@pytest.mark.parametrize(
    ("what", "permissions"),
    [
        ("inspect objects", permissions_of("manage", "objects")),
        ("use objects", {"OBJECT_OVERWRITE", "OBJECT_CREATE", "OBJECT_DELETE", "OBJECT_VERSION_DELETE"}),
        ("manage objects", {"OBJECT_CREATE", "OBJECT_DELETE", "OBJECT_VERSION_DELETE"}),
        ("{OBJECT_READ}", {"OBJECT_READ"}),
        ("inspect all-resources", permissions_of("manage", "all-resources")),
    ],
)
def test_a_denied_verb_denies_the_higher_ones_and_not_the_lower_ones(what: str, permissions: Collection[str]) -> None:
    statement = parse_statement(f"Deny group people to {what} in tenancy")
    assert (statement.is_denial, statement.permissions) == (True, permissions)
    assert not parse_statement(f"allow group deny to {what} in tenancy").is_denial


REQUEST = {"target.bucket.name": "clusters", "target.object.name": "team-a/x/y", "request.permission": "OBJECT_READ"}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("target.bucket.name = 'clusters'", True),
        ("target.bucket.name='Clusters'", True),  # case does not count
        ('target.bucket.name = "clusters"', True),
        ("target.bucket.name = 'cluster'", False),
        ("target.bucket.name = 'cluster*'", False),  # a star is one of a pattern, and of the names of objects
        ("target.bucket.name = /cluster*/", True),
        ("target.bucket.name = /*ster*/", True),
        ("target.bucket.name = /other*/", False),
        ("target.bucket.name != 'other'", True),
        ("target.bucket.name != 'clusters'", False),
        ("target.object.name = 'team-a/*'", True),
        ("target.object.name = '*/y'", True),
        ("target.object.name = 'team-a'", False),
        ("target.object.name = 'team-b/*'", False),
        ("target.object.name = 'team-.*'", False),  # no regular expression
        ("target.repo.name = 'x'", False),  # a request without that variable
        ("target.repo.name != 'x'", False),  # whatever the relation is
        ("all {target.bucket.name = 'clusters', target.object.name = 'team-a/*'}", True),
        ("all {target.bucket.name = 'clusters', target.object.name = 'team-b/*'}", False),
        ("ANY {target.bucket.name = 'other', target.object.name = 'team-a/*'}", True),
        ("any {target.bucket.name = 'other', target.object.name = 'team-b/*'}", False),
        ("all {target.bucket.name = 'clusters', any {request.permission='OBJECT_READ', request.permission='X'}}", True),
        ("all {target.bucket.name = 'clusters', any {request.permission='Y', request.permission='X'}}", False),
    ],
)
def test_conditions(text: str, *, holds: bool) -> None:
    assert parse_condition(text)(REQUEST) is holds


# --- What verbs and types stand for


@pytest.mark.parametrize("resource", [*TYPES, *FAMILIES])
def test_each_verb_has_what_the_one_before_it_has(resource: str) -> None:
    found = [permissions_of(verb, resource) for verb in VERBS]
    for lower, higher in itertools.pairwise(found):
        assert lower is not None
        assert higher is not None
        assert lower <= higher


def test_a_family_is_its_types() -> None:
    for family, types in FAMILIES.items():
        expected = frozenset().union(*(permissions_of("use", name) or () for name in types))
        assert permissions_of("use", family) == expected
    assert OTHER in (permissions_of("manage", "all-resources") or ())


def test_every_permission_of_an_operation_is_one_that_a_statement_can_give() -> None:
    known = permissions_of("manage", "all-resources")
    assert known is not None
    for operation, needs in OPERATIONS.items():
        for permissions, _ in needs:
            assert set(permissions.split("|")) <= known, operation
