"""Texts of a user's project: all pages, links and targets of `make` that they name are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from oci_cluster.project import create
from oci_cluster.project.unpack import unpack
from oci_cluster.project.wheel import frameworks_of, read_checkout

ROOT = Path(__file__).resolve().parents[3]
_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[\w-]*)?\)")
_PAGE = re.compile(r"(?<![\w.-])docs/([a-z-]+\.md)")
_TARGET = re.compile(r"(?:[`'\"]|^|; )make ([a-z]+(?:[- ][a-z]+)* ?)(?=[A-Z`'\"]|$)", re.MULTILINE)


_FRAMEWORKS = frameworks_of(read_checkout(ROOT))


@pytest.fixture(scope="module", params=[_FRAMEWORKS, *([each] for each in _FRAMEWORKS)], ids=" ".join)
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project after its first script: with all frameworks, or with one."""
    place = tmp_path_factory.mktemp("texts")
    words = [*request.param, str(place / "p")]
    assert create.run(words, {}, checkout=ROOT, cwd=place, show=lambda _: None, say=lambda _: None) == 0
    unpack(place / "p", lambda _: None)
    return place / "p"


def texts(project: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(project.rglob("*")):
        if path.is_file() and ".git" not in path.parts and path.suffix != ".whl":
            yield path, path.read_text(encoding="utf-8")


def test_links_lead_to_files_that_are_there(project: Path) -> None:
    pages = [(path, text) for path, text in texts(project) if path.suffix == ".md"]
    assert len(pages) > 30
    assert [
        f"{path.relative_to(project)}: {link}"
        for path, text in pages
        for link in _LINK.findall(text)
        if "://" not in link and not (path.parent / link).exists()
    ] == []


def test_pages_that_are_named_are_there(project: Path) -> None:
    """In `common/docs`, as the project's README says."""
    assert "`common/docs/`" in (project / "README.md").read_text()
    assert {
        f"{path.relative_to(project)}: {page}"
        for path, text in texts(project)
        for page in _PAGE.findall(text)
        if not (project / "common" / "docs" / page).is_file()
    } == set()


def test_targets_that_are_named_are_there(project: Path) -> None:
    """But for pages and code, which tell of the repository, too."""
    rules = (project / "scripts" / "clusters.mk").read_text()
    known = {*re.findall(r"^clusters-([a-z-]+):", rules, re.MULTILINE), "clusters-help"}
    known |= {f"{what}-{name}" for what in ("build", "push") for name in _FRAMEWORKS}
    found = {
        (str(path.relative_to(project)), word)
        for path, text in texts(project)
        if "docs" not in path.parts and path.suffix != ".py"
        for words in _TARGET.findall(text)
        for word in words.split()
    }
    assert {word for _, word in found} & known
    assert {(path, word) for path, word in found if word not in known} == set()
