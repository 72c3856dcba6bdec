"""The runner's decisions, with agents and signals that the test plays."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.fake_local import keep, make_plan

from oci_cluster.backends.local import records
from oci_cluster.backends.local import runner as local
from oci_cluster.backends.local.addresses import Addresses
from oci_cluster.contract.cluster import Cluster, Plan
from oci_cluster.errors import BackendError
from oci_cluster.system.files import locked
from oci_cluster.system.process import Children

linux = pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.x and abstract sockets are Linux's")

pytestmark = pytest.mark.usefixtures("no_other_claims")


class FakeSignals:
    """The runner's waits, each of which is the next step of the test."""

    def __init__(self) -> None:
        self.received: int | None = None
        self.steps: list[Callable[[], object]] = []

    def wait(self, seconds: float) -> None:
        """Run the next step."""
        assert self.steps, "the runner waits for something that never comes"
        self.steps.pop(0)()


class FakeAgents:
    """Agents that end when the test says so."""

    def __init__(self) -> None:
        self.environs: dict[int, dict[str, str]] = {}
        self.codes: dict[int, int] = {}
        self.fault: OSError | None = None
        self.given: dict[str, str] = {}
        self.kept: list[int] = []

    def fork(self, call: Callable[[], int], *, name: str, keep: Sequence[int], **_: object) -> int:
        """Note what the agent is given; pids count from 101."""
        if self.fault is not None:
            raise self.fault
        assert call() == 5  # what `be_agent` of the test returns, after it has noted its environment
        self.environs[101 + len(self.environs)] = self.given
        assert self.given["NODE_NAME"] == name
        self.kept += keep
        return 100 + len(self.environs)

    def be_agent(self, environ: Mapping[str, str]) -> int:
        """Be what a forked process would be."""
        self.given = dict(environ)
        return 5

    def end_all(self, pids: Sequence[int], grace_s: float, *, wait: Callable[[float], None]) -> None:
        """As the real ones do, with the test's signals."""
        Children.end_all(self, pids, grace_s, wait=wait)  # type: ignore[arg-type]

    def code(self, pid: int) -> int | None:
        """Return what the test set."""
        return self.codes.get(pid)

    def reap(self) -> bool:
        """Nothing is left."""
        return False


class FakeNodes:
    """A runner of a cluster of 1 + 1, whose agents and signals the test plays."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.plan = Plan.load(cluster.directory, cluster.directory)
        self.agents = FakeAgents()
        self.signals = FakeSignals()
        self.told: list[tuple[int, int]] = []
        self.swept: list[dict[str, str]] = []
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
        directory = self.cluster.directory
        environ = {"PATH": "/bin", "CLUSTER_RUNNER": "x"}
        with (directory / "runner.lock").open("w") as lock:
            runner = local.Runner(self.plan, directory, environ, lock.fileno(), self.agents.be_agent)
            try:
                assert runner.run() == 0
            finally:
                os.close(runner._records._file)  # what a runner gives up with its process
                for claim in runner._claims:
                    claim.close()

    def records(self) -> dict[str, tuple[str, int | None, str]]:
        """Return state, exit code and address of each node, as they are recorded."""
        nodes = records.read_records(self.cluster.directory)["nodes"]
        return {node["node"]: (node["state"], node["exit_code"], node["address"]) for node in nodes}

    def answer(self) -> dict[str, Any]:
        """Return the last answer."""
        return dict(records.read_records(self.cluster.directory)["answer"])


@pytest.fixture
def nodes(root: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNodes:
    """Return a runner of 1 + 1 nodes."""
    return FakeNodes(keep(root, make_plan(python="/venv/bin/python")), monkeypatch)


def test_a_runner_starts_all_nodes_and_records_how_each_ended(nodes: FakeNodes) -> None:
    """In the words of the service; what a node left is swept by its name, and the launch's in the end."""
    nodes.run(lambda: nodes.ends(102, code=143), lambda: nodes.ends(101, code=7))
    assert nodes.records() == {"MAIN": ("FAILED", 7, "127.0.0.1"), "WORKER_1": ("CANCELED", 143, "127.0.0.2")}
    launch = {"LAUNCH_ID": "aaaa1111"}
    assert nodes.swept == [{**launch, "NODE_NAME": "WORKER_1"}, {**launch, "NODE_NAME": "MAIN"}, launch]
    assert nodes.agents.environs[101]["PATH"] == "/venv/bin:/bin"
    assert "CLUSTER_RUNNER" not in nodes.agents.environs[101]
    assert nodes.agents.environs[101]["CLIENT_DIR"] == str(nodes.cluster.directory)


