"""The small services around a tenancy: networks and the container registry."""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Callable, Sequence
from typing import Any

from oci_service.faults import Controls
from oci_service.identity import Identity
from oci_service.network import Network
from oci_service.resources import (
    JSON,
    Answer,
    Operation,
    Refusal,
    Request,
    Route,
    Shelf,
    getter,
    invalid,
    merged,
    not_found,
    ocid,
    page_of,
    remover,
)

# Source: OCI's documentation of security lists: "up to five security lists with a given subnet".
_MOST_LISTS = 5
_PROTOCOLS = {"all", "1", "6", "17", "58"}


class Tenancy:
    """A tenancy with one user: with a compartment for all there is, or *is_empty*, with nothing."""

    def __init__(self, controls: Controls, lock: threading.RLock, *, is_empty: bool = False) -> None:
        self._controls = controls
        self.identity = Identity(controls, lock, is_strict=is_empty)
        self.id = self.identity.id
        self.user = self.identity.user
        self.check_compartment = self.identity.check_compartment
        self.vcns = Shelf("vcn", lock)
        self.subnets = Shelf("subnet", lock)
        self.security_lists = Shelf("securitylist", lock)
        self.nat_gateways = Shelf("natgateway", lock)
        self.route_tables = Shelf("routetable", lock)
        self.dhcp_options = Shelf("dhcpoptions", lock)
        self.repositories = Shelf("containerrepo", lock)
        #: What a route may lead to; others add theirs.
        self.gateways = [self.nat_gateways]
        self._network = Network(controls, lock, self)
        self.compartment: str = self.id if is_empty else self.identity.add_compartment("clusters")

    @property
    def shelves(self) -> list[Shelf]:
        """All that a policy can be about."""
        identity = self.identity
        people = [identity.compartments, identity.users, identity.groups, identity.dynamic_groups, identity.policies]
        network = [
            self.vcns,
            self.subnets,
            self.security_lists,
            self.nat_gateways,
            self.route_tables,
            self.dhcp_options,
        ]
        return [*people, *network, *self._network.shelves, self.repositories]

    def make_network(self, cidr: str) -> str:
        """Make a VCN with one regional private subnet; return the subnet's OCID."""
        common = {"compartmentId": self.compartment, "lifecycleState": "AVAILABLE"}
        vcn = self.vcns.add(**common, displayName="vcn", cidrBlock=cidr, cidrBlocks=[cidr])
        inside = {"protocol": "6", "source": cidr, "sourceType": "CIDR_BLOCK", "isStateless": False}
        outside = {"protocol": "all", "destination": "0.0.0.0/0", "destinationType": "CIDR_BLOCK", "isStateless": False}
        rules = {"ingressSecurityRules": [inside], "egressSecurityRules": [outside]}
        rules_id = self.security_lists.add(**common, **rules, displayName="cluster", vcnId=vcn["id"])["id"]
        gateway = self.nat_gateways.add(**common, displayName="nat", vcnId=vcn["id"], blockTraffic=False)["id"]
        route = {"destination": "0.0.0.0/0", "destinationType": "CIDR_BLOCK", "networkEntityId": gateway}
        routes = self.route_tables.add(**common, displayName="cluster", vcnId=vcn["id"], routeRules=[route])["id"]
        subnet = {"cidrBlock": cidr, "vcnId": vcn["id"], "displayName": "cluster", "securityListIds": [rules_id]}
        subnet["routeTableId"] = routes
        return str(self._add_subnet({**common, **subnet})["id"])

    def _add_subnet(self, fields: JSON) -> JSON:
        network = ipaddress.IPv4Network(fields["cidrBlock"])
        defaults = {
            "prohibitPublicIpOnVnic": True,
            "prohibitInternetIngress": True,
            "routeTableId": ocid("routetable"),
            "dhcpOptionsId": self._add_dhcp_options(fields["compartmentId"], fields["vcnId"]),
            "virtualRouterIp": str(network[1]),
            "virtualRouterMac": "00:00:17:00:00:01",
            "lifecycleState": "AVAILABLE",
        }
        return self.subnets.add(**{**defaults, **fields})

    def _add_dhcp_options(self, compartment: str, vcn: str) -> str:
        options = [{"type": "DomainNameServer", "serverType": "VcnLocalPlusInternet"}]
        common = {"compartmentId": compartment, "vcnId": vcn, "lifecycleState": "AVAILABLE"}
        return str(self.dhcp_options.add(**common, options=options)["id"])

    # --- VCN

    def network_routes(self) -> list[Route]:
        """Return the operations of the VCN service."""
        base = "/20160918"
        found: list[Route] = []
        for shelf, plural, name in (
            (self.subnets, "subnets", "subnet"),
            (self.security_lists, "securityLists", "security_list"),
            (self.vcns, "vcns", "vcn"),
            (self.nat_gateways, "natGateways", "nat_gateway"),
            (self.route_tables, "routeTables", "route_table"),
        ):
            found += [
                ("GET", f"{base}/{plural}", f"list_{name}s", self.lister(shelf, "vcnId", "displayName")),
                ("GET", f"{base}/{plural}/{{id}}", f"get_{name}", getter(shelf)),
                ("POST", f"{base}/{plural}", f"create_{name}", getattr(self, f"_create_{name}")),
            ]
        update = f"{base}/securityLists/{{id}}"
        return [
            *found,
            *self._network.routes(),
            ("GET", f"{base}/dhcps/{{id}}", "get_dhcp_options", getter(self.dhcp_options)),
            ("PUT", update, "update_security_list", self._update_security_list),
            ("PUT", f"{base}/subnets/{{id}}", "update_subnet", self._update_subnet),
        ]

    def lister(self, shelf: Shelf, *filters: str) -> Operation:
        """Return the operation that lists what is on *shelf*, by these *filters*."""

        def answer(request: Request) -> Answer:
            self.check_compartment(request.wanted("compartmentId"))
            wanted = ("lifecycleState", *self.identity.own_filter(request), *filters)
            return shelf.list(request, wanted, self._controls.page_size)

        return answer

    def _body(self, request: Request, *required: str) -> JSON:
        body = request.json()
        for name in required:
            if body.get(name) in (None, "", []):
                raise Refusal(400, "MissingParameter", f"{name} is required")
        if "compartmentId" in required:
            self.check_compartment(body["compartmentId"])
        return body

    def _create_vcn(self, request: Request) -> Answer:
        body = self._body(request, "compartmentId")
        return self.vcns.answer(self.vcns.add(**body, lifecycleState="AVAILABLE"))

    def _create_nat_gateway(self, request: Request) -> Answer:
        body = self._body(request, "compartmentId", "vcnId")
        self.vcns.get(body["vcnId"])
        fields = {"blockTraffic": False, "natIp": "192.0.2.1", "lifecycleState": "AVAILABLE"}
        return self.nat_gateways.answer(self.nat_gateways.add(**{**fields, **body}))

    def _create_route_table(self, request: Request) -> Answer:
        body = self._body(request, "compartmentId", "vcnId")
        if not isinstance(body.get("routeRules"), list):  # it may be empty
            raise Refusal(400, "MissingParameter", "routeRules is required")
        self.vcns.get(body["vcnId"])
        self.check_routes(body["routeRules"])
        return self.route_tables.answer(self.route_tables.add(**body, lifecycleState="AVAILABLE"))

    def check_routes(self, rules: Sequence[JSON]) -> None:
        """Refuse routes to what is not there, or from what is no network; a service gateway's have a name instead."""
        for rule in rules:
            gateway = str(rule.get("networkEntityId"))
            if not any(item["id"] == gateway for shelf in self.gateways for item in shelf.all()):
                raise not_found()
            if rule.get("destinationType", "CIDR_BLOCK") == "CIDR_BLOCK":
                _check_cidr("destination", rule.get("destination"), ipaddress.IPv4Network)

    def _check_block(self, body: JSON, vcn: JSON, own: str = "") -> None:
        """Refuse a subnet's *cidrBlock* that is not inside its VCN, or that another subnet has."""
        _check_cidr("cidrBlock", body["cidrBlock"], ipaddress.IPv4Network)
        block = ipaddress.IPv4Network(body["cidrBlock"])
        outer = [ipaddress.IPv4Network(text) for text in vcn.get("cidrBlocks") or [vcn["cidrBlock"]]]
        if not any(block.subnet_of(one) for one in outer):
            raise invalid(f"The subnet CIDR {block} is not a subset of the CIDR of its VCN")
        for other in self.subnets.all():
            is_of_vcn = (other["vcnId"], other["id"] == own) == (vcn["id"], False)
            theirs = other.get("ipv4CidrBlocks") or filter(None, [other.get("cidrBlock")])
            if is_of_vcn and any(block.overlaps(ipaddress.IPv4Network(one)) for one in theirs):
                raise invalid(f"The subnet CIDR {block} overlaps with that of {other['id']}")

    def _create_subnet(self, request: Request) -> Answer:
        body = self._body(request, "compartmentId", "vcnId", "cidrBlock")
        vcn = self.vcns.get(body["vcnId"])
        for rules in body.get("securityListIds") or []:
            self.security_lists.get(rules)
        if body.get("routeTableId"):
            self.route_tables.get(body["routeTableId"])
        self._check_block(body, vcn)
        return self.subnets.answer(self._add_subnet(body))

    def _update_subnet(self, request: Request) -> Answer:
        subnet = self.subnets.matching(request.names["id"], request)
        body = self._body(request)
        rules = body.get("securityListIds") or []
        for one in rules:
            if self.security_lists.get(one)["vcnId"] != subnet["vcnId"]:
                raise invalid(f"security list {one} is of another VCN")
        if len(rules) > _MOST_LISTS:
            raise Refusal(400, "LimitExceeded", f"A subnet has {_MOST_LISTS} security lists at most")
        if body.get("routeTableId"):
            self.route_tables.get(body["routeTableId"])
        if body.get("cidrBlock"):
            self._check_block(body, self.vcns.get(subnet["vcnId"]), subnet["id"])
        self.subnets.touch(subnet, **merged(body))
        return self.subnets.answer(subnet)

    def _create_security_list(self, request: Request) -> Answer:
        body = self._body(request, "compartmentId", "vcnId")
        self.vcns.get(body["vcnId"])
        _check_rules(body)
        return self.security_lists.answer(self.security_lists.add(**body, lifecycleState="AVAILABLE"))

    def _update_security_list(self, request: Request) -> Answer:
        rules = self.security_lists.matching(request.names["id"], request)
        body = self._body(request)
        _check_rules({**rules, **body})
        self.security_lists.touch(rules, **body)
        return self.security_lists.answer(rules)

    # --- Container registry

    def registry_routes(self, namespace: str) -> list[Route]:
        """Return the operations of the artifacts service."""
        base = "/20160918/container"
        required = ("compartmentId", "displayName")

        def create(request: Request) -> Answer:
            body = self._body(request, *required)
            if any(item["displayName"] == body["displayName"] for item in self.repositories.all()):
                raise Refusal(409, "NAMESPACE_CONFLICT", f"Repository already exists: {body['displayName']}")
            fields = {"namespace": namespace, "imageCount": 0, "isPublic": False, "lifecycleState": "AVAILABLE"}
            return self.repositories.answer(self.repositories.add(**{**fields, **body}))

        def images(request: Request) -> Answer:
            self.check_compartment(home := request.wanted("compartmentId"))
            homes = {item["displayName"]: item["compartmentId"] for item in self.repositories.all()}
            found = list(map(_image, self._controls.images.items()))
            found = [item for item in found if homes.get(item["repositoryName"], home) == home]
            wanted = {name: request.query[name] for name in ("repositoryName", "version") if name in request.query}
            wanted |= {"digest": request.query["imageDigest"]} if "imageDigest" in request.query else {}
            found = [item for item in found if all(item.get(name) == value for name, value in wanted.items())]
            page, headers = page_of(found, request.query, self._controls.page_size)
            return Answer({"items": page, "remainingItemsCount": len(found) - len(page)}, 200, headers)

        def repositories(request: Request) -> Answer:
            answer = self.lister(self.repositories, "displayName")(request)
            counts = {"repositoryCount": len(self.repositories.all()), "imageCount": len(self._controls.images)}
            return Answer(
                {"items": answer.content, "layerCount": 0, "layersSizeInBytes": 0, **counts}, 200, answer.headers
            )

        return [
            ("POST", f"{base}/repositories", "create_container_repository", create),
            ("GET", f"{base}/repositories", "list_container_repositories", repositories),
            ("GET", f"{base}/repositories/{{id}}", "get_container_repository", getter(self.repositories)),
            ("DELETE", f"{base}/repositories/{{id}}", "delete_container_repository", remover(self.repositories)),
            ("GET", f"{base}/images", "list_container_images", images),
        ]


