"""Checks of ``check.sh`` on Kubernetes: the API, rights, the namespace, the Job, machines, Secrets."""

from __future__ import annotations

import base64
import contextlib
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

from oci_cluster.backends.findings import Checked, Finding, Verdict, fails, fine, refused, unknown
from oci_cluster.backends.kubernetes.api.kubeconfig import open_access
from oci_cluster.backends.kubernetes.api.service import KubernetesError, Service
from oci_cluster.backends.kubernetes.cluster import preflight, requests
from oci_cluster.backends.kubernetes.cluster.states import way_out
from oci_cluster.backends.kubernetes.quota.usage import amount, is_amount, shown
from oci_cluster.backends.kubernetes.settings import bytes_of, settings_of
from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import ClusterError, SettingsError
from oci_cluster.system.console import Say
from oci_cluster.system.text import printable

Object = Mapping[str, Any]
Settings = Mapping[str, Any]
# How long one request is repeated: a person waits for it.
_PATIENCE_S = 20.0
_FORBIDDEN, _NOT_FOUND = 403, 404
_ITEMS = ("API", "rights", "namespace", "Job", "quota", "machines", "image")
# Taints that keep pods away; PreferNoSchedule does not.
_KEEPS_AWAY = {"NoSchedule", "NoExecute"}
_DOCKER_HUB = "docker.io"


def findings(checked: Checked, say: Say) -> Iterator[Finding]:
    """Yields what was found of the launch that *checked* is about, item by item."""
    settings: Settings | None = None
    if checked.plan is not None:
        with contextlib.suppress(SettingsError):  # told already
            settings = settings_of(checked.plan, checked.root)
    try:
        service = open_service(checked.given)
    except ClusterError as error:
        yield refused("API", error)
        yield from (unknown(item, "which Kubernetes is asked is not known") for item in _ITEMS[1:])
        return
    with contextlib.closing(service):
        yield from _found(service, checked, settings, say)


def open_service(given: Mapping[str, str]) -> Service:
    """Returns the API that the settings *given* name."""
    return Service(open_access(given), patience_s=_PATIENCE_S)


def _found(service: Service, checked: Checked, settings: Settings | None, say: Say) -> Iterator[Finding]:
    try:
        yield _reached(service, checked.given)
    except KubernetesError as error:
        yield refused("API", error)
        yield from (unknown(item, "the API cannot be asked") for item in _ITEMS[1:])
        return
    yield from _of("rights", lambda: _rights(service))
    why = ""
    for finding in _of("namespace", lambda: _namespace(service)):
        why = "its namespace is not there" if finding.verdict is Verdict.FAILS else ""
        yield finding
    if settings is None:
        why = "settings are so wrong that this cannot be seen; fix those first"
    if why or checked.plan is None or settings is None:
        yield from (unknown(item, why) for item in _ITEMS[3:])
        return
    for item, look in _looks(service, checked, checked.plan, settings, say):
        yield from _of(item, look)


def _looks(
    service: Service, checked: Checked, plan: Plan, settings: Settings, say: Say
) -> Iterator[tuple[str, Callable[[], Iterator[Finding]]]]:
    """Yields each item with what looks at it, in this order."""
    pods: list[Object] = []
    count = len(plan.nodes)
    gpus = {settings["gpu_resource"]: Decimal(settings["gpus"])} if settings["gpus"] else {}
    wanted = {"cpu": amount(settings["cpus"]), "memory": Decimal(bytes_of(settings["memory"])), **gpus}

    def job() -> Iterator[Finding]:
        try:
            made = requests.resolve(plan, settings, checked.root, service.namespace, say).objects[-1]
        except SettingsError as error:
            yield refused("Job", error)
            return
        pods.append(made["spec"]["template"]["spec"])
        yield from _job(service, made)

    yield "Job", job
    if settings["queue"]:
        yield "queue", partial(preflight.queue, service, settings)
    for setting in preflight.CLASSES:
        if settings[setting.lower()]:
            yield "priority", partial(preflight.priority, service, settings, setting)
    yield "quota", partial(preflight.quota, service, settings, wanted, count)
    # Without a Job, settings say which machines its pods want.
    spec = {"nodeSelector": settings["node_selector"], "tolerations": settings["tolerations"]}
    yield "machines", lambda: _machines(service, pods[0] if pods else spec, wanted, count)
    yield "image", partial(_image, service, settings["image"])
    yield from _named(service, settings, count)


def _named(service: Service, settings: Settings, count: int) -> Iterator[tuple[str, Callable[[], Iterator[Finding]]]]:
    for name in settings["pull_secrets"]:
        yield "pull secret", partial(_pull_secret, service, name, settings["image"])
    for name in settings["env_secrets"]:
        yield "Secret", partial(_secret, service, name)
    for volume in settings["volumes"]:
        if volume["claim"]:
            yield "storage", partial(preflight.claim, service, volume, count)
        elif "nfs" not in volume["source"]:
            yield "volume", partial(preflight.volume, service, volume, count)


