"""What a tenancy and the service ask of a Job besides its models: tags, shapes, mounts."""

from __future__ import annotations

from collections.abc import Sequence

from oci_service.resources import JSON, Refusal, invalid

_MOST_MOUNTS = 5
_MOST_FREEFORM, _MOST_DEFINED = 10, 64
_LONGEST_KEY, _LONGEST_VALUE = 100, 256
#: Operations that make what has tags, besides Jobs and their runs.
TAGGED = {
    "create_bucket",
    "create_container_repository",
    "create_dynamic_group",
    "create_group",
    "create_log",
    "create_log_group",
    "create_policy",
    "create_security_list",
}


def check_job(body: JSON, required_tags: Sequence[str]) -> None:
    """Refuse a Job that cannot have its tags, or its mounts."""
    check_tags(body, required_tags)
    check_mounts(body)


def check_tags(body: JSON, required: Sequence[str]) -> None:
    """Refuse too many or too long tags, and a *body* that lacks a *required* one, such as ``Operations.CostCenter``."""
    freeform = body.get("freeformTags") or {}
    defined = {
        f"{namespace}.{key}": value
        for namespace, tags in (body.get("definedTags") or {}).items()
        for key, value in tags.items()
    }
    for name, tags, limit in (("freeformTags", freeform, _MOST_FREEFORM), ("definedTags", defined, _MOST_DEFINED)):
        if len(tags) > limit:
            raise invalid(f"{name} has {len(tags)} tags; {limit} are allowed")
        for key, value in tags.items():
            if len(key.rpartition(".")[2]) > _LONGEST_KEY or len(str(value)) > _LONGEST_VALUE:
                raise invalid(f"{name}.{key} is too long")
    there = {name.lower() for name in defined}  # source: OCI's documentation of tags: keys have no case
    if missing := [name for name in required if name.lower() not in there]:
        raise Refusal(400, "TagRequired", f"These tags are required in this compartment: {', '.join(missing)}")


def check_shape(infrastructure: JSON, prefix: str) -> None:
    """Refuse a flexible shape without a size, and a size for any other shape."""
    shape, size = infrastructure.get("shapeName"), infrastructure.get("jobShapeConfigDetails")
    if shape is not None and shape.endswith(".Flex") and not size:
        raise invalid(f"{prefix}jobShapeConfigDetails is required for the flexible shape {shape}")
    if shape is not None and not shape.endswith(".Flex") and size:
        raise invalid(f"{prefix}jobShapeConfigDetails is for flexible shapes; {shape} is none")


def check_mounts(body: JSON) -> None:
    """Refuse too many mounts, two of one name, and a file system where there is no subnet."""
    mounts = body.get("jobStorageMountConfigurationDetailsList") or []
    if len(mounts) > _MOST_MOUNTS:
        raise invalid(f"jobStorageMountConfigurationDetailsList has {len(mounts)} mounts; {_MOST_MOUNTS} are allowed")
    names = [mount["destinationDirectoryName"] for mount in mounts]
    if len(set(names)) < len(names):
        raise invalid("destinationDirectoryName of two mounts is the same")
    network = (body.get("jobNodeConfigurationDetails") or {}).get("jobNetworkConfiguration") or {}
    subnet = (body.get("jobInfrastructureConfigurationDetails") or {}).get("subnetId") or network.get("subnetId")
    if not subnet and any(mount["storageType"] == "FILE_STORAGE" for mount in mounts):
        raise invalid("FILE_STORAGE can be mounted in a custom network alone")
