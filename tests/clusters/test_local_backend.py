"""What every local cluster does, whatever its framework: outcomes, losses, signals, bad storage, housekeeping."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from harness import Project, processes_of, wait_until

# Entry points that run until they are ended, and until the test says go().
UNTIL_GO = "import os, time\nprint('entry up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)\n"
SLEEP = "import time; print('entry up', flush=True); time.sleep(1000)"
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="mounts a small disk: needs root")


# --- Outcomes ---------------------------------------------------------------------------------------------


def test_success_prints_the_entry_points_output_and_leaves_nothing(project: Project) -> None:
    """0, every node's lines after its name, and nothing left running."""
    launch = project.launch_plain(2, UNTIL_GO + "print('the result')")
    for node in ("WORKER_1", "WORKER_2"):
        launch.wait_for("worker works", node)
    project.go()
    assert launch.wait() == 0
    assert "MAIN     | the result\n" in launch.out
    assert "WORKER_2 | worker works\n" in launch.out
    assert {name: node["exit_code"] for name, node in launch.nodes().items()} == {
        "MAIN": 0,
        "WORKER_1": 0,
        "WORKER_2": 0,
    }
    launch.assert_nothing_left()


def test_arguments_arrive_exactly(project: Project) -> None:
    """What follows -- reaches the script as it was typed."""
    arguments = ["a", "b c", "d'e", "", "--flag", "--", "two\nlines", "$HOME", "*"]
    script = "import sys, os, json; json.dump(sys.argv[1:], open(os.environ['OUTPUT_DIR'] + '/a', 'w'))"
    launch = project.launch_plain(1, script, "--", *arguments)
    assert launch.wait() == 0
    assert json.loads((launch.directory / "outputs" / "a").read_text()) == arguments


@pytest.mark.parametrize(("script", "code"), [("raise SystemExit(7)", 7), ("raise RuntimeError('boom')", 1)])
def test_failure_comes_out_with_its_code_and_its_traceback(project: Project, script: str, code: int) -> None:
    """The entry point's code is launch.sh's and every node's; its traceback is in the logs."""
    launch = project.launch_plain(2, script)
    assert launch.wait() == code
    assert {node["exit_code"] for node in launch.nodes().values()} == {code}
    assert ("RuntimeError: boom" in launch.out) == (code == 1)
    launch.assert_nothing_left()


