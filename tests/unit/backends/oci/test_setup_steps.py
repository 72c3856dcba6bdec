"""What is missing in a tenancy, step by step: what is made, what is kept, and what only a person can do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from oci_cluster.backends.oci.setup import (
    NEW_LIST,
    Found,
    Policy,
    Step,
    steps_of,
)
from oci_cluster.backends.oci.tenancy.client import Answer
from oci_cluster.backends.oci.tenancy.requirements import lifecycle_rules, matching_rule, needed_of, statements
from oci_cluster.backends.oci.tenancy.security_rules import SecurityList, Subnet, rule_line, security_rules

JOBS, TENANCY, CIDR = "ocid1.compartment.oc1..jobs", "ocid1.tenancy.oc1..t", "10.0.0.0/20"
GIVEN = {"COMPARTMENT_OCID": JOBS, "WORK_DIR": "oci://b@ns/a/w", "REGISTRY": "iad.ocir.io/ns/t"}
NEEDED = replace(needed_of(GIVEN, ("dask",), "r"), log="nodes", makes_logs=False)
TEXTS = tuple(one.text for one in statements(NEEDED))
RULES = security_rules([CIDR], {"dask": [(9999, 9999), (8700, 8800)]})
LISTS = [SecurityList("list1", "default", [], [], "e1")]
SUBNET = Subnet("subnet", [CIDR], "vcn", JOBS, LISTS, etag="e0")
EMPTY = Found(tenancy=TENANCY, jobs=JOBS, images=JOBS, namespace="ns", home_region="home", lacking=TEXTS)
WHOLE = Found(
    tenancy=TENANCY,
    jobs=JOBS,
    images=JOBS,
    namespace="ns",
    home_region="home",
    has_people=True,
    nodes_rule=matching_rule(JOBS),
    has_runs=True,
    policy=Policy("p", TEXTS, "e"),
    bucket=JOBS,
    lifecycle=lifecycle_rules(NEEDED),
    repositories={"t/dask": JOBS},
    log_group="ocid1.loggroup.oc1..g",
    log="ocid1.log.oc1..l",
    subnet=replace(SUBNET, lists=[SecurityList("list1", "default", RULES[0], RULES[1])]),
)


def steps(found: Found, rules: Any = RULES) -> list[Step]:
    return steps_of(NEEDED, found, rules)


def word(step: Step, option: str) -> Any:
    """Return what follows *option* in a step's command, read as JSON where it is."""
    text = step.command[step.command.index(option) + 1]
    return json.loads(text) if text[:1] in "[{" else text


def test_nothing_is_missing_where_all_is_there() -> None:
    assert steps(WHOLE) == []


def test_all_is_made_in_an_order_that_works() -> None:
    made = [" ".join(step.command[:3]).partition(" --")[0] for step in steps(replace(EMPTY, subnet=SUBNET))]
    assert made == [
        "iam group create",
        "iam dynamic-group create",
        "artifacts container repository",
        "logging log-group create",
        "logging log create",
        "os bucket create",
        "iam policy create",
        "os object-lifecycle-policy put",
        "network security-list create",
        "network subnet update",
    ]


def test_identity_is_changed_in_the_home_region() -> None:
    """OCI refuses that in another region, and everything else is made in the region of the clusters."""
    for step in steps(replace(EMPTY, subnet=SUBNET)):
        assert ("--region" in step.command) is (step.command[0] == "iam")


def test_what_cannot_be_seen_is_not_made() -> None:
    found = replace(WHOLE, has_people=None, nodes_rule=None, subnet=None)
    assert steps(found) == []


# --- Identity -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("has_runs", [True, None, False])
def test_a_dynamic_group_with_another_rule_is_left_alone(*, has_runs: bool | None) -> None:
    """Where the rule's text does not tell whether it is another one, that is shown, and all else is made."""
    found = steps(replace(WHOLE, nodes_rule="theirs", has_runs=has_runs))
    assert [step.command for step in found] == ([()] if has_runs is False else [])
    assert has_runs is not False or "has another matching rule, theirs" in found[0].problem


def test_statements_are_added_to_the_policy_and_none_is_taken_away() -> None:
    theirs = "allow group x to read metrics in tenancy"
    (step,) = steps(replace(WHOLE, policy=Policy("p", (*TEXTS[2:], theirs), "etag", "2020-01-02"), lacking=TEXTS[:2]))
    assert step.lines == TEXTS[:2]
    assert word(step, "--statements") == [*TEXTS[2:], theirs, *TEXTS[:2]]
    assert (word(step, "--if-match"), word(step, "--version-date")) == ("etag", "2020-01-02")


def test_without_our_policy_there_will_be_one() -> None:
    (step,) = steps(replace(WHOLE, policy=None, lacking=TEXTS[:1]))
    assert step.command[2] == "create"
    assert word(step, "--statements") == [TEXTS[0]]


def test_a_group_that_its_domain_lacks_is_a_persons_to_make() -> None:
    needed = replace(NEEDED, people="d/p", nodes="d/n")
    found = steps_of(needed, replace(WHOLE, has_people=False, nodes_rule="", has_runs=False), RULES)
    assert [(step.item, step.command) for step in found] == [("group d/p", ()), ("dynamic group d/n", ())]
    assert all("not in that identity domain: make it there" in step.problem for step in found)


