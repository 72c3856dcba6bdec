"""The stand-in for OCI, asked by real clients: Job Runs, and what is left of a service that is killed."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import wait_until
from hosts import NETWORK, why_not
from oci_service.handle import Service
from oci_user import DIGEST, IMAGE, UNTIL_TERM, User

oci = pytest.importorskip("oci", reason="needs an environment with oci-cli and ocifs")

# --- Job runs


def test_run_has_the_environment_and_the_address_that_it_should(user: User) -> None:
    """Not one variable of the service's own; the run's override wins; the exit code and the lines are told."""
    script = (
        "import json, os, sys\n"
        "print(json.dumps(dict(os.environ)), flush=True)\n"
        "print('gone', file=sys.stderr)\n"
        "sys.exit(21)"
    )
    variables = {"A": "job", "B": "job"}
    job = user.job(script, jobConfigurationDetails={"jobType": "DEFAULT", "environmentVariables": variables})
    started = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=1)
    run = user.run(job, B="run")
    ended = user.service.wait(run)
    assert ended["lifecycleState"] == "FAILED"
    assert ended["lifecycleDetails"] == "Job run artifact execution failed with exit code 21."
    assert ended["timeAccepted"] <= ended["timeStarted"] <= ended["timeFinished"]
    seen = json.loads(user.service.log(run).splitlines()[0])
    assert seen.items() >= {"A": "job", "B": "run", "JOB_OCID": job, "JOB_RUN_OCID": run}.items()
    assert seen.items() >= {name: user.settings[name] for name in ("TENANCY_OCID", "PROJECT_OCID")}.items()
    assert not set(os.environ) & set(seen) - {"PATH", "HOME", "TMPDIR", "HTTPS_PROXY", "REQUESTS_CA_BUNDLE", "LC_CTYPE"}
    assert re.fullmatch(user.settings["SUBNET_CIDR"].replace("0/24", r"\d+"), seen["NODE_ADDRESS"])
    assert not Path(seen["TMPDIR"]).exists()

    stream = "/".join(user.settings[name] for name in ("COMPARTMENT_OCID", "LOG_GROUP_OCID", "LOG_OCID"))
    query = f"search \"{stream}\" | where source = '*{run}' | sort by datetime asc"
    times = [started.isoformat(), (started + datetime.timedelta(hours=1)).isoformat()]

    def search() -> Any:
        words = ("--search-query", query, "--time-start", times[0], "--time-end", times[1])
        found = user.cli("logging-search", "search-logs", *words)["data"]["results"]
        return found if len(found) == 2 else None

    contents = [row["data"]["logContent"] for row in wait_until(search, "both lines")]
    assert {content["type"].rpartition(".")[2]: content["data"]["message"] for content in contents} == {
        "stdout": json.dumps(seen),
        "stderr": "gone",
    }
    assert {content["source"] for content in contents} == {run}


def test_canceled_run_gets_term_then_all_of_it_is_killed(user: User) -> None:
    """One that heeds TERM has time to end; of one that does not nothing is left, daemons of other sessions too."""
    heeds = UNTIL_TERM.replace("import time", "import signal, sys, time\ndef end(*_): print('ending'); sys.exit(3)\n")
    heeds = heeds.replace("print('up'", "signal.signal(signal.SIGTERM, end)\nprint('up'")
    ignores = (
        "import signal, subprocess, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "daemon = subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "print('daemon', daemon.pid, flush=True)\ntime.sleep(1000)"
    )
    runs = [user.run(user.job(script)) for script in (heeds, ignores)]
    user.wait_for("up\n", runs[0])
    daemon = psutil.Process(int(user.wait_for("daemon", runs[1]).split()[1]))
    for run, grace_s in zip(runs, (60, 0.5), strict=True):  # the other one has it to its end
        user.service.control({"cancel_grace_s": grace_s})
        user.science.cancel_job_run(run)
        assert user.service.wait(run)["lifecycleState"] == "CANCELED"
    assert "ending" in user.service.log(runs[0])
    assert not daemon.is_running()


def test_run_ends_with_its_first_process_or_its_longest_runtime(user: User) -> None:
    user.service.control({"minute_s": 0.3})
    script = "import subprocess; print(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid)"
    run = user.run(user.job(script))
    assert user.service.wait(run)["lifecycleState"] == "SUCCEEDED"
    assert not psutil.pid_exists(int(user.service.log(run)))
    configuration = {"jobType": "DEFAULT", "maximumRuntimeInMinutes": 1}
    run = user.run(user.job(UNTIL_TERM, jobConfigurationDetails=configuration))
    ended = user.service.wait(run)
    assert (ended["lifecycleState"], ended["lifecycleDetails"]) == ("FAILED", "Job run exceeded its maximum runtime.")
    run = user.run(user.job(UNTIL_TERM))
    user.wait_for("up", run)
    user.service.kill(run)
    assert "exit code 137." in user.service.wait(run)["lifecycleDetails"]


def test_run_that_cannot_begin_says_why(user: User) -> None:
    user.service.control({"out_of_capacity": [2], "free_addresses": 1, "limit": {"VM.Standard2.1": 2}})
    job = user.job(UNTIL_TERM)
    runs = [user.run(job), user.run(job)]
    user.wait_for("up", runs[0])
    assert user.service.wait(runs[1])["lifecycleDetails"] == "Out of host capacity."
    assert user.service.wait(user.run(job))["lifecycleDetails"].startswith("No free IP address in the subnet")
    user.service.control({"free_addresses": None})
    user.run(job)
    with pytest.raises(oci.exceptions.ServiceError, match="LimitExceeded"):
        user.run(job)
    for run in user.service.job_runs():
        if run["jobId"] == job and run["lifecycleState"] == "IN_PROGRESS":
            user.science.cancel_job_run(run["id"])
            user.service.wait(run["id"])
    user.service.control({"out_of_capacity": []})
    for image in (f"{IMAGE}1", f"{IMAGE}@sha256:1", "iad.ocir.io/stand-in/other@" + DIGEST):
        ended = user.service.wait(user.run(user.job("pass", image)))
        assert "not found or not authorized" in ended["lifecycleDetails"], image
    for image in (f"{IMAGE}@{DIGEST}", f"{IMAGE.rpartition(':')[0]}@{DIGEST}"):
        assert user.service.wait(user.run(user.job("pass", image)))["lifecycleState"] == "SUCCEEDED"


def test_run_that_is_canceled_before_it_begins_never_does(user: User) -> None:
    user.service.control({"provisioning_s": 60})
    run = user.run(user.job("print('up')"))
    assert user.science.get_job_run(run).data.lifecycle_state == "ACCEPTED"
    user.science.cancel_job_run(run)
    assert user.service.wait(run)["lifecycleState"] == "CANCELED"
    assert user.service.log(run) == ""


def _told(user: User, job: str) -> list[tuple[str, str]]:
    listed = user.science.list_job_runs(user.settings["COMPARTMENT_OCID"], job_id=job).data
    return [(run.lifecycle_state, run.lifecycle_details) for run in listed]


def test_run_stays_accepted_as_long_as_it_is_to(user: User) -> None:
    """By its number; what needs attention says so, and recovers or not."""
    user.service.control({"stay_accepted": [1], "needs_attention": {"2": {"details": "no host"}}})
    job = user.job("print('up')")
    first, second = user.run(job), user.run(job)
    wait_until(lambda: ("NEEDS_ATTENTION", "no host") in _told(user, job), "a run that needs attention", 60)
    assert ("ACCEPTED", "Job run accepted.") in _told(user, job)
    assert user.science.get_job_run(second).data.time_started is None
    user.service.control({"stay_accepted": []})
    assert user.service.wait(first)["lifecycleState"] == "SUCCEEDED"
    user.science.cancel_job_run(second)
    assert user.service.wait(second)["lifecycleState"] == "CANCELED"
    user.service.control({"needs_attention": {"3": {"for_s": 0.1}}})
    assert user.service.wait(user.run(job))["lifecycleState"] == "SUCCEEDED"


def test_what_has_just_been_made_is_neither_seen_nor_listed(user: User) -> None:
    """It has been made all the same."""
    user.service.control({"unseen_s": 3600})
    made = user.science.create_job(user.job_details()).data.id
    asked: list[Callable[[], Any]] = [
        lambda: user.science.get_job(made),
        lambda: user.science.create_job_run(user.run_details(made)),
        lambda: user.science.list_job_runs(user.settings["COMPARTMENT_OCID"], job_id=made),
        lambda: user.science.delete_job(made),
    ]
    for ask in asked:
        with pytest.raises(oci.exceptions.ServiceError) as caught:
            ask()
        assert (caught.value.status, caught.value.code) == (404, "NotAuthorizedOrNotFound")
    compartment = user.settings["COMPARTMENT_OCID"]
    assert user.science.list_jobs(compartment, id=made).data == []
    user.service.control({"unseen_s": 0, "list_lag_s": 3600})
    assert user.science.get_job(made).data.id == made
    assert user.science.list_jobs(compartment, id=made).data == []
    user.service.control({"list_lag_s": 0})
    assert [job.id for job in user.science.list_jobs(compartment, id=made).data] == [made]


def test_states_are_told_late_and_every_second_answer_is_older(user: User) -> None:
    """A run that has ended is told as it was before."""
    job = user.job("print('up')")
    run = user.run(job)
    user.service.wait(run)
    assert [state for state, _ in _told(user, job)] == ["SUCCEEDED"]
    user.service.control({"state_lag_s": 3600})
    assert [state for state, _ in _told(user, job)] == ["ACCEPTED"]
    assert user.science.get_job_run(run).data.time_finished is None
    user.service.control({"state_lag_s": 0, "stale_every": 2, "stale_s": 3600})
    assert {state for _ in range(2) for state, _ in _told(user, job)} == {"ACCEPTED", "SUCCEEDED"}


NODE = """\
import json, os, socket, sys, time
rank, size = int(os.environ["NODE_RANK"]), int(os.environ["INITIAL_CLUSTER_SIZE"])
sizes = []
while not sizes or sizes[-1] != size:
    try:
        nodes = json.load(open(os.environ["CLUSTER_NODES_METADATA_FILE"]))
        sizes += [len(nodes)] if sizes[-1:] != [len(nodes)] else []
    except FileNotFoundError:
        pass
    except ValueError:
        print("torn")
    if rank == 0 and sizes and not os.path.exists(os.environ["HOME"] + "/ready"):
        open(os.environ["HOME"] + "/ready", "w").close()
    time.sleep(0.01)
