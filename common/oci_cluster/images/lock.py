"""Writes locks: ``python -m oci_cluster.images.lock UV FOLDER|FILE...``, which ``make lock`` runs.

Of a framework's folder, and of a file that lists what is added to one's packages.

One lock of each suits all systems and Pythons that the framework has wheels for: uv writes markers into it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from oci_cluster.errors import BackendError, ClusterError
from oci_cluster.system.console import say_to_stderr
from oci_cluster.system.env_lock import IMAGE_LOCK, LOCK, head, lock_beside
from oci_cluster.system.python_env import requirements

_OLDEST_PYTHON = "3.10"


def write_locks(uv: str, folder: Path, common: Path) -> None:
    """Lock what the ``env.yaml`` of *folder* lists, and what images have, which is that of *common* too.

    The first takes the versions of the second, which must satisfy more.

    Raises:
        SettingsError: a file cannot be used.
        BackendError: uv failed; holds its words.
    """
    own = requirements(folder / "env.yaml")
    options: list[str] = []
    if (folder / "Dockerfile").exists():
        _write(uv, folder / IMAGE_LOCK, [*requirements(common / "env.yaml"), *own], [])
        options = ["--constraint", str(folder / IMAGE_LOCK)]
    _write(uv, folder / LOCK, own, options)


def _write(uv: str, lock: Path, entries: Sequence[str], options: Sequence[str]) -> None:
    command = [uv, "pip", "compile", "--quiet", "--universal", "--python-version", _OLDEST_PYTHON]
    # No annotations: who needs a package is in nobody's way, but the name of a temporary file would be.
    command += ["--generate-hashes", "--no-annotate", "--custom-compile-command", "make lock"]
    command += [*options, "-", "--output-file", str(lock)]
    try:
        done = subprocess.run(  # noqa: S603 - an argument list, no shell
            command, input="\n".join(entries), capture_output=True, text=True, check=False
        )
    except OSError as error:
        msg = f"'{uv}' cannot be run ({error.strerror}); install uv, or name yours: make lock UV=..."
        raise BackendError(msg) from error
    if done.returncode:
        msg = f"uv cannot lock {lock}: {done.stderr.strip()}"
        raise BackendError(msg)
    lock.write_text(head(entries) + lock.read_text(encoding="utf-8"), encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Write the locks of the folders and files that the command line names."""
    say = say_to_stderr("lock")
    uv, *names = arguments
    common = Path(__file__).resolve().parents[2]

    def lock(name: str) -> None:
        path = common.parent / name
        if path.is_dir():
            write_locks(uv, path, common)
        else:
            _write(uv, lock_beside(path), requirements(path), [])
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
