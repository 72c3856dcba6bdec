"""What ``check.sh`` looks at where nodes are pods: the API, rights, the namespace, and what a cluster needs of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from oci_cluster.backends.findings import Checked, Finding, Verdict, fails, fine, refused, unknown
from oci_cluster.backends.kubernetes import check_machines, check_quota, checks, requests
from oci_cluster.backends.kubernetes.access import open_access
from oci_cluster.backends.kubernetes.refused_pods import way_out
from oci_cluster.backends.kubernetes.rights import RIGHTS, Right, rule
from oci_cluster.backends.kubernetes.service import KubernetesError, Service
from oci_cluster.backends.kubernetes.settings import settings_of
from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import ClusterError, SettingsError
from oci_cluster.system.console import Say
from oci_cluster.system.text import printable

# How long one request is repeated: a person waits for it.
_PATIENCE_S = 20.0
_FORBIDDEN, _NOT_FOUND = 403, 404
_ITEMS = ("API", "rights", "namespace", "Job", "quota", "machines", "image")


def findings(checked: Checked, say: Say) -> Iterator[Finding]:
    """Yield what was found of the launch that *checked* is about, item by item."""
    plan = checked.plan
    settings: Mapping[str, Any] | None = None
    if plan is not None:
        try:
            settings = settings_of(plan, checked.root)
        except SettingsError:  # told already
            plan = None
    try:
        service = open_service(checked.given)
    except ClusterError as error:
        yield refused("API", error)
        yield from (unknown(item, "which Kubernetes is asked is not known") for item in _ITEMS[1:])
        return
    try:
        yield from _found(service, checked, plan, settings, say)
    finally:
        service.close()


def open_service(given: Mapping[str, str]) -> Service:
    """Return the API that the settings *given* name."""
    return Service(open_access(given), patience_s=_PATIENCE_S)


def _found(
    service: Service, checked: Checked, plan: Plan | None, settings: Mapping[str, Any] | None, say: Say
) -> Iterator[Finding]:
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
    if plan is None or settings is None:
        why = "settings are so wrong that this cannot be seen; mend those first"
    if why or plan is None or settings is None:
        yield from (unknown(item, why) for item in _ITEMS[3:])
        return
    for item, look in _looks(service, plan, settings, checked.root, say):
        yield from _of(item, look)


def _looks(
    service: Service, plan: Plan, settings: Mapping[str, Any], root: Path, say: Say
) -> Iterator[tuple[str, Callable[[], Iterator[Finding]]]]:
    """Yield the items of a cluster in its namespace, and what looks at each, in this order."""
    pod: dict[str, Any] = {}
    count, wanted = len(plan.nodes), check_machines.wanted_of(settings)
    yield "Job", partial(_job, service, plan, root, pod, say)
    if settings["queue"]:
        yield "queue", partial(check_quota.queue, service, settings)
    for setting in checks.CLASSES:
        if settings[setting.lower()]:
            yield "priority", partial(check_quota.priority, service, settings, setting)
    yield "quota", partial(check_quota.quota, service, settings, wanted, count)
    yield "machines", partial(check_machines.machines, service, pod, wanted, settings, count)
    yield "image", partial(check_machines.image, service, settings)
    for name in settings["pull_secrets"]:
        yield "pull secret", partial(_pull_secret, service, name, settings["image"])
    for name in settings["env_secrets"]:
        yield "Secret", partial(_secret, service, name)
    for volume in settings["volumes"]:
        if volume["claim"]:
            yield "storage", partial(check_machines.claim, service, volume, plan)
        elif "nfs" not in volume["source"]:
            yield "volume", partial(_mounted, service, volume, plan)


def _of(item: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield what *look* finds; what the API does not tell is not known."""
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


def _rights(service: Service) -> Iterator[Finding]:
    """Yield which rights of the Role are missing, kind by kind."""
    missing: dict[str, list[Right]] = {}
    for right in RIGHTS:
        if not service.may(right.verb, right.resource, right.group):
            missing.setdefault(right.kind, []).append(right)
    lacking = {kind: rights for kind, rights in missing.items() if rights[0].without}
    for kind, rights in missing.items():
        if kind not in lacking:
            verbs = ", ".join(right.verb for right in rights)
            told = f"{verbs} of {kind} in namespace {service.namespace}, without which there is no launch"
            yield fails("rights", told, f"{rule(rights)}  # into the Role of docs/kubernetes.md")
    if len(lacking) == len(missing):
        told = f"all {len(RIGHTS) - sum(map(len, lacking.values()))} that a launch needs in {service.namespace}"
        less = [f"{kind}: {rights[0].without}" for kind, rights in lacking.items()]
        yield fine("rights", "; ".join([told, *less]))


