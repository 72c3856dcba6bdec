"""The small services around a tenancy: networks, identity, container registry."""

from __future__ import annotations

import ipaddress
import threading
from typing import Any

from oci_service.faults import Controls
from oci_service.resources import (
    JSON,
    REGION,
    Answer,
    Operation,
    Refusal,
    Request,
    Route,
    Shelf,
    invalid,
    not_found,
    now,
    ocid,
    page_of,
)

_PROTOCOLS = {"all", "1", "6", "17", "58"}


class Tenancy:
    """A tenancy with one compartment, one user, one network."""

    def __init__(self, controls: Controls, lock: threading.RLock) -> None:
        self._controls = controls
        self.id = ocid("tenancy", "")
        self.user = ocid("user", "")
        self.policies = Shelf("policy", lock)
        self.groups = Shelf("dynamicgroup", lock)
        self.vcns = Shelf("vcn", lock)
        self.subnets = Shelf("subnet", lock)
        self.security_lists = Shelf("securitylist", lock)
        self.repositories = Shelf("containerrepo", lock)
        self._compartments = Shelf("compartment", lock)
        self.compartment: str = self._compartments.add(
            compartmentId=self.id, name="clusters", description="made for tests", lifecycleState="ACTIVE"
        )["id"]

    def make_network(self, cidr: str) -> str:
        """Make a VCN with one regional private subnet; return the subnet's OCID."""
        common = {"compartmentId": self.compartment, "lifecycleState": "AVAILABLE"}
        vcn = self.vcns.add(**common, displayName="vcn", cidrBlock=cidr, cidrBlocks=[cidr])
        inside = {"protocol": "6", "source": cidr, "sourceType": "CIDR_BLOCK", "isStateless": False}
        outside = {"protocol": "all", "destination": "0.0.0.0/0", "destinationType": "CIDR_BLOCK", "isStateless": False}
        rules = {"ingressSecurityRules": [inside], "egressSecurityRules": [outside]}
        rules_id = self.security_lists.add(**common, **rules, displayName="cluster", vcnId=vcn["id"])["id"]
        subnet = {"cidrBlock": cidr, "vcnId": vcn["id"], "displayName": "cluster", "securityListIds": [rules_id]}
        return str(self._add_subnet({**common, **subnet})["id"])

    def _add_subnet(self, fields: JSON) -> JSON:
        network = ipaddress.IPv4Network(fields["cidrBlock"])
        defaults = {
            "prohibitPublicIpOnVnic": True,
            "prohibitInternetIngress": True,
            "routeTableId": ocid("routetable"),
            "dhcpOptionsId": ocid("dhcpoptions"),
            "virtualRouterIp": str(network[1]),
            "virtualRouterMac": "00:00:17:00:00:01",
            "lifecycleState": "AVAILABLE",
        }
        return self.subnets.add(**{**defaults, **fields})

    def check_compartment(self, compartment: str) -> None:
        """Refuse a compartment that is not there."""
        if compartment != self.id:
            self._compartments.get(compartment)

    # --- VCN

    def network_routes(self) -> list[Route]:
        """Return the operations of the VCN service."""
        base = "/20160918"
        found: list[Route] = []
        for shelf, plural, name in (
            (self.subnets, "subnets", "subnet"),
            (self.security_lists, "securityLists", "security_list"),
            (self.vcns, "vcns", "vcn"),
        ):
            found += [
                ("GET", f"{base}/{plural}", f"list_{name}s", self._lister(shelf, "vcnId", "displayName")),
                ("GET", f"{base}/{plural}/{{id}}", f"get_{name}", _getter(shelf)),
                ("POST", f"{base}/{plural}", f"create_{name}", getattr(self, f"_create_{name}")),
            ]
        update = f"{base}/securityLists/{{id}}"
        return [*found, ("PUT", update, "update_security_list", self._update_security_list)]

    def _lister(self, shelf: Shelf, *filters: str) -> Operation:
        def answer(request: Request) -> Answer:
            self.check_compartment(request.wanted("compartmentId"))
            wanted = ("compartmentId", "lifecycleState", *filters)
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

    def _create_subnet(self, request: Request) -> Answer:
        body = self._body(request, "compartmentId", "vcnId", "cidrBlock")
        self.vcns.get(body["vcnId"])
        for rules in body.get("securityListIds") or []:
            self.security_lists.get(rules)
        _check_cidr("cidrBlock", body["cidrBlock"])
        return self.subnets.answer(self._add_subnet(body))

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

    # --- Identity

    def identity_routes(self) -> list[Route]:
        """Return the operations of the identity service."""
        base = "/20160918"
        policy = self._creator(self.policies, "compartmentId", "name", "description", "statements")
        group = self._creator(self.groups, "compartmentId", "name", "description", "matchingRule")
        return [
            ("GET", f"{base}/policies", "list_policies", self._lister(self.policies, "name")),
            ("POST", f"{base}/policies", "create_policy", policy),
            ("DELETE", f"{base}/policies/{{id}}", "delete_policy", _remover(self.policies)),
            ("GET", f"{base}/dynamicGroups", "list_dynamic_groups", self._lister(self.groups, "name")),
            ("POST", f"{base}/dynamicGroups", "create_dynamic_group", group),
            ("DELETE", f"{base}/dynamicGroups/{{id}}", "delete_dynamic_group", _remover(self.groups)),
            ("GET", f"{base}/compartments", "list_compartments", self._lister(self._compartments, "name")),
            ("GET", f"{base}/compartments/{{id}}", "get_compartment", self._get_compartment),
            ("GET", f"{base}/regions", "list_regions", lambda _: Answer([{"key": "IAD", "name": REGION}])),
            ("GET", f"{base}/tenancies/{{id}}", "get_tenancy", self._get_tenancy),
            ("GET", f"{base}/tenancies/{{id}}/regionSubscriptions", "list_region_subscriptions", self._regions),
            ("GET", f"{base}/availabilityDomains", "list_availability_domains", self._domains),
            ("GET", f"{base}/users/{{id}}", "get_user", self._get_user),
        ]

    def _creator(self, shelf: Shelf, *required: str) -> Operation:
        def answer(request: Request) -> Answer:
            body = self._body(request, *required)
            if any(item["name"] == body["name"] for item in shelf.all()):
                raise Refusal(409, f"{shelf.kind.capitalize()}AlreadyExists", f"'{body['name']}' already exists")
            return shelf.answer(shelf.add(**body, lifecycleState="ACTIVE"))

        return answer

    def _get_compartment(self, request: Request) -> Answer:
        if request.names["id"] == self.id:
            return Answer({"id": self.id, "name": "tenancy", "lifecycleState": "ACTIVE", "timeCreated": now()})
        return _getter(self._compartments)(request)

    def _own(self, request: Request, resource_id: str) -> None:
        if request.names["id"] != resource_id:
            raise not_found()

    def _get_tenancy(self, request: Request) -> Answer:
        self._own(request, self.id)
        return Answer({"id": self.id, "name": "tenancy", "homeRegionKey": "IAD"})

    def _regions(self, request: Request) -> Answer:
        self._own(request, self.id)
        return Answer([{"regionKey": "IAD", "regionName": REGION, "status": "READY", "isHomeRegion": True}])

    def _domains(self, request: Request) -> Answer:
        self.check_compartment(request.wanted("compartmentId"))
        name = "test:US-ASHBURN-AD-1"
        return Answer([{"id": ocid("availabilitydomain"), "name": name, "compartmentId": self.id}])

    def _get_user(self, request: Request) -> Answer:
        self._own(request, self.user)
        common = {"compartmentId": self.id, "lifecycleState": "ACTIVE", "timeCreated": now()}
        return Answer({**common, "id": self.user, "name": "tester", "description": "made for tests"})

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
            self.check_compartment(request.wanted("compartmentId"))
            found = list(map(_image, self._controls.images.items()))
            wanted = {name: request.query[name] for name in ("repositoryName", "version") if name in request.query}
            wanted |= {"digest": request.query["imageDigest"]} if "imageDigest" in request.query else {}
            found = [item for item in found if all(item.get(name) == value for name, value in wanted.items())]
            page, headers = page_of(found, request.query, self._controls.page_size)
            return Answer({"items": page, "remainingItemsCount": len(found) - len(page)}, 200, headers)

        def repositories(request: Request) -> Answer:
            answer = self._lister(self.repositories, "displayName")(request)
            counts = {"repositoryCount": len(self.repositories.all()), "imageCount": len(self._controls.images)}
            return Answer(
                {"items": answer.content, "layerCount": 0, "layersSizeInBytes": 0, **counts}, 200, answer.headers
            )

        return [
            ("POST", f"{base}/repositories", "create_container_repository", create),
            ("GET", f"{base}/repositories", "list_container_repositories", repositories),
            ("GET", f"{base}/repositories/{{id}}", "get_container_repository", _getter(self.repositories)),
            ("DELETE", f"{base}/repositories/{{id}}", "delete_container_repository", _remover(self.repositories)),
            ("GET", f"{base}/images", "list_container_images", images),
        ]


def _image(entry: tuple[str, dict[str, Any]]) -> JSON:
    """Return an image of the table as the registry lists it."""
    path, _, version = entry[0].rpartition(":")
    repository = path.split("/", 2)[2]
    about = {"displayName": f"{repository}:{version}", "repositoryName": repository, "version": version}
    return {**about, "id": entry[0], "digest": entry[1].get("digest"), "lifecycleState": "AVAILABLE"}


def _getter(shelf: Shelf) -> Operation:
    return lambda request: shelf.answer(shelf.get(request.names["id"]))


def _remover(shelf: Shelf) -> Operation:
    def answer(request: Request) -> Answer:
        shelf.remove(shelf.matching(request.names["id"], request)["id"])
        return Answer(status=204)

    return answer


def _check_cidr(name: str, text: object) -> None:
    try:
        ipaddress.IPv4Network(str(text))
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
