"""The backend's settings: what is wrong is named at once, and before anybody is asked."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from secret_rows import PLAIN, SECRETS
from unit.backends.oci.bodies import DIGEST, GROUP, LOG, RESERVATION, SIGNATURE
from unit.backends.oci.read_settings import problem, settings
from unit.fake_oci import COMPARTMENT, IMAGE, PROJECT, ROOT, SUBNET, Checkout, with_environment

from oci_cluster.backends.oci import settings as oci_settings
from oci_cluster.backends.oci.settings import Jump
from oci_cluster.contract.settings.settings_files import read_settings_file
from oci_cluster.errors import SettingsError
from oci_cluster.images import records as image_records

BASTION = "ocid1.bastion.oc1.iad.aaaabastion"

# --- Settings -------------------------------------------------------------------------------------------------------


def test_the_least_that_makes_a_launch_gets_the_backends_defaults(checkout: Checkout) -> None:
    """Compartment, project, image, subnet and work dir are enough; all else has the default of oci.env."""
    assert settings(checkout) == {
        "compartment": COMPARTMENT,
        "project": PROJECT,
        "image": IMAGE,
        "image_digest": "",
        "image_signature": "",
        "description": "",
        "tags_given": {"freeform": {}, "defined": {}},
        "subnet": SUBNET,
        "machines": {
            role: {"shape": "VM.Standard.E4.Flex", "ocpus": 4, "memory_gbs": 64} for role in ("MAIN", "WORKER", "PS")
        },
        "storage_gbs": 100,
        "capacity_reservation": "",
        "log_group": "",
        "log": "",
        "mounts": [],
        "max_runtime_minutes": 1450,
        "style": "runs",
        "node_logs": True,
        "bastion": "",
        "bastion_host_key": "",
        "jump": Jump("", "", 0),
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
        ("IMAGE_SIGNATURE_ID", SIGNATURE, "image_signature", SIGNATURE),
        ("DESCRIPTION", "every night", "description", "every night"),
        ("BASTION_ID", BASTION, "bastion", BASTION),
        ("BASTION_HOST_KEY", "ssh-ed25519 AAAAC3Nz", "bastion_host_key", "ssh-ed25519 AAAAC3Nz"),
        ("SSH_JUMP", "me@jump.example.com:2222", "jump", Jump("me", "jump.example.com", 2222)),
        ("SSH_JUMP", "jump", "jump", Jump("", "jump", 0)),
        ("SSH_JUMP", "[fd00::1]:22", "jump", Jump("", "fd00::1", 22)),
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
    found = settings(checkout, OCPUS=text, MEMORY_GBS=text)["machines"]["WORKER"]
    assert (found["ocpus"], found["memory_gbs"]) == (value, value)
    assert type(found["ocpus"]) is type(value)


@pytest.mark.parametrize("given", [{}, {"OCPUS": "0", "MEMORY_GBS": "0"}])
def test_a_shape_of_its_own_has_neither(checkout: Checkout, given: dict[str, str]) -> None:
    """0 is none, too."""
    found = settings(checkout, SHAPE="VM.GPU.A10.1", **given)["machines"]["MAIN"]
    assert found == {"shape": "VM.GPU.A10.1", "ocpus": 0, "memory_gbs": 0}


@pytest.mark.parametrize(
    ("given", "machines"),
    [
        ({"MAIN_SHAPE": "VM.GPU.A10.1"}, {"MAIN": ("VM.GPU.A10.1", 0, 0)}),
        ({"MAIN_OCPUS": "1", "OCPUS": "8"}, {"MAIN": ("VM.Standard.E4.Flex", 1, 64)}),
        ({"WORKER_SHAPE": "VM.Standard.E5.Flex", "OCPUS": "8"}, {"WORKER": ("VM.Standard.E5.Flex", 8, 64)}),
        ({"SHAPE": "VM.GPU.A10.1", "PS_SHAPE": "VM.Standard3.Flex"}, {"PS": ("VM.Standard3.Flex", 4, 64)}),
    ],
)
def test_a_role_may_have_a_machine_of_its_own(
    checkout: Checkout, given: dict[str, str], machines: dict[str, tuple[str, int, int]]
) -> None:
    """What its settings do not say is as for all; the others have what all have."""
    found = settings(checkout, **given)["machines"]
    for role, (shape, ocpus, memory) in machines.items():
        assert found.pop(role) == {"shape": shape, "ocpus": ocpus, "memory_gbs": memory}
    all_shape = given.get("SHAPE", "VM.Standard.E4.Flex")
    assert {machine["shape"] for machine in found.values()} == {all_shape}


OF_ITS_OWN = "has a size of its own; leave {0} out, or choose a flexible {1}, whose name ends in .Flex"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"SHAPE": "VM.GPU.A10.1", "OCPUS": "4"}, "OCPUS: VM.GPU.A10.1 " + OF_ITS_OWN.format("OCPUS", "SHAPE")),
        (
            {"SHAPE": "BM.GPU4.8", "MEMORY_GBS": "8"},
            "MEMORY_GBS: BM.GPU4.8 " + OF_ITS_OWN.format("MEMORY_GBS", "SHAPE"),
        ),
        (
            {"WORKER_SHAPE": "VM.GPU.A10.1", "WORKER_OCPUS": "4"},
            "WORKER_OCPUS: VM.GPU.A10.1 " + OF_ITS_OWN.format("WORKER_OCPUS", "WORKER_SHAPE"),
        ),
        (
            {"OCPUS": "0"},
            (
                "OCPUS: 0 is not possible for VM.Standard.E4.Flex, whose size is chosen, as its name ends in .Flex; "
                "say how much, or leave it out for 4"
            ),
        ),
        (
            {"MEMORY_GBS": "8", "MAIN_MEMORY_GBS": "0"},
            (
                "MAIN_MEMORY_GBS: 0 is not possible for VM.Standard.E4.Flex, whose size is chosen, as its name ends in "
                ".Flex; say how much, or leave it out for 8"
            ),
        ),
        ({"SHAPE": "a shape"}, "SHAPE: 'a shape' is not a shape's name, such as VM.Standard.E4.Flex or VM.GPU.A10.1"),
        ({"PS_SHAPE": "/x"}, "PS_SHAPE: '/x' is not a shape's name, such as VM.Standard.E4.Flex or VM.GPU.A10.1"),
    ],
)
def test_a_machine_that_cannot_be_is_named(checkout: Checkout, given: dict[str, str], why: str) -> None:
    """Before anything is sent: the service would say so when the image is pushed and the code is there."""
    assert problem(checkout, **given) == why


NO_SUBNET = (
    "SUBNET_OCID is not set, and without a subnet the 3 nodes cannot reach each other: set it to a regional private "
    "subnet (docs/oci.md), or OCI_JOB_STYLE=multinode, whose nodes share a network of the service"
)
FSS = "fss:ocid1.mounttarget.oc1.iad.x:ocid1.export.oc1.iad.y"
NO_FILE_SYSTEM = (
    "STORAGE_MOUNTS: d, e is reached in a subnet alone, as every file system is: set SUBNET_OCID; it needs the policy "
    "'allow service datascience to use file-family in compartment <of the file system>', too"
)


def test_nodes_that_cannot_reach_each_other_are_refused(checkout: Checkout) -> None:
    """By name, with both ways out; what needs a subnet for itself is named with it."""
    assert problem(checkout, SUBNET_OCID="") == NO_SUBNET
    mounts = {"STORAGE_MOUNTS": f"a=oci://b@n d={FSS} e={FSS}", "SUBNET_OCID": ""}
    assert problem(checkout, **mounts) == f"{NO_SUBNET}; {NO_FILE_SYSTEM}"
    assert problem(checkout, **mounts, OCI_JOB_STYLE="multinode") == NO_FILE_SYSTEM
    assert settings(checkout, SUBNET_OCID="", OCI_JOB_STYLE="multinode")["subnet"] == ""


def test_reserved_hosts_are_for_single_runs(checkout: Checkout) -> None:
    told = "a run of several nodes gets no reserved hosts; set OCI_JOB_STYLE=runs, or leave it out"
    given = {"CAPACITY_RESERVATION_OCID": RESERVATION, "OCI_JOB_STYLE": "multinode"}
    assert problem(checkout, **given) == f"CAPACITY_RESERVATION_OCID: {told}"


def test_a_cluster_that_adapts_starts_its_nodes_one_by_one(checkout: Checkout) -> None:
    """With multinode the service starts them; and one node that may become three needs a subnet, too."""
    assert problem(checkout, ADAPT="1:2", OCI_JOB_STYLE="multinode") == (
        "ADAPT=1:2 needs OCI_JOB_STYLE=runs: with multinode the service starts all nodes, and none is added"
    )
    assert settings(checkout, ADAPT="1:2")["style"] == "runs"
    assert problem(checkout, ADAPT="1:8", SUBNET_OCID="") == NO_SUBNET.replace("the 3 nodes", "the 9 nodes")


def test_five_mounts_are_the_most(checkout: Checkout) -> None:
    words = [f"m{number}=oci://b@n" for number in range(6)]
    assert len(settings(checkout, STORAGE_MOUNTS=" ".join(words[:5]))["mounts"]) == 5
    why = "STORAGE_MOUNTS: 6 mounts are more than 5, which is all that OCI allows; leave m5=oci://b@n out"
    assert problem(checkout, STORAGE_MOUNTS=" ".join(words)) == why


def test_two_mounts_of_one_name_are_refused(checkout: Checkout) -> None:
    why = "STORAGE_MOUNTS: 'a=oci://c@n' is the second one called a; each needs a name of its own below /mnt"
    assert problem(checkout, STORAGE_MOUNTS="a=oci://b@n a=oci://c@n") == why


# --- What is wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        *(
            (name, "ocid1.x", f"{name}: 'ocid1.x' is not an OCID such as ocid1.compartment.oc1..aaaa")
            for name in ("COMPARTMENT_OCID", "PROJECT_OCID", "SUBNET_OCID", "LOG_GROUP_OCID", "IMAGE_SIGNATURE_ID")
        ),
        ("COMPARTMENT_OCID", "", "COMPARTMENT_OCID is not set"),
        ("PROJECT_OCID", "", "PROJECT_OCID is not set"),
        (
            *("IMAGE", ""),
            "IMAGE is not set, and no image of plain was pushed from here; make push-plain REGISTRY=<registry>",
        ),
        *(
            ("IMAGE", text, f"IMAGE: '{text}' is not an image with a tag, such as iad.ocir.io/<namespace>/dask:1")
            for text in ("dask:1", "a.b/c/dask", "a.b/c/dask:", "a.b/c/Dask:1", f"a/b@{DIGEST}", "a/b:1@sha256:12")
        ),
        ("STORAGE_GBS", "49", "STORAGE_GBS: '49' is not a whole number from 50 to 10240"),
        ("STORAGE_GBS", "10241", "STORAGE_GBS: '10241' is not a whole number from 50 to 10240"),
        ("LOG_OCID", LOG, "LOG_OCID is set without LOG_GROUP_OCID, the group that it is in"),
        ("OCI_JOB_STYLE", "pods", "OCI_JOB_STYLE: 'pods' is neither runs nor multinode"),
        ("NODE_LOGS", "perhaps", "NODE_LOGS: 'perhaps' is neither 1 nor 0"),
        ("WORK_DIR", "", "WORK_DIR is not set; make a bucket and set oci://<bucket>@<namespace>/<folder>"),
        ("WORK_DIR", "memory://x", "WORK_DIR: nodes on OCI cannot reach memory://x; set oci://<bucket>@<namespace>/<folder>"),
        ("WORK_DIR", "file:///x", "WORK_DIR: nodes on OCI cannot reach file:///x; set oci://<bucket>@<namespace>/<folder>"),
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
    """Nobody fixes one setting after the other."""
    bad = {"COMPARTMENT_OCID": "", "IMAGE": "x", "STORAGE_GBS": "x", "MAX_RUNTIME": "soon", "STORAGE_MOUNTS": "x"}
    bad |= {
        "FREEFORM_TAGS": "x",
        "DEFINED_TAGS": "x",
        "WORKER_OCPUS": "x",
        "IMAGE_SIGNATURE_ID": "x",
        "SUBNET_OCID": "",
    }
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


def test_secrets_do_not_go_into_the_definition(checkout: Checkout) -> None:
    """All who may look at a Job can read its environment: a secret is named, and its value not shown."""
    for name, text in SECRETS:
        plan = with_environment(checkout.plan(), **{name: text})
        with pytest.raises(
            SettingsError, match=rf"bad settings: everybody .* would see {name}; .*--env-plain"
        ) as caught:
            oci_settings.settings_of(plan, checkout.root)
        assert text not in str(caught.value)
        oci_settings.settings_of(replace(plan, plain=frozenset({name})), checkout.root)
    for name, text in PLAIN:
        oci_settings.settings_of(with_environment(checkout.plan(), **{name: text}), checkout.root)


def test_a_password_in_a_url_does_not_go_into_the_definition(checkout: Checkout) -> None:
    """Wherever it stands; for code there is another way."""
    plan = with_environment(checkout.plan(), ARGS='["--db", "postgresql://me:hunter2@db/x"]', OTHER="https://db/x")
    with pytest.raises(SettingsError) as caught:
        oci_settings.settings_of(plan, checkout.root)
    assert "everybody who may read the Job would see ARGS (--db); put the secret into OCI Vault" in str(caught.value)
    plan = replace(checkout.plan(), code_uri="git+https://hunter2@host/r@main")
    with pytest.raises(SettingsError) as caught:
        oci_settings.settings_of(plan, checkout.root)
    assert "everybody who may read the Job would see CODE_URI; put the secret into OCI Vault" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_what_somebody_calls_plain_is_sent(checkout: Checkout) -> None:
    """A false alarm is one option away, which the refusal names."""
    plan = with_environment(checkout.plan(), CACHE_KEY="v1", ARGS='["--key", "k1"]')
    with pytest.raises(SettingsError, match=r"would see ARGS \(--key\), CACHE_KEY; .*--env-plain ARGS"):
        oci_settings.settings_of(plan, checkout.root)
    oci_settings.settings_of(replace(plan, plain=frozenset({"ARGS", "CACHE_KEY"})), checkout.root)


def test_every_setting_of_the_backend_has_a_default() -> None:
    """What stands in a plan's settings is what oci.env lists: one that is missing there could not be set at all."""
    listed = set(read_settings_file(ROOT / "scripts" / "backends" / "oci.env"))
    text = Path(oci_settings.__file__).read_text()
    read = set(re.findall(r'read\.(?:value|text)\(\s*"([A-Z_]+)"', text))
    every = {"SHAPE", "OCPUS", "MEMORY_GBS"}
    read |= every | {f"{role}_{name}" for role in ("MAIN", "WORKER", "PS") for name in every}
    assert read - listed == set()
    assert listed - read == {"PROVISION_TIMEOUT", "SUBNET_CIDR", "TTL"}


def test_what_was_pushed_from_here_is_what_nodes_run(checkout: Checkout) -> None:
    """By its digest, and without a setting."""
    image = "iad.ocir.io/ns/plain:1"
    image_records.write(
        "plain", checkout.root, {"image": image, "id": "sha256:1", "digest": DIGEST, "built": "2026-01-02T03:04:05Z"}
    )
    found = settings(checkout, IMAGE="")
    assert (found["image"], found["image_digest"]) == (image, DIGEST)
