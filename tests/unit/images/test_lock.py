"""What `make lock` has uv lock, and where; a program in its place keeps what it was asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.stub_program import write_program

from oci_cluster.errors import BackendError
from oci_cluster.images.lock import run, write_lock
from oci_cluster.system.envs.package_lists import head

UV = """import json, os, pathlib, sys
if "--version" in sys.argv:
    sys.exit(print("uv 9.9"))
out = pathlib.Path(sys.argv[sys.argv.index("--output-file") + 1])
wanted = sys.stdin.read().split("\\n")
if "broken" in wanted:
    sys.exit("no solution found")
told = {name: value for name, value in os.environ.items() if name.startswith("UV_")}
out.write_text("locked " + json.dumps(wanted) + "\\n" + "".join(f"{name}={told[name]}\\n" for name in sorted(told)))
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


def test_the_launchers_own_uv_asks_the_index_that_pip_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not what lies on this machine: a lock is for all."""
    folder(tmp_path / "own", "dask")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    write_program(tmp_path / ".venv" / "bin" / "uv", UV)
    monkeypatch.setenv("PIP_INDEX_URL", "https://user:password@index.example/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    run("", ["own"], tmp_path)
    written = (tmp_path / "own" / "env-lock.txt").read_text().splitlines()
    assert written[-2:] == ['locked ["dask"]', "UV_DEFAULT_INDEX=https://user:password@index.example/simple"]
    assert capsys.readouterr().err == "lock: own: locked\n"
