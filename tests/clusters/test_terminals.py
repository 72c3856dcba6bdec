"""Real shells in a terminal: what TAB completes, and what is shown there, with colours or without."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import UNTIL_GO, Project
from terminal import Terminal, plain, why_not

# The last one is a bash without what came after the 3.2 of macOS.
SHELLS = ["bash", "zsh", "old bash"]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, project: Project) -> Iterator[Terminal]:
    """Return a terminal with a shell that completes the words behind the project's scripts."""
    with opened(request.param, project) as terminal:
        assert plain(terminal.run(f'eval "$({shlex.quote(str(project.path))}/scripts/completion.sh)"')).strip() == ""
        yield terminal


def opened(name: str, project: Project, directory: Path | None = None, columns: int = 200) -> Terminal:
    """Return a terminal with the shell *name* in the folder of the user's code, or another."""
    program = name.removeprefix("old ")
    if reason := why_not(program):
        pytest.skip(reason)
    terminal = Terminal(program, directory or project.code, project.environ, columns)
    if name == "old bash":
        terminal.run("enable -n compopt mapfile readarray")
    return terminal


def keep(project: Project, cluster_id: str, backend: str = "local") -> None:
    """Keep a cluster that has ended, as a launch does."""
    directory = project.path / ".clusters" / cluster_id
    directory.mkdir(parents=True)
    nodes = [{"node": "MAIN"}, {"node": "WORKER_1"}]
    plan = {"framework": "dask", "backend": backend, "created": "2026-01-01T00:00:00Z", "nodes": nodes}
    (directory / "cluster.json").write_text(json.dumps(plan))


def typed(terminal: Terminal, text: str) -> str:
    return terminal.complete(text)[0]


def words(terminal: Terminal, text: str) -> set[str]:
    """Return the words of what is shown to choose from."""
    return set(terminal.complete(text)[1].split())


def test_a_script_is_completed_however_it_is_called(shell: Terminal, project: Project) -> None:
    """By a relative or an absolute path, from another folder, with a blank in it; quoted, or on PATH."""
    quoted = str(project.path).replace(" ", r"\ ")
    for called in (
        f"{quoted}/scripts/launch.sh",
        f'"{project.path}/scripts/launch.sh"',
        f"'{project.path}/scripts/launch.sh'",
        os.path.relpath(project.path, project.code).replace(" ", r"\ ") + "/scripts/launch.sh",
    ):
        assert typed(shell, f"{called} pytor") == f"{called} pytorch "
    shell.run(f"cd {quoted}")
    for called in (
        "./scripts/launch.sh",
        "scripts/launch.sh",
        f"cd / && {quoted}/scripts/launch.sh",
        "BACKEND=oci NOTHING= ./scripts/launch.sh",
    ):
        assert typed(shell, f"{called} dask 3 --bac") == f"{called} dask 3 --backend "
    shell.run("cd scripts; PATH=$PWD:$PATH")
    assert typed(shell, "./launch.sh --backend kub") == "./launch.sh --backend kubernetes "
    assert typed(shell, "launch.sh --backend=kub") == "launch.sh --backend=kubernetes "


def test_what_is_not_known_alone_is_shown_to_choose_from(shell: Terminal, project: Project) -> None:
    """Frameworks, of which folders have the names, and options."""
    shell.run(f"cd {shlex.quote(str(project.path))}")
    assert typed(shell, "./scripts/launch.sh das") == "./scripts/launch.sh dask "
    assert {"dask", "horovod", "plain", "pytorch", "ray", "tensorflow"} <= words(shell, "./scripts/launch.sh ")
    assert {"--all", "--backend", "--json"} <= words(shell, "./scripts/list.sh --")
    assert {"jupyter", "ssh", "tensorboard"} <= words(shell, "scripts/session.sh ")


def test_files_and_folders_are_completed_where_an_option_takes_one(shell: Terminal, project: Project) -> None:
    """With their blanks quoted."""
    (project.code / "my folder" / "inner").mkdir(parents=True)
    (project.code / "my script.py").touch()
    launch = str(project.path / "scripts" / "launch.sh").replace(" ", r"\ ")
    for begun, whole in (
        (r"dask 3 --entry my\ s", r"dask 3 --entry my\ script.py "),
        (r"dask 3 --entry=my\ s", r"dask 3 --entry=my\ script.py "),
        (r"dask 3 -- my\ s", r"dask 3 -- my\ script.py "),
        (r"--code my\ f", r"--code my\ folder/"),
        (r"--code my\ folder/i", r"--code my\ folder/inner/"),
    ):
        assert typed(shell, f"{launch} {begun}") == f"{launch} {whole}"


