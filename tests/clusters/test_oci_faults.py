"""All or nothing, whatever fails: hundreds of faults in launches against the stand-in, in fast time."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from oci_service.handle import Service as StandIn

from oci_cluster.backends.oci.backend import OciBackend
from oci_cluster.backends.oci.service import Service
from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import ClusterError
from oci_cluster.launcher import planning
from oci_cluster.launcher.lifecycle import Lifecycle

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

IMAGE = "iad.ocir.io/stand-in/nothing:1"
FAULTS = int(os.environ.get("FAULTS", "100"))  # 1,000 take minutes
KINDS = ("429", "500", "503", "drop-before", "drop-after")
OPERATIONS = (
    "list_jobs",
    "create_job",
    "create_job_run",
    "list_job_runs",
    "cancel_job_run",
    "delete_job",
    "put_object",
)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with StandIn(tmp_path / "oci", python=sys.executable) as service:
        for name, text in service.environ.items():
            monkeypatch.setenv(name, text)
        service.control(
            {"images": {IMAGE: {"entrypoint": ["/bin/sleep", "600"], "directory": "/"}}, "cancel_grace_s": 1}
        )
        yield service


def lifecycle_of(
    stand_in: StandIn, root: Path, say: Callable[[str], None], is_stopped: Callable[[], bool] = lambda: False
) -> tuple[OciBackend, Lifecycle]:
    moment = 0.0

    def sleep(seconds: float) -> None:
        nonlocal moment
        moment += seconds
        time.sleep(seconds / 300)

    service = Service(os.environ, is_stopped=is_stopped, clock=lambda: moment, sleep=sleep)
    service.use_for_storage()
    times: dict[str, Any] = {"clock": lambda: moment, "sleep": sleep}
    compartment = stand_in.settings["COMPARTMENT_OCID"]
    backend = OciBackend(root, compartment, lambda: service, is_stopped=is_stopped, **times)
    return backend, Lifecycle(backend, root, say, **times)


def told_after(looks: int | None) -> Callable[[], bool]:
    """Return what tells a launcher to stop when it has looked so often."""
    asked = iter(range(10**9))
    return lambda: looks is not None and next(asked) >= looks


def make_plan(stand_in: StandIn, root: Path, code: Path, name: str) -> Plan:
    request = planning.Request("dask", "2", "oci", {"CLUSTER_NAME": name, "ENTRY_POINT": str(code / "train.py")})
    environ = {**stand_in.settings, "IMAGE": IMAGE}
    return planning.make_plan(request, environ, root=root, cwd=code, max_workers=999)


def is_fault(call: dict[str, Any]) -> bool:
    return call["status"] in {429, 500, 503} or not call["is_answered"]


def active(stand_in: StandIn, launch_id: str) -> list[dict[str, Any]]:
    """Return the runs of a launch that cost money."""
    own = [run for run in stand_in.job_runs() if run["freeformTags"]["oci-cluster-launch"] == launch_id]
    return [run for run in own if run["lifecycleState"] in {"ACCEPTED", "IN_PROGRESS", "CANCELING"}]


def test_whatever_fails_nothing_is_left_unnamed_and_nothing_is_started_twice(stand_in: StandIn, tmp_path: Path) -> None:
    chance = random.Random(20261121)  # noqa: S311 - the same faults each time
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("")
    root = tmp_path / "checkout"  # its .clusters are nobody else's
    root.mkdir()
    for folder in ("dask", "scripts"):
        (root / folder).symlink_to(Path(__file__).parents[2] / folder)
    struck = launches = successes = 0
    while struck < FAULTS:
        launches += 1
        name = f"demo-{launches}"
        plan = make_plan(stand_in, root, tmp_path / "code", name)
        faults = [
            {
                "operation": operation,
                # Half of what makes something is done, and not answered: that is what can be done twice.
                "kind": "drop-after" if "create" in operation and chance.random() < 0.5 else chance.choice(KINDS),
                "probability": chance.choice((0.1, 0.3, 0.6, 1.0)),
                "seed": chance.randrange(10**6),
                "times": chance.choice((1, 2, 5, 60)),
            }
            for operation in OPERATIONS
            if chance.random() < 0.5
        ]
        since = len(stand_in.calls())
        stand_in.control({"faults": faults})
        stop_after = chance.choice((None, None, None, chance.randrange(60)))
        said: list[str] = []
        backend, lifecycle = lifecycle_of(stand_in, root, said.append, told_after(stop_after))
        try:
            cluster = lifecycle.launch(backend.place(plan))
        except ClusterError:
            cluster = None
        struck += sum(map(is_fault, stand_in.calls(since=since)))
        stand_in.control({"faults": []})
        own = active(stand_in, plan.launch_id)
        nodes = [run["freeformTags"]["oci-cluster-node"] for run in own]
        if cluster is not None:
            successes += 1
            assert sorted(nodes) == ["MAIN", "WORKER_1", "WORKER_2"], "a success is a whole cluster"
        elif own:
            assert len(nodes) == len(set(nodes)), "a node was started twice"
            assert any(text.startswith(f"NOT ENDED: {name} ") for text in said), f"left unnamed: {nodes}; {said}"
        if own:
            quiet, its_lifecycle = lifecycle_of(stand_in, root, said.append)
            (left,) = [found for found in quiet.find() if found.name == name]
            its_lifecycle.stop(left, delete=True)
            assert not active(stand_in, plan.launch_id)
    sys.stderr.write(f"{struck} faults in {launches} launches, of which {successes} succeeded all the same\n")
    assert successes > launches / 10
