"""What a build gets of a project that has a .dockerignore of its own, or none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from unit.stub_engine import Checkout

from oci_cluster.errors import BackendError
from oci_cluster.images.build import ignore_file

ROOT = Path(__file__).resolve().parents[3]
NAME = "Dockerfile.dockerignore"


@pytest.mark.parametrize("theirs", [None, "", "# all\n*\n!src\n"])
def test_what_images_are_made_of_is_sent_and_keys_are_not(tmp_path: Path, theirs: str | None) -> None:
    """The last line that fits decides: theirs, then what is needed, then what never goes."""
    (tmp_path / "dask").mkdir()
    if theirs is not None:
        (tmp_path / ".dockerignore").write_text(theirs)
    with ignore_file(tmp_path, "dask", ["gpu.yaml"]) as path:
        assert path == tmp_path / "dask" / NAME
        lines = path.read_text().splitlines()[1:]
    their_lines = (theirs or "").splitlines()
    assert lines[: len(their_lines) + 4] == [*their_lines, "!common", "!scripts/sessions", "!dask", "!gpu.yaml"]
    assert {"**/.*", "**/*.[pP][eE][mM]", "!*/settings.env"} <= set(lines[len(their_lines) + 4 :])
    assert not path.exists()


def test_ours_alone_needs_no_second_one(tmp_path: Path) -> None:
    (tmp_path / "dask").mkdir()
    shutil.copy(ROOT / ".dockerignore", tmp_path)
    with ignore_file(tmp_path, "dask", []) as path:
        assert path is None
        assert [*(tmp_path / "dask").iterdir()] == []


def test_one_of_the_users_own_is_left_alone_and_one_of_a_killed_build_is_not(tmp_path: Path) -> None:
    (tmp_path / "dask").mkdir()
    (tmp_path / "dask" / NAME).write_text("*\n")
    with ignore_file(tmp_path, "dask", []) as path:
        assert path is None
    assert (tmp_path / "dask" / NAME).read_text() == "*\n"
    (tmp_path / "dask" / NAME).unlink()
    with ignore_file(tmp_path, "dask", []) as path:
        assert path
        left = path.read_text()
    (tmp_path / "dask" / NAME).write_text(left)
    with ignore_file(tmp_path, "dask", []) as path:
        assert path
    assert not (tmp_path / "dask" / NAME).exists()


@pytest.mark.parametrize(("engine", "is_told"), [("docker", False), ("podman", True)])
def test_a_build_has_it_and_podman_is_told_where(tmp_path: Path, engine: str, is_told: bool) -> None:  # noqa: FBT001
    """It goes with the build, also with one that fails."""
    checkout = Checkout(tmp_path, engine)
    (checkout.root / ".dockerignore").write_text("*\n")
    checkout.images().build(["dask"])
    command = checkout.calls()[0]
    assert (f"build --ignorefile {checkout.root}/dask/{NAME} " in command) is is_told
    checkout.set(fails="1")
    with pytest.raises(BackendError):
        checkout.images().build(["dask"])
    assert [*checkout.root.rglob(NAME)] == []


def test_other_folders_with_a_dockerfile_are_no_frameworks(tmp_path: Path) -> None:
    """A project has images of its own."""
    checkout = Checkout(tmp_path)
    (checkout.root / "app").mkdir()
    (checkout.root / "app" / "Dockerfile").touch()
    assert checkout.run("build") == 0
    assert sorted(call.split()[4] for call in checkout.calls() if call.startswith("build")) == [
        *("dask/Dockerfile", "pytorch/Dockerfile"),
    ]
