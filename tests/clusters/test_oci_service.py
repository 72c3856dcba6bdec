"""The stand-in for OCI, asked by the clients that the product uses: oci-cli, the SDK and ocifs, all as they are."""

from __future__ import annotations

import base64
import contextlib
import datetime
import email.utils
import fcntl
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from harness import wait_until
from hosts import NETWORK, why_not
from oci_service.handle import Service

oci = pytest.importorskip("oci", reason="needs an environment with oci-cli and ocifs")
ocifs = pytest.importorskip("ocifs", reason="needs an environment with oci-cli and ocifs")

CLI = Path(sys.executable).parent / "oci"
IMAGE = "iad.ocir.io/stand-in/python:1"
DIGEST = f"sha256:{'0' * 64}"
READABLE = [sys.prefix, sys.base_prefix]
UNTIL_TERM = "import time\nprint('up', flush=True)\ntime.sleep(1000)"


class User:
    """Someone with an account in the tenancy of a service: clients, and jobs of Python text."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.settings = service.settings
        image = {"digest": DIGEST, "entrypoint": [sys.executable, "-c"], "readable": READABLE}
        service.control({"images": {IMAGE: image}, "cancel_grace_s": 0.5})
        config = oci.config.from_file(service.environ["OCI_CLI_CONFIG_FILE"])
        self.config = config
        self.science = oci.data_science.DataScienceClient(config)
        self.files = ocifs.OCIFileSystem(config=config, region=config["region"], skip_instance_cache=True)
        self.work = f"{self.settings['bucket']}@{self.settings['namespace']}/work"

    def cli(self, *arguments: str, code: int = 0) -> Any:
        """Run oci-cli; return what it prints, or what it complains of where *code* is not 0."""
        done = subprocess.run(
            [str(CLI), *arguments],
            env={**os.environ, **self.service.environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        if code:
            return json.loads(done.stderr[done.stderr.index("{") :])
        return json.loads(done.stdout) if done.stdout else None

    def job_details(self, **changes: Any) -> dict[str, Any]:
        """Return the body that makes a job."""
        infrastructure = {
            "jobInfrastructureType": "STANDALONE",
            "shapeName": "VM.Standard2.1",
            "blockStorageSizeInGBs": 50,
            "subnetId": self.settings["SUBNET_OCID"],
        }
        logging = {"enableLogging": True, "logGroupId": self.settings["LOG_GROUP_OCID"]}
        details = {
            "projectId": self.settings["PROJECT_OCID"],
            "compartmentId": self.settings["COMPARTMENT_OCID"],
            "displayName": "job",
            "jobConfigurationDetails": {"jobType": "DEFAULT", "environmentVariables": {}},
            "jobInfrastructureConfigurationDetails": infrastructure,
            "jobLogConfigurationDetails": {**logging, "logId": self.settings["LOG_OCID"]},
            **changes,
        }
        return {name: value for name, value in details.items() if value is not None}

    def job(self, script: str, image: str = IMAGE, **changes: Any) -> str:
        """Make a job of a Python text; return its OCID."""
        container = {"jobEnvironmentType": "OCIR_CONTAINER", "image": image, "cmd": [script]}
        details = self.job_details(jobEnvironmentConfigurationDetails=container, **changes)
        return str(self.science.create_job(details).data.id)

    def run_details(self, job: str, **changes: Any) -> dict[str, Any]:
        """Return the body that makes a run."""
        return {
            "projectId": self.settings["PROJECT_OCID"],
            "compartmentId": self.settings["COMPARTMENT_OCID"],
            "jobId": job,
            **changes,
        }

    def run(self, job: str, **environ: str) -> str:
        """Run a job; return the run's OCID."""
        configuration = {"jobType": "DEFAULT", "environmentVariables": environ}
        details = self.run_details(job, jobConfigurationOverrideDetails=configuration)
        return str(self.science.create_job_run(details).data.id)

    def wait_for(self, text: str, run: str) -> str:
        """Return what a run has printed when *text* is in it."""
        wait_until(lambda: text in self.service.log(run), f"{text!r} of {run}: {self.service.log(run)}", 20.0)
        return self.service.log(run)


