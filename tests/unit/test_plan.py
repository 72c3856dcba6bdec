from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from oci_cluster import plan as plan_module
from oci_cluster.errors import ClusterError, SettingsError, UsageError
from oci_cluster.plan import (
    Request,
    free_ranks,
    least_workers,
    make_plan,
    ports,
    rank_of,
    scaled_workers,
    without_secrets,
)

SETTINGS_ENV = "SCHEDULER_PORT=8786\nDASHBOARD_PORT=8787\nWORKER_PORTS=8700:8800\nNPROCS=1\nMIN_WORKERS=1\n"
HINT = "(config.env.example explains each)"


class Checkout:
    """A project with one framework, and a user's folder with a script, both with blanks in their paths."""

    def __init__(self, place: Path) -> None:
        self.root = place / "my project"
        self.cwd = place / "my work"
        (self.root / "dask" / "example").mkdir(parents=True)
        (self.root / "dask" / "example" / "train.py").touch()
        (self.root / "dask" / "start-master.sh").touch()
        (self.root / "dask" / "settings.env").write_text(SETTINGS_ENV)
        self.cwd.mkdir()
        (self.cwd / "my script.py").touch()

    def config(self, *lines: str) -> None:
        (self.root / "config.env").write_text("\n".join(lines) + "\n")

    def plan(self, environ: dict[str, str] | None = None, **asked: Any) -> dict[str, Any]:
        request = Request(**{"framework": "dask", "workers": "2", "backend": "local", **asked})
        return make_plan(request, environ or {}, root=self.root, cwd=self.cwd, most_workers=250)

    def environment(self, environ: dict[str, str] | None = None, **asked: Any) -> dict[str, str]:
        return dict(self.plan(environ, **asked)["environment"])

    def code(self, **settings: str) -> tuple[str, str]:
        environment = self.environment(settings=settings)
        return environment["CODE_DIR"], environment["ENTRY_POINT"]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    monkeypatch.setattr(plan_module.secrets, "token_hex", lambda _: "1f2e3d4c")
    monkeypatch.setattr(plan_module, "now", lambda: "2026-01-02T03:04:05Z")
    return Checkout(tmp_path.resolve())


def refusal(kind: type[ClusterError], checkout: Checkout, environ: dict[str, str] | None = None, **asked: Any) -> str:
    with pytest.raises(kind) as caught:
        checkout.plan(environ, **asked)
    assert type(caught.value) is kind
    return str(caught.value)


# --- The whole ------------------------------------------------------------------------------------------------------


def test_a_plan_holds_all_that_will_be_launched(checkout: Checkout) -> None:
    """With nothing given, the framework's example runs on main and the workers that were asked for."""
    assert checkout.plan() == {
        "schema": 1,
        "launch_id": "1f2e3d4c",
        "cluster_id": "dask-1f2e-1f2e3d4c",
        "name": "dask-1f2e",
        "framework": "dask",
        "backend": "local",
        "created": "2026-01-02T03:04:05Z",
        "work_dir": "",
        "python": "",
        "project": "my project",
        "code_dir": str(checkout.root / "dask" / "example"),
        "code_uri": "",
        "settings": {},
        "environment": {
            "MIN_WORKERS": "1",
            "FRAMEWORK": "dask",
            "LAUNCH_ID": "1f2e3d4c",
            "CLUSTER_ID": "dask-1f2e-1f2e3d4c",
            "CLUSTER_NAME": "dask-1f2e",
            "WORKER_COUNT": "2",
            "PS_COUNT": "0",
            "EPHEMERAL": "1",
            "ENTRY_POINT": "train.py",
            "ARGS": "[]",
            "CODE_DIR": str(checkout.root / "dask" / "example"),
        },
        "nodes": [
            {"node": "MAIN", "environment": {"MODE": "MAIN", "NODE_RANK": "0"}},
            {"node": "WORKER_1", "environment": {"MODE": "WORKER", "NODE_RANK": "1"}},
            {"node": "WORKER_2", "environment": {"MODE": "WORKER", "NODE_RANK": "2"}},
        ],
    }


def test_a_plan_can_be_written_as_json(checkout: Checkout) -> None:
    """The plan is what cluster.json will hold: JSON gives it back unchanged."""
    plan = checkout.plan(arguments=["a b", "ü"])
    assert json.loads(json.dumps(plan)) == plan


