"""What is asked of a container engine for a cluster: its commands, out of the plan. Nothing is run here."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oci_cluster import image_records, local
from oci_cluster.engine import PROTOCOL, Engine
from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.plan import SECRET
from oci_cluster.settings import SettingsReader, parse_count

# The cluster's volume: its cluster dir, and beside that, where a look at it does not copy them, the outputs.
WORK = "/work"
OUTPUTS = f"{WORK}/outputs"
# By which all is found again, from any checkout.
LABEL = "oci-cluster."
LAUNCH = f"{LABEL}launch"
NAME = f"{LABEL}name"
NODE = f"{LABEL}node"
# What each node was started with, for the workers that are added later.
_KEPT_SETTINGS = ("CPUS", "MEMORY", "SHM_SIZE", "GPUS")
# What each node has its own of.
OWN = ("MODE", "NODE_RANK", "NODE_NAME")
# The longest line of an --env-file: docker's reader (Go's bufio.Scanner) takes no longer one.
_LONGEST_LINE = 65_000
_CODE = "/code"
_IMAGE = re.compile(r"(sha256:)?[A-Za-z0-9][A-Za-z0-9._/:@-]{0,400}")
_GPUS = re.compile(r"[A-Za-z0-9][A-Za-z0-9=,\":._/-]{0,200}|\"[A-Za-z0-9=,:._/-]{1,200}\"")
_UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30}
# Where Linux has SELinux, and it is on.
_SELINUX = Path("/sys/fs/selinux/enforce")


def check(plan: Mapping[str, Any], root: Path, engine: Engine, *, as_json: bool = False) -> str:
    """Return what a launch of *plan* would run, as a shell script or as JSON, changing nothing.

    Raises:
        UsageError: something on the command line is not for this backend.
        SettingsError: something in *plan* cannot be run, or there is no image.
        EngineError: the engine does not answer.
    """
    placed = place(plan, root, engine)
    commands = [*shared_commands(placed)]
    nodes = [node_command(engine, placed, node["node"], environment_file(root, placed)) for node in placed["nodes"]]
    shown = {
        name: "(not shown)" if SECRET.search(name) else text for name, text in sorted(placed["environment"].items())
    }
    if as_json:
        found = {"commands": [[engine.program, *words] for words in [*commands, *nodes]], "environment": shown}
        return json.dumps(found, indent=2)
    env_file = shlex.quote(environment_file(root, placed))
    lines = ["# What a launch runs. Nothing has been run."]
    lines += [shlex.join([engine.program, *words]) for words in commands]
    lines += ["", f"(umask 077 && mkdir -p {shlex.quote(str(Path(environment_file(root, placed)).parent))})"]
    lines += [f"(umask 077 && cat >{env_file}) <<'END'", *(f"{name}={text}" for name, text in shown.items()), "END"]
    lines += [f"\n{shlex.join([engine.program, *words])}" for words in nodes]
    return "\n".join([*lines, f"\nrm {env_file}"])


def place(plan: Mapping[str, Any], root: Path, engine: Engine) -> dict[str, Any]:
    """Return *plan* with all that its nodes get as containers of *engine*.

    Raises:
        ClusterError: see :func:`check`.
    """
    if plan["python"]:
        msg = "--python is for nodes that are processes of this machine; containers have the Python of their image"
        raise UsageError(msg)
    settings = settings_of(plan["settings"])
    cpus, memory = engine.machine()
    image = _image_of(plan, root, engine)
    count = len(plan["nodes"])
    shares = {
        "NODE_CPUS": str(max(1, int(float(settings["CPUS"]) if settings["CPUS"] else cpus / count))),
        "NODE_MEMORY": str(memory_bytes(settings["MEMORY"]) if settings["MEMORY"] else memory // count),
    }
    code = _code_of(plan)
    environment = {
        **local.LOCAL_DEFAULTS,
        **shares,
        **{name: text for name, text in plan["environment"].items() if name != "CODE_DIR"},
        **({"CODE_DIR": _CODE} if code or plan["code_uri"] in {"", "image"} else {"CODE_URI": plan["code_uri"]}),
        "WORK_DIR": f"file://{WORK}",
        "OUTPUT_DIR": OUTPUTS,
    }
    _check_environment(environment)
    work_dir = f"{PROTOCOL}://{container_name(plan['cluster_id'], 'MAIN')}{WORK}"
    return {
        **plan,
        "environment": environment,
        "work_dir": work_dir,
        "image": image,
        "code": code,
        "settings": {**plan["settings"], **settings},
    }


def settings_of(given: Mapping[str, str]) -> dict[str, str]:
    """Return the backend's settings out of those *given*, checked.

    Raises:
        SettingsError: names every one that is wrong.
    """
    read = SettingsReader(given)
    settings = {
        "CPUS": read.value("CPUS", _number, ""),
        "MEMORY": read.value("MEMORY", _size, ""),
        "SHM_SIZE": read.value("SHM_SIZE", _size, ""),
        "GPUS": read.value("GPUS", _gpus, ""),
        "PUBLISH": read.value("PUBLISH", _ports, ""),
    }
    if read.problems:
        msg = f"bad settings: {'; '.join(read.problems)} (config.env.example explains each)"
        raise SettingsError(msg)
    return settings


def container_name(cluster_id: str, node: str) -> str:
    """Return the name of the container that *node* is."""
    return f"{cluster_id}-{node}"


def environment_file(root: Path, plan: Mapping[str, Any]) -> str:
    """Return where the nodes' environment stands while they are started: in a private directory, and no longer."""
    return str(local.state_dir(root) / plan["cluster_id"] / "nodes.env")


