"""What is asked of storage, and what becomes of each of its failures."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from unit.contract.fake_storage import KEY, LAUNCH, FailingFileSystem

from oci_cluster.contract.files.cluster_dir import MAX_BYTES, ClusterDir
from oci_cluster.contract.storage.oci import OciFiles
from oci_cluster.errors import BackendError, ExitCode, NotPermittedError, SettingsError, StorageError

REQUESTS: dict[str, Callable[[ClusterDir], Any]] = {
    "create": lambda cluster_dir: cluster_dir.create(),
    "publish": lambda cluster_dir: cluster_dir.publish("f"),
    "read": lambda cluster_dir: cluster_dir.read("f"),
    "is_there": lambda cluster_dir: cluster_dir.is_there("f"),
    "listing": lambda cluster_dir: cluster_dir.listing(),
    "remove": lambda cluster_dir: cluster_dir.remove("f"),
    "upload": lambda cluster_dir: cluster_dir.upload(Path("f"), "f"),
    "write_bytes": lambda cluster_dir: cluster_dir.write_bytes("logs/f", b"1"),
    "read_bytes": lambda cluster_dir: cluster_dir.read_bytes("logs/f", 7),
    "sizes": lambda cluster_dir: cluster_dir.sizes("logs"),
    "remove_all": lambda cluster_dir: cluster_dir.remove_all(),
}


class ServiceError(Exception):
    """What an SDK raises: no OSError, and no errno."""


class ReadOnlyError(Exception):
    """A foreign exception that carries EROFS."""

    errno = errno.EROFS


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EIO, "broken"), StorageError),
        (OSError(errno.ENOSPC, "full"), StorageError),
        (ConnectionResetError("gone"), StorageError),
        (TimeoutError("slow"), StorageError),
        (ServiceError("503"), StorageError),
        (ValueError("odd"), StorageError),
        (PermissionError(errno.EACCES, "no"), NotPermittedError),
        (OSError(errno.EROFS, "read-only"), NotPermittedError),
        (ReadOnlyError("read-only"), NotPermittedError),
        # Files that a backend tells: who may not ask it is refused for good, and one that does not answer is not.
        (BackendError("403", exit_code=ExitCode.NOT_PERMITTED), NotPermittedError),
        (BackendError("500"), StorageError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_a_failing_request_is_no_answer(
    failing: type[FailingFileSystem],
    monkeypatch: pytest.MonkeyPatch,
    request_name: str,
    error: Exception,
    kind: type[Exception],
) -> None:
    """Whatever a file system raises means "no answer" or "refused", never "absent", in every method."""
    monkeypatch.setattr(failing, "error", error)
    with pytest.raises(kind) as caught:
        REQUESTS[request_name](ClusterDir("failing://c", LAUNCH, KEY))
    assert (type(caught.value), caught.value.__cause__) == (kind, error)


@pytest.mark.parametrize("request_name", ["create", "upload"])
def test_a_missing_bucket_is_no_answer(
    failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch, request_name: str
) -> None:
    """Where something is to be written, "not found" is storage's failure (69), never a bug of ours (70)."""
    monkeypatch.setattr(failing, "error", FileNotFoundError(errno.ENOENT, "no such bucket"))
    with pytest.raises(StorageError):
        REQUESTS[request_name](ClusterDir("failing://c", LAUNCH, KEY))


