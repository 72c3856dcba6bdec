from __future__ import annotations

import errno
import itertools
import json
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest

from oci_cluster import exchange as exchange_module
from oci_cluster.errors import NotPermittedError, SettingsError, StorageError
from oci_cluster.exchange import (
    MAX_BYTES,
    Exchange,
    config_file,
    exit_file,
    heartbeat_file,
    now,
    poll_delays,
)

LAUNCH = "1f2e3d4c"


class FailingFileSystem(fsspec.AbstractFileSystem):
    """Raises what a test tells it to, whatever is asked, and records what was asked."""

    protocol = "failing"
    cachable = False
    error: ClassVar[BaseException | None] = None
    calls: ClassVar[list[str]] = []

    def _answer(self, name: str, result: Any = None) -> Any:
        type(self).calls.append(name)
        if self.error is not None:
            raise self.error
        return result

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002 - fsspec's own
        self._answer("makedirs")

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        self._answer("pipe_file")

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        type(self).calls.append(f"range {start}-{end}")
        return bytes(self._answer("cat_file", b"{}"))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return dict(self._answer("info", {"name": path}))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:  # noqa: FBT001, FBT002 - fsspec's own
        return list(self._answer("ls", []))

    def rm_file(self, path: str) -> None:
        self._answer("rm_file")

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:  # noqa: FBT001, FBT002
        assert recursive
        self._answer("rm")

    def put_file(self, lpath: str, rpath: str, *_: Any, **__: Any) -> None:
        self._answer("put_file")

    def invalidate_cache(self, path: str | None = None) -> None:
        type(self).calls.append("invalidate_cache")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> type[FailingFileSystem]:
    fsspec.register_implementation("failing", FailingFileSystem, clobber=True)
    monkeypatch.setattr(FailingFileSystem, "error", None)
    monkeypatch.setattr(FailingFileSystem, "calls", [])
    return FailingFileSystem


@pytest.fixture(params=["file", "memory"])
def exchange(request: pytest.FixtureRequest, tmp_path: Path, empty_memory: None) -> Exchange:
    url = f"file://{tmp_path}/a b/c1" if request.param == "file" else "memory://work/c1"
    made = Exchange(url, LAUNCH)
    made.create()
    return made


@pytest.fixture
def local(tmp_path: Path) -> Exchange:
    return Exchange(f"file://{tmp_path}", LAUNCH)


def leave(exchange: Exchange, name: str, body: bytes) -> None:
    exchange._fs.pipe_file(f"{exchange._path}/{name}", body)


def document(**fields: Any) -> bytes:
    return json.dumps({"schema": 1, "launch_id": LAUNCH, **fields}).encode()


# --- Names and delays -----------------------------------------------------------------------------------------------


def test_files_have_the_contracts_names() -> None:
    """A node's files are named as the contract's table of files has them."""
    assert [config_file("MAIN"), heartbeat_file("WORKER_2"), exit_file("PS_4")] == [
        "MAIN_config.json",
        "WORKER_2_heartbeat.json",
        "PS_4_exit.json",
    ]


def test_polling_backs_off_to_its_ceiling() -> None:
    """Delays begin at 0.2 s, grow by half and stay at the ceiling."""
    delays = poll_delays(1.0, uniform=lambda _low, _high: 1.0)
    assert [round(delay, 4) for delay in itertools.islice(delays, 7)] == [0.2, 0.3, 0.45, 0.675, 1.0, 1.0, 1.0]


def test_a_ceiling_below_the_first_delay_holds_from_the_start() -> None:
    """No delay is ever above the ceiling, the first included."""
    assert list(itertools.islice(poll_delays(0.05, uniform=lambda _low, _high: 1.0), 3)) == [0.05, 0.05, 0.05]


def test_delays_are_spread_by_a_tenth() -> None:
    """Nodes that started together do not ask together: each delay is spread by a tenth either way."""
    asked: list[tuple[float, float]] = []

    def least(low: float, high: float) -> float:
        asked.append((low, high))
        return low

    assert [round(delay, 4) for delay in itertools.islice(poll_delays(0.2, uniform=least), 2)] == [0.18, 0.18]
    assert asked == [(0.9, 1.1), (0.9, 1.1)]


