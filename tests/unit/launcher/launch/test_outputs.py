"""What a cluster leaves, and where."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from unit.fake_backend import KEY, LAUNCH, FakeBackend, keep, plan_of

from oci_cluster.contract.cluster import Cluster
from oci_cluster.contract.files.cluster_dir import ClusterDir
from oci_cluster.launcher.show.report import outputs_of


@pytest.fixture
def backend(tmp_path: Path) -> FakeBackend:
    return FakeBackend(tmp_path)


@pytest.fixture
def cluster(backend: FakeBackend, tmp_path: Path) -> Cluster:
    plan = plan_of(tmp_path, workers=1)
    keep(tmp_path, plan)
    return backend.run(plan)


def test_outputs_are_where_there_are_any(backend: FakeBackend, cluster: Cluster) -> None:
    """In the cluster's directory, where they are written or brought; an empty folder is none."""
    plan, folder = backend.load(cluster), cluster.directory / "outputs"
    found = [outputs_of(cluster, plan)]
    folder.mkdir()
    found.append(outputs_of(cluster, plan))
    (folder / "best.json").touch()
    assert [*found, outputs_of(cluster, plan)] == ["", "", str(folder)]


def test_outputs_are_in_a_work_dir_of_ones_own(backend: FakeBackend, cluster: Cluster, tmp_path: Path) -> None:
    """On this machine, or elsewhere, where each node has a folder."""
    here = replace(backend.load(cluster), work_dir=f"file://{tmp_path}/work")
    (tmp_path / "work" / here.cluster_id / "outputs" / "run 1").mkdir(parents=True)
    assert outputs_of(cluster, here) == str(tmp_path / "work" / here.cluster_id / "outputs")
    there = replace(here, work_dir=f"memory://{tmp_path}")
    assert outputs_of(cluster, there) == ""
    ClusterDir(there.url, LAUNCH, KEY).write_bytes("outputs/WORKER_1/model", b"weights")
    assert outputs_of(cluster, there) == f"{there.url}/outputs"


def test_outputs_are_where_the_user_wants_them(backend: FakeBackend, cluster: Cluster, tmp_path: Path) -> None:
    """OUTPUT_DIR is obeyed."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model").touch()
    plan = replace(backend.load(cluster), environment={"OUTPUT_DIR": str(tmp_path / "mine")})
    assert outputs_of(cluster, plan) == str(tmp_path / "mine")


def test_outputs_that_nobody_can_look_at_are_not_told(backend: FakeBackend, cluster: Cluster) -> None:
    """A work dir that is away makes no other end of a cluster."""
    assert outputs_of(cluster, replace(backend.load(cluster), work_dir="nowhere://x")) == ""