def test_each_launch_has_an_id_of_its_own(tmp_path: Path) -> None:
    """Two plans never share a launch id: files of one launch are not taken for the other's."""
    checkout = Checkout(tmp_path)
    first, second = (checkout.plan()["launch_id"] for _ in range(2))
    assert first != second
    assert re.fullmatch("[0-9a-f]{8}", first)


def test_parameter_servers_follow_the_workers(checkout: Checkout) -> None:
    """PS_COUNT adds nodes whose ranks come after the workers'."""
    nodes = checkout.plan({"PS_COUNT": "2"}, workers="1")["nodes"]
    assert [(node["node"], node["environment"]) for node in nodes] == [
        ("MAIN", {"MODE": "MAIN", "NODE_RANK": "0"}),
        ("WORKER_1", {"MODE": "WORKER", "NODE_RANK": "1"}),
        ("PS_2", {"MODE": "PS", "NODE_RANK": "2"}),
        ("PS_3", {"MODE": "PS", "NODE_RANK": "3"}),
    ]


def test_a_slash_from_completion_is_taken_off(checkout: Checkout) -> None:
    """Tab completion turns dask into dask/, which is the same framework."""
    assert checkout.plan(framework="dask/")["framework"] == "dask"


def test_arguments_reach_the_plan_exactly(checkout: Checkout) -> None:
    """What stood after -- is kept word by word, quotes, blanks, dashes and empty words included."""
    arguments = ["a", "b c", "d'e", "", "--entry", "$HOME", "x\ny"]
    assert json.loads(checkout.environment(arguments=arguments)["ARGS"]) == arguments


def test_arguments_on_the_command_line_win_over_args(checkout: Checkout) -> None:
    """Words after -- replace ARGS, under its other name too, and no words at all (a bare --) mean none."""
    given = {"ARGS": "from environment", "OCI__ENTRY_SCRIPT_ARGS": "older"}
    assert [checkout.environment(given, arguments=words)["ARGS"] for words in (["x"], [])] == ['["x"]', "[]"]


def test_args_of_the_environment_are_made_plain(checkout: Checkout) -> None:
    """ARGS in either form reaches the nodes as a JSON list."""
    assert checkout.environment({"ARGS": "a 'b c'"})["ARGS"] == '["a", "b c"]'


# --- Precedence -----------------------------------------------------------------------------------------------------


def test_flags_win_over_environment_over_config_over_framework(checkout: Checkout) -> None:
    """Of the four places that name a setting the strongest counts, for each setting by itself."""
    (checkout.root / "dask" / "settings.env").write_text("TTL=1\nTIMEOUT=1\nGRACE_PERIOD=1\nPOLL_CEILING=1\n")
    checkout.config("TTL=2", "TIMEOUT=2", "GRACE_PERIOD=2")
    environment = checkout.environment({"TTL": "3", "TIMEOUT": "3"}, settings={"TTL": "4"})
    picked = [environment[name] for name in ("TTL", "TIMEOUT", "GRACE_PERIOD", "POLL_CEILING")]
    assert picked == ["4", "3", "2", "1"]


def test_env_wins_over_all_that_is_passed_on(checkout: Checkout) -> None:
    """--env sets a variable on every node, over the same one of the environment, config.env and settings.env."""
    checkout.config("TIMEOUT=2")
    environment = checkout.environment(
        {"TIMEOUT": "3", "NPROCS": "3"}, environment=["TIMEOUT=5", "NPROCS=5", "X=a=b", "Y="]
    )
    assert {name: environment[name] for name in ("TIMEOUT", "NPROCS", "X", "Y")} == {
        "TIMEOUT": "5",
        "NPROCS": "5",
        "X": "a=b",
        "Y": "",
    }


@pytest.mark.parametrize(
    ("alias", "name"), [("TIME_OUT", "TIMEOUT"), ("OCI__TIMEOUT", "TIMEOUT"), ("LIFE_SPAN", "TTL")]
)
def test_other_names_reach_the_nodes_under_the_first(checkout: Checkout, alias: str, name: str) -> None:
    """A setting given by another name is passed on by the contract's first one."""
    environment = checkout.environment({alias: "7m"})
    assert (environment[name], alias in environment) == ("7m", False)


