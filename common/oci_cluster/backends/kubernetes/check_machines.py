"""What ``check.sh`` looks at of a Kubernetes' machines: which could hold the pods, the image, the claims."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from oci_cluster.backends.findings import Finding, fails, fine, unknown
from oci_cluster.backends.kubernetes import checks
from oci_cluster.backends.kubernetes.quantities import amount, is_amount, shown
from oci_cluster.backends.kubernetes.service import Service
from oci_cluster.backends.kubernetes.settings import bytes_of
from oci_cluster.contract.cluster import Plan
from oci_cluster.system.text import printable

Object = Mapping[str, Any]
# Taints that keep pods away; PreferNoSchedule does not.
_KEEPS_AWAY = {"NoSchedule", "NoExecute"}
_DOCKER_HUB = "docker.io"


def wanted_of(settings: Mapping[str, Any]) -> dict[str, Decimal]:
    """Return what each pod requests, by resource; memory in bytes."""
    gpus = {settings["gpu_resource"]: Decimal(settings["gpus"])} if settings["gpus"] else {}
    return {"cpu": amount(settings["cpus"]), "memory": Decimal(bytes_of(settings["memory"])), **gpus}


# --- Machines -------------------------------------------------------------------------------------------------------


def machines(
    service: Service, pod: Object, wanted: Mapping[str, Decimal], settings: Mapping[str, Any], count: int
) -> Iterator[Finding]:
    """Yield whether there are machines that could hold *count* pods at all, whatever runs there now.

    Args:
        service: Is asked.
        pod: The pods' spec; empty where there is none, and then *settings* say which machines they want.
        wanted: What each requests.
        settings: The backend's.
        count: How many pods there will be.

    Raises:
        KubernetesError: the API refused, or did not answer.
    """
    spec = pod or {"nodeSelector": settings["node_selector"], "tolerations": settings["tolerations"]}
    nodes = service.items("/api/v1/nodes")
    fit, reasons = 0, Counter[str]()
    for node in nodes:
        if reason := _why_not(node, spec):
            reasons[reason] += 1
        elif room := _room_of(node, wanted):
            fit += room
        else:
            reasons["too small"] += 1
    each = ", ".join(f"{shown(value)} {name}" for name, value in wanted.items())
    told = f"{fit} pods with {each} fit on {len(nodes)} machines at all, and {count} are needed"
    told += "".join(f"; {number} {reason}" for reason, number in reasons.most_common())
    if fit >= count:
        yield fine("machines", told)
    elif fit:
        yield unknown("machines", f"{told}: the others need machines that a pool has yet to add", _mend(reasons))
    else:
        yield fails("machines", f"{told}; only a pool that grows from nothing could help", _mend(reasons))


def _mend(reasons: Counter[str]) -> str:
    """Return what helps against the most frequent of *reasons*."""
    most = reasons.most_common(1)[0][0] if reasons else ""
    if most == "too small":
        return "choose smaller CPUS, MEMORY or GPUS, or add larger machines"
    if most.startswith("with the taint "):
        return f"TOLERATIONS={most.removeprefix('with the taint ')}"
    if most == "without the labels of NODE_SELECTOR":
        return "kubectl get nodes --show-labels  # then set NODE_SELECTOR to labels that there are"
    return "launch fewer workers, or add machines"


def _why_not(node: Object, spec: Object) -> str:
    """Return why no pod of *spec* can be on *node*, in a word or two; empty where one can."""
    about, own = node.get("metadata") or {}, node.get("spec") or {}
    conditions = (node.get("status") or {}).get("conditions") or []
    if not any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions):
        return "not Ready"
    if own.get("unschedulable"):
        return "cordoned"
    labels = about.get("labels") or {}
    if any(labels.get(name) != text for name, text in (spec.get("nodeSelector") or {}).items()):
        return "without the labels of NODE_SELECTOR"
    for taint in own.get("taints") or []:
        is_kept_away = taint.get("effect") in _KEEPS_AWAY
        if is_kept_away and not any(_tolerates(one, taint) for one in spec.get("tolerations") or []):
            value = f"={taint['value']}" if taint.get("value") else ""
            return printable(f"with the taint {taint.get('key')}{value}:{taint['effect']}")
    return ""


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in {None, "", taint.get("effect")}:
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in {None, "", taint.get("key")}
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")


def _room_of(node: Object, wanted: Mapping[str, Decimal]) -> int:
    """Return how many pods that request what is *wanted* an empty *node* could hold."""
    there = (node.get("status") or {}).get("allocatable") or {}
    asked = {**wanted, "pods": Decimal(1)}
    has = {name: amount(there[name]) if is_amount(there.get(name)) else Decimal(0) for name in asked}
    return min(math.floor(has[name] / each) for name, each in asked.items() if each)


# --- The image ------------------------------------------------------------------------------------------------------


def image(service: Service, settings: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield whether a machine has the image already. Only a machine could tell whether it can be pulled.

    Raises:
        KubernetesError: the API refused, or did not answer.
    """
    name = settings["image"]
    there = 0
    for node in service.items("/api/v1/nodes"):
        names = [
            str(one) for found in (node.get("status") or {}).get("images") or [] for one in found.get("names") or []
        ]
        there += bool({name, _by_digest(name)} & set(names))
    if there:
        yield fine("image", f"{name} is on {there} machines")
    else:
        told = f"{name} is on no machine yet: whether it can be pulled, only a machine can tell"
        yield unknown("image", told)


