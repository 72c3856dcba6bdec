"""Jobs and Job Runs of one compartment, as requests to Data Science."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

from oci_cluster.backends.base import IsStopped
from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.backends.oci.jobs import states
from oci_cluster.backends.oci.jobs.requests import JSON, TAG_LAUNCH
from oci_cluster.contract.storage.retry import poll_delays
from oci_cluster.errors import BackendError, SettingsError, StoppedError

if TYPE_CHECKING:
    from oci_cluster.backends.oci.service import Service

# Requests at once. The design's measurement: with 200 ms each, 100 runs were made in 3.5 s on 8 threads.
_AT_ONCE = 8
# A run that is told to end has its agent's grace, then the service's own time to take it down.
_END_TIMEOUT_S = 300.0
# How long the Job of a launch whose creation was not answered is looked for.
_APPEARS_S = 10.0
# Refusals of what needs a thing that has just been created, and is not ready.
_JUST_NOW = ("IncorrectState", "Conflict")
# How long what has been made may be refused as unknown, and be missing in lists. OCI promises nothing here. Its own
# Terraform provider repeats a 404 for two minutes (shortRetryTime in provider/retry.go), and so does this.
SETTLES_S = 120.0


def _stage(run: Any) -> int:
    """Return how far *run* has come: it never comes back to an earlier stage."""
    word = states.word_of(run)
    if word in states.ENDED:
        return 3
    if word == "CANCELING":
        return 2
    has_started = getattr(run, "time_started", None) is not None
    return 0 if word in {"ACCEPTED", "NEEDS_ATTENTION"} and not has_started else 1


class Seen:
    """The latest state of each run, and since when no list has had it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._runs: dict[str, Any] = {}
        self._missing_since: dict[str, float] = {}

    def furthest(self, run: Any) -> Any:
        """Return *run*, or a later state of it that was told before."""
        known = self._runs.get(run.id)
        # How it has ended, stays: a deleted run has still succeeded.
        has_another_end = known is not None and _stage(known) == 3 and known.lifecycle_state != run.lifecycle_state
        if known is None or (_stage(run) >= _stage(known) and not has_another_end):
            self._runs[run.id] = run
        return self._runs[run.id]

    def told(self, job: str, listed: Sequence[Any]) -> list[Any]:
        """Return the runs of *job*: those *listed* now or before, at their latest."""
        found = [self.furthest(run) for run in listed]
        there = {run.id for run in found}
        found += [run for run in self._runs.values() if run.job_id == job and run.id not in there]
        return found

    def missing_s(self, run: str, *, is_listed: bool) -> float:
        """Return for how long no list has had *run*, an OCID."""
        if is_listed:
            self._missing_since.pop(run, None)
            return 0.0
        return self._clock() - self._missing_since.setdefault(run, self._clock())

    def forget(self, run: str) -> None:
        """Count *run* as gone."""
        self._runs.pop(run, None)


