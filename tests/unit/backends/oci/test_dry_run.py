"""The dry run, which says what a launch sends in the words of oci-cli."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.backends.oci.bodies import EVERYTHING, HOSTILE, bodies
from unit.fake_oci import COMPARTMENT, PROJECT, SUBNET, Checkout, body_of, option_of, with_environment

from oci_cluster.backends.oci import requests as oci_requests
from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import SettingsError


def dry_run(checkout: Checkout, plan: Plan, *, as_json: bool = False) -> str:
    """Return what --dry-run prints of a launch of *plan*."""
    return oci_requests.preview(oci_requests.place(plan, checkout.root), checkout.root, as_json=as_json)


def words_of(body: dict[str, Any]) -> list[str]:
    """Return the options that what --from-json takes stands for."""
    return [word for name, text in oci_requests.cli_input(body).items() for word in (option_of(name), text)]


def test_every_parameter_is_a_text(checkout: Checkout) -> None:
    """Texts are themselves, all else is JSON; fields that oci-cli has renamed have its name."""
    job, runs = bodies(checkout, **EVERYTHING)
    given = oci_requests.cli_input(job)
    assert list(given.items())[:2] == [("compartmentId", COMPARTMENT), ("projectId", PROJECT)]
    assert all(isinstance(text, str) for text in given.values())
    assert body_of(words_of(job)) == job
    run = runs["WORKER_1"]
    words = words_of(run)
    assert words[:2] == ["--job-id", "ocid1.job"]
    assert body_of(words[2:]) == {name: value for name, value in run.items() if name != "jobId"}


@pytest.mark.parametrize("what", ["job", "job-run"])
def test_oci_cli_has_every_option(checkout: Checkout, what: str) -> None:
    """The genuine oci-cli is asked: an option that it does not have would end every launch."""
    program = Path(sys.executable).with_name("oci")
    shown = subprocess.run(
        [program, "data-science", what, "create", "--help"], check=True, capture_output=True, text=True
    ).stdout
    words = set()
    for style in ("runs", "multinode"):
        job, runs = bodies(checkout, OCI_JOB_STYLE=style, **EVERYTHING)
        words |= set(words_of(job if what == "job" else runs["MAIN"])[::2])
    assert len(words) > 4
    assert sorted(word for word in words if f"{word} " not in shown and f"{word},{' '}" not in shown) == []


STUB_OCI = """#!/bin/sh
{ printf '%s\\0' "$@"; printf '\\0'; } >>"$CALLS"
[ "$2 $3" != "job create" ] || echo ocid1.created
"""


def sent(place: Path, script: str, shell: str = "/bin/sh") -> list[list[str]]:
    """Run *script* where `oci` only notes what it is asked; return that."""
    (place / "bin").mkdir(exist_ok=True)
    (place / "bin" / "oci").write_text(STUB_OCI)
    (place / "bin" / "oci").chmod(0o755)
    calls = place / "calls"
    calls.unlink(missing_ok=True)
    environ = {"PATH": f"{place}/bin:/usr/bin:/bin", "CALLS": str(calls)}
    done = subprocess.run(
        [shell, "-eu"], input=script, env=environ, cwd=place, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return [call.split("\0") for call in calls.read_bytes().decode().removesuffix("\0\0").split("\0\0")]


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
@pytest.mark.parametrize("style", ["runs", "multinode"])
@pytest.mark.parametrize("text", HOSTILE[:-1])
def test_a_dry_run_is_a_script_that_sends_the_same(
    checkout: Checkout, tmp_path: Path, text: str, style: str, shell: str
) -> None:
    """Run in a shell, it asks oci-cli for exactly the bodies that a launch sends, whatever people have written."""
    plan = checkout.plan(OCI_JOB_STYLE=style, SUBNET_OCID=SUBNET, arguments=(text,))
    plan = with_environment(replace(plan, name=text), SOME_TEXT=text)
    found = json.loads(dry_run(checkout, plan, as_json=True))
    job, *runs = sent(tmp_path, dry_run(checkout, plan), shell)
    assert job[:3] == ["data-science", "job", "create"]
    assert job[-3:] == ["--query", "data.id", "--raw-output"]
    assert body_of(job[3:-3]) == found["job"]
    assert len(runs) == len(found["job_runs"]) == (3 if style == "runs" else 1)
    for run, body in zip(runs, found["job_runs"], strict=True):
        assert run[:3] == ["data-science", "job-run", "create"]
        assert run[-2:] == ["--job-id", "ocid1.created"]
        assert body_of(run[3:-2]) == body


def test_a_dry_run_tells_what_a_launch_adds(checkout: Checkout) -> None:
    """Where the code will be, and that the subnet's addresses are looked up: nothing has been asked or sent."""
    plan = checkout.plan(SUBNET_OCID=SUBNET)
    lines = dry_run(checkout, plan).splitlines()
    assert lines[0] == "# What a launch sends, as commands of oci-cli. Nothing has been sent."
    assert lines[1] == f"# SUBNET_CIDR will be added to the Job's environment: the addresses of {SUBNET}."
    assert lines[2].startswith(f"# The code in {checkout.root}/plain/example will be at oci://bucket@ns/work/code/")
    assert lines[3] == "# Each node unpacks it into a directory of its own, CODE_DIR, in which the entry point runs."
    plan = checkout.plan(SUBNET_OCID=SUBNET, SUBNET_CIDR="10.0.0.0/24", CODE_URI="image")
    found = json.loads(dry_run(checkout, plan, as_json=True))
    assert found["notes"] == []
    assert found["job"]["jobConfigurationDetails"]["environmentVariables"]["SUBNET_CIDR"] == "10.0.0.0/24"


def test_a_folder_of_code_cannot_speak_in_a_dry_run(checkout: Checkout, tmp_path: Path) -> None:
    """A note is a comment to its end: the name of a folder is no command."""
    folder = tmp_path / "code\ntouch spoiled\n#"
    folder.mkdir()
    (folder / "train.py").touch()
    plan = checkout.plan(ENTRY_POINT=str(folder / "train.py"), CODE_DIR=str(folder))
    assert len(sent(tmp_path, dry_run(checkout, plan))) == 4
    assert not (tmp_path / "spoiled").exists()


def test_a_check_refuses_what_a_launch_would(checkout: Checkout) -> None:
    """Bad settings end the dry run too."""
    with pytest.raises(SettingsError, match="IMAGE is not set"):
        dry_run(checkout, checkout.plan(IMAGE=""))


@pytest.mark.parametrize("template", ["job.json.j2", "job-run.json.j2"])
def test_a_template_that_was_spoiled_ends_a_launch_before_anybody_is_asked(
    checkout: Checkout, tmp_path: Path, template: str
) -> None:
    """Each of them is rendered when the plan is placed."""
    templates = tmp_path / "other" / "scripts" / "templates"
    templates.mkdir(parents=True)
    for path in (checkout.root / "scripts" / "templates").iterdir():
        (templates / path.name).write_text("{ no JSON" if path.name == template else path.read_text())
    with pytest.raises(SettingsError, match=f"scripts/templates/{template} makes no JSON: "):
        oci_requests.place(checkout.plan(), tmp_path / "other")
