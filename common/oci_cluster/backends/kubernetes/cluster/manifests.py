"""Objects that a cluster is in Kubernetes, out of ``scripts/templates/kubernetes.yaml.j2`` and the plan.

Nothing is asked here and nobody needs to be known, so that ``--dry-run`` works without a Kubernetes.
"""

from __future__ import annotations

import base64
import json
import math
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oci_cluster.backends.archive import owner
from oci_cluster.backends.code import Code, code_of
from oci_cluster.backends.kubernetes.settings import bytes_of, is_stored
from oci_cluster.contract.cluster import Plan, limits_of
from oci_cluster.contract.files.lives import is_interruptible
from oci_cluster.errors import SettingsError
from oci_cluster.system.console import Say
from oci_cluster.system.files import at_home
from oci_cluster.system.text import printable

Object = dict[str, Any]

# By which all is found again, from any checkout. Labels are for choosing, annotations for people and for us.
LAUNCH = "oci-cluster-launch"
OF_CLUSTER = {field: f"oci-cluster-{field}" for field in ("name", "framework", "created", "project")}
NAME = OF_CLUSTER["name"]
OWNER = "oci-cluster-owner"
# What a launcher has asked for: the cluster's end, as the file `stop` tells it; nodes that it has ended, or all.
STOP = "oci-cluster-stop"
ENDED = "oci-cluster-ended"
# Those of them that had not started.
UNSTARTED = "oci-cluster-unstarted"
ALL = "*"
MAX_PREEMPTIONS = "oci-cluster-max-preemptions"
QUEUE = "kueue.x-k8s.io/queue-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
# Has Kueue count what a Job grows by, and not suspend it for that.
ELASTIC = "kueue.x-k8s.io/elastic-job"
INDEX = "batch.kubernetes.io/job-completion-index"

# Of URLs that cache.py opens: PROTOCOL://<namespace>/<job>.
PROTOCOL = "pods"
# Where a pod has the archive of its code.
_CODE_DIR = "/etc/oci-cluster/code"
# Source: Kubernetes' documentation, "Secrets": no more than 1 MiB; in base64, with the object around it.
MOST_CODE_BYTES = 1_000_000
# A launch's own, and what each pod has its own of: no part of the environment that all have.
_NOT_IN_TEMPLATE = {"CODE_DIR", "LAUNCH_KEY"}
# Letters of a cluster's name in that of its objects: with the launch id, an index of four digits and what the Job
# controller adds, a pod's name is below the 63 characters of a host's.
_LONGEST_NAME = 40