@pytest.fixture(scope="module")
def proxied() -> Iterator[Callable[[Service], None]]:
    """Have the clients in this process use a service."""
    with pytest.MonkeyPatch.context() as patch:

        def use(service: Service) -> None:
            for name, value in service.environ.items():
                patch.setenv(name, value)

        yield use


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, proxied: Callable[[Service], None]) -> Iterator[User]:
    with Service(tmp_path_factory.mktemp("service") / "service") as service:
        proxied(service)
        yield User(service)


KNOBS = {
    "provisioning_s": 0,
    "minute_s": 60,
    "page_size": 100,
    "out_of_capacity": [],
    "limit": {},
    "expire_tokens": "",
    "revoke_bucket": [],
    "free_addresses": None,
    "metadata_delay_s": 0,
    "metadata_torn_s": 0,
    "faults": [],
}


@pytest.fixture
def user(shared: User) -> User:
    shared.service.control(KNOBS)
    return shared


def last_call(user: User, operation: str) -> dict[str, Any]:
    return user.service.calls(operation)[-1]


# --- Who asks


def test_api_key_session_token_and_resource_principal_are_taken(user: User) -> None:
    assert user.cli("os", "ns", "get")["data"] == user.settings["namespace"]
    assert last_call(user, "get_namespace")["principal"].startswith("api-key:")
    assert user.cli("--auth", "security_token", "--profile", "SESSION", "os", "ns", "get")
    assert last_call(user, "get_namespace")["principal"].startswith("session:")
    script = f"import subprocess; subprocess.run([{str(CLI)!r}, '--auth', 'resource_principal', 'os', 'ns', 'get'])"
    run = user.run(user.job(script))
    assert user.service.wait(run)["lifecycleState"] == "SUCCEEDED", user.service.log(run)
    assert '"data": "stand-in"' in user.service.log(run)
    assert last_call(user, "get_namespace")["principal"] == f"resource:{run}"


class Client:
    """Sends one request with a signature of its own making."""

    def __init__(self, user: User) -> None:
        from oci._vendor import requests  # noqa: PLC0415 - the SDK's own

        self.config = user.config
        self._session = requests.Session()
        self._request = requests.Request
        self._body = json.dumps(user.job_details()).encode()

    def signer(self, **changes: str) -> Any:
        parts = {**self.config, **changes}
        return oci.signer.Signer(parts["tenancy"], parts["user"], parts["fingerprint"], parts["key_file"])

    def send(self, signer: Any, spoil: Callable[[Any], None] = lambda _: None, **headers: str) -> tuple[int, str]:
        url = "https://datascience.us-ashburn-1.oci.oraclecloud.com/20190101/jobs"
        request = self._session.prepare_request(self._request("POST", url, headers, data=self._body, auth=signer))
        spoil(request)
        settings = self._session.merge_environment_settings(url, {}, None, None, None)
        answer = self._session.send(request, **settings)
        return answer.status_code, answer.json().get("code", "")


def _change_body(request: Any) -> None:
    request.body = request.body.replace(b"STANDALONE", b"STANDALINE")


def _change_body_and_digest(request: Any) -> None:
    _change_body(request)
    request.headers["x-content-sha256"] = base64.b64encode(hashlib.sha256(request.body).digest()).decode()


def _change_path(request: Any) -> None:
    request.url += "?x=1"


