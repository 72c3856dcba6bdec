"""Data Science: projects, jobs, job runs, shapes and work requests."""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from oci_service import asked, models
from oci_service.access import logging_of
from oci_service.faults import Controls
from oci_service.lateness import ACCEPTED, Lateness
from oci_service.logs import Logs
from oci_service.nodes import Group, Plan
from oci_service.resources import JSON, Answer, Refusal, Request, Route, Shelf, invalid, merged, not_found, now
from oci_service.runs import ENDED, Runner
from oci_service.tenancy import Tenancy

MAX_ENVIRONMENT = 20_000  # characters, names and values
MAX_ARGUMENTS = 4_000
MAX_COMMAND = 2_048  # bytes, cmd and entrypoint
_SHAPES = {
    "VM.Standard2.1": (1, 15, "INTEL_SKYLAKE"),
    "VM.Standard2.4": (4, 60, "INTEL_SKYLAKE"),
    "VM.Standard3.Flex": (32, 512, "GENERIC"),
    "VM.Standard.E4.Flex": (64, 1024, "AMD_ROME"),
    "VM.Standard.E5.Flex": (94, 1049, "GENERIC"),
    "VM.GPU2.1": (12, 72, "NVIDIA_GPU"),
    "VM.GPU3.1": (6, 90, "NVIDIA_GPU"),
    "VM.GPU.A10.1": (15, 240, "NVIDIA_GPU"),
    "VM.GPU.A10.2": (30, 480, "NVIDIA_GPU"),
}
_FAST = {"VM.Standard2.1", "VM.Standard2.4"}  # a guess
_JOB_SUMMARY = "id timeCreated createdBy projectId compartmentId displayName lifecycleState freeformTags definedTags"
_RUN_SUMMARY = f"{_JOB_SUMMARY} timeAccepted timeStarted timeFinished jobId lifecycleDetails"