@pytest.mark.parametrize("alias", ["ENTRY_SCRIPT", "OCI__ENTRY_SCRIPT"])
def test_a_flag_wins_over_the_other_names_of_its_setting(checkout: Checkout, alias: str) -> None:
    """--entry counts where the environment has the setting under another name."""
    environment = checkout.environment({alias: "absent.py"}, settings={"ENTRY_POINT": "my script.py"})
    assert environment["ENTRY_POINT"] == "my script.py"


@pytest.mark.parametrize("alias", ["ENTRY_SCRIPT", "OCI__ENTRY_SCRIPT"])
def test_the_entry_point_is_found_under_its_other_names(checkout: Checkout, alias: str) -> None:
    """ENTRY_SCRIPT in the environment names the script as ENTRY_POINT does."""
    assert checkout.environment({alias: "my script.py"})["ENTRY_POINT"] == "my script.py"


def test_the_environment_wins_over_config_under_any_name(checkout: Checkout) -> None:
    """TIME_OUT of the environment wins over TIMEOUT of config.env, as TIMEOUT does."""
    checkout.config("TIMEOUT=2")
    assert checkout.environment({"TIME_OUT": "3"})["TIMEOUT"] == "3"


def test_an_empty_variable_does_not_hide_configuration(checkout: Checkout) -> None:
    """An empty value counts as not given: config.env fills it in."""
    checkout.config("TTL=2h")
    assert checkout.environment({"TTL": ""})["TTL"] == "2h"


def test_the_frameworks_own_settings_are_passed_on(checkout: Checkout) -> None:
    """What the framework declares comes from environment or config.env to the nodes, its defaults stay its own."""
    checkout.config("DASHBOARD_PORT=9000")
    environment = checkout.environment({"NPROCS": "4"})
    assert (environment["NPROCS"], environment["DASHBOARD_PORT"], "SCHEDULER_PORT" in environment) == (
        "4",
        "9000",
        False,
    )


def test_settings_of_gangs_are_passed_on(checkout: Checkout) -> None:
    """What launch.sh was told of them reaches every node; what it was not told, the agents' defaults decide."""
    given = {"MIN_NODES": "2", "MAX_RESTARTS": "3", "ENTRY_ON": "all", "GANG": "1", "FIND_INTERFACE": "1"}
    environment = checkout.environment(given)
    assert {name: environment[name] for name in given} == given
    assert not set(given) & set(checkout.environment())


def test_nothing_else_of_the_environment_reaches_the_nodes(checkout: Checkout) -> None:
    """LD_PRELOAD in config.env or in the launcher's environment gets nowhere into the plan."""
    checkout.config("LD_PRELOAD=/evil.so", "MODE=PS", "LAUNCH_ID=evil")
    plan = checkout.plan({"LD_PRELOAD": "/evil.so", "NODE_RANK": "evil", "AWS_SECRET_ACCESS_KEY": "evil"})
    assert re.findall("evil|LD_PRELOAD|AWS", json.dumps(plan)) == []


def test_the_work_dir_is_the_launchers_to_choose(checkout: Checkout) -> None:
    """WORK_DIR is kept for the backend, under its other name too."""
    assert checkout.plan({"OCI__WORK_DIR": "oci://b@n/w"})["work_dir"] == "oci://b@n/w"


@pytest.mark.parametrize("environ", [{}, {"ENTRY_POINT": "my script.py"}])
def test_a_cluster_that_is_kept_has_no_entry_point(checkout: Checkout, environ: dict[str, str]) -> None:
    """With EPHEMERAL=0 nodes are told so and get no entry point, also where the environment has one."""
    environment = checkout.environment(environ, settings={"EPHEMERAL": "no"})
    assert (environment["EPHEMERAL"], environment["ENTRY_POINT"]) == ("0", "")


def test_an_entry_point_for_a_cluster_that_is_kept_is_a_contradiction(checkout: Checkout) -> None:
    """--keep --entry: what was typed is not silently left out."""
    with pytest.raises(UsageError, match=r"--entry 'my script.py' would not be run"):
        checkout.plan(settings={"ENTRY_POINT": "my script.py", "EPHEMERAL": "0"})


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
    """A missing script is named with the folder that was looked into."""
    assert refusal(UsageError, checkout, settings={"ENTRY_POINT": "nope.py"}) == (
        f"--entry: there is no file 'nope.py' in '{checkout.cwd}'; give the path of your script"
    )