def test_spoiled_signatures_are_refused(user: User, tmp_path: Path) -> None:
    """Each with 401; the same request without the fault is taken."""
    client = Client(user)
    good = client.signer()
    assert client.send(good)[0] == 200
    refused = (401, "NotAuthenticated")
    for spoil in (_change_body, _change_body_and_digest, _change_path):
        assert client.send(good, spoil) == refused, spoil.__name__
    session = oci.config.from_file(user.service.environ["OCI_CLI_CONFIG_FILE"], "SESSION")
    for changes in (
        {"key_file": session["key_file"]},
        {"user": user.config["tenancy"]},
        {"fingerprint": "00:11"},
        {"tenancy": user.config["user"]},
    ):
        assert client.send(client.signer(**changes)) == refused, changes
    for skew_s, status in ((-360, 401), (360, 401), (-200, 200)):
        assert client.send(good, date=email.utils.formatdate(time.time() + skew_s, usegmt=True))[0] == status, skew_s

    token = Path(session["security_token_file"]).read_text()
    key = oci.signer.load_private_key_from_file(session["key_file"])
    taken = oci.auth.signers.SecurityTokenSigner(token, key)
    assert client.send(taken)[0] == 200
    bodiless = oci.auth.signers.SecurityTokenSigner(token, key, body_headers=["content-length", "content-type"])
    assert client.send(bodiless) == refused
    other_key = oci.signer.load_private_key_from_file(user.config["key_file"])
    assert client.send(oci.auth.signers.SecurityTokenSigner(token, other_key)) == refused
    head, claims, signature = token.split(".")
    later = json.loads(base64.urlsafe_b64decode(claims + "=="))
    later = base64.urlsafe_b64encode(json.dumps({**later, "exp": later["exp"] + 1}).encode()).decode().rstrip("=")
    assert client.send(oci.auth.signers.SecurityTokenSigner(f"{head}.{later}.{signature}", key)) == refused
    user.service.control({"expire_tokens": "session"})
    assert client.send(taken) == refused
    assert client.send(good)[0] == 200


def test_only_hosts_of_oci_are_reached(user: User) -> None:
    proxy = user.service.environ["HTTPS_PROXY"].rpartition(":")
    for target in ("example.com:443", "datascience.eu-frankfurt-1.oci.oraclecloud.com:443", "127.0.0.1:443"):
        with socket.create_connection(("127.0.0.1", int(proxy[2]))) as connection:
            connection.sendall(f"CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n\r\n".encode())
            assert connection.recv(100).startswith(b"HTTP/1.1 502 "), target


# --- Jobs


BAD_BODIES = {
    "compartmentId is required": {"compartmentId": None},
    "speed is not a known field": {"speed": 1},
    "displayName must be of type str": {"displayName": 7},
    "jobConfigurationDetails.maximumRuntimeInMinutes must be of type int": {
        "jobConfigurationDetails": {"jobType": "DEFAULT", "maximumRuntimeInMinutes": "1"}
    },
    "jobInfrastructureConfigurationDetails.jobInfrastructureType must be one of": {
        "jobInfrastructureConfigurationDetails": {"jobInfrastructureType": "LARGE"}
    },
    "jobInfrastructureConfigurationDetails.subnetId is required": {
        "jobInfrastructureConfigurationDetails": {
            "jobInfrastructureType": "STANDALONE",
            "shapeName": "VM.Standard2.1",
            "blockStorageSizeInGBs": 50,
        }
    },
    "environmentVariables have 20001 characters": {
        "jobConfigurationDetails": {"jobType": "DEFAULT", "environmentVariables": {"A": "x" * 20000}}
    },
    "commandLineArguments have 4001 characters": {
        "jobConfigurationDetails": {"jobType": "DEFAULT", "commandLineArguments": "x" * 4001}
    },
}


@pytest.mark.parametrize("message", BAD_BODIES)
def test_bodies_that_the_models_do_not_allow_are_refused(user: User, message: str) -> None:
    with pytest.raises(oci.exceptions.ServiceError) as error:
        user.science.create_job(user.job_details(**BAD_BODIES[message]))
    assert error.value.status == 400
    assert message in error.value.message


def test_what_is_not_there_is_not_told_from_what_is_not_permitted(user: User) -> None:
    details = user.job_details(compartmentId=user.settings["COMPARTMENT_OCID"] + "x")
    with pytest.raises(oci.exceptions.ServiceError, match="NotAuthorizedOrNotFound") as error:
        user.science.create_job(details)
    assert error.value.status == 404


