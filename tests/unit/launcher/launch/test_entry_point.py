"""Which code, which entry point and which interpreter a launch takes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from unit.launcher.fake_checkout import HINT, Checkout, refusal

from oci_cluster.errors import SettingsError, UsageError

# Longer than a name may be on any disk.
LONG = 300 * "n"

# --- Code and entry point -------------------------------------------------------------------------------------------


def test_a_scripts_own_folder_is_the_code_directory(checkout: Checkout) -> None:
    """Without --code the folder of the script is, blanks or not."""
    assert checkout.code(ENTRY_POINT="my script.py") == (str(checkout.cwd), "my script.py")


def test_an_absolute_script_is_found(checkout: Checkout, tmp_path: Path) -> None:
    """A script can be anywhere on this machine."""
    script = tmp_path / "elsewhere" / "run.py"
    script.parent.mkdir()
    script.touch()
    assert checkout.code(ENTRY_POINT=str(script)) == (str(script.parent.resolve()), "run.py")


def test_a_script_can_lie_deep_in_the_code_directory(checkout: Checkout) -> None:
    """With --code the entry point keeps its folders: workers import from the code directory."""
    (checkout.cwd / "src" / "jobs").mkdir(parents=True)
    (checkout.cwd / "src" / "jobs" / "run.py").touch()
    expected = (str(checkout.cwd / "src"), "jobs/run.py")
    assert checkout.code(CODE_DIR="src", ENTRY_POINT="src/jobs/run.py") == expected
    assert checkout.code(CODE_DIR="src", ENTRY_POINT="jobs/run.py") == expected


def test_a_script_as_typed_wins_over_one_of_its_name_in_the_code(checkout: Checkout) -> None:
    """A path that is right from here, as completion gives it, is taken before one inside the code directory."""
    for folder in ("src", "src/src"):
        (checkout.cwd / folder).mkdir()
        (checkout.cwd / folder / "run.py").touch()
    assert checkout.code(CODE_DIR="src", ENTRY_POINT="src/run.py") == (str(checkout.cwd / "src"), "run.py")


def test_a_script_outside_the_code_that_has_one_of_its_name_is_passed_over(checkout: Checkout) -> None:
    """A file of that name here, but outside the code directory, does not hide the one inside it."""
    (checkout.cwd / "src").mkdir()
    (checkout.cwd / "src" / "my script.py").touch()
    assert checkout.code(CODE_DIR="src", ENTRY_POINT="my script.py") == (str(checkout.cwd / "src"), "my script.py")


def test_a_linked_code_directory_is_resolved(checkout: Checkout, tmp_path: Path) -> None:
    """Nodes get the real directory: a link may be another one's tomorrow."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "run.py").touch()
    (checkout.cwd / "link").symlink_to(tmp_path / "real")
    expected = (str((tmp_path / "real").resolve()), "run.py")
    assert checkout.code(CODE_DIR="link", ENTRY_POINT="link/run.py") == expected