def test_a_folder_is_no_script(checkout: Checkout) -> None:
    """A directory in the script's place is refused as a missing file is."""
    (checkout.cwd / "job").mkdir()
    assert refusal(UsageError, checkout, settings={"ENTRY_POINT": "job"}) == (
        f"--entry: there is no file 'job' in '{checkout.cwd}'; give the path of your script"
    )


def test_code_without_an_entry_point_is_refused(checkout: Checkout) -> None:
    """With --code alone nobody knows what to run."""
    (checkout.cwd / "src").mkdir()
    assert refusal(UsageError, checkout, settings={"CODE_DIR": "src"}) == (
        "--code 'src' has no entry point: say with --entry which file in it is to be run"
    )


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


# --- What is wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", ["0", "-1", "abc", "251", "1000000", "3.0", ""])
def test_a_wrong_number_of_workers_is_wrong_usage(checkout: Checkout, workers: str) -> None:
    """The number, the backend's limit and a number that works are in one line (2)."""
    assert refusal(UsageError, checkout, workers=workers) == (
        f"workers: '{workers}' is not a whole number from 1 to 250, which is what the local backend takes; try 3"
    )


@pytest.mark.parametrize("workers", ["1", "250"])
def test_the_limits_of_a_backend_are_allowed(checkout: Checkout, workers: str) -> None:
    """One worker, and as many as the backend takes, are right."""
    assert checkout.environment(workers=workers)["WORKER_COUNT"] == workers


def test_an_unknown_framework_is_wrong_usage(checkout: Checkout) -> None:
    """An unknown framework is named with those that there are (2)."""
    assert refusal(UsageError, checkout, framework="spark") == "unknown framework 'spark'; this checkout has: dask"


@pytest.mark.parametrize("pair", ["X", "=1", "1X=1", "A-B=1", "A B=1", ""])
def test_an_env_that_is_no_pair_is_wrong_usage(checkout: Checkout, pair: str) -> None:
    """--env wants NAME=VALUE with a name that a shell can have."""
    assert refusal(UsageError, checkout, environment=[pair]) == f"--env '{pair}' is not NAME=VALUE"


@pytest.mark.parametrize(
    "name", ["MODE", "NODE_RANK", "WORKER_COUNT", "LAUNCH_ID", "CLUSTER_ID", "FRAMEWORK", "NODE_ADDRESS"]
)
def test_what_a_launch_decides_cannot_be_set(checkout: Checkout, name: str) -> None:
    """--env cannot change what makes a node this node of this launch."""
    assert refusal(UsageError, checkout, environment=[f"{name}=x"]) == (
        f"--env {name} is decided by the launch itself; leave it out"
    )


@pytest.mark.parametrize(
    "pair", ["EPHEMERAL=0", "ENTRY_POINT=x.py", "CODE_DIR=/x", "PS_COUNT=1", "CLUSTER_NAME=x", 'ARGS=["x"]']
)
def test_an_env_is_never_dropped_silently(checkout: Checkout, pair: str) -> None:
    """An --env either reaches the nodes as it was given, or is refused."""
    try:
        environment = checkout.environment(environment=[pair])
    except UsageError:
        return
    name, _, value = pair.partition("=")
    assert environment[name] == value