def _of(item: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yields what *look* finds; without an answer the item is unknown."""
    try:
        yield from look()
    except KubernetesError as error:
        if error.code == _FORBIDDEN:
            yield unknown(item, f"you may not look at it: {error.reason}")
        else:
            yield unknown(item, error.reason, error.next_step)


def _reached(service: Service, given: Mapping[str, str]) -> Finding:
    version = printable(service.get("/version").get("gitVersion") or "of a version that it does not tell")
    access = service.access
    told = f"Kubernetes {version} at {access.server}, namespace {service.namespace}"
    if access.context and not given.get("KUBE_CONTEXT"):
        told += (
            f"; context {access.context} is the kubeconfig's current one: a launch asks, unless KUBE_CONTEXT names it"
        )
    return fine("API", told)


def _namespace(service: Service) -> Iterator[Finding]:
    name = service.namespace
    make = f"kubectl create namespace {name}"
    told = f"{name} is there"
    try:
        found = service.find(f"/api/v1/namespaces/{name}")
    except KubernetesError as error:
        if error.code != _FORBIDDEN:
            raise
        # A Secret is made there by every launch; nothing is kept of this one.
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "check", "namespace": name}}
        found = {}
        told += ": a Secret could be made in it"
        try:
            service.create(service.path("secrets"), body, dry_run=True)
        except KubernetesError as refusal:
            if refusal.code != _NOT_FOUND:
                raise
            found = None
    if found is None:
        yield fails("namespace", f"there is no namespace {name}", make)
    elif (phase := (found.get("status") or {}).get("phase", "Active")) != "Active":
        yield fails("namespace", f"{name} is {printable(phase)}", f"wait until it is gone, then: {make}")
    else:
        yield fine("namespace", told)


def _job(service: Service, job: dict[str, Any]) -> Iterator[Finding]:
    known = len(service.warnings)
    try:
        service.create(service.path("jobs"), job, dry_run=True)
    except KubernetesError as error:
        # Without an answer, or without the right to make one, nothing is known of the Job itself.
        if not error.code or "is forbidden: User" in str(error):
            raise
        yield fails("Job", error.reason, error.next_step or "fix what the API names")
        return
    violated = [text for text in service.warnings[known:] if "would violate PodSecurity" in text]
    if violated:
        fix = "leave out what it names, in POD_PATCH, VOLUMES or HOST_NETWORK; or use a namespace that allows it"
        yield fails("Job", f"its pods would be refused: {violated[0]}", fix)
    elif refusal := _refusal_of_pods(service, job):
        fix = way_out(str(refusal)) or "wait until others give back what they use, or ask for more"
        yield fails("Job", f"its pods would be refused: {refusal.reason}", fix)
    else:
        yield fine("Job", "the API would take it: nothing was made")


def _refusal_of_pods(service: Service, job: dict[str, Any]) -> KubernetesError | None:
    """Returns why the API would refuse a pod of *job*. Not all may ask that."""
    try:
        service.create(service.path("pods"), requests.pod_of(job), dry_run=True)
    except KubernetesError as error:
        return error if error.code and "is forbidden: User" not in str(error) else None
    return None


def _secret(service: Service, name: str) -> Iterator[Finding]:
    if service.find(service.path("secrets", name)) is None:
        make = f"kubectl -n {service.namespace} create secret generic {name} --from-env-file={name}.env"
        yield fails("Secret", f"ENV_SECRETS: there is no Secret {name} in namespace {service.namespace}", make)
    else:
        yield fine("Secret", f"{name} is there")


def _pull_secret(service: Service, name: str, image: str) -> Iterator[Finding]:
    host = _registry_of(image)
    make = (
        f"kubectl -n {service.namespace} create secret docker-registry {name} --docker-server={host} "
        "--docker-username='<namespace>/<user>' --docker-password='<auth token>'"
    )
    found = service.find(service.path("secrets", name))
    if found is None:
        yield fails("pull secret", f"there is no Secret {name} in namespace {service.namespace}", make)
        return
    again = f"kubectl -n {service.namespace} delete secret {name}\n{make}"
    hosts = _registries_in(found)
    if hosts is None:
        yield fails("pull secret", f"Secret {name} is none for images (kubernetes.io/dockerconfigjson)", again)
    elif host not in hosts:
        told = f"Secret {name} is for {', '.join(hosts) or 'no registry'}, and the image is in {host}"
        yield fails("pull secret", told, again)
    else:
        yield fine("pull secret", f"{name} has a login for {host}")


def _registry_of(image: str) -> str:
    """Returns the host of *image*'s registry; without one it is Docker Hub's."""
    host, slash, _ = image.partition("/")
    return host if slash and (set(host) & set(".:") or host == "localhost") else _DOCKER_HUB


def _registries_in(secret: Object) -> list[str] | None:
    """Returns the registries of *secret*'s logins; None: it is no Secret for images."""
    try:
        text = base64.b64decode(str((secret.get("data") or {})[".dockerconfigjson"]), validate=True)
        hosts = list(json.loads(text)["auths"])
    except (KeyError, ValueError, TypeError):
        return None
    plain = [str(one).removeprefix("https://").partition("/")[0] for one in hosts]
    return [_DOCKER_HUB if one == "index.docker.io" else printable(one) for one in plain]


# --- Rights -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Right:
    """One verb with one kind of objects, as the Role in docs/kubernetes-admin.md has it."""

    group: str
    resource: str
    """With what of it, such as ``pods/log``."""
    verb: str
    without: str = ""
    """What a launch lacks without it; empty: without it there is none."""

    @property
    def kind(self) -> str:
        """The kind as kubectl names it: ``jobs.batch``."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


def _each(group: str, resources: str, verbs: str, without: str = "") -> tuple[Right, ...]:
    return tuple(Right(group, what, verb, without) for what in resources.split() for verb in verbs.split())


_KUEUE = "kueue.x-k8s.io"
RIGHTS: tuple[Right, ...] = (
    *_each("batch", "jobs", "create get list patch delete"),
    *_each("", "pods", "list delete"),
    *_each("", "pods/log", "get"),
    *_each("", "secrets", "create get delete"),
    *_each("", "services", "create get list delete"),
    *_each("networking.k8s.io", "networkpolicies", "create get list delete"),
    *_each("", "events", "list", "why pods cannot be made is not told"),
    *_each("", "persistentvolumeclaims", "get", "claims are not looked at before"),
    *_each(_KUEUE, "localqueues", "get list", "the queue is not looked up before"),
    *_each(_KUEUE, "workloads", "list", "why a cluster waits in its queue is not told"),
    *_each(f"visibility.{_KUEUE}", "localqueues/pendingworkloads", "get", "the place in the queue is not told"),
    *_each("", "pods/portforward", "create get", "connect.sh reaches no port"),
)


def _rights(service: Service) -> Iterator[Finding]:
    missing: dict[str, list[Right]] = {}
    for right in RIGHTS:
        if not service.may(right.verb, right.resource, right.group):
            missing.setdefault(right.kind, []).append(right)
    lacking = {kind: rights for kind, rights in missing.items() if rights[0].without}
    for kind, rights in missing.items():
        if kind not in lacking:
            verbs = ", ".join(right.verb for right in rights)
            told = f"{verbs} of {kind} in namespace {service.namespace}, without which there is no launch"
            group = rights[0].group or '""'
            rule = f"{{apiGroups: [{group}], resources: [{rights[0].resource}], verbs: [{verbs}]}}"
            yield fails("rights", told, f"- {rule}  # into the Role of docs/kubernetes-admin.md")
    if len(lacking) == len(missing):
        told = f"all {len(RIGHTS) - sum(map(len, lacking.values()))} that a launch needs in {service.namespace}"
        less = [f"{kind}: {rights[0].without}" for kind, rights in lacking.items()]
        yield fine("rights", "; ".join([told, *less]))


# --- Machines ---------------------------------------------------------------------------------------------------------


def _machines(service: Service, spec: Object, wanted: Mapping[str, Decimal], count: int) -> Iterator[Finding]:
    """Yields whether machines could hold *count* pods of *spec*, whatever runs there now."""
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
        yield unknown("machines", f"{told}: the others need machines that a pool has yet to add", _fix(reasons))
    else:
        yield fails("machines", f"{told}; only a pool that grows from nothing could help", _fix(reasons))


def _fix(reasons: Counter[str]) -> str:
    most = reasons.most_common(1)[0][0] if reasons else ""
    if most == "too small":
        return "choose smaller CPUS, MEMORY or GPUS, or add larger machines"
    if most.startswith("with the taint "):
        return f"TOLERATIONS={most.removeprefix('with the taint ')}"
    if most == "without the labels of NODE_SELECTOR":
        return "kubectl get nodes --show-labels  # then set NODE_SELECTOR to labels that there are"
    return "launch fewer workers, or add machines"


def _why_not(node: Object, spec: Object) -> str:
    """Returns why no pod of *spec* can be on *node*; empty where one can."""
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
    """Returns how many pods that request what is *wanted* an empty *node* could hold."""
    there = (node.get("status") or {}).get("allocatable") or {}
    asked = {**wanted, "pods": Decimal(1)}
    has = {name: amount(there[name]) if is_amount(there.get(name)) else Decimal(0) for name in asked}
    return min(math.floor(has[name] / each) for name, each in asked.items() if each)


def _image(service: Service, name: str) -> Iterator[Finding]:
    """Yields whether a machine has the image. Only a machine could tell whether it can be pulled."""
    there = 0
    for node in service.items("/api/v1/nodes"):
        images = (node.get("status") or {}).get("images") or []
        there += bool({name, _by_digest(name)} & {str(one) for found in images for one in found.get("names") or []})
    if there:
        yield fine("image", f"{name} is on {there} machines")
    else:
        yield unknown("image", f"{name} is on no machine yet: whether it can be pulled, only a machine can tell")


def _by_digest(name: str) -> str:
    """Returns *name* as machines list it: without its tag where it has a digest."""
    before, at, digest = name.partition("@")
    return f"{before.rpartition(':')[0]}@{digest}" if at and ":" in before.rpartition("/")[2] else name
