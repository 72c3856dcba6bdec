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
    is_repeated: bool = False

    def takes(self, word: str) -> bool:
        """Return whether *word* may stand there."""
        return not self.choices or bool(self.kind) or word in self.choices


class Option(NamedTuple):
    """An option, what it takes, and the first line of its help."""

    name: str
    value: Operand | None
    text: str


class Header(NamedTuple):
    """Lines ``Usage:`` and options of a script."""

    usages: tuple[tuple[Operand, ...], ...]
    options: Mapping[str, Option]
    has_rest: bool
    """Whether what stands behind ``--`` is another program's."""

    def next(self, words: Sequence[str]) -> list[Operand]:
        """Return what may stand behind the operands *words*."""
        found: list[Operand] = []
        for operands in self.usages:
            if all(operand.takes(word) for operand, word in zip(operands, words, strict=False)):
                again = [operand for operand in operands[: len(words)] if operand.is_repeated]
                found += [*operands[len(words) :][:1], *again, *(operands[-1:] if again else ())]
        return found


def read_header(path: Path) -> Header:
    """Return the header of the script *path*; of one that cannot be read, nothing.

    In lines ``Usage:``, words in capitals, in brackets or in angle brackets stand for others; the rest for themselves.
    """
    lines = _comment(path)
    options = {option.name: option for option in map(_option, lines) if option}
    usages = _usages(lines)
    has_rest = any("[-- " in usage for usage in usages)
    return Header(tuple(tuple(_operands(usage, options)) for usage in usages), options, has_rest)


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


def _operands(usage: str, options: Mapping[str, Option]) -> Iterator[Operand]:
    is_value = False
    for token in _TOKEN.findall(usage):
        inner = token.strip("[]<>. ")
        if inner.startswith("-"):
            is_value = inner in options and options[inner].value is not None
            continue
        if not is_value and inner.lower() not in {"", "|", "option"}:
            yield _operand(token, inner, gives_name="--name" in options)
        is_value = False


def _operand(token: str, inner: str, *, gives_name: bool) -> Operand:
    words = inner.split("|")
    is_itself = len(words) > 1 or token[0] not in "[<"
    choices = tuple(word for word in words if is_itself and re.fullmatch(r"[a-z-]+", word))
    others = [word for word in words if word not in choices]
    kinds = ["" if word == "NAME" and gives_name else "cluster" if word == "NAME" else _kind(word) for word in others]
    kind = next(filter(None, kinds), "")
    return Operand(kind, choices if kind or not others else (), is_repeated="..." in token)


def _kind(word: str) -> str:
    """Return what *word* stands for; ``teams.yaml`` is a file."""
    return _KINDS.get(word.lower(), "file" if re.fullmatch(r"[a-z-]+\.[a-z]+", word) else "")