def test_a_bad_env_is_refused_before_anything_starts(checkout: Checkout) -> None:
    """A setting that --env gives is checked as one from anywhere else."""
    with pytest.raises(ClusterError, match="TTL"):
        checkout.plan(environment=["TTL=soon"])


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"TTL": "soon"},
            "--ttl: 'soon' is not a duration; write seconds, or a number with s, m, h or d, such as 90s or 2h",
        ),
        ({"PS_COUNT": "some"}, "--ps: 'some' is not a whole number from 0 to 1000000"),
        ({"PS_COUNT": "-1"}, "--ps: '-1' is not a whole number from 0 to 1000000"),
        ({"CLUSTER_NAME": "a/b"}, "--name: 'a/b' is not a name of letters, digits and . _ - (255 at most)"),
        ({"CLUSTER_NAME": "-rf"}, "--name: '-rf' is not a name of letters, digits and . _ - (255 at most)"),
    ],
)
def test_a_bad_flag_is_wrong_usage_in_its_own_name(checkout: Checkout, settings: dict[str, str], why: str) -> None:
    """A value that a flag brought is named by the flag, with exit code 2."""
    assert refusal(UsageError, checkout, settings=settings) == why


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("TTL", "soon", "is not a duration; write seconds, or a number with s, m, h or d, such as 90s or 2h"),
        ("TIMEOUT", "-1", "is not a duration; write seconds, or a number with s, m, h or d, such as 90s or 2h"),
        ("PS_COUNT", "x", "is not a whole number from 0 to 1000000"),
        ("MIN_WORKERS", "x", "is not a whole number from 0 to 1000000"),
        ("MIN_NODES", "0", "is not a whole number from 1 to 1000000"),
        ("MAX_RESTARTS", "-1", "is not a whole number from 0 to 1000000"),
        ("ENTRY_ON", "workers", "is neither main nor all"),
        ("GANG", "2", "is neither 1 nor 0"),
        ("FIND_INTERFACE", "eth0", "is neither 1 nor 0"),
        ("EPHEMERAL", "2", "is neither 1 nor 0"),
        ("CLUSTER_TLS", "maybe", "is neither 1 nor 0"),
        ("CLUSTER_NAME", "a b", "is not a name of letters, digits and . _ - (255 at most)"),
        ("NAMED_ARGS", "x", "is not of the form k=v"),
    ],
)
def test_a_bad_setting_is_named(checkout: Checkout, name: str, text: str, why: str) -> None:
    """A value from the environment is named by its variable, with exit code 78."""
    assert refusal(SettingsError, checkout, {name: text}) == f"bad settings: {name}: '{text}' {why} {HINT}"


def test_every_problem_is_in_one_message(checkout: Checkout) -> None:
    """Bad values from all places are told at once; one that came by a flag makes it wrong usage."""
    checkout.config("POLL_CEILING=often")
    assert refusal(UsageError, checkout, {"EPHEMERAL": "2"}, settings={"ENTRY_POINT": "nope.py"}) == (
        "EPHEMERAL: '2' is neither 1 nor 0;"
        f" --entry: there is no file 'nope.py' in '{checkout.cwd}'; give the path of your script;"
        " POLL_CEILING: 'often' is not a duration; write seconds, or a number with s, m, h or d, such as 90s or 2h"
    )


def test_a_bad_line_of_the_configuration_is_named(checkout: Checkout) -> None:
    """config.env is read, never run: a line that is no KEY=VALUE is refused (78)."""
    checkout.config("TTL=1h", "export A=1")
    assert refusal(SettingsError, checkout) == (
        f"{checkout.root}/config.env:2: expected KEY=VALUE (quote a value with spaces), got: export A=1"
    )


def test_the_clusters_id_can_be_a_files_name(checkout: Checkout) -> None:
    """The longest --name that is allowed still makes a CLUSTER_ID that is a name; a longer one is refused by name."""
    assert len(checkout.plan(settings={"CLUSTER_NAME": "n" * 100})["cluster_id"]) <= 255
    with pytest.raises(UsageError, match=r"--name: 'n+' has 101 characters, 100 at most"):
        checkout.plan(settings={"CLUSTER_NAME": "n" * 101})


# --- An interpreter of the user's own -------------------------------------------------------------------------------


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def test_an_interpreter_is_kept_by_its_own_path(checkout: Checkout) -> None:
    """A venv's python is a link that must stay one: it is made absolute, and not resolved."""
    real = executable(checkout.cwd / "base" / "python3.11")
    (checkout.cwd / "venv" / "bin").mkdir(parents=True)
    (checkout.cwd / "venv" / "bin" / "python").symlink_to(real)
    assert checkout.plan(python="venv/bin/python")["python"] == str(checkout.cwd / "venv" / "bin" / "python")


def test_an_environments_folder_stands_for_its_interpreter(checkout: Checkout) -> None:
    """--python DIR means DIR/bin/python."""
    python = executable(checkout.cwd / "venv" / "bin" / "python")
    assert checkout.plan(python="venv")["python"] == str(python)


