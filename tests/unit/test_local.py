"""The local backend's decisions; tests/clusters has its real processes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from oci_cluster import local
from oci_cluster.clusters import Cluster
from oci_cluster.errors import BackendError, NotPermittedError, SettingsError, UsageError

linux = pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.x and abstract sockets are Linux's")


def plan(name: str = "mine", launch_id: str = "aaaa1111", **changes: Any) -> dict[str, Any]:
    """Return a plan of 1 + 1 nodes."""
    return {
        "launch_id": launch_id,
        "cluster_id": f"{name}-{launch_id}",
        "name": name,
        "framework": "plain",
        "backend": "local",
        "created": "2026-01-01T00:00:00Z",
        "work_dir": "",
        "environment": {"LAUNCH_ID": launch_id},
        "nodes": [
            {"node": "MAIN", "environment": {"MODE": "MAIN", "NODE_RANK": "0"}},
            {"node": "WORKER_1", "environment": {"MODE": "WORKER", "NODE_RANK": "1"}},
        ],
        **changes,
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a project with one framework that binds no port."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "start-master.sh").touch()
    return tmp_path


def keep(root: Path, cluster_plan: dict[str, Any], addresses: list[str]) -> Cluster:
    """Put a cluster's directory where submit would."""
    directory = local.state_dir(root) / cluster_plan["cluster_id"]
    directory.mkdir(parents=True)
    for node, address in zip(cluster_plan["nodes"], addresses, strict=True):
        node["environment"]["NODE_ADDRESS"] = address
    (directory / "cluster.json").write_text(json.dumps(cluster_plan))
    return Cluster.load(directory)


