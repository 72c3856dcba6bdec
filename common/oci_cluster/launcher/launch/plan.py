"""Decides and checks a launch before anything is done.

Only the standard library is imported here.
"""

from __future__ import annotations

import contextlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oci_cluster import __version__
from oci_cluster.contract.cluster import Limits, Plan, limits_of, planned_nodes
from oci_cluster.contract.names import rank_of
from oci_cluster.contract.parsers import matching, parse_bounds, parse_count
from oci_cluster.contract.settings.node import checked, min_workers_of
from oci_cluster.contract.settings.schema import DECIDED, FLAG_ONLY, FLAGS, PASSED_ON
from oci_cluster.contract.settings.settings_files import (
    SettingsReader,
    framework_defaults,
    framework_dir,
    framework_words,
    read_config,
    read_settings_file,
    session_defaults,
)
from oci_cluster.errors import Problem, SettingsError, UsageError
from oci_cluster.launcher.launch.entry_point import check_outputs, find_code, find_folder, find_interpreter, looking
from oci_cluster.launcher.launch.settings_checks import SettingChecks, taken_ports
from oci_cluster.system.console import Say
from oci_cluster.system.text import now

# For people to type and tables to show; with the launch id it must be a file's name.
_LONGEST_NAME = 100
_cluster_name = matching(
    f"[A-Za-z0-9][A-Za-z0-9._-]{{0,{_LONGEST_NAME - 1}}}",
    f"a name of letters, digits and . _ - ({_LONGEST_NAME} at most)",
)


@dataclass(frozen=True)
class Request:
    """A launch as it was asked for, in texts."""

    framework: str
    workers: str
    backend: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings given by flags: they win over environment and ``config.env``."""
    environment: Sequence[str] = ()
    """``K=V`` of each ``--env``."""
    plain: frozenset[str] = frozenset()
    """Names of those, and of ``ARGS``, that are no secrets, whatever they look like."""
    arguments: Sequence[str] | None = None
    """The entry point's arguments, where the command line gave any."""
    python: str = ""
    """Interpreter of the user's own environment; empty: ours is made."""
    packages: Sequence[str] = ()
    """What is added to ours."""
    session: Mapping[str, str] = field(default_factory=dict)
    """What main of a session is given; empty for other clusters. Such a one runs no script of the user's."""


def make_plan(
    request: Request,
    environ: Mapping[str, str],
    *,
    root: Path,
    cwd: Path,
    max_workers: int,
    say: Say = lambda _: None,
    problems: list[Problem] | None = None,
) -> Plan:
    """Return the cluster that *request* describes; raise where an option or setting is wrong.

    *environ* is the launcher's environment; ``config.env`` in *root* fills in what it lacks. Paths start at *cwd*.
    Where *problems* is given, it gets what is wrong with settings, and nothing is raised: such a plan is not to be run.
    """
    folder, extra, python = _typed(request, root, cwd)
    flags = {**request.settings, **({} if request.arguments is None else {"ARGS": json.dumps(list(request.arguments))})}
    given, defaults = _sources([flags, extra, environ, read_config(root)], request.backend, root, say)
    read = SettingsReader(*given.sources, framework_defaults(folder), defaults)
    read.problems += _check(given, read, folder, request.backend, say)
    workers, bounds = _worker_counts(request, read, folder, max_workers)
    launch_id = secrets.token_hex(4)
    usual = f"{request.session.get('SESSION', folder.name)}-{launch_id[:4]}"
    name = read.value("CLUSTER_NAME", _cluster_name, usual)
    servers, ephemeral, arguments = _servers(read, folder, workers), read.setting("EPHEMERAL"), read.setting("ARGS", [])
    code_dir, entry = _code(request, read, folder, cwd, ephemeral=ephemeral)
    own = {key: text for key, text in extra.items() if key not in {"MIN_WORKERS", "MIN_NODES"}}
    environment = {**_passed_on(given, read, folder, workers, bounds), **own}
    work_dir, provision_timeout_s = read.setting("WORK_DIR", ""), read.setting("PROVISION_TIMEOUT")
    backend_settings = {key: given.text(key, text) for key, text in defaults.items()}
    _complain(read.problems, request, problems)
    environment |= {"PS_COUNT": str(servers), "EPHEMERAL": str(int(ephemeral)), "ARGS": json.dumps(arguments)}
    environment |= {**_decided(folder.name, launch_id, name, workers), **entry}
    return Plan(
        name=name,
        launch_id=launch_id,
        framework=folder.name,
        backend=request.backend,
        created=now(),
        project=root.resolve().name[:_LONGEST_NAME],
        nodes=planned_nodes(workers, servers),
        environment=environment,
        settings=backend_settings,
        limits=_limits(environment, folder, problems),
        work_dir=work_dir,
        code_dir=str(code_dir) if read.text("CODE_DIR") or ephemeral else "",
        code_uri=given.text("CODE_URI") or backend_settings.get("CODE_URI", ""),
        python=python,
        provision_timeout_s=provision_timeout_s,
        packages=tuple(request.packages),
        plain=request.plain,
        code_keys=frozenset(read.setting("CODE_KEYS", [])),
        chosen=frozenset(name for name in environment if given.text(name)),
    )


