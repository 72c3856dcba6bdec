"""Settings of the backend: one message names all that is wrong, and nobody is asked.

The standard library must be enough: this comes before anything is installed.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oci_cluster.backends.oci.tenancy.shapes import FLEXIBLE, is_flexible
from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.names import ROLES
from oci_cluster.contract.parsers import WrongValueError, parse_bounds, parse_count, parse_duration, parse_switch
from oci_cluster.contract.settings.settings_files import SettingsReader
from oci_cluster.errors import Problem, SettingsError
from oci_cluster.images.records import no_image, pushed_image
from oci_cluster.system.secret_values import PLAIN, secret_in

STYLES = ("runs", "multinode")
#: Tags by key, by namespace.
DefinedTags = dict[str, dict[str, Any]]
# What the service gives a run after its TTL, to end in order: the agent's own TTL comes first.
_AFTER_TTL_S = 600
OCID = re.compile(r"ocid1\.[a-z0-9]+\.[a-z0-9-]*\.[a-z0-9-]*\.[a-zA-Z0-9._-]+")
#: An image with a tag, and perhaps a digest.
IMAGE_NAME = re.compile(
    r"(?P<name>(?P<host>[a-z0-9.-]+(:\d+)?)/(?P<path>[a-z0-9._/-]+):(?P<tag>[A-Za-z0-9._-]{1,128}))"
    r"(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
# No word of ssh's own, and nothing that its configuration could take for a pattern.
_JUMP = re.compile(
    r"((?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@)?"
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(:(?P<port>\d{1,5}))?"
)
#: A place in a bucket, as ``WORK_DIR`` and ``STORAGE_MOUNTS`` name it.
BUCKET = re.compile(r"oci://(?P<bucket>[^@/]+)@(?P<namespace>[^/]+)(/(?P<prefix>.*))?")
_SHAPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
# What a flexible shape has where nobody has said it, by the end of the setting's name.
_SIZES = {"OCPUS": 4, "MEMORY_GBS": 64}
_MOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
# Source: OCI's documentation of pipelines, which mount as Jobs do: "no more than five storage mounts". That of Jobs has
# no number.
_MOST_MOUNTS = 5
# What lets the service mount. The resource types are those of OCI's policy reference; that these statements are needed,
# and enough, is a guess.
MOUNT_POLICIES = {
    "FILE_STORAGE": "allow service datascience to use file-family in compartment <of the file system>",
    "OBJECT_STORAGE": "allow service datascience to use object-family in compartment <of the bucket>",
}
# Source: OCI's documentation, Tagging Overview, "Limits on Tags": 10 free-form and 64 defined tags on a resource.
_MOST_FREEFORM_TAGS, _MOST_DEFINED_TAGS = 10, 64
_LONGEST_TAG_KEY, _LONGEST_TAG = 100, 256
# How many tags of ours are on a Job, or on a run where that has more; a test counts them.
OWN_TAGS = {"runs": 7, "multinode": 9}
#: Types of OpenSSH's keys.
KEY_TYPES = r"ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)"
_HOST_KEY = re.compile(rf"(?:{KEY_TYPES}) [A-Za-z0-9+/]+={{0,2}}")
# Our own: a cluster is found by them.
_OWN_TAG = re.compile(r"oci-cluster(-.*)?", re.IGNORECASE)


def settings_of(plan: Plan, root: Path) -> dict[str, Any]:
    """Return the backend's settings of *plan*, under the names that templates use.

    Raises:
        SettingsError: names every setting that is missing or wrong.
    """
    found, problems = read_settings(plan, root)
    if problems:
        raise SettingsError.of(problems)
    return found


def read_settings(plan: Plan, root: Path) -> tuple[dict[str, Any], list[Problem]]:
    """Return the settings, and what is wrong; those are of no use."""
    # One setting for the images of all frameworks.
    image_name = pushed_image(plan.settings["IMAGE"].replace("{framework}", plan.framework), plan.framework, root)
    read = SettingsReader({**plan.settings, "IMAGE": image_name})
    found = _read_settings(read, plan.limits.ttl_s)
    if not image_name:
        none = no_image(plan.framework, "pushed")
        read.problems = [none if problem.setting == "IMAGE" else problem for problem in read.problems]
    return found, [*read.problems, *_problems(plan, found, read.problems)]


def tags_given(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return ``FREEFORM_TAGS`` and ``DEFINED_TAGS`` of *texts*, as ``freeform`` and ``defined``."""
    read = SettingsReader(texts)
    found = _read_tags(read)
    read.check()
    return found


