"""The bodies that are sent to Data Science."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import oci
import pytest
from unit.backends.oci.bodies import (
    COMPANY,
    DIGEST,
    EVERYTHING,
    GROUP,
    HOSTILE,
    LOG,
    RESERVATION,
    SIGNATURE,
    bodies,
)
from unit.fake_oci import COMPARTMENT, IMAGE, PROJECT, SUBNET, Checkout, with_environment

from oci_cluster.backends.oci.jobs import requests as oci_requests
from oci_cluster.backends.oci.settings import OWN_TAGS, settings_of
from oci_cluster.errors import SettingsError

TAGS = {
    "oci-cluster": "plain-1f2e",
    "oci-cluster-launch": "1f2e3d4c",
    "oci-cluster-framework": "plain",
    "oci-cluster-project": "my project",
    "oci-cluster-owner": "somebody",
    "oci-cluster-expires": "2026-01-03T03:04:05Z",
}


def test_the_job_of_a_cluster_of_runs(checkout: Checkout) -> None:
    """The least that is sent: no logs, no mounts; it ends after a day, and the service sees to that."""
    plan = checkout.plan()
    job, _ = bodies(checkout, plan)
    assert plan.environment["TTL"] == "1d"
    assert job == {
        "compartmentId": COMPARTMENT,
        "projectId": PROJECT,
        "displayName": "plain-1f2e",
        "freeformTags": {**TAGS, "oci-cluster-code": "none"},
        "jobConfigurationDetails": {
            "jobType": "DEFAULT",
            "maximumRuntimeInMinutes": 24 * 60 + 10,
            "environmentVariables": oci_requests.node_environment(
                plan, code_uri="oci://b@n/c#sha256=1", subnet_cidr="10.0.0.0/24"
            ),
        },
        "jobInfrastructureConfigurationDetails": {
            "jobInfrastructureType": "STANDALONE",
            "subnetId": SUBNET,
            "shapeName": "VM.Standard.E4.Flex",
            "jobShapeConfigDetails": {"ocpus": 4, "memoryInGBs": 64},
            "blockStorageSizeInGBs": 100,
        },
        "jobEnvironmentConfigurationDetails": {"jobEnvironmentType": "OCIR_CONTAINER", "image": IMAGE},
    }


MOUNTS = [
    {
        "storageType": "OBJECT_STORAGE",
        "namespace": "ns",
        "bucket": "data",
        "destinationDirectoryName": "data",
        "destinationPath": "/mnt",
    }
]
LOGGING = {"enableLogging": True, "enableAutoLogCreation": False, "logGroupId": GROUP, "logId": LOG}
CONTAINER = {"jobEnvironmentType": "OCIR_CONTAINER", "image": IMAGE, "imageDigest": DIGEST}


def test_the_job_of_a_cluster_of_runs_with_everything(checkout: Checkout) -> None:
    """Subnet, digest, reservation, log, mounts, an end, and a shape that has its own size."""
    job, _ = bodies(checkout, **EVERYTHING, CAPACITY_RESERVATION_OCID=RESERVATION)
    environment = job["jobConfigurationDetails"].pop("environmentVariables")
    assert environment["TTL"] == "1h"
    assert job == {
        "compartmentId": COMPARTMENT,
        "projectId": PROJECT,
        "displayName": "plain-1f2e",
        "freeformTags": {**TAGS, "oci-cluster-expires": "2026-01-02T04:04:05Z", "oci-cluster-code": "none"},
        "jobConfigurationDetails": {"jobType": "DEFAULT", "maximumRuntimeInMinutes": 70},
        "jobInfrastructureConfigurationDetails": {
            "jobInfrastructureType": "STANDALONE",
            "subnetId": SUBNET,
            "shapeName": "VM.GPU.A10.1",
            "capacityReservationId": RESERVATION,
            "blockStorageSizeInGBs": 100,
        },
        "jobEnvironmentConfigurationDetails": CONTAINER,
        "jobLogConfigurationDetails": LOGGING,
        "jobStorageMountConfigurationDetailsList": MOUNTS,
    }


def test_a_cluster_may_be_without_a_limit(checkout: Checkout) -> None:
    """Where somebody says so."""
    job, _ = bodies(checkout, TTL="0")
    assert "maximumRuntimeInMinutes" not in job["jobConfigurationDetails"]
    assert job["freeformTags"]["oci-cluster-expires"] == "never"
    job, _ = bodies(checkout, TTL="0", OCI_JOB_STYLE="multinode")
    assert "maximumRuntimeInMinutes" not in job["jobNodeConfigurationDetails"]


def test_a_log_group_alone_makes_a_log_for_each_node(checkout: Checkout) -> None:
    """Without a log of its own the service makes them."""
    job, _ = bodies(checkout, LOG_GROUP_OCID=GROUP)
    assert job["jobLogConfigurationDetails"] == {
        "enableLogging": True, "enableAutoLogCreation": True, "logGroupId": GROUP,
    }  # fmt: skip


def test_a_run_for_each_node(checkout: Checkout) -> None:
    """Main first, workers, parameter servers; each has its role and rank beyond its Job, and its name as a tag."""
    _, runs = bodies(checkout, PS_COUNT="1")
    expected = {
        node: {
            "jobId": "ocid1.job",
            "compartmentId": COMPARTMENT,
            "projectId": PROJECT,
            "displayName": f"plain-1f2e-{node}",
            "freeformTags": {**TAGS, "oci-cluster-node": node},
            "jobConfigurationOverrideDetails": {
                "jobType": "DEFAULT",
                "environmentVariables": {"MODE": mode, "NODE_RANK": rank},
            },
        }
        for node, mode, rank in (
            ("MAIN", "MAIN", "0"), ("WORKER_1", "WORKER", "1"), ("WORKER_2", "WORKER", "2"), ("PS_3", "PS", "3"),
        )
    }  # fmt: skip
    assert list(runs.items()) == list(expected.items())


# Main has begun when its agent has made its directory.
PROBE = {
    "startupProbeDetails": {
        "jobProbeCheckType": "EXEC",
        "command": ["/bin/sh", "-c", 'test -d "${TMPDIR:-/tmp}/1f2e3d4c-MAIN"'],
        "periodInSeconds": 2,
        "failureThreshold": 31,
        "initialDelayInSeconds": 0,
    }
}


def test_the_job_of_a_cluster_that_is_one_run(checkout: Checkout) -> None:
    """Node groups in the order in which they start: main, workers, parameter servers, each with its role."""
    plan = checkout.plan(3, OCI_JOB_STYLE="multinode", PS_COUNT="2", TIMEOUT="61", **EVERYTHING)
    job, runs = bodies(checkout, plan)
    given = oci_requests.node_environment(plan, code_uri="oci://b@n/c#sha256=1", subnet_cidr="10.0.0.0/24")
    tags = {
        **TAGS,
        "oci-cluster-expires": "2026-01-02T04:04:05Z",
        "oci-cluster-style": "multinode",
        "oci-cluster-size": "6",
    }
    infrastructure = {
        "jobInfrastructureType": "MULTI_NODE",
        "shapeName": "VM.GPU.A10.1",
        "blockStorageSizeInGBs": 100,
    }
    groups = [
        {
            "name": name,
            "replicas": replicas,
            "minimumSuccessReplicas": minimum,
            "jobConfigurationDetails": {
                "jobType": "DEFAULT",
                "environmentVariables": {**given, "MODE": mode, "NODE_GROUP": name},
                **(PROBE if mode == "MAIN" else {}),
            },
            "jobInfrastructureConfigurationDetails": infrastructure,
            "jobEnvironmentConfigurationDetails": CONTAINER,
        }
        for name, mode, replicas, minimum in (("main", "MAIN", 1, 1), ("worker", "WORKER", 3, 1), ("ps", "PS", 2, 2))
    ]
    assert job == {
        "compartmentId": COMPARTMENT,
        "projectId": PROJECT,
        "displayName": "plain-1f2e",
        "freeformTags": {**tags, "oci-cluster-code": "none"},
        "jobNodeConfigurationDetails": {
            "jobNodeType": "MULTI_NODE",
            "startupOrder": "IN_ORDER",
            "maximumRuntimeInMinutes": 70,
            "jobNetworkConfiguration": {"jobNetworkType": "CUSTOM_NETWORK", "subnetId": SUBNET},
            "jobNodeGroupConfigurationDetailsList": groups,
        },
        "jobLogConfigurationDetails": LOGGING,
        "jobStorageMountConfigurationDetailsList": MOUNTS,
    }
    assert runs == {
        "MAIN": {
            "jobId": "ocid1.job",
            "compartmentId": COMPARTMENT,
            "projectId": PROJECT,
            "displayName": "plain-1f2e",
            "freeformTags": tags,
        }
    }


def test_one_run_on_the_services_own_network(checkout: Checkout) -> None:
    """Without a subnet nodes reach each other on a network that the service makes; flexible shapes have a size."""
    job, _ = bodies(checkout, OCI_JOB_STYLE="multinode", SUBNET_OCID="")
    details = job["jobNodeConfigurationDetails"]
    assert details["jobNetworkConfiguration"] == {"jobNetworkType": "DEFAULT_NETWORK"}
    assert details["maximumRuntimeInMinutes"] == 24 * 60 + 10
    sizes = [
        group["jobInfrastructureConfigurationDetails"]["jobShapeConfigDetails"]
        for group in details["jobNodeGroupConfigurationDetailsList"]
    ]
    assert sizes == [{"ocpus": 4, "memoryInGBs": 64}] * 2


def unknown_fields(body: Any, kind: str, place: str = "") -> list[str]:
    """Return the fields of *body* that the SDK's model *kind* does not have."""
    if kind.startswith("list["):
        return [name for item in body for name in unknown_fields(item, kind[5:-1], f"{place}[]")]
    model = getattr(oci.data_science.models, kind, None)
    if model is None:
        return []
    if hasattr(model, "get_subtype"):
        model = getattr(oci.data_science.models, model.get_subtype(body))
    made = model()
    fields = {name: made.swagger_types[key] for key, name in made.attribute_map.items()}
    found = [f"{place}.{name}" for name in body if name not in fields]
    for name in body:
        if name in fields:
            found += unknown_fields(body[name], fields[name], f"{place}.{name}")
    return found


