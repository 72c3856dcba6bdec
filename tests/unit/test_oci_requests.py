"""What is sent to Data Science: nobody is asked, so everything here is what the function returns."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import oci
import pytest
from unit.played_oci import COMPARTMENT, IMAGE, PROJECT, ROOT, SUBNET, Checkout, body_of, option_of

from oci_cluster import image_records, oci_requests
from oci_cluster import plan as plan_module
from oci_cluster.errors import SettingsError
from oci_cluster.settings import read_settings_file

RESERVATION = "ocid1.capacityreservation.oc1.iad.aaaareservation"
GROUP = "ocid1.loggroup.oc1.iad.aaaagroup"
LOG = "ocid1.log.oc1.iad.aaaalog"
DIGEST = f"sha256:{'a1' * 32}"
HINT = "(config.env.example explains each)"
HOSTILE = [
    "plain",
    'it\'s "quoted" `id` $(id) $HOME \\ \\n',
    "two\nlines\r\tand more",
    "{{ 7 * 7 }} {% raw %} {# #}",
    "</script><b>&amp;",
    "h\u00e9 \u65e5\u672c \U0001f600 \u2028",
    "-x --from-json file://secret",
    "",
]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setattr(plan_module.secrets, "token_hex", lambda _: "1f2e3d4c")
    monkeypatch.setattr(plan_module, "now", lambda: "2026-01-02T03:04:05Z")
    monkeypatch.setattr(oci_requests.getpass, "getuser", lambda: "somebody")
    return Checkout(tmp_path.resolve())


def settings(checkout: Checkout, **given: str) -> dict[str, Any]:
    return oci_requests.settings_of(checkout.plan(**given), checkout.root)


def problem(checkout: Checkout, **given: str) -> str:
    """Return what is wrong, without what stands around it in every message."""
    with pytest.raises(SettingsError) as caught:
        settings(checkout, **given)
    text = str(caught.value)
    assert text.startswith("bad settings: ")
    assert text.endswith(f" {HINT}")
    assert caught.value.exit_code == 78
    return text.removeprefix("bad settings: ").removesuffix(f" {HINT}")


def bodies(checkout: Checkout, plan: Mapping[str, Any] | None = None, **given: str) -> tuple[Any, Any]:
    """Return what a launch sends: the Job, and the Job Runs by their nodes."""
    plan = plan or checkout.plan(**given)
    checked = oci_requests.settings_of(plan, checkout.root)
    environment = oci_requests.node_environment(plan, code_uri="oci://b@n/c#sha256=1", subnet_cidr="10.0.0.0/24")
    job = oci_requests.job(plan, checked, environment, checkout.root)
    return job, oci_requests.job_runs(plan, checked, checkout.root, "ocid1.job")


# --- Settings -------------------------------------------------------------------------------------------------------


def test_the_least_that_makes_a_launch_gets_the_backends_defaults(checkout: Checkout) -> None:
    """Compartment, project, image and work dir are enough; all else has the default of oci.env."""
    assert settings(checkout) == {
        "compartment": COMPARTMENT,
        "project": PROJECT,
        "image": IMAGE,
        "image_digest": "",
        "subnet": "",
        "shape": "VM.Standard.E4.Flex",
        "ocpus": 4,
        "memory_gbs": 64,
        "storage_gbs": 100,
        "capacity_reservation": "",
        "log_group": "",
        "log": "",
        "mounts": [],
        "max_runtime_minutes": 0,
        "style": "runs",
        "node_logs": True,
    }


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("COMPARTMENT_OCID", "ocid1.compartment.oc1..x", "compartment", "ocid1.compartment.oc1..x"),
        (
            "PROJECT_OCID",
            "ocid1.datascienceproject.oc1.iad.x-y_z.1",
            "project",
            "ocid1.datascienceproject.oc1.iad.x-y_z.1",
        ),
        ("IMAGE", f"iad.ocir.io/ns/a/b_c-d.e:v1.2_3@{DIGEST}", "image_digest", DIGEST),
        ("IMAGE", f"iad.ocir.io/ns/dask:1@{DIGEST}", "image", "iad.ocir.io/ns/dask:1"),
        ("IMAGE", "localhost:5000/dask:1", "image", "localhost:5000/dask:1"),
        ("IMAGE", "iad.ocir.io/ns/{framework}:1", "image", "iad.ocir.io/ns/plain:1"),
        ("SUBNET_OCID", SUBNET, "subnet", SUBNET),
        ("SHAPE", "VM.GPU.A10.1", "shape", "VM.GPU.A10.1"),
        ("STORAGE_GBS", "50", "storage_gbs", 50),
        ("STORAGE_GBS", "10240", "storage_gbs", 10240),
        ("CAPACITY_RESERVATION_OCID", RESERVATION, "capacity_reservation", RESERVATION),
        ("LOG_GROUP_OCID", GROUP, "log_group", GROUP),
        ("MAX_RUNTIME", "90m", "max_runtime_minutes", 90),
        ("MAX_RUNTIME", "61", "max_runtime_minutes", 2),
        ("TTL", "1h", "max_runtime_minutes", 70),
        ("TTL", "1", "max_runtime_minutes", 11),
        ("OCI_JOB_STYLE", "multinode", "style", "multinode"),
        ("NODE_LOGS", "0", "node_logs", False),
    ],
)
def test_a_setting_is_read(checkout: Checkout, name: str, text: str, key: str, value: object) -> None:
    """Each setting reaches the templates in its own type; times are whole minutes, rounded up."""
    assert settings(checkout, **{name: text})[key] == value


def test_a_max_runtime_wins_over_the_ttl(checkout: Checkout) -> None:
    """What is asked for is not replaced by what follows from the TTL."""
    assert settings(checkout, TTL="1h", MAX_RUNTIME="2h")["max_runtime_minutes"] == 120


@pytest.mark.parametrize(("text", "value"), [("2", 2), ("0.5", 0.5), ("4.0", 4), ("999999.999", 999999.999)])
def test_a_flexible_shape_has_ocpus_and_memory(checkout: Checkout, text: str, value: float) -> None:
    """Both are numbers, whole ones without a point."""
    found = settings(checkout, OCPUS=text, MEMORY_GBS=text)
    assert (found["ocpus"], found["memory_gbs"]) == (value, value)
    assert type(found["ocpus"]) is type(value)


def test_a_shape_of_its_own_has_neither(checkout: Checkout) -> None:
    """0 is none."""
    found = settings(checkout, OCPUS="0", MEMORY_GBS="0")
    assert (found["ocpus"], found["memory_gbs"]) == (0, 0)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        *(
            (name, "ocid1.x", f"{name}: 'ocid1.x' is not an OCID such as ocid1.compartment.oc1..aaaa")
            for name in ("COMPARTMENT_OCID", "PROJECT_OCID", "SUBNET_OCID", "LOG_GROUP_OCID")
        ),
        ("COMPARTMENT_OCID", "", "COMPARTMENT_OCID is not set"),
        ("PROJECT_OCID", "", "PROJECT_OCID is not set"),
        ("IMAGE", "", "IMAGE is not set, and none was pushed from here: make push-plain REGISTRY=<registry>"),
        *(
            ("IMAGE", text, f"IMAGE: '{text}' is not an image with a tag, such as iad.ocir.io/<namespace>/dask:1")
            for text in ("dask:1", "a.b/c/dask", "a.b/c/dask:", "a.b/c/Dask:1", f"a/b@{DIGEST}", "a/b:1@sha256:12")
        ),
        ("OCPUS", "0", "OCPUS and MEMORY_GBS go together: both, or 0 for a shape that has its own"),
        ("STORAGE_GBS", "49", "STORAGE_GBS: '49' is not a whole number from 50 to 10240"),
        ("STORAGE_GBS", "10241", "STORAGE_GBS: '10241' is not a whole number from 50 to 10240"),
        ("LOG_OCID", LOG, "LOG_OCID is set without LOG_GROUP_OCID, the group that it is in"),
        ("OCI_JOB_STYLE", "pods", "OCI_JOB_STYLE: 'pods' is neither runs nor multinode"),
        ("NODE_LOGS", "perhaps", "NODE_LOGS: 'perhaps' is neither 1 nor 0"),
        ("WORK_DIR", "", "WORK_DIR is not set; make a bucket and set oci://<bucket>@<namespace>/<folder>"),
        ("WORK_DIR", "memory://x", "WORK_DIR: memory://x is not seen by all nodes; set oci://<bucket>@<namespace>/<folder>"),
        ("WORK_DIR", "file:///x", "WORK_DIR: file:///x is not seen by all nodes; set oci://<bucket>@<namespace>/<folder>"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(checkout: Checkout, name: str, text: str, why: str) -> None:
    """A bad setting is one problem, which says the value and what would be right."""
    assert problem(checkout, **{name: text}) == why


@pytest.mark.parametrize("name", ["OCPUS", "MEMORY_GBS"])
def test_a_bad_number_is_one_problem(checkout: Checkout, name: str) -> None:
    """What follows from one mistake is not a second one."""
    assert problem(checkout, **{name: "many"}) == f"{name}: 'many' is not a number of 0 or more"


@pytest.mark.parametrize("text", ["many", "-1", "1e3", "1,5", "1234567", "nan", "inf", "1.2345"])
def test_what_is_no_number_is_named(checkout: Checkout, text: str) -> None:
    """Neither is what Python alone takes for one."""
    assert f"OCPUS: '{text}' is not a number of 0 or more" in problem(checkout, OCPUS=text)


def test_all_that_is_wrong_is_one_message(checkout: Checkout) -> None:
    """Nobody mends one setting after the other."""
    bad = {"COMPARTMENT_OCID": "", "IMAGE": "x", "STORAGE_GBS": "x", "MAX_RUNTIME": "soon", "STORAGE_MOUNTS": "x"}
    found = problem(checkout, **bad, LOG_OCID=LOG, WORK_DIR="")
    named = [text.split()[0].rstrip(":") for text in found.split("; ") if text[0].isupper()]
    assert sorted(named) == sorted([*bad, "LOG_OCID", "WORK_DIR"])


@pytest.mark.parametrize(
    "text", ["oci://data@ns/some/prefix", "fss:ocid1.mounttarget.oc1.iad.x:ocid1.export.oc1.iad.y"]
)
def test_a_mount_makes_a_shared_folder_fit_for_a_work_dir(checkout: Checkout, text: str) -> None:
    """file:// is seen by all nodes where all have mounted it."""
    settings(checkout, STORAGE_MOUNTS=f"data={text}", WORK_DIR="file:///mnt/data/work")


