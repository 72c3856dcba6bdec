"""Code that is a folder of storage, as it is."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from oci_cluster.errors import SettingsError
from oci_cluster.node.begin.code import NoCodeError, fetch_code


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "my code"


def fetch(uri: str, target: Path) -> None:
    fetch_code(uri, target, environ={})


def tree(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_becomes_the_code_directory(tmp_path: Path, target: Path) -> None:
    (tmp_path / "src" / "package" / "deep").mkdir(parents=True)
    for name in ("train.py", "package/near.py", "package/deep/far.py"):
        (tmp_path / "src" / name).write_text(name)
    fetch(f"folder+file://{tmp_path}/src/", target)
    assert tree(target) == {name: name for name in ("train.py", "package/near.py", "package/deep/far.py")}


def test_a_single_file_is_a_folder_of_one(target: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/bucket/train.py", b"text")
    fetch("folder+memory://bucket/train.py", target)
    assert tree(target) == {"train.py": "text"}


@pytest.mark.parametrize("what", ["nothing", "empty"])
def test_a_folder_without_files_is_named(tmp_path: Path, target: Path, what: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoCodeError, match=rf"CODE_URI file://{tmp_path}/{what}: "):
        fetch(f"folder+file://{tmp_path}/{what}", target)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("name", ["bucket/src/..", "bucket/src/.", "bucket/src/a\0b"])
def test_a_name_cannot_lead_out_of_the_folder(target: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Object storage takes such names."""
    memory = fsspec.filesystem("memory")
    monkeypatch.setattr(memory, "ls", lambda *_, **__: [{"name": name, "type": "directory"}])
    with pytest.raises(SettingsError, match="cannot be the name of a file"):
        fetch("folder+memory://bucket/src", target)
    assert list(target.iterdir()) == []
