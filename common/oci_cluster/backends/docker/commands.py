"""Commands of a container engine for a cluster, out of the plan."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from oci_cluster.backends.base import check_of_image
from oci_cluster.contract.cluster import Node, Plan, clusters_dir, limits_of
from oci_cluster.contract.parsers import matching, parse_cpus, parse_port, parse_switch
from oci_cluster.contract.settings.schema import ONE_MACHINE_DEFAULTS
from oci_cluster.contract.settings.settings_files import SettingsReader
from oci_cluster.errors import Problem, SettingsError
from oci_cluster.images import records as image_records
from oci_cluster.system.engine import PROTOCOL, Engine
from oci_cluster.system.secret_values import without_secrets

# The cluster's volume: its cluster dir, and beside that, where a look at it does not copy them, the outputs.
WORK = "/work"
OUTPUTS = f"{WORK}/outputs"
# All is found again by these labels, from any checkout.
_LABEL = "oci-cluster."
LAUNCH, NODE = f"{_LABEL}launch", f"{_LABEL}node"
OF_CLUSTER = {field: f"{_LABEL}{field}" for field in ("name", "framework", "created", "project")}
# Each node was started with these: for the workers that are added later.
CODE = f"{_LABEL}code"
KEPT_SETTINGS = {name: f"{_LABEL}{name.lower()}" for name in ("CPUS", "MEMORY", "SHM_SIZE", "GPUS", "HARDENED")}
# Variables of which each node has its own.
OWN = ("MODE", "NODE_RANK", "NODE_NAME")
_CODE = "/code"
_IMAGE = re.compile(r"(sha256:)?[A-Za-z0-9][A-Za-z0-9._/:@-]{0,400}")
_GPUS = re.compile(r"[A-Za-z0-9][A-Za-z0-9=,\":._/-]{0,200}|\"[A-Za-z0-9=,:._/-]{1,200}\"")
_UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30}
# Processes and threads of a node: a script that forks without end must not take its machine with it. Half of the 32,768
# that Linux numbers where it has 32 CPUs or fewer, and 1,024 for each CPU where it has more (PIDS_PER_CPU_DEFAULT).
_PIDS = "16384"
# Limits on what no node needs. Temporary files are on disk, in a volume without a name that goes with its container: in
# a tmpfs they would count as the node's memory, and Dask spills to them when that is full.
_HARDENED = [
    *("--pids-limit", _PIDS, "--read-only", "--volume", "/tmp"),  # noqa: S108 - the container's
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
]
# The file is there where Linux has SELinux, and it is on.
_SELINUX = Path("/sys/fs/selinux/enforce")


def place(plan: Plan, root: Path, engine: Engine) -> Plan:
    """Return *plan* with what its nodes get as containers; *engine* is asked."""
    settings = check(plan)
    machine = engine.machine()
    image, user = image_of(plan, root, engine)
    count = len(plan.nodes)
    shares = {
        "NODE_CPUS": str(max(1, int(float(settings["CPUS"]) if settings["CPUS"] else machine.cpus / count))),
        "NODE_MEMORY": str(memory_bytes(settings["MEMORY"]) if settings["MEMORY"] else machine.memory // count),
    }
    code = _code_of(plan)
    if code and machine.keeps_users and sys.platform == "linux":  # elsewhere a mount hides whose files are
        is_hardened = settings["HARDENED"] == "1"
        _check_readable(Path(code), plan.environment.get("ENTRY_POINT", ""), user, is_hardened=is_hardened)
    environment = {
        **ONE_MACHINE_DEFAULTS,
        **shares,
        **{name: text for name, text in plan.environment.items() if name != "CODE_DIR"},
        **({"CODE_DIR": _CODE} if code or plan.code_uri in {"", "image"} else {"CODE_URI": plan.code_uri}),
        "WORK_DIR": f"file://{WORK}",
        "OUTPUT_DIR": OUTPUTS,
        "OWN_NETWORK": "1",
    }
    _check_environment(environment)
    return replace(
        plan,
        environment=environment,
        limits=limits_of(environment, root / plan.framework),
        settings={**plan.settings, **settings},
        work_dir=work_dir(plan.cluster_id),
        placed={"image": image, "code": code},
    )


def check(plan: Plan) -> dict[str, str]:
    """Return the settings, checked; raise where *plan* asks what containers cannot have."""
    check_of_image(plan, "containers")
    settings = settings_of(plan.settings)
    _check_published(settings["PUBLISH"], plan.limits.exposed)
    return settings


def preview(plan: Plan, root: Path, engine: Engine, *, as_json: bool) -> str:
    """Return the commands of a launch as a shell script or as JSON."""
    path = environment_file(plan, root)
    shared = [[engine.program, *words] for words in shared_commands(plan)]
    nodes = [[engine.program, *node_command(engine, plan, node, path)] for node in plan.nodes]
    shown = dict(sorted(without_secrets(plan.environment).items()))
    if as_json:
        return json.dumps({"commands": [*shared, *nodes], "environment": shown}, indent=2)
    env_file = shlex.quote(str(path))
    lines = ["# What a launch runs. Nothing has been run."]
    if plan.placed["code"]:
        lines += [f"# The entry point runs in {_CODE}, which shows the folder of the code read-only."]
    lines += [shlex.join(words) for words in shared]
    lines += ["", f"(umask 077 && mkdir -p {shlex.quote(str(path.parent))})"]
    lines += [f"(umask 077 && cat >{env_file}) <<'END'", environment_text(shown) + "END"]
    lines += [f"\n{shlex.join(words)}" for words in nodes]
    return "\n".join([*lines, f"\nrm {env_file}"])


def settings_of(given: Mapping[str, str]) -> dict[str, str]:
    """Return the backend's settings of those *given*; SettingsError names all wrong ones."""
    read = SettingsReader(given)
    settings = {
        "CPUS": read.value("CPUS", parse_cpus, ""),
        "MEMORY": read.value("MEMORY", _size, ""),
        "SHM_SIZE": read.value("SHM_SIZE", _size, ""),
        "GPUS": read.value("GPUS", matching(_GPUS, "what --gpus takes, such as all or 2"), ""),
        # A container of a launch before there was this setting has no label of it.
        "HARDENED": str(int(read.value("HARDENED", parse_switch, False))),
        "PUBLISH": read.value("PUBLISH", _ports, ""),
    }
    if read.problems:
        raise SettingsError.of(read.problems)
    return settings


