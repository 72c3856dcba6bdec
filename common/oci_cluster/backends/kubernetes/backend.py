"""The backend ``kubernetes``: an Indexed Job for each cluster, a pod for each node.

What there is, is what Kubernetes says: Jobs are found again by their labels, from any machine, whatever became of the
launcher. All else that a cluster has is owned by its Job, and goes with it.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oci_cluster.backends import archive
from oci_cluster.backends.base import Backend, IsStopped, LogCopy, PortForward, check_of_image, sleeper
from oci_cluster.backends.kubernetes.cluster import manifests, states
from oci_cluster.backends.kubernetes.settings import is_stored, settings_of
from oci_cluster.backends.stored_logs import SayOnce, StoredLogs
from oci_cluster.contract.cluster import FILE, Cluster, Node, NodeState, Plan, any_running, clusters_dir
from oci_cluster.contract.files.untrusted_work_dir import own_work_dirs
from oci_cluster.errors import ClusterError, LostPlanError, SettingsError
from oci_cluster.images.records import note_of
from oci_cluster.system.console import Say, program, say_to_stderr
from oci_cluster.system.files import not_writable, write_whole
from oci_cluster.system.text import as_words

if TYPE_CHECKING:
    from oci_cluster.backends.kubernetes.api.service import Service
    from oci_cluster.backends.kubernetes.cluster.cache import Seen
    from oci_cluster.backends.kubernetes.cluster.jobs import Jobs

# Modules that need packages are imported where they are used: what can be refused, is before anything is installed.
# ruff: noqa: PLC0415


def open_backend(
    root: Path, given: Mapping[str, str], is_stopped: IsStopped, *, is_looking: bool = False
) -> KubernetesBackend:
    """Returns the backend for the checkout *root*, in the Kubernetes that *given* names."""
    sleep = sleeper(is_stopped)

    def open_service(settings: Mapping[str, str]) -> Service:
        from oci_cluster.backends.kubernetes.api.kubeconfig import open_access
        from oci_cluster.backends.kubernetes.api.service import LOOK_PATIENCE_S, PATIENCE_S, Service

        patience_s, say = (LOOK_PATIENCE_S if is_looking else PATIENCE_S), say_to_stderr(program())
        access = open_access({**given, **settings})
        return Service(access, is_stopped=is_stopped, sleep=sleep, patience_s=patience_s, say=say)

    return KubernetesBackend(root, given, open_service, is_stopped=is_stopped, sleep=sleep)


class KubernetesBackend(Backend):
    """The clusters of one namespace."""

    name = "kubernetes"
    # The design's thousand nodes, of which one is main.
    max_workers = 999
    # A request or two each; the end is seen this much later.
    poll_s = 1.0
    why_gone = (
        "its Job is gone: somebody has removed it, or Kubernetes has, KEEP_ENDED after its end (seven days, unless it"
        " is set); nobody has looked at it here since it ended"
    )
    # As long as main waits for the others, and a node uploads what its script has left.
    end_margin_s = 30.0
    # Until a kubelet has ended a container, and the Job controller has seen it.
    end_timeout_s = 60.0
    is_this_machine = is_free_to_ask = False
    node_fields: Mapping[str, str] = {
        **{name: name for name in ("node", "state", "exit_code", "address")},
        "uid": "id",
        **{name: name for name in ("details", "never_started")},
    }
    ends_workers = "last"
    handle_name = "job"

    def __init__(
        self,
        root: Path,
        given: Mapping[str, str],
        open_service: Callable[[Mapping[str, str]], Service],
        *,
        is_stopped: IsStopped = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._root = root
        self._given = dict(given)
        self._open_service = open_service
        self._is_stopped = is_stopped
        self._clock = clock
        self._sleep = sleep
        # The settings of the plan that was checked last: they are read once.
        self._read: tuple[Plan | None, Mapping[str, Any]] = None, {}
        # What was placed and not started yet, by launch id.
        self._launches: dict[str, manifests.Launch] = {}
        self._plans: dict[str, Plan] = {}
        self._queued: set[str] = set()
        self._say_once = SayOnce()

    @cached_property
    def service(self) -> Service:
        """The API, asked for when it is needed first."""
        return self._open_service(self._given)

    @cached_property
    def _seen(self) -> Seen:
        from oci_cluster.backends.kubernetes.cluster.cache import Seen, register

        seen = Seen(self.service, clock=self._clock)
        register(seen.told, self.ask_to_stop)
        return seen

    @cached_property
    def _jobs(self) -> Jobs:
        from oci_cluster.backends.kubernetes.cluster.jobs import Jobs

        return Jobs(self.service, self._seen, is_stopped=self._is_stopped, clock=self._clock, sleep=self._sleep)

    # --- Launch --------------------------------------------------------------------------------------------

    def check(self, plan: Plan | None = None) -> None:
        """Raises SettingsError with all that is missing or wrong in *plan*, or UsageError."""
        if plan is not None:
            self._read = plan, settings_of(plan, self._root)
            check_of_image(plan, "pods")

    def place(self, plan: Plan, say: Say = lambda _: None) -> Plan:
        """Returns *plan* with all that its nodes are given; nobody is asked."""
        if self._read[0] is not plan:
            self.check(plan)
        # A flag or --env may have named another Kubernetes than the environment.
        names = ("KUBECONFIG", "KUBE_CONTEXT", "NAMESPACE")
        self._given |= {name: plan.settings[name] for name in names if plan.settings.get(name)}
        try:
            namespace = self.service.namespace
        except SettingsError:  # a dry run needs no kubeconfig
            namespace = self._given.get("NAMESPACE") or "default"
        launch = manifests.resolve(plan, self._read[1], self._root, namespace, say)
        self._launches[plan.launch_id] = launch
        return launch.plan

    def preview(self, plan: Plan, *, as_json: bool) -> str:
        """Returns the objects of the launch, as ``kubectl apply -f -`` takes them."""
        found = self._launches[plan.launch_id].objects
        if as_json:
            return json.dumps({"objects": found}, indent=2)
        import yaml

        head = (
            "# What a launch makes: the Job is first, suspended until the rest is there, and owns it; here last\n"
            "# Nothing has been made. To make it: kubectl apply -f FILE; to remove all of it: kubectl delete -f FILE\n"
        )
        if note := note_of(plan.settings["IMAGE"]):
            head += f"# {note}\n"
        return head + yaml.safe_dump_all(found, sort_keys=False, width=1_000_000).rstrip("\n")

    def prepare(self, plan: Plan, say: Say) -> Plan:
        """Checks that a person agrees to the context, and that named objects exist."""
        from oci_cluster.backends.kubernetes.api.kubeconfig import confirm
        from oci_cluster.backends.kubernetes.cluster.preflight import check_place

        confirm(self.service.access, self._given, say)
        check_place(self.service, self._launches[plan.launch_id].settings, len(plan.nodes))
        return plan

    def start(self, plan: Plan, nodes: Sequence[Node], say: Say) -> Cluster:
        """Starts *nodes*: main's with a new Job, later ones by a larger Job."""
        cluster = replace(Cluster.of(plan, clusters_dir(self._root)), handle=plan.placed["object"])
        if any(node.role == "MAIN" for node in nodes):
            self._start_first(plan, cluster, say)
        else:
            self._jobs.grow(cluster, nodes)
        return cluster

    def _start_first(self, plan: Plan, cluster: Cluster, say: Say) -> None:
        launch = self._launches.pop(plan.launch_id)
        archive.write_plan(cluster, plan)
        launch.send_code(say)
        made = self._jobs.create(cluster.handle, launch.objects_for(plan))
        if states.labels_of(made).get(manifests.QUEUE):  # or that of its namespace, where it names none
            self._queued.add(cluster.handle)
        for warning in self.service.warnings:
            say(f"Kubernetes warns: {warning}")
        self._plans[cluster.handle] = plan

    def files(self, cluster: Cluster, plan: Plan) -> str:
        """Returns the cluster dir where the launcher reaches it, else this checkout's directory."""
        return plan.url if is_stored(plan.work_dir) and not _is_told(plan) else str(cluster.directory)

    def started(self, cluster: Cluster, plan: Plan) -> str:
        """Returns the Job's name, its limit on time, and its ports."""
        from oci_cluster.backends.kubernetes.cluster.jobs import node_ports

        is_queued = cluster.handle in self._queued
        queued = ", without its time in the queue and lives that were interrupted" if is_queued else ""
        bound = f"ends after {plan.environment.get('TTL', '')} at the latest (TTL{queued})"
        end = bound if plan.limits.ttl_s else "no TTL: nothing else bounds its cost"
        ports = node_ports(self.service, cluster.handle) if plan.settings.get("EXPOSE_SERVICE") else ""
        return f"Job {cluster.handle} in namespace {self.service.namespace}; {end}{ports and f'; {ports}'}"

    def connect(self, cluster: Cluster, plan: Plan, words: str) -> str:  # noqa: ARG002 - it says nothing of that
        """Returns the command that runs a program in main's pod."""
        access, main = self.service.access, self._seen.newest(cluster).get("MAIN", {})
        context = f"--context {shlex.quote(access.context)} " if access.context else ""
        pod = states.name_of(main) or f"{cluster.handle}-0"
        return f"kubectl {context}--namespace {access.namespace} exec -it {pod} -- env {as_words(words)} python"

    # --- State ---------------------------------------------------------------------------------------------

    def find(self, name: str = "") -> list[Cluster]:
        """Returns the clusters of the namespace, and ended ones that are kept here."""
        service, place = self.service, clusters_dir(self._root)
        jobs = service.items(service.path("jobs"), labelSelector=manifests.LAUNCH)
        jobs.sort(key=states.created_of)  # by the API's clock: whoever copies a cluster's labels comes later
        known = [(cluster, job) for job in jobs if (cluster := states.cluster_of(job, place))]
        self._seen.note_all([job for _, job in known])
        return archive.with_kept((cluster for cluster, _ in known), self._root, self.name, name)

    def load(self, cluster: Cluster) -> Plan:
        """Returns the plan as Job and Secret tell it, or as it was kept."""
        from oci_cluster.backends.kubernetes.cluster.cache import register

        register(self._seen.told, self.ask_to_stop)  # cluster dirs of this thread are opened through this backend
        if cluster.handle and cluster.handle not in self._plans and (job := self._seen.job(cluster.handle)):
            secret = self.service.find(self.service.path("secrets", cluster.handle)) or {}
            key = manifests.launch_key_of(secret)
            with contextlib.suppress(LostPlanError):  # a launch of this checkout was killed before it made its Secret
                key = key or Plan.load(cluster.directory, self._root).launch_key
            own = own_work_dirs(self._given, cluster, self._root)
            self._plans[cluster.handle] = states.plan_of(cluster, job, key, self._root, own)
        if cluster.handle in self._plans:
            return self._plans[cluster.handle]
        plan = Plan.load(cluster.directory, self._root)
        # What was told is in its directory, as files.
        return replace(plan, work_dir=f"file://{cluster.directory.parent}") if _is_told(plan) else plan

    def states(self, clusters: Sequence[Cluster]) -> dict[str, list[NodeState]]:
        """Returns the nodes' states; what :meth:`find` has just seen is not asked again."""
        if len(clusters) == 1:
            (cluster,) = clusters
            found = self._seen.look(cluster)
            return {cluster.launch_id: archive.read_states(cluster) if found is None else found}
        there = self._seen.noted()
        if clusters and not there:
            self._seen.note_all(self.service.items(self.service.path("jobs"), labelSelector=manifests.LAUNCH))
            there = self._seen.noted()
        return {
            cluster.launch_id: self._seen.noted_states(cluster)
            if cluster.handle in there
            else archive.read_states(cluster)
            for cluster in clusters
        }

    def logs(self, cluster: Cluster, directory: Path, *, follow: bool) -> LogCopy:
        """Returns a copier of the nodes' logs, from cluster dir or pods."""
        plan = self.load(cluster)
        if not _is_told(plan) and (stored := StoredLogs.of(plan, directory, self._say_once)) is not None:
            return stored
        from oci_cluster.backends.kubernetes.cluster.logs import PodLogs

        seen, job = self._seen, cluster.handle
        if follow:
            seen.is_copied(job)
        pods, on_report = partial(seen.newest, cluster), partial(seen.note_line, job)
        return PodLogs(self.service, pods, cluster, directory, follow=follow, on_report=on_report)

    def port_forward(self, cluster: Cluster, plan: Plan, node: str, port: int, say: Say) -> PortForward:  # noqa: ARG002 - made by each dial
        """Returns the way to *port* of *node*, which must listen on its loopback."""
        from oci_cluster.backends.kubernetes.api.port_forward import PodPortForward

        return PodPortForward(self.service, self._seen.job(cluster.handle), node, port)

    # --- End -----------------------------------------------------------------------------------------------

    def keep_end(self, cluster: Cluster, states: Sequence[NodeState]) -> None:
        """Keeps how *cluster* has ended before its Job is removed; failures are tried again."""
        is_ours = bool(cluster.handle) and (cluster.directory / FILE).exists()
        if not is_ours or not states or any_running(states) or archive.read_states(cluster):
            return
        with contextlib.suppress(ClusterError), archive.alone(cluster):
            plan = self.load(cluster)
            self._keep(cluster, plan, states, with_logs=False)

    def _keep(self, cluster: Cluster, plan: Plan, nodes: Sequence[NodeState], *, with_logs: bool) -> None:
        directory = cluster.directory
        try:
            if not (directory / FILE).exists():
                archive.write_plan(cluster, plan)
            if _is_told(plan):  # else a work dir has files and logs
                for name, body in self._seen.told(cluster.handle).items():
                    if body:
                        write_whole(directory / name, body)
                if with_logs:
                    with tempfile.TemporaryDirectory(dir=directory) as scratch:
                        _bring_logs(self.logs(cluster, Path(scratch), follow=False), directory / "logs")
            archive.write_states(cluster, nodes)
        except OSError as error:
            raise not_writable(directory, error) from error

    def why_fixed(self, cluster: Cluster) -> str:
        """Returns a reason where *cluster* has ended."""
        job = self._seen.job(cluster.handle)
        if job is None or states.JobView.of(job).is_finished:
            return "has ended; launch it again: scripts/launch.sh"
        return ""

    def ask_to_stop(self, job: str, body: bytes) -> None:
        """Ends the nodes of *job*; its file `stop` is *body* from then on."""
        unstarted = " ".join(self._seen.unstarted(job))
        self._jobs.end_all(job, {manifests.STOP: body.decode(), manifests.UNSTARTED: unstarted})

    def end(self, cluster: Cluster, nodes: Collection[str], *, at_once: bool = False) -> None:
        """Ends *nodes*: TERM, their grace, KILL; *at_once* KILL."""
        if cluster.handle:
            self._jobs.end(cluster, nodes, at_once=at_once)

    def finish(self, cluster: Cluster, say: Say) -> None:
        """Keeps what *cluster* has told, and removes it from Kubernetes."""
        with archive.alone(cluster):
            found = self._seen.look(cluster)
            if found is None:
                return
            plan = self.load(cluster)
            self._keep(cluster, plan, found, with_logs=True)
            self.remove(cluster, say)
        what = "logs are" if _is_told(plan) else "a record of it is"
        say(f"{what} in {cluster.directory}")

    def remove(self, cluster: Cluster, say: Say) -> None:  # noqa: ARG002 - seconds
        """Removes the Job of *cluster*, which takes all else with it."""
        name = cluster.handle or manifests.object_name(cluster.name, cluster.launch_id)
        self._jobs.remove(cluster, name)
        self._plans.pop(name, None)

    def close(self) -> None:
        """Leaves no connection open."""
        if "service" in self.__dict__:
            self.service.close()


def _is_told(plan: Plan) -> bool:
    return plan.work_dir.startswith(f"{manifests.PROTOCOL}://")


def _bring_logs(copy: LogCopy, to: Path) -> None:
    """Replaces logs that were followed by whole ones, where pods still have them."""
    copy.fetch()
    copy.close()
    for path in copy.directory.iterdir():
        there = to / path.name
        if not there.exists() or there.stat().st_size <= path.stat().st_size:
            path.replace(there)
