"""Clusters as containers of a real engine, in namespaces of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import ANY

import engine as engines
import pytest
from engine import Engine
from harness import SLEEP, Launch, Project, wait_until
from planted import ARGUMENT, FILES, REASON, VARIABLES, Planted, Watch, shown_of

HELLO = Path(__file__).parent / "hello"
pytestmark = pytest.mark.skipif(bool(engines.why_not()), reason=engines.why_not() or "runs")


@pytest.fixture(scope="module")
def engine(toy_engine: Engine) -> Engine:
    return toy_engine


class Site:
    """A project whose nodes are containers."""

    def __init__(self, project: Project, engine: Engine) -> None:
        self.project = project
        self.engine = engine
        # Not all that the engine's own environment has: nothing of it may be needed.
        project.environ |= {
            "BACKEND": "docker",
            "DOCKER": engine.docker,
            "DOCKER_HOST": engine.environ["DOCKER_HOST"],
            "IMAGE": "plain:1",
        }

    def launch(self, workers: int, script: str, *options: str, **environ: str) -> Launch:
        entry = self.project.write("entry.py", script)
        return self.project.launch("plain", str(workers), "--entry", entry, *options, **environ)

    def run(self, script: str, *arguments: str, code: int = 0, **environ: str) -> str:
        done = self.project.run(script, *arguments, **environ)
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    def nodes(self, name: str) -> dict[str, dict[str, str]]:
        return {node["node"]: node for node in json.loads(self.run("status", "--json", name))["nodes"]}

    def container(self, node: str) -> str:
        found = self.engine.run("ps", "--quiet", f"--filter=label=oci-cluster.node={node}").stdout.split()
        return found[0] if found else ""

    def left(self) -> list[str]:
        """Return what clusters have in the engine."""
        filter_ = "--filter=label=oci-cluster.launch"
        lists = (["ps", "--all"], ["network", "ls"], ["volume", "ls"])
        return [line for words in lists for line in self.engine.run(*words, "--quiet", filter_).stdout.split()]


@pytest.fixture
def site(project: Project, engine: Engine) -> Iterator[Site]:
    """Return a project whose nodes are containers; whatever a test leaves in the engine is removed."""
    site = Site(project, engine)
    yield site
    project.end_all()
    for what in ("container", "network", "volume"):
        ids = engine.run(what, "ls", "--quiet", "--filter=label=oci-cluster.launch", *["--all"][what != "container" :])
        if ids.stdout.split():
            engine.run(what, "rm", *["--force"][what == "network" :], *ids.stdout.split())


def test_a_followed_cluster_leaves_its_logs_and_outputs_and_nothing_in_the_engine(site: Site) -> None:
    """The script runs as the image's user, in its own folder, within the limits; arguments arrive exactly."""
    arguments = ["a", "b c", "d'e", "", "two\nlines", "$HOME", "*"]
    script = (
        "import json, os, sys, time\n"
        "def limit(*names):  # by the two versions of cgroups\n"
        "    path = next(path for name in names if os.path.exists(path := '/sys/fs/cgroup/' + name))\n"
        "    return open(path).read().split()[0]\n"
        "limits = [limit('memory/memory.limit_in_bytes', 'memory.max'), limit('cpu/cpu.cfs_quota_us', 'cpu.max')]\n"
        "found = [os.getuid(), os.getcwd(), os.access('/code', os.W_OK), *limits, sys.argv[1:]]\n"
        "found += [os.environ[name] for name in ('NODE_CPUS', 'NODE_MEMORY', 'API_TOKEN')]\n"
        "os.makedirs(os.environ['OUTPUT_DIR'] + '/deep')\n"
        "os.symlink('/etc/passwd', os.environ['OUTPUT_DIR'] + '/link')\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
        "json.dump(found, open(os.environ['OUTPUT_DIR'] + '/deep/found', 'w'))\n"
        "print('the result')\n"
    )
    options = ("--env", "API_TOKEN=s3 cret#1", "--", *arguments)
    launch = site.launch(2, script, *options, CPUS="1.5", MEMORY="256m")
    wait_until(lambda: launch.out.count("worker works") == 2, "both workers")
    site.project.go()
    assert launch.wait() == 0, launch.err
    assert "MAIN     | the result\n" in launch.out
    assert {name: node["exit_code"] for name, node in launch.nodes().items()} == {
        "MAIN": 0,
        "WORKER_1": 0,
        "WORKER_2": 0,
    }
    assert site.left() == []
    outputs = launch.directory / "outputs"
    assert json.loads((outputs / "deep" / "found").read_text()) == [
        *(1000, "/code", False, str(256 * 2**20), "150000", arguments),
        *("1", str(256 * 2**20), "s3 cret#1"),
    ]
    assert not (outputs / "link").is_symlink()
    assert (outputs / "deep" / "found").stat().st_uid == os.getuid()
    assert "worker works" in launch.log("WORKER_2")
    shown = site.run("logs", launch.directory.name)
    told = re.findall(r"worker works$|the result$|ending with", shown, re.MULTILINE)
    assert told == ["worker works"] * 2 + ["the result"] + ["ending with"] * 3, shown
    # Secrets stand in cluster.json, which is private, and in no log or file of the start.
    assert not (launch.directory / "nodes.env").exists()
    assert (launch.directory / "cluster.json").stat().st_mode & 0o77 == 0


