"""Jobs and pods of the API as clusters, plans and states. Nobody is asked here.

Whoever may write in the namespace can write labels and annotations: none of them is a name before it has been checked.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oci_cluster.backends import archive
from oci_cluster.backends.kubernetes.cluster import manifests
from oci_cluster.backends.kubernetes.settings import is_stored
from oci_cluster.contract.cluster import Cluster, Node, NodeState, Plan, State, limits_of
from oci_cluster.contract.files import untrusted_work_dir
from oci_cluster.contract.files.lives import is_interruptible
from oci_cluster.contract.names import exit_file
from oci_cluster.contract.parsers import parse_count, parse_name
from oci_cluster.errors import ExitCode, LostPlanError, SettingsError
from oci_cluster.system.text import printable

Object = dict[str, Any]

# No cluster is larger: an index becomes the name of a node, and a node a line of every list.
_MOST_NODES = 10_000
_WORKER = re.compile("WORKER_([0-9]{1,4})")
# Why a container waits that will not start by itself: somebody has to change something. Source: the kubelet's
# pkg/kubelet/images/types.go and kuberuntime, Kubernetes 1.36.
_FINAL = {"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"}
# Of a kubelet that is busy, or has not seen yet what has just been made; it tries again.
_PASSES = re.compile("failed to sync .* cache|timed out waiting for the condition")
_BACK_OFF = "ImagePullBackOff"
# How a container ends that is told to, and that is not asked any more.
_KILLED = {143, 137}
# What registries say of an image that is not there, or not for this user: more tries find it no more.
_NO_IMAGE = re.compile(r"not found|manifest unknown|unauthorized|denied|forbidden|does not exist", re.IGNORECASE)


# --- Jobs -------------------------------------------------------------------------------------------------------


def labels_of(item: Object) -> dict[str, str]:
    """Returns the labels of an object."""
    return dict((item.get("metadata") or {}).get("labels") or {})


def annotations_of(item: Object) -> dict[str, str]:
    """Returns the annotations of an object."""
    return dict((item.get("metadata") or {}).get("annotations") or {})


def name_of(item: Object) -> str:
    """Returns the name of an object."""
    return str((item.get("metadata") or {}).get("name", ""))


def uid_of(item: Object) -> str:
    """Returns the id of an object, which no other one ever has."""
    return str((item.get("metadata") or {}).get("uid", ""))


def launch_of(item: Object) -> str:
    """Returns the launch id that an object bears, which may be anybody's word."""
    return labels_of(item).get(manifests.LAUNCH, "")


def condition(item: Object, kind: str) -> Mapping[str, Any]:
    """Returns a condition of an object, empty where there is none."""
    found = (item.get("status") or {}).get("conditions") or []
    return next((one for one in found if one.get("type") == kind), {})


def owned_by(pods: Sequence[Object], job: Object) -> list[Object]:
    """Returns the *pods* that *job*'s controller has made: anybody may copy a label."""
    return [pod for pod in pods if uid_of(job) in {owner["uid"] for owner in owners_of(pod)}]


def owners_of(item: Object) -> list[Object]:
    """Returns the references of an object to those that own it."""
    return list((item.get("metadata") or {}).get("ownerReferences") or [])


def environment_of(job: Object) -> dict[str, str]:
    """Returns the variables of the nodes' container in *job*, without those of Secrets."""
    template = ((job.get("spec") or {}).get("template") or {}).get("spec") or {}
    pairs = _of_node(template.get("containers")).get("env") or []
    return {
        one["name"]: one["value"].replace("$$", "$")  # Kubernetes makes one `$` of two
        for one in pairs
        if "value" in one
    }


def _of_node(containers: Sequence[Object] | None) -> Object:
    return next((one for one in containers or [] if one.get("name") == "node"), {})


def size_of(job: Object) -> int:
    """Returns the number of nodes of *job*.

    Raises:
        ValueError: it does not say, or of more than there can be.
    """
    return parse_count(str((job.get("spec") or {}).get("completions", "")), minimum=1, maximum=_MOST_NODES)


def node_of(index: int, environment: Mapping[str, str]) -> Node:
    """Returns the node of an *index*: main, workers, parameter servers, workers that joined later.

    Raises:
        ValueError: *environment* says no numbers of nodes.
    """
    workers = parse_count(environment.get("WORKER_COUNT", "0"))
    servers = parse_count(environment.get("PS_COUNT", "0") or "0")
    if index == 0:
        return Node("MAIN", 0)
    return Node("PS" if workers < index <= workers + servers else "WORKER", index)


