"""What a launch will do, decided and checked before anything is done. Only the standard library is imported here."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.exchange import SCHEMA, now
from oci_cluster.settings import (
    SettingsReader,
    framework_defaults,
    framework_dir,
    node_name,
    parse_args,
    parse_count,
    parse_duration,
    parse_entry_on,
    parse_name,
    parse_named_args,
    parse_switch,
    parse_url,
    read_config,
    read_settings_file,
)
from oci_cluster.settings import least_workers as settings_least_workers

# Settings that every node gets as they are, with what they must look like; the agent's own defaults apply where absent.
_PASSED_ON: dict[str, Any] = {
    "MIN_WORKERS": parse_count,
    "MIN_NODES": lambda text: parse_count(text, least=1),
    "MAX_RESTARTS": parse_count,
    "ENTRY_ON": parse_entry_on,
    "GANG": parse_switch,
    "FIND_INTERFACE": parse_switch,
    "NAMED_ARGS": parse_named_args,
    "OUTPUT_DIR": str,
    "OUTPUT_INTERVAL": parse_duration,
    "TIMEOUT": parse_duration,
    "TTL": parse_duration,
    "GRACE_PERIOD": parse_duration,
    "HEARTBEAT_INTERVAL": parse_duration,
    "HEARTBEAT_TIMEOUT": parse_duration,
    "POLL_CEILING": parse_duration,
    "WAIT_FOR_ADDRESSES": parse_switch,
    "CLUSTER_TLS": parse_switch,
}
# What the launcher itself decides for each node: nobody else's to set.
_DECIDED = ("MODE", "NODE_RANK", "WORKER_COUNT", "LAUNCH_ID", "CLUSTER_ID", "FRAMEWORK", "NODE_ADDRESS", "NODE_NAME")
# Flags of launch.sh that give a setting.
_FLAGS = {"ENTRY_POINT": "--entry", "CODE_DIR": "--code", "CLUSTER_NAME": "--name"}
# For people to type and tables to show; with the launch id it must be a file's name.
_LONGEST_NAME = 100
SECRET = re.compile(r"TOKEN(?!I)|SECRET|PASSW|CREDENTIAL|PRIVATE|(^|_)KEY", re.IGNORECASE)


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line, as it was typed."""

    framework: str
    workers: str
    backend: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings given by flags: they win over environment and ``config.env``."""
    environment: Sequence[str] = ()
    """``K=V`` of each ``--env``."""
    arguments: Sequence[str] | None = None
    """The entry point's arguments, where the command line gave any."""
    python: str = ""
    """Interpreter of the user's own environment; empty: ours is made."""


