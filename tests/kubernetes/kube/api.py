"""A small client of the API for tests: JSON in and out, by paths as the API's own documentation has them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import requests
from harness import PATIENCE_S
from requests.adapters import HTTPAdapter

Object = dict[str, Any]


class RefusedError(RuntimeError):
    """The API's answer was no; ``code`` is HTTP's, ``reason`` the API's."""

    def __init__(self, method: str, path: str, answer: requests.Response) -> None:
        try:
            status = answer.json()
        except ValueError:
            status = {"message": answer.text[:2000]}
        self.code = answer.status_code
        self.reason = str(status.get("reason", ""))
        super().__init__(f"{method} {path}: {self.code} {self.reason}: {status.get('message')}")


class Api:
    """What a kubeconfig that :mod:`kube.identity` has written can ask."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.server = cluster["server"]
        self.session = requests.Session()
        self.session.trust_env = False  # no proxy of this machine, no .netrc
        self.session.mount("https://", HTTPAdapter(pool_maxsize=16))
        self.session.verify = cluster["certificate-authority"]
        if "client-certificate" in user:
            self.session.cert = (user["client-certificate"], user["client-key"])
        else:
            self.session.headers["Authorization"] = f"Bearer {user['token']}"

    def ask(
        self, method: str, path: str, body: Any = None, *, kind: str = "json", timeout: float = 60, **query: Any
    ) -> requests.Response:
        """Ask, and raise what is refused."""
        data = body if isinstance(body, (bytes, str)) or body is None else json.dumps(body)
        answer = self.session.request(
            method,
            f"{self.server}/{path}",
            params={name: str(value) for name, value in query.items()},
            data=data,
            headers={"Content-Type": f"application/{kind}"},
            timeout=timeout,
        )
        if not answer.ok:
            raise RefusedError(method, path, answer)
        return answer

    def get(self, path: str, *, timeout: float = 60, **query: Any) -> Any:
        """Return an object, or what else is there, such as a log."""
        answer = self.ask("GET", path, timeout=timeout, **query)
        return answer.json() if "json" in answer.headers.get("Content-Type", "") else answer.text

    def items(self, path: str, **query: Any) -> list[Object]:
        found: list[Object] = self.get(path, **query)["items"]
        return found

    def find(self, path: str) -> Object | None:
        """Return an object, or None where there is none."""
        try:
            found: Object = self.get(path)
        except RefusedError as error:
            if error.code == 404:
                return None
            raise
        return found

    def create(self, path: str, body: Object) -> Object:
        made: Object = self.ask("POST", path, body).json()
        return made

    def apply(self, path: str, body: Object | str | bytes) -> Object:
        """Make an object, or make it so, by a server-side apply; *body* is JSON or YAML."""
        query: dict[str, Any] = {"fieldManager": "tests", "force": "true"}
        made: Object = self.ask("PATCH", path, body, kind="apply-patch+yaml", **query).json()
        return made

    def patch(self, path: str, body: Any, kind: str = "merge-patch+json") -> Object:
        made: Object = self.ask("PATCH", path, body, kind=kind).json()
        return made

    def delete(self, path: str, **options: object) -> None:
        """Delete an object, with all that it owns; one that is not there is deleted."""
        try:
            self.ask("DELETE", path, {"propagationPolicy": "Background", **options})
        except RefusedError as error:
            if error.code != 404:
                raise

    def watch(self, path: str, timeout_s: int = 60, **query: Any) -> Iterator[Object]:
        """Yield the events of what *path* lists, until the server ends the watch."""
        words = urlencode({"watch": "true", "timeoutSeconds": timeout_s, **query})
        with self.session.get(f"{self.server}/{path}?{words}", stream=True, timeout=timeout_s + 10) as answer:
            if not answer.ok:
                raise RefusedError("WATCH", path, answer)
            for line in answer.iter_lines():
                if line:
                    yield json.loads(line)

    def until(self, path: str, holds: Callable[[Object], object], what: str, **query: Any) -> Object:
        """Return what is at *path* as soon as it *holds*; fail after some minutes, and show it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                found = self.get(path, **query)
                if holds(found):
                    return found  # type: ignore[no-any-return]
            except RefusedError as error:
                if error.code != 404:
                    raise
                found = str(error)
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {PATIENCE_S:g} s for {what}: {json.dumps(found)[:3000]}")
            time.sleep(0.1)


def condition(found: Object, kind: str) -> Object:
    """Return a condition of an object, or an empty one."""
    conditions = found.get("status", {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), {})
