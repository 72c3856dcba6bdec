"""Data Science as a place where nodes run, in memory."""

from __future__ import annotations

from typing import Any

from unit.backends.places import Base
from unit.fake_data_science import DataScience, FakeService, refusal, silence
from unit.fake_oci import COMPARTMENT, LEAST, MOUNT
from unit.signed_files import leave_log

from oci_cluster.backends.oci.backend import OciBackend
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.log_times import stamp


class OciPlace(Base):
    """Data Science, in memory, as launchers see it."""

    name = "oci"

    def set_up(self) -> None:
        self._science = DataScience(self.clock)
        self._science.page_size = 1000
        self._service = FakeService(self._science, is_stopped=lambda: self.is_stopped, clock=self.clock)
        self._refused = self._lost = self._stops_at = ""
        self._printed: dict[str, bytes] = {}
        self._create = self._science._create_run
        self._work = self.root.parent / "work"
        self.settings = {**LEAST, **MOUNT, "WORK_DIR": f"file://{self._work}", "NODE_LOGS": "1"}
        self.monkeypatch.setattr(self._science, "_create_run", self._create_run)

    def make(self) -> OciBackend:
        return OciBackend(
            self.root,
            COMPARTMENT,
            lambda: self._service,
            given={"WORK_DIR": self.settings["WORK_DIR"]},
            is_stopped=lambda: self.is_stopped,
            clock=self.clock,
            sleep=self.clock.sleep,
        )

    def _create_run(self, body: Any, token: str) -> Any:
        node = body["freeformTags"]["oci-cluster-node"]
        if node == self._refused:
            raise refusal(400, "LimitExceeded")
        response = self._create(body, token)
        if node == self._lost:
            self._lost = ""
            raise silence()
        self.is_stopped |= node == self._stops_at
        return response

    def running(self) -> list[str]:
        return self._science.nodes()

    def requests(self) -> int:
        return len(self._science.requests)

    def refuse(self, node: str) -> None:
        self._refused = node

    def allow(self) -> None:
        self._refused = ""

    def lose_answer_of(self, node: str) -> None:
        self._lost = node

    def stop_launcher_at(self, node: str) -> None:
        self._stops_at = node

    def add_hostile(self) -> None:
        for tags in (
            {"oci-cluster": "../../etc", "oci-cluster-launch": "aaaa1111"},
            {"oci-cluster": "mine", "oci-cluster-launch": "../../etc"},
            {"oci-cluster": "", "oci-cluster-launch": ""},
            {"oci-cluster": "mine"},
        ):
            self._science.add_job(freeform_tags=tags)

    def end(self, node: str, code: int) -> None:
        states = {0: "SUCCEEDED", 143: "CANCELED"}
        self._science.end(node, states.get(code, "FAILED"), f"the container ended with exit code {code}")

    def hold(self, node: str) -> None:
        """Do nothing: runs are accepted, and start when a test says so."""

    def begin(self) -> None:
        self._science.begin()

    def given(self, node: str) -> dict[str, str]:
        created = self._science.created
        job = next(body for body in created if "jobConfigurationDetails" in body)
        run = next(body for body in created if body["freeformTags"].get("oci-cluster-node") == node)
        own = run["jobConfigurationOverrideDetails"]["environmentVariables"]
        return {**job["jobConfigurationDetails"]["environmentVariables"], **own}

    def forge(self, name: str, text: str) -> None:
        for job in self._science.jobs.values():
            details = job.job_configuration_details
            details.environment_variables = {**details.environment_variables, name: text}

    def print(self, node: str, text: str, second: int = 0) -> None:
        for cluster in self.backend.find():
            plan = self.backend.load(cluster)
            self._printed[node] = self._printed.get(node, b"") + stamp(second * 1000) + text.encode()
            leave_log(ClusterDir(plan.url, plan.launch_id, plan.launch_key), node, self._printed[node])

    def settle(self) -> None:
        self._science._look("")
