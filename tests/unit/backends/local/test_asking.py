"""What the local backend asks of a cluster's runner, and what it makes of its answers."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from unit.backends.local.fake_runner import RUNNER_PID, FakeRunner
from unit.fake_local import Running, make_plan

from oci_cluster.backends.local import backend as local
from oci_cluster.backends.local.backend import LocalBackend
from oci_cluster.contract.cluster import Cluster, Node
from oci_cluster.errors import BackendError


def join(backend: LocalBackend, *ranks: int) -> None:
    """Have workers join the cluster that is kept."""
    backend.start(make_plan(), [Node("WORKER", rank) for rank in ranks], lambda _: None)


def test_a_runner_is_woken_and_does_what_it_is_asked(
    kept: Cluster, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is whole before the signal comes; nothing of it is left but the request itself."""
    runner = FakeRunner(kept, monkeypatch)
    with Running(kept):
        join(backend, 2, 3)
    assert (runner.signals, runner.requests) == ([(RUNNER_PID, signal.SIGUSR1)], [{"start": [2, 3], "end": []}])
    assert [path.name for path in kept.directory.glob("*scale*")] == ["scale.json"]


def test_a_runner_that_has_just_ended_is_not_started_anew(
    kept: Cluster, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would run all nodes once more, main too. It is asked, and does not answer."""
    monkeypatch.setattr(LocalBackend, "_start_runner", None)
    runner = FakeRunner(kept, monkeypatch)
    join(backend, 2)
    assert runner.requests == [{"start": [2], "end": []}]


def test_what_the_runner_could_not_do_is_told(
    kept: Cluster, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """69, in its own words."""
    FakeRunner(kept, monkeypatch).error = "2 nodes do not fit"
    with Running(kept), pytest.raises(BackendError, match=r"^2 nodes do not fit$"):
        join(backend, 2, 3)


def test_another_programs_process_is_not_woken(
    kept: Cluster, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pid may be another program's by now: USR1 would end it. A runner that is gone does not answer."""
    runner = FakeRunner(kept, monkeypatch, "another launch")
    with Running(kept), pytest.raises(BackendError, match=r"^the runner of mine does not answer; see .*runner\.log$"):
        join(backend, 2)
    assert runner.signals == []


def test_a_runner_that_is_gone_is_named(kept: Cluster, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such process: its silence says it."""

    def gone(pid: int) -> None:
        raise psutil.NoSuchProcess(pid)

    FakeRunner(kept, monkeypatch)
    monkeypatch.setattr("psutil.Process", gone)
    with Running(kept), pytest.raises(BackendError, match="does not answer"):
        join(backend, 2)


def test_an_older_answer_is_not_taken_for_this_one(
    kept: Cluster, backend: LocalBackend, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner that is stuck is given up after a minute, whatever it answered before."""
    runner = FakeRunner(kept, monkeypatch)
    monkeypatch.setattr(runner, "send_signal", lambda _: runner.answer(id="r0", error=""))
    began = clock()
    with Running(kept), pytest.raises(BackendError, match="does not answer"):
        join(backend, 2)
    assert 60 < clock() - began < 60.1


def test_a_request_that_cannot_be_left_is_named(
    kept: Cluster, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or one that refuses."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local, "write_whole", full)
    with (
        Running(kept),
        pytest.raises(BackendError, match=r"scale\.json cannot be written: No space left on device; make room there"),
    ):
        join(backend, 2)


@pytest.mark.parametrize("after", ["is_running", "read_records"])
@pytest.mark.parametrize("remade", ["not made anew", "made anew by a node for its outputs"])
def test_a_directory_that_goes_away_while_it_is_read_says_nothing_of_the_nodes(
    kept: Cluster, backend: LocalBackend, monkeypatch: pytest.MonkeyPatch, after: str, remade: str
) -> None:
    """It was there a moment ago: what is found then looks like a cluster that was killed."""
    real = getattr(local.records, after)

    def goes_away(directory: Path) -> object:
        if (away := directory.with_name("away")).exists():
            return real(directory)
        directory.rename(away)
        if remade != "not made anew":
            (directory / "outputs").mkdir(parents=True)
        return real(directory)

    monkeypatch.setattr(local.records, after, goes_away)
    with pytest.raises(BackendError, match="is not there; bring it back"):
        backend.states([kept])


def test_a_directory_that_is_away_says_nothing_of_the_nodes(kept: Cluster, backend: LocalBackend, clock: Any) -> None:
    """How they ended stands in it: it is waited for; then, and not before, the nodes count as lost."""
    away = kept.directory.with_name("away")
    for _ in range(2):
        kept.directory.rename(away)
        for _ in range(3):
            with pytest.raises(BackendError, match=f"^{kept.directory} is not there; bring it back$"):
                backend.states([kept])
            clock.sleep(9.9)
        away.rename(kept.directory)
        backend.states([kept])
    kept.directory.rename(away)
    with pytest.raises(BackendError):
        backend.states([kept])
    clock.sleep(30)
    assert backend.states([kept]) == {kept.launch_id: []}
