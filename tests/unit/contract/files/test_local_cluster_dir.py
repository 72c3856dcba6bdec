"""A cluster dir on this machine: files appear whole, and fsspec is not needed."""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from unit.contract.fake_storage import KEY, LAUNCH

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import NotPermittedError, StorageError

COMMON = Path(__file__).resolve().parents[4] / "common"


@pytest.fixture
def local(tmp_path: Path) -> ClusterDir:
    return ClusterDir(f"file://{tmp_path}", LAUNCH, KEY)


# --- Atomic publish on file:// --------------------------------------------------------------------------------------


def test_a_published_file_is_private(local: ClusterDir, tmp_path: Path) -> None:
    """Certificates and arguments are nobody else's business: mode 0600, whatever the umask allows."""
    old = os.umask(0)
    try:
        local.publish("MAIN_certificate.json", key="k")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "MAIN_certificate.json").stat().st_mode) == 0o600


def test_publishing_leaves_no_other_file(local: ClusterDir, tmp_path: Path) -> None:
    """After a publish only the file itself is there."""
    local.publish("MAIN_config.json")
    local.publish("MAIN_config.json")
    assert [path.name for path in tmp_path.iterdir()] == ["MAIN_config.json"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_crash_before_the_rename_leaves_the_old_file(
    local: ClusterDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Full disk or Ctrl-C between write and rename: readers have the old file, and no temporary one is left."""
    local.publish("stop", reason="old")

    def crash(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        patch.setattr(os, "replace", crash)
        with pytest.raises((StorageError, KeyboardInterrupt)):
            local.publish("stop", reason="new")
    assert (local.read("stop") or {})["reason"] == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["stop"]


def test_a_full_disk_while_writing_leaves_the_old_file(
    local: ClusterDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails half-way is an outage that can be tried again, and leaves nothing half-written."""
    local.publish("stop", reason="old")
    real = os.fdopen

    class Full:
        def __init__(self, descriptor: int, mode: str) -> None:
            self._file = real(descriptor, mode)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, body: bytes) -> None:
            self._file.write(body[:10])
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", Full)
        with pytest.raises(StorageError, match="No space left on device"):
            local.publish("stop", reason="new")
    assert (local.read("stop") or {})["reason"] == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["stop"]


def test_a_reader_never_sees_half_a_file(local: ClusterDir, tmp_path: Path) -> None:
    """While one thread publishes, another reads whole files only, though they are larger than any buffer."""
    seen: set[str] = set()
    done = threading.Event()
    local.publish("MAIN_config.json", text="0" * 300_000)

    def look() -> None:
        while not done.is_set():
            seen.add((tmp_path / "MAIN_config.json").read_text())

    reader = threading.Thread(target=look)
    reader.start()
    for turn in range(1, 60):
        local.publish("MAIN_config.json", text=str(turn % 10) * 300_000)
    done.set()
    reader.join()
    texts = [json.loads(body)["text"] for body in seen]
    assert {(len(text), len(set(text))) for text in texts} == {(300_000, 1)}


def test_two_writers_do_not_share_a_temporary_file(local: ClusterDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes that write the same file (stop, say) at once each write their own temporary one."""
    names: list[str] = []
    replace = Path.replace

    def note(path: Path, target: Path) -> Path:
        names.append(path.name)
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", note)
    local.publish("stop")
    local.publish("stop")
    assert [name[: len(".stop.")] for name in names] == [".stop.", ".stop."]
    assert len(set(names)) == 2


# --- Without fsspec ---------------------------------------------------------------------------------------------------


def test_files_of_this_machine_need_no_fsspec() -> None:
    """Its import is three quarters of an agent's start."""
    code = (
        "import sys; from oci_cluster.contract.files.cluster_dir import ClusterDir; import oci_cluster.node.agent;"
        "ClusterDir('file:///tmp', 'a', 'k'); print('fsspec' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=COMMON, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_chained_url_of_files_is_fsspecs(tmp_path: Path) -> None:
    """``simplecache::file://`` is another file system than ``file://``; ``local://`` is the same."""
    assert ClusterDir(f"simplecache::file://{tmp_path}", LAUNCH, KEY).local_path is None
    assert ClusterDir(f"local://{tmp_path}", LAUNCH, KEY).local_path == tmp_path


def test_a_listing_leaves_out_what_leads_nowhere(tmp_path: Path) -> None:
    """Somebody's link is no reason to read nothing."""
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    (tmp_path / "file").touch()
    assert list(ClusterDir(f"file://{tmp_path}", LAUNCH, KEY).listing()) == ["file"]


def put(kind: str, path: Path) -> None:
    """Have somebody put something in a file's place."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "socket"])
def test_what_is_no_file_is_neither_waited_for_nor_read(kind: str) -> None:
    """One pipe called `stop` in a shared folder once hung all who looked: nodes, their TTL, and list.sh.

    It is told as what somebody else has written is, and whoever may write the file replaces it.
    """
    with tempfile.TemporaryDirectory() as folder:  # a socket's path is short
        local = ClusterDir(f"file://{folder}", LAUNCH, KEY)
        put(kind, Path(folder) / "stop")
        assert local.read("stop") is None
        assert local.refused == {"stop": "not a regular file: somebody else has put it there"}
        assert local.read_bytes("stop", 0) == b""
        local.publish("stop", reason="stopped")
        assert (local.read("stop") or {})["reason"] == "stopped"
        assert local.refused == {}


def test_a_folder_that_is_not_empty_is_moved_aside(local: ClusterDir, tmp_path: Path) -> None:
    """Nothing of it is lost; to remove the file removes nobody's folder."""
    (tmp_path / "stop").mkdir()
    (tmp_path / "stop" / "somebody's").touch()
    local.remove("stop")
    assert (tmp_path / "stop" / "somebody's").exists()
    local.publish("stop")
    assert len(list(tmp_path.glob(".stop.*/somebody's"))) == 1
    local.remove("stop")
    assert not local.is_there("stop")


def test_a_file_that_another_user_lets_nobody_read_is_told_and_replaced(
    local: ClusterDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once was an outage of storage, in which main did not announce the end."""

    def refuse(path: str, *_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    (tmp_path / "stop").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)  # root reads everything
        with pytest.raises(NotPermittedError):
            local.read("stop")  # one's own: an error of one's own
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert local.read("stop") is None
        assert local.refused == {"stop": "not readable: somebody else has put it there"}
    local.publish("stop", reason="stopped")
    assert (local.read("stop") or {})["reason"] == "stopped"


@pytest.mark.parametrize("kind", ["link that leads nowhere", "link to a file", "pipe", "device"])
def test_a_copy_takes_the_place_of_what_is_no_file(local: ClusterDir, tmp_path: Path, kind: str) -> None:
    """Nothing is written where somebody's link leads; others of this machine can read the copy as before."""
    source, elsewhere, copy = tmp_path / "source", tmp_path / "elsewhere", tmp_path / "code" / "copy"
    source.write_text("code")
    copy.parent.mkdir()
    if kind == "link to a file":
        elsewhere.write_text("mine")
    if kind.startswith("link"):
        copy.symlink_to(elsewhere)
    else:
        put(kind, copy)
    before = os.umask(0o022)
    try:
        local.upload(source, "code/copy")
    finally:
        os.umask(before)
    assert (copy.read_text(), stat.S_IMODE(copy.lstat().st_mode)) == ("code", 0o644)
    assert not copy.is_symlink()
    assert list(copy.parent.iterdir()) == [copy]
    assert (elsewhere.read_text() if elsewhere.exists() else "mine") == "mine"


def test_a_file_without_an_end_is_read_as_far_as_a_file_may_be_long(local: ClusterDir, tmp_path: Path) -> None:
    """Ten gigabytes that take no room."""
    with (tmp_path / "stop").open("wb") as file:
        file.truncate(10 << 30)
    assert local.read("stop") is None
    assert "stop" in local.unusable
