"""How OCI's services are asked: what is repeated and for how long, what a refusal means, and who asks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import oci
import pytest
import requests
from unit.fake_data_science import Response, refusal, silence

from oci_cluster.backends.oci import service as oci_service
from oci_cluster.backends.oci.errors import ServiceError, run_advice
from oci_cluster.backends.oci.service import PATIENCE_S, Service
from oci_cluster.contract.parsers import parse_network
from oci_cluster.errors import StoppedError


@pytest.fixture
def service(clock: Any, monkeypatch: pytest.MonkeyPatch) -> Service:
    """Return a service whose pauses are the longest that they can be."""
    monkeypatch.setattr(oci_service.random, "uniform", lambda _low, high: high)
    made = Service({}, clock=clock, sleep=clock.sleep)
    made.__dict__["identity"] = ({"region": "us-ashburn-1"}, None)
    return made


class Answers:
    """A method of a client that answers one thing after the other, the last one for ever."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append((*args, *kwargs.items()))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


# --- What is repeated -----------------------------------------------------------------------------------------------


def test_an_answer_is_passed_on(service: Service, clock: Any) -> None:
    """With the arguments that were given; nobody waits."""
    request = Answers("response")
    assert service.call("x", request, 1, a=2) == "response"
    assert (request.calls, clock.waits) == ([(1, ("a", 2))], [])


@pytest.mark.parametrize(
    "failure",
    [
        *(refusal(status) for status in (429, 500, 502, 503, 504)),
        silence(),
        oci.exceptions.ConnectTimeout("timed out"),
        requests.exceptions.ConnectionError("reset"),
    ],
)
def test_what_passes_by_itself_is_repeated(service: Service, clock: Any, failure: Exception) -> None:
    """A service that is busy, broken or silent is asked again, after pauses that grow."""
    request = Answers(*[failure] * 8, "response")
    assert service.call("x", request) == "response"
    assert clock.waits == [0.5, 1, 2, 4, 8, 16, 20, 20]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 412, 413])
def test_a_refusal_is_not_repeated(service: Service, clock: Any, status: int) -> None:
    """What will never be is told at once."""
    request = Answers(refusal(status, "IncorrectState"), "response")
    with pytest.raises(ServiceError) as caught:
        service.call("do it", request)
    assert (caught.value.status, caught.value.code) == (status, "IncorrectState")
    assert (len(request.calls), clock.waits) == (1, [])


def test_a_refusal_that_passes_can_be_named(service: Service) -> None:
    """Only where the code is one of those that the caller knows to pass."""
    passing = Answers(refusal(409, "IncorrectState"), "response")
    assert service.call("x", passing, repeat_also=("IncorrectState", "Conflict")) == "response"
    with pytest.raises(ServiceError):
        service.call("x", Answers(refusal(409, "Other"), "response"), repeat_also=("IncorrectState",))