@pytest.mark.parametrize("style", ["runs", "multinode"])
def test_the_sdk_knows_every_field(checkout: Checkout, style: str) -> None:
    """The SDK ignores what it does not know: a misspelt field would be lost without a word."""
    reservation = {"CAPACITY_RESERVATION_OCID": RESERVATION} if style == "runs" else {}
    job, runs = bodies(checkout, OCI_JOB_STYLE=style, PS_COUNT="1", **{**EVERYTHING, **COMPANY, **reservation})
    assert unknown_fields({**job, "typo": 1}, "CreateJobDetails") == [".typo"]
    assert unknown_fields(job, "CreateJobDetails") == []
    for run in runs.values():
        assert unknown_fields(run, "CreateJobRunDetails") == []


@pytest.mark.parametrize("style", ["runs", "multinode"])
@pytest.mark.parametrize("text", HOSTILE)
def test_what_people_write_comes_through_unharmed(checkout: Checkout, text: str, style: str) -> None:
    """Quotes, line ends, templates' own signs and every script's letters are data in every place of a body."""
    plan = checkout.plan(OCI_JOB_STYLE=style, arguments=(text,))
    plan = with_environment(replace(plan, name=text, framework=text, project=text), SOME_TEXT=text)
    machine = {"shape": text, "ocpus": 0, "memory_gbs": 0}
    checked = settings_of(plan, checkout.root) | {"machines": dict.fromkeys(("MAIN", "WORKER"), machine)}
    job = oci_requests.job(plan, checked, checkout.root)
    assert (job["displayName"], job["freeformTags"]["oci-cluster"], job["freeformTags"]["oci-cluster-project"]) == (
        text,
    ) * 3
    if style == "multinode":
        job = job["jobNodeConfigurationDetails"]["jobNodeGroupConfigurationDetailsList"][1]
    environment = job["jobConfigurationDetails"]["environmentVariables"]
    assert environment["SOME_TEXT"] == text
    assert json.loads(environment["ARGS"]) == [text]
    assert job["jobInfrastructureConfigurationDetails"]["shapeName"] == text
    runs = oci_requests.job_runs(plan, checked, checkout.root)
    assert runs["MAIN"]["freeformTags"]["oci-cluster"] == text


