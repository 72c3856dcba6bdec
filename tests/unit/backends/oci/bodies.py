"""What a launch of the backend `oci` sends, of settings that a test names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from unit.fake_oci import IMAGE, SUBNET, Checkout

from oci_cluster.backends.oci.jobs import requests as oci_requests
from oci_cluster.backends.oci.settings import settings_of
from oci_cluster.contract.cluster import Plan

RESERVATION = "ocid1.capacityreservation.oc1.iad.aaaareservation"
GROUP = "ocid1.loggroup.oc1.iad.aaaagroup"
LOG = "ocid1.log.oc1.iad.aaaalog"
DIGEST = f"sha256:{'a1' * 32}"
HOSTILE = [
    "plain",
    'it\'s "quoted" `id` $(id) $HOME \\ \\n',
    "two\nlines\r\tand more",
    "{{ 7 * 7 }} {% raw %} {# #}",
    "</script><b>&amp;",
    "h\u00e9 \u65e5\u672c \U0001f600 \u2028",
    "-x --from-json file://secret",
    "",
]
EVERYTHING = {
    "IMAGE": f"{IMAGE}@{DIGEST}",
    "SUBNET_OCID": SUBNET,
    "LOG_GROUP_OCID": GROUP,
    "LOG_OCID": LOG,
    "STORAGE_MOUNTS": "data=oci://data@ns",
    "TTL": "1h",
    "OCPUS": "0",
    "MEMORY_GBS": "0",
    "SHAPE": "VM.GPU.A10.1",
}
SIGNATURE = "ocid1.containerimagesignature.oc1.iad.aaaasignature"
# What companies ask for, and a machine of its own for each role.
COMPANY = {
    "DESCRIPTION": "digits, every night",
    "FREEFORM_TAGS": "'on call=it is me'",
    "DEFINED_TAGS": "Operations.CostCenter=42 Operations.Owner=me Finance.Project=x",
    "IMAGE_SIGNATURE_ID": SIGNATURE,
    "SHAPE": "VM.Standard.E4.Flex",
    "OCPUS": "",
    "MEMORY_GBS": "",
    "MAIN_OCPUS": "2",
    "WORKER_SHAPE": "VM.GPU.A10.1",
    "PS_SHAPE": "VM.Standard.E5.Flex",
    "PS_MEMORY_GBS": "8",
}


def bodies(checkout: Checkout, plan: Plan | None = None, **given: str) -> tuple[Any, Any]:
    """Return what a launch sends: the Job, and the Job Runs by their nodes."""
    plan = plan or checkout.plan(**given)
    checked = settings_of(plan, checkout.root)
    environment = oci_requests.node_environment(plan, code_uri="oci://b@n/c#sha256=1", subnet_cidr="10.0.0.0/24")
    plan = replace(plan, environment=environment)
    job = oci_requests.job(plan, checked, checkout.root)
    runs = oci_requests.job_runs(plan, checked, checkout.root)
    return job, {node: {"jobId": "ocid1.job", **body} for node, body in runs.items()}
