"""What is known of a cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.fake_backend import CREATED, KEY, LAUNCH, FakeBackend, keep, plan_of
from unit.signed_files import signed

from oci_cluster.contract.cluster import Cluster, NodeState, State
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import ExitCode
from oci_cluster.launcher.show import report
from oci_cluster.launcher.show.report import describe, list_text, overview, status_text


@pytest.fixture
def backend(tmp_path: Path) -> FakeBackend:
    return FakeBackend(tmp_path)


@pytest.fixture
def cluster(backend: FakeBackend, tmp_path: Path) -> Cluster:
    """Return a cluster of main and one worker whose cluster dir is on this machine."""
    plan = plan_of(tmp_path, workers=1)
    keep(tmp_path, plan)
    return backend.run(plan)


@pytest.fixture
def cluster_dir(backend: FakeBackend, cluster: Cluster) -> ClusterDir:
    return ClusterDir(backend.load(cluster).url, LAUNCH, KEY)


def described_by(backend: FakeBackend, cluster: Cluster, states: list[NodeState] | None = None) -> dict[str, Any]:
    plan = backend.load(cluster)
    return describe(backend, cluster, plan, backend.states([cluster])[LAUNCH] if states is None else states)


def ended(main: int | None, worker: int | None) -> list[NodeState]:
    return [
        NodeState(name, State.FAILED if code else State.SUCCEEDED, code, id=7)
        for name, code in (("MAIN", main), ("WORKER_1", worker))
    ]


def test_exposed_ports_are_shown(backend: FakeBackend, cluster: Cluster) -> None:
    """Where there are some."""
    plan = backend.load(cluster)
    assert "exposed" not in describe(backend, cluster, plan, ended(None, None))
    found = describe(
        backend, cluster, replace(plan, limits=replace(plan.limits, exposed=(6006, 9000))), ended(None, None)
    )
    assert found["exposed"] == [6006, 9000]
    assert "exposed: 6006 9000" in report.status_text(found).splitlines()


def test_no_report_tells_a_password(backend: FakeBackend, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work dir's URL may have one, wherever it stands: as the place of the files, in an error, in a reason."""
    url = "ftp://me:hunter2@host/work"
    said = f"{url}/stop: timed out"
    plan = replace(backend.load(cluster), work_dir=url)
    monkeypatch.setattr(backend, "files", lambda _, plan: plan.url)

    def read(self: ClusterDir, name: str, **_: object) -> dict[str, Any]:
        facts = {"connect": f"A={url}"} if name == "MAIN_ready.json" else {}
        return {"reason": said, "phase": said, "facts": facts}

    monkeypatch.setattr(ClusterDir, "__init__", lambda *_: None)
    monkeypatch.setattr(ClusterDir, "refused", {})
    monkeypatch.setattr(ClusterDir, "read", read)
    states = [replace(state, details=said, cause=said) for state in ended(None, 0)]
    for found in (
        describe(backend, cluster, plan, states),
        overview(backend, replace(cluster, handle=url), states),
        report.unreadable(backend, cluster, states, said),
    ):
        assert "hunter2" not in json.dumps(found)
        assert "ftp://***@host/work" in json.dumps(found)
        assert type(found["exit_code"]) in {int, type(None)}


# --- What is known of a cluster -------------------------------------------------------------------------------------


def test_a_running_cluster_is_described_whole(backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir) -> None:
    """Plan, backend and the nodes' own files together say all that is known."""
    cluster_dir.publish("MAIN_heartbeat.json", beat=3, phase="ready")
    cluster_dir.publish("MAIN_ready.json", facts={"dashboard": "https://127.0.0.1:8787"})
    assert described_by(backend, cluster) == {
        "name": "mine",
        "framework": "dask",
        "backend": "local",
        "state": "IN_PROGRESS",
        "exit_code": None,
        "reason": None,
        "created": CREATED,
        "directory": str(cluster.directory),
        "facts": {"dashboard": "https://127.0.0.1:8787"},
        "nodes": [
            {
                "node": "MAIN",
                "state": "IN_PROGRESS",
                "exit_code": None,
                "pid": 7,
                "address": "127.0.0.1",
                "phase": "ready",
            },
            {
                "node": "WORKER_1",
                "state": "IN_PROGRESS",
                "exit_code": None,
                "pid": 7,
                "address": "",
                "phase": "starting",
            },
        ],
    }


