"""A Kubernetes in memory on which a launch works, and what check.sh finds there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx2 as httpx
from unit.backends.kubernetes.fake_api import FakeApi
from unit.fake_oci import Checkout

from oci_cluster.backends import check_of
from oci_cluster.backends.findings import Checked, Finding
from oci_cluster.backends.kubernetes import check
from oci_cluster.backends.kubernetes.api.service import Service
from oci_cluster.backends.kubernetes.settings import settings_of
from oci_cluster.launcher.launch.plan import Request, make_plan

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
NAMESPACE = "/api/v1/namespaces/mine"
IMAGE = "iad.ocir.io/ns/plain:1"
Found = dict[str, list[tuple[str, str, str]]]
Look = Callable[..., Found]


class _Access:
    server, namespace, context = "https://kubernetes.test", "mine", "tests"


class Api(FakeApi):
    """A Kubernetes on which a launch of 1 + 2 nodes works; ``lacking`` are rights that the user has not."""

    def __init__(self) -> None:
        super().__init__()
        self.lacking: set[tuple[str, str, str]] = set()
        self.objects |= {
            "/version": {"gitVersion": "v1.36.0"},
            NAMESPACE: {"metadata": {"name": "mine"}, "status": {"phase": "Active"}},
        }
        self.warning = ""

    def open(self, _given: Any) -> Service:
        return Service(_Access(), transport=self, sleep=lambda _: None, patience_s=0)  # type: ignore[arg-type]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == REVIEWS:
            asked = json.loads(request.read())["spec"]["resourceAttributes"]
            assert asked["namespace"] == "mine"
            resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
            is_allowed = (asked["group"], resource, asked["verb"]) not in self.lacking
            if not any(part in f"POST {REVIEWS}?" for part in self.refusals):
                return httpx.Response(201, json={"status": {"allowed": is_allowed}}, request=request)
        if request.method == "POST" and request.url.params.get("dryRun") == "All":
            refused = super().handle_request(request)
            if refused.status_code in {200, 404} and not any(p in f"POST {request.url.path}" for p in self.refusals):
                headers = {"Warning": f'299 - "{self.warning}"'} if self.warning else {}
                return httpx.Response(201, json=json.loads(request.read()), headers=headers, request=request)
            return refused
        return super().handle_request(request)


class Launch:
    """A launch of 1 + 2 nodes there."""

    def __init__(self, api: Api, place: Path) -> None:
        self._api = api
        self._checkout = Checkout(place)

    def found(self, *, with_plan: bool = True, **settings: str) -> Found:
        """Return what is found of it with *settings*, by item: verdict, text and fix."""
        checked = self._checked(settings, with_plan=with_plan)
        return by_item(check_of("kubernetes")(checked, lambda _: None))

    def item(self, name: str, **settings: str) -> list[tuple[str, str, str]]:
        """Return what is found of one item of it, and look at no other."""
        checked = self._checked(settings, with_plan=True)
        assert checked.plan
        settings = settings_of(checked.plan, checked.root)
        looks = check._looks(self._api.open({}), checked, checked.plan, settings, lambda _: None)
        return by_item(finding for item, look in looks if item == name for finding in check._of(item, look))[name]

    def _checked(self, settings: dict[str, str], *, with_plan: bool) -> Checked:
        root, given = self._checkout.root, {"IMAGE": IMAGE, "KUBE_CONTEXT": "tests", **settings}
        plan = make_plan(Request("plain", "2", "kubernetes"), given, root=root, cwd=root, max_workers=999)
        return Checked("plain", 2, root, given, plan if with_plan else None)


def by_item(findings: Iterable[Finding]) -> Found:
    items: Found = {}
    for one in findings:
        items.setdefault(one.item, []).append((str(one.verdict), one.text, one.fix))
    return items
