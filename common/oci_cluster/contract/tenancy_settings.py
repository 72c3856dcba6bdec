"""The rows of the table of settings that say what a tenancy of OCI has for clusters, and where."""

from __future__ import annotations

from functools import partial
from typing import Any

from oci_cluster.contract.setting import Receiver, Setting
from oci_cluster.contract.values import parse_count


def _tenancy(name: str, meaning: str, default: str = "", **more: Any) -> Setting:
    return Setting(name, Receiver.TENANCY, meaning, default=default, **more)


TENANCY_SETTINGS: tuple[Setting, ...] = (
    _tenancy(
        "PEOPLE_GROUP", "the group of those who launch; of another identity domain `domain/name`", "data-scientists"
    ),
    _tenancy(
        "NODES_GROUP", "the dynamic group of the Job Runs; of another identity domain `domain/name`", "cluster-runs"
    ),
    _tenancy("POLICY_NAME", "the policy that has the statements, in the root compartment", "clusters"),
    _tenancy(
        "IMAGES_COMPARTMENT_OCID",
        "the compartment of the repositories",
        computed_default="`COMPARTMENT_OCID`",
        example="ocid1.compartment.oc1..bbbb",
    ),
    _tenancy(
        "NETWORK_COMPARTMENT_OCID",
        "the compartment of the subnet",
        computed_default="the subnet's own, without one `COMPARTMENT_OCID`",
        example="ocid1.compartment.oc1..cccc",
    ),
    _tenancy(
        "KEEP_CLUSTERS_DAYS",
        "after so many days the bucket deletes what is below `WORK_DIR`: logs, code and outputs; 0: never",
        "90",
        parse=partial(parse_count, maximum=36500),
    ),
    _tenancy("LOG_GROUP_NAME", "the log group, without `LOG_GROUP_OCID`; `none`: none", "clusters"),
)
