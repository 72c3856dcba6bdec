"""Files that nodes tell by last words and lines of a log, and what of that is believed."""

from __future__ import annotations

import threading

import pytest
from unit.backends.kubernetes.pods_of import RUNNING, ended, job, pod

from oci_cluster.backends.kubernetes.cluster import cache
from oci_cluster.backends.kubernetes.cluster.cache import PodFiles, files_of, last_words, told_of
from oci_cluster.contract.files.cluster_dir import OPENERS, SmallFiles


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'told MAIN_ready.json {"a": 1}\n', ("MAIN_ready.json", b'{"a": 1}')),
        (b'2026-01-01T00:00:00.5Z told stop {"a": 1}\n', ("stop", b'{"a": 1}')),
        (b'told WORKER_1_exit.json {"a": 1}', None),
        (b'told ../../etc {"a": 1}', None),
        (b'told MAIN_scale_request.json {"a": 1}', ("MAIN_scale_request.json", b'{"a": 1}')),
        (b"she told me {so}", None),
        (b"told stop nothing", None),
        (b'untold stop {"a": 1}', None),
    ],
)
def test_lines_that_tell_a_file(line: bytes, found: object) -> None:
    """Of a few names; nobody else's line is one."""
    assert told_of(line) == found


def test_last_words_are_a_nodes_own() -> None:
    """A worker tells neither of others nor of the end."""
    words = 'WORKER_1_exit.json {"a": 1}\nstop {"b": 2}\nMAIN_exit.json {"c": 3}\n\x00garbage'
    assert last_words(words, "WORKER_1") == {"WORKER_1_exit.json": b'{"a": 1}'}
    assert set(last_words(words, "MAIN")) == {"stop", "MAIN_exit.json"}


def test_who_runs_has_come_and_what_a_launcher_asks_counts() -> None:
    """More than what main has said."""
    made = job(annotations={"oci-cluster-stop": "mine"})
    pods = [pod(0, ended(7, message="stop main's\nMAIN_exit.json {}")), pod(1, RUNNING)]
    assert files_of(made, pods, {"MAIN_ready.json": b"{}"}) == {
        "MAIN_ready.json": b"{}",
        "MAIN_exit.json": b"{}",
        "WORKER_1_config.json": b"",
        "stop": b"mine",
    }


class Teller:
    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []

    def told(self, job: str) -> dict[str, bytes]:
        return {"stop": b"abc", "WORKER_1_config.json": b""} if job == "mine" else {}

    def ask_to_stop(self, job: str, body: bytes) -> None:
        self.asked.append((job, body))


def test_as_a_file_system() -> None:
    """One file can be written; what only shows that a node has come cannot be read."""
    teller = Teller()
    files = PodFiles(teller.told, teller.ask_to_stop)
    place = "ns/mine/mine-1"
    assert files.cat_file(f"{place}/stop", 0, 2) == b"ab"
    assert [entry["name"].rpartition("/")[2] for entry in files.ls(place, detail=True)] == [
        "stop",
        "WORKER_1_config.json",
    ]
    assert files.info(f"{place}/WORKER_1_config.json")["size"] == 0
    for path in (f"{place}/WORKER_1_config.json", f"{place}/none", "ns/other/x/stop"):
        with pytest.raises(FileNotFoundError):
            files.cat_file(path)
    with pytest.raises(FileNotFoundError):
        files.ls(f"{place}/outputs", detail=True)
    files.pipe_file(f"{place}/stop", b"x")
    assert teller.asked == [("mine", b"x")]
    with pytest.raises(PermissionError):
        files.pipe_file(f"{place}/MAIN_config.json", b"x")


def test_a_file_that_is_too_large_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log may hold anything."""
    monkeypatch.setattr(cache, "MAX_BYTES", 5)
    assert told_of(b'told stop {"a": 1}') is None


def test_each_thread_asks_its_own() -> None:
    """A program may have clusters of two Kubernetes, each followed by a thread."""
    opened: dict[str, SmallFiles] = {}
    both = threading.Barrier(2, timeout=60)

    def follow(name: str) -> None:
        cache.register(lambda job: {name: job.encode()}, lambda _job, _body: None)
        both.wait()
        opened[name] = OPENERS["pods"]()

    threads = [threading.Thread(target=follow, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [list(opened[name].files_of("ns/job/id")) for name in ("first", "second")] == [["first"], ["second"]]
