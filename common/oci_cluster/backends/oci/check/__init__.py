"""Checks a launch on OCI: first without asking anybody, then in the tenancy."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from oci_cluster.backends.code import code_of
from oci_cluster.backends.findings import Checked, Finding, Verdict, fails, fine, refused, unknown
from oci_cluster.backends.oci.check import access, limits, network, resources
from oci_cluster.backends.oci.check import image as check_image
from oci_cluster.backends.oci.check.image import key_of, region_named, region_of
from oci_cluster.backends.oci.jobs.requests import MAX_ENVIRONMENT_CHARACTERS, characters_of, node_environment
from oci_cluster.backends.oci.service import Service, service_environ
from oci_cluster.backends.oci.settings import read_settings
from oci_cluster.backends.oci.tenancy.client import NEVER_SEEN, Tenancy
from oci_cluster.backends.oci.tenancy.shapes import FORM, KNOWN, nearest, platform_of
from oci_cluster.contract.cluster import Plan
from oci_cluster.errors import ClusterError, SettingsError
from oci_cluster.system.console import Say

# Source: OCI's documentation of Jobs: the arguments of a run, in all.
_MAX_ARGUMENT_CHARACTERS = 4_000
# Source: OCI's documentation of Compute, "Flexible Shapes": for each core 1 to 64 GB.
_MOST_GBS_OF_A_CORE = 64
_UNSEEN = "settings are so wrong that this cannot be seen; fix those first"
# What cannot be told of a compartment that is not seen.
_IN_COMPARTMENT = {"access": "groups and policies", "room": "shapes and hosts"}
_ITEMS = ("image name", "shape", "code", "environment", "arguments")


def findings(checked: Checked, say: Say) -> Iterator[Finding]:
    """Yield what is found of a launch; OCI must know the caller for most."""
    yield from of_settings(checked, say)
    yield from _of_tenancy(checked)
    say(NEVER_SEEN)


def _of_tenancy(checked: Checked) -> Iterator[Finding]:
    tenancy = Tenancy(Service(service_environ(checked.given)), checked.given)
    who = resources.credentials(tenancy)
    yield who
    if who.verdict is not Verdict.FINE:
        yield unknown("tenancy", "nothing of it was looked at, as OCI has not said who asks")
        return
    try:
        needed = resources.needed_by(checked, tenancy)
    except SettingsError as error:
        yield unknown("tenancy", f"nothing of it was looked at, as settings are wrong: {error.reason}")
        return
    yield access.assumed(checked, needed)
    named = access.named(tenancy, needed)
    is_there, is_member = True, True
    parts = {"places": resources, "network": network, "image": check_image, "access": access, "room": limits}
    for name, part in parts.items():
        if name in _IN_COMPARTMENT and not is_there:
            yield unknown(name, f"{_IN_COMPARTMENT[name]} were not looked at, as the compartment is not seen")
            continue
        try:
            found: Iterable[Finding] = part.findings(checked, tenancy, named)
            if part is resources:
                found = list(found)
                is_there = (resources.COMPARTMENT, Verdict.FAILS) not in {(one.item, one.verdict) for one in found}
                if outside := resources.outside_group(found, tenancy, named):
                    is_member = False
                    yield outside
                # First of all, as OCI refuses a statement about a group that is not there.
                found = [*(access.groups(tenancy, needed) if is_there else ()), *found]
            for finding in found:
                yield finding if is_member else replace(finding, fix=_of_no_member(finding))
        except ClusterError as error:
            yield unknown(name, f"the look at it ended here: {error}")


def _of_no_member(finding: Finding) -> str:
    """Return what fixes *finding* for somebody who is in no group that may launch."""
    if finding.item in resources.OF_GROUP:
        return ""
    return "\n".join(line for line in finding.fix.splitlines() if "allow group " not in line)


def of_settings(checked: Checked, say: Say) -> Iterator[Finding]:
    """Yield what is known of image, machines and code, without asking anybody."""
    plan = checked.plan
    if plan is None:
        yield from (unknown(item, _UNSEEN) for item in _ITEMS)
        return
    settings, _ = read_settings(plan, checked.root)  # what is wrong with them is told already
    yield _image_name(settings, checked)
    yield from _shapes(settings, checked)
    yield from _payload(plan, say)


def _image_name(settings: Mapping[str, Any], checked: Checked) -> Finding:
    image = settings["image"]
    if not image:
        return unknown("image name", "there is none that could be looked at; see settings")
    host = image.partition("/")[0]
    here = _region(checked.given)
    if not (region := region_of(host)):
        push = f"make push-{checked.framework} REGISTRY={here or '<region>'}.ocir.io/<namespace>/<folder>"
        return fails("image name", f"{image} is not in OCI's registry, from which alone a Job takes its image", push)
    if not here:
        return unknown("image name", f"{image}: the region of the Job is not known; see credentials")
    if region != here:
        moved = f"{key_of(here)}.ocir.io{image.removeprefix(host)}"
        folder, _, tag = moved.rpartition(":")
        push = f"make push-{checked.framework} REGISTRY={folder.rpartition('/')[0]} TAG={tag}"
        text = f"{image} is in the registry of {region}, and the Job will be in {here}"
        return fails("image name", text, f"IMAGE={moved}\n# after it was pushed there: {push}")
    return fine("image name", f"{image}, in the registry of {here}")


def _region(given: Mapping[str, str]) -> str:
    """Return the region that will be asked; empty where there is no identity, which ``credentials`` tells."""
    try:
        return region_named(Service(service_environ(given)).region)
    except SettingsError:
        return ""


def _shapes(settings: Mapping[str, Any], checked: Checked) -> Iterator[Finding]:
    """Yield what is known of the machines, one line for equal ones."""
    plan = checked.plan
    roles = [node.role for node in plan.nodes] if plan else []
    machines: dict[str, list[str]] = {}
    for role in dict.fromkeys(roles):
        machines.setdefault(json.dumps(settings["machines"][role]), []).append(role)
    for text, of in machines.items():
        machine = json.loads(text)
        if machine["shape"]:
            found = _shape(machine, ", ".join(of), checked.given.get("PLATFORM") or "linux/amd64")
            own = [role for role in of if checked.given.get(f"{role}_{found.fix.partition('=')[0]}")]
            yield replace(found, fix="\n".join(f"{role}_{found.fix}" for role in own) or found.fix)
        else:
            yield unknown("shape", f"there is none for {', '.join(of)} that could be looked at; see settings")


def _shape(machine: Mapping[str, Any], of: str, platform: str) -> Finding:
    shape = machine["shape"]
    form = FORM.fullmatch(shape)
    if not form:
        if near := nearest(shape):
            return fails("shape", f"there is no shape {shape} (for {of}); did you mean {near}?", f"SHAPE={near}")
        told = f"{shape} for {of} has none of the forms that shapes are known to have, such as {KNOWN[1]}"
        return unknown("shape", told)
    if form["series"] == "GPU" and form["size"] == "Flex":
        return fails("shape", f"{shape} for {of}: GPU shapes are not flexible", "SHAPE=VM.GPU.A10.1")
    if form["series"] != "GPU" and platform_of(shape) != platform == "linux/amd64":
        told = f"{shape} for {of} has Arm processors, and the image is made for {platform}"
        return fails("shape", told, "SHAPE=VM.Standard.E4.Flex")
    if form["size"] == "Flex":
        return _flexible(machine, of)
    return fine("shape", f"{shape} for {of}, with a size of its own")


def _flexible(machine: Mapping[str, Any], of: str) -> Finding:
    shape, cores, memory = machine["shape"], machine["ocpus"], machine["memory_gbs"]
    most = _MOST_GBS_OF_A_CORE * cores
    if not cores <= memory <= most:
        told = f"{shape} for {of}: {memory} GB is not 1 to {_MOST_GBS_OF_A_CORE} GB for each of {cores} OCPUs"
        return fails("shape", told, f"MEMORY_GBS={min(max(memory, cores), most)}")
    return fine("shape", f"{shape} for {of}, flexible: {cores} OCPUs, {memory} GB")


def _payload(plan: Plan, say: Say) -> Iterator[Finding]:
    uri = "0" * 200  # as long as an address in a work dir
    try:
        with tempfile.TemporaryDirectory() as scratch:
            code = code_of(plan, Path(scratch))
    except ClusterError as error:
        yield refused("code", error)
    else:
        uri = code.uri
        yield fine("code", code.said[0] if code.said else "not sent from here")
        for line in code.said[1:]:
            say(line)
    try:
        environment = node_environment(plan, code_uri=uri, subnet_cidr=plan.settings["SUBNET_CIDR"])
    except SettingsError as error:
        yield refused("environment", error)
    else:
        told = f"{characters_of(environment)} characters of {MAX_ENVIRONMENT_CHARACTERS}"
        yield fine("environment", told)
    yield _arguments(plan)


def _arguments(plan: Plan) -> Finding:
    size = len(" ".join(json.loads(plan.environment["ARGS"])))
    if size <= _MAX_ARGUMENT_CHARACTERS:
        return fine("arguments", f"{size} characters of {_MAX_ARGUMENT_CHARACTERS}")
    told = (
        f"{size} characters are more than the {_MAX_ARGUMENT_CHARACTERS} that OCI allows for arguments; these go in "
        "the variable ARGS, and whether OCI counts that has not been seen"
    )
    return unknown("arguments", told, "put them into a file of your code, and give your script the file's name")
