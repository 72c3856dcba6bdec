"""What every local cluster does, whatever its framework: outcomes, names, housekeeping."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import SLEEP, UNTIL_GO, Project, path_with_uv, wait_until

# --- Outcomes ---------------------------------------------------------------------------------------------


def test_success_prints_the_entry_points_output_and_leaves_nothing(project: Project) -> None:
    """0, every node's lines after its name, and nothing left running."""
    launch = project.launch_plain(2, UNTIL_GO + "print('the result')")
    for node in ("WORKER_1", "WORKER_2"):
        launch.wait_for("worker works", node)
    project.go()
    assert launch.wait() == 0
    assert "MAIN     | the result\n" in launch.out
    assert "WORKER_2 | worker works\n" in launch.out
    assert {name: node["exit_code"] for name, node in launch.nodes().items()} == {
        "MAIN": 0,
        "WORKER_1": 0,
        "WORKER_2": 0,
    }
    launch.assert_nothing_left()


def test_arguments_arrive_exactly(project: Project) -> None:
    """What follows -- reaches the script as it was typed."""
    arguments = ["a", "b c", "d'e", "", "--flag", "--", "two\nlines", "$HOME", "*"]
    script = "import sys, os, json; json.dump(sys.argv[1:], open(os.environ['OUTPUT_DIR'] + '/a', 'w'))"
    launch = project.launch_plain(1, script, "--", *arguments)
    assert launch.wait() == 0
    assert json.loads((launch.directory / "outputs" / "a").read_text()) == arguments


@pytest.mark.parametrize(("script", "code"), [("raise SystemExit(7)", 7), ("raise RuntimeError('boom')", 1)])
def test_failure_comes_out_with_its_code_and_its_traceback(project: Project, script: str, code: int) -> None:
    """The entry point's code is launch.sh's and every node's; its traceback is in the logs."""
    launch = project.launch_plain(2, script)
    assert launch.wait() == code
    assert {node["exit_code"] for node in launch.nodes().values()} == {code}
    assert ("RuntimeError: boom" in launch.out) == (code == 1)
    launch.assert_nothing_left()


def test_the_reason_is_the_entry_points_own_last_line(project: Project) -> None:
    """In the last line of launch.sh, in status, in the stop file; with the line of the user's own code."""
    launch = project.launch_plain(1, "import json\n\ndef f(): json.loads('{')\nf()\n")
    assert launch.wait() == 1
    words = "MAIN: json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes"
    assert re.search(rf" ended with 1 \({re.escape(words)}.* \(entry.py:3\)\) after [0-9.]+ s$", launch.err.rstrip())
    name = json.loads((launch.directory / "cluster.json").read_text())["name"]
    status = json.loads(project.run("status", name, "--json").stdout)
    assert status["state"] == "FAILED"
    assert status["reason"].startswith(words)
    assert json.loads((launch.directory / "stop").read_text())["reason"] == status["reason"]


def test_a_last_line_without_an_end_is_a_line(project: Project) -> None:
    """What the agent says next begins its own; and the end says where outputs are."""
    script = "import os\nopen(os.environ['OUTPUT_DIR'] + '/model', 'w')\nprint('done', end='')"
    launch = project.launch_plain(1, script)
    assert launch.wait() == 0
    mains = [line for line in launch.out.splitlines() if line.startswith("MAIN ")]  # others' may come between
    # On a busy machine the agent says only then that the cluster was ready.
    said = [line for line in mains[mains.index("MAIN     | done") + 1 :] if " agent: ready after " not in line]
    assert " agent: ending with 0" in said[0]
    assert launch.err.rstrip().endswith(f"; outputs in {launch.directory}/outputs")


def test_a_progress_bar_is_seen_while_it_is_drawn(project: Project) -> None:
    """A line that has no end for ten seconds is shown all the same, and goes on."""
    script = UNTIL_GO.replace("time.sleep(0.02)", "time.sleep(0.02); print(end='\\r50 %', flush=True)")
    launch = project.launch_plain(1, script + "print('\\r100 %')")
    wait_until(lambda: "MAIN     | 50 %\n" in launch.out, "the bar")
    project.go()
    assert launch.wait() == 0
    assert "MAIN     | 100 %\n" in launch.out


