"""Records of images built here: a file for each framework in ``.images``.

``make build push`` writes them, launches read them. Only the standard library is imported here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oci_cluster.errors import Problem
from oci_cluster.system.files import write_whole

# As any file of a checkout: the process's mask holds.
MODE = 0o666
# The tag of an image that is not there: so is it called where a dry run or a check needs a name.
NOT_PUSHED = "not-pushed"
_PLATFORM = re.compile(r"[a-z0-9]+/[a-z0-9_]+(/v[0-9]+)?")


def records_dir(root: Path) -> Path:
    """Return where the checkout *root* keeps its records."""
    return root / ".images"


def read(framework: str, root: Path) -> dict[str, str] | None:
    """Return the record of *framework*'s image, None where none was built here.

    It has ``image``, the name with its tag; ``id``, the engine's own name for exactly what was built; ``digest``, the
    registry's for exactly what was pushed, empty until then; ``built``, the time; ``base``, the base image with its
    digest, where a registry gave that; and ``platform``, see :func:`platform_of`.
    """
    try:
        record: Any = json.loads((records_dir(root) / f"{framework}.json").read_text())
    except (FileNotFoundError, ValueError):  # none, or of a build that was killed
        return None
    names = ("image", "id", "digest", "built")
    return record if isinstance(record, dict) and all(isinstance(record.get(name), str) for name in names) else None


def no_image(framework: str, done: str) -> Problem:
    """Return the problem that no image of *framework* was named, ``built`` or ``pushed``."""
    make = f"make build-{framework}" if done == "built" else f"make push-{framework} REGISTRY=<registry>"
    return Problem("IMAGE", f"IMAGE is not set, and no image of {framework} was {done} from here", make)


def placeholder(framework: str, registry: str) -> str:
    """Return a name in the place of *framework*'s image."""
    return f"{registry.rstrip('/') or 'registry.invalid'}/{framework}:{NOT_PUSHED}"


def note_of(image: str) -> str:
    """Return what a dry run says of *image*, if that is a placeholder."""
    if not image.endswith(f":{NOT_PUSHED}"):
        return ""
    framework = image.rpartition("/")[2].partition(":")[0]
    return f"{image} stands for an image that was not pushed from here: make push-{framework} REGISTRY=<registry>"


def platform_of(record: Mapping[str, str]) -> str:
    """Return the platform of an image, as ``linux/amd64``; older records have none."""
    found = record.get("platform")
    return found if isinstance(found, str) and _PLATFORM.fullmatch(found) else ""


def write(framework: str, root: Path, record: Mapping[str, str]) -> None:
    """Replace the record of *framework*'s image, whole."""
    path = records_dir(root) / f"{framework}.json"
    path.parent.mkdir(exist_ok=True)
    write_whole(path, json.dumps(record, indent=2) + "\n", mode=MODE)


def pushed_image(name: str, framework: str, root: Path) -> str:
    """Return *name*, or the image of *framework* that was pushed last, by digest.

    A *name* with the tag that was pushed last gets its digest, too: a cluster runs what was pushed, whatever the tag
    has become since. Empty where there is neither.
    """
    record = read(framework, root)
    if record is None or not record["digest"] or name not in {"", record["image"]}:
        return name
    return f"{record['image']}@{record['digest']}"
