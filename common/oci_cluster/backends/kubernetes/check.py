"""Checks of ``check.sh`` on Kubernetes: the API, rights, the namespace, the Job, Secrets."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from oci_cluster.backends.findings import Checked, Finding, Verdict, fails, fine, refused, unknown
from oci_cluster.backends.kubernetes.api.kubeconfig import open_access
from oci_cluster.backends.kubernetes.api.service import KubernetesError, Service
from oci_cluster.backends.kubernetes.cluster import manifests, preflight
from oci_cluster.backends.kubernetes.cluster.states import way_out
from oci_cluster.backends.kubernetes.quota.usage import amount
from oci_cluster.backends.kubernetes.settings import bytes_of, settings_of
from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import ClusterError, SettingsError
from oci_cluster.system.console import Say
from oci_cluster.system.text import printable

Settings = Mapping[str, Any]
# How long one request is repeated: a person waits for it.
_PATIENCE_S = 20.0
_FORBIDDEN = 403
_ITEMS = ("API", "rights", "namespace", "Job", "quota")


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
) -> Iterator[tuple[str, preflight.Look]]:
    """Yields each item with what looks at it, in this order."""
    count = len(plan.nodes)
    gpus = {settings["gpu_resource"]: Decimal(settings["gpus"])} if settings["gpus"] else {}
    wanted = {"cpu": amount(settings["cpus"]), "memory": Decimal(bytes_of(settings["memory"])), **gpus}

    def job() -> Iterator[Finding]:
        try:
            made = manifests.resolve(plan, settings, checked.root, service.namespace, say).objects[-1]
        except SettingsError as error:
            yield refused("Job", error)
            return
        yield from _job(service, made)

    yield "Job", job
    yield from preflight.looks(service, settings, count)
    yield "quota", partial(preflight.quota, service, wanted, count)
    for name in settings["pull_secrets"]:
        login = "--docker-server=<registry> --docker-username='<namespace>/<user>' --docker-password='<auth token>'"
        make = f"docker-registry {name} {login}"
        yield "pull secret", partial(_secret, service, "pull secret", name, make)
    for name in settings["env_secrets"]:
        yield "Secret", partial(_secret, service, "Secret", name, f"generic {name} --from-env-file={name}.env")


def _of(item: str, look: preflight.Look) -> Iterator[Finding]:
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
    found = service.find(f"/api/v1/namespaces/{name}")
    if found is None:
        yield fails("namespace", f"there is no namespace {name}", make)
    elif (phase := (found.get("status") or {}).get("phase", "Active")) != "Active":
        yield fails("namespace", f"{name} is {printable(phase)}", f"wait until it is gone, then: {make}")
    else:
        yield fine("namespace", f"{name} is there")


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
        service.create(service.path("pods"), manifests.pod_of(job), dry_run=True)
    except KubernetesError as error:
        return error if error.code and "is forbidden: User" not in str(error) else None
    return None


def _secret(service: Service, item: str, name: str, make: str) -> Iterator[Finding]:
    """Yields whether the Secret *name* is there; *make* are words of kubectl."""
    if service.find(service.path("secrets", name)):
        yield fine(item, f"{name} is there")
    else:
        told = f"there is no Secret {name} in namespace {service.namespace}"
        yield fails(item, told, f"kubectl -n {service.namespace} create secret {make}")


# --- Rights -----------------------------------------------------------------------------------------------------------


class Right(NamedTuple):
    """One verb with one kind of objects, as the Role in docs/kubernetes-admin.md has it."""

    group: str
    resource: str  # with what of it, such as `pods/log`
    verb: str
    without: str  # what a launch lacks without it; empty: without it there is none

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
    *_each("", "services", "create get delete"),
    *_each("networking.k8s.io", "networkpolicies", "create get delete"),
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
