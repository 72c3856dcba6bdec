"""Pods that the API takes from nobody as they are: what is to change, where waiting changes nothing."""

from __future__ import annotations

import re

# Of the words in which the admission of Kubernetes refuses a pod: ResourceQuota, LimitRange, Pod Security,
# ServiceAccount, webhooks. "exceeded quota" is none of them: others give back what they use.
_WAYS_OUT = (
    (r"must specify limits\.cpu", "set CPU_LIMIT"),
    (r"must specify ", "set what it names, in POD_PATCH"),
    (r"maximum \S+ usage per ", "lower CPUS, CPU_LIMIT or MEMORY"),
    (r"minimum \S+ usage per |limit to request ratio per ", "set CPUS, CPU_LIMIT or MEMORY as it says"),
    (r"violates PodSecurity", "leave out what it names, in POD_PATCH, VOLUMES or HOST_NETWORK"),
    (r"service ?account .*not found", "set SERVICE_ACCOUNT to one that there is"),
    (r"admission webhook .* denied|ValidatingAdmissionPolicy", "change what it names, or ask who has set that rule"),
)


def way_out(message: str) -> str:
    """Return what to do about pods that were refused with *message*; empty where they may be taken later."""
    return next((way for pattern, way in _WAYS_OUT if re.search(pattern, message)), "")
