"""`BACKEND=oci`: real scripts, oci-cli, SDK and ocifs; tests/oci_service stands in for OCI, and runs real agents."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Launch, Project, processes_of, wait_until
from hosts import SUBNET, why_not
from oci_service.handle import Service

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE_S = 240.0
UNTIL_GO = (
    "import os, sys, time\nprint('entry up', flush=True)\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.05)\n"
)
ENDED = {"SUCCEEDED", "FAILED", "CANCELED"}


class Cloud:
    """A project whose clusters are Jobs of the stand-in."""

    def __init__(self, project: Project, service: Service) -> None:
        self.project = project
        self.service = service
        self.environ = {**service.environ, **service.settings, "BACKEND": "oci"}
        self.add_image("plain", Path(sys.executable))

    def add_image(self, framework: str, python: Path) -> None:
        """Push what an image of *framework* would be: its interpreter, and what the agent needs there."""
        self.service.control(
            {
                "images": {
                    image_of(framework): {
                        "digest": f"sha256:{'0' * 64}",
                        "entrypoint": [str(self.project.path / "common" / "entrypoint.sh")],
                        "directory": "/",
                        # On hosts of their own: what an image would hold.
                        "readable": [str(path) for path in (CHECKOUT / ".venv", sys.base_prefix, self.project.path)],
                        "environment": {
                            "PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin",
                            "PYTHONPATH": sysconfig.get_path(
                                "purelib"
                            ),  # ocifs, behind what the environment has itself
                        },
                    }
                }
            }
        )

    def launch(self, framework: str, workers: int, *arguments: str, **environ: str) -> Launch:
        environ = {**self.environ, "IMAGE": image_of(framework), **environ}
        return self.project.launch(framework, str(workers), *arguments, **environ)

    def launch_plain(self, workers: int, script: str, *arguments: str, **environ: str) -> Launch:
        return self.launch("plain", workers, "--entry", self.project.write("entry.py", script), *arguments, **environ)

    def run(self, script: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return self.project.run(script, *arguments, **{**self.environ, **environ})

    def runs(self) -> dict[str, dict[str, Any]]:
        """Return the runs by their nodes; of a rank's several, the last."""
        return {run["freeformTags"].get("oci-cluster-node", "all"): run for run in self.service.job_runs()}

    def printed(self, node: str) -> str:
        return self.service.log(self.runs()[node]["id"])

    def wait_for(self, text: str, node: str = "MAIN") -> None:
        wait_until(lambda: node in self.runs() and text in self.printed(node), f"{text!r} of {node}", PATIENCE_S)

    def assert_nothing_runs(self) -> None:
        """Whatever happened: no run that has not ended, and no process of one."""
        left = [run for run in self.service.job_runs() if run["lifecycleState"] not in {*ENDED, "DELETED"}]
        assert not left
        for tags in {run["freeformTags"]["oci-cluster-launch"] for run in self.service.job_runs()}:
            wait_until(lambda tags=tags: not processes_of(tags), f"the end of {processes_of(tags)}", 5.0)


def image_of(framework: str) -> str:
    return f"iad.ocir.io/stand-in/{framework}:1"


