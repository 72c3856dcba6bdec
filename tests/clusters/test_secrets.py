"""Planted secrets: every file, log, message, command line and request of a launch is searched for them."""

from __future__ import annotations

import hashlib
import json
import stat
import sys
from pathlib import Path

import pytest
from harness import Project, wait_until
from oci_cloud import Cloud
from planted import ARGUMENT, FILES, OF_NODES, REASON, VARIABLES, Planted, Watch, shown_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="all processes are looked at in /proc")


@pytest.fixture
def planted(project: Project) -> Planted:
    """Return words, of which those in files lie beside the code already."""
    planted = Planted()
    planted.put_files(project.code)
    return planted


def given(project: Project, planted: Planted) -> tuple[list[str], dict[str, str], list[Path]]:
    """Return options that give all variables, the environment that has half of them, and all files with words."""
    by_name = dict(list(planted.variables.items())[::2])
    file = project.scratch / "variables"
    lines = [f"{name}={text}\n" for name, text in planted.variables.items() if name not in by_name]
    file.write_text("".join(lines))
    options = ["--env-file", str(file), *(word for name in by_name for word in ("--env", name))]
    return options, by_name, [file, *(project.code / name for name in FILES)]


def kept_plan(project: Project) -> Path:
    """Return the file that has all that the cluster was launched with, its key too."""
    (directory,) = project.cluster_dirs()
    return directory / "cluster.json"


def launch_key(project: Project) -> str:
    """Return the launch's key."""
    return str(json.loads(kept_plan(project).read_text())["environment"]["LAUNCH_KEY"])


def test_a_cluster_of_this_machine_tells_nobody(project: Project, planted: Planted) -> None:
    """The words are where they were, with the nodes that were given them, and in one private file."""
    entry = project.write(
        "entry.py",
        f"import os, time\nassert not {set(VARIABLES)!r} - set(os.environ)\nprint('entry up', flush=True)\n"
        f"while not os.path.exists('go'): time.sleep(0.02)\n{planted.failing}",
    )
    options, environ, known = given(project, planted)
    words = ["plain", "1", "--entry", entry, "--python", sys.executable, "--name", "mine", *options]
    with Watch(planted) as watch:
        dry = [
            project.run("launch", *words, "--dry-run", *more, "--", planted.argument, **environ)
            for more in ([], ["--json"])
        ]
        launch = project.launch(*words, "--", planted.argument, **environ)
        launch.wait_for("entry up")
        planted.add("LAUNCH_KEY", launch_key(project))
        shown = shown_of(project, "mine")
        project.go()
        assert launch.wait() == 1
    told = shown + shown_of(project, "mine") + "".join(done.stdout + done.stderr for done in dry)
    assert planted.in_text(told) == set()
    # What the script itself has printed is its own business.
    assert planted.in_text(launch.err) == set()
    assert planted.in_text(launch.out) == {REASON}
    kept = kept_plan(project)
    found = planted.in_files([project.path, project.scratch, project.code, project.temporary], [*known, kept])
    printed = {project.scratch / f"out-{1}", launch.directory / "logs" / "MAIN.log", project.code / entry}
    assert found == {str(path): {REASON} for path in printed}
    assert planted.in_text(kept.read_text()) == {*VARIABLES, ARGUMENT, "LAUNCH_KEY"}
    assert stat.S_IMODE(kept.stat().st_mode) == stat.S_IRUSR | stat.S_IWUSR
    # The words of an argument were typed, and are the script's. What nodes get by a file no other process has.
    assert watch.command_lines == {name: {ARGUMENT} for name in ("launch.sh", "oci_cluster", "entry.py")}
    assert set(VARIABLES) <= watch.environments.pop(OF_NODES)
    assert set().union(*watch.environments.values()) <= set(environ), watch.environments


def test_a_launch_on_oci_sends_none(cloud: Cloud, planted: Planted) -> None:
    """Variables and arguments are refused before the first request; files stay, and the key is the Job's alone.

    Of a secret of OCI Vault the Job has the OCID; the node reads the value, and gives it to the script alone.
    """
    project = cloud.project
    options, environ, known = given(project, planted)
    refused = [
        cloud.run("launch", "plain", "1", "--entry", project.write("entry.py", ""), *words, **environ)
        for words in (options, ["--", planted.argument])
    ]
    assert [done.returncode for done in refused] == [78, 78]
    assert all(name in refused[0].stderr for name in VARIABLES)
    assert "OCI Vault" in refused[1].stderr
    assert cloud.service.calls() == []
    planted.add("VAULT", "the word that only the vault has")
    ocid = cloud.service.secret(planted.words["VAULT"])
    script = (
        "import hashlib, os\nword = os.environ['MY_TOKEN']\n"
        f"print('digest', hashlib.sha256(word.encode()).hexdigest(), flush=True)\n{planted.failing}"
    )
    with Watch(planted) as watch:
        launch = cloud.launch_plain(1, script, "--name", "mine", "--env", f"VAULT_SECRETS=MY_TOKEN={ocid}")
        wait_until(project.cluster_dirs, "the cluster's directory")
        planted.add("LAUNCH_KEY", launch_key(project))
        assert launch.wait() == 1
    assert f"digest {hashlib.sha256(planted.words['VAULT'].encode()).hexdigest()}" in launch.out
    assert {call["principal"].partition(":")[0] for call in cloud.service.calls("get_secret_bundle")} == {"resource"}
    assert ocid in json.dumps(cloud.service.jobs())
    has_value = {name for name, forms in watch.environments.items() if "VAULT" in forms}
    assert has_value <= {OF_NODES}
    shown = shown_of(project, "mine", **cloud.environ)
    assert planted.in_text(shown + launch.err + "".join(done.stderr + done.stdout for done in refused)) == set()
    # The script, what it has printed, and copies of both in the bucket: the archive of the code, and a part of the log.
    places = [project.path, project.scratch, project.code, project.temporary, cloud.service.directory]
    found = planted.in_files(places, [*known, kept_plan(project)])
    assert set().union(*found.values()) == {REASON}
    assert planted.in_text(kept_plan(project).read_text()) == {"LAUNCH_KEY"}
    assert planted.in_text("".join(cloud.service.objects("work/"))) == set()
    for sent in (*cloud.service.jobs(), *cloud.service.job_runs()):
        for part in ("jobConfigurationDetails", "jobConfigurationOverrideDetails"):
            (sent.get(part) or {}).pop("environmentVariables", None)
        assert planted.in_text(json.dumps(sent)) == set()
    assert watch.command_lines == {}
