"""The registry as whoever reads of an image asks it: manifests and configurations of the table of images, no layers."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from oci_service.faults import Controls
from oci_service.resources import JSON, Answer, Refusal, Request, Route
from oci_service.signatures import Keys
from oci_service.tenancy import Tenancy

HOST = "iad.ocir.io"
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"


class ImageRegistry:
    """Answers what is asked with a token, which a signed request gets."""

    def __init__(self, controls: Controls, keys: Keys, tenancy: Tenancy, namespace: str) -> None:
        self._controls = controls
        self._keys = keys
        self._tenancy = tenancy
        self._namespace = namespace

    def routes(self) -> list[Route]:
        """Return the operations."""
        return [
            ("GET", "/20180419/docker/token", "get_token", self._get_token),
            ("GET", "/v2/{repository*}/manifests/{reference}", "get_manifest", self._get_manifest),
            ("GET", "/v2/{repository*}/blobs/{digest}", "get_blob", self._get_blob),
        ]

    def _get_token(self, request: Request) -> Answer:
        token = secrets.token_hex(32)
        self._keys.bearers[token] = request.principal
        return Answer({"token": token})

    def _images(self, repository: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield tags and images of a repository, which is named with its namespace."""
        for name, image in self._controls.images.items():
            path, _, tag = name.rpartition(":")
            if path == f"{HOST}/{repository}":
                yield tag, image

    def _get_manifest(self, request: Request) -> Answer:
        repository, reference = request.names["repository"], request.names["reference"]
        found = dict(self._images(repository))
        names = {item["displayName"] for item in self._tenancy.repositories.all()}
        if not found and repository not in {f"{self._namespace}/{name}" for name in names}:
            raise _refusal("NAME_UNKNOWN", f"repository name not known to registry: {repository}")
        for tag, image in found.items():
            if reference in {tag, image.get("digest")}:
                body, kind = _manifest(image)
                digest = image.get("digest") or _digest(body)
                return Answer(body, 200, {"docker-content-digest": digest, "content-type": kind})
        raise _refusal("MANIFEST_UNKNOWN", f"manifest unknown: {reference}")

    def _get_blob(self, request: Request) -> Answer:
        for _, image in self._images(request.names["repository"]):
            for platform in _platforms(image):
                if _digest(body := _config(platform)) == request.names["digest"]:
                    return Answer(body, 200, {"content-type": _CONFIG})
        raise _refusal("BLOB_UNKNOWN", "blob unknown to registry")


def _refusal(code: str, message: str) -> Refusal:
    refusal = Refusal(404, code, message)
    refusal.answer = Answer({"errors": [{"code": code, "message": message}]}, 404)
    return refusal


def _platforms(image: Mapping[str, Any]) -> list[str]:
    told = image.get("platform", "linux/amd64")
    return told if isinstance(told, list) else [told]


def _config(platform: str) -> bytes:
    system, _, architecture = platform.partition("/")
    return json.dumps({"os": system, "architecture": architecture, "rootfs": {"type": "layers"}}).encode()


def _manifest(image: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return an image's manifest, or the list of those of several platforms, and its type."""
    platforms = _platforms(image)
    configs = [_config(platform) for platform in platforms]
    parts: list[JSON] = [{"mediaType": _CONFIG, "digest": _digest(body), "size": len(body)} for body in configs]
    if len(parts) == 1:
        about: JSON = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": parts[0], "layers": []}
        return json.dumps(about).encode(), _MANIFEST
    for part, platform in zip(parts, platforms, strict=True):
        system, _, architecture = platform.partition("/")
        part |= {"mediaType": _MANIFEST, "platform": {"os": system, "architecture": architecture}}
    return json.dumps({"schemaVersion": 2, "mediaType": _INDEX, "manifests": parts}).encode(), _INDEX


def _digest(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"
