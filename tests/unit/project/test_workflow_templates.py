"""The workflows that projects copy: they say what GitHub and GitLab know, and their scripts end as they should."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.project.user_project import ROOT, write
from unit.test_workflows import unpinned

from oci_cluster.contract.settings.schema import DECIDED, SETTINGS

TEMPLATES = ROOT / "scripts" / "templates" / "workflows"
# What a workflow says of itself, beside settings.
_OWN = {"CLUSTER_FRAMEWORK", "WORKERS", "CLUSTER"}


def read(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((TEMPLATES / name).read_text())
    return found


def github_steps() -> dict[str, dict[str, Any]]:
    return {step.get("name", step.get("uses")): step for step in read("github.yaml")["jobs"]["train"]["steps"]}


def run(words: list[str], place: Path, **codes: int) -> int:
    """Run the lines of a step, one after the other as a CI does, where each script ends with a code of *codes*."""
    for script in ("launch", "stop"):
        text = f'#!/bin/sh\necho "{script} $*" >>calls\nexit {codes.get(script, 0)}\n'
        write(place / "scripts" / f"{script}.sh", text, 0o755)
    write(place / "Makefile", "%:\n\t@echo make $@ >>calls\n")
    environ = {"PATH": os.environ["PATH"], "CLUSTER_FRAMEWORK": "dask", "WORKERS": "2", "CLUSTER": "train-1"}
    return subprocess.run(["bash", "-e", "-c", "\n".join(words)], cwd=place, env=environ, check=False).returncode


STEPS = {
    "github": [step["run"] for name, step in github_steps().items() if name in {"Build and push", "Launch"}],
    "gitlab": read("gitlab.yaml")["train"]["script"],
}
STOPS = {"github": [github_steps()["Stop"]["run"]], "gitlab": read("gitlab.yaml")["train"]["after_script"]}


@pytest.mark.parametrize("name", STEPS)
def test_a_workflow_builds_pushes_and_launches(name: str, tmp_path: Path) -> None:
    assert run(STEPS[name], tmp_path) == 0
    assert (tmp_path / "calls").read_text().splitlines() == [
        "make clusters-build-dask",
        "make clusters-push-dask",
        "launch dask 2 --name train-1",
    ]


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("code", [1, 7, 69, 143])
def test_a_workflow_fails_with_the_scripts_exit_code(name: str, code: int, tmp_path: Path) -> None:
    assert run(STEPS[name], tmp_path, launch=code) == code


@pytest.mark.parametrize("name", STOPS)
@pytest.mark.parametrize(("code", "ended"), [(0, 0), (2, 0), (69, 1), (77, 1)])
def test_a_cluster_that_was_never_started_is_stopped_and_others_are_not_forgotten(
    name: str, code: int, ended: int, tmp_path: Path
) -> None:
    assert run(STOPS[name], tmp_path, stop=code) == ended
    assert (tmp_path / "calls").read_text() == "stop train-1\n"


LOGINS = {
    "github": [github_steps()["Credentials"]["run"]],
    "gitlab": read("gitlab.yaml")["train"]["before_script"][-3:],
}
ENDS = {"github": [github_steps()["Remove credentials"]["run"]], "gitlab": STOPS["gitlab"]}
# Keeps what it is told until it is told to forget it, as docker's own does where it has no helper.
DOCKER = """#!/bin/sh
case "$1" in
  login) mkdir -p ~/.docker && { echo "$2" && cat; } >~/.docker/config.json ;;
  logout) grep -q "$2" ~/.docker/config.json && rm ~/.docker/config.json ;;
esac
"""


@pytest.mark.parametrize("name", LOGINS)
@pytest.mark.parametrize("code", [0, 69])
def test_no_credentials_stay_on_the_machine(name: str, code: int, tmp_path: Path) -> None:
    """Which may be a runner of one's own; also where the cluster could not be stopped."""
    write(tmp_path / "bin" / "docker", DOCKER, 0o755)
    home, given = tmp_path / "home", {"OCI_CONFIG": "[DEFAULT]", "OCI_KEY": "PRIVATE KEY"}
    home.mkdir()
    if name == "gitlab":  # there these are files
        given = {variable: str(write(tmp_path / variable, text)) for variable, text in given.items()}
    login = {"HOME": str(home), "REGISTRY": "iad.ocir.io/n/r", "REGISTRY_USER": "u", "REGISTRY_PASSWORD": "secret"}
    environ = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "CLUSTER": "train-1", **login, **given}

    def bash(words: list[str]) -> None:
        subprocess.run(["bash", "-e", "-c", "\n".join(words)], cwd=tmp_path, env=environ, check=False)

    bash(LOGINS[name])
    assert {path.name for path in home.rglob("*") if path.is_file()} == {"config", "key.pem", "config.json"}
    write(tmp_path / "scripts" / "stop.sh", f"#!/bin/sh\nexit {code}\n", 0o755)
    bash(ENDS[name])
    assert [path for path in home.rglob("*") if path.is_file()] == []


def test_github_runs_on_a_tag_and_stops_in_any_case() -> None:
    workflow = read("github.yaml")
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 has `on` for true
    assert workflow["permissions"] == {"contents": "read"}
    steps = github_steps()
    assert [*steps][-3:] == ["Launch", "Stop", "Remove credentials"]
    assert steps["Stop"]["if"] == steps["Remove credentials"]["if"] == "always()"
    assert not [step for step in steps.values() if "continue-on-error" in step]
    assert [name for name, step in steps.items() if "secrets." in str(step)] == ["Credentials"]
    assert "secrets." not in str(workflow["env"])


def test_gitlab_runs_on_a_tag_and_stops_in_any_case() -> None:
    job = read("gitlab.yaml")["train"]
    assert job["rules"] == [{"if": "$CI_COMMIT_TAG =~ /^v/"}]
    assert "allow_failure" not in job
    assert job["interruptible"] is False


def test_actions_are_named_by_commits_as_our_own() -> None:
    text = (TEMPLATES / "github.yaml").read_text()
    assert unpinned(text) == []
    ours = "".join(path.read_text() for path in (ROOT / ".github" / "workflows").iterdir())
    assert [line for line in re.findall(r"uses: (.*)", text) if line not in ours] == []


@pytest.mark.parametrize(
    "given", [read("github.yaml")["env"], read("gitlab.yaml")["train"]["variables"]], ids=["github", "gitlab"]
)
def test_what_is_set_are_settings_that_there_are(given: dict[str, str]) -> None:
    assert [name for name in given if name not in {*SETTINGS, *_OWN} and not name.startswith("DOCKER_")] == []
    assert not set(given) & set(DECIDED), "each node has its own"