@pytest.mark.parametrize("beside", ["none", "another", "a link"])
def test_python_is_the_launchs_interpreter(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    """As start scripts call it: /usr/bin has python3.12, and as python another version, or none."""
    folder = tmp_path / "it's mine"
    folder.mkdir()
    for name in ("python3.12", *(["python"] if beside == "another" else [])):
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*"\n')
        (folder / name).chmod(0o755)
    if beside == "a link":
        (folder / "python").symlink_to("python3.12")
    nodes = FakeNodes(keep(root, make_plan(python=str(folder / "python3.12"))), monkeypatch)
    nodes.run(lambda: nodes.ends(101, 102))
    found = {environ["PATH"] for environ in nodes.agents.environs.values()}
    environ = {"PATH": f"{found.pop()}:/usr/bin"}
    said = subprocess.run(["/bin/sh", "-c", "python 'a  b'"], env=environ, capture_output=True, check=True)
    assert (said.stdout, found) == (b"python3.12 a  b\n", set())
    assert (nodes.cluster.directory / "bin").exists() == (beside != "a link"), "an environment's own stays first"


@linux
def test_a_runner_adds_a_worker(nodes: FakeNodes) -> None:
    """It gets a rank, a name and an address that no other node has, and its end is recorded as any other's."""
    now: list[Any] = []
    with Addresses(2):
        nodes.run(
            lambda: nodes.asks(id="r1", start=[2]),
            lambda: now.append((nodes.answer(), nodes.records())),
            lambda: nodes.ends(101, 102, 103),
        )
    assert now[0][0] == {"id": "r1", "error": ""}
    assert now[0][1]["WORKER_2"] == ("IN_PROGRESS", None, "127.0.0.3")
    assert nodes.records()["WORKER_2"] == ("SUCCEEDED", 0, "127.0.0.3")
    wanted = {"MODE": "WORKER", "NODE_RANK": "2", "NODE_NAME": "WORKER_2", "NODE_ADDRESS": "127.0.0.3"}
    assert {name: nodes.agents.environs[103][name] for name in wanted} == wanted
    assert nodes.agents.environs[103]["LAUNCH_ID"] == "aaaa1111"


@linux
def test_an_added_worker_has_an_address_whose_own_port_is_free(
    nodes: FakeNodes, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program has what would be its port at the next address."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1] - 2
        (root / "plain" / "settings.env").write_text(f"TASK_PORT={port}\nPORTS_BY_ADDRESS=TASK_PORT\n")
        monkeypatch.setattr(local, "PROJECT_ROOT", root)
        nodes.plan = Plan.load(nodes.cluster.directory, root)
        with Addresses(2):
            nodes.run(lambda: nodes.asks(id="r1", start=[2]), lambda: nodes.ends(101, 102, 103))
    assert nodes.records()["WORKER_2"] == ("SUCCEEDED", 0, "127.0.0.4")


@linux
def test_a_replacement_takes_its_predecessors_place(nodes: FakeNodes) -> None:
    """One record for each name: the new node's, with an address of its own."""
    with Addresses(2):
        nodes.run(
            lambda: nodes.ends(102, code=9),
            lambda: nodes.asks(id="r1", start=[1]),
            lambda: nodes.ends(101, 103),
        )
    assert nodes.records() == {"MAIN": ("SUCCEEDED", 0, "127.0.0.1"), "WORKER_1": ("SUCCEEDED", 0, "127.0.0.3")}
    assert len(records.read_records(nodes.cluster.directory)["nodes"]) == 2


def test_a_runner_ends_workers_in_order(nodes: FakeNodes) -> None:
    """TERM to the agent, once, and only to one that runs; the rest go on."""
    nodes.run(
        lambda: nodes.asks(id="r1", end=["WORKER_1", "WORKER_7"]),
        lambda: nodes.ends(102, code=143),
        lambda: nodes.asks(id="r2", end=["WORKER_1"]),
        lambda: nodes.ends(101),
    )
    assert nodes.told == [(102, signal.SIGTERM)]
    assert nodes.answer() == {"id": "r2", "error": ""}


def test_a_request_is_done_once(nodes: FakeNodes) -> None:
    """The runner wakes for many reasons, and the request stays where it is."""
    nodes.run(lambda: nodes.asks(id="r1", end=["WORKER_1"]), lambda: None, lambda: None, lambda: nodes.ends(101, 102))
    assert nodes.told == [(102, signal.SIGTERM)]


@linux
def test_a_worker_that_finds_no_address_is_not_started(nodes: FakeNodes) -> None:
    """The answer says why; the cluster goes on."""
    with Addresses(254):
        nodes.run(lambda: nodes.asks(id="r1", start=[2]), lambda: nodes.ends(101, 102))
    assert (nodes.answer()["id"], nodes.answer()["error"][:20]) == ("r1", "1 nodes do not fit: ")
    assert nodes.records() == {"MAIN": ("SUCCEEDED", 0, "127.0.0.1"), "WORKER_1": ("SUCCEEDED", 0, "127.0.0.2")}


def test_a_worker_that_cannot_be_started_is_told(nodes: FakeNodes) -> None:
    """No more processes: the system's own words, and the cluster goes on."""

    def ask() -> None:
        nodes.agents.fault = OSError(11, "Resource temporarily unavailable")
        nodes.asks(id="r1", start=[2])

    nodes.run(ask, lambda: nodes.ends(101, 102))
    assert nodes.answer() == {"id": "r1", "error": "[Errno 11] Resource temporarily unavailable"}


def test_a_folder_that_is_away_at_the_start_is_told(nodes: FakeNodes) -> None:
    """In the last line of the runner's log, which the launcher shows; what was started goes with the runner."""
    (nodes.cluster.directory / "logs").rename(nodes.cluster.directory / "away")
    with pytest.raises(BackendError, match=r"/logs/MAIN\.log cannot be written: .*; bring its folder back$"):
        nodes.run()


def test_a_runner_that_ends_its_nodes_starts_no_more(nodes: FakeNodes) -> None:
    """TERM to all, in their grace period; a request that comes then is not answered."""

    def told_to_end() -> None:
        nodes.signals.received = signal.SIGTERM

    nodes.run(
        told_to_end,
        lambda: nodes.asks(id="r1", start=[2]),
        lambda: nodes.ends(101, 102, code=143),
        lambda: None,
    )
    assert nodes.told == [(101, signal.SIGTERM), (102, signal.SIGTERM)]
    assert (nodes.answer(), sorted(nodes.records())) == ({}, ["MAIN", "WORKER_1"])


def test_a_node_that_does_not_end_is_killed(nodes: FakeNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its own grace and 10 s to tidy up."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def told_to_end() -> None:
        nodes.signals.received = signal.SIGTERM

    def half_a_minute_later() -> None:
        now[0] += 30

    nodes.run(told_to_end, lambda: nodes.ends(102), half_a_minute_later, lambda: nodes.ends(101, code=137))
    assert nodes.told == [(101, signal.SIGTERM), (102, signal.SIGTERM), (101, signal.SIGKILL)]
    assert nodes.records()["MAIN"] == ("FAILED", 137, "127.0.0.1")


def test_records_have_room_for_the_end_of_added_nodes(nodes: FakeNodes) -> None:
    """Taken when a node is added: a disk that fills up later cannot lose its exit code."""
    sizes: list[int] = []

    def note_size() -> None:
        sizes.append((nodes.cluster.directory / "nodes.json").stat().st_size)

    nodes.run(
        note_size,
        lambda: nodes.asks(id="r1", start=[2, 3, 4]),
        note_size,
        lambda: nodes.ends(101, 102, 103, 104, 105),
    )
    note_size()
    assert sizes[1] == sizes[2] == sizes[0] + 3 * 256


def test_a_runner_and_its_nodes_hold_the_clusters_lock(nodes: FakeNodes) -> None:
    """It is handed on to them: that is what being alive means."""
    running: list[bool] = []
    nodes.signals.steps = [
        lambda: running.append(records.is_running(nodes.cluster.directory)),
        lambda: nodes.ends(101, 102),
    ]
    with locked(nodes.cluster.directory / records.LOCK) as lock:
        assert local.run_nodes(nodes.cluster.directory, lock, nodes.agents.be_agent) == 0
        assert nodes.agents.kept == [lock, lock]
    assert running == [True]


def test_room_that_could_not_be_taken_is_not_counted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk refuses room for added nodes; the next time it is taken where the file ends, without a hole."""
    monkeypatch.setattr(local, "Children", SimpleNamespace)
    monkeypatch.setattr(local, "Signals", SimpleNamespace)
    runner = local.Runner(make_plan(), root, {}, 0, lambda _: 0)
    before = runner._records._size

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(OSError, match="No space"):
        runner._add([2])
    assert runner._records._size == before


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"id": "r1"}', '{"id": "r1", "start": ["x"], "end": []}', "\xff"])
def test_a_request_that_is_none_is_passed_over(nodes: FakeNodes, text: str) -> None:
    """Whoever wrote it: the nodes go on, and so does the runner."""
    request = nodes.cluster.directory / "scale.json"
    nodes.run(lambda: request.write_bytes(text.encode("latin-1")), lambda: nodes.ends(101, 102))
    assert {code for _, code, _ in nodes.records().values()} == {0}


NODE = {"node": "MAIN", "state": "FAILED", "exit_code": 7, "pid": 5, "address": "127.0.0.1"}


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Those of a node that runs, too."""
    found = {"runner_pid": 4, "nodes": [NODE, {**NODE, "node": "WORKER_1", "exit_code": None, "state": "IN_PROGRESS"}]}
    (tmp_path / "nodes.json").write_text(json.dumps(found))
    assert records.read_records(tmp_path) == found


@pytest.mark.parametrize(
    "change", [{"node": "../x"}, {"node": None}, {"state": "GONE"}, {"exit_code": "7"}, {"pid": "5"}, {"pid": None}]
)
def test_damaged_records_tell_of_no_node(tmp_path: Path, change: dict[str, Any]) -> None:
    """They do not end a program that looks at all clusters."""
    (tmp_path / "nodes.json").write_text(json.dumps({"runner_pid": 4, "nodes": [{**NODE, **change}]}))
    assert records.read_records(tmp_path)["nodes"] == []


@pytest.mark.parametrize("text", ["[]", "7", '{"nodes": {}}', '{"nodes": [7]}', "{}"])
def test_records_of_another_shape_tell_of_no_node(tmp_path: Path, text: str) -> None:
    """Likewise."""
    (tmp_path / "nodes.json").write_text(text)
    assert records.read_records(tmp_path)["nodes"] == []