def test_mounts_are_described_as_the_service_does(checkout: Checkout) -> None:
    """Buckets with and without a prefix, and file systems, each under /mnt/<name>."""
    place = {"destinationPath": "/mnt"}
    assert settings(
        checkout,
        STORAGE_MOUNTS="a=oci://data@ns/some/prefix  b=oci://data@ns c=oci://data@ns/"
        " d_1-x=fss:ocid1.mounttarget.oc1.iad.x:ocid1.export.oc1.iad.y",
    )["mounts"] == [
        {
            "storageType": "OBJECT_STORAGE",
            "namespace": "ns",
            "bucket": "data",
            "prefix": "some/prefix",
            "destinationDirectoryName": "a",
            **place,
        },
        {
            "storageType": "OBJECT_STORAGE",
            "namespace": "ns",
            "bucket": "data",
            "destinationDirectoryName": "b",
            **place,
        },
        {
            "storageType": "OBJECT_STORAGE",
            "namespace": "ns",
            "bucket": "data",
            "destinationDirectoryName": "c",
            **place,
        },
        {
            "storageType": "FILE_STORAGE",
            "mountTargetId": "ocid1.mounttarget.oc1.iad.x",
            "exportId": "ocid1.export.oc1.iad.y",
            "destinationDirectoryName": "d_1-x",
            **place,
        },
    ]


