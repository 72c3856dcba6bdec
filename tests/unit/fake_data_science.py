"""Data Science as one launcher sees it: Jobs and Job Runs in memory, and every request can go wrong."""

from __future__ import annotations

import datetime
import itertools
import threading
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import oci

from oci_cluster.backends.oci.service import Service

COMPARTMENT = "ocid1.compartment.oc1..aaaacompartment"
PROJECT = "ocid1.datascienceproject.oc1.iad.aaaaproject"


class Response:
    """What a client of the SDK returns."""

    def __init__(self, data: Any, next_page: str | None = None) -> None:
        self.data = data
        self.next_page = next_page
        self.has_next_page = next_page is not None
        self.headers: dict[str, str] = {}


def refusal(status: int, code: str = "Code", message: str = "the service's words", **headers: str) -> Exception:
    """Return what the SDK raises where a service refuses."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return oci.exceptions.ServiceError(status, code, {"opc-request-id": "REQ", **named}, message)


def silence() -> Exception:
    """Return what the SDK raises where nobody answers."""
    return oci.exceptions.RequestException("Read timed out")


class Fault:
    """One thing that goes wrong: a request is refused, or not answered whether it is done or not."""

    def __init__(self, error: Exception, *, is_done: bool = False, after: int = 0, times: int = 1) -> None:
        self.error = error
        self.is_done = is_done
        self.after = after
        self.times = times


class DataScience:
    """Jobs and Job Runs of one compartment, in memory; every request can go wrong, and be seen when it is made."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._tokens: dict[str, Any] = {}
        self.jobs: dict[str, SimpleNamespace] = {}
        self.runs: dict[str, SimpleNamespace] = {}
        # Bodies of requests that were done, and the names of all that were made.
        self.created: list[dict[str, Any]] = []
        self.requests: list[str] = []
        self.faults: dict[str, Fault] = {}
        # Called before each request with its name: stops, and what else happens meanwhile.
        self.on_request: Callable[[str], object] = lambda _: None
        self.page_size = 2
        # Until then, by the clock, a list does not hold what has just been created.
        self.lag_s = 0.0
        # How often a run is looked at until a cancel has been done.
        self.cancel_takes = 1

    # --- The client's methods ------------------------------------------------------------------------------

    def list_jobs(
        self, compartment: str, *, lifecycle_state: str = "", display_name: str = "", page: str = "0", **others: str
    ) -> Response:
        assert compartment == COMPARTMENT
        return self._ask(
            "list_jobs",
            lambda: self._page(
                [
                    job
                    for job in self._listed(self.jobs)
                    if lifecycle_state in {"", job.lifecycle_state}
                    and display_name in {"", job.display_name}
                    and others.get("id", job.id) == job.id
                ],
                page,
            ),
        )

    def get_job(self, ocid: str) -> Response:
        return self._ask("get_job", lambda: Response(self._found(self.jobs, ocid)))

    def create_job(self, body: Mapping[str, Any], *, opc_retry_token: str) -> Response:
        return self._ask("create_job", lambda: self._create_job(body, opc_retry_token))

    def delete_job(self, ocid: str, *, delete_related_job_runs: bool) -> Response:
        assert delete_related_job_runs
        return self._ask("delete_job", lambda: self._delete_job(ocid))

    def list_job_runs(self, compartment: str, *, job_id: str = "", page: str = "0") -> Response:
        assert compartment == COMPARTMENT
        return self._ask("list_job_runs", lambda: self._page(self._look(job_id), page))

    def get_job_run(self, ocid: str) -> Response:
        return self._ask("get_job_run", lambda: self._get_run(ocid))

    def create_job_run(self, body: Mapping[str, Any], *, opc_retry_token: str) -> Response:
        return self._ask("create_job_run", lambda: self._create_run(body, opc_retry_token))

    def cancel_job_run(self, ocid: str) -> Response:
        return self._ask("cancel_job_run", lambda: self._cancel(ocid))

    # --- What a test does to it ----------------------------------------------------------------------------

    def fail(self, request: str, error: Exception, *, is_done: bool = False, after: int = 0, times: int = 1) -> None:
        """Have a *request* fail, once *after* others of its kind have passed, so many *times*."""
        self.faults[request] = Fault(error, is_done=is_done, after=after, times=times)

    def end(self, node: str, state: str, details: str = "") -> None:
        """Have the last run of a *node* end."""
        run = [run for run in self.runs.values() if run.freeform_tags.get("oci-cluster-node") == node][-1]
        run.lifecycle_state, run.lifecycle_details = state, details
        if state in {"IN_PROGRESS", "SUCCEEDED", "CANCELED"} or "exit code" in (details or ""):
            run.time_started = run.time_accepted

    def begin(self, *nodes: str) -> None:
        """Have *nodes*, or all that wait, get their hosts."""
        for run in self.runs.values():
            if run.lifecycle_state == "ACCEPTED" and (not nodes or run.freeform_tags.get("oci-cluster-node") in nodes):
                run.lifecycle_state, run.time_started = "IN_PROGRESS", run.time_accepted

    def nodes(self) -> list[str]:
        """Return the names of the nodes that have not ended."""
        going = [run for run in self.runs.values() if run.lifecycle_state in {"ACCEPTED", "IN_PROGRESS", "CANCELING"}]
        return sorted(str(run.freeform_tags.get("oci-cluster-node", "?")) for run in going)

    def add_job(self, **fields: Any) -> SimpleNamespace:
        """Have a Job, however it was made."""
        number = next(self._numbers)
        job = SimpleNamespace(
            **{
                "id": f"ocid1.datasciencejob.oc1.iad.job{number}",
                "compartment_id": COMPARTMENT,
                "project_id": PROJECT,
                "display_name": "mine",
                "lifecycle_state": "ACTIVE",
                "freeform_tags": {},
                "time_created": datetime.datetime(2026, 1, 2, 3, 4, number % 60, tzinfo=datetime.timezone.utc),
                "job_configuration_details": None,
                "job_node_configuration_details": None,
                "seen_from": self._clock() + self.lag_s,
                **fields,
            }
        )
        self.jobs[job.id] = job
        return job

    def add_run(self, job: str, **fields: Any) -> SimpleNamespace:
        """Have a Job Run, however it was made."""
        number = next(self._numbers)
        run = SimpleNamespace(
            **{
                "id": f"ocid1.datasciencejobrun.oc1.iad.run{number:06}",
                "job_id": job,
                "lifecycle_state": "ACCEPTED",
                "lifecycle_details": None,
                "freeform_tags": {},
                "time_accepted": datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc)
                + datetime.timedelta(seconds=number),
                "seen_from": self._clock() + self.lag_s,
                "looks_to_end": 0,
                "time_started": None,
                **fields,
            }
        )
        self.runs[run.id] = run
        return run

    # --- How it does it ------------------------------------------------------------------------------------

    def _ask(self, request: str, answer: Callable[[], Response]) -> Response:
        with self._lock:
            self.requests.append(request)
            self.on_request(request)
            fault = self.faults.get(request)
            if fault is None or fault.times <= 0:
                return answer()
            if fault.after > 0:
                fault.after -= 1
                return answer()
            fault.times -= 1
            if fault.is_done:
                answer()
            raise fault.error

    def _listed(self, things: Mapping[str, SimpleNamespace]) -> list[SimpleNamespace]:
        return [thing for thing in things.values() if thing.seen_from <= self._clock()]

    def _page(self, items: list[Any], page: str) -> Response:
        start = int(page)
        end = start + self.page_size
        return Response(items[start:end], str(end) if end < len(items) else None)

    def _found(self, things: Mapping[str, SimpleNamespace], ocid: str) -> SimpleNamespace:
        if ocid not in things:
            raise refusal(404, "NotAuthorizedOrNotFound")
        return things[ocid]

    def _create_job(self, body: Mapping[str, Any], token: str) -> Response:
        if token in self._tokens:
            return Response(self._tokens[token])
        self.created.append(dict(body))
        details = body.get("jobConfigurationDetails")
        groups = body.get("jobNodeConfigurationDetails", {}).get("jobNodeGroupConfigurationDetailsList", [])
        listed = [
            SimpleNamespace(
                job_configuration_details=SimpleNamespace(
                    environment_variables=group["jobConfigurationDetails"]["environmentVariables"]
                )
            )
            for group in groups
        ]
        job = self.add_job(
            display_name=body["displayName"],
            freeform_tags=body["freeformTags"],
            job_configuration_details=details
            and SimpleNamespace(environment_variables=details["environmentVariables"]),
            job_node_configuration_details=listed and SimpleNamespace(job_node_group_configuration_details_list=listed),
        )
        self._tokens[token] = job
        return Response(job)

    def _create_run(self, body: Mapping[str, Any], token: str) -> Response:
        self._found(self.jobs, body["jobId"])
        if token not in self._tokens:
            self.created.append(dict(body))
            self._tokens[token] = self.add_run(body["jobId"], freeform_tags=body["freeformTags"])
        return Response(self._tokens[token])

    def _look(self, job: str) -> list[SimpleNamespace]:
        for run in self.runs.values():
            if run.lifecycle_state == "CANCELING":
                run.looks_to_end -= 1
                if run.looks_to_end <= 0:
                    run.lifecycle_state = "CANCELED"
        return [_summary(run) for run in self._listed(self.runs) if job in {"", run.job_id}]

    def _get_run(self, ocid: str) -> Response:
        self._look("")
        return Response(SimpleNamespace(**vars(self._found(self.runs, ocid))))

    def _cancel(self, ocid: str) -> Response:
        run = self._found(self.runs, ocid)
        if run.lifecycle_state not in {"ACCEPTED", "IN_PROGRESS", "NEEDS_ATTENTION"}:
            raise refusal(409, "IncorrectState")
        run.lifecycle_state, run.looks_to_end = "CANCELING", self.cancel_takes
        return Response(None)

    def _delete_job(self, ocid: str) -> Response:
        self._found(self.jobs, ocid)
        if any(
            run.job_id == ocid and run.lifecycle_state not in {"SUCCEEDED", "FAILED", "CANCELED", "DELETED"}
            for run in self.runs.values()
        ):
            raise refusal(409, "IncorrectState")
        del self.jobs[ocid]
        for run in [run for run in self.runs.values() if run.job_id == ocid]:
            del self.runs[run.id]
        return Response(None)


def _summary(run: SimpleNamespace) -> SimpleNamespace:
    """Return what a list tells of a run, as it is now."""
    return SimpleNamespace(**{name: value for name, value in vars(run).items() if name != "node_group_details_list"})


class FakeService(Service):
    """The service of a launcher, with this Data Science in the place of OCI's."""

    def __init__(self, science: DataScience, *, is_stopped: Callable[[], bool], clock: Any) -> None:
        super().__init__({}, is_stopped=is_stopped, clock=clock, sleep=clock.sleep)
        self.clients[oci.data_science.DataScienceClient] = science
        self.__dict__["identity"] = ({"region": "us-ashburn-1"}, None)
        self.science = science
        self.looked_up: list[str] = []

    def subnet_cidr(self, subnet: str) -> str:
        """Return what every subnet has here."""
        self.looked_up.append(subnet)
        return "10.0.0.0/24"
