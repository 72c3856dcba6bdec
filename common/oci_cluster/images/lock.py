"""Writes locks, for ``make lock``.

One lock suits all systems and Pythons that the framework has wheels for: uv writes markers into it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from oci_cluster.errors import BackendError
from oci_cluster.system.console import say_to_stderr
from oci_cluster.system.envs.installer import pip_settings, uv_options
from oci_cluster.system.envs.package_lists import head, lock_beside, requirements
from oci_cluster.system.envs.python_env import uv_of

_OLDEST_PYTHON = "3.10"


def write_lock(uv: str, path: Path, common: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Lock a file, or a folder's ``env.yaml`` with *common*'s for its images."""
    env_file = path / "env.yaml" if path.is_dir() else path
    lists, lock = [requirements(env_file)], lock_beside(env_file)
    if (path / "Dockerfile").exists():
        lists.append([*requirements(common / "env.yaml"), *lists[0]])
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", _OLDEST_PYTHON]
    # No annotations: who needs a package is in nobody's way, but the name of a temporary file would be.
    command += ["--generate-hashes", "--no-annotate", "--custom-compile-command", "make lock"]
    command += ["-", "--output-file", str(lock)]
    try:
        done = subprocess.run(  # noqa: S603 - an argument list, no shell
            command, env=dict(environ), input="\n".join(lists[-1]), capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise BackendError(
            f"'{uv}' cannot be run ({error.strerror}); install uv, or name yours: make lock UV=..."
        ) from error
    if done.returncode:
        raise BackendError(f"uv cannot lock {lock}: {done.stderr.strip()}")
    lock.write_text(head(*lists) + lock.read_text(encoding="utf-8"), encoding="utf-8")


def run(uv: str, names: Sequence[str], root: Path) -> None:
    """Have *uv*, or the launcher's own, lock folders and files with pip's settings."""
    say = say_to_stderr("lock")
    uv = uv or str(uv_of(root, say))
    # A lock is for all machines: what lies on this one is no index.
    told = {name: value for name, value in pip_settings(os.environ).items() if name != "find-links"}
    environ = {**os.environ, **uv_options(told, say)[1]}

    def lock(name: str) -> None:
        write_lock(uv, root / name, root / "common", environ)
        say(f"{name}: locked")

    with ThreadPoolExecutor(len(names) or 1) as pool:
        list(pool.map(lock, names))
