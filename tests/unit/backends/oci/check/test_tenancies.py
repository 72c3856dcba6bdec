"""Right tenancies of many kinds, without a false alarm; and faults, with fixes that fix when applied as printed.

All of them are tenancies of the stand-in for OCI: the real SDK asks it, and real oci-cli changes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from unit.backends.oci.right_tenancy import BLOCK, RightTenancy, egress, ingress, ports, route
from unit.backends.oci.scientist import Scientist

from oci_cluster.backends.findings import Finding, Verdict
from oci_cluster.backends.oci.tenancy.requirements import matching_rule

pytestmark = pytest.mark.slow  # a tenancy takes a part of a second of CPU

Change = Callable[[RightTenancy], Any]
NODES, PEOPLE = "dynamic-group cluster-runs", "group data-scientists"
# How often a check and its fixes may follow each other: what one makes, the next may find incomplete.
ROUNDS = 4


@pytest.fixture
def tenancy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RightTenancy]:
    made = RightTenancy(tmp_path, monkeypatch)
    yield made
    made.service.close()


def begin(tenancy: RightTenancy, change: Change, settings: dict[str, str]) -> None:
    change(tenancy)
    tenancy.settings |= tenancy.named(settings)


# --- How a tenancy is changed; what stands between angle brackets is an OCID


def statements(old: str, new: str) -> Change:
    """Say *new* for *old* in all statements."""
    return said(lambda own, named: [one.replace(named(old), named(new)) for one in own])


def without(word: str, *more: str) -> Change:
    """Take the statements with *word* away, and add *more*."""
    return said(lambda own, _: [*(one for one in own if word not in one), *more])


def also(*more: str) -> Change:
    return said(lambda own, _: [*own, *more])


def said(say: Callable[[list[str], Callable[[Any], Any]], list[str]]) -> Change:
    def change(tenancy: RightTenancy) -> None:
        before = tenancy.said
        tenancy.touch("policy", statements=say(before, tenancy.named))
        assert tenancy.said != before

    return change


def policy_in(compartment: str, *more: str) -> Change:
    """Have a policy in *compartment* say *more*."""
    return lambda tenancy: tenancy.allow(*tenancy.named(more), compartmentId=tenancy.named(compartment))


def every(*changes: Change) -> Change:
    return lambda tenancy: [change(tenancy) for change in changes]


def has(name: str, /, **fields: Any) -> Change:
    """Have the thing called *name* have other *fields*."""
    return lambda tenancy: tenancy.touch(name, **fields)


def gone(*names: str) -> Change:
    return lambda tenancy: [tenancy.remove(name) for name in names]


def bucket(**fields: Any) -> Change:
    return lambda tenancy: tenancy.bucket.fields.update(tenancy.named(fields))


def control(**values: Any) -> Change:
    return lambda tenancy: tenancy.control(**values)


def unseen(*operations: str) -> Change:
    return control(faults=[{"operation": operation, "kind": "404"} for operation in operations])


def rules(into: Sequence[Any], out: Sequence[Any] = (egress(),)) -> Change:
    return has("rules", ingressSecurityRules=list(into), egressSecurityRules=list(out))


def nested(tenancy: RightTenancy) -> None:
    """Put the compartment of the Jobs below one of the same name."""
    tenancy.touch("other", name="jobs")
    tenancy.touch("jobs", compartmentId="<other>")


def domain(tenancy: RightTenancy, *, name: str = "Ours") -> None:
    """Have an identity domain with groups of the same names."""
    domains, rule = tenancy.identity.domains, matching_rule(tenancy.jobs)
    domains.add(tenancy.root, name)
    tenancy.their_people = domains.groups.add(domain=name, displayName="data-scientists")["id"]
    there = {"domain": name, "displayName": "cluster-runs", "matchingRule": rule}
    tenancy.their_runs = domains.dynamic_groups.add(**there)["id"]


def in_domain(tenancy: RightTenancy) -> None:
    """Have the groups in that domain alone, and statements that name them by OCID."""
    domain(tenancy)
    every(statements(PEOPLE, "group id <their_people>"), statements(NODES, "dynamic-group id <their_runs>"))(tenancy)
    gone("people", "runs")(tenancy)


def service_gateway(**fields: Any) -> Change:
    """Have a service gateway, and no other way out."""

    def change(tenancy: RightTenancy) -> None:
        there = {"compartmentId": tenancy.network, "vcnId": tenancy.vcn, "lifecycleState": "AVAILABLE"}
        shelf = tenancy.tenancy._network.service_gateways
        tenancy.theirs = tenancy.add(shelf, **there, displayName="services", **{"blockTraffic": False, **fields})
        tenancy.touch("table", routeRules=[route("<theirs>", SERVICES, "SERVICE_CIDR_BLOCK")])

    return change


def full(tenancy: RightTenancy) -> None:
    """Have somebody reserve all addresses of the subnet's first block."""
    for number in range(2, 255):
        there = {"compartmentId": tenancy.network, "subnetId": tenancy.subnet, "ipAddress": f"10.0.0.{number}"}
        tenancy.tenancy._network.private_ips.add(**there)