class Jobs:
    """The Jobs of one *compartment*, empty where nobody has named one, and their runs."""

    def __init__(
        self,
        compartment: str,
        open_service: Callable[[], Service],
        *,
        is_stopped: IsStopped = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.compartment = compartment
        self._open_service = open_service
        self._is_stopped = is_stopped
        self._clock = clock
        self._sleep = sleep
        self._created: dict[str, dict[str, str]] = {}
        self._seen = Seen(clock)
        # When each Job was made, by this launcher's clock; and Jobs whose end has been answered.
        self._made_at: dict[str, float] = {}
        self._deleted: set[str] = set()
        # Jobs that OCI has known when it was asked for them or for their runs.
        self._known: set[str] = set()

    @cached_property
    def service(self) -> Service:
        """OCI's services, with the identity of this launcher."""
        return self._open_service()

    # --- What there is -------------------------------------------------------------------------------------

    def check_compartment(self) -> None:
        """Raise SettingsError where nobody has named a compartment."""
        if not self.compartment:
            raise SettingsError(
                "COMPARTMENT_OCID is not set; set it to the compartment of the clusters (config.env.example)"
            )

    def listed(self, **wanted: str) -> list[Any]:
        """Return the Jobs that are clusters; *wanted* are parameters of the list."""
        self.check_compartment()
        client = self.service.data_science
        listed = self.service.all_pages("list the Jobs", client.list_jobs, self.compartment, **wanted)
        found = [job for job in listed if states.is_cluster(job)]
        for job in found:
            self._made_at.setdefault(job.id, self._clock() - states.age_s(job))
        return found

    def is_settling(self, job: str) -> bool:
        """Return whether *job* is new, and may not be known everywhere."""
        return self._clock() < self._settles_at(job)

    def _settles_at(self, job: str) -> float:
        return self._made_at.get(job, -SETTLES_S) + SETTLES_S

    def get(self, job: str, name: str) -> Any:
        """Return the whole *job*, an OCID, of the cluster *name*."""
        get = self.service.data_science.get_job
        return self.service.call(f"look at {name}", get, job, not_seen_until=self._settles_at(job)).data

    def run(self, run: str) -> Any | None:
        """Return the whole *run*, an OCID; None where it is not there."""
        try:
            whole = self.service.call("look at a Job Run", self.service.data_science.get_job_run, run).data
        except ServiceError as error:
            if error.status != 404:
                raise
            return None
        return self._seen.furthest(whole)

    def run_of_groups(self, job: str) -> list[Any]:
        """Return the run that this launcher made in *job*: lists tell no groups."""
        created = list(self.created(job).values())
        run = self.run(created[0]) if created else None
        return [] if run is None else [run]

    def runs(self, job: str = "") -> list[Any]:
        """Return the runs of *job*, or of the compartment: each in its latest state.

        A run that a list has had, and the next one has not, is still there, unless the service does not know it.
        """
        listed = self._listed_runs(job)
        if not job:
            return [self._seen.furthest(run) for run in listed]
        there = {run.id for run in listed}
        found = self._seen.told(job, listed)
        known = [*(run.id for run in found), *self._created.get(job, {}).values()]
        for run in dict.fromkeys(known):
            if self._seen.missing_s(run, is_listed=run in there) > SETTLES_S:
                found = self._looked_for(run, found)
        return found

    def _looked_for(self, run: str, found: Sequence[Any]) -> list[Any]:
        """Return *found* with the present state of *run*, or without it."""
        others = [other for other in found if other.id != run]
        self._seen.missing_s(run, is_listed=True)  # as often as this it is asked for
        if (whole := self.run(run)) is not None:
            return [*others, whole]
        self._seen.forget(run)
        for created in self._created.values():
            for node in [node for node, its_run in created.items() if its_run == run]:
                del created[node]
        return others

    def _listed_runs(self, job: str) -> list[Any]:
        wanted = {"job_id": job} if job else {}
        client = self.service.data_science
        try:
            return self.service.all_pages("list the Job Runs", client.list_job_runs, self.compartment, **wanted)
        except ServiceError as error:
            if error.status == 404 and self.is_settling(job):  # it has runs all the same, see created()
                return []
            raise

    def created(self, job: str) -> Mapping[str, str]:
        """Return the runs that this launcher created in *job*, which lists may lack."""
        return self._created.get(job, {})

    # --- What is made --------------------------------------------------------------------------------------

    def create(self, body: JSON, launch_id: str) -> str:
        """Create the Job of a launch; return its OCID."""
        create = self.service.data_science.create_job
        response = self.service.call("create the Job", create, body, opc_retry_token=f"{launch_id}-job")
        job = str(response.data.id)
        self._made_at[job] = self._clock()
        return job

    def create_runs(self, job: str, bodies: Mapping[str, JSON], launch_id: str, *, incarnation: int = 0) -> None:
        """Create a run for each node in *bodies*; a failure ends the rest.

        Two runs of the same node differ by *incarnation*.
        """
        created = self._created.setdefault(job, {})
        failed: list[BaseException] = []

        def create(node: str) -> None:
            if failed or self._is_stopped():
                return
            try:
                response = self.service.call(
                    f"create the Job Run of {node}",
                    self.service.data_science.create_job_run,
                    {"jobId": job, **bodies[node]},
                    # The same for all tries: however often an answer is lost, there is one run of this incarnation.
                    opc_retry_token=f"{launch_id}-{node}-{incarnation}",
                    repeat_also=_JUST_NOW,
                    not_seen_until=self._settles_at(job),
                )
                created[node] = str(response.data.id)
                self._known.add(job)
            except BaseException as error:
                failed.append(error)
                raise

        first, *others = bodies
        create(first)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in pool.map(create, others):
                pass
        self.stop_if_told()

    def stop_if_told(self) -> None:
        """Raise StoppedError where the launcher has been told to stop."""
        if self._is_stopped():
            raise StoppedError("stopped before all nodes were started")

    # --- What is ended -------------------------------------------------------------------------------------

    def cancel(self, runs: Sequence[Any]) -> int:
        """End those of *runs* that go on; return how many these are."""
        going = [run for run in runs if states.is_going(run)]
        self.cancel_runs([run.id for run in going if run.lifecycle_state != "CANCELING"])
        return len(going)

    def cancel_runs(self, runs: Sequence[str]) -> None:
        """End *runs*, OCIDs; those that have ended are no error."""

        def cancel(run: str) -> None:
            try:
                self.service.call("cancel a Job Run", self.service.data_science.cancel_job_run, run)
            except ServiceError as error:
                if error.status not in {404, 409}:  # it has ended meanwhile
                    raise

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(cancel, runs))

    def end_runs(self, job: str) -> None:
        """Cancel every run of *job*, and wait until all have ended."""
        self._cancel_until(job, lambda: True)

    def remove(self, job: str) -> None:
        """End every run of *job*, and delete it if it is there."""
        if job not in self._deleted:
            self._cancel_until(job, lambda: self._delete(job))
            self._deleted.add(job)

    def _cancel_until(self, job: str, is_done: Callable[[], bool]) -> None:
        """End every run of *job*, until all have ended and then *is_done*."""
        deadline = self._clock() + _END_TIMEOUT_S
        for delay in poll_delays(5.0, first_s=0.5):
            listed = [self._seen.furthest(run) for run in self._listed_runs(job)]
            there = {run.id for run in listed}
            self.cancel_runs([run for run in self.created(job).values() if run not in there])
            if not self.cancel(listed) and is_done():
                return
            if self._clock() > deadline:
                raise BackendError(f"its runs have not ended within {_END_TIMEOUT_S:g} s")
            self._sleep(delay)

    def remove_of_launch(self, name: str, launch_id: str) -> bool:
        """Remove a launch's Job *name*, which may appear late; return whether it did."""
        deadline = self._clock() + _APPEARS_S
        for delay in poll_delays(5.0, first_s=0.5):
            own = [job for job in self.listed(display_name=name) if job.freeform_tags[TAG_LAUNCH] == launch_id]
            for job in own:
                self.remove(job.id)
            if own:
                return True
            if self._clock() > deadline:
                break
            self._sleep(delay)
        return False

    def _delete(self, job: str) -> bool:
        client = self.service.data_science
        try:
            self.service.call("delete the Job", client.delete_job, job, delete_related_job_runs=True)
        except ServiceError as error:
            if error.status == 409:  # a run that was created late: it is in the next list
                return False
            if error.status != 404:
                raise
            # Said of what is gone, of what may not be deleted, and of what was made just now.
            listed = self.service.all_pages("list the Jobs", client.list_jobs, self.compartment, id=job)
            if is_listed := any(not states.is_gone(found) for found in listed):
                self._known.add(job)
            if self.is_settling(job):
                return job in self._known and not is_listed
            if is_listed:
                raise
        return True
