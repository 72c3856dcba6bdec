"""Requirements of clusters in a tenancy: statements, a matching rule, the bucket's rules, repositories.

Nothing here asks anybody. ``setup.sh`` makes what is missing of it, and ``check.sh`` names it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from oci_cluster.backends.oci.settings import BUCKET, OCID, DefinedTags, defined_tags, matching
from oci_cluster.contract.settings.schema import SETTINGS, TENANCY_SETTINGS
from oci_cluster.contract.settings.settings_files import SettingsReader
from oci_cluster.errors import SettingsError

JSON = dict[str, Any]
# The names of our rules in a bucket's lifecycle policy: by these they are found again.
OLD_CLUSTERS, OLD_UPLOADS = "oci-cluster-old-clusters", "oci-cluster-old-uploads"
# An upload in parts that is a week old has been given up: no node lives so long without a TTL of its own. Chosen.
_UPLOAD_DAYS = 7
_DEFAULTS = {row.name: row.default or "" for row in TENANCY_SETTINGS}
_REGISTRY = re.compile(r"[a-z0-9.-]+(:\d+)?/(?P<namespace>[a-z0-9_-]+)(/(?P<part>[a-z0-9._/-]+))?")
_IMAGE = re.compile(r"[a-z0-9.-]+(:\d+)?/[a-z0-9_-]+/(?P<part>[a-z0-9._/{}-]+?)(:[A-Za-z0-9._-]+)?(@sha256:.*)?")
# What may stand in a statement between quotation marks: nothing that ends them, or begins another condition. A star is
# a pattern there.
_QUOTED = re.compile(r"[^'\"*{}\x00-\x1f]{1,255}")
# Source: OCI's documentation of groups: "letters, numerals, periods, hyphens, underscores, and plus signs". A domain
# may have blanks. The domain Default goes without saying.
_GROUP = re.compile(r"(?!.*/.*/)((?i:default)/)?(?P<part>([A-Za-z0-9._+ -]{1,100}/)?[A-Za-z0-9._+-]{1,100})")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class Statement:
    """A statement of a policy, what fails without it, and its subject.

    A launch does without one that *is_extra*.
    """

    text: str
    why: str
    of: str
    is_extra: bool = False


@dataclass(frozen=True)
class Needed:
    """All that clusters of a team need in a tenancy; places are as in statements.

    *people* and *nodes* are groups, ``domain/name`` in a domain of its own. *prefix*, without a slash at its end,
    begins the names of this team's objects. Empty or 0: all objects, no logs, nothing is deleted, no group is made.
    *makes_logs*: the service makes a log for each node, as without ``LOG_OCID``. *log*: one for all nodes that
    setup.sh makes. *secrets* are OCIDs of OCI Vault. *homes*: where repositories lie that are not at *images*, by name.
    *project_in*: where the project is, if elsewhere. *tags* are those of all that is made.
    """

    jobs: str
    network: str
    images: str
    bucket_in: str
    logs: str
    people: str
    nodes: str
    bucket: str
    prefix: str
    repositories: tuple[str, ...]
    region: str
    keep_days: int = 0
    makes_logs: bool = True
    policy: str = "clusters"
    log_group: str = ""
    log: str = ""
    secrets_in: str = ""
    secrets: tuple[str, ...] = ()
    homes: Mapping[str, str] = field(default_factory=dict)
    project_in: str = ""
    tags: DefinedTags = field(default_factory=dict)


def at(compartment: str) -> str:
    """Return how a statement says that it is about *compartment*, an OCID."""
    return "tenancy" if compartment.startswith("ocid1.tenancy.") else f"compartment id {compartment}"


def matching_rule(compartment: str) -> str:
    """Return the rule of the dynamic group of the Job Runs of *compartment*.

    Without the compartment, the Job Runs of every compartment could read and delete the team's objects.
    """
    return f"all {{resource.type = 'datasciencejobrun', resource.compartment.id = '{compartment}'}}"


def statements(needed: Needed) -> list[Statement]:
    """Return all statements: of services, of nodes, and of people."""
    return [*_of_services(needed), *_of_nodes(needed), *_of_people(needed)]


def _of_services(needed: Needed) -> list[Statement]:
    def say(service: str, what: str, why: str, *, is_extra: bool = False) -> Statement:
        return Statement(f"allow service {service} to {what}", why, "service", is_extra)

    use = f"use virtual-network-family in {needed.network}"
    found = [say("datascience", use, "the service puts nodes into the subnet")]
    if needed.keep_days:
        what = f"manage object-family in {needed.bucket_in} where target.bucket.name = '{needed.bucket}'"
        found.append(
            say(f"objectstorage-{needed.region}", what, "the bucket deletes old clusters by itself", is_extra=True)
        )
    return found


def _of_nodes(needed: Needed) -> list[Statement]:
    def say(what: str, why: str) -> Statement:
        return Statement(f"allow dynamic-group {_named(needed.nodes)} to {what}", why, "nodes")

    found = [say(f"read repos {_in_repository(needed, name)}", "a node gets its image") for name in needed.repositories]
    found += [say(what, why) for what, why in _objects(needed)]
    if needed.logs:
        found.append(say(f"use log-content in {needed.logs}", "a node writes to OCI Logging"))
        if needed.makes_logs:
            found.append(say(f"manage log-groups in {needed.logs}", "the service makes a log for each node"))
    secrets = (f"read secret-bundles in {needed.secrets_in} where target.secret.id = '{one}'" for one in needed.secrets)
    return [*found, *(say(what, "a node reads a secret of VAULT_SECRETS") for what in secrets)]


def _of_people(needed: Needed) -> list[Statement]:
    def say(what: str, why: str, *, is_extra: bool = False) -> Statement:
        return Statement(for_people(needed, what), why, "people", is_extra)

    found = [
        say(f"manage data-science-family in {needed.jobs}", "people make Jobs and Job Runs"),
        *(say(f"read data-science-projects in {at}", "a Job Run is of a project") for at in [needed.project_in] if at),
        say(f"use virtual-network-family in {needed.network}", "people put Jobs into the subnet"),
        *(say(what, why) for what, why in _objects(needed)),
    ]
    if needed.logs:
        found += [
            say(f"read log-groups in {needed.logs}", "a Job has a log group"),
            say(f"read log-content in {needed.logs}", "logs.sh searches OCI Logging", is_extra=True),
        ]
    push = "people push images"
    found += [say(f"manage repos {_in_repository(needed, one)}", push, is_extra=True) for one in needed.repositories]
    return found


def for_people(needed: Needed, what: str) -> str:
    """Return the statement that allows people to do *what*: ``read metrics in tenancy``."""
    return f"allow group {_named(needed.people)} to {what}"


def _objects(needed: Needed) -> list[tuple[str, str]]:
    bucket = f"target.bucket.name = '{needed.bucket}'"
    if not needed.prefix:
        return [(f"manage objects in {needed.bucket_in} where {bucket}", "WORK_DIR is there")]
    own = f"all {{{bucket}, target.object.name = '{needed.prefix}/*'}}"
    return [
        (f"manage objects in {needed.bucket_in} where {own}", "WORK_DIR is there"),
        # As far as Oracle's pages tell, a list has no target.object.name.
        (f"inspect objects in {needed.bucket_in} where {bucket}", "WORK_DIR is listed"),
    ]


def _in_repository(needed: Needed, name: str) -> str:
    return f"in {needed.homes.get(name, needed.images)} where target.repo.name = '{name}'"


def _named(group: str) -> str:
    domain, is_elsewhere, name = group.rpartition("/")
    return f"'{domain}'/'{name}'" if is_elsewhere else name


def same_statement(text: str) -> str:
    """Return a statement to compare, whatever its blanks and capitals."""
    parts = re.split(r"('[^']*')", " ".join(text.split()))
    return "".join(part if part.startswith("'") else part.lower() for part in parts)


def lacking_tags(tags: DefinedTags, required: Iterable[str]) -> list[str]:
    """Return the *required* tags, ``namespace.key``, that are not among *tags*; case does not count."""
    there = {name.lower() for name in flat_tags(tags)}
    return [name for name in dict.fromkeys(required) if name.lower() not in there]


def with_tags(tags: DefinedTags, lacking: Iterable[str]) -> str:
    """Return the line of ``config.env`` for *tags* and for those that are *lacking*."""
    given = [shlex.quote(f"{name}={text}") for name, text in flat_tags(tags).items()]
    words = [*given, *(f"{name}=<value>" for name in lacking)]
    return f"DEFINED_TAGS={shlex.quote(' '.join(words))}"


def flat_tags(tags: DefinedTags) -> dict[str, str]:
    """Return values by ``namespace.key``."""
    return {f"{space}.{key}": str(value) for space, keys in tags.items() for key, value in keys.items()}


def lifecycle_rules(needed: Needed) -> list[JSON]:
    """Return our rules of the bucket for old objects and uploads."""
    if not needed.keep_days:
        return []
    names = {"objectNameFilter": {"inclusionPrefixes": [f"{needed.prefix}/"]}} if needed.prefix else {}
    usual: JSON = {"timeUnit": "DAYS", "isEnabled": True}
    old = {"name": OLD_CLUSTERS, "action": "DELETE", "timeAmount": needed.keep_days, "target": "objects"}
    given_up = {"name": OLD_UPLOADS, "action": "ABORT", "timeAmount": _UPLOAD_DAYS, "target": "multipart-uploads"}
    return [{**old, **usual, **names}, {**given_up, **usual}]


@dataclass(frozen=True)
class Places:
    """OCIDs of compartments and things, and the namespace of ``WORK_DIR``; empty: none is known."""

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
    """Return what clusters of *frameworks* need by the settings *given*; see :func:`placed`.

    Raises:
        SettingsError: names every setting that is missing or wrong.
    """
    read = SettingsReader(given, _DEFAULTS)
    jobs = read.value("COMPARTMENT_OCID", _compartment) or ""
    images = read.value("IMAGES_COMPARTMENT_OCID", _compartment, jobs)
    network = read.value("NETWORK_COMPARTMENT_OCID", _compartment, jobs)
    secrets: dict[str, str] = read.value("VAULT_SECRETS", SETTINGS["VAULT_SECRETS"].parse, {})
    work = read.value("WORK_DIR", _work_dir) or {"bucket": "", "prefix": ""}
    no_group = bool(read.text("LOG_GROUP_OCID")) or read.text("LOG_GROUP_NAME") == "none"
    own_group = "" if no_group else read.value("LOG_GROUP_NAME", _name, "")
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
        secrets_in=at(read.value("SECRETS_COMPARTMENT_OCID", _compartment, jobs)),
        secrets=tuple(dict.fromkeys(secrets.values())),
        tags=read.value("DEFINED_TAGS", defined_tags, DefinedTags()),
    )
    if read.problems:
        raise SettingsError.of(read.problems)
    return found


def placed(
    needed: Needed,
    *,
    network: str = "",
    bucket: str = "",
    logs: str = "",
    project: str = "",
    repositories: Mapping[str, str] | None = None,
) -> Needed:
    """Return *needed* with compartments, OCIDs, in which things were found, if not empty."""
    places = {"network": network, "bucket_in": bucket, "logs": logs if needed.logs else ""}
    found: dict[str, Any] = {name: at(ocid) for name, ocid in places.items() if ocid}
    homes = {name: at(ocid) for name, ocid in (repositories or {}).items()}
    elsewhere = at(project) if project and at(project) != needed.jobs else ""
    return replace(needed, **found, homes=homes, project_in=elsewhere)


def _repositories(read: SettingsReader, frameworks: Sequence[str]) -> tuple[str, ...]:
    """Return the repositories of the images: as ``IMAGE`` says, else below ``REGISTRY``."""
    if image := read.value("IMAGE", _image, ""):
        return tuple(dict.fromkeys(image.replace("{framework}", name) for name in frameworks))
    path = (read.value("REGISTRY", _registry) or "").strip("/")
    return tuple("/".join(filter(None, (path, name))) for name in frameworks)


_compartment = matching(
    re.compile(rf"(?=ocid1\.(compartment|tenancy)\.){OCID.pattern}"),
    "the OCID of a compartment, such as ocid1.compartment.oc1..aaaa",
)
_group = matching(_GROUP, "a group's name, such as data-scientists, or my-domain/data-scientists")
_registry = matching(_REGISTRY, "a registry of OCI, such as iad.ocir.io/<namespace>/training")
_image = matching(_IMAGE, "an image, such as iad.ocir.io/<namespace>/training/{framework}:1")
_name = matching(_NAME, "a name of letters, digits, dots, underscores and hyphens")


def _work_dir(text: str) -> dict[str, str]:
    found = BUCKET.fullmatch(text)
    if not found or not all(_QUOTED.fullmatch(part) for part in (found["bucket"], found["prefix"] or "x")):
        raise ValueError(f"'{text}' is not a place in a bucket, such as oci://clusters@<namespace>/team-a/work")
    return {"bucket": found["bucket"], "prefix": (found["prefix"] or "").strip("/")}