OURS = {"PEOPLE_GROUP": "Ours/data-scientists", "NODES_GROUP": "Ours/cluster-runs"}
RUNS = "resource.compartment.id = '<jobs>'"
BY_OCID = every(statements(PEOPLE, "group id <people>"), statements(NODES, "dynamic-group id <runs>"))
TWO = has("subnet", ipv4CidrBlocks=[BLOCK, "10.0.1.0/24"])
BOTH = {"SUBNET_CIDR": f"{BLOCK},10.0.1.0/24"}
IN_PIECES = [ingress(**ports(*span)) for span in ((1, 3050), (3051, 8749), (8750, 65535))]
SERVICES = "all-iad-services-in-oracle-services-network"
ALL_REPOSITORIES = also(f"allow {NODES} to read repos in tenancy", f"allow {PEOPLE} to manage repos in tenancy")
REPOSITORIES_THERE = "allow any-group to manage repos in compartment id <other>"
PROJECTS_THERE = f"allow {PEOPLE} to read data-science-projects in compartment id <other>"
REQUIRED = "Operations.CostCenter"
SESSION = {"OCI_CLI_AUTH": "security_token", "OCI_CLI_PROFILE": "SESSION"}
NOBODY, MEMBER, READER = ({"OCI_CLI_CONFIG_FILE": f"<{who}>"} for who in ("nobody", "member", "reader"))

