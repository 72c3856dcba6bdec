from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oci_cluster import __main__ as door
from oci_cluster.backends.local import runner
from oci_cluster.contract.settings import settings_files
from oci_cluster.errors import BackendError, ExitCode, SettingsError, StoppedError
from oci_cluster.images import build
from oci_cluster.launcher import context, verbs
from oci_cluster.node import outputs, start
from oci_cluster.system.envs import installer, python_env

COMMON = Path(door.__file__).parents[1]
ENV_YAML = "dependencies:\n  - pip:\n      - dask==1.0\n      - bokeh==2.0\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the checkout that the verbs see, with one framework."""
    place = tmp_path / "my project"
    (place / "dask" / "example").mkdir(parents=True)
    (place / "dask" / "env.yaml").write_text(ENV_YAML)
    monkeypatch.setattr(settings_files, "PROJECT_ROOT", place)
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


# --- What any verb can end with -------------------------------------------------------------------------------------


def test_an_expected_failure_is_one_line_and_its_code(
    capsys: pytest.CaptureFixture[str], calls: Callable[..., list[Any]]
) -> None:
    """An error of ours is told in one line on stderr, and its code is the verb's."""
    calls(start, "run_agent", SettingsError("bad settings: MODE is not set"))
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
    calls(start, "run_agent", SettingsError("why"))
    door.main(["agent"])
    assert capsys.readouterr().err == f"{shown}: error: why\n"


def test_an_errors_own_code_is_passed_on(calls: Callable[..., list[Any]]) -> None:
    """An error that carries another code than its class ends with that one."""
    calls(start, "run_agent", StoppedError("TTL reached", exit_code=0))
    assert door.main(["agent"]) == 0


