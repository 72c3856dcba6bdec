"""`BACKEND=oci`: real scripts, oci-cli, SDK and ocifs; tests/oci_service stands in for OCI, and runs real agents."""

from __future__ import annotations

import ipaddress
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import warm
from harness import PATIENCE_S, Project, wait_until
from hosts import SUBNET, why_not
from oci_cloud import ENDED, UNTIL_GO, Cloud, environment_of, states, wait
from oci_service.handle import Service

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")


# --- A cluster from its first request to its last ----------------------------------------------------------


def test_dask_example_runs_as_on_this_machine(cloud: Cloud) -> None:
    """0, the result, the logs of all nodes, Job and runs in the right states."""
    cloud.add_image("dask", environment_of(cloud.project, "dask"))
    launch = cloud.launch("dask", 3)
    assert wait(launch) == 0, launch.err
    assert re.search(r"^MAIN     \| mean score of 4 folds: 0\.\d+", launch.out, re.MULTILINE)
    for node in ("MAIN", "WORKER_1", "WORKER_2", "WORKER_3"):
        assert re.search(rf"^{node} +\| .* agent: node={node} ", launch.out, re.MULTILINE)
        assert re.search(rf"^{node} +\| .* agent: ending with 0: ", launch.out, re.MULTILINE)
    runs = cloud.service.job_runs()
    assert [run["lifecycleState"] for run in runs] == ["SUCCEEDED"] * 4
    assert [job["lifecycleState"] for job in cloud.service.jobs()] == ["ACTIVE"]
    cloud.assert_nothing_runs()


@pytest.mark.timeout(900)  # on a bare machine Horovod is still being compiled
@pytest.mark.parametrize(
    ("framework", "style", "result"),
    [
        ("pytorch", "runs", r"world size 2\b"),
        ("tensorflow", "multinode", r"accuracy on \d+ other images: 0\.9"),
        ("horovod", "runs", r"epoch   3 .* ranks 2\b"),
    ],
)
def test_other_frameworks_run_their_examples(cloud: Cloud, framework: str, style: str, result: str) -> None:
    cloud.add_image(framework, environment_of(cloud.project, framework))
    # The stand-in's nodes share this machine, and nobody looks beforehand which ports of it are free.
    own = {"TASK_PORT": "22375", "SSH_PORT": "22385"}
    launch = cloud.launch(framework, 1, "--", "--epochs", "3", OCI_JOB_STYLE=style, **own)
    assert wait(launch) == 0, launch.err + launch.out
    assert re.search(result, launch.out), launch.out
    cloud.assert_nothing_runs()


def test_environments_beside_the_script_stay_here(cloud: Cloud) -> None:
    """Whatever they are called: they are larger than code may be, and have links that lead out of the folder."""
    code = cloud.project.code
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", code / "venv"], check=True)
    (code / "tools" / "my env").mkdir(parents=True)
    (code / "tools" / "my env" / "pyvenv.cfg").touch()
    for name in ("venv/lib/big", "tools/my env/big"):
        with (code / name).open("wb") as file:
            file.truncate(101 * 2**20)
    (code / "node_modules").mkdir()
    (code / "node_modules" / "big").symlink_to(code / "venv" / "lib" / "big")
    (code / "tools" / "mine.py").touch()
    script = "import os; print(sorted(os.listdir()), os.listdir('tools'))"
    launch = cloud.launch_plain(1, script)
    assert wait(launch) == 0, launch.err
    assert "MAIN     | ['entry.py', 'tools'] ['mine.py']\n" in launch.out
    (line,) = [line for line in launch.err.splitlines() if "code in " in line and "files with" in line]
    assert line.endswith("; left out: tools/my env, venv, Python environments; 1 hidden or made by tools")
    cloud.assert_nothing_runs()


def test_data_that_is_too_large_for_code_is_named_before_anything_is_made(cloud: Cloud) -> None:
    """With the file that made it so, and what to do."""
    (cloud.project.code / "data").mkdir()
    with (cloud.project.code / "data" / "images.bin").open("wb") as file:
        file.truncate(300 * 2**20)
    launch = cloud.launch_plain(1, "print('never')")
    assert launch.wait() == 78
    assert "is more than 100 MiB (data/images.bin made it so); name a smaller folder with --code" in launch.err
    assert not cloud.service.jobs()