def test_a_node_that_was_added_has_the_backends_address(backend: FakeBackend, cluster: Cluster) -> None:
    """The plan does not know it; where both know one, the backend's word is the newer."""
    backend.set_node(cluster, "MAIN", None, address="127.0.0.8")
    backend.set_node(cluster, "WORKER_2", None, address="127.0.0.9")
    shown = described_by(backend, cluster)["nodes"]
    assert [(node["node"], node["address"]) for node in shown] == [
        ("MAIN", "127.0.0.8"),
        ("WORKER_1", ""),
        ("WORKER_2", "127.0.0.9"),
    ]


def test_an_ended_cluster_has_its_code_and_reason(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir
) -> None:
    """Main's code is the cluster's, the stop file says why, and addresses that lead nowhere now are not shown."""
    cluster_dir.publish("stop", reason="the entry point ended with exit code 7", exit_code=7)
    cluster_dir.publish("MAIN_ready.json", facts={"dashboard": "https://127.0.0.1:8787"})
    cluster_dir.publish("MAIN_heartbeat.json", beat=3, phase="stopping")
    found = described_by(backend, cluster, ended(7, 7))
    assert {name: found[name] for name in ("state", "exit_code", "reason", "facts")} == {
        "state": "FAILED",
        "exit_code": 7,
        "reason": "the entry point ended with exit code 7",
        "facts": {},
    }
    assert [node["phase"] for node in found["nodes"]] == ["ended", "ended"]


def test_a_node_that_ended_well_has_ended(backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir) -> None:
    """A node with exit code 0 is not the phase that it last told."""
    cluster_dir.publish("MAIN_heartbeat.json", beat=3, phase="stopping")
    backend.set_node(cluster, "MAIN", 0)
    assert [node["phase"] for node in described_by(backend, cluster)["nodes"]] == ["ended", "starting"]


def test_a_killed_main_is_a_lost_cluster(backend: FakeBackend, cluster: Cluster) -> None:
    """A main that was killed left no word: 76, a plain number for programs."""
    code = described_by(backend, cluster, ended(137, 0))["exit_code"]
    assert (code, type(code)) == (76, int)


def test_a_killed_entry_point_is_no_lost_cluster(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir
) -> None:
    """A main whose entry point was killed said so in the stop file: its code stands."""
    cluster_dir.publish("stop", reason="killed", exit_code=137)
    assert described_by(backend, cluster, ended(137, 0))["exit_code"] == 137


def test_a_cluster_is_described_where_its_work_dir_is_not_readable(backend: FakeBackend, cluster: Cluster) -> None:
    """A report shows what it can: an unknown schema, or no answer, leaves out what only the work dir knows."""
    (cluster.directory / "stop").mkdir()
    for name in ("MAIN_ready.json", "MAIN_heartbeat.json"):
        (cluster.directory / name).write_bytes(signed(name, LAUNCH, KEY, schema=9, facts={"a": "b"}))
    found = described_by(backend, cluster)
    assert (found["facts"], found["reason"], found["nodes"][0]["phase"]) == ({}, None, "starting")


