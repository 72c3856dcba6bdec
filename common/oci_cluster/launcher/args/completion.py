"""Completes words at TAB: from headers, folders, and kept clusters.

Nobody is asked, neither an engine nor a cloud, and only the quick parts of the standard library are imported: a person
waits for it. So this is not behind ``python -m oci_cluster``, which costs as much again.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from oci_cluster.backends import known_backends
from oci_cluster.launcher.args.help import Header, Operand, read_header

ROOT = Path(__file__).resolve().parents[4]
# What a shell may get: names that launch.sh gives are some of these.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# What is told of a cluster: it may have come back out of a bucket.
_TOLD = re.compile(r"[A-Za-z0-9:._-]{1,40}")
# As `system.files` has it, which costs too much here.
_MOST_BYTES = 16 << 20
_CLUSTER_ID = re.compile(r"(.+)-[0-9a-f]{8}")
_BACKEND = re.compile(r"^\s*BACKEND=[\"']?([a-z]+)", re.MULTILINE)


class Offer(NamedTuple):
    """Words that may stand where the cursor is."""

    words: dict[str, str]
    """Each with what a person is told of it; empty: nothing."""
    files: str = ""
    """``files`` or ``folders``, where such may stand there too: the shell knows best how they are written."""


class _Kept(NamedTuple):
    """A cluster that is kept here."""

    name: str
    text: str
    nodes: Sequence[str]


def main() -> None:
    """Print what :func:`complete` returns of the words of the command line."""
    sys.stdout.write(complete(sys.argv[1:]) + "\n")


def complete(words: Sequence[str], root: Path = ROOT, environ: Mapping[str, str] = os.environ) -> str:
    """Return ``files``, ``folders`` or ``words``; then words and meanings, a tab between.

    *words* are the script's name, the part of a word that the shell replaces, and the typed words up to the cursor.
    """
    script, part, *typed = words
    *before, current = _joined(typed) or [""]
    known = _Known(root, environ, read_header(root / "scripts" / Path(script).name))
    offer = known.offer(before, current)
    given = current[: len(current) - len(part)] if current.endswith(part) else ""
    lines = [f"{word.removeprefix(given)}\t{text}" for word, text in offer.words.items() if word.startswith(given)]
    return "\n".join([offer.files or "words", *lines])


def _joined(words: Sequence[str]) -> list[str]:
    """Return *words* as typed: bash 4 has made words of ``=`` and ``:``."""
    found: list[str] = []
    is_open = False
    for word in words:
        is_mark = bool(word) and not word.strip("=:")
        if found and (is_mark or is_open):
            found[-1] += word
        else:
            found.append(word)
        is_open = is_mark
    return found


class _Known:
    """A script's header, its checkout, and the words before the cursor."""

    def __init__(self, root: Path, environ: Mapping[str, str], header: Header) -> None:
        self._root = root
        self._environ = environ
        self._header = header
        self._operands: list[str] = []
        self._values: dict[str, str] = {}

    def offer(self, before: Sequence[str], current: str) -> Offer:
        """Return what may stand in the place of *current*, behind the words *before*."""
        awaited = self._read(before)
        if awaited == "--":
            return Offer({}, "files")
        if awaited:
            return self._of([self._header.options[awaited].value])
        name, is_joined, _ = current.partition("=")
        if current.startswith("--") and is_joined:
            option = self._header.options.get(name)
            found = self._of([option.value if option else None])
            return Offer({f"{name}={word}": text for word, text in found.words.items()}, found.files)
        found = self._of(self._header.next(self._operands))
        if current.startswith("-") or not (found.words or found.files):
            return Offer({name: one.text.partition(". ")[0] for name, one in self._header.options.items()})
        return found

    def _read(self, words: Sequence[str]) -> str:
        """Note operands and options; return the option whose value comes next, if any."""
        awaited = ""
        for word in words:
            if awaited:
                self._values[awaited], awaited = word, ""
            elif word == "--" and self._header.has_rest:
                return word
            elif not word.startswith("-") or word[1:].isdecimal():
                self._operands.append(word)
            else:
                name, is_joined, value = word.partition("=")
                option = self._header.options.get(name)
                self._values[name] = value
                awaited = name if option and option.value and not is_joined else ""
        return awaited

    def _of(self, operands: Sequence[Operand | None]) -> Offer:
        words: dict[str, str] = {}
        files = ""
        for operand in operands:
            if operand is not None:
                taken = self._operands if operand.is_repeated else ()
                words |= {word: text for word, text in self._words(operand).items() if word not in taken}
                files = files or {"file": "files", "folder": "folders"}.get(operand.kind, "")
        return Offer(words, files)

    def _words(self, operand: Operand) -> dict[str, str]:
        found = dict.fromkeys(operand.choices, "")
        if operand.kind == "framework":
            found |= _plain(path.parent.name for path in self._root.glob("*/start-master.sh"))
        elif operand.kind == "backend":
            found |= _plain(known_backends())
        elif operand.kind == "session":
            found |= _plain(path.parent.name for path in self._root.glob("scripts/sessions/*/session.env"))
        elif operand.kind == "cluster":
            found |= {one.name: one.text for one in self._kept() if one.name not in self._operands}
        elif operand.kind == "node":
            chosen = [one for one in self._kept() if one.name in self._operands] or self._kept()
            found |= _plain(node for one in chosen for node in one.nodes)
        return found

    def _kept(self) -> list[_Kept]:
        backend = self._values.get("--backend") or self._environ.get("BACKEND") or self._configured() or "local"
        found = []
        for path in sorted((self._root / ".clusters").glob("*/cluster.json")):
            named = _CLUSTER_ID.fullmatch(path.parent.name)
            try:
                if not path.is_file():  # a pipe would be waited for
                    continue
                with path.open("rb") as file:
                    plan = json.loads(file.read(_MOST_BYTES))
                text = ", ".join(word for word in (plan["framework"], plan["created"]) if _TOLD.fullmatch(word))
                nodes = [str(node["node"]) for node in plan["nodes"]]
                if plan["backend"] == backend and named and _NAME.fullmatch(named[1]):
                    found.append(_Kept(named[1], text, nodes))
            except (OSError, ValueError, LookupError, TypeError, RecursionError):  # being written, or damaged
                continue
        return found

    def _configured(self) -> str:
        try:
            told = _BACKEND.findall((self._root / "config.env").read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            return ""
        return str(told[-1]) if told else ""


def _plain(words: Iterable[str]) -> dict[str, str]:
    """Return *words* that say enough themselves, in their order in the alphabet."""
    return {word: "" for word in sorted(words) if _NAME.fullmatch(word)}