def test_a_linked_script_runs_where_it_is(checkout: Checkout, tmp_path: Path) -> None:
    """Without --code a link is followed: the script's neighbours are beside the real file."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "run.py").touch()
    (checkout.cwd / "link.py").symlink_to(tmp_path / "real" / "run.py")
    assert checkout.code(ENTRY_POINT="link.py") == (str((tmp_path / "real").resolve()), "run.py")


def test_a_script_outside_the_code_directory_is_refused(checkout: Checkout) -> None:
    """--code decides what nodes get: a script outside of it, or a link that leads outside, is refused."""
    (checkout.cwd / "src").mkdir()
    (checkout.cwd / "src" / "link.py").symlink_to(checkout.cwd / "my script.py")
    said = [
        refusal(UsageError, checkout, settings={"CODE_DIR": "src", "ENTRY_POINT": entry})
        for entry in ("my script.py", "link.py", "../my script.py")
    ]
    assert said == [
        f"--entry: there is no file '{entry}' in '{checkout.cwd}' or 'src'; give the path of your script"
        for entry in ("my script.py", "link.py", "../my script.py")
    ]


def test_a_script_that_is_not_there_is_named(checkout: Checkout) -> None:
    """With the folder that was looked into, by the flag or the variable that names it."""
    why = f"there is no file 'nope.py' in '{checkout.cwd}'; give the path of your script"
    assert refusal(UsageError, checkout, settings={"ENTRY_POINT": "nope.py"}) == f"--entry: {why}"
    said = refusal(SettingsError, checkout, {"ENTRY_POINT": "nope.py"})
    assert said == f"bad settings: ENTRY_POINT: {why} {HINT}"


@pytest.mark.parametrize("uri", ["image", "git+https://example.com/me/project@v1"])
@pytest.mark.parametrize(
    ("setting", "given", "run"),
    [
        ("ENTRY_POINT", "train.py", "train.py"),
        ("ENTRY_POINT", "/code/jobs/train.py", "jobs/train.py"),
        ("ENTRY_MODULE", "package.train", "package.train"),
    ],
)
def test_code_that_is_elsewhere_needs_no_file_here(
    checkout: Checkout, uri: str, setting: str, given: str, run: str
) -> None:
    """In an image, or in a repository; nodes look for it."""
    plan = checkout.plan(backend="docker", settings={setting: given}, environ={"CODE_URI": uri})
    assert plan.environment[setting] == run


@pytest.mark.parametrize("entry", ["../train.py", "/home/me/train.py", "jobs/../../train.py"])
def test_a_script_outside_of_code_that_is_elsewhere_is_refused(checkout: Checkout, entry: str) -> None:
    said = refusal(
        UsageError, checkout, backend="docker", settings={"ENTRY_POINT": entry}, environ={"CODE_URI": "image"}
    )
    assert f"'{entry}' is not in the code of CODE_URI" in said


def test_nodes_of_this_machine_take_code_from_here_alone(checkout: Checkout) -> None:
    said = refusal(UsageError, checkout, settings={"ENTRY_POINT": "nope.py"}, environ={"CODE_URI": "image"})
    assert "there is no file 'nope.py'" in said


def test_a_folder_is_no_script(checkout: Checkout) -> None:
    """How its script is named is said."""
    (checkout.cwd / "job").mkdir()
    assert refusal(UsageError, checkout, settings={"ENTRY_POINT": "job"}) == (
        "--entry: 'job' is a folder; name the script: --code job --entry FILE"
    )


def test_what_no_node_could_run_is_refused(checkout: Checkout) -> None:
    """Before a cluster is started for it."""
    (checkout.cwd / "run.sh").touch(mode=0o644)
    assert refusal(UsageError, checkout, settings={"ENTRY_POINT": "run.sh"}) == (
        "--entry: 'run.sh' is not executable; allow it: chmod +x run.sh"
    )


def test_a_script_of_windows_lines_is_refused_and_a_python_needs_no_name_in_small_letters(checkout: Checkout) -> None:
    """The kernel takes the line's end for a part of the interpreter's name, and says that there is no such file."""
    script = checkout.cwd / "run.sh"
    script.write_bytes(b"#!/bin/bash\r\necho hi\r\n")
    script.chmod(0o755)
    assert refusal(UsageError, checkout, settings={"ENTRY_POINT": "run.sh"}) == (
        "--entry: 'run.sh' has Windows line ends (CRLF), and cannot be run; convert it: sed -i 's/\\r$//' run.sh"
    )
    (checkout.cwd / "T.PY").write_bytes(b"#!/usr/bin/python3\r\nprint(1)\r\n")
    assert checkout.code(ENTRY_POINT="T.PY") == (str(checkout.cwd), "T.PY")


def test_a_notebook_is_an_entry_point_without_arguments(checkout: Checkout) -> None:
    """It has nothing that would read them."""
    (checkout.cwd / "a.ipynb").touch(mode=0o644)
    assert checkout.plan(settings={"ENTRY_POINT": "a.ipynb"}).environment["ENTRY_POINT"] == "a.ipynb"
    for asked in ({"arguments": ["--epochs", "3"]}, {"environment": ["NAMED_ARGS=lr=0.1"]}):
        said = refusal(SettingsError, checkout, settings={"ENTRY_POINT": "a.ipynb"}, **asked)
        assert "ARGS: a notebook takes no arguments; give it variables: --env NAME=VALUE" in said


def test_a_program_is_an_entry_point(checkout: Checkout) -> None:
    """Whatever it is written in."""
    (checkout.cwd / "run.sh").touch(mode=0o755)
    assert checkout.plan(settings={"ENTRY_POINT": "run.sh"}).environment["ENTRY_POINT"] == "run.sh"


def test_code_without_an_entry_point_is_refused(checkout: Checkout) -> None:
    """With --code alone nobody knows what to run."""
    (checkout.cwd / "src").mkdir()
    assert refusal(UsageError, checkout, settings={"CODE_DIR": "src"}) == (
        "--code 'src' has no entry point: say with --entry which file in it is to be run"
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"python": LONG},
        *({"settings": settings} for settings in ({"ENTRY_POINT": LONG}, {"CODE_DIR": LONG}, {"ENTRY_MODULE": LONG})),
    ],
)
def test_what_the_system_refuses_to_look_at_is_named(checkout: Checkout, asked: dict[str, Any]) -> None:
    """In the system's words: too long a name, or a file in a folder that is another user's."""
    found = refusal(UsageError, checkout, **asked)
    assert found.startswith(f"{checkout.cwd / LONG}")
    assert found.endswith(" cannot be looked at: File name too long; allow it, or name another")


def test_a_framework_without_an_example_needs_an_entry_point(checkout: Checkout) -> None:
    """Where there is no example to run, the message says how to name a script."""
    (checkout.root / "dask" / "example" / "train.py").unlink()
    assert refusal(SettingsError, checkout) == (
        f"bad settings: ENTRY_POINT is not set, dask has no example; give your script: --entry {HINT}"
    )


def test_code_of_a_kept_cluster_needs_no_entry_point(checkout: Checkout) -> None:
    """ENTRY_POINT is required with EPHEMERAL=1 only: a kept cluster's workers can import from --code."""
    (checkout.cwd / "src").mkdir()
    assert checkout.code(CODE_DIR="src", EPHEMERAL="0") == (str(checkout.cwd / "src"), "")


