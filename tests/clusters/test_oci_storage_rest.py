"""What a cluster asks of Object Storage while nothing happens: counted at the service, by kind."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from harness import PATIENCE_S, wait_until
from oci_cloud import UNTIL_GO, Cloud, wait

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

# Two heartbeats: what comes every 24 s is counted as often as it comes.
WINDOW_S = 48.0


def kind_of(call: dict[str, Any]) -> str:
    """Return the operation of *call*, and about what: all workers are one."""
    name = re.sub(r"WORKER_\d+", "WORKER", call["path"].rpartition("%2F")[2])
    operation = call["operation"].partition(".")[2]
    return operation if operation.startswith("list") else f"{operation} {name}"


def is_node(call: dict[str, Any]) -> bool:
    return str(call["principal"]).startswith("resource:")


def asked(cloud: Cloud, since: int = 0) -> list[dict[str, Any]]:
    return [call for call in cloud.service.calls(since=since) if call["operation"].startswith("object_storage.")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("nodes", [2, 16, 48])
def test_requests_at_rest(cloud: Cloud, nodes: int) -> None:
    """At most 0.3 a second by each node, no list by a worker; the last node that arrives is released within a poll."""
    late = f"*/WORKER_{nodes - 1}_config.json"
    cloud.service.control({"faults": [{"operation": "put_object", "object": late, "kind": "503"}]})
    launch = cloud.launch_plain(nodes - 1, UNTIL_GO, "--", "never", WAIT_FOR_ADDRESSES="1")

    def have_come() -> bool:
        return sum(name.endswith("_config.json") for name in cloud.service.objects("work/")) == nodes - 2

    wait_until(have_come, "all but one", PATIENCE_S)
    cloud.service.control({"faults": []})
    for rank in range(1, nodes):
        cloud.wait_for("worker works", f"WORKER_{rank}")
    written = {
        re.sub(".*%2F", "", call["path"]): call["time"]
        for call in asked(cloud)
        if call["operation"].endswith("put_object") and call["status"] == 200 and call["path"].endswith("_config.json")
    }
    # A poll is 4.4 s at most, and a pause below 5.4 s: the rest is what a busy machine may take.
    assert written["MAIN_config.json"] - written[f"WORKER_{nodes - 1}_config.json"] < 8
    # After that polls are at their longest again.
    settled_at = time.monotonic() + 12
    wait_until(lambda: time.monotonic() > settled_at, "polls to be at their longest", 60)
    since, began_at = len(cloud.service.calls()), time.time()
    wait_until(lambda: time.time() > began_at + WINDOW_S, "the window's end", WINDOW_S + 60)
    window = [call for call in asked(cloud, since) if call["time"] <= began_at + WINDOW_S]

    own = Counter(kind_of(call) for call in window if is_node(call))
    beats = WINDOW_S / 24 + 1
    assert sum(own.values()) <= 0.3 * nodes * WINDOW_S + 1, own
    assert own["list_objects"] <= WINDOW_S / 3.6 + 1  # main's
    assert own["get_object stop"] <= (nodes - 1) * (WINDOW_S / 5.4 + 1)
    assert own["put_object WORKER_heartbeat.json"] <= (nodes - 1) * beats
    assert own["get_object MAIN_heartbeat.json"] <= (nodes - 1) * beats
    assert own["put_object MAIN_heartbeat.json"] <= beats
    assert own["get_object WORKER_heartbeat.json"] <= beats
    assert len(own) == 6, own
    assert len({call["principal"] for call in window if is_node(call) and "list" in call["operation"]}) == 1
    launchers = Counter(kind_of(call) for call in window if not is_node(call))
    assert set(launchers) == {"list_objects"}
    assert launchers["list_objects"] <= 0.3 * WINDOW_S

    # How soon each would see a stop.
    for principal in {call["principal"] for call in window if is_node(call)}:
        looks = [
            call["time"]
            for call in window
            if call["principal"] == principal and kind_of(call) in {"get_object stop", "list_objects"}
        ]
        assert max(later - sooner for sooner, later in pairwise(looks)) < 10
    launch.interrupt()
    assert wait(launch) == 143, launch.err
    cloud.assert_nothing_runs()
