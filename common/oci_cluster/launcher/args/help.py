"""Parses the header comment of a script, which is its help: operands and options.

A person who has pressed TAB waits for this: the import of dataclasses would take as long as all the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# What a word of a header stands for; lower case, as it is looked up.
_KINDS: Mapping[str, str] = {
    "framework": "framework",
    "backend": "backend",
    "kind": "session",
    "cluster": "cluster",
    "node": "node",
    "file": "file",
    "path": "file",
    "dir": "folder",
    "folder": "folder",
    "folders": "folder",
}
_TOKEN = re.compile(r"\[[^\[\]]*\](?:\.\.\.)?|<[^<>]*>(?:\.\.\.)?|\S+")
_OPTION = re.compile(r"  (?:-\w, )?(?P<name>--[a-z][a-z-]*)(?: (?P<value>\S+))?(?: {2,}(?P<text>\S.*))?")


class Operand(NamedTuple):
    """A place in a line ``Usage:``."""

    kind: str = ""
    """What stands there: ``framework``, ``backend``, ``session``, ``cluster``, ``node``, ``file``, ``folder``; empty: a
    word of the person's own."""
    choices: tuple[str, ...] = ()
    """Words that may stand there; beside those of a kind, or, without a kind, these alone. Empty: any."""
    is_optional: bool = False
    is_repeated: bool = False

    def takes(self, word: str) -> bool:
        """Return whether *word* may stand there."""
        return not self.choices or bool(self.kind) or word in self.choices


class Usage(NamedTuple):
    """A line ``Usage:``: its operands, and the options that it names."""

    operands: tuple[Operand, ...]
    options: frozenset[str]

    def next(self, words: Sequence[str]) -> list[Operand] | None:
        """Return what may stand behind the operands *words*; None where they are another line's."""
        spots = self._with_skipped({0})
        for word in words:
            spots = self._with_skipped(set(self._after(spots, word)))
        return [self.operands[spot] for spot in sorted(spots) if spot < len(self.operands)] if spots else None

    def _after(self, spots: set[int], word: str) -> Iterator[int]:
        for spot in spots:
            if spot < len(self.operands) and self.operands[spot].takes(word):
                yield spot if self.operands[spot].is_repeated else spot + 1

    def _with_skipped(self, spots: set[int]) -> set[int]:
        found = set(spots)
        for spot, operand in enumerate(self.operands):
            if spot in found and operand.is_optional:
                found.add(spot + 1)
        return found


class Option(NamedTuple):
    """An option, what it takes, and the first line of its help."""

    name: str
    value: Operand | None
    text: str


class Header(NamedTuple):
    """Lines ``Usage:`` and options of a script."""

    usages: tuple[Usage, ...]
    options: Mapping[str, Option]
    has_rest: bool
    """Whether what stands behind ``--`` is another program's."""


def read_header(path: Path) -> Header:
    """Return the header of the script *path*; of one that cannot be read, nothing.

    In lines ``Usage:``, words in capitals, in brackets or in angle brackets stand for others; the rest for themselves.
    """
    lines = _comment(path)
    options = {option.name: option for option in map(_option, lines) if option}
    usages = [_TOKEN.findall(text) for text in _usages(lines)]
    gives_name = "--name" in options
    return Header(
        tuple(_usage(tokens, options, gives_name=gives_name) for tokens in usages),
        options,
        any(token.startswith("[-- ") for tokens in usages for token in tokens),
    )


def _comment(path: Path) -> list[str]:
    found: list[str] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()[1:]
    except (OSError, UnicodeDecodeError):
        return found
    for line in lines:
        if not line.startswith("#"):
            break
        found.append(line.removeprefix("#").removeprefix(" "))
    return found


def _usages(lines: Sequence[str]) -> list[str]:
    """Return what stands behind the script's name, for each way of calling it."""
    found: list[str] = []
    if not lines or not lines[0].startswith("Usage: "):
        return found
    name = lines[0].split()[1]
    for line in [lines[0].removeprefix("Usage: "), *lines[1:]]:
        if not line.strip():
            break
        first, _, rest = line.strip().partition(" ")
        if first == name:
            found.append(rest)
        else:
            found[-1] += f" {line.strip()}"
    return found


def _option(line: str) -> Option | None:
    told = _OPTION.fullmatch(line)
    if not told:
        return None
    name, value = told["name"], told["value"]
    takes = Operand(_KINDS.get(name.removeprefix("--"), "") or _kind(value)) if value else None
    return Option(name, takes, told["text"] or "")


def _usage(tokens: Sequence[str], options: Mapping[str, Option], *, gives_name: bool) -> Usage:
    operands: list[Operand] = []
    named: set[str] = set()
    takes_value = False
    for token in tokens:
        inner = token.removesuffix("...").strip("[]<>")
        if inner.startswith("-"):
            name = inner.split()[0]
            named.add(name)
            takes_value = name == inner and name in options and options[name].value is not None
            continue
        if not takes_value and inner not in {"|", "option..."}:
            operands += _operands(token, gives_name=gives_name)
        takes_value = False
    return Usage(tuple(operands), frozenset(named))


def _operands(token: str, *, gives_name: bool) -> Iterator[Operand]:
    """Yield the places that a word stands for: ``NAME...`` is one, then any number."""
    inner = token.removesuffix("...").strip("[]<>")
    words = [word for word in inner.removesuffix("...").strip().split("|") if word]
    is_itself = len(words) > 1 or token[0] not in "[<"
    choices = tuple(word for word in words if is_itself and re.fullmatch(r"[a-z-]+", word))
    others = [word for word in words if word not in choices]
    kinds = ["" if word == "NAME" and gives_name else "cluster" if word == "NAME" else _kind(word) for word in others]
    kind = next(filter(None, kinds), "")
    one = Operand(kind, choices if kind or not others else (), token.startswith("["))
    is_repeated = "..." in token
    if not (is_repeated and one.is_optional):
        yield one
    if is_repeated:
        yield Operand(one.kind, one.choices, is_optional=True, is_repeated=True)


def _kind(word: str) -> str:
    """Return what *word* stands for; ``teams.yaml`` is a file."""
    return _KINDS.get(word.lower(), "file" if re.fullmatch(r"[a-z-]+\.[a-z]+", word) else "")