def test_job_update_wants_the_right_etag_and_delete_waits_for_runs(user: User) -> None:
    job = user.job(UNTIL_TERM)
    etag = user.science.get_job(job).headers["etag"]
    changed = user.science.update_job(job, {"displayName": "other"}, if_match=etag)
    assert changed.data.display_name == "other"
    with pytest.raises(oci.exceptions.ServiceError, match="NoEtagMatch"):
        user.science.update_job(job, {"displayName": "third"}, if_match=etag)
    run = user.run(job)
    with pytest.raises(oci.exceptions.ServiceError, match="IncorrectState"):
        user.science.delete_job(job, retry_strategy=oci.retry.NoneRetryStrategy())
    user.science.cancel_job_run(run)
    assert user.service.wait(run)["lifecycleState"] == "CANCELED"
    with pytest.raises(oci.exceptions.ServiceError, match="IncorrectState"):
        user.science.cancel_job_run(run, retry_strategy=oci.retry.NoneRetryStrategy())
    user.science.create_job_artifact(job, b"text", content_disposition="attachment; filename=entry.py")
    assert user.science.get_job_artifact_content(job).data.content == b"text"
    assert user.science.head_job_artifact(job).headers["content-length"] == "4"
    work = user.science.delete_job(job, delete_related_job_runs=True).headers["opc-work-request-id"]
    assert user.science.get_work_request(work).data.status == "SUCCEEDED"
    assert user.science.get_job_run(run).data.lifecycle_state == "DELETED"


def test_lists_come_in_pages(user: User) -> None:
    user.service.control({"page_size": 2})
    jobs = {user.job("pass") for _ in range(5)}
    compartment = user.settings["COMPARTMENT_OCID"]
    first = user.science.list_jobs(compartment)
    assert len(first.data) == 2
    assert first.has_next_page
    user.job("pass")  # makes nothing come twice
    listed = [item.id for item in oci.pagination.list_call_get_all_results(user.science.list_jobs, compartment).data]
    assert len(listed) == len(set(listed))
    assert jobs < set(listed)
    found = user.cli("data-science", "job", "list", "--compartment-id", compartment, "--all")["data"]
    assert [item["id"] for item in found] == listed


def test_lost_answer_makes_one_run_and_a_retry_token_is_for_one_body(user: User) -> None:
    job = user.job("pass")
    user.service.control({"faults": [{"operation": "create_job_run", "kind": "drop-after", "times": 1}]})
    before = len(user.service.calls())
    run = user.run(job)
    tokens = {call["headers"]["opc-retry-token"] for call in user.service.calls("create_job_run", before)}
    assert [call["is_answered"] for call in user.service.calls("create_job_run", before)] == [False, True]
    assert len(tokens) == 1
    assert [item["id"] for item in user.service.job_runs() if item["jobId"] == job] == [run]
    mine = {"opc_retry_token": "mine"}
    again = user.science.create_job_run(user.run_details(job), **mine).data.id
    assert user.science.create_job_run(user.run_details(job), **mine).data.id == again
    with pytest.raises(oci.exceptions.ServiceError, match="InvalidatedRetryToken"):
        user.science.create_job_run(user.run_details(job, displayName="x"), **mine)


def test_faults_come_when_asked_for_and_no_longer(user: User) -> None:
    job = user.job("pass")
    no_retry = oci.retry.NoneRetryStrategy()
    for kind, status in (("429", 429), ("500", 500), ("503", 503), ("409", 409)):
        rule = {"operation": "data_science.get_*", "kind": kind, "times": 1, "retry_after": 3}
        user.service.control({"faults": [rule]})
        with pytest.raises(oci.exceptions.ServiceError) as error:
            user.science.get_job(job, retry_strategy=no_retry)
        assert (error.value.status, error.value.headers["retry-after"]) == (status, "3")
        user.science.get_job(job, retry_strategy=no_retry)
    user.service.control({"faults": [{"operation": "get_job", "kind": "drop-before", "nth": 2}]})
    user.science.get_job(job, retry_strategy=no_retry)
    with pytest.raises(oci.exceptions.RequestException):
        user.science.get_job(job, retry_strategy=no_retry)
    user.service.control({"faults": [{"operation": "get_job", "kind": "latency", "seconds": 0.3}]})
    user.science.get_job(job)
    assert last_call(user, "get_job")["duration"] > 0.3
    user.service.control({"faults": [{"operation": "list_jobs", "kind": "429", "times": 1}]})
    assert user.cli("data-science", "job", "list", "--compartment-id", user.settings["COMPARTMENT_OCID"])


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
    for run in runs:
        user.science.cancel_job_run(run)
    assert [user.service.wait(run)["lifecycleState"] for run in runs] == ["CANCELED", "CANCELED"]
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
    if rank == 0 and not os.path.exists(os.environ["HOME"] + "/ready"):
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
    user.service.control({"metadata_torn_s": 0.1})
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


