"""What a tenancy needs, out of settings: where things are, what they are called, how long they are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from oci_cluster.backends.oci.needed import Needed, at
from oci_cluster.backends.oci.settings import BUCKET, OCID
from oci_cluster.contract.config import SettingsReader
from oci_cluster.contract.settings_table import SETTINGS
from oci_cluster.contract.tenancy_settings import TENANCY_SETTINGS
from oci_cluster.errors import SettingsError

_DEFAULTS = {row.name: row.default or "" for row in TENANCY_SETTINGS}
_REGISTRY = re.compile(r"[a-z0-9.-]+(:\d+)?/(?P<namespace>[a-z0-9_-]+)(/(?P<path>[a-z0-9._/-]+))?")
_IMAGE = re.compile(r"[a-z0-9.-]+(:\d+)?/[a-z0-9_-]+/(?P<repository>[a-z0-9._/{}-]+?)(:[A-Za-z0-9._-]+)?(@sha256:.*)?")
# What may stand in a statement between quotation marks: nothing that ends them, or begins another condition. A star is
# a pattern there.
_QUOTED = re.compile(r"[^'\"*{}\x00-\x1f]{1,255}")
# Source: OCI's documentation of groups: "letters, numerals, periods, hyphens, underscores, and plus signs". A domain
# may have blanks.
_GROUP = re.compile(r"((?P<domain>[A-Za-z0-9._+ -]{1,100})/)?(?P<name>[A-Za-z0-9._+-]{1,100})")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class Places:
    """Where to look: OCIDs, and the namespace of ``WORK_DIR``; empty is not known, or there is none."""

    jobs: str
    images: str
    network: str
    subnet: str
    log_group: str
    namespace: str


def places_of(given: Mapping[str, str]) -> Places:
    """Return the places that the settings *given* name; :func:`needed_of` checks them."""
    read = SettingsReader(given, _DEFAULTS)
    jobs = read.text("COMPARTMENT_OCID")
    work = BUCKET.fullmatch(read.text("WORK_DIR"))
    return Places(
        jobs=jobs,
        images=read.text("IMAGES_COMPARTMENT_OCID", jobs),
        network=read.text("NETWORK_COMPARTMENT_OCID", jobs),
        subnet=read.text("SUBNET_OCID"),
        log_group=read.text("LOG_GROUP_OCID"),
        namespace=work["namespace"] if work else "",
    )


def needed_of(given: Mapping[str, str], frameworks: Sequence[str], region: str) -> Needed:
    """Return what clusters of *frameworks* need by the settings *given*: a place is that of the Jobs, unless given.

    Whoever has asked where bucket, subnet and log group are says so with :func:`placed`.

    Raises:
        SettingsError: names every setting that is missing or wrong.
    """
    read = SettingsReader(given, _DEFAULTS)
    jobs = read.value("COMPARTMENT_OCID", _compartment) or ""
    images = read.value("IMAGES_COMPARTMENT_OCID", _compartment, jobs)
    network = read.value("NETWORK_COMPARTMENT_OCID", _compartment, jobs)
    work = read.value("WORK_DIR", _work_dir) or {"bucket": "", "prefix": ""}
    own_group = "" if read.text("LOG_GROUP_OCID") else read.value("LOG_GROUP_NAME", _log_group, "")
    found = Needed(
        jobs=at(jobs),
        network=at(network),
        images=at(images),
        bucket_in=at(jobs),
        logs=at(jobs) if own_group or read.text("LOG_GROUP_OCID") else "",
        people=read.value("PEOPLE_GROUP", _group) or "",
        nodes=read.value("NODES_GROUP", _group) or "",
        bucket=work["bucket"],
        prefix=work["prefix"],
        repositories=_repositories(read, frameworks),
        region=region,
        keep_days=read.value("KEEP_CLUSTERS_DAYS", SETTINGS["KEEP_CLUSTERS_DAYS"].parse, 0),
        makes_logs=not read.text("LOG_OCID"),
        policy=read.value("POLICY_NAME", _name) or "",
        log_group=own_group,
    )
    if read.problems:
        raise SettingsError.of(read.problems)
    return found


def placed(needed: Needed, *, network: str = "", bucket: str = "", logs: str = "") -> Needed:
    """Return *needed* with the compartments, OCIDs, in which things were found; what is empty stays."""
    found = replace(needed, network=at(network) if network else needed.network)
    found = replace(found, bucket_in=at(bucket) if bucket else found.bucket_in)
    return replace(found, logs=at(logs) if logs and found.logs else found.logs)


def _repositories(read: SettingsReader, frameworks: Sequence[str]) -> tuple[str, ...]:
    """Return the repositories of the images: as ``IMAGE`` says, else below ``REGISTRY``."""
    if image := read.value("IMAGE", _image, ""):
        return tuple(dict.fromkeys(image.replace("{framework}", name) for name in frameworks))
    path = read.value("REGISTRY", _registry)
    return tuple("/".join(filter(None, (path, name))) for name in frameworks)


def _compartment(text: str) -> str:
    found = OCID.fullmatch(text)
    if not found or found["kind"] not in {"compartment", "tenancy"}:
        raise ValueError(f"'{text}' is not the OCID of a compartment, such as ocid1.compartment.oc1..aaaa")
    return text


def _work_dir(text: str) -> dict[str, str]:
    found = BUCKET.fullmatch(text)
    if not found or not all(_QUOTED.fullmatch(part) for part in (found["bucket"], found["prefix"] or "x")):
        raise ValueError(f"'{text}' is not a place in a bucket, such as oci://clusters@<namespace>/team-a/work")
    return {"bucket": found["bucket"], "prefix": (found["prefix"] or "").strip("/")}


def _registry(text: str) -> str:
    found = _REGISTRY.fullmatch(text)
    if not found:
        raise ValueError(f"'{text}' is not a registry of OCI, such as iad.ocir.io/<namespace>/training")
    return (found["path"] or "").strip("/")


def _image(text: str) -> str:
    found = _IMAGE.fullmatch(text)
    if not found:
        raise ValueError(f"'{text}' is not an image, such as iad.ocir.io/<namespace>/training/{{framework}}:1")
    return found["repository"]


def _group(text: str) -> str:
    if not _GROUP.fullmatch(text):
        raise ValueError(f"'{text}' is not a group's name, such as data-scientists, or my-domain/data-scientists")
    return text


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"'{text}' is not a name of letters, digits, dots, underscores and hyphens")
    return text


def _log_group(text: str) -> str:
    return "" if text == "none" else _name(text)
