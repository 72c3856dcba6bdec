"""Outputs of an earlier life come back: all that the node itself has uploaded, and nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.storage.retry import Waiting
from oci_cluster.errors import StorageError
from oci_cluster.node import outputs
from oci_cluster.node.outputs import bring_outputs_back, list_name, publish_list, read_list, upload_outputs

pytestmark = pytest.mark.usefixtures("empty_memory")
LAUNCH, KEY = "1f2e3d4c", "5eed" * 16


class Lives:
    """Two lives of a node, each on a machine of its own."""

    def __init__(self, place: Path, clock: Any) -> None:
        self.cluster_dir = ClusterDir("memory://work/c", LAUNCH, KEY)
        self.first, self.second = place / "first", place / "second"
        self._manifests = {
            self.first: place / "node-1" / "uploaded.json",
            self.second: place / "node-2" / "uploaded.json",
        }
        for path in (self.first, self.second, *(path.parent for path in self._manifests.values())):
            path.mkdir()
        self._clock = clock

    def leave(self, name: str, text: str, time_ns: int = 5) -> None:
        """Have the first life's entry point write a file."""
        path = self.first / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, ns=(time_ns, time_ns))

    def upload(self, source: Path | None = None, *, cluster_dir: Any = None, timeout_s: float = 0.0) -> int:
        """Upload what a life has left."""
        source = source or self.first
        return upload_outputs(
            cluster_dir or self.cluster_dir,
            source,
            "outputs/MAIN",
            self._manifests[source],
            timeout_s=timeout_s,
            listed="MAIN",
            waiting=Waiting(self._clock, self._clock.sleep),
        )

    def bring_back(self, *, cluster_dir: Any = None, timeout_s: float = 0.0) -> dict[str, str]:
        """Bring it back to the second one; return what is there then."""
        bring_outputs_back(
            cluster_dir or self.cluster_dir,
            "MAIN",
            self.second,
            self._manifests[self.second],
            timeout_s=timeout_s,
            waiting=Waiting(self._clock, self._clock.sleep),
        )
        return {
            path.relative_to(self.second).as_posix(): path.read_text()
            for path in sorted(self.second.rglob("*"))
            if path.is_file()
        }

    def write(self, name: str, body: bytes) -> None:
        """Have somebody write to the work dir."""
        self.cluster_dir.write_bytes(name, body)


@pytest.fixture
def lives(tmp_path: Path, clock: Any) -> Lives:
    return Lives(tmp_path, clock)


class Failing(ClusterDir):
    """Storage that fails, or kills its client, at the request of a number."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__("memory://work/c", LAUNCH, KEY)
        self._left, self._error = at, error

    def _ask(self, name: str, request: Callable[[str], Any]) -> Any:
        self._left -= 1
        if self._left == 0:
            raise self._error
        return super()._ask(name, request)


def test_all_comes_back_and_is_not_uploaded_again(lives: Lives) -> None:
    """Folders, strange names, empty files; of several uploads the last."""
    lives.leave("checkpoint", "step 1")
    lives.leave("a dir/ä b\n.txt", "x")
    lives.leave("empty", "")
    lives.upload()
    lives.leave("checkpoint", "step 2!", time_ns=6)
    assert lives.upload() == 1
    assert lives.bring_back() == {"a dir/ä b\n.txt": "x", "checkpoint": "step 2!", "empty": ""}
    assert lives.upload(lives.second) == 0


def test_a_third_life_has_what_both_have_left(lives: Lives, tmp_path: Path) -> None:
    """What the second life has brought back counts as its own."""
    lives.leave("old", "1")
    lives.upload()
    lives.bring_back()
    (lives.second / "new").write_text("2")
    lives.upload(lives.second)
    (tmp_path / "node-3").mkdir()
    bring_outputs_back(lives.cluster_dir, "MAIN", tmp_path / "third", tmp_path / "node-3" / "m", timeout_s=0)
    assert {path.name: path.read_text() for path in (tmp_path / "third").iterdir()} == {"old": "1", "new": "2"}


def test_a_node_that_has_left_nothing_begins_with_nothing(lives: Lives) -> None:
    """The first life of all, too."""
    assert lives.bring_back() == {}


def test_what_the_entry_point_has_removed_does_not_come_back(lives: Lives) -> None:
    """Of checkpoints that rotate, the oldest."""
    lives.leave("checkpoint-1", "1")
    lives.upload()
    (lives.first / "checkpoint-1").unlink()
    lives.leave("checkpoint-2", "2")
    lives.upload()
    assert lives.bring_back() == {"checkpoint-2": "2"}


def test_what_is_in_output_dir_already_stays(lives: Lives) -> None:
    """A volume that outlives the pod has it newer."""
    lives.leave("checkpoint", "old")
    lives.upload()
    (lives.second / "checkpoint").write_text("newer")
    assert lives.bring_back() == {"checkpoint": "newer"}


@pytest.mark.parametrize("body", [b"forged!", b"", b"step 1 and more", b"x" * 100_000])
def test_what_somebody_else_has_written_is_left_out(
    lives: Lives, caplog: pytest.LogCaptureFixture, body: bytes
) -> None:
    """The rest comes all the same; what is far too long is not read to its end."""
    lives.leave("checkpoint", "step 1")
    lives.leave("model", "m")
    lives.upload()
    lives.write("outputs/MAIN/checkpoint", body)
    assert lives.bring_back() == {"model": "m"}
    assert "outputs/MAIN/checkpoint is not as MAIN has written it; left out" in caplog.text


def test_a_file_that_somebody_has_added_does_not_come(lives: Lives) -> None:
    """Nobody has told of it."""
    lives.leave("checkpoint", "1")
    lives.upload()
    lives.write("outputs/MAIN/sitecustomize.py", b"evil")
    assert lives.bring_back() == {"checkpoint": "1"}


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "", "."])
def test_a_list_of_names_that_lead_elsewhere_has_no_effect_there(lives: Lives, tmp_path: Path, name: str) -> None:
    """Even one that a node of this launch has signed."""
    publish_list(lives.cluster_dir, "MAIN", {name: [(4, "0" * 64)]})
    before = sorted(tmp_path.rglob("*"))
    assert lives.bring_back() == {}
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before and "node-2" not in path.parts] == []


def test_a_list_that_is_not_signed_counts_for_nothing(lives: Lives) -> None:
    """Who can write to the work dir can write lists."""
    lives.leave("checkpoint", "1")
    lives.upload()
    stranger = ClusterDir("memory://work/c", LAUNCH, "another key")
    publish_list(stranger, "MAIN", json.loads('{"evil": [[4, "%s"]]}' % ("0" * 64)))
    assert lives.bring_back() == {}


def test_a_list_of_another_node_counts_for_nothing(lives: Lives) -> None:
    """Its name is sealed, too."""
    publish_list(lives.cluster_dir, "WORKER_1", {"evil": [(4, "0" * 64)]})
    lives.write(list_name("MAIN"), lives.cluster_dir.read_bytes(list_name("WORKER_1"), 0))
    assert read_list(lives.cluster_dir, "MAIN") == {}
    assert read_list(lives.cluster_dir, "WORKER_1") == {"evil": [(4, "0" * 64)]}


def test_a_list_that_is_too_large_is_not_read_to_its_end(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fill the memory of the node."""
    lives.leave("checkpoint", "1")
    lives.upload()
    monkeypatch.setattr(outputs, "MAX_LIST_BYTES", 100)
    assert lives.bring_back() == {}


