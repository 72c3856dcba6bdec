"""What is asked of Object Storage: each request by the real SDK and ocifs, and what becomes of each that fails."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from oci_user import User

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.contract.storage import oci
from oci_cluster.contract.storage.retry import Waiting
from oci_cluster.errors import NotPermittedError, StorageError
from oci_cluster.node.begin.code import NoCodeError, fetch_code

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

LAUNCH, KEY = "1f2e3d4c", "5eed" * 16


class Storage:
    """A cluster dir in the bucket of a stand-in, the faults of that, and time that passes only in pauses."""

    def __init__(self, user: User, name: str) -> None:
        self.user = user
        self.url = f"oci://{user.work}/{name}"
        self.now = 1000.0
        self.pauses: list[float] = []
        self.is_stopped = False
        oci.configure(waiting=Waiting(lambda: self.now, self._sleep, lambda: self.is_stopped), patience_s=0.0)

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def open(self, patience_s: float | None = None) -> ClusterDir:
        return ClusterDir(self.url, LAUNCH, KEY, patience_s=patience_s)

    def faults(self, *faults: dict[str, Any]) -> None:
        self.user.service.control({"faults": list(faults)})

    def asked(self, act: Callable[[], object]) -> list[str]:
        """Return the operations that *act* asks for, each with its status."""
        since = len(self.user.service.calls())
        act()
        calls = self.user.service.calls(since=since)
        return [f"{call['operation'].partition('.')[2]} {call['status']}" for call in calls]

    def names(self) -> list[str]:
        prefix = self.url.partition("@stand-in/")[2]
        return [name.removeprefix(f"{prefix}/") for name in self.user.service.objects(f"{prefix}/")]


@pytest.fixture
def storage(user: User, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    """Return an empty cluster dir of a user with an API key."""
    monkeypatch.setattr(fsspec.config, "conf", {"oci": {"config": user.config, "region": user.config["region"]}})
    process = oci._Process
    monkeypatch.setattr(process, "waiting", process.waiting)
    monkeypatch.setattr(process, "repeats", process.repeats)
    found = Storage(user, request.node.name.replace("[", "-").replace("]", ""))
    yield found
    found.faults()


# --- Each call is one request -------------------------------------------------------------------------------


def test_each_call_is_one_request(storage: Storage) -> None:
    """No HEAD before a GET, and no LIST after a miss."""
    files = storage.open()
    assert storage.asked(lambda: files.read("stop")) == ["get_object 404"]
    assert storage.asked(lambda: files.publish("stop", reason="r")) == ["put_object 200"]
    assert storage.asked(lambda: files.read("stop")) == ["get_object 206"]
    assert (files.read("stop") or {})["reason"] == "r"
    storage.open().publish("stop", reason="other")
    assert (files.read("stop") or {})["reason"] == "other"
    assert storage.asked(lambda: files.is_there("stop")) == ["get_object 206"]
    assert storage.asked(lambda: files.is_there("none")) == ["get_object 404"]
    assert storage.asked(files.listing) == ["list_objects 200"]
    assert storage.asked(lambda: files.sizes("logs")) == ["list_objects 200"]
    assert storage.asked(lambda: files.remove("stop")) == ["delete_object 204"]
    assert storage.asked(lambda: files.remove("stop")) == ["delete_object 404"]
    assert storage.asked(files.create) == []


def test_what_is_written_is_read_listed_and_removed(storage: Storage, tmp_path: Path) -> None:
    """Byte for byte, in folders, of any size."""
    files = storage.open()
    files.write_bytes("logs/ü #1", b"0123456789")
    files.write_bytes("empty", b"")
    assert [files.read_bytes("logs/ü #1", start) for start in (0, 3, 10, 99)] == [b"0123456789", b"3456789", b"", b""]
    assert (files.read_bytes("empty", 0), files.is_there("empty")) == (b"", True)
    (tmp_path / "none").touch()
    files.upload(tmp_path / "none", "outputs/MAIN/none")
    before = files.listing()
    assert sorted(before) == ["empty", "logs", "outputs"]
    # Half of a request would be refused.
    assert all("content-md5" in call["headers"] for call in storage.user.service.calls("put_object")[-3:])
    assert files.sizes("logs") == {"ü #1": 10}
    assert (files.is_used("logs"), files.is_used("log")) == (True, False)
    files.write_bytes("empty", b"")
    after = files.listing()
    assert [name for name in after if after[name] != before[name]] == ["empty"]
    beside = ClusterDir(f"{storage.url}-2", LAUNCH, KEY)
    beside.write_bytes("stop", b"1")
    files.remove_all()
    assert (storage.names(), beside.is_there("stop")) == ([], True)
    files.remove_all()


def test_long_lists_come_whole(storage: Storage) -> None:
    """A page has 1,000 objects."""
    files = storage.open()
    bucket = storage.user.service
    for number in range(1005):
        files.write_bytes(f"{number:04}", b"")
    assert len(files.listing()) == 1005
    files.remove_all()
    assert bucket.objects("work/test_long_lists") == []


# --- Failures that pass --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["429", "500", "503", "409", "drop-before", "drop-after", "torn"])
def test_what_fails_in_passing_is_asked_again(storage: Storage, kind: str) -> None:
    """Reads, writes, lists and deletes; each is answered in the end, with what is there."""
    files = storage.open(patience_s=60)
    storage.faults(*({"operation": name, "kind": kind, "times": 2} for name in ("*_object", "list_objects")))
    files.publish("stop", reason="r")
    storage.faults(*({"operation": name, "kind": kind, "times": 2} for name in ("*_object", "list_objects")))
    assert (files.read("stop") or {})["reason"] == "r"
    assert list(files.listing()) == ["stop"]
    storage.faults({"operation": "delete_object", "kind": kind, "times": 2})
    files.remove("stop")
    assert storage.names() == []
    assert storage.pauses


def test_nothing_is_asked_again_where_the_caller_has_a_loop(storage: Storage) -> None:
    """A heartbeat that is not answered must not hold up its node."""
    files = storage.open()
    storage.faults({"operation": "*", "kind": "503", "retry_after": 7})

    def read() -> None:
        with pytest.raises(StorageError) as caught:
            files.read("stop")
        assert caught.value.retry_after_s == 7

    assert storage.asked(read) == ["get_object 503"]
    assert storage.pauses == []


def test_the_service_is_left_alone_as_long_as_it_asks(storage: Storage) -> None:
    """retry-after, and a little more, so that all who were refused do not come back together."""
    storage.faults({"operation": "*", "kind": "429", "retry_after": 9, "times": 3})
    storage.open(patience_s=60).publish("stop")
    assert len(storage.pauses) == 3
    assert all(9 < pause < 12 for pause in storage.pauses)


def test_patience_has_an_end_and_the_error_says_what_to_do(storage: Storage) -> None:
    """Service, operation, status, what was tried, the next step, and what the service's support asks for."""
    files = storage.open(patience_s=60)
    storage.faults({"operation": "put_object", "kind": "503"})
    with pytest.raises(StorageError) as caught:
        files.publish("stop")
    told = str(caught.value)
    for part in (
        f"{storage.url}/stop: Object Storage answered put_object with HTTP 503 ServiceUnavailable",
        "busy or broken: try again later",
        "opc-request-id",
        "tried ",
    ):
        assert part in told
    assert "Errno" not in told
    assert 40 < storage.now - 1000 <= 60
    # An outage costs this once, whatever falls into it.
    for _ in range(5):
        with pytest.raises(StorageError):
            files.publish("stop")
    assert storage.now - 1000 <= 60
    storage.faults()
    files.publish("stop")