def test_workers_of_a_kept_cluster_import_from_here(checkout: Checkout) -> None:
    """Without --code a kept cluster's code directory is the one in which its user stands."""
    assert checkout.code(EPHEMERAL="0") == (str(checkout.cwd), "")


def test_code_of_a_kept_cluster_that_is_none_is_named(checkout: Checkout) -> None:
    """A code directory that is not there is refused for a kept cluster too."""
    assert refusal(UsageError, checkout, settings={"CODE_DIR": "none", "EPHEMERAL": "0"}) == (
        "--code: 'none' is not a directory"
    )


def test_a_code_directory_that_is_none_is_named(checkout: Checkout) -> None:
    """A code directory that is not there is named beside the script that is then missing too."""
    assert refusal(UsageError, checkout, settings={"CODE_DIR": "none", "ENTRY_POINT": "run.py"}) == (
        "--code: 'none' is not a directory;"
        f" --entry: there is no file 'run.py' in '{checkout.cwd}' or 'none'; give the path of your script"
    )


# --- A module -------------------------------------------------------------------------------------------------------


def module(checkout: Checkout, path: str = "package/train.py") -> None:
    """Put a file of a package into the user's folder."""
    (checkout.cwd / path).parent.mkdir(parents=True, exist_ok=True)
    (checkout.cwd / path).touch()


def test_a_module_is_imported_from_here(checkout: Checkout) -> None:
    """Without --code the root of imports is the folder in which its user stands, as with python -m."""
    module(checkout)
    environment = checkout.environment(settings={"ENTRY_MODULE": "package.train"})
    assert (environment["CODE_DIR"], environment["ENTRY_MODULE"]) == (str(checkout.cwd), "package.train")
    assert "ENTRY_POINT" not in environment


def test_a_module_is_imported_from_the_code_directory(checkout: Checkout) -> None:
    """--code names the root; a package is run by its __main__."""
    module(checkout, "src/package/__main__.py")
    environment = checkout.environment(settings={"ENTRY_MODULE": "package", "CODE_DIR": "src"})
    assert (environment["CODE_DIR"], environment["ENTRY_MODULE"]) == (str(checkout.cwd / "src"), "package")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("package.tran", "there is no module 'package.tran' in 'HERE'; its root is named with --code DIR"),
        ("package", "'package' is a package without __main__.py; name a module in it: package.NAME"),
        ("package.train.py", "'package.train.py' is a file's name; a module is named without .py: package.train"),
        ("package/train.py", "'package/train.py' is not the name of a module, such as package.train"),
    ],
)
def test_a_module_that_cannot_be_run_is_refused(checkout: Checkout, name: str, why: str) -> None:
    """Before a cluster is started for it."""
    module(checkout)
    said = refusal(UsageError, checkout, settings={"ENTRY_MODULE": name})
    assert said == f"--module: {why.replace('HERE', str(checkout.cwd))}"


def test_a_module_and_a_script_contradict_each_other(checkout: Checkout) -> None:
    """Where one place names both."""
    module(checkout)
    said = refusal(UsageError, checkout, settings={"ENTRY_MODULE": "package.train", "ENTRY_POINT": "my script.py"})
    assert said == "--module 'package.train' and --entry 'my script.py': only one of them can be run; leave one out"


