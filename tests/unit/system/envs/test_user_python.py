"""Which packages an interpreter of the user's own lacks."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from oci_cluster.errors import SettingsError
from oci_cluster.system.envs.python_env import missing_packages


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_packages_that_are_there_are_not_missing() -> None:
    """Names are compared as pip compares them: case and underscores do not count."""
    wanted = ["fsspec", "PYTEST", "pytest_timeout", "no-such-distribution", "nor_this"]
    assert missing_packages(Path(sys.executable), wanted) == ["no-such-distribution", "nor_this"]


def test_nothing_wanted_is_nothing_missing() -> None:
    """A framework may ask for no package."""
    assert missing_packages(Path(sys.executable), []) == []


def test_a_folder_of_a_packages_name_is_not_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder here, on PYTHONPATH even, does not pass for a distribution."""
    for name in ("horovod", "horovod.dist-info", "horovod-1.0.dist-info"):
        (tmp_path / name).mkdir()
    (tmp_path / "horovod-1.0.dist-info" / "METADATA").write_text("Name: horovod\nVersion: 1.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert missing_packages(Path(sys.executable), ["horovod"]) == ["horovod"]


def test_what_an_installer_has_left_is_no_package_and_no_error(tmp_path: Path) -> None:
    """A folder without its METADATA, as after a broken update."""
    venv.create(tmp_path / "env")
    (packages,) = tmp_path.glob("env/lib/python*/site-packages")
    for name in ("dask", "other", "horovod"):
        (packages / f"{name}-1.0.dist-info").mkdir()
    (packages / "horovod-1.0.dist-info" / "METADATA").write_text("Name: horovod\nVersion: 1.0\n")
    assert missing_packages(tmp_path / "env" / "bin" / "python", ["dask", "horovod"]) == ["dask"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo first >&2; echo 'unknown option -I' >&2; exit 2", "unknown option -I"),
        ("exit 3", "returned non-zero exit status 3."),
        ("echo Python 2.7", "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_what_is_no_python_is_named(tmp_path: Path, text: str, why: str) -> None:
    """A program that fails, or answers something else, is named with its last words (78)."""
    python = script(tmp_path / "python", text)
    with pytest.raises(SettingsError) as caught:
        missing_packages(python, ["dask"])
    said = str(caught.value)
    assert (said.startswith(f"--python {python} is not a Python that can be run: "), said.endswith(why)) == (True, True)


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A path that leads nowhere is named."""
    with pytest.raises(SettingsError, match=r"is not a Python that can be run: .*No such file or directory"):
        missing_packages(tmp_path / "python", ["dask"])