def container_name(cluster_id: str, node: str) -> str:
    """Return the name of the container that *node* is."""
    return f"{cluster_id}-{node}"


def work_dir(cluster_id: str) -> str:
    """Return the work dir as the launcher sees it: through main's container."""
    return f"{PROTOCOL}://{container_name(cluster_id, 'MAIN')}{WORK}"


def environment_file(plan: Plan, root: Path) -> Path:
    """Return the private file of the nodes' environment, there while they are started."""
    return clusters_dir(root) / plan.cluster_id / "nodes.env"


def environment_text(environment: Mapping[str, str]) -> str:
    """Return *environment* for ``--env-file``: engines read each line as it stands."""
    return "".join(f"{name}={text}\n" for name, text in environment.items())


def shared_commands(plan: Plan) -> list[list[str]]:
    """Return the commands that make what all nodes share: network and volume."""
    labels = _options("--label", cluster_labels(plan))
    return [[what, "create", *labels, plan.cluster_id] for what in ("network", "volume")]


def cluster_labels(plan: Plan) -> dict[str, str]:
    """Return the labels of all that the cluster of *plan* has in the engine."""
    return {LAUNCH: plan.launch_id, **{label: getattr(plan, field) for field, label in OF_CLUSTER.items()}}


def node_command(engine: Engine, plan: Plan, node: Node, env_file: Path) -> list[str]:
    """Return the command that starts *node*, with the environment in *env_file*."""
    settings, cluster_id, code = plan.settings, plan.cluster_id, plan.placed["code"]
    kept = {label: settings[name] for name, label in KEPT_SETTINGS.items()}
    labels = {**cluster_labels(plan), NODE: node.name, CODE: code, **kept}
    words = ["run", "--detach", "--pull", "never", "--network", cluster_id]
    words += ["--name", container_name(cluster_id, node.name), "--hostname", node.name.lower().replace("_", "-")]
    words += _options("--label", labels)
    words += ["--volume", f"{cluster_id}:{WORK}"]
    words += _HARDENED if settings["HARDENED"] == "1" else []
    if code:
        # Not --volume, which makes a folder that is not there, and takes no ':' in a path.
        words += ["--mount", _csv(["type=bind", f"source={code}", f"target={_CODE}", "readonly"])]
        if _SELINUX.exists():
            # Else a container may not read a home folder. To label that anew (:z) would change it for everybody.
            words += ["--security-opt", "label=disable"]
    words += ["--env-file", str(env_file)]
    words += _options("--env", {**node.environment, "NODE_NAME": node.name})
    limits = {"CPUS": "--cpus", "MEMORY": "--memory", "SHM_SIZE": "--shm-size"}
    words += [word for name, option in limits.items() if settings[name] for word in (option, settings[name])]
    if settings["GPUS"]:
        words += (
            ["--device", f"nvidia.com/gpu={settings['GPUS']}"] if engine.is_podman else ["--gpus", settings["GPUS"]]
        )
    if node.role == "MAIN":
        published = [*settings["PUBLISH"].split(), *(f"{port}:{port}" for port in plan.limits.exposed)]
        words += [word for pair in published for word in ("--publish", f"127.0.0.1:{pair}")]
    return [*words, plan.placed["image"]]


