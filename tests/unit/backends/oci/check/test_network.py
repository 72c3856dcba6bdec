"""What a check says of the nodes' subnet: its kind, its way out, its rules, its room."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from unit.backends.oci.fake_tenancy import (
    NAT,
    NET,
    SILENT,
    World,
    core,
    egress,
    fails,
    ingress,
    item,
    refusal,
    route,
    unknown,
)

from oci_cluster.backends.findings import Verdict
from oci_cluster.backends.oci.check import network
from oci_cluster.backends.oci.check.resources import needed_by

SERVICES, STORAGE = "all-iad-services-in-oracle-services-network", "oci-iad-objectstorage"
GATEWAY = "ocid1.servicegateway.oc1.iad.g"


@pytest.fixture
def world() -> World:
    return World()


def private(name: str, block: str, **more: Any) -> SimpleNamespace:
    fields = {"vcn_id": "v", "prohibit_public_ip_on_vnic": True, "availability_domain": None, "cidr_block": block}
    return item(id=name, **{**fields, **more})


def test_all_is_right(world: World) -> None:
    found = world.find(network)
    assert {one.verdict for one in found.values()} == {Verdict.FINE}
    assert list(found) == ["subnet", "SUBNET_CIDR", "route", "name server", "security rules", "free addresses"]
    assert found["free addresses"].text == "253 of 253, and this launch takes 3"
    assert "TCP 8786, 8787, 8700-8800, 3000-3100 between nodes" in found["security rules"].text


def test_without_a_subnet_there_is_nothing_to_look_at(world: World) -> None:
    world.asked.clear()
    assert list(world.find(network, SUBNET_OCID="")) == ["subnet"]
    assert "get_subnet" not in world.asked


def test_a_subnet_that_is_not_seen(world: World) -> None:
    world.by_name["get_subnet"] = refusal()
    world.by_name["list_subnets"] = [private("s2", "10.0.1.0/24")]
    found = world.find(network)
    assert list(found) == ["subnet"]
    assert found["subnet"].fix.startswith("SUBNET_OCID=s2\n# or, where it is right: allow group data-scientists to use")
    world.by_name["list_subnets"] = refusal()
    assert world.find(network)["subnet"].fix.startswith("allow group data-scientists to use")
    world.by_name["get_subnet"] = SILENT
    assert unknown(world.find(network)) == ["subnet"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"prohibit_public_ip_on_vnic": False}, "is a public subnet"),
        ({"availability_domain": "AD-1"}, "is of AD-1 alone"),
        ({"lifecycle_state": "TERMINATING"}, "is TERMINATING"),
        ({"cidr_block": None, "ipv6_cidr_blocks": ["2001:db8::/64"]}, "has no IPv4 addresses"),
    ],
)
def test_a_subnet_that_does_not_do(world: World, fields: dict[str, Any], text: str) -> None:
    vars(world.subnet).update(fields)
    found = world.find(network)["subnet"]
    assert (found.verdict, text in found.text) == (Verdict.FAILS, True)
    free = "10.0.1.0/24" if world.subnet.cidr_block else "10.0.0.0/24"
    assert found.fix == (
        f"made=$(oci network subnet create --compartment-id {NET} --vcn-id v --cidr-block {free}"
        " --display-name clusters --prohibit-public-ip-on-vnic true --route-table-id rt"
        ' --query data.id --raw-output) && echo "SUBNET_OCID=$made" >>config.env'
    )
    world.by_name["list_subnets"] = [private("s2", "10.0.1.0/24")]
    assert world.find(network)["subnet"].fix == "SUBNET_OCID=s2"


def test_a_vcn_that_is_full(world: World) -> None:
    world.subnet.prohibit_public_ip_on_vnic = False
    world.by_name["list_route_tables"] = []
    world.by_name["get_vcn"] = item(cidr_blocks=None, cidr_block="10.0.0.0/24")
    assert world.find(network)["subnet"].fix.startswith("Console: Networking")
    world.by_name["get_vcn"] = refusal()
    assert world.find(network)["subnet"].fix.startswith("Console: Networking")


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        ("10.0.0.0/16", Verdict.FINE),
        ("10.0.0.0/25", Verdict.FAILS),
        ("10.1.0.0/24", Verdict.FAILS),
        ("10.0.0.1/24", Verdict.FINE),  # a launch takes it, and the blank
        ("10.0.0.0/25, 10.0.0.128/25", Verdict.FINE),
        ("nodes", Verdict.FAILS),
    ],
)
def test_subnet_cidr(world: World, given: str, verdict: Verdict) -> None:
    found = world.find(network, SUBNET_CIDR=given)["SUBNET_CIDR"]
    assert (found.verdict, found.fix) == (verdict, "" if verdict is Verdict.FINE else "SUBNET_CIDR=10.0.0.0/24")
    assert "SUBNET_CIDR" not in world.find(network, SUBNET_CIDR="")


# --- The way out


def way(world: World) -> Any:
    return world.find(network)["route"]


def test_gateways_that_lead_out(world: World) -> None:
    assert way(world).text == f"NAT gateway nat {NAT}"
    world.table.route_rules = [route(GATEWAY, SERVICES, "SERVICE_CIDR_BLOCK")]
    assert way(world).text == f"service gateway services {GATEWAY}"
    world.table.route_rules = [core.RouteRule(cidr_block="0.0.0.0/0", network_entity_id=NAT)]  # as it was written once
    assert way(world).verdict is Verdict.FINE


@pytest.mark.parametrize(("gateway", "option"), [(NAT, "nat-gateway"), (GATEWAY, "service-gateway")])
def test_a_gateway_that_blocks(world: World, gateway: str, option: str) -> None:
    is_nat = gateway == NAT
    place = ("0.0.0.0/0", "CIDR_BLOCK") if is_nat else (SERVICES, "SERVICE_CIDR_BLOCK")
    world.table.route_rules = [route(gateway, *place)]
    world.by_name["get_nat_gateway" if is_nat else "get_service_gateway"] = item(display_name="x", block_traffic=True)
    assert way(world).fix == f"oci network {option} update --{option}-id {gateway} --block-traffic false"


def test_where_a_route_leads_is_not_seen(world: World) -> None:
    world.table.route_rules = [route("ocid1.drg.oc1.iad.d")]
    assert (way(world).verdict, "what is behind that is not seen" in way(world).text) == (Verdict.UNKNOWN, True)
    world.table.route_rules = [route(NAT)]
    world.nat.lifecycle_state = "PROVISIONING"
    assert "is PROVISIONING" in way(world).text
    world.by_name["get_nat_gateway"] = refusal()
    assert way(world).verdict is Verdict.UNKNOWN
    world.by_name["get_route_table"] = refusal()
    assert way(world).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [route("ocid1.internetgateway.oc1.iad.i")],
        [route(GATEWAY, STORAGE, "SERVICE_CIDR_BLOCK")],
        [route(NAT, "192.0.2.0/24")],
    ],
)
def test_no_way_out(world: World, rules: list[Any]) -> None:
    """What else leads somewhere stays; a route of the whole world is replaced."""
    world.table.route_rules = rules
    assert way(world).verdict is Verdict.FAILS
    words = way(world).fix.partition("--route-rules '")[2].removesuffix("' --force")
    kept = [rule for rule in rules if rule.destination != "0.0.0.0/0"]
    assert [rule["networkEntityId"] for rule in json.loads(words)] == [*(rule.network_entity_id for rule in kept), NAT]


def test_a_gateway_is_made_where_there_is_none(world: World) -> None:
    world.table.route_rules, world.by_name["list_nat_gateways"] = [], []
    make, update = way(world).fix.splitlines()
    assert make == (
        f"gateway=$(oci network nat-gateway create --compartment-id {NET} --vcn-id v --display-name clusters"
        " --query data.id --raw-output)"
    )
    assert '"networkEntityId": "\'"$gateway"\'"}]\' --force' in update


# --- Rules


def rules(world: World) -> Any:
    return world.find(network)["security rules"]


def ports(low: int, high: int) -> Any:
    return core.TcpOptions(destination_port_range=core.PortRange(min=low, max=high))


def test_rules_that_are_missing(world: World) -> None:
    world.rules.ingress_security_rules, world.rules.egress_security_rules = [], [egress("10.0.0.0/24")]
    found = rules(world)
    assert found.verdict is Verdict.FAILS
    assert "ingress, TCP 8700-8800, from 10.0.0.0/24" in found.text
    assert "egress, TCP 443, to 0.0.0.0/0" in found.text
    assert "egress, TCP 8700" not in found.text
    make, attach = found.fix.splitlines()
    assert make.startswith(f"rules=$(oci network security-list create --compartment-id {NET} --vcn-id v")
    assert '--security-list-ids \'["l1", "\'"$rules"\'"]\'' in attach


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (ingress("10.9.0.0/24"), "one does from 10.9.0.0/24"),
        (ingress(is_stateless=True), "a stateless rule does"),
        (ingress(source_type="NETWORK_SECURITY_GROUP", source="g"), "one does from g"),
    ],
)
def test_why_a_rule_that_is_there_does_not_count(world: World, rule: Any, text: str) -> None:
    world.rules.ingress_security_rules = [rule]
    world.rules.egress_security_rules = [
        egress("10.0.0.0/24", tcp_options=ports(1, 9000)),
        egress(tcp_options=ports(443, 443)),
    ]
    assert text in rules(world).text


def test_rules_of_a_security_group_do_not_hold(world: World) -> None:
    world.rules.ingress_security_rules = []
    world.by_name["list_network_security_groups"] = [item(id="g", display_name="mine")]
    own = core.SecurityRule(direction="INGRESS", protocol="all", source="10.0.0.0/8", is_stateless=False)
    world.by_name["list_network_security_group_security_rules"] = [own]
    assert "network security group mine does, which no Job Run is in" in rules(world).text


def test_services_by_their_name_are_enough(world: World) -> None:
    between = egress("10.0.0.0/24")
    named = egress(SERVICES, destination_type="SERVICE_CIDR_BLOCK")
    world.rules.egress_security_rules = [between, named]
    assert rules(world).verdict is Verdict.FINE
    world.rules.egress_security_rules = [between, egress(STORAGE, destination_type="SERVICE_CIDR_BLOCK")]
    assert rules(world).verdict is Verdict.FAILS


def test_lists_that_are_not_seen_or_are_too_many(world: World) -> None:
    world.by_name["get_security_list"] = refusal()
    assert rules(world).verdict is Verdict.UNKNOWN
    world.by_name["get_security_list"] = world.rules
    world.rules.ingress_security_rules = []
    world.subnet.security_list_ids = ["l1"] * 5
    assert rules(world).fix.startswith("Console: Networking > the subnet > Security lists: the subnet has 5")


# --- Room


def room(world: World, workers: int = 2) -> Any:
    return world.find(network, workers)["free addresses"]


def test_addresses_that_are_taken(world: World) -> None:
    world.subnet.cidr_block = "10.0.0.0/28"
    world.by_name["list_private_ips"] = [item()] * 11
    found = room(world)
    assert (found.verdict, found.text) == (Verdict.FAILS, "2 of 13 are free, and this launch takes 3")
    assert found.fix == "oci network subnet update --subnet-id ocid1.subnet.oc1.iad.s --cidr-block 10.0.0.0/27 --force"
    assert room(world, 1).verdict is Verdict.FINE
    neighbour = private("s2", "10.0.0.16/28")
    world.by_name["list_subnets"] = [world.subnet, neighbour]
    assert room(world).fix == "./scripts/launch.sh dask 1"
    world.by_name["list_private_ips"] = [item()] * 14
    assert room(world).fix.startswith("made=$(oci network subnet create")
    world.by_name["list_private_ips"] = refusal()
    assert room(world).verdict is Verdict.UNKNOWN


def test_a_vcn_without_room(world: World) -> None:
    world.subnet.cidr_block = "10.0.0.0/28"
    world.by_name |= {"list_private_ips": [item()] * 11, "get_vcn": item(cidr_blocks=["10.0.0.0/28"])}
    assert room(world).fix == "./scripts/launch.sh dask 1"


def test_a_cluster_that_may_grow_needs_room_for_its_most(world: World) -> None:
    checked, tenancy = world.checked(), world.tenancy()
    plan: Any = SimpleNamespace(environment={"ADAPT": "1:400"}, nodes=[1, 2])
    found = list(network.findings(replace(checked, plan=plan), tenancy, needed_by(checked, tenancy)))
    assert found[-1].text == "253 of 253 are free, and this launch takes 401"
    plan.environment.clear()
    found = list(network.findings(replace(checked, plan=plan), tenancy, needed_by(checked, tenancy)))
    assert found[-1].text == "253 of 253, and this launch takes 2"


def test_only_what_fails_is_told_as_such(world: World) -> None:
    world.nat.block_traffic = True
    assert fails(world.find(network)) == ["route"]
