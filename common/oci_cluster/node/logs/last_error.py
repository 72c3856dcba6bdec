"""Finds the error with which an entry point has ended, in its own words.

Its Python notes an error that nothing has caught (``common/entry/sitecustomize.py``). Otherwise the last lines that it
printed tell: an error counts if nothing has been printed after it. An error that was caught and shown is followed by
other lines.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from oci_cluster.system.text import printable

# Words of the error that are kept, and the whole with its place: a line of a terminal or two.
_MAX_WORDS = 220
_MAX_PLACE = 80
# Before each line where several ranks print: pytorch-lib.sh (`[rank 1] `), torch's excepthook (`[rank1]: `), torchrun
# --tee (`[default1]:`).
_PREFIX = re.compile(r"(?:\[rank [0-9]+\] ?|\[[a-z]+[0-9]+\]: ?)+")
_RANK = re.compile(r"\[rank ?([0-9]+)\]")
_FRAME = re.compile(
    r'  File "(?P<file>[^"]+)", line (?P<line>[0-9]{1,9})(?:, in .*)?'
    # As IPython shows a notebook's; with two blanks before it where the cell cannot be compiled.
    r"|(?:  )?Cell In\[(?P<cell>[0-9]{1,9})\], line (?P<cell_line>[0-9]{1,9})(?:, in .*)?"
)
# As IPython shows what a cell has called. Only below a cell: anything may print such a line.
_CALLED = re.compile(r'File (?P<file>[^"].*?):(?P<line>[0-9]{1,9})(?:, in .*)?')
# Between IPython's frames: source, of which one line has an arrow, and empty lines.
_SOURCE = re.compile(r"  .*|-+> [0-9]+ .*|-+> [0-9]+|")
# `ValueError: bad row 7`, `module.Error`; what else stands at the beginning of a line is no exception's.
_ERROR = re.compile(r"[A-Za-z_][\w.]*(?::(?: .*)?)?")


# Lines that are not the script's own: of libraries, start scripts and launchers of ranks.
_NOISE = re.compile(
    r"\s*"
    r"|[-=*~+|\u2500-\u259f\s]+"  # rules and boxes
    r"|[0-9]{2}:[0-9]{2}:[0-9]{2} (?:agent|horovod|[\w-]+\.sh): .*|launcher\.py: .*"  # ours
    r"|told \S+ \{.*|no (?:rank|task) has (?:joined|met) .*, each for itself"
    r"|\[?[IWEF][0-9]{3,4} [0-9]{2}:[0-9]{2}:[0-9]{2}.*"  # glog, as torch and TensorFlow have it
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]+: [IWEF] .*|WARNING: All log messages before absl.*"
    r"|[0-9-]{10} [0-9:,.]+ - distributed\.\S+ - [A-Z]+ - .*"
    r"|An exception has occurred, use %tb .*|SystemExit: ?[0-9]*"  # IPython
    r"|\[Gloo\] .*|\(raylet.*"
    r"|.*[0-9]%\|.*"  # tqdm
)
# Its line of source follows.
_WARNING = re.compile(r"\S+:[0-9]+: \w*Warning: .*")
_BETWEEN = re.compile(r"Traceback \(most recent call last\)|^(?:During handling of the above|The above) exception ")
_IGNORED = "Exception ignored in"
_BOX = re.compile(r"^=+\n[^\n]* FAILED *\n-+\n(?:Failures:|Root Cause).*?^=+$", re.MULTILINE | re.DOTALL)
# First lines of messages that say nothing: what happened stands in the last that is not about TensorFlow's graph.
_EMPTY = {"", "Graph execution error:"}
_OPERATION = re.compile(r"|\[\[.*|\[Op:.*")
# Errors of wrong code and wrong data; a peer that is gone raises others (RuntimeError, OSError).
_OF_CODE = {
    *("AssertionError", "AttributeError", "FileNotFoundError", "ImportError", "IndentationError", "IndexError"),
    *("KeyError", "ModuleNotFoundError", "NameError", "NotImplementedError", "SyntaxError", "TypeError"),
    *("UnboundLocalError", "UnicodeDecodeError", "ValueError", "ZeroDivisionError"),
}
# Words, and the frames that Python shows before them: a file and a line each.
_Said = tuple[str, list[tuple[str, str]]]
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(?P<name>[A-Za-z_]\w*)")
# Of modules whose package is called otherwise.
_PACKAGES = {"cv2": "opencv-python-headless", "PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}


@dataclass(frozen=True)
class Uncaught:
    """The error that has ended the entry point."""

    text: str
    """As :func:`last_error` returns it."""
    is_own: bool
    """Whether the user's own code has raised it, and other nodes cannot have brought it on."""


