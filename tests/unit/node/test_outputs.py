from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.fake_cluster import Node

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.names import config_file, exit_file
from oci_cluster.contract.storage.retry import Waiting
from oci_cluster.errors import NotPermittedError, SettingsError, StorageError
from oci_cluster.node import outputs
from oci_cluster.node.outputs import upload_node_outputs, upload_outputs

# One memory:// for all tests would be longer to list with each.
pytestmark = pytest.mark.usefixtures("empty_memory")


class Storage:
    """Stands in for an ClusterDir: notes what is uploaded, and fails as often as a test says."""

    def __init__(self) -> None:
        self.uploaded: list[str] = []
        self.errors: list[Exception | None] = []
        self.before: Callable[[Path], object] = lambda _: None

    def upload(self, source: Path, name: str) -> None:
        self.before(source)
        if self.errors and (error := self.errors.pop(0)):
            raise error
        self.uploaded.append(name)


class Outputs:
    """One node's outputs, with a manifest beside them."""

    def __init__(self, place: Path, clock: Any) -> None:
        self.source = place / "my outputs"
        self.source.mkdir()
        self.manifest = place / "uploaded.json"
        self.storage = Storage()
        self.clock = clock

    def leave(self, name: str, text: str = "text", time_ns: int = 5) -> Path:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, ns=(time_ns, time_ns))
        return path

    def upload(self, timeout_s: float = 60) -> int:
        return upload_outputs(
            self.storage,
            self.source,
            "outputs/WORKER_2",
            self.manifest,
            timeout_s=timeout_s,
            waiting=Waiting(self.clock, self.clock.sleep),
        )


@pytest.fixture
def node(tmp_path: Path, clock: Any) -> Outputs:
    return Outputs(tmp_path, clock)


def test_every_file_goes_under_its_nodes_name(node: Outputs) -> None:
    """All files are uploaded under their paths, in order, and counted."""
    node.leave("b.txt")
    node.leave("a dir/model.bin")
    assert (node.upload(), node.storage.uploaded) == (
        2,
        ["outputs/WORKER_2/a dir/model.bin", "outputs/WORKER_2/b.txt"],
    )


def test_no_outputs_are_no_failure(node: Outputs) -> None:
    """An entry point need not leave anything."""
    assert (node.upload(), node.storage.uploaded, node.manifest.exists()) == (0, [], False)


def test_what_is_uploaded_is_not_uploaded_again(node: Outputs) -> None:
    """A second call uploads only what is new or changed, by size or by time."""
    for name in ("same", "longer", "later"):
        node.leave(name)
    node.upload()
    node.storage.uploaded.clear()
    node.leave("longer", "more text")
    node.leave("later", time_ns=6)
    node.leave("new")
    assert (node.upload(), node.storage.uploaded) == (
        3,
        ["outputs/WORKER_2/later", "outputs/WORKER_2/longer", "outputs/WORKER_2/new"],
    )


def test_the_manifest_remembers_size_and_time(node: Outputs) -> None:
    """What was uploaded is remembered outside of the process: each upload is one of its own."""
    node.leave("a", "12345", time_ns=7)
    node.upload()
    assert json.loads(node.manifest.read_text()) == {"a": [5, 7]}


def test_a_file_that_grows_meanwhile_is_uploaded_again(node: Outputs) -> None:
    """Size and time are taken before the upload, so that a file that was changed during it differs next time."""
    node.leave("log", "1")
    node.storage.before = lambda source: source.write_text("12")
    node.upload()
    node.storage.before = lambda _: None
    assert node.upload() == 1


