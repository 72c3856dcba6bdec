"""Ctrl-C in each phase of a launch, and of other scripts: always 143, in words, and nothing is left running."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from harness import SLEEP, Launch, Project, path_with_uv, wait_until, with_own_environments

GATES = Path(__file__).resolve().parents[1] / "gates"
# How it ends a launch that has started nothing: at once.
AT_ONCE = ("launch.sh: stopped\n",)
# The same, by the default of TERM: Python has not come to the package's first line.
BEFORE = ("", *AT_ONCE)


class Gate:
    """Holds a launch up, and tells what of it runs: all that has its file's name in its environment."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.environ = {
            "GATE_FILE": str(file),
            "PYTHONPATH": str(GATES),
            "BASH_ENV": str(GATES / "bash_env.sh"),
        }

    def wait_for(self, launch: Launch) -> None:
        """Return when something is held up."""
        wait_until(lambda: self.file.exists() or launch.process.poll() is not None, lambda: f"the gate; {launch.err}")
        assert self.file.exists(), f"nothing was held up: {launch.process.poll()}\n{launch.out}\n{launch.err}"

    def processes(self) -> list[psutil.Process]:
        """Return what has been started with this gate, and runs."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.environ().get("GATE_FILE") == str(self.file) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """Return a gate; what it has held up is ended."""
    gate = Gate(tmp_path / "held")
    yield gate
    for process in gate.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def press(launch: Launch, gate: Gate) -> None:
    """Press Ctrl-C: 143, no traceback, and nothing of it is left; nor is a cluster that somebody could take for one."""
    launch.interrupt()
    assert_stopped(launch, gate)


def assert_stopped(launch: Launch, gate: Gate) -> None:
    assert launch.wait(60) == 143, launch.err
    for words in ("Traceback", "KeyboardInterrupt", "ignored in"):
        assert words not in launch.out + launch.err, launch.err
    wait_until(lambda: not gate.processes(), lambda: f"the end of {gate.processes()}", 60.0)


# --- While bash and Python begin ------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["source", "cd"])
def test_while_bash_begins(project: Project, gate: Gate, word: str) -> None:
    """When it reads its library, and in the copy of it that becomes Python."""
    launch = project.launch_plain(1, SLEEP, GATE_BASH=f"launch.sh/{word}", **gate.environ)
    gate.wait_for(launch)
    press(launch, gate)
    assert launch.err in BEFORE
    assert not project.cluster_dirs()


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("site", BEFORE),
        ("oci_cluster", BEFORE),
        ("oci_cluster/dropped", BEFORE),
        ("logging", AT_ONCE),
        ("logging/dropped", AT_ONCE),
        ("oci_cluster.launcher.verbs", AT_ONCE),
        ("oci_cluster.launcher.verbs/dropped", AT_ONCE),
        ("oci_cluster.backends.local.backend", AT_ONCE),
        ("oci_cluster.backends.local.backend/dropped", AT_ONCE),
        ("oci_cluster.backends.local.gpus", AT_ONCE),
        ("oci_cluster.backends.local.gpus/dropped", AT_ONCE),
    ],
)
def test_while_python_imports_modules(project: Project, gate: Gate, module: str, said: tuple[str, ...]) -> None:
    """Also while a destructor or a callback runs, out of which no exception comes: such a Ctrl-C was lost once."""
    launch = project.launch_plain(1, SLEEP, GATE=module, **gate.environ)
    gate.wait_for(launch)
    press(launch, gate)
    assert launch.err in said
    assert not project.cluster_dirs()


# --- While a launch is at work --------------------------------------------------------------------------------------


def test_while_an_environment_is_made(project: Project, gate: Gate, tmp_path: Path) -> None:
    """The installer ends with all that it has started, and nobody takes what it has left for an environment."""
    other = with_own_environments(project, tmp_path / "other")
    uv = tmp_path / "uv"
    version = 'if [ "$1" = --version ]; then echo uv 99.0; exit; fi'
    uv.write_text(f'#!/bin/sh\n{version}\ntrap "" TERM\nsleep 1000 &\necho $$ >"${{GATE_FILE}}"\nwait\n')
    uv.chmod(0o755)
    entry = other.write("entry.py", SLEEP)
    launch = other.launch("plain", "1", "--entry", entry, PATH=path_with_uv(tmp_path / "bin", uv), **gate.environ)
    gate.wait_for(launch)
    press(launch, gate)
    assert "environment of plain" in launch.err
    assert launch.err.endswith(AT_ONCE)
    assert not list((other.path / ".venv" / "envs").glob("plain/.made-*"))
    assert not other.cluster_dirs()


@pytest.mark.parametrize(
    "module",
    [
        "oci_cluster.launcher.launch.cluster_reaper",
        "oci_cluster.launcher.launch.cluster_reaper/dropped",
        "oci_cluster.backends.local.runner",
        "oci_cluster.launcher.follow.follower",
        "oci_cluster.launcher.follow.follower/dropped",
    ],
)
def test_while_nodes_are_started(project: Project, gate: Gate, module: str) -> None:
    """Before the runner, while that begins, and when nodes are there that nobody follows yet."""
    launch = project.launch_plain(1, SLEEP, GATE=module, **gate.environ)
    gate.wait_for(launch)
    press(launch, gate)


def test_while_workers_are_awaited(project: Project, gate: Gate) -> None:
    """Main is there, a worker is not."""
    entry = project.write("entry.py", SLEEP)
    words = ["gang", "1", "--entry", entry, "--python", sys.executable, "--env", "GATE_BASH=node-facts.sh/begin"]
    launch = project.launch(*words, "--env", f"BASH_ENV={GATES}/bash_env.sh", **gate.environ)
    gate.wait_for(launch)
    wait_until(lambda: " started: " in launch.err, lambda: launch.err)  # nodes may be there before the launcher knows
    press(launch, gate)
    assert "stopping cluster" in launch.err
    assert "entry up" not in launch.out


def test_while_the_script_runs(project: Project, gate: Gate) -> None:
    """And once more while it stops: who presses twice does not want to wait for the grace period."""
    script = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP
    launch = project.launch_plain(1, script, GRACE_PERIOD="600", **gate.environ)
    launch.wait_for("entry up")
    launch.interrupt()
    # What is pressed within a second counts as the same.
    wait_until(lambda: launch.interrupt() or "ending the cluster at once" in launch.err, lambda: launch.err)
    assert_stopped(launch, gate)
    assert "stopping cluster" in launch.err
    (listed,) = json.loads(project.run("list", "--all", "--json").stdout)
    assert (listed["state"], listed["exit_code"]) == ("STOPPED", 143)


SAVES = """
import os, signal, time
def save(*_):
    while not os.path.exists('go'): print('saving', flush=True) or time.sleep(0.1)
    raise SystemExit(print('saved', flush=True))
