"""``check.sh`` on a tenancy of the stand-in: nothing where all is right, each planted fault, and what mends it.

A mend is applied as it was printed: a command is run, a setting is written, a statement is added, and nothing else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from empty_tenancy import FIND, empty_tenancy
from oci_checks import OPEN, ROUTES, RULES, SUBNET, Checks, failed, nat, quoted, route, subnet, tcp

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")


@pytest.fixture(scope="module")
def made(checkout_copy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checks]:
    with empty_tenancy(checkout_copy, tmp_path_factory.mktemp("check")) as tenancy:
        yield Checks(tenancy)


@pytest.fixture
def checks(made: Checks) -> Checks:
    made.begin()
    return made


# --- All is right ---------------------------------------------------------------------------------------------------


def test_nothing_is_found_where_all_is_right(checks: Checks) -> None:
    """And nothing is left of the probe, or changed."""
    before = checks.tenancy.count()
    code, found = checks.check()
    assert [one for one in found if one["verdict"] != "fine"] == []
    assert code == 0
    assert checks.tenancy.changes(before) == ["object_storage.put_object", "object_storage.delete_object"]
    assert checks.tenancy.service.objects("team-a/work/") == []


def test_who_may_not_read_policies_is_told_what_was_not_seen(checks: Checks) -> None:
    code, found = checks.check(checks.tenancy.reader.environ)
    assert failed(found) == {}
    assert code == 3
    unseen = {one["item"]: one["text"] for one in found if one["verdict"] == "unknown"}
    assert "setup.sh dask --print" in unseen["policies"]
    assert "all {resource.type = 'datasciencejobrun', resource.compartment.id = " in unseen["dynamic group"]
    assert {"bucket", "compartment", "project", "subnet", "route", "security rules", "log group"} <= {
        one["item"] for one in found if one["verdict"] == "fine"
    }


# --- Settings that name what is not there ---------------------------------------------------------------------------


def test_wrong_places_are_named(checks: Checks) -> None:
    """A bucket, a project, a log group, a bastion and a CIDR that are none of this tenancy's, and its namespace."""
    wrong = {
        "PROJECT_OCID": "ocid1.datascienceproject.oc1.iad.none",
        "LOG_GROUP_OCID": "ocid1.loggroup.oc1.iad.none",
        "BASTION_ID": "ocid1.bastion.oc1.iad.none",
        "SUBNET_CIDR": "10.1.0.0/20",
        "WORK_DIR": "oci://others@stand-in/team-a/work",
    }
    checks.settings |= wrong
    _, found = checks.check()
    assert set(failed(found)) == {"project", "log group", "bastion", "SUBNET_CIDR", "bucket"}
    checks.until_fine(found)
    assert checks.settings["PROJECT_OCID"] == checks.right["PROJECT_OCID"]
    assert checks.settings["WORK_DIR"] == "oci://clusters@stand-in/team-a/work"


def test_a_wrong_namespace_and_a_bucket_that_is_nowhere(checks: Checks) -> None:
    checks.settings["WORK_DIR"] = "oci://clusters@elsewhere/team-a/work"
    _, found = checks.check()
    assert failed(found) == {"namespace": ["WORK_DIR is in the namespace elsewhere, and this tenancy has stand-in"]}
    checks.until_fine(found)


def test_a_compartment_that_is_not_there(checks: Checks) -> None:
    """The project tells which one was meant; nothing is said about rights in what is not there."""
    checks.settings["COMPARTMENT_OCID"] = "ocid1.compartment.oc1..none"
    code, found = checks.check()
    assert code == 1
    assert set(failed(found)) == {"compartment"}
    checks.until_fine(found)
    assert checks.settings["COMPARTMENT_OCID"] == checks.right["COMPARTMENT_OCID"]


def test_a_subnet_that_is_gone(checks: Checks) -> None:
    checks.settings["SUBNET_OCID"] = "ocid1.subnet.oc1.iad.gone"
    checks.settings["NETWORK_COMPARTMENT_OCID"] = checks.tenancy.network
    _, found = checks.check()
    assert set(failed(found)) == {"subnet"}
    checks.until_fine(found)
    assert checks.settings["SUBNET_OCID"] == checks.right["SUBNET_OCID"]


def test_logs_and_a_bastion_of_somewhere_else(checks: Checks) -> None:
    """A log that is not in its group; a bastion in front of another network."""
    made = checks.make(
        'other=$(ocid network vcn create --compartment-id "$network" --cidr-block 10.9.0.0/16 --display-name other)',
        'subnet=$(ocid network subnet create --compartment-id "$network" --vcn-id "$other" --cidr-block 10.9.0.0/24)',
        'ocid bastion bastion create --bastion-type STANDARD --compartment-id "$network" --target-subnet-id "$subnet"',
    )
    checks.settings |= {"LOG_OCID": "ocid1.log.oc1.iad.none", "BASTION_ID": made.splitlines()[-1]}
    _, found = checks.check()
    assert set(failed(found)) == {"log group", "bastion"}
    assert "and the subnet is of" in failed(found)["bastion"][0]
    checks.until_fine(found)
    assert checks.settings["LOG_OCID"] == ""


