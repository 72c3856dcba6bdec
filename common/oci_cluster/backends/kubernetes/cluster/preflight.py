"""Look-ups of a launch's claims, queues, priorities and quotas, also for ``check.sh``.

Each raises KubernetesError where the API refused, or did not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from oci_cluster.backends.findings import Finding, fails, fine, unknown
from oci_cluster.backends.kubernetes.api.service import KUEUE, KubernetesError, Object, Service
from oci_cluster.backends.kubernetes.quota import usage
from oci_cluster.backends.kubernetes.quota.usage import amount, is_amount, shown
from oci_cluster.errors import SettingsError
from oci_cluster.system.text import printable

Settings = Mapping[str, Any]
Wanted = Mapping[str, Decimal]

# Of claims that more than one machine can mount.
_SHARED_MODES = {"ReadWriteMany", "ReadOnlyMany"}
_FORBIDDEN, _NOT_FOUND = 403, 404
# Of a setting: what it names, and the list in which that is.
CLASSES = {
    "PRIORITY": ("WorkloadPriorityClass", f"{KUEUE}/workloadpriorityclasses"),
    "PRIORITY_CLASS": ("PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses"),
}


def check_place(service: Service, settings: Settings, count: int) -> None:
    """Checks that volumes, queue and priorities of a launch of *count* nodes exist.

    What the user may not look at is not checked here: Kubernetes itself refuses it then, or waits.

    Raises:
        SettingsError: something is not there, or cannot serve; says what there is.
    """
    looks: list[Callable[[], Finding | None]] = [
        *(partial(volume_problem, service, volume, count) for volume in settings["volumes"]),
        *([partial(queue_problem, service, settings["queue"])] if settings["queue"] else []),
        *(partial(class_problem, service, name, settings) for name in CLASSES if settings[name.lower()]),
    ]
    problems = []
    for look in looks:
        try:
            problems.append(look())
        except KubernetesError as error:
            if error.code not in {_FORBIDDEN, _NOT_FOUND}:
                raise
    if told := [problem.text for problem in problems if problem]:
        raise SettingsError("; ".join(told))


# --- What is wrong with what a setting names; None where nothing is ---------------------------------------------------


def volume_problem(service: Service, volume: Settings, count: int) -> Finding | None:
    """Looks up the claim, Secret or ConfigMap of a *volume*: pods would wait silently."""
    if volume["claim"]:
        return _claim_problem(service, volume["claim"], count, _claim(service, volume))
    for source, key, kind in (("secret", "secretName", "Secret"), ("configMap", "name", "ConfigMap")):
        if (named := volume["source"].get(source)) and not service.find(service.path(f"{kind.lower()}s", named[key])):
            told = f"VOLUMES: there is no {kind} '{named[key]}' in namespace {service.namespace}"
            return fails("volume", told, "make it, or leave it out of VOLUMES")
    return None


def _claim(service: Service, volume: Settings) -> Object | None:
    return service.find(service.path("persistentvolumeclaims", volume["claim"]))


def _claim_problem(service: Service, name: str, count: int, claim: Object | None) -> Finding | None:
    make = f"kubectl -n {service.namespace} apply -f <claim>.yaml  # ReadWriteMany; see docs/kubernetes.md"
    if claim is None:
        return fails(
            "storage", f"VOLUMES: there is no PersistentVolumeClaim '{name}' in namespace {service.namespace}", make
        )
    modes = [printable(mode) for mode in (claim.get("spec") or {}).get("accessModes") or []]
    if count == 1 or _SHARED_MODES & set(modes):
        return None
    told = (
        f"VOLUMES: the claim '{name}' is {', '.join(modes)}, which one machine can mount; {count} nodes need "
        "ReadWriteMany, such as OCI File Storage (docs/kubernetes.md)"
    )
    return fails("storage", told, make)


def queue_problem(service: Service, name: str) -> Finding | None:
    """Looks up the LocalQueue *name*."""
    try:
        if service.find(service.path("localqueues", name)) is not None:
            return None
        there = _names(service, service.path("localqueues"))
    except KubernetesError as error:
        if error.code != _NOT_FOUND:  # else the kind itself is not known
            raise
        told = "QUEUE: this Kubernetes has no Kueue, or one older than 0.16; leave --queue out, or install it"
        return fails("queue", told, "leave QUEUE out")
    return _missing("queue", "QUEUE", f"LocalQueue '{name}' in namespace {service.namespace}", there)


def class_problem(service: Service, setting: str, settings: Settings) -> Finding | None:
    """Looks up the class that ``PRIORITY`` or ``PRIORITY_CLASS`` names."""
    (kind, path), name = CLASSES[setting], settings[setting.lower()]
    there = _names(service, path)
    return None if name in there else _missing("priority", setting, f"{kind} '{name}'", there)


def _names(service: Service, path: str) -> list[str]:
    return [printable(item["metadata"]["name"]) for item in service.items(path)]


def _missing(item: str, setting: str, what: str, there: list[str]) -> Finding:
    listed = ", ".join(there)
    fix = f"{setting}=<one of: {listed}>" if there else f"leave {setting} out"
    return fails(item, f"{setting}: there is no {what}; there is: {listed or 'none'}", fix)


# --- For check.sh -----------------------------------------------------------------------------------------------------


def queue(service: Service, settings: Settings) -> Iterator[Finding]:
    """Yields whether the LocalQueue is there, and open."""
    name = settings["queue"]
    if problem := queue_problem(service, name):
        yield problem
        return
    found = service.get(service.path("localqueues", name))
    if (state := usage.state_of(found)) not in {"open", "unknown"}:
        yield fails("queue", f"LocalQueue {name} is {state}", "ask your administrator: quota.sh resume TEAM")
    else:
        yield fine("queue", f"LocalQueue {name} of ClusterQueue {printable(_cluster_queue(found))}")


def priority(service: Service, settings: Settings, setting: str) -> Iterator[Finding]:
    """Yields whether the class is there that ``PRIORITY`` or ``PRIORITY_CLASS`` names."""
    there = fine("priority", f"{CLASSES[setting][0]} {settings[setting.lower()]} is there")
    yield class_problem(service, setting, settings) or there


def volume(service: Service, volume: Settings, count: int) -> Iterator[Finding]:
    """Yields whether what a *volume* mounts is there."""
    there = fine("volume", f"what is mounted as /mnt/{volume['name']} is there")
    yield volume_problem(service, volume, count) or there


def claim(service: Service, volume: Settings, count: int) -> Iterator[Finding]:
    """Yields whether all nodes can mount a *volume*'s claim, and whether it gets storage."""
    name, found = volume["claim"], _claim(service, volume)
    if problem := _claim_problem(service, name, count, found):
        yield problem
        return
    spec, phase = (found or {}).get("spec") or {}, printable(((found or {}).get("status") or {}).get("phase"))
    modes, kind = ", ".join(printable(mode) for mode in spec.get("accessModes") or []), spec.get("storageClassName")
    told = f"claim {name} is {phase}"
    if phase == "Bound":
        yield fine("storage", f"claim {name} is bound, {modes}")
    elif not kind:
        yield unknown("storage", f"{told} and names no storage class: an administrator must give it a volume")
    elif (there := service.find(f"/apis/storage.k8s.io/v1/storageclasses/{kind}")) is None:
        make = "kubectl get storageclass  # then make the claim again with one that there is"
        yield fails("storage", f"{told}: there is no StorageClass {printable(kind)}", make)
    elif there.get("volumeBindingMode") == "WaitForFirstConsumer":
        yield fine("storage", f"claim {name} gets its volume of {printable(kind)} with its first pod, {modes}")
    else:
        look = f"kubectl -n {service.namespace} describe pvc {name}"
        yield unknown("storage", f"{told}: {printable(kind)} has given it no volume yet", look)


