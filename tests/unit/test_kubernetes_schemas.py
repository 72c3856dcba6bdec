"""The helper that checks rendered objects against Kubernetes' schemas: does it see what is wrong?"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kube.schemas import VERSIONS, documents, faults
from kubernetes_validate import utils

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "a", "labels": {"a": "b"}},
    "spec": {
        "completionMode": "Indexed",
        "completions": 2,
        "backoffLimitPerIndex": 0,
        "podReplacementPolicy": "Failed",
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "node", "image": "a", "resources": {"requests": {"cpu": "500m", "memory": 1}}}],
            }
        },
    },
}


def test_a_good_object_has_no_fault_in_any_version() -> None:
    assert faults([JOB]) == []
    assert VERSIONS == ("1.33", "1.34", "1.35", "1.36", "1.37")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("spec", "completons"), 2, "'completons' was unexpected"),
        (("spec", "completions"), "2", "'2' is not of type"),
        (("spec", "template", "spec", "containers"), None, "None is not of type"),
        (("apiVersion",), "batch/v3", "Couldn't find schema for kind Job with api version batch/v3"),
    ],
)
def test_a_wrong_field_is_told_by_its_place_for_every_version(path: tuple[str, ...], value: object, said: str) -> None:
    job = copy.deepcopy(JOB)
    place = job
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    found = faults([job])
    assert len(found) == len(VERSIONS)
    assert all(said in line and line.startswith("Job a: 1.3") for line in found), found


def test_a_field_that_only_newer_versions_have_is_told_for_the_older_ones() -> None:
    """Kubernetes 1.35 brought `restartPolicyRules` of a container to beta; 1.33 does not know it."""
    job = copy.deepcopy(JOB)
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [7]}}
    job["spec"]["template"]["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    assert [line.split(": ")[1] for line in faults([job])] == ["1.33"]


def test_a_version_without_schemas_is_not_checked_by_those_of_an_older_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(utils.VersionNotSupportedError):
        faults([JOB], ["1.99"])
    monkeypatch.setattr(utils, "all_versions", lambda: ["1.33.0", "1.34.0", "1.36.0", "1.37.0"])
    assert faults([JOB]) == ["Job a: 1.35: there is no schema of it; kubernetes-validate has 1.34"]


def test_a_text_is_read_as_kubectl_reads_it() -> None:
    text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n---\n"
    assert [item["kind"] for item in documents(text)] == ["Secret"]
    assert faults(text) == []
    assert faults("") == ["there is no object"]
    with pytest.raises(Exception, match="'kind' is there twice"):
        faults("apiVersion: v1\nkind: Secret\nkind: Service\nmetadata: {name: a}\n")


def test_kinds_of_others_are_left_out_by_their_group_alone() -> None:
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "a"}}
    assert faults([queue, JOB], unknown=["kueue.x-k8s.io"]) == []
    assert len(faults([queue, JOB])) == len(VERSIONS)