@pytest.mark.parametrize("style", ["runs", "multinode"])
def test_exit_code_comes_through_and_logs_and_outputs_stay(cloud: Cloud, style: str) -> None:
    save = "import os, sys\nopen(os.environ['OUTPUT_DIR'] + '/model', 'w').write('weights')\n"
    script = f"{save}print(sys.argv[1:])\nsys.exit(7)\n"
    launch = cloud.launch_plain(2, script, "--", "--epochs", "a 'b' \"c\"", OCI_JOB_STYLE=style)
    assert wait(launch) == 7, launch.err
    assert "MAIN     | ['--epochs', 'a \\'b\\' \"c\"']" in launch.out
    assert "ended with 7 (" in launch.err
    for run in cloud.service.job_runs():
        assert run["lifecycleState"] == "FAILED"
        assert "exit code 7" in run["lifecycleDetails"]
    outputs = [name for name in cloud.service.objects("work/") if "/outputs/" in name]
    assert [name.partition("/outputs/")[2] for name in outputs] == ["MAIN/model"]

    listed = cloud.run("list", "--all", "--json")
    (found,) = json.loads(listed.stdout)
    assert (found["exit_code"], found["state"], len(found["nodes"])) == (7, "FAILED", 3)
    status = json.loads(cloud.run("status", found["name"], "--json").stdout)
    assert status["exit_code"] == 7
    assert "exit code 7" in status["reason"]
    assert re.fullmatch(rf"oci://clusters@stand-in/work/{found['name']}-[0-9a-f]{{8}}", status["directory"])
    # Where the service starts main first, and the others only then, this main has failed before they begin: the service
    # ends one of them before its agent has read why.
    codes = {node["node"]: node["exit_code"] for node in status["nodes"]}
    assert codes.pop("MAIN") == 7
    assert set(codes.values()) <= ({7} if style == "runs" else {7, 143})
    node = "WORKER_2" if style == "runs" else "MAIN"
    logs = cloud.run("logs", found["name"], "--node", node).stdout
    assert "agent: ending with 7" in logs
    assert {line.partition(" |")[0].strip() for line in logs.splitlines()} == {node}
    cloud.assert_nothing_runs()


def test_a_module_keeps_what_it_writes_to_a_folder_of_outputs(cloud: Cloud) -> None:
    """The code's own folder is gone with the node; that folder is uploaded."""
    package = cloud.project.code / "package"
    package.mkdir()
    package.joinpath("near.py").write_text("word = 'kept'\n")
    package.joinpath("train.py").write_text(
        "import os\nfrom .near import word\nos.makedirs('runs/a', exist_ok=True)\n"
        "open('runs/a/1', 'w').write(word)\nopen('lost', 'w').write(word)\n"
    )
    launch = cloud.launch("plain", 1, "--module", "package.train", "--outputs", "runs")
    assert wait(launch) == 0, launch.err + launch.out
    outputs = [name for name in cloud.service.objects("work/") if "/outputs/" in name]
    assert [name.partition("/outputs/")[2] for name in outputs] == ["MAIN/runs/a/1"]
    cloud.assert_nothing_runs()


def test_ctrl_c_ends_the_cluster_in_order(cloud: Cloud) -> None:
    launch = cloud.launch_plain(1, UNTIL_GO, "--", "never")
    cloud.wait_for("entry up")
    cloud.wait_for("worker works", "WORKER_1")
    launch.interrupt()
    assert wait(launch) == 143, launch.err
    assert "agent: ending with 143: stopped" in cloud.printed("WORKER_1")
    cloud.assert_nothing_runs()


def test_a_killed_launcher_takes_its_runs_along(cloud: Cloud) -> None:
    """They would bill until their script ends."""
    launch = cloud.launch_plain(1, UNTIL_GO, "--", "never")
    cloud.wait_for("entry up")
    cloud.wait_for("worker works", "WORKER_1")
    launch.kill()
    launch.wait()
    wait_until(lambda: set(states(cloud).values()) <= ENDED, "the end of its runs", PATIENCE_S)
    assert "agent: ending with 143: its launcher" in cloud.printed("WORKER_1")
    cloud.assert_nothing_runs()


WAITING = "waiting for late lines of OCI Logging"


