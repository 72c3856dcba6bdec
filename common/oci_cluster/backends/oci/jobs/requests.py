"""Requests of a launch: one Job, and a Job Run for each node, out of ``scripts/templates/``.

Nothing is asked here and nobody needs to be known, so that ``--dry-run`` works without an account.
"""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from oci_cluster.backends.archive import owner
from oci_cluster.backends.code import Code, code_of, digest_of
from oci_cluster.contract.cluster import Node, Plan
from oci_cluster.errors import SettingsError
from oci_cluster.system.console import Say

JSON = dict[str, Any]

# Freeform tags, by which all is found again whatever becomes of this machine.
TAG_NAME = "oci-cluster"
TAG_LAUNCH = "oci-cluster-launch"
TAG_FRAMEWORK = "oci-cluster-framework"
TAG_NODE = "oci-cluster-node"
TAG_STYLE = "oci-cluster-style"
TAG_SIZE = "oci-cluster-size"
TAG_PROJECT = "oci-cluster-project"
TAG_OWNER = "oci-cluster-owner"
TAG_EXPIRES = "oci-cluster-expires"
# The digest of the archive that has its code, or a word for none: an archive that no Job names can go.
TAG_CODE = "oci-cluster-code"

# What of the settings goes with the Job, so that what is added to it later has it, too.
_TAG_SETTINGS = ("FREEFORM_TAGS", "DEFINED_TAGS")
# Source: OCI's documentation of Jobs, custom environment variables in total.
MAX_ENVIRONMENT_CHARACTERS = 20_000


@dataclass(frozen=True)
class Launch:
    """A launch, resolved once: a dry run shows the requests that a launch sends."""

    settings: Mapping[str, Any]
    environment: Mapping[str, str]
    code: Code
    job: JSON
    runs: Mapping[str, JSON]
    """By node; with node groups there is one, under the name of main. None names the Job, which is not there yet."""


def resolve(
    plan: Plan, settings: Mapping[str, Any], root: Path, scratch: Path, say: Say = lambda _: None
) -> tuple[Plan, Launch]:
    """Return *plan* as placed, and its requests; its code is packed into *scratch*."""
    code = code_of(plan, scratch)
    for line in code.said:
        say(line)
    if plan.limits.exposed:
        ports = ", ".join(map(str, plan.limits.exposed))
        say(
            "EXPOSE: who connects from outside the subnet needs a rule of its security lists: ingress, "
            f"TCP, destination ports {ports}, source the CIDR of their network, and no larger one"
        )
    environment = node_environment(plan, code_uri=code.uri, subnet_cidr=plan.settings["SUBNET_CIDR"])
    where = {name: settings[name] for name in ("compartment", "project", "log_group", "style")}
    plan = replace(plan, environment=environment, placed=where)
    return plan, Launch(settings, environment, code, job(plan, settings, root), job_runs(plan, settings, root))


def characters_of(environment: Mapping[str, str]) -> int:
    """Return how many characters of *environment* count, with the little that is added later."""
    return sum(len(name) + len(text) for name, text in environment.items()) + 100  # such as MODE, SUBNET_CIDR, START_BY


def node_environment(plan: Plan, *, code_uri: str, subnet_cidr: str) -> dict[str, str]:
    """Return the environment of the Job of *plan*; SettingsError if it is too large."""
    environment = {
        **{name: text for name, text in plan.environment.items() if name != "CODE_DIR"},
        **({"CODE_URI": code_uri} if code_uri else {}),  # else the image's own, in /code
        **({"SUBNET_CIDR": subnet_cidr} if subnet_cidr else {}),
        "WORK_DIR": plan.work_dir,
        "NODE_LOGS": plan.settings["NODE_LOGS"],
        # No node reads them: a run that is added later, from any checkout, gets the same tags.
        **{name: text for name in _TAG_SETTINGS if (text := plan.settings[name])},
    }
    size = characters_of(environment)
    if size > MAX_ENVIRONMENT_CHARACTERS:
        longest = max(environment, key=lambda name: len(environment[name]))
        raise SettingsError(
            f"the nodes' environment has {size} characters, {MAX_ENVIRONMENT_CHARACTERS} at most; "
            f"{longest} is the longest: put what it holds into a file of your code"
        )
    return environment


def with_variables(body: JSON, variables: Mapping[str, str]) -> JSON:
    """Return the *body* of a Job whose nodes get these *variables*, too."""
    groups = body.get("jobNodeConfigurationDetails", {}).get("jobNodeGroupConfigurationDetailsList", [body])
    for one in groups:
        one.setdefault("jobConfigurationDetails", {}).setdefault("environmentVariables", {}).update(variables)
    return body


def tags_of(plan: Plan, given: Mapping[str, str], node: str = "") -> dict[str, str]:
    """Return the free-form tags of a Job, or of the run of *node*."""
    return {
        **given,
        TAG_NAME: plan.name,
        TAG_LAUNCH: plan.launch_id,
        TAG_FRAMEWORK: plan.framework,
        TAG_PROJECT: plan.project,
        TAG_OWNER: owner(),
        TAG_EXPIRES: _later(plan.created, plan.limits.ttl_s) if plan.limits.ttl_s else "never",
        **({TAG_NODE: node} if node else {}),
    }