def uncaught_error(note: bytes, places: Sequence[Path]) -> Uncaught | None:
    """Return the error in a *note* of the entry point's Python, if any."""
    try:
        found: Any = json.loads(note)
        kind, message, frames = str(found["error"]), str(found["message"]), found["frames"]
        pairs = [(str(file), str(line)) for file, line in frames]
        is_first = found.get("is_first") is True
    except (ValueError, TypeError, KeyError, AttributeError):  # a script may write there, too
        return None
    first, *others = [line.strip() for line in [*message.split("\n"), ""]]
    last = next((line for line in reversed(others) if not _OPERATION.fullmatch(line)), "")
    if first.endswith(":") or not first:
        first = last if first in _EMPTY and last else f"{first} {last}".strip()
    is_own = is_first and kind in _OF_CODE and bool(_own_places(pairs[-1:], places))
    return Uncaught(_with_place(f"{kind}: {first}" if first else kind, pairs, places), is_own)


def last_error(text: str, places: Sequence[Path], *, rank: str = "", only_errors: bool = False) -> str:
    """Return a script's last words, such as ``ValueError: bad row 7 (train.py:3)``.

    In a notebook, ``(cell 3:2)`` is line 2 of what Jupyter calls ``In[3]``. The place is the innermost line of the
    user's own code, in *places*. If something was printed after the last error, the last line counts, unless
    *only_errors* do. Lines of libraries do not count, nor do those of another *rank*. The answer has 300 characters
    at most, fit for a terminal. It is empty if *text*, which may begin within a line, holds no word of the script's.
    """
    of_others: _Said | None = None
    for words, frames in reversed(_said(_BOX.sub("", text), rank)):
        if not frames and only_errors:
            continue
        if not frames:
            return _with_place(*of_others, places) if of_others else printable(words.strip(), _MAX_WORDS)
        if _own_places(frames, places):
            return _with_place(words, frames, places)
        # A launcher's own, or a library's: it does not stand for one of the user's code before it.
        of_others = of_others or (words, frames)
    return _with_place(*of_others, places) if of_others else ""


def _said(text: str, rank: str) -> list[_Said]:
    """Return errors with their frames, and other lines without; none of another *rank*."""
    # Lines of several ranks come mixed: each prefix is a text of its own.
    printers: dict[str, _Printer] = {}
    said = []
    for line in text.splitlines():
        match = _PREFIX.match(line)
        prefix, rest = (match[0], line[match.end() :]) if match else ("", line)
        if rank and (ranks := _RANK.findall(prefix)) and rank not in ranks:
            continue
        if found := printers.setdefault(prefix, _Printer()).read(rest):
            said.append(found)
    return said


class _Printer:
    """Lines under one prefix: what a line is depends on those before it."""

    def __init__(self) -> None:
        self._frames: list[tuple[str, str]] = []
        self._is_ignored = self._is_warning = False

    def read(self, line: str) -> _Said | None:
        """Return the error or words that *line* ends; None within something."""
        is_source = (self._frames or self._is_warning) and _SOURCE.fullmatch(line)
        self._is_warning = bool(_WARNING.fullmatch(line))
        if place := self._place(line):
            self._frames.append(place)
        elif line.startswith(_IGNORED):
            self._is_ignored = True
        elif not (self._is_warning or is_source):
            return self._end(line)
        return None

    def _place(self, line: str) -> tuple[str, str] | None:
        if frame := _FRAME.fullmatch(line):
            return (frame["file"], frame["line"]) if frame["file"] else (f"cell {frame['cell']}", frame["cell_line"])
        called = _CALLED.fullmatch(line) if self._frames else None
        return (called["file"], called["line"]) if called else None

    def _end(self, line: str) -> _Said | None:
        frames, is_ignored = self._frames, self._is_ignored
        self._frames = []
        if frames and _ERROR.fullmatch(line):
            self._is_ignored = False
            return None if is_ignored else (line, frames)
        return None if _NOISE.fullmatch(line) or _BETWEEN.search(line) else (line, [])


def _with_place(words: str, frames: Sequence[tuple[str, str]], places: Sequence[Path]) -> str:
    text = printable(words, _MAX_WORDS)
    if own := _own_places(frames, places):
        text += f" ({printable(own[-1], _MAX_PLACE)})"
    elif frames:
        file, line = frames[-1]
        text += f" ({printable(PurePath(file).name, _MAX_PLACE)}:{line})"
    if missing := _NO_MODULE.match(words):
        name = missing["name"]
        package = _PACKAGES.get(name, name)
        # On the user's machine an environment is the checkout's; elsewhere it is that of the image.
        is_here = Path(sys.prefix).name in {".venv", ".venv-clusters"}
        text += f"; --with {package} adds it" if is_here else f"; EXTRA_ENV with {package} adds it"
    return text


def _own_places(frames: Sequence[tuple[str, str]], places: Sequence[Path]) -> list[str]:
    return [place for frame in frames if (place := own_place(*frame, places))]


def own_place(file: str, line: str, places: Sequence[Path]) -> str:
    """Return the place of a frame in the user's code, if it is there."""
    path = Path(file)
    if file.startswith("~"):
        with contextlib.suppress(RuntimeError):  # nobody's home
            path = path.expanduser()
    if "site-packages" in path.parts or file.startswith("<"):  # an environment may lie beside the script
        return ""
    if not path.is_absolute():
        return f"{file}:{line}"
    for place in places:
        if path.is_relative_to(place):
            return f"{path.relative_to(place)}:{line}"
    return ""
