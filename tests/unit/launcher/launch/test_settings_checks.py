"""Settings that are nearly one, that nobody would use, or that the framework could not read: told before the start."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.launcher.fake_checkout import Checkout, refusal

from oci_cluster.contract.settings.schema import SETTINGS
from oci_cluster.contract.settings.settings_files import (
    FRAMEWORK_KEYS,
    SettingsReader,
    framework_defaults,
    framework_words,
)
from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.launcher.launch.settings_checks import SettingChecks, check_form

ROOT = Path(__file__).resolve().parents[4]
FRAMEWORKS = ("dask", "horovod", "pytorch", "ray", "tensorflow")


@pytest.fixture
def project(tmp_path: Path) -> Checkout:
    """A project with the frameworks as they are."""
    checkout = Checkout(tmp_path)
    for name in (*FRAMEWORKS, "scripts"):
        path = checkout.root / name
        if path.exists():
            path.rename(tmp_path / "aside")
        path.symlink_to(ROOT / name)
    return checkout


def refused(checkout: Checkout, *environment: str, **asked: object) -> str:
    return refusal(UsageError, checkout, environment=environment, **asked)


# --- Nearly a setting -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "name", "meant"),
    [
        ("pytorch", "MAX_RESTART", "MAX_RESTARTS"),
        ("pytorch", "max_restarts", "MAX_RESTARTS"),
        ("pytorch", "NPROC_PER_NODES", "NPROC_PER_NODE"),
        ("dask", "TIMOUT", "TIMEOUT"),
        ("dask", "NPROC", "NPROCS"),
        ("horovod", "MIN_NODE", "MIN_NODES"),
    ],
)
def test_a_name_that_is_nearly_a_setting_is_asked_about(
    project: Checkout, framework: str, name: str, meant: str
) -> None:
    """It would be handed to every node, and change nothing."""
    said = refused(project, f"{name}=3", framework=framework)
    assert (
        said == f"--env {name} is not a setting; did you mean {meant}? If {name} is your script's own, give {meant} too"
    )


def test_the_answer_may_be_that_it_is_the_scripts_own(project: Checkout) -> None:
    """Who gives both knows the difference."""
    environment = project.environment(framework="pytorch", environment=["MAX_RESTART=3", "MAX_RESTARTS=0"])
    assert (environment["MAX_RESTART"], environment["MAX_RESTARTS"]) == ("3", "0")


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    "name",
    [
        *("OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME", "NCCL_DEBUG", "CUDA_VISIBLE_DEVICES", "MASTER_PORT", "WORKERS"),
        *("HOROVOD_STALL_CHECK_TIME_SECONDS", "HOROVOD_TIMELINE", "TF_CPP_MAX_VLOG_LEVEL", "TF_CPP_MIN_LOG_LEVEL"),
        *("MAX_WORKERS", "IMAGES", "SHAPES", "TAGS", "TAG", "LOG_LEVEL", "EPOCHS", "DASK_LOGGING__DISTRIBUTED", "X"),
    ],
)
def test_variables_of_scripts_and_libraries_pass(project: Checkout, framework: str, name: str) -> None:
    """Neither nearly a setting, nor another framework's alone."""
    value = "info" if name == "LOG_LEVEL" else "1"
    assert project.environment(framework=framework, environment=[f"{name}={value}"])[name] == value


def test_a_line_of_config_env_that_is_nearly_a_setting_is_named(project: Checkout) -> None:
    """Nobody else would read it; a name that is like no setting may be another program's."""
    project.config("TTLL=1h", "MY_OWN=1", "MAX_RESTART=3")
    said = refusal(SettingsError, project)
    assert "config.env: MAX_RESTART is not a setting; did you mean MAX_RESTARTS?" in said
    assert "TTLL" not in said, "four letters are like too many"