signal.signal(signal.SIGTERM, save)
print('entry up', flush=True)
while True: time.sleep(1)
"""


def test_one_that_the_script_passes_on_late_is_no_second_one(project: Project) -> None:
    """A machine so busy that launch.sh runs seconds after its Python: what the user's script saves is whole."""
    launch = project.launch_plain(0, SAVES, GRACE_PERIOD="600")
    launch.wait_for("entry up")
    launch.process.send_signal(signal.SIGSTOP)
    launch.interrupt()

    def wait_for_more(lines: int) -> None:  # of which ten take a second at least
        wanted = launch.out.count("saving") + lines
        wait_until(lambda: launch.out.count("saving") >= wanted or "ended" in launch.err, lambda: launch.err)

    wait_for_more(20)
    launch.process.send_signal(signal.SIGCONT)
    wait_for_more(20)
    project.go()
    assert launch.wait() == 143, launch.err
    assert "at once" not in launch.err.replace("Ctrl-C again ends it at once", "")
    assert "saved" in launch.out


def test_while_somebody_else_stops_the_cluster(project: Project, gate: Gate) -> None:
    """It is 143 either way."""
    script = (
        "import os, signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('told', flush=True))\n"
        "print('entry up', flush=True)\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
    )
    launch = project.launch_plain(1, script, "--name", "mine", GRACE_PERIOD="600", **gate.environ)
    launch.wait_for("entry up")
    stop = subprocess.Popen([project.path / "scripts" / "stop.sh", "mine"], env=project.environ, cwd=project.code)
    launch.wait_for("told")
    launch.interrupt()
    project.go()
    assert launch.wait() == 143
    assert stop.wait(60) == 0
    assert "Traceback" not in launch.err
    launch.assert_nothing_left()


