"""Kueue beside the cluster, as its own integration tests run it, with its webhooks, roles and visibility API."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from kube.api import Api, condition
from kube.machines import Machine

NAMESPACE = "kueue-system"
_LOOPBACK = "127.0.0.1"
_HEALTH, _METRICS, _WEBHOOK, _VISIBILITY = 18081, 18443, 19443, 18082
# Webhooks are failurePolicy Fail: those of an integration that is off would refuse all of its kind.
_GROUPS = {"batch", "kueue.x-k8s.io"}
# Fixed in its code, where it does not make its certificates itself.
_FIXED = ("/etc/kueue/metrics/certs", "/visibility")


def start(
    machine: Machine,
    directory: Path,
    *,
    source: Path,
    api: Api,
    kubeconfig: Path,
    certificates: tuple[Path, Path],
    settings: dict[str, Any],
) -> None:
    """Start Kueue, or start it again with *settings*; return when it takes queues.

    Args:
        machine: Where it runs.
        directory: For its files.
        source: Its ``config/components``.
        api: The API, for an administrator.
        kubeconfig: Its own.
        certificates: Of its webhooks: a certificate for the loopback address, and its key.
        settings: Of its Configuration; they replace ours of the same name.
    """
    if "kueue" in machine.programs:
        machine.kill("kueue")
    else:
        _install(api, source)
    for place in (directory / "webhook", *_FIXED):
        inside = machine.host.root / str(place).lstrip("/")
        inside.mkdir(parents=True, exist_ok=True)
        for file, name in zip(certificates, ("tls.crt", "tls.key"), strict=True):
            shutil.copy(file, inside / name)
    file = directory / "kueue.json"  # which is YAML, too
    file.write_text(json.dumps({**_settings(directory), **settings}))
    machine.start("kueue", "kueue", f"--kubeconfig={kubeconfig}", f"--config={file}", "--zap-log-level=2")
    machine.wait_for(lambda: machine.answers(_HEALTH, "readyz"), "kueue")
    authority = (directory / "ca.crt").read_bytes()
    for kind, name, hooks in _webhooks(source, authority):
        path = f"apis/admissionregistration.k8s.io/v1/{kind.lower()}s/{name}"
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
        api.apply(path, {**body, "webhooks": hooks})
    # A request that Kueue does not see yet would be taken without it.
    machine.wait_for(lambda: _takes_queues(api), "kueue")


def _settings(directory: Path) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"{_LOOPBACK}:{_HEALTH}"},
        "metrics": {"bindAddress": f"{_LOOPBACK}:{_METRICS}"},
        "webhook": {"host": _LOOPBACK, "port": _WEBHOOK, "certDir": str(directory / "webhook")},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "visibilityServer": {"bindAddress": _LOOPBACK, "bindPort": _VISIBILITY},
        "clientConnection": {"qps": 500, "burst": 1000},
        "integrations": {"frameworks": ["batch/job"]},
    }


def _install(api: Api, source: Path) -> None:
    """Apply its kinds, roles and the way to its visibility API."""
    crds = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = []
    for file in sorted((source / "crd" / "bases").glob("*.yaml")):
        group, _, plural = file.stem.partition("_")
        names.append(f"{plural}.{group}")
        api.apply(f"{crds}/{names[-1]}", file.read_bytes())
    for name in names:  # without it the manager ends: no matches for kind Workload
        api.until(f"{crds}/{name}", lambda found: condition(found, "Established").get("status") == "True", name)
    api.apply(f"api/v1/namespaces/{NAMESPACE}", _plain("v1", "Namespace", NAMESPACE))
    for file in sorted((source / "rbac").glob("*_role.yaml")):
        role = yaml.load(file.read_text(), yaml.CSafeLoader)
        # Those of users: they aggregate to admin, edit and view. The manager itself is an administrator here.
        if role["kind"] == "ClusterRole" and "rbac.kueue.x-k8s.io/" in json.dumps(role):
            role["metadata"]["name"] = name = f"kueue-{role['metadata']['name']}"  # as its kustomization does
            api.apply(f"apis/rbac.authorization.k8s.io/v1/clusterroles/{name}", role)
    # The API server takes an ExternalName as it is: neither DNS nor kube-proxy is asked.
    service = _plain("v1", "Service", "kueue-visibility-server")
    service["spec"] = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": _VISIBILITY}]}
    api.apply(f"api/v1/namespaces/{NAMESPACE}/services/kueue-visibility-server", service)
    for file in sorted((source / "visibility").glob("apiservice_*.yaml")):
        served = yaml.load(file.read_text(), yaml.CSafeLoader)
        served["spec"]["service"] |= {"name": "kueue-visibility-server", "port": _VISIBILITY}
        api.apply(f"apis/apiregistration.k8s.io/v1/apiservices/{served['metadata']['name']}", served)


def _webhooks(source: Path, authority: bytes) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """Return kind, name and entries of what the API server is to ask, at a URL in place of a Service."""
    found = []
    for document in yaml.load_all((source / "webhook" / "manifests.yaml").read_text(), yaml.CSafeLoader):
        hooks = [
            hook for hook in document["webhooks"] if all(set(rule["apiGroups"]) <= _GROUPS for rule in hook["rules"])
        ]
        for hook in hooks:
            url = f"https://{_LOOPBACK}:{_WEBHOOK}{hook['clientConfig']['service']['path']}"
            hook["clientConfig"] = {"url": url, "caBundle": base64.b64encode(authority).decode()}
        found.append((document["kind"], f"kueue-{document['metadata']['name']}", hooks))
    return found


def _takes_queues(api: Api) -> bool:
    """Return whether its webhooks are asked: a queue with a wrong field is refused by them alone."""
    flavor = _plain("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "tests-probe")
    api.ask("POST", "apis/kueue.x-k8s.io/v1beta2/resourceflavors", flavor, dryRun="All")
    job = _plain("batch/v1", "Job", "tests-probe")
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "none"}
    container = {"name": "none", "image": "none"}
    job["spec"] = {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    made = api.ask("POST", "apis/batch/v1/namespaces/default/jobs", job, dryRun="All").json()
    return bool(made["spec"].get("suspend"))


def _plain(version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