def test_killed_entry_point_is_not_a_lost_main(project: Project) -> None:
    """An entry point that dies of SIGKILL (out of memory) ends the cluster in order, with 137."""
    launch = project.launch_plain(1, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert launch.wait() == 137
    assert {node["exit_code"] for node in launch.nodes().values()} == {137}


def test_time_from_the_entry_points_end_to_launch_shs_is_under_a_second(project: Project) -> None:
    """The design's section 9: nobody waits for polling."""
    launch = project.launch_plain(2, "import time; print('ended at', time.time(), flush=True)")
    assert launch.wait() == 0
    returned_at = time.time()
    launch.assert_nothing_left()
    ended_at = float(launch.log("MAIN").partition("ended at ")[2].split()[0])
    assert returned_at - ended_at < 1.0


# --- Losses -----------------------------------------------------------------------------------------------


def test_killed_main_agent_ends_every_worker_with_76(project: Project) -> None:
    """No orphan: workers are gone within HEARTBEAT_TIMEOUT plus the grace period, each with 76."""
    launch = project.launch_plain(2, SLEEP, HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="3", GRACE_PERIOD="5")
    launch.wait_for("entry up")
    launch.wait_for("worker works", "WORKER_1")
    launch.wait_for("worker works", "WORKER_2")
    killed_at = time.monotonic()
    launch.kill_agent("MAIN")
    assert launch.wait() == 76
    assert time.monotonic() - killed_at < 3 + 5 + 1
    codes = {name: node["exit_code"] for name, node in launch.nodes().items()}
    assert codes == {"MAIN": 137, "WORKER_1": 76, "WORKER_2": 76}
    assert "main lost" in launch.err
    launch.assert_nothing_left()


def test_killed_worker_agent_leaves_no_grandchild_and_is_named(project: Project) -> None:
    """All that a killed agent started is swept at once, its own session's refugees too; the cluster goes on."""
    script = UNTIL_GO
    launch = project.launch_plain(2, script)
    launch.wait_for("entry up")
    launch.wait_for("worker works", "WORKER_1")

    def of_worker() -> list[psutil.Process]:
        return processes_of(launch.launch_id, "WORKER_1")

    assert len(of_worker()) == 4  # agent, start script, child, grandchild in a session of its own
    launch.kill_agent("WORKER_1")
    wait_until(lambda: not of_worker(), "the end of all that WORKER_1 was", 5.0)
    wait_until(lambda: "WORKER_1 ended with 137 (killed by SIGKILL)" in launch.err, "the loss to be named")
    project.go()
    assert launch.wait() == 0
    launch.assert_nothing_left()


def test_killed_runner_ends_the_cluster_in_order_and_is_no_success(project: Project) -> None:
    """Agents end their nodes when the process that started them is gone; launch.sh says 76."""
    launch = project.launch_plain(2, SLEEP)
    launch.wait_for("entry up")
    os.kill(launch.runner_pid(), signal.SIGKILL)
    assert launch.wait() == 76
    launch.assert_nothing_left()


def test_killed_launcher_leaves_a_cluster_that_can_be_found_and_stopped(project: Project) -> None:
    """kill -9 of launch.sh and its children loses nothing: list.sh shows the cluster, stop.sh ends it."""
    launch = project.launch_plain(1, SLEEP, "--name", "kept")
    launch.wait_for("entry up")
    launch.interrupt(signal.SIGKILL)
    launch.wait()
    assert json.loads(project.run("list", "--json").stdout)[0]["name"] == "kept"
    assert project.run("stop", "kept").returncode == 0
    launch.assert_nothing_left()


# --- Ctrl-C -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_to_a_running_launch_stops_the_cluster(project: Project, number: int) -> None:
    """143, every node 143, in order: the stop file says who asked."""
    launch = project.launch_plain(2, SLEEP)
    launch.wait_for("entry up")
    launch.interrupt(number)
    assert launch.wait() == 143
    assert {node["exit_code"] for node in launch.nodes().values()} == {143}
    assert "stopping cluster" in launch.err
    launch.assert_nothing_left()


def test_terminate_to_launch_sh_alone_stops_the_cluster(project: Project) -> None:
    """`kill PID` of the script, as a CI system does it, reaches the follower."""
    launch = project.launch_plain(1, SLEEP)
    launch.wait_for("entry up")
    launch.process.terminate()
    assert launch.wait() == 143
    launch.assert_nothing_left()


@pytest.mark.parametrize("delay_s", [0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7])
def test_ctrl_c_at_any_moment_of_a_launch_leaves_nothing(project: Project, delay_s: float) -> None:
    """Whichever phase it hits: no process is left, and the code is no success."""
    launch = project.launch_plain(2, SLEEP)
    # Not a wait for something: the moment itself is what is varied.
    threading.Event().wait(delay_s)
    launch.interrupt()
    assert launch.wait() in {130, 143, -signal.SIGINT}  # 130 and -2: before launch.sh has set its traps
    for directory in project.cluster_dirs():
        launch_id = directory.name.rpartition("-")[2]
        wait_until(lambda launch_id=launch_id: not processes_of(launch_id), "the end of every process", 5.0)


def test_second_ctrl_c_ends_a_cluster_that_does_not_listen(project: Project) -> None:
    """Who presses twice does not want to wait for the grace period."""
    script = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP
    launch = project.launch_plain(1, script, GRACE_PERIOD="50")
    launch.wait_for("entry up")
    launch.interrupt()
    wait_until(lambda: "stopping cluster" in launch.err, "the first to be taken")
    threading.Event().wait(1.1)  # a second within a second counts as the same
    launch.interrupt()
    assert launch.wait(20) != 0
    assert "ending it at once" in launch.err
    launch.assert_nothing_left()


# --- Storage ----------------------------------------------------------------------------------------------


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


@NEEDS_ROOT
def test_work_dir_that_fills_up_loses_no_outcome(project: Project, small_disk: Path) -> None:
    """Nothing can be told any more, not even stop; the entry point's code still comes out of launch.sh."""
    script = UNTIL_GO + "exit(7)"
    launch = project.launch_plain(
        1, script, WORK_DIR=f"file://{small_disk}", HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="4"
    )
    launch.wait_for("entry up")
    launch.wait_for("worker works", "WORKER_1")  # one that cannot even join waits for its TIMEOUT
    fill(small_disk)
    wait_until(lambda: "No space left" in launch.log("MAIN"), "main to name the full disk")
    project.go()
    assert launch.wait() == 7
    assert launch.nodes()["WORKER_1"]["exit_code"] != 0
    launch.assert_nothing_left()


@NEEDS_ROOT
def test_full_disk_under_records_and_logs_loses_no_outcome(project: Project, small_disk: Path) -> None:
    """The runner's records are in blocks taken at the start: exit codes fit however full the disk is."""
    (project.path / ".clusters").symlink_to(small_disk)
    script = UNTIL_GO + "os._exit(7)"
    launch = project.launch_plain(1, script, HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="4")
    launch.wait_for("entry up")
    launch.wait_for("worker works", "WORKER_1")  # one that comes later finds no room to say so
    fill(small_disk)
    project.go()
    assert launch.wait() == 7
    assert launch.nodes()["MAIN"]["exit_code"] == 7
    launch.assert_nothing_left()


@NEEDS_ROOT
def test_full_disk_at_the_start_starts_nothing(project: Project, small_disk: Path) -> None:
    """One line that names the place and what to do."""
    (project.path / ".clusters").symlink_to(small_disk)
    (small_disk / ".lock").touch()
    fill(small_disk)
    launch = project.launch_plain(1, SLEEP)
    assert launch.wait() == 69
    assert "cannot be written: No space left on device; make room there" in launch.err
    assert project.cluster_dirs() == []


@NEEDS_ROOT
def test_read_only_work_dir_ends_the_launch_with_77(project: Project, small_disk: Path) -> None:
    """Said at once, by name, with what to do; nothing runs."""
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    launch = project.launch_plain(1, SLEEP, WORK_DIR=f"file://{small_disk}")
    assert launch.wait() == 77
    assert "Read-only file system" in launch.out
    assert time.monotonic() - launch.started_at < 20
    launch.assert_nothing_left()


# --- Names, ports, several clusters -----------------------------------------------------------------------


def test_two_clusters_at_once(project: Project) -> None:
    """Each has addresses of its own, so both may use the same ports."""
    script = UNTIL_GO
    first = project.launch_plain(2, script)
    first.wait_for("entry up")
    second = project.launch_plain(2, script)
    second.wait_for("entry up")
    addresses = [
        node["environment"]["NODE_ADDRESS"]
        for launch in (first, second)
        for node in json.loads((launch.directory / "cluster.json").read_text())["nodes"]
    ]
    assert len(set(addresses)) == 6
    project.go()
    assert (first.wait(), second.wait()) == (0, 0)


def test_two_clusters_of_one_name_are_refused(project: Project) -> None:
    """The second starts nothing and says how to end the first."""
    first = project.launch_plain(1, SLEEP, "--name", "twin")
    first.wait_for("entry up")
    second = project.launch_plain(1, SLEEP, "--name", "twin")
    assert second.wait() == 2
    assert "a cluster named 'twin' is running" in second.err
    assert len(project.cluster_dirs()) == 1
    first.interrupt()
    assert first.wait() == 143


def test_port_of_somebody_else_is_named(project: Project) -> None:
    """Nothing is started, and the message says which setting chooses another port."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("0.0.0.0", 18999))  # noqa: S104 - taken on every address
        other.listen()
        launch = project.launch_plain(1, SLEEP)
        assert launch.wait() == 78
    assert re.search(r"port 18999 of 127\.0\.0\.\d+ is taken by another program", launch.err)
    assert "--env PLAIN_PORT=" in launch.err
    assert project.cluster_dirs() == []


# --- Detached, kept, listed, shown ------------------------------------------------------------------------


def test_detached_cluster_is_shown_followed_and_stopped(project: Project) -> None:
    """--detach prints the name alone; status, list, logs and stop take it from there."""
    launch = project.launch_plain(1, SLEEP, "--detach", "--name", "away")
    assert (launch.wait(), launch.out) == (0, "away\n")
    launch.wait_for("entry up")
    wait_until(lambda: "greeting: hello" in project.run("status", "away").stdout, "main's facts in status")
    status = json.loads(project.run("status", "--json").stdout)
    assert [node["state"] for node in status["nodes"]] == ["IN_PROGRESS", "IN_PROGRESS"]
    assert "MAIN     | entry up\n" in project.run("logs", "away").stdout
    assert "entry up" not in project.run("logs", "--node", "WORKER_1", "away").stdout
    following = threading.Thread(target=lambda: seen.append(project.run("logs", "-f", "away").stdout))
    seen: list[str] = []
    following.start()
    stopped = project.run("stop", "away")
    assert (stopped.returncode, stopped.stdout) == (0, "away\n")
    following.join(10)
    assert "stopped by stop.sh" in seen[0]
    assert project.run("list").stdout.splitlines()[1:] == []
    assert json.loads(project.run("list", "--all", "--json").stdout)[0]["exit_code"] == 143
    launch.assert_nothing_left()
    assert project.run("stop", "away").returncode == 0  # once more is no error
    assert project.run("stop", "--delete", "away").returncode == 0
    assert project.cluster_dirs() == []


def test_kept_cluster_ends_with_its_ttl_and_with_0(project: Project) -> None:
    """--keep --ttl: a planned end is a success."""
    launch = project.launch("plain", "1", "--keep", "--ttl", "2s", "--python", sys.executable)
    assert launch.wait() == 0
    assert json.loads((launch.directory / "stop").read_text())["reason"] == "TTL of 2 s reached"


def test_ttl_bounds_an_entry_point_too(project: Project) -> None:
    """Machines cost money: --ttl ends what does not end by itself, with 75."""
    launch = project.launch_plain(1, SLEEP, "--ttl", "2s")
    assert launch.wait() == 75
    assert "TTL of 2 s reached" in launch.err
    launch.assert_nothing_left()


def test_dry_run_prints_what_would_run_and_changes_nothing(project: Project) -> None:
    """The plan, as JSON, without secrets; no directory is made."""
    launch = project.launch_plain(2, SLEEP, "--dry-run", "--env", "API_TOKEN=s3cret", "--env", "LEVEL=3")
    assert launch.wait() == 0
    plan = json.loads(launch.out)
    assert len({node["environment"]["NODE_ADDRESS"] for node in plan["nodes"]}) == 3
    assert plan["environment"]["LEVEL"] == "3"
    assert "s3cret" not in launch.out
    assert project.cluster_dirs() == []


def test_users_environment_reaches_the_nodes_and_pythonsafepath_does_not(project: Project) -> None:
    """A script finds the modules beside it, and the variables that --env set."""
    project.write("neighbour.py", "VALUE = 42")
    script = "import os, neighbour; print('value', neighbour.VALUE, os.environ['LEVEL'])"
    launch = project.launch_plain(1, script, "--env", "LEVEL=3 4")
    assert launch.wait() == 0
    assert "value 42 3 4" in launch.out


def test_agent_loads_no_framework_and_no_cloud(checkout_copy: Path) -> None:
    """What keeps an agent small and quick: none of these is ever imported by it."""
    code = (
        "import sys; import oci_cluster.agent, oci_cluster.exchange\n"
        "oci_cluster.exchange.Exchange('file:///tmp', 'x')\n"
        "others = {'oci', 'ocifs', 'dask', 'distributed', 'numpy', 'yaml', 'cryptography', 'psutil'}\n"
        "print(sorted(others & set(sys.modules)))"
    )
    environ = {**os.environ, "PYTHONPATH": str(checkout_copy / "common")}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_checkout_that_moved_still_works(project: Project, tmp_path: Path) -> None:
    """Nothing holds an absolute path of the checkout."""
    moved = tmp_path / "moved project"
    shutil.copytree(project.path, moved, symlinks=True)
    other = Project(moved, tmp_path / "other") if (tmp_path / "other").mkdir() is None else project
    assert other.launch_plain(1, "print('moved')").wait() == 0


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_fresh_checkout_sets_itself_up(project: Project, tmp_path: Path, installer: str) -> None:
    """Without .venv the first launch makes all that it needs, by uv where there is one; the next takes it."""
    fresh = tmp_path / "fresh checkout"
    shutil.copytree(project.path, fresh, ignore=shutil.ignore_patterns(".venv"))
    (tmp_path / "scratch").mkdir()
    other = Project(fresh, tmp_path / "scratch")
    path = [folder for folder in os.environ["PATH"].split(os.pathsep) if not (Path(folder) / "uv").exists()]
    if installer == "uv":
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "uv").symlink_to(Path(sys.executable).with_name("uv"))
        path.insert(0, str(tmp_path / "bin"))
    entry = other.write("entry.py", "import locket, sys; print('made', sys.prefix)")
    for launch_is_first in (True, False):
        launch = other.launch("plain", "1", "--entry", entry, PATH=os.pathsep.join(path))
        assert launch.wait(120) == 0
        assert f"made {fresh}/.venv/envs/plain" in launch.out
        assert ("first time only" in launch.err) == launch_is_first
    assert (fresh / ".venv" / "bin" / "pip").exists() == (installer == "pip")
    assert list(
        (fresh / ".venv" / "envs" / "plain").rglob("locket*/**/*.pyc")
    )  # compiled, whatever the environment says