def test_an_outage_costs_all_cluster_dirs_of_a_process_its_time_once(storage: Storage) -> None:
    """A list of many clusters."""
    oci.configure(patience_s=20.0)
    storage.faults({"operation": "*", "kind": "503"})
    for number in range(10):
        with pytest.raises(StorageError):
            ClusterDir(f"{storage.url}-{number}", LAUNCH, KEY).read("stop")
    assert 10 < storage.now - 1000 <= 20


def test_who_is_told_to_stop_does_not_wait_for_long(storage: Storage) -> None:
    """Ctrl-C: a busy service still gets the stop file, a broken one does not hold anybody up."""
    files = storage.open(patience_s=180)
    storage.is_stopped = True
    storage.faults({"operation": "put_object", "kind": "503", "times": 3})
    files.publish("stop")
    storage.faults({"operation": "put_object", "kind": "503"})
    before = storage.now
    with pytest.raises(StorageError):
        files.publish("stop")
    assert storage.now - before <= 10


# --- Nothing unknown is a success ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["429", "503", "drop-before"])
def test_what_cannot_be_looked_at_has_not_been_removed(storage: Storage, kind: str) -> None:
    """Neither a file nor a cluster dir."""
    files = storage.open()
    files.write_bytes("a", b"1")
    storage.faults({"operation": "*", "kind": kind})
    with pytest.raises(StorageError):
        files.remove("a")
    with pytest.raises(StorageError):
        files.remove_all()
    storage.faults({"operation": "delete_object", "kind": kind})
    with pytest.raises(StorageError):
        files.remove_all()
    assert storage.names() == ["a"]


