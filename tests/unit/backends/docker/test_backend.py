"""Clusters of containers, with an engine that the test plays: it refuses, and holds what others have put there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
from unit.fake_engine import ROOT, Launcher
from unit.signed_files import signed

from oci_cluster.backends.docker import backend as docker
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import BackendError, StoppedError, UsageError
from oci_cluster.launcher import context, verbs
from oci_cluster.launcher.show.report import describe, overview
from oci_cluster.system.engine import EngineError

# --- Nothing, or all --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "word"), [("network create", ""), ("volume create", ""), ("run", "worker-2")])
def test_a_launch_that_fails_leaves_nothing(launcher: Launcher, verb: str, word: str) -> None:
    """Wherever it fails."""
    launcher.fake.fail(verb, "docker: no space left", word)
    with pytest.raises(EngineError, match="no space left"):
        launcher.launch()
    assert launcher.fake.left() == ([], [], [])
    assert [path for path in (launcher.root / ".clusters").iterdir() if path.is_dir()] == []
    assert launcher.said == ["the launch failed; ending what was started"]


def test_what_cannot_be_ended_is_named(launcher: Launcher) -> None:
    """With the command that ends it, which finds it again."""
    launcher.fake.fail("run", "docker: no space left", "worker-1")
    launcher.fake.fail("rm", "docker: stuck")
    with pytest.raises(EngineError, match="no space left"):
        launcher.launch()
    assert "NOT ENDED: mine may still be running" in launcher.said[-1]
    assert "scripts/stop.sh mine --delete --backend docker" in launcher.said[-1].replace(
        "--delete mine", "mine --delete"
    )
    launcher.fake.change(faults=[])
    launcher.stop(launcher.found(), delete=True)
    assert launcher.fake.left() == ([], [], [])


@pytest.mark.parametrize("made", ["network", "run"])
def test_a_signal_in_the_middle_of_a_launch_ends_it(launcher: Launcher, made: str) -> None:
    """143, and nothing is left."""
    launcher.is_stopped = lambda: any(words[0] == made for words in launcher.fake.calls())
    with pytest.raises(StoppedError):
        launcher.launch()
    assert launcher.fake.left() == ([], [], [])
    assert launcher.said == ["stopped before all nodes were started"]
    assert len(launcher.words("run")) == (made == "run")


def test_a_name_is_one_running_clusters(launcher: Launcher) -> None:
    """Once that has ended, it is free."""
    launcher.launch()
    with pytest.raises(UsageError, match=r"'mine' is running; .* scripts/stop.sh mine --backend docker"):
        launcher.launch()
    launcher.fake.end_all()
    assert launcher.launch().name == "mine"


def test_what_is_told_of_a_launch_names_containers_and_files(launcher: Launcher) -> None:
    """Before they are there."""
    cluster = launcher.launch(1)
    plan = launcher.backend.load(cluster)
    told = f"containers {cluster.cluster_id}-...; files will be in {cluster.directory}"
    assert launcher.backend.started(cluster, plan) == told
    assert launcher.backend.files(cluster, plan) == str(cluster.directory)


# --- State ------------------------------------------------------------------------------------------------


def test_an_engine_that_does_not_answer_tells_of_no_node(launcher: Launcher) -> None:
    """It does not become a cluster without nodes."""
    cluster = launcher.launch(1)
    launcher.fake.fail("container inspect", "Cannot connect to the Docker daemon")
    with pytest.raises(BackendError, match="does not answer"):
        launcher.states(cluster)


def test_a_look_is_one_call(launcher: Launcher) -> None:
    """Which nodes there are is asked for every few seconds."""
    cluster = launcher.launch()
    launcher.states(cluster)
    (launcher.root / "logs").mkdir()
    copy = launcher.backend.logs(cluster, launcher.root / "logs", follow=False)
    before = len(launcher.fake.calls())
    launcher.states(cluster)
    assert len(launcher.fake.calls()) == before + 1
    copy.fetch()
    assert [words[0] for words in launcher.fake.calls()[before + 1 :]] == ["logs"] * 3
    copy.close()
    before = len(launcher.fake.calls())
    launcher.clock.sleep(docker._LIST_S)
    launcher.states(cluster)
    assert len(launcher.fake.calls()) == before + 2


def test_a_look_at_many_clusters_is_two_calls(launcher: Launcher) -> None:
    """Each gets its own nodes."""
    clusters = [launcher.launch(workers, CLUSTER_NAME=f"c{workers}") for workers in (1, 2, 3)]
    before = len(launcher.fake.calls())
    states = launcher.another().states(clusters)
    assert len(launcher.fake.calls()) == before + 2
    launcher.backend.find()
    before = len(launcher.fake.calls())
    assert launcher.backend.states(clusters) == states
    assert len(launcher.fake.calls()) == before + 1  # which there are has just been asked
    assert [len(states[cluster.launch_id]) for cluster in clusters] == [2, 3, 4]
    addresses = [state.address for cluster in clusters for state in states[cluster.launch_id]]
    assert len(set(addresses)) == 9


def test_a_container_that_goes_during_a_look_is_looked_for_again(launcher: Launcher) -> None:
    """Rather than missed until the next listing."""
    cluster = launcher.launch(2)
    launcher.states(cluster)
    launcher.fake.forget("WORKER_1")
    assert list(launcher.codes(cluster)) == ["MAIN", "WORKER_2"]
    before = len(launcher.fake.calls())
    launcher.states(cluster)
    assert [words[0] for words in launcher.fake.calls()[before:]] == ["ps", "container"]


def test_a_cluster_is_found_from_any_checkout(launcher: Launcher, tmp_path: Path) -> None:
    """With its nodes' environment, by its labels alone."""
    cluster = launcher.launch(1, env=("PLAIN=a=b c",))
    other = launcher.another(tmp_path / "other")
    (found,) = other.find()
    assert (found.name, found.launch_id) == (cluster.name, cluster.launch_id)
    plan = other.load(found)
    assert (plan.url, plan.environment["PLAIN"]) == (launcher.backend.load(cluster).url, "a=b c")
    shown = overview(other, found, other.states([found])[found.launch_id])
    assert (shown["framework"], shown["state"], len(shown["nodes"])) == ("plain", "IN_PROGRESS", 2)
    names = ["node", "state", "exit_code", "address", "ocid", "details", "never_started"]
    assert [list(node) for node in shown["nodes"]] == [names] * 2