def test_publishing_where_the_cluster_dir_is_gone_is_no_answer(
    failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster dir that was there at the start and is not now is an outage."""
    monkeypatch.setattr(failing, "error", FileNotFoundError("no such bucket"))
    with pytest.raises(StorageError) as caught:
        ClusterDir("failing://c", LAUNCH, KEY).publish("f")
    assert str(caught.value) == "failing://c: no such bucket"


def test_publishing_to_a_vanished_directory_is_no_answer(tmp_path: Path) -> None:
    """The same on file://, where the write begins with a temporary file."""
    with pytest.raises(StorageError):
        ClusterDir(f"file://{tmp_path}/unmounted", LAUNCH, KEY).publish("f")


def test_a_refusal_says_what_to_do(failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal names file, reason and the two ways out."""
    monkeypatch.setattr(failing, "error", PermissionError(errno.EACCES, "Permission denied"))
    with pytest.raises(NotPermittedError) as caught:
        ClusterDir("failing://c", LAUNCH, KEY).publish("f")
    assert str(caught.value) == (
        "failing://c/f: [Errno 13] Permission denied; allow this node to write there, or set another WORK_DIR"
    )


def test_an_outage_names_the_foreign_error(failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage names file, kind and text of what was raised: an SDK's text alone is often a bare number."""
    monkeypatch.setattr(failing, "error", ServiceError("503"))
    with pytest.raises(StorageError) as caught:
        ClusterDir("failing://c", LAUNCH, KEY).is_there("stop")
    assert str(caught.value) == "failing://c/stop: ServiceError: 503"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_a_signal_is_not_storages_failure(
    failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Ctrl-C in the middle of a request ends the process, not the request."""
    monkeypatch.setattr(failing, "error", error)
    with pytest.raises(type(error)):
        ClusterDir("failing://c", LAUNCH, KEY).read("stop")


@pytest.mark.parametrize(
    ("request_name", "calls"),
    [
        ("create", ["makedirs"]),
        ("publish", ["pipe_file"]),
        ("read", ["range 0-1048577", "cat_file"]),
        ("is_there", ["invalidate_cache", "info"]),
        ("listing", ["invalidate_cache", "ls"]),
        ("remove", ["rm_file"]),
        ("upload", ["makedirs", "put_file"]),
        ("write_bytes", ["pipe_file"]),
        ("read_bytes", [f"range 7-{7 + MAX_BYTES}", "cat_file"]),
        ("sizes", ["invalidate_cache", "ls"]),
        ("remove_all", ["invalidate_cache", "rm"]),
    ],
)
def test_a_method_makes_a_fixed_number_of_requests(
    failing: type[FailingFileSystem], request_name: str, calls: list[str]
) -> None:
    """One request, two for an upload; a cached listing is dropped first; exists(), which hides errors, never used."""
    REQUESTS[request_name](ClusterDir("failing://c", LAUNCH, KEY))
    assert failing.calls == calls


def test_an_unknown_scheme_is_a_wrong_setting() -> None:
    """A WORK_DIR that fsspec cannot open is named with its value (78)."""
    with pytest.raises(SettingsError) as caught:
        ClusterDir("nosuch://bucket/work", LAUNCH, KEY)
    assert str(caught.value) == "WORK_DIR nosuch://bucket/work: Protocol not known: nosuch"


def test_a_file_system_that_is_not_installed_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is a wrong setting, with fsspec's advice on what to install."""

    def url_to_fs(_: str, **__: object) -> None:
        raise ImportError("Install ocifs to access OCI")

    monkeypatch.setattr(fsspec, "url_to_fs", url_to_fs)
    with pytest.raises(SettingsError) as caught:
        ClusterDir("oci://bucket@ns/work", LAUNCH, KEY)
    assert str(caught.value) == "WORK_DIR oci://bucket@ns/work: Install ocifs to access OCI"


def test_a_file_system_that_cannot_be_reached_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some connect where they are opened: 69, with the work dir and the system's own words."""

    def url_to_fs(_: str) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(fsspec, "url_to_fs", url_to_fs)
    with pytest.raises(StorageError) as caught:
        ClusterDir("ftp://host/work", LAUNCH, KEY)
    assert str(caught.value) == "ftp://host/work: ConnectionRefusedError: [Errno 111] Connection refused"


def test_a_file_system_without_rm_file_has_rm(
    failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of OCI is one."""
    monkeypatch.delattr(FailingFileSystem, "rm_file")
    monkeypatch.setattr(FailingFileSystem, "rm", lambda self, path: self._answer(f"rm {path}"), raising=False)
    ClusterDir("failing://c", LAUNCH, KEY).remove("stop")
    assert [call for call in failing.calls if call.startswith("rm")] == ["rm c/stop"]


# --- What nobody has checked yet ------------------------------------------------------------------------------------


def test_an_object_without_end_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who wants no more than some bytes gets one piece more at most; and is told."""
    closed = []
    response = SimpleNamespace(
        data=SimpleNamespace(
            raw=SimpleNamespace(stream=lambda size, **_: itertools.repeat(bytes(size))), close=lambda: closed.append(1)
        )
    )
    monkeypatch.setattr(OciFiles, "_ask", lambda _, _operation, _path, read: read(response))
    files = OciFiles(None, None)  # type: ignore[arg-type]
    assert not files.get_file("bucket/code.tar", str(tmp_path / "code.tar"), most=3 << 20)
    assert ((tmp_path / "code.tar").stat().st_size, closed) == (4 << 20, [1])