@pytest.mark.parametrize("kind", ["torn", "stall"])
def test_half_an_answer_is_none(storage: Storage, kind: str) -> None:
    """Of a file, and of a list."""
    files = storage.open()
    files.publish("stop", reason="r")
    storage.faults({"operation": "*", "kind": kind, "seconds": 0.3})
    for ask in (lambda: files.read("stop"), lambda: files.read_bytes("stop", 0), files.listing):
        with pytest.raises(StorageError, match=r"no answer from Object Storage to (get_object|list_objects)"):
            ask()
    assert files.unusable == {}


def test_a_bucket_that_cannot_be_seen_is_no_missing_file(storage: Storage) -> None:
    """And is not asked for again: it takes a person."""
    for ask in (
        lambda files: files.read("stop"),
        lambda files: files.is_there("stop"),
        lambda files: files.listing(),
        lambda files: files.remove("stop"),
        lambda files: files.remove_all(),
    ):
        files = ClusterDir("oci://missing@stand-in/work", LAUNCH, KEY, patience_s=60)
        with pytest.raises(StorageError, match=r"HTTP 404 BucketNotFound.*make the bucket \(oci os bucket create\)"):
            ask(files)
    assert storage.pauses == []


def test_who_is_not_known_is_refused(storage: Storage) -> None:
    """At once, and told from an outage."""
    files = storage.open(patience_s=60)
    storage.user.service.control({"expire_tokens": "api-key"})
    with pytest.raises(NotPermittedError, match="HTTP 401 NotAuthenticated"):
        files.read("stop")
    assert storage.pauses == []


# --- What is large -------------------------------------------------------------------------------------------


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have an upload go in parts soon."""
    monkeypatch.setattr(oci, "_PART_BYTES", 1 << 16)


@pytest.mark.parametrize("kind", ["429", "503", "drop-before", "drop-after"])
def test_a_large_file_comes_to_its_end_on_a_busy_service(
    storage: Storage, tmp_path: Path, parts: None, kind: str
) -> None:
    """A part is what is sent again, not the file: of 40 parts each fails once in three times."""
    source, body = tmp_path / "model", os.urandom(40 << 16)
    source.write_bytes(body)
    storage.faults({"operation": "*", "kind": kind, "probability": 0.3, "seed": 7})
    asked = storage.asked(lambda: storage.open(patience_s=60).upload(source, "outputs/MAIN/model"))
    storage.faults()
    assert storage.open().sizes("outputs/MAIN") == {"model": len(body)}
    assert storage.user.service.object(f"work/{storage.url.rpartition('/')[2]}/outputs/MAIN/model") == body
    assert len(asked) < 40 * 3


def test_an_upload_whose_end_is_not_answered_is_done_again(storage: Storage, tmp_path: Path, parts: None) -> None:
    """Its first try was done; the second finds no such upload: nobody knows, so all is sent once more."""
    source, body = tmp_path / "model", os.urandom(3 << 16)
    source.write_bytes(body)
    storage.faults({"operation": "commit_multipart_upload", "kind": "drop-after", "nth": 1})
    storage.open(patience_s=60).upload(source, "model")
    assert storage.open().read_bytes("model", 0) == body


def test_an_upload_that_fails_leaves_nothing(storage: Storage, tmp_path: Path, parts: None) -> None:
    """Neither half of a file, nor parts that are paid for."""
    source = tmp_path / "model"
    source.write_bytes(os.urandom(5 << 16))
    storage.faults({"operation": "upload_part", "kind": "503", "nth": 3})
    with pytest.raises(StorageError, match="Object Storage answered upload_part with HTTP 503"):
        storage.open().upload(source, "model")
    assert storage.names() == []
    assert storage.user.service.calls()[-1]["operation"] == "object_storage.abort_multipart_upload"


# --- A node's code -------------------------------------------------------------------------------------------


def test_code_is_fetched_whole_or_not_at_all(storage: Storage, tmp_path: Path) -> None:
    """What does not answer, or stops in its middle, is no answer; what is not there, is not there."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        entry = tarfile.TarInfo("train.py")
        entry.size = 1 << 20
        tar.addfile(entry, io.BytesIO(os.urandom(1 << 20)))
    body = made.getvalue()
    digest = hashlib.sha256(body).hexdigest()
    storage.open().write_bytes("code.tar", body)
    uri = f"{storage.url}/code.tar#sha256={digest}"
    for kind in ("429", "503", "drop-before", "drop-after", "torn"):
        storage.faults({"operation": "*", "kind": kind})
        with pytest.raises(StorageError, match="Object Storage"):
            fetch_code(uri, tmp_path / kind, environ={})
        storage.faults()
        assert storage.asked(lambda kind=kind: fetch_code(uri, tmp_path / kind, environ={})) == ["get_object 200"]
        assert (tmp_path / kind / "train.py").stat().st_size == 1 << 20
    with pytest.raises(NoCodeError, match="FileNotFoundError"):
        fetch_code(uri.replace("code.tar", "none.tar"), tmp_path / "none", environ={})