def make_plan(
    request: Request, environ: Mapping[str, str], *, root: Path, cwd: Path, most_workers: int
) -> dict[str, Any]:
    """Return the cluster that *request* describes, as ``cluster.json`` will hold it.

    Args:
        request: The command line.
        environ: The launcher's environment; ``config.env`` in *root* fills in what it lacks.
        root: The checkout, or the user's project.
        cwd: Where relative paths start.
        most_workers: What the backend can take.

    Raises:
        UsageError: something on the command line is wrong; names the value, the limit and the next step.
        SettingsError: something in the environment or in ``config.env`` is.
    """
    try:
        folder = framework_dir(request.framework.rstrip("/"), root)  # tab completion turns dask into dask/
        workers = _workers(request.workers, request.backend, most_workers)
        extra = dict(_pair(text) for text in request.environment)
        python = str(find_interpreter(request.python, cwd)) if request.python else ""
    except ValueError as error:
        raise UsageError(str(error)) from error

    flags = dict(request.settings)
    if request.arguments is not None:
        flags["ARGS"] = json.dumps(list(request.arguments))
    given = SettingsReader(flags, extra, environ, read_config(root))
    # What the framework declares goes to the nodes where somebody has given it; its defaults are there already.
    declared = {key: text for key in framework_defaults(folder) if (text := given.text(key))}
    read = SettingsReader(*given.sources, framework_defaults(folder))

    launch_id = secrets.token_hex(4)
    name = read.value("CLUSTER_NAME", _cluster_name, f"{folder.name}-{launch_id[:4]}")
    servers = read.value("PS_COUNT", parse_count, 0)
    ephemeral = read.value("EPHEMERAL", parse_switch, True)
    arguments = read.value("ARGS", parse_args, list[str]())
    has_code = bool(read.text("CODE_DIR")) or ephemeral
    code_dir, entry_point = _find_code(read, folder, cwd, ephemeral=ephemeral)
    for key, parse in _PASSED_ON.items():
        read.value(key, parse, "")
    passed_on = {key: text for key in _PASSED_ON if (text := read.text(key))}
    if given.text("MIN_NODES") and not given.text("MIN_WORKERS"):
        passed_on.pop("MIN_WORKERS", None)  # the framework's default must not win over what was asked for
    work_dir = read.value("WORK_DIR", parse_url, "")
    backend_file = root / "scripts" / "backends" / f"{request.backend}.env"
    backend_settings = read_settings_file(backend_file) if backend_file.exists() else {}
    backend_read = SettingsReader(*given.sources, backend_settings)
    _complain(read.problems, request)

    environment = {
        **declared,
        **passed_on,
        **extra,
        "FRAMEWORK": folder.name,
        "LAUNCH_ID": launch_id,
        "CLUSTER_ID": f"{name}-{launch_id}",
        "CLUSTER_NAME": name,
        "WORKER_COUNT": str(workers),
        "PS_COUNT": str(servers),
        "EPHEMERAL": str(int(ephemeral)),
        "ENTRY_POINT": entry_point,
        "ARGS": json.dumps(arguments),
        "CODE_DIR": str(code_dir),
    }
    roles = [("MAIN", 0), *(("WORKER", rank) for rank in range(1, workers + 1))]
    roles += [("PS", rank) for rank in range(workers + 1, workers + servers + 1)]
    return {
        "schema": SCHEMA,
        "launch_id": launch_id,
        "cluster_id": f"{name}-{launch_id}",
        "name": name,
        "framework": folder.name,
        "backend": request.backend,
        "created": now(),
        "work_dir": work_dir,
        "python": python,
        "project": root.resolve().name[:_LONGEST_NAME],
        "code_dir": str(code_dir) if has_code else "",
        "code_uri": backend_read.text("CODE_URI"),
        "settings": {key: backend_read.text(key) for key in backend_settings},
        "environment": environment,
        "nodes": [
            {"node": node_name(mode, rank), "environment": {"MODE": mode, "NODE_RANK": str(rank)}}
            for mode, rank in roles
        ],
    }


def least_workers(plan: Mapping[str, Any], root: Path) -> int:
    """Return ``MIN_WORKERS`` of the cluster of *plan*, by the rules that its agents follow."""
    read = SettingsReader(plan["environment"], framework_defaults(root / plan["framework"]))
    return settings_least_workers(read, int(plan["environment"]["WORKER_COUNT"]))


def workers_to_begin(plan: Mapping[str, Any], root: Path) -> int:
    """Return how many workers the cluster of *plan* must have to become ready: all, where main waits for addresses."""
    read = SettingsReader(plan["environment"], framework_defaults(root / plan["framework"]))
    if any(parse_switch(read.text(name, "0")) for name in ("GANG", "WAIT_FOR_ADDRESSES")):
        return int(plan["environment"]["WORKER_COUNT"])
    return settings_least_workers(read, int(plan["environment"]["WORKER_COUNT"]))


def rank_of(node: str) -> int:
    """Return the rank of the node that is called *node*."""
    return 0 if node == "MAIN" else int(node.rpartition("_")[2])


def free_ranks(known: Sequence[str], running: Sequence[str], count: int) -> list[int]:
    """Return *count* ranks for new workers: those of lost ones first, then the next that no node has had."""
    lost = sorted(rank_of(node) for node in known if node.startswith("WORKER") and node not in running)
    next_rank = 1 + max(rank_of(node) for node in known)
    return [*lost, *range(next_rank, next_rank + max(count, 0))][: max(count, 0)]


def scaled_workers(text: str, now: int, *, least: int, most: int) -> int:
    """Return how many workers *text* asks for, *now* being there: ``+2``, ``-1``, or the number itself.

    Raises:
        UsageError: it is none of these, or leads out of *least* to *most*.
    """
    sign = text[:1] if text[:1] in {"+", "-"} else ""
    try:
        number = parse_count(text.removeprefix(sign))
    except ValueError:
        msg = f"'{text}' is not a number of workers; write 4, +1 or -1"
        raise UsageError(msg) from None
    wanted = now + number if sign == "+" else now - number if sign == "-" else number
    if not least <= wanted <= most:
        msg = f"{wanted} workers are not possible, {least} to {most} are ({now} now); the least is MIN_WORKERS"
        raise UsageError(msg)
    return wanted


