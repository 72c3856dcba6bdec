"""What to do about a refusal: it depends on what was refused, and to whom."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import Any

import pytest
from unit.fake_data_science import refusal

from oci_cluster.backends.oci.errors import ServiceError
from oci_cluster.backends.oci.service import Service


@pytest.fixture
def service(clock: Any) -> Service:
    made = Service({}, clock=clock, sleep=clock.sleep)
    made.__dict__["identity"] = ({"region": "us-ashburn-1"}, None)
    return made


class Operations:
    """Methods of a client, each of which refuses."""

    def __init__(self, status: int, code: str, message: str = "no", headers: Mapping[str, str] | None = None) -> None:
        self._refusal = refusal(status, code, message, **headers or {})

    def _refuse(self, *_: object, **__: object) -> Any:
        raise self._refusal

    def named(self, name: str) -> Callable[..., Any]:
        """Return the method called *name*, as the SDK's are."""

        def method(*_: object) -> Any:
            return self._refuse()

        method.__name__ = name
        return method


NEEDED = {
    "list_jobs": "check COMPARTMENT_OCID; or ask for the policy: allow group <yours> to inspect data-science-jobs in ",
    "get_job": "ask for the policy: allow group <yours> to read data-science-jobs in ",
    "create_job": "check COMPARTMENT_OCID, PROJECT_OCID, SUBNET_OCID and LOG_GROUP_OCID; or ask for the policy: allow ",
    "create_job_run": "check PROJECT_OCID and LOG_GROUP_OCID; or ask for the policy: allow group <yours> to manage "
    "data-science-job-runs in compartment <its name>; manage data-science-family has it; with LOG_GROUP_OCID, set "
    "LOG_OCID to one log that is there, or: allow group <yours> to manage log-groups in compartment <the log group's>",
    "cancel_job_run": "ask for the policy: allow group <yours> to manage data-science-job-runs in ",
    "delete_job": "ask for the policy: allow group <yours> to manage data-science-jobs in ",
    "list_job_runs": "check COMPARTMENT_OCID; or ask for the policy: allow group <yours> to inspect data-science-job-",
    "get_job_run": "ask for the policy: allow group <yours> to read data-science-job-runs in ",
    "get_subnet": "check SUBNET_OCID; or ask for the policy: allow group <yours> to use virtual-network-family in ",
    "search_logs": "check LOG_GROUP_OCID; or ask for the policy: allow group <yours> to read log-content in ",
    "something_new": "check the OCID; or ask for the policies: allow group <yours> to manage data-science-family in ",
}


@pytest.mark.parametrize(
    ("status", "code"), [(404, "NotAuthorizedOrNotFound"), (400, "RelatedResourceNotAuthorizedOrNotFound")]
)
@pytest.mark.parametrize("operation", NEEDED)
def test_the_policy_that_lacks_is_that_of_the_operation(
    service: Service, operation: str, status: int, code: str
) -> None:
    """One answer for what is not there and what is not permitted: which setting, or which statement."""
    with pytest.raises(ServiceError) as caught:
        service.call("x", Operations(status, code).named(operation))
    assert str(caught.value).partition(", request REQ)")[2].removeprefix("; ").startswith(NEEDED[operation])


def test_an_identity_that_was_taken_before_has_another_trouble(service: Service) -> None:
    """Profile and fingerprint were right a moment ago."""
    refused = Operations(401, "NotAuthenticated").named("create_job")
    service.environ = {"OCI_CLI_AUTH": "security_token"}
    with pytest.raises(ServiceError, match="OCI does not know you: check profile, fingerprint and key"):
        service.call("x", refused)
    service.call("x", lambda: 1)
    with pytest.raises(ServiceError, match="OCI knew you a moment ago: the session has expired, or the key was rem"):
        service.call("x", refused)


@pytest.mark.parametrize(
    ("auth", "behind_s", "step"),
    [
        ("", 0, "or have an administrator run: oci iam user api-key upload --user-id <OCID of your user> --key-file"),
        ("security_token", 0, "; oci session authenticate --region <region> --profile-name <OCI_CLI_PROFILE>"),
        ("instance_principal", 0, "OCI does not know you: check profile"),
        ("", 3600, "s behind OCI's: set it; sudo timedatectl set-ntp true"),
        ("security_token", -400, "s ahead of OCI's: set it; sudo timedatectl set-ntp true"),
        (
            "",
            240,
            "; in the Console (your profile, API keys) add the public half of the key, or have",
        ),  # so much may differ
    ],
)
def test_who_is_not_known_is_told_what_renews_that(service: Service, auth: str, behind_s: float, step: str) -> None:
    """By kind of identity, and by the clock of the answer."""
    service.environ = {"OCI_CLI_AUTH": auth}
    about = {"date": formatdate(time.time() + behind_s, usegmt=True)}
    refused = Operations(401, "NotAuthenticated", "no", about).named("create_job")
    with pytest.raises(ServiceError) as caught:
        service.call("x", refused)
    assert step in str(caught.value)
