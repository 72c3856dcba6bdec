"""Every link and anchor of the pages leads somewhere, and every page that the code names is there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest
from doc_pages import ROOT, anchors, files, links, pages

# Of files that users get, whose messages, help and comments name pages.
CODE = (".py", ".sh", ".env", ".j2", ".yaml", ".tf", ".example")
PAGE_IN_CODE = re.compile(r"(?<![\w./-])((?:[\w-]+/)*[\w-]+\.md)\b")


def dead_links(name: str, texts: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each link of page *name* that leads nowhere in the project."""
    for link in links(texts[name]):
        if re.match(r"[a-z]+:", link):
            continue  # of another server, which no test asks
        file, _, anchor = link.partition("#")
        path = (ROOT / name).parent / file if file else ROOT / name
        if not path.exists():
            yield f"{name}: {link}: there is no {file}"
            continue
        target = path.resolve().relative_to(ROOT.resolve()).as_posix()
        if anchor and anchor not in anchors(texts.get(target, "")):
            yield f"{name}: {link}: {target} has no such heading"


def test_links_and_anchors_lead_somewhere() -> None:
    """All that do not, at once."""
    texts = pages()
    assert {"README.md", "common/README.md", "docs/oci.md", "dask/README.md"} <= texts.keys()
    assert [line for name in texts for line in dead_links(name, texts)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a](nothing.md)", "docs/oci.md: nothing.md: there is no nothing.md"),
        ("[a `b`](../README.md#none)", "docs/oci.md: ../README.md#none: README.md has no such heading"),
        ("# One\n[a](#two)", "docs/oci.md: #two: docs/oci.md has no such heading"),
        ("```sh\n# two\n```\n[a](#two)", "docs/oci.md: #two: docs/oci.md has no such heading"),
        ("![a](images/none.png)", "docs/oci.md: images/none.png: there is no images/none.png"),
    ],
)
def test_dead_links_are_named(text: str, said: str) -> None:
    """Also those of pictures, and those to what only a block of code calls a heading."""
    assert list(dead_links("docs/oci.md", {"README.md": "# Words", "docs/oci.md": text})) == [said]


def test_anchors_are_those_of_github() -> None:
    """Punctuation goes, blanks become hyphens, and the second of a name has a number."""
    text = "# A, `b_c` and [d](e.md)?\n## Same\n### Same\n"
    assert anchors(text) == {"a-b_c-and-d", "same", "same-1"}


def test_pages_that_the_code_names_are_there() -> None:
    """In messages, help and comments of what users get: `docs/oci.md`, `common/README.md`."""
    here = pages()
    folders = tuple(f"{name.partition('/')[0]}/" for name in here if "/" in name)
    of_users = [path for path in files() if path.suffix in CODE and not path.is_relative_to(ROOT / "tests")]
    named = {
        (path.relative_to(ROOT).as_posix(), page)
        for path in of_users
        for page in PAGE_IN_CODE.findall(path.read_text(encoding="utf-8"))
        if page.startswith(folders) or page in {"SECURITY.md", "CONTRIBUTING.md"}
    }
    assert len(named) > 10
    assert {one for one in named if one[1] not in here} == set()


def test_every_page_of_docs_is_in_the_index() -> None:
    """docs/README.md has a link to each page beside it."""
    texts = pages()
    linked = set(links(texts["docs/README.md"]))
    beside = {name.removeprefix("docs/") for name in texts if re.fullmatch(r"docs/(?!README)[\w-]+\.md", name)}
    assert beside - linked == set()
