"""Dry run of a launch: its requests as JSON, or as a script of oci-cli.

The script is made by ``scripts/templates/launch.sh.j2``. What differs between two launches is a variable of the
script: ids, the key, times, the code's hash, the subnet's addresses.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from oci_cluster.backends.code import digest_of
from oci_cluster.backends.oci.jobs import requests
from oci_cluster.backends.oci.jobs.requests import JSON, Launch
from oci_cluster.backends.oci.jobs.states import CAN_BE_CANCELED
from oci_cluster.backends.oci.settings import BUCKET, MOUNT_POLICIES
from oci_cluster.contract.cluster import Node, Plan
from oci_cluster.contract.settings.settings_files import read_config
from oci_cluster.errors import SettingsError
from oci_cluster.images.records import note_of
from oci_cluster.system.text import printable

# Who asks: of what config.env may say, what oci-cli reads.
_IDENTITY = ("OCI_CLI_CONFIG_FILE", "OCI_CLI_PROFILE", "OCI_CLI_REGION", "OCI_CLI_AUTH")
# Fields whose parameter of oci-cli has another name.
_PARAMETERS = {
    "jobConfigurationDetails": "configurationDetails",
    "jobInfrastructureConfigurationDetails": "infrastructureConfigurationDetails",
    "jobLogConfigurationDetails": "logConfigurationDetails",
    "jobConfigurationOverrideDetails": "configurationOverrideDetails",
}


def preview(plan: Plan, launch: Launch, root: Path, *, as_json: bool) -> str:
    """Return the requests of a *launch*, as a shell script or as JSON."""
    settings = launch.settings
    policies = [MOUNT_POLICIES[kind] for kind in sorted({mount["storageType"] for mount in settings["mounts"]})]
    notes = [f"STORAGE_MOUNTS: the service must be let in, such as by: {policy}" for policy in policies]
    if note := note_of(plan.settings["IMAGE"]):
        notes.append(note)
    if not as_json:
        return _Script(plan, settings, root).text(notes)
    if settings["subnet"] and not plan.settings["SUBNET_CIDR"]:
        notes.append(f"SUBNET_CIDR will be added to the Job's environment: the addresses of {settings['subnet']}.")
    if plan.code_dir and not plan.code_uri:
        notes.append(f"The code in {plan.code_dir} will be at {plan.environment['CODE_URI'].partition('#')[0]}.")
        notes.append("Each node unpacks it into a directory of its own, CODE_DIR, in which the entry point runs.")
    return json.dumps({"job": launch.job, "job_runs": list(launch.runs.values()), "notes": notes}, indent=2)


class _Variables:
    """Marks in texts of requests, which become ``${name}`` in the script."""

    def __init__(self) -> None:
        self._mark = f"@{secrets.token_hex(8)}:"  # so that no text that somebody has given can hold one

    def __call__(self, name: str) -> str:
        return f"{self._mark}{name}@"

    def in_text(self, text: str) -> str:
        """Return *text* as it stands between ``<<END`` and ``END``."""
        return re.sub(rf"{self._mark}(\w+)@", r"${\1}", re.sub(r"([\\$`])", r"\\\1", text))

    def in_word(self, text: str) -> str:
        if self._mark not in text:
            return shlex.quote(text)
        return '"' + self.in_text(text).replace('"', '\\"') + '"'


@dataclass(frozen=True)
class _AnyNode(Node):
    """A node whose name and rank are variables of the script."""

    variables: _Variables = field(default_factory=_Variables)

    @property
    def name(self) -> str:
        return self.variables("node")

    @property
    def environment(self) -> dict[str, str]:
        return {"MODE": self.variables("mode"), "NODE_RANK": self.variables("rank")}


class _Script:
    """The launch of one plan, as a script."""

    def __init__(self, plan: Plan, settings: Mapping[str, Any], root: Path) -> None:
        self._plan = plan
        self._root = root
        self._set = _Variables()
        self._settings = {**settings, "compartment": self._set("compartment"), "project": self._set("project")}
        self._place = settings
        self._is_runs = settings["style"] == "runs"
        self._has_code = bool(digest_of(plan))
        self._asks_cidr = bool(settings["subnet"]) and not plan.settings["SUBNET_CIDR"]
        self._own = self._with_variables()

    def text(self, notes: Sequence[str]) -> str:
        plan = self._plan
        default_name = f"{plan.framework}-{plan.launch_id[:4]}"
        config = read_config(self._root)
        job = self._tagged(requests.job(self._own, self._settings, self._root))
        return requests.rendered(
            self._root,
            "launch.sh.j2",
            summary=printable(self._summary(), 2000),
            notes=[printable(note, 2000) for note in notes],
            name=f'"{plan.framework}-${{launch_id:0:4}}"' if plan.name == default_name else shlex.quote(plan.name),
            is_named=plan.name != default_name,
            compartment=shlex.quote(self._place["compartment"]),
            project=shlex.quote(self._place["project"]),
            counts=self._counts(),
            longest_start_s=math.ceil(plan.provision_timeout_s),
            ttl_s=math.ceil(plan.limits.ttl_s),
            identity={
                name: self._set.in_text(config[name]).replace('"', '\\"') for name in _IDENTITY if config.get(name)
            },
            going="|".join(CAN_BE_CANCELED),
            subnet=shlex.quote(self._place["subnet"]) if self._asks_cidr else "",
            **self._storage(),
            job_files=self._texts(job, "job."),
            job_options=self._options(job, "job."),
            **self._runs(),
        )

    def _summary(self) -> str:
        workers, servers = self._counted()
        nodes = ", ".join(
            f"{count} {what}{'s' * (count > 1)}"
            for count, what in ((workers, "worker"), (servers, "parameter server"))
            if count
        )
        how = "each of them a Job Run" if self._is_runs else "all of them one Job Run, whose nodes the service starts"
        return f"Run a cluster of {self._plan.framework} on OCI Data Science: main, {nodes}; {how}."

    def _counted(self) -> tuple[int, int]:
        """Return how many workers and parameter servers there are."""
        roles = [node.role for node in self._plan.nodes]
        return roles.count("WORKER"), roles.count("PS")

    def _counts(self) -> dict[str, int]:
        """Return the same as variables of the script; none where the service starts them."""
        workers, servers = self._counted()
        return {"workers": workers, **({"servers": servers} if servers else {})} if self._is_runs else {}

    def _with_variables(self) -> Plan:
        """Return the plan, with variables for all that differs between two launches."""
        mark, names = self._set, self._counts()
        archive = f"{self._plan.work_dir.rstrip('/')}/code/{mark('digest')}.tar.gz#sha256={mark('digest')}"
        environment = {
            **self._plan.environment,
            "LAUNCH_ID": mark("launch_id"),
            "LAUNCH_KEY": mark("launch_key"),
            "CLUSTER_ID": f"{mark('name')}-{mark('launch_id')}",
            "CLUSTER_NAME": mark("name"),
            **({"WORKER_COUNT": mark("workers")} if "workers" in names else {}),
            **({"PS_COUNT": mark("servers")} if "servers" in names else {}),
            **({"SUBNET_CIDR": mark("subnet_cidr")} if self._asks_cidr else {}),
            **({"CODE_URI": archive} if self._has_code else {}),
        }
        return replace(self._plan, name=mark("name"), launch_id=mark("launch_id"), environment=environment)

    def _storage(self) -> dict[str, Any]:
        work_dir = self._plan.work_dir.rstrip("/")
        bucket = BUCKET.fullmatch(work_dir)
        if self._has_code and not bucket and not work_dir.startswith("file://"):
            raise SettingsError(
                f"no script can send the code to {work_dir}: oci-cli reaches oci:// alone; see it with --dry-run --json"
            )
        prefix = f"{bucket['prefix']}/" if bucket and bucket["prefix"] else ""
        return {
            "bucket": shlex.quote(bucket["bucket"]) if bucket else "",
            "namespace": shlex.quote(bucket["namespace"]) if bucket else "",
            "prefix": shlex.quote(prefix) if prefix else "",
            "folder": shlex.quote(work_dir.removeprefix("file://")),
            "code_dir": shlex.quote(self._plan.code_dir),
            "files": "\n".join(self._code_files()) if self._has_code else "",
        }

    def _code_files(self) -> list[str]:
        """Return the files that go, one for each line of the script."""
        from oci_cluster.system.code_files import code_files  # noqa: PLC0415 - where the packages of it are

        folder = Path(self._plan.code_dir)
        names = [path.relative_to(folder).as_posix() for path in code_files(folder).paths]
        if strange := [name for name in names if not name.isprintable()]:
            raise SettingsError(
                f"a script cannot list the file {strange[0]!r} of {folder}; give it another name, or leave it out"
            )
        if not names:
            raise SettingsError(f"{folder} has no file that would be sent; name another folder with --code")
        return [f"./{name}" for name in names]

    def _runs(self) -> dict[str, Any]:
        """Return the fields of all runs, and those of each role besides."""
        job = self._set("job")
        more: dict[str, JSON] = {"MAIN": {}}
        if not self._is_runs:
            (body,) = requests.job_runs(self._own, self._settings, self._root).values()
            every = {"jobId": job, **self._tagged(body)}
        else:
            roles = dict.fromkeys(node.role for node in self._plan.nodes)
            nodes = [_AnyNode(role, 1, variables=self._set) for role in roles]
            sent = [requests.job_run(self._own, self._settings, node, self._root) for node in nodes]
            bodies = {role: {"jobId": job, **self._tagged(body)} for role, body in zip(roles, sent, strict=True)}
            first, *others = bodies.values()
            every = {name: value for name, value in first.items() if all(body.get(name) == value for body in others)}
            more = {role: {name: body[name] for name in body if name not in every} for role, body in bodies.items()}
        files = {name: text for role, fields in more.items() for name, text in self._texts(fields, f"{role}.").items()}
        words = {
            role: "".join(f" \\\n  {word}" for word in self._options(fields, f"{role}."))
            for role, fields in more.items()
        }
        return {
            "run_files": self._texts(every, ""),
            "run_options": self._options(every, f"{self._set('node')}."),
            "role_files": files,
            "role_options": words,
        }

    def _tagged(self, body: JSON) -> JSON:
        """Return *body* with variables for tags that a launch works out when it begins."""
        tags = {
            requests.TAG_OWNER: self._set("owner"),
            **({requests.TAG_EXPIRES: self._set("expires")} if self._plan.limits.ttl_s else {}),
            **({requests.TAG_CODE: self._set("digest")} if self._has_code else {}),
        }
        given = body.get("freeformTags", {})
        return {**body, "freeformTags": {**given, **{name: text for name, text in tags.items() if name in given}}}

    def _texts(self, body: JSON, prefix: str) -> dict[str, str]:
        """Return the fields given as files: the key must not be a word."""
        return {
            f"{prefix}{_option(name)}.json": self._set.in_text(json.dumps(value, indent=2))
            for name, value in body.items()
            if not isinstance(value, str)
        }

    def _options(self, body: JSON, prefix: str) -> list[str]:
        """Return the options of oci-cli that *body* is."""
        private = self._set("private")
        return [
            f"--{_option(name)} "
            + self._set.in_word(value if isinstance(value, str) else f"file://{private}/{prefix}{_option(name)}.json")
            for name, value in body.items()
        ]


def _option(name: str) -> str:
    """Return oci-cli's option for the field *name*."""
    return re.sub("([A-Z])", lambda letter: f"-{letter[1].lower()}", _PARAMETERS.get(name, name))