def _by_digest(name: str) -> str:
    """Return *name* without its tag, where it has a digest: so machines list it."""
    before, at, digest = name.partition("@")
    return f"{before.rpartition(':')[0]}@{digest}" if at and ":" in before.rpartition("/")[2] else name


def registry_of(image: str) -> str:
    """Return the host of *image*'s registry; that of a name without one is Docker Hub's."""
    host, slash, _ = image.partition("/")
    return host if slash and (set(host) & set(".:") or host == "localhost") else _DOCKER_HUB


def registries_in(secret: Object) -> list[str] | None:
    """Return the registries for which *secret* has a login; None where it is no Secret for images."""
    try:
        text = base64.b64decode(str((secret.get("data") or {})[".dockerconfigjson"]), validate=True)
        hosts = list(json.loads(text)["auths"])
    except (KeyError, ValueError, TypeError):
        return None
    plain = [str(one).removeprefix("https://").partition("/")[0] for one in hosts]
    return [_DOCKER_HUB if one == "index.docker.io" else printable(one) for one in plain]


# --- Storage --------------------------------------------------------------------------------------------------------


def claim(service: Service, volume: Mapping[str, Any], plan: Plan) -> Iterator[Finding]:
    """Yield whether the claim of a *volume* is there, can be mounted by all nodes, and gets storage.

    Raises:
        KubernetesError: the API refused, or did not answer.
    """
    name = volume["claim"]
    found = service.find(service.path("persistentvolumeclaims", name))
    if problems := checks.claim_problems(service, volume, plan):
        told, _, mend = problems[0].partition("; ")
        make = f"kubectl -n {service.namespace} apply -f <claim>.yaml  # docs/kubernetes.md has one"
        yield fails("storage", told, mend or make)
        return
    spec, phase = (found or {}).get("spec") or {}, ((found or {}).get("status") or {}).get("phase")
    modes = ", ".join(printable(mode) for mode in spec.get("accessModes") or [])
    if phase == "Bound":
        yield fine("storage", f"claim {name} is bound, {modes}")
        return
    storage_class = spec.get("storageClassName")
    if not storage_class:
        told = f"claim {name} is {printable(phase)} and names no storage class: an administrator must give it a volume"
        yield unknown("storage", told)
        return
    there = service.find(f"/apis/storage.k8s.io/v1/storageclasses/{storage_class}")
    if there is None:
        told = f"claim {name} is {printable(phase)}: there is no StorageClass {printable(storage_class)}"
        yield fails("storage", told, "kubectl get storageclass  # then make the claim again with one that there is")
    elif there.get("volumeBindingMode") == "WaitForFirstConsumer":
        yield fine("storage", f"claim {name} gets its volume of {printable(storage_class)} with its first pod, {modes}")
    else:
        told = f"claim {name} is {printable(phase)}: {printable(storage_class)} has given it no volume yet"
        yield unknown("storage", told, f"kubectl -n {service.namespace} describe pvc {name}")
