"""Local clusters whose storage is away, full or read-only."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from harness import SLEEP, UNTIL_GO, Project, wait_until
from hosts import why_no_mount

NEEDS_MOUNT = pytest.mark.skipif(bool(why_no_mount()), reason=why_no_mount() or "runs")


def test_work_dir_that_is_away_for_20_s_costs_nothing(project: Project, tmp_path: Path) -> None:
    """The entry point goes on, the outage is named, and its code comes out."""
    work = tmp_path / "work"
    work.mkdir()
    script = UNTIL_GO + "exit(7)"
    launch = project.launch_plain(2, script, WORK_DIR=f"file://{work}")
    launch.wait_for("entry up")
    launch.wait_for("worker works", "WORKER_1")
    work.rename(tmp_path / "away")
    away_at = time.monotonic()
    threading.Event().wait(20)  # the outage itself
    (tmp_path / "away").rename(work)
    assert time.monotonic() - away_at >= 20
    wait_until(lambda: "storage answers again" in launch.log("MAIN"), "main to see storage again")
    project.go()
    assert launch.wait() == 7
    assert "no answer" in launch.log("MAIN")
    assert {node["exit_code"] for node in launch.nodes().values()} == {7}
    launch.assert_nothing_left()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of 1 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)], check=True)
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path) -> Path:
    """Write to *disk* until it is full; return the file that fills it."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return filler


@NEEDS_MOUNT
def test_work_dir_that_fills_up_loses_no_outcome(project: Project, small_disk: Path) -> None:
    """Nothing can be told any more, not even stop; the entry point's code still comes out of launch.sh."""
    script = UNTIL_GO + "exit(7)"
    launch = project.launch_plain(
        1, script, WORK_DIR=f"file://{small_disk}", HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="20"
    )
    launch.wait_for("entry up")
    launch.wait_for("worker works", "WORKER_1")  # one that cannot even join waits for its TIMEOUT
    fill(small_disk)
    wait_until(lambda: "No space left" in launch.log("MAIN"), "main to name the full disk")
    project.go()
    assert launch.wait() == 7
    assert launch.nodes()["WORKER_1"]["exit_code"] != 0
    launch.assert_nothing_left()


@NEEDS_MOUNT
def test_full_disk_under_records_and_logs_loses_no_outcome(project: Project, small_disk: Path) -> None:
    """The runner's records are in blocks taken at the start: exit codes fit however full the disk is."""
    (project.path / ".clusters").symlink_to(small_disk)
    script = UNTIL_GO + "os._exit(7)"
    launch = project.launch_plain(1, script, HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="20")
    launch.wait_for("entry up")
    launch.wait_for("worker works", "WORKER_1")  # one that comes later finds no room to say so
    fill(small_disk)
    project.go()
    assert launch.wait() == 7
    assert launch.nodes()["MAIN"]["exit_code"] == 7
    launch.assert_nothing_left()


@NEEDS_MOUNT
def test_full_disk_at_the_start_starts_nothing(project: Project, small_disk: Path) -> None:
    """One line that names the place and what to do."""
    (project.path / ".clusters").symlink_to(small_disk)
    (small_disk / ".lock").touch()
    fill(small_disk)
    launch = project.launch_plain(1, SLEEP)
    assert launch.wait() == 69
    assert "No space left on device" in launch.err
    assert project.cluster_dirs() == []


@NEEDS_MOUNT
def test_read_only_work_dir_ends_the_launch_with_77(project: Project, small_disk: Path) -> None:
    """Said at once, by name, with what to do; nothing runs."""
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    launch = project.launch_plain(1, SLEEP, WORK_DIR=f"file://{small_disk}")
    assert launch.wait() == 77
    assert "Read-only file system" in launch.out
    assert time.monotonic() - launch.started_at < 300  # half of TIMEOUT
    launch.assert_nothing_left()


class HungDisk:
    """A disk over a folder that nothing answers for: a FUSE whose program never reads."""

    def __init__(self, path: Path) -> None:
        self._path, self._program = path, os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._program},rootmode=40000,user_id=0,group_id=0".encode()
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mount(b"hung", bytes(path), b"fuse", 0, options) == 0, os.strerror(ctypes.get_errno())

    def end(self) -> None:
        """Give who waits an error, and take the disk away."""
        os.close(self._program)
        subprocess.run(["umount", "--lazy", str(self._path)], check=True)


@pytest.mark.nightly
@NEEDS_MOUNT
def test_work_dir_that_hangs_is_listed_and_hides_no_other(project: Project, tmp_path: Path) -> None:
    """Within five seconds; what waits for such a disk no signal ends, and a stop says so. It does when that answers."""
    work = tmp_path / "work"
    work.mkdir()
    hung = project.launch_plain(1, SLEEP, "--name", "hung", WORK_DIR=f"file://{work}")
    hung.wait_for("entry up")
    other = project.launch_plain(1, UNTIL_GO, "--name", "other")
    other.wait_for("entry up")
    disk = HungDisk(work)

    def list_s() -> float:
        began = time.monotonic()
        project.run("list")
        return time.monotonic() - began

    # It holds the folder's lock. Who waits for that no signal ends, not even KILL.
    holder = subprocess.Popen(["mkdir", str(work / "x")], stderr=subprocess.DEVNULL)
    try:
        project.assert_quick(list_s, 6.0)  # of which the start of a Python is some
        found = {cluster["name"]: cluster for cluster in json.loads(project.run("list", "--json").stdout)}
        assert [found[name]["state"] for name in ("hung", "other")] == ["IN_PROGRESS", "IN_PROGRESS"]
        assert "does not answer" in project.run("status", "hung").stdout
        stopped = project.run("stop", "hung")
        assert (stopped.returncode, "hung cannot be killed" in stopped.stderr) == (69, True)
        assert json.loads(project.run("status", "hung", "--json").stdout)["state"] == "IN_PROGRESS"
        assert psutil.pid_exists(hung.runner_pid())
    finally:
        disk.end()
        holder.wait()
    assert hung.wait() == 76
    assert {node["exit_code"] for node in hung.nodes().values()} == {137}
    hung.assert_nothing_left()
    project.go()
    assert other.wait() == 0


@pytest.mark.nightly
@NEEDS_MOUNT
def test_a_launch_on_a_disk_that_hangs_ends(project: Project, tmp_path: Path) -> None:
    """By itself after four seconds, with the disk's name, also where somebody presses Ctrl-C; nothing is left."""
    work = tmp_path / "work"
    work.mkdir()
    disk = HungDisk(work)
    try:
        launch = project.launch_plain(1, SLEEP, WORK_DIR=f"file://{work}")
        assert launch.wait(60) == 69
        assert f"its work dir file://{work}/" in launch.err
        stopped = project.launch_plain(1, SLEEP, WORK_DIR=f"file://{work}")
        wait_until(lambda: list((project.path / ".clusters").glob("plain-*")), lambda: f"a launch: {stopped.err}")
        stopped.interrupt()
        assert (stopped.wait(60), "does not answer" in stopped.err) == (69, True), stopped.err
        assert project.cluster_dirs() == []
    finally:
        disk.end()
    wait_until(lambda: not _processes_of(project.path), lambda: f"the end of {_processes_of(project.path)}")


def _processes_of(folder: Path) -> list[list[str]]:
    """Return the command lines that name *folder*."""
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if str(folder) in " ".join(line)]