@dataclass(frozen=True)
class Jump:
    """A host of the user's; what is empty or 0, ssh's configuration says."""

    user: str = ""
    host: str = ""
    port: int = 0


def tunnel_settings(given: Mapping[str, str]) -> Jump | str:
    """Return the way to nodes: a host of the user's, or a bastion's OCID."""
    read = SettingsReader(given)
    read.value("BASTION_HOST_KEY", _host_key, "")
    jump, bastion = read.value("SSH_JUMP", _jump, Jump()), read.value("BASTION_ID", _bastion, "")
    read.check()
    if jump.host:
        return jump
    if not bastion:
        raise SettingsError(
            "nodes on OCI are reached through a bastion or a host of yours, and neither is set: set BASTION_ID to the"
            " OCID of a bastion (docs/oci.md, 'Reach a port of a node'), or SSH_JUMP to [user@]host[:port]"
        )
    return bastion


def _read_tags(read: SettingsReader) -> dict[str, Any]:
    return {
        "freeform": read.value("FREEFORM_TAGS", _freeform_tags, dict[str, str]()),
        "defined": read.value("DEFINED_TAGS", defined_tags, DefinedTags()),
    }


def _read_settings(read: SettingsReader, ttl_s: float) -> dict[str, Any]:
    every = _machine(read, "", {})
    default_runtime = math.ceil((ttl_s + _AFTER_TTL_S) / 60) if ttl_s else 0
    image = IMAGE_NAME.fullmatch(read.value("IMAGE", _image) or "")
    return {
        "compartment": read.value("COMPARTMENT_OCID", _ocid),
        "project": read.value("PROJECT_OCID", _ocid),
        "description": read.text("DESCRIPTION"),
        "tags_given": _read_tags(read),
        "image": image["name"] if image else "",
        "image_digest": (image["digest"] or "") if image else "",
        "image_signature": read.value("IMAGE_SIGNATURE_ID", _ocid, ""),
        "subnet": read.value("SUBNET_OCID", _ocid, ""),
        "bastion": read.value("BASTION_ID", _bastion, ""),
        "bastion_host_key": read.value("BASTION_HOST_KEY", _host_key, ""),
        "jump": read.value("SSH_JUMP", _jump, Jump()),
        "machines": {role: _machine(read, f"{role}_", every) for role in ROLES},
        "storage_gbs": read.value("STORAGE_GBS", lambda text: parse_count(text, minimum=50, maximum=10240)),
        "capacity_reservation": read.value("CAPACITY_RESERVATION_OCID", _ocid, ""),
        "log_group": read.value("LOG_GROUP_OCID", _ocid, ""),
        "log": read.value("LOG_OCID", _ocid, ""),
        "mounts": read.value("STORAGE_MOUNTS", _mounts, list[dict[str, str]]()),
        "max_runtime_minutes": read.value(
            "MAX_RUNTIME", lambda text: math.ceil(parse_duration(text) / 60), default_runtime
        ),
        "style": read.value("OCI_JOB_STYLE", _style),
        "node_logs": read.value("NODE_LOGS", parse_switch, True),
    }


# --- What does not go together --------------------------------------------------------------------------------------


def _problems(plan: Plan, found: Mapping[str, Any], read: Sequence[Problem]) -> list[Problem]:
    is_wrong = any(problem.setting == "SUBNET_OCID" for problem in read)
    adapt = plan.environment.get("ADAPT", "")
    most = max(len(plan.nodes), 1 + parse_bounds(adapt)[1] if adapt else 0)
    problems = [] if is_wrong else _network_problems(found, most)
    own = OWN_TAGS.get(found["style"], 0)
    if (count := len(found["tags_given"]["freeform"])) + own > _MOST_FREEFORM_TAGS:
        told = (
            f"FREEFORM_TAGS: {count} tags and the {own} that a cluster is found by are more than the"
            f" {_MOST_FREEFORM_TAGS} that OCI allows: keep {_MOST_FREEFORM_TAGS - own}, and give others as DEFINED_TAGS"
        )
        problems.append(Problem("FREEFORM_TAGS", told))
    if adapt and found["style"] == "multinode":
        why = "with multinode the service starts all nodes, and none is added"
        problems.append(Problem("ADAPT", f"ADAPT={adapt} needs OCI_JOB_STYLE=runs: {why}"))
    if found["capacity_reservation"] and found["style"] == "multinode":
        # Source: OCI's documentation of Data Science, capacity reservations: not for multi-node job runs.
        told = "CAPACITY_RESERVATION_OCID: a run of several nodes gets no reserved hosts"
        problems.append(Problem("CAPACITY_RESERVATION_OCID", told, "set OCI_JOB_STYLE=runs, or leave it out"))
    if found["log"] and not found["log_group"]:
        problems.append(Problem("LOG_OCID", "LOG_OCID is set without LOG_GROUP_OCID, the group that it is in"))
    place = "oci://<bucket>@<namespace>/<folder>"
    if not plan.work_dir:
        problems.append(Problem("WORK_DIR", "WORK_DIR is not set", f"make a bucket and set {place}"))
    elif plan.work_dir.startswith(("memory:", "file:")) and not found["mounts"]:
        problems.append(Problem("WORK_DIR", f"WORK_DIR: nodes on OCI cannot reach {plan.work_dir}", f"set {place}"))
    tags = {name: plan.settings.get(name, "") for name in ("DESCRIPTION", "FREEFORM_TAGS", "DEFINED_TAGS")}
    sent = {**plan.environment, **tags, "CODE_URI": plan.code_uri}
    if secret := sorted(filter(None, (secret_in(name, text) for name, text in sent.items() if name not in plan.plain))):
        way_out = "put the secret into OCI Vault, and name it: VAULT_SECRETS='NAME=<its OCID>'"
        told = f"everybody who may read the Job would see {', '.join(secret)}"
        problems.append(Problem("", told, f"{way_out}; {PLAIN}"))
    return problems