def test_old_logs_are_shown_in_the_order_of_events(project: Project) -> None:
    """Lines of several nodes, after the end too; and the last ones alone."""
    launch = project.launch_plain(1, UNTIL_GO + "print('last words')")
    launch.wait_for("worker works", "WORKER_1")
    launch.wait_for("entry up")
    log = launch.directory / "logs" / "WORKER_1.log"  # lines of the same tenth of a second have no order
    wait_until(lambda: time.time() - log.stat().st_mtime > 0.3, "another moment")
    project.go()
    assert launch.wait() == 0
    name = json.loads((launch.directory / "cluster.json").read_text())["name"]
    shown = project.run("logs", name).stdout
    assert shown.index("worker works") < shown.index("last words")
    assert shown.index("WORKER_1 |") < shown.index("last words") < shown.rindex("MAIN     |")
    tail = project.run("logs", name, "--tail", "1", "--node", "MAIN").stdout
    (last,) = tail.splitlines()
    assert (
        last.partition(" | ")[2]
        == [line for line in shown.splitlines() if line.startswith("MAIN")][-1].partition(" | ")[2]
    )


def test_killed_entry_point_is_not_a_lost_main(project: Project) -> None:
    """An entry point that dies of SIGKILL (out of memory) ends the cluster in order, with 137."""
    launch = project.launch_plain(1, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert launch.wait() == 137
    assert {node["exit_code"] for node in launch.nodes().values()} == {137}


@pytest.mark.alone
def test_time_from_the_entry_points_end_to_launch_shs_is_under_a_second(project: Project) -> None:
    """The design's section 9: nobody waits for polling."""

    def measured() -> float:
        launch = project.launch_plain(2, "import time; print('ended at', time.time(), flush=True)")
        assert launch.wait() == 0
        returned_at = time.time()
        launch.assert_nothing_left()
        return returned_at - float(launch.log("MAIN").partition("ended at ")[2].split()[0])

    project.assert_quick(measured, 1)


# --- Names, ports, several clusters -----------------------------------------------------------------------


def test_two_clusters_at_once(project: Project) -> None:
    """Each has addresses of its own, so both may use the same ports."""
    script = UNTIL_GO
    first = project.launch_plain(2, script)
    first.wait_for("entry up")
    second = project.launch_plain(2, script)
    second.wait_for("entry up")
    addresses = [
        node["environment"]["NODE_ADDRESS"]
        for launch in (first, second)
        for node in json.loads((launch.directory / "cluster.json").read_text())["nodes"]
    ]
    assert len(set(addresses)) == 6
    project.go()
    assert (first.wait(), second.wait()) == (0, 0)


def test_two_clusters_of_one_name_are_refused(project: Project) -> None:
    """The second starts nothing and says how to end the first."""
    first = project.launch_plain(1, SLEEP, "--name", "twin")
    first.wait_for("entry up")
    second = project.launch_plain(1, SLEEP, "--name", "twin")
    assert second.wait() == 2
    assert "a cluster named 'twin' is running" in second.err
    assert len(project.cluster_dirs()) == 1
    first.interrupt()
    assert first.wait() == 143


@pytest.mark.alone  # takes the port that all toy clusters want
def test_port_of_somebody_else_gives_way_or_is_named(project: Project) -> None:
    """A default becomes the next port; for one that was chosen, nothing is started, and the message says what to do."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("0.0.0.0", 18999))  # noqa: S104 - taken on every address
        other.listen()
        default = project.launch_plain(1, "import os; print('has', os.environ['PLAIN_PORT'])")
        assert default.wait() == 0
        launch = project.launch_plain(1, SLEEP, "--env", "PLAIN_PORT=18999")
        assert launch.wait() == 78
    (taken,) = re.findall(r"PLAIN_PORT 18999 is taken; this cluster has (\d+)", default.err)
    assert f"MAIN     | has {taken}\n" in default.out
    assert re.search(r"port 18999 of 127\.0\.0\.\d+ is taken by another program", launch.err)
    assert "--env PLAIN_PORT=" in launch.err
    assert project.cluster_dirs() == [default.directory]


# --- Detached, kept, listed, shown ------------------------------------------------------------------------


def test_detached_cluster_is_shown_followed_and_stopped(project: Project) -> None:
    """--detach prints the name alone; status, list, logs and stop take it from there."""
    launch = project.launch_plain(1, SLEEP, "--detach", "--name", "away")
    assert (launch.wait(), launch.out) == (0, "away\n")
    launch.wait_for("entry up")
    wait_until(lambda: "greeting: hello" in project.run("status", "away").stdout, "main's facts in status")
    status = json.loads(project.run("status", "--json").stdout)
    assert [node["state"] for node in status["nodes"]] == ["IN_PROGRESS", "IN_PROGRESS"]
    assert "MAIN     | entry up\n" in project.run("logs", "away").stdout
    assert "entry up" not in project.run("logs", "--node", "WORKER_1", "away").stdout
    following = threading.Thread(target=lambda: seen.append(project.run("logs", "-f", "away").stdout))
    seen: list[str] = []
    following.start()
    stopped = project.run("stop", "away")
    assert (stopped.returncode, stopped.stdout) == (0, "away\n")
    following.join(240)
    assert "stopped by stop.sh" in seen[0]
    assert project.run("list").stdout.splitlines()[1:] == []
    assert json.loads(project.run("list", "--all", "--json").stdout)[0]["exit_code"] == 143
    launch.assert_nothing_left()
    assert project.run("stop", "away").returncode == 0  # once more is no error
    assert project.run("stop", "--delete", "away").returncode == 0
    assert project.cluster_dirs() == []


@pytest.mark.parametrize("does", [Path.unlink, Path.touch, lambda path: path.write_text("{}")])
def test_cluster_whose_plan_somebody_removed_is_seen_and_can_be_ended(
    project: Project, does: Callable[[Path], object]
) -> None:
    """It runs all the same: no list may hide it, its name stays its own, and how it ended is told."""
    launch = project.launch_plain(1, SLEEP, "--detach", "--name", "away")
    assert launch.wait() == 0
    plan = launch.directory / "cluster.json"
    if does is Path.touch:
        plan.unlink()
    does(plan)
    (seen,) = json.loads(project.run("list", "--json").stdout)
    assert (seen["name"], seen["state"], len(seen["nodes"])) == ("away", "IN_PROGRESS", 2)
    assert "cluster.json does not say" in project.run("status").stdout
    again = project.launch_plain(1, SLEEP, "--name", "away")
    assert (again.wait(), "a cluster named 'away' is running" in again.err) == (2, True)
    assert project.run("scale", "away", "+1").returncode == 2
    stopped = project.run("stop", "away")
    assert (stopped.stdout, "; ending its nodes\n" in stopped.stderr) == ("away\n", True)
    (seen,) = json.loads(project.run("list", "--all", "--json").stdout)
    assert (seen["state"], seen["exit_code"]) == ("STOPPED", 143)
    launch.assert_nothing_left()


def test_a_detached_launch_waits_until_all_is_ready_or_has_failed(project: Project) -> None:
    """The name of a cluster that can be used; or its code, and no name."""
    launch = project.launch_plain(1, SLEEP, "--detach", "--wait", "--name", "away")
    assert (launch.wait(), launch.out) == (0, "away\n")
    assert "ready after " in launch.err
    assert json.loads(project.run("status", "--json").stdout)["facts"] == {"greeting": "hello"}
    assert project.run("stop", "--older-than", "0", "--delete").stdout == "away\n"
    failed = project.launch_plain(1, SLEEP, "--detach", "--wait", "--env", "ENTRY_POINT=nope.py")
    assert failed.wait() != 0
    assert failed.out == ""


def test_kept_cluster_ends_with_its_ttl_and_with_0(project: Project) -> None:
    """--keep --ttl: a planned end is a success."""
    launch = project.launch("plain", "1", "--keep", "--ttl", "2s", "--python", sys.executable)
    assert launch.wait() == 0, launch.err
    assert json.loads((launch.directory / "stop").read_text())["reason"] == "TTL of 2 s reached"


def test_ttl_bounds_an_entry_point_too(project: Project) -> None:
    """Machines cost money: --ttl ends what does not end by itself, with 75."""
    launch = project.launch_plain(1, SLEEP, "--ttl", "2s")
    assert launch.wait() == 75
    assert "TTL of 2 s reached" in launch.err
    launch.assert_nothing_left()


def test_dry_run_prints_what_would_run_and_changes_nothing(project: Project) -> None:
    """The plan, as JSON, without secrets; no directory is made."""
    launch = project.launch_plain(2, SLEEP, "--dry-run", "--env", "API_TOKEN=s3cret", "--env", "LEVEL=3")
    assert launch.wait() == 0
    plan = json.loads(launch.out)
    assert len({node["environment"]["NODE_ADDRESS"] for node in plan["nodes"]}) == 3
    assert plan["environment"]["LEVEL"] == "3"
    assert "s3cret" not in launch.out
    assert project.cluster_dirs() == []


def test_users_environment_reaches_the_nodes_and_pythonsafepath_does_not(project: Project) -> None:
    """A script finds the modules beside it, and the variables that --env set."""
    project.write("neighbour.py", "VALUE = 42")
    script = "import os, neighbour; print('value', neighbour.VALUE, os.environ['LEVEL'])"
    launch = project.launch_plain(1, script, "--env", "LEVEL=3 4")
    assert launch.wait() == 0
    assert "value 42 3 4" in launch.out


def test_agent_loads_no_framework_and_no_cloud(checkout_copy: Path) -> None:
    """What keeps an agent small and quick: none of these is ever imported by it."""
    code = (
        "import sys; import oci_cluster.node.start, oci_cluster.contract.files.cluster_dir\n"
        "oci_cluster.contract.files.cluster_dir.ClusterDir('file:///tmp', 'x', 'k')\n"
        "others = {'oci', 'ocifs', 'dask', 'distributed', 'numpy', 'yaml', 'cryptography', 'psutil', 'asyncio'}\n"
        "print(sorted(others & set(sys.modules)))"
    )
    environ = {**os.environ, "PYTHONPATH": str(checkout_copy / "common")}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_checkout_that_moved_still_works(project: Project, tmp_path: Path) -> None:
    """Nothing holds an absolute path of the checkout."""
    moved = tmp_path / "moved project"
    shutil.copytree(project.path, moved, symlinks=True)
    other = Project(moved, tmp_path / "other") if (tmp_path / "other").mkdir() is None else project
    assert other.launch_plain(1, "print('moved')").wait() == 0


@pytest.mark.parametrize("has_uv", [True, False], ids=["uv", "no uv"])
def test_fresh_checkout_sets_itself_up(project: Project, tmp_path: Path, *, has_uv: bool) -> None:
    """Without .venv the first launch makes all that it needs, by its own uv where there is none; the next takes it."""
    fresh = tmp_path / "fresh checkout"
    shutil.copytree(project.path, fresh, ignore=shutil.ignore_patterns(".venv"))
    (tmp_path / "scratch").mkdir()
    other = Project(fresh, tmp_path / "scratch")
    path = path_with_uv(tmp_path / "bin", Path(sys.executable).with_name("uv") if has_uv else None)
    entry = other.write("entry.py", "import locket, sys; print('made', sys.prefix)")
    for launch_is_first in (True, False):
        launch = other.launch("plain", "1", "--entry", entry, PATH=path)
        assert launch.wait() == 0
        assert f"made {fresh}/.venv/envs/plain" in launch.out
        assert ("first time only" in launch.err) == launch_is_first
    assert (fresh / ".venv" / "bin" / "uv").exists() != has_uv
    assert list(
        (fresh / ".venv" / "envs" / "plain").rglob("locket*/**/*.pyc")
    )  # compiled, whatever the environment says