def test_pauses_are_spread(service: Service, clock: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that were refused together do not come back together: each pause is half to all of its length."""
    asked: list[tuple[float, float]] = []

    def minimum(low: float, high: float) -> float:
        asked.append((low, high))
        return low

    monkeypatch.setattr(oci_service.random, "uniform", minimum)
    service.call("x", Answers(refusal(429), refusal(429), refusal(429), 1))
    assert (asked[:3], clock.waits) == ([(0.25, 0.5), (0.5, 1), (1, 2)], [0.25, 0.5, 1])


@pytest.mark.parametrize(
    ("asked_for", "waited"),
    [("7", 7), ("0.1", 0.5), ("0", 0.5), ("59", 59), ("3600", 60), ("inf", 60), ("-5", 0.5), ("nan", 0.5),
     ("Wed, 21 Oct 2026 07:28:00 GMT", 0.5), ("", 0.5)],
)  # fmt: skip
def test_a_service_says_when_to_come_back(service: Service, clock: Any, asked_for: str, waited: float) -> None:
    """Its own pause is kept to, up to a minute, and never makes ours shorter."""
    service.call("x", Answers(refusal(429, retry_after=asked_for), 1))
    assert clock.waits == [waited]


def test_patience_has_an_end(service: Service, clock: Any) -> None:
    """After three minutes the last failure is told, with what the service said and what to do."""
    begun = clock.now
    with pytest.raises(ServiceError) as caught:
        service.call("list the Jobs", Answers(refusal(429, "TooManyRequests", "slow down")))
    assert PATIENCE_S <= clock.now - begun < PATIENCE_S + 20
    assert str(caught.value) == (
        "cannot list the Jobs: slow down (429 TooManyRequests, request REQ);"
        " the service has throttled this launch for minutes; launch again later, or fewer nodes"
    )
    assert caught.value.exit_code == 69


def test_silence_has_an_end(service: Service) -> None:
    """It is told who was asked, and where."""
    with pytest.raises(ServiceError) as caught:
        service.call("list the Jobs", Answers(silence()))
    assert str(caught.value) == "cannot list the Jobs: no answer from OCI in us-ashburn-1: Read timed out"
    assert (caught.value.status, caught.value.exit_code) == (0, 69)


def test_a_certificate_that_is_not_trusted_is_told_at_once(service: Service, clock: Any) -> None:
    """As of a proxy that looks into all that passes: it is no outage, and has a setting."""
    said = "OCIConnectionPool(host='x'): (Caused by SSLError('[SSL: CERTIFICATE_VERIFY_FAILED] self-signed'))"
    with pytest.raises(ServiceError, match=r"CERTIFICATE_VERIFY_FAILED.*; a proxy .* REQUESTS_CA_BUNDLE=") as caught:
        service.call("list the Jobs", Answers(oci.exceptions.RequestException(said)))
    assert clock.waits == []
    assert (caught.value.status, caught.value.exit_code) == (0, 69)


def test_what_nobody_foresaw_is_no_answer(service: Service) -> None:
    """A bug is not repeated."""
    request = Answers(TypeError("bug"), 1)
    with pytest.raises(TypeError):
        service.call("x", request)
    assert len(request.calls) == 1


def test_a_stop_ends_the_repeating(clock: Any) -> None:
    """What failed is told; an answer that comes all the same is taken."""
    stops = [False, False, True]
    service = Service({}, is_stopped=lambda: stops.pop(0), clock=clock, sleep=clock.sleep)
    request = Answers(refusal(503, "Busy"))
    with pytest.raises(StoppedError, match=r"stopped while trying again: cannot do it: the service's words \(503 Busy"):
        service.call("do it", request)
    assert len(request.calls) == 3
    assert Service({}, is_stopped=lambda: True).call("x", Answers("response")) == "response"


def test_a_refusal_is_told_though_it_was_stopped(clock: Any) -> None:
    """What will never be is the reason, stop or not."""
    service = Service({}, is_stopped=lambda: True, clock=clock, sleep=clock.sleep)
    with pytest.raises(ServiceError):
        service.call("x", Answers(refusal(400)))


def test_a_list_has_all_its_pages(service: Service) -> None:
    """Each page is asked for by the name that the one before it gave; a page that fails is asked for again."""
    request = Answers(Response([1, 2], "b"), refusal(500), Response([], "c"), Response([3]))
    assert service.all_pages("x", request, "compartment", job_id="j") == [1, 2, 3]
    job = ("compartment", ("job_id", "j"))
    assert request.calls == [job, (*job, ("page", "b")), (*job, ("page", "b")), (*job, ("page", "c"))]


@pytest.mark.parametrize(
    ("blocks", "found"),
    [
        (None, "10.0.0.0/24"),
        (["10.0.0.0/24"], "10.0.0.0/24"),
        (["10.0.0.0/24", "10.0.1.0/24"], "10.0.0.0/24,10.0.1.0/24"),
    ],
)
def test_the_addresses_of_a_subnet_are_looked_up(service: Service, blocks: list[str] | None, found: str) -> None:
    """By the network's own client; a node takes what comes of it."""
    request = Answers(Response(oci.core.models.Subnet(cidr_block="10.0.0.0/24", ipv4_cidr_blocks=blocks)))
    service.clients[oci.core.VirtualNetworkClient] = SimpleNamespace(get_subnet=request)
    cidr = service.subnet_cidr("ocid1.subnet")
    assert cidr == parse_network(cidr) == found
    assert request.calls == [("ocid1.subnet",)]


# --- What a refusal means -------------------------------------------------------------------------------------------


def told(service: Service, status: int, code: str, message: str = "words") -> tuple[str, int]:
    """Return the advice that follows a refusal, and what the launcher ends with."""
    service._is_stopped = lambda: False
    with pytest.raises(ServiceError) as caught:
        service.call("x", Answers(refusal(status, code, message)))
    return str(caught.value).partition(", request REQ)")[2].removeprefix("; "), caught.value.exit_code


@pytest.mark.parametrize(
    ("refused", "advice", "exit_code"),
    [
        ((401, "NotAuthenticated", "words"), "OCI does not know you: check profile, fingerprint and key ", 77),
        (
            (404, "NotAuthorizedOrNotFound", "words"),
            "check the OCID; or ask for the policies: allow group <yours> to ",
            77,
        ),
        ((404, "NotFound", "words"), "", 77),
        ((403, "NotAllowed", "words"), "", 77),
        ((400, "LimitExceeded", "words"), "choose another SHAPE or fewer workers, or ask for a higher limit ", 69),
        ((400, "QuotaExceeded", "words"), "choose another SHAPE or fewer workers, or ask for a higher quota", 69),
        ((400, "OutOfCapacity", "words"), "", 69),
        (
            (400, "InvalidParameter", "the service limit is 3"),
            "choose another SHAPE or fewer workers, or ask for a ",
            78,
        ),
        ((409, "X", "a limit of yours"), "choose another SHAPE or fewer workers, or ask for a higher limit ", 69),
        ((400, "InvalidParameter", "words"), "", 78),
        ((409, "IncorrectState", "words"), "", 69),
        (
            (429, "TooManyRequests", "words"),
            "the service has throttled this launch for minutes; launch again later",
            69,
        ),
        ((500, "InternalServerError", "words"), "", 69),
    ],
)
def test_a_refusal_says_what_to_do(
    service: Service, refused: tuple[int, str, str], advice: str, exit_code: int
) -> None:
    """By what it says; nothing where nobody knows. Bad settings, no permission and the rest have their codes."""
    said, ended_with = told(service, *refused)
    assert (said.startswith(advice), bool(said), ended_with) == (True, bool(advice), exit_code)


@pytest.mark.parametrize(("status", "code"), [(404, "NotAuthorizedOrNotFound"), (404, "NotFound")])
def test_what_was_made_just_now_may_be_unseen(service: Service, clock: Any, status: int, code: str) -> None:
    """Until a moment that the caller knows, and no longer."""
    request = Answers(*[refusal(status, code)] * 3, "response")
    assert service.call("x", request, not_seen_until=clock.now + 10) == "response"
    with pytest.raises(ServiceError):
        service.call("x", Answers(refusal(status, code)), not_seen_until=clock.now + 10)
    assert clock.now < 1000 + 25


def test_the_page_of_somebody_in_between_is_a_line(service: Service) -> None:
    """A proxy answers with HTML, as long as it likes, and with what a terminal obeys."""
    page = "<html>\r\n<h1>Access \x1b[2Jdenied</h1>\n" + "x" * 3000
    with pytest.raises(ServiceError) as caught:
        service.call("do it", Answers(refusal(403, "None", page)))
    said = str(caught.value)
    assert said.isprintable()
    assert said.startswith("cannot do it: <html> <h1>Access [2Jdenied</h1> xxx")
    assert len(said) < 1200


@pytest.mark.parametrize("message", ["Tenancy request-rate limit exceeded.", "Rate limit for this user"])
def test_a_throttled_request_is_no_limit_of_a_shape(service: Service, message: str) -> None:
    """Another shape does not help whoever asks too often."""
    assert told(service, 429, "TooManyRequests", message)[0].startswith("the service has throttled this launch")


@pytest.mark.parametrize(
    ("details", "advice"),
    [
        (
            "Failed to pull IMAGE x",
            "push it (make push), or let the runs read it: allow dynamic-group <theirs> to read ",
        ),
        ("Out of host Capacity.", "choose another SHAPE, another region, or a CAPACITY_RESERVATION_OCID; "),
        ("Service limit reached", "choose another SHAPE or fewer workers, or ask for a higher limit"),
        ("quota", "choose another SHAPE or fewer workers, or ask for a higher limit"),
        ("no free address in the subnet", "choose a SUBNET_OCID with more free addresses, or fewer workers"),
    ],
)
def test_a_run_that_never_ran_says_what_to_do(details: str, advice: str) -> None:
    """By words of the service's sentence."""
    assert run_advice(details).startswith(advice)


def test_a_run_in_a_subnet_says_which_policy_the_service_needs() -> None:
    """Its words tell a missing right and a full subnet apart, perhaps: both are said."""
    told = run_advice("NotAuthorizedOrNotFound: subnet")
    assert "allow service datascience to use virtual-network-family in compartment <the subnet's>" in told


def test_nobody_guesses() -> None:
    """An unknown reason has no advice."""
    assert run_advice("something else") == ""
