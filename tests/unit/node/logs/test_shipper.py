"""What a node prints, copied to the cluster dir by the node itself."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from unit.fake_cluster import KEY, LAUNCH, Node

from oci_cluster.contract.files import node_logs
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.files.node_logs import SEAL_BYTES
from oci_cluster.contract.names import exit_file
from oci_cluster.contract.settings.node import read_settings
from oci_cluster.errors import NotPermittedError, StorageError
from oci_cluster.node.agent import Agent
from oci_cluster.node.logs.shipper import LogShipper
from oci_cluster.node.start import run_agent

pytestmark = pytest.mark.usefixtures("empty_memory")

# --- The copying ---------------------------------------------------------------------------------------------------


class Place:
    """A node's log, as its relay writes it, and what is shipped of it."""

    def __init__(self, place: Path) -> None:
        self.cluster_dir = ClusterDir(f"file://{place}/c1", LAUNCH, KEY)
        self.cluster_dir.create()
        self.now = 0.0
        self.own = LogShipper(LAUNCH, "WORKER_1", clock=lambda: self.now)
        self.written: list[tuple[str, int]] = []
        self.error: Exception | None = None
        self._write = self.cluster_dir.write_bytes
        self.cluster_dir.write_bytes = self._note  # type: ignore[method-assign]
        self._parts = place / "c1" / "logs"

    def _note(self, name: str, body: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.written.append((name.split(".")[-2], len(body) - SEAL_BYTES))
        self._write(name, body)

    def print(self, text: str) -> None:
        with self.own.path.open("a") as file:
            file.write(text)

    def ship(self) -> None:
        self.own.ship(self.cluster_dir)

    def parts(self) -> list[Path]:
        return sorted(self._parts.glob("*"))

    def log(self) -> str:
        return "".join(path.read_text()[:-SEAL_BYTES] for path in self.parts())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return Place(tmp_path)


def test_a_logs_name_tells_node_beginning_and_part(place: Place) -> None:
    """In the order of their names the parts are the log; a replacement's begin later. The file goes in the end."""
    place.print("x\n")
    place.ship()
    (part,) = place.parts()
    assert node_logs._PART.fullmatch(part.name)
    assert part.name.startswith("WORKER_1.")
    assert part.name.endswith(".000000.log")
    assert place.own.path.exists()
    place.own.close()
    assert not place.own.path.exists()


def test_a_log_is_in_parts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last part is written again, whole, until it is full; a full one never again."""
    monkeypatch.setattr("oci_cluster.node.logs.shipper.PART_BYTES", 100)
    for count in (60, 39, 1, 250, 10):
        place.print("x" * count)
        place.now += 1
        assert place.own.is_due()
        place.ship()
    assert place.written == [
        ("000000", 60), ("000000", 99), ("000000", 100),
        ("000001", 100), ("000002", 100), ("000003", 50), ("000003", 60),
    ]  # fmt: skip
    assert [path.stat().st_size - SEAL_BYTES for path in place.parts()] == [100, 100, 100, 60]


def test_what_has_not_changed_is_not_written_again(place: Place) -> None:
    """A silent node costs no request."""
    place.print("x\n")
    due = []
    for place.now in (1.0, 2.0, 3.0):
        due.append(place.own.is_due())
        place.ship()
    assert (due, place.written) == ([True, False, False], [("000000", 2)])


def test_young_nodes_are_written_every_second_and_others_every_five(place: Place) -> None:
    """However often the agent looks around."""
    place.print("there is always something")
    times = []
    while place.now < 75:
        if place.own.is_due():
            times.append(place.now)
        place.now += 0.5
    assert times == [*range(60), 60, 65, 70]


def test_storage_that_fails_costs_no_line(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written is written later, once."""
    monkeypatch.setattr("oci_cluster.node.logs.shipper.PART_BYTES", 50)
    failed = 0
    for number in range(41):
        place.print(f"line {number:03}\n")
        place.error = StorageError("no route to storage") if number % 3 else None
        try:
            place.ship()
        except StorageError:
            failed += 1
    place.error = None
    place.ship()
    assert place.log() == "".join(f"line {number:03}\n" for number in range(41))
    assert failed > 20


# --- When it is copied ----------------------------------------------------------------------------------------------


class FakeLog:
    """What a node prints, as the agent hands it on."""

    def __init__(self, node: Node) -> None:
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.said_goodbye: list[bool] = []
        self._node = node
        node.agent._loop._log_shipper = self  # type: ignore[assignment]

    @property
    def look_at(self) -> float:
        return self._node.world.now + 1.0

    def is_due(self) -> bool:
        return True

    def ship(self, cluster_dir: ClusterDir) -> None:
        assert cluster_dir is self._node.cluster_dir
        self.said_goodbye.append(bool(self._node.read(exit_file(self._node.settings.node))))
        self._note("ship")

    def close(self) -> None:
        self.calls.append("close")

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if self.error is not None:
            raise self.error


def test_what_a_node_prints_is_copied_while_it_runs_and_at_its_end(main: Node) -> None:
    """The last lines after all others have been told how it ended; then the file goes."""
    log = FakeLog(main)
    main.child_ends(0, at=30)
    assert main.run() == 0
    assert log.calls[-2:] == ["ship", "close"]
    assert log.calls.count("ship") == len(log.calls) - 1 > 5
    assert log.said_goodbye == [False] * (len(log.calls) - 2) + [True]


def test_a_log_that_cannot_be_copied_is_no_failure_of_the_script(main: Node) -> None:
    """Storage is asked again with the next look; the node's code is its script's."""
    log = FakeLog(main)
    log.error = StorageError("no route to storage")
    main.child_ends(7, at=30)
    assert main.run() == 7
    assert log.calls.count("ship") > 5
    assert log.calls[-1] == "close"


def test_the_last_lines_are_copied_though_storage_is_busy_just_then(main: Node) -> None:
    """Nobody else has them."""
    log = FakeLog(main)
    main.child_ends(0, at=30)
    refused = iter([True, True, True])

    def ship(_: ClusterDir) -> None:
        if main.read(exit_file("MAIN")):  # it has said goodbye
            log.calls.append("last")
            if next(refused, False):
                raise StorageError("503")

    log.ship = ship  # type: ignore[method-assign]
    assert main.run() == 0
    assert log.calls == ["last"] * 4 + ["close"]


def test_a_node_that_never_joined_copies_nothing(main: Node) -> None:
    """There is nowhere to copy it to; its file goes all the same."""
    log = FakeLog(main)
    main.cluster_dir.fault = NotPermittedError("403")
    assert main.run() == 77
    assert log.calls == ["close"]


def test_the_logs_of_a_node_are_copied_where_that_is_asked_for(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NODE_LOGS=1: the relay writes to its file, from before the agent adopts anybody."""
    order: list[object] = []

    def log_shipper(launch_id: str, node: str, *, nodes: int) -> SimpleNamespace:
        assert nodes == 3
        order.append((launch_id, node))
        return SimpleNamespace(path=root / "own")

    def log_pump(node: str, *, times: Path | None, stamped: Path | None, max_bytes: int) -> SimpleNamespace:
        order.append((node, times, stamped))
        assert max_bytes == 1 << 30
        return SimpleNamespace(finish=lambda: None)

    node = Node(root)
    monkeypatch.setattr("oci_cluster.node.logs.shipper.LogShipper", log_shipper)
    monkeypatch.setattr("oci_cluster.node.start.LogPump", log_pump)
    monkeypatch.setattr("oci_cluster.contract.settings.settings_files.PROJECT_ROOT", root)
    monkeypatch.setattr("oci_cluster.node.start.read_settings", lambda environ: read_settings(environ, root))
    monkeypatch.setattr("oci_cluster.node.start.Children", lambda: order.append("children"))
    monkeypatch.setattr("oci_cluster.node.start.NodeSignals", lambda **_: node.world)
    monkeypatch.setattr(Agent, "run", lambda agent: agent._loop._log_shipper is not None)
    assert run_agent({**node.environ, "NODE_LOGS": "1"})
    assert order == [(LAUNCH, "MAIN"), ("MAIN", None, root / "own"), "children"]
    order.clear()
    assert not run_agent(node.environ, root)
    assert order == [("MAIN", root / "MAIN.times", None), "children"]
