"""Whether a statement that is there covers one of ours: true, false, or nobody can tell."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from oci_cluster.backends.oci.tenancy.client import Ancestor
from oci_cluster.backends.oci.tenancy.policy_judge import (
    Caller,
    Given,
    holds,
    judged,
    names_of,
    parse_condition,
    parse_statement,
)

ROOT, TEAM, JOBS, OTHER = "ocid1.tenancy.oc1..t", "ocid1.compartment.oc1..team", "ocid1.compartment.oc1..j", "other"
NODES = Caller("dynamic-group", frozenset({"cluster-runs"}), frozenset({"ocid1.dynamicgroup.oc1..d"}))
PEOPLE = Caller("group", names_of(["data-scientists", "Far/Away"]))
SERVICE = Caller("service", frozenset({"datascience"}))
OBJECTS = (
    f"allow dynamic-group cluster-runs to manage objects in compartment id {JOBS} where all "
    "{target.bucket.name = 'clusters', target.object.name = 'team-a/work/*'}"
)
IN_BUCKET = "target.bucket.name = 'clusters'"
LIST = f"allow dynamic-group cluster-runs to inspect objects in compartment id {JOBS} where {IN_BUCKET}"
JOB = f"allow group data-scientists to manage data-science-family in compartment id {JOBS}"
NETWORK = f"allow service datascience to use virtual-network-family in compartment id {JOBS}"
GROUP, X = "dynamic-group cluster-runs", "target.bucket.name = 'x'"


def chain(ocid: str) -> Sequence[Ancestor]:
    """JOBS is in TEAM, which is in the root; what is not known ends there."""
    root = Ancestor(ROOT, "", is_root=True)
    known = {JOBS: [Ancestor(JOBS, "jobs"), Ancestor(TEAM, "team"), root], ROOT: [root]}
    return known.get(ocid, [Ancestor(ocid, "")])


def is_allowed(wanted: str, *there: str, caller: Caller = NODES, home: str = ROOT) -> bool | None:
    return judged(wanted, caller, [Given(text, home) for text in there], ROOT, chain).is_allowed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (OBJECTS, True),
        (OBJECTS.upper().replace("ID OCID1.COMPARTMENT.OC1..J", f"id {JOBS}"), True),
        (f"allow {GROUP} to manage object-family in tenancy", True),
        (f"allow {GROUP} to manage all-resources in compartment Team", True),
        (f"allow {GROUP} to manage objects in compartment team:jobs", True),
        (f"allow {GROUP} to manage objects in compartment 'team':'jobs'", True),
        (f"allow {GROUP} to manage objects in compartment jobs", False),  # there is none below the root
        (f"allow {GROUP} to manage objects in compartment team:other", False),
        (f"allow {GROUP} to manage objects in compartment team:jobs:inner", False),
        (f"allow {GROUP} to manage objects in compartment id {OTHER}", False),
        (f"allow dynamic-group others, cluster-runs to manage objects in compartment id {TEAM}", True),
        (f"allow dynamic-group 'Default'/'cluster-runs' to manage objects in compartment id {TEAM}", True),
        (f"allow dynamic-group 'far'/'cluster-runs' to manage objects in compartment id {TEAM}", False),
        (f"allow dynamic-group id ocid1.dynamicgroup.oc1..d to manage objects in compartment id {JOBS}", True),
        (f"allow dynamic-group id ocid1.dynamicgroup.oc1..x to manage objects in compartment id {JOBS}", False),
        (f"allow group cluster-runs to manage objects in compartment id {JOBS}", False),
        (f"allow any-user to manage objects in compartment id {JOBS}", True),
        (f"allow any-group to manage objects in compartment id {JOBS}", True),
        (f"allow {GROUP} to use objects in compartment id {JOBS}", False),
        (f"allow {GROUP} to manage buckets in compartment id {JOBS}", False),
        (f"allow {GROUP} to manage repos in compartment id {JOBS}", False),
        (f"allow {GROUP} to manage objects in tenancy where target.bucket.name = 'others'", False),
        (f"allow {GROUP} to manage objects in tenancy where target.bucket.name = /clus*/", True),
        (f"allow {GROUP} to manage objects in tenancy where target.bucket.name = 'clus*'", False),
        (f"allow {GROUP} to manage objects in tenancy where target.bucket.name != 'others'", True),
        (f"allow {GROUP} to manage objects in tenancy where target.object.name = 'team-a/*'", True),
        (f"allow {GROUP} to manage objects in tenancy where target.object.name = 'team-a/work/it'", False),
        (f"allow {GROUP} to manage objects in tenancy where target.object.name = 'team-b/*'", False),
        (
            f"allow {GROUP} to manage objects in tenancy where any {{{X}, request.region = 'iad'}}",
            None,
        ),
        (
            f"allow {GROUP} to manage objects in tenancy where all {{{X}, request.region = 'iad'}}",
            False,
        ),
        (f"allow {GROUP} to manage objects in tenancy where request.permission = 'OBJECT_CREATE'", None),
        (f"allow {GROUP} to manage objects in tenancy where target.bucket.name in ('clusters')", None),
        (f"allow {GROUP} to manage objects in tenancy where target.compartment.id = '{JOBS}'", True),
        (f"allow {GROUP} to {{OBJECT_CREATE, OBJECT_READ}} in compartment id {JOBS}", None),
        (f"allow {GROUP} to {{OBJECT_CREATE}} in compartment id {OTHER}", False),
        (f"allow {GROUP} somehow to manage objects in tenancy", None),  # about us, and not understood
        ("define tenancy other as ocid1.tenancy.oc1..x", False),
        ("", False),
    ],
)
def test_statement_covers(text: str, expected: bool | None) -> None:  # noqa: FBT001 - three values
    assert is_allowed(OBJECTS, text) is expected


@pytest.mark.parametrize(
    ("denial", "expected"),
    [
        (f"deny {GROUP} to manage objects in tenancy", False),  # they take precedence
        ("deny any-user to inspect all-resources in tenancy", False),
        (f"deny {GROUP} to inspect objects in compartment team", False),
        ("deny any-group to manage objects in tenancy where request.region = 'x'", None),
        (f"deny {GROUP} to {{OBJECT_DELETE}} in tenancy", None),
        ("deny group others to manage objects in tenancy", True),
        (f"deny {GROUP} to manage repos in tenancy", True),
        (f"deny {GROUP} to manage objects in compartment id {OTHER}", True),
        (f"deny any-user to manage objects in tenancy where {X}", True),
        ("deny any-user to manage policies in tenancy where target.policy.type = 'deny'", True),
    ],
)
def test_denials(denial: str, expected: bool | None) -> None:  # noqa: FBT001 - three values
    given = [Given(text, ROOT) for text in (OBJECTS, denial)]
    said = judged(OBJECTS, NODES, given, ROOT, chain)
    assert (said.is_allowed, said.denial) == (expected, "" if expected else denial)
    assert is_allowed(OBJECTS, denial) is False


def test_a_denial_of_more_than_is_asked_is_not_known() -> None:
    """Whether who may not manage may still list, no page says."""
    assert is_allowed(LIST, LIST, f"deny {GROUP} to manage objects in tenancy") is None
    assert is_allowed(JOB, JOB, "deny any-group to manage data-science-jobs in tenancy", caller=PEOPLE) is False


def test_administrators_are_never_denied() -> None:
    everything = "allow group Administrators to manage all-resources in tenancy"
    denied = "deny any-user to inspect all-resources in tenancy"
    caller = Caller("group", names_of(["Administrators"]))
    assert is_allowed(JOB, everything, denied, caller=caller) is True


def test_a_group_by_an_ocid_that_is_not_seen_is_not_known() -> None:
    by_ocid = f"allow dynamic-group id ocid1.dynamicgroup.oc1..x to manage objects in compartment id {JOBS}"
    assert is_allowed(OBJECTS, by_ocid, caller=Caller("dynamic-group", NODES.names, is_seen=False)) is None


def test_one_that_is_sure_is_enough() -> None:
    unsure = f"allow {GROUP} to {{OBJECT_CREATE}} in compartment id {JOBS}"
    assert is_allowed(OBJECTS, unsure) is None
    assert is_allowed(OBJECTS, unsure, OBJECTS) is True


def test_a_list_of_objects_has_no_name() -> None:
    narrow = f"allow {GROUP} to manage objects in tenancy where target.object.name = 'team-a/work/*'"
    assert is_allowed(LIST, narrow) is False
    assert is_allowed(LIST, OBJECTS) is False
    assert is_allowed(LIST, f"allow {GROUP} to read objects in tenancy") is True


def test_families_and_their_parts() -> None:
    assert is_allowed(JOB, JOB, caller=PEOPLE) is True
    assert is_allowed(JOB, JOB.replace("data-scientists", "'Far'/'Away'"), caller=PEOPLE) is True
    assert is_allowed(JOB, JOB.replace("-family", "-jobs"), caller=PEOPLE) is None  # a part may be enough
    assert is_allowed(JOB, JOB.replace("group data-scientists", "any-group"), caller=PEOPLE) is True
    assert is_allowed(NETWORK, NETWORK, caller=SERVICE) is True
    assert is_allowed(NETWORK, NETWORK.replace("use", "manage"), caller=SERVICE) is True
    assert is_allowed(NETWORK, NETWORK.replace("service datascience", "any-user"), caller=SERVICE) is True
    assert is_allowed(NETWORK, NETWORK.replace("service datascience", "any-group"), caller=SERVICE) is False
    assert is_allowed(NETWORK, NETWORK.replace("datascience", "dataflow"), caller=SERVICE) is False


def test_what_is_known_of_runs_counts() -> None:
    caller = Caller("dynamic-group", NODES.names, values={"request.principal.type": "datasciencejobrun"})
    of = "allow any-user to manage objects in tenancy where request.principal.type = '{}'"
    assert is_allowed(OBJECTS, of.format("datasciencejobrun"), caller=caller) is True
    assert is_allowed(OBJECTS, of.format("datasciencenotebooksession"), caller=caller) is False


def test_a_policy_counts_for_its_own_compartment_and_below() -> None:
    here = f"allow {GROUP} to manage objects in compartment jobs"
    assert is_allowed(OBJECTS, here, home=TEAM) is True
    assert is_allowed(OBJECTS, here, home=JOBS) is True  # it may name itself
    assert is_allowed(OBJECTS, here, home=OTHER) is False
    # Where the way to the tenancy is not seen, nobody knows what is above.
    hidden = OBJECTS.replace(JOBS, "hidden")
    assert is_allowed(hidden, hidden) is None
    assert is_allowed(hidden, hidden, home="hidden") is True
    assert is_allowed(hidden, f"allow {GROUP} to manage objects in compartment id {OTHER}", home="hidden") is None
    assert is_allowed(hidden, f"allow {GROUP} to manage objects in compartment x", home="hidden") is False


def test_names_that_are_not_seen_are_not_known() -> None:
    def veiled(_: str) -> Sequence[Ancestor]:
        return [Ancestor(JOBS, ""), Ancestor(ROOT, "", is_root=True)]

    there = [Given(f"allow {GROUP} to manage objects in compartment jobs", ROOT)]
    assert judged(OBJECTS, NODES, there, ROOT, veiled).is_allowed is None


def test_the_root_compartment() -> None:
    wanted = f"allow {GROUP} to manage objects in tenancy"
    assert is_allowed(wanted, wanted) is True
    assert is_allowed(wanted, f"allow {GROUP} to manage objects in compartment team") is False


def test_what_is_no_statement() -> None:
    assert parse_statement("endorse group x to manage objects in any-tenancy") is None


@pytest.mark.parametrize(
    "text", ["", "all {", "all {}", "any {a = 'b'", "a = b", "a > 'b'", "a = 'b' c", "all {a = 'b' b}", "(a)"]
)
def test_conditions_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"condition|comparison"):
        parse_condition(text)


def test_rule_of_a_dynamic_group() -> None:
    run = {"resource.type": "datasciencejobrun", "resource.compartment.id": JOBS}
    absent = ("instance.",)

    def matches(text: str) -> bool | None:
        return holds(parse_condition(text), run, absent)

    assert matches(f"all {{resource.type = 'datasciencejobrun', resource.compartment.id = '{JOBS}'}}") is True
    assert matches("ALL{resource.type='datasciencejobrun'}") is True
    assert matches(f'any {{instance.compartment.id = "{JOBS}", resource.type = "datasciencejobrun"}}') is True
    assert matches(f"all {{resource.type = 'datasciencejobrun', resource.compartment.id = '{OTHER}'}}") is False
    assert matches(f"any {{instance.compartment.id = '{JOBS}'}}") is False
    assert matches("all {resource.type = 'datasciencejobrun', tag.team.name.value = 'a'}") is None