def test_clusters_that_are_kept_here_are_completed(shell: Terminal, project: Project) -> None:
    """And their nodes; those of the backend that is meant."""
    keep(project, "digits-1234abcd")
    keep(project, "letters-1234abce", backend="oci")
    shell.run(f"cd {shlex.quote(str(project.path))}; export BACKEND=local")
    assert typed(shell, "scripts/stop.sh ") == "scripts/stop.sh digits "
    assert typed(shell, "scripts/logs.sh --backend oci let") == "scripts/logs.sh --backend oci letters "
    assert typed(shell, "scripts/logs.sh digits --node W") == "scripts/logs.sh digits --node WORKER_1 "


def test_a_header_that_changes_and_a_new_script_change_what_is_completed(shell: Terminal, project: Project) -> None:
    """The header at once; a script with the next eval."""
    script = project.path / "scripts" / "greet.sh"
    script.write_text("#!/usr/bin/env bash\n# Usage: greet.sh [--loudly]\n#\n#   --loudly  shout\n")
    try:
        shell.run(f"cd {shlex.quote(str(project.path))}")
        shell.run('eval "$(scripts/completion.sh)"')
        assert typed(shell, "scripts/greet.sh --lou") == "scripts/greet.sh --loudly "
        script.write_text(script.read_text().replace("--loudly", "--louder"))
        assert typed(shell, "scripts/greet.sh --lou") == "scripts/greet.sh --louder "
    finally:
        script.unlink()


def test_scripts_of_others_are_left_alone(shell: Terminal, project: Project) -> None:
    """They may have the same name: files are completed there, and nothing is run."""
    mine = project.code / "scripts"
    mine.mkdir()
    (mine / "launch.sh").write_text("#!/bin/sh\n: >ran\n")
    (mine / "launch.sh").chmod(0o755)
    (project.code / "pytorchish.txt").touch()
    assert typed(shell, "scripts/launch.sh pyt") == "scripts/launch.sh pytorchish.txt "
    assert not (project.code / "ran").exists()


def test_without_a_python_files_are_completed(shell: Terminal, project: Project) -> None:
    """In silence: nobody who presses TAB wants to read of it."""
    for folder in ("common", "scripts"):
        shutil.copytree(project.path / folder, project.code / folder)
    (project.code / "pytorchish.txt").touch()
    shell.run('PYTHON=/none; eval "$(scripts/completion.sh)"')
    assert typed(shell, "scripts/launch.sh pyt") == "scripts/launch.sh pytorchish.txt "
    shell.run(f"PYTHON={shlex.quote(sys.executable)}")
    assert typed(shell, "scripts/launch.sh --backend kub") == "scripts/launch.sh --backend kubernetes "


@pytest.mark.quiet
@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_a_tab_is_quick(name: str, project: Project) -> None:
    """Less than 0.2 s, with a hundred clusters kept."""
    for number in range(100):
        keep(project, f"digits-{number}-1234abcd")
    with opened(name, project, project.path) as terminal:
        terminal.run('eval "$(scripts/completion.sh)"')
        assert "digits-99" in words(terminal, "scripts/stop.sh digits-9")
        project.assert_quick(lambda: terminal.seconds_of("scripts/stop.sh digits-99"), 0.2)


def test_a_terminal_gets_colours_unless_they_are_unwanted(project: Project) -> None:
    """NO_COLOR and a terminal that is dumb get the same as a file."""
    launch = project.launch_plain(1, "print('\\033[31mred\\033[0m')", "--name", "demo")
    assert launch.wait() == 0, launch.err
    shown = project.run("logs", "demo").stdout
    with opened("bash", project, project.path) as terminal:
        assert "\x1b[" in terminal.run("scripts/logs.sh demo")
        for setting in ("NO_COLOR=1", "TERM=dumb"):
            assert terminal.run(f"{setting} scripts/logs.sh demo").replace("\r", "").lstrip("\n") == shown
            status = terminal.run(f"{setting} scripts/status.sh demo") + terminal.run(f"{setting} scripts/list.sh")
            assert "\x1b" not in status


@pytest.mark.parametrize("columns", [80, 120])
def test_list_and_status_fit_the_terminal(project: Project, columns: int) -> None:
    """A long name is shortened there, and whole for programs; a wide terminal shows all."""
    name = "team-vision-resnet-50-imagenet-sweep-of-learning-rates"
    launch = project.launch_plain(1, UNTIL_GO, "--name", name, "--detach", "--wait")
    assert launch.wait() == 0, launch.err
    with opened("bash", project, project.path, columns) as terminal:
        listed = terminal.run("scripts/list.sh").split()
        lines = plain(terminal.run("scripts/list.sh") + terminal.run(f"scripts/status.sh {name}")).splitlines()
    assert (name in listed) is (columns == 120)
    assert [line for line in lines if len(line) > columns and not line.startswith("files: ")] == []
    assert name in project.run("list").stdout.split()
    assert json.loads(project.run("list", "--json").stdout)[0]["name"] == name
    project.go()