# --- Object Storage


def test_ocifs_reads_what_it_has_written(user: User) -> None:
    files, work = user.files, user.work
    large = os.urandom(11 << 20)
    files.pipe(f"{work}/a b/ü#1", b"small")
    with files.open(f"{work}/large", "wb") as file:
        file.write(large)
    assert files.cat(f"{work}/a b/ü#1") == b"small"
    assert files.cat(f"{work}/large") == large
    assert {"create_multipart_upload", "upload_part", "commit_multipart_upload"} <= {
        call["operation"].partition(".")[2] for call in user.service.calls()
    }
    with files.open(f"{work}/large") as file:
        file.seek(7 << 20)
        assert file.read(10) == large[7 << 20 :][:10]
    assert files.info(f"{work}/large")["size"] == len(large)
    assert sorted(files.ls(work)) == [f"{work}/a b", f"{work}/large"]
    assert sorted(files.find(work)) == [f"{work}/a b/ü#1", f"{work}/large"]
    with files.open(f"{work}/once", "wb", if_none_match="*") as file:
        file.write(b"first")
    with pytest.raises(OSError, match="exists"), files.open(f"{work}/once", "wb", if_none_match="*") as file:
        file.write(b"second")
    files.copy(f"{work}/once", f"{work}/copy")
    files.rename(f"{work}/once", f"{work}/renamed")
    files.rm(f"{work}/copy")
    files.invalidate_cache()
    assert not files.exists(f"{work}/once")
    assert files.cat(f"{work}/renamed") == b"first"
    with pytest.raises(FileNotFoundError):
        files.cat(f"{work}/copy")
    assert user.service.objects("work/") == ["work/a b/ü#1", "work/large", "work/renamed"]
    assert user.service.object("work/renamed") == b"first"


def test_objects_are_listed_in_pages_and_change_with_their_etag_alone(user: User, tmp_path: Path) -> None:
    client = oci.object_storage.ObjectStorageClient(user.config)
    where = user.settings["namespace"], user.settings["bucket"]
    for name in ("p/1", "p/2", "p/d/3", "p/d/4", "p/e/5"):
        client.put_object(*where, name, b"x")
    page = client.list_objects(*where, prefix="p/", delimiter="/", limit=3).data
    assert ([item.name for item in page.objects], page.prefixes) == (["p/1", "p/2"], ["p/d/"])
    page = client.list_objects(*where, prefix="p/", delimiter="/", start=page.next_start_with).data
    assert ([item.name for item in page.objects], page.prefixes) == ([], ["p/e/"])
    etag = client.head_object(*where, "p/1").headers["etag"]
    client.put_object(*where, "p/1", b"y", if_match=etag)
    with pytest.raises(oci.exceptions.ServiceError) as error:
        client.put_object(*where, "p/1", b"z", if_match=etag)
    assert error.value.status == 412
    with pytest.raises(oci.exceptions.ServiceError, match="UnmatchedContentMD5"):
        client.put_object(*where, "p/1", b"z", content_md5="AAAAAAAAAAAAAAAAAAAAAA==")
    with pytest.raises(oci.exceptions.ServiceError, match="BucketNotFound"):
        client.list_objects(where[0], "other")
    target = tmp_path / "got"
    common = ("-ns", where[0], "-bn", where[1])
    user.cli("os", "object", "get", *common, "--name", "p/1", "--file", str(target))
    assert target.read_bytes() == b"y"