@pytest.mark.parametrize("style", ["runs", "multinode"])
def test_addresses_of_a_subnet_that_was_looked_up_reach_every_node(checkout: Checkout, style: str) -> None:
    """The request is the one that a dry run shows, with that variable besides."""
    job, _ = bodies(checkout, OCI_JOB_STYLE=style, SUBNET_CIDR="")
    text = json.dumps(job)
    without = json.loads(text.replace(', "SUBNET_CIDR": "10.0.0.0/24"', ""))
    found = oci_requests.with_variables(without, {"SUBNET_CIDR": "10.0.0.0/24"})
    count = text.count('"SUBNET_CIDR": "10.0.0.0/24"')
    assert (found, count) == (job, 2 if style == "multinode" else 1)


@pytest.mark.parametrize("name", ["subnet", "log_group", "mounts", "max_runtime_minutes"])
def test_a_value_that_is_missing_is_no_empty_text(checkout: Checkout, name: str) -> None:
    """A template that asks for what nobody gives fails, also where it only asks whether, and names the file."""
    plan = checkout.plan()
    checked = settings_of(plan, checkout.root)
    del checked[name]
    with pytest.raises(
        SettingsError, match=r"scripts/templates/job\.json\.j2 (makes no JSON|cannot be used): .*[Uu]ndefined"
    ):
        oci_requests.job(plan, checked, checkout.root)