@pytest.mark.parametrize(
    "text",
    ["data", "=oci://b@n", "../x=oci://b@n", "a/b=oci://b@n", "a=oci://b", "a=oci://@n", "a=s3://b", "a=fss:ocid1.x",
     "a=fss:x:y", f"{'a' * 65}=oci://b@n"],
)  # fmt: skip
def test_a_mount_that_is_none_is_named(checkout: Checkout, text: str) -> None:
    """The word that is wrong is in the message, with both forms there are."""
    forms = "neither <name>=oci://<bucket>@<namespace>/<prefix> nor <name>=fss:<target>:<export>"
    assert problem(checkout, STORAGE_MOUNTS=f"ok=oci://b@n {text}") == f"STORAGE_MOUNTS: '{text}' is {forms}"


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "MY_SECRET", "DB_PASSWORD", "AWS_ACCESS_KEY_ID", "API_KEY", "x_credentials"]
)
def test_secrets_do_not_go_into_the_definition(checkout: Checkout, name: str) -> None:
    """All who may look at a Job can read its environment: a secret's name is refused, its value not shown."""
    plan = checkout.plan()
    plan["environment"] |= {name: "hunter2"}
    with pytest.raises(SettingsError) as caught:
        oci_requests.settings_of(plan, checkout.root)
    assert f"bad settings: {name} would stand in the Job's definition for all who may read it; " in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["TOKENIZERS_PARALLELISM", "MONKEY", "KEEP", "OMP_NUM_THREADS"])
