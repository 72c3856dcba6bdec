"""What one node writes, another reads, on each kind of storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from unit.contract.fake_storage import KEY, LAUNCH, FailingFileSystem, leave

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import SettingsError, StorageError

# --- What one node writes, another reads ----------------------------------------------------------------------------


def test_what_is_published_is_read(cluster_dir: ClusterDir) -> None:
    """Fields come back as they were given, with schema and launch id."""
    fields: dict[str, Any] = {"address": "127.0.0.1", "worker_addresses": ("a", "b"), "tls": True}
    counter = cluster_dir.publish("MAIN_config.json", **fields)
    assert cluster_dir.read("MAIN_config.json") == {
        "schema": 1,
        "launch_id": LAUNCH,
        "counter": counter,
        "address": "127.0.0.1",
        "worker_addresses": ["a", "b"],
        "tls": True,
    }


def test_fields_are_signed_as_a_reader_sees_them(cluster_dir: ClusterDir) -> None:
    """JSON has no numbers as names, and no tuples."""
    cluster_dir.publish("MAIN_config.json", ranks={10: "a", 9: ("b", None)}, share=0.1)
    found = cluster_dir.read("MAIN_config.json") or {}
    assert (found["ranks"], found["share"]) == ({"10": "a", "9": ["b", None]}, 0.1)


def test_a_file_is_replaced_whole(cluster_dir: ClusterDir) -> None:
    """Nothing of a longer, older content is left after a shorter one was published."""
    cluster_dir.publish("stop", reason="r" * 1000)
    cluster_dir.publish("stop", reason="short")
    assert (cluster_dir.read("stop") or {})["reason"] == "short"


def test_an_absent_file_reads_as_none(cluster_dir: ClusterDir) -> None:
    """Absent is an answer, and leaves no complaint."""
    assert (cluster_dir.read("stop"), cluster_dir.is_there("stop"), cluster_dir.unusable) == (None, False, {})


def test_a_file_is_there_whatever_is_in_it(cluster_dir: ClusterDir) -> None:
    """The look for a file is one small request that does not read it."""
    leave(cluster_dir, "stop", b"{")
    assert cluster_dir.is_there("stop")


def test_an_existing_cluster_dir_is_left_as_it_is(cluster_dir: ClusterDir) -> None:
    """Creating what is there, as every node but the first does, changes nothing."""
    cluster_dir.publish("stop", reason="kept")
    cluster_dir.create()
    assert (cluster_dir.read("stop") or {})["reason"] == "kept"


def test_a_removed_file_is_gone(cluster_dir: ClusterDir) -> None:
    """The certificate can be taken away at the end."""
    cluster_dir.publish("MAIN_certificate.json", key="k")
    cluster_dir.remove("MAIN_certificate.json")
    assert not cluster_dir.is_there("MAIN_certificate.json")


def test_removing_what_is_not_there_is_no_failure(cluster_dir: ClusterDir) -> None:
    """A file that is not there is as good as removed."""
    cluster_dir.remove("MAIN_certificate.json")
    assert not cluster_dir.is_there("MAIN_certificate.json")


def test_a_refusal_to_remove_what_is_not_there_is_no_failure(
    failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems (ftp) have an error of their own for it: the file is looked for, and not there."""

    def not_there(self: FailingFileSystem, path: str, **_: Any) -> None:
        raise FileNotFoundError(path)

    failing.error = OSError("550 no such file")
    monkeypatch.setattr(failing, "info", not_there)
    ClusterDir("failing://c", LAUNCH, KEY).remove("stop")