# --- The network ----------------------------------------------------------------------------------------------------


def test_a_subnet_with_nothing_that_nodes_need(checks: Checks) -> None:
    """No route, rules for another network alone, no address left; and a CIDR that was right for another subnet."""
    ingress, egress = [tcp("source", "10.9.0.0/16")], [tcp("destination", "10.9.0.0/16")]
    made = subnet(checks, "10.0.32.0/28", "[]", ingress=ingress, egress=egress)
    take = f"oci network private-ip create --subnet-id {made} --lifetime RESERVED"
    checks.make(*[take] * 11)
    checks.settings["SUBNET_CIDR"] = "10.0.0.0/20"
    _, found = checks.check()
    texts = failed(found)
    assert set(texts) == {"route", "security rules", "free addresses", "SUBNET_CIDR"}
    assert "one does from 10.9.0.0/16" in texts["security rules"][0]
    (free,) = texts["free addresses"]
    assert "2 of 13 " in free
    checks.until_fine(found)


def test_a_public_subnet(checks: Checks) -> None:
    """Its way out is for public addresses; a private one is beside it."""
    gateway = checks.make(
        'ocid network internet-gateway create --compartment-id "$network" --vcn-id "$vcn" --is-enabled true'
    )
    subnet(checks, "10.0.48.0/24", route(gateway), private="false")
    _, found = checks.check()
    assert set(failed(found)) == {"subnet", "route"}
    assert "is a public subnet" in failed(found)["subnet"][0]
    (other,) = [one["mend"] for one in found if one["item"] == "subnet"]
    checks.settings["SUBNET_OCID"] = other.partition("=")[2]
    checks.until_fine(checks.check()[1])


def test_gateways_that_block_and_rules_that_do_not_hold(checks: Checks) -> None:
    """A NAT gateway that blocks; a rule without state; and one of a security group, in which no Job Run is."""
    gateway = nat(checks)
    checks.make(f"oci network nat-gateway update --nat-gateway-id {gateway} --block-traffic true")
    ingress = [tcp("source", "10.0.0.0/16", is_stateless=True)]
    subnet(checks, "10.0.49.0/24", route(gateway), ingress=ingress)
    _, found = checks.check()
    assert set(failed(found)) == {"route", "security rules"}
    assert "blocks all traffic" in failed(found)["route"][0]
    assert "a stateless rule does" in failed(found)["security rules"][0]
    assert "egress" not in failed(found)["security rules"][0]
    checks.until_fine(found)


def test_a_service_gateway_is_a_way_out(checks: Checks) -> None:
    """With a rule of egress that names the services; but not when it leads to storage alone, or blocks."""
    services = json.loads(checks.make("oci network service list"))["data"]
    (every,) = [one for one in services if one["cidr-block"].startswith("all-")]
    (storage,) = [one for one in services if not one["cidr-block"].startswith("all-")]
    gateway = checks.make(
        'ocid network service-gateway create --compartment-id "$network" --vcn-id "$vcn" '
        f"--services {quoted([{'serviceId': every['id']}])} --display-name services"
    )
    egress = [
        tcp("destination", "10.0.50.0/24"),
        {**tcp("destination", every["cidr-block"]), "destinationType": "SERVICE_CIDR_BLOCK"},
    ]
    leads = route(gateway, every["cidr-block"], "SERVICE_CIDR_BLOCK")
    made = subnet(checks, "10.0.50.0/24", leads, egress=egress)
    code, found = checks.check()
    assert (code, failed(found)) == (0, {})
    checks.make(f"oci network service-gateway update --service-gateway-id {gateway} --block-traffic true --force")
    _, found = checks.check()
    assert set(failed(found)) == {"route"}
    checks.until_fine(found)
    table = checks.make(f"oci network subnet get --subnet-id {made} --query 'data.\"route-table-id\"' --raw-output")
    narrow = route(gateway, storage["cidr-block"], "SERVICE_CIDR_BLOCK")
    checks.make(f"oci network route-table update --rt-id {table} --route-rules '{narrow}' --force")
    _, found = checks.check()
    assert set(failed(found)) == {"route"}
    checks.until_fine(found)


def test_rules_of_a_security_group_alone(checks: Checks) -> None:
    ingress, egress = [{**tcp("source", "10.0.0.0/16"), "direction": "INGRESS"}], {"direction": "EGRESS"}
    rules = [*ingress, {**tcp("destination", "0.0.0.0/0"), **egress}]
    checks.make(
        'group=$(ocid network nsg create --compartment-id "$network" --vcn-id "$vcn" --display-name nodes)',
        f'oci network nsg rules add --nsg-id "$group" --security-rules {quoted(rules)}',
    )
    subnet(checks, "10.0.51.0/24", route(nat(checks)), ingress=[], egress=[])
    _, found = checks.check()
    assert set(failed(found)) == {"security rules"}
    assert "network security group nodes" in failed(found)["security rules"][0]
    checks.until_fine(found)