def test_ctrl_c_is_no_traceback(calls: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C in any verb ends with 143, and says so in one line."""
    calls(start, "run_agent", KeyboardInterrupt())
    try:
        code = door.main(["agent"])
    except KeyboardInterrupt:
        pytest.fail("main let a Ctrl-C through")
    assert (code, capsys.readouterr()) == (ExitCode.STOPPED, ("", "oci_cluster: stopped\n"))


def test_ctrl_c_while_an_error_is_told_is_no_traceback(
    calls: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    """It once came out of the door, as all that comes behind a verb did."""
    for name in ("check_stdout", "keep_interrupts", "_heed_no_more"):  # for a process of its own
        calls(door, name)
    calls(door, "main", KeyboardInterrupt())
    assert (door._to_the_end(["agent"]), capsys.readouterr()) == (ExitCode.STOPPED, ("", "oci_cluster: stopped\n"))


def test_a_reader_that_has_gone_is_no_failure(
    calls: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`logs.sh | head` is right usage: 0, and what is still in the buffer goes nowhere."""
    calls(start, "run_agent", BrokenPipeError())
    with (tmp_path / "stdout").open("w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        code = door.main(["agent"])
        stdout.write("still buffered")
    assert (code, (tmp_path / "stdout").read_text()) == (0, "")


def test_a_bug_of_ours_has_its_own_code(calls: Callable[..., list[Any]]) -> None:
    """An exception that nobody expected ends with 70: 1 is the entry point's own."""
    calls(start, "run_agent", ZeroDivisionError())
    assert door.main(["agent"]) == ExitCode.BUG


@pytest.mark.parametrize("arguments", [["nope"], ["plan"], ["local-submit"], ["--nope"], ["AGENT"], ["-x"]])
def test_an_unknown_verb_ends_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """Wrong usage is told on stderr in one line, with the verbs that there are."""
    code = door.main(arguments)
    known = ", ".join(door.VERBS)
    assert (code, capsys.readouterr()) == (
        2,
        ("", f"oci_cluster: error: unknown verb '{arguments[0]}'; known are {known}\n"),
    )


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    """The door tells what there is behind it."""
    assert door.main(arguments) == 0
    shown = capsys.readouterr()
    listed = [line.split()[0] for line in shown.out.splitlines() if line.startswith("  ")]
    assert (sorted(listed), shown.err) == (sorted(VERBS), "")


VERBS = {
    *("agent", "launch", "session", "status", "list", "logs", "scale", "stop", "connect", "images"),
    *("check", "from-ads", "lock", "new", "update"),
    *("prepare", "queue", "quota", "requirements", "setup", "upload-outputs", "fetch-outputs", "runner", "orphan"),
}


def test_a_package_that_is_missing_ends_a_process_that_no_script_called(
    calls: Callable[..., list[Any]],
) -> None:
    """An agent has no launcher's environment to go on in: it says what is missing."""
    calls(start, "run_agent", ModuleNotFoundError("No module named 'fsspec'"))
    made = calls(context, "use_own_environment")
    with pytest.raises(ModuleNotFoundError):
        door.main(["agent"])
    assert made == []


def test_a_script_whose_packages_are_gone_goes_on_where_they_are(
    calls: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """.venv is made anew; where it cannot be, the verb ends with what the installer said (69)."""
    monkeypatch.setenv("CLUSTER_PROGRAM", "stop.sh")
    calls(verbs, "run", ModuleNotFoundError("No module named 'fsspec'"))
    made = calls(context, "use_own_environment", BackendError("no network"))
    assert (door.main(["stop"]), len(made)) == (69, 1)
    assert capsys.readouterr() == ("", "stop.sh: error: no network\n")


def test_relative_paths_begin_where_the_user_is(
    calls: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Python itself was started elsewhere; what it starts is not told of it."""
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("CLUSTER_CWD", str(tmp_path / "here"))
    calls(verbs, "run", 0)
    door.main(["list"])
    assert (Path.cwd(), "CLUSTER_CWD" in os.environ) == (tmp_path / "here", False)


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


@pytest.mark.parametrize("words", [["launch", "dask", "2", "--dry-run"], ["list"], ["launch", "dask"]])
def test_early_verbs_need_the_standard_library_only(words: list[str]) -> None:
    """On a fresh checkout they run before .venv exists: nothing that is not Python's own is imported."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from oci_cluster.__main__ import main;"
        "code = main(sys.argv[2:]); print(*sorted(sys.modules), file=sys.stderr); sys.exit(code)"
    )
    # -S: without site-packages any other import fails.
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, COMMON, *words], capture_output=True, check=False)
    assert done.returncode == (2 if words == ["launch", "dask"] else 0), done.stderr
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
    called = calls(start, "run_agent", 76)
    assert (door.main(["agent"]), called) == (76, [(os.environ,)])


def test_upload_outputs_takes_source_and_manifest(calls: Callable[..., list[Any]]) -> None:
    """The upload gets environment, folder and manifest."""
    called = calls(outputs, "upload_node_outputs")
    assert (door.main(["upload-outputs", "/my out", "/m.json"]), called) == (
        0,
        [(os.environ, Path("/my out"), Path("/m.json"))],
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_script_waits_for_what_starts_nothing_ends_it_with_143(tmp_path: Path, number: int) -> None:
    """Also one that comes while modules are being imported: quietly, whatever the signal."""
    (tmp_path / "common").mkdir()
    for name in ("oci_cluster", "requirements.txt"):
        (tmp_path / "common" / name).symlink_to(COMMON / name)
    # The first import that the door makes tells that it is there, and stays. In short steps: a signal that comes just
    # before a sleep begins is handled only after it.
    reader, writer = os.pipe()
    (tmp_path / "logging.py").write_text(f"import os, time\nos.write({writer}, b'x')\nwhile True: time.sleep(0.01)\n")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}:{COMMON}", "CLUSTER_PROGRAM": "launch.sh"}
    command = [sys.executable, "-m", "oci_cluster", "launch"]
    process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, pass_fds=[writer])
    os.close(writer)
    try:
        assert os.read(reader, 1) == b"x"
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        os.close(reader)
    assert (process.returncode, said) == (143, b"launch.sh: stopped\n")


# --- Verbs of a launch ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["launch", "status", "list", "logs", "stop", "scale"])
def test_verbs_of_people_get_their_words_as_they_were_typed(calls: Callable[..., list[Any]], verb: str) -> None:
    """And their code is the process's."""
    ran = calls(verbs, "run", 7)
    assert (door.main([verb, "a b", "--", "-h"]), ran) == (7, [(verb, ["a b", "--", "-h"])])