# --- Storage, registry ----------------------------------------------------------------------------------------------


def test_rules_of_others_stay_in_the_bucket_and_ours_are_replaced() -> None:
    ours, uploads = lifecycle_rules(NEEDED)
    theirs = {**uploads, "name": "theirs"}
    given = [{**ours, "timeAmount": 7}, theirs, {**uploads, "objectNameFilter": {"inclusionPrefixes": []}}]
    (step,) = steps(replace(WHOLE, lifecycle=given, lifecycle_etag="e", expiring="that deletes 3"))
    assert step.lines == ("oci-cluster-old-clusters: DELETE objects below a/w/ after 90 days", "that deletes 3")
    assert word(step, "--items") == [theirs, given[2], ours]
    assert word(step, "--if-match") == "e"


def test_the_rule_of_another_work_dir_stays() -> None:
    """Of another team, or of another YAML of ADS's: both work dirs have a rule, and each is found again."""
    ours, uploads = lifecycle_rules(NEEDED)
    theirs = {**ours, "objectNameFilter": {"inclusionPrefixes": ["b/w/"]}}
    (step,) = steps(replace(WHOLE, lifecycle=[theirs, uploads]))
    *there, added = word(step, "--items")
    assert there == [theirs, uploads]
    assert added == {**ours, "name": added["name"]}
    assert added["name"].startswith(f"{ours['name']}-")
    assert steps(replace(WHOLE, lifecycle=[theirs, uploads, added])) == []
    (step,) = steps(replace(WHOLE, lifecycle=[theirs, uploads, {**added, "timeAmount": 7}]))
    assert word(step, "--items") == [theirs, uploads, added]


def test_a_bucket_without_rules_gets_ours_if_nobody_is_faster() -> None:
    (step,) = steps(replace(WHOLE, lifecycle=None))
    assert word(step, "--items") == lifecycle_rules(NEEDED)
    assert word(step, "--if-none-match") == "*"


def test_what_is_only_changed_needs_no_tags_whatever_its_name() -> None:
    needed = replace(NEEDED, bucket="create", tags={"Operations": {"Team": "x"}})
    required = Answer(["Operations.Team", "Operations.CostCenter"])
    (step,) = steps_of(needed, replace(WHOLE, lifecycle=None, required_tags=required), RULES)
    assert (step.problem, "--defined-tags" in step.command) == ("", False)
    bucket, *_, tags = steps_of(needed, replace(WHOLE, bucket="", required_tags=required), RULES)
    assert word(bucket, "--defined-tags") == needed.tags
    assert tags.problem.startswith("Operations.CostCenter: all that is made there must have them")


def test_a_repository_in_another_compartment_is_there() -> None:
    assert steps(replace(WHOLE, repositories={"t/dask": TENANCY})) == []


# --- Network --------------------------------------------------------------------------------------------------------


def in_subnet(lists: Sequence[SecurityList], unused: SecurityList | None = None) -> list[Step]:
    return steps(replace(WHOLE, subnet=replace(SUBNET, lists=lists, unused=unused)))


def test_a_list_of_ours_is_made_and_the_subnets_own_stay() -> None:
    made, attached = in_subnet(LISTS)
    assert made.lines == tuple(map(rule_line, [*RULES[0], *RULES[1]]))
    assert word(made, "--ingress-security-rules") == RULES[0]
    assert word(attached, "--security-list-ids") == ["list1", NEW_LIST]
    assert word(attached, "--if-match") == "e0"


def test_a_rule_that_is_wider_is_enough() -> None:
    wide = {"protocol": "all", "source": "10.0.0.0/8"}
    out = {"protocol": "all", "destination": "0.0.0.0/0"}
    assert in_subnet([SecurityList("list1", "default", [wide], [out])]) == []


def test_what_our_list_has_lost_is_added_to_it() -> None:
    theirs = {"protocol": "6", "source": "192.0.2.0/24"}
    (step,) = in_subnet([*LISTS, SecurityList("ours", "oci-cluster", [theirs, RULES[0][0]], RULES[1], "e2")])
    assert word(step, "--security-list-id") == "ours"
    assert word(step, "--ingress-security-rules") == [theirs, *RULES[0]]
    assert word(step, "--egress-security-rules") == RULES[1]
    assert word(step, "--if-match") == "e2"


def test_a_list_that_was_made_and_not_attached_is_used() -> None:
    (step,) = in_subnet(LISTS, SecurityList("ours", "oci-cluster", *RULES, "e"))
    assert word(step, "--security-list-ids") == ["list1", "ours"]
    fixed, attached = in_subnet(LISTS, SecurityList("ours", "oci-cluster", [], RULES[1], "e"))
    assert word(fixed, "--ingress-security-rules") == RULES[0]
    assert word(attached, "--security-list-ids") == ["list1", "ours"]


def test_a_subnet_that_is_full_is_left_to_a_person() -> None:
    (step,) = in_subnet([replace(LISTS[0], name=f"n{number}") for number in range(5)])
    assert "5 security lists, n0, n1, n2, n3, n4, and may have 5" in step.problem
    assert step.command == ()


def test_one_port_is_said_as_one() -> None:
    assert rule_line(RULES[0][0]) == "ingress, TCP 9999, from 10.0.0.0/20"
    assert rule_line(RULES[1][-1]) == "egress, TCP 443, to 0.0.0.0/0"
