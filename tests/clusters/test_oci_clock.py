"""`BACKEND=oci` where the service is slow: nodes that never start, what is not seen yet, states that are told late."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from harness import PATIENCE_S, Launch, wait_until
from oci_cloud import ENDED, UNTIL_GO, Cloud, states, wait

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

# Long enough for two nodes to run and to end on a busy machine; short enough to be waited for.
SOON = {"PROVISION_TIMEOUT": "20"}
SHORT = "print('entry up')\n"


def last(launch: Launch) -> str:
    """Return how a launch says that its cluster has ended."""
    return next(line for line in reversed(launch.err.splitlines()) if "ended with" in line)


# --- Nodes that never start -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stays", "named"),
    [(["MAIN"], "MAIN"), (["WORKER_2"], "WORKER_2"), (["MAIN", "WORKER_1", "WORKER_2"], "MAIN, WORKER_1, WORKER_2")],
    ids=["main", "a worker", "all"],
)
def test_nodes_that_never_start_end_the_launch(cloud: Cloud, stays: list[str], named: str) -> None:
    """Within PROVISION_TIMEOUT, with 75 and their names; nothing is left."""
    cloud.service.control({"stay_accepted": stays})
    launch = cloud.launch_plain(2, SHORT, WAIT_FOR_ADDRESSES="1", **SOON)
    assert wait(launch) == 75, launch.err
    assert f"{named} did not start" in last(launch)
    for node in stays:
        assert states(cloud)[node] == "CANCELED"
    cloud.assert_nothing_runs()
    listed = json.loads(cloud.run("list", "--all", "--json").stdout)
    assert [(found["exit_code"], found["state"]) for found in listed] == [(75, "FAILED")]


def test_a_run_of_node_groups_that_never_starts_ends_the_launch(cloud: Cloud) -> None:
    """One run is all nodes: it is canceled whole."""
    cloud.service.control({"stay_accepted": [1]})
    launch = cloud.launch_plain(1, SHORT, OCI_JOB_STYLE="multinode", **SOON)
    assert wait(launch) == 75, launch.err
    assert "MAIN, WORKER_1 did not start" in last(launch)
    cloud.assert_nothing_runs()


def test_the_node_group_that_failed_is_named_with_its_reason(cloud: Cloud) -> None:
    """By the service's own words."""
    launch = cloud.launch_plain(1, "import sys\nsys.exit(7)\n", "--name", "demo", OCI_JOB_STYLE="multinode")
    assert wait(launch) == 7, launch.err
    (main, *_) = json.loads(cloud.run("status", "demo", "--json").stdout)["nodes"]
    assert "failed with exit code 7" in main["details"]


def test_a_worker_that_has_not_started_is_canceled_when_main_has_ended(cloud: Cloud) -> None:
    """It is not waited for; the code is main's."""
    cloud.service.control({"stay_accepted": ["WORKER_2"]})
    launch = cloud.launch_plain(2, SHORT, MIN_WORKERS="0", TTL="1h")
    assert wait(launch) == 0, launch.err
    assert "not started: WORKER_2" in launch.err
    assert states(cloud) == {"MAIN": "SUCCEEDED", "WORKER_1": "SUCCEEDED", "WORKER_2": "CANCELED"}
    cloud.assert_nothing_runs()


def test_workers_that_wait_in_vain_for_main_end_the_launch(cloud: Cloud) -> None:
    """Their TIMEOUT is over, and main has no host: what comes later has nobody left."""
    cloud.service.control({"stay_accepted": ["MAIN"]})
    launch = cloud.launch_plain(1, SHORT, TIMEOUT="3")
    assert wait(launch) == 75, launch.err
    assert "WORKER_1 ended before" in last(launch)
    assert states(cloud) == {"MAIN": "CANCELED", "WORKER_1": "FAILED"}
    cloud.assert_nothing_runs()


def test_main_that_waits_in_vain_names_who_never_started(cloud: Cloud) -> None:
    """Main's TIMEOUT counts from its own start, whatever PROVISION_TIMEOUT is."""
    cloud.service.control({"stay_accepted": ["WORKER_1"]})
    launch = cloud.launch_plain(1, SHORT, WAIT_FOR_ADDRESSES="1", TIMEOUT="3")
    assert wait(launch) == 75, launch.err
    assert "(TIMEOUT)" in last(launch)
    assert "; never started: WORKER_1 (ACCEPTED" in last(launch)
    cloud.assert_nothing_runs()


