from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oci_cluster import outputs
from oci_cluster.errors import NotPermittedError, SettingsError, StorageError
from oci_cluster.exchange import Exchange
from oci_cluster.outputs import upload_node_outputs, upload_outputs


class Storage:
    """Stands in for an Exchange: notes what is uploaded, and fails as often as a test says."""

    def __init__(self) -> None:
        self.uploaded: list[str] = []
        self.errors: list[Exception | None] = []
        self.before: Callable[[Path], object] = lambda _: None

    def upload(self, source: Path, name: str) -> None:
        self.before(source)
        if self.errors and (error := self.errors.pop(0)):
            raise error
        self.uploaded.append(name)


class Node:
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
            clock=self.clock,
            sleep=self.clock.sleep,
        )


@pytest.fixture
def node(tmp_path: Path, clock: Any) -> Node:
    return Node(tmp_path, clock)


def test_every_file_goes_under_its_nodes_name(node: Node) -> None:
    """All files are uploaded under their paths, in order, and counted."""
    node.leave("b.txt")
    node.leave("a dir/model.bin")
    assert (node.upload(), node.storage.uploaded) == (
        2,
        ["outputs/WORKER_2/a dir/model.bin", "outputs/WORKER_2/b.txt"],
    )


def test_no_outputs_are_no_failure(node: Node) -> None:
    """An entry point need not leave anything."""
    assert (node.upload(), node.storage.uploaded, node.manifest.exists()) == (0, [], False)


def test_what_is_uploaded_is_not_uploaded_again(node: Node) -> None:
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


def test_the_manifest_remembers_size_and_time(node: Node) -> None:
    """What was uploaded is remembered outside of the process: each upload is one of its own."""
    node.leave("a", "12345", time_ns=7)
    node.upload()
    assert json.loads(node.manifest.read_text()) == {"a": [5, 7]}


def test_a_file_that_grows_meanwhile_is_uploaded_again(node: Node) -> None:
    """Size and time are taken before the upload, so that a file that was changed during it differs next time."""
    node.leave("log", "1")
    node.storage.before = lambda source: source.write_text("12")
    node.upload()
    node.storage.before = lambda _: None
    assert node.upload() == 1


def test_links_are_not_followed(node: Node, tmp_path: Path) -> None:
    """A link may lead anywhere, a secret included: it is not uploaded, nor what is behind it."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("k")
    (node.source / "file").symlink_to(tmp_path / "secret" / "key")
    (node.source / "folder").symlink_to(tmp_path / "secret")
    (node.source / "broken").symlink_to(tmp_path / "none")
    assert (node.upload(), node.storage.uploaded) == (0, [])


def test_pipes_are_passed_over(node: Node) -> None:
    """A pipe would be read for ever."""
    os.mkfifo(node.source / "pipe")
    assert node.upload() == 0


def test_an_outage_is_waited_out(node: Node, clock: Any) -> None:
    """A failing request is repeated with growing waits until storage takes the file."""
    node.leave("a")
    node.storage.errors = [StorageError("503"), StorageError("503"), StorageError("503")]
    assert (node.upload(), node.storage.uploaded) == (1, ["outputs/WORKER_2/a"])
    waits = clock.waits
    assert [0.18 <= waits[0] <= 0.22, 0.27 <= waits[1] <= 0.33, 0.4 <= waits[2] <= 0.5, len(waits)] == [True] * 3 + [3]


def test_an_outage_is_waited_out_for_the_timeout_in_all(node: Node, clock: Any) -> None:
    """The timeout is for all files together; the error of the last request is raised when it is over."""
    node.leave("a")
    node.leave("b")
    node.storage.before = lambda _: clock.sleep(20)
    node.storage.errors = [StorageError("of a"), None, StorageError("of b"), None]
    with pytest.raises(StorageError, match="of b"):
        node.upload(timeout_s=50)


def test_what_was_uploaded_before_a_failure_is_remembered(node: Node) -> None:
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


def test_a_refusal_is_not_repeated(node: Node, clock: Any) -> None:
    """Where storage refuses for good, nobody waits."""
    node.leave("a")
    node.storage.errors = [NotPermittedError("no")]
    with pytest.raises(NotPermittedError, match="no"):
        node.upload()
    assert clock.waits == []


def test_a_half_written_manifest_loses_no_output(node: Node) -> None:
    """An uploader that was killed while it wrote its manifest must not fail the next one: files are uploaded again."""
    node.leave("a")
    node.manifest.write_text('{"a": [')
    assert node.upload() == 1


def test_a_file_that_goes_away_does_not_stop_the_others(node: Node, tmp_path: Path) -> None:
    """Entry points write temporary files and rename them: one that has gone is passed over."""
    exchange = Exchange(f"file://{tmp_path}/work", "1f2e")
    gone = node.leave("a.tmp")
    node.leave("b")
    node.storage.before = lambda source: gone.unlink(missing_ok=True) or exchange.upload(source, source.name)
    assert (node.upload(), node.storage.uploaded) == (1, ["outputs/WORKER_2/b"])


def test_a_nodes_outputs_go_to_its_cluster_dir(tmp_path: Path) -> None:
    """The verb finds cluster dir and node name in the environment, as the agent does."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.bin").write_text("weights")
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

    def upload(*_: object, timeout_s: float) -> int:
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
