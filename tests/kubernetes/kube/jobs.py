"""Jobs as a backend makes them, small: what tests of this Kubernetes itself run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kube.api import Api, Object
from kube.images import DEBIAN

RESTRICTED = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
SPREAD = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
SOON = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    for what in ("not-ready", "unreachable")
]
DISRUPTION = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


def job(
    name: str, count: int, script: str, *, image: str = DEBIAN, labels: dict[str, str] | None = None, **requests: str
) -> Object:
    """Return an Indexed Job whose *count* nodes run a shell script, spread over the nodes that there are."""
    container: dict[str, Any] = {
        "name": "node",
        "image": image,
        "command": ["sh", "-c", script],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi", **requests}, "limits": requests},
    }
    mine = {"labelSelector": {"matchLabels": {"batch.kubernetes.io/job-name": name}}}
    pod = {
        "restartPolicy": "Never",
        "subdomain": name,
        "terminationGracePeriodSeconds": 5,
        "securityContext": RESTRICTED,
        "tolerations": SOON,
        "topologySpreadConstraints": [{**SPREAD, **mine}],
        "containers": [container],
    }
    spec = {
        "completionMode": "Indexed",
        "completions": count,
        "parallelism": count,
        "backoffLimitPerIndex": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [DISRUPTION]},
        "template": {"spec": pod},
    }
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}


@contextlib.contextmanager
def running(api: Api, namespace: str, body: Object) -> Iterator[str]:
    """Have a Job, and a headless Service of its name that it owns; at the end both are deleted. Yield its path."""
    jobs = f"apis/batch/v1/namespaces/{namespace}/jobs"
    made = api.create(jobs, body)
    name = made["metadata"]["name"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": made["metadata"]["uid"]}
    selector = {"batch.kubernetes.io/job-name": name}
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    about = {"name": name, "ownerReferences": [owner]}
    api.create(f"api/v1/namespaces/{namespace}/services", {"metadata": about, "spec": service})
    try:
        yield f"{jobs}/{name}"
    finally:
        api.delete(f"{jobs}/{name}")


def pods(api: Api, namespace: str, name: str) -> dict[int, Object]:
    """Return a Job's pods by index; of two of one index the newest."""
    query = {"labelSelector": f"batch.kubernetes.io/job-name={name}"}
    found = api.items(f"api/v1/namespaces/{namespace}/pods", **query)
    found.sort(key=lambda pod: pod["metadata"]["creationTimestamp"])
    return {int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]): pod for pod in found}


def ended(pod: Object) -> Object:
    """Return how a pod's only container ended; empty while it has not."""
    statuses = pod["status"].get("containerStatuses") or [{}]
    found: Object = statuses[0].get("state", {}).get("terminated", {})
    return found


def phases(api: Api, namespace: str, name: str) -> list[str]:
    return sorted(pod["status"]["phase"] for pod in pods(api, namespace, name).values())
