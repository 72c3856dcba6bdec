"""`BACKEND=oci --dry-run`: the script that it prints is run literally, without the checkout, by the real oci-cli."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import warm
from harness import PATIENCE_S, wait_until
from oci_cloud import ENDED, UNTIL_GO, Cloud, wait

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

# An oci-cli that notes its words, which everybody on the machine can see.
NOTING = """#!/bin/sh
printf '%s\\n' "$*" >>'{place}/words'
exec {oci} "$@"
"""


class Owned:
    """A script that a dry run has printed, in the hands of somebody who has oci-cli and no checkout."""

    def __init__(self, cloud: Cloud, place: Path, script: str) -> None:
        self.cloud = cloud
        self.place = place / "of somebody"
        (self.place / "bin").mkdir(parents=True)
        self.file = self.place / "my launch.sh"
        self.file.write_text(script)
        oci = self.place / "bin" / "oci"
        oci.write_text(NOTING.format(place=self.place, oci=shlex.join(warm.command("oci"))))
        oci.chmod(0o755)
        (self.place / "tmp").mkdir()

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start it in a session of its own, as a terminal would have it."""
        environ = {
            **self.cloud.service.environ,
            "PATH": f"{self.place}/bin:/usr/bin:/bin",
            "HOME": str(self.place),
            "TMPDIR": str(self.place / "tmp"),
        }
        with (self.place / "said").open("w") as said:
            return subprocess.Popen(
                ["bash", str(self.file), *words],
                cwd=self.place,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def run(self, *words: str) -> int:
        return self.begin(*words).wait(PATIENCE_S)

    @property
    def said(self) -> str:
        return (self.place / "said").read_text()

    @property
    def words(self) -> str:
        return (self.place / "words").read_text()

    def assert_nothing_left(self) -> None:
        assert list((self.place / "tmp").iterdir()) == []
        self.cloud.assert_nothing_runs()


def owned(cloud: Cloud, place: Path, workers: int, script: str, *arguments: str, **environ: str) -> Owned:
    dry = cloud.launch_plain(workers, script, "--dry-run", *arguments, **environ)
    assert wait(dry) == 0, dry.err
    return Owned(cloud, place, dry.out)


def bodies(cloud: Cloud, since: int = 0) -> list[str]:
    """Return the bodies of what was created, without what differs between two launches, in an order that lasts."""
    calls = cloud.service.calls(since=since)
    made = [call["body"] for call in calls if call["operation"].partition(".")[2] in {"create_job", "create_job_run"}]
    launch_id = made[0]["freeformTags"]["oci-cluster-launch"]
    return sorted(unlike(body, launch_id) for body in made)


def unlike(body: dict[str, Any], launch_id: str) -> str:
    text = json.dumps(body, sort_keys=True).replace(launch_id, "<launch>")
    text = re.sub(r'"jobId": "[^"]*"', '"jobId": "<job>"', text)
    # The key, and the hash of the code, which another program has packed.
    text = re.sub(r"[0-9a-f]{64}", "<hex>", text)
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "<time>", text)


MACHINES = {"MAIN_SHAPE": "VM.GPU.A10.1", "WORKER_OCPUS": "2"}
COMPANY = {
    "DESCRIPTION": 'it\'s "nightly" $HOME `id`',
    "FREEFORM_TAGS": "'team=a b'",
    "DEFINED_TAGS": "Operations.CostCenter=42",
}


@pytest.mark.parametrize("style", ["runs", "multinode"])
def test_the_script_runs_the_cluster_that_a_launch_runs(cloud: Cloud, tmp_path: Path, style: str) -> None:
    """It ends with 0; all bodies are a launch's; the key is in no command, and no file of it is left."""
    cloud.service.control({"required_tags": ["Operations.CostCenter"]})
    greeting = 'GREETING=it\'s "quoted" $HOME \\ `id`'
    arguments = ["--name", "demo", "--ttl", "1h", "--env", greeting, "--", "$(id)", "{{}}"]
    code = "import sys\nfrom near import word\nprint(word, sys.argv[1:])\n"
    cloud.project.write("near.py", "word = 'here'\n")
    cloud.project.write("-T odd.txt", "")
    environ = {"OCI_JOB_STYLE": style, "SUBNET_CIDR": "", **MACHINES, **COMPANY}
    script = owned(cloud, tmp_path, 2, code, *arguments, **environ)
    assert not cloud.service.calls()
    assert not re.search(r"[0-9a-f]{64}", script.file.read_text())
    launch = cloud.launch_plain(2, code, *arguments, **environ)
    assert wait(launch) == 0, launch.err
    sent_by_launch = bodies(cloud)
    before = len(cloud.service.calls())
    assert script.run() == 0, script.said
    assert bodies(cloud, before) == sent_by_launch
    sent = cloud.service.calls("create_job")[-1]["body"]
    runs = cloud.service.job_runs()
    main = next(run for run in runs if run["jobId"] == cloud.service.jobs()[-1]["id"])
    assert "here ['$(id)', '{{}}']" in cloud.service.log(main["id"])
    key = re.search(r'"LAUNCH_KEY": "([0-9a-f]{64})"', json.dumps(sent))
    assert key
    assert key[1] not in script.words
    assert "cluster demo ended with 0" in script.said
    script.assert_nothing_left()


