"""`kubernetes`: pods of a real Kubernetes, which all schedules share; each has a namespace, a user and a proxy."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import engine as engines
import psutil
import requests
from harness import wait_until
from kube import images, volumes
from kube.api import Object, RefusedError
from kube.cluster import Cluster, why_not
from kube.faults import FaultyProxy
from kube.launches import LABEL, Site

from chaos.places import ONCE, Place, Struck, agents_of
from chaos.schedules import Fault, Schedule

# How long the API has troubles: less than the bound that the launcher has for it.
_TROUBLE_S = 4.0
_API_DOWN_S = 2.0
# A node's lease is over after 4 s, which this does not reach.
_CUT_S = 3.0
# A machine is seen to be lost after 8 s, and its pods are given up 30 s later (kubernetes.yaml.j2): the kubelet is back
# before that, the machine after it.
_KUBELET_DOWN_S, _AWAY_S = 12.0, 45.0
_CLAIM = "chaos"
_TROUBLES: dict[str, dict[str, Any]] = {
    "late": {"delay_s": 1.5},
    "429": {"status": 429, "retry_after_s": 1},
    "500": {"status": 500},
    "503": {"status": 503},
    "drop-before": {"is_dropped": True},
    "drop-after": {"is_lost": True},
    "logs cut": {"cut_after_s": 0.5, "path": "/log"},
}
_HARMS: dict[str, tuple[float, list[str], list[str]]] = {
    "kubelet killed": (_KUBELET_DOWN_S, ["kill_kubelet"], ["start_kubelet"]),
    "link cut": (_CUT_S, ["cut"], ["heal"]),
    "machine away": (_AWAY_S, ["cut", "kill_kubelet"], ["heal", "start_kubelet"]),
}
_CONTROL = "control"


class KubernetesPlace(Place):
    """Pods; the Kubernetes is that of all schedules."""

    start_s = 15.0

    def __init__(self, checkout: Path, scratch: Path, schedule: Schedule, kubernetes: Cluster) -> None:
        self._kubernetes = kubernetes
        self._stack = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._harmed: set[str] = set()
        namespace = self._stack.enter_context(kubernetes.namespace())
        self._volume = self._stack.enter_context(volumes.claim(kubernetes, namespace, _CLAIM))
        self._proxy = self._stack.enter_context(FaultyProxy(kubernetes.server, kubernetes.authority))
        super().__init__(checkout, scratch, schedule)
        kubeconfig = kubernetes.user(namespace).by_token(self._proxy.url)
        self._site = Site(self.project, kubernetes, namespace, kubeconfig)
        self.project.environ |= {"VOLUMES": f"{_CLAIM}=pvc:{_CLAIM}"}

    def truth_folder(self) -> Path:
        """Return the volume: code goes to pods as a ConfigMap, and a pipe in a volume is one of the kernel's."""
        return self._volume

    def truth_path(self) -> str:
        return f"/mnt/{_CLAIM}/truth"

    def found_id(self) -> str:
        found = self._asked(self._site.jobs) or []
        names = [job["metadata"]["labels"].get(LABEL, "") for job in found]
        return str(names[0]) if names else ""

    def agent(self, node: str) -> list[psutil.Process]:
        return agents_of(self.launch_id(), node)

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """Return what the API answers; None where it does not, as faults are to meet it as it is."""
        with contextlib.suppress(requests.RequestException, RefusedError):
            return ask()
        return None

    # --- Files: the volume is a directory of this machine; main's memory is out of reach

    def _cluster_dir(self) -> Path:
        return self._volume / "work" / f"{self.name}-{self.launch_id() or 'none'}"

    def names(self) -> list[str]:
        return [path.name for path in self._cluster_dir().glob("*") if path.is_file()]

    def read(self, name: str) -> bytes:
        return (self._cluster_dir() / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        path = self._cluster_dir() / name
        path.write_bytes(data)
        os.chown(path, 1000, 1000)  # as what nodes write

    def delete(self, name: str) -> None:
        (self._cluster_dir() / name).unlink()

    # --- Faults of the API, of pods and of machines

    def strike(self, fault: Fault) -> Struck | None:
        if fault.kind in _TROUBLES:
            return self._trouble(fault.kind)
        if fault.kind == "API killed":
            return self._harm(_CONTROL, _API_DOWN_S, ["stop_api"], ["start_api"])
        if (pod := self._pod(fault.target)) is None:
            return None
        machine = pod["spec"].get("nodeName", "")
        return self._harm(machine, *_HARMS[fault.kind]) if fault.kind in _HARMS else self._take(fault.kind, pod)

    def _trouble(self, kind: str) -> Struck:
        added = self._proxy.add(**_TROUBLES[kind], odds=0.7, seed=self.schedule.seed)
        if kind == "logs cut":
            self._proxy.hang_up()
        return _TROUBLE_S, lambda: self._proxy.remove(added)

    def _harm(self, machine: str, seconds: float, begin: list[str], end: list[str]) -> Struck | None:
        """Harm a machine; one that another fault has harmed cannot be, nor one that is not known yet."""
        with self._lock:
            if not machine or machine in self._harmed:
                return None
            self._harmed.add(machine)
        where = {} if machine == _CONTROL else {"node": machine}
        for word in begin:
            self._kubernetes.do(word, **where)

        def heal() -> None:
            for word in end:
                self._kubernetes.do(word, **where)
            with self._lock:
                self._harmed.remove(machine)

        return seconds, heal

    def _pod(self, node: str) -> Object | None:
        """Return the pod of *node* that is there and has not ended."""
        index = 0 if node == "MAIN" else int(node.rpartition("_")[2])
        pod: Object | None = (self._asked(self._site.pods) or {}).get(index)
        return None if pod is None or pod["status"]["phase"] in {"Succeeded", "Failed"} else pod

    def _take(self, kind: str, pod: Object) -> Struck | None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        path, api = f"api/v1/namespaces/{namespace}/pods/{name}", self._kubernetes.api
        if kind == "evicted":
            about = {"name": name, "namespace": namespace}
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
            return ONCE if self._asked(lambda: api.create(f"{path}/eviction", eviction)) else None
        options = {"gracePeriodSeconds": 0} if kind == "deleted by force" else {}
        return ONCE if self._asked(lambda: api.ask("DELETE", path, options)) else None

    def heal(self) -> None:
        """Wait for what the last fault has harmed: the next launch meets a Kubernetes that is well."""
        for machine in self._kubernetes.nodes:
            self._kubernetes.wait_for_node(machine)

    # --- What is left

    def left(self, *, launcher_is_gone: bool) -> list[str]:
        # Who has killed a launcher and its guard finds the Job until stop.sh brings what it has told.
        return super().left(launcher_is_gone=launcher_is_gone) or ([] if launcher_is_gone else self._in_kubernetes())

    def _in_kubernetes(self) -> list[str]:
        left = [thing for thing in self._site.left() if thing != f"persistentvolumeclaims/{_CLAIM}"]
        return left or (self._site.left_cluster_wide(self.launch_id()) if self.launch_id() else [])

    def tidy(self) -> list[str]:
        """Stop the cluster: what is left of it in Kubernetes is brought and removed."""
        if not self._in_kubernetes():
            return []
        done = self.project.run("stop", self.name)
        found = [] if done.returncode == 0 else [f"stop ended with {done.returncode}: {done.stderr[-600:]}"]
        return [*found, *(f"stop left {thing}" for thing in self._in_kubernetes())]

    def close(self) -> None:
        super().close()
        for job in self._site.jobs():
            self._kubernetes.api.delete(
                f"apis/batch/v1/namespaces/{self._site.namespace}/jobs/{job['metadata']['name']}"
            )
        self._stack.close()


@contextlib.contextmanager
def shared(scratch: Path) -> Iterator[Cluster]:
    """Have a Kubernetes with an image of the toys."""
    if reason := why_not() or engines.why_not():
        raise SystemExit(f"BACKEND=kubernetes needs a Kubernetes of its own: {reason}")
    toys = images.toy_archive(images.KEPT, scratch / "e")
    with Cluster(scratch / "k", with_kueue=False) as kubernetes:
        kubernetes.do("import_image", archive=str(toys))
        yield kubernetes
    # Its keeper ends after it, and removes its files; who removes them beside it fails.
    keeper = kubernetes.about["pid"]
    wait_until(lambda: not psutil.pid_exists(keeper), "the Kubernetes to end")


def open_place(checkout: Path, scratch: Path, schedule: Schedule, shared: Cluster) -> Place:
    """Return the place for one schedule."""
    return KubernetesPlace(checkout, scratch, schedule, shared)
