"""What talks to the registry, with a stub for the engine's program."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from unit.stub_engine import DIGEST, Checkout

from oci_cluster.errors import BackendError, ClusterError, NotPermittedError, SettingsError

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
