"""Refusals of OCI's services: advice for people, and the launcher's exit codes."""

from __future__ import annotations

from oci_cluster.errors import ClusterError, ExitCode

# One answer for what is not there and what is not permitted: of what the path names, and of what the body names
# (https://docs.oracle.com/iaas/Content/API/References/apierrors.htm).
_UNSEEN = {"NotAuthorizedOrNotFound", "NotFound", "RelatedResourceNotAuthorizedOrNotFound"}


class ServiceError(ClusterError):
    """A service's refusal with HTTP *status* and *code*, or its silence, *status* 0."""

    def __init__(self, message: str, *, status: int = 0, code: str = "", exit_code: int = ExitCode.UNAVAILABLE) -> None:
        super().__init__(message, exit_code=exit_code)
        self.status = status
        self.code = code

    @property
    def is_final(self) -> bool:
        """True if the service has refused for good: nothing has been done."""
        return 400 <= self.status < 500 and self.status != 429

    @property
    def is_of_the_unseen(self) -> bool:
        """True if the thing is not there, or not for the caller."""
        return self.status in {400, 404} and self.code in _UNSEEN


def refused(
    what: str,
    status: int,
    code: str,
    message: str,
    request: object,
    *,
    operation: str = "",
    identity: str = "",
    was_known: bool = False,
    behind_s: float = 0.0,
) -> ServiceError:
    """Return the error of a service that has refused to do *what*.

    *operation* is the SDK's method, by which policies differ; *identity* is its kind, as in ``OCI_CLI_AUTH``, and
    *was_known* whether it has been taken before; *behind_s* is how far this machine's clock is behind OCI's.
    """
    said = f"{code} {message}".lower()
    advices = _BASTION_ADVICE if operation in _BASTION else _ADVICE
    general = next((text for of, word, text in advices if of in {0, status} and word in said), "")
    known = _identity_advice(identity, was_known=was_known, behind_s=behind_s) if status == 401 else ""
    advice = known or _policy_advice(status, code, operation) or general
    text = f"cannot {what}: {message} ({status} {code}, request {request})"
    return ServiceError(
        "; ".join(filter(None, (text, advice))), status=status, code=code, exit_code=_exit_code(status, code)
    )


def _exit_code(status: int, code: str) -> int:
    if status in {401, 403, 404}:
        return ExitCode.NOT_PERMITTED
    is_limit = any(word in code.lower() for word in ("limit", "quota", "capacity"))
    return ExitCode.SETTINGS if status == 400 and not is_limit else ExitCode.UNAVAILABLE


_MANAGE = "manage data-science-family"
_NETWORK = "use virtual-network-family"


def _allow(what: str, place: str = "its name") -> str:
    return f"allow group <yours> to {what} in compartment <{place}>"


def _science(what: str) -> str:
    return f"{_allow(what)}; {_MANAGE} has it"


_USE_NETWORK = _allow(_NETWORK, "the subnet's")
_USE_BASTION = _allow("use bastion", "the bastion's")
_SESSIONS = _allow("manage bastion-session", "the bastion's")
_READ_NETWORK = _allow("read virtual-network-family", "the subnet's")
_MAKE_LOGS, _OF_LOGS = "manage log-groups", "the log group's"
_READ_LOG_GROUPS = _allow("read log-groups", _OF_LOGS)
_CREATE_JOB = (
    f"{_allow(_MANAGE)}; with SUBNET_OCID: {_USE_NETWORK}, and: allow service datascience to {_NETWORK} in compartment"
    f" <the subnet's>; with LOG_GROUP_OCID: {_READ_LOG_GROUPS}"
)
# Who makes a log: the service, for whoever creates the run, or the run itself: source: the documentation of ADS, which
# has people manage log groups.
_CREATE_RUN = (
    f"{_science('manage data-science-job-runs')}; with LOG_GROUP_OCID, set LOG_OCID to one log that is there, or:"
    f" {_allow(_MAKE_LOGS, _OF_LOGS)}"
)
# Which policy an operation needs, and of which settings it reads OCIDs.
_POLICIES = {
    "list_jobs": ("COMPARTMENT_OCID", _science("inspect data-science-jobs")),
    "get_job": ("", _science("read data-science-jobs")),
    "create_job": ("COMPARTMENT_OCID, PROJECT_OCID, SUBNET_OCID and LOG_GROUP_OCID", _CREATE_JOB),
    "delete_job": ("", _science("manage data-science-jobs")),
    "list_job_runs": ("COMPARTMENT_OCID", _science("inspect data-science-job-runs")),
    "get_job_run": ("", _science("read data-science-job-runs")),
    "create_job_run": ("PROJECT_OCID and LOG_GROUP_OCID", _CREATE_RUN),
    "cancel_job_run": ("", _science("manage data-science-job-runs")),
    "get_subnet": ("SUBNET_OCID", f"{_USE_NETWORK}; or set SUBNET_CIDR, and nobody looks it up"),
    "get_bastion": ("BASTION_ID", _USE_BASTION),
    "create_session": ("BASTION_ID", f"{_USE_BASTION}, {_SESSIONS}, and: {_READ_NETWORK}"),
    "get_session": ("", _SESSIONS),
    "list_sessions": ("BASTION_ID", _SESSIONS),
    "delete_session": ("", _SESSIONS),
    "search_logs": ("LOG_GROUP_OCID", _allow("read log-content", "the log group's")),
}
_ANY_POLICY = f"check the OCID; or ask for the policies: {_allow(_MANAGE)}, and: {_allow(_NETWORK)}"


