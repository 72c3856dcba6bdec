"""Work dirs that never answer: what the verbs do then."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from unit.fake_backend import FakeSignals, plan_of
from unit.launcher.door import Door
from unit.launcher.following import Run, nothing

import oci_cluster
from oci_cluster.backends.base import DirectConnection
from oci_cluster.contract.cluster import clusters_dir
from oci_cluster.contract.storage import hanging_disk
from oci_cluster.contract.storage.hanging_disk import Asked, AskedFiles
from oci_cluster.errors import StorageError, UsageError
from oci_cluster.launcher import verbs
from oci_cluster.launcher.connect.client_files import Gate, write_client_files
from oci_cluster.launcher.connect.connect import Connected, Port
from oci_cluster.launcher.session import session
from oci_cluster.system import files as local_files

pytestmark = pytest.mark.slow  # a disk is given up after seconds

# Where several that do not answer were asked in turns, or one twice for each of its files, it would take longer. Four
# times what is promised: a busy machine needs seconds to start what asks.
SOON_S = 4 * hanging_disk.LIMIT_S


@pytest.fixture
def silence() -> Iterator[threading.Event]:
    """Yield what storage waits for; it comes when the test is over."""
    silence = threading.Event()
    yield silence
    silence.set()


@pytest.fixture(autouse=True)
def stuck(silence: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the files of this machine below a folder ``stuck`` never answer."""

    usual = local_files.read_regular

    def read(path: str, start: int = 0, end: int | None = None) -> bytes:
        if "/stuck/" in path:
            silence.wait(240)
        return usual(path, start, end)

    monkeypatch.setattr(local_files, "read_regular", read)


def stuck_cluster(door: Door, name: str = "stuck", launch_id: str = "aa" * 4) -> None:
    door.backend.run(plan_of(clusters_dir(door.root), name, launch_id, work_dir="file:///stuck"))


def test_a_list_shows_all_others_within_five_seconds(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """However many do not answer; of these, too, it shows what the backend says."""
    for number in range(5):
        stuck_cluster(door, f"stuck-{number}", f"{number:08d}")
    door.run("mine")
    began = time.monotonic()
    assert verbs.run("list", ["--json"]) == 0
    assert time.monotonic() - began < 5
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found] == [*(f"stuck-{number}" for number in range(5)), "mine"]
    assert {(one["state"], one["nodes"][0]["state"]) for one in found} == {("IN_PROGRESS", "IN_PROGRESS")}