def test_the_environment_is_only_remarked_on(project: Checkout) -> None:
    """It is full of names that have nothing to do with this."""
    project.plan({"MAX_RESTART": "3", "PATH": "/bin", "HOME": "/root"}, framework="pytorch")
    assert project.said == ["note: MAX_RESTART in the environment is not a setting; did you mean MAX_RESTARTS?"]


# --- Not of this launch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "pair", "why"),
    [
        ("dask", "NPROC_PER_NODE=2", "is a setting of pytorch; dask does not use it: leave it out"),
        ("pytorch", "NTHREAD=2", "is a setting of dask; pytorch does not use it: leave it out"),
        (
            "tensorflow",
            "RENDEZVOUS_PORT=2000",
            "is a setting of horovod and pytorch; tensorflow does not use it: leave it out",
        ),
        ("dask", "SHAPE=VM.GPU", "is a setting of the backend oci; local does not use it: leave it out"),
        ("dask", "MEMORY=4g", "is a setting of the backend docker and kubernetes; local does not use it: leave it out"),
        (
            "dask",
            "IMAGE=mine:1",
            "is a setting of the backend docker and kubernetes and oci; local does not use it: leave it out",
        ),
    ],
)
def test_what_is_anothers_is_refused(project: Checkout, framework: str, pair: str, why: str) -> None:
    """Of a framework or of a backend that this launch has not."""
    assert refused(project, pair, framework=framework) == f"--env {pair.partition('=')[0]} {why}"


def test_a_backends_setting_passes_there(project: Checkout) -> None:
    """As the environment or a config.env may have it anywhere."""
    assert project.plan({"SHAPE": "x"}, backend="docker", environment=["MEMORY=4g"]).settings["MEMORY"] == "4g"


@pytest.mark.parametrize(
    ("framework", "asked", "said"),
    [
        ("dask", {"settings": {"PS_COUNT": "1"}}, "--ps is not for dask, which has no parameter servers"),
        ("dask", {"environment": ["MAX_RESTARTS=3"]}, "MAX_RESTARTS is not for dask, which starts nothing again"),
        (
            "pytorch",
            {"settings": {"EPHEMERAL": "0"}},
            "--keep is not for pytorch, which has no service",
        ),
        ("horovod", {"environment": ["MAX_RESTARTS=1"]}, "MAX_RESTARTS is not for horovod, which starts nothing again"),
        ("tensorflow", {"environment": ["CLUSTER_TLS=1"]}, "CLUSTER_TLS is not for tensorflow, which encrypts nothing"),
    ],
)
def test_what_a_framework_cannot_do_is_refused(
    project: Checkout, framework: str, asked: dict[str, dict[str, str]], said: str
) -> None:
    """With the option, where that gave it."""
    kind = UsageError if said.startswith("--") else SettingsError
    refused_with = refusal(kind, project, framework=framework, **asked)
    assert said in refused_with
    assert "; leave it out" in refused_with


@pytest.mark.parametrize("pair", ["MAX_RESTARTS=0", "CLUSTER_TLS=0"])
def test_what_asks_for_nothing_passes(project: Checkout, pair: str) -> None:
    """It is what there is."""
    assert project.plan(framework="horovod", environment=[pair])


def test_a_shared_config_may_say_how_often_others_restart(project: Checkout) -> None:
    """But not that connections are encrypted where they are not."""
    project.config("MAX_RESTARTS=3")
    assert project.plan(framework="dask")
    project.config("CLUSTER_TLS=1")
    assert "CLUSTER_TLS is not for pytorch, which encrypts nothing" in refusal(
        SettingsError, project, framework="pytorch"
    )


def test_more_nodes_than_there_are_cannot_be_needed(project: Checkout) -> None:
    """The agents would refuse it, after the start."""
    for pair in ("MIN_WORKERS=3", "MIN_NODES=4"):
        said = refusal(SettingsError, project, environment=[pair])
        assert "MIN_WORKERS (MIN_NODES less main): 3 is more than the 2 of this launch" in said
    assert project.plan(environment=["MIN_WORKERS=2"]).limits.min_workers == 2