def test_what_somebody_else_has_written_is_named_and_not_shown(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir
) -> None:
    """Neither reason nor facts nor phases, though whoever wrote them knows the launch's id."""
    stranger = ClusterDir(cluster_dir.url, LAUNCH, "")
    stranger.publish("stop", reason="evil", exit_code=0)
    stranger.publish("MAIN_ready.json", facts={"dashboard": "http://evil"})
    stranger.publish("MAIN_heartbeat.json", phase="evil")
    found = described_by(backend, cluster)
    assert (found["reason"], found["facts"]) == (None, {})
    assert [node["phase"] for node in found["nodes"]] == ["unknown", "starting"]
    assert list(found["refused"]) == ["stop", "MAIN_ready.json", "MAIN_heartbeat.json"]
    text = status_text(found)
    assert "evil" not in text
    assert "ignored: stop: not signed by this launch: somebody else wrote it, or a node of another version\n" in text
    assert "unreadable" not in text


def test_a_cluster_of_an_older_version_is_described_and_listed(backend: FakeBackend, tmp_path: Path) -> None:
    """Its nodes sign nothing: what the backend says is shown."""
    plan = plan_of(tmp_path, "old", "0a1d0a1d", environment={})
    backend.run(plan, MAIN=3, WORKER_1=3, WORKER_2=3)
    directory = keep(tmp_path, plan).directory
    (directory / "stop").write_text(json.dumps({"schema": 1, "launch_id": "0a1d0a1d", "reason": "r", "exit_code": 3}))
    found = describe(backend, backend.clusters[-1], plan, backend.states([backend.clusters[-1]])["0a1d0a1d"])
    assert (found["state"], found["exit_code"], found["reason"]) == ("FAILED", 3, None)
    assert "old " in list_text([found])
    assert "ignored: stop: " in status_text(found)


@pytest.mark.parametrize("facts", [None, ["a"], "a", 7, True])
def test_facts_of_another_shape_are_not_shown(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir, facts: Any
) -> None:
    """Facts that are no object are nothing."""
    cluster_dir.publish("MAIN_ready.json", facts=facts)
    assert described_by(backend, cluster)["facts"] == {}


@pytest.mark.parametrize("code", [float("nan"), True, [137], "137", None])
def test_a_stop_file_with_no_exit_code_makes_no_success(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir, code: Any
) -> None:
    """What is no exit code in a file cannot stand for one: a killed main stays lost."""
    cluster_dir.publish("stop", reason="r", exit_code=code)
    assert described_by(backend, cluster, ended(137, 0))["exit_code"] == ExitCode.LOST


def test_files_of_another_launch_are_not_shown(backend: FakeBackend, cluster: Cluster, tmp_path: Path) -> None:
    """What an older launch left in the same place says nothing of this one."""
    older = ClusterDir(f"file://{tmp_path}/mine-{LAUNCH}", "0000", KEY)
    older.publish("stop", reason="older", exit_code=0)
    older.publish("MAIN_ready.json", facts={"dashboard": "older"})
    older.publish("WORKER_1_heartbeat.json", beat=1, phase="older")
    found = described_by(backend, cluster)
    assert (found["reason"], found["facts"], found["nodes"][1]["phase"]) == (None, {}, "starting")


def test_nothing_but_the_phase_of_a_heartbeat_is_shown(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir
) -> None:
    """LD_PRELOAD in a node's file appears in no report."""
    for name in ("MAIN_heartbeat.json", "MAIN_config.json", "stop", "MAIN_ready.json"):
        cluster_dir.publish(name, LD_PRELOAD="/evil.so", phase="ready")
    assert "evil" not in json.dumps(described_by(backend, cluster))


@pytest.mark.parametrize(
    ("gpus", "shown"),
    [
        (["NVIDIA H100 80GB HBM3"], ["NVIDIA H100 80GB HBM3"]),
        ([], None),
        ("H100", None),
        ({"a": 1}, None),
        (["\x1b[31mred\n" + "x" * 200, 7], ["[31mred" + "x" * 91, "7"]),
        (["A10"] * 200, ["A10"] * 112),
    ],
)
def test_the_gpus_of_a_node_are_shown_as_far_as_they_are_names(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir, gpus: object, shown: list[str] | None
) -> None:
    """Bounded, and without what would control a terminal."""
    cluster_dir.publish("MAIN_heartbeat.json", phase="running", gpus=gpus)
    assert [node.get("gpus") for node in described_by(backend, cluster)["nodes"]] == [shown, None]


