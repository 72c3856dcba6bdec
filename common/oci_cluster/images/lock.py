"""Writes locks: ``python -m oci_cluster.images.lock UV FOLDER|FILE...``, for ``make lock``.

One lock suits all systems and Pythons that the framework has wheels for: uv writes markers into it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from oci_cluster.errors import BackendError, ClusterError
from oci_cluster.system.console import say_to_stderr
from oci_cluster.system.envs.package_lists import head, lock_beside, requirements

_OLDEST_PYTHON = "3.10"


def write_lock(uv: str, path: Path, common: Path) -> None:
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
            command, input="\n".join(lists[-1]), capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise BackendError(
            f"'{uv}' cannot be run ({error.strerror}); install uv, or name yours: make lock UV=..."
        ) from error
    if done.returncode:
        raise BackendError(f"uv cannot lock {lock}: {done.stderr.strip()}")
    lock.write_text(head(*lists) + lock.read_text(encoding="utf-8"), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Write the locks of the folders and files that the command line names."""
    say = say_to_stderr("lock")
    uv, *names = arguments
    common = Path(__file__).resolve().parents[2]

    def lock(name: str) -> None:
        write_lock(uv, common.parent / name, common)
        say(f"{name}: locked")

    try:
        with ThreadPoolExecutor(len(names) or 1) as pool:
            list(pool.map(lock, names))
    except ClusterError as error:
        say(f"error: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
