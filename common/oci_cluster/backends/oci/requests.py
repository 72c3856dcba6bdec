"""What is sent to Data Science for a cluster: one Job, and a Job Run for each node, out of ``scripts/templates/``.

Nothing is asked here and nobody needs to be known, so that ``--dry-run`` works without an account.
"""

from __future__ import annotations

import calendar
import getpass
import json
import math
import re
import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from oci_cluster.backends.base import check_packages
from oci_cluster.backends.oci.code import code_of, digest_of
from oci_cluster.contract.cluster import Node, Plan
from oci_cluster.contract.config import SettingsReader
from oci_cluster.contract.values import parse_count, parse_duration, parse_switch
from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.images.records import pushed_image
from oci_cluster.system.console import Say
from oci_cluster.system.redaction import is_secret
from oci_cluster.system.text import printable

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

# Source: OCI's documentation of Jobs, custom environment variables in total.
MAX_ENVIRONMENT_CHARACTERS = 20_000
# What the service gives a run after its TTL, to end in order: the agent's own TTL comes first.
_AFTER_TTL_S = 600
_OCID = re.compile(r"ocid1\.[a-z0-9]+\.[a-z0-9-]*\.[a-z0-9-]*\.[a-zA-Z0-9._-]+")
_IMAGE = re.compile(
    r"(?P<name>[a-z0-9.-]+(:\d+)?/[a-z0-9._/-]+:[A-Za-z0-9._-]{1,128})(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_MOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
STYLES = ("runs", "multinode")


def place(plan: Plan, root: Path, say: Say = lambda _: None) -> Plan:
    """Return *plan* with the whole environment of its nodes, and with where its Job will be; all of it is checked.

    Args:
        plan: The launch.
        root: The checkout, which has the templates, and knows by its digest what it has pushed.
        say: Is told what of the user's code goes.

    Raises:
        UsageError: it asks for what is possible on one machine only.
        SettingsError: it cannot be sent.
    """
    if plan.python:
        msg = "--python works with the backend local only; nodes on OCI use the Python of their image; leave it out"
        raise UsageError(msg)
    check_packages(plan)
    settings = settings_of(plan, root)
    with tempfile.TemporaryDirectory() as scratch:
        code = code_of(plan, Path(scratch))
    for line in code.said:
        say(line)
    environment = node_environment(plan, code_uri=code.uri, subnet_cidr=plan.settings["SUBNET_CIDR"])
    where = {name: settings[name] for name in ("compartment", "project", "log_group", "style")}
    placed = replace(plan, environment=environment, placed=where)
    job(placed, settings, root)  # a template that somebody has changed may make no JSON
    job_runs(replace(placed, nodes=plan.nodes[:1]), settings, root, "")
    return placed


def preview(plan: Plan, root: Path, *, as_json: bool) -> str:
    """Return what a launch of the placed *plan* would send, as a shell script or as JSON."""
    settings = settings_of(plan, root)
    notes = []
    if settings["subnet"] and not plan.settings["SUBNET_CIDR"]:
        notes.append(f"SUBNET_CIDR will be added to the Job's environment: the addresses of {settings['subnet']}.")
    if plan.code_dir and not plan.code_uri:
        notes.append(f"The code in {plan.code_dir} will be at {plan.environment['CODE_URI'].partition('#')[0]}.")
        notes.append("Each node unpacks it into a directory of its own, CODE_DIR, in which the entry point runs.")
    job_body = job(plan, settings, root)
    run_bodies = list(job_runs(plan, settings, root, "").values())
    if as_json:
        return json.dumps({"job": job_body, "job_runs": run_bodies, "notes": notes}, indent=2)
    return dry_run_text(job_body, run_bodies, notes)


def settings_of(plan: Plan, root: Path) -> dict[str, Any]:
    """Return the backend's settings of *plan*, checked, under the names that the templates use.

    Args:
        plan: The launch.
        root: The checkout, which knows by its digest what it has pushed.

    Raises:
        SettingsError: names every setting that is missing or wrong.
    """
    # One setting for the images of all frameworks.
    image_name = plan.settings["IMAGE"].replace("{framework}", plan.framework)
    image_name = pushed_image(image_name, plan.framework, root)
    read = SettingsReader({**plan.settings, "IMAGE": image_name})
    found = _read_settings(read, plan.limits.ttl_s)
    if not image_name:
        at = read.problems.index("IMAGE is not set")
        read.problems[at] += f", and none was pushed from here: make push-{plan.framework} REGISTRY=<registry>"
    if problems := [*read.problems, *_problems(plan, found, read.problems)]:
        msg = f"bad settings: {'; '.join(problems)} (config.env.example explains each)"
        raise SettingsError(msg)
    return found


def _read_settings(read: SettingsReader, ttl_s: float) -> dict[str, Any]:
    default_runtime = math.ceil((ttl_s + _AFTER_TTL_S) / 60) if ttl_s else 0
    image = _IMAGE.fullmatch(read.value("IMAGE", _image) or "")
    return {
        "compartment": read.value("COMPARTMENT_OCID", _ocid),
        "project": read.value("PROJECT_OCID", _ocid),
        "image": image["name"] if image else "",
        "image_digest": (image["digest"] or "") if image else "",
        "subnet": read.value("SUBNET_OCID", _ocid, ""),
        "shape": read.value("SHAPE", str),
        "ocpus": read.value("OCPUS", _number, 0.0),
        "memory_gbs": read.value("MEMORY_GBS", _number, 0.0),
        "storage_gbs": read.value("STORAGE_GBS", lambda text: parse_count(text, minimum=50, maximum=10240)),
        "capacity_reservation": read.value("CAPACITY_RESERVATION_OCID", _ocid, ""),
        "log_group": read.value("LOG_GROUP_OCID", _ocid, ""),
        "log": read.value("LOG_OCID", _ocid, ""),
        "mounts": read.value("STORAGE_MOUNTS", _mounts, list[dict[str, str]]()),
        "max_runtime_minutes": read.value(
            "MAX_RUNTIME", lambda text: math.ceil(parse_duration(text) / 60), default_runtime
        ),
        "style": read.value("OCI_JOB_STYLE", _style),
        "node_logs": read.value("NODE_LOGS", parse_switch, True),
    }


def _problems(plan: Plan, found: Mapping[str, Any], read: Sequence[str]) -> list[str]:
    """Return what does not go together in settings that were *read* with these problems."""
    problems = []
    if found["log"] and not found["log_group"]:
        problems.append("LOG_OCID is set without LOG_GROUP_OCID, the group that it is in")
    if not any(text.startswith(("OCPUS", "MEMORY_GBS")) for text in read) and bool(found["ocpus"]) != bool(
        found["memory_gbs"]
    ):
        problems.append("OCPUS and MEMORY_GBS go together: both, or 0 for a shape that has its own")
    if not plan.work_dir:
        problems.append("WORK_DIR is not set; make a bucket and set oci://<bucket>@<namespace>/<folder>")
    elif plan.work_dir.startswith(("memory:", "file:")) and not found["mounts"]:
        problems.append(f"WORK_DIR: nodes on OCI cannot reach {plan.work_dir}; set oci://<bucket>@<namespace>/<folder>")
    sent = {**plan.environment, "CODE_URI": plan.code_uri}
    if secret := sorted(name for name, text in sent.items() if is_secret(name, text)):
        way_out = "let your script read the secret from OCI Vault, as the run's resource principal"
        problems.append(f"everybody who may read the Job would see {', '.join(secret)}; {way_out}")
    return problems


def node_environment(plan: Plan, *, code_uri: str, subnet_cidr: str) -> dict[str, str]:
    """Return what all nodes of *plan* are given, as the Job's environment.

    Raises:
        SettingsError: it is more than the service takes.
    """
    environment = {
        **{name: text for name, text in plan.environment.items() if name != "CODE_DIR"},
        **({"CODE_URI": code_uri} if code_uri else {}),  # else the image's own, in /code
        **({"SUBNET_CIDR": subnet_cidr} if subnet_cidr else {}),
        "WORK_DIR": plan.work_dir,
        "NODE_LOGS": plan.settings["NODE_LOGS"],
    }
    size = sum(len(name) + len(text) for name, text in environment.items()) + 100  # a run's own: MODE, NODE_RANK
    if size > MAX_ENVIRONMENT_CHARACTERS:
        longest = max(environment, key=lambda name: len(environment[name]))
        msg = (
            f"the nodes' environment has {size} characters, {MAX_ENVIRONMENT_CHARACTERS} at most; "
            f"{longest} is the longest: put what it holds into a file of your code"
        )
        raise SettingsError(msg)
    return environment


def tags_of(plan: Plan, node: str = "") -> dict[str, str]:
    """Return the tags of the Job of *plan*, or those of one of its runs: those of *node*."""
    return {
        TAG_NAME: plan.name,
        TAG_LAUNCH: plan.launch_id,
        TAG_FRAMEWORK: plan.framework,
        TAG_PROJECT: plan.project,
        TAG_OWNER: _owner(),
        TAG_EXPIRES: _later(plan.created, plan.limits.ttl_s) if plan.limits.ttl_s else "never",
        **({TAG_NODE: node} if node else {}),
    }


def job(plan: Plan, settings: Mapping[str, Any], root: Path) -> JSON:
    """Return the body of the request that creates the Job of *plan*."""
    tags = {**tags_of(plan), TAG_CODE: digest_of(plan) or "none"}
    values = {**settings, "name": plan.name, "tags": tags}
    if settings["style"] == "runs":
        return _render(root, "job.json.j2", **values, environment=dict(plan.environment))
    values["tags"] |= _style_tags(plan, settings)
    return _render(root, "job-multinode.json.j2", **values, groups=_node_groups(plan), timeout_s=plan.limits.timeout_s)


def _style_tags(plan: Plan, settings: Mapping[str, Any]) -> dict[str, str]:
    return {TAG_STYLE: settings["style"], TAG_SIZE: str(len(plan.nodes))}


def _node_groups(plan: Plan) -> list[JSON]:
    """Return the groups that the service starts one after the other: main, workers, parameter servers."""
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


def job_runs(plan: Plan, settings: Mapping[str, Any], root: Path, job: str) -> dict[str, JSON]:
    """Return the bodies of the requests that create the runs of *plan* in *job*, an OCID, by their nodes' names.

    With node groups there is one run, under the name of main.
    """
    if settings["style"] == "runs":
        return {node.name: job_run(plan, settings, node, root, job) for node in plan.nodes}
    tags = {**tags_of(plan), **_style_tags(plan, settings)}
    values = {**settings, "job": job, "display_name": plan.name, "tags": tags, "environment": {}}
    return {"MAIN": _render(root, "job-run.json.j2", **values)}


def job_run(plan: Plan, where: Mapping[str, Any], node: Node, root: Path, job: str) -> JSON:
    """Return the body of the request that creates the Job Run of one *node* of *plan*, in the Job *job*, an OCID.

    *where* names ``compartment`` and ``project``.
    """
    return _render(
        root,
        "job-run.json.j2",
        **where,
        job=job,
        display_name=f"{plan.name}-{node.name}",
        tags=tags_of(plan, node.name),
        environment=node.environment,
    )


@lru_cache(maxsize=1)
def _templates(folder: Path) -> Any:
    """Return what reads the templates in *folder*: once, not for each of a thousand nodes."""
    import jinja2  # noqa: PLC0415 - only there once the launcher's packages for OCI are

    return jinja2.Environment(  # noqa: S701 - JSON, not HTML: every value goes through tojson
        loader=jinja2.FileSystemLoader(folder), undefined=jinja2.StrictUndefined
    )


def _render(root: Path, template: str, **values: Any) -> JSON:
    import jinja2  # noqa: PLC0415 - only there once the launcher's packages for OCI are

    folder = (root / "scripts" / "templates").resolve()  # the same for all checkouts that share it by a link
    try:
        return dict(json.loads(_templates(folder).get_template(template).render(values)))
    except (jinja2.TemplateError, ValueError, TypeError) as error:
        msg = f"scripts/templates/{template} makes no JSON: {error}"
        raise SettingsError(msg) from error


# Fields whose parameter of oci-cli has another name.
_PARAMETERS = {
    "jobConfigurationDetails": "configurationDetails",
    "jobInfrastructureConfigurationDetails": "infrastructureConfigurationDetails",
    "jobLogConfigurationDetails": "logConfigurationDetails",
    "jobConfigurationOverrideDetails": "configurationOverrideDetails",
}


def cli_input(body: JSON, indent: int | None = None) -> dict[str, str]:
    """Return *body* as oci-cli's ``--from-json`` takes it: every parameter a text, those with structure JSON in a text.

    As JSON itself, oci-cli 3.95.1 would turn the names of environment variables around: MIN_WORKERS into mINWORKERS.
    """
    return {
        _PARAMETERS.get(field, field): value if isinstance(value, str) else json.dumps(value, indent=indent)
        for field, value in body.items()
    }


def dry_run_text(job_body: JSON, run_bodies: Sequence[JSON], notes: Sequence[str]) -> str:
    """Return what ``--dry-run`` prints: a shell script that does with oci-cli what a launch does."""
    # Each note in a line: what comes after the end of a comment would be run.
    lines = ["# What a launch sends, as commands of oci-cli. Nothing has been sent."]
    lines += [f"# {printable(note, 2000)}" for note in notes]
    command = _command("job", job_body)
    lines += ["", f'job="$({command} \\\n  --query data.id --raw-output)"']
    lines += [f'\n{_command("job-run", body)} \\\n  --job-id "${{job}}"' for body in run_bodies]
    return "\n".join(lines)


def _command(what: str, body: JSON) -> str:
    options = [
        f"--{re.sub('([A-Z])', lambda letter: f'-{letter[1].lower()}', name)} {shlex.quote(text)}"
        for name, text in cli_input(body, indent=2).items()
    ]
    return " \\\n  ".join([f"oci data-science {what} create", *options])


def _ocid(text: str) -> str:
    if not _OCID.fullmatch(text):
        msg = f"'{text}' is not an OCID such as ocid1.compartment.oc1..aaaa"
        raise ValueError(msg)
    return text


def _image(text: str) -> str:
    if not _IMAGE.fullmatch(text):
        msg = f"'{text}' is not an image with a tag, such as iad.ocir.io/<namespace>/dask:1"
        raise ValueError(msg)
    return text


def _number(text: str) -> float:
    number = float(text) if re.fullmatch(r"\d{1,6}(\.\d{1,3})?", text) else -1
    if number < 0:
        msg = f"'{text}' is not a number of 0 or more"
        raise ValueError(msg)
    return int(number) if number == int(number) else number


def _style(text: str) -> str:
    if text not in STYLES:
        msg = f"'{text}' is neither {' nor '.join(STYLES)}"
        raise ValueError(msg)
    return text


def _mounts(text: str) -> list[dict[str, str]]:
    """Return the mounts that ``STORAGE_MOUNTS`` lists, as the service describes them."""
    mounts = []
    for word in text.split():
        name, _, what = word.partition("=")
        bucket = re.fullmatch(r"oci://(?P<bucket>[^@/]+)@(?P<namespace>[^/]+)(/(?P<prefix>.*))?", what)
        fss = re.fullmatch(r"fss:(?P<target>ocid1\.[^:]+):(?P<export>ocid1\.[^:]+)", what)
        place = {"destinationDirectoryName": name, "destinationPath": "/mnt"}
        if not _MOUNT.fullmatch(name) or not (bucket or fss):
            msg = f"'{word}' is neither <name>=oci://<bucket>@<namespace>/<prefix> nor <name>=fss:<target>:<export>"
            raise ValueError(msg)
        if bucket:
            prefix = {"prefix": bucket["prefix"]} if bucket["prefix"] else {}
            mounts.append(
                {
                    "storageType": "OBJECT_STORAGE",
                    "namespace": bucket["namespace"],
                    "bucket": bucket["bucket"],
                    **prefix,
                }
                | place
            )
        elif fss:
            mounts.append(
                {"storageType": "FILE_STORAGE", "mountTargetId": fss["target"], "exportId": fss["export"]} | place
            )
    return mounts


def _later(created: str, seconds: float) -> str:
    form = "%Y-%m-%dT%H:%M:%SZ"
    return time.strftime(form, time.gmtime(calendar.timegm(time.strptime(created, form)) + seconds))


def _owner() -> str:
    try:
        return getpass.getuser()[:100]
    except (KeyError, OSError):  # a user id without a name
        return "unknown"