class DataScience:
    """Jobs and their runs, in one project."""

    def __init__(self, controls: Controls, lock: threading.RLock, tenancy: Tenancy, logs: Logs, runner: Runner) -> None:
        self._controls = controls
        self._lock = lock
        self._tenancy = tenancy
        self._logs = logs
        self._runner = runner
        self._lateness: Lateness = runner.lateness
        self._projects = Shelf("datascienceproject", lock)
        self.jobs = Shelf("datasciencejob", lock)
        self.runs = Shelf("datasciencejobrun", lock)
        self._requests = Shelf("datascienceworkrequest", lock)
        self._artifacts: dict[str, tuple[bytes, str]] = {}
        self.project: str = self._projects.add(
            compartmentId=tenancy.compartment, displayName="clusters", createdBy=tenancy.user, lifecycleState="ACTIVE"
        )["id"]

    def routes(self) -> list[Route]:
        """Return the operations."""
        base = "/20190101"
        job, run, artifact = f"{base}/jobs/{{id}}", f"{base}/jobRuns/{{id}}", f"{base}/jobs/{{id}}/artifact"
        return [
            ("POST", f"{base}/projects", "create_project", self._create_project),
            ("GET", f"{base}/projects", "list_projects", self._list_projects),
            ("GET", f"{base}/projects/{{id}}", "get_project", lambda r: _get(self._projects, r)),
            ("POST", f"{base}/jobs", "create_job", self._create_job),
            ("GET", f"{base}/jobs", "list_jobs", self._list_jobs),
            ("GET", job, "get_job", self._get_job),
            ("PUT", job, "update_job", self._update_job),
            ("DELETE", job, "delete_job", self._delete_job),
            ("POST", artifact, "create_job_artifact", self._create_artifact),
            ("GET", f"{artifact}/content", "get_job_artifact_content", self._get_artifact),
            ("HEAD", f"{artifact}/content", "head_job_artifact", self._get_artifact),
            ("POST", f"{base}/jobRuns", "create_job_run", self._create_run),
            ("GET", f"{base}/jobRuns", "list_job_runs", self._list_runs),
            ("GET", run, "get_job_run", self._get_run),
            ("PUT", run, "update_job_run", self._update_run),
            ("DELETE", run, "delete_job_run", self._delete_run),
            ("POST", f"{run}/actions/cancelJobRun", "cancel_job_run", self._cancel_run),
            ("GET", f"{base}/jobShapes", "list_job_shapes", self._list_shapes),
            ("GET", f"{base}/fastLaunchJobConfigs", "list_fast_launch_job_configs", self._list_fast),
            ("GET", f"{base}/workRequests/{{id}}", "get_work_request", lambda r: _get(self._requests, r)),
        ]

    def may(self, run: str, operation: str, resource: str) -> bool:
        """Return whether the resource principal of *run* may do this: read itself and its job."""
        own = {"get_job_run": run, "get_job": self.runs.get(run)["jobId"]}
        return own.get(operation) == resource

    # --- Projects

    def _create_project(self, request: Request) -> Answer:
        body = models.check("CreateProjectDetails", request.json())
        self._tenancy.check_compartment(body["compartmentId"])
        made = self._projects.add(**body, createdBy=request.principal.id, lifecycleState="ACTIVE")
        return self._projects.answer(made)

    def _list_projects(self, request: Request) -> Answer:
        self._tenancy.check_compartment(request.wanted("compartmentId"))
        return self._projects.list(request, ("compartmentId", "id", "displayName"), self._controls.page_size)

    def _check_place(self, body: JSON) -> None:
        self._tenancy.check_compartment(body["compartmentId"])
        self._projects.get(body["projectId"])

    # --- Jobs

    def _create_job(self, request: Request) -> Answer:
        body = models.check("CreateJobDetails", request.json())
        self._check_place(body)
        asked.check_job(body, self._controls.required_tags)
        self._check_parts(body, "")
        node = body.get("jobNodeConfigurationDetails") or {}
        for group in node.get("jobNodeGroupConfigurationDetailsList") or []:
            self._check_parts(group, f"jobNodeGroupConfigurationDetailsList.{group.get('name')}.")
        if not node and not body.get("jobInfrastructureConfigurationDetails"):
            raise Refusal(400, "MissingParameter", "jobInfrastructureConfigurationDetails is required")
        name = body.get("displayName") or f"job{now()}"
        fields = {**body, "displayName": name, "createdBy": request.principal.id, "lifecycleState": "ACTIVE"}
        with self._lock:
            job = self.jobs.add(**fields)
            self._lateness.note_made(job)
        answer = self.jobs.answer(job)
        if "job-active" in self._controls.flipped:
            answer.content["lifecycleState"] = "CREATING"
        return answer

    def _get_job(self, request: Request) -> Answer:
        self._lateness.check_seen(request.names["id"])
        return _get(self.jobs, request)

    def _check_parts(self, body: JSON, prefix: str, infix: str = "") -> None:
        """Refuse what a job, a node group, or a run's overrides (by their *infix*) cannot have."""
        configuration = body.get(f"jobConfiguration{infix}Details") or {}
        variables = configuration.get("environmentVariables") or {}
        size = sum(len(name) + len(value) for name, value in variables.items())
        if size > MAX_ENVIRONMENT and not (infix == "Together" and "environment-together" in self._controls.flipped):
            raise invalid(f"{prefix}environmentVariables have {size} characters; {MAX_ENVIRONMENT} are allowed")
        if (size := len(configuration.get("commandLineArguments") or "")) > MAX_ARGUMENTS:
            raise invalid(f"{prefix}commandLineArguments have {size} characters; {MAX_ARGUMENTS} are allowed")
        if (configuration.get("maximumRuntimeInMinutes") or 1) < 1:
            raise invalid(f"{prefix}maximumRuntimeInMinutes must be at least 1")
        container = body.get(f"jobEnvironmentConfiguration{infix}Details") or {}
        words = [*(container.get("cmd") or []), *(container.get("entrypoint") or [])]
        if sum(len(word.encode()) for word in words) >= MAX_COMMAND:
            raise invalid(f"{prefix}cmd and entrypoint must have less than {MAX_COMMAND} bytes together")
        infrastructure = body.get(f"jobInfrastructureConfiguration{infix}Details") or {}
        _check_infrastructure(infrastructure, prefix, self._controls.flipped, self._tenancy)
        log = body.get(f"jobLogConfiguration{infix}Details") or {}
        if log.get("enableLogging"):
            self._logs.groups.get(log.get("logGroupId") or "")
            if not log.get("enableAutoLogCreation"):
                self._logs.logs.get(log.get("logId") or "")

    def _list_jobs(self, request: Request) -> Answer:
        self._tenancy.check_compartment(request.wanted("compartmentId"))
        filters = ("compartmentId", "projectId", "id", "displayName", "lifecycleState", "createdBy")
        if "list-order" in self._controls.flipped:
            request = replace(request, query={"sortBy": "timeCreated", "sortOrder": "ASC", **request.query})
        told = lambda job: job if self._lateness.is_listed(job) else None  # noqa: E731 - one expression
        return self.jobs.list(request, filters, self._controls.page_size, _JOB_SUMMARY.split(), told)

    def _job(self, request: Request) -> JSON:
        self._lateness.check_seen(request.names["id"])
        job = self.jobs.matching(request.names["id"], request)
        if job["lifecycleState"] != "ACTIVE":
            raise Refusal(409, "IncorrectState", f"The job is {job['lifecycleState']}")
        return job

    def _update_job(self, request: Request) -> Answer:
        body = models.check("UpdateJobDetails", request.json())
        with self._lock:
            job = self._job(request)
            self._check_parts(body, "")
            self.jobs.touch(job, **merged(body))
            return self.jobs.answer(job)

    def _delete_job(self, request: Request) -> Answer:
        with self._lock:
            job = self._job(request)
            runs = [run for run in self.runs.all() if run["jobId"] == job["id"]]
            if active := sum(run["lifecycleState"] not in ENDED for run in runs):
                raise Refusal(409, "IncorrectState", f"The job has {active} active job runs")
            if request.query.get("deleteRelatedJobRuns") == "true":
                for run in runs:
                    self._delete(run)
            self.jobs.touch(job, lifecycleState="DELETED")
            if "deleted-listed" in self._controls.flipped:
                self.jobs.remove(job["id"])
            if "delete-at-once" in self._controls.flipped:
                _delete_later(self.jobs, job)
        entity = {"actionType": "DELETED", "entityType": "data-science-job", "identifier": job["id"]}
        work = self._requests.add(
            operationType="JOB_DELETE",
            status="SUCCEEDED",
            compartmentId=job["compartmentId"],
            resources=[entity],
            percentComplete=100.0,
            timeAccepted=now(),
            timeStarted=now(),
            timeFinished=now(),
        )
        return Answer(b"", 202, {"opc-work-request-id": work["id"]})

    def _create_artifact(self, request: Request) -> Answer:
        job = self._job(request)
        if job["id"] in self._artifacts:
            raise Refusal(409, "Conflict", "The job has an artifact")
        self._artifacts[job["id"]] = request.body, request.headers.get("content-disposition", "")
        return Answer(status=204)

    def _get_artifact(self, request: Request) -> Answer:
        if request.names["id"] not in self._artifacts:
            raise not_found()
        data, disposition = self._artifacts[request.names["id"]]
        return Answer(data, 200, {"content-type": "application/octet-stream", "content-disposition": disposition})

    # --- Job runs

    def _create_run(self, request: Request) -> Answer:
        body = models.check("CreateJobRunDetails", request.json())
        self._check_place(body)
        asked.check_tags(body, self._controls.required_tags)
        with self._lock:
            self._lateness.check_seen(body["jobId"])
            job = self.jobs.get(body["jobId"])
            if job["lifecycleState"] != "ACTIVE":
                raise Refusal(409, "IncorrectState", f"The job is {job['lifecycleState']}")
            self._check_parts(body, "", "Override")
            infrastructure = merged(
                job.get("jobInfrastructureConfigurationDetails"),
                body.get("jobInfrastructureConfigurationOverrideDetails"),
            )
            node = job.get("jobNodeConfigurationDetails") or {}
            groups = _groups(job, body)
            for group in groups:  # with the run's own the variables may have become too many
                self._check_parts({"jobConfigurationTogetherDetails": group.configuration}, "", "Together")
            nodes = sum(group.replicas for group in groups)
            parts = [part.get("jobInfrastructureConfigurationDetails") for part in _by_name(node).values()]
            shapes = [(part or {}).get("shapeName") for part in (infrastructure, *parts)]
            self._check_limit({shape for shape in shapes if shape}, nodes)
            name = body.get("displayName") or f"{job['displayName']}-run-{now()}"
            logging = logging_of(job, body)
            log = self._log(logging, name)
            multi = [{"name": group.name, "lifecycleState": "CREATING"} for group in groups] if node else None
            run = self.runs.add(
                **{**body, "displayName": name},
                createdBy=request.principal.id,
                timeAccepted=now(),
                jobInfrastructureConfigurationDetails=infrastructure or None,
                jobStorageMountConfigurationDetailsList=job.get("jobStorageMountConfigurationDetailsList"),
                logDetails={"logGroupId": log[0], "logId": log[1]} if log else None,
                nodeGroupDetailsList=multi,
                lifecycleState="ACCEPTED",
                lifecycleDetails=ACCEPTED,
            )
            if log and logging.get("enableAutoLogCreation"):
                by = request.principal.id if "log-maker" in self._controls.flipped else run["id"]
                self._logs.logs.touch(self._logs.logs.get(log[1]), definedTags={"Oracle-Tags": {"CreatedBy": by}})
            minutes = groups[0].configuration.get("maximumRuntimeInMinutes")
            ordinal = sum(other["jobId"] == job["id"] for other in self.runs.all())
            in_order = node.get("startupOrder") == "IN_ORDER"
            plan = Plan(groups, bool(node), in_order, node.get("maximumRuntimeInMinutes") or minutes, log, ordinal)
            self._lateness.note_made(run)
            answer = self.runs.answer(run)
            self._runner.begin(run, dict(job), plan)
            return answer

    def _check_limit(self, shapes: set[str], nodes: int) -> None:
        for shape in shapes & set(self._controls.limit):
            active = [run for run in self.runs.all() if run["lifecycleState"] not in ENDED]
            used = sum(
                (run.get("jobInfrastructureConfigurationDetails") or {}).get("shapeName") == shape for run in active
            )
            if used + nodes > self._controls.limit[shape]:
                text = (
                    f"The limit of {self._controls.limit[shape]} for shape {shape} would be exceeded: {used} are in use"
                )
                raise Refusal(400, "LimitExceeded", text)

    def _log(self, wanted: JSON, name: str) -> tuple[str, str] | None:
        if not wanted.get("enableLogging"):
            return None
        group = wanted["logGroupId"]
        if wanted.get("enableAutoLogCreation"):
            return group, self._logs.new_log(group, displayName=name)["id"]
        return group, wanted["logId"]

    def _list_runs(self, request: Request) -> Answer:
        self._tenancy.check_compartment(request.wanted("compartmentId"))
        if "jobId" in request.query:
            self._lateness.check_seen(request.query["jobId"])
        age_s = self._lateness.answer_age()
        told = lambda run: self._lateness.told(run, age_s) if self._lateness.is_listed(run) else None  # noqa: E731
        filters = ("id", "jobId", "compartmentId", "createdBy", "displayName", "lifecycleState")
        return self.runs.list(request, filters, self._controls.page_size, _RUN_SUMMARY.split(), told)

    def _get_run(self, request: Request) -> Answer:
        self._lateness.check_seen(request.names["id"])
        answer = _get(self.runs, request)
        return Answer(self._lateness.told(answer.content, self._lateness.answer_age()), 200, answer.headers)

    def _update_run(self, request: Request) -> Answer:
        body = models.check("UpdateJobRunDetails", request.json())
        with self._lock:
            run = self.runs.matching(request.names["id"], request)
            self.runs.touch(run, **merged(body))
            return self.runs.answer(run)

    def _delete_run(self, request: Request) -> Answer:
        with self._lock:
            run = self.runs.matching(request.names["id"], request)
            if run["lifecycleState"] not in ENDED - {"DELETED"}:
                raise Refusal(409, "IncorrectState", f"The job run is {run['lifecycleState']}")
            self._delete(run)
        return Answer(status=204)

    def _delete(self, run: JSON) -> None:
        self._lateness.note(run, lifecycleState="DELETED")
        self.runs.touch(run)

    def _cancel_run(self, request: Request) -> Answer:
        with self._lock:
            self._lateness.check_seen(request.names["id"])
            run = self.runs.matching(request.names["id"], request)
            if run["lifecycleState"] not in {"ACCEPTED", "IN_PROGRESS", "NEEDS_ATTENTION"}:
                if "errors-cancel" in self._controls.flipped:
                    return Answer(status=204)
                raise Refusal(409, "IncorrectState", f"The job run is {run['lifecycleState']} and cannot be canceled")
            self._runner.lives[run["id"]].cancel()
        return Answer(status=204)

    def _list_shapes(self, request: Request) -> Answer:
        self._tenancy.check_compartment(request.wanted("compartmentId"))
        return Answer(
            [
                {"name": name, "coreCount": cores, "memoryInGBs": memory, "shapeSeries": series}
                for name, (cores, memory, series) in _SHAPES.items()
                if name != "VM.GPU2.1" or "shapes-table" not in self._controls.flipped
            ]
        )

    def _list_fast(self, request: Request) -> Answer:
        self._tenancy.check_compartment(request.wanted("compartmentId"))
        return Answer(
            [
                {
                    "name": name,
                    "shapeName": name,
                    "coreCount": cores,
                    "memoryInGBs": memory,
                    "shapeSeries": series,
                    "managedEgressSupport": "SUPPORTED",
                }
                for name, (cores, memory, series) in _SHAPES.items()
                if name in _FAST
            ]
        )


