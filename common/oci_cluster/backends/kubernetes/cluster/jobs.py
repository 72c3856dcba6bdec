"""The Jobs of clusters: made with all that they own, resized, ended, removed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from oci_cluster.backends.kubernetes.api.service import KubernetesError, Service
from oci_cluster.backends.kubernetes.cluster import manifests, states
from oci_cluster.backends.kubernetes.cluster.cache import Seen
from oci_cluster.contract.cluster import Cluster, Node, NodeState
from oci_cluster.errors import BackendError, SettingsError, StoppedError, UsageError
from oci_cluster.system.text import printable

Object = dict[str, Any]

# What a cluster has besides its Job and its pods.
_KINDS = {
    "NetworkPolicy": "networkpolicies",
    "Secret": "secrets",
    "Service": "services",
}
# Kubernetes' own: its controllers look after seconds, a kubelet answers within some.
_GONE_S = 60.0
# How long the end of main's pod may take to be counted: its controller looks at pods that have ended once a second.
_COUNTED_S = 10.0
# How long a launch may take to see another one's Job beside its own, and to remove its own then.
_SEEN_S = 10.0


class Jobs:
    """The Jobs of one namespace, as one launcher changes them."""

    def __init__(
        self,
        service: Service,
        seen: Seen,
        *,
        is_stopped: Callable[[], bool],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._service = service
        self._seen = seen
        self._is_stopped = is_stopped
        self._clock = clock
        self._sleep = sleep

    def create(self, name: str, objects: Sequence[Object]) -> Object:
        """Makes the last of *objects*, the Job, and then the others, which it owns.

        Raises:
            StoppedError: the launcher was told to stop.
            UsageError: somebody else has launched a cluster of that name at the same moment.
        """
        *others, job = objects
        service = self._service
        self._stop_if_told()
        if not states.labels_of(job).get(manifests.QUEUE):  # else Kueue decides when its pods are made
            job = {**self._in_its_queue(job), "spec": {**job["spec"], "suspend": True}}
        made = service.create(service.path("jobs"), job)
        self._refuse_second(made)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": states.uid_of(made)}
        for item in others:
            self._stop_if_told()
            item["metadata"]["ownerReferences"] = [owner]
            service.create(service.path(_KINDS[item["kind"]]), item)
        self._stop_if_told()
        if not states.labels_of(job).get(manifests.QUEUE):
            service.patch(service.path("jobs", name), {"spec": {"suspend": False}})
        return made

    def _refuse_second(self, made: Object) -> None:
        """Raises UsageError where an older Job than *made* has its name, and runs.

        Nobody had seen either of them when both names were looked up. Of two that were made in one second, the smaller
        launch id counts as the older. The other one may not have seen it, and go on: who sees that refuses itself.
        """
        service, name = self._service, states.annotations_of(made).get(manifests.NAME)
        created, launch = states.created_of(made), states.launch_of(made)
        give_up_at = self._clock() + _SEEN_S
        while True:
            ages = [
                (states.created_of(other), states.launch_of(other))
                for other in service.items(service.path("jobs"), labelSelector=manifests.LAUNCH)
                if (cluster := states.cluster_of(other, Path())) and cluster.name == name
                if not states.JobView.of(other).is_finished
            ]
            if any(age < (created, launch) for age in ages) or (len(ages) > 1 and self._clock() >= give_up_at):
                raise UsageError(f"a cluster named '{name}' was launched at the same moment; choose another --name")
            if not any(age > (created, launch) and age[0] == created for age in ages):
                return
            self._stop_if_told()
            self._sleep(0.5)

    def _in_its_queue(self, job: Object) -> Object:
        """Adds the queue that the namespace has for Jobs that name none.

        Only then is it elastic, too: Kueue would hold the pods of an elastic Job back that it does not count.
        """
        service = self._service
        tried = service.create(service.path("jobs"), job, dry_run=True)
        queue = states.labels_of(tried).get(manifests.QUEUE)
        if not queue and (tried.get("spec") or {}).get("suspend"):
            names: list[str] = []
            with contextlib.suppress(KubernetesError):  # who may not list them is told less
                names = sorted(printable(states.name_of(one)) for one in service.items(service.path("localqueues")))
            there = f"there are: {', '.join(names)} (--queue {names[0]})" if names else ""
            raise SettingsError(
                f"Kueue suspends each Job of namespace {service.namespace} that names no queue; "
                f"{there or 'ask its administrator for one, and set --queue'}"
            )
        if not queue:
            return job
        meta = job["metadata"]
        labels = {**meta["labels"], manifests.QUEUE: queue}
        annotations = {**meta["annotations"], manifests.ELASTIC: "true"}
        return {**job, "metadata": {**meta, "labels": labels, "annotations": annotations}}

    def grow(self, cluster: Cluster, nodes: Sequence[Node]) -> None:
        """Adds *nodes*, whose ranks are the next ones, to the Job."""
        job = self._seen.job(cluster.handle)
        if job is None or states.JobView.of(job).is_finished:
            raise UsageError(f"{cluster.name} has ended; launch it again: scripts/launch.sh")
        size, ended = states.size_of(job), set(states.annotations_of(job).get(manifests.ENDED, "").split())
        names = [node.name for node in nodes]
        if sorted(node.rank for node in nodes) != list(range(size, size + len(nodes))):
            raise BackendError(f"{', '.join(names)} cannot be started: the next node of {cluster.name} has rank {size}")
        self._resize(cluster.handle, size, size + len(nodes), _ended(ended - set(names)))

    def _resize(self, job: str, old: int, new: int, annotations: Mapping[str, str]) -> None:
        """Resizes *job* from *old* to *new* nodes, unless it has changed."""
        change = [
            {"op": "test", "path": "/spec/completions", "value": old},
            {"op": "replace", "path": "/spec/completions", "value": new},
            {"op": "replace", "path": "/spec/parallelism", "value": new},
            *({"op": "add", "path": f"/metadata/annotations/{name}", "value": t} for name, t in annotations.items()),
        ]
        self._service.patch(self._service.path("jobs", job), change, kind="json-patch+json")

    def _stop_if_told(self) -> None:
        if self._is_stopped():
            raise StoppedError("stopped before all nodes were started")

    def end_all(self, job: str, annotations: Mapping[str, str]) -> None:
        """Ends all pods of *job* by a deadline: Kubernetes makes no more then."""
        change = {"metadata": {"annotations": dict(annotations)}, "spec": {"activeDeadlineSeconds": 1}}
        self._service.patch(self._service.path("jobs", job), change)

    def end(self, cluster: Cluster, nodes: Collection[str], *, at_once: bool = False) -> None:
        """Ends *nodes*: all by a deadline, the last by the Job's size, others by pod."""
        waiting = {state.node for state in self._seen.look(cluster) or [] if state.is_waiting}
        # Also one that Kubernetes itself is just ending, as main has succeeded.
        pods = self._seen.newest(cluster).items()
        waiting |= {node for node, pod in pods if not states.is_running(pod) and not states.termination_of(pod)}
        found = self._with_main_counted(cluster)
        job = self._seen.job(cluster.handle)
        if job is None:
            return
        running = {state.node for state in found if state.is_running}
        wanted = running & set(nodes)
        if not wanted:
            return
        view = states.JobView.of(job)
        waiting |= {state.node for state in found if state.is_waiting}
        # A main that is gone was not ended by this, and was lost.
        ended = {manifests.ALL} if "MAIN" in wanted else view.ended | wanted
        annotations = _ended(ended, view.unstarted | waiting & wanted)
        if "MAIN" in wanted or wanted == running:
            if not view.is_finished and manifests.ALL not in view.ended:
                self.end_all(cluster.handle, annotations)
        elif (new := _size_without(found[: states.size_of(job)], wanted)) is not None:
            self._resize(cluster.handle, states.size_of(job), new, annotations)
        else:
            self._service.patch(self._service.path("jobs", cluster.handle), {"metadata": {"annotations": annotations}})
            self._delete_pods(cluster, wanted, grace_s=None)
        if at_once:
            self._delete_pods(cluster, wanted, grace_s=0)

    def _with_main_counted(self, cluster: Cluster) -> list[NodeState]:
        """Returns the nodes' states once the Job has counted the end of main.

        A Job whose time is over deletes each pod that it has not seen to end. Then nobody would know how main did.
        """
        began = self._clock()
        while True:
            found = self._seen.look(cluster) or []
            if not any(state.node == "MAIN" and not (state.is_running or state.never_started) for state in found):
                return found
            view = states.JobView.of(self._seen.job(cluster.handle) or {})
            is_counted = view.is_finished or 0 in view.failed | view.completed
            if is_counted or self._clock() - began > _COUNTED_S:
                return found
            self._sleep(0.2)

    def _delete_pods(self, cluster: Cluster, nodes: Collection[str], *, grace_s: int | None) -> None:
        for node, pod in self._seen.newest(cluster).items():
            if node in nodes and not states.termination_of(pod):
                self._service.delete(self._service.path("pods", states.name_of(pod)), grace_s=grace_s)

    def remove(self, cluster: Cluster, name: str) -> None:
        """Removes the Job *name*, and returns when nothing that it owns is left.

        Raises:
            BackendError: pods were left for a minute and the nodes' grace.
        """
        service = self._service
        job = service.find(service.path("jobs", name)) or {}
        if states.launch_of(job) == cluster.launch_id:
            service.delete(service.path("jobs", name))
        # Kubernetes removes what the Job owns. By name, as nobody owns what was made of a dry run, by hand.
        for kind, suffix in (("secrets", "-code"), ("services", "-main"), ("networkpolicies", "-main")):
            for own in (name, f"{name}{suffix}"):
                try:
                    service.delete(service.path(kind, own))
                except KubernetesError as error:
                    if error.code != 403:
                        raise
        pods = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
        grace_s = float(pods.get("terminationGracePeriodSeconds", 30))
        began, is_forced = self._clock(), False
        while left := self._pods_left(cluster, name):
            waited_s = self._clock() - began
            if waited_s > grace_s + _GONE_S:
                raise BackendError(f"{', '.join(left[:5])} of {cluster.name} did not go within {waited_s:.0f} s")
            if waited_s > grace_s and not is_forced:
                is_forced = True
                for pod in left:  # on a machine that nobody hears of, nobody says that they have ended
                    service.delete(service.path("pods", pod), grace_s=0)
            self._sleep(0.2)

    def _pods_left(self, cluster: Cluster, job: str) -> list[str]:
        """Returns the pods of *job* that are left: anybody may copy their label."""
        service, chosen = self._service, f"{manifests.LAUNCH}={cluster.launch_id}"
        pods = service.items(service.path("pods"), labelSelector=chosen)
        owned = {states.name_of(pod): [(one["kind"], one["name"]) for one in states.owners_of(pod)] for pod in pods}
        return [pod for pod, owners in owned.items() if ("Job", job) in owners]


def _ended(nodes: Collection[str], unstarted: Collection[str] = ()) -> dict[str, str]:
    """Returns annotations: the nodes ended on purpose, and those that had not started."""
    return {manifests.ENDED: " ".join(sorted(nodes)), manifests.UNSTARTED: " ".join(sorted(unstarted))}


def node_ports(service: Service, name: str) -> str:
    """Returns the ports of every machine that lead to main, in words."""
    found = service.find(service.path("services", f"{name}-main")) or {}
    pairs = [(port.get("port"), port.get("nodePort")) for port in (found.get("spec") or {}).get("ports") or []]
    return ", ".join(f"port {port} of main is {number} of every machine" for port, number in pairs)


def _size_without(places: Sequence[NodeState], nodes: Collection[str]) -> int | None:
    """Returns the Job's size without *nodes*, if these are its last; else None."""
    keep = [number for number, state in enumerate(places) if state.is_running and state.node not in nodes]
    size = max(keep, default=-1) + 1
    dropped = {state.node for state in places[size:]}
    return size if 0 < size < len(places) and dropped >= set(nodes) else None