def _policy_advice(status: int, code: str, operation: str) -> str:
    if status not in {400, 404} or code not in _UNSEEN - {"NotFound"}:
        return ""
    settings, policy = _POLICIES.get(operation, ("", ""))
    if not policy:
        return _ANY_POLICY
    return f"check {settings}; or ask for the policy: {policy}" if settings else f"ask for the policy: {policy}"


# Source: OCI's documentation of requests: the clocks of client and service may differ by five minutes.
_CLOCKS_DIFFER_S = 300
# Neither is asked of OCI by what it does not know: a request by a deleted key, or a refresh of a session that is over.
_RENEW = {
    "api_key": (
        "in the Console (your profile, API keys) add the public half of the key, or have an administrator run: oci iam"
        " user api-key upload --user-id <OCID of your user> --key-file <public half of the key>"
    ),
    "security_token": "oci session authenticate --region <region> --profile-name <OCI_CLI_PROFILE>",
}


def _identity_advice(identity: str, *, was_known: bool, behind_s: float) -> str:
    if abs(behind_s) > _CLOCKS_DIFFER_S:
        order = "behind" if behind_s > 0 else "ahead of"
        return f"this machine's clock is {abs(behind_s):.0f} s {order} OCI's: set it; sudo timedatectl set-ntp true"
    if was_known:
        said = "OCI knew you a moment ago: the session has expired, or the key was removed"
    else:
        said = "OCI does not know you: check profile, fingerprint and key (OCI_CLI_PROFILE, ~/.oci/config)"
    return "; ".join(filter(None, (said, _RENEW.get(identity))))


# What to do about what a service says, by status and what is in its code or text. The first that fits is said.
_FEWER = "choose another SHAPE or fewer workers, or ask for a higher"
_ADVICE = (
    (400, "quotaexceeded", f"{_FEWER} quota"),
    (429, "", "the service has throttled this launch for minutes; launch again later, or fewer nodes"),
    (0, "limit", f"{_FEWER} limit (Limits, Quotas and Usage)"),
)
_BASTION = {"get_bastion", "create_session", "get_session", "list_sessions", "delete_session"}
_DELETE_SESSIONS = (
    "delete sessions that nobody uses (oci bastion session list --bastion-id <BASTION_ID> --session-lifecycle-state"
    " ACTIVE), or set BASTION_ID to another bastion; a session ends after 3 hours"
)
_BASTION_ADVICE = (
    (429, "", "the service has throttled this for minutes; try again later"),
    (0, "limit", _DELETE_SESSIONS),
)


# What to do about what a Job Run says of itself when it never ran. The wording of the service is not known: by words.
_READ_IMAGE = (
    "push it (make push), or let the runs read it: allow dynamic-group <theirs> to read repos in compartment <its name>"
)
_MORE_ADDRESSES = (
    "choose a SUBNET_OCID with more free addresses, or fewer workers; or let the service use it: allow service"
    " datascience to use virtual-network-family in compartment <the subnet's>"
)
_RUN_ADVICE = (
    (("image", "pull"), _READ_IMAGE),
    (("capacity",), "choose another SHAPE, another region, or a CAPACITY_RESERVATION_OCID; or try again later"),
    (("limit", "quota"), f"{_FEWER} limit"),
    (("subnet", "address"), _MORE_ADDRESSES),
)


def run_advice(details: str) -> str:
    """Return what to do about a run that has not started, by its *details*."""
    said = details.lower()
    return next((advice for words, advice in _RUN_ADVICE if any(word in said for word in words)), "")
