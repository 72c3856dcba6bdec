"""What check.sh finds of a Kubernetes: objects in memory, and each refusal that there may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubernetes_rights import documented
from unit.backends.kubernetes.check_api import NAMESPACE, Api, Found, Launch
from unit.backends.kubernetes.fake_api import forbidden

from oci_cluster.backends import check_of
from oci_cluster.backends.findings import Checked
from oci_cluster.backends.kubernetes.check import RIGHTS


def verdicts(found: Found) -> dict[str, str]:
    return {item: " ".join(one[0] for one in ones) for item, ones in found.items()}


# --- The whole --------------------------------------------------------------------------------------------------------


def test_a_kubernetes_that_can_run_it_is_fine(api: Api, launch: Launch) -> None:
    """In all items; and nothing is made."""
    found = launch.found()
    items = ("API", "rights", "namespace", "Job", "quota")
    assert verdicts(found) == dict.fromkeys(items, "fine"), found
    assert api.sent == []
    assert found["API"][0][1] == "Kubernetes v1.36.0 at https://kubernetes.test, namespace mine"


@pytest.mark.parametrize(
    ("said", "fix"),
    [
        ("failed quota: company: must specify limits.cpu for: node", "set CPU_LIMIT"),
        ("exceeded quota: small", "wait until others give back what they use, or ask for more"),
    ],
)
def test_pods_that_the_api_would_refuse_are_named(api: Api, launch: Launch, said: str, fix: str) -> None:
    """It takes the Job, whose controller would meet that later."""
    api.refusals["POST /api/v1/namespaces/mine/pods"] = (403, "Forbidden", f'pods "plain-0" is forbidden: {said}')
    ((verdict, told, way),) = launch.found()["Job"]
    assert (verdict, said in told, way) == ("fails", True, fix)


def test_who_may_make_no_pods_cannot_ask_whether_they_would_be_taken(api: Api, launch: Launch) -> None:
    """The Job controller may."""
    told = 'pods is forbidden: User "ann" cannot create resource "pods"'
    api.refusals["POST /api/v1/namespaces/mine/pods"] = (403, "Forbidden", told)
    assert verdicts(launch.found())["Job"] == "fine"


def test_without_a_launch_what_needs_none_is_looked_at(launch: Launch) -> None:
    found = launch.found(with_plan=False)
    fine = dict.fromkeys(("API", "rights", "namespace"), "fine")
    assert verdicts(found) == {**fine, **dict.fromkeys(("Job", "quota"), "unknown")}
    assert verdicts(launch.found(IMAGE="not an image"))["Job"] == "unknown", "settings of the backend are wrong"


def test_a_context_that_nobody_has_named_is_told(launch: Launch) -> None:
    """A launch asks a person then."""
    assert "context tests is the kubeconfig's current one" in launch.found(KUBE_CONTEXT="")["API"][0][1]


def test_an_api_that_does_not_answer_fails_and_the_rest_is_not_known(api: Api, launch: Launch) -> None:
    api.refusals["/version"] = (503, "Unavailable", "no")
    found = launch.found()
    assert found["API"][0][0] == "fails"
    assert {ones[0][:2] for item, ones in found.items() if item != "API"} == {("unknown", "the API cannot be asked")}


def test_a_kubeconfig_that_is_not_there_fails(tmp_path: Path) -> None:
    """Without a double for who is asked."""
    given = {"KUBECONFIG": str(tmp_path / "none")}
    found = list(check_of("kubernetes")(Checked("plain", 2, tmp_path, given, None), lambda _: None))
    assert [(one.item, str(one.verdict)) for one in found][:2] == [("API", "fails"), ("rights", "unknown")]


@pytest.mark.parametrize(
    ("part", "item"),
    [
        ("selfsubjectaccessreviews", "rights"),
        ("GET /api/v1/namespaces/mine?", "namespace"),
        ("POST /apis/batch/v1/namespaces/mine/jobs", "Job"),
        ("/resourcequotas", "quota"),
    ],
)
def test_what_the_api_does_not_tell_is_not_known(api: Api, launch: Launch, part: str, item: str) -> None:
    """Neither what is forbidden nor what failed passes for fine; the others are looked at all the same."""
    api.refusals[part] = forbidden("get", item, "")
    found = launch.found()
    assert (found[item][0][0], found["API"][0][0]) == ("unknown", "fine")
    assert found[item][0][1].startswith("you may not look at it: ")
    api.refusals[part] = (500, "InternalError", "broken") if item != "Job" else (0, "", "")
    if item != "Job":
        assert launch.found()[item][0][0] == "unknown"


# --- Rights and namespace ---------------------------------------------------------------------------------------------


def test_the_rights_are_those_of_the_page() -> None:
    """Of its Role, each verb once."""
    named = [(right.group, right.resource, right.verb) for right in RIGHTS]
    assert (set(named), len(named)) == (documented(), len(documented()))


@pytest.mark.parametrize("right", [right for right in RIGHTS if not right.without])
def test_each_right_that_is_missing_is_named_with_its_rule(api: Api, launch: Launch, right: Any) -> None:
    api.lacking = {(right.group, right.resource, right.verb)}
    ((verdict, text, fix),) = launch.found(with_plan=False)["rights"]
    assert (verdict, text.startswith(f"{right.verb} of {right.kind} in namespace mine")) == ("fails", True)
    group = right.group or '""'
    assert fix.startswith(f"- {{apiGroups: [{group}], resources: [{right.resource}], verbs: [{right.verb}]}}")


def test_rights_without_which_a_launch_says_less_are_told(api: Api, launch: Launch) -> None:
    """They are no failure."""
    api.lacking = {("", "events", "list"), ("", "pods/portforward", "create"), ("", "pods/portforward", "get")}
    ((verdict, text, _),) = launch.found()["rights"]
    less = "events: why pods cannot be made is not told; pods/portforward: connect.sh reaches no port"
    assert (verdict, text) == ("fine", f"all {len(RIGHTS) - 3} that a launch needs in mine; {less}")


def test_a_namespace_that_is_not_there_fails(api: Api, launch: Launch) -> None:
    """And nothing in it is looked at."""
    del api.objects[NAMESPACE]
    found = launch.found()
    assert found["namespace"] == [("fails", "there is no namespace mine", "kubectl create namespace mine")]
    assert found["Job"][0][:2] == ("unknown", "its namespace is not there")


def test_a_namespace_that_is_being_removed_fails(api: Api, launch: Launch) -> None:
    api.objects[NAMESPACE]["status"]["phase"] = "Terminating"
    assert launch.found()["namespace"][0][:2] == ("fails", "mine is Terminating")


# --- The Job ----------------------------------------------------------------------------------------------------------


def test_a_job_that_the_api_would_refuse_fails(api: Api, launch: Launch) -> None:
    """In the API's words; also where only its pods would be refused."""
    api.refusals["POST /apis/batch/v1/namespaces/mine/jobs"] = (422, "Invalid", "spec: what is this?")
    ((verdict, text, _),) = launch.found()["Job"]
    assert (verdict, "spec: what is this?" in text) == ("fails", True)
    api.refusals.clear()
    api.warning = 'would violate PodSecurity \\"restricted:latest\\"'
    ((verdict, text, _),) = launch.found()["Job"]
    assert (verdict, text.startswith("its pods would be refused: would violate PodSecurity")) == ("fails", True)


def test_code_that_does_not_fit_fails(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oci_cluster.backends.kubernetes.cluster.manifests.MOST_CODE_BYTES", 10)
    ((verdict, text, _),) = launch.found()["Job"]
    assert (verdict, "fit into a Secret" in text) == ("fails", True)


def test_findings_are_one_line_each(launch: Launch) -> None:
    """The report shows them as they are."""
    assert [one for ones in launch.found().values() for _, one, _ in ones if "\n" in one] == []
