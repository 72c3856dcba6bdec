"""Pods that the rules of a namespace refuse: check.sh says it before, and a launch ends at once; with the way out."""

from __future__ import annotations

from typing import Any

import pytest
from kube.cluster import Cluster
from kube.launches import SOON_S, Site

pytestmark = pytest.mark.timeout(180)

QUOTA = {"metadata": {"name": "company"}, "spec": {"hard": {"limits.cpu": "8", "limits.memory": "8Gi"}}}
LIMITS = {"metadata": {"name": "small"}, "spec": {"limits": [{"type": "Container", "max": {"memory": "128Mi"}}]}}
SECURE = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}


@pytest.mark.parametrize(
    ("kind", "rule", "environ", "said", "way", "mended"),
    [
        ("resourcequotas", QUOTA, {}, "must specify limits.cpu", "set CPU_LIMIT", {"CPU_LIMIT": "1"}),
        ("limitranges", LIMITS, {}, "maximum memory usage per Container is 128Mi", "MEMORY", {"MEMORY": "128m"}),
        ("", SECURE, {"HOST_NETWORK": "1"}, "(hostNetwork=true)", "HOST_NETWORK", {"HOST_NETWORK": "0"}),
        ("", {}, {"SERVICE_ACCOUNT": "nobody"}, '"nobody" not found', "SERVICE_ACCOUNT", {"SERVICE_ACCOUNT": ""}),
    ],
    ids=["ResourceQuota", "LimitRange", "Pod Security", "ServiceAccount"],
)
def test_what_no_waiting_would_mend_ends_a_launch_with_the_way_out(
    site: Site,
    kubernetes: Cluster,
    *,
    kind: str,
    rule: dict[str, Any],
    environ: dict[str, str],
    said: str,
    way: str,
    mended: dict[str, str],
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
    again = site.launch("plain", 1, "print('done')", **{**environ, **mended})
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