def test_a_home_folder_is_expanded(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    """~ is understood where the shell has left it, as in --python=~/venv."""
    monkeypatch.setenv("HOME", str(checkout.cwd))
    python = executable(checkout.cwd / "venv" / "bin" / "python")
    assert checkout.plan(python="~/venv")["python"] == str(python)


@pytest.mark.parametrize("text", ["none", "empty", "my script.py"])
def test_what_cannot_be_run_is_no_interpreter(checkout: Checkout, text: str) -> None:
    """A missing file, a folder without one, and a file that is not executable are wrong usage."""
    (checkout.cwd / "empty").mkdir()
    assert refusal(UsageError, checkout, python=text) == (
        f"--python {text} is not an executable; give a Python interpreter, or an environment's folder"
    )


# --- How many workers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "environ", "least"),
    [
        ("", {}, 3),
        ("MIN_WORKERS=1\n", {}, 1),
        ("MIN_WORKERS=1\n", {"MIN_WORKERS": "2"}, 2),
        ("", {"MIN_NODES": "3"}, 2),
        ("", {"MIN_NODES": "1"}, 0),
        ("MIN_NODES=2\n", {}, 1),
        ("", {"MIN_NODES": "4", "MIN_WORKERS": "0"}, 0),
    ],
)
def test_the_least_is_what_the_agents_take_for_it(
    checkout: Checkout, declared: str, environ: dict[str, str], least: int
) -> None:
    """MIN_WORKERS, else MIN_NODES less main, else all that were launched; the framework's defaults count."""
    (checkout.root / "dask" / "settings.env").write_text(declared)
    assert least_workers(checkout.plan(environ, workers="3"), checkout.root) == least


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("4", 4), ("+1", 4), ("-1", 2), ("+0", 3), ("-0", 3), ("3", 3), ("1", 1), ("+7", 10), ("10", 10)],
)
def test_workers_are_asked_for_by_number_or_by_difference(text: str, wanted: int) -> None:
    """A sign makes a difference of it; both limits are allowed."""
    assert scaled_workers(text, 3, least=1, most=10) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"), [("0", 0), ("-3", 0), ("-4", -1), ("+8", 11), ("11", 11), ("1000000", 1_000_000)]
)
def test_workers_out_of_the_limits_are_wrong_usage(text: str, wanted: int) -> None:
    """The number that would be, the limits and the number that is are in one line."""
    with pytest.raises(UsageError) as caught:
        scaled_workers(text, 3, least=1, most=10)
    assert str(caught.value) == (f"{wanted} workers are not possible, 1 to 10 are (3 now); the least is MIN_WORKERS")


@pytest.mark.parametrize("text", ["", "+", "-", "++1", "+-1", "--1", "1.5", "two", "1+", "1000001", "+ "])
def test_what_is_no_number_of_workers_is_wrong_usage(text: str) -> None:
    """Named as it was typed, with the forms that are right."""
    with pytest.raises(UsageError) as caught:
        scaled_workers(text, 3, least=1, most=10)
    assert str(caught.value) == f"'{text}' is not a number of workers; write 4, +1 or -1"


# --- Ports and secrets ----------------------------------------------------------------------------------------------


def test_ports_are_the_frameworks_single_ones(checkout: Checkout) -> None:
    """Every *_PORT that the framework declares is one, as set for this launch or by default; ranges are none."""
    plan = checkout.plan({"DASHBOARD_PORT": "9000"}, environment=["OTHER_PORT=1"])
    assert ports(plan, checkout.root) == {"SCHEDULER_PORT": 8786, "DASHBOARD_PORT": 9000}


@pytest.mark.parametrize("text", ["0", "65536", "http", "-1"])
def test_what_is_no_port_is_named(checkout: Checkout, text: str) -> None:
    """A port out of range is a wrong setting, named with its limits."""
    with pytest.raises(SettingsError) as caught:
        ports(checkout.plan(environment=[f"SCHEDULER_PORT={text}"]), checkout.root)
    assert str(caught.value) == f"SCHEDULER_PORT: '{text}' is not a whole number from 1 to 65535"