def test_the_ttl_bounds_a_main_that_never_starts(cloud: Cloud) -> None:
    """Whatever PROVISION_TIMEOUT says."""
    cloud.service.control({"stay_accepted": ["MAIN", "WORKER_1"]})
    launch = cloud.launch_plain(1, SHORT, "--ttl", "5s")
    assert wait(launch) == 75, launch.err
    assert "TTL of 5 s" in last(launch)
    cloud.assert_nothing_runs()


@pytest.mark.parametrize("recovers", [True, False])
def test_a_run_that_needs_attention_is_shown_and_may_recover(cloud: Cloud, *, recovers: bool) -> None:
    """With what the service says of it."""
    cloud.service.control({"needs_attention": {"WORKER_1": {"details": "No capacity in AD-1."}}})
    environ = {} if recovers else SOON
    launch = cloud.launch_plain(1, SHORT, WAIT_FOR_ADDRESSES="1", **environ)
    wait_until(lambda: "WORKER_1 is NEEDS_ATTENTION: No capacity in AD-1." in launch.err, "its word", PATIENCE_S)
    if recovers:
        cloud.service.control({"needs_attention": {}})
    assert wait(launch) == (0 if recovers else 75), launch.err
    if not recovers:
        assert "WORKER_1 did not start" in last(launch)
    cloud.assert_nothing_runs()


@pytest.mark.parametrize("code", [0, 7])
def test_a_node_that_begins_when_its_launch_is_over_ends_at_once(cloud: Cloud, code: int) -> None:
    """Nobody follows a detached launch: the node itself finds that its cluster has ended."""
    cloud.service.control({"stay_accepted": ["WORKER_2"]})
    script = f"import sys\nsys.exit({code})\n"
    launch = cloud.launch_plain(2, script, "--detach", "--name", "demo", MIN_WORKERS="0")
    assert wait(launch) == 0, launch.err
    wait_until(lambda: states(cloud)["MAIN"] in ENDED, "main's end", PATIENCE_S)
    cloud.service.control({"stay_accepted": []})
    ended = cloud.service.wait(cloud.runs()["WORKER_2"]["id"])
    assert ended["lifecycleState"] == ("FAILED" if code else "SUCCEEDED")
    assert f"ending with {code}: the entry point ended" in cloud.printed("WORKER_2")
    assert "worker works" not in cloud.printed("WORKER_2")
    cloud.assert_nothing_runs()


def test_nodes_that_wait_are_shown_and_stopped(cloud: Cloud) -> None:
    """For how long they have waited, also to who has not launched them."""
    cloud.service.control({"stay_accepted": ["MAIN", "WORKER_1"]})
    never = str(int(2 * PATIENCE_S))  # what has not started is not asked, but canceled
    launch = cloud.launch_plain(1, SHORT, "--detach", "--name", "demo", PROVISION_TIMEOUT="1", GRACE_PERIOD=never)
    assert wait(launch) == 0, launch.err
    found = json.loads(cloud.run("status", "demo", "--json").stdout)
    assert [node["waiting_s"] >= 0 for node in found["nodes"]] == [True, True]
    shown = cloud.run("status", "demo").stdout
    assert re.search(r"^WORKER_1 .* waiting for \d+[sm]: Job run accepted\.$", shown, re.MULTILINE)
    assert re.search(r"2 \(2 waiting for \d+[sm]\)", cloud.run("list").stdout)
    assert cloud.run("stop", "demo").returncode == 0
    assert states(cloud) == {"MAIN": "CANCELED", "WORKER_1": "CANCELED"}
    cloud.assert_nothing_runs()


# --- What is not seen yet, and what is told late --------------------------------------------------------------------


def test_a_job_that_is_not_seen_yet_is_waited_for(cloud: Cloud) -> None:
    """Job and runs are 404 for 5 s after they have been made."""
    cloud.service.control({"unseen_s": 5})
    launch = cloud.launch_plain(1, SHORT)
    assert wait(launch) == 0, launch.err
    assert len(cloud.service.jobs()) == 1
    assert len(cloud.service.job_runs()) == 2
    cloud.assert_nothing_runs()


def test_a_job_that_is_not_seen_yet_is_rolled_back(cloud: Cloud) -> None:
    """A 404 to a delete says nothing of a Job that has just been made."""
    cloud.service.control({"unseen_s": 5, "limit": {"VM.Standard.E4.Flex": 1}})
    launch = cloud.launch_plain(1, SHORT)
    assert wait(launch) == 69, launch.err
    assert "LimitExceeded" in launch.err
    assert {job["lifecycleState"] for job in cloud.service.jobs()} == {"DELETED"}
    assert "NOT ENDED" not in launch.err
    cloud.assert_nothing_runs()


LATE = {"list_lag_s": 10, "state_lag_s": 8, "stale_every": 2}