# --- Clusters -------------------------------------------------------------------------------------------------------


def cluster_of(job: Object, clusters_dir: Path) -> Cluster | None:
    """Returns *job*'s cluster, or None."""
    notes, launch_id, name = annotations_of(job), launch_of(job), name_of(job)
    told = {field: notes.get(annotation, "") for field, annotation in manifests.OF_CLUSTER.items()}
    cluster = archive.cluster_of_labels(told, launch_id, clusters_dir, backend="kubernetes", handle=name)
    # Its own name is made of both: nobody takes another's place by copying labels.
    return cluster if cluster and name == manifests.object_name(cluster.name, launch_id) else None


def plan_of(cluster: Cluster, job: Object, launch_key: str, root: Path, own: Collection[str] = ()) -> Plan:
    """Returns the plan of *cluster*, as its *job* and its Secret tell.

    Raises:
        LostPlanError: the Job is not one that a launch has made.
    """
    environment = environment_of(job)
    namespace = str((job.get("metadata") or {}).get("namespace", ""))
    try:
        limits = limits_of(environment, root / parse_name(cluster.framework))
        nodes = [node_of(index, environment) for index in range(size_of(job))]
    except (ValueError, SettingsError) as error:
        raise LostPlanError(f"the Job {cluster.handle} does not say what was launched: {printable(error)}") from error
    work_dir = environment.get("WORK_DIR", "")
    if is_stored(work_dir):
        untrusted_work_dir.checked(work_dir, own, f"the Job {cluster.handle}")
    return Plan(
        **cluster.head,
        nodes=tuple(nodes),
        environment={**environment, "LAUNCH_KEY": launch_key},
        settings={},
        limits=limits,
        work_dir=work_dir if is_stored(work_dir) else f"{manifests.PROTOCOL}://{namespace}/{cluster.handle}",
        placed={"object": cluster.handle, "namespace": namespace},
    )


# --- Nodes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JobView:
    """A Job's own word on its nodes."""

    size: int
    environment: Mapping[str, str]
    is_suspended: bool
    is_finished: bool
    why: str
    """The reason in which Kubernetes has ended it: DeadlineExceeded."""
    failed: frozenset[int]
    completed: frozenset[int]
    stop_code: int | None
    """The exit code of the end that somebody has asked for."""
    ended: frozenset[str]
    """Nodes that somebody has ended, or all; *unstarted* are those that had not started."""
    unstarted: frozenset[str] = frozenset()
    dropped: tuple[int, ...] = ()
    """Ended ones whose places the Job does not have any more."""
    waiting: tuple[State, str] = (State.QUEUED, "")
    """What nodes without pods are while it is suspended, and why: FAILED never began, CANCELED does not come back."""
    trouble: str = ""
    """Why its pods cannot be made; *refused*: why they never will be, and what to do."""
    refused: str = ""
    created: str = ""

    @classmethod
    def of(cls, job: Object) -> JobView:
        """Returns what *job* tells; one that tells nonsense has no nodes."""
        spec, status = job.get("spec") or {}, job.get("status") or {}
        environment = environment_of(job)
        try:
            size = size_of(job)
            node_of(size, environment)
            is_interruptible(environment)
        except ValueError:
            size, environment = 0, {}
        met = {str(one.get("type")): one for one in status.get("conditions") or [] if one.get("status") == "True"}
        final, told = met.get("Failed") or met.get("Complete") or {}, annotations_of(job)
        ended = told.get(manifests.ENDED, "").split()
        ranks = sorted({int(found[1]) for name in ended if (found := _WORKER.fullmatch(name))})
        return cls(
            size=size,
            environment=environment,
            is_suspended=spec.get("suspend") is True,
            is_finished=bool(final),
            why=printable(final.get("reason", "")),
            failed=indexes(status.get("failedIndexes")),
            completed=indexes(status.get("completedIndexes")),
            stop_code=_stop_code(told.get(manifests.STOP, "")),
            ended=frozenset(ended),
            unstarted=frozenset(told.get(manifests.UNSTARTED, "").split()),
            dropped=tuple(rank for rank in ranks if size <= rank),
            created=archive.second_of((job.get("metadata") or {}).get("creationTimestamp")),
        )

    def is_asked(self, node: str) -> bool:
        """Returns whether somebody has ended *node*, or all."""
        return self.stop_code is not None or bool({manifests.ALL, node} & self.ended)

    def is_final(self, index: int) -> bool:
        """Returns whether the node of *index* has failed, and no other pod will be made for it."""
        return index in self.failed or (self.is_finished and index not in self.completed)