def settings_given(request: Request, environ: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return all settings of *request*, from flags to the backend's defaults."""
    try:
        typed = dict(_pair(text) for text in request.environment)
    except ValueError as error:
        raise UsageError(str(error)) from error
    given, found = _sources(
        [request.settings, typed, environ, read_config(root)], request.backend, root, lambda _: None
    )
    for source in reversed(given.sources):
        found |= {name: text for name, text in source.items() if text}
    return found


def _limits(environment: Mapping[str, str], folder: Path, problems: list[Problem] | None) -> Limits:
    """Return the limits of *environment*; with *problems*, wrong ones go there."""
    try:
        return limits_of(environment, folder)
    except SettingsError as error:
        if problems is None:
            raise
        known, wrong = ({problem.setting for problem in found} for found in (problems, error.problems))
        problems += (problem for problem in error.problems if problem.setting not in known)
        return limits_of({name: text for name, text in environment.items() if name not in wrong}, folder)


@looking()
def _typed(request: Request, root: Path, cwd: Path) -> tuple[Path, dict[str, str], str]:
    """Return the framework's folder, the variables of ``--env``, and the user's interpreter."""
    try:
        folder = framework_dir(request.framework.rstrip("/"), root)  # tab completion turns dask into dask/
        extra = dict(_pair(text) for text in request.environment)
        return folder, extra, str(find_interpreter(request.python, cwd)) if request.python else ""
    except ValueError as error:
        raise UsageError(str(error)) from error


@looking()
def _code(
    request: Request, read: SettingsReader, folder: Path, cwd: Path, *, ephemeral: bool
) -> tuple[Path, dict[str, str]]:
    """Return the code's folder, and the variables that say what main runs."""
    if request.session:
        found = find_folder(read, folder, cwd), dict(request.session)
    else:
        is_elsewhere = bool(read.text("CODE_URI")) and request.backend != "local"
        found = find_code(read, folder, cwd, ephemeral=ephemeral, is_elsewhere=is_elsewhere)
    check_outputs(read, found[0])
    return found[0], {**found[1], "CODE_DIR": str(found[0])}


def backend_defaults(backend: str, root: Path) -> dict[str, str]:
    """Return the settings that *backend* declares, with their defaults."""
    file = root / "scripts" / "backends" / f"{backend}.env"
    return read_settings_file(file) if file.exists() else {}


def _sources(
    given: Sequence[Mapping[str, str]], backend: str, root: Path, say: Say
) -> tuple[SettingsReader, dict[str, str]]:
    """Return a reader of the settings that are *given*, and the backend's own defaults.

    On a notebook session of OCI Data Science, compartment and project are the session's own by default. What the
    session has put into the environment, nobody has chosen: ``config.env`` wins over it.
    """
    flags, typed, environ, config = given
    defaults = backend_defaults(backend, root)
    own = {name: text for name, text in session_defaults(environ).items() if name in defaults}
    read = SettingsReader(flags, typed, {k: text for k, text in environ.items() if own.get(k) != text}, config)
    for name, text in own.items():
        if not (chosen := read.text(name)):
            say(f"{name} is not set: that of this notebook session is used, {text}")
        elif chosen != text and environ.get(name) == text:
            say(f"{name} is {chosen}, and not that of this notebook session")
    return read, {**defaults, **own}


def _check(given: SettingsReader, read: SettingsReader, folder: Path, backend: str, say: Say) -> list[Problem]:
    _, typed, environ, config = given.sources
    checks = SettingChecks(folder, backend, typed, given)
    for name, meant in checks.nearly_settings(environ).items():
        say(f"note: {name} in the environment is not a setting; did you mean {meant}?")
    return [*checks.problems(config), *taken_ports(read, *read.sources[-2:])]


def _decided(framework: str, launch_id: str, name: str, workers: int) -> dict[str, str]:
    return {
        "FRAMEWORK": framework,
        "LAUNCH_ID": launch_id,
        "LAUNCH_KEY": secrets.token_hex(32),
        "LAUNCHER_VERSION": __version__,
        "CLUSTER_ID": f"{name}-{launch_id}",
        "CLUSTER_NAME": name,
        "WORKER_COUNT": str(workers),
    }


def _worker_counts(
    request: Request, read: SettingsReader, folder: Path, maximum: int
) -> tuple[int, tuple[int, int] | None]:
    text = "" if "ADAPT" in framework_words(folder, "UNUSED_SETTINGS") else read.text("ADAPT")
    bounds = None
    with contextlib.suppress(ValueError):  # what is wrong with its form is noted where it is passed on
        bounds = parse_bounds(text) if text else None
    if bounds and bounds[1] > maximum:
        told = f"ADAPT: {bounds[1]} is more than the {maximum} workers that {request.backend} takes"
        read.complain("ADAPT", told)
    try:
        workers = parse_count(request.workers, maximum=maximum)
    except ValueError as error:
        raise UsageError(f"workers: {error}, which is what the {request.backend} backend takes; try 3") from error
    if bounds and not bounds[0] <= workers <= bounds[1]:
        raise UsageError(f"workers: {workers} is not within ADAPT={text}; begin with {bounds[0]} to {bounds[1]}")
    return workers, bounds


def _servers(read: SettingsReader, folder: Path, workers: int) -> int:
    """Return how many parameter servers there are; they serve workers."""
    servers: int = read.setting("PS_COUNT")
    if servers and not workers and "PS_COUNT" not in framework_words(folder, "UNUSED_SETTINGS"):
        read.complain("PS_COUNT", f"PS_COUNT: {servers} would serve no workers", "launch 1 worker or more")
    return servers


def _passed_on(
    given: SettingsReader, read: SettingsReader, folder: Path, workers: int, bounds: tuple[int, int] | None
) -> dict[str, str]:
    """Return the settings that every node gets as somebody gave them."""
    # What the framework declares goes to the nodes where somebody has given it; its defaults are there already.
    declared = {key: text for key in framework_defaults(folder) if key != "MIN_WORKERS" and (text := given.text(key))}
    # Translated here: nodes are never given MIN_NODES.
    has_minimum = any(read.text(name) for name in ("MIN_WORKERS", "MIN_NODES"))
    is_given = any(given.text(name) for name in ("MIN_WORKERS", "MIN_NODES"))
    minimum = min_workers_of(read, workers)
    if not is_given:
        minimum = min(minimum, workers)  # the framework's own is meant for a cluster that has workers
    if bounds and minimum > bounds[0]:
        # As few as main may ask for must not be too few, unless somebody wants that to be the end.
        if is_given:
            told = f"{minimum} is more than the least that ADAPT allows, {bounds[0]}"
            read.complain("MIN_WORKERS", f"MIN_WORKERS (MIN_NODES less main): {told}")
        has_minimum, minimum = True, bounds[0]
    fewest = {"MIN_WORKERS": str(minimum)} if has_minimum else {}
    if not read.problems and minimum > workers:
        told = f"{minimum} is more than the {workers} of this launch"
        read.complain("MIN_WORKERS", f"MIN_WORKERS (MIN_NODES less main): {told}")
    # In a config.env that several frameworks share, it may be for another one.
    given_to_all = {name: text for name, text in checked(read, PASSED_ON).items() if bounds or name != "ADAPT"}
    return {**declared, **fewest, **given_to_all}


def free_ranks(known: Sequence[str], running: Sequence[str], count: int) -> list[int]:
    """Return *count* ranks for new workers: those of lost ones first."""
    lost = sorted(rank_of(node) for node in known if node.startswith("WORKER") and node not in running)
    next_rank = 1 + max(rank_of(node) for node in known)
    return [*lost, *range(next_rank, next_rank + max(count, 0))][: max(count, 0)]


def scaled_workers(text: str, now: int, *, minimum: int, maximum: int) -> int:
    """Return the number of workers that *text* asks for: ``+2``, ``-1``, or itself."""
    sign = text[:1] if text[:1] in {"+", "-"} else ""
    try:
        number = parse_count(text.removeprefix(sign))
    except ValueError:
        raise UsageError(f"'{text}' is not a number of workers; write 4, +1 or -1") from None
    wanted = now + number if sign == "+" else now - number if sign == "-" else number
    if not minimum <= wanted <= maximum:
        raise UsageError(
            f"{wanted} workers are not possible; choose {minimum} to {maximum} ({now} now); "
            "MIN_WORKERS sets the minimum"
        )
    return wanted


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        msg = f"--env '{name}{'=...' if equals else ''}' is not NAME=VALUE"  # the value may be a secret
        raise ValueError(msg)
    if name in DECIDED:
        raise ValueError(f"--env {name} is decided by the launch itself; leave it out")
    if name in FLAG_ONLY:
        raise ValueError(f"--env {name} is not accepted; use {FLAGS[name]} instead")
    return name, value


def _complain(found: Sequence[Problem], request: Request, problems: list[Problem] | None) -> None:
    """Raise for what was *found* wrong, or add it to *problems*.

    An option that gave the value stands for its setting, and makes it a UsageError.
    """
    flags = {name: FLAGS[name] for name in request.settings if name in FLAGS}
    said = [one.called(flags[one.setting]) if one.setting in flags else one for one in found]
    if problems is not None:
        problems += said
    elif any(one.setting in flags or one.startswith("--env ") for one in said):
        raise UsageError("; ".join(said))
    elif said:
        raise SettingsError.of(said)
