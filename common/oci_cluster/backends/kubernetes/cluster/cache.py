"""Cache of Jobs and pods, and of the cluster dir that they tell."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from oci_cluster.backends.kubernetes.api.service import ANSWER_S, KubernetesError, Service
from oci_cluster.backends.kubernetes.cluster import kueue, manifests, states
from oci_cluster.backends.kubernetes.cluster.manifests import LAUNCH, MAX_PREEMPTIONS, PROTOCOL, QUEUE
from oci_cluster.contract.cluster import Cluster, NodeState, State
from oci_cluster.contract.files.cluster_dir import MAX_BYTES, OPENERS, SmallFiles
from oci_cluster.contract.names import LIFE, READY, SCALE_REQUEST, STOP, config_file, exit_file, is_node
from oci_cluster.system.text import printable, seconds_since

Object = dict[str, Any]

# Pods of a cluster of more nodes than these are listed only where the Job says that something has changed, or now and
# then: a list of a thousand is 8 MB. What a pod waits for does not show in its Job.
_FEW = 50
_LIST_AGAIN_S = 15.0
# How old what is told may be, from when all of it came: several files are asked for in one look.
_FRESH_S = 1.0
# How long what a verb has found at its beginning is what there is, unless it has changed something itself: it looks at
# all clusters, chooses one, and tells of that. On a busy machine that takes two seconds.
_NOTED_S = 3.0
# How much of the beginning of main's log is looked through by who does not copy it: what tells that it is ready comes
# before the entry point prints, or soon after.
_HEAD_BYTES = 1 << 20
# When a Job that has no pods is asked why.
_PATIENCE_S = 3.0
# How often its pods must have been refused for what waiting does not change: an account may come a second later.
_TRIES = 3
# How often it is asked why a Job waits in its queue: Kueue looks at it anew when something changes there.
_QUEUE_S = 3.0
# Before places in a queue are asked for again where Kueue's visibility API, a server of its own, did not tell.
_NO_PLACES_S = 30.0
_FORBIDDEN = 403


@dataclass
class _Known:
    """A Job as it was last seen, and when."""

    job: Object = field(default_factory=dict)
    pods: list[Object] | None = None
    last: dict[int, Object] = field(default_factory=dict)
    """The newest pod of each index that was seen, which may be gone."""
    mark: str = ""
    """Of the Job when its pods were listed last."""
    listed_at: float = -inf
    looked_at: float = -inf
    empty_since: float = inf
    lines: dict[str, bytes] = field(default_factory=dict)
    """Files that lines of main's log have told."""
    read_at: float = -inf
    is_copied: bool = False
    """Whether somebody copies main's log, and so notes its lines."""
    files: dict[str, bytes] | None = None
    """All that was told at the last look."""


