"""Clusters of containers grow, shrink and end, with an engine that the test plays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from unit.fake_engine import Launcher, after

from oci_cluster.contract.cluster import any_running, cluster_code
from oci_cluster.errors import BackendError, SettingsError, StoppedError, UsageError

# --- Scale ------------------------------------------------------------------------------------------------
from oci_cluster.launcher.lifecycle import request_stop
from oci_cluster.system.engine import Engine, EngineError


def test_workers_are_added_as_the_others_were_started(launcher: Launcher, tmp_path: Path) -> None:
    """From any checkout: image, code and limits are main's, and so is the environment."""
    launcher.launch(1, CPUS="2", MEMORY="1g", GPUS="all", PUBLISH="8787", env=("PLAIN=a b",))
    before = launcher.words("run")[1]
    launcher.root = tmp_path / "other"
    launcher.root.mkdir()
    launcher.backend = launcher.another()
    assert launcher.scale(launcher.found(), "+2") == 3
    added = launcher.words("run")[2]
    for option in ("--cpus", "--memory", "--shm-size", "--gpus", "--mount", "--volume", "--network", "--publish"):
        assert after(added, option) == after(before, option)
    assert (after(added, "--hostname"), added[-1]) == (["worker-2"], "sha256:" + "1" * 64)
    pairs = [text.split("=", 1) for text in launcher.fake.container("WORKER_3")["Config"]["Env"]]
    environment = dict(pairs)
    assert len(pairs) == len(environment)  # nothing of main's own is in there
    assert (environment["PLAIN"], environment["NODE_RANK"], environment["MODE"]) == ("a b", "3", "WORKER")
    assert launcher.said == ["WORKER_2 started", "WORKER_3 started"]
    assert launcher.found().directory.stat().st_mode & 0o777 == 0o700
    assert not list((launcher.root / ".clusters").rglob("nodes.env"))


def test_what_image_and_engine_add_is_not_handed_on(launcher: Launcher) -> None:
    """They add it to the others themselves; and what they may have, no file for them can hold."""
    launcher.launch(1)
    launcher.fake.give("MAIN", "PATH=/image/bin", "HOSTNAME=main", "TEXT=of\nthe image")
    launcher.scale(launcher.found(), "+1")
    names = {text.partition("=")[0] for text in launcher.fake.container("WORKER_2")["Config"]["Env"]}
    assert (names & {"PATH", "HOSTNAME", "TEXT", "the image"}, "LAUNCH_ID" in names) == (set(), True)


def test_a_lost_workers_rank_is_given_to_its_replacement(launcher: Launcher) -> None:
    """Its container makes room."""
    launcher.launch()
    launcher.fake.set("WORKER_1", Status="exited", ExitCode=137)
    assert launcher.scale(launcher.found(), "+1") == 2
    assert set(launcher.codes(launcher.found()).values()) == {None}


@pytest.mark.usefixtures("_prompt")
def test_the_highest_ranks_are_ended(launcher: Launcher) -> None:
    """And their ends waited for."""
    launcher.launch(3)
    assert launcher.scale(launcher.found(), "-2") == 1
    launcher.clock.sleep(60)
    assert launcher.codes(launcher.found()) == {"MAIN": None, "WORKER_1": None, "WORKER_2": 143, "WORKER_3": 143}


def test_workers_that_do_not_end_are_named(launcher: Launcher) -> None:
    """With what ends them."""
    launcher.launch()
    launcher.fake.change(deaf=True)
    with pytest.raises(BackendError, match=r"WORKER_2 did not end; end the whole cluster: scripts/stop.sh mine"):
        launcher.scale(launcher.found(), "-1")


