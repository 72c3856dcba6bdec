"""Checks the nodes' subnet: private, with a way out, open between nodes, and large enough.

The rules of a subnet's security lists hold for all nodes. Those of a network security group hold for the VNICs in it,
and a Job Run's are in none: no model of the SDK's Data Science names a group.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, collapse_addresses
from typing import Any

from oci_cluster.backends.findings import Checked, Finding, Verdict, fails, fine, unknown
from oci_cluster.backends.oci.check.image import region_named
from oci_cluster.backends.oci.check.resources import BASTION, into_settings, right
from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.backends.oci.setup import NEW_LIST, network_steps
from oci_cluster.backends.oci.tenancy.client import ALIVE, Tenancy, as_sent, cli, for_shell
from oci_cluster.backends.oci.tenancy.requirements import Needed
from oci_cluster.backends.oci.tenancy.security_rules import (
    Rules,
    Subnet,
    allows,
    blocks_in,
    blocks_of,
    missing_rules,
    ports_of,
    rule_line,
    security_rules,
)
from oci_cluster.contract.parsers import parse_bounds

JSON = dict[str, Any]
SUBNET, CIDR, ROUTE, RULES, ADDRESSES = "subnet", "SUBNET_CIDR", "route", "security rules", "free addresses"
NAMES = "name server"
_ANYWHERE = "0.0.0.0/0"
_GATEWAY = "<OCID of the NAT gateway>"  # in the words of a command: that of the line before it
# Source: OCI's documentation of subnets: the first two addresses and the last are reserved.
_RESERVED = 3
# Of a new subnet beside one without IPv4 addresses: 253 nodes.
_USUAL_PREFIX = 24
_SERVICES, _OF_SERVICES = "SERVICE_CIDR_BLOCK", "all-"
_NEW_SUBNET = "# docs/oci.md, step 3, makes one"
_STATELESS = "a stateless rule does, whose answers would need a rule, too"
_LARGEST_PAGE = 1000  # of the network's lists, as the SDK's pages tell


def findings(checked: Checked, tenancy: Tenancy, needed: Needed) -> Iterator[Finding]:
    """Yield what is found of the subnet of this launch."""
    ocid = tenancy.places.subnet
    if not ocid:
        yield fine(SUBNET, "SUBNET_OCID is not set: the nodes are in a network of the service")
        return
    answer = tenancy.subnet
    found = _Network(checked, tenancy, answer.value)
    if answer.is_refused:
        text = f"SUBNET_OCID {ocid} is not there, or you may not see it: {answer.why}"
        if not checked.given.get("NETWORK_COMPARTMENT_OCID"):
            text += "; set NETWORK_COMPARTMENT_OCID where it is in another compartment than the Jobs"
        fix, other = right(tenancy, needed, "virtual-network-family"), found.other_subnet(tenancy.places.network)
        if there := _other_region(ocid, tenancy.service.region):
            text = f"SUBNET_OCID {ocid} is of {there}, and {tenancy.service.region} is asked"
            fix = "" if other else f"{_NEW_SUBNET} there; or set OCI_CLI_REGION"
        if other:
            fix = "\n# or, where it is right: ".join(filter(None, (f"SUBNET_OCID={other}", fix)))
        yield fails(SUBNET, text, fix or _NEW_SUBNET)
    elif not answer.is_given:
        yield unknown(SUBNET, answer.why)
    else:
        yield found.kind()
        if not blocks_of(found.subnet):
            return  # the rest is about its addresses
        if cidr := checked.given.get("SUBNET_CIDR"):
            yield found.cidr(cidr)
        yield found.route()
        yield found.names()
        yield (rules := found.rules())
        if rules.verdict is Verdict.FINE and checked.given.get("BASTION_ID"):
            yield from found.bastion()
        yield found.addresses()


@dataclass(frozen=True)
class _Network:
    """The subnet of one launch, of the SDK's model; None if not seen."""

    checked: Checked
    tenancy: Tenancy
    subnet: Any

    # --- Which subnet

    def kind(self) -> Finding:
        """Return whether it is regional and private, as nodes have no public addresses."""
        subnet = self.subnet
        named = f"{subnet.display_name} {subnet.id}"
        if subnet.lifecycle_state not in ALIVE:
            text = f"{named} is {subnet.lifecycle_state}"
        elif not subnet.prohibit_public_ip_on_vnic:
            text = f"{named} is a public subnet, whose way out is for public addresses, and nodes have none"
        elif subnet.availability_domain:
            text = f"{named} is of {subnet.availability_domain} alone, and nodes may be in any availability domain"
        elif not (blocks := blocks_of(subnet)):
            text = f"{named} has no IPv4 addresses, by which nodes know each other"
        else:
            return fine(SUBNET, f"{named}, {', '.join(blocks)}, is regional and private")
        if other := self.other_subnet(subnet.compartment_id, subnet.vcn_id):
            return fails(SUBNET, text, f"SUBNET_OCID={other}")
        return fails(SUBNET, text, self._new_subnet())

    def other_subnet(self, compartment: str, vcn: str = "") -> str:
        """Return a regional private subnet of *compartment*, and of *vcn* if given."""
        where = {"vcn_id": vcn} if vcn else {}
        answer = self.tenancy.ask_all("list subnets", self.tenancy.network.list_subnets, compartment, **where)
        own = self.tenancy.places.subnet
        for one in answer.value or []:
            if one.prohibit_public_ip_on_vnic and not one.availability_domain and one.id != own:
                return str(one.id)
        return ""

    def _new_subnet(self) -> str:
        """Return how to make a private subnet with the VCN's way out."""
        block = self._free_block(self._own[0].prefixlen if self._own else _USUAL_PREFIX)
        if block is None:
            return (
                "Console: Networking > Virtual cloud networks > this VCN: add a CIDR block, and a private subnet in it"
            )
        words = {
            **self._where,
            "cidr_block": str(block),
            "display_name": "clusters",
            "prohibit_public_ip_on_vnic": "true",
        }
        tables = [one.id for one in self._all("route tables") if any(map(_is_way_out, one.route_rules))]
        words |= {"route_table_id": tables[0]} if tables else {}
        return into_settings("SUBNET_OCID", for_shell(cli("network subnet create", **words)))

    @property
    def _where(self) -> dict[str, str]:
        return {"compartment_id": self.subnet.compartment_id, "vcn_id": self.subnet.vcn_id}

    def _all(self, what: str) -> list[Any]:
        """Return all things of a kind in the VCN that are seen."""
        request, where = getattr(self.tenancy.network, f"list_{what.lower().replace(' ', '_')}"), self._where
        args = () if what == "network security groups" else (where.pop("compartment_id"),)
        return self.tenancy.ask_all(f"list {what}", request, *args, **where).value or []

    def _taken(self) -> list[IPv4Network]:
        """Return the CIDRs of the VCN's other subnets that are seen."""
        others = [one for one in self._all("subnets") if one.id != self.subnet.id]
        return [IPv4Network(text) for one in others for text in blocks_of(one)]

    @property
    def _own(self) -> list[IPv4Network]:
        return [IPv4Network(text) for text in blocks_of(self.subnet)]

    def _blocks(self) -> list[IPv4Network]:
        vcn = self.tenancy.ask("look up the VCN", self.tenancy.network.get_vcn, self.subnet.vcn_id).value
        return [IPv4Network(text) for text in (vcn.cidr_blocks or [vcn.cidr_block])] if vcn else []

    def _free_block(self, prefix: int) -> IPv4Network | None:
        taken = [*self._taken(), *self._own]
        for outer in self._blocks():
            for block in outer.subnets(new_prefix=max(prefix, outer.prefixlen)):
                if not any(block.overlaps(other) for other in taken):
                    return block
        return None

    def cidr(self, given: str) -> Finding:
        """Return whether ``SUBNET_CIDR`` has the subnet's addresses: a node knows its own by it."""
        own = ",".join(blocks_of(self.subnet))
        try:
            wider = [*collapse_addresses(blocks_in(given))]
            is_inside = all(any(block.subnet_of(one) for one in wider) for block in self._own)
        except ValueError as error:
            return fails(CIDR, f"SUBNET_CIDR={given}: {error}", f"SUBNET_CIDR={own}")
        if is_inside:
            return fine(CIDR, f"{given} has the subnet's addresses, {own}")
        return fails(
            CIDR,
            f"SUBNET_CIDR={given}, and the subnet has {own}: a node elsewhere would not know its address",
            f"SUBNET_CIDR={own}",
        )

    # --- The way out

    def route(self) -> Finding:
        """Return whether the route table leads to storage, registry and Logging."""
        request, ocid = self.tenancy.network.get_route_table, self.subnet.route_table_id
        answer = self.tenancy.ask("look up the subnet's route table", request, ocid)
        if not answer.is_given:
            return unknown(ROUTE, answer.why)
        table, unseen = answer.value, []
        problem: Finding | None = None
        for rule in filter(_is_way_out, table.route_rules):
            found = self._gateway(rule)
            if isinstance(found, Finding):
                problem = found
            elif found.startswith("?"):
                unseen.append(found[1:])
            else:
                return fine(ROUTE, found)
        if problem:
            return problem
        if unseen:
            return unknown(ROUTE, "; ".join(unseen))
        text = (
            f"route table {table.display_name} {table.id} leads to no NAT gateway, and to no service gateway with all"
        )
        return fails(ROUTE, text, self._new_route(table))

    def _gateway(self, rule: Any) -> Finding | str:
        """Return where *rule* leads: a finding if nothing passes, ``?`` and why if unseen."""
        ocid, kind, network = rule.network_entity_id, _kind_of(rule), self.tenancy.network
        requests = {"natgateway": network.get_nat_gateway, "servicegateway": network.get_service_gateway}
        if kind not in requests:
            return f"?it leads to {ocid}, and what is behind that is not seen from here"
        answer = self.tenancy.ask(f"look up {ocid}", requests[kind], ocid)
        word, option = ("NAT", "nat-gateway") if kind == "natgateway" else ("service", "service-gateway")
        if not answer.is_given:
            return f"?{answer.why}"
        gateway = answer.value
        if gateway.block_traffic:
            fix = f"oci network {option} update --{option}-id {ocid} --block-traffic false"
            return fails(ROUTE, f"{word} gateway {gateway.display_name} {ocid} blocks all traffic", fix)
        if gateway.lifecycle_state not in ALIVE:
            return f"?{word} gateway {gateway.display_name} {ocid} is {gateway.lifecycle_state}"
        return f"{word} gateway {gateway.display_name} {ocid}"

    def _new_route(self, table: Any) -> str:
        gateway = next((one.id for one in self._all("NAT gateways")), "")
        kept = [as_sent(self.tenancy.network, rule) for rule in table.route_rules if rule.destination != _ANYWHERE]
        route = {"destination": _ANYWHERE, "destinationType": "CIDR_BLOCK", "networkEntityId": gateway or _GATEWAY}
        rules = json.dumps([*kept, route])
        update = for_shell(cli("network route-table update", "--force", rt_id=table.id, route_rules=rules))
        if gateway:
            return update
        make = for_shell(cli("network nat-gateway create", **self._where, display_name="clusters"))
        return f"gateway=$({make} --query data.id --raw-output)\n{_spliced(update, _GATEWAY, 'gateway')}"

    def names(self) -> Finding:
        """Return who tells nodes the addresses of OCI's services."""
        request, ocid = self.tenancy.network.get_dhcp_options, self.subnet.dhcp_options_id
        answer = self.tenancy.ask("look up the subnet's DHCP options", request, ocid)
        if not answer.is_given:
            return unknown(NAMES, answer.why)
        options = [one for one in answer.value.options if one.type == "DomainNameServer"]
        own = [text for one in options for text in getattr(one, "custom_dns_servers", None) or []]
        if own:
            return unknown(
                NAMES, f"nodes ask {', '.join(own)}, and whether these know OCI's services is not seen from here"
            )
        return fine(NAMES, "the VCN's own")

    # --- Between nodes

    def _ports(self) -> dict[str, list[tuple[int, int]]]:
        return {self.checked.framework: ports_of(self.checked.root, self.checked.framework, self.checked.given)}

    def bastion(self) -> Iterator[Finding]:
        """Yield what keeps the bastion from the nodes' ports, where it is seen."""
        answer, subnet = self.tenancy.bastion, self.tenancy.security_lists()
        address = answer.value.private_endpoint_ip_address if answer.is_given else ""
        if address:
            wanted: Rules = (security_rules([f"{address}/32"], self._ports())[0], [])
            if lacking := missing_rules(subnet.rules, wanted)[0]:
                text = f"no security list of the nodes' subnet allows {'; '.join(map(rule_line, lacking))}"
                yield fails(BASTION, f"the bastion does not get to the nodes: {text}", _commands(subnet, wanted))

    def rules(self) -> Finding:
        """Return whether security lists let nodes reach each other, and the services."""
        try:
            subnet = self.tenancy.security_lists()
        except ServiceError as error:
            return unknown(RULES, error.reason)
        ports = self._ports()
        ingress, egress = security_rules(subnet.blocks, ports)
        there = subnet.rules
        if allows(map(_to_services, there[1]), egress[-1], there[0]):
            egress = egress[:-1]
        missing = missing_rules(there, (ingress, egress))
        lacking = [*missing[0], *missing[1]]
        if not lacking:
            allowed = ", ".join(
                f"{low}-{high}" if low < high else f"{low}" for low, high in ports[self.checked.framework]
            )
            return fine(RULES, f"TCP {allowed} between nodes, and HTTPS to the services, are allowed, in and out")
        near = [*_near(there[0], lacking), *_near(there[1], lacking), *self._groups(lacking)]
        text = f"no security list of the subnet allows {'; '.join(map(rule_line, lacking))}"
        return fails(RULES, ", but ".join([text, *near[:1]]), _commands(subnet, (ingress, egress)))

    def _groups(self, lacking: Sequence[JSON]) -> Iterator[str]:
        """Yield which network security groups have rules that are missing: they do not count."""
        network = self.tenancy.network
        for group in self._all("network security groups"):
            request = network.list_network_security_group_security_rules
            found = self.tenancy.ask_all("list rules of a network security group", request, group.id).value or []
            if any(allows([as_sent(network, rule)], one) for rule in found for one in lacking):
                yield f"network security group {group.display_name} does, which no Job Run is in"

    # --- Room

    def addresses(self) -> Finding:
        """Return whether there is an address for each node."""
        request, where = self.tenancy.network.list_private_ips, {"subnet_id": self.subnet.id, "limit": _LARGEST_PAGE}
        answer = self.tenancy.ask_all("list the subnet's private addresses", request, **where)
        if not answer.is_given:
            return unknown(ADDRESSES, answer.why)
        every, wanted = sum(block.num_addresses - _RESERVED for block in self._own), self._nodes
        free = max(0, every - len(answer.value))
        if free >= wanted:
            return fine(ADDRESSES, f"{free} of {every}, and this launch takes {wanted}")
        text = f"{free} of {every} are free, and this launch takes {wanted}"
        if wider := self._wider(wanted - free):
            update = cli("network subnet update", "--force", subnet_id=self.subnet.id, cidr_block=str(wider))
            return fails(ADDRESSES, text, for_shell(update))
        if free > 1:
            return fails(ADDRESSES, text, f"./scripts/launch.sh {self.checked.framework} {free - 1}")
        return fails(ADDRESSES, text, self._new_subnet())

    @property
    def _nodes(self) -> int:
        plan = self.checked.plan
        adapt = plan.environment.get("ADAPT", "") if plan else ""
        nodes = len(plan.nodes) if plan else 1 + self.checked.workers
        return max(nodes, 1 + parse_bounds(adapt)[1]) if adapt else nodes

    def _wider(self, more: int) -> IPv4Network | None:
        """Return the next wider block of the VCN with *more* addresses that is free."""
        (block, *others), taken, outer = self._own, self._taken(), self._blocks()
        if others:
            return None  # which of them becomes wider is a person's to say
        wider = block
        while wider.prefixlen and any(wider.subnet_of(one) for one in outer):
            if wider.num_addresses >= block.num_addresses + more:
                return wider
            wider = wider.supernet()
            if any(wider.overlaps(other) for other in taken):
                return None
        return None