def object_name(name: str, launch_id: str) -> str:
    """Returns the name of a cluster's objects, as Kubernetes takes names, with the launch id."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    # The name of a Service begins with a letter.
    return f"{slug}-{launch_id}" if slug[:1].isalpha() else f"c{slug}-{launch_id}"


@dataclass(frozen=True)
class Launch:
    """A launch, resolved once: what ``--dry-run`` shows of it is what is sent."""

    plan: Plan
    """With the whole environment of its nodes, and with where its objects will be."""
    settings: Mapping[str, Any]
    objects: list[Object]
    """The Job last."""
    code: Code
    archive: bytes
    """Of the code; empty where nodes get none from here."""

    def send_code(self, say: Say) -> None:
        """Uploads the archive to the work dir, unless a Secret has it."""
        if self.archive and is_stored(self.plan.placed["work_dir"]):
            with tempfile.TemporaryDirectory() as scratch:
                archive = Path(scratch, "code.tar.gz")
                archive.write_bytes(self.archive)
                replace(self.code, archive=archive).send(self.plan, say)

    def objects_for(self, plan: Plan) -> list[Object]:
        """Returns the objects, with variables that the launcher has since added to *plan*."""
        since = [(name, text) for name, text in plan.environment.items() if name not in self.plan.environment]
        for container in self.objects[-1]["spec"]["template"]["spec"]["containers"]:
            if container.get("name") == "node":
                container["env"] += [{"name": name, "value": text.replace("$", "$$")} for name, text in since]
        return self.objects


def resolve(plan: Plan, settings: Mapping[str, Any], root: Path, namespace: str, say: Say = lambda _: None) -> Launch:
    """Resolves *plan*, of which *settings* were read, for *namespace*; asks nobody.

    *say* is told what of the user's code goes, and what this way of running does not keep.

    Raises:
        SettingsError: it cannot be sent.
    """
    name, is_own = object_name(plan.name, plan.launch_id), not is_stored(plan.work_dir)
    with tempfile.TemporaryDirectory() as scratch:
        code = code_of(plan, Path(scratch), to=_CODE_DIR if is_own else "")
        archive = b"" if code.archive is None else code.archive.read_bytes()
    if is_own and len(archive) > MOST_CODE_BYTES:
        raise SettingsError(
            f"the code has {len(archive)} bytes compressed, and {MOST_CODE_BYTES} fit into a Secret: leave out what "
            "nodes do not need (.gitignore, .dockerignore), mount data (VOLUMES), set WORK_DIR to object storage, or "
            "CODE_URI to a git repository or to image"
        )
    for line in code.said:
        say(line)
    environment = _environment(plan, settings, name, code)
    placed = replace(
        plan,
        environment=environment,
        limits=limits_of(environment, root / plan.framework),
        work_dir=f"{PROTOCOL}://{namespace}/{name}" if is_own else plan.work_dir,
        placed={
            "object": name,
            "namespace": namespace,
            "work_dir": plan.work_dir,
            "wait_for_quota_s": f"{settings['wait_for_quota_s']:g}",
        },
    )
    if not plan.work_dir:
        say(
            "no WORK_DIR: outputs, checkpoints and logs go with the pods; logs that launch.sh shows are kept here. "
            "To keep them all, set WORK_DIR (docs/kubernetes.md)"
        )
    if settings["host_network"]:
        say("HOST_NETWORK=1: pods share their machine's network; whoever reaches the machine reaches their ports")
    return Launch(placed, settings, _objects(placed, settings, archive if is_own else b"", root), code, archive)


def _environment(plan: Plan, settings: Mapping[str, Any], name: str, code: Code) -> dict[str, str]:
    work_dir = plan.work_dir or f"main://{name}-0.{name}:{settings['port']}"
    node_logs = plan.settings["NODE_LOGS"] or ("1" if is_stored(plan.work_dir) else "")
    return {
        "INTERRUPTIBLE": plan.settings["INTERRUPTIBLE"] or "1",
        "NODE_CPUS": str(max(1, math.floor(float(settings["cpus"])))),
        "NODE_MEMORY": str(bytes_of(settings["memory"])),
        **{key: text for key, text in plan.environment.items() if key != "CODE_DIR"},
        **({"CODE_URI": code.uri} if code.uri else {}),  # else the image's own, in /code
        "WORK_DIR": work_dir,
        "TERMINATION_LOG": "/dev/termination-log",
        # With HOST_NETWORK its loopback is that of all of its machine.
        **({} if settings["host_network"] else {"OWN_NETWORK": "1"}),
        **({"NODE_LOGS": node_logs} if node_logs else {}),
    }


def _objects(plan: Plan, settings: Mapping[str, Any], archive: bytes, root: Path) -> list[Object]:
    """Returns the objects of a placed *plan*, with ``POD_PATCH`` merged into the Job's pods."""
    name, exposed = str(plan.placed["object"]), list(plan.limits.exposed)
    resources = {"cpu": settings["cpus"], "memory": settings["memory"]}
    limit = {"cpu": settings["cpu_limit"]} if settings["cpu_limit"] else {}
    gpus = {settings["gpu_resource"]: str(settings["gpus"])} if settings["gpus"] else {}
    labels = {
        **settings["labels"],
        "app.kubernetes.io/name": "oci-cluster",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": plan.framework[:63],
        "app.kubernetes.io/managed-by": "oci-cluster",
        LAUNCH: plan.launch_id,
        **{key: settings[own] for key, own in ((QUEUE, "queue"), (PRIORITY, "priority")) if settings[own]},
    }
    annotations = {
        **settings["annotations"],
        **{annotation: printable(getattr(plan, field)) for field, annotation in OF_CLUSTER.items()},
        OWNER: owner(),
        **({MAX_PREEMPTIONS: str(settings["max_preemptions"])} if settings["max_preemptions"] >= 0 else {}),
    }
    values = {
        **settings,
        "name": name,
        "namespace": plan.placed["namespace"],
        "labels": labels,
        "annotations": annotations,
        "pod_annotations": settings["annotations"],
        "launch_label": LAUNCH,
        "elastic": ELASTIC,
        "launch_id": plan.launch_id,
        "launch_key": plan.launch_key,
        "code": base64.b64encode(archive).decode(),
        "code_dir": _CODE_DIR if plan.environment.get("CODE_URI", "").startswith(f"file://{_CODE_DIR}/") else "",
        "nodes": len(plan.nodes),
        "interruptible": is_interruptible(plan.environment),
        "main_is_last": not plan.placed["work_dir"],
        "requests": {**resources, **gpus},
        # Memory is bounded, so that a node that takes too much ends, and not its neighbour. Idle CPUs are anybody's,
        # unless CPU_LIMIT says otherwise.
        "limits": {"memory": settings["memory"], **limit, **gpus},
        # With the machine's own network, a port that is declared is one that no other pod there may have.
        "ports": [] if settings["host_network"] else exposed,
        "exposed": exposed if settings["expose_service"] else [],
        "main_label": {LAUNCH: plan.launch_id, INDEX: "0"},
        "environment": {name: text for name, text in plan.environment.items() if name not in _NOT_IN_TEMPLATE},
    }
    found = rendered(root, "kubernetes.yaml.j2", values)
    if settings["patch"]:
        from oci_cluster.backends.kubernetes.cluster.pod_patch import read_patch, with_patch  # noqa: PLC0415

        patch = read_patch(at_home(settings["patch"]))
        job = next(item for item in found if item["kind"] == "Job")
        job["spec"]["template"] = with_patch(job["spec"]["template"], patch)
    return found


