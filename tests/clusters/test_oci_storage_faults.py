"""`BACKEND=oci` with an Object Storage that is busy, broken, or far from a node's clock: launches all the same."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from harness import PATIENCE_S, wait_until
from oci_cloud import UNTIL_GO, Cloud, image_of, wait

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

# The requests of a young cluster: soon enough for a test, and far from a node's patience.
QUICK = {"HEARTBEAT_INTERVAL": "1", "HEARTBEAT_TIMEOUT": "30", "POLL_CEILING": "1"}
SAVE = "import os\nopen(os.environ['OUTPUT_DIR'] + '/model', 'w').write('weights')\nprint('main is done')\n"


def test_a_launch_comes_to_its_end_where_a_third_of_all_requests_is_refused(cloud: Cloud) -> None:
    """429 and 503 in turns, for every read, write, list and delete, from the first to the last."""
    busy = {"operation": "object_storage.*", "probability": 0.16, "seed": 3}
    cloud.service.control({"faults": [{**busy, "kind": "429", "retry_after": 1}, {**busy, "kind": "503", "seed": 4}]})
    cloud.project.write("data.bin", "x" * 1000)
    launch = cloud.launch_plain(3, SAVE, "--name", "demo", WAIT_FOR_ADDRESSES="1", CLUSTER_TLS="1", **QUICK)
    assert wait(launch) == 0, launch.err + launch.out
    assert "MAIN     | main is done" in launch.out
    assert "ended with 0" in launch.err
    storage = [call for call in cloud.service.calls() if call["operation"].startswith("object_storage.")]
    refused = sum(call["status"] in {429, 503} for call in storage)
    assert refused > len(storage) / 5 > 10
    prefix = next(name for name in cloud.service.objects("work/demo") if name.endswith("/outputs/MAIN/model"))
    assert cloud.service.object(prefix) == b"weights"
    assert {run["lifecycleState"] for run in cloud.service.job_runs()} == {"SUCCEEDED"}
    stopped = cloud.run("stop", "demo", "--delete")
    assert stopped.returncode == 0, stopped.stderr
    cloud.service.control({"faults": []})
    assert cloud.service.objects("work/") == []
    cloud.assert_nothing_runs()


@pytest.mark.parametrize("kind", ["429", "503", "drop-before", "drop-after", "torn"])
def test_code_gets_to_the_nodes_whatever_fails_once(cloud: Cloud, kind: str) -> None:
    """The first of each request for it: by the launcher, and by every node."""
    code = {"object": "work/code/*", "kind": kind}
    rules = [
        {**code, "operation": name, "nth": 1, "who": who}
        for name in ("get_object", "put_object")
        for who in ("user", "run")
    ]
    cloud.service.control({"faults": rules})
    launch = cloud.launch_plain(1, "print('main is done')", **QUICK)
    assert wait(launch) == 0, launch.err + launch.out
    assert "MAIN     | main is done" in launch.out
    cloud.assert_nothing_runs()


def test_code_that_cannot_be_sent_is_named_with_the_next_step(cloud: Cloud) -> None:
    """Ctrl-C ends the waiting for it; nothing has been made by then."""
    cloud.service.control({"faults": [{"operation": "put_object", "kind": "503", "who": "user"}]})
    launch = cloud.launch_plain(1, "")
    wait_until(lambda: len(cloud.service.calls("put_object")) > 2, "some tries", PATIENCE_S)
    launch.interrupt()
    assert wait(launch) != 0
    found = "work/code/[0-9a-f]{64}.tar.gz: Object Storage answered put_object with HTTP 503 ServiceUnavailable"
    assert re.search(found, launch.err), launch.err
    assert "try again later" in launch.err
    assert "Errno" not in launch.err
    assert not cloud.service.jobs()


def test_a_node_without_storage_ends_after_timeout_and_not_later(cloud: Cloud) -> None:
    """Busy for ever is silent for ever: retries do not prolong what the contract says."""
    launch = cloud.launch_plain(1, UNTIL_GO, "--", "never", **{**QUICK, "TIMEOUT": "15"})
    cloud.wait_for("entry up")
    cloud.wait_for("worker works", "WORKER_1")
    busy = {"operation": "object_storage.*", "kind": "429", "who": "run", "retry_after": 600}
    cloud.service.control({"faults": [busy]})
    wait_until(lambda: "ending with 69: no answer for 15 s (TIMEOUT)" in cloud.printed("WORKER_1"), "its end")
    assert "HTTP 429 TooManyRequests" in cloud.printed("WORKER_1")
    cloud.service.control({"faults": []})
    launch.interrupt()
    assert wait(launch) != 0
    cloud.assert_nothing_runs()


def test_a_busy_storage_still_takes_the_stop_file(cloud: Cloud) -> None:
    """Ctrl-C: nodes end in order, and are not canceled."""
    launch = cloud.launch_plain(1, UNTIL_GO, "--", "never", **QUICK)
    cloud.wait_for("entry up")
    cloud.wait_for("worker works", "WORKER_1")
    cloud.service.control({"faults": [{"operation": "put_object", "kind": "503", "object": "*/stop", "times": 3}]})
    launch.interrupt()
    assert wait(launch) == 143, launch.err
    assert not cloud.service.calls("cancel_job_run")
    assert "ending with 143: stopped" in cloud.printed("WORKER_1")
    cloud.assert_nothing_runs()


@pytest.mark.parametrize("operation", ["list_objects", "delete_object"])
def test_files_that_could_not_be_deleted_are_deleted_by_the_next_stop(cloud: Cloud, operation: str) -> None:
    """The Job is what names the cluster: it goes last, when its runs have ended and its files are gone."""
    launch = cloud.launch_plain(1, UNTIL_GO, "--detach", "--name", "demo", "--", "never", **QUICK)
    assert wait(launch) == 0, launch.err
    cloud.wait_for("entry up")
    cloud.service.control({"faults": [{"operation": operation, "kind": "404"}]})
    failed = cloud.run("stop", "demo", "--delete")
    assert failed.returncode != 0
    assert f"Object Storage answered {operation} with HTTP 404 NotAuthorizedOrNotFound" in failed.stderr
    assert "demo" in cloud.run("list", "--all").stdout
    cloud.assert_nothing_runs()
    cloud.service.control({"faults": []})
    stopped = cloud.run("stop", "demo", "--delete")
    assert stopped.returncode == 0, stopped.stderr
    assert cloud.service.objects("work/") == []
    assert not [job for job in cloud.service.jobs() if job["lifecycleState"] != "DELETED"]


SITE = """
import os, time
ahead_s = float(os.environ.get("CLOCKS", "0 0").split()[os.environ.get("MODE") != "MAIN"])
real, real_ns = time.time, time.time_ns
time.time = lambda: real() + ahead_s
time.time_ns = lambda: real_ns() + int(ahead_s * 1e9)
"""


@pytest.mark.parametrize("clocks", ["-240 240", "240 -240"])
def test_clocks_may_differ_by_four_minutes(cloud: Cloud, tmp_path: Path, clocks: str) -> None:
    """Signatures of requests too are made by these clocks; a worker that is lost is found, and replaced."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    image = cloud.image(Path(sys.executable))
    image["environment"] |= {"PYTHONPATH": f"{site}:{image['environment']['PYTHONPATH']}", "CLOCKS": clocks}
    cloud.service.control({"images": {image_of("plain"): image}})
    go = cloud.project.scratch / "go"
    launch = cloud.launch_plain(
        2,
        UNTIL_GO,
        "--name",
        "demo",
        "--",
        str(go),
        MIN_WORKERS="1",
        WAIT_FOR_ADDRESSES="1",
        CLUSTER_TLS="1",
        **{**QUICK, "HEARTBEAT_TIMEOUT": "15"},
    )
    cloud.wait_for("entry up")
    cloud.wait_for("worker works", "WORKER_1")
    cloud.service.kill(cloud.runs()["WORKER_1"]["id"])
    cloud.wait_for("WORKER_1 lost: no heartbeat for 15 s")
    assert cloud.run("scale", "demo", "+1").stdout == "2\n"
    cloud.wait_for("WORKER_1 is back")
    cloud.wait_for("worker works", "WORKER_1")
    go.touch()
    assert wait(launch) == 0, launch.err + launch.out
    cloud.assert_nothing_runs()