def _image(entry: tuple[str, dict[str, Any]]) -> JSON:
    """Return an image of the table as the registry lists it."""
    path, _, version = entry[0].rpartition(":")
    repository = path.split("/", 2)[2]
    about = {"displayName": f"{repository}:{version}", "repositoryName": repository, "version": version}
    return {**about, "id": entry[0], "digest": entry[1].get("digest"), "lifecycleState": "AVAILABLE"}


def _check_cidr(name: str, text: object, kind: Callable[[str], object] = ipaddress.ip_network) -> None:
    try:
        kind(str(text))
    except ValueError as error:
        raise invalid(f"{name}: {error}") from None


def _check_rules(body: JSON) -> None:
    for direction, end in (("ingressSecurityRules", "source"), ("egressSecurityRules", "destination")):
        if not isinstance(body.get(direction), list):
            raise Refusal(400, "MissingParameter", f"{direction} is required")
        for number, rule in enumerate(body[direction]):
            if rule.get("protocol") not in _PROTOCOLS:
                raise invalid(f"{direction}[{number}].protocol must be one of {', '.join(sorted(_PROTOCOLS))}")
            if rule.get(f"{end}Type", "CIDR_BLOCK") == "CIDR_BLOCK":
                _check_cidr(f"{direction}[{number}].{end}", rule.get(end))
