"""What a launch needs of a Kubernetes, and what is looked for before anything is made."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from oci_cluster.backends.kubernetes.access import Access
from oci_cluster.backends.kubernetes.service import KubernetesError, Service
from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import SettingsError, StoppedError, UsageError
from oci_cluster.system.console import Say
from oci_cluster.system.text import printable

# Of claims that more than one machine can mount.
_SHARED_MODES = {"ReadWriteMany", "ReadOnlyMany"}
_FORBIDDEN = 403


def check_place(service: Service, plan: Plan, settings: Mapping[str, Any]) -> None:
    """Check that what *plan* names is there: claims that all nodes can mount, the queue, its priority.

    What the user may not look at is not checked here: Kubernetes itself refuses it then, or waits.

    Raises:
        SettingsError: something is not there, or cannot serve; says what there is.
        KubernetesError: the API did not answer.
    """
    problems = [
        *(problem for volume in settings["volumes"] for problem in volume_problems(service, volume, plan)),
        *(queue_problems(service, settings["queue"]) if settings["queue"] else []),
        *(class_problems(service, "PRIORITY", settings["priority"]) if settings["priority"] else []),
        *(class_problems(service, "PRIORITY_CLASS", settings["priority_class"]) if settings["priority_class"] else []),
    ]
    if problems:
        raise SettingsError("; ".join(problems))


def volume_problems(service: Service, volume: Mapping[str, Any], plan: Plan) -> list[str]:
    """Return what is wrong with what a *volume* names: without it pods wait for ever, and do not say why."""
    if volume["claim"]:
        return claim_problems(service, volume, plan)
    secret, config = volume["source"].get("secret"), volume["source"].get("configMap")
    if not secret and not config:
        return []
    kind, list_name, name = (
        ("Secret", "secrets", secret["secretName"]) if secret else ("ConfigMap", "configmaps", config["name"])
    )
    try:
        is_there = service.find(service.path(list_name, name)) is not None
    except KubernetesError as error:
        if error.code == _FORBIDDEN:
            return []
        raise
    return [] if is_there else [f"VOLUMES: there is no {kind} '{name}' in namespace {service.namespace}"]


def claim_problems(service: Service, volume: Mapping[str, Any], plan: Plan) -> list[str]:
    """Return what is wrong with the claim of a *volume*: it is not there, or one machine alone can mount it."""
    name = volume["claim"]
    try:
        claim = service.find(service.path("persistentvolumeclaims", name))
    except KubernetesError as error:
        if error.code == _FORBIDDEN:
            return []
        raise
    if claim is None:
        return [f"VOLUMES: there is no PersistentVolumeClaim '{name}' in namespace {service.namespace}"]
    modes = (claim.get("spec") or {}).get("accessModes") or []
    if len(plan.nodes) > 1 and not _SHARED_MODES & {str(mode) for mode in modes}:
        shown = ", ".join(printable(mode) for mode in modes)
        need = f"{len(plan.nodes)} nodes need ReadWriteMany, such as OCI File Storage (docs/kubernetes.md)"
        return [f"VOLUMES: the claim '{name}' is {shown}, which one machine can mount; {need}"]
    return []


def queue_problems(service: Service, name: str) -> list[str]:
    """Return whether there is no LocalQueue *name*, or no Kueue at all, and which queues there are."""
    try:
        if service.find(service.path("localqueues", name)) is not None:
            return []
        there = [str(item["metadata"]["name"]) for item in service.items(service.path("localqueues"))]
    except KubernetesError as error:
        if error.code == _FORBIDDEN:
            return []
        if error.code == 404:  # the kind itself is not known
            return ["QUEUE: this Kubernetes has no Kueue, or one older than 0.16; leave --queue out, or install it"]
        raise
    listed = ", ".join(printable(one) for one in there) or "none"
    return [f"QUEUE: there is no LocalQueue '{name}' in namespace {service.namespace}; there is: {listed}"]


# Of a setting: what it names, and the list in which that is.
CLASSES = {
    "PRIORITY": ("WorkloadPriorityClass", "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses"),
    "PRIORITY_CLASS": ("PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses"),
}


def class_problems(service: Service, setting: str, name: str) -> list[str]:
    """Return whether there is none of the *name* that a *setting* has, where the user may see those that are there."""
    kind, path = CLASSES[setting]
    try:
        there = [str(item["metadata"]["name"]) for item in service.items(path)]
    except KubernetesError as error:
        if error.code in {404, _FORBIDDEN}:
            return []
        raise
    listed = ", ".join(printable(one) for one in there) or "none"
    return [] if name in there else [f"{setting}: there is no {kind} '{name}'; there is: {listed}"]


def confirm(access: Access, given: dict[str, str], say: Say) -> None:
    """Have a person agree to a context that nobody has named: a kubeconfig's current one is often another's.

    Raises:
        UsageError: nobody is there to be asked.
        StoppedError: the answer was no.
    """
    if given.get("KUBE_CONTEXT") or not access.context:
        return
    where = f"context {access.context} ({access.server}), namespace {access.namespace}"
    advice = f"name it: KUBE_CONTEXT={shlex.quote(access.context)}"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"this would go to the kubeconfig's current {where}; if that is meant, {advice}")
    say(f"{where}; to be asked no more, {advice}")
    say("launch there? [y/N]")
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise StoppedError("not launched")
    # For all that this launcher starts, and who ends the cluster in its place: the current one may change.
    given["KUBE_CONTEXT"] = os.environ["KUBE_CONTEXT"] = access.context
