"""The rights that launches need in a namespace: those of the Role in docs/kubernetes.md, and what lacks without one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Right:
    """One verb with one kind of objects."""

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


def _rights(group: str, resources: str, verbs: str, without: str = "") -> tuple[Right, ...]:
    return tuple(Right(group, what, verb, without) for what in resources.split() for verb in verbs.split())


_KUEUE = "kueue.x-k8s.io"
RIGHTS: tuple[Right, ...] = (
    *_rights("batch", "jobs", "create get list patch delete"),
    *_rights("", "pods", "list delete"),
    *_rights("", "pods/log", "get"),
    *_rights("", "secrets", "create get delete"),
    *_rights("", "services", "create get list delete"),
    *_rights("networking.k8s.io", "networkpolicies", "create get list delete"),
    *_rights("", "events", "list", "why pods cannot be made is not told"),
    *_rights("", "persistentvolumeclaims", "get", "claims are not looked at before"),
    *_rights(_KUEUE, "localqueues", "get list", "the queue is not looked up before"),
    *_rights(_KUEUE, "workloads", "list", "why a cluster waits in its queue is not told"),
    *_rights(f"visibility.{_KUEUE}", "localqueues/pendingworkloads", "get", "the place in the queue is not told"),
    *_rights("", "pods/portforward", "create get", "connect.sh reaches no port"),
)


def rule(rights: list[Right]) -> str:
    """Return the rule of a Role that gives *rights*, which are of one kind."""
    verbs = ", ".join(right.verb for right in rights)
    group = rights[0].group or '""'
    return f"- {{apiGroups: [{group}], resources: [{rights[0].resource}], verbs: [{verbs}]}}"