def checked(plan: Plan) -> Plan:
    """Return *plan*, whose settings are a container's labels, checked as a launch's."""
    if (code := plan.placed["code"]) and not Path(code).is_dir():
        raise SettingsError(
            f"{code}, the code folder of this cluster, is not on this machine; run scale.sh on the machine that has it"
        )
    return replace(plan, settings=settings_of({name: plan.settings[name] for name in KEPT_SETTINGS}))


def memory_bytes(text: str) -> int:
    """Return the bytes of a size such as ``512m``."""
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text)


def image_of(plan: Plan, root: Path, engine: Engine) -> tuple[str, str]:
    """Return image and user of the nodes; SettingsError says how to get one."""
    framework = plan.framework
    image = plan.settings["IMAGE"].replace("{framework}", framework)
    if image:
        if not _IMAGE.fullmatch(image):
            text = f"IMAGE: '{image}' is not an image such as localhost/oci-cluster/{framework}:1"
            raise SettingsError(Problem("IMAGE", text))
        advice = f"{engine.program} pull {image}"
    else:
        record = image_records.read(framework, root)
        if record is None or not re.fullmatch(r"sha256:[0-9a-f]{64}", record["id"]):
            raise SettingsError(image_records.no_image(framework, "built"))
        image, advice = record["id"], f"make build-{framework}"
    user = engine.image_user(image)
    if user is None:
        raise SettingsError(Problem("IMAGE", f"the engine '{engine.program}' has no image {image}", advice))
    return image, user


def _code_of(plan: Plan) -> str:
    """Return the folder mounted as code, empty where nodes have their own."""
    code = "" if plan.code_uri else plan.code_dir
    if "\n" in code or "\r" in code:
        raise SettingsError(
            f"CODE_DIR: the name {code!r} has a line break, and a mount cannot have one; rename the folder"
        )
    return code


def _check_readable(code: Path, entry_point: str, user: str, *, is_hardened: bool) -> None:
    """Raise where *user* cannot read the entry point, or a folder above it."""
    if user in {"", "0", "root"}:
        if not is_hardened:
            return
        user = "0"  # without capabilities it may no more than any other
    if not user.isdecimal():  # a name means what the image says
        return
    entry = code / entry_point
    for path in [code, *reversed([folder for folder in entry.parents if folder.is_relative_to(code)]), entry]:
        found = path.stat()
        shift = 6 if found.st_uid == int(user) else 3 if found.st_gid == int(user) else 0
        wanted = 0o5 if path.is_dir() else 0o4
        if (found.st_mode >> shift) & wanted != wanted:
            raise SettingsError(
                f"CODE_DIR: the user of the image, {user}, cannot read {path}; allow it: chmod -R a+rX {code}, "
                f"or {'set HARDENED=0' if user == '0' else f'build an image whose user can: RUN_AS={found.st_uid}'}"
            )


def _check_environment(environment: Mapping[str, str]) -> None:
    for name, text in environment.items():
        if "\n" in text or "\r" in text:
            raise SettingsError(
                f"the value of {name} has a line break, and --env-file cannot hold it; "
                "put the value into a file of your code"
            )


def _check_published(pairs: str, exposed: Sequence[int]) -> None:
    """Raise where EXPOSE and PUBLISH want the same port of this machine."""
    both = [pair for pair in pairs.split() if int(pair.partition(":")[0]) in exposed]
    if both:
        raise SettingsError(
            f"EXPOSE makes port {both[0].partition(':')[0]} of main that of this machine, and PUBLISH={both[0]} wants "
            "the same port here; leave it out of PUBLISH, or publish under another number"
        )


def _options(option: str, pairs: Mapping[str, str]) -> list[str]:
    return [word for name, text in pairs.items() for word in (option, f"{name}={text}")]


def _csv(fields: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def _size(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,15}[bkmg]?", text.lower()):
        raise ValueError(f"'{text}' is not a size such as 512m or 4g")
    return text.lower()


def _ports(text: str) -> str:
    """Return ports as ``HOST:CONTAINER`` each, blanks between."""
    pairs = []
    for word in text.replace(",", " ").split():
        numbers = [str(parse_port(part)) for part in word.split(":", 1)]
        pairs.append(f"{numbers[0]}:{numbers[-1]}")
    return " ".join(pairs)
