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
    SUBNET,
    World,
    bastion,
    bucket,
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
from oci_cluster.backends.oci.errors import refused

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
    # The root's list has those of all compartments, as it is asked for them.
    return answers(list_container_repositories=lambda place: there if place in {ROOT, compartment} else [])


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


def policy_also_in(compartment: str, *more: str) -> Change:
    """Have a policy in *compartment* say *more*."""

    def change(world: World) -> None:
        usual, own = world.by_name["list_policies"], [item(statements=list(more))]
        world.by_name["list_policies"] = lambda home: own if home == compartment else usual(home)

    return change


def tag(name: str, *, is_required: bool = True) -> Any:
    return item(tag_namespace_id="n", tag_definition_name=name, is_required=is_required)


def rule(text: str) -> Change:
    return lambda world: setattr(world.group, "matching_rule", text)


def domain(world: World) -> None:
    """Have the groups in an identity domain, and statements that name these by OCID."""
    people, runs = item(ocid="gd"), item(ocid="dd", matching_rule=world.group.matching_rule)
    every(statements(PEOPLE, "group id gd"), statements(NODES, "dynamic-group id dd"))(world)
    world.by_name["list_domains"] = [item(display_name="Ours", url="https://ours")]
    world.by_name["list_groups"] = lambda *home: [item(id="a", name="Administrators")] if home else listed(people)
    world.by_name |= {"list_dynamic_groups": [], "list_dynamic_resource_groups": listed(runs)}


def listed(one: Any) -> Any:
    return item(resources=[one])


OURS = {"PEOPLE_GROUP": "Ours/data-scientists", "NODES_GROUP": "Ours/cluster-runs"}
RUNS = f"resource.compartment.id = '{JOBS}'"
TWO = {"cidr_block": "10.0.0.0/24", "ipv4_cidr_blocks": ["10.0.0.0/24", "10.0.1.0/24"]}
BOTH = {"SUBNET_CIDR": "10.0.0.0/24,10.0.1.0/24"}
IN_PIECES = [ingress(tcp_options=ports(*span)) for span in ((1, 3050), (3051, 8749), (8750, 65535))]
SERVICES = "all-iad-services-in-oracle-services-network"

