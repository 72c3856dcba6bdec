"""Pushes images, and asks registries for digests."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from oci_cluster.errors import BackendError, SettingsError
from oci_cluster.images import records
from oci_cluster.images.client import Client
from oci_cluster.images.settings import ImageSettings
from oci_cluster.system.text import now

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def push(client: Client, settings: ImageSettings, frameworks: Sequence[str]) -> None:
    """Push the images of *frameworks* that were built last, and record their digests."""
    found = {framework: _built(framework, settings.name(framework), client.root) for framework in frameworks}
    client.for_each(frameworks, lambda framework: _push(client, framework, found[framework]))


def _built(framework: str, name: str, root: Path) -> dict[str, str]:
    record = records.read(framework, root)
    if record is None or record["image"] != name:
        last = f"; the last one was {record['image']}" if record else ""
        raise SettingsError(f"{name} has not been built here{last}; make build-{framework}")
    return record


def _push(client: Client, framework: str, record: Mapping[str, str]) -> None:
    image = record["image"]
    with tempfile.TemporaryDirectory() as scratch:
        digest_file = Path(scratch, "digest")
        own = ["--digestfile", str(digest_file)] if client.engine.is_podman else []
        client.run(framework, "push", *own, image)
        told = digest_file.read_text() if client.engine.is_podman else _reference(client, image, "pushed")
        digest = told.strip().rpartition("@")[2]
    if digest == record["digest"]:
        client.say(f"{framework}: {image}@{digest} is in the registry")
        return
    records.write(framework, client.root, {**record, "digest": digest})
    client.say(f"{framework}: pushed {image}@{digest}")


def _reference(client: Client, image: str, done: str) -> str:
    """Return *image* by its digest in its own repository."""
    repository = image.rpartition(":")[0] if ":" in image.rpartition("/")[2] else image
    listed = json.loads(client.ask("image", "inspect", "--format", "{{json .RepoDigests}}", image))
    for reference in listed or []:
        name, _, digest = str(reference).partition("@")
        # podman writes a name of Docker Hub out: docker.io/library/python.
        if repository in {name, name.removeprefix("docker.io/library/")} and _DIGEST.fullmatch(digest):
            return str(reference)
    raise BackendError(f"{client.program} does not tell the digest of {image}, which was {done}; it has {listed}")


def pinned_base(client: Client, base: str) -> str:
    """Return lines for ``config.env`` that name *base* by its digest."""
    if "@" in base:
        raise SettingsError(
            f"BASE_IMAGE={base} names a digest already; to renew it, make pin-base BASE_IMAGE=<name>:<tag>"
        )
    client.ask("pull", "--quiet", base)
    return f"# {base}, as its registry had it at {now()}\nBASE_IMAGE={_reference(client, base, 'pulled')}"