# --- The form of a framework's own ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("framework", "pair", "said"),
    [
        ("dask", "NPROCS=abc", "NPROCS: 'abc' is not a whole number from 1 to 1000000"),
        ("dask", "NTHREAD=many", "NTHREAD: 'many' is not a whole number from 1 to 1000000, nor auto"),
        ("dask", "WORKER_PORTS=8800", "WORKER_PORTS: '8800' is not two numbers, the smaller first, such as 8700:8800"),
        ("dask", "NANNY_PORTS=9:8", "NANNY_PORTS: '9:8' is not two numbers, the smaller first, such as 8700:8800"),
        ("dask", "LOG_LEVEL=loud", "LOG_LEVEL: 'loud' is not one of debug, info, warning"),
        ("pytorch", "LAUNCHER=mpi", "LAUNCHER: 'mpi' is not one of torchrun, accelerate, deepspeed"),
        ("pytorch", "NPROC_PER_NODE=0", "NPROC_PER_NODE: '0' is not a whole number from 1 to 1000000, nor auto"),
        ("horovod", "RESET_LIMIT=-1", "RESET_LIMIT: '-1' is not a whole number from 0 to 1000000"),
        ("tensorflow", "TF_USE_LEGACY_KERAS=yes", "TF_USE_LEGACY_KERAS: 'yes' is not one of 0, 1"),
    ],
)
def test_what_a_framework_could_not_read_is_refused(project: Checkout, framework: str, pair: str, said: str) -> None:
    """From --env, the environment or config.env."""
    assert said in refusal(SettingsError, project, framework=framework, environment=[pair])
    name, _, value = pair.partition("=")
    assert said in refusal(SettingsError, project, {name: value}, framework=framework)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("auto|POSITIVE", "auto"),
        ("auto|POSITIVE", "3"),
        ("COUNT", "0"),
        ("RANGE", "1:1"),
        ("DURATION", "2m"),
        ("a|b", "b"),
    ],
)
def test_what_has_the_form_passes(form: str, text: str) -> None:
    """A word, or what a form allows."""
    check_form(form, text)


def test_a_log_level_that_other_programs_read_too_passes(project: Checkout) -> None:
    """People export it in capitals, which Dask takes as well."""
    assert project.environment({"LOG_LEVEL": "DEBUG"})["LOG_LEVEL"] == "DEBUG"


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_setting_is_taken_for_another_that_is_misspelt(framework: str) -> None:
    """A config.env may have those of all frameworks and backends, and the environment the names that ADS gives."""
    names = {name for row in SETTINGS.values() for name in (row.name, *row.aliases)}
    names |= {name for other in FRAMEWORKS for name in framework_defaults(ROOT / other)}
    for backend in ("local", "docker", "oci"):
        checks = SettingChecks(ROOT / framework, backend, {}, SettingsReader())
        assert [nearly for name in sorted(names) if (nearly := checks.nearly_settings([name]))] == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_setting_of_a_framework_has_a_form(framework: str) -> None:
    """One of the table, a port, or listed; and its default has that form."""
    defaults = framework_defaults(ROOT / framework)
    forms = dict(word.split("=", 1) for word in framework_words(ROOT / framework, "SETTING_VALUES"))
    # Horovod's own, and names that are somebody else's.
    free = {"HOROVOD_GLOO_TIMEOUT_SECONDS", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "DASHBOARD_HOSTS"}
    own = {name for name in defaults if name not in SETTINGS and not name.endswith("_PORT")} - free
    assert own == set(forms)
    for name, form in forms.items():
        if defaults[name]:
            check_form(form, defaults[name])
    assert not FRAMEWORK_KEYS & set(defaults)
    assert set(framework_words(ROOT / framework, "UNUSED_SETTINGS")) <= set(SETTINGS)
    assert set(framework_words(ROOT / framework, "RANKS_PER_NODE")) <= set(forms)
