"""Requests to the API of a Kubernetes, their repeats, and what refusals mean.

Objects are what the API has them as: dictionaries. Paths are those of its documentation. Methods that ask raise
KubernetesError where the API refused, or did not answer.
"""

from __future__ import annotations

import contextlib
import json
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import httpx2 as httpx

from oci_cluster.backends.kubernetes.api.kubeconfig import Access
from oci_cluster.contract.storage.retry import Repeats, RequestFailedError, Waiting
from oci_cluster.errors import BackendError, ExitCode
from oci_cluster.system.console import Say
from oci_cluster.system.text import printable

Object = dict[str, Any]

# How long one request is repeated in all: longer than an API server takes to start again, or to be replaced.
PATIENCE_S = 90.0
# Who only looks asks again: it is a person who waits, and nothing is lost.
LOOK_PATIENCE_S = 15.0
# Seconds to connect; between two bytes of an answer: a list of a thousand pods takes one or two. Whoever has pressed
# Ctrl-C, and whoever asks for what is only good to know, waits for less.
_CONNECT_S, ANSWER_S, _ANSWER_WHEN_STOPPED_S, _GLANCE_S = 10.0, 20.0, 5.0, 3.0
# What is asked of a list at once: a cluster of any size is one page, of up to 8 MB. kubectl asks for 500.
_PAGE = 1000
_PASSING = {408, 429, 500, 502, 503, 504}
_MANAGER = "oci-cluster"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
# The kinds that are not of the core.
_GROUPS = {
    "jobs": "/apis/batch/v1",
    "localqueues": KUEUE,
    "networkpolicies": "/apis/networking.k8s.io/v1",
    "workloads": KUEUE,
}
_GONE, _CONFLICT, _NOT_FOUND = 410, 409, 404
# They tell of each request; people are told what comes of them.
for _client in ("httpx2", "httpcore2"):
    logging.getLogger(_client).setLevel(logging.WARNING)


class KubernetesError(BackendError):
    """A refusal of the API, or no answer.

    *code* is HTTP's, 0 without an answer; *word* the API's own, such as ``AlreadyExists``.
    """

    def __init__(self, message: str, *, code: int = 0, word: str = "") -> None:
        super().__init__(message, exit_code=ExitCode.NOT_PERMITTED if code in {401, 403} else None)
        self.code, self.word = code, word


class _RefusedError(RequestFailedError):
    code, word = 0, ""


