"""A cluster that is stopped while it is followed: Ctrl-C, and the request that stop.sh makes too."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from unit.fake_backend import KEY, LAUNCH
from unit.launcher.following import Run, nothing
from unit.signed_files import signed

from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.errors import BackendError, NotPermittedError
from oci_cluster.launcher import lifecycle
from oci_cluster.launcher.follow import follower
from oci_cluster.launcher.lifecycle import request_stop


def test_ctrl_c_asks_the_nodes_to_stop(run: Run) -> None:
    """The first signal writes the stop file, and the cluster is followed to its end."""
    code = run.follow(run.signals.send, lambda: run.end(143, 143, 143))
    stop = run.cluster_dir.read("stop") or {}
    assert (code, run.calls, stop["reason"], stop["exit_code"]) == (
        143,
        [],
        "stopped by the launcher (Ctrl-C or a signal)",
        143,
    )
    assert run.said == [
        "stopping cluster mine; Ctrl-C again ends it at once",
        "cluster mine ended with 143 (stopped by the launcher (Ctrl-C or a signal)) after 0.2 s",
    ]


def test_one_ctrl_c_that_arrives_twice_is_one(run: Run) -> None:
    """Terminal and launch.sh both pass a Ctrl-C on: within a second it is the same one."""
    run.follow(run.signals.send, run.signals.send, lambda: run.end(143, 143, 143))
    assert (run.calls, run.said.count("ending the cluster at once")) == ([], 0)


def test_one_ctrl_c_stays_one(run: Run) -> None:
    """A cluster that takes its time to stop is not killed for it: only another signal does that."""
    run.follow(run.signals.send, run.pause, run.pause, lambda: run.end(143, 143, 143))
    assert run.calls == []


def test_a_second_ctrl_c_ends_the_cluster_at_once(run: Run) -> None:
    """Who presses Ctrl-C again later does not want to wait. Its nodes were killed, and it was stopped all the same."""
    code = run.follow(run.signals.send, run.pause, run.signals.send, lambda: run.end(137, 137, 137))
    assert code == 143
    assert run.said[-1].startswith("cluster mine ended with 143 (ended at once by the launcher (Ctrl-C twice)) after ")
    assert (run.calls, run.said[1]) == ([("kill", "MAIN", "WORKER_1", "WORKER_2")], "ending the cluster at once")


def test_a_second_ctrl_c_that_the_backend_does_not_take_is_told(run: Run) -> None:
    """The next one tries again: nothing here gives up."""
    attempts: list[int] = []

    def fail_once() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            msg = "no answer"
            raise BackendError(msg)

    def again() -> None:
        run.pause()
        run.signals.send()

    run.backend.on["kill"] = fail_once
    run.follow(run.signals.send, again, again, lambda: run.end(137, 137, 137))
    assert run.said[1:4] == [
        "ending the cluster at once",
        "the cluster could not be ended: no answer; press Ctrl-C to try again",
        "ending the cluster at once",
    ]
    assert len(attempts) == 2


def test_a_ctrl_c_that_could_not_be_passed_on_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither work dir nor backend answers: it is passed on when one does, and nobody has to press it again."""

    def fail(*_: object, **__: object) -> None:
        raise BackendError("no answer")

    monkeypatch.setattr(follower, "request_stop", fail)

    asked: list[object] = []

    def fix() -> None:
        monkeypatch.undo()
        run.pause()

    def end() -> None:
        asked.append((run.cluster_dir.read("stop") or {}).get("exit_code"))
        run.end(143, 143, 143)

    run.follow(run.signals.send, nothing, fix, end)
    assert run.said[:-1] == [
        "stopping cluster mine; Ctrl-C again ends it at once",
        "the cluster could not be asked to stop: no answer; trying again",
    ]
    assert asked == [143]
    assert run.calls == []


def test_a_signal_that_came_before_the_first_look_counts(run: Run) -> None:
    """A Ctrl-C while the cluster was being started stops it."""
    run.signals.received = 15
    run.follow(lambda: run.end(143, 143, 143))
    assert (run.cluster_dir.read("stop") or {})["exit_code"] == 143


