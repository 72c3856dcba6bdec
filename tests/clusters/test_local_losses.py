"""Local clusters that lose a process, or are told to stop: agents, runners, launchers, signals."""

from __future__ import annotations

import json
import os
import signal
import threading
import time

import psutil
import pytest
from harness import SLEEP, UNTIL_GO, Project, processes_of, wait_until


def test_killed_main_agent_ends_every_worker_with_76(project: Project) -> None:
    """No orphan: workers are gone within HEARTBEAT_TIMEOUT plus the grace period, each with 76."""
    launch = project.launch_plain(2, SLEEP, HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="20", GRACE_PERIOD="5")
    launch.wait_for("entry up")
    launch.wait_for("worker works", "WORKER_1")
    launch.wait_for("worker works", "WORKER_2")
    killed_at = time.monotonic()
    launch.kill_agent("MAIN")
    assert launch.wait() == 76
    assert time.monotonic() - killed_at < 45  # of the 60 s that HEARTBEAT_TIMEOUT has where nobody sets it
    codes = {name: node["exit_code"] for name, node in launch.nodes().items()}
    assert codes == {"MAIN": 137, "WORKER_1": 76, "WORKER_2": 76}
    assert "main lost" in launch.err
    launch.assert_nothing_left()


@pytest.mark.parametrize(("node", "code"), [("MAIN", 76), ("WORKER_1", 0)])
def test_a_frozen_node_is_ended_when_its_cluster_is_over(project: Project, node: str, code: int) -> None:
    """Nobody else would: it is there, and does nothing. Of a main so lost nobody knows what it would have said."""
    launch = project.launch_plain(1, UNTIL_GO, HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="10", GRACE_PERIOD="1")
    launch.wait_for("entry up")
    launch.wait_for("worker works", "WORKER_1")
    agent = psutil.Process(launch.nodes()[node]["pid"])
    for process in [agent, *agent.children(recursive=True)]:
        process.send_signal(signal.SIGSTOP)
    project.go()
    assert launch.wait() == code
    assert f"{node} has shown no sign" in launch.err
    assert {name: found["exit_code"] for name, found in launch.nodes().items()} == {
        "MAIN": 137 if code else 0,
        "WORKER_1": 76 if code else 137,
    }
    launch.assert_nothing_left()


def test_a_frozen_node_whose_runner_was_killed_is_ended(project: Project) -> None:
    """It cannot hear that the runner is gone, and nobody records any more that the others have ended."""
    launch = project.launch_plain(1, SLEEP, HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="10", GRACE_PERIOD="1")
    launch.wait_for("entry up")
    launch.wait_for("worker works", "WORKER_1")
    agent = psutil.Process(launch.nodes()["WORKER_1"]["pid"])
    for process in [agent, *agent.children(recursive=True)]:
        process.send_signal(signal.SIGSTOP)
    os.kill(launch.runner_pid(), signal.SIGKILL)
    assert launch.wait() == 76
    assert "WORKER_1 has shown no sign" in launch.err
    launch.assert_nothing_left()


def test_killed_worker_agent_leaves_no_grandchild_and_is_named(project: Project) -> None:
    """All that a killed agent started is swept at once, its own session's refugees too; the cluster goes on."""
    script = UNTIL_GO
    launch = project.launch_plain(2, script)
    launch.wait_for("entry up")
    launch.wait_for("worker works", "WORKER_1")

    def of_worker() -> list[psutil.Process]:
        return processes_of(launch.launch_id, "WORKER_1")

    # Agent, start script, child, grandchild in a session of its own; one that becomes `sleep` shows no environment.
    wait_until(lambda: len(of_worker()) == 4, lambda: f"four processes: {of_worker()}")
    launch.kill_agent("WORKER_1")
    wait_until(lambda: not of_worker(), "the end of all that WORKER_1 was", 60.0)
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


def test_cluster_without_launcher_and_guard_can_be_found_and_stopped(project: Project) -> None:
    """kill -9 of launch.sh, its children and the guard loses nothing: list.sh shows the cluster, stop.sh ends it."""
    launch = project.launch_plain(1, SLEEP, "--name", "kept")
    launch.wait_for("entry up")
    (python,) = psutil.Process(launch.process.pid).children()
    (guard,) = (child for child in python.children() if "runner" not in child.cmdline())
    guard.kill()
    launch.kill()
    launch.wait()
    assert json.loads(project.run("list", "--json").stdout)[0]["name"] == "kept"
    assert project.run("stop", "kept").returncode == 0
    launch.assert_nothing_left()


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
    code = launch.wait()
    assert code == 143 or (code == -signal.SIGINT and not launch.err)  # that: before the first line of launch.sh
    assert "Traceback" not in launch.err
    assert "ignored in" not in launch.err
    for directory in project.cluster_dirs():
        launch_id = directory.name.rpartition("-")[2]
        wait_until(lambda launch_id=launch_id: not processes_of(launch_id), "the end of every process", 60.0)


def test_second_ctrl_c_ends_a_cluster_that_does_not_listen(project: Project) -> None:
    """Who presses twice does not want to wait for the grace period."""
    script = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP
    launch = project.launch_plain(1, script, GRACE_PERIOD="600")
    launch.wait_for("entry up")
    # What is pressed within a second counts as the same.
    wait_until(lambda: launch.interrupt() or "ending the cluster at once" in launch.err, lambda: launch.err)
    assert launch.wait() == 143
    assert "stopping cluster" in launch.err
    launch.assert_nothing_left()
