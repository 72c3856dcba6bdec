"""A cluster on which nothing is printed and nothing computed: main says so, and where all wait."""

from __future__ import annotations

import sys

import pytest
from harness import UNTIL_GO, Project, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in /proc")

HANGS = "import threading\nprint('up', flush=True)\nthreading.Event().wait()\n"
SAID = "nothing printed and nothing computed for"


def test_a_cluster_that_hangs_says_where(project: Project) -> None:
    """Once, in main's log, and `status.sh` at any time; it goes on, as a script may wait for long."""
    launch = project.launch_plain(1, HANGS, "--name", "mine", "--env", "SILENCE_TIMEOUT=6")
    launch.wait_for(SAID)
    (line,) = [line for line in launch.log("MAIN").splitlines() if SAID in line]
    assert line.endswith(" s: MAIN waits in wait (entry.py:3); --ttl limits this")
    wait_until(lambda: "waits in wait (entry.py:3)" in project.run("status", "mine").stdout, "the phase of main")
    assert project.run("stop", "mine").returncode == 0
    assert launch.wait() == 143
    assert launch.log("MAIN").count(SAID) == 1
    launch.assert_nothing_left()


@pytest.mark.parametrize(
    "script",
    [
        f"import threading\nthreading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=1).start()\n{UNTIL_GO}",
        f"import subprocess\nsubprocess.Popen(['sh', '-c', 'while :; do :; done'])\n{UNTIL_GO}",
    ],
    ids=["a thread", "a program"],
)
def test_a_script_that_computes_without_a_word_is_left_alone(project: Project, script: str) -> None:
    """Whoever waits beside it, and however long."""
    launch = project.launch_plain(1, script, "--name", "mine", "--env", "SILENCE_TIMEOUT=3", "--env", "GRACE_PERIOD=1")
    launch.wait_for("entry up")
    # A worker does nothing here: when it stands still, main would, too.
    wait_until(lambda: "still for" in project.run("status", "mine").stdout, "a worker that stands still")
    assert SAID not in launch.log("MAIN")
    project.go()
    assert launch.wait() == 0
    assert SAID not in launch.log("MAIN")
    launch.assert_nothing_left()


def test_who_does_not_want_to_know_is_told_nothing(project: Project) -> None:
    """SILENCE_TIMEOUT=0; for longer than with another setting it would have taken."""
    quiet = project.launch_plain(0, HANGS, "--name", "quiet", "--env", "SILENCE_TIMEOUT=0")
    quiet.wait_for("up")
    told = project.launch_plain(0, HANGS, "--name", "told", "--env", "SILENCE_TIMEOUT=3")
    told.wait_for(SAID)
    assert "still for" in project.run("status", "told").stdout
    assert "still for" not in project.run("status", "quiet").stdout
    for launch, name in ((quiet, "quiet"), (told, "told")):
        assert project.run("stop", name).returncode == 0
        assert launch.wait() == 143
    assert SAID not in quiet.log("MAIN")
