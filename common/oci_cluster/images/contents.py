"""Contents of an image: its packages, its bill of materials, and the sizes of its layers.

The bill is CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/): a list, for which no library needs to be installed.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from oci_cluster.images import records
from oci_cluster.images.client import Client
from oci_cluster.system.screen import WHOLE, Screen

_DEBIAN, _CONDA = "debian ", "conda "
# Characters of a layer's maker, where no terminal bounds them: a RUN can be a page.
_LONGEST = 90


def packages(client: Client, image_id: str, scratch: Path) -> str:
    """Return ``packages.txt`` of the image, out of a container that is never started."""
    container = client.ask("create", image_id)
    try:
        client.ask("cp", f"{container}:/opt/env/packages.txt", str(scratch / "packages.txt"))
    finally:
        client.ask("rm", "--force", container)
    return (scratch / "packages.txt").read_text()


def platform(client: Client, image_id: str) -> str:
    """Return the platform, such as ``linux/amd64``; empty where the engine does not tell."""
    told = client.ask("image", "inspect", "--format", "{{.Os}}/{{.Architecture}}", image_id)
    return records.platform_of({"platform": told})


def sbom(framework: str, record: Mapping[str, str], packages: str) -> str:
    """Return the bill of materials of *framework*'s image, of its *record* and ``packages.txt``."""
    image = {"type": "container", "bom-ref": record["id"], "name": record["image"]}
    properties = [{"name": "oci-cluster:image-id", "value": record["id"]}]
    if record.get("base"):
        properties.append({"name": "oci-cluster:base-image", "value": record["base"]})
    # Of the same image always the same.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, f"{framework}/{record['id']}")
    components = [_component(line) for line in packages.splitlines() if line.strip()]
    content = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {"timestamp": record["built"], "component": image, "properties": properties},
        # One package may be installed twice, such as by conda and pip; of a reference there may be one.
        "components": [*{component["bom-ref"]: component for component in components}.values()],
    }
    return json.dumps(content, indent=2) + "\n"


def _component(line: str) -> dict[str, Any]:
    """Return the package in a *line* of ``packages.txt``."""
    if line.startswith(_CONDA):
        name, version, build = line.removeprefix(_CONDA).rsplit("-", 2)
        url = f"pkg:conda/{quote(name)}@{quote(version, safe='')}?build={quote(build, safe='')}"
    else:
        name, _, version = line.removeprefix(_DEBIAN).partition("==")
        is_debian = line.startswith(_DEBIAN)
        # PyPI's names are compared so; a + in a version (2.13.0+cpu) would be a blank.
        shown = f"deb/debian/{quote(name)}" if is_debian else f"pypi/{quote(name.lower().replace('_', '-'))}"
        url = f"pkg:{shown}@{quote(version, safe='')}"
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


def size_table(client: Client, frameworks: Sequence[str], screen: Screen = WHOLE) -> str:
    """Return a table of the layers of each image, the last first, without empty ones."""
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
    """Return the command that made a layer, without what the engine puts around it."""
    text = re.sub(r"^(RUN )?(\|\d+ (\S+=\S* )*)?(/bin/\w+ (-\S+ |pipefail )*-c )?", "", made)
    return text.removesuffix(" # buildkit") or "the base image"