def test_run_uses_objects_until_the_bucket_is_revoked_and_takes_new_tokens(user: User) -> None:
    script = (
        "import os, time, ocifs, fsspec, oci\n"
        f"work = {user.work!r}\n"
        "files = fsspec.filesystem('oci', skip_instance_cache=True)\n"
        "science = oci.data_science.DataScienceClient({}, signer=oci.auth.signers.get_resource_principals_signer())\n"
        "print(science.get_job(os.environ['JOB_OCID']).data.display_name)\n"
        "def refusal(call, *words):\n"
        "    try:\n"
        "        call(*words)\n"
        "    except Exception as error:\n"
        "        return getattr(error, 'code', type(error).__name__)\n"
        "print(refusal(science.create_job_run, {'projectId': '', 'compartmentId': '', 'jobId': ''}), flush=True)\n"
        "files.pipe(f'{work}/step', b'0')\n"
        "while (step := files.cat(f'{work}/go')) == b'0': time.sleep(0.05)\n"
        "print('went on', flush=True)\n"
        "while not (found := refusal(files.info, f'{work}/step')): time.sleep(0.05)\n"
        "print(found)\n"
    )
    user.files.pipe(f"{user.work}/go", b"0")
    run = user.run(user.job(script))
    wait_until(lambda: "work/step" in user.service.objects(), "the run's object")
    before = len(user.service.calls())
    user.service.control({"rotate_tokens": True})
    wait_until(lambda: any(call["status"] == 401 for call in user.service.calls(since=before)), "a refusal")
    user.files.pipe(f"{user.work}/go", b"1")
    user.wait_for("went on", run)
    user.service.control({"revoke_bucket": [user.settings["bucket"]]})
    assert user.service.wait(run)["lifecycleState"] == "SUCCEEDED", user.service.log(run)
    assert user.service.log(run).splitlines() == ["job", "NotAuthorizedOrNotFound", "went on", "FileNotFoundError"]
    assert user.files.cat(f"{user.work}/step") == b"0"  # the user still may


# --- The rest of a tenancy


def test_network_is_there_for_a_check(user: User) -> None:
    compartment = user.settings["COMPARTMENT_OCID"]
    network = oci.core.VirtualNetworkClient(user.config)
    subnet = network.get_subnet(user.settings["SUBNET_OCID"]).data
    assert (subnet.cidr_block, subnet.prohibit_public_ip_on_vnic) == (user.settings["SUBNET_CIDR"], True)
    rules = network.get_security_list(subnet.security_list_ids[0])
    assert [rule.protocol for rule in rules.data.ingress_security_rules] == ["6"]
    details = oci.core.models.UpdateSecurityListDetails(ingress_security_rules=[])
    network.update_security_list(rules.data.id, details, if_match=rules.headers["etag"])
    with pytest.raises(oci.exceptions.ServiceError, match="NoEtagMatch"):
        network.update_security_list(rules.data.id, details, if_match=rules.headers["etag"])
    assert user.cli("network", "subnet", "get", "--subnet-id", subnet.id)["data"]["vcn-id"] == subnet.vcn_id
    answer = user.cli("network", "subnet", "get", "--subnet-id", compartment, code=1)
    assert (answer["status"], answer["code"]) == (404, "NotAuthorizedOrNotFound")

    vcn = network.create_vcn({"compartmentId": compartment, "cidrBlock": "10.0.0.0/16"}).data.id
    inside = {"compartmentId": compartment, "vcnId": vcn}
    rule = {"protocol": "6", "source": "10.0.1.0/24"}
    with pytest.raises(oci.exceptions.ServiceError, match="egressSecurityRules is required"):
        network.create_security_list({**inside, "ingressSecurityRules": [rule]})
    rules = network.create_security_list({**inside, "ingressSecurityRules": [rule], "egressSecurityRules": []}).data.id
    made = network.create_subnet({**inside, "cidrBlock": "10.0.1.0/24", "securityListIds": [rules]}).data.id
    assert [item.id for item in network.list_subnets(compartment, vcn_id=vcn).data] == [made]