class Running:
    """A cluster whose runner's lock is held."""

    def __init__(self, cluster: Cluster) -> None:
        self._lock = (cluster.directory / "runner.lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def __enter__(self) -> None:
        """Hold it."""

    def __exit__(self, *_: object) -> None:
        """Let it go, as the kernel does for a process that ends."""
        self._lock.close()


@pytest.fixture(autouse=True)
def no_other_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep clusters that run on this machine out of these tests: claims get a namespace of this process's own."""
    bind = socket.socket.bind

    class Socket(socket.socket):
        def bind(self, address: Any) -> None:
            bind(self, f"{address}/{os.getpid()}" if self.family == socket.AF_UNIX else address)

    monkeypatch.setattr(local.socket, "socket", Socket)


@linux
def test_nodes_get_the_lowest_addresses_that_no_other_cluster_has() -> None:
    """The first cluster's main is where people look for it; two clusters share no address, so they may share ports."""
    with local.Addresses(3) as first:
        assert first.texts == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
        with local.Addresses(2) as second:
            assert second.texts == ["127.0.0.4", "127.0.0.5"]
    with local.Addresses(1) as third:
        assert third.texts == ["127.0.0.1"]


@linux
def test_addresses_that_do_not_suffice_are_counted_and_given_up() -> None:
    """The message holds the value, the limit and the next step; nothing stays claimed."""
    with local.Addresses(252):
        with pytest.raises(BackendError, match=r"3 nodes do not fit: running clusters leave 2 addresses; end one"):
            local.Addresses(3)
        with local.Addresses(2) as rest:
            assert rest.texts == ["127.0.0.253", "127.0.0.254"]


@linux
def test_claim_lives_as_long_as_a_process_that_inherited_it() -> None:
    """The runner holds its cluster's addresses, not the launcher."""
    with local.Addresses(1) as claimed:
        holder = subprocess.Popen(["sleep", "100"], pass_fds=claimed.descriptors())
    try:
        with local.Addresses(1) as other:
            assert other.texts == ["127.0.0.2"]
    finally:
        holder.kill()
        holder.wait()
    with local.Addresses(1) as again:
        assert again.texts == ["127.0.0.1"]


def test_without_a_loopback_range_nodes_share_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """MacOS has 127.0.0.1 alone."""
    monkeypatch.setattr(local, "has_loopback_range", lambda: False)
    with local.Addresses(2) as addresses:
        assert (addresses.texts, addresses.descriptors()) == (["127.0.0.1", "127.0.0.1"], [])


def test_taken_port_is_named_with_its_setting() -> None:
    """Somebody else's listener is found before anything starts."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"port {port} of .* --env MY_PORT={port + 100}"):
            local.check_ports("127.0.0.1", {"MY_PORT": port})
    assert local.port_is_free("127.0.0.1", port)


def test_check_fills_in_what_this_machine_decides(root: Path) -> None:
    """Addresses, the work dir, and each node's share of the machine; nothing is written."""
    checked = local.check(plan(), root)
    assert [node["environment"]["NODE_ADDRESS"] for node in checked["nodes"]] == ["127.0.0.1", "127.0.0.2"]
    assert checked["environment"]["WORK_DIR"] == f"file://{root}/.clusters"
    assert int(checked["environment"]["NODE_CPUS"]) >= 1
    assert int(checked["environment"]["NODE_MEMORY"]) > 0
    assert not local.state_dir(root).exists()


def test_settings_of_the_launch_win_over_those_of_the_backend(root: Path) -> None:
    """Defaults that suit one machine are defaults."""
    checked = local.check(plan(environment={"HEARTBEAT_TIMEOUT": "7"}), root)
    assert checked["environment"]["HEARTBEAT_TIMEOUT"] == "7"


def test_running_clusters_name_is_taken(root: Path) -> None:
    """Only while it runs."""
    cluster = keep(root, plan(), ["127.0.0.1", "127.0.0.2"])
    with Running(cluster):
        with pytest.raises(UsageError, match="a cluster named 'mine' is running"):
            local.check(plan(), root)
        assert local.check(plan("yours"), root)["name"] == "yours"
    assert local.check(plan(), root)["name"] == "mine"


def test_memory_work_dir_is_refused(root: Path) -> None:
    """Processes cannot see each other's memory."""
    with pytest.raises(SettingsError, match="memory://x is seen by one process only"):
        local.check(plan(work_dir="memory://x"), root)


def test_nodes_of_a_dead_runner_keep_no_exit_code(root: Path) -> None:
    """Not known is not success."""
    cluster = keep(root, plan(), ["127.0.0.1", "127.0.0.2"])
    nodes = [{"node": "MAIN", "state": "IN_PROGRESS", "exit_code": None, "pid": 1}]
    (cluster.directory / "nodes.json").write_text(json.dumps({"runner_pid": 1, "nodes": nodes}).ljust(2000))
    with Running(cluster):
        assert local.state(cluster) == {"nodes": nodes, "running": True}
    assert local.state(cluster) == {"nodes": nodes, "running": False}


def test_records_are_waited_for_while_they_are_written(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torn read is read again; one that stays torn holds nothing."""
    cluster = keep(root, plan(), ["127.0.0.1", "127.0.0.2"])
    path = cluster.directory / "nodes.json"
    path.write_text('{"runner_pid"')
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            path.write_text('{"runner_pid": 5, "nodes": []}')

    monkeypatch.setattr("time.sleep", nap)
    assert local._records(cluster) == {"runner_pid": 5, "nodes": []}
    assert len(naps) == 3
    path.write_text("{")
    assert local._records(cluster) == {"runner_pid": None, "nodes": []}


def test_terminate_tells_the_runner_only_while_it_lives(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pid of a dead runner may be another program's by now."""
    cluster = keep(root, plan(), ["127.0.0.1", "127.0.0.2"])
    (cluster.directory / "nodes.json").write_text(json.dumps({"runner_pid": 4242, "nodes": []}))
    told: list[tuple[int, int]] = []
    monkeypatch.setattr("os.kill", lambda pid, number: told.append((pid, number)))
    local.terminate(cluster)
    assert told == []
    with Running(cluster):
        local.terminate(cluster)
    assert told == [(4242, signal.SIGTERM)]


def test_stop_ends_what_does_not_end_by_itself(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop file, then TERM, then KILL: each only after the one before did not do."""
    cluster = keep(root, plan(work_dir=f"file://{root}/.clusters", environment={"GRACE_PERIOD": "0"}), ["a", "b"])
    steps: list[str] = []
    monkeypatch.setattr(local, "is_running", lambda _: True)
    monkeypatch.setattr(local, "terminate", lambda _: steps.append("terminate"))
    monkeypatch.setattr(local, "kill", lambda _: steps.append("kill"))
    monkeypatch.setattr(local, "_wait_for_end", lambda _, patience_s: steps.append(f"wait {patience_s:g}"))
    local.stop(cluster, steps.append, delete=True)
    assert steps == [
        "stopping mine",
        "wait 10",
        "mine has not ended by itself; ending its nodes",
        "terminate",
        "wait 20",
        "kill",
    ]
    assert not cluster.directory.exists()


def test_runner_that_does_not_start_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The last line that it said is the message; no directory, no process."""
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(BackendError, match="the nodes of mine could not be started: the runner did not answer"):
        local.submit(plan(), root, tmp_path / "python")
    assert list(local.state_dir(root).glob("mine*")) == []


def test_directory_that_cannot_be_made_is_named(root: Path, tmp_path: Path) -> None:
    """A file where .clusters should be."""
    local.state_dir(root).touch()
    with pytest.raises(BackendError, match=r"\.clusters cannot be written: File exists"):
        local.submit(plan(), root, tmp_path / "python")


def test_refused_directory_is_77(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a matter of room: of permission."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(NotPermittedError, match="Permission denied; allow writing there"):
        local.submit(plan(), root, tmp_path / "python")


# --- Scaling --------------------------------------------------------------------------------------------------------


def node_record(name: str, state: str = "IN_PROGRESS", **fields: Any) -> dict[str, Any]:
    """Return the backend's word on a node."""
    code = None if state == "IN_PROGRESS" else 9
    return {"node": name, "state": state, "exit_code": code, "pid": 4242, "address": "127.0.0.1", **fields}


class Scaled:
    """A cluster of 1 + 3 whose runner the test plays."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
        names = ("MAIN", "WORKER_1", "WORKER_2", "WORKER_3")
        given = {"WORKER_COUNT": "3", "MIN_WORKERS": "1", **environment}
        nodes = [{"node": name, "environment": {}} for name in names]
        self.root = root
        self.cluster = keep(root, plan(environment=given, nodes=nodes), ["127.0.0.1"] * 4)
        self.records = [node_record(name) for name in names]
        self.asked: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.error = ""
        self.is_running = True
        monkeypatch.setattr(local, "is_running", lambda _: self.is_running)
        monkeypatch.setattr(local, "_ask_runner", self._answer)
        monkeypatch.setattr(local, "_records", lambda _: {"runner_pid": 4242, "nodes": self.records})

    def _answer(self, cluster: Cluster, request: dict[str, Any]) -> dict[str, Any]:
        assert cluster is self.cluster
        self.asked.append({"start": request["start"], "end": request["end"]})
        return {"id": request["id"], "error": self.error}

    def lose(self, *names: str) -> None:
        """Have nodes end."""
        for record in self.records:
            if record["node"] in names:
                record.update(state="FAILED", exit_code=9)

    def scale(self, text: str) -> int:
        """Ask for workers as scale.sh does."""
        return local.scale(self.cluster, text, self.root, self.said.append, most=250)


@pytest.fixture
def scaled(root: Path, monkeypatch: pytest.MonkeyPatch) -> Scaled:
    """Return a running cluster of 1 + 3 that can do with one worker."""
    return Scaled(root, monkeypatch)


def test_workers_are_added(scaled: Scaled) -> None:
    """The runner is asked for the next ranks; each is told, and the number is what there is then."""
    assert scaled.scale("+2") == 5
    assert scaled.asked == [{"start": [4, 5], "end": []}]
    assert scaled.said == ["WORKER_4 started", "WORKER_5 started"]


def test_a_lost_worker_is_replaced_by_its_rank(scaled: Scaled) -> None:
    """The number that there was, asked for again."""
    scaled.lose("WORKER_2")
    assert scaled.scale("3") == 3
    assert scaled.asked == [{"start": [2], "end": []}]


def test_ranks_of_added_workers_are_not_given_twice(scaled: Scaled) -> None:
    """The plan does not know them; the records do."""
    scaled.records.append(node_record("WORKER_4"))
    assert scaled.scale("+1") == 5
    assert scaled.asked == [{"start": [5], "end": []}]


def test_workers_with_the_highest_ranks_are_ended(scaled: Scaled, monkeypatch: pytest.MonkeyPatch) -> None:
    """It returns when they have ended, and not before."""
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            scaled.lose("WORKER_2", "WORKER_3")

    monkeypatch.setattr("time.sleep", nap)
    assert scaled.scale("-2") == 1
    assert scaled.asked == [{"start": [], "end": [2, 3]}]
    assert (scaled.said, len(naps)) == (["ending WORKER_2, WORKER_3"], 3)


def test_the_number_that_is_there_changes_nothing(scaled: Scaled) -> None:
    """Neither started nor ended."""
    assert scaled.scale("3") == 3
    assert (scaled.asked, scaled.said) == ([{"start": [], "end": []}], [])


def test_a_worker_that_does_not_end_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After GRACE_PERIOD and 10 s: 69, with the way out."""
    scaled = Scaled(root, monkeypatch, GRACE_PERIOD="7")
    now = [100.0]

    def nap(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", nap)
    with pytest.raises(BackendError, match=r"^WORKER_3 did not end; end the whole cluster: scripts/stop.sh mine$"):
        scaled.scale("-1")
    assert 117 < now[0] < 117.2


@pytest.mark.parametrize(("text", "wanted"), [("0", 0), ("-3", 0), ("251", 251), ("+248", 251)])
def test_workers_that_cannot_be_ask_for_nothing(scaled: Scaled, text: str, wanted: int) -> None:
    """MIN_WORKERS and the backend's room are the limits."""
    with pytest.raises(UsageError, match=f"^{wanted} workers are not possible, 1 to 250 are \\(3 now\\)"):
        scaled.scale(text)
    assert (scaled.asked, scaled.said) == ([], [])


def test_a_cluster_that_has_ended_cannot_be_scaled(scaled: Scaled) -> None:
    """Wrong usage, with the next step."""
    scaled.is_running = False
    with pytest.raises(UsageError, match=r"^mine has ended; launch it again: scripts/launch\.sh$"):
        scaled.scale("+1")
    assert scaled.asked == []


def test_what_the_runner_could_not_do_is_told(scaled: Scaled) -> None:
    """69, in its own words; nothing is said to have started."""
    scaled.error = "2 nodes do not fit"
    with pytest.raises(BackendError, match=r"^2 nodes do not fit$"):
        scaled.scale("+2")
    assert scaled.said == []


def test_nodes_of_a_cluster_are_the_launched_then_the_added(root: Path) -> None:
    """Each is named once; a replacement has its predecessor's name."""
    cluster = keep(root, plan(), ["127.0.0.1", "127.0.0.2"])
    assert local.node_names(cluster) == ["MAIN", "WORKER_1"]
    records = {"runner_pid": 1, "nodes": [node_record("MAIN"), node_record("WORKER_4"), node_record("WORKER_1")]}
    (cluster.directory / "nodes.json").write_text(json.dumps(records))
    assert local.node_names(cluster) == ["MAIN", "WORKER_1", "WORKER_4"]


# --- Asking the runner ----------------------------------------------------------------------------------------------


class PlayedRunner:
    """A runner's process, which answers when it is woken."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, launch_id: str) -> None:
        self._cluster = cluster
        self._launch_id = launch_id
        self.pids: list[int | None] = []
        self.signals: list[int] = []
        self.requests: list[dict[str, Any]] = []
        monkeypatch.setattr("psutil.Process", self._process)
        self.answers()

    def answers(self, **answer: Any) -> None:
        """Have the records hold an answer."""
        record = {"runner_pid": 4242, "nodes": [], "answer": answer}
        (self._cluster.directory / "nodes.json").write_text(json.dumps(record))

    def _process(self, pid: int | None) -> PlayedRunner:
        self.pids.append(pid)
        return self

    def environ(self) -> dict[str, str]:
        """Return the mark by which it is known."""
        return {"CLUSTER_RUNNER": self._launch_id}

    def send_signal(self, number: int) -> None:
        """Read the request, and answer it."""
        self.signals.append(number)
        self.requests.append(json.loads((self._cluster.directory / "scale.json").read_text()))
        self.answers(id=self.requests[-1]["id"], error="")


@pytest.fixture
def kept(root: Path) -> Cluster:
    """Return a cluster of 1 + 1."""
    return keep(root, plan(), ["127.0.0.1", "127.0.0.2"])


REQUEST = {"id": "r1", "start": [2], "end": []}


def test_a_runner_is_woken_and_its_answer_returned(kept: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is whole before the signal comes; nothing of it is left but the request itself."""
    runner = PlayedRunner(kept, monkeypatch, kept.launch_id)
    with Running(kept):
        assert local._ask_runner(kept, REQUEST) == {"id": "r1", "error": ""}
    assert (runner.pids, runner.signals, runner.requests) == ([4242], [signal.SIGUSR1], [REQUEST])
    assert [path.name for path in kept.directory.glob("scale*")] == ["scale.json"]


def test_another_programs_process_is_not_woken(kept: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pid may be another program's by now: USR1 would end it. A runner that is gone does not answer."""
    runner = PlayedRunner(kept, monkeypatch, "another launch")
    with pytest.raises(BackendError, match=r"^the runner of mine does not answer; see .*/logs/runner\.log$"):
        local._ask_runner(kept, REQUEST)
    assert runner.signals == []


def test_a_runner_that_is_gone_is_named(kept: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such process: its silence says it."""

    def gone(pid: int) -> None:
        raise psutil.NoSuchProcess(pid)

    PlayedRunner(kept, monkeypatch, kept.launch_id)
    monkeypatch.setattr("psutil.Process", gone)
    with pytest.raises(BackendError, match="does not answer"):
        local._ask_runner(kept, REQUEST)


def test_an_older_answer_is_not_taken_for_this_one(kept: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner that is stuck is given up after a minute, whatever it answered before."""
    runner = PlayedRunner(kept, monkeypatch, kept.launch_id)
    monkeypatch.setattr(runner, "send_signal", lambda _: runner.answers(id="r0", error=""))
    now = [0.0]

    def nap(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", nap)
    with Running(kept), pytest.raises(BackendError, match="does not answer"):
        local._ask_runner(kept, REQUEST)
    assert 60 < now[0] < 60.1


def test_a_request_that_cannot_be_left_is_named(kept: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, or one that refuses."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(BackendError, match=r"scale\.json cannot be written: No space left on device; make room there"):
        local._ask_runner(kept, REQUEST)


# --- The runner -----------------------------------------------------------------------------------------------------


class PlayedSignals:
    """The runner's waits, each of which is the next step of the test."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.steps: list[Callable[[], object]] = []

    def wait(self, seconds: float) -> None:
        """Run the next step."""
        assert self.steps, "the runner waits for something that never comes"
        self.steps.pop(0)()


class PlayedAgents:
    """Agents that end when the test says so."""

    def __init__(self) -> None:
        self.environs: dict[int, dict[str, str]] = {}
        self.codes: dict[int, int] = {}
        self.fault: OSError | None = None

    def start(self, command: list[str], *, environ: dict[str, str], **_: object) -> int:
        """Note what the agent is given; pids count from 101."""
        if self.fault is not None:
            raise self.fault
        assert command[1:] == ["-m", "oci_cluster", "agent"]
        self.environs[101 + len(self.environs)] = environ
        return 100 + len(self.environs)

    def code(self, pid: int) -> int | None:
        """Return what the test set."""
        return self.codes.get(pid)

    def reap(self) -> bool:
        """Nothing is left."""
        return False


class PlayedNodes:
    """A runner of a cluster of 1 + 1, whose agents and signals the test plays."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.agents = PlayedAgents()
        self.signals = PlayedSignals()
        self.told: list[tuple[int, int]] = []
        self.swept: list[dict[str, str]] = []
        (cluster.directory / "logs").mkdir()
        monkeypatch.setattr(local, "Children", lambda: self.agents)
        monkeypatch.setattr(local, "Signals", lambda: self.signals)
        monkeypatch.setattr(local, "sweep_marked", self._sweep)
        monkeypatch.setattr("os.kill", lambda pid, number: self.told.append((pid, number)))

    def _sweep(self, marks: Mapping[str, str]) -> int:
        self.swept.append(dict(marks))
        return 0

    def asks(self, **request: Any) -> None:
        """Leave a request, as scale.sh does."""
        (self.cluster.directory / "scale.json").write_text(json.dumps({"start": [], "end": [], **request}))

    def ends(self, *pids: int, code: int = 0) -> None:
        """Have agents end."""
        self.agents.codes.update(dict.fromkeys(pids, code))

    def run(self, *steps: Callable[[], object]) -> None:
        """Be the runner, until all nodes have ended."""
        self.signals.steps = [*steps]
        with (self.cluster.directory / "runner.lock").open("w") as lock:
            runner = local.Runner(self.cluster, {"PATH": "/bin", "CLUSTER_RUNNER": "x"}, lock.fileno())
            try:
                assert runner.run() == 0
            finally:
                os.close(runner._file)  # what a runner gives up with its process
                for claim in runner._claims:
                    claim.close()

    def records(self) -> dict[str, tuple[str, int | None, str]]:
        """Return state, exit code and address of each node, as they are recorded."""
        nodes = local.state(self.cluster)["nodes"]
        return {node["node"]: (node["state"], node["exit_code"], node["address"]) for node in nodes}

    def answer(self) -> dict[str, Any]:
        """Return the last answer."""
        return dict(local._records(self.cluster)["answer"])


@pytest.fixture
def played(root: Path, monkeypatch: pytest.MonkeyPatch) -> PlayedNodes:
    """Return a runner of 1 + 1 nodes."""
    return PlayedNodes(keep(root, plan(python="/venv/bin/python"), ["127.0.0.1", "127.0.0.2"]), monkeypatch)


def test_a_runner_starts_all_nodes_and_records_how_each_ended(played: PlayedNodes) -> None:
    """In the words of the service; what a node left is swept by its name, and the launch's in the end."""
    played.run(lambda: played.ends(102, code=143), lambda: played.ends(101, code=7))
    assert played.records() == {"MAIN": ("FAILED", 7, "127.0.0.1"), "WORKER_1": ("CANCELED", 143, "127.0.0.2")}
    launch = {"LAUNCH_ID": "aaaa1111"}
    assert played.swept == [{**launch, "NODE_NAME": "WORKER_1"}, {**launch, "NODE_NAME": "MAIN"}, launch]
    assert played.agents.environs[101]["PATH"] == "/venv/bin:/bin"
    assert "CLUSTER_RUNNER" not in played.agents.environs[101]


@linux
def test_a_runner_adds_a_worker(played: PlayedNodes) -> None:
    """It gets a rank, a name and an address that no other node has, and its end is recorded as any other's."""
    now: list[Any] = []
    with local.Addresses(2):
        played.run(
            lambda: played.asks(id="r1", start=[2]),
            lambda: now.append((played.answer(), played.records())),
            lambda: played.ends(101, 102, 103),
        )
    assert now[0][0] == {"id": "r1", "error": ""}
    assert now[0][1]["WORKER_2"] == ("IN_PROGRESS", None, "127.0.0.3")
    assert played.records()["WORKER_2"] == ("SUCCEEDED", 0, "127.0.0.3")
    wanted = {"MODE": "WORKER", "NODE_RANK": "2", "NODE_NAME": "WORKER_2", "NODE_ADDRESS": "127.0.0.3"}
    assert {name: played.agents.environs[103][name] for name in wanted} == wanted
    assert played.agents.environs[103]["LAUNCH_ID"] == "aaaa1111"


@linux
def test_a_replacement_takes_its_predecessors_place(played: PlayedNodes) -> None:
    """One record for each name: the new node's, with an address of its own."""
    with local.Addresses(2):
        played.run(
            lambda: played.ends(102, code=9),
            lambda: played.asks(id="r1", start=[1]),
            lambda: played.ends(101, 103),
        )
    assert played.records() == {"MAIN": ("SUCCEEDED", 0, "127.0.0.1"), "WORKER_1": ("SUCCEEDED", 0, "127.0.0.3")}
    assert len(local.state(played.cluster)["nodes"]) == 2


def test_a_runner_ends_workers_in_order(played: PlayedNodes) -> None:
    """TERM to the agent, once, and only to one that runs; the rest go on."""
    played.run(
        lambda: played.asks(id="r1", end=[1, 7]),
        lambda: played.ends(102, code=143),
        lambda: played.asks(id="r2", end=[1]),
        lambda: played.ends(101),
    )
    assert played.told == [(102, signal.SIGTERM)]
    assert played.answer() == {"id": "r2", "error": ""}


def test_a_request_is_done_once(played: PlayedNodes) -> None:
    """The runner wakes for many reasons, and the request stays where it is."""
    played.run(lambda: played.asks(id="r1", end=[1]), lambda: None, lambda: None, lambda: played.ends(101, 102))
    assert played.told == [(102, signal.SIGTERM)]


@linux
def test_a_worker_that_finds_no_address_is_not_started(played: PlayedNodes) -> None:
    """The answer says why; the cluster goes on."""
    with local.Addresses(254):
        played.run(lambda: played.asks(id="r1", start=[2]), lambda: played.ends(101, 102))
    assert (played.answer()["id"], played.answer()["error"][:20]) == ("r1", "1 nodes do not fit: ")
    assert played.records() == {"MAIN": ("SUCCEEDED", 0, "127.0.0.1"), "WORKER_1": ("SUCCEEDED", 0, "127.0.0.2")}


def test_a_worker_that_cannot_be_started_is_told(played: PlayedNodes) -> None:
    """No more processes: the system's own words, and the cluster goes on."""

    def ask() -> None:
        played.agents.fault = OSError(11, "Resource temporarily unavailable")
        played.asks(id="r1", start=[2])

    played.run(ask, lambda: played.ends(101, 102))
    assert played.answer() == {"id": "r1", "error": "[Errno 11] Resource temporarily unavailable"}


def test_a_runner_that_ends_its_nodes_starts_no_more(played: PlayedNodes) -> None:
    """TERM to all, in their grace period; a request that comes then is not answered."""

    def told_to_end() -> None:
        played.signals.received = signal.SIGTERM

    played.run(
        told_to_end,
        lambda: played.asks(id="r1", start=[2]),
        lambda: played.ends(101, 102, code=143),
        lambda: None,
    )
    assert played.told == [(101, signal.SIGTERM), (102, signal.SIGTERM)]
    assert (played.answer(), sorted(played.records())) == ({}, ["MAIN", "WORKER_1"])


def test_a_node_that_does_not_end_is_killed(played: PlayedNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its own grace and 10 s to tidy up."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def told_to_end() -> None:
        played.signals.received = signal.SIGTERM

    def half_a_minute_later() -> None:
        now[0] += 30

    played.run(told_to_end, lambda: played.ends(102), half_a_minute_later, lambda: played.ends(101, code=137))
    assert played.told == [(101, signal.SIGTERM), (102, signal.SIGTERM), (101, signal.SIGKILL)]
    assert played.records()["MAIN"] == ("FAILED", 137, "127.0.0.1")


def test_records_have_room_for_the_end_of_added_nodes(played: PlayedNodes) -> None:
    """Taken when a node is added: a disk that fills up later cannot lose its exit code."""
    sizes: list[int] = []

    def note_size() -> None:
        sizes.append((played.cluster.directory / "nodes.json").stat().st_size)

    played.run(
        note_size,
        lambda: played.asks(id="r1", start=[2, 3, 4]),
        note_size,
        lambda: played.ends(101, 102, 103, 104, 105),
    )
    note_size()
    assert sizes[1] == sizes[2] == sizes[0] + 3 * 256


def test_a_runner_holds_the_clusters_lock(played: PlayedNodes) -> None:
    """The verb takes the lock for as long as nodes run: that is what being alive means."""
    running: list[bool] = []
    played.signals.steps = [lambda: running.append(local.is_running(played.cluster)), lambda: played.ends(101, 102)]
    assert local.run_nodes(played.cluster.directory) == 0
    assert (running, local.is_running(played.cluster)) == ([True], False)


# --- Killing --------------------------------------------------------------------------------------------------------


def test_kill_removes_the_directories_of_added_nodes_too(
    kept: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Runner first, then all that bears the launch's mark until nothing is left; no node's directory stays."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = iter([0, 2, 1, 0])
    swept: list[dict[str, str]] = []

    def sweep(marks: Mapping[str, str]) -> int:
        swept.append(dict(marks))
        return next(left)

    monkeypatch.setattr(local, "sweep_marked", sweep)
    monkeypatch.setattr("time.sleep", lambda _: None)
    records = {"runner_pid": 1, "nodes": [node_record("MAIN"), node_record("WORKER_7")]}
    (kept.directory / "nodes.json").write_text(json.dumps(records))
    for node in ("MAIN", "WORKER_1", "WORKER_7"):
        (tmp_path / f"aaaa1111-{node}").mkdir()
    local.kill(kept)
    assert swept == [{"CLUSTER_RUNNER": "aaaa1111"}, *[{"LAUNCH_ID": "aaaa1111"}] * 3]
    assert list(tmp_path.glob("aaaa1111-*")) == []


def test_room_that_could_not_be_taken_is_not_counted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk refuses room for added nodes; the next time it is taken where the file ends, without a hole."""
    (root / "logs").mkdir()
    plan = {"name": "x", "launch_id": "l", "cluster_id": "c", "created": "now", "nodes": [], "environment": {}}
    (root / "cluster.json").write_text(json.dumps(plan))
    monkeypatch.setattr(local, "Children", SimpleNamespace)
    monkeypatch.setattr(local, "Signals", SimpleNamespace)
    runner = local.Runner(Cluster.load(root), {}, 0)
    before = runner._size

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(OSError, match="No space"):
        runner._add([2])
    assert runner._size == before