def test_what_nodes_are_given_is_seen_in_their_environment_alone(site: Site) -> None:
    """Not in labels, names, the network, the volume, command lines of the engine's client, or any file but one."""
    project, planted = site.project, Planted()
    planted.put_files(project.code)
    entry = (
        "import time\nprint('entry up', flush=True)\nwhile not __import__('os').path.exists('go'): time.sleep(0.02)\n"
    )
    variables = project.scratch / "variables"
    variables.write_text("".join(f"{name}={text}\n" for name, text in planted.variables.items()))
    known = [variables, *(project.code / name for name in FILES)]
    with Watch(planted) as watch:
        options = ("--name", "mine", "--env-file", str(variables), "--", planted.argument)
        launch = site.launch(1, entry + planted.failing, *options)
        wait_until(lambda: "entry up" in launch.out, lambda: f"the entry point: {launch.err}")
        kept = next(project.cluster_dirs()[0].glob("cluster.json"))
        planted.add("LAUNCH_KEY", json.loads(kept.read_text())["environment"]["LAUNCH_KEY"])
        filters = "--filter=label=oci-cluster.launch"
        about = []
        for what in ("container", "network", "volume"):
            ids = site.engine.run(what, "ls", "--quiet", filters).stdout.split()
            about += json.loads(site.engine.run(what, "inspect", *ids).stdout)
        volume = Path(next(found["Mountpoint"] for found in about if "Mountpoint" in found))
        in_volume = planted.in_files([volume])
        project.go()
        assert launch.wait() == 1
    environments = "".join(json.dumps(found["Config"].pop("Env")) for found in about if "Config" in found)
    assert planted.in_text(environments) >= {*VARIABLES, "LAUNCH_KEY"}
    assert planted.in_text(json.dumps(about)) <= {ARGUMENT}
    assert in_volume == {}
    assert planted.in_text(shown_of(project, "mine") + launch.err) == set()
    found = planted.in_files([project.path, project.scratch, project.code, project.temporary], [*known, kept])
    printed = {project.scratch / "out-1", launch.directory / "logs" / "MAIN.log", project.code / "entry.py"}
    assert found == {str(path): {REASON} for path in printed}
    assert set().union(*watch.command_lines.values()) == {ARGUMENT}


def test_a_module_that_writes_beside_itself_needs_a_folder_of_outputs(site: Site) -> None:
    """The code cannot be written to; with --outputs the same relative path is kept, as on every backend."""
    package = site.project.code / "package"
    package.mkdir()
    package.joinpath("near.py").write_text("word = 'kept'\n")
    package.joinpath("train.py").write_text(
        "import os\nfrom .near import word\nos.makedirs('runs/a', exist_ok=True)\nopen('runs/a/1', 'w').write(word)\n"
    )
    words = ("plain", "1", "--module", "package.train")
    launch = site.project.launch(*words)
    assert launch.wait() == 1
    assert "OSError: [Errno 30] Read-only file system: 'runs'" in launch.log("MAIN")
    launch = site.project.launch(*words, "--outputs", "runs/a")
    assert launch.wait() == 0, launch.out
    assert (launch.directory / "outputs" / "runs" / "a" / "1").read_text() == "kept"
    assert [path.name for path in site.project.code.iterdir()] == ["package"]
    assert site.left() == []