#: In which a scientist launches, too.
RIGHT: dict[str, tuple[Change, dict[str, str]]] = {
    "as setup.sh makes it": (lambda _: None, {}),
    "groups by OCID": (BY_OCID, {}),
    "groups of a domain by OCID": (in_domain, OURS),
    "groups by OCID, with their domain Default": (
        BY_OCID,
        {"PEOPLE_GROUP": "Default/data-scientists", "NODES_GROUP": "default/cluster-runs"},
    ),
    "several groups by OCID": (statements(PEOPLE, "group id <interns>, id <people>"), {}),
    "any-group": (statements(PEOPLE, "any-group"), {}),
    "any-group for nodes": (statements(NODES, "any-group"), {}),
    "any-user for all": (without("allow", "allow any-user to manage all-resources in tenancy"), {}),
    "any-user, of Job Runs": (
        statements(f"{NODES} to manage objects", "any-user to manage object-family"),
        {},
    ),
    "names in quotation marks": (statements(PEOPLE, "group 'Default'/'Data-Scientists'"), {}),
    "statements in capitals": (
        said(lambda own, _: [re.sub("^allow (.*) to (.*?) in", r"ALLOW \1 TO \2 IN", one) for one in own]),
        {},
    ),
    "families": (statements("to manage objects", "to manage object-family"), {}),
    "the tenancy's administrators launch": (without("data-scientists"), {"PEOPLE_GROUP": "Administrators"}),
    "administrators are not denied": (
        every(without("data-scientists"), also("deny group Administrators to inspect all-resources in tenancy")),
        {"PEOPLE_GROUP": "Administrators"},
    ),
    "others are denied": (also("deny group interns to inspect all-resources in tenancy"), {}),
    "elsewhere is denied": (also("deny any-user to inspect all-resources in compartment id <other>"), {}),
    "another bucket is denied": (
        also("deny any-user to inspect objects in tenancy where target.bucket.name = 'private'"),
        {},
    ),
    "deny policies are switched on": (
        also("deny any-user to manage policies in tenancy where all {target.policy.type = 'deny', a.b != 'c'}"),
        {},
    ),
    "compartments nested and named alike": (nested, {}),
    "statements by path": (every(nested, statements("compartment id <jobs>", "compartment jobs:jobs")), {}),
    "a policy of somebody's in the Jobs' compartment": (
        every(
            has("subnet", compartmentId="<jobs>"),
            has("repository", compartmentId="<jobs>"),
            statements("compartment id <network>", "compartment id <jobs>"),
            statements("compartment id <images>", "compartment id <jobs>"),
            has("policy", compartmentId="<jobs>"),
        ),
        {"IMAGES_COMPARTMENT_OCID": ""},
    ),
    "a repository in the root": (every(has("repository", compartmentId="<root>"), ALL_REPOSITORIES), {}),
    "a repository elsewhere": (every(has("repository", compartmentId="<other>"), ALL_REPOSITORIES), {}),
    "a repository elsewhere, with the setting": (
        every(has("repository", compartmentId="<other>"), also(REPOSITORIES_THERE)),
        {"IMAGES_COMPARTMENT_OCID": "<other>"},
    ),
    "a repository elsewhere, with the policy there": (
        every(has("repository", compartmentId="<other>"), policy_in("<other>", REPOSITORIES_THERE)),
        {},
    ),
    "a log group elsewhere": (
        every(
            has("log_group", compartmentId="<other>"),
            has("log", compartmentId="<other>"),
            also("allow any-group to manage logging-family in compartment id <other>"),
        ),
        {},
    ),
    "a bucket elsewhere": (
        every(
            bucket(compartmentId="<other>"),
            also(
                "allow any-group to manage object-family in compartment id <other>",
                "allow any-user to manage object-family in compartment id <other>",
            ),
        ),
        {},
    ),
    "no subnet of ours": (
        without("virtual-network-family"),
        {"SUBNET_OCID": "", "SUBNET_CIDR": "", "BASTION_ID": "", "OCI_JOB_STYLE": "multinode"},
    ),
    "two blocks": (every(TWO, rules([ingress(BLOCK), ingress("10.0.1.0/24")])), BOTH),
    "two blocks, one rule": (every(TWO, rules([ingress("10.0.0.0/22")])), {"SUBNET_CIDR": ""}),
    "two blocks, the first is full": (every(TWO, rules([ingress("10.0.0.0/16")]), full), BOTH),
    "a project elsewhere, whose readers are the group": (
        every(has("project", compartmentId="<other>"), also(PROJECTS_THERE)),
        {},
    ),
    "a project elsewhere, with the policy there": (
        every(has("project", compartmentId="<other>"), policy_in("<other>", PROJECTS_THERE)),
        {},
    ),
    "a required tag that is given": (
        control(required_tags=[REQUIRED], default_tags=["Operations.Owner"]),
        {"DEFINED_TAGS": "operations.costcenter=42"},
    ),
    "a bucket with a key of its own": (bucket(kmsKeyId="ocid1.key.oc1.iad.k"), {}),
    "the rule of the dynamic group in another order": (
        has("runs", matchingRule=f"ALL {{{RUNS}, resource.type='datasciencejobrun'}}"),
        {},
    ),
    "the dynamic group has more": (
        has(
            "runs",
            matchingRule=f"any {{instance.compartment.id = 'x', all {{resource.type = 'datasciencejobrun', {RUNS}}}}}",
        ),
        {},
    ),
    "a dynamic group of another name": (every(has("runs", name="theirs"), statements("cluster-runs", "theirs")), {}),
    "the group's name in capitals": (has("people", name="Data-Scientists"), {}),
}

