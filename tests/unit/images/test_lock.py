"""What `make lock` has uv lock, and where; a program in its place keeps what it was asked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from oci_cluster.errors import BackendError
from oci_cluster.images.lock import write_locks

UV = f"""#!{sys.executable}
import json, pathlib, sys
out = pathlib.Path(sys.argv[sys.argv.index("--output-file") + 1])
wanted = sys.stdin.read().split("\\n")
if "broken" in wanted:
    sys.exit("no solution found")
options = sys.argv[sys.argv.index("--constraint") + 1 :][:1] if "--constraint" in sys.argv else []
out.write_text("locked " + json.dumps([wanted, options]) + "\\n")
"""


@pytest.fixture
def uv(tmp_path: Path) -> str:
    path = tmp_path / "uv"
    path.write_text(UV)
    path.chmod(0o755)
    return str(path)


def folder(path: Path, *packages: str) -> Path:
    path.mkdir()
    (path / "env.yaml").write_text("dependencies:\n- pip:\n" + "".join(f"  - {package}\n" for package in packages))
    return path


def asked(lock: Path) -> list[list[str]]:
    """Return what uv was asked to lock in *lock*, and with which constraint."""
    last = lock.read_text().splitlines()[-1]
    assert last.startswith("locked "), last
    found: list[list[str]] = json.loads(last.removeprefix("locked "))
    return found


def test_an_environment_takes_the_versions_of_the_image(tmp_path: Path, uv: str) -> None:
    """Images have the packages of `common`, too; so both agree where a framework has images."""
    common, own = folder(tmp_path / "common", "fsspec"), folder(tmp_path / "own", "dask", "numpy")
    (own / "Dockerfile").touch()
    write_locks(uv, own, common)
    image, env = own / "image-lock.txt", own / "env-lock.txt"
    assert asked(image) == [["fsspec", "dask", "numpy"], []]
    assert asked(env) == [["dask", "numpy"], [str(image)]]


def test_a_framework_without_images_has_one_lock(tmp_path: Path, uv: str) -> None:
    common, own = folder(tmp_path / "common", "fsspec"), folder(tmp_path / "own", "dask")
    write_locks(uv, own, common)
    assert asked(own / "env-lock.txt") == [["dask"], []]
    assert not (own / "image-lock.txt").exists()


def test_what_uv_says_is_told(tmp_path: Path, uv: str) -> None:
    common, own = folder(tmp_path / "common", "fsspec"), folder(tmp_path / "own", "broken")
    with pytest.raises(BackendError, match=r"uv cannot lock .*env-lock.txt: no solution found"):
        write_locks(uv, own, common)
    with pytest.raises(BackendError, match=r"'/nowhere/uv' cannot be run .*make lock UV="):
        write_locks("/nowhere/uv", own, common)
