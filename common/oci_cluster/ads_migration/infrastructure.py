"""`spec.infrastructure`: where the Job goes, and its machines."""

from __future__ import annotations

import json
import re

from oci_cluster.ads_migration.conversion import Conversion, Kind
from oci_cluster.ads_migration.fields import Field

# Settings that take a field's text as it is.
_SAME = {
    "projectId": "PROJECT_OCID",
    "compartmentId": "COMPARTMENT_OCID",
    "logGroupId": "LOG_GROUP_OCID",
    "logId": "LOG_OCID",
    "subnetId": "SUBNET_OCID",
    "shapeName": "SHAPE",
}
# As BACKEND=oci takes them, see backends/oci/settings.py.
_MOUNT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MOUNT = re.compile(r"oci://[^@/\s]+@\S+|(?P<target>ocid1\.mounttarget[^:\s]*):(?P<export>ocid1\.export[^:\s]*)")
_LEAST_STORAGE, _MOST_STORAGE = 50, 10240


def convert_infrastructure(found: Conversion, infrastructure: Field) -> None:
    """Take `spec.infrastructure`."""
    outer = found.open(infrastructure, "kind", "type", "apiVersion", "spec")
    if "type" in outer and outer["type"].text() != "dataScienceJob":
        found.lose(outer["type"], "clusters run as Jobs of OCI Data Science: dataScienceJob")
    if "spec" not in outer:
        return
    fields = found.open(outer["spec"], *_SAME, *_TAKEN, "displayName")
    for name, setting in _SAME.items():
        if name in fields:
            found.set(setting, fields[name].text().strip(), fields[name])
    for name, take in _TAKEN.items():
        if name in fields:
            take(found, fields[name])


def display_name(infrastructure: Field | None) -> Field | None:
    """Return the Job's name, if *infrastructure* has one."""
    spec = infrastructure.mapping().get("spec") if infrastructure else None
    return spec.mapping().get("displayName") if spec else None


def take_freeform_tags(found: Conversion, tags: Field) -> None:
    """Take tags of the user's own."""
    found.set("FREEFORM_TAGS", json.dumps({name: tag.text() for name, tag in tags.mapping().items()}), tags)


def take_defined_tags(found: Conversion, spaces: Field) -> None:
    """Take tags of the tenancy's namespaces."""
    given = {
        space: {name: tag.text() for name, tag in tags.mapping().items()} for space, tags in spaces.mapping().items()
    }
    found.set("DEFINED_TAGS", json.dumps(given), spaces)


def _take_size(found: Conversion, size: Field) -> None:
    shape = found.settings.get("SHAPE", "")
    settings = {"ocpus": "OCPUS", "memoryInGBs": "MEMORY_GBS"}
    for name, part in found.open(size, *settings).items():
        if shape and not shape.endswith(".Flex"):
            found.note(Kind.NO_NEED, part, f"{shape} has a size of its own")
        else:
            found.set(settings[name], part.text(), part)


def _take_storage(found: Conversion, storage: Field) -> None:
    text = storage.text()
    if text.isdecimal() and _LEAST_STORAGE <= int(text) <= _MOST_STORAGE:
        found.set("STORAGE_GBS", text, storage)
    else:
        found.lose(storage, f"a node's storage is a whole number from {_LEAST_STORAGE} to {_MOST_STORAGE} GB")


def _take_job_type(found: Conversion, kind: Field) -> None:
    if kind.text() == "DEFAULT":
        found.note(Kind.NO_NEED, kind, "each Job that is launched is one")
    else:
        found.lose(kind, "Jobs of the type DEFAULT are launched alone")


def _take_kind(found: Conversion, kind: Field) -> None:
    text = kind.text()
    if text == "ME_STANDALONE":
        # Without a subnet each run has a network of its own, in which main cannot be reached.
        found.set("OCI_JOB_STYLE", "multinode", kind)
        found.note(Kind.CHANGED, kind, "without a subnet nodes reach each other only as node groups of one run")
    elif text == "STANDALONE":
        found.note(Kind.NO_NEED, kind, "follows from SUBNET_OCID")
    else:
        found.lose(kind, "STANDALONE (with a subnet) or ME_STANDALONE (without one) are launched alone")


def _take_mounts(found: Conversion, mounts: Field) -> None:
    words: list[str] = []
    for mount in mounts.items():
        fields = found.open(mount, "src", "dest")
        if set(fields) != {"src", "dest"}:
            found.lose(mount, "a mount has src and dest")
            continue
        name = fields["dest"].text().removeprefix("/mnt/").strip("/")
        source = _MOUNT.fullmatch(fields["src"].text())
        if not _MOUNT_NAME.fullmatch(name):
            found.lose(fields["dest"], "nodes have mounts as /mnt/<name>, a name of letters, digits, _ and -")
        elif source is None:
            why = "give the OCIDs of mount target and export: STORAGE_MOUNTS='<name>=fss:<mount target>:<export>'"
            found.lose(fields["src"], why)
        else:
            what = f"fss:{source['target']}:{source['export']}" if source["target"] else source[0]
            words.append(f"{name}={what}")
    found.set("STORAGE_MOUNTS", " ".join(words), mounts)


_TAKEN = {
    "shapeConfigDetails": _take_size,
    "blockStorageSize": _take_storage,
    "jobType": _take_job_type,
    "jobInfrastructureType": _take_kind,
    "storageMount": _take_mounts,
    "freeformTags": take_freeform_tags,
    "definedTags": take_defined_tags,
}