def test_files_of_nodes_are_read_through_the_engine(launcher: Launcher) -> None:
    """As on every backend; from the launch on, and where another launcher has found the cluster."""
    fsspec.config.conf.pop("engine", None)
    plan = launcher.plan(1)
    cluster = launcher.lifecycle.launch(plan)
    assert ClusterDir(plan.url, cluster.launch_id, plan.launch_key).read("MAIN_heartbeat.json") is None
    fsspec.config.conf.pop("engine", None)
    body = signed("MAIN_heartbeat.json", cluster.launch_id, plan.launch_key, phase="running")
    (launcher.work(cluster) / "MAIN_heartbeat.json").write_bytes(body)
    plan = launcher.backend.load(cluster)
    cluster_dir = ClusterDir(plan.url, cluster.launch_id, plan.launch_key)
    found = cluster_dir.read("MAIN_heartbeat.json")
    assert found is not None
    assert found["phase"] == "running"
    cluster_dir.publish("stop", reason="enough")
    assert json.loads((launcher.work(cluster) / "stop").read_text())["reason"] == "enough"
    shown = describe(launcher.another(), cluster, plan, launcher.states(cluster))
    assert [node["phase"] for node in shown["nodes"]] == ["running", "starting"]


# --- The engine -------------------------------------------------------------------------------------------


def test_settings_say_which_engine_is_asked(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """config.env, and the environment before it; else docker. A launch may name another."""
    monkeypatch.setattr(context, "PROJECT_ROOT", launcher.root)

    def opened() -> Any:
        return context.open_named(verbs.read("list", ["--backend", "docker"]), launcher.said.append)

    assert opened()._engine.program == "docker"
    (launcher.root / "config.env").write_text("DOCKER=nerdctl\n")
    assert opened()._engine.program == "nerdctl"
    monkeypatch.setitem(os.environ, "DOCKER", "podman")
    assert opened()._engine.program == "podman"
    backend = opened()
    with pytest.raises(EngineError, match="'mine' cannot be run"):
        backend.place(launcher.checkout.plan(1, DOCKER="mine"))


def test_a_dry_run_needs_the_standard_library_only() -> None:
    """On a fresh checkout there is no .venv."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import oci_cluster.backends.docker.backend"
    # -S: without site-packages any other import fails. What is imported later, in copies or a plan, is not.
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"{code}; print(*sys.modules)", str(ROOT / "common")],
        capture_output=True,
        check=True,
        text=True,
    )
    assert {"fsspec", "backports", "oci_cluster.system.archive"} & set(done.stdout.split()) == set()