class Service:
    """The API of one Kubernetes, as one launcher sees it."""

    def __init__(
        self,
        access: Access,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        patience_s: float = PATIENCE_S,
        say: Say = lambda _: None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.access = access
        self.namespace = access.namespace
        self._is_stopped = is_stopped
        self._repeats = Repeats(patience_s, Waiting(clock, sleep, is_stopped, say))
        self._transport = transport
        #: What the API has warned of, once each.
        self.warnings: list[str] = []
        #: How often something was asked for that may change what there is.
        self.changes = 0

    @cached_property
    def _client(self) -> httpx.Client:
        return (
            self.access.client()
            if self._transport is None
            else httpx.Client(base_url=self.access.server, transport=self._transport)
        )

    def path(self, kind: str, name: str = "", *, sub: str = "") -> str:
        """Returns the path of the list *kind*, such as ``jobs``, or of one object."""
        place = f"{_GROUPS.get(kind, '/api/v1')}/namespaces/{self.namespace}/{kind}"
        return "/".join(part for part in (place, name, sub) if part)

    # --- Requests ------------------------------------------------------------------------------------------

    def get(self, path: str, **query: Any) -> Object:
        """Returns the object at *path*."""
        return self._ask("GET", path, query)

    def glance(self, path: str) -> Object:
        """Returns the object at *path*, asked for once, and not for long."""
        with self.stream(path, read_s=_GLANCE_S) as answer:
            answer.read()
            return self._object_of(answer)

    def find(self, path: str) -> Object | None:
        """Returns the object at *path*, None where there is none."""
        try:
            return self.get(path)
        except KubernetesError as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    def items(self, path: str, **query: Any) -> list[Object]:
        """Returns all objects of the list at *path*, in pages."""
        while True:
            found: list[Object] = []
            token = ""
            try:
                while True:
                    page = self.get(path, limit=_PAGE, **query, **({"continue": token} if token else {}))
                    found += page.get("items") or []
                    if not (token := str((page.get("metadata") or {}).get("continue") or "")):
                        return found
            except KubernetesError as error:
                if error.code != _GONE:  # the pages were too old: from the beginning
                    raise

    def create(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        """Creates *body* in the list at *path*; returns the object.

        Where an answer was lost, it may have been done: that of the same launch is ours.
        """
        try:
            return self._ask("POST", path, {"dryRun": "All"} if dry_run else {}, body)
        except KubernetesError as error:
            if error.word != "AlreadyExists":
                raise
            there = self.find(f"{path}/{body['metadata']['name']}")
            if there is None or not _is_same_launch(there, body):
                raise
            return there

    def patch(self, path: str, body: Any, *, kind: str = "merge-patch+json", **query: Any) -> Object:
        """Changes the object at *path* by *body*, a patch of that *kind*."""
        return self._ask("PATCH", path, query, body, f"application/{kind}")

    def apply(self, path: str, body: Object, *, force: bool = False, dry_run: bool = False) -> Object:
        """Applies *body* to the object at *path*, server-side, as ``oci-cluster``; return it."""
        query = {"fieldManager": _MANAGER, "force": force, **({"dryRun": "All"} if dry_run else {})}
        return self.patch(path, body, kind="apply-patch+yaml", **query)  # JSON is YAML, too

    def delete(self, path: str, *, grace_s: int | None = None) -> bool:
        """Deletes the object at *path*; returns whether it was there."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        try:
            self._ask("DELETE", path, {}, options)
        except KubernetesError as error:
            if error.code == _NOT_FOUND:
                return False
            raise
        return True

    def may(self, verb: str, resource: str, group: str) -> bool:
        """Returns whether the user may do *verb* with *resource* (``pods/log``) in the namespace."""
        name, _, sub = resource.partition("/")
        wanted = {"verb": verb, "resource": name, "group": group, "namespace": self.namespace}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**wanted, **({"subresource": sub} if sub else {})}},
        }
        answer = self._ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {}, body)
        return bool((answer.get("status") or {}).get("allowed"))

    @contextlib.contextmanager
    def stream(self, path: str, *, read_s: float, **query: Any) -> Iterator[httpx.Response]:
        """Opens the answer of *path* once, for *read_s* of silence."""
        timeout = httpx.Timeout(_CONNECT_S, read=read_s)
        with as_kubernetes_error(path), self._client.stream("GET", path, params=query, timeout=timeout) as answer:
            if answer.is_error:
                answer.read()
                answer.raise_for_status()
            yield answer

    def close(self) -> None:
        """Leaves no connection open."""
        if "_client" in self.__dict__:
            self._client.close()

    def _ask(self, method: str, path: str, query: Any, body: Any = None, kind: str = "application/json") -> Object:
        self.changes += method != "GET"
        try:
            return self._object_of(self._repeats.call(lambda: self._once(method, path, query, body, kind)))
        except RequestFailedError as error:
            raise _as_error(error) from error

    def _once(self, method: str, path: str, query: Any, body: Any, kind: str) -> httpx.Response:
        timeout = httpx.Timeout(_ANSWER_WHEN_STOPPED_S if self._is_stopped() else ANSWER_S, connect=_CONNECT_S)
        content = None if body is None else json.dumps(body)
        headers = {"Accept": "application/json", **({"Content-Type": kind} if content else {})}
        try:
            answer = self._client.request(method, path, content=content, headers=headers, params=query, timeout=timeout)
        except (httpx.HTTPError, ssl.SSLError, OSError) as error:
            raise _no_answer(method, path, error) from error
        for warning in answer.headers.get_list("Warning"):
            text = printable(warning.partition('"')[2].rpartition('"')[0] or warning)
            if text not in self.warnings:
                self.warnings.append(text)
        if answer.is_error:
            raise _refusal(method, path, answer)
        return answer

    def _object_of(self, answer: httpx.Response) -> Object:
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            path, server = answer.request.url.path, self.access.server
            raise KubernetesError(f"{path}: the answer of {server} is no JSON object; is it a Kubernetes?")
        return found


def _is_same_launch(there: Object, body: Object) -> bool:
    name = "oci-cluster-launch"
    own = (body["metadata"].get("labels") or {}).get(name)
    return bool(own) and (there["metadata"].get("labels") or {}).get(name) == own


def _no_answer(method: str, path: str, error: Exception) -> RequestFailedError:
    is_trusted = "CERTIFICATE_VERIFY_FAILED" not in str(error)
    advice = "" if is_trusted else "; its certificate is not signed by the authority that your kubeconfig names"
    what = printable(f"{type(error).__name__} {error}".strip())
    # Who is not whom the kubeconfig means will not become so.
    return RequestFailedError(f"Kubernetes did not answer {method} {path}: {what}{advice}", is_passing=is_trusted)


def _refusal(method: str, path: str, answer: httpx.Response) -> _RefusedError:
    try:
        status = answer.json()
    except ValueError:
        status = {}
    status = status if isinstance(status, dict) else {}
    reason = printable(status.get("reason") or "")
    said = printable(status.get("message") or answer.text or answer.reason_phrase, 1000)
    code = answer.status_code
    advice = {
        401: "; your login is not known (any more): get a new token, or look at the user in your kubeconfig",
        403: "; docs/kubernetes-admin.md has the rights that are needed" if "is forbidden: User" in said else "",
    }.get(code, "")
    text = f"Kubernetes refused {method} {path}: {code} {reason}: {said}{advice}"
    # Two writers at once are over at the next try. Not where something was applied: that names who else has written it.
    is_applied = "apply-patch" in answer.request.headers.get("Content-Type", "")
    is_race = code == _CONFLICT and reason == "Conflict" and method == "PATCH" and not is_applied
    try:
        retry_after_s = float(answer.headers.get("Retry-After", "0"))
    except ValueError:
        retry_after_s = 0.0
    error = _RefusedError(text, is_passing=code in _PASSING or is_race, retry_after_s=retry_after_s)
    error.code, error.word = code, reason
    return error


@contextlib.contextmanager
def as_kubernetes_error(path: str) -> Iterator[None]:
    """Raises as KubernetesError what fails in a request for *path* that is made once."""
    try:
        yield
    except httpx.HTTPStatusError as error:
        raise _as_error(_refusal("GET", path, error.response)) from error
    except (httpx.HTTPError, ssl.SSLError, OSError) as error:
        raise _as_error(_no_answer("GET", path, error)) from error


def _as_error(error: RequestFailedError) -> KubernetesError:
    refusal = error if isinstance(error, _RefusedError) else error.__cause__  # it was tried several times
    if isinstance(refusal, _RefusedError):
        return KubernetesError(str(error), code=refusal.code, word=refusal.word)
    return KubernetesError(str(error))