def _stop_code(text: str) -> int | None:
    """Returns the exit code in the file `stop`. What is no code is a stop, too."""
    if not text:
        return None
    with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
        code = json.loads(text).get("exit_code")
        if type(code) is int and 0 < code <= 255:
            return code
    return int(ExitCode.STOPPED)


def indexes(text: str | None) -> frozenset[int]:
    """Returns the numbers of a list such as ``1,3-5``."""
    found: set[int] = set()
    for part in text.split(",") if text else []:
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def states_of(view: JobView, pods: Sequence[Object]) -> list[NodeState]:
    """Returns all nodes' states by index, then of those that ended with their places."""
    by_index, found = newest(pods), []
    for index in [*range(view.size), *view.dropped]:
        node = node_of(index, view.environment).name
        pod = by_index.get(index)
        has_pod = pod is not None and not _waited_in_vain(node, index, pod, view)
        state = _of_pod(node, index, pod, view) if pod is not None and has_pod else _without_pod(node, index, view)
        if view.stop_code is not None and state.exit_code == ExitCode.STOPPED:
            # A pod that is told to end knows no other code than 143.
            state = replace(state, exit_code=view.stop_code, state=State.of_exit_code(view.stop_code))
        found.append(replace(state, is_final=index < view.size and index in view.failed))
    return found


def _waited_in_vain(node: str, index: int, pod: Object, view: JobView) -> bool:
    """Returns whether *pod* never began, or no next one of a worker did."""
    if node in view.unstarted and view.is_asked(node) and _has_ended(pod) and _tells_no_code(termination_of(pod)):
        return True
    is_over = view.is_finished and {0} <= view.completed and index not in view.failed
    return index > 0 and is_disrupted(pod) and bool(termination_of(pod)) and (node in view.unstarted or is_over)


def newest(pods: Sequence[Object]) -> dict[int, Object]:
    """Returns the newest pod of each index; others are what Kubernetes has taken away."""
    found = {index_of(pod): pod for pod in sorted(pods, key=created_of)}
    return {index: found[index] for index in sorted(one for one in found if one is not None)}


def index_of(pod: Object) -> int | None:
    """Returns the index of *pod* in its Job."""
    text = annotations_of(pod).get(manifests.INDEX, "") or labels_of(pod).get(manifests.INDEX, "")
    return int(text) if text.isdecimal() and len(text) < 6 else None


def created_of(pod: Object) -> str:
    """Returns when *pod* was made."""
    return str((pod.get("metadata") or {}).get("creationTimestamp", ""))


# Why a Job has ended that says only what its pods have done; of a pod that is gone nobody knows more.
_OF_PODS = {"", "BackoffLimitExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"}
_GONE = "its pod was deleted"


def _without_pod(node: str, index: int, view: JobView) -> NodeState:
    if index in view.completed:
        return NodeState(node, State.SUCCEEDED, 0)
    if view.is_asked(node):  # no other pod will be made
        is_new = node in view.unstarted or (view.is_suspended and index not in view.failed)
        return NodeState(node, State.CANCELED, int(ExitCode.STOPPED), never_started=is_new)
    if view.is_finished and index and {0} <= view.completed and index not in view.failed:
        # Main leaves last: who is not counted by then waited for a machine.
        return NodeState(node, State.CANCELED, int(ExitCode.STOPPED), never_started=True)
    if view.is_finished and view.why == "DeadlineExceeded" and index not in view.failed:
        return NodeState(node, State.FAILED, int(ExitCode.TIMED_OUT), details="its time was over")
    if view.is_finished or index in view.failed:
        return _lost(node, _GONE if view.why in _OF_PODS else view.why)
    return _to_come(node, view)


def _to_come(node: str, view: JobView) -> NodeState:
    if view.is_suspended:
        word, why = view.waiting
        if word in {State.FAILED, State.CANCELED} and node == "MAIN":  # told of one node: enough to give all up
            never = NodeState(node, word, int(ExitCode.UNAVAILABLE), details=why, never_started=True)
            return never if word is State.FAILED else _lost(node, why)
        word, why = (State.QUEUED, "") if word in {State.FAILED, State.CANCELED} else (word, why)
        return NodeState(node, word, details=why, is_waiting=True, accepted=view.created)
    if view.refused and node == "MAIN":  # told of one node: that is enough to give all up
        return NodeState(node, State.FAILED, int(ExitCode.SETTINGS), details=view.refused, never_started=True)
    word = State.NEEDS_ATTENTION if view.trouble else State.ACCEPTED
    return NodeState(node, word, details=view.trouble, is_waiting=True, accepted=view.created)