def job(plan: Plan, settings: Mapping[str, Any], root: Path) -> JSON:
    """Return the body of the request that creates the Job of *plan*."""
    given = settings["tags_given"]
    tags = {**tags_of(plan, given["freeform"]), TAG_CODE: digest_of(plan) or "none"}
    values = {**settings, "name": plan.name, "tags": tags, "defined_tags": given["defined"]}
    if settings["style"] == "runs":
        # The Job has what workers have: one that is added later needs no more than its name and rank.
        machine = settings["machines"]["WORKER"]
        return _render(root, "job.json.j2", **values, machine=machine, environment=dict(plan.environment))
    values["tags"] |= _style_tags(plan, settings)
    groups = [{**group, "machine": settings["machines"][group["mode"]]} for group in _node_groups(plan)]
    return _render(root, "job-multinode.json.j2", **values, groups=groups, timeout_s=plan.limits.timeout_s)


def _style_tags(plan: Plan, settings: Mapping[str, Any]) -> dict[str, str]:
    return {TAG_STYLE: settings["style"], TAG_SIZE: str(len(plan.nodes))}


def _node_groups(plan: Plan) -> list[JSON]:
    """Return the groups in the order in which the service starts them."""
    count = {role: sum(node.role == role for node in plan.nodes) for role in ("WORKER", "PS")}
    # Main's agent has begun. Not that the cluster is ready: for that the workers must have come.
    probe = ["/bin/sh", "-c", f'test -d "${{TMPDIR:-/tmp}}/{plan.launch_id}-MAIN"']
    groups = [{"name": "main", "replicas": 1, "minimum": 1, "probe": probe, "mode": "MAIN"}]
    groups += [
        {"name": role.lower(), "replicas": count[role], "minimum": at_least or 1, "probe": [], "mode": role}
        for role, at_least in (("WORKER", plan.limits.min_workers), ("PS", count["PS"]))
        if count[role]
    ]
    return [{**group, "environment": {**plan.environment, "MODE": group["mode"]}} for group in groups]


def job_runs(plan: Plan, settings: Mapping[str, Any], root: Path) -> dict[str, JSON]:
    """Return the bodies of the runs of *plan*, by their nodes' names; see :class:`Launch`."""
    if settings["style"] == "runs":
        return {node.name: job_run(plan, settings, node, root) for node in plan.nodes}
    given = settings["tags_given"]
    tags = {**tags_of(plan, given["freeform"]), **_style_tags(plan, settings)}
    more = {"display_name": plan.name, "tags": tags, "environment": {}, "machine": None}
    return {"MAIN": _render(root, "job-run.json.j2", **settings, **more, defined_tags=given["defined"])}


def job_run(plan: Plan, settings: Mapping[str, Any], node: Node, root: Path) -> JSON:
    """Return the body of a Job Run, with a machine unlike the Job's."""
    machines, given = settings.get("machines", {}), settings["tags_given"]
    machine = machines.get(node.role)
    return _render(
        root,
        "job-run.json.j2",
        **settings,
        display_name=f"{plan.name}-{node.name}",
        tags=tags_of(plan, given["freeform"], node.name),
        defined_tags=given["defined"],
        environment=node.environment,
        machine=machine if machine != machines.get("WORKER") else None,
    )


@lru_cache(maxsize=1)
def _templates(folder: Path) -> Any:
    """Return the templates of *folder*, parsed once for a thousand nodes."""
    import jinja2  # noqa: PLC0415 - only there once the launcher's packages for OCI are

    return jinja2.Environment(  # noqa: S701 - JSON, not HTML: every value goes through tojson
        loader=jinja2.FileSystemLoader(folder), undefined=jinja2.StrictUndefined
    )


def _render(root: Path, template: str, **values: Any) -> JSON:
    try:
        return dict(json.loads(rendered(root, template, **values)))
    except (ValueError, TypeError) as error:
        raise SettingsError(f"scripts/templates/{template} makes no JSON: {error}") from error


def rendered(root: Path, template: str, **values: Any) -> str:
    """Return *template* of the checkout *root*, rendered with *values*."""
    import jinja2  # noqa: PLC0415 - only there once the launcher's packages for OCI are

    folder = (root / "scripts" / "templates").resolve()  # the same for all checkouts that share it by a link
    try:
        return str(_templates(folder).get_template(template).render(values))
    except jinja2.TemplateError as error:
        raise SettingsError(f"scripts/templates/{template} cannot be used: {error}") from error


def _later(created: str, seconds: float) -> str:
    form = "%Y-%m-%dT%H:%M:%SZ"
    return time.strftime(form, time.gmtime(calendar.timegm(time.strptime(created, form)) + seconds))
