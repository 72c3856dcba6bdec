"""What the tests of the backend `oci` share: a checkout to launch from, and a launcher."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unit.fake_data_science import COMPARTMENT, PROJECT, DataScience, FakeService

from oci_cluster.backends.oci.backend import OciBackend
from oci_cluster.contract.cluster import Cluster, NodeState, Plan, clusters_dir
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.launcher.launch.plan import Request, make_plan
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.launcher.show.report import overview

ROOT = Path(__file__).resolve().parents[2]
SUBNET = "ocid1.subnet.oc1.iad.aaaasubnet"
IMAGE = "iad.ocir.io/mytenancy/dask:1"
LEAST = {
    "COMPARTMENT_OCID": COMPARTMENT,
    "PROJECT_OCID": PROJECT,
    "IMAGE": IMAGE,
    "WORK_DIR": "oci://bucket@ns/work",
    "SUBNET_OCID": SUBNET,
    "SUBNET_CIDR": "10.0.0.0/24",  # a launch need not look it up
}


class Checkout:
    """A project with this one's backends and templates, and one framework whose example is one script."""

    def __init__(self, place: Path) -> None:
        self.root = place / "my project"
        (self.root / "plain" / "example").mkdir(parents=True)
        (self.root / "plain" / "example" / "train.py").write_text("print('hello')\n")
        for script in ("start-master.sh", "start-worker.sh"):
            (self.root / "plain" / script).touch()
        (self.root / "plain" / "settings.env").write_text("SOME_PORT=1234\nMIN_WORKERS=1\n")
        (self.root / "scripts").symlink_to(ROOT / "scripts")

    def plan(self, workers: int = 2, *, arguments: tuple[str, ...] | None = None, **settings: str) -> Plan:
        """Return the plan of a launch with these settings in its environment, besides those that are always needed."""
        given = {"NODE_LOGS": "1", **LEAST, **settings}
        request = Request("plain", str(workers), "oci", arguments=arguments)
        return make_plan(request, given, root=self.root, cwd=self.root, max_workers=999)


def with_environment(plan: Plan, **more: str) -> Plan:
    """Return *plan* with *more* variables for every node."""
    return replace(plan, environment={**plan.environment, **more})


NODES = ["MAIN", "WORKER_1", "WORKER_2"]
# memory:// is seen by the one node that a test is.
MOUNT = {"WORK_DIR": "memory://work", "STORAGE_MOUNTS": "data=oci://data@ns"}


class Launcher:
    """One launcher, the service that it asks, and what a launch says and leaves."""

    def __init__(self, place: Path, clock: Any) -> None:
        self.checkout = Checkout(place)
        self.clock = clock
        self.science = DataScience(clock)
        self.is_stopped = False
        self.said: list[str] = []
        self.directory = clusters_dir(self.checkout.root)
        self.service = FakeService(self.science, is_stopped=lambda: self.is_stopped, clock=clock)
        self.backend = self.another()
        self.lifecycle = self.lifecycle_of(self.backend)

    def another(self, compartment: str = COMPARTMENT) -> OciBackend:
        """Return what another launcher, on another machine, sees."""
        return OciBackend(
            self.checkout.root,
            compartment,
            lambda: self.service,
            given={"WORK_DIR": MOUNT["WORK_DIR"]},
            is_stopped=lambda: self.is_stopped,
            clock=self.clock,
            sleep=self.clock.sleep,
        )

    def lifecycle_of(self, backend: OciBackend) -> Lifecycle:
        root, clock = self.checkout.root, self.clock
        return Lifecycle(backend, root, self.said.append, clock=clock, sleep=clock.sleep)

    def plan(self, workers: int = 2, **settings: str) -> Plan:
        return self.checkout.plan(workers, **{**MOUNT, "CLUSTER_NAME": "mine", **settings})

    def launch(self, plan: Plan | None = None, *, workers: int = 2, **settings: str) -> Cluster:
        return self.lifecycle.launch(self.backend.place(plan or self.plan(workers, **settings)))

    def scale(self, cluster: Cluster, text: str) -> int:
        return self.lifecycle.scale(cluster, text)

    def stop(self, cluster: Cluster, *, delete: bool = False) -> None:
        self.lifecycle.stop(cluster, delete=delete)

    def states(self, cluster: Cluster) -> list[NodeState]:
        return self.lifecycle.states(cluster)

    def url(self, cluster: Cluster) -> str:
        return self.backend.load(cluster).url

    def cluster_dir(self, cluster: Cluster) -> ClusterDir:
        """Return the cluster dir as a node of *cluster* has it."""
        plan = self.backend.load(cluster)
        return ClusterDir(plan.url, plan.launch_id, plan.launch_key)

    def overview(self) -> list[dict[str, Any]]:
        """Return what list.sh --json shows."""
        clusters = self.backend.find()
        states = self.backend.states(clusters)
        return [overview(self.backend, cluster, states[cluster.launch_id]) for cluster in clusters]

    def stop_at(self, request: str, count: int = 1) -> None:
        """Have Ctrl-C come while a *request* is made for the so-many-eth time."""
        seen = 0

        def look(made: str) -> None:
            nonlocal seen
            seen += made == request
            self.is_stopped |= seen >= count

        self.science.on_request = look

    def left(self) -> tuple[list[str], list[str], list[Path]]:
        """Return all that costs money or takes room: nodes, Jobs and directories."""
        return self.science.nodes(), list(self.science.jobs), list(self.directory.glob("*"))


def codes(states: Sequence[NodeState]) -> dict[str, int | None]:
    """Return the nodes' exit codes by their names."""
    return {state.node: state.exit_code for state in states}


_FIELDS = {
    "--compartment-id": "compartmentId",
    "--description": "description",
    "--defined-tags": "definedTags",
    "--job-infrastructure-configuration-override-details": "jobInfrastructureConfigurationOverrideDetails",
    "--project-id": "projectId",
    "--display-name": "displayName",
    "--freeform-tags": "freeformTags",
    "--configuration-details": "jobConfigurationDetails",
    "--infrastructure-configuration-details": "jobInfrastructureConfigurationDetails",
    "--job-environment-configuration-details": "jobEnvironmentConfigurationDetails",
    "--job-node-configuration-details": "jobNodeConfigurationDetails",
    "--job-storage-mount-configuration-details-list": "jobStorageMountConfigurationDetailsList",
    "--log-configuration-details": "jobLogConfigurationDetails",
    "--configuration-override-details": "jobConfigurationOverrideDetails",
}

_TEXTS = ("--compartment-id", "--project-id", "--display-name", "--description")


def _fields(words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for option, text in zip(words[::2], words[1::2], strict=True):
        yield _FIELDS[option], text if option in _TEXTS else json.loads(text)


def body_of(words: tuple[str, ...] | list[str]) -> dict[str, Any]:
    """Return the body that options of oci-cli stand for."""
    return dict(_fields(tuple(words)))
