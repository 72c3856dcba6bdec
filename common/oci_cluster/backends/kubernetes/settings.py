"""Settings of the backend, read and checked: one message names all that is wrong.

The standard library must be enough: this comes before anything is installed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.files.lives import is_interruptible
from oci_cluster.contract.parsers import (
    WrongValueError,
    matching,
    parse_count,
    parse_cpus,
    parse_duration,
    parse_switch,
)
from oci_cluster.contract.settings.settings_files import SettingsReader
from oci_cluster.errors import SettingsError
from oci_cluster.images.records import no_image, pushed_image
from oci_cluster.system.files import at_home
from oci_cluster.system.secret_values import PLAIN, secret_in

T = TypeVar("T")

# What Kubernetes gives a Job after its TTL, to end in order: the agent's own TTL comes first.
_AFTER_TTL_S = 600
# Between a node's grace and KILL: main leaves last, and what is uploaded is waited for.
AFTER_GRACE_S = {"told": 30, "stored": 120}
# Of objects (RFC 1123), of labels and annotations. Source: Kubernetes' documentation, "Object Names and IDs", "Labels".
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_DOTTED = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TAINT = re.compile(rf"(?P<key>{KEY.pattern})(=(?P<value>{LABEL.pattern}))?(:(?P<effect>{'|'.join(EFFECTS)}))?")
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]{0,500}")
_USER = 1000  # of images that were built without RUN_AS
# 4g, and Kubernetes' own 4Gi.
_SIZE = re.compile(r"([1-9]\d{0,11})(?:([kmg])i?)?", re.IGNORECASE)
_UNITS = {"k": "Ki", "m": "Mi", "g": "Gi"}
_NFS = re.compile(r"(?P<server>[A-Za-z0-9.-]{1,253}):(?P<path>/[^\s:]*)")
# Keys that are ours: a cluster is found by them.
_OWN_KEY = re.compile(r"oci-cluster(-.*)?|batch\.kubernetes\.io/.*|kueue\.x-k8s\.io/.*|app\.kubernetes\.io/.*")
_ANNOTATION: Any = {"value": re.compile(r"[^\n]{0,4000}"), "what": "an annotation", "ours": False}
MOUNTS = PurePosixPath("/mnt")


def settings_of(plan: Plan, root: Path) -> dict[str, Any]:
    """Returns the backend's settings of *plan*, checked, under the names that the template uses.

    Raises:
        SettingsError: names every setting that is missing or wrong.
    """
    image = pushed_image(plan.settings["IMAGE"].replace("{framework}", plan.framework), plan.framework, root)
    read = SettingsReader({**plan.settings, "IMAGE": image})
    found = _read(read)
    if not image:
        none = no_image(plan.framework, "pushed")
        read.problems = [none if problem.setting == "IMAGE" else problem for problem in read.problems]
    _check(read, plan, found)
    if read.problems:
        raise SettingsError.of(read.problems)
    ttl_s = plan.limits.ttl_s
    way = "stored" if is_stored(plan.work_dir) else "told"
    found["deadline_s"] = math.ceil(ttl_s + _AFTER_TTL_S) if ttl_s else 0
    if found["max_preemptions"] < 0 and not is_interruptible(plan.environment):
        found["max_preemptions"] = 0  # Kueue would have it begin again
    found["grace_s"] = math.ceil(plan.limits.grace_period_s) + AFTER_GRACE_S[way]
    return found


def is_stored(work_dir: str) -> bool:
    """Returns whether the launcher reaches *work_dir*: no volume, and not main's memory."""
    return bool(work_dir) and not work_dir.startswith(("file://", "main://"))