def test_the_time_is_utc_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times in files are UTC and ISO 8601."""
    gmtime = exchange_module.time.gmtime
    monkeypatch.setattr(exchange_module.time, "gmtime", lambda: gmtime(86400))
    assert now() == "1970-01-02T00:00:00Z"


# --- What one node writes, another reads ----------------------------------------------------------------------------


def test_what_is_published_is_read(exchange: Exchange) -> None:
    """Fields come back as they were given, with schema and launch id."""
    exchange.publish("MAIN_config.json", address="127.0.0.1", worker_addresses=["a", "b"], tls=True)
    assert exchange.read("MAIN_config.json") == {
        "schema": 1,
        "launch_id": LAUNCH,
        "address": "127.0.0.1",
        "worker_addresses": ["a", "b"],
        "tls": True,
    }


def test_a_file_is_replaced_whole(exchange: Exchange) -> None:
    """Nothing of a longer, older content is left after a shorter one was published."""
    exchange.publish("stop", reason="r" * 1000)
    exchange.publish("stop", reason="short")
    assert exchange.read("stop") == {"schema": 1, "launch_id": LAUNCH, "reason": "short"}


def test_an_absent_file_reads_as_none(exchange: Exchange) -> None:
    """Absent is an answer, and leaves no complaint."""
    assert (exchange.read("stop"), exchange.is_there("stop"), exchange.unusable) == (None, False, {})


def test_a_file_is_there_whatever_is_in_it(exchange: Exchange) -> None:
    """The look for a file is one small request that does not read it."""
    leave(exchange, "stop", b"{")
    assert exchange.is_there("stop")


def test_an_existing_cluster_dir_is_left_as_it_is(exchange: Exchange) -> None:
    """Creating what is there, as every node but the first does, changes nothing."""
    exchange.publish("stop", reason="kept")
    exchange.create()
    assert exchange.read("stop") == {"schema": 1, "launch_id": LAUNCH, "reason": "kept"}


def test_a_removed_file_is_gone(exchange: Exchange) -> None:
    """The certificate can be taken away at the end."""
    exchange.publish("MAIN_certificate.json", key="k")
    exchange.remove("MAIN_certificate.json")
    assert not exchange.is_there("MAIN_certificate.json")


def test_removing_what_is_not_there_is_no_failure(exchange: Exchange) -> None:
    """A file that is not there is as good as removed."""
    exchange.remove("MAIN_certificate.json")
    assert not exchange.is_there("MAIN_certificate.json")


def test_a_refusal_to_remove_what_is_not_there_is_no_failure(
    failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems (ftp) have an error of their own for it: the file is looked for, and not there."""

    def not_there(self: FailingFileSystem, path: str, **_: Any) -> None:
        raise FileNotFoundError(path)

    failing.error = OSError("550 no such file")
    monkeypatch.setattr(failing, "info", not_there)
    Exchange("failing://c", LAUNCH).remove("stop")


def test_a_file_that_is_still_there_has_not_been_removed(
    failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is found after the refusal, storage has not done what it was asked for."""
    failing.error = OSError("550 in use")
    monkeypatch.setattr(failing, "info", lambda self, path, **_: {"name": path})
    with pytest.raises(StorageError, match="550 in use"):
        Exchange("failing://c", LAUNCH).remove("stop")


def test_outputs_are_copied_byte_for_byte(exchange: Exchange, tmp_path: Path) -> None:
    """An upload makes the folders that it needs, and changes no byte; names may have slashes and blanks."""
    source = tmp_path / "model.bin"
    source.write_bytes(bytes(range(256)))
    exchange.upload(source, "outputs/WORKER_1/sub dir/model.bin")
    found = exchange._fs.cat_file(f"{exchange._path}/outputs/WORKER_1/sub dir/model.bin")
    assert found == bytes(range(256))


def test_listing_names_files_and_folders(exchange: Exchange, tmp_path: Path) -> None:
    """A listing has every entry by its last name, folders without their slash."""
    exchange.publish("stop")
    exchange.publish("MAIN_config.json")
    (tmp_path / "log").write_text("x")
    exchange.upload(tmp_path / "log", "logs/MAIN.log")
    assert sorted(exchange.listing()) == ["MAIN_config.json", "logs", "stop"]


def test_listing_of_an_absent_cluster_dir_is_empty(tmp_path: Path) -> None:
    """Before anything was created there is nothing, which is no error."""
    assert Exchange(f"file://{tmp_path}/none", LAUNCH).listing() == {}


def test_a_listing_changes_with_a_heartbeat(exchange: Exchange) -> None:
    """Whoever lists sees that a node is alive by the change of its heartbeat's entry, and of no other."""
    exchange.publish("WORKER_1_heartbeat.json", beat=9)
    exchange.publish("WORKER_2_heartbeat.json", beat=9)
    before = exchange.listing()
    exchange.publish("WORKER_1_heartbeat.json", beat=10)
    after = exchange.listing()
    assert {name for name in after if after[name] != before[name]} == {"WORKER_1_heartbeat.json"}


def test_the_local_path_is_known_where_there_is_one(tmp_path: Path) -> None:
    """On file:// the cluster dir is a directory of this machine, elsewhere it is none."""
    paths = [Exchange(url, LAUNCH).local_path for url in (f"file://{tmp_path}/c", "memory://work/c")]
    assert paths == [tmp_path / "c", None]


# --- Files that cannot be used --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not usable (Expecting value: line 1 column 1 (char 0))"),
        (document()[:-1], "not usable (Expecting ',' delimiter: line 1 column 38 (char 37))"),
        (b"[1, 2]", "not usable (not a JSON object)"),
        (b"null", "not usable (not a JSON object)"),
        (b'"stop"', "not usable (not a JSON object)"),
        (document(pad="x" * MAX_BYTES), "not usable (larger than 1048576 bytes)"),
        (document(launch_id="other"), "of another launch ('other')"),
        (document(launch_id=None), "of another launch ('None')"),
        (document(launch_id=[LAUNCH]), "of another launch (\"['1f2e3d4c']\")"),
        (document(launch_id="x\n\033[2J" + "y" * 100), f"of another launch ('x\\n\\x1b[2J{'y' * 58}')"),
        (document(launch_id="old", schema=7), "of another launch ('old')"),
    ],
    ids=[
        "empty",
        "half-written",
        "list",
        "null",
        "string",
        "huge",
        "other launch",
        "no launch",
        "launch in a list",
        "control characters",
        "other launch of another schema",
    ],
)
def test_a_file_that_cannot_be_used_is_not_used(exchange: Exchange, body: bytes, why: str) -> None:
    """Half-written, huge, foreign or shapeless files read as absent, with the reason kept for the log."""
    leave(exchange, "stop", body)
    assert (exchange.read("stop"), exchange.unusable) == (None, {"stop": why})


