"""The local backend's decisions; tests/clusters has its real processes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from unit.backends.local.fake_runner import node_record, record
from unit.fake_local import LIMITS, Running, keep, make_plan

from oci_cluster.backends.local import backend as local
from oci_cluster.backends.local import records
from oci_cluster.backends.local.backend import LocalBackend
from oci_cluster.contract.cluster import Cluster, NodeState, Plan, State, clusters_dir
from oci_cluster.contract.names import rank_of
from oci_cluster.contract.storage import hanging_disk
from oci_cluster.errors import (
    BackendError,
    NotPermittedError,
    SettingsError,
    StoppedError,
    StorageError,
    UsageError,
)
from oci_cluster.launcher.lifecycle import Lifecycle

pytestmark = pytest.mark.usefixtures("no_other_claims")

linux = pytest.mark.skipif(sys.platform != "linux", reason="psutil reads another process's environment there")


# --- Placing --------------------------------------------------------------------------------------------------------


def test_place_fills_in_what_this_machine_decides(backend: LocalBackend, root: Path) -> None:
    """Addresses, the work dir, and each node's share of the machine; nothing is written."""
    placed = backend.place(make_plan())
    assert [node.address for node in placed.nodes] == ["127.0.0.1", "127.0.0.2"]
    assert placed.environment["WORK_DIR"] == placed.work_dir == f"file://{root}/.clusters"
    assert int(placed.environment["NODE_CPUS"]) >= 1
    assert int(placed.environment["NODE_MEMORY"]) > 0
    assert not clusters_dir(root).exists()


def test_the_preview_is_what_the_cluster_will_keep(backend: LocalBackend) -> None:
    """But for secrets, which are not shown."""
    placed = backend.place(make_plan(environment={"MY_TOKEN": "secret"}))
    shown = json.loads(backend.preview(placed, as_json=False))
    assert shown["environment"].pop("MY_TOKEN") == "(not shown)"
    kept = json.loads(json.dumps(placed.to_json()))
    assert kept["environment"].pop("MY_TOKEN") == "secret"
    assert shown == kept