@pytest.mark.parametrize("code", [0, 7])
def test_lists_and_states_that_lag_decide_nothing_wrong(cloud: Cloud, code: int) -> None:
    """A run that a list does not have yet has not ended; one that has ended does not run again."""
    cloud.service.control(LATE)
    launch = cloud.launch_plain(2, f"import sys\nsys.exit({code})\n", WAIT_FOR_ADDRESSES="1")
    assert wait(launch) == code, launch.err
    assert "could not be started" not in launch.err
    assert set(states(cloud).values()) == {"FAILED" if code else "SUCCEEDED"}, "nobody is canceled who has started"
    cloud.assert_nothing_runs()


def test_a_cluster_that_lists_do_not_have_yet_is_stopped(cloud: Cloud) -> None:
    """It was launched a moment ago: that no run is listed does not mean that none is there."""
    launch = cloud.launch_plain(1, UNTIL_GO, "--detach", "--name", "demo", "--", "never")
    cloud.service.control(LATE)
    assert wait(launch) == 0, launch.err
    wait_until(lambda: cloud.run("stop", "demo").returncode == 0, "the Job in a list", PATIENCE_S)
    assert set(states(cloud).values()) <= ENDED
    cloud.assert_nothing_runs()


def test_a_killed_launcher_takes_along_what_no_list_has_yet(cloud: Cloud) -> None:
    """What it had just made would run, and cost, to its end."""
    cloud.service.control(LATE)
    launch = cloud.launch_plain(1, UNTIL_GO, "--", "never")
    cloud.wait_for("entry up")
    launch.kill()
    launch.process.wait()
    wait_until(lambda: set(states(cloud).values()) <= ENDED, "the end of its runs", PATIENCE_S)
    cloud.assert_nothing_runs()


# --- The first Ctrl-C -----------------------------------------------------------------------------------------------


def _requests(cloud: Cloud, operation: str, count: int = 1) -> Callable[[], bool]:
    return lambda: len(cloud.service.calls(operation)) >= count


def _late(operation: str, seconds: float = 3.0) -> dict[str, Any]:
    return {"faults": [{"operation": operation, "kind": "latency", "seconds": seconds}]}


def _printed(text: str, node: str = "MAIN") -> Callable[[Cloud], Callable[[], bool]]:
    return lambda cloud: lambda: node in cloud.runs() and text in cloud.printed(node)


def _listed(state: str) -> Callable[[Cloud], Callable[[], bool]]:
    return lambda cloud: lambda: state in states(cloud).values() and _requests(cloud, "list_job_runs", 2)()


# By name: controls of the service, and what is waited for.
PHASES: dict[str, tuple[dict[str, Any], Callable[[Cloud], Callable[[], bool]]]] = {
    "the name is looked up": (
        {"faults": [{"operation": "list_jobs", "kind": "503"}]},
        lambda cloud: _requests(cloud, "list_jobs"),
    ),
    "the code is sent": (_late("put_object", 1.0), lambda cloud: _requests(cloud, "list_jobs")),
    "the Job is made": (_late("create_job"), lambda cloud: _requests(cloud, "put_object")),
    "the Job is not seen yet": ({"unseen_s": 10}, lambda cloud: _requests(cloud, "create_job_run")),
    "main is made": (_late("create_job_run"), lambda cloud: _requests(cloud, "create_job")),
    "workers are made": (_late("create_job_run", 1.0), lambda cloud: _requests(cloud, "create_job_run")),
    "nothing has started": ({"stay_accepted": ["MAIN", "WORKER_1", "WORKER_2"]}, _listed("ACCEPTED")),
    "a node needs attention": ({"needs_attention": {"WORKER_1": {}}}, _listed("NEEDS_ATTENTION")),
    "one has not started": ({"stay_accepted": ["WORKER_2"]}, _printed("agent: node=MAIN")),
    "the entry point runs": ({}, _printed("entry up")),
    "states are told late": (LATE, _printed("entry up")),
}


@pytest.mark.parametrize("phase", PHASES)
def test_the_first_ctrl_c_ends_a_launch_in_any_phase(cloud: Cloud, phase: str) -> None:
    """With 143, and nothing that runs or waits."""
    controls, moment = PHASES[phase]
    cloud.service.control(controls)
    launch = cloud.launch_plain(2, UNTIL_GO, "--", "never", WAIT_FOR_ADDRESSES="1")
    wait_until(moment(cloud), phase, PATIENCE_S)
    launch.interrupt()
    assert wait(launch) == 143, launch.err
    assert "Traceback" not in launch.err
    cloud.assert_nothing_runs()