def test_links_are_not_followed(node: Outputs, tmp_path: Path) -> None:
    """A link may lead anywhere, a secret included: it is not uploaded, nor what is behind it."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("k")
    (node.source / "file").symlink_to(tmp_path / "secret" / "key")
    (node.source / "folder").symlink_to(tmp_path / "secret")
    (node.source / "broken").symlink_to(tmp_path / "none")
    assert (node.upload(), node.storage.uploaded) == (0, [])


def test_pipes_are_passed_over(node: Outputs) -> None:
    """A pipe would be read for ever."""
    os.mkfifo(node.source / "pipe")
    assert node.upload() == 0


def test_an_outage_is_waited_out(node: Outputs, clock: Any) -> None:
    """A failing request is repeated with growing waits until storage takes the file."""
    node.leave("a")
    node.storage.errors = [StorageError("503"), StorageError("503"), StorageError("503")]
    assert (node.upload(), node.storage.uploaded) == (1, ["outputs/WORKER_2/a"])
    waits = clock.waits
    assert [0.18 <= waits[0] <= 0.22, 0.27 <= waits[1] <= 0.33, 0.4 <= waits[2] <= 0.5, len(waits)] == [True] * 3 + [3]


def test_an_outage_is_waited_out_for_the_timeout_in_all(node: Outputs, clock: Any) -> None:
    """The timeout is for all files together; the error of the last request is raised when it is over."""
    node.leave("a")
    node.leave("b")
    node.storage.before = lambda _: clock.sleep(20)
    node.storage.errors = [StorageError("of a"), None, StorageError("of b"), None]
    with pytest.raises(StorageError, match="of b"):
        node.upload(timeout_s=50)


def test_what_was_uploaded_before_a_failure_is_remembered(node: Outputs) -> None:
    """The next call goes on where this one failed."""
    node.leave("a")
    node.leave("b")
    node.upload()
    node.leave("a", "new")
    node.leave("b", "new")
    node.storage.uploaded.clear()
    node.storage.before = lambda source: node.storage.errors.extend([NotPermittedError("no")] * (source.name == "b"))
    with pytest.raises(NotPermittedError):
        node.upload()
    assert json.loads(node.manifest.read_text()) == {"a": [3, 5], "b": [4, 5]}


def test_a_refusal_is_not_repeated(node: Outputs, clock: Any) -> None:
    """Where storage refuses for good, nobody waits."""
    node.leave("a")
    node.storage.errors = [NotPermittedError("no")]
    with pytest.raises(NotPermittedError, match="no"):
        node.upload()
    assert clock.waits == []


def test_a_half_written_manifest_loses_no_output(node: Outputs) -> None:
    """An uploader that was killed while it wrote its manifest must not fail the next one: files are uploaded again."""
    node.leave("a")
    node.manifest.write_text('{"a": [')
    assert node.upload() == 1


def test_a_file_that_goes_away_does_not_stop_the_others(node: Outputs, tmp_path: Path) -> None:
    """Entry points write temporary files and rename them: one that has gone is passed over."""
    cluster_dir = ClusterDir(f"file://{tmp_path}/work", "1f2e", "")
    cluster_dir.create()
    gone = node.leave("a.tmp")
    node.leave("b")
    node.storage.before = lambda source: gone.unlink(missing_ok=True) or cluster_dir.upload(source, source.name)
    assert (node.upload(), node.storage.uploaded) == (1, ["outputs/WORKER_2/b"])


def test_a_nodes_outputs_go_to_its_cluster_dir(tmp_path: Path) -> None:
    """The verb finds cluster dir and node name in the environment, as the agent does."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.bin").write_text("weights")
    (tmp_path / "work" / "c1").mkdir(parents=True)
    environ = {
        "MODE": "WORKER",
        "NODE_RANK": "2",
        "WORKER_COUNT": "3",
        "FRAMEWORK": "dask",
        "WORK_DIR": f"file://{tmp_path}/work",
        "CLUSTER_ID": "c1",
        "LAUNCH_ID": "1f2e",
        "ENTRY_POINT": "train.py",
    }
    upload_node_outputs(environ, tmp_path / "out", tmp_path / "uploaded.json")
    found = {path.relative_to(tmp_path).as_posix() for path in (tmp_path / "work").rglob("*") if path.is_file()}
    assert found == {"work/c1/outputs/WORKER_2/model.bin"}