def test_packages_are_added_to_the_frameworks_environment(
    backend: LocalBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of --with and the files of EXTRA_ENV; the nodes run in what comes of it."""
    (tmp_path / "my file.yaml").touch()
    asked: list[object] = []
    monkeypatch.setattr(local, "ensure_framework", lambda *words: asked.append(words[-1]) or tmp_path / "base")
    monkeypatch.setattr(local, "with_packages", lambda *words, torch: asked.extend([words[1:4], torch]) or tmp_path)
    settings = {"EXTRA_ENV": f"'{tmp_path}/my file.yaml'", "TORCH": "cpu"}
    plan = backend.place(make_plan(packages=("a", "b>1"), settings=settings))
    assert json.loads(backend.preview(plan, as_json=False))["packages"] == ["a", "b>1"]
    assert backend.prepare(plan, lambda _: None).python == str(tmp_path)
    assert asked == ["cpu", (tmp_path / "base", ("a", "b>1"), [tmp_path / "my file.yaml"]), "cpu"]
    assert backend.prepare(make_plan(), lambda _: None).python == str(tmp_path / "base")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"TORCH": "gpu"}, "TORCH: 'gpu' is not cpu"),
        ({"GPUS_PER_NODE": "1.5"}, "GPUS_PER_NODE: '1.5' is not a whole number from 0 to 1000, nor auto nor all"),
        ({"EXTRA_ENV": "no.yaml"}, "EXTRA_ENV: there is no file no.yaml in"),
        ({"EXTRA_ENV": "~nobody-of-this-name/a"}, "EXTRA_ENV: there is no file ~nobody-of-this-name/a in"),
        ({"EXTRA_ENV": 300 * "n"}, f"EXTRA_ENV: {300 * 'n'} cannot be looked at: File name too long"),
    ],
)
def test_what_cannot_be_added_is_refused_before_anything_is_made(
    backend: LocalBackend, settings: dict[str, str], why: str
) -> None:
    """In a dry run too."""
    with pytest.raises(SettingsError, match=why):
        backend.place(make_plan(settings=settings))


def test_settings_of_the_launch_win_over_those_of_the_backend(backend: LocalBackend) -> None:
    """Defaults that suit one machine are defaults."""
    placed = backend.place(make_plan(environment={"HEARTBEAT_TIMEOUT": "7"}))
    assert placed.environment["HEARTBEAT_TIMEOUT"] == "7"


def test_claims_are_held_until_the_backend_is_closed(root: Path) -> None:
    """Two launches at once get different addresses; one that is given up leaves them to the next."""
    first, second, third = LocalBackend(root), LocalBackend(root), LocalBackend(root)
    assert first.place(make_plan()).nodes[0].address == "127.0.0.1"
    assert second.place(make_plan()).nodes[0].address == "127.0.0.3"
    first.close()
    assert third.place(make_plan()).nodes[0].address == "127.0.0.1"
    second.close()
    third.close()


def test_memory_work_dir_is_refused(backend: LocalBackend) -> None:
    """Processes cannot see each other's memory."""
    with pytest.raises(SettingsError, match="nodes cannot share WORK_DIR memory://x"):
        backend.place(make_plan(work_dir="memory://x"))


def test_a_default_port_that_is_taken_gives_way_in_all_that_the_plan_says(backend: LocalBackend, root: Path) -> None:
    """What nodes are given, what the launcher itself goes by, and what is kept; it is said once."""
    said: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (root / "plain" / "settings.env").write_text(f"MY_PORT={port}\n")
        limits = replace(LIMITS, ports={"MY_PORT": port})
        placed = backend.place(make_plan(limits=limits), said.append)
    taken = placed.limits.ports["MY_PORT"]
    assert taken > port
    assert placed.environment["MY_PORT"] == placed.to_json()["environment"]["MY_PORT"] == str(taken)
    assert said == [f"MY_PORT {port} is taken; this cluster has {taken}"]


def test_a_chosen_port_that_is_taken_is_refused(backend: LocalBackend) -> None:
    """On main's own address, before anything starts."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port {port} of 127.0.0.1 is taken by another program"):
            backend.place(make_plan(limits=replace(LIMITS, ports={"MY_PORT": port}), chosen=frozenset({"MY_PORT"})))


def test_running_clusters_name_is_taken(root: Path, backend: LocalBackend) -> None:
    """Only while it runs."""
    lifecycle = Lifecycle(backend, root, lambda _: None)
    with Running(keep(root, make_plan())):
        with pytest.raises(UsageError, match=r"^a cluster named 'mine' is running; .* scripts/stop\.sh mine$"):
            lifecycle.check_name("mine")
        lifecycle.check_name("yours")
    lifecycle.check_name("mine")


def test_the_interpreter_is_the_users_own(backend: LocalBackend, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it lacks packages, it says which, and how to get them; nothing is made."""
    made: list[str] = []
    (root / "plain" / "settings.env").write_text("REQUIRED_PACKAGES=one,two\n")
    monkeypatch.setattr(local, "ensure_tools", lambda *_: made.append("tools"))
    monkeypatch.setattr(local, "missing_packages", lambda _python, names: names[1:])
    plan: Plan = make_plan(python="/own/python")
    with pytest.raises(SettingsError, match=r"^--python /own/python lacks two; .*: /own/python -m pip install two$"):
        backend.prepare(plan, lambda _: None)
    assert made == []
    monkeypatch.setattr(local, "missing_packages", lambda *_: [])
    assert backend.prepare(plan, lambda _: None) == plan
    assert made == ["tools"]


# --- Starting -------------------------------------------------------------------------------------------------------


def launch(backend: LocalBackend, root: Path) -> Cluster:
    """Launch a cluster of 1 + 1."""
    with contextlib.closing(backend):
        return Lifecycle(backend, root, lambda _: None).launch(backend.place(make_plan()))


def test_runner_that_does_not_start_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line that it said is the message; no directory, no process."""
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(BackendError, match="the nodes of mine could not be started: the runner did not answer"):
        launch(LocalBackend(root), root)
    assert list(clusters_dir(root).glob("mine*")) == []


def test_a_cluster_that_is_just_being_started_has_not_ended(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runner has not begun: a stop.sh that took it for ended would kill what comes, and nobody would know why."""
    seen: list[list[NodeState]] = []

    def start_runner(_: LocalBackend, cluster: Cluster, _lock: int) -> None:
        other = LocalBackend(root)
        (found,) = other.find("mine")
        seen.append(other.states([found])[cluster.launch_id])
        raise BackendError("enough")

    monkeypatch.setattr(LocalBackend, "_start_runner", start_runner)
    with pytest.raises(BackendError, match="enough"):
        launch(LocalBackend(root), root)
    assert seen == [[NodeState("MAIN", State.ACCEPTED), NodeState("WORKER_1", State.ACCEPTED)]]


def test_the_cluster_dir_in_a_work_dir_of_ones_own_is_private(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs, logs and reasons are nobody else's there either, whatever the umask; the folders above are as usual."""
    monkeypatch.setattr(LocalBackend, "_start_runner", lambda *_: None)
    work = tmp_path / "shared" / "work"
    plan = make_plan(work_dir=f"file://{work}")
    old = os.umask(0o022)
    try:
        keep(root, plan)
        LocalBackend(root).start(plan, plan.nodes, lambda _: None)
    finally:
        os.umask(old)
    assert stat.S_IMODE((work / plan.cluster_id).stat().st_mode) == 0o700
    assert stat.S_IMODE(work.stat().st_mode) == 0o755


def test_a_work_dir_whose_disk_hangs_holds_no_launch_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is named, and no node begins."""
    usual, started = Path.mkdir, []

    def mkdir(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002
        if path.parts[1] == "stuck":
            threading.Event().wait(240)
        usual(path, mode, parents, exist_ok)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(hanging_disk, "LIMIT_S", 0.3)
    monkeypatch.setattr(LocalBackend, "_start_runner", lambda *_: started.append("runner"))
    plan = make_plan(work_dir="file:///stuck")
    keep(root, plan)
    with pytest.raises(StorageError, match=r"^its work dir file:///stuck/mine-aaaa1111 does not answer"):
        LocalBackend(root).start(plan, plan.nodes, lambda _: None)
    assert started == []


def test_a_cluster_that_has_ended_while_its_directory_was_away_was_started(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its nodes ran to their end, which the runner's own 0 tells; how they ended is seen when the directory is back."""
    monkeypatch.setattr("sys.executable", "/bin/true")
    backend = LocalBackend(root)
    cluster = launch(backend, root)
    cluster.directory.rename(cluster.directory.with_name("away"))
    with pytest.raises(BackendError, match="is not there; bring it back"):
        backend.states([cluster])


def test_a_runner_that_somebody_kills_is_told(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a stop.sh does that comes before the first node: the runner itself has said nothing."""
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -KILL $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(killed))
    with pytest.raises(BackendError, match=r"could not be started: the runner was killed by SIGKILL, as stop\.sh does"):
        launch(LocalBackend(root), root)


def test_a_runners_log_that_is_away_is_told(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The folder has gone between the runner's start and its end."""
    gone = tmp_path / "gone"
    gone.write_text("#!/bin/sh\nrm -r logs\nexit 1\n")
    gone.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(gone))
    with pytest.raises(BackendError, match=r"the nodes of mine could not be started: .*No such file or directory"):
        launch(LocalBackend(root), root)


def test_a_launch_that_was_stopped_meanwhile_says_so(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same Ctrl-C may have ended a runner that was just being started: that is no failure of its own."""
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(StoppedError, match="stopped before any node had started"):
        launch(LocalBackend(root, is_stopped=lambda: True), root)
    assert list(clusters_dir(root).glob("mine*")) == []


def test_directory_that_cannot_be_made_is_named(root: Path, backend: LocalBackend) -> None:
    """A file where .clusters should be."""
    clusters_dir(root).touch()
    with pytest.raises((BackendError, NotPermittedError), match=r"\.clusters cannot be written: "):
        launch(backend, root)


def test_refused_directory_is_77(root: Path, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a matter of room: of permission."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(NotPermittedError, match="Permission denied; allow writing there"):
        launch(backend, root)


# --- States ---------------------------------------------------------------------------------------------------------


def test_nodes_of_a_dead_runner_keep_no_exit_code(backend: LocalBackend, kept: Cluster) -> None:
    """Not known is not success."""
    record(kept, node_record("MAIN"))
    node = NodeState("MAIN", State.IN_PROGRESS, None, 4243, "127.0.0.1")
    with Running(kept):
        assert backend.states([kept]) == {"aaaa1111": [node]}
        assert node.is_running
    lost = replace(node, is_lost=True)
    assert backend.states([kept]) == {"aaaa1111": [lost]}
    assert not lost.is_running


@linux
@pytest.mark.parametrize("is_reaped", [True, False], ids=["gone", "of this process, which has not asked how it ended"])
def test_a_runner_that_was_killed_leaves_the_nodes_that_live(
    backend: LocalBackend, kept: Cluster, *, is_reaped: bool
) -> None:
    """A frozen one holds the lock, and nobody records how the others ended: they are lost, and it is not."""
    sleep = ["sleep", "60"]
    runner = subprocess.Popen(sleep)
    frozen = subprocess.Popen(sleep, env={**os.environ, "CLUSTER_RUNNER": "aaaa1111"})
    another = subprocess.Popen(sleep, env={**os.environ, "CLUSTER_RUNNER": "bbbb2222"})  # has MAIN's number by now
    nodes = [node_record("MAIN", pid=another.pid), node_record("WORKER_1", pid=frozen.pid)]
    record(kept, *nodes, runner_pid=runner.pid)
    try:
        with Running(kept):
            assert [node.is_lost for node in backend.states([kept])["aaaa1111"]] == [False, False]
            runner.kill()
            os.waitid(os.P_PID, runner.pid, os.WEXITED | (0 if is_reaped else os.WNOWAIT))
            assert [node.is_lost for node in backend.states([kept])["aaaa1111"]] == [True, False]
            frozen.kill()
            frozen.wait()
            assert [node.is_lost for node in backend.states([kept])["aaaa1111"]] == [True, True]
    finally:
        for process in (runner, frozen, another):
            process.kill()
            process.wait()


def test_what_a_runner_recorded_last_is_read_where_it_is_gone_meanwhile(
    backend: LocalBackend, kept: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between a look at its records and a look at itself it has recorded a code, and ended."""

    def has_ended(_: object) -> bool:
        record(kept, node_record("MAIN", "SUCCEEDED", exit_code=0))
        return True

    record(kept, node_record("MAIN"))
    monkeypatch.setattr(records, "is_orphaned", has_ended)
    with Running(kept):
        assert [node.exit_code for node in backend.states([kept])["aaaa1111"]] == [0]


def test_nodes_that_are_just_being_started_have_not_ended(backend: LocalBackend, kept: Cluster) -> None:
    """A runner that lives and has recorded nothing yet: another terminal must not take its cluster for ended."""
    with Running(kept):
        assert [(node.node, node.state, node.is_running) for node in backend.states([kept])["aaaa1111"]] == [
            ("MAIN", State.ACCEPTED, True),
            ("WORKER_1", State.ACCEPTED, True),
        ]
    assert backend.states([kept]) == {"aaaa1111": []}


def test_nodes_are_shown_by_rank(backend: LocalBackend, kept: Cluster) -> None:
    """A replacement is recorded last, and stands in its predecessor's place."""
    record(kept, *[node_record(name) for name in ("MAIN", "WORKER_2", "WORKER_10", "WORKER_1")])
    assert [rank_of(node.node) for node in backend.states([kept])["aaaa1111"]] == [0, 1, 2, 10]


def test_records_are_waited_for_while_they_are_written(kept: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn read is read again; one that stays torn holds nothing."""
    path = kept.directory / "nodes.json"
    path.write_text('{"runner_pid"')
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            path.write_text('{"runner_pid": 5, "nodes": []}')

    monkeypatch.setattr("time.sleep", nap)
    assert records.read_records(kept.directory) == {"runner_pid": 5, "nodes": []}
    assert len(naps) == 3
    path.write_text("{")
    assert records.read_records(kept.directory) == {"runner_pid": None, "nodes": []}


def test_a_work_dir_that_nodes_could_not_open_is_refused(backend: LocalBackend) -> None:
    """Before an environment is made for them."""
    plan = make_plan(work_dir="nosuch://bucket")
    with pytest.raises(SettingsError, match="WORK_DIR nosuch://bucket/mine-aaaa1111: Protocol not known: nosuch"):
        backend.prepare(plan, lambda _: pytest.fail("nothing is prepared"))