def test_a_subnet_of_another_compartment(checks: Checks) -> None:
    """The statements are about the compartment of the other one."""
    jobs = checks.right["COMPARTMENT_OCID"]
    make = SUBNET.format(block="10.0.52.0/24", name="elsewhere", private="true").replace('"$network"', jobs)
    rules = RULES.format(name="elsewhere", ingress=json.dumps(OPEN["ingress"]), egress=json.dumps(OPEN["egress"]))
    checks.settings["SUBNET_OCID"] = checks.make(ROUTES.format(name="elsewhere", rules=route(nat(checks))), rules, make)
    _, found = checks.check()
    assert failed(found) == {
        "policies": [
            "no policy allows that the service puts nodes into the subnet",
            "no policy allows that people put Jobs into the subnet",
        ]
    }
    checks.until_fine(found)


# --- Who may do what ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
def test_each_statement_that_is_missing_is_named(checks: Checks, which: int) -> None:
    """Every second one is taken away, of each verb and for each caller, and nothing else is said."""
    checks.tenancy.service.set_statements([one for n, one in enumerate(checks.statements) if n % 2 != which])
    _, found = checks.check()
    named = [one["mend"] for one in found if one["verdict"] == "fails"]
    assert named == [one for n, one in enumerate(checks.statements) if n % 2 == which]
    checks.until_fine(found)


def test_groups_that_are_missing_or_of_something_else(checks: Checks) -> None:
    """The dynamic group has the Job Runs of another compartment; then there is none; and no group of people."""
    groups = FIND.format("dynamic-group", "cluster-runs")
    other = "all {resource.type = 'datasciencejobrun', resource.compartment.id = 'ocid1.compartment.oc1..other'}"
    update = f'oci iam dynamic-group update --dynamic-group-id "$found" --matching-rule "{other}" --force'
    checks.tenancy.as_administrator(groups, update)
    _, found = checks.check()
    assert set(failed(found)) == {"dynamic group"}
    assert "does not match the Job Runs" in failed(found)["dynamic group"][0]
    checks.until_fine(found)
    checks.tenancy.as_administrator(groups, 'oci iam dynamic-group delete --dynamic-group-id "$found" --force')
    _, found = checks.check()
    assert failed(found) == {
        "dynamic group": ["there is no dynamic group cluster-runs, nor another one with these Job Runs"]
    }
    checks.until_fine(found)


def test_what_a_person_may_not_do_is_found_by_trying(checks: Checks) -> None:
    """Somebody who reads no policies, and has lost the right to write; to list; to see Jobs, subnet and log group."""
    reader = checks.tenancy.reader.environ
    before = checks.statements
    for what, item in (
        ("group data-scientists to manage objects", "bucket"),
        ("group data-scientists to inspect objects", "bucket"),
        ("group data-scientists to manage data-science-family", "compartment"),
        ("group data-scientists to use virtual-network-family", "subnet"),
        ("group data-scientists to read log-groups", "log group"),
    ):
        (missing,) = [one for one in before if what in one]
        checks.tenancy.service.set_statements([one for one in before if one != missing])
        code, found = checks.check(reader, NETWORK_COMPARTMENT_OCID=checks.tenancy.network)
        assert (code, item in failed(found)) == (1, True), (what, found)
        (mend,) = [one["mend"] for one in found if one["item"] == item]
        assert missing in mend
        checks.begin()
        checks.tenancy.service.set_statements(before)
    assert checks.check(reader)[0] == 3


# --- Who asks -------------------------------------------------------------------------------------------------------


def test_credentials_that_are_refused_or_not_there(checks: Checks) -> None:
    checks.tenancy.service.control({"expire_tokens": "api-key"})
    try:
        code, found = checks.check()
    finally:
        checks.tenancy.service.control({"expire_tokens": ""})
    assert code == 1
    assert set(failed(found)) == {"credentials"}
    assert [one["item"] for one in found][-2:] == ["credentials", "tenancy"]
    code, found = checks.check(OCI_CLI_PROFILE="NOBODY")
    assert (code, set(failed(found))) == (1, {"credentials"})
    (mend,) = [one["mend"] for one in found if one["verdict"] == "fails"]
    assert "oci setup config" in mend
    assert checks.check()[0] == 0


def test_a_service_that_does_not_answer_is_not_known(checks: Checks) -> None:
    """Neither for good nor for bad; and the rest is looked at."""
    checks.tenancy.service.control({"faults": [{"operation": "virtual_network.get_route_table", "kind": "503"}]})
    try:
        code, found = checks.check()
    finally:
        checks.tenancy.service.control({"faults": []})
    assert code == 3
    assert [one["item"] for one in found if one["verdict"] == "unknown"] == ["route"]
