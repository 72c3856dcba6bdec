"""What is asked of OCI before ``setup.sh`` shows a difference, and how its answers are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import oci
import pytest

from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.backends.oci.setup import Found, look
from oci_cluster.backends.oci.tenancy.client import Tenancy
from oci_cluster.backends.oci.tenancy.requirements import needed_of
from oci_cluster.errors import SettingsError

TENANCY, JOBS, IMAGES = "ocid1.tenancy.oc1..t", "ocid1.compartment.oc1..jobs", "ocid1.compartment.oc1..images"
GIVEN = {
    "COMPARTMENT_OCID": JOBS,
    "IMAGES_COMPARTMENT_OCID": IMAGES,
    "WORK_DIR": "oci://b@ns/a/w",
    "REGISTRY": "iad.ocir.io/ns/t",
    "SUBNET_OCID": "ocid1.subnet.oc1.iad.s",
}
CLIENTS = {
    oci.identity.IdentityClient,
    oci.core.VirtualNetworkClient,
    oci.object_storage.ObjectStorageClient,
    oci.artifacts.ArtifactsClient,
    oci.logging.LoggingManagementClient,
}


def item(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"lifecycle_state": "ACTIVE", **fields})


def answer(data: Any, etag: str = "e") -> SimpleNamespace:
    return SimpleNamespace(data=data, headers={"etag": etag})


class Answers:
    """A tenancy: each method of any client answers what stands here, by its name."""

    def __init__(self) -> None:
        self.config: dict[str, str] = {"tenancy": TENANCY}
        self.signer: Any = None
        self.asked: list[str] = []
        core = oci.core.models
        rule = core.IngressSecurityRule(protocol="6", source="10.0.0.0/20", is_stateless=False)
        out = core.EgressSecurityRule(protocol="all", destination="0.0.0.0/0", is_stateless=False)
        lists = {
            one: item(
                id=one,
                display_name="oci-cluster" if one == "spare" else one,
                ingress_security_rules=[rule],
                egress_security_rules=[out],
            )
            for one in ("l1", "spare")
        }
        self.subnet = item(id="s", cidr_block="10.0.0.0/20", vcn_id="v", compartment_id="net", security_list_ids=["l1"])
        storage = oci.object_storage.models
        kept = storage.ObjectLifecycleRule(name="x", action="DELETE", time_amount=1, time_unit="DAYS", is_enabled=True)
        policy = item(id="p", name="clusters", compartment_id=TENANCY, statements=["allow old"])
        self.by_name: dict[str, Callable[..., Any]] = {
            "get_namespace": lambda: answer("ns"),
            "list_region_subscriptions": lambda _: answer(
                [item(region_name="far", is_home_region=False), item(region_name="home", is_home_region=True)]
            ),
            "list_groups": lambda *_, **__: [item(id="g", name="data-scientists")],
            "list_dynamic_groups": lambda *_, **__: [item(id="d", name="cluster-runs", matching_rule="rule")],
            "list_policies": lambda home: [policy] if home == TENANCY else [item(lifecycle_state="DELETED")],
            "get_policy": lambda _: answer(item(**{**vars(policy), "statements": ["allow new"]}), "newer"),
            "get_bucket": lambda *_: answer(item(compartment_id="home")),
            "get_object_lifecycle_policy": lambda *_: answer(item(items=[kept]), "le"),
            "list_objects": lambda *_, **__: answer(item(objects=[], next_start_with=None)),
            "list_container_repositories": lambda *_, **__: answer(
                item(items=[item(display_name="t/dask", compartment_id=IMAGES, lifecycle_state="AVAILABLE")])
            ),
            "list_domains": lambda *_, **__: [],
            "assemble_effective_tag_set": lambda _: [],
            "list_log_groups": lambda *_, **__: [item(id="lg")],
            "list_logs": lambda *_, **__: [item(id="l")],
            "get_log_group": lambda _: answer(item(compartment_id="logs-home")),
            "get_subnet": lambda _: answer(self.subnet, "se"),
            "list_security_lists": lambda *_, **__: [item(id="l1"), item(id="spare")],
            "get_security_list": lambda one: answer(lists[one], f"e-{one}"),
            "get_compartment": lambda one: answer(
                item(name="x", compartment_id="ocid1.compartment.oc1..up" if one == JOBS else TENANCY)
            ),
        }

    # --- What a Service has

    @property
    def identity(self) -> tuple[dict[str, str], Any]:
        return self.config, self.signer

    def client_of(self, kind: Any, *endpoint: str) -> Any:
        assert kind in CLIENTS or endpoint == ("https://d",)
        base = oci.base_client.BaseClient.__new__(oci.base_client.BaseClient)  # it asks nobody
        mappings = (oci.core.models.core_type_mapping, oci.object_storage.models.object_storage_type_mapping)
        base.complex_type_mappings = {name: model for mapping in mappings for name, model in mapping.items()}
        found: Any = SimpleNamespace(base_client=base)
        for name, function in self.by_name.items():
            setattr(found, name, self._named(name, function))
        return found

    def _named(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*args: Any, **kwargs: Any) -> Any:
            self.asked.append(name)
            return function(*args, **kwargs)

        ask.__name__ = name
        return ask

    def call(self, _: str, request: Callable[..., Any], *args: Any, patience_s: float, **kwargs: Any) -> Any:
        return request(*args, **kwargs)

    def all_pages(self, _: str, request: Callable[..., Any], *args: Any, patience_s: float, **kwargs: Any) -> list[Any]:
        found = request(*args, **kwargs)
        found = getattr(found, "data", found)
        return list(getattr(found, "items", found))

    def refuse(self, name: str, code: str) -> None:
        def refusal(*_: Any, **__: Any) -> Any:
            raise ServiceError("no", status=404, code=code)

        self.by_name[name] = refusal


def find(answers: Answers, **given: str) -> Found:
    every = {**GIVEN, **given}
    service: Any = answers
    needed = replace(needed_of(every, ("dask",), "r"), log="nodes", makes_logs=False)
    return look(Tenancy(service, every), needed)[1]


def test_what_there_is_is_found() -> None:
    found = find(Answers())
    assert (found.tenancy, found.namespace, found.has_people, found.nodes_rule) == (TENANCY, "ns", True, "rule")
    assert found.policy is not None
    assert (found.policy.statements, found.policy.etag) == (("allow new",), "newer")
    assert found.home_region == "home"
    assert (found.bucket, found.lifecycle_etag, found.log_group, found.log) == ("home", "le", "lg", "l")
    assert found.lifecycle == [
        {"name": "x", "action": "DELETE", "timeAmount": 1, "timeUnit": "DAYS", "isEnabled": True}
    ]
    assert found.repositories == {"t/dask": IMAGES}
    assert found.subnet is not None
    assert [(one.id, one.etag) for one in found.subnet.lists] == [("l1", "e-l1")]
    assert found.subnet.lists[0].ingress == [{"protocol": "6", "source": "10.0.0.0/20", "isStateless": False}]
    assert found.subnet.unused is not None
    assert found.subnet.unused.id == "spare"


def test_what_is_not_there_is_empty() -> None:
    answers = Answers()
    answers.by_name |= dict.fromkeys(("list_groups", "list_dynamic_groups", "list_log_groups"), lambda *_, **__: [])
    answers.refuse("get_bucket", "BucketNotFound")
    answers.subnet.security_list_ids = None
    found = find(answers)
    assert (found.has_people, found.nodes_rule, found.log_group, found.log) == (False, "", "", "")
    assert (found.bucket, found.lifecycle) == ("", None)
    assert found.subnet is not None
    assert found.subnet.lists == []


def test_a_bucket_without_rules_has_none() -> None:
    answers = Answers()
    answers.refuse("get_object_lifecycle_policy", "LifecyclePolicyNotFound")
    assert (find(answers).bucket, find(answers).lifecycle) == ("home", None)


def test_objects_of_today_that_a_new_rule_deletes_are_counted() -> None:
    """Page by page, to a bound; none where our rule is there, or nothing is deleted."""
    answers, now = Answers(), datetime.now(timezone.utc)
    pages: list[dict[str, Any]] = []

    def listed(*_: Any, **asked: Any) -> Any:
        pages.append(asked)
        old, new = item(time_modified=now - timedelta(days=91)), item(time_modified=now - timedelta(days=89))
        return answer(item(objects=[old, new], next_start_with="next" if len(pages) < last else None))

    answers.by_name["list_objects"] = listed
    last = 2
    told = (
        "4 objects of today below a/w/: 2 are older than 90 days, the others will be; KEEP_CLUSTERS_DAYS=0 deletes none"
    )
    assert find(answers).expiring == f"that deletes {told}"
    assert [(page["prefix"], page.get("start")) for page in pages] == [("a/w/", None), ("a/w/", "next")]
    last = 99
    pages.clear()
    assert find(answers).expiring.startswith("that deletes more than 20 objects")
    assert find(answers, KEEP_CLUSTERS_DAYS="0").expiring == ""
    answers.refuse("list_objects", "NotAuthorizedOrNotFound")
    assert find(answers).expiring.startswith("how many objects of today that deletes is not known: ")


@pytest.mark.parametrize("name", ["get_bucket", "get_object_lifecycle_policy"])
def test_a_refusal_is_not_an_absence(name: str) -> None:
    answers = Answers()
    answers.refuse(name, "NotAuthorizedOrNotFound")
    with pytest.raises(ServiceError):
        find(answers)


def test_groups_of_other_domains_and_what_is_not_wanted_are_not_asked_for() -> None:
    answers = Answers()
    found = find(answers, PEOPLE_GROUP="d/p", NODES_GROUP="d/n", LOG_GROUP_NAME="none", SUBNET_OCID="")
    assert (found.has_people, found.nodes_rule, found.log_group, found.subnet) == (None, None, "", None)
    assert not {"list_groups", "list_log_groups", "list_logs", "get_subnet"} & set(answers.asked)


def test_groups_of_a_domain_are_found_there() -> None:
    """Where the domain is seen; what it has not got is not there."""
    answers, asked = Answers(), []

    def of(**query: str) -> Any:
        asked.append(query)
        return answer(item(resources=[item(id="x", matching_rule="rule")] if '"n"' in query["filter"] else None))

    answers.by_name["list_domains"] = lambda *_, **__: [item(display_name="D", url="https://d")]
    answers.by_name |= {"list_groups": of, "list_dynamic_resource_groups": of}
    found = find(answers, PEOPLE_GROUP="d/p", NODES_GROUP="d/n")
    assert (found.has_people, found.nodes_rule) == (False, "rule")
    assert {query["attributes"] for query in asked} == {"displayName,ocid", "displayName,ocid,matchingRule"}


def test_the_tenancy_is_found_without_a_configuration() -> None:
    """As on an instance: its signer knows, else the compartments lead there."""
    answers = Answers()
    answers.config = {}
    answers.signer = SimpleNamespace(tenancy_id="ocid1.tenancy.oc1..own")
    answers.by_name["list_policies"] = lambda _: []
    assert find(answers).tenancy == "ocid1.tenancy.oc1..own"
    answers.signer = SimpleNamespace()
    assert find(answers).tenancy == TENANCY


def test_a_work_dir_of_another_tenancy_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"in the namespace theirs, and this tenancy has ns; set oci://b@ns/"):
        find(Answers(), WORK_DIR="oci://b@theirs/a")


def test_a_log_group_that_is_given_has_a_home() -> None:
    service: Any = Answers()
    given = {**GIVEN, "LOG_GROUP_OCID": "ocid1.loggroup.oc1..x"}
    needed, _ = look(Tenancy(service, given), needed_of(given, ("dask",), "r"))
    assert needed.logs == "compartment id logs-home"