def test_nodes_can_do_no_more_than_they_need(site: Site) -> None:
    """They write to /tmp and their home and nowhere else, also as their image's user; of that no volume stays."""
    script = (
        "import json, os, pathlib\n"
        "def told(path):\n"
        "    try: path.write_text('x')\n"
        "    except OSError as error: return error.strerror\n"
        "    return 'written'\n"
        "lines = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines())\n"
        "found = [told(pathlib.Path(place, 'x')) for place in ('/', '/var/tmp', '/tmp', pathlib.Path.home())]\n"
        "found += [lines[name] for name in ('CapEff', 'CapBnd', 'NoNewPrivs')]\n"
        "json.dump(found, open(os.environ['OUTPUT_DIR'] + '/found', 'w'))\n"
    )
    volumes = site.engine.run("volume", "ls", "--quiet").stdout
    refused, none = "Read-only file system", "0" * 16
    for environ, expected in (
        ({}, [refused, refused, "written", "written", none, none, "1"]),
        ({"HARDENED": "0"}, ["Permission denied", "written", "written", "written", none, ANY, "0"]),
    ):
        launch = site.launch(1, script, **environ)
        assert launch.wait() == 0, launch.err
        assert json.loads((launch.directory / "outputs" / "found").read_text()) == expected
    assert site.left() == []
    assert site.engine.run("volume", "ls", "--quiet").stdout == volumes


def test_check_tells_beforehand_what_a_launch_would_meet(site: Site) -> None:
    """An engine that can run it is fine in all items; what will fail is named, and fixed as it says."""
    entry = site.project.write("entry.py", "print('hello')")
    words = ("check", "plain", "1", "--entry", entry)
    right = {one["item"]: one["verdict"] for one in json.loads(site.run(*words, "--json"))["findings"]}
    items = ("settings", "ports", "entry point", "engine", "image", "code", "CPUs and memory", "free ports")
    assert right == dict.fromkeys(items, "fine")
    site.project.environ["IMAGE"] = "plain:none"
    site.run(*words, code=1)
    (wrong,) = [one for one in json.loads(site.project.run(*words, "--json").stdout)["findings"] if one["fix"]]
    assert (wrong["item"], wrong["fix"]) == ("image", f"{site.engine.docker} pull plain:none")
    site.engine.run("tag", "plain:1", "plain:none")
    site.run(*words)
    gone = {"DOCKER_HOST": f"unix://{site.project.path}/nobody.sock"}
    assert "does not answer" in site.project.run(*words, **gone).stdout
    assert site.left() == []


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failure_comes_out_with_its_code(site: Site, workers: int) -> None:
    """The entry point's code is launch.sh's and every node's, and status.sh knows why when all is gone."""
    launch = site.launch(workers, "raise SystemExit(7)", "--name", "seven")
    assert launch.wait() == 7
    assert {node["exit_code"] for node in launch.nodes().values()} == {7}
    assert site.left() == []
    assert "exit code 7" in site.run("status", "seven")