def test_the_backends_own_words_are_what_programs_see(backend: FakeBackend, cluster: Cluster) -> None:
    """Fields of a node are under the names that its backend has for them."""
    backend.node_fields = {"node": "node", "lifecycle_details": "details", "ocid": "id"}
    backend.set_node(cluster, "MAIN", None, details="pulling the image", id="ocid1.run")
    assert described_by(backend, cluster)["nodes"][0] == {
        "address": "127.0.0.1",
        "node": "MAIN",
        "lifecycle_details": "pulling the image",
        "ocid": "ocid1.run",
        "phase": "starting",
    }


def test_a_cause_is_shown_where_there_is_one(backend: FakeBackend, cluster: Cluster) -> None:
    """The exit code alone does not tell that a node's memory ran out."""
    backend.set_node(cluster, "MAIN", 137, cause="its memory ran out")
    main, worker = described_by(backend, cluster)["nodes"]
    assert (main["cause"], "cause" in worker) == ("its memory ran out", False)


@pytest.mark.parametrize(
    ("stop", "reason"),
    [
        ({"exit_code": 137, "reason": "killed by SIGKILL"}, "WORKER_1: its memory ran out"),
        ({"exit_code": 3, "reason": "exit code 3"}, "exit code 3"),
    ],
)
def test_memory_that_ran_out_is_the_reason_of_what_it_took_along(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir, stop: dict[str, Any], reason: str
) -> None:
    """And of nothing else: whoever ended with another code had another reason."""
    backend.set_node(cluster, "MAIN", stop["exit_code"])
    backend.set_node(cluster, "WORKER_1", 137, cause="its memory ran out")
    cluster_dir.publish("stop", **stop)
    assert described_by(backend, cluster)["reason"] == reason


def test_what_took_a_main_along_that_could_not_say_it_is_the_reason(backend: FakeBackend, cluster: Cluster) -> None:
    backend.set_node(cluster, "MAIN", 137, cause="its memory ran out")
    backend.set_node(cluster, "WORKER_1", 76)
    assert described_by(backend, cluster)["reason"] == "main lost: its memory ran out"


def test_a_lost_node_is_no_running_one(backend: FakeBackend, cluster: Cluster) -> None:
    """Killed together with whoever would have recorded how: the cluster has ended, with 76."""
    for node in ("MAIN", "WORKER_1"):
        backend.set_node(cluster, node, None, is_lost=True)
    found = described_by(backend, cluster)
    assert (found["state"], found["exit_code"]) == ("FAILED", 76)


@pytest.mark.parametrize(
    ("code", "state"), [(0, "SUCCEEDED"), (143, "STOPPED"), (1, "FAILED"), (7, "FAILED"), (75, "FAILED")]
)
def test_the_state_says_how_it_ended(backend: FakeBackend, cluster: Cluster, code: int, state: str) -> None:
    """One that was stopped by request has not failed; in status and list alike."""
    states = ended(code, code)
    assert described_by(backend, cluster, states)["state"] == overview(backend, cluster, states)["state"] == state


def test_a_script_that_ends_with_143_itself_has_failed(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir
) -> None:
    """Nobody has stopped the cluster, as main knows."""
    cluster_dir.publish("stop", reason="exit code 143", exit_code=143, unasked=True)
    states = ended(143, 143)
    assert described_by(backend, cluster, states)["state"] == overview(backend, cluster, states)["state"] == "FAILED"