def _check_infrastructure(infrastructure: JSON, prefix: str, flipped: Collection[str], tenancy: Tenancy) -> None:
    if infrastructure.get("subnetId"):
        tenancy.subnets.get(infrastructure["subnetId"])
    shape = infrastructure.get("shapeName")
    if shape is not None and shape not in _SHAPES:
        if "errors-invalid" in flipped:
            raise Refusal(404, "NotAuthorizedOrNotFound", f"Shape {shape} not found")
        raise invalid(f"{prefix}shapeName '{shape}' is not a shape for jobs")
    if "flex-config" not in flipped:
        asked.check_shape(infrastructure, prefix)
    least = 0 if "storage-bounds" in flipped else 50
    if not least <= infrastructure.get("blockStorageSizeInGBs", least) <= 10240:
        raise invalid(f"{prefix}blockStorageSizeInGBs must be between {least} and 10240")


def _delete_later(jobs: Shelf, job: JSON) -> None:
    jobs.touch(job, lifecycleState="DELETING")
    threading.Timer(2, jobs.touch, [job], {"lifecycleState": "DELETED"}).start()


def _get(shelf: Shelf, request: Request) -> Answer:
    return shelf.answer(shelf.get(request.names["id"]))


def _configured(*parts: JSON | None) -> JSON:
    """Return job configurations as one; a later one wins, its variables one by one."""
    variables = merged(*((part or {}).get("environmentVariables") for part in parts))
    return {**merged(*parts), "environmentVariables": variables}


