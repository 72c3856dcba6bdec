"""Jobs and pods as the API has them, for tests of what they tell."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"


def job(
    nodes: int = 3,
    *,
    interruptible: str = "1",
    status: Object | None = None,
    annotations: Object | None = None,
    **spec: Any,
) -> Object:
    """Return a Job of so many nodes: main, two workers, and who joined."""
    env = [{"name": "WORKER_COUNT", "value": "2"}, {"name": "PS_COUNT", "value": "0"}]
    env.append({"name": "INTERRUPTIBLE", "value": interruptible})
    template = {"spec": {"containers": [{"name": "node", "env": env}]}}
    return {
        "metadata": {
            "name": "mine-0123abcd",
            "uid": "j1",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": annotations or {},
        },
        "spec": {"completions": nodes, "parallelism": nodes, "template": template, **spec},
        "status": status or {},
    }


def pod(index: int, state: Object | None = None, *, meta: Object | None = None, **status: Any) -> Object:
    """Return the pod of an index whose container is in a *state*."""
    containers = [{"name": "node", "state": state}] if state is not None else []
    return {
        "metadata": {
            "name": f"mine-{index}",
            "uid": f"p{index}",
            "creationTimestamp": "2026-01-01T00:00:01Z",
            "annotations": {INDEX: str(index)},
            **(meta or {}),
        },
        "status": {"phase": "Running", "podIP": f"10.0.0.{index}", "containerStatuses": containers, **status},
    }


RUNNING: Object = {"running": {}}


def ended(code: int, reason: str = "Error", message: str = "") -> Object:
    """Return the state of a container that has ended."""
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def failed(*conditions: Object) -> Object:
    """Return what a pod's status has that was taken away."""
    return {"phase": "Failed", "conditions": list(conditions)}


DISRUPTED: Object = {"type": "DisruptionTarget", "status": "True", "message": "Eviction API: evicting"}