def _lost(node: str, why: str) -> NodeState:
    return NodeState(node, State.FAILED, None, details=why, is_lost=True, cause=why)


def _container(pod: Object) -> Mapping[str, Any]:
    return _of_node((pod.get("status") or {}).get("containerStatuses")).get("state") or {}


def termination_of(pod: Object) -> Mapping[str, Any]:
    """Returns the end of the node's container: ``exitCode``, ``reason``, ``message``; {} while it runs."""
    found = _container(pod).get("terminated")
    return found if isinstance(found, dict) else {}


def started_of(pod: Object) -> str:
    """Returns when the node's container in *pod* has started; empty while it has not."""
    found = _container(pod)
    return str((found.get("running") or termination_of(pod)).get("startedAt") or "")


def _has_ended(pod: Object) -> bool:
    """Returns whether *pod* or its node's container has ended."""
    return bool(termination_of(pod)) or (pod.get("status") or {}).get("phase") in {"Failed", "Succeeded"}


def tells_end(pod: Object) -> bool:
    """Returns whether *pod* tells why its node ended: one that somebody deletes was killed, and tells nothing."""
    ended = termination_of(pod)
    return bool(ended) and (is_disrupted(pod) or ended.get("exitCode") not in _KILLED)


def _tells_no_code(ended: Mapping[str, Any]) -> bool:
    """Returns whether nobody knows how a container ended: its machine was lost, or it was never made."""
    code = ended.get("exitCode")
    return type(code) is not int or not 0 <= code <= 255 or ended.get("reason") == "ContainerStatusUnknown"


def is_disrupted(pod: Object) -> bool:
    """Returns whether Kubernetes has taken *pod* away: then the Job controller makes another one."""
    return condition(pod, "DisruptionTarget").get("status") == "True"


def is_running(pod: Object) -> bool:
    """Returns whether the node's container runs."""
    return "running" in _container(pod)


def _of_pod(node: str, index: int, pod: Object, view: JobView) -> NodeState:
    status, meta = pod.get("status") or {}, pod.get("metadata") or {}
    there = NodeState(
        node,
        State.IN_PROGRESS,
        id=uid_of(pod),
        address=printable(status.get("podIP") or ""),
        accepted=archive.second_of(meta.get("creationTimestamp")),
    )
    ended = termination_of(pod)
    if _has_ended(pod):
        is_asked = view.is_asked(node)
        is_over = view.is_finished or is_asked or index in view.failed | view.completed
        if not is_over and (taken := _taken(pod, there, view)):
            return taken
        return _ended(ended, pod, replace(there, holds=_beside(pod)), is_asked=is_asked)
    is_going = bool(meta.get("deletionTimestamp"))
    if is_running(pod) and is_going and meta.get("deletionGracePeriodSeconds") == 0:
        # Removed by force, and still there as its Job has not counted it: nobody will ever tell how it ended.
        return replace(there, state=State.FAILED, is_lost=True, details="its machine did not answer")
    if is_going:  # one that has not begun will not: its end is seen at the next look
        return replace(there, state=State.CANCELING)
    return there if is_running(pod) else _pending(pod, there)


def _taken(pod: Object, there: NodeState, view: JobView) -> NodeState | None:
    """Returns the state of a node whose *pod* was taken away, if it was."""
    if view.is_suspended and not is_interruptible(view.environment):
        why = "its Job was suspended, as by a preemption, and it runs once (INTERRUPTIBLE=0)"
        return replace(there, state=State.FAILED, is_lost=True, details=why, cause=why)
    # What Kubernetes takes away comes back; what somebody has deleted is told by the Job a moment later.
    if is_disrupted(pod) or view.is_suspended or (pod.get("metadata") or {}).get("deletionTimestamp"):
        why = printable(condition(pod, "DisruptionTarget").get("message") or "")
        return replace(there, state=State.PREEMPTED, details=why, is_waiting=True)
    return None


def _beside(pod: Object) -> str:
    """Returns the containers, such as a mesh's sidecar, that hold the machine."""
    told = (pod.get("status") or {}).get("containerStatuses") or []
    others = [one for one in told if one.get("name") != "node" and "running" in (one.get("state") or {})]
    names = ", ".join(printable(one.get("name") or "?") for one in others)
    is_going = bool((pod.get("metadata") or {}).get("deletionTimestamp"))
    return f"container {names}" if names and not is_going else ""


