"""Contents of an image: its packages, and its bill of materials.

The bill is CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/): a list, for which no library needs to be installed.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from oci_cluster.images.client import Client

_DEBIAN, _CONDA = "debian ", "conda "


def packages(client: Client, image_id: str, scratch: Path) -> str:
    """Return ``packages.txt`` of the image, out of a container that is never started."""
    container = client.ask("create", image_id)
    try:
        client.ask("cp", f"{container}:/opt/env/packages.txt", str(scratch / "packages.txt"))
    finally:
        client.ask("rm", "--force", container)
    return (scratch / "packages.txt").read_text()


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
