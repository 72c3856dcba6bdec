from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oci_cluster import __main__ as door
from oci_cluster import agent, docker_verbs, environment, local, oci_verbs, outputs, process, verbs
from oci_cluster.clusters import Cluster
from oci_cluster.errors import BackendError, ExitCode, SettingsError, StoppedError

COMMON = Path(door.__file__).parents[1]
ENV_YAML = "dependencies:\n  - pip:\n      - dask==1.0\n      - bokeh==2.0\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the checkout that the verbs see, with one framework."""
    place = tmp_path / "my project"
    (place / "dask" / "example").mkdir(parents=True)
    (place / "dask" / "example" / "train.py").touch()
    (place / "dask" / "start-master.sh").touch()
    (place / "dask" / "settings.env").write_text("REQUIRED_PACKAGES=dask,distributed\n")
    (place / "dask" / "env.yaml").write_text(ENV_YAML)
    monkeypatch.setattr(door, "PROJECT_ROOT", place)
    return place


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Any]]:
    """Return a function that puts a recorder in the place of *name* in *module*."""

    def replace(module: object, name: str, result: Any = None) -> list[Any]:
        recorded: list[Any] = []

        def recorder(*words: Any, **named: Any) -> Any:
            recorded.append((*words, *named.items()))
            if isinstance(result, BaseException):
                raise result
            return result

        monkeypatch.setattr(module, name, recorder)
        return recorded

    return replace


def keep(root: Path, name: str, created: str = "2026-01-01T00:00:00Z") -> Cluster:
    """Return a cluster of main and one worker that was launched from *root*, with a log of each."""
    directory = local.state_dir(root) / f"{name}-1f2e"
    (directory / "logs").mkdir(parents=True)
    plan = {
        "name": name,
        "framework": "dask",
        "backend": "local",
        "launch_id": "1f2e",
        "cluster_id": f"{name}-1f2e",
        "work_dir": f"file://{local.state_dir(root)}",
        "created": created,
        "environment": {},
        "nodes": [{"node": name, "environment": {"NODE_ADDRESS": "127.0.0.1"}} for name in ("MAIN", "WORKER_1")],
    }
    (directory / "cluster.json").write_text(json.dumps(plan))
    for node in ("MAIN", "WORKER_1"):
        (directory / "logs" / f"{node}.log").write_text(f"hello of {node}\n")
    return Cluster.load(directory)


