"""The backend ``oci``: a Data Science Job for each cluster, a Job Run for each node.

Jobs and runs are found again by their tags, from any machine, whatever became of the launcher.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oci_cluster.backends.agentless_image import ReportedMains
from oci_cluster.backends.archive import write_plan
from oci_cluster.backends.base import Backend, IsStopped, LogCopy, PortForward, check_of_image, sleeper
from oci_cluster.backends.code import digest_of, remove_code
from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.backends.oci.jobs import dry_run, requests, states
from oci_cluster.backends.oci.jobs.client import Jobs
from oci_cluster.backends.oci.logs import ServiceLogs
from oci_cluster.backends.oci.settings import settings_of, tags_given
from oci_cluster.backends.stored_logs import SayOnce, StoredLogs
from oci_cluster.contract.cluster import Cluster, Node, NodeState, Plan, clusters_dir
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.untrusted_work_dir import own_work_dirs
from oci_cluster.contract.names import CERTIFICATE, LAUNCHED
from oci_cluster.contract.settings.settings_files import session_defaults
from oci_cluster.errors import UsageError
from oci_cluster.system.console import Say
from oci_cluster.system.text import printable

if TYPE_CHECKING:
    from oci_cluster.backends.oci.service import Service


def open_backend(
    root: Path,
    given: Mapping[str, str],
    is_stopped: IsStopped,
    *,
    is_looking: bool = False,  # noqa: ARG001 - unused here
) -> OciBackend:
    """Return the backend of the checkout *root* with the settings *given*."""
    logging.getLogger("oci").setLevel(logging.WARNING)  # the SDK tells of every request
    sleep = sleeper(is_stopped)

    def open_service() -> Service:
        from oci_cluster.backends.oci import service  # noqa: PLC0415 - a third of a second that a dry run does not spend

        opened = service.Service(service.service_environ(given), is_stopped=is_stopped, sleep=sleep)
        opened.use_for_storage()
        return opened

    compartment = {**session_defaults(given), **given}.get("COMPARTMENT_OCID", "")
    return OciBackend(root, compartment, open_service, given=given, is_stopped=is_stopped, sleep=sleep)


class OciBackend(Backend):
    """The clusters of one compartment."""

    name = "oci"
    # The design's thousand nodes, of which one is main.
    max_workers = 999
    # A request or two each, for hours; the end is seen this much later.
    poll_s = 2.0
    # As long as a node takes to look, and to upload what its script has left.
    why_gone = "its Job has no runs: none was made, or somebody has deleted them"
    end_margin_s = 30.0
    # With grace and margin, the five minutes that the service is given to take a run down.
    end_timeout_s = 260.0
    shows_key = True
    is_this_machine = is_free_to_ask = False
    node_fields: Mapping[str, str] = {
        **{name: name for name in ("node", "state", "exit_code")},
        "ocid": "id",
        **{name: name for name in ("details", "never_started")},
    }
    handle_name = "job"

    def __init__(
        self,
        root: Path,
        compartment: str,
        open_service: Callable[[], Service],
        *,
        given: Mapping[str, str] | None = None,
        is_stopped: IsStopped = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._root = root
        self._given = given or {}
        self._jobs = Jobs(compartment, open_service, is_stopped=is_stopped, clock=clock, sleep=sleep)
        self._is_stopped = is_stopped
        self._clock = clock
        self._sleep = sleep
        # Read once for each launch, and resolved once; archives of code are in a directory until they are sent.
        self._settings: dict[str, dict[str, Any]] = {}
        self._launches: dict[str, requests.Launch] = {}
        self._scratch = ""
        # What is known of clusters, by Job: it does not change.
        self._plans: dict[str, Plan] = {}
        self._told = ReportedMains(self.load, launched=LAUNCHED)
        self._say_once = SayOnce()
        # The Jobs of this launcher's launches; none for a launch of which there cannot be one.
        self._launched: dict[str, str | None] = {}

    # --- Launch --------------------------------------------------------------------------------------------

    def check(self, plan: Plan | None = None) -> None:
        """Raise where settings that every verb needs are wrong, or those of a *plan*."""
        if plan is None:
            self._jobs.check_compartment()
        else:
            self._settings[plan.launch_id] = settings_of(plan, self._root)
            check_of_image(plan, "nodes on OCI")

    def place(self, plan: Plan, say: Say = lambda _: None) -> Plan:
        """Return *plan* with all that its nodes get: code is packed, requests are made."""
        if plan.launch_id not in self._settings:
            self.check(plan)
        if not self._scratch:
            self._scratch = tempfile.mkdtemp(prefix="oci-code-")
            weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(dir=self._scratch))
        settings = self._settings[plan.launch_id]
        plan, self._launches[plan.launch_id] = requests.resolve(plan, settings, self._root, scratch, say)
        self._jobs.compartment = plan.placed["compartment"]  # a flag may have named another than the environment
        return plan

    def preview(self, plan: Plan, *, as_json: bool) -> str:
        """Return the requests of a launch: a script of oci-cli's commands, or JSON."""
        return dry_run.preview(plan, self._launches[plan.launch_id], self._root, as_json=as_json)

    def start(self, plan: Plan, nodes: Sequence[Node], say: Say) -> Cluster:
        """Start *nodes*, the first ones in a new Job."""
        if job := plan.placed.get("job"):
            where = {name: plan.placed[name] for name in ("compartment", "project")}
            settings = {**where, "tags_given": tags_given(plan.environment)}
            bodies = {node.name: requests.job_run(plan, settings, node, self._root) for node in nodes}
            # A rank's next run is another request.
            self._jobs.create_runs(job, bodies, plan.launch_id, incarnation=len(self._jobs.runs(job)))
            return self._cluster(plan, job)
        launch = self._launches.pop(plan.launch_id)
        try:
            return self._start_first(plan, launch, say)
        finally:
            if launch.code.archive:
                launch.code.archive.unlink()

    def _start_first(self, plan: Plan, launch: requests.Launch, say: Say) -> Cluster:
        self._launched[plan.launch_id] = None
        launch.code.send(plan, say)
        # What was added since the requests were made: how it is followed, and what OCI alone knows.
        added = {name: text for name, text in plan.environment.items() if launch.environment.get(name) != text}
        if (subnet := launch.settings["subnet"]) and not plan.settings["SUBNET_CIDR"]:
            added["SUBNET_CIDR"] = self._jobs.service.subnet_cidr(subnet)
        plan = replace(plan, environment={**plan.environment, **added})
        self._jobs.stop_if_told()
        write_plan(Cluster.of(plan, clusters_dir(self._root)), plan)
        cluster_dir = ClusterDir(plan.url, plan.launch_id, plan.launch_key)
        cluster_dir.create()
        cluster_dir.publish(LAUNCHED)
        job = self._create_job(plan, requests.with_variables(launch.job, added))
        self._plans[job] = replace(plan, placed={**plan.placed, "job": job})
        # Until the Job named it, a stop.sh --delete of its last user may have removed it.
        launch.code.send(plan, say)
        self._jobs.create_runs(job, launch.runs, plan.launch_id)
        say(f"{len(launch.runs)} Job Runs created")
        return self._cluster(plan, job)

    def _cluster(self, plan: Plan, job: str) -> Cluster:
        return replace(Cluster.of(plan, clusters_dir(self._root)), handle=job, style=plan.placed["style"])

    def _create_job(self, plan: Plan, body: requests.JSON) -> str:
        del self._launched[plan.launch_id]  # until it is answered, there may be one
        try:
            job = self._jobs.create(body, plan.launch_id)
        except ServiceError as error:
            if error.is_final:
                self._launched[plan.launch_id] = None
            raise
        self._launched[plan.launch_id] = job
        return job

    def files(self, cluster: Cluster, plan: Plan) -> str:  # noqa: ARG002 - storage has them
        """Return the cluster dir."""
        return plan.url

    def started(self, cluster: Cluster, plan: Plan) -> str:
        """Return where the cluster's files are, and its Job, time limit and cost."""
        ttl = plan.environment.get("TTL", "")
        end = f"ends after {ttl} at the latest (TTL)" if plan.limits.ttl_s else "no TTL: nothing else bounds its cost"
        return f"files in {self.files(cluster, plan)}, Job {cluster.handle}; {end}"

    def connect(self, cluster: Cluster, plan: Plan, words: str) -> str:  # noqa: ARG002 - no login reaches main's files
        """Return from where the cluster can be reached, and where its certificate is."""
        certificate = f"{plan.url}/{CERTIFICATE}"
        return f"from the cluster's subnet or through a tunnel, with {certificate}; see {plan.framework}/README.md"

    # --- State ---------------------------------------------------------------------------------------------

    def find(self, name: str = "") -> list[Cluster]:
        """Return the clusters of the compartment, or those called *name*, the oldest first."""
        wanted = {"display_name": name} if name else {}
        listed = self._jobs.listed(lifecycle_state="ACTIVE", **wanted)
        jobs = [states.cluster_of(job, clusters_dir(self._root)) for job in listed]
        found: dict[str, Cluster] = {}
        for cluster in sorted(jobs, key=lambda cluster: cluster.age_key):
            # Whoever copies a cluster's tags comes later, and does not take its place.
            if name in {"", cluster.name}:
                found.setdefault(cluster.launch_id, cluster)
        return list(found.values())

    def load(self, cluster: Cluster) -> Plan:
        """Return the plan of *cluster*, which only the Job itself tells."""
        if cluster.handle not in self._plans:
            job = self._jobs.get(cluster.handle, cluster.name)
            own = own_work_dirs(self._given, cluster, self._root)
            self._plans[cluster.handle] = states.plan_of(cluster, job, self._root, self.max_workers, own)
        return self._plans[cluster.handle]

    def states(self, clusters: Sequence[Cluster]) -> dict[str, list[NodeState]]:
        """Return the nodes of *clusters*, for one list of runs.

        How each node of a run with node groups ended, is only known of a cluster that is asked for alone.
        """
        is_alone = len(clusters) == 1
        job = clusters[0].handle if is_alone else ""
        has_groups = is_alone and _is_multinode(clusters[0])
        runs = (self._jobs.run_of_groups(job) if has_groups else None) or self._jobs.runs(job) if clusters else []
        found = {}
        for cluster in clusters:
            own = [run for run in runs if run.job_id == cluster.handle]
            created = self._jobs.created(cluster.handle)
            if not own and not created and self._jobs.is_settling(cluster.handle):
                # Somebody is just launching it, or a list does not have its runs yet. Nobody may take it for ended.
                found[cluster.launch_id] = [states.unlisted("MAIN")]
            elif not _is_multinode(cluster):
                found[cluster.launch_id] = states.states_of_runs(own, created)
            elif (whole := states.state_of_group(own, created)) is None:
                found[cluster.launch_id] = []
            else:
                nodes = self._nodes_of_group(cluster, whole, own) if is_alone and own else None
                found[cluster.launch_id] = nodes or [whole] * states.size_of_group(own)
        if is_alone:
            (cluster,) = clusters
            found[cluster.launch_id] = self._told.with_reports(cluster, found[cluster.launch_id])
        return found

    def _nodes_of_group(self, cluster: Cluster, whole: NodeState, own: Sequence[Any]) -> list[NodeState] | None:
        """Return nodes that share one run; None if no launch made the Job."""
        try:
            plan = self.load(cluster)
        except UsageError:
            return None
        return states.nodes_of(self._jobs, plan, whole, next(run for run in own if run.id == whole.id))

    def logs(self, cluster: Cluster, directory: Path, *, follow: bool) -> LogCopy:
        """Return the copying of logs from the cluster dir, or else from OCI Logging."""
        plan = self.load(cluster)
        if (stored := StoredLogs.of(plan, directory, self._say_once)) is not None:
            return stored
        if not (group := plan.placed["log_group"]):
            raise UsageError(
                f"{cluster.name} was launched with NODE_LOGS=0 and without LOG_GROUP_OCID: its logs were not kept"
            )
        return ServiceLogs(self._jobs, cluster.handle, group, directory, follow=follow, clock=self._clock)

    def port_forward(self, cluster: Cluster, plan: Plan, node: str, port: int, say: Say) -> PortForward:
        """Return a way to *port* of *node*; see :func:`open_tunnel`."""
        from oci_cluster.backends.oci.connect.tunnels import Asker, open_tunnel  # noqa: PLC0415 - what few launchers need

        asker = Asker(self._given, lambda: self._jobs.service, say, self._is_stopped, self._clock, self._sleep)
        return open_tunnel(cluster, plan, node, port, asker)

    # --- End -----------------------------------------------------------------------------------------------

    def why_fixed(self, cluster: Cluster) -> str:
        """Return why nodes cannot be added or ended; empty where they can."""
        why = "cannot grow or shrink: the service starts its nodes (OCI_JOB_STYLE=multinode)"
        return why if _is_multinode(cluster) else ""

    def end(self, cluster: Cluster, nodes: Collection[str], *, at_once: bool = False) -> None:  # noqa: ARG002
        """Cancel the runs of *nodes*; the service has no other way, and one grace."""
        runs = self._jobs.runs(cluster.handle)
        listed = {run.id for run in runs}
        is_all = _is_multinode(cluster) and bool(nodes)
        self._jobs.cancel([run for run in runs if is_all or states.node_of(run) in nodes])
        # A list may not hold yet what has just been created.
        young = {node: run for node, run in self._jobs.created(cluster.handle).items() if run not in listed}
        self._jobs.cancel_runs([run for node, run in young.items() if is_all or node in nodes])

    def finish(self, cluster: Cluster, say: Say) -> None:
        """Do nothing: a Job that has ended costs nothing, and can be looked at."""

    def remove(self, cluster: Cluster, say: Say) -> None:
        """Remove the Job and runs of *cluster*, and its files if it was found."""
        with self._jobs.service.cleaning_up():
            if not cluster.handle:
                self._remove_launched(cluster, say)
                return
            try:
                plan = self.load(cluster)
            except ServiceError as error:
                if error.status != 404:
                    raise
            else:
                # The Job tells where the files are: it stays until they are gone, so that this can be done again.
                self._jobs.end_runs(cluster.handle)
                self._remove_files(cluster, plan, say)
            self._jobs.remove(cluster.handle)

    def _remove_files(self, cluster: Cluster, plan: Plan, say: Say) -> None:
        """Remove what the Job names, if it is signed with the Job's key.

        Anybody may have made the Job.
        """
        cluster_dir = ClusterDir(plan.url, cluster.launch_id, plan.launch_key)
        if cluster_dir.is_of_launch():
            remove_code(plan, lambda digest: states.users_of_code(self._jobs.listed(), digest, cluster.handle), say)
            cluster_dir.remove_all()
            return
        left = [plan.url] if cluster_dir.listing() else []
        left += [plan.environment["CODE_URI"].partition("#")[0]] if digest_of(plan) else []
        if left:
            why = f"no file of the cluster is signed with the key of {cluster.name}"
            say(f"files stay in {printable(' and '.join(left))}: {why}")

    def _remove_launched(self, cluster: Cluster, say: Say) -> None:
        if cluster.launch_id in self._launched:
            if job := self._launched[cluster.launch_id]:
                self._jobs.remove(job)
            return
        if not self._jobs.remove_of_launch(cluster.name, cluster.launch_id) and not self._is_stopped():
            say(f"a Job {cluster.name} may still appear later; it has no nodes, and costs nothing")

    def close(self) -> None:
        """Remove archives of code; no process of this launcher is left."""
        shutil.rmtree(self._scratch, ignore_errors=True)


def _is_multinode(cluster: Cluster) -> bool:
    return cluster.style == "multinode"
