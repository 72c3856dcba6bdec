"""Launches whose reader, disk, terminal or very process goes away: nothing runs on unseen, no failure is a success."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys

import psutil
import pytest
from harness import PATIENCE_S, UNTIL_GO, Project, processes_of, wait_until
from terminal import Terminal

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/dev/full and parent-death signals are Linux's")

FAILS_LATER = f"print('begin', flush=True)\n{UNTIL_GO}print('more', flush=True)\nraise SystemExit(7)\n"
# The script goes on when nobody is left who reads.
THEN_GO = "; exec <&-; : >go; }"
WAITS = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"


def shell(project: Project, redirection: str, *words: str) -> tuple[int, str]:
    """Run `launch.sh plain 1 WORD...` in a shell with such a *redirection*; return its exit code and all of stderr."""
    line = f'"$0" plain 1 --entry entry.py --python "$1" "${{@:2}}" {redirection}; exit "${{PIPESTATUS[0]}}"'
    project.write("entry.py", FAILS_LATER)
    done = subprocess.run(
        ["bash", "-c", line, str(project.path / "scripts" / "launch.sh"), sys.executable, *words],
        cwd=project.code,
        env=project.environ,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stderr


def assert_nothing_runs(project: Project) -> None:
    (directory,) = project.cluster_dirs()
    launch_id = directory.name.rpartition("-")[2]
    wait_until(lambda: not processes_of(launch_id), f"the end of {processes_of(launch_id)}", 120.0)
    (found,) = json.loads(project.run("list", "--all", "--json").stdout)
    assert isinstance(found["exit_code"], int)


@pytest.mark.parametrize(
    ("redirection", "said"),
    [
        (f"| {{ head -1 >/dev/null{THEN_GO}", "the reader of the logs"),
        (f"| {{ grep -q begin{THEN_GO}", "the reader of the logs"),
        (">/dev/full", "No space left on device"),
        (">&-", "mine ended with 7 ("),
        ("2>&-", ""),
        ("2>/dev/full", ""),
        (">&- 2>&- <&-", ""),
    ],
)
def test_the_clusters_code_comes_through_whoever_does_not_read(project: Project, redirection: str, said: str) -> None:
    """Followed to its end without printing; stderr says so where there is one."""
    if THEN_GO not in redirection:
        project.go()
    code, err = shell(project, redirection, "--name", "mine")
    assert code == 7
    assert said in err
    assert "Traceback" not in err
    assert_nothing_runs(project)


@pytest.mark.parametrize(("redirection", "code"), [(">/dev/full", 69), ("| true", 141)])
def test_a_detached_cluster_whose_name_nobody_gets_is_stopped(project: Project, redirection: str, code: int) -> None:
    """Nobody could stop it."""
    found, err = shell(project, redirection, "--detach")
    assert (found, "Traceback" in err) == (code, False)
    assert "which nobody can follow" in err
    assert_nothing_runs(project)


@pytest.mark.parametrize("killed", ["shell", "python", "both"])
def test_a_launcher_that_is_killed_takes_its_cluster_along(project: Project, killed: str) -> None:
    """However little of it is left to do so; `status` says why the cluster ended."""
    launch = project.launch_plain(1, WAITS, "--name", "mine")
    launch.wait_for("up")
    (python,) = psutil.Process(launch.process.pid).children()
    {"shell": launch.process.kill, "python": python.kill, "both": launch.kill}[killed]()
    assert launch.wait() in {-signal.SIGKILL, 128 + signal.SIGKILL}
    wait_until(lambda: processes_of(launch.launch_id) == [], "the end of its nodes", 120.0)
    launch.assert_nothing_left()
    shown = project.run("status", "mine").stdout
    assert "STOPPED with 143" in shown
    assert ("stopped by the launcher" if killed == "shell" else "its launcher was killed") in shown


TICKS = """
import os, time
for number in range(6000):
    if os.path.exists("go"): break
    print("tick", number, flush=True)
    time.sleep(0.1)
"""


def test_a_launch_under_nohup_outlives_its_terminal(project: Project) -> None:
    """People launch, close the window and go home: the shell hangs up on its jobs."""
    said = project.code.with_name("said")
    said.touch()
    project.write("entry.py", TICKS)
    words = [project.path / "scripts" / "launch.sh", "plain", "1", "--entry", "entry.py", "--python", sys.executable]
    with Terminal("bash", project.code, project.environ) as terminal:
        terminal.run(f"{{ nohup {shlex.join(map(str, words))} --name mine >{shlex.quote(str(said))} 2>&1 & }}")
        wait_until(lambda: "| tick" in said.read_text(), "the script")
    # For as long as a launch takes to be stopped.
    ticks = said.read_text().count("| tick") + 30
    wait_until(lambda: said.read_text().count("| tick") > ticks or "ended with" in said.read_text(), "30 lines more")
    project.go()
    wait_until(lambda: "cluster mine ended with" in said.read_text(), "the cluster's end")
    assert "cluster mine ended with 0" in said.read_text()
    assert_nothing_runs(project)


def test_a_detached_cluster_outlives_its_launcher(project: Project) -> None:
    """Its guard was dismissed."""
    launch = project.launch_plain(1, WAITS, "--name", "mine", "--detach")
    assert launch.wait() == 0
    launch.wait_for("up")
    assert len(project.run("list").stdout.splitlines()) == 2
    assert project.run("stop", "mine").returncode == 0
    launch.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_runner_that_is_told_to_end_ends_the_launch(project: Project, number: int) -> None:
    """As a machine that shuts down does; the launch once waited for an hour for a signal that had come already."""
    launch = project.launch_plain(2, WAITS)
    launch.wait_for("up")
    os.kill(launch.runner_pid(), number)
    assert launch.wait() == 143
    launch.assert_nothing_left()