def running(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    nodes = [{"node": node, "state": "IN_PROGRESS", "exit_code": None, "pid": 7} for node in ("MAIN", "WORKER_1")]
    monkeypatch.setattr(local, "is_running", lambda cluster: cluster.name in names)
    monkeypatch.setattr(local, "state", lambda cluster: {"running": cluster.name in names, "nodes": nodes})


# --- What any verb can end with -------------------------------------------------------------------------------------


def test_an_expected_failure_is_one_line_and_its_code(
    capsys: pytest.CaptureFixture[str], calls: Callable[..., list[Any]]
) -> None:
    """An error of ours is told in one line on stderr, and its code is the verb's."""
    calls(agent, "run_agent", SettingsError("bad settings: MODE is not set"))
    assert (door.main(["agent"]), capsys.readouterr()) == (
        78,
        ("", "oci_cluster: error: bad settings: MODE is not set\n"),
    )


@pytest.mark.parametrize(("program", "shown"), [("launch.sh", "launch.sh"), ("", "oci_cluster")])
def test_messages_begin_with_the_script_that_called(
    capsys: pytest.CaptureFixture[str],
    calls: Callable[..., list[Any]],
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    shown: str,
) -> None:
    """CLUSTER_PROGRAM is the name that a person typed; an empty one is none."""
    monkeypatch.setenv("CLUSTER_PROGRAM", program)
    calls(agent, "run_agent", SettingsError("why"))
    door.main(["agent"])
    assert capsys.readouterr().err == f"{shown}: error: why\n"


def test_an_errors_own_code_is_passed_on(calls: Callable[..., list[Any]]) -> None:
    """An error that carries another code than its class ends with that one."""
    calls(agent, "run_agent", StoppedError("TTL reached", exit_code=0))
    assert door.main(["agent"]) == 0


def test_ctrl_c_is_no_traceback(calls: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C in any verb ends with 143, and without a word."""
    calls(agent, "run_agent", KeyboardInterrupt())
    try:
        code = door.main(["agent"])
    except KeyboardInterrupt:
        pytest.fail("main let a Ctrl-C through")
    assert (code, capsys.readouterr()) == (ExitCode.STOPPED, ("", ""))


def test_a_reader_that_has_gone_is_no_failure(
    calls: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`logs.sh | head` is right usage: 0, and what is still in the buffer goes nowhere."""
    calls(agent, "run_agent", BrokenPipeError())
    with (tmp_path / "stdout").open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        code = door.main(["agent"])
        stdout.write("still buffered")
    assert (code, (tmp_path / "stdout").read_text()) == (0, "")


def test_a_bug_of_ours_has_its_own_code(calls: Callable[..., list[Any]]) -> None:
    """An exception that nobody expected ends with 70: 1 is the entry point's own."""
    calls(agent, "run_agent", ZeroDivisionError())
    assert door.main(["agent"]) == ExitCode.BUG


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nope"],
        ["plan"],
        ["plan", "dask", "3"],
        ["local-submit"],
        ["local-status", "a", "b"],
        ["agent", "x"],
        ["local-scale", "--most-workers", "9", "mine"],
        ["local-scale", "mine", "3"],
    ],
)
def test_a_wrong_command_line_ends_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """Wrong usage is told on stderr, with exit code 2."""
    with pytest.raises(SystemExit) as caught:
        door.main(arguments)
    shown = capsys.readouterr()
    assert (caught.value.code, shown.out, "error: " in shown.err) == (2, "", True)


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    """The door tells what there is behind it."""
    with pytest.raises(SystemExit) as caught:
        door.main(["--help"])
    listed = [
        line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("    ") and line.strip()
    ]
    verbs = [name for name in listed if name.replace("-", "").isalpha() and name.islower()]
    assert (caught.value.code, sorted(set(verbs) & set(VERBS))) == (0, sorted(VERBS))


VERBS = {
    "agent",
    "upload-outputs",
    "plan",
    "prepare",
    "requirements",
    "local-check",
    "local-submit",
    "local-runner",
    "local-status",
    "local-logs",
    "local-stop",
    "local-scale",
    "local-list",
    *(f"docker-{name}" for name in ("check", "prepare", "submit", "status", "logs", "stop", "scale", "list")),
}


# --- As a process ---------------------------------------------------------------------------------------------------


def verb(*arguments: str, **named: Any) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(COMMON), "CLUSTER_PROGRAM": "test.sh"}
    command = [sys.executable, "-m", "oci_cluster", *arguments]
    return subprocess.run(command, env=environ, stderr=subprocess.PIPE, text=True, check=False, **named)


