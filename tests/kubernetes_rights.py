"""The rights that docs/kubernetes-admin.md asks an administrator for, and those that a request needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "kubernetes-admin.md"
_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/[^/]+/namespaces/[^/]+/(?P<kind>[a-z]+)(?P<name>/[^/]+)?(?:/(?P<sub>[a-z]+))?"
)
CLUSTER_WIDE = "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses"
"""Of all the Kubernetes, which no Role can give: it is looked at where the user may."""

Right = tuple[str, str, str]
"""Group, resource and verb."""


def rules() -> list[dict[str, Any]]:
    """Return the rules of the page's Role."""
    blocks = re.findall(r"```yaml\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (role,) = [item for block in blocks for item in yaml.safe_load_all(block) if item.get("kind") == "Role"]
    found: list[dict[str, Any]] = role["rules"]
    return found


def documented() -> set[Right]:
    """Return the rights of the page's Role."""
    return {
        (group, resource, verb)
        for rule in rules()
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def rights_of(method: str, path: str) -> set[Right]:
    """Return the rights that a request needs; a WebSocket to a part of a pod does not only get (since 1.35)."""
    right = right_of(method, path)
    return {right, (*right[:2], "create")} if right[1] == "pods/portforward" else {right}


def right_of(method: str, path: str) -> Right:
    """Return the right that a request needs, to a path without its query."""
    found = _PATH.fullmatch(path)
    assert found, path
    verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}.get(method, "get" if found["name"] else "list")
    return found["group"] or "", "/".join(part for part in (found["kind"], found["sub"]) if part), verb