def test_a_node_that_is_killed_while_it_uploads_loses_nothing(lives: Lives) -> None:
    """At whatever request: what comes back is each file as it was, or as it has become."""
    for at in range(1, 30):
        lives.leave("a", "old a", time_ns=1)
        lives.leave("b", "old b", time_ns=1)
        lives.upload()
        lives.leave("a", f"new a {at}", time_ns=100 + at)
        lives.leave("b", f"new b {at}", time_ns=100 + at)
        try:
            lives.upload(cluster_dir=Failing(at, KeyboardInterrupt()))
        except KeyboardInterrupt:
            found = lives.bring_back()
            assert found["a"] in {"old a", f"new a {at}"}
            assert found["b"] in {"old b", f"new b {at}"}
            for path in lives.second.iterdir():
                path.unlink()
        else:
            assert at == 5  # a list, both files, a list
            return
    pytest.fail("an upload makes more requests than that")


def test_a_file_that_changes_while_it_is_uploaded_is_uploaded_again(lives: Lives) -> None:
    """Else what is there would be neither what it was nor what it is."""

    class Slow(ClusterDir):
        def upload(self, source: Path, name: str) -> None:
            if (lives.first / "checkpoint").read_text() == "step 1":
                lives.leave("checkpoint", "step 2", time_ns=6)
            super().upload(source, name)

    lives.leave("checkpoint", "step 1")
    lives.upload(cluster_dir=Slow("memory://work/c", LAUNCH, KEY))
    assert lives.bring_back() == {"checkpoint": "step 2"}


@pytest.mark.parametrize("at", [1, 2, 3])
def test_storage_that_is_away_for_a_while_is_asked_again(lives: Lives, at: int) -> None:
    """And no checkpoint is taken for absent meanwhile."""
    lives.leave("checkpoint", "1")
    lives.upload()
    assert lives.bring_back(cluster_dir=Failing(at, StorageError("away")), timeout_s=60) == {"checkpoint": "1"}


def test_storage_that_stays_away_ends_the_node(lives: Lives) -> None:
    """It must not begin from nothing, and overwrite what it has left."""
    lives.leave("checkpoint", "1")
    lives.upload()
    with pytest.raises(StorageError, match="away"):
        lives.bring_back(cluster_dir=Failing(1, StorageError("away")), timeout_s=0)


def test_outputs_for_which_there_is_no_room_are_not_begun(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names both sizes."""
    lives.leave("checkpoint", "1234567")
    lives.upload()
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 6}))
    with pytest.raises(StorageError, match=r"have 7 bytes, and .*second has room for 6; give it more"):
        lives.bring_back()


def test_a_large_file_comes_piece_by_piece(lives: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is not as large as checkpoints are."""
    monkeypatch.setattr(outputs, "_PIECE_BYTES", 3)
    lives.leave("checkpoint", "0123456789" * 2)
    lives.upload()
    assert lives.bring_back() == {"checkpoint": "0123456789" * 2}