def test_a_detached_cluster_is_seen_scaled_and_stopped_from_any_checkout(site: Site) -> None:
    """Until stop.sh all of it is in the engine; then in the checkout that stopped it."""
    launch = site.launch(1, SLEEP, "--detach", "--name", "mine")
    assert launch.wait() == 0
    assert launch.out == "mine\n"
    kept = site.project.path / ".clusters"
    kept.rename(site.project.scratch / "elsewhere")  # as another checkout sees it
    wait_until(lambda: site.nodes("mine")["MAIN"]["phase"] == "ready", "a cluster that is ready")
    assert "entry up" in site.run("logs", "--node", "MAIN", "mine")
    assert site.run("scale", "mine", "+1") == "2\n"
    assert "MIN_WORKERS" in site.run("scale", "mine", "0", code=2)
    wait_until(lambda: "worker works" in site.run("logs", "--node", "WORKER_2", "mine"), "the new worker")
    again = site.launch(1, SLEEP, "--name", "mine")
    assert (again.wait(), "'mine' is running" in again.err) == (2, True)
    assert site.run("stop", "mine") == "mine\n"
    assert site.left() == []
    nodes = site.nodes("mine")
    assert {name: node["exit_code"] for name, node in nodes.items()} == {"MAIN": 143, "WORKER_1": 143, "WORKER_2": 143}
    assert "worker works" in site.run("logs", "--node", "WORKER_2", "mine")
    assert site.run("list", "--json") == "[]\n"
    site.run("stop", "--delete", "mine")
    assert not list(kept.glob("mine-*"))


def test_a_killed_main_container_is_a_lost_main(site: Site) -> None:
    """76, and nothing is left; the worker sees it by the heartbeat that stops."""
    launch = site.launch(1, SLEEP, HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="20")
    wait_until(lambda: "entry up" in launch.out, "the entry point")
    site.engine.run("kill", site.container("MAIN"))
    assert launch.wait() == 76
    assert {name: node["exit_code"] for name, node in launch.nodes().items()} == {"MAIN": 137, "WORKER_1": 76}
    assert site.left() == []


def test_a_script_that_hangs_says_where(site: Site) -> None:
    """In a container that may do nothing: no other process is looked into."""
    hangs = "import threading\nprint('up', flush=True)\nthreading.Event().wait()\n"
    launch = site.launch(1, hangs, SILENCE_TIMEOUT="6")
    said = ": MAIN waits in wait (entry.py:3); --ttl limits this"
    wait_until(lambda: "nothing printed and nothing computed for" in launch.out and said in launch.out, "main's word")
    launch.interrupt(signal.SIGINT)
    assert launch.wait() == 143
    assert site.left() == []


def test_memory_that_ran_out_is_named(site: Site) -> None:
    """The kernel's SIGKILL alone would not say why."""
    launch = site.launch(1, "x = b'x' * (1 << 30)", "--name", "greedy", MEMORY="64m")
    assert launch.wait() == 137
    why = "MAIN: its memory ran out; set MEMORY higher than 64m, or leave it out"
    assert f"ended with 137 ({why}) after " in launch.err.splitlines()[-1]
    assert json.loads(site.run("status", "greedy", "--json"))["reason"] == why
    assert site.left() == []


def test_ctrl_c_ends_the_cluster_in_order(site: Site) -> None:
    """The engine's clients do not get the signal: none of them is cut off in the middle."""
    launch = site.launch(1, SLEEP)
    wait_until(lambda: "entry up" in launch.out, "the entry point")
    launch.interrupt(signal.SIGINT)
    assert launch.wait() == 143
    assert {node["exit_code"] for node in launch.nodes().values()} == {143}
    assert site.left() == []


def test_a_node_that_cannot_be_started_leaves_nothing(site: Site) -> None:
    """The engine's own words come out, and network and volume are gone again."""
    launch = site.launch(1, SLEEP, MEMORY="1m")
    assert launch.wait() == 69
    assert "emory limit" in launch.err
    assert site.left() == []
    assert site.project.cluster_dirs() == []


# An engine that comes back sends TERM to containers that have outlived it.
@pytest.mark.parametrize(("everything", "code"), [(True, 76), (False, 143)], ids=["with its containers", "alone"])
def test_an_engine_that_was_killed_and_came_back_is_cleared(site: Site, *, everything: bool, code: int) -> None:
    """Its containers are no success, whatever it makes of them; stop.sh removes all."""
    followed = site.launch(1, SLEEP, "--name", "followed")
    detached = site.launch(1, SLEEP, "--name", "detached", "--detach")
    assert detached.wait() == 0
    wait_until(lambda: "entry up" in followed.out, "the entry point")
    site.engine.kill(everything=everything)
    assert "does not answer" in site.run("status", "detached", code=69)
    wait_until(lambda: "cannot look at followed" in followed.err, "the launcher's word")
    site.engine.start()
    assert followed.wait() == code
    assert site.nodes("detached")["MAIN"]["exit_code"] not in {None, 0}
    site.run("stop", "detached")
    assert site.left() == []