#: To launches in the stand-in, at whose rules and routes nobody looks, all of these are the same.
RIGHT_WAYS: dict[str, tuple[Change, dict[str, str]]] = {
    "a bastion of another subnet": (
        every(has("bastion", privateEndpointIpAddress="10.0.3.9"), rules([ingress(), ingress("10.0.3.9/32")])),
        {},
    ),
    "rules in pieces of ports": (rules(IN_PIECES), {}),
    "rules in pieces of addresses": (rules([ingress("10.0.0.0/25"), ingress("10.0.0.128/25")]), {}),
    "stateless in both directions": (
        rules([ingress("0.0.0.0/0", isStateless=True)], [egress(isStateless=True)]),
        {},
    ),
    "stateless between nodes, stateful to services": (
        rules([ingress(isStateless=True)], [egress(BLOCK, isStateless=True), egress(**ports(443, 443))]),
        {},
    ),
    "rules for IPv6, too": (
        rules([ingress("::/0"), ingress("2001:db8::/64"), ingress()], [egress("::/0"), egress()]),
        {},
    ),
    "other protocols, too": (rules([ingress("0.0.0.0/0", protocol="1"), ingress(protocol="all")]), {}),
    "services by their name": (
        rules([ingress()], [egress(BLOCK), egress(SERVICES, destinationType="SERVICE_CIDR_BLOCK")]),
        {},
    ),
    "a service gateway alone": (service_gateway(), {}),
    "a session of an administrator, where the profile DEFAULT is somebody else's": (
        gone("people"),
        {**NOBODY, **SESSION},
    ),
}


@pytest.mark.parametrize("name", [*RIGHT, *RIGHT_WAYS])
def test_of_a_right_tenancy_nothing_is_said_to_be_wrong(
    tenancy: RightTenancy, monkeypatch: pytest.MonkeyPatch, clock: Any, name: str
) -> None:
    begin(tenancy, *{**RIGHT, **RIGHT_WAYS}[name])
    assert [(one.item, one.text) for one in tenancy.wrong()] == []
    if name in RIGHT:
        assert launched(tenancy, monkeypatch, clock) == 0


def launched(tenancy: RightTenancy, patch: pytest.MonkeyPatch, clock: Any) -> int:
    """Have somebody launch by the settings as they are now; return the exit code."""
    return Scientist(tenancy, tenancy.launchers, tenancy.settings["PROJECT_OCID"], patch, clock).launch(1)


def test_setup_misses_nothing_there(tenancy: RightTenancy) -> None:
    assert tenancy.setup() == ["= nothing is missing"]


# --- Faults ----------------------------------------------------------------------------------------------------------


def log_of_another_group(tenancy: RightTenancy) -> None:
    logs = tenancy.service.logs
    about = {"compartmentId": tenancy.other, "displayName": "theirs", "lifecycleState": "ACTIVE"}
    tenancy.theirs = str(logs.new_log(tenancy.add(logs.groups, **about), displayName="theirs")["id"])
    tenancy.remove("log")


def another_project(tenancy: RightTenancy) -> None:
    about = {"compartmentId": tenancy.jobs, "displayName": "another", "lifecycleState": "ACTIVE"}
    tenancy.theirs = tenancy.add(tenancy.service.science._projects, **about)


def name_server(address: str) -> Change:
    option = {"type": "DomainNameServer", "serverType": "CustomDnsServer", "customDnsServers": [address]}
    return has("dhcp", options=[option])


def kept(tenancy: RightTenancy) -> None:
    tenancy.bucket.retention.append({"id": "r", "displayName": "seven years"})


PHX = {"SUBNET_OCID": "ocid1.subnet.oc1.phx.s"}
DENIED = f"deny {PEOPLE} to manage data-science-jobs in tenancy"
SOMEWHERE = f"allow {NODES} to manage log-groups in compartment id <jobs>"

