"""What a tenancy needs, out of settings; and docs/oci.md has the same statements."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from oci_cluster.backends.oci.tenancy.requirements import (
    Needed,
    at,
    lifecycle_rules,
    matching_rule,
    needed_of,
    placed,
    same_statement,
    statements,
)
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
from oci_cluster.errors import SettingsError

JOBS = "ocid1.compartment.oc1..aaaajobs"
GIVEN = {
    "COMPARTMENT_OCID": JOBS,
    "WORK_DIR": "oci://clusters@ns/team-a/work",
    "REGISTRY": "iad.ocir.io/ns/training",
}


def needed(*frameworks: str, **given: str) -> Needed:
    return needed_of({**GIVEN, **given}, frameworks or ("dask",), "us-ashburn-1")


def texts(found: Needed) -> list[str]:
    return [statement.text for statement in statements(found)]


def test_statements_are_bounded_to_prefix_and_repository() -> None:
    where, bucket = f"compartment id {JOBS}", "target.bucket.name = 'clusters'"
    own = f"all {{{bucket}, target.object.name = 'team-a/work/*'}}"
    repository = "target.repo.name = 'training/dask'"
    nodes, people = "allow dynamic-group cluster-runs to", "allow group data-scientists to"
    assert texts(needed()) == [
        f"allow service datascience to use virtual-network-family in {where}",
        f"allow service objectstorage-us-ashburn-1 to manage object-family in {where} where {bucket}",
        f"{nodes} read repos in {where} where {repository}",
        f"{nodes} manage objects in {where} where {own}",
        f"{nodes} inspect objects in {where} where {bucket}",
        f"{nodes} use log-content in {where}",
        f"{nodes} manage log-groups in {where}",
        f"{people} manage data-science-family in {where}",
        f"{people} use virtual-network-family in {where}",
        f"{people} manage objects in {where} where {own}",
        f"{people} inspect objects in {where} where {bucket}",
        f"{people} read log-groups in {where}",
        f"{people} read log-content in {where}",
        f"{people} manage repos in {where} where {repository}",
    ]


def test_nodes_read_the_secrets_that_are_named_and_no_other() -> None:
    """One statement each, once, in the compartment where they are."""
    one, two = "ocid1.vaultsecret.oc1.iad.a", "ocid1.vaultsecret.oc1.iad.b"
    elsewhere = "ocid1.compartment.oc1..secrets"
    found = needed(VAULT_SECRETS=f"A={one} B={two} C={one}", SECRETS_COMPARTMENT_OCID=elsewhere)
    read = f"allow dynamic-group cluster-runs to read secret-bundles in compartment id {elsewhere} where"
    assert [text for text in texts(found) if "secret" in text] == [
        f"{read} target.secret.id = '{one}'",
        f"{read} target.secret.id = '{two}'",
    ]
    with pytest.raises(SettingsError, match=r"VAULT_SECRETS: A=\.\.\. is not NAME=OCID"):
        needed(VAULT_SECRETS="A=the secret itself")


def test_the_docs_have_the_same_statements() -> None:
    """docs/oci.md, step 5: what an administrator does by hand is what setup.sh makes, but for the bucket's own rule."""
    page = (PROJECT_ROOT / "docs" / "oci.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```text\n(allow .*?)^```$", page, re.MULTILINE | re.DOTALL)
    jobs = "compartment ds-clusters"
    documented = replace(
        needed(KEEP_CLUSTERS_DAYS="0"),
        jobs=jobs,
        bucket_in=jobs,
        logs=jobs,
        makes_logs=False,
        prefix="team-a",
        network="compartment ds-network",
        images="compartment ds-images",
    )
    assert block.splitlines() == texts(documented)


def test_each_framework_has_a_statement_for_its_repository() -> None:
    found = needed("dask", "ray")
    assert found.repositories == ("training/dask", "training/ray")
    assert [text.rpartition(" ")[2] for text in texts(found) if " read repos " in text] == [
        "'training/dask'",
        "'training/ray'",
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"IMAGE": "iad.ocir.io/ns/it/{framework}:1"}, ("it/dask", "it/ray")),
        ({"IMAGE": "iad.ocir.io/ns/one:1@sha256:" + "0" * 64}, ("one",)),
        ({"REGISTRY": "iad.ocir.io/ns"}, ("dask", "ray")),
    ],
)
def test_repositories_are_those_of_image_or_registry(given: dict[str, str], expected: tuple[str, ...]) -> None:
    assert needed("dask", "ray", **given).repositories == expected


