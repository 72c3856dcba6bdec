"""The API of a Kubernetes in memory: Jobs that make pods, garbage that goes with its owner; no process runs."""

from __future__ import annotations

import base64
import copy
import json
import re
import uuid
from collections.abc import Callable
from typing import Any

import httpx2 as httpx

Object = dict[str, Any]
_PATH = re.compile(
    r"/(?:api|apis/[^/]+)/[^/]+/namespaces/(?P<namespace>[^/]+)/(?P<kind>[a-z]+)(?:/(?P<name>[^/]+))?(?P<sub>/log)?"
)
_QUEUE = "kueue.x-k8s.io/queue-name"
INDEX = "batch.kubernetes.io/job-completion-index"


class RefusalError(Exception):
    def __init__(self, code: int, reason: str, message: str = "") -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message or reason


class FakeKubernetes(httpx.BaseTransport):
    """Objects by kind and name. What it is asked is in ``asked``; ``before`` may refuse it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.objects: dict[str, dict[str, Object]] = {}
        self.asked: list[tuple[str, str]] = []
        self.before: Callable[[str, str, Any], None] = lambda _method, _path, _body: None
        self.after: Callable[[str, str, Any], None] = lambda _method, _path, _body: None
        self.logs: dict[str, list[tuple[float, str]]] = {}
        self.log_is_gone = False
        self.held: set[int] = set()
        # What Kueue does with Jobs that name no queue: gives them this one, or suspends them.
        self.queue_of_unnamed, self.suspends_unnamed = "", False
        # Pods whose containers have ended, and when that is counted.
        self._uncounted: dict[str, float] = {}

    # --- As a transport ------------------------------------------------------------------------------------

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        path, query = request.url.path, dict(request.url.params)
        content = request.read()
        body = json.loads(content) if content and content[:1] in b"{[" else content.decode()
        self.asked.append((request.method, path))
        self._count_the_due()
        try:
            self.before(request.method, path, body)
            answer = self._answer(request.method, path, query, body)
            self.after(request.method, path, body)
        except RefusalError as refusal:
            status = {"kind": "Status", "code": refusal.code, "reason": refusal.reason, "message": refusal.message}
            return httpx.Response(refusal.code, json=status, request=request)
        if isinstance(answer, bytes):
            return httpx.Response(200, content=answer, request=request)
        return httpx.Response(200, json=answer, request=request)

    def _answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        found = _PATH.fullmatch(path)
        if found is None:
            raise RefusalError(404, "NotFound", path)
        kind, name = found["kind"], found["name"]
        there = self.objects.setdefault(kind, {})
        if found["sub"]:
            return self._log(name)
        if method == "POST":
            return self._create(kind, there if query.get("dryRun") != "All" else {**there}, body)
        if not name:
            return {"items": [copy.deepcopy(item) for item in there.values() if _fits(item, query)], "metadata": {}}
        if name not in there:
            raise RefusalError(404, "NotFound", f'{kind} "{name}" not found')
        if method == "PATCH":
            self._patch(there[name], body)
            self._control()
        if method == "DELETE":
            return self._delete(kind, name)
        return copy.deepcopy(there[name])

    def _create(self, kind: str, there: dict[str, Object], body: Object) -> Object:
        name = body["metadata"]["name"]
        if name in there:
            raise RefusalError(409, "AlreadyExists", f"{name} already exists")
        body = copy.deepcopy(body)
        body["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": self._time()}
        body["metadata"].setdefault("namespace", "default")
        body.setdefault("status", {})
        if kind == "jobs" and _QUEUE not in body["metadata"]["labels"]:
            if self.queue_of_unnamed:
                body["metadata"]["labels"][_QUEUE] = self.queue_of_unnamed
            body["spec"]["suspend"] |= self.suspends_unnamed or bool(self.queue_of_unnamed)
        if kind == "secrets":
            data = body.pop("stringData", {})
            body["data"] = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
        there[name] = body
        self._control()
        return copy.deepcopy(body)

    def _patch(self, item: Object, body: Any) -> None:
        if isinstance(body, list):
            for step in body:
                *folders, last = step["path"].strip("/").replace("~1", "/").split("/")
                place = item
                for folder in folders:
                    place = place.setdefault(folder, {})
                if step["op"] == "test" and place.get(last) != step["value"]:
                    raise RefusalError(422, "Invalid", "the server rejected our request: test failed")
                place[last] = step["value"]
            return
        _merge(item, body)

    def _delete(self, kind: str, name: str) -> Object:
        item = self.objects[kind].pop(name)
        uid = item["metadata"]["uid"]
        for others in self.objects.values():
            for key in [
                key
                for key, other in others.items()
                if any(owner["uid"] == uid for owner in other["metadata"].get("ownerReferences", []))
            ]:
                del others[key]
        if kind == "pods":
            job = self.objects["jobs"].get(item["metadata"]["labels"]["batch.kubernetes.io/job-name"])
            if job is not None:
                self._fail(job, int(item["metadata"]["annotations"][INDEX]))
        self._control()
        return item

    def _time(self) -> str:
        minutes, seconds = divmod(int(self._clock()), 60)
        return f"2026-01-01T00:{minutes:02}:{seconds:02}Z"

    # --- The Job controller and the kubelets ---------------------------------------------------------------

    def _count_the_due(self) -> None:
        for name, at in list(self._uncounted.items()):
            if at <= self._clock() and (pod := self.objects["pods"].get(name)):
                del self._uncounted[name]
                self._count(pod, pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"])

    def _control(self) -> None:
        for job in list(self.objects.get("jobs", {}).values()):
            self._control_one(job)

    def _control_one(self, job: Object) -> None:
        spec, status = job["spec"], job["status"]
        pods = self.objects.setdefault("pods", {})
        own = [pod for pod in pods.values() if pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]]
        if spec.get("activeDeadlineSeconds") == 1:
            for pod in own:
                if pod["status"]["phase"] in {"Pending", "Running"}:
                    pods.pop(pod["metadata"]["name"])
            status["conditions"] = [{"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}]
            return
        if spec.get("suspend"):
            return
        failed = {int(text) for text in status.get("failedIndexes", "").split(",") if text}
        there = {int(pod["metadata"]["annotations"][INDEX]) for pod in own}
        for index in range(spec["completions"]):
            if index not in there and index not in failed:
                self._make_pod(job, index)
        for pod in own:
            if int(pod["metadata"]["annotations"][INDEX]) >= spec["completions"]:
                pods.pop(pod["metadata"]["name"])

    def _make_pod(self, job: Object, index: int) -> None:
        name = f"{job['metadata']['name']}-{index}-{uuid.uuid4().hex[:5]}"
        template = job["spec"]["template"]
        labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-name": job["metadata"]["name"]}
        labels[INDEX] = str(index)
        owner = {"kind": "Job", "uid": job["metadata"]["uid"], "name": job["metadata"]["name"]}
        state = {"waiting": {"reason": "ContainerCreating"}} if index in self.held else {"running": {}}
        self.objects["pods"][name] = {
            "metadata": {
                "name": name,
                "uid": str(uuid.uuid4()),
                "labels": labels,
                "annotations": {INDEX: str(index)},
                "ownerReferences": [owner],
                "creationTimestamp": self._time(),
            },
            "spec": copy.deepcopy(template["spec"]),
            "status": {
                "phase": "Pending" if index in self.held else "Running",
                "podIP": f"10.0.0.{index + 1}",
                "containerStatuses": [{"name": "node", "state": state}],
            },
        }

    def pods(self) -> dict[str, Object]:
        """Return the pods by the names of their nodes."""
        found = {}
        for pod in self.objects.get("pods", {}).values():
            index = int(pod["metadata"]["annotations"][INDEX])
            found["MAIN" if index == 0 else f"WORKER_{index}"] = pod
        return found

    def end(self, node: str, code: int, message: str = "", *, counted_after_s: float = 0.0) -> None:
        """Have a node's container end; its kubelet says that of the pod, and the Job counts it, some time later."""
        pod = self.pods()[node]
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
        pod["status"]["containerStatuses"] = [{"name": "node", "state": {"terminated": ended}}]
        if counted_after_s:
            self._uncounted[pod["metadata"]["name"]] = self._clock() + counted_after_s
        else:
            self._count(pod, code)

    def _count(self, pod: Object, code: int) -> None:
        pod["status"]["phase"] = "Failed" if code else "Succeeded"
        job = self.objects["jobs"][pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]]
        index = int(pod["metadata"]["annotations"][INDEX])
        if code:
            self._fail(job, index)
        else:
            done = {int(text) for text in job["status"].get("completedIndexes", "").split(",") if text} | {index}
            job["status"]["completedIndexes"] = ",".join(map(str, sorted(done)))

    def _fail(self, job: Object, index: int) -> None:
        if index >= job["spec"]["completions"]:
            return
        failed = {int(text) for text in job["status"].get("failedIndexes", "").split(",") if text} | {index}
        job["status"]["failedIndexes"] = ",".join(map(str, sorted(failed)))

    def hold(self, node: str) -> None:
        """Have a node wait for its machine."""
        pod = self.pods()[node]
        self.held.add(int(pod["metadata"]["annotations"][INDEX]))
        pod["status"] |= {"phase": "Pending", "containerStatuses": []}

    def begin(self) -> None:
        """Have the nodes run that wait."""
        self.held.clear()
        for pod in self.pods().values():
            if pod["status"]["phase"] == "Pending":
                states = [{"name": "node", "state": {"running": {}}}]
                pod["status"] |= {"phase": "Running", "containerStatuses": states}

    def print(self, node: str, text: str, second: int) -> None:
        """Have a node print a line."""
        self.logs.setdefault(self.pods()[node]["metadata"]["name"], []).append((second, text))

    def _log(self, pod: str) -> bytes:
        if self.log_is_gone:  # a kubelet answers so, with 200, while the container's files are removed
            return f"failed to try resolving symlinks in path /var/log/pods/{pod}/node/0.log: no such file\n".encode()
        lines = self.logs.get(pod, [])
        return "".join(f"2026-01-01T00:00:{second:02}.000000000Z {text}" for second, text in lines).encode()


def _merge(there: Object, patch: Object) -> None:
    for name, value in patch.items():
        if value is None:
            there.pop(name, None)
        elif isinstance(value, dict):
            _merge(there.setdefault(name, {}), value)
        else:
            there[name] = value


def _fits(item: Object, query: dict[str, str]) -> bool:
    labels = item["metadata"].get("labels") or {}
    for term in filter(None, query.get("labelSelector", "").split(",")):
        name, equals, value = term.partition("=")
        if name not in labels or (equals and labels[name] != value):
            return False
    return True
