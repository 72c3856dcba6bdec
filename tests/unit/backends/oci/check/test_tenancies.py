"""Right tenancies of many kinds, without a false alarm; and faults, with fixes that fix when applied as printed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from unit.backends.oci.fake_tenancy import (
    BUCKET,
    GIVEN,
    JOBS,
    NET,
    ROOT,
    World,
    core,
    egress,
    ingress,
    item,
    refusal,
    route,
)

from oci_cluster.backends.findings import Finding, Verdict
from oci_cluster.backends.oci import check
from oci_cluster.backends.oci.check import image, limits

Change = Callable[[World], Any]
OTHER, NODES, PEOPLE = "ocid1.compartment.oc1..other", "dynamic-group cluster-runs", "group data-scientists"
# How often a check and its fixes may follow each other: what one makes, the next may find incomplete.
ROUNDS = 3


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    found = World()
    monkeypatch.setattr(check, "Service", lambda _: found)
    monkeypatch.setattr(check, "of_settings", lambda *_: iter(()))
    for part in (image, limits):  # which ask others than this tenancy, and have tests of their own
        monkeypatch.setattr(part, "findings", lambda *_: iter(()))
    return found


def looked(world: World, given: dict[str, str]) -> list[Finding]:
    return list(check.findings(world.checked(**given), print))


# --- How a tenancy is changed


def statements(old: str, new: str) -> Change:
    """Say *new* for *old* in all statements."""

    def change(world: World) -> None:
        assert any(old in one for one in world.statements)
        world.statements = [one.replace(old, new) for one in world.statements]

    return change


def without(word: str, *more: str) -> Change:
    """Take the statements with *word* away, and add *more*."""

    def change(world: World) -> None:
        kept = [one for one in world.statements if word not in one]
        assert len(kept) < len(world.statements)
        world.statements = [*kept, *more]

    return change


def also(*more: str) -> Change:
    return lambda world: world.statements.extend(more)


def answers(**by_name: Any) -> Change:
    return lambda world: world.by_name.update(by_name)


def every(*changes: Change) -> Change:
    return lambda world: [change(world) for change in changes]


def subnet(**fields: Any) -> Change:
    return lambda world: vars(world.subnet).update(fields)


def rules(into: Sequence[Any], out: Sequence[Any] | None = None) -> Change:
    def change(world: World) -> None:
        world.rules.ingress_security_rules = list(into)
        if out is not None:
            world.rules.egress_security_rules = list(out)

    return change


def ports(low: int, high: int, *, of: str = "destination") -> Any:
    return core.TcpOptions(**{f"{of}_port_range": core.PortRange(min=low, max=high)})


def repository(compartment: str) -> Change:
    there = [item(display_name="training/dask", compartment_id=compartment)]
    return answers(list_container_repositories=there)


def nested(world: World) -> None:
    """Put the compartment of the Jobs below one of the same name."""

    def compartment(ocid: str) -> Any:
        if not ocid.startswith("ocid1.compartment."):
            raise refusal()
        return item(id=ocid, name="jobs", compartment_id=OTHER if ocid == JOBS else ROOT)

    world.by_name["get_compartment"] = compartment


def policy_in(compartment: str) -> Change:
    """Have somebody's policy in *compartment* say all."""

    def change(world: World) -> None:
        said = list(world.statements)
        world.statements = []
        world.by_name["list_policies"] = lambda home: [item(statements=said)] if home == compartment else []

    return change


def rule(text: str) -> Change:
    return lambda world: setattr(world.group, "matching_rule", text)


RUNS = f"resource.compartment.id = '{JOBS}'"
TWO = {"cidr_block": "10.0.0.0/24", "ipv4_cidr_blocks": ["10.0.0.0/24", "10.0.1.0/24"]}
BOTH = {"SUBNET_CIDR": "10.0.0.0/24,10.0.1.0/24"}
IN_PIECES = [ingress(tcp_options=ports(*span)) for span in ((1, 3050), (3051, 8749), (8750, 65535))]
SERVICES = "all-iad-services-in-oracle-services-network"