address = [node["IPAddress"] for node in nodes if node["Rank"] == 0][0]
print(rank, "saw", sizes, flush=True)
if rank == 0:
    server = socket.create_server((address, 8786))
    for _ in range(size - 1):
        server.accept()
else:
    while True:
        try:
            socket.create_connection((address, 8786))
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
sys.exit(5 if rank == 2 else 0)
"""


def _multi_node() -> dict[str, Any]:
    probe = {"jobProbeCheckType": "EXEC", "command": ["sh", "-c", "test -e $HOME/ready"], "periodInSeconds": 1}
    probe["failureThreshold"] = 100  # main may be slow to begin
    configuration = {"jobType": "DEFAULT", "startupProbeDetails": probe}
    shape = {"jobInfrastructureType": "MULTI_NODE", "shapeName": "VM.Standard2.1", "blockStorageSizeInGBs": 50}
    groups = [
        {"name": "main", "replicas": 1, "jobConfigurationDetails": configuration},
        {"name": "workers", "replicas": 2, "minimumSuccessReplicas": 1},
    ]
    for group in groups:
        group["jobInfrastructureConfigurationDetails"] = shape
        group["jobEnvironmentConfigurationDetails"] = {
            "jobEnvironmentType": "OCIR_CONTAINER",
            "image": IMAGE,
            "cmd": [NODE],
        }
    return {
        "jobConfigurationDetails": {"jobType": "EMPTY"},
        "jobInfrastructureConfigurationDetails": {"jobInfrastructureType": "EMPTY"},
        "jobNodeConfigurationDetails": {
            "jobNodeType": "MULTI_NODE",
            "startupOrder": "IN_ORDER",
            "jobNetworkConfiguration": {"jobNetworkType": "DEFAULT_NETWORK"},
            "jobNodeGroupConfigurationDetailsList": groups,
        },
    }


def test_multi_node_run_is_one_run_of_many_nodes(user: User) -> None:
    """They find each other by a file that grows and is torn at times; the run's end comes from the least successes."""
    user.service.control({"metadata_torn_s": 0.3})
    job = str(user.science.create_job(user.job_details(**_multi_node())).data.id)
    run = user.run(job)
    ended = user.service.wait(run)
    assert ended["lifecycleState"] == "SUCCEEDED", (ended, user.service.log(run))
    assert [group["lifecycleState"] for group in ended["nodeGroupDetailsList"]] == ["DELETED", "DELETED"]
    assert re.search(r"0 saw \[1, (2, )?3\]\n", user.service.log(run, 0))
    assert "torn\n" in user.service.log(run)
    override = {"jobNodeType": "MULTI_NODE", "jobNodeGroupConfigurationDetailsList": [{"name": "workers"}]}
    override["jobNodeGroupConfigurationDetailsList"][0]["minimumSuccessReplicas"] = 2
    details = user.run_details(job, jobNodeConfigurationOverrideDetails=override)
    run = str(user.science.create_job_run(details).data.id)
    ended = user.service.wait(run)
    assert ended["lifecycleDetails"] == "Job run artifact execution failed with exit code 5 in node group 'workers'."
    assert [group["lifecycleState"] for group in ended["nodeGroupDetailsList"]] == ["DELETED", "FAILED"]