def environment_of(project: Project, framework: str) -> Path:
    """Return the interpreter of a framework's environment, which is made where it is not there."""
    made = subprocess.run(
        [sys.executable, "-m", "oci_cluster", "prepare", framework],
        env={**project.environ, "PYTHONPATH": str(project.path / "common")},
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(made.stdout.strip())


@pytest.fixture
def cloud(project: Project, tmp_path: Path) -> Iterator[Cloud]:
    directory = tmp_path / "oci"
    with Service(directory, python=sys.executable) as service:
        yield Cloud(project, service)


def states(cloud: Cloud) -> dict[str, str]:
    return {node: run["lifecycleState"] for node, run in sorted(cloud.runs().items())}


def wait(launch: Launch) -> int:
    return launch.wait(PATIENCE_S)


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
    launch = cloud.launch(framework, 1, "--", "--epochs", "3", OCI_JOB_STYLE=style)
    assert wait(launch) == 0, launch.err + launch.out
    assert re.search(result, launch.out), launch.out
    cloud.assert_nothing_runs()


@pytest.mark.parametrize("style", ["runs", "multinode"])
def test_exit_code_comes_through_and_logs_and_outputs_stay(cloud: Cloud, style: str) -> None:
    save = "import os, sys\nopen(os.environ['OUTPUT_DIR'] + '/model', 'w').write('weights')\n"
    script = f"{save}print(sys.argv[1:])\nsys.exit(7)\n"
    launch = cloud.launch_plain(2, script, "--", "--epochs", "a 'b' \"c\"", OCI_JOB_STYLE=style)
    assert wait(launch) == 7, launch.err
    assert "MAIN     | ['--epochs', 'a \\'b\\' \"c\"']" in launch.out
    assert "ended with 7 (the entry point ended: exit code 7)" in launch.err
    for run in cloud.service.job_runs():
        assert run["lifecycleState"] == "FAILED"
        assert "exit code 7" in run["lifecycleDetails"]
    outputs = [name for name in cloud.service.objects("work/") if "/outputs/" in name]
    assert [name.partition("/outputs/")[2] for name in outputs] == ["MAIN/model"]

    listed = cloud.run("list", "--all", "--json")
    (found,) = json.loads(listed.stdout)
    assert (found["exit_code"], found["state"], len(found["nodes"])) == (7, "ENDED", 3)
    status = json.loads(cloud.run("status", found["name"], "--json").stdout)
    assert (status["exit_code"], status["reason"]) == (7, "the entry point ended: exit code 7")
    assert re.fullmatch(rf"oci://clusters@stand-in/work/{found['name']}-[0-9a-f]{{8}}", status["directory"])
    assert {node["exit_code"] for node in status["nodes"]} == {7}
    # Where the service starts main first, and the others only then, this main has failed before they begin.
    node = "WORKER_2" if style == "runs" else "MAIN"
    logs = cloud.run("logs", found["name"], "--node", node).stdout
    assert "agent: ending with 7: the entry point ended: exit code 7" in logs
    assert {line.partition(" |")[0].strip() for line in logs.splitlines()} == {node}
    cloud.assert_nothing_runs()


def test_ctrl_c_ends_the_cluster_in_order(cloud: Cloud) -> None:
    launch = cloud.launch_plain(1, UNTIL_GO, "--", "never")
    cloud.wait_for("entry up")
    launch.interrupt()
    assert wait(launch) == 143, launch.err
    assert "agent: ending with 143: stopped by the launcher (Ctrl-C or a signal)" in cloud.printed("WORKER_1")
    cloud.assert_nothing_runs()


def test_without_node_logs_they_come_from_oci_logging(cloud: Cloud) -> None:
    launch = cloud.launch_plain(1, "print('hello'); print('from main')", "--name", "demo", NODE_LOGS="0")
    assert wait(launch) == 0, launch.err
    assert not [name for name in cloud.service.objects("work/demo") if "/logs/" in name]

    def found() -> str:
        shown = cloud.run("logs", "demo").stdout
        return shown if "agent: ending with 0" in shown else ""

    shown = wait_until(found, "the logs to be found", PATIENCE_S)
    assert "MAIN     | hello\nMAIN     | from main\n" in shown
    assert "WORKER_1 | " in shown
    cloud.assert_nothing_runs()


def test_cluster_is_found_and_ended_by_its_tags_alone(cloud: Cloud) -> None:
    """The launcher's machine is lost: another one, with a checkout that has never seen it, goes on."""
    launch = cloud.launch_plain(1, UNTIL_GO, "--name", "demo", "--detach", "--", "never")
    assert wait(launch) == 0, launch.err
    assert launch.out == "demo\n"
    cloud.wait_for("entry up")
    again = cloud.launch_plain(1, "", "--name", "demo")
    assert wait(again) == 2
    assert "a cluster named 'demo' is running, with 2 nodes; choose another --name" in again.err
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
    with Service(tmp_path / "oci", python=sys.executable, hosts=True) as service:
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


# --- All or nothing ---------------------------------------------------------------------------------------


def assert_rolled_back(cloud: Cloud) -> None:
    assert {job["lifecycleState"] for job in cloud.service.jobs()} <= {"DELETED"}
    assert not cloud.project.cluster_dirs()
    cloud.assert_nothing_runs()


def test_run_that_is_refused_takes_the_others_with_it(cloud: Cloud) -> None:
    cloud.service.control({"limit": {"VM.Standard.E4.Flex": 3}})
    launch = cloud.launch_plain(4, "")
    assert wait(launch) == 69
    assert "LimitExceeded" in launch.err
    assert "choose another SHAPE or fewer workers, or ask for a higher limit" in launch.err
    assert_rolled_back(cloud)


def test_ctrl_c_while_runs_are_created_leaves_none(cloud: Cloud) -> None:
    cloud.service.control({"faults": [{"operation": "create_job_run", "kind": "latency", "seconds": 0.5}]})
    launch = cloud.launch_plain(20, "")
    wait_until(lambda: len(cloud.service.job_runs()) > 2, "some runs", PATIENCE_S)
    launch.interrupt()
    assert wait(launch) == 143
    assert len(cloud.service.job_runs()) < 21
    assert_rolled_back(cloud)


def test_what_cannot_be_ended_is_named_with_the_command_that_does(cloud: Cloud) -> None:
    faults = [
        {"operation": "create_job_run", "nth": 3, "kind": "409"},  # IncorrectState passes, see below
        {"operation": "cancel_job_run", "kind": "409", "times": 0},
    ]
    cloud.service.control({"limit": {"VM.Standard.E4.Flex": 2}, "faults": faults[:1]})
    cloud.service.control({"expire_tokens": ""})
    launch = cloud.launch_plain(2, "")
    wait_until(lambda: len(cloud.service.job_runs()) == 2, "two runs", PATIENCE_S)
    cloud.service.control({"expire_tokens": "api-key"})
    assert wait(launch) != 0
    assert re.search(r"NOT ENDED: plain-\w+ may still be running and cost money", launch.err), launch.err
    name = re.search(r"end it: scripts/stop.sh (\S+) --delete --backend oci", launch.err)
    assert name
    cloud.service.control({"expire_tokens": ""})
    assert cloud.run("stop", name[1], "--delete").returncode == 0
    assert {job["lifecycleState"] for job in cloud.service.jobs()} == {"DELETED"}
    cloud.assert_nothing_runs()


def test_lost_answers_and_throttling_make_each_run_once(cloud: Cloud) -> None:
    faults = [
        {"operation": "create_job", "nth": 1, "kind": "drop-after"},
        {"operation": "create_job_run", "nth": 1, "kind": "drop-after"},
        {"operation": "create_job_run", "nth": 3, "kind": "429", "retry_after": 1},
        {"operation": "create_job_run", "nth": 4, "kind": "503"},
        {"operation": "create_job_run", "nth": 5, "kind": "drop-before"},
        {"operation": "list_job_runs", "nth": 2, "kind": "500"},
    ]
    cloud.service.control({"faults": faults})
    launch = cloud.launch_plain(3, "print('done')")
    assert wait(launch) == 0, launch.err
    assert len(cloud.service.jobs()) == 1
    assert len(cloud.service.job_runs()) == 4
    cloud.assert_nothing_runs()


# --- What goes wrong, and what it says --------------------------------------------------------------------


def test_node_without_a_host_ends_the_cluster_at_once(cloud: Cloud) -> None:
    cloud.service.control({"out_of_capacity": [2]})
    launch = cloud.launch_plain(2, "", WAIT_FOR_ADDRESSES="1")
    assert wait(launch) == 69, launch.err
    assert re.search(r"WORKER_\d could not be started: Out of host capacity\.; choose another SHAPE", launch.err)
    cloud.assert_nothing_runs()


def test_image_that_is_not_there_is_named(cloud: Cloud) -> None:
    launch = cloud.launch_plain(1, "", IMAGE=image_of("plan"))
    assert wait(launch) == 69, launch.err
    assert image_of("plan") in launch.err
    assert "push it (make push), or let the runs read it: allow dynamic-group" in launch.err
    cloud.assert_nothing_runs()


def test_subnet_without_free_addresses_is_named(cloud: Cloud) -> None:
    cloud.service.control({"free_addresses": 2})
    launch = cloud.launch_plain(2, "", WAIT_FOR_ADDRESSES="1")
    assert wait(launch) == 69, launch.err
    assert "choose a SUBNET_OCID with more free addresses, or fewer workers" in launch.err
    cloud.assert_nothing_runs()


def test_bucket_that_does_not_exist_is_named_before_anything_starts(cloud: Cloud) -> None:
    launch = cloud.launch_plain(1, "", WORK_DIR="oci://missing@stand-in/work")
    assert wait(launch) != 0
    assert "oci://missing@stand-in/work" in launch.err
    assert "make the bucket (oci os bucket create), or allow it: allow dynamic-group" in launch.err
    assert not cloud.service.jobs()


def test_bucket_that_runs_lose_in_the_middle_ends_them(cloud: Cloud) -> None:
    launch = cloud.launch_plain(
        1, UNTIL_GO, "--", "never", TIMEOUT="5", HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="4"
    )
    cloud.wait_for("worker works", "WORKER_1")
    cloud.wait_for("entry up")
    cloud.service.control({"revoke_bucket": [cloud.service.settings["bucket"]]})
    wait_until(lambda: states(cloud)["WORKER_1"] == "FAILED", "the end of WORKER_1", PATIENCE_S)
    assert "no answer for 5 s (TIMEOUT)" in cloud.printed("WORKER_1")
    assert "make the bucket (oci os bucket create), or allow it: allow dynamic-group" in cloud.printed("WORKER_1")
    # Main goes on: its entry point may not need the bucket. It cannot be told to stop either, but by the service.
    launch.interrupt()
    wait_until(lambda: "Ctrl-C again ends it at once" in launch.err, "the first Ctrl-C")
    told_at = time.monotonic()
    wait_until(lambda: time.monotonic() - told_at > 1.2, "a Ctrl-C to be another one")
    launch.interrupt()
    assert wait(launch) != 0
    cloud.assert_nothing_runs()


def test_runs_whose_tokens_are_renewed_go_on(cloud: Cloud) -> None:
    """A run's token lasts an hour, a training longer: the old one is refused, the new one is in the same file."""
    go = cloud.project.scratch / "go"
    launch = cloud.launch_plain(1, UNTIL_GO, "--", str(go), HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="6")
    cloud.wait_for("entry up")
    cloud.wait_for("worker works", "WORKER_1")
    cloud.service.control({"rotate_tokens": True})
    before = len(cloud.service.calls())

    def beat_again() -> bool:
        calls = cloud.service.calls("put_object", since=before)
        beats = [call["path"] for call in calls if "heartbeat" in call["path"] and call["status"] == 200]
        return all(any(node in path for path in beats) for node in ("MAIN", "WORKER_1"))

    wait_until(beat_again, "heartbeats with the new tokens", PATIENCE_S)
    go.touch()
    assert wait(launch) == 0, launch.err
    cloud.assert_nothing_runs()


def test_session_that_has_expired_is_told_from_other_refusals(cloud: Cloud) -> None:
    environ = {"OCI_CLI_PROFILE": "SESSION", "OCI_CLI_AUTH": "security_token"}
    launch = cloud.launch_plain(1, "print('with a session')", **environ)
    assert wait(launch) == 0, launch.err
    cloud.service.control({"expire_tokens": "session"})
    launch = cloud.launch_plain(1, "", **environ)
    assert wait(launch) == 77
    assert "a session's token is renewed with: oci session refresh" in launch.err


def test_setting_that_is_missing_stops_before_any_request(cloud: Cloud) -> None:
    launch = cloud.launch_plain(1, "", "--env", "HF_TOKEN=x", COMPARTMENT_OCID="", IMAGE="dask")
    assert wait(launch) == 78
    (line,) = [line for line in launch.err.splitlines() if "error" in line]
    for name in ("COMPARTMENT_OCID is not set", "IMAGE: 'dask' is not an image with a tag", "HF_TOKEN would stand in"):
        assert name in line
    assert not cloud.service.calls()


# --- Dry run and secrets ----------------------------------------------------------------------------------


def unlike(body: dict[str, Any], launch_id: str, job: str) -> str:
    """Return a request's body without what differs between two launches."""
    text = json.dumps(body, sort_keys=True).replace(launch_id, "<launch>").replace(job or "<job>", "<job>")
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", text)


@pytest.mark.parametrize("style", ["runs", "multinode"])
def test_dry_run_is_what_is_sent_and_its_commands_send_it_too(cloud: Cloud, style: str, tmp_path: Path) -> None:
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

    # The commands, pasted.
    dry = cloud.launch_plain(2, "print(1)", *arguments, "--dry-run", **environ)
    assert wait(dry) == 0
    before = len(cloud.service.calls())
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    pasted = subprocess.run(
        ["bash", "-euc", dry.out],
        env={**cloud.project.environ, **cloud.environ, "PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert pasted.returncode == 0, pasted.stderr
    calls = [
        call
        for call in cloud.service.calls(since=before)
        if call["operation"].partition(".")[2].startswith("create_job")
    ]
    id_of_pasted = calls[0]["body"]["freeformTags"]["oci-cluster-launch"]
    pasted_bodies = {
        unlike({**call["body"], **({"jobId": "<job>"} if "jobId" in call["body"] else {})}, id_of_pasted, "")
        for call in calls
    }
    assert pasted_bodies == bodies
    for run in cloud.service.job_runs():
        cloud.service.wait(run["id"], PATIENCE_S)


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