RIGHT: dict[str, tuple[Change, dict[str, str]]] = {
    "as setup.sh makes it": (lambda _: None, {}),
    "groups by OCID": (every(statements(PEOPLE, "group id g"), statements(NODES, "dynamic-group id d")), {}),
    "several groups by OCID": (statements(PEOPLE, "group id x, id g"), {}),
    "any-group": (statements(PEOPLE, "any-group"), {}),
    "any-group for nodes": (statements(NODES, "any-group"), {}),
    "any-user for all": (without("allow", "allow any-user to manage all-resources in tenancy"), {}),
    "any-user, of Job Runs": (
        statements(f"{NODES} to manage objects", "any-user to manage object-family"),
        {},
    ),
    "names in quotation marks": (every(statements(PEOPLE, "group 'Default'/'Data-Scientists'")), {}),
    "statements in capitals": (
        lambda w: setattr(
            w, "statements", [re.sub("^allow (.*) to (.*?) in", r"ALLOW \1 TO \2 IN", s) for s in w.statements]
        ),
        {},
    ),
    "families": (statements("to manage objects", "to manage object-family"), {}),
    "the tenancy's administrators launch": (
        without("data-scientists", "allow group Administrators to manage all-resources in tenancy"),
        {"PEOPLE_GROUP": "Administrators"},
    ),
    "administrators are not denied": (
        every(
            without("data-scientists", "allow group Administrators to manage all-resources in tenancy"),
            also("deny group Administrators to inspect all-resources in tenancy"),
        ),
        {"PEOPLE_GROUP": "Administrators"},
    ),
    "others are denied": (also("deny group interns to inspect all-resources in tenancy"), {}),
    "elsewhere is denied": (also(f"deny any-user to inspect all-resources in compartment id {OTHER}"), {}),
    "another bucket is denied": (
        also("deny any-user to inspect objects in tenancy where target.bucket.name = 'private'"),
        {},
    ),
    "deny policies are switched on": (
        also("deny any-user to manage policies in tenancy where all {target.policy.type = 'deny', a.b != 'c'}"),
        {},
    ),
    "compartments nested and named alike": (nested, {}),
    "statements by path": (every(nested, statements(f"compartment id {JOBS}", "compartment jobs:jobs")), {}),
    "a policy of somebody's in the Jobs' compartment": (
        every(
            statements(f"compartment id {NET}", f"compartment id {JOBS}"), policy_in(JOBS), subnet(compartment_id=JOBS)
        ),
        {},
    ),
    "a repository in the root": (
        every(
            repository(ROOT),
            also(f"allow {NODES} to read repos in tenancy", f"allow {PEOPLE} to manage repos in tenancy"),
        ),
        {},
    ),
    "a repository elsewhere": (
        every(
            repository(OTHER),
            also(f"allow {NODES} to read repos in tenancy", f"allow {PEOPLE} to manage repos in tenancy"),
        ),
        {},
    ),
    "a repository elsewhere, with the setting": (
        every(repository(OTHER), also(f"allow any-group to manage repos in compartment id {OTHER}")),
        {"IMAGES_COMPARTMENT_OCID": OTHER},
    ),
    "another repository's name begins alike": (
        answers(
            list_container_repositories=[
                item(display_name="training/dask-old", compartment_id=ROOT),
                item(display_name="training/dask", compartment_id=JOBS),
            ]
        ),
        {},
    ),
    "a log group elsewhere": (
        every(
            answers(get_log_group=item(display_name="logs", compartment_id=OTHER)),
            also(f"allow any-group to manage logging-family in compartment id {OTHER}"),
        ),
        {},
    ),
    "one log for all": (without("manage log-groups"), {"LOG_OCID": "ocid1.log.oc1.iad.l"}),
    "a bucket elsewhere": (
        every(
            answers(get_bucket=item(compartment_id=OTHER)),
            also(
                f"allow any-group to manage object-family in compartment id {OTHER}",
                f"allow any-user to manage object-family in compartment id {OTHER}",
            ),
        ),
        {},
    ),
    "no subnet of ours": (without("virtual-network-family"), {"SUBNET_OCID": "", "BASTION_ID": ""}),
    "two blocks": (
        every(subnet(**TWO), rules([ingress("10.0.0.0/24"), ingress("10.0.1.0/24")])),
        {**BOTH},
    ),
    "two blocks, one rule": (every(subnet(**TWO), rules([ingress("10.0.0.0/22")])), {"SUBNET_CIDR": ""}),
    "two blocks, the first is full": (
        every(subnet(**TWO), rules([ingress("10.0.0.0/16")]), answers(list_private_ips=[item()] * 253)),
        {**BOTH},
    ),
    "rules in pieces of ports": (rules(IN_PIECES), {}),
    "rules in pieces of addresses": (rules([ingress("10.0.0.0/25"), ingress("10.0.0.128/25")]), {}),
    "stateless in both directions": (
        rules([ingress("0.0.0.0/0", is_stateless=True)], [egress(is_stateless=True)]),
        {},
    ),
    "stateless between nodes, stateful to services": (
        rules(
            [ingress(is_stateless=True)],
            [egress("10.0.0.0/24", is_stateless=True), egress(tcp_options=ports(443, 443))],
        ),
        {},
    ),
    "rules for IPv6, too": (
        rules([ingress("::/0"), ingress("2001:db8::/64"), ingress()], [egress("::/0"), egress()]),
        {},
    ),
    "other protocols, too": (rules([ingress("0.0.0.0/0", protocol="1"), ingress(protocol="all")]), {}),
    "services by their name": (
        rules([ingress()], [egress("10.0.0.0/24"), egress(SERVICES, destination_type="SERVICE_CIDR_BLOCK")]),
        {},
    ),
    "the rule of the dynamic group in another order": (
        rule(f"ALL {{{RUNS}, resource.type='datasciencejobrun'}}"),
        {},
    ),
    "the dynamic group has more": (
        rule(f"any {{instance.compartment.id = 'x', all {{resource.type = 'datasciencejobrun', {RUNS}}}}}"),
        {},
    ),
    "a dynamic group of another name": (
        every(lambda w: setattr(w.group, "name", "theirs"), statements("cluster-runs", "theirs")),
        {},
    ),
    "the group's name in capitals": (answers(list_groups=[item(id="g", name="Data-Scientists")]), {}),
    "a service gateway alone": (
        lambda w: setattr(
            w.table, "route_rules", [route("ocid1.servicegateway.oc1.iad.g", SERVICES, "SERVICE_CIDR_BLOCK")]
        ),
        {},
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_of_a_right_tenancy_nothing_is_said_to_be_wrong(world: World, name: str) -> None:
    change, given = RIGHT[name]
    change(world)
    found = looked(world, given)
    assert [(one.item, one.text) for one in found if one.verdict is not Verdict.FINE] == []


# --- Faults ----------------------------------------------------------------------------------------------------------


def apply(world: World, given: dict[str, str], fix: str) -> None:
    """Do what a fix says, line by line, as far as this tenancy can be changed."""
    for line in fix.splitlines():
        setting = re.fullmatch(r"([A-Z_]+)=(\S*)", line)
        if setting:
            given[setting[1]] = setting[2]
        elif line.startswith("allow "):
            world.statements.append(line)
        elif not line.startswith("#"):
            _command(world, shlex.split(line))


def _command(world: World, words: Sequence[str]) -> None:
    def option(name: str) -> str:
        return words[words.index(f"--{name}") + 1]

    line = " ".join(words)
    if "iam group add-user" in line:
        assert "iam group list --raw-output" not in line or option("name") == "data-scientists"
        world.by_name.update(IN_GROUP)
    elif "iam dynamic-group update" in line:
        world.group.matching_rule = option("matching-rule")
    elif "iam group create" in line:
        world.by_name["list_groups"].append(item(id="g", name=option("name")))
    elif "security-list create" in line:
        of = {"ingress": core.IngressSecurityRule, "egress": core.EgressSecurityRule}
        for direction, kind in of.items():
            said = json.loads(option(f"{direction}-security-rules"))
            getattr(world.rules, f"{direction}_security_rules").extend(_rule(kind, one) for one in said)
    elif "nat-gateway update" in line:
        world.nat.block_traffic = option("block-traffic") == "true"
    else:
        assert "network subnet update" in line, line


def _rule(kind: Any, said: dict[str, Any]) -> Any:
    span = said["tcpOptions"]["destinationPortRange"]
    end = "source" if "source" in said else "destination"
    return kind(protocol="6", is_stateless=False, tcp_options=ports(span["min"], span["max"]), **{end: said[end]})


_OF_GROUP = ("list_jobs", "get_project", "put_object", "list_objects", "get_log_group", "get_bastion", "get_subnet")
IN_GROUP = {name: World().by_name[name] for name in _OF_GROUP}


def not_in_the_group(world: World) -> None:
    world.by_name.update(dict.fromkeys((*_OF_GROUP, "list_buckets"), refusal()))
    IN_GROUP.update({name: found for name, found in World().by_name.items() if name in _OF_GROUP})
    IN_GROUP.update(
        put_object=world._put, list_objects=lambda *_: item(objects=[item(name=one) for one in world.objects])
    )
    IN_GROUP.update(get_subnet=world.subnet)


DENIED = f"deny {PEOPLE} to manage data-science-jobs in tenancy"

#: By name: what is done, with which settings, which item tells, and whether a fix as printed makes it go.
FAULTS: dict[str, tuple[Change, dict[str, str], str, bool]] = {
    "not in the group": (not_in_the_group, {}, "your group", True),
    "the repository is in the root": (repository(ROOT), {}, "policies", True),
    "the repository is elsewhere": (repository(OTHER), {}, "policies", True),
    "people have nothing": (without("data-scientists"), {}, "policies", True),
    "nodes have nothing": (without("cluster-runs"), {}, "policies", True),
    "another group by OCID": (statements(PEOPLE, "group id x"), {}, "policies", True),
    "any-group is no service": (statements("service datascience", "any-group"), {}, "policies", True),
    "people may read Jobs alone": (
        statements("manage data-science-family", "read data-science-family"),
        {},
        "policies",
        True,
    ),
    "people are denied": (also(DENIED), {}, "policies", False),
    "all are denied": (also("deny any-user to inspect all-resources in tenancy"), {}, "policies", False),
    "nodes are denied": (also(f"deny {NODES} to read repos in tenancy"), {}, "policies", False),
    "some may be denied": (also("deny any-user to manage objects in tenancy where a.b = 'c'"), {}, "policies", False),
    "the domain's group": (
        every(statements("cluster-runs", "'ours'/'cluster-runs'"), answers(list_dynamic_groups=[])),
        {},
        "dynamic group",
        False,
    ),
    "another rule of the dynamic group": (
        rule("all {resource.type = 'datasciencenotebooksession'}"),
        {},
        "dynamic group",
        True,
    ),
    "the dynamic group of another compartment": (
        rule(f"all {{resource.type = 'datasciencejobrun', resource.compartment.id = '{OTHER}'}}"),
        {},
        "dynamic group",
        True,
    ),
    "a hole between two rules": (rules([IN_PIECES[0], IN_PIECES[2]]), {}, "security rules", True),
    "half of the addresses": (rules([ingress("10.0.0.0/25")]), {}, "security rules", True),
    "a stateless rule without answers": (
        rules(
            [ingress(is_stateless=True)],
            [egress(tcp_options=ports(443, 443)), egress("10.0.0.0/24", tcp_options=ports(1, 9000))],
        ),
        {},
        "security rules",
        True,
    ),
    "answers to some ports alone": (
        rules(
            [
                ingress(is_stateless=True),
                ingress("0.0.0.0/0", is_stateless=True, tcp_options=ports(443, 443, of="source")),
            ],
            [egress(is_stateless=True, tcp_options=ports(1, 9000))],
        ),
        {},
        "security rules",
        True,
    ),
    "rules for one of two blocks": (subnet(**TWO), BOTH, "security rules", True),
    "no rules at all": (rules([], []), {}, "security rules", True),
    "IPv6 alone": (rules([ingress("::/0")], [egress("::/0")]), {}, "security rules", True),
    "SUBNET_CIDR is one of two blocks": (
        every(subnet(**TWO), rules([ingress("10.0.0.0/16")])),
        {},
        "SUBNET_CIDR",
        True,
    ),
    "SUBNET_CIDR is another subnet's": (lambda _: None, {"SUBNET_CIDR": "10.9.0.0/24"}, "SUBNET_CIDR", True),
    "a NAT gateway that blocks": (lambda w: setattr(w.nat, "block_traffic", True), {}, "route", True),
    "the project is deleted": (
        answers(
            get_project=lambda ocid: item(display_name="p", lifecycle_state="ACTIVE" if ocid == "p2" else "DELETED"),
            list_projects=[item(id="p2", display_name="p2")],
        ),
        {},
        "project",
        True,
    ),
    "a bastion of another VCN": (answers(get_bastion=item(name="b", target_vcn_id="x")), {}, "bastion", True),
    "a bastion that is being deleted": (
        answers(get_bastion=item(name="b", target_vcn_id="v", lifecycle_state="DELETING")),
        {},
        "bastion",
        True,
    ),
    "another namespace": (lambda _: None, {"WORK_DIR": f"oci://{BUCKET}@other/team-a/work"}, "namespace", True),
    "the log is switched off": (
        answers(get_log=item(display_name="l", is_enabled=False, log_type="CUSTOM")),
        {"LOG_OCID": "ocid1.log.oc1.iad.l"},
        "log group",
        True,
    ),
    "the log is a service's": (
        answers(get_log=item(display_name="l", is_enabled=True, log_type="SERVICE")),
        {"LOG_OCID": "ocid1.log.oc1.iad.l"},
        "log group",
        True,
    ),
    "the compartment is being deleted": (
        answers(
            get_compartment=lambda ocid: item(id=ocid, name="jobs", compartment_id=ROOT, lifecycle_state="DELETING")
        ),
        {},
        "compartment",
        False,
    ),
    "a NAT gateway that is being deleted": (
        lambda w: setattr(w.nat, "lifecycle_state", "TERMINATING"),
        {},
        "route",
        False,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_its_fix_fixes(world: World, name: str) -> None:
    change, more, told_by, is_fixed = FAULTS[name]
    given = {**GIVEN, **more}
    change(world)
    found = looked(world, given)
    assert told_by in {one.item for one in found if one.verdict is not Verdict.FINE}
    for _ in range(ROUNDS):
        for fix in dict.fromkeys(one.fix for one in found if is_fixed and one.verdict is not Verdict.FINE):
            apply(world, given, fix)
        found = looked(world, given)
    left = [(one.item, one.text) for one in found if one.verdict is not Verdict.FINE]
    assert (not left) is is_fixed, left


def test_who_is_not_in_the_group_is_told_that_first(world: World) -> None:
    not_in_the_group(world)
    wrong = [one for one in looked(world, {}) if one.verdict is Verdict.FAILS]
    assert wrong[0].item == "your group"
    assert 'oci iam group add-user --group-id "$group" --user-id ocid1.user.oc1..u' in wrong[0].fix
    assert not [one for one in wrong if "allow group" in one.fix]


def test_no_fix_of_a_denial_allows_what_is_allowed(world: World) -> None:
    world.statements.append(DENIED)
    (wrong,) = [one for one in looked(world, {}) if one.verdict is Verdict.FAILS]
    assert wrong.fix == f"# what denies it must go, or have a condition: {DENIED}"


def test_a_group_of_a_domain_is_named_by_a_setting(world: World) -> None:
    FAULTS["the domain's group"][0](world)
    (wrong,) = [one for one in looked(world, {}) if one.item == "dynamic group"]
    assert (wrong.verdict, wrong.fix) == (Verdict.FAILS, "NODES_GROUP=ours/cluster-runs")
