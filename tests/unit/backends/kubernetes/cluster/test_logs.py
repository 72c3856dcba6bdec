"""The logs of pods as they come to this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.backends.kubernetes_place import KubernetesPlace

from oci_cluster.backends.kubernetes.cluster import logs


@pytest.fixture
def place(tmp_path: Path, clock: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesPlace]:
    """Return a Kubernetes."""
    place = KubernetesPlace(tmp_path, clock, monkeypatch)
    yield place
    place.close()


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("line 8000\n", 40, "... the beginning of this log, 40s, is gone: Kubernetes keeps the last lines, by default"),
        ("line 0\n", 4, ""),
        ("00:00:40 agent: node=MAIN address=10.0.0.1\n", 40, ""),  # the agent began late
    ],
)
def test_what_a_kubelet_has_dropped_of_a_log_is_told_in_its_place(
    place: KubernetesPlace, tmp_path: Path, first: str, second: int, said: str
) -> None:
    """Its last lines are there; nobody knows how many there were, but since when."""
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    container = {"name": "node", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    place.fake.pods()["MAIN"]["status"]["containerStatuses"] = [container]
    place.fake.print("MAIN", first, second)
    place.fake.print("MAIN", "and on\n", second)
    copy = backend.logs(cluster, tmp_path, follow=False)
    copy.fetch()
    copy.close()
    shown = (tmp_path / "MAIN.log").read_text()
    beginning, _, rest = shown.partition(first)
    assert beginning.startswith(said)
    assert bool(beginning) is bool(said)
    assert rest == "and on\n"


def test_a_pod_that_does_not_tell_when_it_began_has_its_log_as_it_is(place: KubernetesPlace, tmp_path: Path) -> None:
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    place.fake.print("MAIN", "line 8000\n", 40)
    place.fake.print("MAIN", "a line that has no end", 41)
    copy = backend.logs(cluster, tmp_path, follow=False)
    copy.fetch()
    copy.close()
    assert (tmp_path / "MAIN.log").read_text() == "line 8000\na line that has no end"


def test_words_of_a_kubelet_are_no_log_and_take_the_place_of_none(place: KubernetesPlace) -> None:
    """A pod's files may be gone before its end was seen: the lines that were followed stay."""
    backend = place.backend
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 1)), place.said.append))
    kept = cluster.directory / "logs" / "MAIN.log"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("entry up\n")
    place.begin()
    place.fake.log_is_gone = True
    place.end("MAIN", 143)
    backend.finish(cluster, place.said.append)
    assert kept.read_text() == "entry up\n"


def test_nothing_is_written_once_a_copy_is_closed(
    place: KubernetesPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is removed next: a log that takes long made a bug of it."""
    backend, asked, go_on = place.backend, threading.Event(), threading.Event()
    cluster = place.lifecycle.launch(backend.prepare(backend.place(place.plan("mine", 0)), place.said.append))
    place.begin()

    def hold(_method: str, path: str, _body: object) -> None:
        if path.endswith("/log"):
            asked.set()
            go_on.wait(60)

    place.fake.before = hold
    before = set(threading.enumerate())
    copy = backend.logs(cluster, tmp_path, follow=False)
    monkeypatch.setattr(logs, "_REST_S", 0.0)
    copy.fetch()
    assert asked.wait(60)
    monkeypatch.setattr(logs, "_CLOSE_S", 60.0)
    threading.Timer(0.2, go_on.set).start()
    copy.close()
    assert not [one for one in set(threading.enumerate()) - before if not isinstance(one, threading.Timer)]
