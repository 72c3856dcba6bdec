"""The layers of images, and their sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from oci_cluster.images import records
from oci_cluster.images.client import Client
from oci_cluster.system.screen import WHOLE, Screen

# Characters of a layer's maker, where no terminal bounds them: a RUN can be a page.
_LONGEST = 90


def size_table(client: Client, frameworks: Sequence[str], screen: Screen = WHOLE) -> str:
    """Return a table of the layers of each image, the last first; layers without files are left out.

    Args:
        client: The engine that has the images.
        frameworks: Whose images.
        screen: What it is shown on.

    Raises:
        SettingsError: one has not been built.
        BackendError: the engine does not have one any more.
    """
    tables = []
    room = _LONGEST if screen.columns is None else max(0, screen.columns - len(_size(0)))
    for framework in frameworks:
        record = records.of_built(framework, client.root)
        layers = _layers(client, record["id"])
        tables.append(f"{record['image']}  {sum(size for size, _ in layers) / 1e6:.1f} MB")
        tables += [_size(size) + screen.short(_maker(made), room) for size, made in layers if size]
    return "\n".join(tables)


def _size(count: int) -> str:
    return f"{count / 1e6:10.3f} MB  "


def _layers(client: Client, image_id: str) -> list[tuple[int, str]]:
    """Return bytes and maker of each layer of an image."""
    if client.engine.is_podman:  # whose templates know rounded sizes only
        found = json.loads(client.ask("history", "--no-trunc", "--format", "json", image_id))
        return [(int(layer["size"]), str(layer.get("CreatedBy") or layer.get("createdBy"))) for layer in found]
    form = ["--no-trunc", "--human=false", "--format", "{{.Size}}\t{{.CreatedBy}}"]
    lines = client.ask("history", *form, image_id).splitlines()
    return [(int(size), made) for size, _, made in (line.partition("\t") for line in lines)]


def _maker(made: str) -> str:
    """Return what made a layer, short: without what the engine puts around it."""
    text = re.sub(r"^(RUN )?(\|\d+ (\S+=\S* )*)?(/bin/\w+ (-\S+ |pipefail )*-c )?", "", made)
    return text.removesuffix(" # buildkit") or "the base image"
