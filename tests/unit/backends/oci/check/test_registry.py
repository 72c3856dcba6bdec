"""What the registry's answers say of an image: they are somebody else's until they are checked."""

from __future__ import annotations

import io
import json
from typing import Any

import oci
import pytest
import requests
from unit.backends.oci.answers import item

from oci_cluster.backends.oci.check import image as registry
from oci_cluster.backends.oci.check.image import Image, Registry, region_of

DIGEST, CONFIG = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
INDEX = "application/vnd.oci.image.index.v1+json"


class Web:
    """The registry's host: what it answers by path, and what it was asked."""

    def __init__(self) -> None:
        self.digest = DIGEST
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {"/20180419/docker/token": {"token": "t0k"}}

    def get(self, url: str, **how: Any) -> requests.Response:
        path = url.removeprefix("https://iad.ocir.io")
        self.asked.append((path, how))
        found = self.answers.get(path, (404, {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "no such"}]}))
        status, body = found if isinstance(found, tuple) else (200, found)
        answer = requests.Response()
        answer.status_code, answer.reason = status, "Because"
        answer.raw = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        if "/manifests/" in path:
            answer.headers["Docker-Content-Digest"] = self.digest
        return answer


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Web:
    found = Web()
    monkeypatch.setattr(registry.requests, "get", found.get)
    return found


def look(reference: str = "1") -> Image:
    client = item(base_client=item(signer="signs"))
    found: Image = Registry("iad.ocir.io", client).image("ns/dask", reference).data
    return found


MANIFESTS = "/v2/ns/dask/manifests/1"
BLOBS = f"/v2/ns/dask/blobs/{CONFIG}"


def test_an_image_says_in_its_configuration_what_it_runs_on(web: Web) -> None:
    """The token is asked for once, with a signature; the rest has the token."""
    web.answers |= {MANIFESTS: {"config": {"digest": CONFIG}}, BLOBS: {"os": "linux", "architecture": "arm64"}}
    assert look() == Image(DIGEST, ("linux/arm64",))
    (token, signed), (_, manifest), (_, blob) = web.asked
    assert (token, signed["auth"]) == ("/20180419/docker/token", "signs")
    assert [how["headers"]["authorization"] for how in (manifest, blob)] == ["Bearer t0k"] * 2
    assert INDEX in manifest["headers"]["accept"]


def test_a_list_of_images_names_the_platforms_itself(web: Web) -> None:
    """What a builder has added is no platform; nothing more is asked for."""
    parts = [("linux", "amd64"), ("linux", "arm64"), ("unknown", "unknown"), ("linux", "amd64")]
    web.answers[MANIFESTS] = {
        "manifests": [{"platform": {"os": system, "architecture": machine}} for system, machine in parts]
    }
    assert look().platforms == ("linux/amd64", "linux/arm64")
    assert len(web.asked) == 2


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        [],
        {"config": None},
        {"config": {"digest": "../../other"}},
        {"config": {"digest": CONFIG}},
        {"manifests": [1, {"platform": []}, {"platform": {"os": "linux\n", "architecture": "amd64"}}]},
        b"<html>",
        b"[" * 100_000,
        {"manifests": [{"platform": {"os": "linux", "architecture": "amd64"}}], "too long": "x" * 5_000_000},
    ],
)
def test_what_cannot_be_read_has_no_platform(web: Web, manifest: Any) -> None:
    web.answers |= {MANIFESTS: manifest, BLOBS: {"os": "linux"}}
    assert look() == Image(DIGEST, ())
    assert {path for path, _ in web.asked} <= {"/20180419/docker/token", MANIFESTS, BLOBS}


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ((404, {"errors": [{"code": "NAME_UNKNOWN", "message": "no repository"}]}), "NAME_UNKNOWN", "no repository"),
        ((401, {"code": "NotAuthenticated", "message": "who?"}), "NotAuthenticated", "who?"),
        ((503, b"busy"), "", "Because"),
        ((403, {"errors": "denied"}), "", "Because"),
    ],
)
def test_a_refusal_has_the_registrys_own_words(web: Web, answer: Any, code: str, message: str) -> None:
    web.answers[MANIFESTS] = answer
    with pytest.raises(oci.exceptions.ServiceError) as caught:
        look()
    assert (caught.value.status, caught.value.code, caught.value.message) == (answer[0], code, message)


def test_an_answer_that_comes_in_parts_is_read_whole(web: Web) -> None:
    """Configurations of images with a long history are larger than one part."""
    configuration = {"history": ["x" * 200_000], "os": "linux", "architecture": "arm64"}
    web.answers |= {MANIFESTS: {"config": {"digest": CONFIG}}, BLOBS: configuration}
    assert look() == Image(DIGEST, ("linux/arm64",))


def test_a_digest_that_is_none_is_not_told(web: Web) -> None:
    web.answers[MANIFESTS] = {}
    web.digest = "sha256:short"
    assert look().digest == ""


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("iad.ocir.io", "us-ashburn-1"),
        ("us-phoenix-1.ocir.io", "us-phoenix-1"),
        ("ocir.eu-frankfurt-1.oci.oraclecloud.com", "eu-frankfurt-1"),
        ("xyz.ocir.io", "xyz"),
        ("ghcr.io", ""),
        ("ocir.io", ""),
        ("evil.example/iad.ocir.io", ""),
        ("localhost:5000", ""),
    ],
)
def test_a_registry_is_of_the_region_that_its_host_names(host: str, region: str) -> None:
    assert region_of(host) == region