def test_arrivals_are_not_told_while_the_cluster_stops(run: Run) -> None:
    """After the stop file nobody needs to know who arrives."""
    run.cluster_dir.publish("stop", exit_code=143, reason="r")
    run.follow(lambda: run.cluster_dir.publish("WORKER_1_config.json"), nothing, lambda: run.end(143, 143, 143))
    assert run.said == ["cluster mine ended with 143 (r) after 0.3 s"]


ASKED = [("end", "MAIN", "WORKER_1", "WORKER_2")]


def ask_to_stop(run: Run) -> list[Any]:
    request_stop(run.backend, run.cluster, run.plan, "stopped by stop.sh")
    return run.backend.asked("end", "kill")


def test_a_cluster_is_asked_to_stop_by_its_stop_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop file has reason, code and time; the backend is left alone."""
    monkeypatch.setattr(lifecycle, "now", lambda: "2026-01-02T03:04:05Z")
    assert ask_to_stop(run) == []
    stop = run.cluster_dir.read("stop") or {}
    told = {"reason": "stopped by stop.sh", "exit_code": 143, "time": "2026-01-02T03:04:05Z"}
    assert {name: stop[name] for name in told} == told


def test_the_first_word_stands(run: Run) -> None:
    """A cluster that is ending already keeps its own reason and code."""
    run.cluster_dir.publish("stop", reason="the entry point ended", exit_code=0)
    ask_to_stop(run)
    assert (run.cluster_dir.read("stop") or {})["exit_code"] == 0


STRANGE = [
    *(b"", b"{", json.dumps({"schema": 1, "launch_id": "older"}).encode()),
    json.dumps({"schema": 1, "launch_id": LAUNCH, "exit_code": 0}).encode(),
]


@pytest.mark.parametrize("body", STRANGE, ids=["empty", "half", "older launch", "unsigned"])
def test_a_stop_file_that_says_nothing_is_replaced(run: Run, body: bytes) -> None:
    """A half-written stop file, an older launch's or a stranger's does not keep a cluster from being stopped."""
    (run.directory / "stop").write_bytes(body)
    ask_to_stop(run)
    assert (run.cluster_dir.read("stop") or {})["exit_code"] == 143


def test_a_cluster_of_an_older_version_is_asked_to_stop(run: Run) -> None:
    """Its nodes check no signature: they read launch id, reason and code where they have always stood."""
    plan = replace(run.plan, environment={})
    request_stop(run.backend, run.cluster, plan, "stopped by stop.sh")
    stop = json.loads((run.directory / "stop").read_bytes())
    assert {name: stop[name] for name in ("schema", "launch_id", "reason", "exit_code")} == {
        "schema": 1,
        "launch_id": LAUNCH,
        "reason": "stopped by stop.sh",
        "exit_code": 143,
    }
    assert run.backend.asked("end", "kill") == []


def test_a_stranger_makes_no_cluster_ready_or_ended(run: Run) -> None:
    """What is followed is told once what somebody else writes, and nothing of what is in it."""
    stranger = ClusterDir(run.cluster_dir.url, LAUNCH, "")

    def write() -> None:
        stranger.publish("MAIN_ready.json", facts={"dashboard": "http://evil"})
        stranger.publish("stop", reason="evil", exit_code=9)

    run.follow(write, nothing, nothing, lambda: run.end(1, 1, 1))
    told = [text for text in run.said if "ignored" in text]
    why = "not signed by this launch: somebody else wrote it, or a node of another version"
    assert told == [f"MAIN_ready.json ignored: {why}", f"stop ignored: {why}"]
    assert not [text for text in run.said if "evil" in text or text.startswith("ready")]


def test_the_backend_stops_what_the_work_dir_cannot(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the stop file cannot be written, the backend is asked."""

    def publish(*_: object, **__: object) -> None:
        raise NotPermittedError("read-only")

    monkeypatch.setattr(ClusterDir, "publish", publish)
    assert ask_to_stop(run) == ASKED


def test_the_backend_stops_a_cluster_of_another_version(run: Run) -> None:
    """A stop file of another schema is understood by nobody here: the backend is asked."""
    (run.directory / "stop").write_bytes(signed("stop", LAUNCH, KEY, schema=9))
    assert ask_to_stop(run) == ASKED
