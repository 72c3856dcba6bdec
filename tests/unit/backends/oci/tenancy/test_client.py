"""One question to OCI, and what its answer, its refusal or its silence means for a check."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from unit.backends.oci.answers import Answers

from oci_cluster.backends.oci.errors import refused
from oci_cluster.backends.oci.tenancy.client import Tenancy
from oci_cluster.errors import BackendError, SettingsError

ROOT, OUTER, INNER = "ocid1.tenancy.oc1..t", "ocid1.compartment.oc1..outer", "ocid1.compartment.oc1..inner"
UNSEEN = refused("look", 404, "NotAuthorizedOrNotFound", "Not there", "r", operation="get_project")


def tenancy(service: Any, **given: str) -> Tenancy:
    return Tenancy(service, given)


def test_nothing_is_asked_twice() -> None:
    service = Answers(get_namespace="ns", get_subnet=lambda one: one)
    found = tenancy(service, SUBNET_OCID="s")
    assert (found.namespace.value, found.namespace.is_given, found.subnet.value) == ("ns", True, "s")
    assert found.ask("x", found.network.get_subnet, "other").value == "other"
    assert found.subnet.value == "s"
    assert service.names() == ["get_namespace", "get_subnet", "get_subnet"]


@pytest.mark.parametrize(
    ("error", "is_refused", "code", "why"),
    [
        (UNSEEN, True, "NotAuthorizedOrNotFound", "cannot look: Not there (404 NotAuthorizedOrNotFound, request r)"),
        (refused("look", 401, "NotAuthenticated", "Who?", "r"), True, "NotAuthenticated", "cannot look: Who? (401"),
        (refused("look", 500, "InternalError", "Oh", "r"), False, "", "cannot look: Oh (500"),
        (refused("look", 429, "TooManyRequests", "Slow", "r"), False, "", "cannot look: Slow (429"),
        (SettingsError("no identity; make one"), False, "", "no identity"),
    ],
)
def test_a_refusal_is_no_silence(error: Exception, *, is_refused: bool, code: str, why: str) -> None:
    service = Answers(get_namespace=error)
    found = tenancy(service)
    answer = found.namespace
    assert (answer.is_given, answer.is_refused, answer.code) == (False, is_refused, code)
    assert answer.why.startswith(why)
    with pytest.raises(type(error)):
        answer.or_raise()
    assert found.namespace is answer  # nor is a refusal asked for twice
    assert service.names() == ["get_namespace"]


def test_what_is_deleted_is_not_listed() -> None:
    listed = [SimpleNamespace(lifecycle_state="DELETED"), SimpleNamespace(lifecycle_state="ACTIVE"), SimpleNamespace()]
    found = tenancy(Answers(list_groups=listed))
    assert found.ask_all("list groups", found.identity.list_groups).value == listed[1:]


def test_a_fault_of_ours_is_told_as_one() -> None:
    found = tenancy(Answers(get_namespace=ValueError("ours")))
    with pytest.raises(ValueError, match="ours"):
        _ = found.namespace


def compartments(ocid: str) -> Any:
    known = {INNER: ("Inner", OUTER), OUTER: ("Outer", ROOT)}
    return SimpleNamespace(name=known[ocid][0], compartment_id=known[ocid][1]) if ocid in known else UNSEEN


def test_a_compartment_is_known_up_to_the_tenancy() -> None:
    found = tenancy(Answers(get_compartment=compartments), COMPARTMENT_OCID=INNER)
    assert [(one.id, one.name, one.is_root) for one in found.chain(INNER)] == [
        (INNER, "inner", False),
        (OUTER, "outer", False),
        (ROOT, "", True),
    ]
    assert found.id == ROOT
    assert [one.id for one in found.chain("ocid1.compartment.oc1..hidden")] == ["ocid1.compartment.oc1..hidden"]
    assert found.chain("") == []


def test_the_tenancy_is_whose_identity_it_is() -> None:
    service = Answers()
    service.identity = ({"tenancy": "of the profile"}, None)
    assert tenancy(service).id == "of the profile"
    service.identity = ({}, SimpleNamespace(tenancy_id="of the principal"))
    assert tenancy(service).id == "of the principal"
    service.identity = ({}, None)
    service.answers["get_compartment"] = BackendError("silent")
    assert tenancy(service, COMPARTMENT_OCID=INNER).id == ""


def test_compartments_that_name_each_other_end() -> None:
    around = Answers(
        get_compartment=lambda one: SimpleNamespace(name="x", compartment_id=OUTER if one == INNER else INNER)
    )
    assert [one.id for one in tenancy(around).chain(INNER)] == [INNER, OUTER]
