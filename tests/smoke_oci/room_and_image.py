"""What costs nothing and makes nothing: service limits, hosts, and the image in its registry."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import oci

from oci_cluster.backends.oci.check.image import Registry
from smoke_oci.guesses import Findings
from smoke_oci.tenancy import Refused, Tenancy

_SERVICE = "data-science"
_IMAGE = re.compile(r"(?P<host>[^/]+)/(?P<repository>.+):(?P<tag>[^:@/]+)")
# So many of its limits are looked at.
_LIMITS = 5
# A name that nobody has given.
_NONE = "smoke-oci-there-is-none"


def room_and_image(tenancy: Tenancy, findings: Findings) -> None:
    """Ask what there is room for, and what the registry has; who may not ask is told nothing."""
    _limits(tenancy, findings, tenancy.root)
    _hosts(tenancy, findings, tenancy.root)
    _image(tenancy, findings)


def _asked(tenancy: Tenancy, what: str, request: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what OCI answers; None where it does not."""
    try:
        return tenancy.ask(what, request, *args, **kwargs)
    except Refused:
        return None


def _limits(tenancy: Tenancy, findings: Findings, root: str) -> None:
    client = tenancy.service.client_of(oci.limits.LimitsClient)
    listed = _asked(tenancy, "list the limits", client.list_limit_values, root, _SERVICE, limit=100)
    if listed is None:
        return
    own = [item for item in listed.data if item.value][:_LIMITS]
    told = []
    for item in own:
        place = {"availability_domain": item.availability_domain} if item.availability_domain else {}
        what = f"look up what is left of {item.name}"
        compartment = tenancy.settings["compartment"]
        answer = _asked(tenancy, what, client.get_resource_availability, _SERVICE, item.name, compartment, **place)
        left = None if answer is None else answer.data.available
        told.append((f"{item.name} {item.availability_domain or ''}: {left}", left is not None))
    if told:
        evidence = "; ".join(text for text, _ in told)
        findings.note("limits-left", is_right=all(is_told for _, is_told in told), evidence=evidence)


def _hosts(tenancy: Tenancy, findings: Findings, root: str) -> None:
    identity = tenancy.service.client_of(oci.identity.IdentityClient)
    domains = _asked(tenancy, "list the availability domains", identity.list_availability_domains, root)
    models, settings = oci.core.models, tenancy.settings
    size = models.CapacityReportInstanceShapeConfig(ocpus=settings["ocpus"], memory_in_gbs=settings["memory_gbs"])
    wanted = models.CreateCapacityReportShapeAvailabilityDetails(
        instance_shape=settings["shape"], instance_shape_config=size if settings["ocpus"] else None
    )
    request = tenancy.service.client_of(oci.core.ComputeClient).create_compute_capacity_report
    told = []
    for domain in domains.data if domains else []:
        details = models.CreateComputeCapacityReportDetails(
            compartment_id=root, availability_domain=domain.name, shape_availabilities=[wanted]
        )
        answer = _asked(tenancy, "ask for hosts", request, details)
        if answer is None:
            return
        told += [
            (domain.name, one.availability_status, one.available_count) for one in answer.data.shape_availabilities
        ]
    known = {"AVAILABLE", "OUT_OF_HOST_CAPACITY", "HARDWARE_NOT_SUPPORTED"}
    if told:
        is_right = {status for _, status, _ in told} <= known
        evidence = "; ".join(f"{domain}: {status}, {count}" for domain, status, count in told)
        findings.note("capacity-report", is_right=is_right, evidence=evidence)


def _image(tenancy: Tenancy, findings: Findings) -> None:
    found = _IMAGE.fullmatch(tenancy.settings["image"])
    if not found:
        return
    registry = Registry(found["host"], tenancy.service.client_of(oci.artifacts.ArtifactsClient))
    repository = found["repository"]
    try:
        image = tenancy.ask("look up the image", registry.image, repository, found["tag"]).data
    except Refused as refused:
        findings.note("registry-bearer", is_right=False, evidence=str(refused))
        return
    evidence = f"{image.digest}, {', '.join(image.platforms) or 'of no platform'}"
    findings.note("registry-bearer", is_right=bool(image.digest and image.platforms), evidence=evidence)
    codes = []
    for name, tag in ((repository, _NONE), (f"{repository.partition('/')[0]}/{_NONE}", found["tag"])):
        try:
            tenancy.ask("look up what is not there", registry.image, name, tag)
            codes.append("it is there")
        except Refused as refused:
            codes.append(f"{refused.status} {refused.code}")
    is_right = codes == ["404 MANIFEST_UNKNOWN", "404 NAME_UNKNOWN"]
    findings.note("registry-codes", is_right=is_right, evidence=f"the tag: {codes[0]}; the repository: {codes[1]}")
