"""The stand-in for OCI, asked by the clients that the product uses, as they are: who asks, and Jobs."""

from __future__ import annotations

import base64
import email.utils
import hashlib
import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from oci_user import CLI, UNTIL_TERM, User, last_call

oci = pytest.importorskip("oci", reason="needs an environment with oci-cli and ocifs")

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