def test_without_logs_or_a_bound_on_age_there_are_no_statements_for_them() -> None:
    found = needed(LOG_GROUP_NAME="none", KEEP_CLUSTERS_DAYS="0")
    assert not [text for text in texts(found) if "log-" in text or "objectstorage" in text]
    assert lifecycle_rules(found) == []


def test_a_log_of_ones_own_is_not_made_by_the_service() -> None:
    found = needed(LOG_GROUP_OCID="ocid1.loggroup.oc1.iad.a", LOG_OCID="ocid1.log.oc1.iad.a")
    assert not [text for text in texts(found) if "manage log-groups" in text]
    assert found.logs
    assert found.log_group == ""


def test_a_whole_bucket_needs_one_statement_for_each() -> None:
    found = needed(WORK_DIR="oci://clusters@ns")
    own = [text for text in texts(found) if " objects " in text]
    assert [text.partition(" where ")[2] for text in own] == ["target.bucket.name = 'clusters'"] * 2
    assert "objectNameFilter" not in lifecycle_rules(found)[0]


def test_groups_of_another_domain_are_named_with_it() -> None:
    found = texts(needed(PEOPLE_GROUP="my domain/people", NODES_GROUP="d/nodes"))
    assert any(text.startswith("allow group 'my domain'/'people' to") for text in found)
    assert any(text.startswith("allow dynamic-group 'd'/'nodes' to") for text in found)


def test_places_that_were_found_are_in_the_statements() -> None:
    found = placed(
        needed(), network="ocid1.tenancy.oc1..t", bucket="ocid1.compartment.oc1..b", logs="ocid1.compartment.oc1..l"
    )
    assert (found.network, found.bucket_in, found.logs) == (
        "tenancy",
        at("ocid1.compartment.oc1..b"),
        at("ocid1.compartment.oc1..l"),
    )
    assert placed(needed(LOG_GROUP_NAME="none"), logs="ocid1.compartment.oc1..l").logs == ""


def test_every_problem_is_told_at_once() -> None:
    wrong = {
        "COMPARTMENT_OCID": "ocid1.subnet.oc1..a",
        "WORK_DIR": "oci://b@ns/a'b",
        "REGISTRY": "Docker Hub",
        "PEOPLE_GROUP": "us to manage all-resources in tenancy",
        "NODES_GROUP": "n'",
        "KEEP_CLUSTERS_DAYS": "soon",
        "POLICY_NAME": "a b",
        "LOG_GROUP_NAME": "a/b",
        "NETWORK_COMPARTMENT_OCID": "here",
    }
    with pytest.raises(SettingsError) as error:
        needed(**wrong)
    assert [name for name in wrong if name not in str(error.value)] == []
    with pytest.raises(SettingsError, match="IMAGE: 'x' is not an image"):
        needed(IMAGE="x")


def test_same_statement_ignores_blanks_and_capitals_outside_quotes() -> None:
    assert same_statement("Allow  GROUP a to read x\n where y = 'B c'") == "allow group a to read x where y = 'B c'"
    assert same_statement("allow group a where y = 'B'") != same_statement("allow group a where y = 'b'")


def test_old_clusters_are_deleted_below_the_prefix_alone() -> None:
    old, uploads = lifecycle_rules(needed(KEEP_CLUSTERS_DAYS="30"))
    assert (old["action"], old["timeAmount"], old["objectNameFilter"]) == (
        "DELETE",
        30,
        {"inclusionPrefixes": ["team-a/work/"]},
    )
    assert (uploads["action"], uploads["target"]) == ("ABORT", "multipart-uploads")


def test_matching_rule_names_the_compartment() -> None:
    assert matching_rule(JOBS) == f"all {{resource.type = 'datasciencejobrun', resource.compartment.id = '{JOBS}'}}"
