"""Which permissions verbs and resource types stand for, and which of them an operation needs.

Object Storage, Logging, the registry and the network are as in Oracle's policy reference. Data Science is a guess: each
of its types has INSPECT, READ, UPDATE, CREATE and DELETE, as others have. README.md says more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

VERBS = ("inspect", "read", "use", "manage")
# Of an operation that is not in the table: who may manage all resources may do it.
OTHER = "OTHER"


def _data_science(name: str, *more: str) -> tuple[str, ...]:
    kind = f"DATA_SCIENCE_{name}"
    manage = " ".join(f"{kind}_{word}" for word in ("CREATE", "DELETE", *more))
    return (f"{kind}_INSPECT", f"{kind}_READ", f"{kind}_UPDATE", manage)


def _network(name: str, *, use: str = "", manage: str = "CREATE UPDATE DELETE") -> tuple[str, ...]:
    return (f"{name}_READ", "", " ".join(f"{name}_{w}" for w in use.split()), _all(name, manage))


def _all(name: str, words: str) -> str:
    return " ".join(f"{name}_{word}" for word in words.split())


# What each verb adds to the verb before it: inspect, read, use, manage.
TYPES: Mapping[str, tuple[str, ...]] = {
    "data-science-projects": _data_science("PROJECT"),
    "data-science-jobs": _data_science("JOB"),
    "data-science-job-runs": _data_science("JOB_RUN", "CANCEL"),
    "data-science-work-requests": _data_science("WORK_REQUEST"),
    "data-science-notebook-sessions": _data_science("NOTEBOOK_SESSION"),
    "data-science-models": _data_science("MODEL"),
    "vcns": _network("VCN", manage="ATTACH DETACH CREATE UPDATE DELETE"),
    "subnets": _network("SUBNET", use="ATTACH DETACH"),
    "route-tables": _network("ROUTE_TABLE", manage="ATTACH DETACH CREATE UPDATE DELETE"),
    "security-lists": _network("SECURITY_LIST", manage="ATTACH DETACH CREATE UPDATE DELETE"),
    "dhcp-options": _network("DHCP", manage="ATTACH DETACH CREATE UPDATE DELETE"),
    "nat-gateways": ("", "NAT_GATEWAY_READ", "NAT_GATEWAY_ATTACH", _all("NAT_GATEWAY", "CREATE UPDATE DELETE")),
    "internet-gateways": _network("INTERNET_GATEWAY", manage="ATTACH DETACH CREATE UPDATE DELETE"),
    "service-gateways": (
        "",
        "SERVICE_GATEWAY_READ",
        "SERVICE_GATEWAY_ATTACH",
        _all("SERVICE_GATEWAY", "CREATE UPDATE DELETE"),
    ),
    "network-security-groups": (
        "NETWORK_SECURITY_GROUP_INSPECT",
        "NETWORK_SECURITY_GROUP_READ NETWORK_SECURITY_GROUP_LIST_SECURITY_RULES NETWORK_SECURITY_GROUP_LIST_MEMBERS",
        "NETWORK_SECURITY_GROUP_UPDATE_MEMBERS",
        _all("NETWORK_SECURITY_GROUP", "CREATE UPDATE DELETE UPDATE_SECURITY_RULES"),
    ),
    "private-ips": ("", "PRIVATE_IP_READ", _all("PRIVATE_IP", "ASSIGN UNASSIGN CREATE UPDATE DELETE"), ""),
    "vnics": _network("VNIC", use="ATTACH DETACH CREATE UPDATE DELETE", manage=""),
    "objectstorage-namespaces": ("", "", "", _all("OBJECTSTORAGE_NAMESPACE", "READ UPDATE")),
    "buckets": ("BUCKET_INSPECT", "BUCKET_READ", "BUCKET_UPDATE", _all("BUCKET", "CREATE DELETE")),
    "objects": ("OBJECT_INSPECT", "OBJECT_READ", "OBJECT_OVERWRITE", _all("OBJECT", "CREATE DELETE VERSION_DELETE")),
    "log-groups": ("LOG_GROUP_INSPECT", "LOG_GROUP_READ", "LOG_GROUP_UPDATE", _all("LOG_GROUP", "CREATE DELETE")),
    "log-content": ("", "LOG_CONTENT_READ", "LOG_CONTENT_PUSH", ""),
    "unified-configuration": ("UNIFIED_AGENT_CONFIG_INSPECT", "UNIFIED_AGENT_CONFIG_READ", "", ""),
    "repos": ("REPOSITORY_INSPECT", "REPOSITORY_READ", "", _all("REPOSITORY", "CREATE DELETE UPDATE MANAGE")),
    "compartments": ("COMPARTMENT_INSPECT", "", "COMPARTMENT_UPDATE", _all("COMPARTMENT", "CREATE DELETE")),
    "users": ("USER_INSPECT", "USER_READ", "USER_UPDATE", _all("USER", "CREATE DELETE APIKEY_ADD")),
    "groups": ("GROUP_INSPECT", "", "GROUP_UPDATE", _all("GROUP", "CREATE DELETE")),
    "dynamic-groups": ("DYNAMIC_GROUP_INSPECT", "", "DYNAMIC_GROUP_UPDATE", _all("DYNAMIC_GROUP", "CREATE DELETE")),
    "policies": ("POLICY_READ", "", "", _all("POLICY", "CREATE UPDATE DELETE")),
    "tag-namespaces": ("TAG_NAMESPACE_INSPECT", "", "TAG_NAMESPACE_USE", _all("TAG_NAMESPACE", "CREATE UPDATE DELETE")),
    "tag-defaults": ("TAG_DEFAULT_INSPECT", "", "", _all("TAG_DEFAULT", "CREATE UPDATE DELETE")),
    "domains": ("DOMAIN_INSPECT", "DOMAIN_READ", "DOMAIN_UPDATE", _all("DOMAIN", "CREATE DELETE")),
    "tenancies": ("TENANCY_INSPECT", "", "", ""),
    "bastion": ("BASTION_INSPECT", "BASTION_READ", "BASTION_USE", _all("BASTION", "CREATE UPDATE DELETE MOVE")),
    "bastion-session": (
        "BASTION_SESSION_INSPECT",
        "BASTION_SESSION_READ",
        "BASTION_SESSION_UPDATE",
        _all("BASTION_SESSION", "CREATE DELETE"),
    ),
    # Which of them lists need, and which what is left of a limit: README.md.
    "resource-availability": ("RESOURCE_AVAILABILITY_INSPECT", "RESOURCE_AVAILABILITY_READ", "", ""),
    "compute-capacity-reports": ("", "", "", "COMPUTE_CAPACITY_REPORT_CREATE"),
    "compute-capacity-reservations": ("", "CAPACITY_RESERVATION_READ", "", "CAPACITY_RESERVATION_CREATE"),
    "secret-bundles": ("SECRET_BUNDLE_INSPECT", "SECRET_BUNDLE_READ", "", ""),
    "metrics": ("METRIC_INSPECT", "METRIC_READ", "METRIC_WRITE", ""),
}
FAMILIES: Mapping[str, Sequence[str]] = {
    "data-science-family": [name for name in TYPES if name.startswith("data-science-")],
    "virtual-network-family": [
        *("vcns", "subnets", "route-tables", "security-lists", "network-security-groups", "private-ips", "vnics"),
        *("nat-gateways", "internet-gateways", "service-gateways", "dhcp-options"),
    ],
    "object-family": ["objectstorage-namespaces", "buckets", "objects"],
    "bastion-family": ["bastion", "bastion-session"],
    "logging-family": ["log-groups", "log-content", "unified-configuration"],
    "all-resources": list(TYPES),
}


def permissions_of(verb: str, resource: str) -> frozenset[str] | None:
    """Return what *verb* and *resource*, a type or a family, stand for; None where there is no such resource."""
    types = FAMILIES.get(resource, [resource])
    if not set(types) <= set(TYPES):
        return None
    added = (part for name in types for part in TYPES[name][: VERBS.index(verb) + 1])
    found = {word for part in added for word in part.split()}
    return frozenset(found | ({OTHER} if (verb, resource) == ("manage", "all-resources") else set()))


# The permissions that an operation needs, each of what: a part of the path or of the query, a field of the body
# (body.x), the compartment that is named in body or query, the tenancy, the bucket, or the object. One of several: A|B.
# Nothing: everybody may. Those of which body or state decide are in access.py.
_DATA_SCIENCE = {
    "create_project": "DATA_SCIENCE_PROJECT_CREATE compartment",
    "list_projects": "DATA_SCIENCE_PROJECT_INSPECT compartment",
    "get_project": "DATA_SCIENCE_PROJECT_READ id",
    "create_job": "DATA_SCIENCE_JOB_CREATE compartment",
    "list_jobs": "DATA_SCIENCE_JOB_INSPECT compartment",
    "get_job": "DATA_SCIENCE_JOB_READ id",
    "update_job": "DATA_SCIENCE_JOB_UPDATE id",
    "delete_job": "DATA_SCIENCE_JOB_DELETE id",
    "create_job_artifact": "DATA_SCIENCE_JOB_CREATE id",
    "get_job_artifact_content": "DATA_SCIENCE_JOB_READ id",
    "head_job_artifact": "DATA_SCIENCE_JOB_READ id",
    "create_job_run": (
        "DATA_SCIENCE_JOB_RUN_CREATE compartment, DATA_SCIENCE_JOB_READ body.jobId,"
        " DATA_SCIENCE_PROJECT_READ body.projectId"
    ),
    "list_job_runs": "DATA_SCIENCE_JOB_RUN_INSPECT compartment",
    "get_job_run": "DATA_SCIENCE_JOB_RUN_READ id",
    "update_job_run": "DATA_SCIENCE_JOB_RUN_UPDATE id",
    "delete_job_run": "DATA_SCIENCE_JOB_RUN_DELETE id",
    "cancel_job_run": "DATA_SCIENCE_JOB_RUN_CANCEL id",
    "list_job_shapes": "DATA_SCIENCE_JOB_INSPECT compartment",
    "list_fast_launch_job_configs": "DATA_SCIENCE_JOB_INSPECT compartment",
    "get_work_request": "DATA_SCIENCE_WORK_REQUEST_READ id",
}
_STORAGE = {
    "get_namespace": "",
    "get_namespace_metadata": "OBJECTSTORAGE_NAMESPACE_READ tenancy",
    "list_buckets": "BUCKET_INSPECT compartment",
    "create_bucket": "BUCKET_CREATE compartment",
    "get_bucket": "BUCKET_READ bucket",
    "head_bucket": "BUCKET_INSPECT bucket",
    "delete_bucket": "BUCKET_DELETE bucket",
    "list_retention_rules": "BUCKET_READ bucket",
    "get_object_lifecycle_policy": "BUCKET_READ bucket",
    "put_object_lifecycle_policy": "BUCKET_UPDATE bucket, OBJECT_CREATE bucket, OBJECT_DELETE bucket",
    "delete_object_lifecycle_policy": "BUCKET_UPDATE bucket",
    "list_objects": "OBJECT_INSPECT bucket",
    "get_object": "OBJECT_READ object",
    "head_object": "OBJECT_INSPECT|OBJECT_READ object",
    "delete_object": "OBJECT_DELETE object",
    "list_multipart_uploads": "BUCKET_READ bucket",
    "list_multipart_upload_parts": "OBJECT_INSPECT object",
    "upload_part": "OBJECT_CREATE object, OBJECT_OVERWRITE object",
    "commit_multipart_upload": "OBJECT_CREATE object, OBJECT_OVERWRITE object",
    "abort_multipart_upload": "OBJECT_DELETE object",
    "get_work_request": "OBJECT_READ tenancy",
}
_NETWORK = {
    "create_internet_gateway": "INTERNET_GATEWAY_CREATE compartment, VCN_ATTACH body.vcnId",
    "list_internet_gateways": "INTERNET_GATEWAY_READ compartment",
    "get_internet_gateway": "INTERNET_GATEWAY_READ id",
    "update_internet_gateway": "INTERNET_GATEWAY_UPDATE id",
    "delete_internet_gateway": "INTERNET_GATEWAY_DELETE id",
    "create_service_gateway": "SERVICE_GATEWAY_CREATE compartment, VCN_ATTACH body.vcnId",
    "list_service_gateways": "SERVICE_GATEWAY_READ compartment",
    "get_service_gateway": "SERVICE_GATEWAY_READ id",
    "update_service_gateway": "SERVICE_GATEWAY_UPDATE id",
    "delete_service_gateway": "SERVICE_GATEWAY_DELETE id",
    "update_nat_gateway": "NAT_GATEWAY_UPDATE id",
    "delete_nat_gateway": "NAT_GATEWAY_DELETE id",
    "list_services": "",
    "update_route_table": "ROUTE_TABLE_UPDATE id",
    "delete_subnet": "SUBNET_DELETE id",
    "create_network_security_group": "NETWORK_SECURITY_GROUP_CREATE compartment, VCN_READ body.vcnId",
    "list_network_security_groups": "NETWORK_SECURITY_GROUP_INSPECT compartment",
    "get_network_security_group": "NETWORK_SECURITY_GROUP_READ id",
    "delete_network_security_group": "NETWORK_SECURITY_GROUP_DELETE id",
    "list_network_security_group_security_rules": "NETWORK_SECURITY_GROUP_LIST_SECURITY_RULES id",
    "list_network_security_group_vnics": "NETWORK_SECURITY_GROUP_LIST_MEMBERS id",
    "add_network_security_group_security_rules": "NETWORK_SECURITY_GROUP_UPDATE_SECURITY_RULES id",
    "create_private_ip": "PRIVATE_IP_CREATE body.subnetId, PRIVATE_IP_ASSIGN body.subnetId",
    "list_private_ips": "PRIVATE_IP_READ subnetId",
    "get_private_ip": "PRIVATE_IP_READ id",
    "delete_private_ip": "PRIVATE_IP_DELETE id",
    "create_vcn": "VCN_CREATE compartment",
    "list_vcns": "VCN_READ compartment",
    "get_vcn": "VCN_READ id",
    "create_nat_gateway": "NAT_GATEWAY_CREATE compartment, VCN_ATTACH body.vcnId",
    "list_nat_gateways": "NAT_GATEWAY_READ compartment",
    "get_nat_gateway": "NAT_GATEWAY_READ id",
    "create_route_table": "ROUTE_TABLE_CREATE compartment, VCN_ATTACH body.vcnId",
    "list_route_tables": "ROUTE_TABLE_READ compartment",
    "get_route_table": "ROUTE_TABLE_READ id",
    "create_security_list": "SECURITY_LIST_CREATE compartment, VCN_ATTACH body.vcnId",
    "list_security_lists": "SECURITY_LIST_READ compartment",
    "get_security_list": "SECURITY_LIST_READ id",
    "update_security_list": "SECURITY_LIST_UPDATE id",
    "create_subnet": (
        "SUBNET_CREATE compartment, VCN_ATTACH body.vcnId, ROUTE_TABLE_ATTACH body.routeTableId,"
        " SECURITY_LIST_ATTACH body.securityListIds"
    ),
    "list_subnets": "SUBNET_READ compartment",
    "get_subnet": "SUBNET_READ id",
    "get_dhcp_options": "DHCP_READ id",
    "update_subnet": (
        "SUBNET_UPDATE id, ROUTE_TABLE_ATTACH body.routeTableId, SECURITY_LIST_ATTACH body.securityListIds"
    ),
}
_IDENTITY = {
    "list_compartments": "COMPARTMENT_INSPECT compartment",
    "get_compartment": "COMPARTMENT_INSPECT id",
    "create_compartment": "COMPARTMENT_CREATE compartment",
    "list_policies": "POLICY_READ compartment",
    "create_policy": "POLICY_CREATE compartment",
    "get_policy": "POLICY_READ id",
    "update_policy": "POLICY_UPDATE id",
    "delete_policy": "POLICY_DELETE id",
    "list_dynamic_groups": "DYNAMIC_GROUP_INSPECT tenancy",
    "create_dynamic_group": "DYNAMIC_GROUP_CREATE tenancy",
    "get_dynamic_group": "DYNAMIC_GROUP_INSPECT tenancy",
    "update_dynamic_group": "DYNAMIC_GROUP_UPDATE tenancy",
    "delete_dynamic_group": "DYNAMIC_GROUP_DELETE tenancy",
    "list_groups": "GROUP_INSPECT tenancy",
    "create_group": "GROUP_CREATE tenancy",
    "add_user_to_group": "GROUP_UPDATE tenancy, USER_UPDATE tenancy",
    "list_user_group_memberships": "GROUP_INSPECT tenancy, USER_INSPECT tenancy",
    "get_group": "GROUP_INSPECT tenancy",
    "list_users": "USER_INSPECT tenancy",
    "create_user": "USER_CREATE tenancy",
    "get_user": "USER_READ tenancy",
    "upload_api_key": "USER_APIKEY_ADD tenancy",
    "assemble_effective_tag_set": "TAG_DEFAULT_INSPECT compartment",
    "get_tag_namespace": "TAG_NAMESPACE_INSPECT tenancy",
    "list_domains": "DOMAIN_INSPECT tenancy",
    "list_regions": "",
    "get_tenancy": "TENANCY_INSPECT tenancy",
    "list_region_subscriptions": "TENANCY_INSPECT tenancy",
    "list_availability_domains": "COMPARTMENT_INSPECT compartment",
}
_ARTIFACTS = {
    "create_container_repository": "REPOSITORY_CREATE compartment",
    "list_container_repositories": "REPOSITORY_INSPECT compartment",
    "get_container_repository": "REPOSITORY_READ id",
    "delete_container_repository": "REPOSITORY_DELETE id",
    "list_container_images": "REPOSITORY_INSPECT compartment",
}
_LOGGING = {
    "create_log_group": "LOG_GROUP_CREATE compartment",
    "list_log_groups": "LOG_GROUP_INSPECT compartment",
    "get_log_group": "LOG_GROUP_READ group",
    "delete_log_group": "LOG_GROUP_DELETE group",
    "create_log": "LOG_GROUP_CREATE group",
    "list_logs": "LOG_GROUP_INSPECT group",
    "get_log": "LOG_GROUP_READ group",
    "update_log": "LOG_GROUP_UPDATE group",
    "delete_log": "LOG_GROUP_DELETE group",
    "get_work_request": "",
}
_BASTION = {
    "create_bastion": "BASTION_CREATE compartment, VCN_READ compartment, SUBNET_READ body.targetSubnetId",
    "list_bastions": "BASTION_INSPECT compartment",
    "get_bastion": "BASTION_READ id",
    "update_bastion": "BASTION_UPDATE id",
    "create_session": "BASTION_USE body.bastionId, BASTION_SESSION_CREATE body.bastionId",
    "list_sessions": "BASTION_SESSION_INSPECT bastionId",
    "get_session": "BASTION_SESSION_READ id",
    "delete_session": "BASTION_SESSION_DELETE id",
    "get_work_request": "",
}
_LIMITS = {
    "list_services": "RESOURCE_AVAILABILITY_INSPECT tenancy",
    "list_limit_definitions": "RESOURCE_AVAILABILITY_INSPECT tenancy",
    "list_limit_values": "RESOURCE_AVAILABILITY_INSPECT tenancy",
    "get_resource_availability": "RESOURCE_AVAILABILITY_READ compartment",
}
_COMPUTE = {
    "create_compute_capacity_report": "COMPUTE_CAPACITY_REPORT_CREATE tenancy",
    "create_compute_capacity_reservation": "CAPACITY_RESERVATION_CREATE compartment",
    "get_compute_capacity_reservation": "CAPACITY_RESERVATION_READ id",
}
OPERATIONS: Mapping[str, Sequence[tuple[str, str]]] = {
    f"{service}.{operation}": [tuple(need.split()) for need in needs.split(",") if need]  # type: ignore[misc]
    for service, operations in (
        ("data_science", _DATA_SCIENCE),
        ("object_storage", _STORAGE),
        ("virtual_network", _NETWORK),
        ("identity", _IDENTITY),
        ("artifacts", _ARTIFACTS),
        ("logging", _LOGGING),
        ("bastion", _BASTION),
        ("limits", _LIMITS),
        ("compute", _COMPUTE),
        ("registry", {"get_token": ""}),
        ("identity_domains", dict.fromkeys(("list_groups", "list_dynamic_resource_groups"), "DOMAIN_READ tenancy")),
        ("secrets", {"get_secret_bundle": "SECRET_BUNDLE_READ secret"}),
        ("logging_ingestion", {"put_logs": "LOG_CONTENT_PUSH log"}),
    )
    for operation, needs in operations.items()
}