def _network_problems(found: Mapping[str, Any], nodes: int) -> list[Problem]:
    if found["subnet"]:
        return []
    problems = []
    # Without one the service gives each run a network of its own (managed egress), which has a way out and none in.
    if found["style"] == "runs" and nodes > 1:
        problems.append(
            Problem(
                "SUBNET_OCID",
                f"SUBNET_OCID is not set, and without a subnet the {nodes} nodes cannot reach each other: "
                "set it to a regional private subnet (docs/oci.md), or OCI_JOB_STYLE=multinode, "
                "whose nodes share a network of the service",
            )
        )
    if names := [mount["destinationDirectoryName"] for mount in found["mounts"] if "exportId" in mount]:
        told = f"STORAGE_MOUNTS: {', '.join(names)} is reached in a subnet alone, as every file system is"
        way_out = f"it needs the policy '{MOUNT_POLICIES['FILE_STORAGE']}', too"
        problems.append(Problem("STORAGE_MOUNTS", f"{told}: set SUBNET_OCID", way_out))
    return problems


# --- Machines -------------------------------------------------------------------------------------------------------


def _machine(read: SettingsReader, prefix: str, every: Mapping[str, Any]) -> dict[str, Any]:
    """Return the machine of settings with this *prefix*, else of *every*."""
    name = f"{prefix}SHAPE"
    shape = read.value(name, _shape, every.get("shape")) or ""
    machine: dict[str, Any] = {"shape": shape}
    for what, default in _SIZES.items():
        key = what.lower()
        size = read.value(f"{prefix}{what}", _number, -1.0)
        machine[key] = 0
        if is_flexible(shape):
            machine[key] = size if size >= 0 else every.get(key) or default
            if size == 0:
                read.complain(
                    f"{prefix}{what}",
                    f"{prefix}{what}: 0 is not possible for {shape}, whose size is chosen, "
                    f"as its name ends in {FLEXIBLE}",
                    f"say how much, or leave it out for {every.get(key) or default}",
                )
        elif size > 0:
            read.complain(
                f"{prefix}{what}",
                f"{prefix}{what}: {shape} has a size of its own",
                f"leave {prefix}{what} out, or choose a flexible {name}, whose name ends in {FLEXIBLE}",
            )
    return machine


# --- The form of single values --------------------------------------------------------------------------------------


def matching(pattern: re.Pattern[str], what: str) -> Callable[[str], str]:
    """Return a parser by *pattern* and its group ``part``; *what* is for people."""

    def parse(text: str) -> str:
        if not (found := pattern.fullmatch(text)):
            raise ValueError(f"'{text}' is not {what}")
        return found["part"] or "" if "part" in pattern.groupindex else text

    return parse


_ocid = matching(OCID, "an OCID such as ocid1.compartment.oc1..aaaa")
_image = matching(IMAGE_NAME, "an image with a tag, such as iad.ocir.io/<namespace>/dask:1")
_shape = matching(_SHAPE, "a shape's name, such as VM.Standard.E4.Flex or VM.GPU.A10.1")


_host_key = matching(_HOST_KEY, "a host's public key as OpenSSH has it, such as 'ssh-ed25519 AAAA'")


def _bastion(text: str) -> str:
    if not _ocid(text).startswith("ocid1.bastion."):
        raise ValueError(f"'{text}' is not the OCID of a bastion, which begins with ocid1.bastion.")
    return text