def test_the_timeout_of_a_node_is_that_of_its_uploads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TIMEOUT bounds how long a failing upload is repeated."""
    told: list[float] = []

    def upload(*_: object, timeout_s: float, listed: str) -> int:
        assert listed == ""  # nobody is told of more lives
        told.append(timeout_s)
        return 0

    monkeypatch.setattr(outputs, "upload_outputs", upload)
    environ = {
        "MODE": "MAIN",
        "WORKER_COUNT": "1",
        "FRAMEWORK": "dask",
        "WORK_DIR": "memory://work",
        "CLUSTER_ID": "c1",
        "LAUNCH_ID": "1f2e",
        "EPHEMERAL": "0",
        "TIMEOUT": "7m",
    }
    upload_node_outputs(environ, tmp_path, tmp_path / "uploaded.json")
    assert told == [420]


def test_a_node_without_settings_uploads_nothing(tmp_path: Path) -> None:
    """An environment that describes no node is a wrong setting (78)."""
    with pytest.raises(SettingsError, match="MODE is not set"):
        upload_node_outputs({}, tmp_path, tmp_path / "uploaded.json")


# --- When they are uploaded -----------------------------------------------------------------------------------------


def test_outputs_are_uploaded_now_and_then_and_waited_for_at_the_end(main: Node) -> None:
    """Every OUTPUT_INTERVAL one upload, never two at once, and a last one before the agent ends."""
    main.child_ends(0, at=150)
    assert main.run() == 0
    assert len(main.children.uploads) == 3  # at 60 s, at 120 s, and the last


def test_an_upload_runs_in_the_nodes_environment(root: Path) -> None:
    """Which says where this package is: the agent itself may be another process's child that was never executed."""
    main = Node(root, PYTHONPATH="/opt/ours/common")
    main.child_ends(0, at=10)
    assert main.run() == 0
    command, environ, cwd = main.children.started[main.children.uploads[0] - 1]
    manifest = main.node_dir / "uploaded.json"
    assert command == [sys.executable, "-m", "oci_cluster", "upload-outputs", str(root / "out"), str(manifest)]
    assert (environ, cwd) == (main.environ, Path("/"))
    assert environ["PYTHONPATH"] == "/opt/ours/common"


def test_where_there_are_no_outputs_nothing_is_uploaded(main: Node, root: Path) -> None:
    """To look for them in the work dir costs a process with a client of storage."""
    (root / "out" / "model").unlink()
    main.child_ends(0, at=150)
    assert main.run() == 0
    assert main.children.uploads == []


def test_an_upload_that_takes_longer_than_the_interval_is_not_overtaken(main: Node) -> None:
    """The next one starts when it has ended, and not beside it."""
    main.children.upload_code = None
    main.world.at(150, lambda: main.children.codes.update({main.children.uploads[0]: 0}))
    started = [main.seen_at(at, lambda: len(main.children.uploads)) for at in (149, 170)]
    main.world.at(210, lambda: main.children.codes.update({main.children.uploads[2]: 0}))
    main.child_ends(0, at=200)
    assert main.run() == 0
    assert [seen[0] for seen in started] == [1, 2]
    assert main.world.now >= 210  # the last one is waited for


@pytest.mark.parametrize(
    ("ended_at", "ttl", "code"),
    [
        pytest.param(200, "0", 143, id="TERM while the entry point runs"),
        pytest.param(50, "0", 69, id="TERM while the upload is waited for"),
        pytest.param(200, "100", 75, id="TTL while the entry point runs"),
        pytest.param(50, "100", 69, id="TTL while the upload is waited for"),
    ],
)
def test_an_upload_that_stands_still_does_not_hold_up_a_node_that_has_to_end(
    root: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    ended_at: float,
    ttl: str,
    code: int,
) -> None:
    """After the grace and 30 s; what was not uploaded stays, and the node says where."""
    main = Node(root, OUTPUT_DIR="", GRACE_PERIOD="15", TTL=ttl)
    main.world.at(5, lambda: (main.node_dir / "outputs" / "model").write_text("weights"))
    main.children.upload_code = None
    main.child_ends(0, at=ended_at)
    if ttl == "0":
        main.world.at(100, lambda: setattr(main.world, "received", 15))
    # Nobody waits for the end of an upload without an end.
    main.world.at(1000, lambda: main.children.codes.update(dict.fromkeys(main.children.uploads, 0)))
    with caplog.at_level("ERROR"):
        assert main.run() == code
    assert 143 < main.world.now < 148
    assert main.children.uploads[-1] in main.children.ended
    (left,) = root.glob("*-outputs-*")
    assert (left / "model").read_text() == "weights"
    assert f"storage has taken nothing for 45 s, and this node has to end; they are in {left}" in caplog.text


