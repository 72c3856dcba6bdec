"""Which refusals of pods no waiting fixes, in the words of Kubernetes' admission."""

from __future__ import annotations

import pytest

from oci_cluster.backends.kubernetes.cluster import states
from oci_cluster.backends.kubernetes.cluster.states import JobView, way_out


@pytest.mark.parametrize(
    ("said", "way"),
    [
        ('pods "p" is forbidden: failed quota: q: must specify limits.cpu for: node', "CPU_LIMIT"),
        ('pods "p" is forbidden: failed quota: q: must specify requests.nvidia.com/gpu for: node', "POD_PATCH"),
        ('pods "p" is forbidden: maximum cpu usage per Container is 1, but limit is 2', "CPU_LIMIT"),
        ('pods "p" is forbidden: minimum memory usage per Pod is 1Gi, but request is 256Mi', "MEMORY"),
        ('pods "p" is forbidden: violates PodSecurity "restricted:latest": host namespaces', "HOST_NETWORK"),
        ('pods "p" is forbidden: error looking up service account a/b: serviceaccount "b" not found', "ACCOUNT"),
        ('admission webhook "policy.example" denied the request: no label team', "who has set that rule"),
        ('pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3', ""),
        ("Internal error occurred: failed calling webhook", ""),
        ("", ""),
    ],
)
def test_what_waiting_does_not_fix_has_a_way_out(said: str, way: str) -> None:
    found = way_out(said)
    assert way in found
    assert bool(found) == bool(way)


def test_pods_that_will_never_be_are_a_main_that_cannot_start() -> None:
    """One node tells it: that is enough to give all up."""
    view = JobView.of({"spec": {"completions": 2}})
    refused = states.states_of(JobView(**{**vars(view), "trouble": "no", "refused": "no; set CPU_LIMIT"}), [])
    assert [(str(one.state), one.exit_code, one.details) for one in refused] == [
        ("FAILED", 78, "no; set CPU_LIMIT"),
        ("NEEDS_ATTENTION", None, "no"),
    ]
