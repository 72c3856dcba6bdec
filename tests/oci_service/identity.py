"""Identity: compartments, users, groups, dynamic groups and policies; and who is in which group."""

from __future__ import annotations

import binascii
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from oci_service.domains import Domains
from oci_service.faults import Controls
from oci_service.policies import Condition, NotPolicy, Statement, Subject, parse_condition, parse_statement
from oci_service.resources import (
    JSON,
    REGION,
    Answer,
    Operation,
    Principal,
    Refusal,
    Request,
    Route,
    Shelf,
    getter,
    invalid,
    merged,
    not_found,
    now,
    ocid,
    remover,
)

ADMINISTRATORS = "Administrators"
_NAMESPACE = "ocid1.tagnamespace.oc1.."
# What every new tenancy has.
_FOR_ADMINISTRATORS = f"ALLOW GROUP {ADMINISTRATORS} to manage all-resources IN TENANCY"


class Identity:
    """A tenancy with one user, its administrator. Users get their API keys from *add_key*, which returns a fingerprint.

    Where they count for users, *is_strict*, what is no statement is refused. Else everything is taken and listed.
    """

    def __init__(self, controls: Controls, lock: threading.RLock, *, is_strict: bool) -> None:
        self._controls = controls
        self._is_strict = is_strict
        self.id = ocid("tenancy", "")
        self.domain = "test:US-ASHBURN-AD-1"
        self.add_key: Callable[[str, rsa.RSAPublicKey], str]
        self.compartments = Shelf("compartment", lock)
        self.users = Shelf("user", lock)
        self.groups = Shelf("group", lock)
        self.dynamic_groups = Shelf("dynamicgroup", lock)
        self.policies = Shelf("policy", lock)
        self.domains = Domains(controls, lock)
        self._memberships = Shelf("groupmembership", lock)
        self._statements: dict[str, list[Statement]] = {}
        self._coming: dict[str, tuple[float, list[Statement]]] = {}  # when it counts
        self._rules: dict[str, Condition] = {}
        common = {"compartmentId": self.id, "lifecycleState": "ACTIVE"}
        self.user: str = self.users.add(**common, name="tester", description="made for tests")["id"]
        if is_strict:
            group = self.groups.add(**common, name=ADMINISTRATORS, description="Administrators")
            self._memberships.add(userId=self.user, groupId=group["id"], lifecycleState="ACTIVE")
            policy = self.policies.add(**common, name="Tenant Admin Policy", statements=[_FOR_ADMINISTRATORS])
            self._statements[policy["id"]] = [parse_statement(_FOR_ADMINISTRATORS)]

    # --- Compartments

    def check_compartment(self, compartment: str) -> None:
        """Refuse a compartment that is not there."""
        if compartment != self.id:
            self.compartments.get(compartment)

    def add_compartment(self, name: str) -> str:
        """Make a compartment in the root compartment; return its OCID."""
        fields = {"compartmentId": self.id, "description": "made for tests", "lifecycleState": "ACTIVE"}
        return str(self.compartments.add(**fields, name=name)["id"])

    def with_parents(self, compartment: str) -> list[str]:
        """Return a compartment and those that it is in, up to the tenancy."""
        found = [compartment]
        while found[-1] != self.id:
            found.append(self.compartments.get(found[-1])["compartmentId"])
        return found

    def own_filter(self, request: Request) -> tuple[str, ...]:
        """Return the filter of a list: its compartment, or none for the tenancy with all below it.

        Refused for other compartments, as the service does.
        """
        if request.query.get("compartmentIdInSubtree") != "true":
            return ("compartmentId",)
        if request.query["compartmentId"] != self.id:
            raise invalid("compartmentIdInSubtree can be true for the root compartment alone")
        return ()

    def compartment_of(self, statement: Statement, policy: Mapping[str, Any]) -> str:
        """Return the OCID of the compartment that a statement is about.

        Raises:
            NotPolicy: there is none of that name below the policy's own.
        """
        own = policy["compartmentId"]
        if statement.compartment_id:
            found = statement.compartment_id if statement.compartment_id in self._ids() else ""
        elif statement.compartment:
            found = self._below(own, statement.compartment)
        else:
            found = own if own == self.id else ""
        if not found or own not in self.with_parents(found):
            where = ":".join(statement.compartment) or statement.compartment_id or "the tenancy"
            raise NotPolicy(f"Compartment {where} does not exist or is not part of the policy compartment subtree")
        return found

    def _ids(self) -> set[str]:
        return {self.id, *(item["id"] for item in self.compartments.all())}

    def _below(self, compartment: str, names: tuple[str, ...]) -> str:
        if compartment != self.id and [self.compartments.get(compartment)["name"].lower()] == [*map(str.lower, names)]:
            return compartment  # a policy of a compartment may name that compartment
        for name in names:
            children = [item for item in self.compartments.all() if item["compartmentId"] == compartment]
            compartment = next((item["id"] for item in children if item["name"].lower() == name.lower()), "")
        return compartment

    # --- Who somebody is, and what is allowed

    def subjects(self, principal: Principal) -> list[Subject]:
        """Return everything that a statement can name and that *principal* is or is in."""
        if principal.kind == "service":
            return [Subject("any-user"), Subject("service", name=principal.id)]
        found = [Subject("any-user"), Subject("any-group")]
        if principal.kind == "resource":
            members = [group for group in self.dynamic_groups.all() if self._rules[group["id"]](principal.claims)]
            found += [Subject("dynamic-group", group["id"], name=group["name"]) for group in members]
            others = self.domains.dynamic_groups.all()
            own = [one for one in others if parse_condition(one["matchingRule"])(principal.claims)]
            return found + [Subject("dynamic-group", one["id"], one["domain"], one["displayName"]) for one in own]
        mine = {item["groupId"] for item in self._memberships.all() if item["userId"] == principal.id}
        return found + [one for one in self._groups() if one.id in mine]

    def _groups(self) -> list[Subject]:
        others = self.domains.groups.all()
        found = [Subject("group", one["id"], one["domain"], one["displayName"]) for one in others]
        return found + [Subject("group", one["id"], name=one["name"]) for one in self.groups.all()]

    def statements(self) -> Iterator[tuple[Statement, str]]:
        """Yield every statement that counts by now, and the OCID of the compartment that it is about."""
        for policy_id, (at, statements) in list(self._coming.items()):
            if at <= time.monotonic():
                self._statements[policy_id] = statements
                del self._coming[policy_id]
        for policy in self.policies.all():
            for statement in self._statements.get(policy["id"], []):
                yield statement, self.compartment_of(statement, policy)

    def replace_statements(self, statements: list[str]) -> None:
        """Have the policies that were made say *statements*, in the root compartment."""
        policy = {"compartmentId": self.id, "statements": statements}
        read = self._read_statements(policy)
        first, *others = list(self._statements)[1:]
        self._statements |= {first: read, **{policy_id: [] for policy_id in others}}
        for policy_id in (first, *others):
            self.policies.touch(self.policies.get(policy_id), statements=statements if policy_id == first else [])

    def _read_statements(self, policy: JSON) -> list[Statement]:
        found = []
        for text in policy["statements"]:
            try:
                statement = parse_statement(text)
                self.compartment_of(statement, policy)
                self._check_subjects(statement)
            except NotPolicy as error:
                raise invalid(str(error)) from None
            found.append(statement)
        return found

    def _check_subjects(self, statement: Statement) -> None:
        there = self._groups()
        there += [Subject("dynamic-group", item["id"], name=item["name"]) for item in self.dynamic_groups.all()]
        others = self.domains.dynamic_groups.all()
        there += [Subject("dynamic-group", one["id"], one["domain"], one["displayName"]) for one in others]
        for subject in statement.subjects:
            if "group" in subject.kind and subject.kind != "any-group" and not any(map(subject.matches, there)):
                raise NotPolicy(f"{subject.kind} {subject.id or subject.name} does not exist: {statement.text}")

    # --- Operations

    def routes(self) -> list[Route]:
        """Return the operations."""
        base = "/20160918"
        required = ("compartmentId", "name", "description")
        policy = self._creator(self.policies, *required, "statements")
        dynamic_group = self._creator(self.dynamic_groups, *required, "matchingRule")
        return [
            ("GET", f"{base}/policies", "list_policies", self._lister(self.policies)),
            ("POST", f"{base}/policies", "create_policy", policy),
            ("GET", f"{base}/policies/{{id}}", "get_policy", getter(self.policies)),
            ("PUT", f"{base}/policies/{{id}}", "update_policy", self._updater(self.policies)),
            ("DELETE", f"{base}/policies/{{id}}", "delete_policy", remover(self.policies)),
            ("GET", f"{base}/dynamicGroups", "list_dynamic_groups", self._lister(self.dynamic_groups)),
            ("POST", f"{base}/dynamicGroups", "create_dynamic_group", dynamic_group),
            ("GET", f"{base}/dynamicGroups/{{id}}", "get_dynamic_group", getter(self.dynamic_groups)),
            ("PUT", f"{base}/dynamicGroups/{{id}}", "update_dynamic_group", self._updater(self.dynamic_groups)),
            ("DELETE", f"{base}/dynamicGroups/{{id}}", "delete_dynamic_group", remover(self.dynamic_groups)),
            ("GET", f"{base}/groups", "list_groups", self._lister(self.groups)),
            ("POST", f"{base}/groups", "create_group", self._creator(self.groups, *required)),
            ("GET", f"{base}/groups/{{id}}", "get_group", getter(self.groups)),
            ("POST", f"{base}/userGroupMemberships", "add_user_to_group", self._add_user_to_group),
            ("GET", f"{base}/userGroupMemberships", "list_user_group_memberships", self._list_memberships),
            ("GET", f"{base}/compartments", "list_compartments", self._lister(self.compartments)),
            ("POST", f"{base}/compartments", "create_compartment", self._creator(self.compartments, *required)),
            ("GET", f"{base}/compartments/{{id}}", "get_compartment", self._get_compartment),
            (
                "GET",
                f"{base}/tagDefaults/actions/assembleEffectiveTagSet",
                "assemble_effective_tag_set",
                lambda r: self._tag_defaults(r.wanted("compartmentId")),
            ),
            ("GET", f"{base}/tagNamespaces/{{id}}", "get_tag_namespace", self._get_tag_namespace),
            ("GET", f"{base}/domains", "list_domains", self.domains.list_domains),
            ("GET", f"{base}/regions", "list_regions", lambda _: Answer([{"key": "IAD", "name": REGION}])),
            ("GET", f"{base}/tenancies/{{id}}", "get_tenancy", self._get_tenancy),
            ("GET", f"{base}/tenancies/{{id}}/regionSubscriptions", "list_region_subscriptions", self._regions),
            ("GET", f"{base}/availabilityDomains", "list_availability_domains", self._domains),
            ("GET", f"{base}/users", "list_users", self._lister(self.users)),
            ("POST", f"{base}/users", "create_user", self._creator(self.users, *required)),
            ("GET", f"{base}/users/{{id}}", "get_user", lambda r: self.users.answer(self.users.get(r.names["id"]))),
            ("POST", f"{base}/users/{{id}}/apiKeys", "upload_api_key", self._upload_api_key),
        ]

    def _lister(self, shelf: Shelf) -> Operation:
        def answer(request: Request) -> Answer:
            self.check_compartment(request.wanted("compartmentId"))
            filters = ("lifecycleState", "name", *self.own_filter(request))
            return shelf.list(request, filters, self._controls.page_size)

        return answer

    def _creator(self, shelf: Shelf, *required: str) -> Operation:
        def answer(request: Request) -> Answer:
            body = request.json()
            for name in required:
                if body.get(name) in (None, "", []):
                    raise Refusal(400, "MissingParameter", f"{name} is required")
            self.check_compartment(body["compartmentId"])
            if any(item["name"] == body["name"] for item in shelf.all()):
                raise Refusal(409, f"{shelf.kind.capitalize()}AlreadyExists", f"'{body['name']}' already exists")
            self._read(shelf, body)
            made = shelf.add(**body, lifecycleState="ACTIVE")
            self._read(shelf, made)
            return shelf.answer(made)

        return answer

    def _updater(self, shelf: Shelf) -> Operation:
        def answer(request: Request) -> Answer:
            resource = shelf.matching(request.names["id"], request)
            changed = {**resource, **merged(request.json())}
            if shelf is self.policies:  # without one the current version counts from now on
                changed["versionDate"] = request.json().get("versionDate")
            self._read(shelf, changed)
            shelf.touch(resource, **changed)
            return shelf.answer(resource)

        return answer

    def _read(self, shelf: Shelf, body: JSON) -> None:
        """Refuse what is no policy or no rule; from now on, or a little later, one that has an OCID counts."""
        if shelf is self.policies:
            try:
                statements = self._read_statements(body)
            except Refusal:
                if self._is_strict:
                    raise
                return
            if "id" in body and (late_s := self._controls.policy_late_s):
                self._coming[body["id"]] = (time.monotonic() + late_s, statements)
            elif "id" in body:
                self._statements[body["id"]] = statements
        if not self._is_strict:
            return
        if shelf is self.dynamic_groups:
            rule = self._read_rule(body)
            self._rules |= {body["id"]: rule} if "id" in body else {}

    def _read_rule(self, body: JSON) -> Condition:
        try:
            return parse_condition(body["matchingRule"])
        except NotPolicy as error:
            raise invalid(f"matchingRule: {error}") from None

    def _add_user_to_group(self, request: Request) -> Answer:
        body = request.json()
        self.users.get(str(body.get("userId")))
        self.groups.get(str(body.get("groupId")))
        return self._memberships.answer(self._memberships.add(**body, compartmentId=self.id, lifecycleState="ACTIVE"))

    def _list_memberships(self, request: Request) -> Answer:
        self.check_compartment(request.wanted("compartmentId"))
        return self._memberships.list(request, ("userId", "groupId"), self._controls.page_size)

    def _upload_api_key(self, request: Request) -> Answer:
        user = self.users.get(request.names["id"])["id"]
        text = str(request.json().get("key"))
        try:
            key = serialization.load_pem_public_key(text.encode())
        except (ValueError, binascii.Error):
            raise invalid("key must be an RSA public key in PEM format") from None
        assert isinstance(key, rsa.RSAPublicKey)
        mark = self.add_key(user, key)
        common = {"userId": user, "fingerprint": mark, "keyId": f"{self.id}/{user}/{mark}", "keyValue": text}
        return Answer({**common, "lifecycleState": "ACTIVE", "timeCreated": now()})

    def _get_compartment(self, request: Request) -> Answer:
        if request.names["id"] == self.id:
            return Answer({"id": self.id, "name": "tenancy", "lifecycleState": "ACTIVE", "timeCreated": now()})
        return self.compartments.answer(self.compartments.get(request.names["id"]))

    def _tag_defaults(self, compartment: str) -> Answer:
        """Return a tag default for each tag of ``required_tags``, without a value, and of ``default_tags``."""
        self.check_compartment(compartment)
        required, found = self._controls.required_tags, []
        for name in (*required, *self._controls.default_tags):
            space, _, key = name.partition(".")
            about = {
                "tagNamespaceId": f"{_NAMESPACE}{space}",
                "tagDefinitionName": key,
                "isRequired": name in required,
                "value": "" if name in required else "usual",
            }
            found.append({**about, "id": ocid("tagdefault", ""), "compartmentId": self.id, "lifecycleState": "ACTIVE"})
        return Answer(found)

    def _get_tag_namespace(self, request: Request) -> Answer:
        space = request.names["id"]
        return Answer({"id": space, "name": space.removeprefix(_NAMESPACE), "compartmentId": self.id})

    def _own(self, request: Request) -> None:
        if request.names["id"] != self.id:
            raise not_found()

    def _get_tenancy(self, request: Request) -> Answer:
        self._own(request)
        return Answer({"id": self.id, "name": "tenancy", "homeRegionKey": "IAD"})

    def _regions(self, request: Request) -> Answer:
        self._own(request)
        return Answer([{"regionKey": "IAD", "regionName": REGION, "status": "READY", "isHomeRegion": True}])

    def _domains(self, request: Request) -> Answer:
        self.check_compartment(request.wanted("compartmentId"))
        return Answer([{"id": ocid("availabilitydomain"), "name": self.domain, "compartmentId": self.id}])
