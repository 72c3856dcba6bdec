"""`BACKEND=oci`, all or nothing: what is refused, lost or missing at OCI, and what a launch says of it."""

from __future__ import annotations

import re
import sys
import time

import pytest
from harness import PATIENCE_S, wait_until
from oci_cloud import UNTIL_GO, Cloud, image_of, states, wait

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")


def assert_rolled_back(cloud: Cloud) -> None:
    assert {job["lifecycleState"] for job in cloud.service.jobs()} <= {"DELETED"}
    assert not cloud.project.cluster_dirs()
    cloud.assert_nothing_runs()


def test_run_that_is_refused_takes_the_others_with_it(cloud: Cloud) -> None:
    cloud.service.control({"limit": {"VM.Standard.E4.Flex": 3}})
    launch = cloud.launch_plain(4, "")
    assert wait(launch) == 69
    assert "LimitExceeded" in launch.err
    assert "ask for a higher limit" in launch.err
    assert_rolled_back(cloud)


def test_ctrl_c_while_runs_are_created_leaves_none(cloud: Cloud) -> None:
    cloud.service.control({"faults": [{"operation": "create_job_run", "kind": "latency", "seconds": 0.5}]})
    launch = cloud.launch_plain(200, "")  # so many that not all are there when the signal is late
    wait_until(lambda: len(cloud.service.job_runs()) > 2, "some runs", PATIENCE_S)
    launch.interrupt()
    assert wait(launch) == 143
    assert len(cloud.service.job_runs()) < 201
    assert_rolled_back(cloud)


def test_what_cannot_be_ended_is_named_with_the_command_that_does(cloud: Cloud) -> None:
    # IncorrectState passes: the third is asked for again until the token has expired.
    refused = [{"operation": "create_job_run", "nth": number, "kind": "409"} for number in range(3, 500)]
    cloud.service.control({"faults": refused})
    launch = cloud.launch_plain(2, "")
    wait_until(lambda: len(cloud.service.job_runs()) == 2, "two runs", PATIENCE_S)
    cloud.service.control({"expire_tokens": "api-key", "faults": []})
    assert wait(launch) != 0
    assert re.search(r"NOT ENDED: plain-\w+ ", launch.err), launch.err
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


def test_node_without_a_host_ends_the_cluster_at_once(cloud: Cloud) -> None:
    cloud.service.control({"out_of_capacity": [2]})
    launch = cloud.launch_plain(2, "", WAIT_FOR_ADDRESSES="1")
    assert wait(launch) == 69, launch.err
    assert re.search(r"WORKER_\d .*: Out of host capacity", launch.err)
    cloud.assert_nothing_runs()


def test_image_that_is_not_there_is_named(cloud: Cloud) -> None:
    launch = cloud.launch_plain(1, "", IMAGE=image_of("plan"))
    assert wait(launch) == 69, launch.err
    assert image_of("plan") in launch.err
    assert "read it: allow dynamic-group" in launch.err
    cloud.assert_nothing_runs()


def test_subnet_without_free_addresses_is_named(cloud: Cloud) -> None:
    cloud.service.control({"free_addresses": 2})
    launch = cloud.launch_plain(2, "", WAIT_FOR_ADDRESSES="1")
    assert wait(launch) == 69, launch.err
    assert "choose a SUBNET_OCID" in launch.err
    cloud.assert_nothing_runs()


def test_bucket_that_does_not_exist_is_named_before_anything_starts(cloud: Cloud) -> None:
    launch = cloud.launch_plain(1, "", WORK_DIR="oci://missing@stand-in/work")
    assert wait(launch) != 0
    assert "oci://missing@stand-in/work" in launch.err
    assert "or allow it: allow dynamic-group" in launch.err
    assert not cloud.service.jobs()


def test_bucket_that_runs_lose_in_the_middle_ends_them(cloud: Cloud) -> None:
    launch = cloud.launch_plain(
        1, UNTIL_GO, "--", "never", TIMEOUT="20", HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="10"
    )
    cloud.wait_for("worker works", "WORKER_1")
    cloud.wait_for("entry up")
    cloud.service.control({"revoke_bucket": [cloud.service.settings["bucket"]]})
    wait_until(lambda: states(cloud)["WORKER_1"] == "FAILED", "the end of WORKER_1", PATIENCE_S)
    assert "no answer for 20 s (TIMEOUT)" in cloud.printed("WORKER_1")
    assert "or allow it: allow dynamic-group" in cloud.printed("WORKER_1")
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
    launch = cloud.launch_plain(1, UNTIL_GO, "--", str(go), HEARTBEAT_INTERVAL="0.5", HEARTBEAT_TIMEOUT="20")
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
    assert "oci session authenticate" in launch.err


def test_setting_that_is_missing_stops_before_any_request(cloud: Cloud) -> None:
    launch = cloud.launch_plain(1, "", "--env", "HF_TOKEN=x", COMPARTMENT_OCID="", IMAGE="dask")
    assert wait(launch) == 78
    (line,) = [line for line in launch.err.splitlines() if "error" in line]
    for name in ("COMPARTMENT_OCID is not set", "IMAGE: 'dask' is not an image with a tag", "would see HF_TOKEN"):
        assert name in line
    assert not cloud.service.calls()