RIGHT: dict[str, tuple[Change, dict[str, str]]] = {
    "as setup.sh makes it": (lambda _: None, {}),
    "groups by OCID": (every(statements(PEOPLE, "group id g"), statements(NODES, "dynamic-group id d")), {}),
    "groups of a domain by OCID": (domain, OURS),
    "groups by OCID, with their domain Default": (
        every(statements(PEOPLE, "group id g"), statements(NODES, "dynamic-group id d")),
        {"PEOPLE_GROUP": "Default/data-scientists", "NODES_GROUP": "default/cluster-runs"},
    ),
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
    "a repository elsewhere, with the policy there": (
        every(
            repository(OTHER),
            policy_also_in(OTHER, f"allow any-group to manage repos in compartment id {OTHER}"),
        ),
        {},
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
    "a bucket elsewhere": (
        every(
            answers(get_bucket=bucket(compartment_id=OTHER)),
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
    "a project elsewhere, whose readers are the group": (
        every(
            answers(get_project=item(display_name="p", compartment_id=OTHER)),
            also(f"allow {PEOPLE} to read data-science-projects in compartment id {OTHER}"),
        ),
        {},
    ),
    "a project elsewhere, with the policy there": (
        every(
            answers(get_project=item(display_name="p", compartment_id=OTHER)),
            policy_also_in(OTHER, f"allow {PEOPLE} to read data-science-projects in compartment id {OTHER}"),
        ),
        {},
    ),
    "a required tag that is given": (
        answers(assemble_effective_tag_set=[tag("CostCenter"), tag("Owner", is_required=False)]),
        {"DEFINED_TAGS": "operations.costcenter=42"},
    ),
    "a bastion of another subnet": (
        every(
            answers(get_bastion=bastion(private_endpoint_ip_address="10.0.3.9")),
            rules([ingress(), ingress("10.0.3.9/32")]),
        ),
        {},
    ),
    "a bucket with a key of its own": (answers(get_bucket=bucket(kms_key_id="ocid1.key.oc1.iad.k")), {}),
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
        setting = re.fullmatch(r"([A-Z_]+)=(.*)", line)
        made = re.fullmatch(
            r"made=\$\((.*) --query data.id --raw-output\) && echo .([A-Z_]+)=\$made. >>config.env", line
        )
        if setting:
            given[setting[1]] = "".join(shlex.split(setting[2]))
        elif made:
            _command(world, shlex.split(made[1]))
            given[made[2]] = MADE
        elif key := re.fullmatch(r"""echo "([A-Z_]+)='\$\(ssh-keyscan .*\)'" >>config.env""", line):
            given[key[1]] = "ssh-ed25519 AAAA"
        elif line.startswith("allow "):
            world.statements.append(line)
        elif not line.startswith("#"):
            _command(world, shlex.split(line))


def _command(world: World, words: Sequence[str]) -> None:
    line = " ".join(words)
    (done,) = [do for command, do in COMMANDS.items() if command in line][:1]
    done(world, lambda name: words[words.index(f"--{name}") + 1])


def _add_to_group(world: World, option: Callable[[str], str]) -> None:
    assert option("user-id") == "ocid1.user.oc1..u"
    world.by_name.update(IN_GROUP)


def _add_rules(world: World, option: Callable[[str], str]) -> None:
    for direction, kind in (("ingress", core.IngressSecurityRule), ("egress", core.EgressSecurityRule)):
        said = json.loads(option(f"{direction}-security-rules"))
        getattr(world.rules, f"{direction}_security_rules").extend(_rule(kind, one) for one in said)


def _make_dynamic_group(world: World, option: Callable[[str], str]) -> None:
    made = item(id="d", name=option("name"), matching_rule=option("matching-rule"))
    world.by_name["list_dynamic_groups"] = [made]


def _make_bucket(world: World, _: Callable[[str], str]) -> None:
    world.by_name |= {"get_bucket": bucket(), "list_retention_rules": [], "delete_object": world._delete}
    world.by_name["put_object"] = world._put


def _be_known(world: World, _: Callable[[str], str]) -> None:
    world.by_name["get_namespace"] = "ns"


LOG = item(display_name="nodes", is_enabled=True, log_type="CUSTOM")
COMMANDS: dict[str, Callable[[World, Callable[[str], str]], Any]] = {
    "iam group add-user": _add_to_group,
    "iam dynamic-group update": lambda world, option: setattr(world.group, "matching_rule", option("matching-rule")),
    "iam dynamic-group create": _make_dynamic_group,
    "iam group create": lambda world, option: world.by_name["list_groups"].append(item(id="g", name=option("name"))),
    "security-list create": _add_rules,
    "network subnet update": lambda *_: None,
    "nat-gateway update": lambda world, option: setattr(world.nat, "block_traffic", option("block-traffic") == "true"),
    "os bucket create": _make_bucket,
    "data-science project create": lambda world, _: world.by_name.update(
        get_project=item(display_name="clusters", compartment_id=JOBS)
    ),
    "oci iam user api-key upload": _be_known,
    "oci session authenticate": _be_known,
    "sudo timedatectl set-ntp true": _be_known,
    "oci logging log update": lambda world, _: world.by_name.update(get_log=LOG),
    "./scripts/setup.sh dask --apply": lambda world, _: world.by_name.update(
        list_logs=[item(**vars(LOG), id=MADE)], get_log=LOG
    ),
}


def _rule(kind: Any, said: dict[str, Any]) -> Any:
    span = said["tcpOptions"]["destinationPortRange"]
    end = "source" if "source" in said else "destination"
    return kind(protocol="6", is_stateless=False, tcp_options=ports(span["min"], span["max"]), **{end: said[end]})


MADE = "ocid1.made.oc1.iad.m"
_OF_GROUP = ("list_jobs", "get_project", "put_object", "list_objects", "get_log_group", "get_bastion", "get_subnet")
IN_GROUP = {name: World().by_name[name] for name in _OF_GROUP}


def not_in_the_group(world: World) -> None:
    world.by_name.update(dict.fromkeys((*_OF_GROUP, "list_buckets"), refusal()))
    IN_GROUP.update({name: found for name, found in World().by_name.items() if name in _OF_GROUP})
    IN_GROUP.update(
        put_object=world._put, list_objects=lambda *_: item(objects=[item(name=one) for one in world.objects])
    )
    IN_GROUP.update(get_subnet=world.subnet)


def unknown_caller(**about: Any) -> Change:
    """Have OCI not know who asks."""
    return answers(get_namespace=refused("look", 401, "NotAuthenticated", "no", "R", **about))


def of_region(key: str, others: Sequence[Any]) -> Change:
    """Have subnets of a region *key* not be there, and *others* be listed."""

    def change(world: World) -> None:
        world.by_name["list_subnets"] = list(others) or []
        world.by_name["get_subnet"] = lambda ocid: _raise(refusal()) if f".{key}." in ocid else world.subnet

    return change


def _raise(error: Exception) -> None:
    raise error


PHX = {"SUBNET_OCID": "ocid1.subnet.oc1.phx.s"}
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
    "the bucket's tier is Archive": (answers(get_bucket=bucket(storage_tier="Archive")), {}, "bucket", True),
    "the bucket is a replica": (answers(get_bucket=bucket(is_read_only=True)), {}, "bucket", True),
    "the bucket has a retention rule": (
        answers(list_retention_rules=[item(display_name="seven years")]),
        {},
        "bucket",
        True,
    ),
    "the bucket's key is disabled": (
        answers(get_bucket=bucket(kms_key_id="ocid1.key.oc1.iad.k"), put_object=refusal(409, "KmsKeyDisabled")),
        {},
        "bucket",
        True,
    ),
    "objects of an unseen bucket cannot be deleted": (
        answers(get_bucket=refusal(), delete_object=refusal(403, "RetentionRule")),
        {},
        "bucket",
        True,
    ),
    "the bucket is nowhere": (
        answers(get_bucket=refusal(), list_buckets=[], put_object=refusal(), list_objects=refusal()),
        {},
        "bucket",
        False,
    ),
    "a tag is required": (answers(assemble_effective_tag_set=[tag("CostCenter")]), {}, "required tags", True),
    "a tag is required besides those that are given": (
        answers(assemble_effective_tag_set=[tag("CostCenter"), tag("Team")]),
        {"DEFINED_TAGS": '{"operations": {"team": "vision and speech"}}'},
        "required tags",
        True,
    ),
    "a required tag of an unseen namespace": (
        answers(assemble_effective_tag_set=[tag("CostCenter")], get_tag_namespace=refusal()),
        {},
        "required tags",
        False,
    ),
    "required tags are not seen": (answers(assemble_effective_tag_set=refusal()), {}, "required tags", False),
    "a project elsewhere": (answers(get_project=item(display_name="p", compartment_id=OTHER)), {}, "policies", True),
    "a project that is not seen": (answers(get_project=refusal()), {}, "project", True),
    "the bastion lets nobody in": (
        answers(get_bastion=bastion(client_cidr_block_allow_list=[])),
        {},
        "bastion",
        False,
    ),
    "the bastion lets others in": (
        answers(get_bastion=bastion(client_cidr_block_allow_list=["203.0.113.0/24"])),
        {},
        "bastion",
        False,
    ),
    "the key of the bastion's host is known nowhere": (lambda _: None, {"BASTION_HOST_KEY": ""}, "bastion", True),
    "rules keep the bastion out": (
        answers(get_bastion=bastion(private_endpoint_ip_address="10.0.3.9")),
        {},
        "bastion",
        True,
    ),
    "a name server of somebody's": (
        answers(
            get_dhcp_options=item(
                options=[core.DhcpDnsOption(type="DomainNameServer", custom_dns_servers=["10.9.9.9"])]
            )
        ),
        {},
        "name server",
        False,
    ),
    "DHCP options are not seen": (answers(get_dhcp_options=refusal()), {}, "name server", False),
    "the subnet is of another region": (
        of_region("phx", [item(id=SUBNET, prohibit_public_ip_on_vnic=True, availability_domain=None)]),
        PHX,
        "subnet",
        True,
    ),
    "the subnet is of another region, and none is here": (of_region("phx", []), PHX, "subnet", False),
    "a deleted API key": (unknown_caller(identity="api_key"), {}, "credentials", True),
    "a session that has expired": (unknown_caller(identity="security_token"), {}, "credentials", True),
    "a clock that is late": (unknown_caller(identity="api_key", behind_s=3600), {}, "credentials", True),
    "a clock that is early": (unknown_caller(identity="security_token", behind_s=-400), {}, "credentials", True),
    "there is no dynamic group": (answers(list_dynamic_groups=[]), {}, "dynamic group", True),
    "groups are not seen": (answers(list_dynamic_groups=refusal(), list_groups=refusal()), {}, "group", False),
    "policies are not seen": (answers(list_policies=refusal()), {}, "policies", False),
    "nodes may not read a secret": (
        lambda _: None,
        {"VAULT_SECRETS": "TOKEN=ocid1.vaultsecret.oc1.iad.s"},
        "policies",
        True,
    ),
    "people write below another prefix": (statements("team-a/work/*", "team-b/*"), {}, "policies", True),
    "people may use another bucket": (statements("'clusters'", "'others'"), {}, "policies", True),
    "statements about another compartment": (statements(f"id {JOBS}", f"id {OTHER}"), {}, "policies", True),
    "conditions that a launch may not meet": (
        statements("to manage objects in", "to inspect objects in"),
        {},
        "policies",
        True,
    ),
    "statements with a condition of time": (
        lambda w: setattr(w, "statements", [f"{one} where a.b = 'c'" for one in w.statements if "where" not in one]),
        {},
        "policies",
        True,
    ),
    "people may not push": (without("manage repos"), {}, "policies", True),
    "there is no group": (answers(list_groups=[], list_user_group_memberships=[]), {}, "group", True),
    "statements of a domain's group": (statements(PEOPLE, "group 'ours'/'data-scientists'"), {}, "policies", True),
    "a log that is in another group": (
        answers(get_log=refusal(), list_log_groups=[item(id=GIVEN["LOG_GROUP_OCID"])]),
        {"LOG_OCID": "ocid1.log.oc1.iad.l"},
        "log group",
        True,
    ),
    "a log for each node": (
        also(f"allow {NODES} to manage log-groups in compartment id {JOBS}"),
        {"LOG_OCID": ""},
        "log group",
        True,
    ),
    "SUBNET_CIDR is no address": (lambda _: None, {"SUBNET_CIDR": "10.0.0.0/24,x"}, "SUBNET_CIDR", True),
    "a service gateway that blocks": (
        every(
            lambda w: setattr(
                w.table, "route_rules", [route("ocid1.servicegateway.oc1.iad.g", SERVICES, "SERVICE_CIDR_BLOCK")]
            ),
            answers(get_service_gateway=item(display_name="s", block_traffic=True)),
        ),
        {},
        "route",
        False,
    ),
    "a public subnet": (subnet(prohibit_public_ip_on_vnic=False), {}, "subnet", False),
    "a subnet of one availability domain": (subnet(availability_domain="AD-1"), {}, "subnet", False),
    "a subnet that is being deleted": (subnet(lifecycle_state="TERMINATING"), {}, "subnet", False),
    "no way out": (lambda w: setattr(w.table, "route_rules", []), {}, "route", False),
    "a way out through something else": (
        lambda w: setattr(w.table, "route_rules", [route("ocid1.drg.oc1.iad.d")]),
        {},
        "route",
        False,
    ),
    "no free addresses": (answers(list_private_ips=[item()] * 253), {}, "free addresses", False),
    "security lists are not seen": (answers(get_security_list=refusal()), {}, "security rules", False),
    "a log group that is not there": (answers(get_log_group=refusal()), {}, "log group", False),
    "a bastion that is not there": (answers(get_bastion=refusal()), {}, "bastion", True),
    "the project is deleted": (
        answers(
            get_project=lambda ocid: item(
                display_name="p", compartment_id=JOBS, lifecycle_state="ACTIVE" if ocid == "p2" else "DELETED"
            ),
            list_projects=[item(id="p2", display_name="p2")],
        ),
        {},
        "project",
        True,
    ),
    "a bastion of another VCN": (answers(get_bastion=bastion(target_vcn_id="x")), {}, "bastion", True),
    "a bastion that is being deleted": (
        answers(get_bastion=bastion(lifecycle_state="DELETING")),
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


@pytest.mark.parametrize(
    "name", [name for name, (*_, item, _) in FAULTS.items() if item in {"bucket", "subnet", "credentials", "route"}]
)
def test_no_statement_is_the_fix_of_what_no_policy_lacks(world: World, name: str) -> None:
    change, more, told_by, _ = FAULTS[name]
    change(world)
    for one in looked(world, more):
        assert "allow " not in one.fix or one.item != told_by or "is nowhere" in name


def test_no_fix_of_a_denial_allows_what_is_allowed(world: World) -> None:
    world.statements.append(DENIED)
    (wrong,) = [one for one in looked(world, {}) if one.verdict is Verdict.FAILS]
    assert wrong.fix == f"# what denies it must go, or have a condition: {DENIED}"


def test_a_group_of_a_domain_is_named_by_a_setting(world: World) -> None:
    FAULTS["the domain's group"][0](world)
    (wrong,) = [one for one in looked(world, {}) if one.item == "dynamic group"]
    assert (wrong.verdict, wrong.fix) == (Verdict.FAILS, "NODES_GROUP=ours/cluster-runs")