def test_the_script_sends_the_code_as_it_is_and_passes_its_code_on(cloud: Cloud, tmp_path: Path) -> None:
    """What was changed after the dry run goes; another folder may be named; what is the same is not sent again."""
    script = owned(cloud, tmp_path, 1, "raise SystemExit(3)\n")
    cloud.project.write("entry.py", "raise SystemExit(7)\n")
    assert script.run() == 7, script.said
    assert re.search(r"cluster plain-[0-9a-f]{4} ended with 7 \(", script.said)
    assert "sending the code" in script.said
    # The cluster is one as any other: by its tags it is found, and its nodes' files are signed with its key.
    (found,) = json.loads(cloud.run("list", "--all", "--json").stdout)
    assert (found["exit_code"], [node["node"] for node in found["nodes"]]) == (7, ["MAIN", "WORKER_1"])
    assert "agent: ending with 7" in cloud.run("logs", found["name"], "--node", "MAIN").stdout
    other = tmp_path / "other"
    other.mkdir()
    (other / "entry.py").write_text("raise SystemExit(0)\n")
    assert script.run(str(other)) == 0, script.said
    assert f"sending the code in {other}" in script.said
    assert script.run(str(other)) == 0, script.said
    assert "sending the code" not in script.said
    jobs = [job["freeformTags"] for job in cloud.service.jobs()]
    assert len({tags["oci-cluster-launch"] for tags in jobs}) == len({tags["oci-cluster"] for tags in jobs}) == 3
    script.assert_nothing_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_runs_are_created_leaves_nothing(cloud: Cloud, tmp_path: Path, number: int) -> None:
    """Those that are being created are waited for, and ended; the others are not begun; the Job goes."""
    script = owned(cloud, tmp_path, 13, UNTIL_GO, "--", "never")
    cloud.service.control({"faults": [{"operation": "create_job_run", "kind": "latency", "seconds": 3.0}]})
    process = script.begin()
    wait_until(lambda: len(cloud.service.job_runs()) > 1, "the first workers", PATIENCE_S)
    # A terminal tells all of its processes, a person's kill one.
    (os.killpg if number != signal.SIGTERM else os.kill)(process.pid, number)
    assert process.wait(PATIENCE_S) == 143, script.said
    assert len(cloud.service.job_runs()) < 14
    assert [job["lifecycleState"] for job in cloud.service.jobs()] == ["DELETED"]
    script.assert_nothing_left()


def test_ctrl_c_while_it_runs_ends_it(cloud: Cloud, tmp_path: Path) -> None:
    """A second one changes nothing: what runs is ended."""
    script = owned(cloud, tmp_path, 1, UNTIL_GO, "--name", "demo", "--", "never")
    process = script.begin()
    cloud.wait_for("entry up")
    wait_until(lambda: "all is asked for" in script.said, "the worker's run to be known, too", PATIENCE_S)
    again = Owned(cloud, tmp_path / "again", script.file.read_text())
    assert again.run() == 2
    assert "a cluster named 'demo' runs" in again.said
    os.killpg(process.pid, signal.SIGINT)
    wait_until(lambda: "ending demo" in script.said, "its word", PATIENCE_S)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(PATIENCE_S) == 143, script.said
    assert {run["lifecycleState"] for run in cloud.service.job_runs()} <= ENDED
    assert [job["lifecycleState"] for job in cloud.service.jobs()] == ["ACTIVE"]
    script.assert_nothing_left()


def test_a_refusal_ends_what_there_is_with_the_launchs_code(cloud: Cloud, tmp_path: Path) -> None:
    """A limit that the third run meets: 69. A project that nobody knows: 77. A tag that is required: 78."""
    script = owned(cloud, tmp_path, 3, UNTIL_GO, "--", "never")
    cloud.service.control({"limit": {"VM.Standard.E4.Flex": 2}})
    assert script.run() == 69, script.said
    assert "LimitExceeded" in script.said
    assert [job["lifecycleState"] for job in cloud.service.jobs()] == ["DELETED"]
    text = script.file.read_text()
    script.file.write_text(re.sub(r"(?m)^project=.*$", "project=ocid1.datascienceproject.oc1.iad.nobodys", text))
    assert script.run() == 77, script.said
    cloud.service.control({"required_tags": ["Operations.CostCenter"]})
    script.file.write_text(text)
    assert script.run() == 78, script.said
    assert "Operations.CostCenter" in script.said
    script.assert_nothing_left()


def test_a_main_that_is_lost_is_76_and_one_whose_script_was_killed_its_own(cloud: Cloud, tmp_path: Path) -> None:
    """Both end with 137; main says which it was, where it can."""
    script = owned(cloud, tmp_path, 1, "import os\nos.kill(os.getpid(), 9)\n", HEARTBEAT_TIMEOUT="12")
    assert script.run() == 137, script.said
    cloud.project.write("entry.py", UNTIL_GO)
    script.file.write_text(script.file.read_text().replace('"ARGS": "[]"', '"ARGS": "never"'))
    process = script.begin()
    cloud.wait_for("entry up")
    cloud.service.kill(cloud.runs()["MAIN"]["id"])
    assert process.wait(PATIENCE_S) == 76, script.said
    script.assert_nothing_left()
