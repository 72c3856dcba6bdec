"""Objects by their paths in memory, for what asks no more of an API than to get, list, apply and delete them."""

from __future__ import annotations

import copy
from typing import Any
from urllib.parse import parse_qs

import httpx2 as httpx
import yaml

from oci_cluster.backends.kubernetes.api.service import Service

Object = dict[str, Any]
KUEUE = "/apis/kueue.x-k8s.io"


class FakeApi(httpx.BaseTransport):
    """``objects`` has what there is; ``refusals`` says by a part of ``METHOD path?query`` what is refused, and how."""

    def __init__(self, *, with_kueue: bool = True) -> None:
        self.objects: dict[str, Object] = {f"{KUEUE}/v1beta2": {}} if with_kueue else {}
        self.refusals: dict[str, tuple[int, str, str]] = {}
        self.sent: list[str] = []

    def service(self) -> Service:
        return Service(_Access(), transport=self, sleep=lambda _: None, patience_s=0)  # type: ignore[arg-type]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        path, query = request.url.path, parse_qs(request.url.query.decode())
        line = f"{request.method} {path}?{request.url.query.decode()}"
        for part, (code, reason, message) in self.refusals.items():
            if part in line:
                return httpx.Response(code, json={"reason": reason, "message": message}, request=request)
        if request.method != "GET" and "dryRun" not in query:
            self.sent.append(f"{request.method} {path}")
        found = self._answer(request, path, query)
        if found is None:
            return httpx.Response(404, json={"reason": "NotFound", "message": path}, request=request)
        return httpx.Response(200, json=found, request=request)

    def _answer(self, request: httpx.Request, path: str, query: dict[str, list[str]]) -> Object | None:
        if request.method == "PATCH":
            body = yaml.safe_load(request.read())
            there = copy.deepcopy(self.objects.get(path, {}))
            made = {**there, **body, "metadata": {**there.get("metadata", {}), **body.get("metadata", {})}}
            if "apply" not in request.headers["Content-Type"]:
                made["spec"] = {**there["spec"], **body["spec"]}
            if "dryRun" not in query:
                self.objects[path] = made
            # Controllers write at any time.
            return {**made, "status": {"seen": len(self.sent)}} if "status" in made else made
        if request.method == "DELETE":
            return self.objects.pop(path, None)
        if path in self.objects:
            return self.objects[path]
        if path.rpartition("/")[2] in _LISTS:
            kind = path.rpartition("/")[2]
            start = path.removesuffix(kind)
            key, _, value = query.get("labelSelector", [""])[0].partition("=")
            items = [
                item
                for place, item in self.objects.items()
                if f"/{kind}/" in place and place.startswith(start)
                if not value or item["metadata"].get("labels", {}).get(key) == value
            ]
            # As the API: what is listed does not say its kind.
            return {"items": [{k: v for k, v in item.items() if k not in {"kind", "apiVersion"}} for item in items]}
        return None


_LISTS = {
    *("workloads", "localqueues", "clusterqueues", "resourceflavors", "workloadpriorityclasses", "jobs"),
    *("resourcequotas", "priorityclasses"),
}


class _Access:
    server = "https://kubernetes.invalid"
    namespace = "mine"


def forbidden(verb: str, resource: str, group: str) -> tuple[int, str, str]:
    """Return a refusal in the API's words."""
    what = f'User "x" cannot {verb} resource "{resource}" in API group "{group}" at the cluster scope'
    return 403, "Forbidden", f"{resource} is forbidden: {what}"