def test_what_only_sounds_like_a_secret_is_sent(checkout: Checkout, name: str) -> None:
    """Names that many scripts need are no secrets."""
    plan = checkout.plan()
    plan["environment"] |= {name: "x"}
    oci_requests.settings_of(plan, checkout.root)


# --- What all nodes are given ---------------------------------------------------------------------------------------


def test_nodes_are_given_the_plans_environment_and_where_things_are(checkout: Checkout) -> None:
    """Not the launcher's own folder of code: the nodes have that elsewhere."""
    plan = checkout.plan(NODE_LOGS="0")
    environment = oci_requests.node_environment(plan, code_uri="U", subnet_cidr="C")
    expected = {key: text for key, text in plan["environment"].items() if key != "CODE_DIR"}
    assert "CODE_DIR" in plan["environment"]
    assert environment == {
        **expected, "CODE_URI": "U", "SUBNET_CIDR": "C", "WORK_DIR": "oci://bucket@ns/work", "NODE_LOGS": "0",
    }  # fmt: skip


def test_what_there_is_none_of_is_not_given(checkout: Checkout) -> None:
    """An image's own code needs no address; without a subnet there are no addresses to choose from."""
    environment = oci_requests.node_environment(checkout.plan(), code_uri="", subnet_cidr="")
    assert not {"CODE_URI", "SUBNET_CIDR"} & set(environment)


def test_an_environment_that_is_too_large_is_refused_before_the_service_does(checkout: Checkout) -> None:
    """The service takes 20,000 characters; the longest variable is named, and what to do."""
    plan = checkout.plan()
    oci_requests.node_environment(plan, code_uri="", subnet_cidr="")
    plan["environment"] |= {"BIG": "x" * 19_900}
    with pytest.raises(SettingsError) as caught:
        oci_requests.node_environment(plan, code_uri="", subnet_cidr="")
    assert "20000 at most; BIG is the longest: put what it holds into a file of your code" in str(caught.value)


def test_an_environment_that_just_fits_is_taken(checkout: Checkout) -> None:
    """The limit itself is allowed, one character more is not."""
    plan = checkout.plan()
    given = oci_requests.node_environment(plan, code_uri="", subnet_cidr="")
    left = 20_000 - 100 - sum(len(name) + len(text) for name, text in given.items())
    plan["environment"] |= {"BIG": "x" * (left - 3)}
    oci_requests.node_environment(plan, code_uri="", subnet_cidr="")
    plan["environment"] |= {"BIG": "x" * (left - 2)}
    with pytest.raises(SettingsError, match="20001 characters"):
        oci_requests.node_environment(plan, code_uri="", subnet_cidr="")


