"""The ``oci`` backend: a Data Science Job for each cluster, a Job Run for each node.

What there is, is what the service says: Jobs and runs are found again by their tags, from any machine, whatever became
of the launcher. It has the functions that :mod:`oci_cluster.local` has.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from oci_cluster import oci_requests
from oci_cluster import plan as planning
from oci_cluster.clusters import Cluster
from oci_cluster.errors import BackendError, ClusterError, ExitCode, SettingsError, StoppedError, UsageError
from oci_cluster.exchange import Exchange, exit_file, poll_delays, printable
from oci_cluster.liveness import outcome_of
from oci_cluster.node_logs import NodeLogs
from oci_cluster.oci_requests import TAG_FRAMEWORK, TAG_LAUNCH, TAG_NAME, TAG_NODE, TAG_SIZE, TAG_STYLE
from oci_cluster.oci_service import Service, ServiceError, run_advice
from oci_cluster.settings import parse_duration, parse_name, parse_switch

# Requests at once. The design's measurement: with 200 ms each, 100 runs were made in 3.5 s on 8 threads.
_AT_ONCE = 8
# A run that is told to end has its agent's grace, then the service's own time to take it down.
_END_TIMEOUT_S = 300.0
_GRACE_PERIOD_S = 10.0
_ENDED = {"SUCCEEDED", "FAILED", "CANCELED", "DELETED"}
# How long what has just been created may be missing in a list, or not be ready for what needs it.
_JUST_NOW = ("IncorrectState", "Conflict")
_APPEARS_S = 10.0
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_NODE = re.compile(r"MAIN|(WORKER|PS)_[1-9][0-9]{0,5}")
_EXIT_CODE = re.compile(r"exit code (\d{1,3})\b")
# Whose code is known though the service tells none.
_CODES = {"SUCCEEDED": int(ExitCode.OK), "CANCELED": int(ExitCode.STOPPED), "DELETED": int(ExitCode.LOST)}


class Jobs:
    """The clusters of one compartment."""

    # Between two looks at the service: a request or two each, for hours; the end is seen this much later.
    look_s = 2.0

    def __init__(
        self,
        service: Service,
        settings: Mapping[str, str],
        directory: Path,
        *,
        is_stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare to ask *service*.

        Args:
            service: OCI.
            settings: The backend's, of which looking needs ``COMPARTMENT_OCID``.
            directory: Where this checkout keeps what it knows of clusters: plans and logs.
            is_stopped: Whether the launcher has been told to stop.
            clock: Monotonic seconds.
            sleep: Waits seconds; only tests give another.
        """
        self._service = service
        self._compartment = settings.get("COMPARTMENT_OCID", "")
        self._directory = directory
        self._is_stopped = is_stopped
        self._clock = clock
        self._sleep = sleep
        self._created: dict[str, dict[str, str]] = {}

    # --- Submit --------------------------------------------------------------------------------------------

    def submit(self, plan: Mapping[str, Any], root: Path, say: Callable[[str], None]) -> Cluster:
        """Start the cluster of *plan* and return it; on any failure nothing of it is left, or what is left is named.

        Raises:
            UsageError: a cluster of that name runs.
            SettingsError: something in *plan* cannot be sent.
            ServiceError: OCI refused, or did not answer.
            StoppedError: the launcher was told to stop.
        """
        settings = oci_requests.settings_of(plan, root)
        self._check_name(plan["name"])
        environment = oci_requests.node_environment(
            plan, code_uri=self._send_code(plan, say), subnet_cidr=self._subnet_cidr(plan, settings)
        )
        self._stop_if_told()
        cluster = self._keep({**plan, "environment": environment})
        try:
            self._stop_if_told()
            cluster = self._create_job(cluster, oci_requests.job(plan, settings, environment, root))
            self._create_runs(cluster, oci_requests.job_runs(plan, settings, root, cluster.plan["job"]), say)
        except BaseException as error:
            self._roll_back(cluster, error, say)
            raise
        return cluster

    def _check_name(self, name: str) -> None:
        for summary in self._job_summaries(display_name=name):
            cluster = self._cluster(summary)
            if running := self._running(cluster):
                msg = (
                    f"a cluster named '{name}' is running, with {len(running)} nodes; choose another --name, "
                    f"or end it: scripts/stop.sh {name} --backend oci"
                )
                raise UsageError(msg)

    def _send_code(self, plan: Mapping[str, Any], say: Callable[[str], None]) -> str:
        """Put the user's code where the nodes fetch it, unless it is there; return its ``CODE_URI``."""
        with tempfile.TemporaryDirectory() as scratch:
            code_uri, archive = oci_requests.code_of(plan, Path(scratch))
            if archive is not None:
                folder, _, name = code_uri.partition("#")[0].rpartition("/")
                storage = Exchange(folder, plan["launch_id"])
                if not storage.is_there(name):
                    say(f"sending the code in {plan['code_dir']}: {archive.stat().st_size / 1000:.0f} kB")
                    storage.upload(archive, name)
        return code_uri

    def _subnet_cidr(self, plan: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
        given = str(plan["settings"]["SUBNET_CIDR"])
        return given or (self._service.subnet_cidr(settings["subnet"]) if settings["subnet"] else "")

    def _keep(self, plan: Mapping[str, Any]) -> Cluster:
        directory = self._directory / plan["cluster_id"]
        try:
            self._directory.mkdir(exist_ok=True)
            directory.mkdir(mode=0o700)
            (directory / "logs").mkdir()
            (directory / "cluster.json").write_text(json.dumps(plan, indent=2))
        except OSError as error:
            msg = f"{directory} cannot be written: {error.strerror}; make room there or allow it"
            raise BackendError(msg) from error
        return Cluster(directory, plan)

    def _create_job(self, cluster: Cluster, body: oci_requests.JSON) -> Cluster:
        response = self._service.call(
            "create the Job",
            self._service.data_science.create_job,
            body,
            opc_retry_token=f"{cluster.launch_id}-job",
        )
        return Cluster(cluster.directory, {**cluster.plan, "job": str(response.data.id)})

    def _create_runs(
        self, cluster: Cluster, bodies: Mapping[str, oci_requests.JSON], say: Callable[[str], None]
    ) -> None:
        """Create the runs of all nodes, main's first; the first failure ends the creating of others."""
        created = self._created.setdefault(cluster.plan["job"], {})
        failed: list[BaseException] = []

        def create(node: str) -> None:
            if failed or self._is_stopped():
                return
            try:
                created[node] = self._create_run(cluster, node, bodies[node])
            except BaseException as error:
                failed.append(error)
                raise

        main, *others = bodies
        create(main)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(create, others):
                pass
        self._stop_if_told()
        say(f"{len(created)} Job Runs created")

    def _create_run(self, cluster: Cluster, node: str, body: oci_requests.JSON, life: int = 0) -> str:
        # The same for all tries of one life of a node: however often an answer is lost, there is one run.
        token = f"{cluster.launch_id}-{node}-{life}"
        response = self._service.call(
            f"create the Job Run of {node}",
            self._service.data_science.create_job_run,
            body,
            opc_retry_token=token,
            repeat_also=_JUST_NOW,
        )
        return str(response.data.id)

    def _stop_if_told(self) -> None:
        if self._is_stopped():
            msg = "stopped before all nodes were started"
            raise StoppedError(msg)

    def _roll_back(self, cluster: Cluster, error: BaseException, say: Callable[[str], None]) -> None:
        """End what has been started of *cluster*, whether its creation was answered or not."""
        say(f"{error}" if isinstance(error, StoppedError) else "the launch failed; ending what was started")
        try:
            with self._service.cleaning_up():
                if "job" in cluster.plan:
                    self._end_job(cluster.plan["job"])
                else:
                    self._end_unanswered(cluster, error, say)
        except ClusterError as problem:
            msg = (
                f"NOT ENDED: {cluster.name} may still be running and cost money ({problem}); "
                f"end it: scripts/stop.sh {cluster.name} --delete --backend oci"
            )
            say(msg)
            return
        shutil.rmtree(cluster.directory, ignore_errors=True)

    def _end_unanswered(self, cluster: Cluster, error: BaseException, say: Callable[[str], None]) -> None:
        """Delete a Job of *cluster* whose creation was not answered: it has its tags all the same."""
        if isinstance(error, ServiceError) and 400 <= error.status < 500 and error.status != 429:
            return  # answered: refused
        deadline = self._clock() + _APPEARS_S
        for delay in poll_delays(5.0, first_s=0.5):
            summaries = self._job_summaries(display_name=cluster.name, lifecycle_state="")
            own = [summary for summary in summaries if summary.freeform_tags[TAG_LAUNCH] == cluster.launch_id]
            for summary in own:
                self._end_job(summary.id)
            if own:
                return
            if self._clock() > deadline:
                break
            self._sleep(delay)
        if not isinstance(error, StoppedError):
            say(f"should a Job {cluster.name} appear later: it has no nodes, and costs nothing")

    def _end_job(self, job: str) -> None:
        """Cancel every run of *job*, wait until all have ended, and delete it."""
        deadline = self._clock() + _END_TIMEOUT_S
        for delay in poll_delays(5.0, first_s=0.5):
            if not self._cancel(self._runs(job)):
                try:
                    self._delete(job)
                except ServiceError as error:
                    if error.status != 409:  # a run that was created late: it is in the next list
                        raise
                else:
                    return
            if self._clock() > deadline:
                msg = f"its runs have not ended within {_END_TIMEOUT_S:g} s"
                raise BackendError(msg)
            self._sleep(delay)

    def _cancel(self, runs: Sequence[Any]) -> int:
        """Have those of *runs* that have not ended be ended; return how many there are."""
        going = [run for run in runs if run.lifecycle_state not in _ENDED]

        def cancel(run: Any) -> None:
            try:
                self._service.call("cancel a Job Run", self._service.data_science.cancel_job_run, run.id)
            except ServiceError as error:
                if error.status not in {404, 409}:  # it has ended meanwhile
                    raise

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(cancel, [run for run in going if run.lifecycle_state != "CANCELING"]))
        return len(going)

    def _delete(self, job: str) -> None:
        client = self._service.data_science
        try:
            self._service.call("delete the Job", client.delete_job, job, delete_related_job_runs=True)
        except ServiceError as error:
            if error.status != 404:
                raise

    # --- State ---------------------------------------------------------------------------------------------

    def find(self) -> list[Cluster]:
        """Return the clusters that the compartment has, the oldest first."""
        clusters = [self._cluster(summary) for summary in self._job_summaries()]
        return sorted(clusters, key=lambda cluster: (cluster.plan["created"], cluster.launch_id))

    def load(self, cluster: Cluster) -> Cluster:
        """Return *cluster* with its nodes' environment, which only the Job itself tells."""
        if cluster.plan["work_dir"]:
            return cluster
        response = self._service.call(
            f"look at {cluster.name}", self._service.data_science.get_job, cluster.plan["job"]
        )
        details = response.data.job_configuration_details
        if groups := getattr(
            response.data.job_node_configuration_details, "job_node_group_configuration_details_list", None
        ):
            details = groups[0].job_configuration_details
        environment = dict(getattr(details, "environment_variables", None) or {})
        if environment.get("CLUSTER_ID") != cluster.plan["cluster_id"] or not environment.get("WORK_DIR"):
            # Files are removed by that name, and whoever may create a Job can write anything there.
            msg = f"the Job of {cluster.name} ({cluster.plan['job']}) is not one that launch.sh has made"
            raise UsageError(msg)
        plan = {**cluster.plan, "environment": environment, "work_dir": environment["WORK_DIR"]}
        return Cluster(cluster.directory, {**plan, "files": Cluster(cluster.directory, plan).url})

    def _job_summaries(self, *, lifecycle_state: str = "ACTIVE", **wanted: str) -> list[Any]:
        """Return the Jobs that are clusters: those of a *lifecycle_state*, or all that are not deleted."""
        if not self._compartment:
            msg = "COMPARTMENT_OCID is not set: in which compartment are the clusters? (config.env.example)"
            raise SettingsError(msg)
        if lifecycle_state:
            wanted["lifecycle_state"] = lifecycle_state
        listed = self._service.all_pages(
            "list the Jobs", self._service.data_science.list_jobs, self._compartment, **wanted
        )
        return [
            summary
            for summary in listed
            if summary.lifecycle_state not in {"DELETING", "DELETED"} and _is_ours(summary.freeform_tags or {})
        ]

    def _cluster(self, summary: Any) -> Cluster:
        tags = summary.freeform_tags
        created = summary.time_created.strftime(_TIME)
        cluster_id = f"{tags[TAG_NAME]}-{tags[TAG_LAUNCH]}"
        plan = {
            "name": tags[TAG_NAME],
            "launch_id": tags[TAG_LAUNCH],
            "framework": printable(tags.get(TAG_FRAMEWORK, "")),
            "cluster_id": cluster_id,
            "backend": "oci",
            "created": created,
            "work_dir": "",
            "environment": {},
            "nodes": [],
            "job": summary.id,
            "style": tags.get(TAG_STYLE, "runs"),
        }
        return Cluster(self._directory / cluster_id, plan)

    def _runs(self, job: str) -> list[Any]:
        return self._service.all_pages(
            "list the Job Runs", self._service.data_science.list_job_runs, self._compartment, job_id=job
        )

    def runs(self, cluster: Cluster) -> list[Any]:
        """Return the Job Runs of *cluster*, as the service lists them."""
        return self._runs(cluster.plan["job"])

    def _running(self, cluster: Cluster) -> list[Any]:
        return [run for run in self._runs(cluster.plan["job"]) if run.lifecycle_state not in _ENDED]

    def is_running(self, cluster: Cluster) -> bool:
        """Return whether any node of *cluster* has not ended."""
        return bool(self._running(cluster))

    def state(self, cluster: Cluster) -> dict[str, Any]:
        """Return what the service says of each node, in the words of :func:`oci_cluster.local.state`."""
        runs, created = self._runs(cluster.plan["job"]), self._created.get(cluster.plan["job"], {})
        return self._state_of_groups(cluster, runs, created) if _is_multinode(cluster) else self._state(runs, created)

    def _state_of_groups(self, cluster: Cluster, runs: Sequence[Any], created: Mapping[str, str]) -> dict[str, Any]:
        """Return the states of nodes that are one run together: how each ended only they themselves tell."""
        if not runs:
            return {"nodes": _still([*created]), "running": bool(created)}
        run = max(runs, key=_age)
        whole = _node("MAIN", run)
        environment = self.load(cluster).plan["environment"]
        workers, servers = int(environment.get("WORKER_COUNT", 0)), int(environment.get("PS_COUNT", 0))
        names = [f"WORKER_{rank}" for rank in range(1, workers + 1)]
        names += [f"PS_{rank}" for rank in range(workers + 1, workers + servers + 1)]
        nodes = [whole, *({**whole, "node": name} for name in names)]
        if whole["exit_code"] is not None and not whole["never_started"]:
            exchange = Exchange(self.load(cluster).url, cluster.launch_id)
            for node in nodes:
                with contextlib.suppress(ClusterError):
                    said = exchange.read(exit_file(node["node"]))
                    if said is None or whole["state"] == "SUCCEEDED":
                        continue
                    code = outcome_of(said).exit_code
                    # Main's 0 does not make a success of a run that the service calls failed.
                    if code or node["node"] != "MAIN":
                        node["exit_code"] = code
        return {"nodes": nodes, "running": whole["exit_code"] is None}

    def _state(self, runs: Sequence[Any], created: Mapping[str, str]) -> dict[str, Any]:
        latest: dict[str, Any] = {}
        for run in sorted(runs, key=_age):
            if name := _node_of(run):
                latest[name] = run
        nodes = [_node(name, run) for name, run in latest.items()]
        # A list may not hold yet what has just been created: that has not ended.
        known = {run.id for run in runs}
        nodes += _still([name for name, ocid in created.items() if ocid not in known])
        nodes.sort(key=lambda node: planning.rank_of(node["node"]))
        return {"nodes": nodes, "running": any(node["exit_code"] is None for node in nodes)}

    def overview(self) -> list[dict[str, Any]]:
        """Return all clusters with the states of their nodes, as a list shows them, for two requests in all."""
        clusters = self.find()
        runs = self._service.all_pages("list the Job Runs", self._service.data_science.list_job_runs, self._compartment)
        found = []
        for cluster in clusters:
            own = [run for run in runs if run.job_id == cluster.plan["job"]]
            state = self._state(own, {})
            if _is_multinode(cluster) and own:
                run = max(own, key=_age)
                size = (run.freeform_tags or {}).get(TAG_SIZE, "")
                nodes = [_node("MAIN", run)] * (int(size) if re.fullmatch(r"\d{1,4}", size) else 1)
                state = {"nodes": nodes, "running": nodes[0]["exit_code"] is None}
            main = next((node for node in state["nodes"] if node["node"] == "MAIN"), None)
            code = int(ExitCode.LOST) if main is None or main["exit_code"] is None else main["exit_code"]
            found.append(
                {
                    "name": cluster.name,
                    "framework": cluster.plan["framework"],
                    "backend": "oci",
                    "state": "IN_PROGRESS" if state["running"] else "ENDED",
                    "exit_code": None if state["running"] else code,
                    "created": cluster.plan["created"],
                    "nodes": state["nodes"],
                    "job": cluster.plan["job"],
                }
            )
        return found

    def started(self, cluster: Cluster) -> str:
        """Return where what the nodes of *cluster* leave can be seen."""
        return f"files in {cluster.url}, Job {cluster.plan['job']}"

    def finish(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        """Do nothing: a Job that has ended stays to be looked at."""

    def close(self) -> None:
        """Do nothing: no process of this launcher is left."""

    def logs(self, cluster: Cluster, directory: Path, *, follow: bool = False) -> Callable[[], object]:  # noqa: ARG002
        """Return what brings the nodes' logs to *directory*: from the cluster dir, or else from OCI Logging.

        Raises:
            UsageError: they are in neither.
        """
        plan = self.load(cluster).plan
        if parse_switch(plan["environment"].get("NODE_LOGS", "0")):
            return NodeLogs(Exchange(self.load(cluster).url, cluster.launch_id), directory).fetch
        response = self._service.call(
            f"look at {cluster.name}", self._service.data_science.get_job, cluster.plan["job"]
        )
        group = getattr(response.data.job_log_configuration_details, "log_group_id", None)
        if not group:
            msg = f"{cluster.name} was launched with NODE_LOGS=0 and without LOG_GROUP_OCID: its logs are nowhere"
            raise UsageError(msg)
        return ServiceLogs(self, cluster, str(group), directory).fetch

    def search_logs(self, run: Any, group: str) -> list[str]:
        """Return what the node of *run* has printed, as OCI Logging has it: some seconds late."""
        search = f'search "{self._compartment}/{group}"'
        words = [
            *("--search-query", f"{search} | where source = '*{run.id}' | sort by datetime asc"),
            *("--time-start", run.time_accepted.strftime(_TIME)),
            *("--time-end", time.strftime(_TIME, time.gmtime(time.time() + 60))),
        ]
        lines: list[str] = []
        page: list[str] = []
        while True:
            answer = self._service.cli(
                "search the logs", "logging-search", "search-logs", "--limit", "1000", *words, *page
            )
            results = answer.get("data", {}).get("results") or []
            lines += [str(result["data"]["logContent"]["data"].get("message", "")) for result in results]
            if "opc-next-page" not in answer:
                return lines
            page = ["--page", answer["opc-next-page"]]

    # --- Scale and stop ------------------------------------------------------------------------------------

    def scale(self, cluster: Cluster, text: str, root: Path, say: Callable[[str], None], *, most: int) -> int:
        """Add workers to *cluster*, or end some, as :func:`oci_cluster.local.scale` does; return how many there are."""
        if _is_multinode(cluster):
            msg = f"{cluster.name} has the nodes that the service gave it (OCI_JOB_STYLE=multinode): they stay"
            raise UsageError(msg)
        state = self.state(cluster)
        if not state["running"]:
            msg = f"{cluster.name} has ended; launch it again: scripts/launch.sh"
            raise UsageError(msg)
        names = [node["node"] for node in state["nodes"]]
        running = [node["node"] for node in state["nodes"] if node["exit_code"] is None]
        workers = sorted(planning.rank_of(node) for node in running if node.startswith("WORKER"))
        least = planning.least_workers(cluster.plan, root)
        wanted = planning.scaled_workers(text, len(workers), least=least, most=most)
        started = planning.free_ranks(names, running, wanted - len(workers))
        job = self._service.call(
            f"look at {cluster.name}", self._service.data_science.get_job, cluster.plan["job"]
        ).data
        plan = {**cluster.plan, "project": (job.freeform_tags or {}).get(oci_requests.TAG_PROJECT, "")}
        settings = {"compartment": job.compartment_id, "project": job.project_id}
        life = sum(1 for _ in self._runs(cluster.plan["job"]))  # a rank's next run is another request
        for rank in started:
            node: dict[str, Any] = {"node": f"WORKER_{rank}", "environment": {"MODE": "WORKER", "NODE_RANK": str(rank)}}
            body = oci_requests.job_run(plan, settings, node, root, cluster.plan["job"])
            self._create_run(cluster, f"WORKER_{rank}", body, life)
            say(f"WORKER_{rank} started")
        ended = {f"WORKER_{rank}" for rank in workers[wanted:]}
        if ended:
            say(f"ending {', '.join(sorted(ended))}")
            runs = [run for run in self._running(cluster) if _node_of(run) in ended]
            self._wait_for_end(
                lambda: self._cancel([run for run in self._running(cluster) if run.id in {r.id for r in runs}])
            )
        return wanted

    def terminate(self, cluster: Cluster) -> None:
        """Have the service end every node: TERM, its own grace, KILL."""
        self._cancel(self._runs(cluster.plan["job"]))

    kill = terminate

    def stop(self, cluster: Cluster, say: Callable[[str], None], *, delete: bool = False) -> None:
        """Stop *cluster* and return when nothing of it runs. First by the ``stop`` file, then by the service.

        Args:
            cluster: What was launched.
            say: Shows a line of progress.
            delete: Remove the Job, its runs, and their logs and outputs in the cluster dir as well.
        """
        from oci_cluster.follow import request_stop  # noqa: PLC0415 - see local.stop

        if self.is_running(cluster):
            say(f"stopping {cluster.name}")
            exchange = Exchange(cluster.url, cluster.launch_id)
            request_stop(exchange, self.terminate, cluster, "stopped by stop.sh")
            grace = parse_duration(cluster.plan["environment"].get("GRACE_PERIOD", f"{_GRACE_PERIOD_S:g}"))
            # As long as a node takes to look, to end its script and to upload what that has left.
            deadline = self._clock() + 2 * grace + 20.0
            for delay in poll_delays(5.0, first_s=0.5):
                if not self.is_running(cluster) or self._clock() > deadline:
                    break
                self._sleep(delay)
        if self.is_running(cluster):
            say(f"{cluster.name} has not ended by itself; canceling its Job Runs")
            self._wait_for_end(lambda: self._cancel(self._runs(cluster.plan["job"])))
        if delete:
            self._end_job(cluster.plan["job"])
            Exchange(cluster.url, cluster.launch_id).remove_all()
            shutil.rmtree(cluster.directory, ignore_errors=True)

    def _wait_for_end(self, cancel: Callable[[], int]) -> None:
        deadline = self._clock() + _END_TIMEOUT_S
        for delay in poll_delays(5.0, first_s=0.5):
            if not cancel():
                return
            if self._clock() > deadline:
                msg = f"Job Runs have not ended within {_END_TIMEOUT_S:g} s; look at them in the console, or try again"
                raise BackendError(msg)
            self._sleep(delay)


class ServiceLogs:
    """The logs of a cluster's nodes, copied from OCI Logging to a directory of this machine."""

    def __init__(self, jobs: Jobs, cluster: Cluster, group: str, directory: Path) -> None:
        """Copy to *directory* what the runs of *cluster* have left in the log group *group*."""
        self._jobs = jobs
        self._cluster = cluster
        self._group = group
        self._directory = directory
        self._copied: dict[str, int] = {}

    def fetch(self) -> None:
        """Copy what is new.

        Raises:
            ServiceError: the service did not answer; the next call goes on from there.
        """
        for run in [run for run in self._jobs.runs(self._cluster) if run.time_accepted]:
            lines = self._jobs.search_logs(run, self._group)
            new = lines[self._copied.get(run.id, 0) :]
            node = _node_of(run) or "MAIN"  # with node groups, one run is all nodes
            with (self._directory / f"{node}.log").open("a") as file:
                file.write("".join(f"{line}\n" for line in new))
            self._copied[run.id] = len(lines)


def _is_ours(tags: Mapping[str, str]) -> bool:
    """Return whether a Job with *tags* is a cluster. They become names of files, and anybody may have written them."""
    try:
        parse_name(tags.get(TAG_NAME, ""))
    except ValueError:
        return False
    return re.fullmatch(r"[0-9a-f]{8}", tags.get(TAG_LAUNCH, "")) is not None


def _age(run: Any) -> tuple[str, str]:
    """Return what runs are sorted by: when they were accepted, which one that is just being made may not tell yet."""
    return (run.time_accepted.isoformat() if run.time_accepted else "9999", run.id)


def _node_of(run: Any) -> str:
    """Return the name of the node that *run* is, empty where its tags name none."""
    name = (run.freeform_tags or {}).get(TAG_NODE, "")
    return name if _NODE.fullmatch(name) else ""


def _is_multinode(cluster: Cluster) -> bool:
    return "multinode" in {cluster.plan.get("style"), cluster.plan.get("settings", {}).get("OCI_JOB_STYLE")}


def _still(names: Sequence[str]) -> list[dict[str, Any]]:
    """Return nodes that have been created, of which nothing is known yet."""
    return [{"node": name, "state": "ACCEPTED", "exit_code": None, "ocid": "", "details": ""} for name in names]


def _node(name: str, run: Any) -> dict[str, Any]:
    """Return what the run of a node tells."""
    state = str(run.lifecycle_state)
    details = printable(run.lifecycle_details or "")
    code = _CODES.get(state)
    never_started = False
    if state == "FAILED":
        told = _EXIT_CODE.search(details)
        # Without a code of its own it never ran: no image, no capacity. That is no exit code of anybody's script.
        never_started = told is None
        code = int(told[1]) if told and 1 <= int(told[1]) <= 255 else int(ExitCode.UNAVAILABLE)
        if never_started and (advice := run_advice(details)):
            details = f"{details}; {advice}"
    return {
        "node": name,
        "state": state,
        "exit_code": code,
        "ocid": str(run.id),
        "details": details,
        "never_started": never_started,
    }