def _read(read: SettingsReader) -> dict[str, Any]:
    return {
        "image": read.value("IMAGE", matching(_IMAGE, "an image such as iad.ocir.io/namespace/training/dask:1")),
        "run_as": read.value("RUN_AS", _user, _USER),
        "pull_secrets": read.value("IMAGE_PULL_SECRETS", _list_of(_object_name), list[str]()),
        "cpus": read.value("CPUS", _cpus),
        "cpu_limit": read.value("CPU_LIMIT", _cpus, ""),
        "memory": read.value("MEMORY", _size),
        "gpus": read.value("GPUS", lambda text: parse_count(text, minimum=0, maximum=1024), 0),
        "gpu_resource": read.value("GPU_RESOURCE", matching(KEY, "a resource such as nvidia.com/gpu")),
        "shm": read.value("SHM_SIZE", _size, ""),
        "node_selector": read.value("NODE_SELECTOR", _pairs, dict[str, str]()),
        "tolerations": read.value("TOLERATIONS", _list_of(toleration), list[dict[str, str]]()),
        "volumes": read.value("VOLUMES", lambda text: [_volume(word) for word in text.split()], list[dict[str, Any]]()),
        "env_secrets": read.value("ENV_SECRETS", _list_of(_object_name), list[str]()),
        "service_account": read.value("SERVICE_ACCOUNT", _object_name, ""),
        "labels": read.value("LABELS", partial(_pairs, ours=False), dict[str, str]()),
        "annotations": read.value("ANNOTATIONS", partial(_pairs, **_ANNOTATION), dict[str, str]()),
        "host_network": read.value("HOST_NETWORK", parse_switch, False),
        "expose_service": read.value("EXPOSE_SERVICE", matching("NodePort", "NodePort"), ""),
        "port": read.value("EXCHANGE_PORT", lambda text: parse_count(text, minimum=1024, maximum=65535)),
        "queue": read.value("QUEUE", _object_name, ""),
        "priority": read.value("PRIORITY", _object_name, ""),
        "priority_class": read.value("PRIORITY_CLASS", _object_name, ""),
        "wait_for_quota_s": read.value("WAIT_FOR_QUOTA", parse_duration, 0.0),
        "max_preemptions": read.value("MAX_PREEMPTIONS", parse_count, -1),
        "keep_s": math.ceil(read.value("KEEP_ENDED", parse_duration) or 0),
        "patch": read.text("POD_PATCH"),
        "namespace": read.value("NAMESPACE", matching(NAME, "the name of a namespace"), ""),
    }


def _check(read: SettingsReader, plan: Plan, found: Mapping[str, Any]) -> None:
    """Note what does not go together."""
    named = [volume["name"] for volume in found["volumes"] or []]
    if len(set(named)) < len(named):
        read.complain("VOLUMES", "VOLUMES: two of them have one name", "give each its own")
    _check_work_dir(read, plan.work_dir, found)
    if found["expose_service"] and not plan.limits.exposed:
        read.complain("EXPOSE_SERVICE", "EXPOSE_SERVICE is for ports of EXPOSE", "name them, too: EXPOSE='6006'")
    if found["priority"] and not found["queue"]:
        read.complain("PRIORITY", "PRIORITY is one of a queue", "name the queue, too: --queue")
    if found["cpus"] and found["cpu_limit"] and float(found["cpu_limit"]) < float(found["cpus"]):
        told = f"CPU_LIMIT: '{found['cpu_limit']}' is less than CPUS, which is {found['cpus']}"
        read.complain("CPU_LIMIT", told)
    if (patch := found["patch"]) and not at_home(patch).is_file():
        read.complain("POD_PATCH", f"POD_PATCH: there is no file '{patch}'")
    shown = {name: text for name, text in plan.environment.items() if name not in plan.settings}
    shown |= {name: plan.settings.get(name, "") for name in ("ANNOTATIONS", "LABELS")} | {"CODE_URI": plan.code_uri}
    for name, text in shown.items():
        if name not in plan.plain and (secret := secret_in(name, text)):
            read.complain(
                "",
                f"{secret} looks like a secret, and all who may look at Jobs would see it: put it into a Secret "
                "(kubectl create secret generic mine --from-env-file=mine.env) and name that: ENV_SECRETS=mine",
                PLAIN,
            )


def _check_work_dir(read: SettingsReader, work_dir: str, found: Mapping[str, Any]) -> None:
    if work_dir.startswith("main://"):
        read.complain("WORK_DIR", "WORK_DIR: main:// is chosen by itself, where there is no WORK_DIR", "leave it out")
    path = PurePosixPath(work_dir.removeprefix("file://"))
    shared = [MOUNTS / volume["name"] for volume in found["volumes"] or [] if volume["is_shared"]]
    if not work_dir.startswith("file://") or any(path.is_relative_to(mount) for mount in shared):
        return
    way_out = "give one, such as VOLUMES='work=pvc:<claim>' and WORK_DIR=file:///mnt/work; or leave WORK_DIR out"
    read.complain("WORK_DIR", f"WORK_DIR: '{work_dir}' is on no volume that all nodes share: {way_out}")


