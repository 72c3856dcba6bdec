"""Nodes that the service starts, under every reading of what it tells them: ranks, the list of addresses, OCIDs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import warm
from hosts import why_not
from oci_cloud import Cloud, wait
from oci_service.handle import Service

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="tests/oci_service runs on Linux alone")

READINGS: dict[str, dict[str, Any]] = {
    "the guess": {},
    "anew in each group": {"rank_counting": "restart"},
    "anew, and each group knows itself": {"rank_counting": "restart", "metadata_lists": "group"},
    "missing, OCIDs of their own": {"rank_counting": "missing", "own_run_ocids": True},
    "the last group first": {"rank_counting": "reversed"},
    "from 1": {"rank_counting": "from-1"},
}
TELL = "import os\nprint('nodes', os.environ['WORKER_ADDRESSES'], os.environ['PS_ADDRESSES'])\n"


def assert_all_ran(cloud: Cloud, *, servers: int) -> None:
    """Each node of the cluster once, with an address of its own."""
    (run,) = cloud.service.job_runs()
    printed = cloud.service.log(run["id"])
    assert run["lifecycleState"] == "SUCCEEDED", printed
    starts = [line.partition("agent: node=")[2].split() for line in printed.splitlines() if "agent: node=" in line]
    names = ["MAIN", *(["PS_3"] if servers else []), "WORKER_1", "WORKER_2"]
    assert sorted(words[0] for words in starts) == names
    addresses = {words[0]: words[1].partition("=")[2] for words in starts}
    assert len(set(addresses.values())) == len(names)
    workers = ",".join(addresses[f"WORKER_{rank}"] for rank in (1, 2))
    assert f"nodes {workers} {addresses.get('PS_3', '')}".strip() in printed


@pytest.mark.parametrize("reading", READINGS)
def test_a_cluster_runs_however_the_service_counts(cloud: Cloud, reading: str) -> None:
    """Main, workers and a parameter server, which start side by side and find each other."""
    cloud.service.control({**READINGS[reading], "metadata_torn_s": 0.1})
    environ = {"OCI_JOB_STYLE": "multinode", "PS_COUNT": "1", "WAIT_FOR_ADDRESSES": "1"}
    launch = cloud.launch_plain(2, TELL, **environ)
    assert wait(launch) == 0, launch.err + launch.out
    assert_all_ran(cloud, servers=1)
    cloud.assert_nothing_runs()


@pytest.mark.parametrize("kind", ["drop-before", "drop-after", "503"])
def test_a_rank_is_taken_once_whatever_becomes_of_the_request(cloud: Cloud, kind: str) -> None:
    """Where the answer is lost, the rank is this node's all the same, and no other's."""
    cloud.service.control({"faults": [{"operation": "put_object", "object": "*_claim.json", "kind": kind, "times": 2}]})
    launch = cloud.launch_plain(2, TELL, OCI_JOB_STYLE="multinode", WAIT_FOR_ADDRESSES="1")
    assert wait(launch) == 0, launch.err + launch.out
    assert_all_ran(cloud, servers=0)
    cloud.assert_nothing_runs()


@pytest.mark.skipif(bool(why_not()), reason=f"hosts of their own: {why_not()}")
def test_nodes_with_hosts_of_their_own_find_themselves_in_the_list(project: Any, tmp_path: Path) -> None:
    """By the address that an interface of theirs has: of two in the same group both have the number 0 or 1."""
    with Service(tmp_path / "oci", hosts=True, start=warm.command("oci_service")) as service:
        cloud = Cloud(project, service)
        service.control({"rank_counting": "restart", "metadata_delay_s": 0.3})
        environ = {"OCI_JOB_STYLE": "multinode", "WAIT_FOR_ADDRESSES": "1", "SUBNET_CIDR": "", "SUBNET_OCID": ""}
        launch = cloud.launch_plain(2, TELL, **environ)
        assert wait(launch) == 0, launch.err + launch.out
        assert_all_ran(cloud, servers=0)
