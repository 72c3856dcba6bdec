"""The tenancy that is asked: what the ladder makes there, what its nodes tell, and that nothing of it stays."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import fsspec
import oci

from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.backends.oci.jobs import requests
from oci_cluster.backends.oci.jobs.client import Jobs
from oci_cluster.backends.oci.service import Service
from oci_cluster.backends.oci.tenancy.requirements import at
from oci_cluster.contract.cluster import Plan
from oci_cluster.contract.parsers import parse_network
from oci_cluster.errors import ClusterError, StoppedError
from smoke_oci.prices import MINUTES, PROVISIONING_MINUTES

JSON = dict[str, Any]
# On all that is made: who has started the ladder, and which time it was. A second start finds it by that.
TAG, TAG_OWNER = "oci-cluster-smoke", "oci-cluster-smoke-owner"
ENDED = {"SUCCEEDED", "FAILED", "CANCELED", "DELETED"}
_RUN = re.compile(r"smoke-[0-9a-f]{8}")
_BOOT = "import base64,os,zlib;exec(zlib.decompress(base64.b64decode(os.environ['SMOKE_PROGRAM'])))"
_PROGRAM = base64.b64encode(zlib.compress((Path(__file__).parent / "inside.py").read_bytes(), 9)).decode()


class Refused(Exception):  # noqa: N818 - an answer
    """The service has refused what was asked: its status, its code, and the request's id."""

    def __init__(self, error: ServiceError) -> None:
        super().__init__(str(error))
        self.status, self.code = error.status, error.code
        found = re.search(r", request ([^)]*)\)", str(error))
        self.request_id = found[1] if found else ""


def _seen(ask: Callable[[], Any]) -> Any:
    """Return the response; None for what is not there, or may not be seen."""
    try:
        return ask()
    except Refused as refused:
        if refused.status != 404:
            raise
        return None


