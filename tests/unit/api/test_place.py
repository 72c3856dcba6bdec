"""Which project, which backend, whose settings."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from unit.api.conftest import PACKAGE, Site

from oci_cluster.api import place as module
from oci_cluster.api.auth import ConfigProfile
from oci_cluster.api.place import Place, check_same_contract, find_project
from oci_cluster.errors import SettingsError, UsageError
from oci_cluster.project.wheel import pack, read_checkout

ROOT = PACKAGE.parents[1]


def installed_from(monkeypatch: pytest.MonkeyPatch, url: object) -> None:
    """Have the package be installed from *url*, far from any checkout."""

    class Distribution:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if url is None else json.dumps({"url": url})

    monkeypatch.setattr(module, "_PACKAGE", Path("/site-packages/oci_cluster"))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Distribution())


def test_a_project_is_named_around_here_or_where_the_package_is(site: Site, tmp_path: Path) -> None:
    """In this order."""
    inside = site.root / "plain"
    assert find_project(site.root, tmp_path, {}) == site.root
    assert find_project("my project", tmp_path, {"OCI_CLUSTER_PROJECT": "/none"}) == site.root
    assert find_project(None, tmp_path, {"OCI_CLUSTER_PROJECT": "my project"}) == site.root
    assert find_project(None, inside, {}) == site.root
    assert find_project(None, tmp_path, {}) == ROOT


def test_a_package_knows_what_it_was_installed_from(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As installers record it; with a blank in its path."""
    installed_from(monkeypatch, (site.root / "common").as_uri())
    assert find_project(None, tmp_path, {}) == site.root


@pytest.mark.parametrize("url", [None, "https://host/a.whl", 7, "file:///gone/common"])
def test_without_a_project_the_next_step_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: object) -> None:
    installed_from(monkeypatch, url)
    with pytest.raises(SettingsError, match="there is no checkout of this project around") as caught:
        find_project(None, tmp_path, {})
    assert caught.value.next_step == "name one: Cluster(..., project=PATH), or OCI_CLUSTER_PROJECT=PATH"


def test_a_folder_that_is_no_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"{tmp_path} is not a checkout of this project"):
        find_project(tmp_path, tmp_path, {})


def test_a_package_that_is_not_installed_is_of_no_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", fail)
    monkeypatch.setattr(module, "_PACKAGE", Path("/site-packages/oci_cluster"))
    with pytest.raises(SettingsError, match="there is no checkout"):
        find_project(None, tmp_path, {})


def test_a_project_with_a_wheel_is_one_and_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the package was installed from that wheel; the package that asks must be the same."""
    files = {
        name: file for name, file in read_checkout(ROOT).items() if name.startswith(("common/", "scripts/backends/"))
    }
    name, content = pack(files, [])
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / name).write_bytes(content)
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "lib.sh").touch()
    place = Place.of("local", tmp_path, {}, None)
    assert place.root == tmp_path
    assert (tmp_path / "scripts/backends/local.env").is_file()
    installed_from(monkeypatch, (tmp_path / "vendor" / name).as_uri())
    assert find_project(None, Path("/"), {}) == tmp_path


@pytest.mark.parametrize("what", ["changed", "missing", "more"])
def test_nodes_of_another_contract_are_not_launched(tmp_path: Path, what: str) -> None:
    """A file of `contract/` that differs, is missing, or is there besides."""
    contract = tmp_path / "common" / "oci_cluster" / "contract"
    contract.mkdir(parents=True)
    for path in (PACKAGE / "contract").glob("*.py"):
        (contract / path.name).write_bytes(path.read_bytes())
    check_same_contract(tmp_path)
    if what == "missing":
        (contract / "names.py").unlink()
    else:
        (contract / ("names.py" if what == "changed" else "new.py")).write_text("# other\n")
    with pytest.raises(SettingsError, match=f"is of another version than {tmp_path}") as caught:
        check_same_contract(tmp_path)
    assert caught.value.next_step == f"install it again: python -m pip install {tmp_path}/common"


def test_settings_win_over_environment_and_config(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (site.root / "config.env").write_text("BACKEND=docker\nCPUS=1\nMEMORY=1g\nTTL=1h\n")
    monkeypatch.setenv("CPUS", "2")
    monkeypatch.setenv("MEMORY", "2g")
    found = Place.of("", site.root, {"CPUS": "3"}, None)
    assert (found.backend, found.given["CPUS"], found.given["MEMORY"], found.given["TTL"]) == (
        "docker",
        "3",
        "2g",
        "1h",
    )
    assert Place.of("", site.root, {"BACKEND": "local"}, None).backend == "local"
    assert Place.of("oci", site.root, {}, ConfigProfile("T")).given["OCI_CLI_PROFILE"] == "T"
    assert "s3cret" not in repr(Place.of("local", site.root, {"X": "s3cret"}, None))


def test_a_backend_that_is_none_and_somebody_elses_identity_are_refused(site: Site) -> None:
    with pytest.raises(UsageError, match="unknown backend 'cloud'; there is: docker kubernetes local oci"):
        Place.of("cloud", site.root, {}, None)
    with pytest.raises(UsageError, match="ConfigProfile is for the backend oci, and not for local; leave auth= out"):
        Place.of("local", site.root, {}, ConfigProfile())


def test_packages_that_are_missing_are_named_with_their_extra(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As installers record what the package declares; a checkout's own environment has all."""
    declared = [
        "fsspec>=2024.2",
        'no-such-a>=3; extra == "oci"',
        "no-b ; extra == 'oci'",
        'no-c; extra == "kubernetes"',
    ]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: declared)
    with pytest.raises(
        SettingsError, match=r"the backend oci needs packages that are missing in this Python: no-such-a, no-b;"
    ):
        Place.of("oci", site.root, {}, None)
    assert Place.of("local", site.root, {}, None).backend == "local"


def test_what_is_missing_is_asked_of_distributions() -> None:
    """A folder of a module's name is none."""
    assert module.missing_here(["pytest", "no-such-package"]) == ["no-such-package"]


def test_a_process_asks_oci_as_one_identity(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets are opened by one; the same one may ask again."""
    monkeypatch.setattr(module, "_identity", [])
    first, other = (Place.of("oci", site.root, {}, ConfigProfile(name)) for name in ("A", "B"))
    first.open()
    first.open()
    with pytest.raises(SettingsError, match="this process asks OCI with other settings already"):
        other.open()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib")
def test_the_package_declares_what_it_imports() -> None:
    """Ranges of what the lists for the locks name."""
    import tomllib  # noqa: PLC0415 - not in 3.10

    project = tomllib.loads((ROOT / "common" / "pyproject.toml").read_text())["project"]
    name = re.compile(r"[A-Za-z0-9.-]+")

    def names(lines: list[str]) -> set[str]:
        return {match[0] for line in lines if (match := name.match(line))}

    def listed(file: str) -> set[str]:
        lines = (ROOT / "common" / file).read_text().splitlines()
        # oci-cli pins the SDK, which is what is imported.
        return names([line.replace("oci-cli", "oci") for line in lines if not line.startswith("-r")])

    extras = project["optional-dependencies"]
    assert names(project["dependencies"]) == listed("requirements.in")
    for backend in ("oci", "kubernetes"):
        assert names(extras[backend]) == listed(f"requirements-{backend}.in")
    every = [line for lines in (project["dependencies"], *extras.values()) for line in lines]
    assert not any("==" in line.partition(";")[0] for line in every)