@pytest.mark.parametrize("is_told", [False, True])
def test_a_worker_that_cannot_be_started_leaves_nothing(launcher: Launcher, *, is_told: bool) -> None:
    """The others stay as they are; the same where the launcher is told to stop."""
    launcher.launch(1)
    found = launcher.found()
    if is_told:
        before = len(launcher.words("run"))
        launcher.is_stopped = lambda: len(launcher.words("run")) > before
    else:
        launcher.fake.fail("run", "docker: no space left", "worker-3")
    with pytest.raises(StoppedError if is_told else EngineError, match=r"stopped before|no space left"):
        launcher.scale(found, "+2")
    assert launcher.codes(launcher.found()) == {"MAIN": None, "WORKER_1": None}
    assert launcher.said == []


def test_a_worker_of_another_scale_stays(launcher: Launcher) -> None:
    """Two that choose the same rank at once: the second is refused, and ends nothing of the first's."""
    launcher.launch(1)
    found = launcher.found()
    engine = type(launcher.fake.engine)
    call = engine.call

    def call_late(self: Engine, *words: str, **options: Any) -> str:
        if words[0] == "run":
            call(self, *words, **options)  # the other was a moment earlier
        return call(self, *words, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "call", call_late)
        with pytest.raises(EngineError, match="already in use"):
            launcher.scale(found, "+1")
    assert list(launcher.codes(launcher.found())) == ["MAIN", "WORKER_1", "WORKER_2"]


@pytest.mark.parametrize(("label", "text"), [("memory", "1g --privileged"), ("code", "/none-of-that")])
def test_labels_that_somebody_has_changed_start_no_worker(launcher: Launcher, label: str, text: str) -> None:
    """They are checked as a launch's settings are."""
    launcher.launch(1)
    launcher.fake.label(label, text, "MAIN")
    with pytest.raises(SettingsError):
        launcher.scale(launcher.found(), "+1")
    assert list(launcher.codes(launcher.found())) == ["MAIN", "WORKER_1"]


def test_an_ended_cluster_is_not_scaled(launcher: Launcher) -> None:
    """It is launched again; one without main gives workers nothing to begin with."""
    launcher.launch(1)
    launcher.fake.end_all()
    with pytest.raises(UsageError, match="mine has ended; launch it again"):
        launcher.scale(launcher.found(), "+1")
    launcher.fake.set("WORKER_1", Status="running")
    launcher.fake.forget("MAIN")
    plan = launcher.backend.load(launcher.found())
    assert launcher.backend.why_fixed(launcher.found()) == "has ended; launch it again: scripts/launch.sh"
    with pytest.raises(UsageError, match="mine has ended; launch it again"):
        launcher.scale(launcher.found(), "+1")
    with pytest.raises(UsageError, match="mine has ended; launch it again"):
        launcher.backend.start(plan, plan.nodes, launcher.said.append)


# --- The end ----------------------------------------------------------------------------------------------


def test_stop_asks_by_the_file_first(launcher: Launcher) -> None:
    """Nodes that obey are not told by the engine."""
    cluster = launcher.launch(1)
    work = launcher.work(cluster)

    def obey(seconds: float) -> None:
        launcher.clock.sleep(seconds)
        if (work / "stop").exists():
            launcher.fake.end_all(143)

    launcher.sleep = obey
    launcher.stop(launcher.found())
    assert launcher.words("stop") == []
    assert launcher.codes(launcher.found()) == {"MAIN": 143, "WORKER_1": 143}
    assert launcher.fake.left() == ([], [], [])


@pytest.mark.usefixtures("_prompt")
@pytest.mark.parametrize("deaf", [False, True])
def test_stop_ends_nodes_that_do_not_obey(launcher: Launcher, *, deaf: bool) -> None:
    """By the engine's TERM, then by KILL."""
    cluster = launcher.launch(1, GRACE_PERIOD="3")
    launcher.work(cluster)
    launcher.fake.change(deaf=deaf)
    launcher.stop(launcher.found())
    assert launcher.said[1] == "mine has not ended by itself; ending its nodes"
    assert [after(words, "-t") for words in launcher.words("stop")] == [["13"]]
    assert set(launcher.codes(launcher.found()).values()) == {137 if deaf else 143}


