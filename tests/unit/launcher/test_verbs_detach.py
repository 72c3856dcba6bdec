"""`launch --detach`: whose name is printed, and that nothing goes on which nobody can name."""

from __future__ import annotations

import json
import os
import signal

import pytest
from unit.launcher.door import Door, ended

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import BackendError, ExitCode, StoppedError, UsageError
from oci_cluster.launcher import verbs
from oci_cluster.launcher.launch import launch


def test_a_detached_launch_prints_the_name_alone(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """One word that other scripts take; nothing is followed."""
    assert verbs.run("launch", ["dask", "1", "--name", "mine", "--detach"]) == 0
    assert capsys.readouterr() == ("mine\n", "oci_cluster: preparing\n")
    assert door.backend.asked("start", "logs", "finish", "close") == [("start", "MAIN", "WORKER_1"), "close"]


@pytest.mark.parametrize(("words", "is_told"), [(["--detach"], True), (["--detach", "--wait"], True), ([], False)])
def test_nodes_that_nobody_follows_are_told_until_when_to_start(
    door: Door, monkeypatch: pytest.MonkeyPatch, words: list[str], *, is_told: bool
) -> None:
    """Of others the launcher cancels those that come too late."""
    monkeypatch.setenv("PROVISION_TIMEOUT", "5m")
    ended(door, 0)
    verbs.run("launch", ["dask", "1", "--name", "mine", *words])
    (plan,) = door.backend.plans.values()
    assert ("START_BY" in plan.environment) is is_told


@pytest.mark.parametrize(("words", "followed"), [(["--detach"], None), (["--detach", "--wait"], None), ([], "any")])
def test_main_of_a_cluster_that_adapts_is_told_whether_somebody_follows(
    door: Door, monkeypatch: pytest.MonkeyPatch, words: list[str], followed: str | None
) -> None:
    """Who has waited until it is ready has gone then."""
    monkeypatch.setenv("ADAPT", "1:3")
    ended(door, 0)
    verbs.run("launch", ["dask", "1", "--name", "mine", *words])
    (plan,) = door.backend.plans.values()
    assert plan.environment.get("FOLLOWED") == followed


@pytest.mark.parametrize("words", [[], ["--detach"]])
def test_whatever_the_launcher_meets_nothing_goes_on_alone(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """What it could not follow, or name, is stopped; the failure stays what it was."""

    def fail(*_: object, **__: object) -> None:
        msg = "[Errno 24] Too many open files"
        raise OSError(msg)

    def start() -> None:
        (cluster,) = door.backend.clusters
        door.backend.on["states"] = lambda: (
            door.backend.end_nodes(cluster) if (cluster.directory / "stop").exists() else None
        )

    door.backend.on["start"] = start
    monkeypatch.setattr("builtins.print" if words else "oci_cluster.launcher.follow.follower.Follower.run", fail)
    with pytest.raises(OSError, match="Too many open files"):
        verbs.run("launch", ["dask", "1", "--name", "mine", *words])
    assert door.backend.calls[-2:] == [("finish", "mine"), "close"]
    assert "oci_cluster: ending mine, which nobody can follow\n" in capsys.readouterr().err


def test_one_that_could_not_be_ended_keeps_its_guard(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tries again when this process is over."""
    notes: list[str] = []

    class Noting:
        def __init__(self, *_: object, **__: object) -> None:
            notes.append("guard")

        def dismiss(self) -> None:
            notes.append("dismiss")

    def fail(*_: object, **__: object) -> None:
        msg = "no answer"
        raise BackendError(msg)

    monkeypatch.setattr("oci_cluster.launcher.launch.cluster_reaper.Reaper", Noting)
    monkeypatch.setattr("oci_cluster.launcher.follow.follower.Follower.run", fail)
    monkeypatch.setattr("oci_cluster.launcher.lifecycle.Lifecycle.stop", fail)
    with pytest.raises(BackendError, match="no answer"):
        verbs.run("launch", ["dask", "1"])
    assert notes == ["guard"]


def test_a_name_that_nobody_reads_is_no_success(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """141, as shells have it; the cluster, which nobody could name, is stopped."""

    def fail(*_: object, **__: object) -> None:
        raise BrokenPipeError

    def start() -> None:
        door.backend.end_nodes(door.backend.clusters[0])

    door.backend.on["start"] = start
    monkeypatch.setattr("builtins.print", fail)
    monkeypatch.setattr(launch, "discard", lambda _: None)  # stdout is pytest's
    with pytest.raises(StoppedError, match="the reader of the output has gone") as caught:
        verbs.run("launch", ["dask", "1", "--detach"])
    assert caught.value.exit_code == 141


def test_the_end_of_an_orphan_names_its_reason(door: Door) -> None:
    """What `status` shows of a cluster whose launcher was killed."""
    door.run()
    (cluster,) = door.backend.clusters
    door.backend.on["states"] = lambda: (
        door.backend.end_nodes(cluster) if (cluster.directory / "stop").exists() else None
    )
    verbs.end_orphan("cloud", cluster.cluster_id)
    assert json.loads((cluster.directory / "stop").read_bytes())["reason"] == "its launcher was killed"
    assert door.backend.calls[-2:] == [("finish", "mine"), "close"]


@pytest.mark.parametrize("words", [[], ["--wait"], ["--ttl", "1h"]])
def test_json_of_a_launch_that_is_followed_is_refused(door: Door, words: list[str]) -> None:
    """It would print logs; nothing is started."""
    with pytest.raises(UsageError, match="--json goes with --dry-run or --detach"):
        verbs.run("launch", ["dask", "1", "--json", *words])
    assert door.backend.calls == []


def test_a_detached_launch_can_print_json(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """What status.sh --json would."""
    assert verbs.run("launch", ["dask", "1", "--name", "mine", "--detach", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], [node["node"] for node in found["nodes"]]) == ("mine", ["MAIN", "WORKER_1"])
    assert door.backend.calls[-1] == "close"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_while_a_cluster_is_being_started_is_only_noted(door: Door, number: int) -> None:
    """A detached one that came of it is stopped, and its name not printed."""

    def start() -> None:
        os.kill(os.getpid(), number)
        assert door.is_stopped()
        (cluster,) = door.backend.clusters
        # What its nodes do when they see the stop file.
        door.backend.on["states"] = lambda: (
            door.backend.end_nodes(cluster) if (cluster.directory / "stop").exists() else None
        )

    door.backend.on["start"] = start
    assert verbs.run("launch", ["dask", "1", "--detach"]) == ExitCode.STOPPED
    assert door.backend.calls[-2:] == [("finish", door.backend.clusters[0].name), "close"]


def test_a_detached_launch_can_wait_until_the_cluster_is_ready(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """The name is printed when there is something to connect to."""

    def ready() -> None:
        for cluster in door.backend.clusters:
            plan = door.backend.load(cluster)
            ClusterDir(plan.url, cluster.launch_id, plan.launch_key).publish("MAIN_ready.json", facts={"a": "b"})

    door.backend.on["start"] = ready
    assert verbs.run("launch", ["dask", "1", "--name", "mine", "--detach", "--wait"]) == 0
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[1].partition(" after ")[0]) == ("mine\n", "oci_cluster: ready")
    assert door.backend.asked("logs", "finish", "close") == ["close"]


@pytest.mark.parametrize("code", [7, 75, 143])
def test_a_cluster_that_ends_before_it_is_ready_is_no_success_to_wait_for(
    door: Door, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    """Its code is the launch's, what it leaves is brought, and nothing of it has a name to be printed."""
    ended(door, code)
    assert verbs.run("launch", ["dask", "1", "--name", "mine", "--detach", "--wait"]) == code
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1].startswith(f"oci_cluster: cluster mine ended with {code} after ")) == ("", True)
    assert door.backend.asked("finish", "close") == [("finish", "mine"), "close"]


def test_a_cluster_that_was_done_before_it_was_seen_ready_has_its_name(
    door: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    """A short script: what it has left can be looked at."""
    ended(door, 0)
    assert verbs.run("launch", ["dask", "1", "--name", "mine", "--detach", "--wait"]) == 0
    assert capsys.readouterr().out == "mine\n"


def test_ctrl_c_while_waiting_stops_the_cluster(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody has its name yet."""
    door.backend.on["start"] = lambda: os.kill(os.getpid(), signal.SIGINT)
    door.backend.on["states"] = lambda: [
        door.backend.end_nodes(cluster) for cluster in door.backend.clusters if (cluster.directory / "stop").exists()
    ]
    assert verbs.run("launch", ["dask", "1", "--name", "mine", "--detach", "--wait"]) == 143
    out, err = capsys.readouterr()
    assert (out, "stopping cluster mine; Ctrl-C again ends it at once" in err) == ("", True)
