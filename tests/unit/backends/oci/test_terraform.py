"""scripts/templates/terraform makes what is needed, for the settings that there are: parsed, and worked out."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from terraform import Terraform, as_lifecycle, as_rule

from oci_cluster.backends.oci.setup import Rules, Setup, variables
from oci_cluster.backends.oci.tenancy.requirements import (
    Needed,
    lifecycle_rules,
    matching_rule,
    places_of,
    statements,
)
from oci_cluster.backends.oci.tenancy.security_rules import security_rules
from oci_cluster.contract.settings.schema import TENANCY_SETTINGS
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
from oci_cluster.errors import SettingsError

FOLDER = PROJECT_ROOT / "scripts" / "templates" / "terraform"
JOBS, CIDR = "ocid1.compartment.oc1..aaaajobs", "10.0.0.0/20"
GIVEN = {
    "COMPARTMENT_OCID": JOBS,
    "WORK_DIR": "oci://clusters@ns/team-a/work",
    "REGISTRY": "iad.ocir.io/ns/training",
}
PORTS = {"dask": [(8786, 8786), (8700, 8800)], "tensorflow": [(12345, 12345)]}


def rules(cidr: str) -> Rules:
    return security_rules(cidr.split(","), PORTS)


def needed_by(given: dict[str, str]) -> Needed:
    service: Any = SimpleNamespace(region="us-ashburn-1", client_of=None)
    return Setup(service, given, PROJECT_ROOT, ("dask", "tensorflow")).needed


def values(given: dict[str, str], cidr: str = CIDR) -> dict[str, Any]:
    made = variables(needed_by(given), places_of(given), "ocid1.tenancy.oc1..t", cidr, rules)
    found: dict[str, Any] = json.loads(made)
    return found


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"WORK_DIR": "oci://clusters@ns"},
        {"KEEP_CLUSTERS_DAYS": "0"},
        {"LOG_GROUP_NAME": "none"},
        {"LOG_GROUP_OCID": "ocid1.loggroup.oc1.iad.a"},
        {"LOG_GROUP_OCID": "ocid1.loggroup.oc1.iad.a", "LOG_OCID": "ocid1.log.oc1.iad.a"},
        {"VAULT_SECRETS": "A=ocid1.vaultsecret.oc1.iad.a B=ocid1.vaultsecret.oc1.iad.b"},
        {
            "IMAGES_COMPARTMENT_OCID": "ocid1.compartment.oc1..i",
            "SECRETS_COMPARTMENT_OCID": "ocid1.compartment.oc1..s",
            "VAULT_SECRETS": "A=ocid1.vaultsecret.oc1.iad.a",
            "NETWORK_COMPARTMENT_OCID": "ocid1.compartment.oc1..n",
            "PEOPLE_GROUP": "us",
            "NODES_GROUP": "them",
            "POLICY_NAME": "p",
            "LOG_GROUP_NAME": "logs",
        },
    ],
    ids=lambda given: " ".join(given) or "defaults",
)
def test_the_templates_make_what_is_needed(given: dict[str, str]) -> None:
    given = {**GIVEN, **given}
    needed = needed_by(given)
    made = Terraform(FOLDER, values(given)).resources()
    (policy,) = made["oci_identity_policy"]
    assert (policy["name"], policy["statements"]) == (needed.policy, [one.text for one in statements(needed)])
    (nodes,), (people,) = made["oci_identity_dynamic_group"], made["oci_identity_group"]
    assert (nodes["name"], nodes["matching_rule"]) == (needed.nodes, matching_rule(JOBS))
    assert people["name"] == needed.people
    assert [one["display_name"] for one in made["oci_artifacts_container_repository"]] == list(needed.repositories)
    assert [one["display_name"] for one in made["oci_logging_log_group"]] == list(filter(None, [needed.log_group]))
    in_group = given.get("LOG_GROUP_OCID") or "<OCID of oci_logging_log_group>"
    logs = [(one["display_name"], one["log_type"], one["log_group_id"]) for one in made["oci_logging_log"]]
    assert logs == ([(needed.log, "CUSTOM", in_group)] if needed.log else [])
    kept = [rule for one in made["oci_objectstorage_object_lifecycle_policy"] for rule in one["rules"]]
    assert [as_lifecycle(rule) for rule in kept] == lifecycle_rules(needed)
    (rules_made,) = made["oci_core_security_list"]
    wanted = rules(CIDR)
    assert [as_rule(rule) for rule in rules_made["ingress_security_rules"]] == wanted[0]
    assert [as_rule(rule) for rule in rules_made["egress_security_rules"]] == wanted[1]


def test_a_subnet_of_several_blocks_has_rules_for_each() -> None:
    both = f"{CIDR},10.1.0.0/20"
    (made,) = Terraform(FOLDER, values(GIVEN, both)).resources()["oci_core_security_list"]
    wanted = rules(both)
    assert [as_rule(rule) for rule in made["ingress_security_rules"]] == wanted[0]
    assert [as_rule(rule) for rule in made["egress_security_rules"]] == wanted[1]


def test_defaults_are_those_of_the_settings() -> None:
    templates = Terraform(FOLDER, values(GIVEN)).variables
    names = {row.name.lower(): row.default for row in TENANCY_SETTINGS if row.default}
    shown = {name: str(templates[name]["default"]).strip('"') for name in names}
    assert shown == names


def test_without_a_subnet_there_is_no_security_list() -> None:
    given = {name: value for name, value in values(GIVEN).items() if name != "subnet_cidr"}
    assert Terraform(FOLDER, given).resources()["oci_core_security_list"] == []


def test_every_variable_has_a_description_and_none_is_unknown() -> None:
    templates = Terraform(FOLDER, values(GIVEN))
    assert [name for name, body in templates.variables.items() if not body.get("description")] == []
    with pytest.raises(ValueError, match="no variables of the templates: colour"):
        Terraform(FOLDER, {"colour": "red"})
    with pytest.raises(ValueError, match="variable tenancy_ocid has no value"):
        Terraform(FOLDER, {})


def test_groups_of_other_domains_are_refused() -> None:
    with pytest.raises(SettingsError, match="d/nodes: the templates"):
        values({**GIVEN, "NODES_GROUP": "d/nodes"})


def test_what_the_reader_does_not_know_is_an_error(tmp_path: Path) -> None:
    """A template that goes beyond it must not be taken for one that makes nothing."""
    (tmp_path / "x.tf").write_text('resource "a" "b" {\n  c = lower("D")\n}\n')
    with pytest.raises(KeyError, match="lower"):
        Terraform(tmp_path, {}).resources()