class Seen:
    """Looks at the Jobs and pods of one namespace."""

    def __init__(self, service: Service, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._service = service
        self._clock = clock
        self._known: defaultdict[str, _Known] = defaultdict(_Known)
        # The Jobs of the last look at all, when that was, and what had been changed before.
        self._noted: set[str] = set()
        self._noted_at, self._changes = -inf, 0
        # Why Jobs wait in their queue, by their ids, and when that was asked.
        self._queued: dict[str, tuple[tuple[State, str], float]] = {}
        # When places in queues may be asked for.
        self._places_at = 0.0

    # --- Jobs and pods -------------------------------------------------------------------------------------

    def job(self, name: str) -> Object | None:
        """Returns the Job called *name* as it is; None without Job or name."""
        found, known = self._service.find(self._service.path("jobs", name)) if name else None, self._known[name]
        known.job = found or {}
        known.pods = known.pods if found else None
        return found

    def note_all(self, jobs: Sequence[Object]) -> None:
        """Lists the pods of all *jobs*, and why these wait in their queues."""
        service = self._service
        pods = service.items(service.path("pods"), labelSelector=LAUNCH) if jobs else []
        by_launch: dict[str, list[Object]] = {}
        for pod in pods:
            by_launch.setdefault(states.launch_of(pod), []).append(pod)
        for job in jobs:
            known = self._known[states.name_of(job)]
            known.job, known.looked_at, known.files = job, self._clock(), None
            known.pods = states.owned_by(by_launch.get(states.launch_of(job), []), job)
        queued = [job for job in jobs if states.labels_of(job).get(QUEUE) and states.JobView.of(job).is_suspended]
        workloads: list[Object] = []
        if queued:
            with contextlib.suppress(KubernetesError):  # who may not see them is told less
                workloads = service.items(service.path("workloads"))
        by_job = {states.labels_of(one).get(kueue.JOB_UID, ""): one for one in workloads}
        for job in queued:
            found = _queue_state(job, by_job.get(states.uid_of(job)), [])
            self._queued[states.uid_of(job)] = found, self._clock()
        self._noted = {states.name_of(job) for job in jobs}
        self._noted_at, self._changes = self._clock(), service.changes

    def noted(self) -> set[str]:
        """Returns the Jobs of the last :meth:`note_all`; none once that is some time ago."""
        is_new = self._clock() - self._noted_at < _NOTED_S and self._changes == self._service.changes
        return self._noted if is_new else set()

    def look(self, cluster: Cluster) -> list[NodeState] | None:
        """Returns the states of the nodes of *cluster*; None where its Job is gone."""
        if (job := self._list(cluster.handle)) is None:
            return None
        view, known = self._explained(job, states.JobView.of(job)), self._known[cluster.handle]
        known.last |= states.newest(known.pods or [])
        # How a node ended stays known when its pod is removed and no other takes its place.
        kept = [pod for index, pod in known.last.items() if view.is_final(index) and states.tells_end(pod)]
        return states.states_of(view, [*kept, *(known.pods or [])])

    def noted_states(self, cluster: Cluster) -> list[NodeState]:
        """Returns the states of the nodes of *cluster*, as :meth:`note_all` has seen them."""
        known = self._known[cluster.handle]
        waiting, _ = self._queued.get(states.uid_of(known.job), ((State.QUEUED, ""), 0.0))
        return states.states_of(replace(states.JobView.of(known.job), waiting=waiting), known.pods or [])

    def _list(self, name: str) -> Object | None:
        known, now = self._known[name], self._clock()
        if name in self.noted():
            return known.job
        if (job := self.job(name)) is None:
            return None
        mark = json.dumps([job.get("status"), (job.get("spec") or {}).get("completions"), states.annotations_of(job)])
        pods = known.pods or []
        is_settled = all(states.is_running(pod) or states.termination_of(pod) for pod in pods)
        if mark != known.mark or now - known.listed_at >= _LIST_AGAIN_S or not is_settled or len(pods) <= _FEW:
            self._list_pods(known)
            known.mark, known.listed_at = mark, now
        known.looked_at, known.files = self._clock(), None
        return job

    def _list_pods(self, known: _Known) -> None:
        chosen = f"{LAUNCH}={states.launch_of(known.job)}"
        pods = self._service.items(self._service.path("pods"), labelSelector=chosen)
        known.pods = states.owned_by(pods, known.job)

    def _explained(self, job: Object, view: states.JobView) -> states.JobView:
        """Adds the reason why a Job has no pods: its quota, or a refusal."""
        known = self._known[states.name_of(job)]
        if known.pods or view.is_finished or not view.size:
            known.empty_since = inf
            return view
        if view.is_suspended:
            return replace(view, waiting=self._why_queued(job))
        known.empty_since = min(known.empty_since, self._clock())
        if self._clock() - known.empty_since < _PATIENCE_S:
            return view
        trouble, count = self._refusal(states.name_of(job))
        way = states.way_out(trouble) if count >= _TRIES else ""
        return replace(view, trouble=trouble, refused=f"{trouble}; {way}" if way else "")

    def _refusal(self, job: str) -> tuple[str, int]:
        """Returns the last event of *job*'s refused pods, and their number."""
        service = self._service
        with contextlib.suppress(KubernetesError):  # who may not read events is told less
            chosen = f"involvedObject.kind=Job,involvedObject.name={job}"
            events = service.items(service.path("events"), fieldSelector=chosen)
            failed = [event for event in events if event.get("reason") == "FailedCreate"]
            if failed:
                last = max(failed, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
                return printable(last.get("message") or ""), sum(int(event.get("count") or 1) for event in failed)
        return "", 0

    def _why_queued(self, job: Object) -> tuple[State, str]:
        """Returns state and reason of a suspended *job*.

        FAILED never starts, CANCELED does not come back.
        """
        name, uid = states.labels_of(job).get(QUEUE, ""), states.uid_of(job)
        if not name:
            return State.ACCEPTED, "its Job is suspended"
        known, asked_at = self._queued.get(uid, ((State.QUEUED, ""), -inf))
        if self._clock() - asked_at < _QUEUE_S:
            return known
        try:
            found = self._service.items(self._service.path("workloads"), labelSelector=f"{kueue.JOB_UID}={uid}")
        except KubernetesError as error:
            if error.code not in {_FORBIDDEN, 404}:
                raise
            told = State.QUEUED, f"in {name}; you may not see why (kueue-batch-user-role shows it)"
        else:
            told = _queue_state(job, next(iter(found), None), self._pending(name))
        self._queued[uid] = told, self._clock()
        return told

    def _pending(self, queue_name: str) -> list[Object]:
        """Returns what waits in a queue; pauses after a failure."""
        if self._clock() < self._places_at:
            return []
        try:
            return kueue.pending_workloads(self._service, self._service.namespace, queue_name)
        except KubernetesError:  # then it is told without its place
            self._places_at = self._clock() + _NO_PLACES_S
            return []

    # --- What nodes tell -----------------------------------------------------------------------------------

    def note_line(self, job: str, name: str, body: bytes) -> None:
        """Notes a file that a line of main's log has told."""
        self._known[job].lines[name] = body
        self._known[job].files = None

    def is_copied(self, job: str) -> None:
        """Notes that somebody copies main's log, and so notes its lines."""
        self._known[job].is_copied = True

    def told(self, job: str) -> dict[str, bytes]:
        """Returns the files that are told of the Job called *job*."""
        known = self._known[job]
        if job not in self.noted() and self._clock() - known.looked_at >= _FRESH_S:
            if self.job(job) is not None:
                self._list_pods(known)
            known.looked_at, known.files = self._clock(), None
        if not known.job:
            return {}
        if not known.is_copied and self._clock() - known.read_at >= _FRESH_S:
            self._read_lines(job)
            # Both, and when they came: what takes longer than it is fresh would be asked for again for each file.
            known.read_at = known.looked_at = self._clock()
        if known.files is None:  # of a thousand nodes, one look is asked for a thousand files
            known.files = files_of(known.job, known.pods or [], known.lines)
        return known.files

    def _read_lines(self, job: str) -> None:
        """Looks through the beginning of main's log for what it tells."""
        service = self._service
        mains = [pod for pod in self._known[job].pods or [] if states.index_of(pod) == 0]
        for pod in mains[-1:]:
            path = service.path("pods", states.name_of(pod), sub="log")
            try:
                with service.stream(path, read_s=ANSWER_S, container="node", limitBytes=_HEAD_BYTES) as answer:
                    head = answer.read()
            except KubernetesError as error:
                # Who may not read logs would wait for ever. Else it has not started, or is gone.
                if error.code == _FORBIDDEN:
                    raise
                continue
            for line in head.splitlines():
                if found := told_of(line):
                    self.note_line(job, *found)

    def newest(self, cluster: Cluster) -> Mapping[str, Object]:
        """Returns the newest pod of each node, main first, as they were last seen."""
        if cluster.handle and self._known[cluster.handle].pods is None:
            self.look(cluster)
        known = self._known[cluster.handle]
        environment = states.JobView.of(known.job).environment
        return {states.node_of(index, environment).name: pod for index, pod in states.newest(known.pods or []).items()}

    def unstarted(self, job: str) -> list[str]:
        """Returns the nodes of *job* that had not started when they were last seen."""
        known = self._known[job]
        nodes = states.states_of(states.JobView.of(known.job), known.pods or [])
        return [state.node for state in nodes if state.is_waiting]


def _queue_state(job: Object, workload: Object | None, pending: Sequence[Object]) -> tuple[State, str]:
    """Returns state and reason of a queued *job*, out of *workload* and *pending*."""
    if workload is None and seconds_since(states.JobView.of(job).created) < kueue.UNSEEN_S:
        return State.QUEUED, ""
    if why := kueue.is_impossible(workload):
        return State.FAILED, why
    line = kueue.waiting_line(job, workload, pending, time.time())
    count, _, by_whom = kueue.preemptions(workload)
    if not count:
        return State.QUEUED, line
    most = states.annotations_of(job).get(MAX_PREEMPTIONS, "")
    told = f"preempted {count} time{'s' if count > 1 else ''}" + (f", the last by {by_whom}" if by_whom else "")
    if most.isdecimal() and len(most) < 10 and count > int(most):  # anybody may have written it
        once = " (INTERRUPTIBLE=0 implies that)" if most == "0" else ""
        return State.CANCELED, f"{told}; MAX_PREEMPTIONS is {most}{once}"
    return State.PREEMPTED, line if kueue.was_just_preempted(workload) else f"{told}; {line}"


# --- The cluster dir, made of what pods tell --------------------------------------------------------------------------

# Nodes tell by the termination messages of their pods, and by lines of main's log, signed as files are. A launcher
# tells by an annotation of the Job.

# A line of a pod's log that is a file. Who prints one that is not signed tells nothing.
_TOLD = re.compile(rb"(?:^|\s)told (?P<name>[A-Za-z0-9_.-]{1,100}) (?P<body>\{.*\})\s*$")
_TOLD_NAMES = {READY, LIFE, STOP, SCALE_REQUEST}
# Whom a thread asks: a program may have clusters of several Kubernetes, each followed by a thread.
_here = threading.local()


def told_of(line: bytes) -> tuple[str, bytes] | None:
    """Returns name and content of the file in a *line* of main's log."""
    if b" told " not in line and not line.startswith(b"told "):
        return None
    found = _TOLD.search(line)
    if found is None or (name := found["name"].decode()) not in _TOLD_NAMES or len(found["body"]) > MAX_BYTES:
        return None
    return name, found["body"]


def last_words(message: str, node: str) -> dict[str, bytes]:
    """Returns the files in a pod's termination *message*: its exit file, on main `stop`."""
    known = {exit_file(node), *([STOP] if node == "MAIN" else [])}
    found = {}
    for line in message.splitlines():
        name, _, body = line.partition(" ")
        if name in known:
            found[name] = body.encode()
    return found


def files_of(job: Object, pods: Sequence[Object], lines: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns all files that pods, main's log and launchers tell of a cluster."""
    view = states.JobView.of(job)
    found = dict(lines)
    for pod in sorted(pods, key=states.created_of):
        index = states.index_of(pod)
        if index is None or index >= max(view.size, 1):
            continue
        node = states.node_of(index, view.environment).name
        if states.is_running(pod):
            # That it has come. Nothing of it can be read.
            found[config_file(node)] = b""
        message = states.termination_of(pod).get("message")
        found.update(last_words(str(message or ""), node))
    if stop := states.annotations_of(job).get(manifests.STOP, ""):
        found[STOP] = stop.encode()
    return found


# Returns the files that the nodes of a Job tell, by its name; ends them, and `stop` has that content from then on.
Read = Callable[[str], dict[str, bytes]]
Stop = Callable[[str, bytes], None]


def register(read: Read, stop: Stop) -> None:
    """Have ``pods://<namespace>/<job>`` URLs of this thread opened by these two."""
    OPENERS[PROTOCOL] = lambda: PodFiles(*_here.calls)
    _here.calls = read, stop


class PodFiles(SmallFiles):
    """The files of clusters whose nodes tell by their pods."""

    def __init__(self, read: Read, stop: Stop) -> None:
        self._read, self._stop = read, stop

    def files_of(self, folder: str) -> dict[str, bytes]:
        """Return the files of the cluster dir ``<namespace>/<job>/<cluster id>``."""
        _namespace, job, _cluster_id, *deeper = folder.split("/")
        if deeper:
            raise FileNotFoundError(folder)
        return self._read(job)

    def cat_file(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Return what the file *path* holds, unless it only shows that a node has come."""
        found = super().cat_file(path, start, end)
        if not found and is_node(path.rpartition("/")[2].removesuffix("_config.json")):
            raise FileNotFoundError(path)
        return found

    def pipe_file(self, path: str, value: bytes) -> None:
        """Ask the nodes to stop; they read no other file of a launcher."""
        _namespace, job, _cluster_id, name = path.split("/", 3)
        if name != STOP:
            raise PermissionError(f"{name} cannot be written: nodes read nothing but {STOP} of a launcher")
        self._stop(job, value)