def test_without_node_logs_they_come_from_oci_logging(cloud: Cloud) -> None:
    """A followed launch shows them, too. In the end it waits for late ones, which Ctrl-C ends."""
    cloud.service.control({"ingest_delay_s": [0, 2], "ingest_duplicates": 0.3})
    launch = cloud.launch_plain(1, "print('hello'); print('from main')", "--name", "demo", NODE_LOGS="0")
    lines = ["MAIN     | hello\n", "MAIN     | from main\n"]  # of which each may come later than the agents' last ones

    def have_come() -> bool:
        shown = launch.out
        return shown.count("agent: ending with 0") == 2 and all(line in shown for line in lines)

    wait_until(lambda: WAITING in launch.err and have_come(), "the last lines")
    launch.interrupt()
    assert wait(launch) == 0, launch.err
    assert [launch.out.count(line) for line in lines] == [1, 1]
    assert launch.out.count("| worker works\n") <= 1
    assert "ended with 0 after" in launch.err
    assert not [name for name in cloud.service.objects("work/demo") if "/logs/" in name]

    def found() -> str:
        shown = cloud.run("logs", "demo").stdout
        return shown if "agent: ending with 0" in shown else ""

    shown = wait_until(found, "the logs to be found", PATIENCE_S)
    assert "".join(lines) in shown
    assert "WORKER_1 | " in shown
    cloud.assert_nothing_runs()


@pytest.mark.parametrize("node_logs", ["1", "0"])
def test_after_the_end_logs_are_in_the_order_of_time(cloud: Cloud, tmp_path: Path, node_logs: str) -> None:
    """The worker prints before main's last words, and after them; from the cluster dir, and from OCI Logging."""
    script = f"{UNTIL_GO}print('main goes')\n"
    launch = cloud.launch_plain(1, script, "--name", "demo", "--", f"{tmp_path}/go", NODE_LOGS=node_logs)
    cloud.wait_for("entry up")
    cloud.wait_for("worker works", "WORKER_1")
    (tmp_path / "go").touch()
    if node_logs == "0":
        wait_until(lambda: WAITING in launch.err, "the wait for late lines")
        launch.interrupt()
    assert wait(launch) == 0, launch.err
    shutil.rmtree(cloud.project.path / ".clusters")
    # OCI Logging has lines some seconds later.
    wait_until(lambda: cloud.run("logs", "demo").stdout.count("agent: ending with 0") == 2, "the logs", PATIENCE_S)
    shown = cloud.run("logs", "demo").stdout
    lines = [line for line in shown.splitlines() if re.search("worker works$|main goes$|agent: ending", line)]
    assert [line.partition(" ")[0] for line in lines] == ["WORKER_1", "MAIN", "MAIN", "WORKER_1"], shown
    assert not re.search(r"\| 20\d\d-\S+Z ", shown)
    cloud.assert_nothing_runs()


def test_cluster_is_found_and_ended_by_its_tags_alone(cloud: Cloud) -> None:
    """The launcher's machine is lost: another one, with a checkout that has never seen it, goes on."""
    launch = cloud.launch_plain(1, UNTIL_GO, "--name", "demo", "--detach", "--", "never")
    assert wait(launch) == 0, launch.err
    assert launch.out == "demo\n"
    cloud.wait_for("entry up")
    again = cloud.launch_plain(1, "", "--name", "demo")
    assert wait(again) == 2
    assert "a cluster named 'demo' is running; choose another --name" in again.err
    assert len(cloud.service.job_runs()) == 2

    shutil.rmtree(cloud.project.path / ".clusters")
    found = json.loads(cloud.run("status", "demo", "--json").stdout)
    assert found["state"] == "IN_PROGRESS"
    assert {node["node"]: node["state"] for node in found["nodes"]} == {
        "MAIN": "IN_PROGRESS",
        "WORKER_1": "IN_PROGRESS",
    }
    assert "MAIN     | entry up" in cloud.run("logs", "demo").stdout
    stopped = cloud.run("stop", "demo", "--delete")
    assert (stopped.returncode, stopped.stdout) == (0, "demo\n"), stopped.stderr
    assert [job["lifecycleState"] for job in cloud.service.jobs()] == ["DELETED"]
    assert not list(cloud.service.objects("work/demo"))
    cloud.assert_nothing_runs()


def test_workers_are_added_replaced_and_ended(cloud: Cloud) -> None:
    go = cloud.project.scratch / "go"
    launch = cloud.launch_plain(2, UNTIL_GO, "--name", "demo", "--", str(go), MIN_WORKERS="0")
    cloud.wait_for("entry up")
    cloud.wait_for("worker works", "WORKER_2")
    cloud.service.kill(cloud.runs()["WORKER_1"]["id"])
    wait_until(lambda: "WORKER_1 ended with" in launch.err, "the loss to be named")
    assert cloud.run("scale", "demo", "+2").stdout == "3\n"
    cloud.wait_for("worker works", "WORKER_1")
    cloud.wait_for("worker works", "WORKER_3")
    assert cloud.run("scale", "demo", "1").stdout == "1\n"
    assert {node for node, run in cloud.runs().items() if run["lifecycleState"] == "IN_PROGRESS"} == {
        "MAIN",
        "WORKER_1",
    }
    go.touch()
    assert wait(launch) == 0, launch.err
    cloud.assert_nothing_runs()


