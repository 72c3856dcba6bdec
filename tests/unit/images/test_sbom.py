"""The bill of materials of an image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unit.stub_engine import Checkout

from oci_cluster.images.contents import sbom

RECORD = {"image": "localhost/oci-cluster/dask:1", "id": "sha256:1", "built": "2026-01-02T03:04:05Z", "base": ""}
PACKAGES = """\
torch==2.13.0+cpu
backports.tarfile==1.2.0
Jinja_2==3
debian libc6==1:2.36-9+deb12u7
conda gdal-core-3.8-h1_2
"""


def read(checkout: Checkout) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((checkout.root / ".images" / "dask.sbom.json").read_text())
    return found


def test_every_package_has_the_name_by_which_scanners_know_it() -> None:
    """PyPI's, Debian's and conda's; the characters that have a meaning in such a name are hidden."""
    bill = json.loads(sbom("dask", RECORD, PACKAGES))
    assert [component["purl"] for component in bill["components"]] == [
        "pkg:pypi/torch@2.13.0%2Bcpu",
        "pkg:pypi/backports.tarfile@1.2.0",
        "pkg:pypi/jinja-2@3",
        "pkg:deb/debian/libc6@1%3A2.36-9%2Bdeb12u7",
        "pkg:conda/gdal-core@3.8?build=h1_2",
    ]
    assert [(part["name"], part["version"]) for part in bill["components"][::3]] == [
        ("torch", "2.13.0+cpu"),
        ("libc6", "1:2.36-9+deb12u7"),
    ]
    assert len({part["bom-ref"] for part in bill["components"]}) == 5


def test_it_is_one_of_cyclonedx() -> None:
    """The fields that its schema asks for; of the same image the same again, of another another."""
    bill = json.loads(sbom("dask", RECORD, PACKAGES))
    assert {name: bill[name] for name in ("bomFormat", "specVersion", "version")} == {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
    }
    assert all({"type", "name"} <= set(component) for component in bill["components"])
    assert bill["metadata"]["component"]["name"] == RECORD["image"]
    assert bill["metadata"]["timestamp"] == RECORD["built"]
    again, other = (json.loads(sbom("dask", {**RECORD, "id": id_}, PACKAGES)) for id_ in ("sha256:1", "sha256:2"))
    assert (again == bill, other["serialNumber"] == bill["serialNumber"]) == (True, False)


def test_a_package_that_two_have_installed_is_one() -> None:
    """References are unique in a bill."""
    assert len(json.loads(sbom("dask", RECORD, "a==1\na==1\n"))["components"]) == 1


def test_a_build_writes_it_beside_its_record(checkout: Checkout) -> None:
    """With the base's digest, where the engine had one; where the bill is gone, it is written again."""
    digest = f"python@sha256:{'a' * 64}"
    checkout.set(build=f"#5 [base 1/2] FROM docker.io/library/{digest}\n#6 [environment 1/2] FROM base\n")
    checkout.images().build(["dask"])
    bill, record = read(checkout), checkout.record()
    assert [component["purl"] for component in bill["components"]] == ["pkg:pypi/dask@1.0"]
    assert record is not None
    assert record["base"] == f"docker.io/library/{digest}"
    assert {"name": "oci-cluster:base-image", "value": record["base"]} in bill["metadata"]["properties"]
    path = Path(checkout.root, ".images", "dask.sbom.json")
    path.unlink()
    checkout.images().build(["dask"])
    assert path.exists()
    checkout.set(build="#5 [base 1/2] FROM docker.io/library/python:3.11\n", id="sha256:2")
    checkout.images().build(["dask"])
    assert (checkout.record() or {})["base"] == ""
    assert len(read(checkout)["metadata"]["properties"]) == 1
