"""Moving from ADS: its YAML becomes a cluster, and nodes run that its variables alone have started, on the stand-in."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from harness import Launch
from oci_cloud import Cloud, environment_of, image_of, wait
from oci_user import User

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

YAMLS = Path(__file__).resolve().parents[1] / "ads"
# What main of each framework prints, by the YAML's own script.
RESULTS = {
    "dask": r"dask workers 2 cv 5 sum 40425",
    "pytorch": r"pytorch world size 2 total 12",
    "tensorflow": r"tensorflow \w+ 0 replicas 2 data data/",
    "horovod": r"horovod ranks 2 total 3",
}
# What the YAMLs name, and the tenancy of the stand-in has under other names.
OCIDS = {
    "ocid1.datascienceproject.oc1.iad.aaaa": "PROJECT_OCID",
    "ocid1.compartment.oc1..aaaa": "COMPARTMENT_OCID",
    "ocid1.loggroup.oc1.iad.aaaa": "LOG_GROUP_OCID",
    "ocid1.log.oc1.iad.aaaa": "LOG_OCID",
    "ocid1.subnet.oc1.iad.aaaa": "SUBNET_OCID",
}


@pytest.fixture
def user(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    """Return somebody who makes Jobs by the SDK, as ADS does."""
    for name, value in cloud.service.environ.items():
        monkeypatch.setenv(name, value)
    return User(cloud.service)


@pytest.fixture
def settings_of_the_checkout(cloud: Cloud) -> Iterator[Path]:
    path = cloud.project.path / "config.env"
    yield path
    path.unlink(missing_ok=True)


def moved(cloud: Cloud, framework: str) -> str:
    """Have the user's folder hold the YAML and the script; return the command that from-ads.sh prints."""
    for file in (YAMLS / framework).iterdir():
        shutil.copy(file, cloud.project.code)
    text = (YAMLS / framework / "train.yaml").read_text()
    for ocid, name in OCIDS.items():
        text = text.replace(ocid, cloud.service.settings[name])
    cloud.project.write("train.yaml", text)
    done = cloud.project.run("from-ads", "train.yaml")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(900)  # on a bare machine Horovod is still being compiled
@pytest.mark.parametrize("framework", RESULTS)
def test_a_yaml_of_ads_becomes_a_cluster(cloud: Cloud, settings_of_the_checkout: Path, framework: str) -> None:
    """With nothing but what it has written, and the image that `make push` would know."""
    cloud.add_image(framework, environment_of(cloud.project, framework))
    script, *words = shlex.split(moved(cloud, framework))
    assert script == str(cloud.project.path / "scripts" / "launch.sh")
    launch: Launch = cloud.project.launch(*words, **cloud.service.environ, IMAGE=image_of(framework))
    assert wait(launch) == 0, launch.err + launch.out
    assert re.search(rf"\| {RESULTS[framework]}$", launch.out, re.MULTILINE), launch.out
    (job,) = cloud.service.jobs()
    assert job["displayName"] == words[words.index("--name") + 1]
    cloud.assert_nothing_runs()


# What each launch has of its own: its script's first words, arguments, shape, number of runs.
OWN = {
    "dask": ("train.py", ["--cv", "5"], "VM.Standard2.4", 3),
    "pytorch": ("train.py", ["--total_epochs", "3"], "VM.Standard.E4.Flex", 2),
    "job": ("train.py", ["--total_epochs", "2"], "VM.Standard.E5.Flex", 2),
}


def test_each_of_three_yamls_is_a_launch_of_its_own(cloud: Cloud, settings_of_the_checkout: Path) -> None:
    """One after the other, into a config.env that says `local`; and the first one once more. No image is needed."""
    settings_of_the_checkout.write_text("BACKEND=local\n")
    project, launches = cloud.project, {}
    for name in ("dask", "pytorch", "job", "dask"):
        shutil.copytree(YAMLS / name, project.code / name, dirs_exist_ok=True)
        done = project.run("from-ads", f"{name}/train.yaml", "--merge")
        assert done.returncode == 0, done.stderr
        launches[name] = done.stdout
    for name, (entry, args, shape, runs) in OWN.items():
        words = shlex.split(launches[name])
        own = dict(
            word.split("=", 1) for word in words[: next(i for i, word in enumerate(words) if "launch.sh" in word)]
        )
        done = project.run("launch", *words[len(own) + 1 :], "--dry-run", "--json", **own)
        assert done.returncode == 0, done.stderr
        sent = json.loads(done.stdout)
        variables = sent["job"]["jobConfigurationDetails"]["environmentVariables"]
        assert (variables["ENTRY_POINT"], json.loads(variables["ARGS"])) == (entry, args), name
        assert sent["job"]["jobInfrastructureConfigurationDetails"]["shapeName"] == shape
        assert len(sent["job_runs"]) == runs
        assert any(f"The code in {project.code / name} will be at" in note for note in sent["notes"])
        assert any("not-pushed stands for" in note for note in sent["notes"])


# --- Nodes that ADS's variables alone have started ------------------------------------------------------------------