def ports(plan: Mapping[str, Any], root: Path) -> dict[str, int]:
    """Return the single ports that the cluster's nodes will bind, by setting: the framework's ``*_PORT``.

    Raises:
        SettingsError: one is not a port.
    """
    environment = plan["environment"]
    defaults = framework_defaults(root / plan["framework"])
    found: dict[str, int] = {}
    for name, default in defaults.items():
        if name.endswith("_PORT"):
            try:
                found[name] = parse_count(environment.get(name, default), least=1, most=65535)
            except ValueError as error:
                msg = f"{name}: {error}"
                raise SettingsError(msg) from error
    return found


def without_secrets(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return *plan* for people to see: values whose names say that they are secret are not shown."""
    shown = {key: "(not shown)" if SECRET.search(key) else value for key, value in plan["environment"].items()}
    return {**plan, "environment": shown}


def _workers(text: str, backend: str, most: int) -> int:
    try:
        return parse_count(text, least=1, most=most)
    except ValueError as error:
        msg = f"workers: {error}, which is what the {backend} backend takes; try 3"
        raise ValueError(msg) from error


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        msg = f"--env '{text}' is not NAME=VALUE"
        raise ValueError(msg)
    if name in _DECIDED:
        msg = f"--env {name} is decided by the launch itself; leave it out"
        raise ValueError(msg)
    if name in _FLAGS or name == "ARGS":
        msg = f"--env {name} has a way of its own: {_FLAGS.get(name, '-- ARGUMENT...')}"
        raise ValueError(msg)
    return name, value


def find_interpreter(text: str, cwd: Path) -> Path:
    """Return the interpreter that ``--python`` names: itself, or the folder of its environment.

    Raises:
        ValueError: there is none.
    """
    path = cwd / Path(text).expanduser()
    path = path / "bin" / "python" if path.is_dir() else path
    if not os.access(path, os.X_OK):
        msg = f"--python {text} is not an executable; give a Python interpreter, or an environment's folder"
        raise ValueError(msg)
    return path.absolute()  # not resolved: a venv's python is a link that must stay one


def _cluster_name(text: str) -> str:
    """Return a name that still is one with the launch id behind it, and fits into a table."""
    if len(text) > _LONGEST_NAME:
        msg = f"'{text}' has {len(text)} characters, {_LONGEST_NAME} at most"
        raise ValueError(msg)
    return parse_name(text)


def _find_code(read: SettingsReader, folder: Path, cwd: Path, *, ephemeral: bool) -> tuple[Path, str]:
    """Return the code directory and the entry point in it; what is wrong with them is added to *read*'s problems."""
    code, entry = read.text("CODE_DIR"), read.text("ENTRY_POINT")
    if code and not (cwd / code).is_dir():
        read.problems.append(f"CODE_DIR: '{code}' is not a directory")
    if not ephemeral:
        if read.sources[0].get("ENTRY_POINT"):  # typed, not standing in some file
            read.problems.append(
                f"ENTRY_POINT '{entry}' would not be run: a cluster that is kept runs none; leave it out"
            )
        return (cwd / code).resolve(), ""  # what its workers import is where its user is
    if not entry:
        example = folder / "example"
        if code:
            read.problems.append(
                f"CODE_DIR '{code}' has no entry point: say with --entry which file in it is to be run"
            )
        elif not (example / "train.py").is_file():
            read.problems.append(f"ENTRY_POINT is not set, {folder.name} has no example; give your script: --entry")
        return example, "train.py"
    # As typed from here, the way completion gives it; else as it is called inside the code directory.
    looked_at = [cwd / entry, cwd / code / entry] if code else [cwd / entry]
    for path in looked_at:
        if path.is_file():
            directory = (cwd / code).resolve() if code else path.resolve().parent
            if path.resolve().is_relative_to(directory):
                return directory, str(path.resolve().relative_to(directory))
    where = f" or '{code}'" if code else ""
    read.problems.append(f"ENTRY_POINT: there is no file '{entry}' in '{cwd}'{where}; give the path of your script")
    return cwd, entry


def _complain(problems: Sequence[str], request: Request) -> None:
    """Raise for *problems*: wrong usage where a flag brought the value, in the flag's own name."""
    said = []
    for problem in problems:
        name = problem.replace(":", " ").partition(" ")[0]
        flag = {**_FLAGS, "TTL": "--ttl", "PS_COUNT": "--ps"}.get(name) if name in request.settings else None
        said.append(problem.replace(name, flag, 1) if flag else problem)
    if any(text.startswith("--") for text in said):
        raise UsageError("; ".join(said))
    if said:
        msg = f"bad settings: {'; '.join(said)} (config.env.example explains each)"
        raise SettingsError(msg)