@pytest.mark.parametrize("body", [b"\xff\xfe\x00\x81", b"\x00" * 10, b"{" * 100], ids=["bytes", "zeros", "braces"])
def test_bytes_that_are_no_text_are_not_used(exchange: Exchange, body: bytes) -> None:
    """Garbage of any kind reads as absent, and is said to be unusable."""
    leave(exchange, "stop", body)
    assert (exchange.read("stop"), list(exchange.unusable)) == (None, ["stop"])


def test_deeply_nested_json_is_not_used(exchange: Exchange) -> None:
    """Half a megabyte of brackets is one more unusable file, not a bug in the agent."""
    leave(exchange, "stop", b"[" * (MAX_BYTES // 2))
    assert (exchange.read("stop"), list(exchange.unusable)) == (None, ["stop"])


def test_a_file_of_the_largest_size_is_used(exchange: Exchange) -> None:
    """The limit is the last size that is read."""
    leave(exchange, "stop", document(pad="x" * (MAX_BYTES - len(document(pad="")))))
    assert set(exchange.read("stop") or ()) == {"schema", "launch_id", "pad"}


def test_no_more_than_the_limit_is_asked_for(failing: type[FailingFileSystem]) -> None:
    """A hostile file cannot fill the node's memory: one byte more than the limit is requested, and no second look."""
    Exchange("failing://c", LAUNCH).read("stop")
    assert failing.calls == ["range 0-1048577", "cat_file"]


def test_a_complaint_ends_when_the_file_is_whole(exchange: Exchange) -> None:
    """A half-written file is looked at again; once it is whole, nothing is said of it any more."""
    leave(exchange, "stop", b"{")
    exchange.read("stop")
    exchange.publish("stop", reason="r")
    assert exchange.read("stop") == {"schema": 1, "launch_id": LAUNCH, "reason": "r"}
    assert exchange.unusable == {}


@pytest.mark.parametrize(
    ("schema", "shown"), [(2, "'2'"), ("1", "'1'"), (None, "'None'"), ([1], "'[1]'"), ("x" * 99, f"'{'x' * 64}'")]
)
def test_an_unknown_schema_ends_the_node(exchange: Exchange, schema: Any, shown: str) -> None:
    """This launch's file in a schema that is not ours is a wrong setting (78), named with the way out."""
    leave(exchange, "MAIN_config.json", document(schema=schema))
    with pytest.raises(SettingsError) as caught:
        exchange.read("MAIN_config.json")
    assert str(caught.value) == (
        f"{exchange.url}/MAIN_config.json has schema {shown}, this node knows 1;"
        " run the same version on every node and launcher"
    )


def test_a_file_sets_nothing_but_its_fields(exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
    """LD_PRELOAD in a file is a field like any other: reading it changes no environment."""
    monkeypatch.setenv("WITNESS", "before")
    before = dict(exchange_module.os.environ)
    leave(exchange, "MAIN_config.json", document(LD_PRELOAD="/x.so", WITNESS="after", environment={"WITNESS": "x"}))
    exchange.read("MAIN_config.json")
    assert dict(exchange_module.os.environ) == before


# --- Storage that fails ---------------------------------------------------------------------------------------------

REQUESTS: dict[str, Callable[[Exchange], Any]] = {
    "create": lambda exchange: exchange.create(),
    "publish": lambda exchange: exchange.publish("f"),
    "read": lambda exchange: exchange.read("f"),
    "is_there": lambda exchange: exchange.is_there("f"),
    "listing": lambda exchange: exchange.listing(),
    "remove": lambda exchange: exchange.remove("f"),
    "upload": lambda exchange: exchange.upload(Path("f"), "f"),
    "write_bytes": lambda exchange: exchange.write_bytes("logs/f", b"1"),
    "read_bytes": lambda exchange: exchange.read_bytes("logs/f", 7),
    "sizes": lambda exchange: exchange.sizes("logs"),
    "remove_all": lambda exchange: exchange.remove_all(),
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
        REQUESTS[request_name](Exchange("failing://c", LAUNCH))
    assert (type(caught.value), caught.value.__cause__) == (kind, error)


@pytest.mark.parametrize("request_name", ["create", "upload"])
def test_a_missing_bucket_is_no_answer(
    failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch, request_name: str
) -> None:
    """Where something is to be written, "not found" is storage's failure (69), never a bug of ours (70)."""
    monkeypatch.setattr(failing, "error", FileNotFoundError(errno.ENOENT, "no such bucket"))
    with pytest.raises(StorageError):
        REQUESTS[request_name](Exchange("failing://c", LAUNCH))


def test_publishing_where_the_cluster_dir_is_gone_is_no_answer(
    failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster dir that was there at the start and is not now is an outage."""
    monkeypatch.setattr(failing, "error", FileNotFoundError("no such bucket"))
    with pytest.raises(StorageError) as caught:
        Exchange("failing://c", LAUNCH).publish("f")
    assert str(caught.value) == "failing://c: no such bucket"


def test_publishing_to_a_vanished_directory_is_no_answer(tmp_path: Path) -> None:
    """The same on file://, where the write begins with a temporary file."""
    with pytest.raises(StorageError):
        Exchange(f"file://{tmp_path}/unmounted", LAUNCH).publish("f")


def test_a_refusal_says_what_to_do(failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal names file, reason and the two ways out."""
    monkeypatch.setattr(failing, "error", PermissionError(errno.EACCES, "Permission denied"))
    with pytest.raises(NotPermittedError) as caught:
        Exchange("failing://c", LAUNCH).publish("f")
    assert str(caught.value) == (
        "failing://c/f: [Errno 13] Permission denied; allow this node to write there, or set another WORK_DIR"
    )


def test_an_outage_names_the_foreign_error(failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage names file, kind and text of what was raised: an SDK's text alone is often a bare number."""
    monkeypatch.setattr(failing, "error", ServiceError("503"))
    with pytest.raises(StorageError) as caught:
        Exchange("failing://c", LAUNCH).is_there("stop")
    assert str(caught.value) == "failing://c/stop: ServiceError: 503"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_a_signal_is_not_storages_failure(
    failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Ctrl-C in the middle of a request ends the process, not the request."""
    monkeypatch.setattr(failing, "error", error)
    with pytest.raises(type(error)):
        Exchange("failing://c", LAUNCH).read("stop")


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
    REQUESTS[request_name](Exchange("failing://c", LAUNCH))
    assert failing.calls == calls


def test_an_unknown_scheme_is_a_wrong_setting() -> None:
    """A WORK_DIR that fsspec cannot open is named with its value (78)."""
    with pytest.raises(SettingsError) as caught:
        Exchange("nosuch://bucket/work", LAUNCH)
    assert str(caught.value) == "WORK_DIR nosuch://bucket/work: Protocol not known: nosuch"


def test_a_file_system_that_is_not_installed_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is a wrong setting, with fsspec's advice on what to install."""

    def url_to_fs(_: str) -> None:
        raise ImportError("Install ocifs to access OCI")

    monkeypatch.setattr(fsspec, "url_to_fs", url_to_fs)
    with pytest.raises(SettingsError) as caught:
        Exchange("oci://bucket@ns/work", LAUNCH)
    assert str(caught.value) == "WORK_DIR oci://bucket@ns/work: Install ocifs to access OCI"


def test_a_file_system_that_cannot_be_reached_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some connect where they are opened: 69, with the work dir and the system's own words."""

    def url_to_fs(_: str) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(fsspec, "url_to_fs", url_to_fs)
    with pytest.raises(StorageError) as caught:
        Exchange("ftp://host/work", LAUNCH)
    assert str(caught.value) == "ftp://host/work: ConnectionRefusedError: [Errno 111] Connection refused"


# --- Atomic publish on file:// --------------------------------------------------------------------------------------


def test_a_published_file_is_private(local: Exchange, tmp_path: Path) -> None:
    """Certificates and arguments are nobody else's business: mode 0600, whatever the umask allows."""
    old = exchange_module.os.umask(0)
    try:
        local.publish("MAIN_certificate.json", key="k")
    finally:
        exchange_module.os.umask(old)
    assert stat.S_IMODE((tmp_path / "MAIN_certificate.json").stat().st_mode) == 0o600


def test_publishing_leaves_no_other_file(local: Exchange, tmp_path: Path) -> None:
    """After a publish only the file itself is there."""
    local.publish("MAIN_config.json")
    local.publish("MAIN_config.json")
    assert [path.name for path in tmp_path.iterdir()] == ["MAIN_config.json"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_crash_before_the_rename_leaves_the_old_file(
    local: Exchange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Full disk or Ctrl-C between write and rename: readers have the old file, and no temporary one is left."""
    local.publish("stop", reason="old")

    def crash(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        patch.setattr(exchange_module.os, "replace", crash)
        with pytest.raises((StorageError, KeyboardInterrupt)):
            local.publish("stop", reason="new")
    assert local.read("stop") == {"schema": 1, "launch_id": LAUNCH, "reason": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["stop"]


def test_a_full_disk_while_writing_leaves_the_old_file(
    local: Exchange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails half-way is an outage that can be tried again, and leaves nothing half-written."""
    local.publish("stop", reason="old")
    real = exchange_module.os.fdopen

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
        patch.setattr(exchange_module.os, "fdopen", Full)
        with pytest.raises(StorageError, match="No space left on device"):
            local.publish("stop", reason="new")
    assert local.read("stop") == {"schema": 1, "launch_id": LAUNCH, "reason": "old"}
    assert [path.name for path in tmp_path.iterdir()] == ["stop"]


def test_a_reader_never_sees_half_a_file(local: Exchange, tmp_path: Path) -> None:
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


def test_two_writers_do_not_share_a_temporary_file(local: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
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


# --- Bytes ----------------------------------------------------------------------------------------------------------


def test_bytes_are_written_whole_and_read_from_anywhere(exchange: Exchange) -> None:
    """In a folder that is made for them; what is written again is replaced."""
    exchange.write_bytes("logs/a", b"a long content")
    exchange.write_bytes("logs/a", b"0123\xff")
    assert [exchange.read_bytes("logs/a", start) for start in (0, 3)] == [b"0123\xff", b"3\xff"]


def test_bytes_of_a_file_that_is_not_there_are_none(exchange: Exchange) -> None:
    """It has gone meanwhile: no failure."""
    assert exchange.read_bytes("logs/a", 0) == b""


def test_a_folders_files_have_sizes(exchange: Exchange) -> None:
    """Of files alone, and as they are now."""
    assert exchange.sizes("logs") == {}
    exchange.write_bytes("logs/a b", b"123")
    exchange.write_bytes("logs/c/d", b"12345")
    first = exchange.sizes("logs")
    exchange.write_bytes("logs/a b", b"1234")
    assert (first, exchange.sizes("logs")) == ({"a b": 3}, {"a b": 4})


def test_a_cluster_dir_is_removed_with_all_that_is_in_it(exchange: Exchange) -> None:
    """And nothing beside it; one that is not there is as good as removed."""
    beside = Exchange(f"{exchange.url}-2", LAUNCH)
    beside.write_bytes("stop", b"1")
    exchange.publish("stop")
    exchange.write_bytes("outputs/MAIN/deep/a", b"1")
    exchange.remove_all()
    assert (exchange.is_there("outputs/MAIN/deep/a"), exchange.is_there("stop"), exchange.listing()) == (
        False,
        False,
        {},
    )
    assert beside.is_there("stop")
    exchange.remove_all()


def test_a_file_system_without_rm_file_has_rm(
    failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of OCI is one."""
    monkeypatch.delattr(FailingFileSystem, "rm_file")
    monkeypatch.setattr(FailingFileSystem, "rm", lambda self, path: self._answer(f"rm {path}"), raising=False)
    Exchange("failing://c", LAUNCH).remove("stop")
    assert [call for call in failing.calls if call.startswith("rm")] == ["rm c/stop"]