def _jump(text: str) -> Jump:
    found = _JUMP.fullmatch(text)
    port = int(found["port"] or 0) if found else 0
    if not found or port > 65535 or found["port"] in {"0", "00"}:
        raise ValueError(f"'{text}' is not a host as for ssh, [user@]host[:port], such as me@jump.example.com")
    return Jump(found["user"] or "", found["host"].strip("[]"), port)


def _number(text: str) -> float:
    number = float(text) if re.fullmatch(r"\d{1,6}(\.\d{1,3})?", text) else -1
    if number < 0:
        raise ValueError(f"'{text}' is not a number of 0 or more")
    return int(number) if number == int(number) else number


def _style(text: str) -> str:
    if text not in STYLES:
        raise ValueError(f"'{text}' is neither {' nor '.join(STYLES)}")
    return text


def _mounts(text: str) -> list[dict[str, str]]:
    """Return the mounts of ``STORAGE_MOUNTS``, as the service describes them."""
    mounts: list[dict[str, str]] = []
    words = text.split()
    if len(words) > _MOST_MOUNTS:
        told = f"{len(words)} mounts are more than {_MOST_MOUNTS}, which is all that OCI allows"
        raise WrongValueError(told, f"leave {words[-1]} out")
    for word in words:
        name, _, what = word.partition("=")
        fss = re.fullmatch(r"fss:(?P<mountTargetId>ocid1\.[^:]+):(?P<exportId>ocid1\.[^:]+)", what)
        found = fss or BUCKET.fullmatch(what)
        if not _MOUNT.fullmatch(name) or not found:
            raise ValueError(
                f"'{word}' is neither <name>=oci://<bucket>@<namespace>/<prefix> nor <name>=fss:<target>:<export>"
            )
        if name in [mount["destinationDirectoryName"] for mount in mounts]:
            raise WrongValueError(
                f"'{word}' is the second one called {name}", "each needs a name of its own below /mnt"
            )
        parts = ("mountTargetId", "exportId") if fss else ("namespace", "bucket", "prefix")
        place = {part: found[part] for part in parts if found[part]}
        place |= {"destinationDirectoryName": name, "destinationPath": "/mnt"}
        mounts.append({"storageType": "FILE_STORAGE" if fss else "OBJECT_STORAGE", **place})
    return mounts


def _freeform_tags(text: str) -> dict[str, str]:
    """Return the tags of ``FREEFORM_TAGS``: a JSON object, or shell-quoted words ``key=value``."""
    tags = _pairs(text, "team=vision")
    for key, value in tags.items():
        if not isinstance(value, str):
            raise WrongValueError(f"the value of {key} is no text", "quote it")
        if _OWN_TAG.fullmatch(key):
            raise WrongValueError(f"{key} is a tag of ours, by which a cluster is found", "choose another name")
        _check_tag(key, value)
    return tags


def defined_tags(text: str) -> DefinedTags:
    """Return the tags of ``DEFINED_TAGS``: a JSON object of objects, or shell-quoted words ``namespace.key=value``."""
    tags: DefinedTags = {}
    form = "Operations.CostCenter=42"
    for name, value in _pairs(text, form).items():
        if isinstance(value, Mapping):  # JSON has them by namespace
            tags.setdefault(name, {}).update(value)
            continue
        namespace, dot, key = name.partition(".")
        if not (namespace and dot and key):
            raise ValueError(f"'{name}' is not a namespace and a key, as in {form}")
        tags.setdefault(namespace, {})[key] = value
    flat = [(f"{namespace}.{key}", key, value) for namespace, keys in tags.items() for key, value in keys.items()]
    for name, key, value in flat:
        if not key or value is None or isinstance(value, (dict, list)):
            raise ValueError(f"{name} has no plain value")
        _check_tag(key, str(value))
    if len(flat) > _MOST_DEFINED_TAGS:
        raise ValueError(f"{len(flat)} tags are more than {_MOST_DEFINED_TAGS}, which is all that OCI allows")
    return tags


def _pairs(text: str, form: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            return dict(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it begins with {{ and is no JSON object: {error}") from error
    found = {}
    for word in shlex.split(text):
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ValueError(f"'{word}' is not of the form {form}")
        found[key] = value
    return found


def _check_tag(key: str, value: str) -> None:
    if len(key) > _LONGEST_TAG_KEY or len(value) > _LONGEST_TAG:
        raise WrongValueError(
            f"{key[:_LONGEST_TAG_KEY]} has {len(key)} characters and a value of {len(value)}",
            f"OCI allows {_LONGEST_TAG_KEY} and {_LONGEST_TAG}",
        )
