"""What talks to the registry, with a stub for the engine's program."""

from __future__ import annotations

import json
import re
import urllib.error
from email.message import Message
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from unit.stub_engine import DIGEST, Checkout

from oci_cluster.errors import BackendError, ClusterError, NotPermittedError, SettingsError
from oci_cluster.images import registry as registry_module
from oci_cluster.images.registry import has_credentials

# --- Login ----------------------------------------------------------------------------------------------------------


def refuse(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> list[str]:
    """Have a registry answer with *error*; return what is asked."""
    asked: list[str] = []

    def urlopen(url: str, timeout: float) -> BytesIO:
        asked.append(url)
        if error:
            raise error
        return BytesIO()

    monkeypatch.setattr(registry_module.urllib.request, "urlopen", urlopen)
    return asked


def http_error(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("url", code, "no", Message(), BytesIO())


def test_a_registry_that_wants_a_login_stops_before_any_work(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked, and what to type is told (77)."""
    asked = refuse(monkeypatch, http_error(401))
    with pytest.raises(NotPermittedError, match=r"not logged in to r.example:444: .*docker login r.example:444"):
        checkout.images(REGISTRY="r.example:444/team").check(["dask"], build=True, push=True)
    assert asked == ["https://r.example:444/v2/"]


@pytest.mark.parametrize("error", [None, http_error(404), OSError("no route")])
def test_a_registry_that_does_not_want_one_is_pushed_to(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """So is one that only the engine can reach."""
    refuse(monkeypatch, error)
    checkout.images(REGISTRY="r.example/team").check(["dask"], build=True, push=True)


@pytest.mark.parametrize("registry", ["localhost:5000/team", "127.0.0.1:5000"])
def test_a_registry_of_this_machine_is_not_asked(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, registry: str
) -> None:
    """Engines speak plain HTTP with it."""
    refuse(monkeypatch, http_error(401))
    checkout.images(REGISTRY=registry).check(["dask"], build=True, push=True)


@pytest.mark.parametrize(
    ("config", "is_known"),
    [
        ({"auths": {"r.example": {}}}, True),
        ({"auths": {"https://r.example/v1/": {}}}, True),
        ({"auths": {"r.example.org": {}}}, False),
        ({"credHelpers": {"r.example": "x"}}, True),
        ({"credsStore": "desktop"}, True),
        ({}, False),
    ],
)
def test_a_login_is_found_where_the_engine_keeps_it(tmp_path: Path, config: dict[str, Any], *, is_known: bool) -> None:
    """In docker's file, wherever that is, and in podman's."""
    for place, environ in (
        (tmp_path / ".docker" / "config.json", {}),
        (tmp_path / "own" / "config.json", {"DOCKER_CONFIG": str(tmp_path / "own")}),
        (tmp_path / ".config" / "containers" / "auth.json", {}),
        (tmp_path / "run" / "containers" / "auth.json", {"XDG_RUNTIME_DIR": str(tmp_path / "run")}),
        (tmp_path / "auth.json", {"REGISTRY_AUTH_FILE": str(tmp_path / "auth.json")}),
    ):
        assert not has_credentials("r.example", {"HOME": str(tmp_path), **environ})
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(config))
        assert has_credentials("r.example", {"HOME": str(tmp_path), **environ}) is is_known
        place.write_text("not JSON")


# --- Push -----------------------------------------------------------------------------------------------


def test_a_push_records_the_digest_of_its_own_repository(built: Checkout) -> None:
    """The engine knows the image under others, too."""
    built.images().push(["dask"])
    assert (built.calls()[0], (built.record() or {})["digest"]) == ("push r.example/team/dask:v1", DIGEST)
    assert built.said == [f"dask: pushed r.example/team/dask:v1@{DIGEST}"]
    built.images().push(["dask"])
    assert built.said[1:] == [f"dask: r.example/team/dask:v1@{DIGEST} is in the registry"]


def test_podman_tells_the_digest_in_a_file(tmp_path: Path) -> None:
    """What it knows by itself may be another one, before compression."""
    checkout = Checkout(tmp_path, "podman")
    checkout.set(digests="[]")
    checkout.images(REGISTRY="r.example/team").build(["dask"])
    checkout.images().push(["dask"])
    assert (checkout.record() or {})["digest"] == DIGEST


def test_a_push_without_a_digest_is_no_success(built: Checkout) -> None:
    """A launch would run something else."""
    built.set(digests="null")
    with pytest.raises(BackendError, match="does not tell the digest"):
        built.images().push(["dask"])
    assert (built.record() or {})["digest"] == ""


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("denied: requested access to the resource is denied", NotPermittedError),
        ("unauthorized: authentication required", NotPermittedError),
        ("dial tcp: i/o timeout", BackendError),
    ],
)
def test_a_push_that_fails_says_why(built: Checkout, said: str, kind: type[ClusterError]) -> None:
    """Who may not write there is told to log in (77)."""
    built.set(push=f"{said}\n", fails="1")
    with pytest.raises(ClusterError, match=re.escape(said)) as caught:
        built.images().push(["dask"])
    assert (type(caught.value), "log in" in str(caught.value)) == (kind, kind is NotPermittedError)


@pytest.mark.parametrize("framework", ["dask", "pytorch"])
def test_what_was_not_built_is_not_pushed(built: Checkout, framework: str) -> None:
    """Neither under another name than it was built, nor at all; nothing is pushed of the others then."""
    with pytest.raises(SettingsError, match=rf"r.example/other/{framework}:v1 has not been built here.*make build-"):
        built.images(REGISTRY="r.example/other").push([framework])
    assert built.calls() == []


# --- The base -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "told"), [("python", "python"), ("docker.io/library/python", "docker.io/library/python")]
)
def test_the_base_is_named_by_the_digest_that_its_registry_has(
    checkout: Checkout, capsys: pytest.CaptureFixture[str], listed: str, told: str
) -> None:
    """That of the Dockerfiles, unless another is chosen; what is printed is a line for config.env."""
    (checkout.root / "dask" / "Dockerfile").write_text("ARG BASE_IMAGE=python:3.11\nFROM ${BASE_IMAGE}\n")
    checkout.set(digests=json.dumps([f"elsewhere/python@{DIGEST[:-1]}1", f"{listed}@{DIGEST}"]))
    assert checkout.run("pin-base") == 0
    assert capsys.readouterr().out.splitlines()[1:] == [f"BASE_IMAGE={told}@{DIGEST}"]
    assert "pull --quiet python:3.11" in checkout.calls()


def test_a_base_whose_digest_nobody_knows_is_told(checkout: Checkout) -> None:
    """Nothing is made up; nor is one renewed that is a digest."""
    (checkout.root / "dask" / "Dockerfile").write_text("FROM x\n")
    with pytest.raises(SettingsError, match="has no line 'ARG BASE_IMAGE"):
        checkout.run("pin-base")
    checkout.environ["BASE_IMAGE"] = "mine:1"
    with pytest.raises(BackendError, match="does not tell the digest of mine:1, which was pulled"):
        checkout.run("pin-base")
    checkout.environ["BASE_IMAGE"] = f"mine@{DIGEST}"
    with pytest.raises(SettingsError, match="names a digest already"):
        checkout.run("pin-base")