def _other_region(ocid: str, region: str) -> str:
    """Return the region that *ocid* names, unless it is *region*."""
    there = region_named((ocid.split(".") + [""] * 4)[3])
    return "" if there in {"", region_named(region)} else there


def _kind_of(rule: Any) -> str:
    return [*str(rule.network_entity_id).split("."), ""][1]


def _is_way_out(rule: Any) -> bool:
    """Return whether *rule* may lead to all that nodes need."""
    if rule.destination_type == _SERVICES:
        return str(rule.destination).startswith(_OF_SERVICES)
    return (rule.destination or rule.cidr_block) == _ANYWHERE and _kind_of(rule) != "internetgateway"


def _to_services(rule: JSON) -> JSON:
    """Return *rule* as one to anywhere, if it is to the region's services."""
    if rule.get("destinationType") != _SERVICES or not str(rule.get("destination")).startswith(_OF_SERVICES):
        return rule
    return {**rule, "destination": _ANYWHERE, "destinationType": "CIDR_BLOCK"}


def _near(there: Sequence[JSON], lacking: Sequence[JSON]) -> Iterator[str]:
    """Yield why a rule with the right ports is not enough."""
    for wanted in lacking:
        end = "source" if "source" in wanted else "destination"
        for given in there:
            if allows([{**given, "isStateless": False}], wanted):
                yield _STATELESS
            elif given.get(end) and allows([{**given, end: wanted[end], f"{end}Type": "CIDR_BLOCK"}], wanted):
                yield f"one does {'from' if end == 'source' else 'to'} {given[end]}"


def _commands(subnet: Subnet, rules: Rules) -> str:
    """Return what setup.sh would run for *rules*, as lines for a shell."""
    lines = []
    for step in network_steps(subnet, rules):
        if step.problem:
            return f"Console: Networking > the subnet > Security lists: {step.problem}"
        line = for_shell(step.command)
        is_new = step.command[:3] == ("network", "security-list", "create")
        lines.append(f"rules=$({line} --query data.id --raw-output)" if is_new else _spliced(line, NEW_LIST, "rules"))
    return "\n".join(lines)


def _spliced(line: str, what: str, variable: str) -> str:
    """Return a line for a shell with *variable* in the place of *what*."""
    return line.replace(what, f"'\"${variable}\"'")
