"""What of a project an engine gets for a build, where the project has a ``.dockerignore`` of its own, or none.

Its lines count. But what every image is made of is not left out, as with a line ``*``, and keys and settings are, as
with no file at all. Engines read such lines from a file beside the Dockerfile, in the place of ``.dockerignore``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from oci_cluster.system.files import write_whole
from oci_cluster.system.never_sent import docker_lines

NAME = "Dockerfile.dockerignore"
_HEADER = "# For one build, and removed after it. Yours is .dockerignore.\n"


@contextmanager
def ignore_file(root: Path, framework: str, needed: Sequence[str]) -> Iterator[Path | None]:
    """Have the file for the build of *framework* in *root*; yields it, or None where ``.dockerignore`` says all.

    Args:
        root: The project, which is the context of the build.
        framework: Its folder has the Dockerfile. A file of the user's own that stands there already is left alone.
        needed: Files besides that the build needs, by their paths in *root*.
    """
    path = root / framework / NAME
    theirs = _lines(root / ".dockerignore")
    never = docker_lines()
    is_own = path.exists() and not path.read_text(errors="replace").startswith(_HEADER)
    if is_own or [line for line in theirs if line and not line.startswith("#")] == never:
        yield None
        return
    ours = [f"!{name}" for name in ("common", "scripts/sessions", framework, *needed)]
    write_whole(path, _HEADER + "\n".join([*theirs, *ours, *never, ""]), mode=0o644)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _lines(path: Path) -> list[str]:
    return os.fsdecode(path.read_bytes()).splitlines() if path.is_file() else []
