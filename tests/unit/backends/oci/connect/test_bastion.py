"""Sessions of a bastion: what is asked, what is taken from the answers, and that none is left."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from oci_cluster.backends.oci.connect.bastion import Sessions, end_sessions, host_keys
from oci_cluster.backends.oci.errors import ServiceError, refused
from oci_cluster.errors import BackendError, ExitCode, StoppedError

BASTION = "ocid1.bastion.oc1.iad.aaaabastion"
HOST = "host.bastion.us-ashburn-1.oci.oraclecloud.com"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICZtPg3jjIm2SdCyre2lwqiWRcX0fTybu3Z1yfqpLUaf"


class Bastion:
    """A bastion and its client. Sessions are ACTIVE when they have been looked at *looks* times."""

    region, domain = "us-ashburn-1", "oraclecloud.com"

    def __init__(self) -> None:
        self.about = SimpleNamespace(
            lifecycle_state="ACTIVE",
            lifecycle_details="",
            max_session_ttl_in_seconds=10800,
            client_cidr_block_allow_list=["192.0.2.0/24"],
        )
        self.sessions: dict[str, Any] = {}
        self.tokens: list[str] = []
        self.looks = 2
        self.becomes = "ACTIVE"
        self.told: dict[str, Any] = {}
        self.deletion: ServiceError | None = None
        self.creation: ServiceError | None = None
        self.bastion = self  # as the service's client

    def call(self, _what: str, request: Any, *args: Any, **kwargs: Any) -> Any:
        for name in ("repeat_also", "patience_s", "not_seen_until"):
            kwargs.pop(name, None)
        return SimpleNamespace(data=request(*args, **kwargs))

    def all_pages(self, _what: str, request: Any, *args: Any, **kwargs: Any) -> Any:
        return request(*args, **kwargs)

    def cleaning_up(self) -> Any:
        import contextlib  # noqa: PLC0415

        return contextlib.nullcontext()

    def get_bastion(self, ocid: str) -> Any:
        assert ocid == BASTION
        return self.about

    def create_session(self, body: dict[str, Any], opc_retry_token: str) -> Any:
        if self.creation:
            raise self.creation
        self.tokens.append(opc_retry_token)
        self.body = body
        ocid = f"ocid1.bastionsession.oc1.iad.{len(self.tokens)}"
        fields = {
            "id": ocid,
            "lifecycle_state": "CREATING",
            "lifecycle_details": None,
            "display_name": body["displayName"],
            "session_ttl_in_seconds": body["sessionTtlInSeconds"],
            "ssh_metadata": {"command": f"ssh -i <privateKey> -N -L <localPort>:10.0.0.7:8888 -p 22 {ocid}@{HOST}"},
            "bastion_public_host_key_info": KEY,
            "looks": 0,
        }
        self.sessions[ocid] = SimpleNamespace(**{**fields, **self.told})
        return self.sessions[ocid]

    def get_session(self, ocid: str) -> Any:
        session = self.sessions[ocid]
        session.looks += 1
        if session.lifecycle_state == "CREATING" and session.looks >= self.looks:
            session.lifecycle_state = self.becomes
        return session

    def list_sessions(self, _bastion: str, display_name: str) -> list[Any]:
        assert display_name
        return list(self.sessions.values())  # of a service that does not know that word

    def delete_session(self, ocid: str) -> None:
        if self.deletion:
            raise self.deletion
        self.sessions[ocid].lifecycle_state = "DELETED"

    def states(self) -> list[str]:
        return [session.lifecycle_state for session in self.sessions.values()]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def bastion() -> Bastion:
    return Bastion()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def sessions_of(bastion: Any, clock: Clock) -> Sessions:
    return Sessions(bastion, BASTION, "oci-cluster-demo-1", clock=clock, sleep=clock.sleep)


def not_found() -> ServiceError:
    return refused("do it", 404, "NotAuthorizedOrNotFound", "no", "REQ")


# --- Making


def test_a_session_leads_to_one_port_and_is_returned_when_it_is_active(bastion: Bastion, clock: Clock) -> None:
    sessions = sessions_of(bastion, clock)
    made = sessions.create("10.0.0.7", 8888, "ssh-ed25519 AAAA x")
    assert bastion.body == {
        "displayName": "oci-cluster-demo-1",
        "bastionId": BASTION,
        "keyType": "PUB",
        "keyDetails": {"publicKeyContent": "ssh-ed25519 AAAA x"},
        "sessionTtlInSeconds": 10800,
        "targetResourceDetails": {
            "sessionType": "PORT_FORWARDING",
            "targetResourcePrivateIpAddress": "10.0.0.7",
            "targetResourcePort": 8888,
        },
    }
    assert (made.host, made.port, made.host_keys) == (HOST, 22, (KEY,))
    assert (made.asked_at, made.ends_at) == (1000.0, 11800.0)
    assert sessions.left == [made.id]
    assert sessions.allowed_from == ["192.0.2.0/24"]


def test_a_session_lives_as_long_as_its_bastion_allows_and_says(bastion: Bastion, clock: Clock) -> None:
    bastion.about.max_session_ttl_in_seconds = 3600
    assert sessions_of(bastion, clock).create("10.0.0.7", 1, "k").ends_at == 4600
    bastion.told = {"session_ttl_in_seconds": 1800}
    clock.now = 0.0
    assert sessions_of(bastion, clock).create("10.0.0.7", 1, "k").ends_at == 1800


def test_each_session_is_asked_for_with_a_token_of_its_own(bastion: Bastion, clock: Clock) -> None:
    sessions = sessions_of(bastion, clock)
    for _ in range(2):
        sessions.create("10.0.0.7", 1, "k")
    assert bastion.tokens == ["oci-cluster-demo-1-1", "oci-cluster-demo-1-2"]


def test_a_bastion_that_is_not_ready_is_said(bastion: Bastion, clock: Clock) -> None:
    bastion.about.lifecycle_state = "UPDATING"
    with pytest.raises(BackendError, match=f"the bastion {BASTION} is UPDATING; wait, or set another BASTION_ID"):
        sessions_of(bastion, clock).check()


@pytest.mark.parametrize("state", ["FAILED", "DELETED", "DELETING"])
def test_a_session_that_is_not_made_is_said_with_its_reason_and_deleted(
    bastion: Bastion, clock: Clock, state: str
) -> None:
    bastion.becomes = state
    bastion.told = {"lifecycle_details": "no such target"}
    with pytest.raises(BackendError, match=f"became {state}: no such target; BASTION_ID must be"):
        sessions_of(bastion, clock).create("10.0.0.7", 1, "k")
    assert bastion.states() == ["DELETED"]


def test_a_session_that_never_becomes_active_is_given_up_and_deleted(bastion: Bastion, clock: Clock) -> None:
    bastion.looks = 10**9
    with pytest.raises(BackendError, match="still CREATING after 300 s"):
        sessions_of(bastion, clock).create("10.0.0.7", 1, "k")
    assert 1300 < clock.now < 1310
    assert bastion.states() == ["DELETED"]


def test_a_session_that_is_not_wanted_any_more_is_deleted(bastion: Bastion, clock: Clock) -> None:
    sessions = sessions_of(bastion, clock)
    looks = itertools.count()
    sessions.is_unwanted = lambda: next(looks) > 0
    with pytest.raises(StoppedError, match="before the session of the bastion was ready"):
        sessions.create("10.0.0.7", 1, "k")
    assert bastion.states() == ["DELETED"]
    assert sessions.left == []


def test_whether_a_session_may_be_there_that_nobody_has_told_of_is_known(bastion: Bastion, clock: Clock) -> None:
    sessions = sessions_of(bastion, clock)
    bastion.creation = ServiceError("no answer")
    with pytest.raises(ServiceError):
        sessions.create("10.0.0.7", 1, "k")
    assert sessions.is_unsure
    bastion.creation = not_found()
    with pytest.raises(ServiceError):
        sessions.create("10.0.0.7", 1, "k")
    assert not sessions.is_unsure


# --- What OCI says of them


@pytest.mark.parametrize(
    "command",
    [
        "ssh x@evil.example.com",
        f"ssh -p 22 ocid1.bastionsession.oc1.iad.2@{HOST}",  # somebody else's
        f"ssh -p 22 ocid1.bastionsession.oc1.iad.1@{HOST}.evil.example.com",
        "ssh -p 22 ocid1.bastionsession.oc1.iad.1@host.bastion.eu-frankfurt-1.oci.oraclecloud.com",
        f"ssh -p 99999 ocid1.bastionsession.oc1.iad.1@{HOST}",
        f"ssh ocid1.bastionsession.oc1.iad.1@{HOST}; rm -rf /",
    ],
)
def test_a_session_that_says_another_place_is_not_followed(bastion: Bastion, clock: Clock, command: str) -> None:
    bastion.told = {"ssh_metadata": {"command": command}}
    with pytest.raises(BackendError, match=r"which does not lead to .*nothing was sent"):
        sessions_of(bastion, clock).create("10.0.0.7", 1, "k")
    assert bastion.states() == ["DELETED"]


@pytest.mark.parametrize(
    ("command", "port"),
    [
        (f"ssh -i k -p 2222 ocid1.bastionsession.oc1.iad.1@{HOST}", 2222),
        (f"ssh ocid1.bastionsession.oc1.iad.1@{HOST}\n", 22),
        ("", 22),
    ],
)
def test_the_port_is_what_the_session_says(bastion: Bastion, clock: Clock, command: str, port: int) -> None:
    bastion.told = {"ssh_metadata": {"command": command} if command else None}
    made = sessions_of(bastion, clock).create("10.0.0.7", 1, "k")
    assert (made.host, made.port) == (HOST, port)


@pytest.mark.parametrize(
    ("said", "keys"),
    [
        ("", ()),
        (" \n", ()),
        (KEY, (KEY,)),
        (f"{KEY} a comment\n", (KEY,)),
        (f"{HOST} {KEY}\n[{HOST}]:22 ssh-rsa AAAAB3Nza== x", (KEY, "ssh-rsa AAAAB3Nza==")),
        (KEY.split()[1], (KEY,)),
    ],
)
def test_host_keys_are_lines_of_openssh_or_bare(said: str, keys: tuple[str, ...]) -> None:
    assert host_keys(said) == keys


@pytest.mark.parametrize("said", ["SHA256:abc", "ssh-dss AAAA", "* @cert-authority", "AAAA", "ssh-ed25519 ../../x"])
def test_what_is_no_host_key_is_not_taken_for_none(said: str) -> None:
    """Else anybody's would do."""
    with pytest.raises(BackendError, match="which is no key of OpenSSH; nothing was sent"):
        host_keys(said)


