"""Look-ups of claims, queues, priorities and quotas, for launches and ``check.sh``.

Each raises KubernetesError where the API refused, or did not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from oci_cluster.backends.findings import Finding, Verdict, fails, fine, unknown
from oci_cluster.backends.kubernetes.api.service import KUEUE, KubernetesError, Service
from oci_cluster.backends.kubernetes.quota import usage
from oci_cluster.backends.kubernetes.quota.usage import amount, is_amount, shown
from oci_cluster.errors import SettingsError
from oci_cluster.system.text import printable

Settings = Mapping[str, Any]
Wanted = Mapping[str, Decimal]
Look = Callable[[], Iterator[Finding]]

# Of claims that more than one machine can mount.
_SHARED_MODES = {"ReadWriteMany", "ReadOnlyMany"}
_FORBIDDEN, _NOT_FOUND = 403, 404
# Of a setting: what it names, and the list in which that is.
_CLASSES = {
    "PRIORITY": ("WorkloadPriorityClass", f"{KUEUE}/workloadpriorityclasses"),
    "PRIORITY_CLASS": ("PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses"),
}


def check_place(service: Service, settings: Settings, count: int) -> None:
    """Checks that volumes, queue and priorities of a launch of *count* nodes exist.

    What the user may not look at is not checked here: Kubernetes itself refuses it then, or waits.

    Raises:
        SettingsError: something is not there, or cannot serve; says what there is.
    """
    told: list[str] = []
    for _, look in looks(service, settings, count):
        try:
            told += [finding.text for finding in look() if finding.verdict is Verdict.FAILS]
        except KubernetesError as error:
            if error.code not in {_FORBIDDEN, _NOT_FOUND}:
                raise
    if told:
        raise SettingsError("; ".join(told))


def looks(service: Service, settings: Settings, count: int) -> Iterator[tuple[str, Look]]:
    """Yields an item and its look for each thing that *settings* name."""
    if settings["queue"]:
        yield "queue", partial(_queue, service, settings["queue"])
    for setting in _CLASSES:
        if name := settings[setting.lower()]:
            yield "priority", partial(_priority, service, setting, name)
    for volume in settings["volumes"]:
        if volume["claim"]:
            yield "storage", partial(_claim, service, volume["claim"], count)
        elif "nfs" not in volume["source"]:
            yield "volume", partial(_volume, service, volume)


def _volume(service: Service, volume: Settings) -> Iterator[Finding]:
    for source, key, kind in (("secret", "secretName", "Secret"), ("configMap", "name", "ConfigMap")):
        if named := volume["source"].get(source):
            name = named[key]
            if service.find(service.path(f"{kind.lower()}s", name)):
                yield fine("volume", f"what is mounted as /mnt/{volume['name']} is there")
            else:  # pods would wait silently
                told = f"VOLUMES: there is no {kind} '{name}' in namespace {service.namespace}"
                yield fails("volume", told, "make it, or leave it out of VOLUMES")


def _claim(service: Service, name: str, count: int) -> Iterator[Finding]:
    """Yields whether all nodes can mount the claim *name*, and whether it gets storage."""
    make = f"kubectl -n {service.namespace} apply -f <claim>.yaml  # ReadWriteMany; see docs/kubernetes.md"
    claim = service.find(service.path("persistentvolumeclaims", name))
    if claim is None:
        told = f"VOLUMES: there is no PersistentVolumeClaim '{name}' in namespace {service.namespace}"
        yield fails("storage", told, make)
        return
    spec, phase = claim.get("spec") or {}, printable((claim.get("status") or {}).get("phase"))
    modes, kind = [printable(mode) for mode in spec.get("accessModes") or []], spec.get("storageClassName")
    listed, told = ", ".join(modes), f"claim {name} is {phase}"
    if count > 1 and not _SHARED_MODES & set(modes):
        told = f"VOLUMES: the claim '{name}' is {listed}, which one machine can mount; {count} nodes need ReadWriteMany"
        yield fails("storage", f"{told}, such as OCI File Storage (docs/kubernetes.md)", make)
    elif phase == "Bound":
        yield fine("storage", f"claim {name} is bound, {listed}")
    elif not kind:
        yield unknown("storage", f"{told} and names no storage class: an administrator must give it a volume")
    elif (there := service.find(f"/apis/storage.k8s.io/v1/storageclasses/{kind}")) is None:
        again = "kubectl get storageclass  # then make the claim again with one that there is"
        yield fails("storage", f"{told}: there is no StorageClass {printable(kind)}", again)
    elif there.get("volumeBindingMode") == "WaitForFirstConsumer":
        yield fine("storage", f"claim {name} gets its volume of {printable(kind)} with its first pod, {listed}")
    else:
        look = f"kubectl -n {service.namespace} describe pvc {name}"
        yield unknown("storage", f"{told}: {printable(kind)} has given it no volume yet", look)


def _queue(service: Service, name: str) -> Iterator[Finding]:
    try:
        if found := service.find(service.path("localqueues", name)):
            team = printable((found.get("spec") or {}).get("clusterQueue"))
            if (state := usage.state_of(found)) in {"open", "unknown"}:
                yield fine("queue", f"LocalQueue {name} of ClusterQueue {team}")
            else:
                told = f"LocalQueue {name}, {state}: the cluster would wait"
                yield unknown("queue", told, f"ask your administrator: quota.sh resume {team}")
            return
        there = _names(service, service.path("localqueues"))
    except KubernetesError as error:
        if error.code != _NOT_FOUND:  # else the kind itself is not known
            raise
        told = "QUEUE: this Kubernetes has no Kueue, or one older than 0.16; leave --queue out, or install it"
        yield fails("queue", told, "leave QUEUE out")
    else:
        yield _missing("queue", "QUEUE", f"LocalQueue '{name}' in namespace {service.namespace}", there)


def _priority(service: Service, setting: str, name: str) -> Iterator[Finding]:
    kind, path = _CLASSES[setting]
    there = _names(service, path)
    is_there = fine("priority", f"{kind} {name} is there")
    yield is_there if name in there else _missing("priority", setting, f"{kind} '{name}'", there)


def _names(service: Service, path: str) -> list[str]:
    return [printable(item["metadata"]["name"]) for item in service.items(path)]


def _missing(item: str, setting: str, what: str, there: list[str]) -> Finding:
    listed = ", ".join(there)
    fix = f"{setting}=<one of: {listed}>" if there else f"leave {setting} out"
    return fails(item, f"{setting}: there is no {what}; there is: {listed or 'none'}", fix)


def quota(service: Service, wanted: Wanted, count: int) -> Iterator[Finding]:
    """Yields whether *count* pods fit into what the ResourceQuotas of the namespace leave."""
    need = {name: each * count for name, each in wanted.items()} | {"pods": Decimal(count)}
    bounded = False
    for quota in service.items(f"/api/v1/namespaces/{service.namespace}/resourcequotas"):
        status = quota.get("status") or {}
        for name, most in (status.get("hard") or {}).items():
            resource, used = name.removeprefix("requests."), (status.get("used") or {}).get(name, "0")
            if resource not in need or not (is_amount(most) and is_amount(used)):
                continue
            bounded = True
            free = max(amount(most) - amount(used), Decimal(0))
            of_what = f"{printable(resource)} of ResourceQuota {printable(quota['metadata']['name'])}"
            told = f"{shown(free)} of {most} {of_what} are free, and {shown(need[resource])} are needed"
            if need[resource] <= free:
                yield fine("quota", told)
            elif need[resource] <= amount(most):
                yield fails("quota", told, "end other clusters of the namespace, or launch fewer workers")
            else:
                yield fails("quota", told, "launch fewer workers, or ask for more quota")
    if not bounded:
        yield fine("quota", f"no ResourceQuota bounds namespace {service.namespace}")