def _groups(job: JSON, run: JSON) -> list[Group]:
    """Return the node groups of a run of a job."""
    container = merged(
        job.get("jobEnvironmentConfigurationDetails"), run.get("jobEnvironmentConfigurationOverrideDetails")
    )
    parts = job.get("jobConfigurationDetails"), run.get("jobConfigurationOverrideDetails")
    node = job.get("jobNodeConfigurationDetails")
    if not node:
        return [Group("", 1, 1, container, _configured(*parts))]
    wanted = _by_name(node)
    override = _by_name(run.get("jobNodeConfigurationOverrideDetails") or {})
    if unknown := set(override) - set(wanted):
        raise invalid(f"The job has no node group {', '.join(sorted(unknown))}")
    found = []
    for name, group in wanted.items():
        other: dict[str, Any] = override.get(name, {})
        replicas = merged(group, other).get("replicas") or 1
        own = (part.get("jobConfigurationDetails") for part in (group, other))
        image = (part.get("jobEnvironmentConfigurationDetails") for part in (group, other))
        minimum = merged(group, other).get("minimumSuccessReplicas") or replicas
        if minimum > replicas:
            raise invalid(f"minimumSuccessReplicas of node group {name} exceeds its replicas")
        found.append(Group(name, replicas, minimum, merged(container, *image), _configured(*parts, *own)))
    return found


def _by_name(node: JSON) -> dict[str, JSON]:
    return {group["name"]: group for group in node.get("jobNodeGroupConfigurationDetailsList") or []}