def test_identity_and_registry_are_there_for_a_check(user: User) -> None:
    compartment, tenancy = user.settings["COMPARTMENT_OCID"], user.settings["TENANCY_OCID"]
    identity = oci.identity.IdentityClient(user.config)
    policy = identity.create_policy(
        {"compartmentId": compartment, "name": "p", "description": "d", "statements": ["allow"]}
    )
    assert [item.name for item in identity.list_policies(compartment).data] == ["p"]
    identity.delete_policy(policy.data.id)
    assert identity.list_policies(compartment).data == []
    group = {"compartmentId": tenancy, "name": "g", "description": "d", "matchingRule": "all {}"}
    identity.create_dynamic_group(group)
    with pytest.raises(oci.exceptions.ServiceError, match="AlreadyExists"):
        identity.create_dynamic_group(group)
    assert [item.name for item in identity.list_dynamic_groups(tenancy).data] == ["g"]
    assert identity.get_compartment(compartment).data.lifecycle_state == "ACTIVE"
    assert identity.list_region_subscriptions(tenancy).data[0].region_name == user.settings["region"]
    artifacts = oci.artifacts.ArtifactsClient(user.config)
    details = {"compartmentId": compartment, "displayName": "stand-in/python"}
    repository = artifacts.create_container_repository(details).data.id
    assert [item.id for item in artifacts.list_container_repositories(compartment).data.items] == [repository]
    assert [image.digest for image in artifacts.list_container_images(compartment).data.items] == [DIGEST]
    artifacts.delete_container_repository(repository)


def test_logs_are_made_written_and_searched(user: User) -> None:
    compartment = user.settings["COMPARTMENT_OCID"]
    logging = oci.logging.LoggingManagementClient(user.config)
    log = logging.get_log(user.settings["LOG_GROUP_OCID"], user.settings["LOG_OCID"])
    assert log.data.lifecycle_state == "ACTIVE"
    work = logging.create_log_group({"compartmentId": compartment, "displayName": "mine"})
    work = logging.get_work_request(work.headers["opc-work-request-id"]).data
    group = work.resources[0].identifier
    assert (work.status, logging.get_log_group(group).data.display_name) == ("SUCCEEDED", "mine")
    logging.create_log(group, {"displayName": "mine", "logType": "CUSTOM"})
    log = logging.list_logs(group).data[0].id
    at = datetime.datetime.now(datetime.timezone.utc)
    entries = [{"id": str(number), "data": f"line {number}", "time": at.isoformat()} for number in range(3)]
    batch = {"entries": entries, "source": "here", "type": "mine", "defaultlogentrytime": at.isoformat()}
    ingestion = oci.loggingingestion.LoggingClient(user.config)
    ingestion.put_logs(log, {"specversion": "1.0", "logEntryBatches": [batch]})
    search = oci.loggingsearch.LogSearchClient(user.config)
    hour = datetime.timedelta(hours=1)

    def found(where: str, **options: Any) -> Any:
        query = f'search "{compartment}/{group}" | where {where} | sort by datetime desc'
        details = {"timeStart": (at - hour).isoformat(), "timeEnd": (at + hour).isoformat(), "searchQuery": query}
        return search.search_logs(details, **options)

    def texts(answer: Any) -> list[str]:
        return [row.data["logContent"]["data"]["message"] for row in answer.data.results]

    assert len(wait_until(lambda: texts(found("source = 'here'")), "the lines")) == 3
    assert texts(found("type = 'm*' and data.message != '*1'")) == ["line 2", "line 0"]
    assert texts(found("source = 'there'")) == []
    page = found("source = 'here'", limit=2)
    assert texts(found("source = 'here'", limit=2, page=page.headers["opc-next-page"])) == ["line 0"]
    logging.delete_log(group, log)
    logging.delete_log_group(group)


def test_hundred_clients_are_served_at_a_time(user: User) -> None:
    user.service.control({"faults": [{"operation": "get_namespace", "kind": "latency", "seconds": 0.5}]})
    client = oci.object_storage.ObjectStorageClient(user.config)
    with ThreadPoolExecutor(100) as pool:
        started = time.monotonic()
        found = list(pool.map(lambda _: client.get_namespace().data, range(100)))
    assert set(found) == {user.settings["namespace"]}
    assert time.monotonic() - started < 10


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
        assert len(started) >= 3, "warden, run, daemon"
        service.process.send_signal(signal.SIGKILL)
        service.process.wait()
        wait_until(lambda: not any(map(is_there, started)), f"the end of {started}", 5.0)


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
    wait_until(lambda: not any(map(is_there, started)), f"the end of {started}", 5.0)
    with Path("/proc/self/ns/net").open() as lock, contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another test run on this machine may need the route
        routes = subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout
        assert str(NETWORK) not in routes