# --- Their end


def test_one_that_is_over_is_no_error_to_delete(bastion: Bastion, clock: Clock) -> None:
    sessions = sessions_of(bastion, clock)
    made = sessions.create("10.0.0.7", 1, "k")
    bastion.sessions[made.id].lifecycle_state = "DELETED"
    bastion.deletion = not_found()
    sessions.delete(made.id)
    assert sessions.left == []


def test_one_that_may_not_be_deleted_is_an_error(bastion: Bastion, clock: Clock) -> None:
    """OCI answers the same to both."""
    sessions = sessions_of(bastion, clock)
    made = sessions.create("10.0.0.7", 1, "k")
    bastion.deletion = not_found()
    with pytest.raises(ServiceError):
        sessions.delete(made.id)
    assert sessions.left == [made.id]


def test_sessions_of_others_are_not_of_this_way(bastion: Bastion, clock: Clock) -> None:
    sessions = sessions_of(bastion, clock)
    made = sessions.create("10.0.0.7", 1, "k")
    other = Sessions(bastion, BASTION, "oci-cluster-demo-2", clock=clock, sleep=clock.sleep)  # type: ignore[arg-type]
    other.create("10.0.0.7", 1, "k")
    assert [found.id for found in sessions.going()] == [made.id]


def test_a_guard_deletes_what_appears_late_too(bastion: Bastion, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = sessions_of(bastion, clock)
    sessions.create("10.0.0.7", 1, "k")
    late = 1004.0

    def sleep(seconds: float) -> None:
        nonlocal late
        clock.now += seconds
        if clock.now >= late:  # the killed launcher's last request is answered only now
            late = 1e9
            bastion.create_session({"displayName": sessions.name, "sessionTtlInSeconds": 1}, "late")

    monkeypatch.setattr("oci_cluster.backends.oci.connect.bastion.time", SimpleNamespace(monotonic=clock, sleep=sleep))
    end_sessions(sessions)
    assert bastion.states() == ["DELETED", "DELETED"]
    assert 1010 < clock.now < 1020


def test_a_guard_tries_again_while_oci_does_not_answer(
    bastion: Bastion, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = sessions_of(bastion, clock)
    sessions.create("10.0.0.7", 1, "k")
    bastion.deletion = ServiceError("no answer")

    def sleep(seconds: float) -> None:
        clock.now += seconds
        if clock.now > 1060:
            bastion.deletion = None

    monkeypatch.setattr("oci_cluster.backends.oci.connect.bastion.time", SimpleNamespace(monotonic=clock, sleep=sleep))
    end_sessions(sessions)
    assert bastion.states() == ["DELETED"]


# --- What a refusal means


@pytest.mark.parametrize(
    ("operation", "status", "code", "words", "exit_code"),
    [
        ("get_bastion", 404, "NotAuthorizedOrNotFound", "check BASTION_ID; .*use bastion in", ExitCode.NOT_PERMITTED),
        ("create_session", 404, "NotAuthorizedOrNotFound", "manage bastion-session in", ExitCode.NOT_PERMITTED),
        ("create_session", 400, "LimitExceeded", "delete sessions that nobody uses", ExitCode.UNAVAILABLE),
        ("create_session", 429, "TooManyRequests", "throttled this for minutes; try again", ExitCode.UNAVAILABLE),
        ("delete_session", 404, "NotAuthorizedOrNotFound", "manage bastion-session in", ExitCode.NOT_PERMITTED),
        ("create_session", 401, "NotAuthenticated", "OCI does not know you", ExitCode.NOT_PERMITTED),
    ],
)
def test_a_refusal_says_the_next_step(operation: str, status: int, code: str, words: str, exit_code: int) -> None:
    failure = refused("do it", status, code, "no", "REQ", operation=operation)
    with pytest.raises(ServiceError, match=words):
        raise failure
    assert failure.exit_code == exit_code