@pytest.mark.parametrize("has_to_end", [False, True])
def test_an_upload_is_not_cut_short(main: Node, *, has_to_end: bool) -> None:
    """Whatever its time while nothing else ends the node; then still for as long as it moves."""
    main.children.upload_code = None
    if has_to_end:
        main.world.at(20, lambda: setattr(main.world, "received", 15))
        main.children.io = lambda: f"rchar: {main.world.now // 30}"
    main.world.at(1000, lambda: main.children.codes.update({main.children.uploads[0]: 0}))
    main.child_ends(0, at=10)
    assert main.run() == 0
    assert main.world.now >= 1000


def test_an_upload_that_cannot_be_started_loses_outputs(main: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has no more room for processes has not saved what the entry point left: 69, with its words."""

    def refuse(_verb: str) -> int:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(main.agent._uploads, "_start", refuse)
    main.child_ends(0, at=10)
    assert main.run() == 69
    assert "outputs of MAIN could not be uploaded: [Errno 11] Resource" in main.read(exit_file("MAIN"))["reason"]


def own_outputs(root: Path, **settings: str) -> tuple[Node, list[int]]:
    """Return main with outputs of its own, and where the permissions of their directory will be seen."""
    main = Node(root, OUTPUT_DIR="", **settings)
    seen: list[int] = []

    def write() -> None:
        place = main.node_dir / "outputs"
        seen.append(place.stat().st_mode & 0o777)
        (place / "model").write_text("weights")

    main.world.at(5, write)
    return main, seen


def test_outputs_without_a_place_are_private_and_gone_in_the_end(root: Path) -> None:
    """Neither a neighbour's node nor another user finds them; they are removed once they are uploaded."""
    old = os.umask(0)
    try:
        main, seen = own_outputs(root)
        main.child_ends(0, at=10)
        assert main.run() == 0
    finally:
        os.umask(old)
    assert main.children.started[0][1]["OUTPUT_DIR"] == str(main.node_dir / "outputs")
    assert (seen, main.node_dir.exists(), len(main.children.uploads)) == ([0o700], False, 1)
    assert list(root.glob("*outputs*")) == []


@pytest.mark.parametrize("code", [0, 7])
def test_outputs_that_are_not_uploaded_are_not_removed(root: Path, code: int) -> None:
    """They stay, for this user alone; the reason says where, unless there is another one."""
    main, _ = own_outputs(root)
    main.children.upload_code = 69
    main.child_ends(code, at=10)
    assert main.run() == (code or 69)
    (left,) = root.glob("*outputs*")
    assert ((left / "model").read_text(), left.stat().st_mode & 0o777, main.node_dir.exists()) == (
        "weights",
        0o700,
        False,
    )
    reason = main.read(exit_file("MAIN"))["reason"]
    assert reason.endswith(f"; they are in {left} on that node") is (code == 0)


def test_lost_outputs_make_a_failure_of_a_success(main: Node) -> None:
    """An entry point that succeeded but whose outputs are gone has not succeeded: 69."""
    main.children.upload_code = 69
    main.child_ends(0, at=10)
    assert main.run() == 69


def test_lost_outputs_do_not_hide_the_entry_points_code(main: Node) -> None:
    """The first thing that went wrong is the outcome."""
    main.children.upload_code = 69
    main.child_ends(7, at=10)
    assert main.run() == 7


def test_outputs_in_a_shared_directory_need_no_upload(root: Path, tmp_path: Path) -> None:
    """On file:// OUTPUT_DIR is in the cluster dir itself."""
    main = Node(root, WORK_DIR=f"file://{tmp_path}/work", OUTPUT_DIR="")
    main.child_ends(0, at=100)
    assert main.run() == 0
    assert main.children.uploads == []
    assert main.children.started[0][1]["OUTPUT_DIR"] == f"{tmp_path}/work/c/outputs"


def test_outputs_of_an_earlier_attempt_are_uploaded_in_the_end(root: Path) -> None:
    """The cluster ends while it waits for the next attempt: what the first one left is not lost."""
    main = Node(root, GANG="1", WORKER_COUNT="1", MAX_RESTARTS="1", TIMEOUT="100")
    main.ready_at_once()
    main.publish(config_file("WORKER_1"), node="WORKER_1", address="10.0.0.2")
    main.beats("WORKER_1")
    main.child_ends(9, at=30)
    assert main.run() == 75
    assert main.children.uploads
