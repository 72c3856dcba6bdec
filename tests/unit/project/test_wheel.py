"""The wheel itself: deterministic, named by its content, and what pip installs."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from unit.project.user_project import ROOT, UserProject

import oci_cluster
from oci_cluster.project.wheel import LOCKS, frameworks_of, main, pack, read_checkout, read_wheel


def test_the_same_files_make_the_same_bytes_and_others_another_name(project: UserProject) -> None:
    files = read_checkout(project.checkout)
    name, content = pack(files, ["dask"])
    assert pack(dict(reversed(files.items())), ["dask"]) == (name, content)
    assert re.fullmatch(r"oci_cluster-0\.1\.0-0_[0-9a-f]{12}-py3-none-any\.whl", name)
    (project.checkout / "scripts/launch.sh").chmod(0o644)
    others = [pack(files, ["dask", "ray"]), pack(files, ["dask"], with_locks=True)]
    others.append(pack(read_checkout(project.checkout), ["dask"]))
    project.ours("common/lib.sh", "other\n")
    others.append(pack(read_checkout(project.checkout), ["dask"]))
    assert len({name, *(other for other, _ in others)}) == 5


def test_what_is_packed_is_what_is_read(project: UserProject, tmp_path: Path) -> None:
    files = read_checkout(project.checkout)
    name, content = pack(files, ["dask", "ray"], with_locks=True)
    (tmp_path / name).write_bytes(content)
    assert read_wheel(tmp_path / name) == files
    name, content = pack(files, ["dask"])
    (tmp_path / name).write_bytes(content)
    found = read_wheel(tmp_path / name)
    assert found.pop(LOCKS).content.decode() == f"{files['dask/env-lock.txt'].digest}  dask/env-lock.txt\n"
    assert found == {name: file for name, file in files.items() if not name.startswith("ray/") and "-lock" not in name}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    files = read_checkout(ROOT)
    name, content = pack(files, frameworks_of(files), with_locks=True)
    (folder / name).write_bytes(content)
    return folder / name


def test_make_wheel_writes_a_release(release: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(str(tmp_path / "dist"))
    assert capsys.readouterr().out == f"{tmp_path / 'dist' / release.name}\n"
    assert (tmp_path / "dist" / release.name).read_bytes() == release.read_bytes()
    assert "make wheel" not in release.name
    assert "oci_cluster.project.wheel dist" in (ROOT / "Makefile").read_text()


@pytest.mark.slow
def test_pip_installs_it_and_all_modules_are_imported(release: Path, tmp_path: Path) -> None:
    """Without network; what it needs is lent by the environment of these tests. pip reads what pyproject.toml says."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    command = [python, "-I", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile", release]
    subprocess.run([str(word) for word in command], check=True)
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    code = f"""
import importlib, json, pkgutil, sys
sys.path += {[path for path in sys.path if path.endswith("-packages")]}
import oci_cluster
assert oci_cluster.__file__.startswith({str(site)!r}), oci_cluster.__file__
names = [module.name for module in pkgutil.walk_packages(oci_cluster.__path__, "oci_cluster.")]
names.remove("oci_cluster.api.dask")  # of the extra dask
for name in names:
    importlib.import_module(name)
print(len(names), oci_cluster.__version__)
"""
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, version = done.stdout.split()
    assert int(count) > 200
    assert version == oci_cluster.__version__
    about = (site / f"oci_cluster-{version}.dist-info" / "METADATA").read_text()
    listed = [line.partition(": ")[2] for line in about.splitlines() if line.startswith("Requires-Dist")]
    text = (ROOT / "common" / "pyproject.toml").read_text()
    wanted = re.findall(r'"([a-z][\w.-]*>=[^"]*)"', text.partition("dependencies = ")[2])
    assert sorted(line.partition("; extra")[0] for line in listed) == sorted(wanted)
    assert {line.partition("; extra == ")[2] for line in listed} == {"", '"dask"', '"oci"', '"kubernetes"'}
    assert (tmp_path / "venv/share/oci-cluster/scripts/launch.sh").stat().st_mode & 0o100
