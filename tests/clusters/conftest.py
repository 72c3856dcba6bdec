"""Real clusters: real scripts, agents and processes, in a copy of the checkout whose path has a space."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Project

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def checkout_copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the checkout that shares its environments."""
    path = tmp_path_factory.mktemp("checkout") / "my project"
    frameworks = [script.parent.name for script in CHECKOUT.glob("*/start-master.sh")]
    for folder in ("common", "scripts", *frameworks):
        shutil.copytree(CHECKOUT / folder, path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for toy in ("gang", "plain"):
        shutil.copytree(Path(__file__).parent / toy, path / toy)
    (path / ".venv").symlink_to(CHECKOUT / ".venv")
    return path


@pytest.fixture
def project(checkout_copy: Path, tmp_path: Path) -> Iterator[Project]:
    """Return a project without clusters; whatever a test starts in it is ended."""
    project = Project(checkout_copy, tmp_path)
    yield project
    project.end_all()
    clusters = checkout_copy / ".clusters"
    if clusters.is_symlink():
        clusters.unlink()
    shutil.rmtree(clusters, ignore_errors=True)
