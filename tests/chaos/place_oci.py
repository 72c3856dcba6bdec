"""`oci`: Job Runs of the stand-in for OCI, with its cluster dir in a bucket."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import oci
import psutil
from oci_cloud import ENDED, Cloud, image_of
from oci_service.handle import Service

from chaos.places import ONCE, Place, Struck, agents_of
from chaos.schedules import Fault, Schedule

# How long the service has troubles: less than the bounds that nodes and launcher have for it.
_TROUBLE_S = 4.0
_LATE_S = 1.5
_SITE = """
import os, time
node, ahead_s = os.environ.get("CHAOS_CLOCK", "- 0").split()
own = "MAIN" if os.environ.get("MODE") == "MAIN" else f"WORKER_{os.environ.get('NODE_RANK')}"
if node == own:
    # The counters of the exchange are made of this. The other clock, of requests, OCI itself refuses when it is off.
    real = time.time_ns
    time.time_ns = lambda: real() + int(ahead_s) * 10**9
"""


class OciPlace(Place):
    """Job Runs, as processes of this machine."""

    remember_s = 0.3
    start_s = 15.0
    has_hosts = False

    def __init__(self, checkout: Path, scratch: Path, schedule: Schedule) -> None:
        super().__init__(checkout, scratch, schedule)
        self.service = Service(scratch / "s", python=sys.executable, hosts=self.has_hosts)
        self.service.__enter__()
        self.cloud = Cloud(self.project, self.service)
        self.project.environ |= {**self.cloud.environ, "IMAGE": image_of(schedule.framework)}
        self._add_images(scratch)
        self.service.control({"cancel_grace_s": 5.0})
        config = oci.config.from_file(self.service.environ["OCI_CLI_CONFIG_FILE"])
        self._science = self._client(oci.data_science.DataScienceClient, config)
        self._storage = self._client(oci.object_storage.ObjectStorageClient, config)
        self._bucket = (self.service.settings["namespace"], self.service.settings["bucket"])

    def _client(self, kind: Callable[..., Any], config: dict[str, Any]) -> Any:
        """Return a client of the SDK, on another way than the environment of this process, which has no service."""
        client = kind(config, retry_strategy=oci.retry.NoneRetryStrategy(), timeout=60)
        session = client.base_client.session
        session.trust_env = False
        session.proxies = {"https": self.service.environ["HTTPS_PROXY"]}
        session.verify = self.service.environ["REQUESTS_CA_BUNDLE"]
        return client

    def _add_images(self, scratch: Path) -> None:
        """Push the toys' images; their Python has a clock that can be off, on one node."""
        site = scratch / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_SITE)
        clock = next((fault.target for fault in self.schedule.faults if fault.kind == "clock"), "- 0")
        image = self.cloud.image(Path(sys.executable))
        image["environment"]["PYTHONPATH"] = f"{site}:{image['environment']['PYTHONPATH']}"
        image["environment"]["CHAOS_CLOCK"] = clock
        image["readable"] += [str(site), str(self.truth_folder())]
        self.service.control({"images": {image_of(self.schedule.framework): image}})

    def found_id(self) -> str:
        ids = [job["freeformTags"].get("oci-cluster-launch", "") for job in self.service.jobs()]
        return str(ids[0]) if ids else ""

    def agent(self, node: str) -> list[psutil.Process]:
        return agents_of(self.launch_id(), node)

    # --- Objects

    def _prefix(self) -> str:
        """Return the cluster dir's; FileNotFoundError before there is one."""
        if not (launch_id := self.launch_id()):
            raise FileNotFoundError(self.name)
        return f"work/{self.name}-{launch_id}/"

    def names(self) -> list[str]:
        prefix = self._prefix()
        return [name for found in self.service.objects(prefix) if "/" not in (name := found.removeprefix(prefix))]

    def read(self, name: str) -> bytes:
        try:
            return self.service.object(self._prefix() + name)
        except ValueError as error:
            raise FileNotFoundError(name) from error

    def write(self, name: str, data: bytes) -> None:
        with _as_os_error():
            self._storage.put_object(*self._bucket, self._prefix() + name, data)

    def delete(self, name: str) -> None:
        with _as_os_error():
            self._storage.delete_object(*self._bucket, self._prefix() + name)

    # --- Faults of the service

    def strike(self, fault: Fault) -> Struck | None:
        if fault.kind == "refusing":
            self.service.control({"revoke_bucket": [self._bucket[1]]})
            return _TROUBLE_S, lambda: self.service.control({"revoke_bucket": []})
        if fault.kind in {"cancel", "node lost"}:
            run = next((run for node, run in self.cloud.runs().items() if node == fault.target), None)
            if run is None or run["lifecycleState"] in ENDED:
                return None
            if fault.kind == "node lost":
                self.service.kill(run["id"])
                return ONCE
            try:
                with _as_os_error():
                    self._science.cancel_job_run(run["id"])
            except OSError:
                return None
            return ONCE
        rule = {"operation": "*", "kind": fault.kind, "probability": 0.7, "seed": self.schedule.seed}
        if fault.kind == "late":
            rule = {"operation": "*", "kind": "latency", "seconds": _LATE_S}
        self.service.control({"faults": [rule]})
        return _TROUBLE_S, lambda: self.service.control({"faults": []})

    # --- What is left

    def left(self, *, launcher_is_gone: bool) -> list[str]:
        left = super().left(launcher_is_gone=launcher_is_gone)
        runs = [run for run in self.service.job_runs() if run["lifecycleState"] not in {*ENDED, "DELETED"}]
        return left + [f"{run['freeformTags'].get('oci-cluster-node')} {run['lifecycleState']}" for run in runs]

    def tidy(self) -> list[str]:
        """Delete the cluster, which stays in its Job until somebody does so; of two launches of one name, both."""
        for _ in self._jobs():
            if not self._jobs():
                break
            done = self.project.run("stop", "--delete", self.name)
            if done.returncode:
                return [f"stop --delete ended with {done.returncode}: {done.stderr[-600:]}"]
        objects = self.service.objects(f"work/{self.name}-")
        return [f"stop --delete left {thing}" for thing in (*self._jobs(), *objects)]

    def _jobs(self) -> list[str]:
        return [job["id"] for job in self.service.jobs() if job["lifecycleState"] != "DELETED"]

    def close(self) -> None:
        super().close()
        self.service.__exit__()
        shutil.rmtree(self.project.path / ".clusters", ignore_errors=True)


@contextlib.contextmanager
def _as_os_error() -> Iterator[None]:
    """Have what the service refuses look as what a disk refuses."""
    try:
        yield
    except (oci.exceptions.ServiceError, oci.exceptions.RequestException) as error:
        raise OSError(str(error)) from error


@contextlib.contextmanager
def shared(_scratch: Path) -> Iterator[None]:
    """Share nothing: a service of its own is ready within a second."""
    yield None


def open_place(checkout: Path, scratch: Path, schedule: Schedule, _shared: None) -> Place:
    """Return the place for one schedule."""
    return OciPlace(checkout, scratch, schedule)