def of_ads(framework: str, **more: str) -> dict[str, str]:
    """Return the variables that `ads opctl run` gives the Job of these YAMLs."""
    own = {
        "dask": {"OCI__ENTRY_SCRIPT": "train.py", "OCI__ENTRY_SCRIPT_KWARGS": "--cv 5", "DEFAULT_N_SAMPLES": "5000"},
        "pytorch": {"OCI__ENTRY_SCRIPT_ARGS": "--total_epochs 3", "CASE": "pytorch"},
        "tensorflow": {"OCI__ENTRY_SCRIPT_ARGS": "--data-dir data/", "WORKER_PORT": "22356"},
        "horovod": {"OCI__ENTRY_SCRIPT_ARGS": "--epochs 2", "WORKER_PORT": "22366", "HOROVOD_ARGS": "--gloo"},
        "plain": {},
    }
    return {
        "OCI__WORK_DIR": f"oci://clusters@stand-in/{framework}",
        "OCI__EPHEMERAL": "None",
        "OCI__CLUSTER_TYPE": framework.upper(),
        "OCI__WORKER_COUNT": "1",
        "OCI__START_ARGS": "",
        "OCI__ENTRY_SCRIPT": "train.py",
        **own[framework],
        **more,
    }


def job_of(user: User, framework: str, variables: Mapping[str, str]) -> str:
    container: dict[str, Any] = {"jobEnvironmentType": "OCIR_CONTAINER", "image": image_of(framework)}
    configuration = {"jobType": "DEFAULT", "environmentVariables": dict(variables)}
    details = user.job_details(jobEnvironmentConfigurationDetails=container, jobConfigurationDetails=configuration)
    return str(user.science.create_job(details).data.id)


def runs_of(user: User, job: str, roles: str) -> dict[str, str]:
    """Start the runs as ADS does, main first; parameter servers get no rank. Return their OCIDs."""
    found = {}
    for rank, role in enumerate(roles.split()):
        ranked = {} if role == "PS" else {"RANK": str(rank)}
        start = {"OCI__START_ARGS": "--port 8796"} if role == "MAIN" else {"OCI__START_ARGS": "--nthreads 1"}
        found[f"{role}_{rank}"] = user.run(job, OCI__MODE=role, **ranked, **start)
    return found


def ended(user: User, runs: Mapping[str, str]) -> dict[str, str]:
    return {name: user.service.wait(run)["lifecycleDetails"] for name, run in runs.items()}


@pytest.mark.timeout(900)  # on a bare machine Horovod is still being compiled
@pytest.mark.parametrize("framework", RESULTS)
def test_adss_variables_alone_make_a_cluster(cloud: Cloud, user: User, framework: str) -> None:
    """Code that nodes fetch from a bucket, the options of the roles, and not one variable of ours."""
    cloud.add_image(framework, environment_of(cloud.project, framework))
    user.files.pipe_file("clusters@stand-in/src/train.py", (YAMLS / framework / "train.py").read_bytes())
    code = {"OCI__RUNTIME_TYPE": "remote", "OCI__RUNTIME_URI": "oci://clusters@stand-in/src", "OCI__CODE_DIR": "/code"}
    count = 2 if framework == "dask" else 1
    variables = of_ads(framework, OCI__WORKER_COUNT=str(count), SCHEDULER_PORT="8796", **code)
    job = job_of(user, framework, variables)
    runs = runs_of(user, job, "MAIN" + " WORKER" * count)
    assert {user.service.wait(run)["lifecycleState"] for run in runs.values()} == {"SUCCEEDED"}, logs(user, runs)
    assert re.search(rf"^{RESULTS[framework]}$", logs(user, runs), re.MULTILINE), logs(user, runs)
    assert f"{framework}/{job}/MAIN_config.json" in user.service.objects(f"{framework}/{job}/")


def test_runs_of_the_same_job_again_say_so(cloud: Cloud, user: User) -> None:
    """ADS's own find the end of the first ones, and succeed without having run anything."""
    (cloud.project.code / "train.py").write_text("import os\nprint('ran', os.environ['OCI__PS_COUNT'])\n")
    variables = of_ads("plain", OCI__CODE_DIR=str(cloud.project.code), OCI__PS_COUNT="1", OCI__READY_TIMEOUT="1")
    cloud.add_image("plain", Path(sys.executable))
    job = job_of(user, "plain", variables)
    runs = runs_of(user, job, "MAIN WORKER PS")
    assert {user.service.wait(run)["lifecycleState"] for run in runs.values()} == {"SUCCEEDED"}, logs(user, runs)
    assert "\nran 1\n" in logs(user, runs)
    assert "OCI__READY_TIMEOUT" in logs(user, runs)

    again = runs_of(user, job, "MAIN WORKER PS")
    assert all("exit code 78." in text for text in ended(user, again).values())
    assert logs(user, again).count("create a new Job") == 3
    assert "ran 1" not in logs(user, again)


def logs(user: User, runs: Mapping[str, str]) -> str:
    return "\n".join(user.service.log(run) for run in runs.values())
