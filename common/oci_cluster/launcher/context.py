"""Opens the backend of a command line, in the launcher's environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from oci_cluster.backends import open_backend
from oci_cluster.backends.base import Backend, IsStopped
from oci_cluster.contract.cluster import Cluster
from oci_cluster.contract.settings import settings_files
from oci_cluster.contract.settings.settings_files import PROJECT_ROOT
from oci_cluster.errors import BackendError
from oci_cluster.launcher.args.command_line import CommandLine, check_backend
from oci_cluster.launcher.lifecycle import Lifecycle
from oci_cluster.system.console import program, say_to_stderr
from oci_cluster.system.envs.python_env import ensure_backend_tools, ensure_tools
from oci_cluster.system.lost_interrupts import raise_lost


def chosen(
    line: CommandLine, is_stopped: IsStopped = lambda: False, *, is_looking: bool = False
) -> tuple[Lifecycle, Cluster]:
    """Return the cluster that the command line names, and what acts on it."""
    lifecycle = Lifecycle(opened(line, is_stopped, is_looking=is_looking), PROJECT_ROOT, say_to_stderr(program()))
    return lifecycle, lifecycle.choose(line.words[0] if line.words else "")


def opened(line: CommandLine, is_stopped: IsStopped = lambda: False, *, is_looking: bool = False) -> Backend:
    """Return the backend that was asked for, with all that it needs."""
    backend = open_named(line, is_stopped, is_looking=is_looking)
    backend.check()
    equip(backend.name)
    return backend


def open_named(line: CommandLine, is_stopped: IsStopped = lambda: False, *, is_looking: bool = False) -> Backend:
    """Return the backend of the command line, or of a setting."""
    given = given_settings()
    return open_backend(backend_named(line, given), PROJECT_ROOT, given, is_stopped, is_looking=is_looking)


def backend_named(line: CommandLine, given: Mapping[str, str]) -> str:
    """Return the backend's name: of *line*, else of the settings *given*, else ``local``."""
    name = line.value("--backend") if line.has("--backend") else given.get("BACKEND") or "local"
    check_backend(name)
    return name


def equip(backend: str, *, is_preview: bool = False) -> None:
    """Go on in a Python that has what *backend*, or a preview, needs."""
    if python := ensure_backend_tools(PROJECT_ROOT, backend, say_to_stderr(program()), is_preview=is_preview):
        continue_in(python)


def given_settings() -> dict[str, str]:
    """Return the settings of ``config.env`` and of the environment, without empty ones."""
    return settings_files.given_settings(PROJECT_ROOT, os.environ)


def use_own_environment() -> None:
    """Go on in the launcher's own environment, made anew where it is gone."""
    continue_in(ensure_tools(PROJECT_ROOT, say_to_stderr(program())))


def continue_in(python: Path) -> None:
    """Execute this program again in the environment of *python*, unless it runs there."""
    if Path(sys.prefix).resolve() == python.parents[1].resolve():
        return
    os.environ["CLUSTER_CWD"] = str(Path.cwd())  # as exec_cluster in common/lib.sh: no modules are looked for there
    os.chdir(PROJECT_ROOT / "common")
    raise_lost()  # what is executed does not know of it
    try:
        os.execv(python, [str(python), "-m", "oci_cluster", *sys.argv[1:]])  # noqa: S606 - our own interpreter
    except OSError as error:
        advice = f"remove {python.parents[1]}: the next launch makes it anew"
        raise BackendError(f"{python} cannot be run: {error.strerror}; {advice}") from error