# --- Other scripts --------------------------------------------------------------------------------------------------

# What a script is given to come to its verb.
SCRIPTS = {
    "check": ["plain", "1"],
    "connect": ["mine"],
    "from-ads": ["train.yaml"],
    "images": ["pin-base"],
    "launch": ["plain", "1"],
    "list": [],
    "logs": [],
    "new": ["plain", "project"],
    "queue": [],
    "quota": ["show"],
    "scale": ["mine", "+1"],
    "session": ["jupyter"],
    "setup": [],
    "status": [],
    "stop": [],
    "update": [],
}


def test_all_scripts_that_run_a_verb_are_known() -> None:
    """A new one is tested here, too."""
    scripts = Path(__file__).resolve().parents[2] / "scripts"
    assert {path.stem for path in scripts.glob("*.sh") if "\nrun_verb " in path.read_text()} == set(SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS)
def test_any_script_that_begins(project: Project, gate: Gate, script: str) -> None:
    """In bash, and in Python."""
    for held in ({"GATE_BASH": f"{script}.sh/source"}, {"GATE": "logging"}, {"GATE": "logging/dropped"}):
        gate.file.unlink(missing_ok=True)
        running = Launch(project, SCRIPTS[script], {**gate.environ, **held}, script)
        project.launches.append(running)
        gate.wait_for(running)
        press(running, gate)
        assert running.err == f"{script}.sh: stopped\n"


@pytest.mark.parametrize(
    ("script", "module"),
    [
        ("check", "oci_cluster.launcher.check.check"),
        ("images", "oci_cluster.images.build"),
        ("list", "oci_cluster.launcher.show.report"),
        ("logs", "oci_cluster.launcher.show.logs"),
        ("new", "oci_cluster.project.create"),
        ("session", "oci_cluster.launcher.session.session"),
        ("status", "oci_cluster.launcher.show.report"),
        ("stop", "oci_cluster.backends.local.backend"),
    ],
)
def test_any_script_at_work(project: Project, gate: Gate, script: str, module: str) -> None:
    """When it has a verb's own handlers, also where no exception gets out."""
    cluster = project.launch_plain(0, SLEEP)
    cluster.wait_for("entry up")
    for where in ("", "/dropped"):
        gate.file.unlink(missing_ok=True)
        running = Launch(project, SCRIPTS[script], {**gate.environ, "GATE": module + where}, script)
        project.launches.append(running)
        gate.wait_for(running)
        press(running, gate)
        assert running.err == f"{script}.sh: stopped\n"
    cluster.interrupt()
    assert cluster.wait() == 143


def test_images_while_the_engine_builds(project: Project, gate: Gate, tmp_path: Path) -> None:
    """The engine's client ends, too: it was told nothing, and would have built on."""
    (tmp_path / "docker").write_text(
        '#!/bin/sh\ncase "$1" in\n  build) echo $$ >>"${GATE_FILE}"; exec sleep 1000 ;;\n  *) echo \'{}\' ;;\nesac\n'
    )
    (tmp_path / "docker").chmod(0o755)
    environ = {**gate.environ, "DOCKER": str(tmp_path / "docker"), "TMPDIR": str(tmp_path)}
    building = Launch(project, ["build", "dask", "ray"], environ, "images")
    project.launches.append(building)
    gate.wait_for(building)
    press(building, gate)
    assert building.err.endswith("images.sh: stopped\n")


@pytest.mark.parametrize("word", ["source", "cd"])
def test_smoke_while_it_begins_and_while_its_launch_does(project: Project, gate: Gate, word: str) -> None:
    """It has a loop of its own in bash."""
    held = f"{'smoke' if word == 'source' else 'launch'}.sh/{word}"
    smoke = Launch(project, ["dask"], {**gate.environ, "GATE_BASH": held}, "smoke")
    project.launches.append(smoke)
    gate.wait_for(smoke)
    press(smoke, gate)
    assert smoke.err.endswith("smoke.sh: stopped\n")