@pytest.mark.usefixtures("_prompt")
def test_a_node_is_told_again_only_where_it_was_not_told(launcher: Launcher) -> None:
    """A second TERM would cut its grace; but a client may have failed. Nodes that are not named stay."""
    cluster = launcher.launch(2)
    launcher.fake.change(deaf=True)
    launcher.fake.fail("stop", "Cannot connect to the Docker daemon")
    launcher.backend.end(cluster, ["WORKER_1"])
    launcher.fake.change(faults=[])
    for _ in range(3):
        launcher.backend.end(cluster, ["WORKER_1"])
    assert len(launcher.words("stop")) == 2
    launcher.backend.end(cluster, ["WORKER_1", "WORKER_9"], at_once=True)
    launcher.backend.end(cluster, ["WORKER_1"], at_once=True)  # that it has ended is no error
    assert len(launcher.words("kill")) == 1
    assert launcher.codes(cluster) == {"MAIN": None, "WORKER_1": 137, "WORKER_2": None}


def test_a_main_that_never_begins_is_given_up_and_what_was_said_of_that_is_kept(launcher: Launcher) -> None:
    """Its container stays until the end: in its volume is the stop file, which has the cluster's code."""
    cluster = launcher.launch(1)
    for node in ("MAIN", "WORKER_1"):
        launcher.fake.set(node, Status="created", ExitCode=0)
    request_stop(launcher.backend, cluster, launcher.backend.load(cluster), "MAIN did not start", 75)
    assert launcher.words("stop") == []
    launcher.backend.end(cluster, ["MAIN", "WORKER_1"])
    launcher.clock.sleep(10)
    assert launcher.codes(cluster) == {"MAIN": 143, "WORKER_1": 143}
    launcher.finish(cluster)
    assert launcher.fake.left() == ([], [], [])
    kept = launcher.states(launcher.found())
    assert [(state.exit_code, state.never_started) for state in kept] == [(143, True), (143, True)]
    stop = json.loads((cluster.directory / "stop").read_bytes())
    assert cluster_code(kept, stop) == 75


def test_a_node_that_was_given_up_and_begins_all_the_same_is_there(launcher: Launcher) -> None:
    """The engine was only slow: it is ended as any other."""
    cluster = launcher.launch(1)
    launcher.fake.set("WORKER_1", Status="created", ExitCode=0)
    launcher.backend.end(cluster, ["WORKER_1"])
    launcher.clock.sleep(10)
    assert launcher.codes(cluster) == {"MAIN": None, "WORKER_1": 143}
    launcher.fake.set("WORKER_1", Status="running", ExitCode=0)
    assert launcher.codes(cluster) == {"MAIN": None, "WORKER_1": None}


def test_a_node_that_is_just_being_begun_is_not_given_up(launcher: Launcher) -> None:
    """Who stops may come between its making and its beginning; it reads the stop file then, as any other."""
    cluster = launcher.launch(1)
    launcher.fake.set("MAIN", Status="created", ExitCode=0)
    launcher.backend.end(cluster, ["MAIN", "WORKER_1"])
    launcher.clock.sleep(9.9)
    assert launcher.codes(cluster)["MAIN"] is None
    assert [state.is_waiting for state in launcher.states(cluster)] == [True, False]
    launcher.clock.sleep(0.1)
    assert launcher.codes(cluster)["MAIN"] == 143


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_cluster_that_somebody_removes_while_it_starts_is_stopped(launcher: Launcher, *, is_refused: bool) -> None:
    """Workers without a main would wait for it; and that a network is gone tells nobody why."""
    engine = type(launcher.fake.engine)
    call = engine.call

    def call_late(self: Engine, *words: str, **options: Any) -> str:
        said = call(self, *words, **options)
        if words[0] == "run" and "worker-1" in words:
            launcher.fake.forget("MAIN")
            if is_refused:
                msg = "network mine-0123 not found"
                raise EngineError(msg)
        return said

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "call", call_late)
        with pytest.raises(StoppedError, match="mine was stopped before all nodes were started"):
            launcher.launch(2)
    assert launcher.fake.left() == ([], [], [])