def test_what_is_typed_wins_over_the_other_kind(checkout: Checkout) -> None:
    """A flag wins over config.env, whichever of the two each names."""
    module(checkout)
    checkout.config("ENTRY_POINT=my\\ script.py")
    found = checkout.environment(settings={"ENTRY_MODULE": "package.train"})
    assert (found.get("ENTRY_POINT"), found.get("ENTRY_MODULE")) == (None, "package.train")
    checkout.config("ENTRY_MODULE=package.train")
    found = checkout.environment(settings={"ENTRY_POINT": "my script.py"})
    assert (found.get("ENTRY_POINT"), found.get("ENTRY_MODULE")) == ("my script.py", "")


def test_a_script_is_not_hidden_by_a_module_of_the_environment(checkout: Checkout) -> None:
    """Which nodes of this machine would inherit, and which would win there."""
    found = checkout.environment({"ENTRY_MODULE": "package.train"}, settings={"ENTRY_POINT": "my script.py"})
    assert (found["ENTRY_POINT"], found["ENTRY_MODULE"]) == ("my script.py", "")


def test_a_kept_cluster_runs_no_module(checkout: Checkout) -> None:
    """As it runs no script."""
    module(checkout)
    said = refusal(UsageError, checkout, settings={"ENTRY_MODULE": "package.train", "EPHEMERAL": "0"})
    assert said == "--module 'package.train' would not be run: with --keep a cluster runs no script; leave it out"


# --- Folders of outputs ---------------------------------------------------------------------------------------------


def test_folders_of_outputs_reach_the_nodes(checkout: Checkout) -> None:
    """One that is not there, one that is empty, and one with hidden files alone."""
    (checkout.cwd / "empty").mkdir()
    (checkout.cwd / "kept").mkdir()
    (checkout.cwd / "kept" / ".gitkeep").touch()
    found = checkout.environment(settings={"ENTRY_POINT": "my script.py", "OUTPUT_FOLDERS": "none,empty,kept"})
    assert found["OUTPUT_FOLDERS"] == "none,empty,kept"


def test_a_folder_of_outputs_with_files_is_refused(checkout: Checkout) -> None:
    """A script would not see them there: one that resumes would begin anew, and nobody would know why."""
    (checkout.cwd / "checkpoints").mkdir()
    (checkout.cwd / "checkpoints" / "last.pt").touch()
    said = refusal(UsageError, checkout, settings={"ENTRY_POINT": "my script.py", "OUTPUT_FOLDERS": "x,checkpoints"})
    assert said == (
        f"--outputs: '{checkout.cwd}/checkpoints' has files, which the nodes would not see there; "
        "move them to another folder, or name another"
    )


# --- An interpreter of the user's own -------------------------------------------------------------------------------


def executable(path: Path) -> Path:
    """Put a program to the file *path*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o755)
    return path


def test_an_interpreter_is_kept_by_its_own_path(checkout: Checkout) -> None:
    """A venv's python is a link that must stay one: it is made absolute, and not resolved."""
    real = executable(checkout.cwd / "base" / "python3.11")
    (checkout.cwd / "venv" / "bin").mkdir(parents=True)
    (checkout.cwd / "venv" / "bin" / "python").symlink_to(real)
    assert checkout.plan(python="venv/bin/python").python == str(checkout.cwd / "venv" / "bin" / "python")


def test_an_environments_folder_stands_for_its_interpreter(checkout: Checkout) -> None:
    """--python DIR means DIR/bin/python."""
    python = executable(checkout.cwd / "venv" / "bin" / "python")
    assert checkout.plan(python="venv").python == str(python)


def test_a_home_folder_is_expanded(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """~ is understood where the shell has left it, as in --python=~/venv."""
    monkeypatch.setenv("HOME", str(checkout.cwd))
    python = executable(checkout.cwd / "venv" / "bin" / "python")
    assert checkout.plan(python="~/venv").python == str(python)


def test_a_command_on_path_is_an_interpreter(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell would find it; what lies here under that name comes first, as it was before."""
    python = executable(checkout.cwd / "bin" / "python3.99")
    monkeypatch.setenv("PATH", str(python.parent), prepend=os.pathsep)
    assert checkout.plan(python="python3.99").python == str(python)
    here = executable(checkout.cwd / "python3.99")
    assert checkout.plan(python="python3.99").python == str(here)


@pytest.mark.parametrize("text", ["none", "empty", "my script.py", "~nobody-of-this-name/venv"])
def test_what_cannot_be_run_is_no_interpreter(checkout: Checkout, text: str) -> None:
    """A missing file, a folder without one, and a file that is not executable are wrong usage."""
    (checkout.cwd / "empty").mkdir()
    assert refusal(UsageError, checkout, python=text) == (
        f"--python {text} is not an executable; give a Python interpreter, or an environment's folder"
    )