# --- Values ---------------------------------------------------------------------------------------------------------


_object_name = matching(_DOTTED, "the name of an object: lower-case letters, digits, - and .")


def _list_of(parse: Callable[[str], T]) -> Callable[[str], list[T]]:
    return lambda text: [parse(word) for word in re.split(r"[,\s]+", text.strip()) if word]


def _user(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,9}", text) or int(text) >= 2**31:
        root = ", as root runs no pod of this project (POD_PATCH may have it otherwise)" if text == "0" else ""
        raise ValueError(f"'{text}' is not the number of an ordinary user, such as {_USER}{root}")
    return int(text)


def _cpus(text: str) -> str:
    """Returns a number of CPUs; ``500m``, which is how Kubernetes writes it, is ``0.5``."""
    if re.fullmatch(r"[1-9]\d{0,6}m", text):
        return str(Decimal(text[:-1]) / 1000)
    return parse_cpus(text)


def _size(text: str) -> str:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is not a size such as 512m or 4g")
    return f"{found[1]}{_UNITS[found[2].lower()] if found[2] else ''}"


def bytes_of(size: str) -> int:
    """Returns the bytes of a size as Kubernetes writes it, such as ``4Gi``."""
    powers = {"Ki": 10, "Mi": 20, "Gi": 30}
    return int(size[:-2]) << powers[size[-2:]] if size[-2:] in powers else int(size)


def _pairs(text: str, value: re.Pattern[str] = LABEL, what: str = "a label", *, ours: bool = True) -> dict[str, str]:
    """Returns pairs ``key=value``; not *ours*: none that the launch itself sets."""
    found = {}
    for word in re.split(r",\s*", text.strip()):
        key, equals, content = word.partition("=")
        if not equals or not KEY.fullmatch(key) or not value.fullmatch(content):
            raise WrongValueError(f"'{word}' is not {what}", "write key=value, and a comma between two")
        if not ours and _OWN_KEY.fullmatch(key):
            raise WrongValueError(f"'{key}' is one that the launch itself sets", "leave it out")
        found[key] = content
    return found


def toleration(text: str) -> dict[str, str]:
    """Returns a toleration such as ``nvidia.com/gpu``, ``gpu:NoSchedule`` or ``team=vision:NoExecute``."""
    found = TAINT.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is not a toleration KEY, KEY:EFFECT or KEY=VALUE:EFFECT ({', '.join(EFFECTS)})")
    words = {name: word for name, word in found.groupdict().items() if word}
    return {"operator": "Equal" if "value" in words else "Exists", **words}


def _volume(word: str) -> dict[str, Any]:
    """Returns a volume, its ``source`` in Kubernetes' words."""
    name, _, source = word.partition("=")
    kind, _, what = source.partition(":")
    is_read_only = kind == "pvc" and what.endswith(":ro")
    what = what.removesuffix(":ro") if is_read_only else what
    if not NAME.fullmatch(name) or kind not in {"pvc", "nfs", "secret", "configmap"} or not what:
        raise ValueError(
            f"'{word}' is not <name>=pvc:<claim>, nfs:<server>:/<path>, secret:<Secret> or configmap:<ConfigMap>"
        )
    nfs = _NFS.fullmatch(what)
    if kind == "nfs" and nfs is None:
        raise ValueError(f"'{word}' is not <name>=nfs:<server>:/<path>")
    if kind != "nfs":
        _object_name(what)
    sources: dict[str, Any] = {
        "pvc": {"persistentVolumeClaim": {"claimName": what, "readOnly": is_read_only}},
        "secret": {"secret": {"secretName": what, "defaultMode": 0o440}},
        "configmap": {"configMap": {"name": what}},
        "nfs": {"nfs": {"server": nfs["server"], "path": nfs["path"]}} if nfs else {},
    }
    return {
        "name": name,
        "source": sources[kind],
        "claim": what if kind == "pvc" else "",
        "is_shared": kind in {"pvc", "nfs"} and not is_read_only,
        "read_only": is_read_only or kind in {"secret", "configmap"},
    }
