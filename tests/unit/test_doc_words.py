"""How much there is to read, and in which English. Bounds only go down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

import pytest
from doc_pages import ROOT, pages, prose

TOTAL = 40_000
PAGE = 2_500
# Things are looked up there.
REFERENCE = {"common/README.md": 5_400}
NOT_FOR_USERS = ("tests/", "CHANGELOG.md", "CONTRIBUTING.md")
# Of the file, or of its first comment, what stands behind `#`.
HELP = ("scripts/*.sh", "scripts/backends/*.env", "config.env.example", "*/settings.env")
# Many readers have English as a second language: a word, and what is said instead.
WORDS = {
    r"(?:^|[.;:|(] )Where (?!pods may|the |to |nodes run|programs )\w+"
    r"|\bwhere (?:there|nobody|no|none|not|one of|another|somebody)\b|, where (?:that|it|they|a|nodes|the) \w+ ": "if",
    r"\bbut for\b": "except",
    r"(?<!body )(?<!thing )(?<!What )(?<!where )\b[Ee]lse\b": "otherwise",
    r"\btells?\b|\b(?:is|are|be|been) told\b": "says",
    r"\b(?:that|which|it|still) lacks?\b": "is missing",
    r"\bmend": "fix",
    r"(?:^|[.;:|] )Who(?:ever)? (?!runs|connects|pulls|may|asks|gets|can)\w+|\b(?:to|for|of) who\b": "people who",
    r"\bso long\b|\banew\b|\bas with\b|\bdo(?:es)? as well\b": "plain words",
    r"\b(?:a|the) Kubernetes\b(?! (?:cluster|API|of tests))": "Kubernetes, or the Kubernetes cluster",
}


def for_users() -> dict[str, str]:
    return {name: text for name, text in pages().items() if not name.startswith(NOT_FOR_USERS)}


def count(text: str) -> int:
    """Return how many words a reader sees: no comments, no targets of links, no marks of tables."""
    seen = re.sub(r"<!--.*?-->|(?<=\])\([^()\s]+\)", "", text, flags=re.DOTALL)
    return sum(bool(re.search(r"\w", word)) for word in seen.split())


def comments(text: str, *, is_script: bool) -> str:
    lines = text.splitlines()[1:] if is_script else text.splitlines()
    return "\n".join(
        line[1:].strip()
        for line in (takewhile(lambda line: line.startswith("#"), lines) if is_script else lines)
        if line.startswith("#")
    )


def texts() -> Iterator[tuple[str, str]]:
    """Yield all English that users read outside of messages: a line for each line, and code as `x`."""
    for name, text in for_users().items():
        yield name, re.sub(r"`[^`\n]*`", "`x`", re.sub(r"<!--.*?-->", "", prose(text), flags=re.DOTALL))
    for pattern in HELP:
        for path in ROOT.glob(pattern):
            yield path.relative_to(ROOT).as_posix(), comments(path.read_text("utf-8"), is_script=path.suffix == ".sh")


def hard_words(name: str, text: str) -> Iterator[str]:
    joined = re.sub(r"\n(?=[^\n|#*-])", " ", text)
    for pattern, better in WORDS.items():
        for found in re.finditer(pattern, joined, re.MULTILINE):
            around = " ".join(joined[max(0, found.start() - 30) : found.end() + 20].split())
            yield f"{name}: ...{around}...: say {better}"


def test_no_page_is_too_long() -> None:
    found = {name: count(text) for name, text in for_users().items()}
    assert {name: words for name, words in found.items() if words > REFERENCE.get(name, PAGE)} == {}


def test_all_pages_can_be_read() -> None:
    assert sum(map(count, for_users().values())) <= TOTAL


def test_english_is_plain() -> None:
    """In pages, and in help and comments of settings."""
    assert [line for name, text in texts() for line in hard_words(name, text)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Where no engine runs, the launch ends.", "if"),
        ("It ends, where nodes share a disk.", "if"),
        ("All but for main.", "except"),
        ("Main is told.", "says"),
        ("A tag, else `dev`.", "otherwise"),
        ("A Job that lacks it.", "is missing"),
        ("What mends it", "fix"),
        ("Ask. Who has the key is you.", "people who"),
        ("Versions are chosen\nanew.", "plain words"),
        ("On a Kubernetes with Kueue", "Kubernetes, or the Kubernetes cluster"),
    ],
)
def test_hard_words_are_named(text: str, said: str) -> None:
    (line,) = hard_words("a.md", text)
    assert line.endswith(f"say {said}")


def test_words_are_those_that_a_reader_sees() -> None:
    """Neither the marks of a table, nor a comment, nor where a link leads."""
    assert count("| a `b` | [c d](e.md#f) | <!-- run by\ntests/g.py -->\n| --- | - |\n") == 4
