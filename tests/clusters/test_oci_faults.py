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
from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.errors import ClusterError
from oci_cluster.launcher.follow.follower import Follower
from oci_cluster.launcher.launch import plan as planning
from oci_cluster.launcher.lifecycle import Lifecycle

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

IMAGE = "iad.ocir.io/stand-in/nothing:1"
FAULTS = int(os.environ.get("FAULTS", "30"))  # 1,000 take minutes
KINDS = ("404", "409", "429", "500", "503", "drop-before", "drop-after")
# A second of the launcher's takes so much of the service's, whose lateness is in real seconds.
PACE = 1 / 300
LATENESS = {
    "unseen_s": (0, 0, 5 * PACE, 20 * PACE),
    "list_lag_s": (0, 0, 10 * PACE, 40 * PACE),
    "state_lag_s": (0, 0, 8 * PACE),
    "stale_every": (0, 2, 3),
}
NODES = ["MAIN", "WORKER_1", "WORKER_2"]
OPERATIONS = (
    "list_jobs",
    "create_job",
    "create_job_run",
    "list_job_runs",
    "cancel_job_run",
    "delete_job",
    "put_object",
    "get_object",
    "list_objects",
    "delete_object",
)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with StandIn(tmp_path / "oci", python=sys.executable) as service:
        for name, text in service.environ.items():
            monkeypatch.setenv(name, text)
        service.control(
            {
                "images": {IMAGE: {"entrypoint": ["/bin/sleep", "600"], "directory": "/"}},
                "cancel_grace_s": 1,
                "stale_s": 30 * PACE,
            }
        )
        yield service


def lifecycle_of(
    stand_in: StandIn, root: Path, say: Callable[[str], None], is_stopped: Callable[[], bool] = lambda: False
) -> tuple[OciBackend, Lifecycle]:
    moment = 0.0

    def sleep(seconds: float) -> None:
        nonlocal moment
        moment += seconds
        time.sleep(seconds * PACE)

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


class Waits:
    """Signals that never come, and a wait that takes no longer than the launcher's."""

    received = None

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.wait = sleep


def follow(lifecycle: Lifecycle, backend: OciBackend, cluster: Cluster, plan: Plan, say: Callable[[str], None]) -> int:
    """Follow a cluster to its end, as launch.sh does; return its exit code."""
    signals: Any = Waits(lifecycle.sleep)
    follower = Follower(backend, cluster, plan, say=say, signals=signals, clock=lifecycle.clock)
    code = follower.until_ready()
    assert code is not None, "no node has started"
    return follower.conclude(code)


def make_plan(stand_in: StandIn, root: Path, code: Path, name: str) -> Plan:
    request = planning.Request("dask", "2", "oci", {"CLUSTER_NAME": name, "ENTRY_POINT": str(code / "train.py")})
    environ = {**stand_in.settings, "IMAGE": IMAGE, "PROVISION_TIMEOUT": "10m"}
    return planning.make_plan(request, environ, root=root, cwd=code, max_workers=999)


def slowness(chance: random.Random, *, is_waiting: bool) -> dict[str, Any]:
    """Return how late the service is; where no run is ever to start, half of them need somebody's attention."""
    troubles: dict[str, Any] = {node: {} for node in NODES} if is_waiting and chance.random() < 0.5 else {}
    lateness = {name: chance.choice(values) for name, values in LATENESS.items()}
    return {**lateness, "stay_accepted": NODES if is_waiting else [], "needs_attention": troubles}


def is_fault(call: dict[str, Any]) -> bool:
    """Return whether a call has failed by a fault; not by lateness, which refuses with 404 and 409 besides."""
    return call["status"] in {429, 500, 503} or not call["is_answered"]


def active(stand_in: StandIn, launch_id: str) -> list[dict[str, Any]]:
    """Return the runs of a launch that cost money."""
    own = [run for run in stand_in.job_runs() if run["freeformTags"]["oci-cluster-launch"] == launch_id]
    ended = {"SUCCEEDED", "FAILED", "CANCELED", "DELETED"}
    return [run for run in own if run["lifecycleState"] not in ended]


def some_faults(chance: random.Random) -> list[dict[str, Any]]:
    return [
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


def test_whatever_fails_nothing_is_left_unnamed_and_nothing_is_started_twice(stand_in: StandIn, tmp_path: Path) -> None:
    chance = random.Random(20261121)  # noqa: S311 - the same faults each time
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("")
    root = tmp_path / "checkout"  # its .clusters are nobody else's
    root.mkdir()
    for folder in ("dask", "scripts"):
        (root / folder).symlink_to(Path(__file__).parents[2] / folder)
    struck = launches = successes = waits = 0
    while struck < FAULTS:
        launches += 1
        name = f"demo-{launches}"
        plan = make_plan(stand_in, root, tmp_path / "code", name)
        faults = some_faults(chance)
        since = len(stand_in.calls())
        is_waiting = chance.random() < 0.2
        stand_in.control({"faults": faults, **slowness(chance, is_waiting=is_waiting)})
        stop_after = chance.choice((None, None, None, chance.randrange(60)))
        said: list[str] = []
        backend, lifecycle = lifecycle_of(stand_in, root, said.append, told_after(stop_after))
        try:
            cluster = lifecycle.launch(backend.place(plan))
        except ClusterError:
            cluster = None
        if cluster is not None and is_waiting and stop_after is None:
            waits += 1
            assert follow(lifecycle, backend, cluster, plan, said.append) == 75, said
            assert "MAIN, WORKER_1, WORKER_2 did not start" in said[-1]
            assert not active(stand_in, plan.launch_id)
        struck += sum(map(is_fault, stand_in.calls(since=since)))
        stand_in.control({"faults": [], **dict.fromkeys(LATENESS, 0)})
        own = active(stand_in, plan.launch_id)
        nodes = [run["freeformTags"]["oci-cluster-node"] for run in own]
        if cluster is not None:
            successes += 1
            assert sorted(nodes) == ([] if is_waiting and stop_after is None else NODES), "a success is a whole cluster"
        elif own:
            assert len(nodes) == len(set(nodes)), "a node was started twice"
            assert any(text.startswith(f"NOT ENDED: {name} ") for text in said), f"left unnamed: {nodes}; {said}"
        if own:
            quiet, its_lifecycle = lifecycle_of(stand_in, root, said.append)
            (left,) = [found for found in quiet.find() if found.name == name]
            its_lifecycle.stop(left, delete=True)
            assert not active(stand_in, plan.launch_id)
    told = f"of which {successes} succeeded all the same; the nodes of {waits} never started"
    sys.stderr.write(f"{struck} faults in {launches} launches, {told}\n")
    assert successes > launches / 10