@pytest.mark.parametrize("text", ["{ no JSON", "[1]", "{{ 1", "", '{"a": {{ name }} }'])
def test_a_template_that_was_spoiled_is_named(checkout: Checkout, tmp_path: Path, text: str) -> None:
    """Templates are there to be changed: what comes out must be a JSON object."""
    templates = tmp_path / "other" / "scripts" / "templates"
    templates.mkdir(parents=True)
    (templates / "job.json.j2").write_text(text)
    plan = checkout.plan()
    with pytest.raises(SettingsError, match=r"scripts/templates/job\.json\.j2 (makes no JSON|cannot be used): "):
        oci_requests.job(plan, settings_of(plan, checkout.root), tmp_path / "other")


def test_an_owner_without_a_name_is_unknown(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container a user id may have no name; a long one is cut."""
    monkeypatch.setattr("getpass.getuser", lambda: "x" * 300)
    assert oci_requests.tags_of(checkout.plan(), {})["oci-cluster-owner"] == "x" * 100

    def nobody() -> str:
        raise KeyError(1234)

    monkeypatch.setattr("getpass.getuser", nobody)
    assert oci_requests.tags_of(checkout.plan(), {})["oci-cluster-owner"] == "unknown"


# --- What companies ask for -----------------------------------------------------------------------------------------

FREEFORM = {"on call": "it is me"}
DEFINED = {"Operations": {"CostCenter": "42", "Owner": "me"}, "Finance": {"Project": "x"}}


@pytest.mark.parametrize("style", ["runs", "multinode"])
def test_job_and_runs_have_the_tags_that_were_given(checkout: Checkout, style: str) -> None:
    """Besides our own; the description is the Job's alone, as a run has none."""
    job, runs = bodies(checkout, OCI_JOB_STYLE=style, **COMPANY)
    assert job["description"] == "digits, every night"
    for body in (job, *runs.values()):
        assert body["definedTags"] == DEFINED
        assert {name: text for name, text in body["freeformTags"].items() if not name.startswith("oci-")} == FREEFORM
        assert body["freeformTags"]["oci-cluster"] == "plain-1f2e"
    plain, plain_runs = bodies(checkout, OCI_JOB_STYLE=style)
    assert not {"description", "definedTags"} & {name for body in (plain, *plain_runs.values()) for name in body}
    assert len(plain["freeformTags"]) == OWN_TAGS[style]
    assert max(len(body["freeformTags"]) for body in plain_runs.values()) <= OWN_TAGS[style]


@pytest.mark.parametrize("style", ["runs", "multinode"])
def test_the_image_is_checked_by_its_signature(checkout: Checkout, style: str) -> None:
    """In every group."""
    job, _ = bodies(checkout, OCI_JOB_STYLE=style, **COMPANY)
    groups = job.get("jobNodeConfigurationDetails", {}).get("jobNodeGroupConfigurationDetailsList", [job])
    expected = {"jobEnvironmentType": "OCIR_CONTAINER", "image": IMAGE, "imageSignatureId": SIGNATURE}
    assert [group["jobEnvironmentConfigurationDetails"] for group in groups] == [expected] * len(groups)


def test_a_run_whose_machine_is_not_the_jobs_says_so(checkout: Checkout) -> None:
    """The Job has that of the workers: one that is added later needs to know nothing of machines."""
    job, runs = bodies(checkout, PS_COUNT="1", **COMPANY)
    network = {"jobInfrastructureType": "STANDALONE", "subnetId": SUBNET, "blockStorageSizeInGBs": 100}
    assert job["jobInfrastructureConfigurationDetails"] == {**network, "shapeName": "VM.GPU.A10.1"}
    flexible = {
        "MAIN": ("VM.Standard.E4.Flex", {"ocpus": 2, "memoryInGBs": 64}),
        "PS_3": ("VM.Standard.E5.Flex", {"ocpus": 4, "memoryInGBs": 8}),
    }
    assert {name: body.get("jobInfrastructureConfigurationOverrideDetails") for name, body in runs.items()} == {
        **{
            name: {**network, "shapeName": shape, "jobShapeConfigDetails": size}
            for name, (shape, size) in flexible.items()
        },
        "WORKER_1": None,
        "WORKER_2": None,
    }


def test_each_group_has_its_machine(checkout: Checkout) -> None:
    job, runs = bodies(checkout, OCI_JOB_STYLE="multinode", PS_COUNT="1", **COMPANY)
    groups = job["jobNodeConfigurationDetails"]["jobNodeGroupConfigurationDetailsList"]
    machines = [group["jobInfrastructureConfigurationDetails"] for group in groups]
    assert [(machine["shapeName"], machine.get("jobShapeConfigDetails")) for machine in machines] == [
        ("VM.Standard.E4.Flex", {"ocpus": 2, "memoryInGBs": 64}),
        ("VM.GPU.A10.1", None),
        ("VM.Standard.E5.Flex", {"ocpus": 4, "memoryInGBs": 8}),
    ]
    assert "jobInfrastructureConfigurationOverrideDetails" not in runs["MAIN"]
