"""What costs nothing either: a policy that allows Object Storage something, and how long it takes to count."""

from __future__ import annotations

import time
from typing import Any

from smoke_oci.guesses import Findings
from smoke_oci.tenancy import Refused, Tenancy, request_id

_GUESS = "policy-at-once"
# What Object Storage says of a bucket in which it may not delete. As long as setup.sh waits until it may.
_LACKS, _WITHIN_S = "InsufficientServicePermissions", 300
_RULE = {"action": "DELETE", "timeAmount": 365, "timeUnit": "DAYS", "target": "objects", "isEnabled": True}


def policies(tenancy: Tenancy, findings: Findings) -> None:
    """Give an empty bucket a lifecycle policy, which Object Storage refuses until it may delete there."""
    try:
        _policies(tenancy, findings)
    except Refused as refused:  # most people may not make policies
        evidence = f"refused to who asks: {refused}"
        findings.note(_GUESS, is_right=None, evidence=evidence, request_id=refused.request_id)


def _policies(tenancy: Tenancy, findings: Findings) -> None:
    tenancy.create_bucket()
    if kept := _kept(tenancy):
        evidence = "another policy allows it already"
        findings.note(_GUESS, is_right=None, evidence=evidence, request_id=request_id(kept))
        return
    who = f"service objectstorage-{tenancy.service.region}"
    made = tenancy.create_policy(f"allow {who} to manage object-family in {{}} where target.bucket.name = '{{}}'")
    began, tries = time.monotonic(), 0

    def counts() -> Any:
        nonlocal tries
        tries += 1
        return _kept(tenancy)

    is_counting = tenancy.until(counts, minutes=_WITHIN_S / 60)
    told = f"it counts {time.monotonic() - began:.0f} s after it was made"
    evidence = told if is_counting else f"it does not count within {_WITHIN_S} s"
    is_right = bool(is_counting) and tries == 1
    findings.note(_GUESS, is_right=is_right, evidence=evidence, request_id=request_id(made))


def _kept(tenancy: Tenancy) -> Any:
    """Return the answer to the lifecycle policy; None where Object Storage may not do what it says."""
    try:
        return tenancy.put_lifecycle({"items": [{"name": tenancy.name, **_RULE}]})
    except Refused as refused:
        if refused.code != _LACKS:
            raise
        return None