def test_a_process_ends_with_the_verbs_code(tmp_path: Path) -> None:
    """The exit code of python -m oci_cluster is the verb's, its message one line without a traceback."""
    path = tmp_path / "none.yaml"
    done = verb("requirements", str(path), stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (78, "", 1)
    assert done.stderr.startswith(f"test.sh: error: {path} is not a conda environment file")


def test_early_verbs_need_the_standard_library_only(root: Path) -> None:
    """On a fresh checkout plan runs before .venv exists: it imports nothing that is not Python's own."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from oci_cluster.__main__ import main;"
        "main(['plan', 'dask', '2', '--backend', 'local', '--most-workers', '9']);"
        "import oci_cluster.environment; print(*sorted(sys.modules), file=sys.stderr)"
    )
    # -S: without site-packages any other import fails.
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, COMMON], cwd=root, capture_output=True, check=True)
    assert {"fsspec", "psutil", "yaml", "cryptography"} & set(done.stderr.decode().split()) == set()


def test_a_short_result_for_a_reader_that_has_gone_is_no_failure(root: Path) -> None:
    """Also a result that fits into the buffer may have lost its reader: 0, and nothing on stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    done = verb("requirements", str(root / "dask" / "env.yaml"), stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


# --- Verbs of a node ------------------------------------------------------------------------------------------------


def test_agent_runs_the_node_of_the_environment(calls: Callable[..., list[Any]]) -> None:
    """The agent gets the process's environment, and its code is the verb's."""
    called = calls(agent, "run_agent", 76)
    assert (door.main(["agent"]), called) == (76, [(os.environ,)])


def test_upload_outputs_takes_source_and_manifest(calls: Callable[..., list[Any]]) -> None:
    """The upload gets environment, folder and manifest."""
    called = calls(outputs, "upload_node_outputs")
    assert (door.main(["upload-outputs", "/my out", "/m.json"]), called) == (
        0,
        [(os.environ, Path("/my out"), Path("/m.json"))],
    )


# --- Verbs of a launch ----------------------------------------------------------------------------------------------


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert door.main(["plan", "dask", "2", "--backend", "local", "--most-workers", "9", *arguments]) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_plan_prints_what_will_be_launched(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Flags, --env and the environment's settings become a plan, as JSON on stdout."""
    plan = planned(capsys, "--set", "CLUSTER_NAME=mine", "--set", "NAMED_ARGS=k=v", "--env=A=b=c", "--env", "B=")
    wanted = {
        "CLUSTER_NAME": "mine",
        "NAMED_ARGS": "k=v",
        "A": "b=c",
        "B": "",
        "CODE_DIR": str(root / "dask" / "example"),
    }
    assert (plan["name"], {name: plan["environment"][name] for name in wanted}) == ("mine", wanted)


@pytest.mark.usefixtures("root")
def test_plan_reads_the_environment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the launcher's environment are read."""
    monkeypatch.setenv("TIME_OUT", "7")
    assert planned(capsys)["environment"]["TIMEOUT"] == "7"


@pytest.mark.usefixtures("root")
def test_plan_starts_relative_paths_here(capsys: pytest.CaptureFixture[str]) -> None:
    """A script is looked for in the working directory."""
    Path("my.py").touch()
    environment = planned(capsys, "--set", "ENTRY_POINT=my.py")["environment"]
    assert (environment["ENTRY_POINT"], environment["CODE_DIR"]) == ("my.py", str(Path.cwd().resolve()))


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize(
    "arguments",
    [
        ["a", "b c", "d'e", ""],
        ["--env", "A=b", "--set", "x", "-h", "--help"],
        ["--", "-x", "--"],
        ["--arguments", "--arguments"],
        ["-1"],
        [],
    ],
)
def test_everything_after_arguments_is_the_entry_points(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    """Words after --arguments reach the entry point exactly, also those that look like ours."""
    assert json.loads(planned(capsys, "--arguments", *arguments)["environment"]["ARGS"]) == arguments


@pytest.mark.usefixtures("root")
def test_without_arguments_args_of_the_environment_count(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the command line has none, ARGS gives the entry point's arguments."""
    monkeypatch.setenv("ARGS", "a 'b c'")
    assert json.loads(planned(capsys)["environment"]["ARGS"]) == ["a", "b c"]


@pytest.mark.usefixtures("root")
def test_plan_refuses_more_workers_than_the_backend_takes(capsys: pytest.CaptureFixture[str]) -> None:
    """--most-workers is the backend's limit: above it the launch is wrong usage, and nothing is on stdout."""
    code = door.main(["plan", "dask", "10", "--backend", "local", "--most-workers", "9"])
    limit = "'10' is not a whole number from 1 to 9, which is what the local backend takes"
    assert (code, capsys.readouterr()) == (2, ("", f"oci_cluster: error: workers: {limit}; try 3\n"))


def test_prepare_makes_the_frameworks_environment(
    root: Path, capsys: pytest.CaptureFixture[str], calls: Callable[..., list[Any]]
) -> None:
    """Without --python the framework's own environment is made, and its interpreter printed."""
    called = calls(environment, "ensure_framework", Path("/venv/bin/python"))
    assert (door.main(["prepare", "dask"]), capsys.readouterr().out) == (0, "/venv/bin/python\n")
    assert [call[:2] for call in called] == [(root, root / "dask" / "env.yaml")]


def test_prepare_talks_under_the_scripts_name(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is on stderr, after the name of the script that called."""
    monkeypatch.setenv("CLUSTER_PROGRAM", "launch.sh")
    monkeypatch.setattr(environment, "ensure_framework", lambda *words: words[2]("making it") or root)
    door.main(["prepare", "dask"])
    assert capsys.readouterr() == (f"{root}\n", "launch.sh: making it\n")


@pytest.fixture
def own_python(tmp_path: Path) -> Path:
    """Return the interpreter of an environment of the user's own."""
    python = tmp_path / "my venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)
    return python


def test_prepare_takes_the_users_own_interpreter(
    root: Path, own_python: Path, capsys: pytest.CaptureFixture[str], calls: Callable[..., list[Any]]
) -> None:
    """With --python only the launcher's own packages are installed, and nothing into the user's environment."""
    asked = calls(environment, "missing_packages", [])
    made = calls(environment, "ensure_tools")
    made_too = calls(environment, "ensure_framework")
    code = door.main(["prepare", "dask", "--python", str(own_python.parents[1])])
    assert (code, capsys.readouterr().out) == (0, f"{own_python}\n")
    assert (asked, made_too, [call[0] for call in made]) == ([(own_python, ["dask", "distributed"])], [], [root])


@pytest.mark.usefixtures("root")
def test_prepare_names_what_the_users_interpreter_lacks(
    own_python: Path, capsys: pytest.CaptureFixture[str], calls: Callable[..., list[Any]]
) -> None:
    """Missing packages are named with the command that installs them, before anything is made."""
    calls(environment, "missing_packages", ["dask", "distributed"])
    made = calls(environment, "ensure_tools")
    assert (door.main(["prepare", "dask", "--python", str(own_python)]), made) == (78, [])
    lacks, install = f"{own_python} lacks dask, distributed", f"{own_python} -m pip install dask distributed"
    assert capsys.readouterr() == ("", f"oci_cluster: error: --python {lacks}; install what is missing: {install}\n")


def test_prepare_asks_for_nothing_where_the_framework_does(
    root: Path, own_python: Path, calls: Callable[..., list[Any]]
) -> None:
    """A framework that requires no package is content with any interpreter."""
    (root / "dask" / "settings.env").unlink()
    asked = calls(environment, "missing_packages", [])
    calls(environment, "ensure_tools")
    assert (door.main(["prepare", "dask", "--python", str(own_python)]), asked) == (0, [(own_python, [])])


@pytest.mark.usefixtures("root")
def test_prepare_names_an_interpreter_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """A --python that cannot be run is wrong usage in one line, as it is for plan."""
    assert door.main(["prepare", "dask", "--python", "none"]) == 2
    assert capsys.readouterr().err.startswith("oci_cluster: error: --python none is not an executable")


def test_requirements_prints_one_package_a_line(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An installer can read the list line by line."""
    assert (door.main(["requirements", str(root / "dask" / "env.yaml")]), capsys.readouterr().out) == (
        0,
        "dask==1.0\nbokeh==2.0\n",
    )


# --- Verbs of the local backend -------------------------------------------------------------------------------------


def on_stdin(monkeypatch: pytest.MonkeyPatch, plan: dict[str, Any]) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(plan)))


def test_local_check_prints_what_would_be_run_without_secrets(
    root: Path, capsys: pytest.CaptureFixture[str], calls: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan of stdin is checked; what a person sees of it has no secret."""
    on_stdin(monkeypatch, {"name": "mine"})
    called = calls(local, "check", {"name": "mine", "environment": {"API_TOKEN": "hunter2", "A": "b"}})
    assert (door.main(["local-check"]), json.loads(capsys.readouterr().out)) == (
        0,
        {"name": "mine", "environment": {"API_TOKEN": "(not shown)", "A": "b"}},
    )
    assert called == [({"name": "mine"}, root)]


def test_local_submit_prints_the_clusters_name_alone(
    root: Path, capsys: pytest.CaptureFixture[str], calls: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A detached launch prints one word that other scripts take."""
    on_stdin(monkeypatch, {"name": "mine"})
    called = calls(local, "submit", SimpleNamespace(name="mine"))
    assert (door.main(["local-submit", "--python", "/my/python"]), capsys.readouterr()) == (0, ("mine\n", ""))
    assert called == [({"name": "mine"}, root, Path("/my/python"))]


def test_local_submit_follows_to_the_clusters_own_code(
    root: Path, capsys: pytest.CaptureFixture[str], calls: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --follow signals are taken over before anything starts, logs are shown, and the code is the cluster's."""
    cluster = keep(root, "mine")
    order: list[str] = []
    monkeypatch.setattr(process, "Signals", lambda: order.append("signals") or SimpleNamespace(received=None))
    monkeypatch.setattr(local, "submit", lambda *_: order.append("submit") or cluster)
    nodes = [
        {"node": "MAIN", "exit_code": 7, "state": "FAILED"},
        {"node": "WORKER_1", "exit_code": 7, "state": "FAILED"},
    ]
    monkeypatch.setattr(local, "state", lambda _: {"running": False, "nodes": nodes})
    killed = calls(local, "kill")
    on_stdin(monkeypatch, {})
    code = door.main(["local-submit", "--python", "/my/python", "--follow"])
    shown = capsys.readouterr()
    assert (code, order, killed, shown.out) == (
        7,
        ["signals", "submit"],
        [],
        "MAIN     | hello of MAIN\nWORKER_1 | hello of WORKER_1\n",
    )
    assert shown.err.splitlines()[0] == f"oci_cluster: cluster mine started: 2 nodes; files in {cluster.directory}"


def test_local_runner_runs_the_nodes_of_a_directory(calls: Callable[..., list[Any]]) -> None:
    """The runner's code is the verb's."""
    called = calls(local, "run_nodes", 0)
    assert (door.main(["local-runner", "/c"]), called) == (0, [(Path("/c"),)])


def test_local_status_shows_the_only_running_cluster(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a name the running cluster is meant."""
    keep(root, "ended")
    keep(root, "mine")
    running(monkeypatch, "mine")
    assert door.main(["local-status"]) == 0
    assert capsys.readouterr().out.startswith("mine  dask on local, IN_PROGRESS, started ")


def test_local_status_as_json_is_for_programs(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--json has all that is known of the cluster that is named."""
    keep(root, "other")
    keep(root, "mine")
    running(monkeypatch, "mine", "other")
    assert door.main(["local-status", "mine", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["state"], [node["node"] for node in found["nodes"]]) == (
        "mine",
        "IN_PROGRESS",
        ["MAIN", "WORKER_1"],
    )


def test_an_unknown_cluster_is_wrong_usage(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is not there is told with those that are (2)."""
    keep(root, "mine")
    assert (door.main(["local-status", "nope"]), capsys.readouterr().err) == (
        2,
        "oci_cluster: error: there is no cluster 'nope'; known: mine\n",
    )


@pytest.mark.parametrize(("flags", "names"), [([], ["mine"]), (["--all"], ["ended", "mine"])])
def test_local_list_shows_what_runs(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, flags: list[str], names: list[str]
) -> None:
    """Running clusters are listed, with --all those that have ended too, the oldest first."""
    keep(root, "mine", "2026-01-02T00:00:00Z")
    keep(root, "ended")
    running(monkeypatch, "mine")
    assert door.main(["local-list", *flags]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["NAME", *names]


def test_local_list_as_json_is_a_list(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """--json is a list also where nothing runs."""
    keep(root, "ended")
    running(monkeypatch)
    codes = [door.main(["local-list", "--json"])]
    empty = json.loads(capsys.readouterr().out)
    codes.append(door.main(["local-list", "--json", "--all"]))
    found = json.loads(capsys.readouterr().out)
    assert (codes, empty, [(cluster["name"], cluster["exit_code"]) for cluster in found]) == (
        [0, 0],
        [],
        [("ended", 76)],
    )


@pytest.fixture
def _no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "Signals", lambda: SimpleNamespace(received=None, wait=lambda _: None))


@pytest.mark.usefixtures("_no_signals")
def test_local_logs_shows_what_there_is(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without -f the logs of all nodes are shown once, without colour where it is no terminal."""
    keep(root, "mine")
    assert (door.main(["local-logs", "mine"]), capsys.readouterr().out) == (
        0,
        "MAIN     | hello of MAIN\nWORKER_1 | hello of WORKER_1\n",
    )


@pytest.mark.usefixtures("_no_signals")
def test_local_logs_follows_a_running_cluster(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With -f what is printed until the cluster's end is shown too."""
    cluster = keep(root, "mine")
    looks = iter([True, True, False])

    def is_running(_: Cluster) -> bool:
        with (cluster.directory / "logs" / "MAIN.log").open("a") as log:
            log.write("more\n")
        return next(looks)

    monkeypatch.setattr(local, "is_running", is_running)
    door.main(["local-logs", "-f", "--node", "MAIN"])
    assert capsys.readouterr().out == "MAIN | hello of MAIN\n" + "MAIN | more\n" * 3


@pytest.mark.usefixtures("_no_signals")
def test_local_logs_shows_one_node(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--node leaves the others out."""
    keep(root, "mine")
    door.main(["local-logs", "mine", "--node=WORKER_1"])
    assert capsys.readouterr().out == "WORKER_1 | hello of WORKER_1\n"


@pytest.mark.parametrize("node", ["WORKER_9", "../../secret", "MAIN.log"])
def test_local_logs_shows_no_other_file(root: Path, capsys: pytest.CaptureFixture[str], node: str) -> None:
    """A node that is not in the cluster is wrong usage, named with those that are."""
    keep(root, "mine")
    assert (door.main(["local-logs", "mine", "--node", node]), capsys.readouterr()) == (
        2,
        ("", f"oci_cluster: error: mine has no node '{node}'; it has MAIN, WORKER_1\n"),
    )


@pytest.mark.parametrize(("flags", "delete"), [([], False), (["--delete"], True)])
def test_local_stop_prints_what_it_stopped(
    root: Path, capsys: pytest.CaptureFixture[str], calls: Callable[..., list[Any]], flags: list[str], *, delete: bool
) -> None:
    """The cluster that is named is stopped, with --delete removed too, and its name printed."""
    cluster = keep(root, "mine")
    called = calls(local, "stop")
    assert (door.main(["local-stop", "mine", *flags]), capsys.readouterr().out) == (0, "mine\n")
    assert [(call[0], call[2]) for call in called] == [(cluster, ("delete", delete))]


@pytest.mark.parametrize("workers", ["+1", "-1", "3"])
def test_local_scale_prints_how_many_workers_there_are(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    """The number alone is on stdout; talk is on stderr, under the script's name."""
    cluster = keep(root, "mine")
    monkeypatch.setenv("CLUSTER_PROGRAM", "scale.sh")
    called: list[Any] = []

    def scale(*words: Any, most: int) -> int:
        words[3]("WORKER_2 started")
        called.append((*words[:3], most))
        return 2

    monkeypatch.setattr(local, "scale", scale)
    assert door.main(["local-scale", "--most-workers", "250", "--", "mine", workers]) == 0
    assert capsys.readouterr() == ("2\n", "scale.sh: WORKER_2 started\n")
    assert called == [(cluster, workers, root, 250)]


def test_local_scale_of_an_unknown_cluster_is_wrong_usage(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Told with those that are (2)."""
    keep(root, "mine")
    assert (door.main(["local-scale", "--most-workers", "250", "--", "nope", "3"]), capsys.readouterr()) == (
        2,
        ("", "oci_cluster: error: there is no cluster 'nope'; known: mine\n"),
    )


@pytest.mark.usefixtures("_no_signals")
def test_local_logs_shows_nodes_that_were_added(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are in the backend's records, not in the plan."""
    cluster = keep(root, "mine")
    (cluster.directory / "logs" / "WORKER_2.log").write_text("hello of WORKER_2\n")
    nodes = [{"node": name} for name in ("MAIN", "WORKER_1", "WORKER_2")]
    (cluster.directory / "nodes.json").write_text(json.dumps({"runner_pid": 1, "nodes": nodes}))
    assert door.main(["local-logs", "mine", "--node", "WORKER_2"]) == 0
    assert door.main(["local-logs", "mine"]) == 0
    alone, *merged = capsys.readouterr().out.splitlines()
    assert (alone, merged[-1], len(merged)) == ("WORKER_2 | hello of WORKER_2", "WORKER_2 | hello of WORKER_2", 3)


# --- Verbs of the backends oci and docker ---------------------------------------------------------------------------


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, calls: Callable[..., list[Any]]) -> list[Any]:
    """Return the calls of what installs the packages: they are where this process runs."""
    return calls(environment, "ensure_oci_tools", Path(sys.prefix) / "bin" / "python")


ELSEWHERE = [
    (["check"], "check", {"json": False}),
    (["check", "--json"], "check", {"json": True}),
    (["prepare"], "prepare", {}),
    (["submit"], "submit", {"follow": False}),
    (["submit", "--follow"], "submit", {"follow": True}),
    (["status"], "status", {"name": "", "json": False}),
    (["status", "--json", "mine"], "status", {"name": "mine", "json": True}),
    (["list", "--all", "--json"], "list", {"all": True, "json": True}),
    (["logs", "mine", "-f", "--node", "MAIN"], "logs", {"name": "mine", "follow": True, "node": "MAIN"}),
    (["stop", "--delete", "mine"], "stop", {"name": "mine", "delete": True}),
    (["scale", "--most-workers", "9", "--", "mine", "-1"], "scale",
     {"name": "mine", "workers": "-1", "most_workers": 9}),
]  # fmt: skip


@pytest.mark.parametrize(("words", "name", "given"), ELSEWHERE)
@pytest.mark.parametrize(("backend", "own"), [("oci", oci_verbs), ("docker", docker_verbs)])
def test_a_verb_runs_where_its_packages_are(  # noqa: PLR0917 - pytest gives them by name
    tools: list[Any],
    calls: Callable[..., list[Any]],
    backend: str,
    own: Any,
    words: list[str],
    name: str,
    given: dict[str, Any],
) -> None:
    """Those for OCI are made sure of first; the verb gets its words, and its code is the process's."""
    is_own = hasattr(own, f"run_{name}")
    ran = calls(own if is_own else verbs, f"run_{name}", 7)
    assert door.main([f"{backend}-{words[0]}", *words[1:]]) == 7
    ((*made, args, program),) = ran
    assert made == ([] if is_own else [own.backend])
    assert ({key: getattr(args, key) for key in given}, program) == (given, "oci_cluster")
    assert len(tools) == (backend == "oci")


def test_elsewhere_a_verb_of_oci_goes_on_where_its_packages_are(
    root: Path, monkeypatch: pytest.MonkeyPatch, calls: Callable[..., list[Any]], tmp_path: Path
) -> None:
    """The same verb, in the launcher's own interpreter; relative paths begin where the user is."""

    class ReplacedError(BaseException):
        pass

    (root / "common").mkdir()
    python = tmp_path / "venv" / "bin" / "python"
    calls(environment, "ensure_oci_tools", python)
    replaced = calls(os, "execv", ReplacedError())
    ran = calls(verbs, "run_list", 0)
    monkeypatch.setenv("CLUSTER_CWD", "")
    monkeypatch.setattr(sys, "argv", ["x", "oci-list", "--all"])
    here = Path.cwd()
    with pytest.raises(ReplacedError):
        door.main(["oci-list", "--all"])
    assert replaced == [(python, [str(python), "-m", "oci_cluster", "oci-list", "--all"])]
    assert (os.environ["CLUSTER_CWD"], Path.cwd(), ran) == (str(here), root / "common", [])


def test_packages_that_cannot_be_had_end_a_verb(calls: Callable[..., list[Any]], root: Path) -> None:
    """69, and nothing was asked."""
    calls(environment, "ensure_oci_tools", BackendError("no network"))
    ran = calls(verbs, "run_list", 0)
    assert (door.main(["oci-list"]), ran) == (69, [])