def test_a_file_that_is_still_there_has_not_been_removed(
    failing: type[FailingFileSystem], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is found after the refusal, storage has not done what it was asked for."""
    failing.error = OSError("550 in use")
    monkeypatch.setattr(failing, "info", lambda self, path, **_: {"name": path})
    with pytest.raises(StorageError, match="550 in use"):
        ClusterDir("failing://c", LAUNCH, KEY).remove("stop")


def test_outputs_are_copied_byte_for_byte(cluster_dir: ClusterDir, tmp_path: Path) -> None:
    """An upload makes the folders that it needs, and changes no byte; names may have slashes and blanks."""
    source = tmp_path / "model.bin"
    source.write_bytes(bytes(range(256)))
    cluster_dir.upload(source, "outputs/WORKER_1/sub dir/model.bin")
    found = cluster_dir._fs.cat_file(f"{cluster_dir._path}/outputs/WORKER_1/sub dir/model.bin")
    assert found == bytes(range(256))


@pytest.mark.parametrize("is_own_log", [True, False])
def test_a_disk_that_has_gone_away_is_not_made_anew(tmp_path: Path, *, is_own_log: bool) -> None:
    """Its mount point would hold what it is to hold, and could not be mounted again: a cluster dir is created once."""
    work, away = tmp_path / "work", tmp_path / "away"
    cluster_dir = ClusterDir(f"file://{work}/c", LAUNCH, KEY)
    cluster_dir.create()
    work.rename(away)
    (tmp_path / "log").write_text("x")
    write = cluster_dir.write_bytes if is_own_log else cluster_dir.upload
    with pytest.raises(StorageError, match="No such file"):
        write(*(("logs/MAIN.log", b"x") if is_own_log else (tmp_path / "log", "logs/MAIN.log")))
    assert not work.exists()
    away.rename(work)
    cluster_dir.write_bytes("logs/MAIN.log", b"y")
    assert cluster_dir.read_bytes("logs/MAIN.log", 0) == b"y"


def test_listing_names_files_and_folders(cluster_dir: ClusterDir, tmp_path: Path) -> None:
    """A listing has every entry by its last name, folders without their slash."""
    cluster_dir.publish("stop")
    cluster_dir.publish("MAIN_config.json")
    (tmp_path / "log").write_text("x")
    cluster_dir.upload(tmp_path / "log", "logs/MAIN.log")
    assert sorted(cluster_dir.listing()) == ["MAIN_config.json", "logs", "stop"]


def test_listing_of_an_absent_cluster_dir_is_empty(tmp_path: Path) -> None:
    """Before anything was created there is nothing, which is no error."""
    assert ClusterDir(f"file://{tmp_path}/none", LAUNCH, KEY).listing() == {}


def test_a_listing_changes_with_a_heartbeat(cluster_dir: ClusterDir) -> None:
    """Whoever lists sees that a node is alive by the change of its heartbeat's entry, and of no other."""
    cluster_dir.publish("WORKER_1_heartbeat.json", beat=9)
    cluster_dir.publish("WORKER_2_heartbeat.json", beat=9)
    before = cluster_dir.listing()
    cluster_dir.publish("WORKER_1_heartbeat.json", beat=10)
    after = cluster_dir.listing()
    assert {name for name in after if after[name] != before[name]} == {"WORKER_1_heartbeat.json"}


def test_the_local_path_is_known_where_there_is_one(tmp_path: Path) -> None:
    """On file:// the cluster dir is a directory of this machine, elsewhere it is none."""
    paths = [ClusterDir(url, LAUNCH, KEY).local_path for url in (f"file://{tmp_path}/c", "memory://work/c")]
    assert paths == [tmp_path / "c", None]


# --- Bytes ----------------------------------------------------------------------------------------------------------


def test_bytes_are_written_whole_and_read_from_anywhere(cluster_dir: ClusterDir) -> None:
    """In a folder that is made for them; what is written again is replaced."""
    cluster_dir.write_bytes("logs/a", b"a long content")
    cluster_dir.write_bytes("logs/a", b"0123\xff")
    assert [cluster_dir.read_bytes("logs/a", start) for start in (0, 3)] == [b"0123\xff", b"3\xff"]


def test_bytes_of_a_file_that_is_not_there_are_none(cluster_dir: ClusterDir) -> None:
    """It has gone meanwhile: no failure."""
    assert cluster_dir.read_bytes("logs/a", 0) == b""


def test_a_folders_files_have_sizes(cluster_dir: ClusterDir) -> None:
    """Of files alone, and as they are now."""
    assert cluster_dir.sizes("logs") == {}
    cluster_dir.write_bytes("logs/a b", b"123")
    cluster_dir.write_bytes("logs/c/d", b"12345")
    first = cluster_dir.sizes("logs")
    cluster_dir.write_bytes("logs/a b", b"1234")
    assert (first, cluster_dir.sizes("logs")) == ({"a b": 3}, {"a b": 4})


def test_a_cluster_dir_is_removed_with_all_that_is_in_it(cluster_dir: ClusterDir) -> None:
    """And nothing beside it; one that is not there is as good as removed."""
    beside = ClusterDir(f"{cluster_dir.url}-2", LAUNCH, KEY)
    beside.create()
    beside.write_bytes("stop", b"1")
    cluster_dir.publish("stop")
    cluster_dir.write_bytes("outputs/MAIN/deep/a", b"1")
    cluster_dir.remove_all()
    assert (cluster_dir.is_there("outputs/MAIN/deep/a"), cluster_dir.is_there("stop"), cluster_dir.listing()) == (
        False,
        False,
        {},
    )
    assert beside.is_there("stop")
    cluster_dir.remove_all()


def test_a_folder_that_a_store_lists_in_itself_is_not_used(
    cluster_dir: ClusterDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another entry is what counts."""
    entries = [{"name": f"{cluster_dir._path}/outputs/", "type": "directory"}]
    monkeypatch.setattr(cluster_dir._fs, "ls", lambda path, detail: entries, raising=False)
    assert not cluster_dir.is_used("outputs")
    entries.append({"name": f"{cluster_dir._path}/outputs/MAIN", "type": "directory"})
    assert cluster_dir.is_used("outputs")


@pytest.mark.parametrize("url", ["main://", "main://evil", "main://evil:0/x"])
def test_a_place_of_main_that_is_none_is_told(url: str) -> None:
    """Anybody's Job may name it, and a list has others to show."""
    with pytest.raises(SettingsError, match=r"WORK_DIR 'main://.*is not main://HOST:PORT"):
        ClusterDir(url, LAUNCH, KEY)