@pytest.mark.parametrize(
    "name",
    [
        "API_TOKEN",
        "CLIENT_SECRET",
        "DB_PASSWORD",
        "PASSWD",
        "MY_CREDENTIALS",
        "PRIVATE_ID",
        "KEY",
        "AWS_ACCESS_KEY_ID",
        "my_key",
    ],
)
def test_values_of_secret_names_are_not_shown(checkout: Checkout, name: str) -> None:
    """What people see of a plan has no value whose name says that it is secret; the plan itself keeps it."""
    plan = checkout.plan(environment=[f"{name}=hunter2"])
    shown = without_secrets(plan)
    assert shown == {**plan, "environment": {**plan["environment"], name: "(not shown)"}}
    assert plan["environment"][name] == "hunter2"


@pytest.mark.parametrize("name", ["MONKEY", "TIMEOUT", "NPROCS"])
def test_other_values_are_shown(checkout: Checkout, name: str) -> None:
    """A name that only ends in the letters of KEY is no secret."""
    plan = checkout.plan(environment=[f"{name}=7"])
    assert without_secrets(plan) == plan


# --- Ranks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "running", "count", "ranks"),
    [
        (["MAIN", "WORKER_1", "WORKER_2"], ["MAIN", "WORKER_1", "WORKER_2"], 2, [3, 4]),
        (["MAIN", "WORKER_1", "WORKER_2"], ["MAIN", "WORKER_1"], 1, [2]),
        (["MAIN", "WORKER_1", "WORKER_2"], ["MAIN"], 3, [1, 2, 3]),
        (["MAIN", "WORKER_1", "PS_2"], ["MAIN", "WORKER_1", "PS_2"], 2, [3, 4]),
        (["MAIN", "WORKER_1", "PS_2"], ["MAIN", "WORKER_1"], 1, [3]),
        (["MAIN", "WORKER_10", "WORKER_9"], ["MAIN"], 3, [9, 10, 11]),
        (["MAIN", "WORKER_1", "WORKER_2"], ["MAIN", "WORKER_1"], 0, []),
        (["MAIN", "WORKER_1", "WORKER_2"], ["MAIN", "WORKER_1"], -1, []),
    ],
)
def test_new_workers_get_the_ranks_of_lost_ones_first(
    known: list[str], running: list[str], count: int, ranks: list[int]
) -> None:
    """Then the next that no node has had: a parameter server's rank is never a worker's."""
    assert free_ranks(known, running, count) == ranks


@pytest.mark.parametrize(("node", "rank"), [("MAIN", 0), ("WORKER_1", 1), ("WORKER_12", 12), ("PS_3", 3)])
def test_a_nodes_name_tells_its_rank(node: str, rank: int) -> None:
    """Main is 0."""
    assert rank_of(node) == rank


# --- What a backend needs -------------------------------------------------------------------------------------------


def test_a_backends_own_settings_are_in_the_plan(checkout: Checkout) -> None:
    """Those that its file lists, and no others: flags, environment and config.env win over the file."""
    folder = checkout.root / "scripts" / "backends"
    folder.mkdir(parents=True)
    (folder / "cloud.env").write_text("SHAPE=small\nIMAGE=\nREGION=here\n")
    checkout.config("SHAPE=large", "REGION=there", "OTHER=x")
    plan = checkout.plan({"REGION": "elsewhere", "CODE_URI": "image"}, backend="cloud")
    assert plan["settings"] == {"SHAPE": "large", "IMAGE": "", "REGION": "elsewhere"}
    assert plan["code_uri"] == "image"
    assert "SHAPE" not in plan["environment"]


def test_a_kept_cluster_has_code_only_where_some_is_named(checkout: Checkout) -> None:
    """Without an entry point there is nothing to send, unless a folder was asked for."""
    assert checkout.plan({"EPHEMERAL": "0"})["code_dir"] == ""
    assert checkout.plan({"EPHEMERAL": "0", "CODE_DIR": str(checkout.cwd)})["code_dir"] == str(checkout.cwd)


def test_a_name_of_a_checkout_fits_a_tag(checkout: Checkout) -> None:
    """100 characters at most."""
    checkout.root = checkout.root.rename(checkout.root.parent / ("p" * 200))
    assert checkout.plan()["project"] == "p" * 100
