"""Starts the service and speaks with it; needs the standard library alone."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

FOLDER = Path(__file__).resolve().parent
PATIENCE_S = 120.0


class Service:
    """A service that lives as long as this context, or as this process: its stdin is a pipe from here.

    Args:
        directory: A new or empty directory; keys, objects and the output of runs stay there.
        python: An interpreter that has oci, cryptography and psutil.
        hosts: Whether every run has a host of its own; needs root on Linux.
        engine: An engine of tests/engine.py, from whose registry and as whose containers runs are run.
        empty: Whether the tenancy begins with its administrator alone, and policies count.
        start: What starts it in place of *python*: of ``warm.py``.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        python: Path | str = sys.executable,
        hosts: bool = False,
        engine: Any = None,
        empty: bool = False,
        start: Sequence[str] = (),
    ) -> None:
        self.directory = Path(directory)
        place = ["--engine", json.dumps(engine.about())] if engine else ["--hosts"] if hosts else []
        place += ["--empty"] if empty else []
        self._command = [*(start or (str(python), "-I", str(FOLDER))), str(directory), "--until-eof", *place]
        self.environ: dict[str, str] = {}
        self.settings: dict[str, str] = {}

    def __enter__(self) -> Service:
        self.process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + PATIENCE_S
        while not (self.directory / "service.json").exists():
            if self.process.poll() is not None:
                raise RuntimeError(f"the service ended with {self.process.returncode}; stderr says why")
            if time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"the service was not ready within {PATIENCE_S:g} s")
            time.sleep(0.02)
        about = json.loads((self.directory / "service.json").read_bytes())
        self._port, self._token = about["port"], about["token"]
        self.environ, self.settings = about["environ"], about["settings"]
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _ask(self, method: str, what: str, body: dict[str, Any] | None = None, **query: Any) -> bytes:
        path = f"/_/{what}?{urlencode(query)}" if query else f"/_/{what}"
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"x-control-token": self._token})
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        if response.status != http.HTTPStatus.OK:
            raise ValueError(f"{method} {path}: {answer.decode()}")
        return answer

    def control(self, controls: dict[str, Any]) -> None:
        """Set controls; README.md lists them."""
        self._ask("POST", "control", controls)

    def kill(self, run: str, rank: int | None = None) -> None:
        """Kill a run's node, or all of them, as when a machine is lost."""
        self._ask("POST", "kill", {"run": run, "rank": rank})

    def push(self, user: str, image: str, about: dict[str, Any]) -> None:
        """Push an image as *user*, an OCID: *about* is what the table of images has of it.

        Raises:
            ValueError: the user may not; only in a tenancy that began empty.
        """
        self._ask("POST", "push", {"user": user, "image": image, "about": about})

    def resource_principal(self, kind: str, compartment: str) -> dict[str, str]:
        """Return the variables of a new resource of that kind: its resource principal and the way to the service."""
        answer = self._ask("POST", "resource_principal", {"kind": kind, "compartment": compartment})
        return {**self.environ, **json.loads(answer)}

    def secret(self, content: str) -> str:
        """Put a secret into the tenancy's vault, and return its OCID."""
        return str(json.loads(self._ask("POST", "secret", {"content": content})))

    def denials(self) -> list[dict[str, str]]:
        """Return what policies have not allowed, in a tenancy that began empty: who, operation, permission."""
        found: list[dict[str, str]] = json.loads(self._ask("GET", "denials"))
        return found

    def set_statements(self, statements: Sequence[str]) -> None:
        """Replace the statements of all policies but the administrators' own, in a tenancy that began empty."""
        self._ask("POST", "statements", {"statements": list(statements)})

    def calls(self, operation: str | None = None, since: int = 0) -> list[dict[str, Any]]:
        """Return what was asked of it, in the order in which it was answered; only *operation* if that is given."""
        found: list[dict[str, Any]] = json.loads(self._ask("GET", "calls", since=since))
        return [call for call in found if operation is None or call["operation"].partition(".")[2] == operation]

    def jobs(self) -> list[dict[str, Any]]:
        """Return all jobs as they are, deleted ones too."""
        found: list[dict[str, Any]] = json.loads(self._ask("GET", "jobs"))
        return found

    def job_runs(self) -> list[dict[str, Any]]:
        """Return all job runs as they are, deleted ones too."""
        found: list[dict[str, Any]] = json.loads(self._ask("GET", "job_runs"))
        return found

    def bastion_sessions(self) -> list[dict[str, Any]]:
        """Return all sessions of bastions as they are now, those that are over, too."""
        found: list[dict[str, Any]] = json.loads(self._ask("GET", "bastion_sessions"))
        return found

    def objects(self, prefix: str = "") -> list[str]:
        """Return the names of the objects in the bucket."""
        return list(json.loads(self._ask("GET", "objects", prefix=prefix)))

    def object(self, name: str) -> bytes:
        """Return an object's bytes."""
        return self._ask("GET", "object", name=name)

    def log(self, run: str, rank: int | None = None) -> str:
        """Return what a run has printed so far, of all its nodes or of one, without the delay of ingestion."""
        lines = json.loads(self._ask("GET", "log", run=run))
        return "".join(f"{line['text']}\n" for line in lines if rank in {None, line["rank"]})

    def wait(self, run: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """Return a run when it has ended."""
        deadline = time.monotonic() + patience_s
        while True:
            found = next(item for item in self.job_runs() if item["id"] == run)
            if found["lifecycleState"] in {"SUCCEEDED", "FAILED", "CANCELED", "DELETED"}:
                return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"the run is {found['lifecycleState']} after {patience_s:g} s:\n{self.log(run)}")
            time.sleep(0.02)