def test_code_is_named_by_what_is_in_it(checkout: Checkout, tmp_path: Path) -> None:
    """The archive's address holds its digest, which the nodes check."""
    uri, archive = oci_requests.code_of(checkout.plan(WORK_DIR="oci://bucket@ns/work/"), tmp_path)
    assert archive == tmp_path / "code.tar.gz"
    digest = uri.partition("#sha256=")[2]
    assert uri == f"oci://bucket@ns/work/code/{digest}.tar.gz#sha256={digest}"


@pytest.mark.parametrize(
    ("given", "uri"), [("image", ""), ("git+https://example.org/r@main", "git+https://example.org/r@main")]
)
def test_code_from_elsewhere_is_not_packed(checkout: Checkout, tmp_path: Path, given: str, uri: str) -> None:
    """CODE_URI is passed on; `image` means that the code is in the image."""
    assert oci_requests.code_of(checkout.plan(CODE_URI=given), tmp_path) == (uri, None)


def test_a_kept_cluster_without_code_sends_none(checkout: Checkout, tmp_path: Path) -> None:
    """Where nothing was named there is nothing to pack."""
    assert oci_requests.code_of(checkout.plan(EPHEMERAL="0"), tmp_path) == ("", None)


# --- Bodies ---------------------------------------------------------------------------------------------------------

TAGS = {
    "oci-cluster": "plain-1f2e",
    "oci-cluster-launch": "1f2e3d4c",
    "oci-cluster-framework": "plain",
    "oci-cluster-project": "my project",
    "oci-cluster-owner": "somebody",
    "oci-cluster-expires": "never",
}


def test_the_job_of_a_cluster_of_runs(checkout: Checkout) -> None:
    """The least that is sent: no subnet, no logs, no mounts, no end."""
    plan = checkout.plan()
    job, _ = bodies(checkout, plan)
    assert job == {
        "compartmentId": COMPARTMENT,
        "projectId": PROJECT,
        "displayName": "plain-1f2e",
        "freeformTags": TAGS,
        "jobConfigurationDetails": {
            "jobType": "DEFAULT",
            "environmentVariables": oci_requests.node_environment(
                plan, code_uri="oci://b@n/c#sha256=1", subnet_cidr="10.0.0.0/24"
            ),
        },
        "jobInfrastructureConfigurationDetails": {
            "jobInfrastructureType": "ME_STANDALONE",
            "shapeName": "VM.Standard.E4.Flex",
            "jobShapeConfigDetails": {"ocpus": 4, "memoryInGBs": 64},
            "blockStorageSizeInGBs": 100,
        },
        "jobEnvironmentConfigurationDetails": {"jobEnvironmentType": "OCIR_CONTAINER", "image": IMAGE},
    }