@pytest.mark.skipif(bool(why_not()), reason=f"hosts of their own: {why_not()}")
def test_nodes_with_hosts_of_their_own_find_their_addresses_in_the_subnet(project: Project, tmp_path: Path) -> None:
    """The subnet's CIDR is looked up by the launcher, once; nodes know nothing else of the network."""
    with Service(tmp_path / "oci", hosts=True, start=warm.command("oci_service")) as service:
        cloud = Cloud(project, service)
        listen = "import os\nprint('main is at', os.environ['NODE_ADDRESS'], os.environ['WORKER_ADDRESSES'])\n"
        launch = cloud.launch_plain(2, listen, SUBNET_CIDR="", WAIT_FOR_ADDRESSES="1")
        assert wait(launch) == 0, launch.err + launch.out
        found = re.search(r"main is at (\S+) (\S+)", launch.out)
        assert found
        addresses = [found[1], *found[2].split(",")]
        assert len(set(addresses)) == 3
        assert {ipaddress.ip_address(address) in SUBNET for address in addresses} == {True}
        asked = [call["principal"].partition(":")[0] for call in service.calls("get_subnet")]
        assert asked == ["api-key"]


# --- Dry run and secrets ----------------------------------------------------------------------------------


def unlike(body: dict[str, Any], launch_id: str, job: str) -> str:
    """Return a request's body without what differs between two launches."""
    text = json.dumps(body, sort_keys=True).replace(launch_id, "<launch>").replace(job or "<job>", "<job>")
    text = re.sub(r'"LAUNCH_KEY": "[0-9a-f]{64}"', '"LAUNCH_KEY": "<key>"', text)
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", text)


@pytest.mark.parametrize("style", ["runs", "multinode"])
def test_dry_run_is_what_is_sent(cloud: Cloud, style: str) -> None:
    arguments = ["--name", "demo", "--ttl", "1h", "--env", 'GREETING=it\'s "quoted" $HOME']
    environ = {"OCI_JOB_STYLE": style}
    dry = cloud.launch_plain(
        2, "print(1)", *arguments, "--dry-run", "--json", **environ, HTTPS_PROXY="http://127.0.0.1:9"
    )
    assert wait(dry) == 0, dry.err
    assert not cloud.service.calls()
    shown = json.loads(dry.out)
    launch = cloud.launch_plain(2, "print(1)", *arguments, **environ)
    assert wait(launch) == 0, launch.err
    (job,) = cloud.service.calls("create_job")
    sent = [job["body"], *(call["body"] for call in cloud.service.calls("create_job_run"))]
    id_of_sent = sent[0]["freeformTags"]["oci-cluster-launch"]
    id_of_shown = shown["job"]["freeformTags"]["oci-cluster-launch"]
    job_ocid = cloud.service.jobs()[0]["id"]
    bodies = {
        unlike({**body, **({"jobId": "<job>"} if "jobId" in body else {})}, id_of_sent, job_ocid) for body in sent
    }
    expected = [shown["job"], *({"jobId": "<job>", **run} for run in shown["job_runs"])]
    assert bodies == {unlike(body, id_of_shown, "") for body in expected}


def test_no_key_or_token_is_told_to_anybody(cloud: Cloud) -> None:
    """Neither in Job or run, nor in what nodes print, nor in what the launcher says, nor in files of the work dir."""
    script = "import os\nprint(sorted(os.environ))\n"
    launch = cloud.launch_plain(1, script, CLUSTER_TLS="1")
    assert wait(launch) == 0, launch.err
    directory = Path(cloud.service.environ["OCI_CLI_CONFIG_FILE"]).parent
    secrets = [text for path in directory.rglob("*.pem") if "PRIVATE" in (text := path.read_text(errors="replace"))]
    secrets += [path.read_text() for path in directory.rglob("*") if path.is_file() and "token" in path.name]
    parts = [line for secret in secrets for line in secret.splitlines() if len(line) > 30 and "-----" not in line]
    assert parts
    told = [json.dumps(cloud.service.jobs()), json.dumps(cloud.service.job_runs()), launch.out, launch.err]
    told += [cloud.printed(node) for node in ("MAIN", "WORKER_1")]
    told += [cloud.service.object(name).decode(errors="replace") for name in cloud.service.objects("work/")]
    assert not [part for part in parts if any(part in text for text in told)]
    assert not [text for text in told if "PRIVATE KEY" in text]