def _namespace(service: Service) -> Iterator[Finding]:
    """Yield whether the namespace is there, so that things can be made in it."""
    name = service.namespace
    make = f"kubectl create namespace {name}"
    try:
        found = service.find(f"/api/v1/namespaces/{name}")
    except KubernetesError as error:
        if error.code != _FORBIDDEN:
            raise
        # A Secret is made there by every launch; nothing is kept of this one.
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "check", "namespace": name}}
        try:
            service.create(service.path("secrets"), body, dry_run=True)
        except KubernetesError as refusal:
            if refusal.code != _NOT_FOUND:
                raise
            yield fails("namespace", f"there is no namespace {name}", make)
            return
        yield fine("namespace", f"{name} is there: a Secret could be made in it")
        return
    if found is None:
        yield fails("namespace", f"there is no namespace {name}", make)
    elif (phase := (found.get("status") or {}).get("phase", "Active")) != "Active":
        yield fails("namespace", f"{name} is {printable(phase)}", f"wait until it is gone, then: {make}")
    else:
        yield fine("namespace", f"{name} is there")


def _job(service: Service, plan: Plan, root: Path, pod: dict[str, Any], say: Say) -> Iterator[Finding]:
    """Yield whether the API would take the cluster's Job; of its pods the template is added to *pod*."""
    try:
        placed = requests.place(plan, root, service.namespace, say)
        with tempfile.TemporaryDirectory() as scratch:
            objects = requests.objects(placed, root, requests.packed(placed, Path(scratch)))
    except SettingsError as error:
        yield refused("Job", error)
        return
    job = next(item for item in objects if item["kind"] == "Job")
    pod |= job["spec"]["template"]["spec"]
    known = len(service.warnings)
    try:
        service.create(service.path("jobs"), job, dry_run=True)
    except KubernetesError as error:
        # Without an answer, or without the right to make one, nothing is known of the Job itself.
        if not error.code or "is forbidden: User" in str(error):
            raise
        yield fails("Job", error.reason, error.next_step or "mend what the API names")
        return
    violated = [text for text in service.warnings[known:] if "would violate PodSecurity" in text]
    if violated:
        mend = "leave out what it names, in POD_PATCH, VOLUMES or HOST_NETWORK; or use a namespace that allows it"
        yield fails("Job", f"its pods would be refused: {violated[0]}", mend)
    elif refusal := _refusal_of_pods(service, job):
        mend = way_out(str(refusal)) or "wait until others give back what they use, or ask for more"
        yield fails("Job", f"its pods would be refused: {refusal.reason}", mend)
    else:
        yield fine("Job", "the API would take it: nothing was made")


def _refusal_of_pods(service: Service, job: dict[str, Any]) -> KubernetesError | None:
    """Return why the API would take no pod of *job*: it takes Jobs whose pods it refuses. Not all may ask that."""
    try:
        service.create(service.path("pods"), requests.pod_of(job), dry_run=True)
    except KubernetesError as error:
        return error if error.code and "is forbidden: User" not in str(error) else None
    return None


def _secret(service: Service, name: str) -> Iterator[Finding]:
    if service.find(service.path("secrets", name)) is None:
        make = f"kubectl -n {service.namespace} create secret generic {name} --from-literal=NAME=VALUE"
        yield fails("Secret", f"ENV_SECRETS: there is no Secret {name} in namespace {service.namespace}", make)
    else:
        yield fine("Secret", f"{name} is there")


def _mounted(service: Service, volume: Mapping[str, Any], plan: Plan) -> Iterator[Finding]:
    """Yield whether the Secret or ConfigMap of a *volume* is there."""
    if problems := checks.volume_problems(service, volume, plan):
        yield fails("volume", problems[0], "make it, or leave it out of VOLUMES")
    else:
        yield fine("volume", f"what is mounted as /mnt/{volume['name']} is there")


def _pull_secret(service: Service, name: str, image: str) -> Iterator[Finding]:
    host = check_machines.registry_of(image)
    make = (
        f"kubectl -n {service.namespace} create secret docker-registry {name} --docker-server={host} "
        "--docker-username='<namespace>/<user>' --docker-password='<auth token>'"
    )
    found = service.find(service.path("secrets", name))
    if found is None:
        yield fails("pull secret", f"there is no Secret {name} in namespace {service.namespace}", make)
        return
    again = f"kubectl -n {service.namespace} delete secret {name}\n{make}"
    hosts = check_machines.registries_in(found)
    if hosts is None:
        yield fails("pull secret", f"Secret {name} is none for images (kubernetes.io/dockerconfigjson)", again)
    elif host not in hosts:
        told = f"Secret {name} is for {', '.join(hosts) or 'no registry'}, and the image is in {host}"
        yield fails("pull secret", told, again)
    else:
        yield fine("pull secret", f"{name} has a login for {host}")
