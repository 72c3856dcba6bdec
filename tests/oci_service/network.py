"""What a network has besides VCNs, subnets and their lists: gateways, network security groups, private addresses."""

from __future__ import annotations

import ipaddress
import threading
from typing import TYPE_CHECKING

from oci import core  # type: ignore[import-untyped]

from oci_service import models
from oci_service.faults import Controls
from oci_service.resources import (
    JSON,
    Answer,
    Operation,
    Request,
    Route,
    Shelf,
    getter,
    invalid,
    merged,
    not_found,
    now,
    ocid,
    page_of,
    remover,
)

if TYPE_CHECKING:
    from oci_service.tenancy import Tenancy

_MODELS = core.models
# The two services of a region that a gateway may lead to, as Oracle's documentation of service gateways names them.
_SERVICES = (
    ("oci-iad-objectstorage", "OCI IAD Object Storage"),
    ("all-iad-services-in-oracle-services-network", "All IAD Services In Oracle Services Network"),
)
_LARGEST_PAGE = 1000


class Network:
    """Gateways, network security groups and private addresses of a tenancy's VCNs."""

    def __init__(self, controls: Controls, lock: threading.RLock, tenancy: Tenancy) -> None:
        self._controls = controls
        self._tenancy = tenancy
        self._services = [
            {"id": ocid("service"), "name": text, "cidrBlock": label, "description": text} for label, text in _SERVICES
        ]
        self.internet_gateways = Shelf("internetgateway", lock)
        self.service_gateways = Shelf("servicegateway", lock)
        self.groups = Shelf("networksecuritygroup", lock)
        self.private_ips = Shelf("privateip", lock)
        self._rules: dict[str, list[JSON]] = {}
        tenancy.gateways += [self.internet_gateways, self.service_gateways]

    @property
    def shelves(self) -> list[Shelf]:
        """All that a policy can be about."""
        return [self.internet_gateways, self.service_gateways, self.groups, self.private_ips]

    def routes(self) -> list[Route]:
        """Return the operations."""
        base, tenancy = "/20160918", self._tenancy
        found: list[Route] = [("GET", f"{base}/services", "list_services", self._list_services)]
        for shelf, plural, name, model in (
            (self.internet_gateways, "internetGateways", "internet_gateway", "CreateInternetGatewayDetails"),
            (self.service_gateways, "serviceGateways", "service_gateway", "CreateServiceGatewayDetails"),
            (self.groups, "networkSecurityGroups", "network_security_group", "CreateNetworkSecurityGroupDetails"),
        ):
            found += [
                ("POST", f"{base}/{plural}", f"create_{name}", self._creator(shelf, model)),
                ("GET", f"{base}/{plural}", f"list_{name}s", tenancy.lister(shelf, "vcnId", "displayName")),
                ("GET", f"{base}/{plural}/{{id}}", f"get_{name}", getter(shelf)),
                ("DELETE", f"{base}/{plural}/{{id}}", f"delete_{name}", remover(shelf)),
            ]
        for shelf, plural, name, model in (
            (tenancy.nat_gateways, "natGateways", "nat_gateway", "UpdateNatGatewayDetails"),
            (self.internet_gateways, "internetGateways", "internet_gateway", "UpdateInternetGatewayDetails"),
            (self.service_gateways, "serviceGateways", "service_gateway", "UpdateServiceGatewayDetails"),
            (tenancy.route_tables, "routeTables", "route_table", "UpdateRouteTableDetails"),
        ):
            found.append(("PUT", f"{base}/{plural}/{{id}}", f"update_{name}", self._updater(shelf, model)))
        rules = f"{base}/networkSecurityGroups/{{id}}"
        return [
            *found,
            ("DELETE", f"{base}/natGateways/{{id}}", "delete_nat_gateway", remover(tenancy.nat_gateways)),
            ("DELETE", f"{base}/subnets/{{id}}", "delete_subnet", remover(tenancy.subnets)),
            ("GET", f"{rules}/securityRules", "list_network_security_group_security_rules", self._list_rules),
            ("GET", f"{rules}/vnics", "list_network_security_group_vnics", self._list_vnics),
            (
                "POST",
                f"{rules}/actions/addSecurityRules",
                "add_network_security_group_security_rules",
                self._add_rules,
            ),
            ("POST", f"{base}/privateIps", "create_private_ip", self._create_ip),
            ("GET", f"{base}/privateIps", "list_private_ips", self._list_ips),
            ("GET", f"{base}/privateIps/{{id}}", "get_private_ip", getter(self.private_ips)),
            ("DELETE", f"{base}/privateIps/{{id}}", "delete_private_ip", remover(self.private_ips)),
        ]

    # --- Gateways and groups

    def _list_services(self, request: Request) -> Answer:
        page, headers = page_of(self._services, request.query, self._controls.page_size)
        return Answer(page, 200, headers)

    def _creator(self, shelf: Shelf, model: str) -> Operation:
        def answer(request: Request) -> Answer:
            body = models.check(model, request.json(), package=_MODELS)
            self._tenancy.check_compartment(body["compartmentId"])
            self._tenancy.vcns.get(body["vcnId"])
            fields = {"blockTraffic": False} if shelf is self.service_gateways else {}
            return shelf.answer(shelf.add(**{**fields, **self._told(body)}, lifecycleState="AVAILABLE"))

        return answer

    def _updater(self, shelf: Shelf, model: str) -> Operation:
        def answer(request: Request) -> Answer:
            resource = shelf.matching(request.names["id"], request)
            body = models.check(model, request.json(), package=_MODELS)
            self._tenancy.check_routes(body.get("routeRules") or [])
            shelf.touch(resource, **merged(self._told(body)))
            return shelf.answer(resource)

        return answer

    def _told(self, body: JSON) -> JSON:
        """Return a body whose services have their names, as a gateway tells them."""
        if body.get("services") is None:
            return body
        names = {service["id"]: service["name"] for service in self._services}
        asked = [service["serviceId"] for service in body["services"]]
        if not set(asked) <= set(names):
            raise not_found()
        return {**body, "services": [{"serviceId": one, "serviceName": names[one]} for one in asked]}

    # --- Network security groups: nobody is in one but by a VNIC, and the VNICs of runs are the service's own

    def _list_rules(self, request: Request) -> Answer:
        found = self._rules.get(self.groups.get(request.names["id"])["id"], [])
        wanted = request.query.get("direction")
        found = [rule for rule in found if wanted in {None, rule["direction"]}]
        page, headers = page_of(found, request.query, self._controls.page_size)
        return Answer(page, 200, headers)

    def _add_rules(self, request: Request) -> Answer:
        group = self.groups.get(request.names["id"])["id"]
        body = models.check("AddNetworkSecurityGroupSecurityRulesDetails", request.json(), package=_MODELS)
        about = {"isValid": True, "timeCreated": now()}
        there = self._rules.setdefault(group, [])
        first = len(there)
        added = [{**rule, **about, "id": f"{n:06X}"} for n, rule in enumerate(body["securityRules"], start=first)]
        there += added
        return Answer({"securityRules": added})

    def _list_vnics(self, request: Request) -> Answer:
        self.groups.get(request.names["id"])
        return Answer([])

    # --- Private addresses: those that somebody has reserved; nodes have others, of the stand-in's own network

    def _create_ip(self, request: Request) -> Answer:
        body = models.check("CreatePrivateIpDetails", request.json(), package=_MODELS)
        subnet = self._tenancy.subnets.get(str(body.get("subnetId")))
        network = ipaddress.IPv4Network(subnet["cidrBlock"])
        used = {item["ipAddress"] for item in self.private_ips.all() if item["subnetId"] == subnet["id"]}
        # Source: OCI's documentation of subnets: the first two addresses and the last are reserved.
        free = [text for text in map(str, list(network.hosts())[1:]) if text not in used]
        address = body.get("ipAddress") or next(iter(free), "")
        if address not in free:
            raise invalid(f"the subnet {network} has no free address {address}".rstrip())
        fields = {"compartmentId": subnet["compartmentId"], "isPrimary": False, "ipState": "AVAILABLE"}
        return self.private_ips.answer(self.private_ips.add(**{**fields, **body, "ipAddress": address}))

    def _list_ips(self, request: Request) -> Answer:
        self._tenancy.subnets.get(request.wanted("subnetId"))
        return self.private_ips.list(request, ("subnetId", "ipAddress"), _LARGEST_PAGE)