def _ended(ended: Mapping[str, Any], pod: Object, there: NodeState, *, is_asked: bool) -> NodeState:
    status = pod.get("status") or {}
    if _tells_no_code(ended):
        why = printable(status.get("message") or status.get("reason") or ended.get("reason") or "its machine was lost")
        return replace(there, state=State.FAILED, exit_code=None, is_lost=True, details=why)
    code, cause = int(ended["exitCode"]), ""
    if is_disrupted(pod) and not is_asked and code in _KILLED:  # and with INTERRUPTIBLE=0 nothing takes its place
        cause = printable(condition(pod, "DisruptionTarget").get("message") or "Kubernetes took it away")
        return replace(there, state=State.FAILED, is_lost=True, details=cause, cause=cause)
    if ended.get("reason") == "OOMKilled":
        limits = (_of_node((pod.get("spec") or {}).get("containers")).get("resources") or {}).get("limits") or {}
        had = printable(limits.get("memory") or "")
        cause = f"its memory ran out; set MEMORY higher{had and f' than {had}'}"
    elif code and status.get("reason"):  # Evicted: the machine's disk or memory ran low
        cause = printable(f"{status['reason']}: {status.get('message', '')}")
    elif ended.get("reason") in {"ContainerCannotRun", "StartError"}:
        text = printable(ended.get("message") or "")
        return replace(there, state=State.FAILED, exit_code=int(ExitCode.UNAVAILABLE), never_started=True, details=text)
    words = str(ended.get("message") or "").splitlines()
    has_reported = any(line.startswith(f"{exit_file(there.node)} ") for line in words)
    return replace(
        there, state=State.of_exit_code(code), exit_code=code, cause=cause, details=cause, has_reported=has_reported
    )


def _pending(pod: Object, there: NodeState) -> NodeState:
    waiting = _container(pod).get("waiting") or {}
    reason, message = str(waiting.get("reason") or ""), printable(waiting.get("message") or "")
    scheduled = condition(pod, "PodScheduled")
    is_final = reason in _FINAL and not _PASSES.search(message)
    if is_final or (reason == _BACK_OFF and _NO_IMAGE.search(message)):
        # A Secret or ConfigMap that is just being made is there in a moment: only a launch that is whole fails by it.
        details = f"{reason}: {message}"
        code = int(ExitCode.UNAVAILABLE)
        return replace(there, state=State.FAILED, exit_code=code, never_started=True, details=details)
    if reason in {"ErrImagePull", _BACK_OFF}:
        # The same words for the failure and for the pause after it, so that it is told once.
        why = f"its image cannot be pulled: {message.rpartition('ErrImagePull: ')[2]}"
        return replace(there, state=State.NEEDS_ATTENTION, details=why, is_waiting=True)
    if scheduled.get("status") == "False":
        told = printable(scheduled.get("message") or scheduled.get("reason") or "")
        return replace(there, state=State.ACCEPTED, details=told, is_waiting=True)
    details = reason if reason not in {"", "ContainerCreating", "PodInitializing"} else ""
    return replace(there, state=State.ACCEPTED, details=details, is_waiting=True)


# --- Pods that the API refuses ---------------------------------------------------------------------------------------


# Of the words in which the admission of Kubernetes refuses a pod: ResourceQuota, LimitRange, Pod Security,
# ServiceAccount, webhooks. "exceeded quota" is none of them: others give back what they use.
_WAYS_OUT = (
    (r"must specify limits\.cpu", "set CPU_LIMIT"),
    (r"must specify ", "set what it names, in POD_PATCH"),
    (r"maximum \S+ usage per ", "lower CPUS, CPU_LIMIT or MEMORY"),
    (r"minimum \S+ usage per |limit to request ratio per ", "set CPUS, CPU_LIMIT or MEMORY as it says"),
    (r"violates PodSecurity", "leave out what it names, in POD_PATCH, VOLUMES or HOST_NETWORK"),
    (r"service ?account .*not found", "set SERVICE_ACCOUNT to one that there is"),
    (r"admission webhook .* denied|ValidatingAdmissionPolicy", "change what it names, or ask who has set that rule"),
)


def way_out(message: str) -> str:
    """Returns the next step where pods were refused with *message*, unless waiting helps."""
    return next((way for pattern, way in _WAYS_OUT if re.search(pattern, message)), "")
