"""Asks OCI's registry for an image's digest and platforms; nothing is downloaded.

The registry knows API keys, sessions and principals, as all of OCI does: a signed request gets a token that lasts for
minutes, and no login of a container engine is needed. Source: Oracle's A-Team, "Authentication Mechanisms for OCI
Container Registry"; the requests are those of the OCI Distribution Specification.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import oci
import requests

_TOKEN = "/20180419/docker/token"  # noqa: S105 - a path
# An image, and a list of images for several platforms, in the words of OCI and of Docker.
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
# Seconds to connect, and between two bytes.
_TIMEOUTS_S = (10, 30)
# Source: the specification: "registries SHOULD enforce a limit of 4 megabytes on manifests".
_MOST_BYTES = 4_000_000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_WORD = re.compile(r"[a-z0-9_.-]{1,40}")


@dataclass(frozen=True)
class Image:
    """An image's digest and platforms; empty is what the registry does not tell."""

    digest: str
    platforms: tuple[str, ...]


def region_of(host: str) -> str:
    """Return the region of a registry: ``us-ashburn-1`` of ``iad.ocir.io``; empty if not OCI's."""
    # Source: OCI's documentation of Container Registry: the region's name or key, and ocir.<region>.oci.<domain>.
    found = re.fullmatch(r"([a-z0-9-]+)\.ocir\.io|ocir\.([a-z0-9-]+)\.oci\.[a-z0-9.-]+", host)
    if not found:
        return ""
    return region_named(found[1] or found[2])


def region_named(word: str) -> str:
    """Return the region of a key or name: ``us-ashburn-1`` for ``IAD``."""
    return str(oci.regions.REGIONS_SHORT_NAMES.get(word.lower(), word.lower()))


def key_of(region: str) -> str:
    """Return the key of *region* in names of images: ``iad`` for ``us-ashburn-1``."""
    return next((key for key, name in oci.regions.REGIONS_SHORT_NAMES.items() if name == region), region)


class Registry:
    """Asks the registry *host* with the identity of *client*, any client of the SDK."""

    def __init__(self, host: str, client: Any) -> None:
        self._host = host
        self._signer = client.base_client.signer
        self._token = ""

    def image(self, repository: str, reference: str) -> Any:
        """Return the image of *repository*, with its namespace, as ``data``."""
        answer, body = self._get(f"/v2/{repository}/manifests/{reference}", accept=", ".join(_MANIFESTS))
        digest = answer.headers.get("docker-content-digest", "")
        manifest = _object(body)
        parts = [part for part in _list(manifest.get("manifests")) if isinstance(part, dict)]
        described = [_mapping(part.get("platform")) for part in parts]
        if not parts:
            config = str(_mapping(manifest.get("config")).get("digest"))
            is_told = _DIGEST.fullmatch(config) is not None
            described = [_object(self._get(f"/v2/{repository}/blobs/{config}")[1])] if is_told else []
        platforms = dict.fromkeys(text for about in described if (text := _platform(about)))
        image = Image(digest if _DIGEST.fullmatch(digest) else "", tuple(platforms))
        return SimpleNamespace(data=image, headers=answer.headers)

    def _get(self, path: str, **headers: str) -> tuple[requests.Response, bytes]:
        if not self._token:
            _, body = self._ask(_TOKEN, auth=self._signer)
            self._token = str(_object(body).get("token", ""))
        return self._ask(path, headers={**headers, "authorization": f"Bearer {self._token}"})

    def _ask(self, path: str, **how: Any) -> tuple[requests.Response, bytes]:
        with requests.get(f"https://{self._host}{path}", timeout=_TIMEOUTS_S, stream=True, **how) as answer:
            body = b""
            for part in answer.iter_content(1 << 16):
                body += part
                if len(body) > _MOST_BYTES:
                    break
        if answer.ok:
            return answer, body
        errors = [*_list(_object(body).get("errors")), {}]
        said = {**_object(body), **_mapping(errors[0])}
        words = str(said.get("code", "")), answer.headers, str(said.get("message", answer.reason))
        raise oci.exceptions.ServiceError(answer.status_code, *words)


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(body))
    except (ValueError, RecursionError):
        return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _platform(about: Mapping[str, Any]) -> str:
    """Return the platform of a configuration or entry; empty if there is none."""
    words = [str(about.get(name, "")) for name in ("os", "architecture")]
    # What builders add to a list besides images, such as where they come from, is of the platform unknown/unknown.
    return "/".join(words) if all(map(_WORD.fullmatch, words)) and "unknown" not in words else ""
