"""Pods that the rules of a namespace refuse: check.sh says it before, and a launch ends at once; with the way out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import wait_until
from kube import jobs
from kube.api import RefusedError
from kube.cluster import Cluster
from kube.launches import SOON_S, Site

DOCS = Path(__file__).resolve().parents[2] / "docs"
POLICIES = "apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
QUOTA = {"metadata": {"name": "company"}, "spec": {"hard": {"limits.cpu": "8", "limits.memory": "8Gi"}}}
LIMITS = {"metadata": {"name": "small"}, "spec": {"limits": [{"type": "Container", "max": {"memory": "128Mi"}}]}}
SECURE = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}


@pytest.mark.parametrize(
    ("kind", "rule", "environ", "said", "way", "fixed"),
    [
        ("resourcequotas", QUOTA, {}, "must specify limits.cpu", "set CPU_LIMIT", {"CPU_LIMIT": "1"}),
        ("limitranges", LIMITS, {}, "maximum memory usage per Container is 128Mi", "MEMORY", {"MEMORY": "128m"}),
        ("", SECURE, {"HOST_NETWORK": "1"}, "(hostNetwork=true)", "HOST_NETWORK", {"HOST_NETWORK": "0"}),
        ("", {}, {"SERVICE_ACCOUNT": "nobody"}, '"nobody" not found', "SERVICE_ACCOUNT", {"SERVICE_ACCOUNT": ""}),
    ],
    ids=["ResourceQuota", "LimitRange", "Pod Security", "ServiceAccount"],
)
def test_what_no_waiting_would_fix_ends_a_launch_with_the_way_out(
    site: Site,
    kubernetes: Cluster,
    *,
    kind: str,
    rule: dict[str, Any],
    environ: dict[str, str],
    said: str,
    way: str,
    fixed: dict[str, str],
) -> None:
    namespace = f"api/v1/namespaces/{site.namespace}"
    if kind:
        kubernetes.api.create(f"{namespace}/{kind}", rule)
    elif rule:
        kubernetes.api.patch(namespace, rule)
    entry = site.project.write("t.py", "print('done')")
    found = site.project.run("check", "plain", "1", "--entry", entry, **environ)
    assert found.returncode == 1, found.stdout + found.stderr
    assert said in " ".join(found.stdout.split()), found.stdout
    launch = site.launch("plain", 1, "print('done')", **environ)
    assert launch.wait(SOON_S) == 78, launch.err
    last = launch.err.splitlines()[-1]
    assert said in last
    assert way in last.partition(said)[2]
    site.assert_nothing_left()
    again = site.launch("plain", 1, "print('done')", **{**environ, **fixed})
    assert again.wait(SOON_S) == 0, again.err


@pytest.mark.parametrize(("kind", "named"), [("secret", "Secret 'keys'"), ("configmap", "ConfigMap 'keys'")])
def test_what_a_volume_names_and_is_not_there_is_told_before_anything_is_made(
    site: Site, kind: str, named: str
) -> None:
    """Its pods would wait, and say nothing."""
    launch = site.launch("plain", 1, "print('done')", VOLUMES=f"keys={kind}:keys")
    assert launch.wait(SOON_S) == 78, launch.err
    assert f"VOLUMES: there is no {named} in namespace {site.namespace}" in launch.err.splitlines()[-1]
    site.assert_nothing_left()


@pytest.mark.parametrize("of", ["pods", "jobs"])
def test_a_policy_of_the_administrators_refuses_in_its_own_words_and_leaves_nothing(
    site: Site, kubernetes: Cluster, of: str
) -> None:
    """What is refused first is the Job, which owns the rest; or later its pods."""
    name = f"labels-of-{site.namespace}"
    group = "" if of == "pods" else "batch"
    rules = [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [of]}]
    has_team = "has(object.metadata.labels) && 'team' in object.metadata.labels"
    spec = {
        "matchConstraints": {
            "resourceRules": rules,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": site.namespace}},
        },
        "validations": [{"expression": has_team, "message": "each has a label 'team' here"}],
    }
    kubernetes.api.create(POLICIES, {"metadata": {"name": name}, "spec": spec})
    bound = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
    kubernetes.api.create(BINDINGS, bound)
    try:
        wait_until(lambda: refuses(site, of), "the policy to hold", SOON_S)
        launch = site.launch("plain", 1, "print('done')")
        code = launch.wait(SOON_S)
        last = launch.err.splitlines()[-1]
        assert "each has a label 'team' here" in last, launch.err
        assert code == (78 if of == "pods" else 69), launch.err
        site.assert_nothing_left()
        if of == "pods":
            labels = site.project.write("labels.yaml", "metadata: {labels: {team: vision}}\n")
            again = site.launch("plain", 1, "print('done')", POD_PATCH=str(labels))
            assert again.wait(SOON_S) == 0, again.err
    finally:
        kubernetes.api.delete(f"{BINDINGS}/{name}")
        kubernetes.api.delete(f"{POLICIES}/{name}")


def test_a_priority_is_for_those_whom_the_pages_policy_names(site: Site, kubernetes: Cluster) -> None:
    """Kueue asks no right for it; this is refused to others before anything is made."""
    (block,) = re.findall(r"test_refused_pods.py -->\n```yaml\n(.*?)```", (DOCS / "kueue.md").read_text(), re.DOTALL)
    policy, binding = yaml.safe_load_all(block)
    name = f"high-{site.namespace}"
    policy["metadata"]["name"] = binding["metadata"]["name"] = binding["spec"]["policyName"] = name
    place = {"matchLabels": {"kubernetes.io/metadata.name": site.namespace}}
    policy["spec"]["matchConstraints"]["namespaceSelector"] = place  # others test priorities, too
    labels = {"kueue.x-k8s.io/priority-class": "high", "kueue.x-k8s.io/queue-name": "x"}
    there = f"apis/batch/v1/namespaces/{site.namespace}/jobs"
    for one, its in (("before", labels), ("other", {})):  # suspended: there is no such queue, or nobody pulls this
        kubernetes.api.create(there, jobs.job(one, 1, "true", labels=its))
    kubernetes.api.create(POLICIES, policy)
    kubernetes.api.create(BINDINGS, binding)
    try:
        word = "high priorities are for the group production"
        wait_until(lambda: word in what_refuses(site, "jobs", labels), "the policy to hold", SOON_S)
        ours = {**labels, "kueue.x-k8s.io/priority-class": "low"}
        assert word not in what_refuses(site, "jobs", ours)
        assert word not in what_refuses(site, "jobs", {})
        assert word in what_refuses(site, "jobs", ours, priorityClassName="any")  # Kueue counts that, too
        with pytest.raises(RefusedError, match=word):
            kubernetes.api.patch(f"{there}/other", {"metadata": {"labels": labels}})
        # What Kueue and the Job controller do with a Job that has it: neither is of that group.
        kubernetes.api.patch(f"{there}/before", {"spec": {"suspend": False}})
    finally:
        kubernetes.api.delete(f"{BINDINGS}/{name}")
        kubernetes.api.delete(f"{POLICIES}/{name}")
        for one in ("before", "other"):
            kubernetes.api.delete(f"{there}/{one}")


def refuses(site: Site, of: str) -> bool:
    """Return whether a policy holds already: the API server obeys what it was told a moment ago."""
    return "label 'team'" in what_refuses(site, of, {})


def what_refuses(site: Site, of: str, labels: dict[str, str], **more: str) -> str:
    """Return the words by which something with *labels*, whose pods have *more*, is refused; empty where it is not."""
    inside = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    secure = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {"name": "x", "image": "x", "securityContext": inside}
    pod = {"containers": [container], "restartPolicy": "Never", "securityContext": secure, **more}
    group, spec = ("api/v1", pod) if of == "pods" else ("apis/batch/v1", {"template": {"spec": pod}})
    path = f"{group}/namespaces/{site.namespace}/{of}?dryRun=All"
    try:
        site.kubernetes.api.create(path, {"metadata": {"name": "probe", "labels": labels}, "spec": spec})
    except RefusedError as error:
        return str(error)
    return ""