EVERYTHING = {
    "IMAGE": f"{IMAGE}@{DIGEST}",
    "SUBNET_OCID": SUBNET,
    "CAPACITY_RESERVATION_OCID": RESERVATION,
    "LOG_GROUP_OCID": GROUP,
    "LOG_OCID": LOG,
    "STORAGE_MOUNTS": "data=oci://data@ns",
    "TTL": "1h",
    "OCPUS": "0",
    "MEMORY_GBS": "0",
    "SHAPE": "VM.GPU.A10.1",
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
    job, _ = bodies(checkout, **EVERYTHING)
    environment = job["jobConfigurationDetails"].pop("environmentVariables")
    assert environment["TTL"] == "1h"
    assert job == {
        "compartmentId": COMPARTMENT,
        "projectId": PROJECT,
        "displayName": "plain-1f2e",
        "freeformTags": {**TAGS, "oci-cluster-expires": "2026-01-02T04:04:05Z"},
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
        "capacityReservationIds": [RESERVATION],
        "blockStorageSizeInGBs": 100,
    }
    probe = {
        "startupProbeDetails": {
            "jobProbeCheckType": "EXEC",
            "command": ["/bin/sh", "-c", 'test -d "${TMPDIR:-/tmp}/1f2e3d4c-MAIN"'],
            "periodInSeconds": 2,
            "failureThreshold": 31,
            "initialDelayInSeconds": 0,
        }
    }
    groups = [
        {
            "name": name,
            "replicas": replicas,
            "minimumSuccessReplicas": least,
            "jobConfigurationDetails": {
                "jobType": "DEFAULT",
                "environmentVariables": {**given, "MODE": mode},
                **(probe if mode == "MAIN" else {}),
            },
            "jobInfrastructureConfigurationDetails": infrastructure,
            "jobEnvironmentConfigurationDetails": CONTAINER,
        }
        for name, mode, replicas, least in (("main", "MAIN", 1, 1), ("worker", "WORKER", 3, 1), ("ps", "PS", 2, 2))
    ]
    assert job == {
        "compartmentId": COMPARTMENT,
        "projectId": PROJECT,
        "displayName": "plain-1f2e",
        "freeformTags": tags,
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
    job, _ = bodies(checkout, OCI_JOB_STYLE="multinode")
    details = job["jobNodeConfigurationDetails"]
    assert details["jobNetworkConfiguration"] == {"jobNetworkType": "DEFAULT_NETWORK"}
    assert "maximumRuntimeInMinutes" not in details
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
    job, runs = bodies(checkout, OCI_JOB_STYLE=style, PS_COUNT="1", **{**EVERYTHING, "OCPUS": "1", "MEMORY_GBS": "8"})
    assert unknown_fields({**job, "typo": 1}, "CreateJobDetails") == [".typo"]
    assert unknown_fields(job, "CreateJobDetails") == []
    for run in runs.values():
        assert unknown_fields(run, "CreateJobRunDetails") == []


@pytest.mark.parametrize("style", ["runs", "multinode"])
@pytest.mark.parametrize("text", HOSTILE)
def test_what_people_write_comes_through_unharmed(checkout: Checkout, text: str, style: str) -> None:
    """Quotes, line ends, templates' own signs and every script's letters are data in every place of a body."""
    plan = checkout.plan(OCI_JOB_STYLE=style, arguments=(text,))
    plan |= {"name": text, "framework": text, "project": text}
    (checkout.root / "plain" / "settings.env").write_text("")
    plan["environment"] |= {"SOME_TEXT": text}
    checked = oci_requests.settings_of(plan, checkout.root) | {"shape": text}
    job = oci_requests.job(plan, checked, plan["environment"], checkout.root)
    assert (job["displayName"], job["freeformTags"]["oci-cluster"], job["freeformTags"]["oci-cluster-project"]) == (
        text,
    ) * 3
    if style == "multinode":
        job = job["jobNodeConfigurationDetails"]["jobNodeGroupConfigurationDetailsList"][1]
    environment = job["jobConfigurationDetails"]["environmentVariables"]
    assert environment["SOME_TEXT"] == text
    assert json.loads(environment["ARGS"]) == [text]
    assert job["jobInfrastructureConfigurationDetails"]["shapeName"] == text
    runs = oci_requests.job_runs(plan, checked, checkout.root, text)
    assert runs["MAIN"].get("jobId", "") == text


@pytest.mark.parametrize("name", ["shape", "log_group", "mounts", "max_runtime_minutes"])
def test_a_value_that_is_missing_is_no_empty_text(checkout: Checkout, name: str) -> None:
    """A template that asks for what nobody gives fails, also where it only asks whether, and names the file."""
    plan = checkout.plan()
    checked = oci_requests.settings_of(plan, checkout.root)
    del checked[name]
    with pytest.raises(SettingsError, match=r"scripts/templates/job\.json\.j2 makes no JSON: .*[Uu]ndefined"):
        oci_requests.job(plan, checked, {}, checkout.root)


@pytest.mark.parametrize("text", ["{ no JSON", "[1]", "{{ 1", "", '{"a": {{ name }} }'])
def test_a_template_that_was_spoiled_is_named(checkout: Checkout, tmp_path: Path, text: str) -> None:
    """Templates are there to be changed: what comes out must be a JSON object."""
    templates = tmp_path / "other" / "scripts" / "templates"
    templates.mkdir(parents=True)
    (templates / "job.json.j2").write_text(text)
    plan = checkout.plan()
    with pytest.raises(SettingsError, match=r"scripts/templates/job\.json\.j2 makes no JSON: "):
        oci_requests.job(plan, oci_requests.settings_of(plan, checkout.root), {}, tmp_path / "other")


def test_an_owner_without_a_name_is_unknown(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container a user id may have no name; a long one is cut."""
    monkeypatch.setattr(oci_requests.getpass, "getuser", lambda: "x" * 300)
    assert oci_requests.tags_of(checkout.plan())["oci-cluster-owner"] == "x" * 100

    def nobody() -> str:
        raise KeyError(1234)

    monkeypatch.setattr(oci_requests.getpass, "getuser", nobody)
    assert oci_requests.tags_of(checkout.plan())["oci-cluster-owner"] == "unknown"


# --- The words of oci-cli -------------------------------------------------------------------------------------------


def words_of(body: dict[str, Any]) -> list[str]:
    """Return the options that what --from-json takes stands for."""
    return [word for name, text in oci_requests.cli_input(body).items() for word in (option_of(name), text)]


def test_every_parameter_is_a_text(checkout: Checkout) -> None:
    """Texts are themselves, all else is JSON; fields that oci-cli has renamed have its name."""
    job, runs = bodies(checkout, **EVERYTHING)
    given = oci_requests.cli_input(job)
    assert list(given.items())[:2] == [("compartmentId", COMPARTMENT), ("projectId", PROJECT)]
    assert all(isinstance(text, str) for text in given.values())
    assert body_of(words_of(job)) == job
    run = runs["WORKER_1"]
    words = words_of(run)
    assert words[:2] == ["--job-id", "ocid1.job"]
    assert body_of(words[2:]) == {name: value for name, value in run.items() if name != "jobId"}


@pytest.mark.parametrize("what", ["job", "job-run"])
def test_oci_cli_has_every_option(checkout: Checkout, what: str) -> None:
    """The genuine oci-cli is asked: an option that it does not have would end every launch."""
    program = Path(sys.executable).with_name("oci")
    shown = subprocess.run(
        [program, "data-science", what, "create", "--help"], check=True, capture_output=True, text=True
    ).stdout
    words = set()
    for style in ("runs", "multinode"):
        job, runs = bodies(checkout, OCI_JOB_STYLE=style, **EVERYTHING)
        words |= set(words_of(job if what == "job" else runs["MAIN"])[::2])
    assert len(words) > 4
    assert sorted(word for word in words if f"{word} " not in shown and f"{word},{' '}" not in shown) == []


STUB_OCI = """#!/bin/sh
{ printf '%s\\0' "$@"; printf '\\0'; } >>"$CALLS"
[ "$2 $3" != "job create" ] || echo ocid1.created
"""


def sent(place: Path, script: str, shell: str = "/bin/sh") -> list[list[str]]:
    """Run *script* where `oci` only notes what it is asked; return that."""
    (place / "bin").mkdir(exist_ok=True)
    (place / "bin" / "oci").write_text(STUB_OCI)
    (place / "bin" / "oci").chmod(0o755)
    calls = place / "calls"
    calls.unlink(missing_ok=True)
    environ = {"PATH": f"{place}/bin:/usr/bin:/bin", "CALLS": str(calls)}
    done = subprocess.run(
        [shell, "-eu"], input=script, env=environ, cwd=place, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return [call.split("\0") for call in calls.read_bytes().decode().removesuffix("\0\0").split("\0\0")]


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
@pytest.mark.parametrize("style", ["runs", "multinode"])
@pytest.mark.parametrize("text", HOSTILE[:-1])
def test_a_dry_run_is_a_script_that_sends_the_same(
    checkout: Checkout, tmp_path: Path, text: str, style: str, shell: str
) -> None:
    """Run in a shell, it asks oci-cli for exactly the bodies that a launch sends, whatever people have written."""
    plan = checkout.plan(OCI_JOB_STYLE=style, SUBNET_OCID=SUBNET, arguments=(text,))
    plan["environment"] |= {"SOME_TEXT": text}
    plan["name"] = text
    found = json.loads(oci_requests.check(plan, checkout.root, as_json=True))
    job, *runs = sent(tmp_path, oci_requests.check(plan, checkout.root), shell)
    assert job[:3] == ["data-science", "job", "create"]
    assert job[-3:] == ["--query", "data.id", "--raw-output"]
    assert body_of(job[3:-3]) == found["job"]
    assert len(runs) == len(found["job_runs"]) == (3 if style == "runs" else 1)
    for run, body in zip(runs, found["job_runs"], strict=True):
        assert run[:3] == ["data-science", "job-run", "create"]
        assert run[-2:] == ["--job-id", "ocid1.created"]
        assert body_of(run[3:-2]) == body


def test_a_dry_run_tells_what_a_launch_adds(checkout: Checkout) -> None:
    """Where the code will be, and that the subnet's addresses are looked up: nothing has been asked or sent."""
    plan = checkout.plan(SUBNET_OCID=SUBNET)
    lines = oci_requests.check(plan, checkout.root).splitlines()
    assert lines[0] == "# What a launch sends, as commands of oci-cli. Nothing has been sent."
    assert lines[1] == f"# SUBNET_CIDR will be added to the Job's environment: the addresses of {SUBNET}."
    assert lines[2].startswith(f"# The code in {checkout.root}/plain/example will be at oci://bucket@ns/work/code/")
    plan = checkout.plan(SUBNET_OCID=SUBNET, SUBNET_CIDR="10.0.0.0/24", CODE_URI="image")
    found = json.loads(oci_requests.check(plan, checkout.root, as_json=True))
    assert found["notes"] == []
    assert found["job"]["jobConfigurationDetails"]["environmentVariables"]["SUBNET_CIDR"] == "10.0.0.0/24"


def test_a_folder_of_code_cannot_speak_in_a_dry_run(checkout: Checkout, tmp_path: Path) -> None:
    """A note is a comment to its end: the name of a folder is no command."""
    folder = tmp_path / "code\ntouch spoiled\n#"
    folder.mkdir()
    (folder / "train.py").touch()
    plan = checkout.plan(ENTRY_POINT=str(folder / "train.py"), CODE_DIR=str(folder))
    assert len(sent(tmp_path, oci_requests.check(plan, checkout.root))) == 4
    assert not (tmp_path / "spoiled").exists()


def test_a_check_refuses_what_a_launch_would(checkout: Checkout) -> None:
    """Bad settings end the dry run too."""
    with pytest.raises(SettingsError, match="IMAGE is not set"):
        oci_requests.check(checkout.plan(IMAGE=""), checkout.root)


def test_every_setting_of_the_backend_has_a_default() -> None:
    """What stands in a plan's settings is what oci.env lists: one that is missing there could not be set at all."""
    listed = set(read_settings_file(ROOT / "scripts" / "backends" / "oci.env"))
    read = set(re.findall(r'read\.value\(\s*"([A-Z_]+)"', Path(oci_requests.__file__).read_text()))
    assert read - listed == set()
    assert listed - read == {"SUBNET_CIDR"}


def test_what_was_pushed_from_here_is_what_nodes_run(checkout: Checkout) -> None:
    """By its digest, and without a setting."""
    image = "iad.ocir.io/ns/plain:1"
    image_records.write(
        "plain", checkout.root, {"image": image, "id": "sha256:1", "digest": DIGEST, "built": "2026-01-02T03:04:05Z"}
    )
    found = settings(checkout, IMAGE="")
    assert (found["image"], found["image_digest"]) == (image, DIGEST)
