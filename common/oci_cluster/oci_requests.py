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
from pathlib import Path
from typing import Any

from oci_cluster import plan as planning
from oci_cluster.code import pack_code
from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.exchange import printable
from oci_cluster.image_records import pushed_image
from oci_cluster.plan import SECRET
from oci_cluster.settings import SettingsReader, parse_count, parse_duration, parse_switch

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

# Source: OCI's documentation of Jobs, custom environment variables in total.
MOST_ENVIRONMENT_CHARACTERS = 20_000
# What the service gives a run after its TTL, to end in order: the agent's own TTL comes first.
_AFTER_TTL_S = 600
_OCID = re.compile(r"ocid1\.[a-z0-9]+\.[a-z0-9-]*\.[a-z0-9-]*\.[a-zA-Z0-9._-]+")
_IMAGE = re.compile(
    r"(?P<name>[a-z0-9.-]+(:\d+)?/[a-z0-9._/-]+:[A-Za-z0-9._-]{1,128})(@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_MOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
STYLES = ("runs", "multinode")


def check(plan: Mapping[str, Any], root: Path, *, as_json: bool = False) -> str:
    """Return what a launch of *plan* would send, as a shell script or as JSON; nothing is asked, nobody is known.

    Raises:
        SettingsError: it cannot be sent.
    """
    if plan["python"]:
        msg = "--python is for nodes of this machine; on OCI they have the Python of their image"
        raise UsageError(msg)
    settings = settings_of(plan, root)
    notes = []
    with tempfile.TemporaryDirectory() as scratch:
        code_uri, archive = code_of(plan, Path(scratch))
    if settings["subnet"] and not plan["settings"]["SUBNET_CIDR"]:
        notes.append(f"SUBNET_CIDR will be added to the Job's environment: the addresses of {settings['subnet']}.")
    if archive is not None:
        notes.append(f"The code in {plan['code_dir']} will be at {code_uri.partition('#')[0]}.")
    environment = node_environment(plan, code_uri=code_uri, subnet_cidr=plan["settings"]["SUBNET_CIDR"])
    job_body = job(plan, settings, environment, root)
    run_bodies = list(job_runs(plan, settings, root, "").values())
    if as_json:
        return json.dumps({"job": job_body, "job_runs": run_bodies, "notes": notes}, indent=2)
    return dry_run_text(job_body, run_bodies, notes)


def code_of(plan: Mapping[str, Any], scratch: Path) -> tuple[str, Path | None]:
    """Return what ``CODE_URI`` the nodes get, and the archive that is to be put there."""
    if plan["code_uri"]:
        return ("" if plan["code_uri"] == "image" else str(plan["code_uri"])), None
    if not plan["code_dir"]:
        return "", None
    archive = scratch / "code.tar.gz"
    digest = pack_code(Path(plan["code_dir"]), archive)
    return f"{plan['work_dir'].rstrip('/')}/code/{digest}.tar.gz#sha256={digest}", archive


def settings_of(plan: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Return the backend's settings of *plan*, checked, under the names that the templates use.

    Args:
        plan: The launch.
        root: The checkout, which knows by its digest what it has pushed.

    Raises:
        SettingsError: names every setting that is missing or wrong.
    """
    # One setting for the images of all frameworks.
    image_name = plan["settings"]["IMAGE"].replace("{framework}", plan["framework"])
    image_name = pushed_image(image_name, plan["framework"], root)
    read = SettingsReader({**plan["settings"], "IMAGE": image_name})
    environment = plan["environment"]
    ttl_s = parse_duration(environment.get("TTL", "0") or "0")
    default_runtime = math.ceil((ttl_s + _AFTER_TTL_S) / 60) if ttl_s else 0
    image = _IMAGE.fullmatch(read.value("IMAGE", _image) or "")
    found = {
        "compartment": read.value("COMPARTMENT_OCID", _ocid),
        "project": read.value("PROJECT_OCID", _ocid),
        "image": image["name"] if image else "",
        "image_digest": (image["digest"] or "") if image else "",
        "subnet": read.value("SUBNET_OCID", _ocid, ""),
        "shape": read.value("SHAPE", str),
        "ocpus": read.value("OCPUS", _number, 0.0),
        "memory_gbs": read.value("MEMORY_GBS", _number, 0.0),
        "storage_gbs": read.value("STORAGE_GBS", lambda text: parse_count(text, least=50, most=10240)),
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
    if found["log"] and not found["log_group"]:
        read.problems.append("LOG_OCID is set without LOG_GROUP_OCID, the group that it is in")
    if not any(text.startswith(("OCPUS", "MEMORY_GBS")) for text in read.problems) and bool(found["ocpus"]) != bool(
        found["memory_gbs"]
    ):
        read.problems.append("OCPUS and MEMORY_GBS go together: both, or 0 for a shape that has its own")
    if not plan["work_dir"]:
        read.problems.append("WORK_DIR is not set; make a bucket and set oci://<bucket>@<namespace>/<folder>")
    elif plan["work_dir"].startswith(("memory:", "file:")) and not found["mounts"]:
        read.problems.append(
            f"WORK_DIR: {plan['work_dir']} is not seen by all nodes; set oci://<bucket>@<namespace>/<folder>"
        )
    if secret := sorted(name for name in environment if SECRET.search(name)):
        read.problems.append(
            f"{', '.join(secret)} would stand in the Job's definition for all who may read it; "
            "have your script read it from OCI Vault, as the run's resource principal"
        )
    if not image_name:
        at = read.problems.index("IMAGE is not set")
        read.problems[at] += f", and none was pushed from here: make push-{plan['framework']} REGISTRY=<registry>"
    if read.problems:
        msg = f"bad settings: {'; '.join(read.problems)} (config.env.example explains each)"
        raise SettingsError(msg)
    return found


def node_environment(plan: Mapping[str, Any], *, code_uri: str, subnet_cidr: str) -> dict[str, str]:
    """Return what all nodes of *plan* are given, as the Job's environment.

    Raises:
        SettingsError: it is more than the service takes.
    """
    environment = {
        **{name: text for name, text in plan["environment"].items() if name != "CODE_DIR"},
        **({"CODE_URI": code_uri} if code_uri else {}),  # else the image's own, in /code
        **({"SUBNET_CIDR": subnet_cidr} if subnet_cidr else {}),
        "WORK_DIR": plan["work_dir"],
        "NODE_LOGS": plan["settings"]["NODE_LOGS"],
    }
    size = sum(len(name) + len(text) for name, text in environment.items()) + 100  # a run's own: MODE, NODE_RANK
    if size > MOST_ENVIRONMENT_CHARACTERS:
        longest = max(environment, key=lambda name: len(environment[name]))
        msg = (
            f"the nodes' environment has {size} characters, {MOST_ENVIRONMENT_CHARACTERS} at most; "
            f"{longest} is the longest: put what it holds into a file of your code"
        )
        raise SettingsError(msg)
    return environment


def tags_of(plan: Mapping[str, Any], node: str = "") -> dict[str, str]:
    """Return the tags of the Job of *plan*, or those of one of its runs: those of *node*."""
    environment = plan["environment"]
    ttl_s = parse_duration(environment.get("TTL", "0") or "0")
    return {
        TAG_NAME: plan["name"],
        TAG_LAUNCH: plan["launch_id"],
        TAG_FRAMEWORK: plan["framework"],
        TAG_PROJECT: plan["project"],
        TAG_OWNER: _owner(),
        TAG_EXPIRES: _later(plan["created"], ttl_s) if ttl_s else "never",
        **({TAG_NODE: node} if node else {}),
    }


def job(plan: Mapping[str, Any], settings: Mapping[str, Any], environment: Mapping[str, str], root: Path) -> JSON:
    """Return the body of the request that creates the Job of *plan*."""
    values = {**settings, "name": plan["name"], "tags": tags_of(plan)}
    if settings["style"] == "runs":
        return _render(root, "job.json.j2", **values, environment=dict(environment))
    values["tags"] |= _style_tags(plan, settings)
    timeout_s = parse_duration(environment.get("TIMEOUT", "600"))
    groups = _node_groups(plan, environment, planning.least_workers(plan, root))
    return _render(root, "job-multinode.json.j2", **values, groups=groups, timeout_s=timeout_s)


def _style_tags(plan: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, str]:
    return {TAG_STYLE: settings["style"], TAG_SIZE: str(len(plan["nodes"]))}


def _node_groups(plan: Mapping[str, Any], environment: Mapping[str, str], least: int) -> list[JSON]:
    """Return the groups that the service starts one after the other: main, workers, parameter servers."""
    count = {mode: sum(node["environment"]["MODE"] == mode for node in plan["nodes"]) for mode in ("WORKER", "PS")}
    # Main's agent has begun. Not that the cluster is ready: for that the workers must have come.
    probe = ["/bin/sh", "-c", f'test -d "${{TMPDIR:-/tmp}}/{plan["launch_id"]}-MAIN"']
    groups = [{"name": "main", "replicas": 1, "least": 1, "probe": probe, "mode": "MAIN"}]
    groups += [
        {"name": mode.lower(), "replicas": count[mode], "least": at_least or 1, "probe": [], "mode": mode}
        for mode, at_least in (("WORKER", least), ("PS", count["PS"]))
        if count[mode]
    ]
    return [{**group, "environment": {**environment, "MODE": group["mode"]}} for group in groups]


def job_runs(plan: Mapping[str, Any], settings: Mapping[str, Any], root: Path, job: str) -> dict[str, JSON]:
    """Return the bodies of the requests that create the runs of *plan* in *job*, an OCID, by their nodes' names.

    With node groups there is one run, under the name of main.
    """
    if settings["style"] == "runs":
        return {node["node"]: job_run(plan, settings, node, root, job) for node in plan["nodes"]}
    tags = {**tags_of(plan), **_style_tags(plan, settings)}
    values = {**settings, "job": job, "display_name": plan["name"], "tags": tags, "environment": {}}
    return {"MAIN": _render(root, "job-run.json.j2", **values)}


def job_run(
    plan: Mapping[str, Any], settings: Mapping[str, Any], node: Mapping[str, Any], root: Path, job: str
) -> JSON:
    """Return the body of the request that creates the Job Run of one *node* of *plan*, in the Job *job*, an OCID."""
    return _render(
        root,
        "job-run.json.j2",
        **settings,
        job=job,
        display_name=f"{plan['name']}-{node['node']}",
        tags=tags_of(plan, node["node"]),
        environment=node["environment"],
    )


def _render(root: Path, template: str, **values: Any) -> JSON:
    import jinja2  # noqa: PLC0415 - only there once the launcher's packages for OCI are

    engine = jinja2.Environment(  # noqa: S701 - JSON, not HTML: every value goes through tojson
        loader=jinja2.FileSystemLoader(root / "scripts" / "templates"), undefined=jinja2.StrictUndefined
    )
    try:
        return dict(json.loads(engine.get_template(template).render(values)))
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
