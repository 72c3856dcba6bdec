"""What `make lock` has uv lock, and where; a program in its place keeps what it was asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.stub_program import write_program

from oci_cluster.errors import BackendError
from oci_cluster.images.lock import write_lock
from oci_cluster.system.envs.package_lists import head

UV = """import json, pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--output-file") + 1])
wanted = sys.stdin.read().split("\\n")
if "broken" in wanted:
    sys.exit("no solution found")
out.write_text("locked " + json.dumps(wanted) + "\\n")
"""


@pytest.fixture
def uv(tmp_path: Path) -> str:
    path = tmp_path / "uv"
    write_program(path, UV)
    return str(path)


def folder(path: Path, *packages: str) -> Path:
    path.mkdir()
    (path / "env.yaml").write_text("dependencies:\n- pip:\n" + "".join(f"  - {package}\n" for package in packages))
    return path


def test_one_lock_is_for_this_machine_and_for_images(tmp_path: Path, uv: str) -> None:
    """Images have the packages of `common`, too; so both have the same versions."""
    common, own = folder(tmp_path / "common", "fsspec"), folder(tmp_path / "own", "dask", "numpy")
    (own / "Dockerfile").touch()
    write_lock(uv, own, common)
    both = ["fsspec", "dask", "numpy"]
    assert (own / "env-lock.txt").read_text() == f"{head(['dask', 'numpy'], both)}locked {json.dumps(both)}\n"


def test_a_framework_without_images_needs_its_own_packages_alone(tmp_path: Path, uv: str) -> None:
    common, own = folder(tmp_path / "common", "fsspec"), folder(tmp_path / "own", "dask")
    write_lock(uv, own, common)
    assert (own / "env-lock.txt").read_text() == f'{head(["dask"])}locked ["dask"]\n'


def test_what_uv_says_is_told(tmp_path: Path, uv: str) -> None:
    common, own = folder(tmp_path / "common", "fsspec"), folder(tmp_path / "own", "broken")
    with pytest.raises(BackendError, match=r"uv cannot lock .*env-lock.txt: no solution found"):
        write_lock(uv, own, common)
    with pytest.raises(BackendError, match=r"'/nowhere/uv' cannot be run .*make lock UV="):
        write_lock("/nowhere/uv", own, common)