def quota(service: Service, settings: Settings, wanted: Wanted, count: int) -> Iterator[Finding]:
    """Yields whether *count* pods fit into the quota of their team or namespace."""
    of = _of_team(service, settings["queue"], wanted, count) if settings["queue"] else None
    yield from of or _of_namespace(service, wanted, count)


def _of_team(service: Service, name: str, wanted: Wanted, count: int) -> Iterator[Finding]:
    found = service.find(service.path("localqueues", name))
    if found is None:
        yield unknown("quota", f"there is no LocalQueue {name}, which would say whose quota counts")
        return
    team = printable(_cluster_queue(found))
    cluster_queue = service.find(f"{KUEUE}/clusterqueues/{_cluster_queue(found)}")
    if cluster_queue is None:
        told = f"there is no ClusterQueue {team}, of which LocalQueue {name} is"
        yield fails("quota", told, "tell your administrator: the queue admits nothing")
    elif (state := usage.state_of(cluster_queue)) not in {"open", "unknown"}:
        told = f"ClusterQueue {team} is {state}: the cluster would wait"
        yield fails("quota", told, f"ask your administrator: quota.sh resume {team}")
    else:
        uses = usage.uses([cluster_queue])
        for resource, each in wanted.items():
            yield _use_of(team, resource, each * count, [one for one in uses if one.resource == resource])


def _use_of(team: str, resource: str, need: Decimal, uses: list[usage.Use]) -> Finding:
    """Returns whether the *need* of a *resource* fits into one flavor of a team."""
    if not uses:
        told = f"the quota of {team} does not name {resource}, which nodes request: the cluster could never start"
        return fails("quota", told, f"ask your administrator for {resource} in the quota of {team}")
    free, most = max(one.nominal - one.used for one in uses), max(one.nominal for one in uses)
    told = _told(free, shown(most), f"{resource} of {team}", need)
    if need <= free:
        return fine("quota", told)
    if need <= most:
        return fine("quota", f"{told}: the cluster waits until others of its team end")
    if uses[0].cohort:
        return unknown("quota", f"{told}: the rest must be borrowed in the cohort {printable(uses[0].cohort)}")
    return fails("quota", f"{told}: the cluster could never start", "launch fewer workers, or ask for more quota")


def _told(free: Decimal, most: str, of_what: str, need: Decimal) -> str:
    return f"{shown(max(free, Decimal(0)))} of {most} {of_what} are free, and {shown(need)} are needed"


def _of_namespace(service: Service, wanted: Wanted, count: int) -> Iterator[Finding]:
    need = {name: each * count for name, each in wanted.items()} | {"pods": Decimal(count)}
    bounded = False
    for row in usage.plain_rows(service.items(f"/api/v1/namespaces/{service.namespace}/resourcequotas")):
        resource = row["resource"].removeprefix("requests.")
        if resource not in need or not (is_amount(row["nominal"]) and is_amount(row["used"])):
            continue
        bounded = True
        most, used = amount(row["nominal"]), amount(row["used"])
        of_what = f"{printable(resource)} of ResourceQuota {printable(row['team'])}"
        told = _told(most - used, row["nominal"], of_what, need[resource])
        if need[resource] <= most - used:
            yield fine("quota", told)
        else:
            ways = "end other clusters of the namespace, or launch fewer workers"
            yield fails(
                "quota", told, ways if need[resource] <= most else "launch fewer workers, or ask for more quota"
            )
    if not bounded:
        yield fine("quota", f"no ResourceQuota bounds namespace {service.namespace}")


def _cluster_queue(queue: Object) -> str:
    return str((queue.get("spec") or {}).get("clusterQueue") or "")
