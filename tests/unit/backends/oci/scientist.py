"""A launch by a scientist in this process: real requests, which policies judge, and nodes that are stubs."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ocifs
import pytest
from oci_service.access import run_principal
from oci_service.resources import JSON, Refusal, Request, now
from unit.backends.oci.stand_in import REGISTRY, StandIn

from oci_cluster.backends.oci import backend as oci_backend
from oci_cluster.backends.oci.backend import OciBackend
from oci_cluster.backends.oci.service import Service
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.launcher import verbs
from oci_cluster.launcher.launch import launch
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.system import process


class Signals:
    """No signal; a wait lets time pass."""

    clock: Any = None

    def __init__(self, **_: bool) -> None:
        self.received: int | None = None

    def wait(self, seconds: float) -> None:
        type(self).clock.sleep(seconds)


class Scientist:
    """Somebody in the group of those who launch, with settings as setup.sh leaves them."""

    def __init__(self, stand_in: StandIn, group: str, project: str, patch: pytest.MonkeyPatch, clock: Any) -> None:
        self._stand_in, self._patch, self._clock = stand_in, patch, clock
        service = stand_in.service
        config = stand_in.config_of(stand_in.user(group).id)
        names = ("OCI_CLI_CONFIG_FILE", "OCI_CONFIG_FILE", "OCIFS_CONFIG_LOCATION")
        given = {**stand_in.environ, **dict.fromkeys(names, config), **stand_in.settings, "PROJECT_OCID": project}
        self.environ = {**given, "IMAGE": f"{REGISTRY}/dask:1", "BACKEND": "oci", "CLUSTER_PROGRAM": "launch.sh"}
        self._started: list[JSON] = []
        self._awaited = 0
        patch.setattr(service.runner, "begin", self._begin)

    def launch(self, workers: int) -> int:
        """Launch Dask with so many workers, and follow it to its end; return the exit code."""
        patch, clock = self._patch, self._clock
        ocifs.OCIFileSystem.clear_instance_cache()
        for name, text in self.environ.items():
            patch.setenv(name, text)
        patch.setattr(Signals, "clock", clock)
        patch.setattr(process, "Signals", Signals)
        patch.setattr(verbs.signal, "signal", lambda *_: None)
        patch.setattr(launch, "ensure_tools", lambda *_, **__: Path("/"))
        patch.setattr(launch, "continue_in", lambda *_, **__: None)
        patch.setattr(launch, "equip", lambda *_, **__: None)
        patch.setattr(oci_backend, "time", SimpleNamespace(monotonic=clock, sleep=clock.sleep))
        times = {"clock": clock, "sleep": clock.sleep}
        for kind, moved in ((OciBackend, {"clock": clock}), (Lifecycle, times), (Service, times)):
            patch.setattr(kind.__init__, "__kwdefaults__", {**(kind.__init__.__kwdefaults__ or {}), **moved})
        self._started, self._awaited = [], workers + 1
        return verbs.run("launch", ["dask", str(workers)])

    def _begin(self, run: JSON, job: JSON, plan: Any) -> None:
        """Have a node begin, if it may do what nodes do; the last one ends the cluster."""
        service = self._stand_in.service
        runs, end = service.science.runs, {"timeFinished": now()}
        over = threading.Event()
        over.set()
        cancel = functools.partial(runs.touch, run, lifecycleState="CANCELED", **end)
        service.runner.lives[run["id"]] = SimpleNamespace(cancel=cancel, kill=lambda: None, over=over)  # type: ignore[assignment]
        variables = plan.groups[0].configuration["environmentVariables"]
        url = f"{variables['WORK_DIR']}/{variables['CLUSTER_ID']}"
        if why := self._why_not(run, job, plan, url):
            runs.touch(run, lifecycleState="FAILED", lifecycleDetails=why, **end)
            return
        runs.touch(run, lifecycleState="IN_PROGRESS", timeStarted=now())
        self._started.append(run)
        self._awaited -= sum(group.replicas for group in plan.groups)
        if not self._awaited:
            files = ClusterDir(url, variables["LAUNCH_ID"], variables["LAUNCH_KEY"])
            files.publish("MAIN_exit.json", exit_code=0, reason="")
            for one in self._started:
                runs.touch(one, lifecycleState="SUCCEEDED", **end)

    def _why_not(self, run: JSON, job: JSON, plan: Any, url: str) -> str:
        access, node = self._stand_in.service.access, run_principal(run)
        assert access is not None
        if why := access.why_not(run, job, plan):
            return why
        if plan.log and not access.may_log(run, job, plan.log[0]):
            return "what it prints is lost"
        bucket, _, folder = url.removeprefix("oci://").partition("/")
        names = {"namespace": "stand-in", "bucket": bucket.partition("@")[0], "object": f"{folder}/x"}
        try:
            for operation in ("list_objects", "get_object", "put_object", "delete_object"):
                access.check(node, f"object_storage.{operation}", Request(node, {}, {}, names, b""))
        except Refusal:
            return f"it may not {operation}"
        return ""