def rendered(root: Path, name: str, values: Mapping[str, Any]) -> list[Object]:
    """Returns the objects that the template *name* of the checkout *root* makes of *values*.

    Raises:
        SettingsError: somebody has changed the template, and it cannot be used.
    """
    import jinja2  # noqa: PLC0415 - only there once the launcher's packages are
    import yaml  # noqa: PLC0415 - likewise

    template = f"scripts/templates/{name}"
    environment = jinja2.Environment(  # noqa: S701 - YAML, not HTML: every value goes through tojson
        loader=jinja2.FileSystemLoader(root), undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.policies["json.dumps_function"] = _as_yaml
    try:
        text = environment.get_template(template).render(values)
        # By libyaml, where PyYAML was built with it: code of 500 KB in Python alone is a quarter of a second.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return [document for document in yaml.load_all(text, loader) if document]
    except jinja2.TemplateError as error:
        raise SettingsError(f"{template} cannot be used: {error}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{template} makes no YAML: {error}") from error


_NO_YAML = re.compile("[^ -~\U00010000-\U0010ffff]")


def _as_yaml(value: Any, **_: Any) -> str:
    """Returns JSON that is YAML, too: without surrogates, as JSON's escapes are."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return _NO_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def pod_of(job: Object) -> Object:
    """Returns a pod as the Job controller would make one of *job*."""
    meta, template = job["metadata"], job["spec"]["template"]
    named = {**template["metadata"], "generateName": f"{meta['name']}-0-", "namespace": meta["namespace"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": template["spec"]}


def launch_key_of(secret: Object) -> str:
    """Returns the key of a launch in its Secret; empty where there is none."""
    text = (secret.get("data") or {}).get("LAUNCH_KEY") or ""
    try:
        return base64.b64decode(str(text), validate=True).decode()
    except ValueError:  # somebody else has written it
        return ""
