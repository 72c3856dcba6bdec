# A checkout, a cluster dir on each kind of storage, and storage that fails.

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest
from unit.contract.fake_storage import KEY, LAUNCH, FailingFileSystem

from oci_cluster.contract.files.cluster_dir import ClusterDir


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkout whose only framework, dask, declares no setting."""
    (tmp_path / "dask").mkdir()
    (tmp_path / "dask" / "start-master.sh").touch()
    return tmp_path


@pytest.fixture(params=["file", "memory"])
def cluster_dir(request: pytest.FixtureRequest, tmp_path: Path, empty_memory: None) -> ClusterDir:
    url = f"file://{tmp_path}/a b/c1" if request.param == "file" else "memory://work/c1"
    made = ClusterDir(url, LAUNCH, KEY)
    made.create()
    return made


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> type[FailingFileSystem]:
    fsspec.register_implementation("failing", FailingFileSystem, clobber=True)
    monkeypatch.setattr(FailingFileSystem, "error", None)
    monkeypatch.setattr(FailingFileSystem, "calls", [])
    return FailingFileSystem