def test_images_get_their_words_and_the_scripts_name(
    calls: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their messages begin with it."""
    monkeypatch.setenv("CLUSTER_PROGRAM", "images.sh")
    ran = calls(build, "run", 0)
    assert door.main(["images", "build", "dask", "--to-push"]) == 0
    assert door.main(["images"]) == 0
    told = [(action, frameworks, dict(named)["to_push"]) for action, frameworks, *named in ran]
    assert told == [("build", ["dask"], True), ("", [], False)]
    dict(ran[0][2:])["say"]("hello")
    assert capsys.readouterr().err == "images.sh: hello\n"


def test_prepare_makes_the_frameworks_environment(
    root: Path, capsys: pytest.CaptureFixture[str], calls: Callable[..., list[Any]]
) -> None:
    """Its interpreter is printed."""
    called = calls(python_env, "ensure_framework", Path("/venv/bin/python"))
    assert (door.main(["prepare", "dask"]), capsys.readouterr().out) == (0, "/venv/bin/python\n")
    assert [call[:2] for call in called] == [(root, root / "dask" / "env.yaml")]


def test_prepare_ends_its_installer_when_it_is_told_to_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would end this process alone leaves a compiler behind, which has a session of its own."""

    def install(*_: object) -> None:
        program = f"import os, signal, time; os.kill({os.getpid()}, signal.SIGTERM); time.sleep(300)"
        installer.run_installer([sys.executable, "-c", program], lambda _: None)

    monkeypatch.setattr(python_env, "ensure_framework", install)
    assert door.main(["prepare", "dask"]) == ExitCode.STOPPED


def test_prepare_talks_under_the_scripts_name(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Progress is on stderr, after the name of the script that called."""
    monkeypatch.setenv("CLUSTER_PROGRAM", "dev-setup.sh")
    monkeypatch.setattr(python_env, "ensure_framework", lambda *words: words[2]("making it") or root)
    door.main(["prepare", "dask"])
    assert capsys.readouterr() == (f"{root}\n", "dev-setup.sh: making it\n")


def test_requirements_prints_one_package_a_line(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An installer can read the list line by line."""
    assert (door.main(["requirements", str(root / "dask" / "env.yaml")]), capsys.readouterr().out) == (
        0,
        "dask==1.0\nbokeh==2.0\n",
    )


# --- The runner -----------------------------------------------------------------------------------------------------


def test_the_runner_runs_the_nodes_of_a_directory(calls: Callable[..., list[Any]]) -> None:
    """Its code is the verb's."""
    called = calls(runner, "run_nodes", 0)
    assert (door.main(["runner", "/c", "5"]), called[0][:2]) == (0, (Path("/c"), 5))


def test_an_agent_that_the_runner_forks_has_an_environment_of_its_own(
    calls: Callable[..., list[Any]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What libraries read of it is the node's; its expected failures are a line and a code, as anywhere."""
    called = calls(runner, "run_nodes", 0)
    door.main(["runner", "/c", "5"])
    monkeypatch.setenv("OF_THE_RUNNER", "1")
    monkeypatch.setattr(os, "environ", dict(os.environ))
    seen: list[Any] = []

    def run_agent(environ: Any, logs: Path) -> int:
        seen.append((dict(environ), dict(os.environ), logs))
        msg = "bad settings"
        raise SettingsError(msg)

    monkeypatch.setattr(start, "run_agent", run_agent)
    door.main(["runner", "/c", "5"])
    own = {"MODE": "MAIN", "PATH": "/bin"}
    assert (called[1][2](own), seen) == (78, [(own, own, Path("/c/logs"))])
    assert capsys.readouterr().err == "oci_cluster: error: bad settings\n"


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    """The user's own, in which a terminal may still be."""
    done = subprocess.run(
        [sys.executable, "-m", "oci_cluster", "list"],
        cwd=COMMON,
        env={**os.environ, "CLUSTER_CWD": str(tmp_path / "gone"), "CLUSTER_PROGRAM": "list.sh"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"list.sh: error: the folder that you are in, {tmp_path}/gone: No such file or directory; go to another\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_a_runner_has_imported_what_its_agents_need() -> None:
    """Each agent that is forked would import it anew: a cluster of three took 30 ms more of CPU."""
    code = (
        "import sys\n"
        "from oci_cluster import __main__ as door\n"
        "from oci_cluster.backends.local import runner\n"
        "runner.run_nodes = lambda *_: print(*sorted(sys.modules))\n"
        "door._runner(['/tmp', '0'])\n"
    )
    common = str(Path(door.__file__).parents[1])
    asked = [sys.executable, "-c", code]
    done = subprocess.run(asked, env={**os.environ, "PYTHONPATH": common}, capture_output=True, text=True, check=True)
    needed = {f"oci_cluster.node.{name}" for name in ("main", "worker", "hang_detector", "logs.last_error")}
    assert needed <= set(done.stdout.split())
    assert "psutil" not in done.stdout.split()