def test_status_shows_what_the_backend_says(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """And why there is no more."""
    stuck_cluster(door)
    began = time.monotonic()
    assert verbs.run("status", ["stuck"]) == 0
    assert time.monotonic() - began < SOON_S
    shown = capsys.readouterr().out
    assert "unreadable: its work dir file:///stuck/" in shown
    assert "does not answer: look at the disk" in shown


def test_stop_has_the_backend_end_its_nodes(door: Door) -> None:
    """As where the file that asks them cannot be written."""
    stuck_cluster(door)
    (cluster,) = door.backend.clusters
    door.backend.on["end"] = lambda: door.backend.end_nodes(cluster)
    assert verbs.run("stop", ["stuck"]) == 0
    assert door.backend.asked("end") == [("end", "MAIN", "WORKER_1", "WORKER_2")]


def test_logs_are_shown_without_the_work_dir(door: Door) -> None:
    """They are here, or with the engine."""
    stuck_cluster(door)
    began = time.monotonic()
    assert verbs.run("logs", ["stuck"]) == 0
    assert time.monotonic() - began < SOON_S


@pytest.fixture
def reached(door: Door, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connected]:
    """Yield the way to a cluster whose work dir never answers, and whose main listens."""
    stuck_cluster(door)
    (cluster,) = door.backend.clusters
    plan = door.backend.plans[cluster.launch_id]
    plan = replace(plan, environment={**plan.environment, "CLUSTER_TLS": "1"})
    monkeypatch.setattr(hanging_disk, "LIMIT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        way = DirectConnection("127.0.0.1", server.getsockname()[1])
        monkeypatch.setattr(door.backend, "port_forward", lambda *_: way, raising=False)
        connected = Connected(door.backend, cluster, plan, lambda _: None, door.root)
        yield connected
        connected.close()


def test_a_way_to_a_port_needs_no_work_dir(reached: Connected) -> None:
    """Only the path of its URL, which main tells there, is missing."""
    began = time.monotonic()
    urls = [reached.url("MAIN", Port(8787)) for _ in range(3)]
    assert time.monotonic() - began < SOON_S
    assert urls == [urls[0]] * 3
    assert urls[0].startswith("http://127.0.0.1:")


def test_a_program_outside_is_told_that_the_certificate_is_on_a_disk_that_hangs(reached: Connected) -> None:
    began = time.monotonic()
    place = Gate("127.0.0.1", 1, "tls://127.0.0.1:1", reached.connections.reach)
    with pytest.raises(StorageError, match=r"file:///stuck/.*does not answer: look at the disk"):
        write_client_files(reached.cluster, reached.plan, reached.root / "dask", reached.root, place)
    assert time.monotonic() - began < SOON_S


def test_ssh_is_told_that_its_host_key_is_on_a_disk_that_hangs(reached: Connected) -> None:
    """And not to wait until the session is ready."""
    folder = reached.root / "scripts" / "sessions" / "shell"
    folder.mkdir(parents=True)
    (folder / "session.env").write_text("SESSION_PORT=22\nSESSION_COMMAND='ssh -F {ssh_config} {name}'\n")
    reached.plan = replace(reached.plan, environment={**reached.plan.environment, "SESSION": "shell"})
    with pytest.raises(StorageError, match=r"file:///stuck/.*does not answer: look at the disk"):
        reached.url("MAIN", Port(22))


def test_a_session_beside_a_cluster_waits_for_no_disk(
    reached: Connected, silence: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether there are outputs is asked of it, too."""
    usual = Path.is_dir
    monkeypatch.setattr(Path, "is_dir", lambda path, **_: silence.wait(240) if "stuck" in path.parts else usual(path))
    began = time.monotonic()
    with pytest.raises(UsageError, match="there are no outputs to show"):
        session._outputs(reached.cluster, reached.plan, is_running=True)
    assert time.monotonic() - began < SOON_S


def test_a_followed_launch_ends_although_its_disk_hangs(
    tmp_path: Path, clock: Any, silence: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which disk that is has been said, once; Ctrl-C has the backend end the nodes, and nothing waits for ever."""
    usual = local_files.LocalFiles.ls

    def ls(files: local_files.LocalFiles, path: str, *, detail: bool) -> list[dict[str, Any]]:
        if path.startswith("/stuck"):
            silence.wait(240)
        return usual(files, path, detail=detail)

    monkeypatch.setattr(local_files.LocalFiles, "ls", ls)
    monkeypatch.setattr(hanging_disk, "LIMIT_S", 0.5)
    signals = FakeSignals(clock)
    run = Run(tmp_path, clock, signals)
    run.plan = replace(run.plan, work_dir="file:///stuck")
    run.backend.on["end"] = lambda: run.backend.end_nodes(run.cluster)
    began = time.monotonic()
    assert run.follow(nothing, nothing, signals.send, run.pause) == 143
    assert time.monotonic() - began < SOON_S
    told = [line for line in run.said if "cannot see" in line]
    assert len(told) == 1
    assert told[0].startswith("cannot see how far mine is: file:///stuck/")
    assert run.backend.asked("end")
    assert any(line.startswith("its work dir file:///stuck/") and "are ended without it" in line for line in run.said)


def test_a_disk_that_answers_again_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer that nobody waits for any more is no answer to the next question."""
    (tmp_path / "slow").write_text("slow")
    (tmp_path / "fast").write_text("fast")
    usual = local_files.read_regular

    def read(path: str, start: int = 0, end: int | None = None) -> bytes:
        while (tmp_path / "gate").exists() and path.endswith("slow"):
            time.sleep(0.01)
        return usual(path, start, end)

    monkeypatch.setattr(local_files, "read_regular", read)
    monkeypatch.setattr(hanging_disk, "LIMIT_S", 0.3)
    (tmp_path / "gate").touch()
    files = AskedFiles()
    for _ in range(2):
        with pytest.raises(TimeoutError, match="does not answer"):
            files.cat_file(str(tmp_path / "slow"))
    (tmp_path / "gate").unlink()
    monkeypatch.setattr(hanging_disk, "LIMIT_S", 30)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(TimeoutError):
            assert files.cat_file(str(tmp_path / "fast")) == b"fast"
            break
    else:
        pytest.fail("the disk answers again, and is not asked again")
    with pytest.raises(FileNotFoundError):
        files.cat_file(str(tmp_path / "none"))


def test_ctrl_c_is_for_who_has_asked(tmp_path: Path) -> None:
    """A terminal sends it to both. A question that ended with it would be a bug of ours."""

    def question() -> int:
        (tmp_path / "begun").touch()
        while not (tmp_path / "gate").exists():
            time.sleep(0.01)
        return 7

    ask = Asked(question, "x")
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(ask._child, number)
    (tmp_path / "gate").touch()
    assert ask.answer(deadline) == 7


def test_a_question_that_fails_says_why() -> None:
    """What storage says is told apart from a bug of ours."""

    def fail(error: Exception) -> None:
        raise error

    with pytest.raises(StorageError, match=r"^no answer$"):
        Asked(lambda: fail(StorageError("no answer")), "x").answer(time.monotonic() + 60)
    gone = OSError(107, "Transport endpoint is not connected")  # a disk whose program has ended
    with pytest.raises(StorageError, match=r"Transport endpoint is not connected$"):
        Asked(lambda: fail(gone), "x").answer(time.monotonic() + 60)
    with pytest.raises(RuntimeError, match="KeyError"):
        Asked(lambda: fail(KeyError("x")), "x").answer(time.monotonic() + 60)


def test_what_still_waits_holds_no_file_of_the_launchers(silence: threading.Event) -> None:
    """Neither its terminal nor a lock: who reads what a script prints would wait for its end."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    ask = Asked(lambda: silence.wait(240), "x")
    ask.wait(0.5)
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
    with pytest.raises(StorageError):
        ask.answer(time.monotonic())


HANGS = """
import sys, time
sys.path.insert(0, sys.argv[1])
from oci_cluster.contract.storage.hanging_disk import Asked
ask = Asked(lambda: time.sleep(240), "x")
print(ask._child, flush=True)
ask.wait(240)
"""


@pytest.mark.parametrize("told", [b"", pickle.dumps((True, "a" * 100))[:50]], ids=["nothing", "half"])
def test_a_question_whose_process_was_killed_has_no_answer(told: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever moment: by who makes room in memory."""

    def tell(_question: Any, writer: int) -> None:
        os.write(writer, told)
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(hanging_disk, "_tell", tell)
    with pytest.raises(StorageError, match="the process that asked the work dir was killed"):
        Asked(nothing, "file:///x").answer(time.monotonic() + 60)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_of_a_launcher_that_is_killed_no_question_is_left() -> None:
    """Whoever runs list.sh again and again would fill the machine with what waits for a disk."""
    common = str(Path(oci_cluster.__file__).parents[1])
    with subprocess.Popen([sys.executable, "-I", "-c", HANGS, common], stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        child = psutil.Process(int(launcher.stdout.readline()))
        launcher.send_signal(signal.SIGKILL)
    child.wait(30)  # raises TimeoutExpired
