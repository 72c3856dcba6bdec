"""What an image consists of, in the form that scanners read: CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).

Only the standard library is imported here: what is written is a list; a library for it would be one more to install.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

_DEBIAN, _CONDA = "debian ", "conda "


def sbom(framework: str, record: Mapping[str, str], packages: str) -> str:
    """Return the bill of materials of *framework*'s image.

    Args:
        framework: The name of the image's component.
        record: What is known of the image: ``image``, ``id``, ``built``, and ``base``, where its digest is known.
        packages: The list of its packages, as ``packages.txt`` in it has them.
    """
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