#: By name: what is done, with which settings, which item tells, and whether a fix as printed makes it go.
FAULTS: dict[str, tuple[Change, dict[str, str], str, bool]] = {
    "not in the group": (lambda _: None, NOBODY, "your group", True),
    "a reader who is not in the group": (lambda _: None, READER, "bucket", True),
    "there is no group, and that of a reader may do less": (gone("people"), READER, "group", True),
    "the repository is in the root": (has("repository", compartmentId="<root>"), {}, "policies", True),
    "the repository is elsewhere": (has("repository", compartmentId="<other>"), {}, "policies", True),
    "people have nothing": (without("data-scientists"), {}, "policies", True),
    "nodes have nothing": (without("cluster-runs"), {}, "policies", True),
    "another group by OCID": (statements(PEOPLE, "group id <interns>"), {}, "policies", True),
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
    "the domain's dynamic group": (
        every(domain, statements("cluster-runs", "'ours'/'cluster-runs'"), gone("runs")),
        {},
        "dynamic group",
        True,
    ),
    "another rule of the dynamic group": (
        has("runs", matchingRule="all {resource.type = 'datasciencenotebooksession'}"),
        {},
        "dynamic group",
        True,
    ),
    "the dynamic group of another compartment": (
        has("runs", matchingRule="all {resource.type = 'datasciencejobrun', resource.compartment.id = '<other>'}"),
        {},
        "dynamic group",
        True,
    ),
    "there is no dynamic group": (gone("runs"), {}, "dynamic group", True),
    "nodes of another name may do less": (
        every(has("runs", name="theirs"), statements("cluster-runs", "theirs"), without("to use log-content")),
        {},
        "policies",
        True,
    ),
    "the domain's group": (
        every(
            domain,
            statements(PEOPLE, "group 'ours'/'data-scientists'"),
            without("to read log-groups"),
            gone("people"),
            unseen("list_user_group_memberships"),
        ),
        {},
        "group",
        True,
    ),
    "there is no group": (every(gone("people"), unseen("list_user_group_memberships")), {}, "group", True),
    "statements of a domain's group": (
        every(domain, statements(PEOPLE, "group 'ours'/'data-scientists'")),
        {},
        "policies",
        True,
    ),
    "groups are not seen": (unseen("list_dynamic_groups", "list_groups"), {}, "group", False),
    "policies are not seen": (unseen("list_policies"), {}, "policies", False),
    "nodes may not read a secret": (
        lambda _: None,
        {"VAULT_SECRETS": "TOKEN=ocid1.vaultsecret.oc1.iad.s"},
        "policies",
        True,
    ),
    "people write below another prefix": (statements("team-a/work/*", "team-b/*"), {}, "policies", True),
    "people may use another bucket": (statements("'clusters'", "'others'"), {}, "policies", True),
    "statements about another compartment": (statements("id <jobs>", "id <other>"), {}, "policies", True),
    "objects may be listed alone": (statements("to manage objects in", "to inspect objects in"), {}, "policies", True),
    "statements with a condition that nobody knows": (
        said(lambda own, _: [f"{one} where a.b = 'c'" for one in own if "where" not in one]),
        {},
        "policies",
        True,
    ),
    "people may not push": (without("manage repos"), {}, "policies", True),
    "a project elsewhere": (has("project", compartmentId="<other>"), {}, "policies", True),
    # --- Who asks
    "a deleted API key": (control(expire_tokens="api-key"), {}, "credentials", True),
    "a session that has expired": (control(expire_tokens="session"), SESSION, "credentials", True),
    "a clock that is late": (control(clock_s=3600.0), {}, "credentials", True),
    "a clock that is early": (control(clock_s=-400.0), SESSION, "credentials", True),
    # --- The network
    "a hole between two rules": (rules([IN_PIECES[0], IN_PIECES[2]]), {}, "security rules", True),
    "half of the addresses": (rules([ingress("10.0.0.0/25")]), {}, "security rules", True),
    "a stateless rule without answers": (
        rules([ingress(isStateless=True)], [egress(**ports(443, 443)), egress(BLOCK, **ports(1, 9000))]),
        {},
        "security rules",
        True,
    ),
    "answers to some ports alone": (
        rules(
            [ingress(isStateless=True), ingress("0.0.0.0/0", isStateless=True, **ports(443, 443, of="source"))],
            [egress(isStateless=True, **ports(1, 9000))],
        ),
        {},
        "security rules",
        True,
    ),
    "rules for one of two blocks": (TWO, BOTH, "security rules", True),
    "no rules at all": (rules([], []), {}, "security rules", True),
    "IPv6 alone": (rules([ingress("::/0")], [egress("::/0")]), {}, "security rules", True),
    "security lists are not seen": (unseen("get_security_list"), {}, "security rules", False),
    "SUBNET_CIDR is one of two blocks": (every(TWO, rules([ingress("10.0.0.0/16")])), {}, "SUBNET_CIDR", True),
    "SUBNET_CIDR is another subnet's": (lambda _: None, {"SUBNET_CIDR": "10.9.0.0/24"}, "SUBNET_CIDR", True),
    "SUBNET_CIDR is no address": (lambda _: None, {"SUBNET_CIDR": f"{BLOCK},x"}, "SUBNET_CIDR", True),
    "a NAT gateway that blocks": (has("nat", blockTraffic=True), {}, "route", True),
    "a NAT gateway that is being deleted": (has("nat", lifecycleState="TERMINATING"), {}, "route", False),
    "a service gateway that blocks": (service_gateway(blockTraffic=True), {}, "route", True),
    "no way out": (has("table", routeRules=[]), {}, "route", True),
    "a way out through something else": (has("table", routeRules=[route("ocid1.drg.oc1.iad.d")]), {}, "route", False),
    "a public subnet": (has("subnet", prohibitPublicIpOnVnic=False), {}, "subnet", True),
    "a subnet of one availability domain": (has("subnet", availabilityDomain="AD-1"), {}, "subnet", True),
    "a subnet that is being deleted": (has("subnet", lifecycleState="TERMINATING"), {}, "subnet", True),
    "a subnet without IPv4 addresses": (
        has("subnet", cidrBlock=None, ipv6CidrBlocks=["2001:db8::/64"]),
        {},
        "subnet",
        True,
    ),
    "the subnet is nowhere": (lambda _: None, {"SUBNET_OCID": "ocid1.subnet.oc1.iad.none"}, "subnet", False),
    "the subnet is of another region": (
        lambda _: None,
        {**PHX, "NETWORK_COMPARTMENT_OCID": "<network>"},
        "subnet",
        True,
    ),
    "the subnet is of another region, and none is here": (lambda _: None, PHX, "subnet", False),
    "no free addresses": (full, {}, "free addresses", True),
    "a name server of somebody's": (name_server("10.9.9.9"), {}, "name server", False),
    "DHCP options are not seen": (unseen("get_dhcp_options"), {}, "name server", False),
    # --- The bucket
    "the bucket's tier is Archive": (bucket(storageTier="Archive"), {}, "bucket", True),
    "the bucket is a replica": (bucket(isReadOnly=True), {}, "bucket", True),
    "the bucket has a retention rule": (kept, {}, "bucket", True),
    "the bucket's key is disabled": (
        every(bucket(kmsKeyId="ocid1.key.oc1.iad.k"), control(disabled_keys=["ocid1.key.oc1.iad.k"])),
        {},
        "bucket",
        True,
    ),
    "objects of an unseen bucket cannot be deleted": (kept, MEMBER, "bucket", True),
    "the bucket is nowhere": (lambda t: t.service.objects._buckets.remove("clusters"), {}, "bucket", True),
    "another namespace": (lambda _: None, {"WORK_DIR": "oci://clusters@other/team-a/work"}, "namespace", True),
    # --- Compartment, project, tags
    "the compartment is being deleted": (has("jobs", lifecycleState="DELETING"), {}, "compartment", False),
    "the compartment is nowhere": (
        lambda _: None,
        {"COMPARTMENT_OCID": "ocid1.compartment.oc1..none", "PROJECT_OCID": ""},
        "compartment",
        False,
    ),
    "a project that is not there": (gone("project"), {}, "project", True),
    "the project is deleted": (every(another_project, has("project", lifecycleState="DELETED")), {}, "project", True),
    "a tag is required": (control(required_tags=[REQUIRED]), {}, "required tags", True),
    "a tag is required besides those that are given": (
        control(required_tags=[REQUIRED, "Operations.Team"]),
        {"DEFINED_TAGS": '{"operations": {"team": "vision and speech"}}'},
        "required tags",
        True,
    ),
    "a required tag of an unseen namespace": (
        every(control(required_tags=[REQUIRED]), unseen("get_tag_namespace")),
        {},
        "required tags",
        False,
    ),
    "required tags are not seen": (unseen("assemble_effective_tag_set"), {}, "required tags", False),
    # --- Logs
    "a log that is in another group": (log_of_another_group, {"LOG_OCID": "<theirs>"}, "log group", True),
    "a log for each node": (every(gone("log"), also(SOMEWHERE)), {"LOG_OCID": ""}, "log group", True),
    "a log group that is not there": (
        lambda _: None,
        {"LOG_GROUP_OCID": "ocid1.loggroup.oc1.iad.none"},
        "log group",
        True,
    ),
    "log groups are nowhere": (gone("log", "log_group"), {}, "log group", True),
    "the log is switched off": (has("log", isEnabled=False), {}, "log group", True),
    "the log is a service's": (has("log", logType="SERVICE"), {}, "log group", True),
    # --- The bastion
    "the bastion lets nobody in": (has("bastion", clientCidrBlockAllowList=[]), {}, "bastion", False),
    "the bastion lets others in": (has("bastion", clientCidrBlockAllowList=["203.0.113.0/24"]), {}, "bastion", False),
    "the key of the bastion's host is known nowhere": (lambda _: None, {"BASTION_HOST_KEY": ""}, "bastion", True),
    "rules keep the bastion out": (has("bastion", privateEndpointIpAddress="10.0.3.9"), {}, "bastion", True),
    "a bastion that is not there": (gone("bastion"), {}, "bastion", True),
    "a bastion of another VCN": (has("bastion", targetVcnId="ocid1.vcn.oc1.iad.other"), {}, "bastion", True),
    "a bastion that is being deleted": (has("bastion", lifecycleState="DELETING"), {}, "bastion", True),
}
# What no policy lacks.
WITHOUT_STATEMENTS = {"bucket", "subnet", "credentials", "route"}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_its_fix_fixes(
    tenancy: RightTenancy, monkeypatch: pytest.MonkeyPatch, clock: Any, name: str
) -> None:
    change, settings, told_by, is_fixed = FAULTS[name]
    begin(tenancy, change, settings)
    found = tenancy.wrong()
    told = [one for one in found if one.item == told_by]
    assert told
    assert told_by not in WITHOUT_STATEMENTS or not [one for one in told if "allow " in one.fix]
    if not is_fixed:
        assert [line for one in told for line in one.fix.splitlines() if is_to_be_run(line)] == []
        return
    for _ in range(ROUNDS):
        for fix in dict.fromkeys(one.fix for one in found):
            tenancy.fix(fix)
        found = [one for one in tenancy.wrong() if is_for_caller(one, settings)]
        if not found:
            break
    assert [(one.item, one.text) for one in found] == []
    # Of a session ocifs keeps the signer; to whom no policies are shown, nobody tells what nodes lack.
    assert settings in (SESSION, MEMBER) or launched(tenancy, monkeypatch, clock) == 0


