"""Checks the image of a launch: whether nodes get it, and can run it. Nothing is downloaded.

The registry knows API keys, sessions and principals, as all of OCI does: a signed request gets a token that lasts for
minutes, and no login of a container engine is needed. Source: Oracle's A-Team, "Authentication Mechanisms for OCI
Container Registry"; the requests are those of the OCI Distribution Specification.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import oci
import requests

from oci_cluster.backends.findings import Checked, Finding, fails, fine, unknown
from oci_cluster.backends.oci.settings import IMAGE_NAME, read_settings
from oci_cluster.backends.oci.tenancy.client import Answer, Tenancy
from oci_cluster.backends.oci.tenancy.requirements import Needed, for_people
from oci_cluster.backends.oci.tenancy.shapes import platform_of
from oci_cluster.images import records

REPOSITORY, IMAGE, PLATFORM = "repository", "image", "image platform"
# Codes of the OCI Distribution Specification: there is no such repository, or nothing of that tag or digest in it.
_NO_REPOSITORY, _NO_IMAGE = "NAME_UNKNOWN", "MANIFEST_UNKNOWN"
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
class _Name:
    """The parts of an image's name."""

    host: str
    namespace: str
    repository: str
    tag: str
    digest: str

    def __str__(self) -> str:
        return f"{self.host}/{self.namespace}/{self.repository}:{self.tag}"


def findings(checked: Checked, tenancy: Tenancy, needed: Needed) -> Iterator[Finding]:
    """Yield what is found of the image: its repository, tag, digest and platform."""
    name = _name_of(checked)
    if name is None:
        yield unknown(IMAGE, "which image is wanted is not known, as settings are wrong or none was pushed from here")
        return
    if region_of(name.host) != (region := region_named(tenancy.service.region)):
        yield unknown(IMAGE, f"{name.host} was not asked for {name}: it is not the registry of {region}")
        return
    answer = _Place(checked, tenancy, needed).look(name)
    if isinstance(answer, Finding):
        yield answer
        return
    image: Image = answer.value
    yield _image_of(name, image, checked.framework)
    yield _platform_of(name, image, checked)


def _name_of(checked: Checked) -> _Name | None:
    wanted = (checked.plan.settings if checked.plan else checked.given).get("IMAGE", "")
    wanted = wanted.replace("{framework}", checked.framework)
    found = IMAGE_NAME.fullmatch(records.pushed_image(wanted, checked.framework, checked.root))
    if not found or "/" not in found["path"]:
        return None
    namespace, _, repository = found["path"].partition("/")
    return _Name(found["host"], namespace, repository, found["tag"], found["digest"] or "")


@dataclass(frozen=True)
class _Place:
    """The registry of one launch's image, and what OCI lists of it."""

    checked: Checked
    tenancy: Tenancy
    needed: Needed

    def look(self, name: _Name) -> Answer | Finding:
        """Return the image as the registry or OCI's list tells, or what is wrong."""
        tenancy = self.tenancy
        registry = Registry(name.host, tenancy.client(oci.artifacts.ArtifactsClient))
        path = f"{name.namespace}/{name.repository}"
        answer = tenancy.ask(f"look up the image {name}", registry.image, path, name.tag)
        if answer.is_given:
            return answer
        if answer.code == _NO_REPOSITORY:
            return self._no_repository(name)
        return self._no_image(name) if answer.code == _NO_IMAGE else self._listed(name, answer.why)

    def _listed(self, name: _Name, why: str) -> Answer | Finding:
        """Return what OCI lists of *name*, which its registry does not show: *why*."""
        tenancy, repository = self.tenancy, self.tenancy.repository(name.repository)
        if not repository.is_given:
            see = f"read repos in {self.needed.images} where target.repo.name = '{name.repository}'"
            return unknown(IMAGE, why, f"# lets it be seen:\n{for_people(self.needed, see)}")
        if not repository.value:
            return self._no_repository(name)
        request = tenancy.client(oci.artifacts.ArtifactsClient).list_container_images
        where = {"repository_name": name.repository, "version": name.tag}
        home = repository.value.compartment_id
        images = tenancy.ask_all(f"look up the image {name} in a list", request, home, **where)
        if not images.is_given:
            return unknown(IMAGE, images.why)
        found = images.value
        return Answer(Image(found[0].digest or "", ())) if found else self._no_image(name)

    def _no_repository(self, name: _Name) -> Finding:
        own = self.tenancy.namespace
        if own.is_given and own.value != name.namespace:
            text = f"{name} is not there: {name.namespace} is not the namespace of this tenancy, which is {own.value}"
            return fails(REPOSITORY, text, f"IMAGE={replace(name, namespace=own.value)}")
        home = self.tenancy.places.images or "<the compartment of the images>"
        make = f"oci artifacts container repository create --compartment-id {home} --display-name {name.repository}"
        text = f"there is no repository {name.repository} in {name.host}/{name.namespace}"
        return fails(REPOSITORY, text, f"{make}\n{_push(name, self.checked.framework)}")

    def _no_image(self, name: _Name) -> Finding:
        text = f"there is no {name.tag} in the repository {name.repository} of {name.host}"
        return fails(IMAGE, text, _push(name, self.checked.framework))


def _push(name: _Name, framework: str) -> str:
    """Return the command that pushes *name*: make for ours, docker for others."""
    folder, _, last = f"{name.host}/{name.namespace}/{name.repository}".rpartition("/")
    return f"make push-{framework} REGISTRY={folder} TAG={name.tag}" if last == framework else f"docker push {name}"


def _image_of(name: _Name, image: Image, framework: str) -> Finding:
    if not name.digest or name.digest == image.digest:
        return fine(IMAGE, f"{name}@{image.digest}" if image.digest else f"{name} is there")
    if not image.digest:
        return unknown(IMAGE, f"{name} is there, and {name.host} does not tell its digest; {name.digest} is wanted")
    text = f"{name} is {image.digest} now, and {name.digest} is wanted, as IMAGE or .images/{framework}.json say"
    fix = f"IMAGE={name}@{image.digest}\n# or push what was built here: {_push(name, framework)}"
    return fails(IMAGE, text, fix)


def _platform_of(name: _Name, image: Image, checked: Checked) -> Finding:
    wanted = ["linux/amd64"]
    if plan := checked.plan:
        machines = read_settings(plan, checked.root)[0]["machines"]
        wanted = sorted({platform_of(str(machines[node.role]["shape"])) for node in plan.nodes})
    there, told_by = image.platforms, name.host
    if not there:
        record = records.read(checked.framework, checked.root) or {}
        is_it = record.get("digest", "") in {image.digest, name.digest} - {""} or record.get("image") == str(name)
        own = records.platform_of(record) if is_it else ""
        if not own:
            text = f"neither {name.host} nor .images/{checked.framework}.json tells what {name} runs on"
            return unknown(PLATFORM, f"{text}; make build-{checked.framework} writes it, if it was built here")
        there, told_by = (own,), f".images/{checked.framework}.json"
    lacking = [platform for platform in wanted if platform not in {"/".join(one.split("/")[:2]) for one in there}]
    if not lacking:
        return fine(PLATFORM, f"{', '.join(wanted)}, as {told_by} says")
    text = f"{name} is for {', '.join(there)}, as {told_by} says, and the machines need {', '.join(lacking)}"
    return fails(PLATFORM, text, f"PLATFORM={','.join(wanted)} {_push(name, checked.framework)}")


# --- The registry ----------------------------------------------------------------------------------------------------


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
