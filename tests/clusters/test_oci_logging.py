"""OCI Logging as it is on a bad day, asked by the SDK: late, in no order, some lines twice, groups elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness import wait_until

if TYPE_CHECKING:
    from oci_user import User

pytest.importorskip("oci", reason="needs an environment with oci-cli and ocifs")

LINES = 5000
PRINT = f"import os\nfor number in range({LINES}): print(os.environ['NODE'], number)\n"


def a_job(user: User, compartment: str, *nodes: str, log: bool = True) -> tuple[str, str]:
    """Run a Job with a run for each of *nodes*, each of which prints its lines; return it, and its log group."""
    logging = __import__("oci").logging.LoggingManagementClient(user.config)
    details = {"compartmentId": compartment, "displayName": f"logs {time.monotonic_ns()}"}
    work = logging.create_log_group(details).headers["opc-work-request-id"]
    group = logging.get_work_request(work).data.resources[0].identifier
    logs = {"enableLogging": True, "logGroupId": group, "enableAutoLogCreation": True}
    job = user.job(PRINT, jobLogConfigurationDetails=logs if log else None)
    for node in nodes:
        configuration = {"jobType": "DEFAULT", "environmentVariables": {"NODE": node}}
        override = {"jobConfigurationOverrideDetails": configuration, "freeformTags": {"oci-cluster-node": node}}
        user.science.create_job_run(user.run_details(job, **override))
    return job, group


def a_copy(user: User, job: str, group: str, directory: Path, **options: Any) -> Any:
    from oci_cluster.backends.oci.jobs.client import Jobs  # noqa: PLC0415 - needs the SDK
    from oci_cluster.backends.oci.logs import ServiceLogs  # noqa: PLC0415
    from oci_cluster.backends.oci.service import Service  # noqa: PLC0415

    jobs = Jobs(user.settings["COMPARTMENT_OCID"], lambda: Service(user.service.environ))
    return ServiceLogs(jobs, job, group, directory, **options)


def lines(place: Path, node: str) -> list[str]:
    path = place / f"{node}.log"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("place", ["COMPARTMENT_OCID", "TENANCY_OCID"], ids=["the Job's compartment", "another"])
def test_ten_thousand_lines_come_each_once(user: User, tmp_path: Path, place: str) -> None:
    """Late, shuffled, a fifth of them twice, and more than one search may find."""
    bad_day = {"ingest_delay_s": [0, 6], "ingest_duplicates": 0.2, "search_shuffled": True, "search_most": 3000}
    user.service.control(bad_day)
    job, group = a_job(user, user.settings[place], "MAIN", "WORKER_1")
    copy = a_copy(user, job, group, tmp_path, follow=True, quiet_s=8)
    runs = [run["id"] for run in user.service.job_runs() if run["jobId"] == job]
    while any(run["lifecycleState"] != "SUCCEEDED" for run in user.service.job_runs() if run["id"] in runs):
        copy.fetch()
        time.sleep(0.1)
    said: list[str] = []

    def pause() -> bool:
        time.sleep(0.1)
        return True

    copy.drain(pause, said.append)
    for node in ("MAIN", "WORKER_1"):
        assert sorted(lines(tmp_path, node)) == sorted(f"{node} {number}" for number in range(LINES))
    assert len(said) == 1
    # One client asks once for both runs, and nobody starts oci-cli.
    searches = [call for call in user.service.calls("search_logs") if runs[0] in call["body"]["searchQuery"]]
    assert all(runs[1] in call["body"]["searchQuery"] for call in searches)
    assert not [call for call in searches if "CLI" in call["headers"]["user-agent"]]


def test_lines_of_a_cluster_that_has_ended_are_in_their_order(user: User, tmp_path: Path) -> None:
    """What one look finds is the whole log, page after page."""
    job, group = a_job(user, user.settings["COMPARTMENT_OCID"], "MAIN")
    (run,) = [run["id"] for run in user.service.job_runs() if run["jobId"] == job]
    user.service.wait(run)

    def whole() -> bool:
        for path in tmp_path.iterdir():
            path.unlink()
        a_copy(user, job, group, tmp_path).fetch()
        return len(lines(tmp_path, "MAIN")) == LINES

    wait_until(whole, "all lines")
    assert lines(tmp_path, "MAIN") == [f"MAIN {number}" for number in range(LINES)]