def is_to_be_run(line: str) -> bool:
    return not (line.startswith("#") or "<your address>" in line)


def is_for_caller(one: Finding, settings: dict[str, str]) -> bool:
    """Return whether somebody with these *settings* is to do something: who may not see all, knows less."""
    return one.verdict is not Verdict.UNKNOWN or "OCI_CLI_CONFIG_FILE" not in settings


def test_who_is_not_in_the_group_is_told_that_first(tenancy: RightTenancy) -> None:
    begin(tenancy, lambda _: None, NOBODY)
    wrong = [one for one in tenancy.wrong() if one.verdict is Verdict.FAILS]
    assert wrong[0].item == "your group"
    assert not [one for one in wrong if "allow group" in one.fix]


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("the domain's dynamic group", "NODES_GROUP=ours/cluster-runs"),
        ("the domain's group", "PEOPLE_GROUP=ours/data-scientists"),
        (
            "a log group that is not there",
            "LOG_GROUP_OCID=<log_group>\n# or, as logs are in the bucket, too: LOG_GROUP_OCID=",
        ),
    ],
)
def test_a_setting_names_what_is_there(tenancy: RightTenancy, name: str, fix: str) -> None:
    change, settings, told_by, _ = FAULTS[name]
    begin(tenancy, change, settings)
    assert [one.fix for one in tenancy.wrong() if one.item == told_by] == [tenancy.named(fix)]


def test_no_fix_of_a_denial_allows_what_is_allowed(tenancy: RightTenancy) -> None:
    also(DENIED)(tenancy)
    (wrong,) = tenancy.wrong()
    assert (wrong.verdict, wrong.fix) == (
        Verdict.FAILS,
        f"# what denies it must go, or have a condition: {DENIED}",
    )