# --- A service of one's own


def test_killed_service_leaves_nothing(tmp_path: Path, proxied: Callable[[Service], None]) -> None:
    """Not even a daemon that has left its session; the runs' processes end by themselves."""
    with Service(tmp_path / "service") as service:
        proxied(service)
        user = User(service)
        script = UNTIL_TERM.replace("time\n", "time, subprocess; subprocess.Popen(['setsid', 'sleep', '1000'])\n", 1)
        run = user.run(user.job(script))
        user.wait_for("up", run)
        started = psutil.Process(service.process.pid).children(recursive=True)
        assert len(started) >= 3, "reaper, run, daemon"
        service.process.send_signal(signal.SIGKILL)
        service.process.wait()
        wait_until(lambda: not any(map(is_there, started)), f"the end of {started}", 60.0)


def is_there(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


HOST = """\
import os, socket, sys
import fsspec, psutil, ipaddress
network = ipaddress.IPv4Network(os.environ["SUBNET_CIDR"])
own = [a.address for found in psutil.net_if_addrs().values() for a in found if a.family == socket.AF_INET]
own = [address for address in own if ipaddress.IPv4Address(address) in network][0]
files = fsspec.filesystem("oci")
work = os.environ["WORK"]
if os.environ["ROLE"] == "main":
    server = socket.create_server((own, 8786))
    files.pipe(f"{work}/main", own.encode())
    connection, peer = server.accept()
    print("peer", peer[0], connection.recv(100).decode())
else:
    import time
    while True:
        try:
            address = files.cat(f"{work}/main").decode()
            break
        except FileNotFoundError:
            time.sleep(0.05)
    with socket.create_connection((address, 8786)) as connection:
        connection.sendall(f"hello of {own}".encode())
print("own", own, "NODE_ADDRESS" in os.environ, socket.gethostname())
"""

WHY_NOT = why_not()


@pytest.mark.skipif(bool(WHY_NOT), reason=f"hosts of their own: {WHY_NOT}")
@pytest.mark.parametrize("ends_by", ["itself", "SIGKILL"])
def test_hosts_talk_over_the_subnet_and_use_objects(
    tmp_path: Path, proxied: Callable[[Service], None], ends_by: str
) -> None:
    """With the run's own identity, and an address that they find by the subnet's CIDR."""
    with Service(tmp_path / "service", hosts=True) as service:
        proxied(service)
        user = User(service)
        script = HOST if ends_by == "itself" else UNTIL_TERM
        job = user.job(script)
        environ = {"SUBNET_CIDR": user.settings["SUBNET_CIDR"], "WORK": user.work}
        runs = [user.run(job, ROLE=role, **environ) for role in ("main", "worker")]
        if ends_by == "itself":
            for run in runs:
                assert service.wait(run)["lifecycleState"] == "SUCCEEDED", service.log(run)
            words = [service.log(run).split() for run in runs]
            own = {words[0][words[0].index("own") + 1], words[1][1]}
            assert len(own) == 2
            assert f"peer {words[1][1]} hello of {words[1][1]}\n" in service.log(runs[0])
            assert words[1][2] == "False"
            assert {call["principal"] for call in service.calls("put_object")} == {f"resource:{runs[0]}"}
        else:
            for run in runs:
                user.wait_for("up", run)
        started = psutil.Process(service.process.pid).children(recursive=True)
        if ends_by == "SIGKILL":
            service.process.send_signal(signal.SIGKILL)
            service.process.wait()
    wait_until(lambda: not any(map(is_there, started)), f"the end of {started}", 60.0)
    with Path("/proc/self/ns/net").open() as lock, contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another test run on this machine may need the route
        routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
        assert str(NETWORK) not in routes
