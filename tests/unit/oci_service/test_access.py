"""What policies allow whom, where: subjects, compartments, dynamic groups, buckets and objects."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from oci_service.access import Access
from oci_service.buckets import Bucket
from oci_service.faults import Controls
from oci_service.identity import Identity
from oci_service.resources import Principal, Refusal, Request, Shelf

ROUTES = ("create_compartment", "create_group", "create_user", "create_dynamic_group", "create_policy")
RULE = "all {{resource.type = 'datasciencejobrun', resource.compartment.id = '{compartment}'}}"


class Place:
    """A tenancy: compartments a, a:b and c; a user in the group people; a bucket in b, and a log group in c."""

    def __init__(self) -> None:
        lock = threading.RLock()
        self.identity = identity = Identity(Controls(), lock, is_strict=True)
        self._routes = {name: function for _, _, name, function in identity.routes()}
        self.a = self.make("create_compartment", name="a")
        self.b = self.make("create_compartment", self.a, name="b")
        self.c = self.make("create_compartment", name="c")
        self.user = self.make("create_user", name="ada")
        group = self.make("create_group", name="people")
        body = {"userId": self.user, "groupId": group}
        self._routes["add_user_to_group"](self.request("", body=body))
        self.ada = Principal("api-key", self.user, "")
        self.groups, self.repositories = Shelf("loggroup", lock), Shelf("containerrepo", lock)
        self.log_group: str = self.groups.add(compartmentId=self.c, displayName="logs")["id"]
        bucket = Bucket({"name": "clusters", "compartmentId": self.b})
        bucket.objects["team-a/old"] = None  # type: ignore[assignment] # its name alone counts
        people = [identity.compartments, identity.users, identity.groups]
        shelves = [*people, identity.dynamic_groups, identity.policies, self.groups, self.repositories]
        self.flipped: list[str] = []
        self.access = Access(identity, shelves, {"clusters": bucket}, lambda: self.flipped)

    def request(self, compartment: str, *, body: Any = None, query: Any = None, **names: str) -> Request:
        where = {"compartmentId": compartment} if compartment else {}
        sent = json.dumps({**where, **body}).encode() if body is not None else b""
        names = {"namespace": "n", **names} if "bucket" in names else names
        return Request(self.identity_principal(), {}, {**where, **(query or {})}, names, sent)

    def identity_principal(self) -> Principal:
        return Principal("api-key", self.identity.user, "")

    def make(self, operation: str, compartment: str = "", **fields: Any) -> str:
        body = {"description": "x", **fields}
        made = self._routes[operation](self.request(compartment or self.identity.id, body=body))
        return str(made.content["id"])

    def allow(self, *statements: str, compartment: str = "") -> None:
        number = len(self.identity.policies.all())
        self.make("create_policy", compartment, name=f"policy-{number}", statements=list(statements))

    def may(self, principal: Principal, operation: str, compartment: str = "", **rest: Any) -> bool:
        try:
            self.access.check(principal, operation, self.request(compartment, **rest))
        except Refusal:
            return False
        return True

    def may_with_object(self, principal: Principal, operation: str, name: str = "team-a/new") -> bool:
        return self.may(principal, f"object_storage.{operation}", bucket="clusters", object=name)


@pytest.fixture
def place() -> Place:
    return Place()


def test_an_empty_tenancy_allows_its_administrator_everything_and_others_nothing(place: Place) -> None:
    administrator = place.identity_principal()
    for operation in ("data_science.list_jobs", "identity.create_policy", "object_storage.list_buckets", "x.unknown"):
        assert place.may(administrator, operation, place.a)
        assert not place.may(place.ada, operation, place.a)
    assert place.may(place.ada, "object_storage.get_namespace")
    assert place.access.denials[0] == {
        "who": f"api-key:{place.user}",
        "operation": "data_science.list_jobs",
        "permission": "DATA_SCIENCE_JOB_INSPECT",
    }


@pytest.mark.parametrize("subject", ["group people", "group 'default'/'People'", "any-user", "any-group"])
def test_subjects_of_a_user(place: Place, subject: str) -> None:
    place.allow(f"allow {subject} to inspect data-science-jobs in compartment a")
    assert place.may(place.ada, "data_science.list_jobs", place.a)


@pytest.mark.parametrize(
    ("where", "allowed"),
    [
        ("tenancy", "abc"),
        ("compartment a", "ab"),
        ("compartment A:b", "b"),
        ("compartment c", "c"),
        ("compartment id {b}", "b"),
    ],
)
def test_a_compartment_has_what_is_allowed_in_those_that_it_is_in(place: Place, where: str, allowed: str) -> None:
    place.allow(f"allow group people to inspect data-science-jobs in {where.format(b=place.b)}")
    found = [name for name in "abc" if place.may(place.ada, "data_science.list_jobs", getattr(place, name))]
    assert "".join(found) == allowed


def test_a_policy_of_a_compartment_is_about_that_and_those_in_it(place: Place) -> None:
    place.allow("allow group people to inspect data-science-jobs in compartment b", compartment=place.a)
    place.allow("allow group people to read data-science-jobs in compartment a", compartment=place.a)
    assert place.may(place.ada, "data_science.list_jobs", place.b)
    assert not place.may(place.ada, "data_science.list_jobs", place.c)


@pytest.mark.parametrize(
    ("denial", "allowed"),
    [
        ("any-user to inspect all-resources in tenancy", ""),
        ("group people to inspect objects in compartment a", ""),
        ("group people to read objects in tenancy", "list_objects"),
        ("group people to manage objects in tenancy", "list_objects get_object"),
        ("group people to {OBJECT_READ} in tenancy", "list_objects put_object"),
        (
            "group people to read objects in tenancy where target.object.name = 'team-a/*'",
            "list_objects",
        ),
        (
            "group people to read objects in tenancy where target.object.name = 'team-b/*'",
            "list_objects get_object put_object",
        ),
        ("group people to inspect objects in compartment c", "list_objects get_object put_object"),
        ("group Administrators to inspect objects in tenancy", "list_objects get_object put_object"),
        ("service datascience to inspect objects in tenancy", "list_objects get_object put_object"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_denied_no_statement_allows(place: Place, denial: str, allowed: str, *, is_first: bool) -> None:
    """Administrators are exempt."""
    statements = ["allow group people to manage object-family in tenancy", f"deny {denial}"]
    place.allow(*(reversed(statements) if is_first else statements))
    operations = ("list_objects", "get_object", "put_object")
    assert [name for name in operations if place.may_with_object(place.ada, name)] == allowed.split()
    assert all(place.may_with_object(place.identity_principal(), name) for name in operations)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("allow group people to read objects in compartment b", "Compartment b does not exist"),
        ("allow group people to read objects in compartment a:c", "Compartment a:c does not exist"),
        ("allow group nobody to read objects in tenancy", "group nobody does not exist"),
        ("allow group 'other'/'people' to read objects in tenancy", "group people does not exist"),
        ("allow dynamic-group people to read objects in tenancy", "dynamic-group people does not exist"),
        ("allow everybody everything", "not a statement"),
    ],
)
def test_a_policy_about_what_is_not_there_is_refused(place: Place, statement: str, said: str) -> None:
    with pytest.raises(Refusal, match=said):
        place.allow(statement)
    with pytest.raises(Refusal, match="does not exist"):
        place.allow("allow group people to read objects in tenancy", compartment=place.a)


def test_a_policy_of_a_compartment_cannot_name_another_by_its_ocid(place: Place) -> None:
    with pytest.raises(Refusal, match="is not part of the policy compartment subtree"):
        place.allow(f"allow group people to read objects in compartment id {place.c}", compartment=place.a)


def resource(kind: str, compartment: str) -> Principal:
    about = {"resource.type": kind, "resource.id": "ocid1.x", "resource.compartment.id": compartment}
    if kind == "instance":
        about = {"instance.id": "ocid1.instance", "instance.compartment.id": compartment}
    return Principal("resource", "ocid1.x", "", about)


@pytest.mark.parametrize(
    ("rule", "kind", "compartment", "is_in"),
    [
        (RULE, "datasciencejobrun", "a", True),
        (RULE, "datasciencejobrun", "c", False),
        (RULE, "datasciencenotebooksession", "a", False),
        ("resource.type = 'datasciencejobrun'", "datasciencejobrun", "c", True),
        ("ANY {{instance.compartment.id = '{compartment}'}}", "instance", "a", True),
        ("ANY {{instance.compartment.id = '{compartment}'}}", "instance", "c", False),
        ("ANY {{instance.compartment.id = '{compartment}'}}", "datasciencejobrun", "a", False),
    ],
)
def test_dynamic_groups(place: Place, rule: str, kind: str, compartment: str, *, is_in: bool) -> None:
    place.make("create_dynamic_group", name="runs", matchingRule=rule.format(compartment=place.a))
    place.allow("allow dynamic-group runs to manage objects in compartment a")
    assert place.may_with_object(resource(kind, getattr(place, compartment)), "put_object") is is_in


def test_a_rule_that_is_none_is_refused(place: Place) -> None:
    with pytest.raises(Refusal, match="matchingRule: "):
        place.make("create_dynamic_group", name="runs", matchingRule="resource.type")


# --- Objects


def test_objects_of_a_prefix(place: Place) -> None:
    """A list has no object: it needs a statement without its name."""
    place.allow("allow group people to manage objects in compartment a:b where target.object.name = 'team-a/*'")
    for operation in ("put_object", "get_object", "head_object", "delete_object"):
        assert place.may_with_object(place.ada, operation)
        assert not place.may_with_object(place.ada, operation, "team-b/new")
    assert not place.may(place.ada, "object_storage.list_objects", bucket="clusters", query={"prefix": "team-a/"})
    place.allow("allow group people to inspect objects in compartment a:b where target.bucket.name = 'clusters'")
    assert place.may(place.ada, "object_storage.list_objects", bucket="clusters", query={"prefix": "team-b/"})
    assert not place.may_with_object(place.ada, "get_object", "team-b/new")


def test_a_bucket_for_each_team_needs_one_statement(place: Place) -> None:
    place.allow("allow group people to manage objects in compartment a:b where target.bucket.name = 'clusters'")
    for operation in ("put_object", "get_object", "head_object", "delete_object", "list_objects"):
        assert place.may_with_object(place.ada, operation)
    assert not place.may(place.ada, "object_storage.get_bucket", bucket="clusters")


def test_to_overwrite_is_not_to_create(place: Place) -> None:
    place.allow("allow group people to use objects in compartment a:b")
    assert place.may_with_object(place.ada, "put_object", "team-a/old")
    assert not place.may_with_object(place.ada, "put_object", "team-a/new")


def test_a_permission_of_a_verb_can_be_chosen(place: Place) -> None:
    only = "request.permission = 'OBJECT_CREATE'"
    place.allow(
        f"allow group people to manage objects in tenancy where all {{target.bucket.name = 'clusters', {only}}}"
    )
    assert place.may_with_object(place.ada, "put_object", "team-a/new")
    assert not place.may_with_object(place.ada, "put_object", "team-a/old")
    place.allow("allow group people to read objects in tenancy where request.operation = 'GetObject'")
    assert place.may_with_object(place.ada, "get_object")
    assert not place.may_with_object(place.ada, "head_object")


@pytest.mark.parametrize(
    ("statement", "operation", "code"),
    [
        ("inspect data-science-jobs", "get_object", "BucketNotFound"),
        ("inspect objects", "get_object", "ObjectNotFound"),
        ("inspect objects", "put_object", "BucketNotFound"),
    ],
)
def test_refusals_of_object_storage(place: Place, statement: str, operation: str, code: str) -> None:
    place.allow(f"allow group people to {statement} in tenancy")
    request = place.request("", bucket="clusters", object="team-a/new")
    with pytest.raises(Refusal) as refused:
        place.access.check(place.ada, f"object_storage.{operation}", request)
    assert (refused.value.answer.status, refused.value.answer.content["code"]) == (404, code)


# --- Others


def test_logs_are_searched_where_their_group_is(place: Place) -> None:
    def may_search(stream: str) -> bool:
        return place.may(place.ada, "logging.search_logs", body={"searchQuery": f'search "{stream}" | where x'})

    place.allow("allow group people to read log-content in compartment c")
    assert may_search(f"{place.c}/{place.log_group}")
    assert may_search(place.c)
    assert not may_search(place.a)


def test_a_log_that_the_service_makes_needs_more_than_one_that_is_there(place: Place) -> None:
    run = {"id": "ocid1.datasciencejobrun.x", "compartmentId": place.a}
    place.make("create_dynamic_group", name="runs", matchingRule=RULE.format(compartment=place.a))
    made = {"jobLogConfigurationDetails": {"enableLogging": True, "enableAutoLogCreation": True}}
    assert not place.access.may_log(run, {}, place.log_group)
    place.allow("allow dynamic-group runs to use log-content in compartment c")
    assert place.access.may_log(run, {}, place.log_group)
    assert not place.access.may_log(run, made, place.log_group)
    place.allow("allow dynamic-group runs to manage log-groups in compartment c")
    assert place.access.may_log(run, made, place.log_group)
    assert not place.access.may_log({**run, "compartmentId": place.c}, made, place.log_group)


def test_a_log_may_be_made_for_who_launches(place: Place) -> None:
    """As the documentation of ADS has it; a log that is there needs nothing more."""
    run = {"id": "ocid1.datasciencejobrun.x", "compartmentId": place.a}
    place.make("create_dynamic_group", name="runs", matchingRule=RULE.format(compartment=place.a))
    place.allow(
        "allow dynamic-group runs to use log-content in compartment c",
        "allow group people to manage data-science-family in tenancy",
        "allow group people to read log-groups in compartment c",
    )
    logs = {"enableLogging": True, "logGroupId": place.log_group}
    made = {"jobLogConfigurationOverrideDetails": {**logs, "enableAutoLogCreation": True}}
    place.flipped.append("log-maker")
    assert place.access.may_log({**run, **made}, {}, place.log_group)
    assert not place.may(place.ada, "data_science.create_job_run", place.a, body=made)
    assert place.may(
        place.ada, "data_science.create_job_run", place.a, body={"jobLogConfigurationOverrideDetails": logs}
    )
    place.allow("allow group people to manage log-groups in compartment c")
    assert place.may(place.ada, "data_science.create_job_run", place.a, body=made)
    place.flipped.clear()
    assert not place.access.may_log({**run, **made}, {}, place.log_group)


def test_a_push_creates_where_nothing_is_in_the_root_compartment(place: Place) -> None:
    place.allow("allow group people to manage repos in compartment a where target.repo.name = /training*/")
    with pytest.raises(Refusal):
        place.access.push(place.user, "iad.ocir.io/n/training/dask:1")
    place.repositories.add(compartmentId=place.a, displayName="training/dask")
    place.access.push(place.user, "iad.ocir.io/n/training/dask:1@sha256:0")
    place.access.push(place.identity.user, "iad.ocir.io/n/other:1")
    (made,) = [item for item in place.repositories.all() if item["displayName"] == "other"]
    assert made["compartmentId"] == place.identity.id
