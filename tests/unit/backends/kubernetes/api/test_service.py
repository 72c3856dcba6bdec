"""How the API is asked: what is repeated, what is not, and what its refusals say to a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import pytest
from unit.backends.kubernetes_place import access

from oci_cluster.backends.kubernetes.api.service import KubernetesError, Service
from oci_cluster.errors import ExitCode

Handler = Callable[[httpx.Request], httpx.Response]


class Api(httpx.BaseTransport):
    """Answers one after the other; what is none is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.asked.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer[0], json=answer[1], headers=dict(answer[2:] and answer[2]), request=request)


def status(code: int, reason: str = "", message: str = "no") -> tuple[int, Any]:
    return code, {"kind": "Status", "code": code, "reason": reason, "message": message}


def service(api: Api, clock: Any, patience_s: float = 30.0) -> Service:
    return Service(access(), transport=api, clock=clock, sleep=clock.sleep, patience_s=patience_s)


@pytest.mark.parametrize("first", [status(429), status(500), status(503), httpx.ConnectError("refused")])
def test_what_passes_is_asked_again(clock: Any, first: Any) -> None:
    """A server that is busy, starting, or away."""
    api = Api(first, first, (200, {"kind": "Job"}))
    assert service(api, clock).get("/x") == {"kind": "Job"}
    assert len(api.asked) == 3


@pytest.mark.parametrize(("code", "exit_code"), [(401, 77), (403, 77), (404, 69), (422, 69)])
def test_what_does_not_pass_is_told_at_once(clock: Any, code: int, exit_code: int) -> None:
    """With the API's own words."""
    api = Api(status(code, "Reason", "its own words"))
    with pytest.raises(KubernetesError, match="its own words") as raised:
        service(api, clock).get("/x")
    assert (raised.value.code, raised.value.exit_code, len(api.asked)) == (code, exit_code, 1)


def test_patience_ends(clock: Any) -> None:
    """And the last word is told, with how often it was tried."""
    api = Api(status(503, "Unavailable", "starting"))
    began = clock()
    with pytest.raises(KubernetesError, match=r"starting; tried \d+ times") as raised:
        service(api, clock).get("/x")
    assert raised.value.exit_code == ExitCode.UNAVAILABLE
    assert raised.value.code == 503
    assert clock() - began <= 30


def test_who_the_kubeconfig_does_not_mean_is_not_asked_again(clock: Any) -> None:
    """A certificate of somebody else will not become right."""
    api = Api(httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"))
    with pytest.raises(KubernetesError, match="not signed by the authority"):
        service(api, clock).get("/x")
    assert len(api.asked) == 1


JOB = {"metadata": {"name": "mine", "labels": {"oci-cluster-launch": "0123abcd"}}}
OTHERS = {"metadata": {"name": "mine", "labels": {"oci-cluster-launch": "ffffffff"}}}


def test_a_creation_whose_answer_was_lost_is_ours(clock: Any) -> None:
    """It is there already: that of this launch."""
    api = Api(status(504), status(409, "AlreadyExists"), (200, JOB))
    assert service(api, clock).create("/jobs", JOB) == JOB


def test_what_somebody_else_has_made_is_not_ours(clock: Any) -> None:
    """A name that is taken."""
    api = Api(status(409, "AlreadyExists", "mine already exists"), (200, OTHERS))
    with pytest.raises(KubernetesError, match="already exists"):
        service(api, clock).create("/jobs", JOB)


def test_two_writers_at_once(clock: Any) -> None:
    """The second tries again; what was applied is told instead, with who else has written it."""
    api = Api(status(409, "Conflict"), (200, JOB))
    assert service(api, clock).patch("/jobs/mine", {}) == JOB
    with pytest.raises(KubernetesError):
        service(Api(status(409, "Conflict")), clock).apply("/jobs/mine", JOB)


def test_a_list_comes_in_pages_and_begins_anew_when_they_are_too_old(clock: Any) -> None:
    """Nothing twice, nothing lost."""
    first = (200, {"items": [{"n": 1}], "metadata": {"continue": "more"}})
    last = (200, {"items": [{"n": 2}], "metadata": {}})
    api = Api(first, status(410, "Expired"), first, last)
    assert service(api, clock).items("/jobs") == [{"n": 1}, {"n": 2}]
    assert [request.url.params.get("continue") for request in api.asked] == [None, "more", None, "more"]


def test_deleting_what_is_gone_is_no_error(clock: Any) -> None:
    """And the caller may know."""
    assert service(Api(status(404, "NotFound")), clock).delete("/jobs/mine") is False
    api = Api((200, {}))
    assert service(api, clock).delete("/jobs/mine", grace_s=0) is True
    assert json.loads(api.asked[0].content)["gracePeriodSeconds"] == 0


def test_what_the_api_warns_of_is_kept_once(clock: Any) -> None:
    """Such as pods that a standard will refuse."""
    warned = (200, {}, {"Warning": '299 - "would violate PodSecurity"'})
    api = service(Api(warned), clock)
    api.get("/x")
    api.get("/x")
    assert api.warnings == ["would violate PodSecurity"]


@pytest.mark.parametrize("text", [[], "no object"])
def test_what_is_no_kubernetes(clock: Any, text: Any) -> None:
    """Somebody else answers at that address."""
    with pytest.raises(KubernetesError, match="is it a Kubernetes"):
        service(Api((200, text)), clock).get("/x")


def test_an_api_that_hangs_keeps_nobody_who_has_pressed_ctrl_c(clock: Any) -> None:
    """And what is only good to know is asked for once: Kueue's visibility API is a server of its own."""
    stops: list[bool] = []
    api = Api(httpx.ReadTimeout("nothing came"))
    asking = Service(access(), transport=api, clock=clock, sleep=clock.sleep, is_stopped=lambda: bool(stops))
    with pytest.raises(KubernetesError, match="nothing came"):
        asking.glance("/places")
    with pytest.raises(KubernetesError, match="tried"):
        asking.get("/x")
    stops.append(True)
    with pytest.raises(KubernetesError):
        asking.delete("/x")
    waits = [request.extensions["timeout"]["read"] for request in api.asked]
    assert waits[:2] == [3.0, 20.0]
    assert waits[-1] == 5.0
    assert [request.url.path for request in api.asked].count("/places") == 1
