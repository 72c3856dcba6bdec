"""The tags that people give: what they may be, and that a cluster keeps them."""

from __future__ import annotations

from typing import Any

import pytest
from unit.backends.oci.read_settings import problem, settings
from unit.fake_oci import Checkout, Launcher

from oci_cluster.errors import SettingsError


@pytest.mark.parametrize(
    ("name", "text", "tags"),
    [
        ("FREEFORM_TAGS", "team=vision 'on call=me too' empty=", {"team": "vision", "on call": "me too", "empty": ""}),
        ("FREEFORM_TAGS", ' {"team": "vision", "a=b": "c"}', {"team": "vision", "a=b": "c"}),
        (
            "DEFINED_TAGS",
            "Operations.CostCenter=42 'Operations.Owner=a=b c' Finance.x=y",
            {"Operations": {"CostCenter": "42", "Owner": "a=b c"}, "Finance": {"x": "y"}},
        ),
        ("DEFINED_TAGS", '{"Operations": {"CostCenter": 42}}', {"Operations": {"CostCenter": 42}}),
        ("DEFINED_TAGS", '{"Operations.CostCenter": "42"}', {"Operations": {"CostCenter": "42"}}),
    ],
)
def test_tags_are_pairs_or_json(checkout: Checkout, name: str, text: str, tags: dict[str, Any]) -> None:
    kind = name.partition("_")[0].lower()
    assert settings(checkout, **{name: text})["tags_given"][kind] == tags


NO_JSON = (
    "it begins with { and is no JSON object: "
    "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
)
LONG = f"{'k' * 101}=x"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("FREEFORM_TAGS", "team", "'team' is not of the form team=vision"),
        ("FREEFORM_TAGS", "=x", "'=x' is not of the form team=vision"),
        ("FREEFORM_TAGS", "a='", "No closing quotation"),
        ("FREEFORM_TAGS", "{1", NO_JSON),
        ("FREEFORM_TAGS", '{"a": 1}', "the value of a is no text; quote it"),
        *(
            ("FREEFORM_TAGS", f"{tag}=x", f"{tag} is a tag of ours, by which a cluster is found; choose another name")
            for tag in ("oci-cluster", "oci-cluster-node", "OCI-Cluster-launch", "oci-cluster-new")
        ),
        ("FREEFORM_TAGS", LONG, f"{'k' * 100} has 101 characters and a value of 1; OCI allows 100 and 256"),
        ("FREEFORM_TAGS", f"k={'v' * 257}", "k has 1 characters and a value of 257; OCI allows 100 and 256"),
        ("DEFINED_TAGS", "CostCenter=42", "'CostCenter' is not a namespace and a key, as in Operations.CostCenter=42"),
        ("DEFINED_TAGS", '{"Operations": {"a": {}}}', "Operations.a has no plain value"),
        ("DEFINED_TAGS", '{"Operations": {"a": null}}', "Operations.a has no plain value"),
        ("DEFINED_TAGS", f"n.{LONG}", f"{'k' * 100} has 101 characters and a value of 1; OCI allows 100 and 256"),
        ("DEFINED_TAGS", " ".join(f"n.k{number}=x" for number in range(65)),
         "65 tags are more than 64, which is all that OCI allows"),
    ],
)  # fmt: skip
def test_tags_that_are_none_are_named(checkout: Checkout, name: str, text: str, why: str) -> None:
    assert problem(checkout, **{name: text}) == f"{name}: {why}"


@pytest.mark.parametrize(("style", "left"), [("runs", 3), ("multinode", 1)])
def test_a_resource_has_ten_free_form_tags_at_most(checkout: Checkout, style: str, left: int) -> None:
    """Ours are among them: without them nobody finds the cluster."""
    words = [f"k{number}=x" for number in range(left + 1)]
    settings(checkout, FREEFORM_TAGS=" ".join(words[:-1]), OCI_JOB_STYLE=style)
    assert problem(checkout, FREEFORM_TAGS=" ".join(words), OCI_JOB_STYLE=style) == (
        f"FREEFORM_TAGS: {left + 1} tags and the {10 - left} that a cluster is found by are more than the 10 that OCI "
        f"allows: keep {left}, and give others as DEFINED_TAGS"
    )


@pytest.mark.parametrize("name", ["DESCRIPTION", "FREEFORM_TAGS", "DEFINED_TAGS"])
def test_a_secret_is_refused_where_people_only_describe(checkout: Checkout, name: str) -> None:
    text = {"DESCRIPTION": "see {}", "FREEFORM_TAGS": "'a={}'", "DEFINED_TAGS": "'a.b={}'"}[name]
    found = problem(checkout, **{name: text.format("https://me:hunter2@host")})
    assert found.startswith(f"everybody who may read the Job would see {name}; ")


GIVEN = {"FREEFORM_TAGS": "team=vision", "DEFINED_TAGS": "Operations.CostCenter=42"}


def test_a_worker_that_is_added_later_has_the_tags_of_its_cluster(launcher: Launcher) -> None:
    """From a checkout that has no such settings: the Job itself tells them. A tenancy may refuse a run without."""
    cluster = launcher.launch(**GIVEN)
    launcher.backend = launcher.another()
    launcher.lifecycle = launcher.lifecycle_of(launcher.backend)
    launcher.scale(cluster, "+1")
    added = launcher.science.created[-1]
    assert added["displayName"] == "mine-WORKER_3"
    assert added["freeformTags"]["team"] == "vision"
    assert added["definedTags"] == {"Operations": {"CostCenter": "42"}}


def test_a_job_with_tags_that_are_none_is_not_scaled(launcher: Launcher) -> None:
    """Whoever may write in the compartment can write its environment, too."""
    cluster = launcher.launch(**GIVEN)
    (job,) = launcher.science.jobs.values()
    job.job_configuration_details.environment_variables["DEFINED_TAGS"] = "{"
    launcher.backend = launcher.another()
    with pytest.raises(SettingsError, match=r"bad settings: DEFINED_TAGS: it begins with \{"):
        launcher.lifecycle_of(launcher.backend).scale(cluster, "+1")