def test_how_long_a_container_waits_is_told(launcher: Launcher) -> None:
    """Since it was made; what is no time tells nothing."""
    cluster = launcher.launch(1)
    launcher.fake.set("WORKER_1", Status="created", ExitCode=0)
    for said, told in (("2026-01-02T03:04:05.678Z", "2026-01-02T03:04:05Z"), ("\x1b[2J", ""), ("yesterday", "")):
        containers = launcher.fake.state["containers"]
        for container in containers.values():
            container["Created"] = said
        launcher.fake.change(containers=containers)
        assert [state.accepted for state in launcher.states(cluster)] == [told, told]


@pytest.mark.usefixtures("_prompt")
def test_a_node_that_an_engine_has_made_and_never_begun_is_taken_away(launcher: Launcher) -> None:
    """The engine was killed in between: no signal ends what does not run, and the cluster would never be over."""
    cluster = launcher.launch(2)
    launcher.fake.set("MAIN", Status="exited", ExitCode=137)
    launcher.fake.set("WORKER_1", Status="exited", ExitCode=76)
    launcher.fake.set("WORKER_2", Status="created", ExitCode=0)
    launcher.stop(cluster)
    assert launcher.fake.left() == ([], [], [])
    assert launcher.codes(cluster) == {"MAIN": 137, "WORKER_1": 76, "WORKER_2": 143}


def test_nodes_that_a_launch_begins_while_its_cluster_is_stopped_are_ended_too(launcher: Launcher) -> None:
    """Who stops has seen main alone. What is kept must not say for ever that they run."""
    cluster = launcher.launch(2)
    launcher.fake.set("MAIN", Status="exited", ExitCode=143)
    launcher.finish(cluster)
    assert launcher.fake.left() == ([], [], [])
    assert launcher.codes(cluster) == dict.fromkeys(("MAIN", "WORKER_1", "WORKER_2"), 143)


def test_a_node_that_was_kept_without_a_code_is_lost(launcher: Launcher) -> None:
    """It was there when it was removed: it does not run any more."""
    cluster = launcher.launch(1)
    launcher.fake.end_all(0)
    launcher.finish(cluster)
    path = cluster.directory / "nodes.json"
    path.write_text(path.read_text().replace('"exit_code": 0', '"exit_code": null').replace("SUCCEEDED", "IN_PROGRESS"))
    assert [(state.is_lost, state.is_running) for state in launcher.states(cluster)] == [(True, False)] * 2


def test_stop_with_delete_keeps_nothing(launcher: Launcher) -> None:
    """Before the cluster's end or after it."""
    cluster = launcher.launch(1)
    launcher.work(cluster)
    launcher.fake.end_all()
    launcher.stop(launcher.found(), delete=True)
    assert (launcher.fake.left(), cluster.directory.exists()) == (([], [], []), False)
    other = launcher.launch(1)
    launcher.fake.end_all()
    launcher.finish(other)
    launcher.stop(launcher.found(), delete=True)
    assert (launcher.backend.find(), other.directory.exists()) == ([], False)


def test_a_cluster_that_somebody_has_removed_is_no_success(launcher: Launcher) -> None:
    """Nothing is known of its end; to remove it again is no error."""
    cluster = launcher.launch(1)
    for _ in range(2):
        launcher.backend.remove(cluster, launcher.said.append)
    launcher.clock.sleep(60)
    states = launcher.states(cluster)
    assert (any_running(states), cluster_code(states, None)) == (False, 76)


def test_a_cluster_whose_code_has_gone_can_be_ended(launcher: Launcher) -> None:
    """Only a node that is to be started needs it."""
    launcher.launch(1)
    launcher.fake.label("code", "/none-of-that")
    launcher.fake.end_all(143)
    launcher.stop(launcher.found())
    assert launcher.codes(launcher.found()) == {"MAIN": 143, "WORKER_1": 143}