class Tenancy:
    """One tenancy, as the settings of a launch name it."""

    def __init__(
        self,
        service: Service,
        plan: Plan,
        settings: Mapping[str, Any],
        root: Path,
        *,
        name: str,
        owner: str,
        is_stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Ask *service* for what a launch of *plan* with these *settings* would make.

        Args:
            service: OCI's services.
            plan: What the ladder's Jobs are made of; nobody launches it.
            settings: Its settings for the backend, checked.
            root: The checkout.
            name: This ladder's, ``smoke-<8 hex digits>``.
            owner: Who has started it.
            is_stopped: Whether no more is wanted.
            clock: Monotonic seconds.
            sleep: Waits seconds.
        """
        self.service = service
        self.settings = settings
        self.name = name
        self._plan = replace(plan, environment={})
        self._root = root
        self._owner = owner
        self._is_stopped = is_stopped
        self._clock = clock
        self._sleep = sleep
        self._jobs = Jobs(settings["compartment"], lambda: service, is_stopped=is_stopped, clock=clock, sleep=sleep)
        self._work_dir = plan.work_dir.rstrip("/")

    # --- What is sent --------------------------------------------------------------------------------------

    def ask(self, what: str, request: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the response to a request of the SDK; see :meth:`Service.call`.

        Raises:
            Refused: the service has answered that it does not do that.
        """
        try:
            return self.service.call(what, request, *args, **kwargs)
        except ServiceError as error:
            if error.is_final:
                raise Refused(error) from error
            raise

    def body(self, job: str, program: str = "", **changes: JSON) -> JSON:
        """Return the body that makes a Job whose nodes run a *program* of inside.py.

        *changes* win, by part and field; None is no field.
        """
        self._check_going()
        made = requests.job(self._plan, {**self.settings, "style": "runs", "mounts": []}, self._root)
        made |= {"displayName": f"{self.name}-{job}", "freeformTags": self._tags()}
        configuration = {
            "jobType": "DEFAULT",
            "environmentVariables": self.variables(program, job),
            "maximumRuntimeInMinutes": MINUTES,
        }
        made["jobConfigurationDetails"] = configuration
        made["jobEnvironmentConfigurationDetails"] |= self.command()
        for part, change in changes.items():
            new = {**made.get(part, {}), **change}
            made[part] = {field: value for field, value in new.items() if value is not None}
        return made

    def groups_body(self, job: str, program: str, ready_s: float) -> JSON:
        """Return the body that makes a Job of main and two workers, whose nodes run a *program*."""
        self._check_going()
        settings = {**self.settings, "style": "multinode", "mounts": [], "max_runtime_minutes": MINUTES}
        made = requests.job(self._plan, settings, self._root)
        made |= {"displayName": f"{self.name}-{job}", "freeformTags": self._tags()}
        for group in made["jobNodeConfigurationDetails"]["jobNodeGroupConfigurationDetailsList"]:
            configuration = group["jobConfigurationDetails"]
            variables = {**self.variables(program, group["name"], job), "SMOKE_READY_S": f"{ready_s:g}"}
            configuration["environmentVariables"] = variables
            if "startupProbeDetails" in configuration:
                command = ["/bin/sh", "-c", 'test -e "${TMPDIR:-/tmp}/smoke-ready"']
                configuration["startupProbeDetails"]["command"] = command
            group["jobEnvironmentConfigurationDetails"] |= self.command()
            group["minimumSuccessReplicas"] = 1
        return made

    def variables(self, program: str, node: str, folder: str = "") -> dict[str, str]:
        """Return what a node is given that is called *node* and tells in *folder*; without one in that of its name."""
        if not program:
            return {}
        cidr = {"SUBNET_CIDR": self.cidr} if self.cidr else {}
        return {
            "SMOKE_PROGRAM": _PROGRAM,
            "SMOKE_URL": f"{self._work_dir}/{self.name}/{folder or node}",
            "SMOKE_DO": program,
            "SMOKE_NAME": node,
            **cidr,
        }

    @property
    def cidr(self) -> str:
        """The blocks of the subnet, with commas between; empty where there is none."""
        if given := self._plan.settings["SUBNET_CIDR"]:
            return parse_network(given)
        if not self.settings["subnet"]:
            return ""
        return self.service.subnet_cidr(self.settings["subnet"])

    @staticmethod
    def command(*entrypoint: str) -> JSON:
        """Return how a container runs the program that it is sent, by itself or as *entrypoint*."""
        return {"entrypoint": [*entrypoint]} if entrypoint else {"entrypoint": ["python"], "cmd": ["-c", _BOOT]}

    @staticmethod
    def arguments(*more: str) -> str:
        """Return commandLineArguments that make an image's own entrypoint run the program that it is sent."""
        return " ".join(["python", "-c", f'"{_BOOT}"', *(f"'{word}'" for word in more)])

    def _tags(self) -> dict[str, str]:
        return {TAG: self.name, TAG_OWNER: self._owner}

    def create_job(self, body: JSON, token: str = "") -> Any:
        """Create a Job; return the response."""
        token = token or body["displayName"]
        return self.ask("create a Job", self.service.data_science.create_job, body, opc_retry_token=token)

    def create_run(self, job: str, **changes: Any) -> Any:
        """Create a run of *job*, an OCID; return the response."""
        self._check_going()
        where = {"compartmentId": self.settings["compartment"], "projectId": self.settings["project"]}
        body = {**where, "jobId": job, "displayName": self.name, "freeformTags": self._tags(), **changes}
        create = self.service.data_science.create_job_run
        codes = ("IncorrectState", "Conflict")  # a Job that has just been created
        return self.ask("create a Job Run", create, body, repeat_also=codes)

    def cancel(self, run: str) -> Any:
        """Have *run*, an OCID, be ended; return the response."""
        return self.ask("cancel a Job Run", self.service.data_science.cancel_job_run, run)

    # --- A bucket, and a policy about it: both are called as this ladder, and found by that --------------------

    @property
    def root(self) -> str:
        """The OCID of the tenancy."""
        config, signer = self.service.identity
        return str(config.get("tenancy") or getattr(signer, "tenancy_id", ""))

    @cached_property
    def _home(self) -> Any:
        """Identity in the home region, where alone policies can be changed."""
        identity = self.service.client_of(oci.identity.IdentityClient)
        regions = self.ask("look up the home region", identity.list_region_subscriptions, self.root).data
        home = next(str(one.region_name) for one in regions if one.is_home_region)
        return Service({**self.service.environ, "OCI_CLI_REGION": home}).client_of(oci.identity.IdentityClient)

    @cached_property
    def _storage(self) -> tuple[Any, str]:
        """The client of Object Storage, and the namespace."""
        storage = self.service.client_of(oci.object_storage.ObjectStorageClient)
        return storage, str(self.ask("look up the namespace", storage.get_namespace).data)

    def create_bucket(self) -> None:
        """Make an empty bucket."""
        storage, namespace = self._storage
        body = {"compartmentId": self.settings["compartment"], "name": self.name, "freeformTags": self._tags()}
        self.ask("make a bucket", storage.create_bucket, namespace, body)

    def put_lifecycle(self, body: JSON) -> Any:
        """Give that bucket a lifecycle policy; return the response."""
        storage, namespace = self._storage
        return self.ask("put a lifecycle policy", storage.put_object_lifecycle_policy, namespace, self.name, body)

    def create_policy(self, statement: str) -> Any:
        """Make a policy of one *statement*, which has places for the compartment and that bucket."""
        self._check_going()
        where = at(self.settings["compartment"])
        body = {
            "compartmentId": self.settings["compartment"],
            "name": self.name,
            "description": "made by make smoke-oci; it may be deleted",
            "statements": [statement.format(where, self.name)],
            "freeformTags": self._tags(),
        }
        return self.ask("make a policy", self._home.create_policy, body)

    def _remove_policy(self, name: str) -> None:
        """Remove what the ladder *name* has left of these; who may not see them has made none.

        Raises:
            Refused: one of them is there, and must not be deleted.
        """
        storage, namespace = self._storage
        compartment = self.settings["compartment"]
        if _seen(lambda: self.ask("look up a bucket", storage.get_bucket, namespace, name)):
            self.ask("delete a bucket", storage.delete_bucket, namespace, name)
        listed = _seen(lambda: self.ask("list policies", self._home.list_policies, compartment, name=name))
        for policy in listed.data if listed else ():
            self.ask("delete a policy", self._home.delete_policy, policy.id)

    # --- What is seen --------------------------------------------------------------------------------------

    def _check_going(self) -> None:
        if self._is_stopped():
            msg = "stopped; removing what was made"
            raise StoppedError(msg)

    def until(self, what: Callable[[], Any], minutes: float = MINUTES + PROVISIONING_MINUTES) -> Any:
        """Return what *what* returns, as soon as that is something; None where it is nothing for so many *minutes*."""
        give_up_at = self._clock() + minutes * 60
        while True:
            self._check_going()
            if found := what():
                return found
            if self._clock() >= give_up_at:
                return None
            self._sleep(1.0)

    def run(self, run: str) -> Any:
        """Return the response that has *run*, an OCID."""
        return self.ask("look at a Job Run", self.service.data_science.get_job_run, run)

    def ended(self, run: str) -> Any:
        """Return the response that has *run*, an OCID, when it has ended; None where it does not."""

        def look() -> Any:
            response = self.run(run)
            return response if response.data.lifecycle_state in ENDED else None

        return self.until(look)

    def told(self, folder: str, node: str = "") -> list[JSON]:
        """Return what nodes have told in a *folder* of this ladder's, or those that are called *node*."""
        files, path = fsspec.url_to_fs(f"{self._work_dir}/{self.name}/{folder}")
        files.invalidate_cache()
        try:
            names = files.ls(path, detail=False)
            facts = [json.loads(files.cat_file(name)) for name in names if name.endswith(".json")]
        except (FileNotFoundError, ValueError):
            return []
        return [found for found in facts if node in {"", found["name"]}]

    # --- What is left --------------------------------------------------------------------------------------

    def left(self) -> Iterator[tuple[str, str]]:
        """Yield the Jobs of this and earlier ladders of this owner that are there, with their ladder's name."""
        client = self.service.data_science
        for job in self.service.all_pages("list the Jobs", client.list_jobs, self.settings["compartment"]):
            tags = job.freeform_tags or {}
            is_own = tags.get(TAG_OWNER) == self._owner and _RUN.fullmatch(tags.get(TAG, ""))
            if is_own and job.lifecycle_state not in {"DELETING", "DELETED"}:
                yield str(job.id), tags[TAG]

    def remove(self, say: Callable[[str], object]) -> list[str]:
        """Remove what this and earlier ladders of this owner have left; return what could not be removed."""
        failed, cleared = list[str](), set[str]()
        with self._jobs.service.cleaning_up():
            found = list(self.left())
            for job, _ in found:
                with contextlib.suppress(ClusterError):  # all end side by side; what does not is seen below
                    self._jobs.cancel(self._jobs.runs(job))
            # What nodes have told comes first: it is found by a Job's tag.
            for job, name in found:
                try:
                    self._remove_folder(name)
                    if name not in cleared:
                        self._remove_policy(name)
                        cleared.add(name)
                    self._jobs.remove(job)
                    say(f"removed {name}'s Job {job}")
                except (ClusterError, OSError, Refused) as error:
                    failed.append(f"{job}: {error}")
            with contextlib.suppress(OSError):  # a node that has ended late
                self._remove_folder(self.name)
        return failed

    def _remove_folder(self, name: str) -> None:
        files, path = fsspec.url_to_fs(f"{self._work_dir}/{name}")
        files.invalidate_cache()
        with contextlib.suppress(FileNotFoundError):
            files.rm(path, recursive=True)


def request_id(response: Any) -> str:
    """Return the id by which the service knows a request."""
    return str(response.headers.get("opc-request-id", ""))


def names(found: Sequence[Mapping[str, Any]], field: str) -> list[Any]:
    """Return one *field* of what nodes have told."""
    return [entry.get(field) for entry in found]