@pytest.mark.parametrize(
    ("main", "worker", "state"),
    [
        (None, 143, "LEFT"),
        (0, 143, "LEFT"),
        (7, 143, "LEFT"),
        (143, 143, "CANCELED"),
        (None, 7, "FAILED"),
        (None, 0, "SUCCEEDED"),
    ],
)
def test_a_worker_that_was_scaled_away_has_left(
    backend: FakeBackend, cluster: Cluster, main: int | None, worker: int, state: str
) -> None:
    """Its 143 is no failure, and the table does not show it as one; where all are stopped, so is it."""
    backend.set_node(cluster, "MAIN", main)
    backend.set_node(cluster, "WORKER_1", worker)
    found = described_by(backend, cluster)
    assert found["nodes"][1]["state"] == state
    assert overview(backend, cluster, backend.states([cluster])[LAUNCH])["nodes"][1]["state"] == state
    assert found["nodes"][1]["exit_code"] == worker
    row = status_text(found).splitlines()[-1]
    assert row.split() == ["WORKER_1", state, *([] if state == "LEFT" else [str(worker)]), "ended"]


def test_how_to_connect_is_told_from_here(backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir) -> None:
    """What main says of a connection holds on main: the backend says how that is done by somebody else."""
    cluster_dir.publish("MAIN_ready.json", facts={"connect": "X=\033/y", "hosts": "a"})
    assert described_by(backend, cluster)["facts"] == {"connect": "at home: X=/y", "hosts": "a"}


# --- A work dir that cannot be opened -------------------------------------------------------------------------------


def test_a_cluster_whose_work_dir_cannot_be_opened_is_shown_as_far_as_it_is_known(tmp_path: Path) -> None:
    """What the backend knows, and why the rest is missing."""
    backend = FakeBackend(tmp_path)
    plan = plan_of(tmp_path, workers=1, work_dir="nosuch://bucket")
    keep(tmp_path, plan)
    cluster = backend.run(plan)
    found = report.tell(backend, cluster, backend.states([cluster])[LAUNCH])
    why = "WORK_DIR nosuch://bucket/mine-1f2e3d4c: Protocol not known: nosuch"
    assert (found["state"], found["unreadable"], [node["phase"] for node in found["nodes"]]) == (
        "IN_PROGRESS",
        why,
        ["", ""],
    )
    assert f"unreadable: {why}\n" in status_text(found)


def test_what_a_backend_cannot_tell_is_unknown(backend: FakeBackend, cluster: Cluster) -> None:
    """And nothing that has ended."""
    found = report.unreadable(backend, cluster, [], "no answer\x1b[0m")
    assert (found["state"], found["exit_code"], found["nodes"]) == ("UNKNOWN", None, [])
    assert "unreadable: no answer[0m\n" in status_text(found)


def test_a_cluster_of_which_nobody_knows_anything_is_gone_and_no_failure(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir
) -> None:
    """It runs no more, either: no list shows it, and what was ready is no more."""
    cluster_dir.publish("MAIN_ready.json", facts={"dashboard": "https://127.0.0.1:8787"})
    backend.nodes[LAUNCH].clear()
    found = described_by(backend, cluster)
    assert (found["state"], found["exit_code"], found["reason"]) == ("GONE", None, "its nodes are gone")
    assert found["facts"] == {}
    assert report.is_over(found)
    assert "mine  dask on local, GONE, started" in status_text(found)


@pytest.mark.parametrize(
    ("said", "phase"),
    [
        (
            {"still_s": 74, "waits": ["rank 0 waits in f (a.py:5)\x1b[2J"]},
            "ready, still for 74 s: rank 0 waits in f (a.py:5)",
        ),
        ({"still_s": 74, "waits": "all"}, "ready, still for 74 s"),
        ({"still_s": "74"}, "ready"),
    ],
)
def test_a_node_on_which_all_stands_still_says_where_it_waits(
    backend: FakeBackend, cluster: Cluster, cluster_dir: ClusterDir, said: dict[str, Any], phase: str
) -> None:
    cluster_dir.publish("MAIN_heartbeat.json", beat=3, phase="ready", **said)
    assert described_by(backend, cluster)["nodes"][0]["phase"].startswith(phase)