def environment_text(environment: Mapping[str, str]) -> str:
    """Return *environment* as a file for ``--env-file``: the engines read every line as it stands."""
    return "".join(f"{name}={text}\n" for name, text in environment.items())


def shared_commands(plan: Mapping[str, Any]) -> list[list[str]]:
    """Return the commands that make what the nodes of *plan* share: a network and a volume."""
    labels = _options("--label", cluster_labels(plan))
    return [[what, "create", *labels, plan["cluster_id"]] for what in ("network", "volume")]


def cluster_labels(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of all that the cluster of *plan* has in the engine."""
    return {
        LAUNCH: plan["launch_id"],
        NAME: plan["name"],
        f"{LABEL}framework": plan["framework"],
        f"{LABEL}created": plan["created"],
        f"{LABEL}project": plan["project"],
    }


def node_command(engine: Engine, plan: Mapping[str, Any], node: str, env_file: str) -> list[str]:
    """Return the command that starts *node* of a placed *plan*, with the environment in *env_file*."""
    settings, cluster_id = plan["settings"], plan["cluster_id"]
    mode, _, rank = node.partition("_")
    labels = {
        **cluster_labels(plan),
        NODE: node,
        f"{LABEL}code": plan["code"],
        **{f"{LABEL}{name.lower()}": settings[name] for name in _KEPT_SETTINGS},
    }
    words = ["run", "--detach", "--pull", "never", "--network", cluster_id]
    words += ["--name", container_name(cluster_id, node), "--hostname", node.lower().replace("_", "-")]
    words += _options("--label", labels)
    words += ["--volume", f"{cluster_id}:{WORK}"]
    if plan["code"]:
        # Not --volume, which makes a folder that is not there, and takes no ':' in a path.
        words += ["--mount", _csv(["type=bind", f"source={plan['code']}", f"target={_CODE}", "readonly"])]
        if _SELINUX.exists():
            # Else a container may not read a home folder. To label that anew (:z) would change it for everybody.
            words += ["--security-opt", "label=disable"]
    words += ["--env-file", env_file]
    words += _options("--env", {"MODE": mode, "NODE_RANK": rank or "0", "NODE_NAME": node})
    limits = {"CPUS": "--cpus", "MEMORY": "--memory", "SHM_SIZE": "--shm-size"}
    words += [word for name, option in limits.items() if settings[name] for word in (option, settings[name])]
    if settings["GPUS"]:
        words += (
            ["--device", f"nvidia.com/gpu={settings['GPUS']}"] if engine.is_podman else ["--gpus", settings["GPUS"]]
        )
    if node == "MAIN":
        words += [word for port in settings["PUBLISH"].split() for word in ("--publish", f"127.0.0.1:{port}")]
    return [*words, plan["image"]]


def kept_settings(labels: Mapping[str, str]) -> dict[str, Any]:
    """Return what a node was started with, by its *labels*: ``settings`` and ``code``, checked as those of a launch.

    Raises:
        SettingsError: somebody else has written them.
    """
    settings = settings_of({name: labels.get(f"{LABEL}{name.lower()}", "") for name in _KEPT_SETTINGS})
    code = labels.get(f"{LABEL}code", "")
    if code and not Path(code).is_dir():
        msg = (
            f"the code that this cluster was launched with, {code}, is no folder of this machine; scale it where it is"
        )
        raise SettingsError(msg)
    return {"settings": settings, "code": code}


def memory_bytes(text: str) -> int:
    """Return the bytes of a size such as ``512m``."""
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1] in _UNITS else int(text)


def _image_of(plan: Mapping[str, Any], root: Path, engine: Engine) -> str:
    image = str(plan["settings"]["IMAGE"]).replace("{framework}", plan["framework"])
    framework = plan["framework"]
    if image:
        if not _IMAGE.fullmatch(image):
            msg = f"IMAGE: '{image}' is not an image such as localhost/oci-cluster/{framework}:1"
            raise SettingsError(msg)
        advice = f"get it: {engine.program} pull {image}"
    else:
        record = image_records.read(framework, root)
        if record is None or not re.fullmatch(r"sha256:[0-9a-f]{64}", record["id"]):
            msg = f"there is no image for {framework}; build one: make build-{framework}, or name one: IMAGE"
            raise SettingsError(msg)
        image, advice = record["id"], f"build it again: make build-{framework}"
    if not engine.has_image(image):
        msg = f"the engine '{engine.program}' has no image {image}; {advice}"
        raise SettingsError(msg)
    return image


def _code_of(plan: Mapping[str, Any]) -> str:
    """Return the folder that is mounted as the nodes' code, empty where they have their own."""
    code = "" if plan["code_uri"] else str(plan["code_dir"])
    if "\n" in code or "\r" in code:
        msg = f"CODE_DIR: {code!r} has a line break in its name, which no mount can have; rename it"
        raise SettingsError(msg)
    return code


def _check_environment(environment: Mapping[str, str]) -> None:
    for name, text in environment.items():
        if "\n" in text or "\r" in text:
            msg = f"{name} has a line break, which an engine's --env-file cannot hold; put it into a file of your code"
            raise SettingsError(msg)
        if len(os.fsencode(f"{name}={text}")) > _LONGEST_LINE:
            msg = (
                f"{name} has {len(text)} characters, an engine's --env-file takes lines of {_LONGEST_LINE} bytes; "
                "put it into a file of your code"
            )
            raise SettingsError(msg)


def _options(option: str, pairs: Mapping[str, str]) -> list[str]:
    return [word for name, text in pairs.items() for word in (option, f"{name}={text}")]


def _csv(fields: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(fields)
    return line.getvalue()


def _number(text: str) -> str:
    if not re.fullmatch(r"\d{1,4}(\.\d{1,3})?", text) or float(text) <= 0:
        msg = f"'{text}' is not a number of CPUs such as 2 or 0.5"
        raise ValueError(msg)
    return text


def _size(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,15}[bkmg]?", text.lower()):
        msg = f"'{text}' is not a size such as 512m or 4g"
        raise ValueError(msg)
    return text.lower()


def _gpus(text: str) -> str:
    if not _GPUS.fullmatch(text):
        msg = f"'{text}' is not what --gpus takes, such as all or 2"
        raise ValueError(msg)
    return text


def _ports(text: str) -> str:
    """Return ports as ``HOST:CONTAINER`` each, blanks between."""
    pairs = []
    for word in text.replace(",", " ").split():
        numbers = [str(parse_count(part, least=1, most=65535)) for part in word.split(":", 1)]
        pairs.append(f"{numbers[0]}:{numbers[-1]}")
    return " ".join(pairs)