def test_a_killed_launcher_takes_its_containers_along(site: Site) -> None:
    """What it would have copied from the engine is copied."""
    launch = site.launch(1, SLEEP, "--name", "mine")
    wait_until(lambda: "entry up" in launch.out, "the entry point")
    launch.kill()
    launch.wait()
    wait_until(lambda: not site.left(), "an empty engine", 120.0)
    assert "launcher was killed" in site.run("status", "mine")
    assert "entry up" in site.run("logs", "mine")


# An engine's client that makes the containers of some nodes, and never begins them.
NEVER_BEGINS = """#!/bin/sh
case " $* " in
" run "*" NODE_NAME="{node}" "*)
    shift
    for word; do
        shift
        [ "$word" = --detach ] || set -- "$@" "$word"
    done
    exec {docker} create "$@" ;;
esac
exec {docker} "$@"
"""


@pytest.mark.parametrize("nodes", ["WORKER_1", "*"], ids=["a worker", "all"])
def test_containers_that_never_begin_end_the_launch(site: Site, tmp_path: Path, nodes: str) -> None:
    """With 75 and their names, and so it is told later; the engine keeps nothing."""
    client = tmp_path / "docker"
    client.write_text(NEVER_BEGINS.format(node=nodes, docker=site.engine.docker))
    client.chmod(0o755)
    environ = {"DOCKER": str(client), "PROVISION_TIMEOUT": "8", "WAIT_FOR_ADDRESSES": "1"}
    launch = site.launch(1, SLEEP, "--name", "demo", **environ)
    assert launch.wait() == 75, launch.err
    named = "WORKER_1" if nodes == "WORKER_1" else "MAIN, WORKER_1"
    assert f"cluster demo ended with 75 ({named} did not start" in launch.err
    assert site.left() == []
    found = json.loads(site.run("status", "--json", "demo"))
    assert (found["state"], found["exit_code"]) == ("FAILED", 75)
    assert found["nodes"][1]["never_started"]


def test_the_first_ctrl_c_ends_containers_that_never_begin(site: Site, tmp_path: Path) -> None:
    client = tmp_path / "docker"
    client.write_text(NEVER_BEGINS.format(node="*", docker=site.engine.docker))
    client.chmod(0o755)
    launch = site.launch(1, SLEEP, "--name", "demo", DOCKER=str(client))
    wait_until(lambda: "cluster demo started" in launch.err, "the containers")
    assert {node["state"] for node in site.nodes("demo").values()} == {"ACCEPTED"}
    launch.interrupt()
    assert launch.wait() == 143, launch.err
    assert site.left() == []


def test_a_session_is_reached_and_what_it_changes_comes_back(site: Site) -> None:
    """Its server listens on the container's own loopback; the code is a copy, which is among the outputs."""
    kind = site.project.path / "scripts" / "sessions" / "hello"
    shutil.copytree(HELLO, kind, dirs_exist_ok=True)
    (site.project.code / "mine.txt").write_text("mine")
    session = site.project.session("hello", "talk", "--framework", "plain")
    (path,) = wait_until(lambda: [*site.project.path.glob(".clusters/talk-*/session-url")], lambda: session.err)
    with urllib.request.urlopen(path.read_text().strip(), timeout=60) as page:  # noqa: S310 - of this test
        assert page.read() == b"hello"
    listening = site.engine.run("exec", site.container("MAIN"), "cat", "/proc/net/tcp").stdout
    assert f"0100007F:{18500:04X}" in listening, "127.0.0.1 alone"
    site.run("stop", "talk")
    assert session.wait() == 143
    kept = next((path.parent / "outputs").glob("**/code"))
    assert {file.name: file.read_text() for file in kept.iterdir()} == {"greeted": "hello", "mine.txt": "mine"}
    assert sorted(file.name for file in site.project.code.iterdir()) == ["mine.txt"]
    assert site.left() == []
