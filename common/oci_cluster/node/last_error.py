"""The error that an entry point has ended with, in its own words: read out of the last lines that it printed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path, PurePath

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
_ERROR = re.compile(r"[A-Za-z_][\w.]*(?:: .*)?")


def last_error(text: str, places: Sequence[Path], *, rank: str = "") -> str:
    """Return the last error in *text* that Python has shown, such as ``ValueError: bad row 7 (train.py:3)``.

    Of a notebook it is such as ``ValueError: bad row 7 (cell 3:2)``: line 2 of what Jupyter calls ``In[3]``. The place
    is the innermost line of the user's own code. An error without such a line, as launchers of ranks show it, counts
    only where there is no other.

    Args:
        text: What was printed last. It may begin in the middle of a line.
        places: The folders with the user's code.
        rank: Which rank's is asked for, where lines say whose they are; empty where any is meant.

    Returns:
        At most some 300 characters, fit for a terminal; empty where *text* holds no error.
    """
    found = ""
    for words, frames in _errors(text, rank):
        own = [place for frame in frames if (place := _own_place(*frame, places))]
        if own:
            return f"{printable(words, _MAX_WORDS)} ({printable(own[-1], _MAX_PLACE)})"
        file, line = frames[-1]
        found = found or f"{printable(words, _MAX_WORDS)} ({printable(PurePath(file).name, _MAX_PLACE)}:{line})"
    return found


def _errors(text: str, rank: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each error's words and its frames (file, line), the last error first; not those of another *rank*."""
    # Lines of several ranks come mixed: each prefix is a text of its own.
    frames: dict[str, list[tuple[str, str]]] = {}
    errors = []
    for line in text.splitlines():
        match = _PREFIX.match(line)
        prefix, rest = (match[0], line[match.end() :]) if match else ("", line)
        if rank and (ranks := _RANK.findall(prefix)) and rank not in ranks:
            continue
        if frame := _FRAME.fullmatch(rest):
            place = (frame["file"], frame["line"]) if frame["file"] else (f"cell {frame['cell']}", frame["cell_line"])
            frames.setdefault(prefix, []).append(place)
            continue
        if prefix in frames and (called := _CALLED.fullmatch(rest)):
            frames[prefix].append((called["file"], called["line"]))
            continue
        if _SOURCE.fullmatch(rest):  # belongs to a frame
            continue
        if (of_it := frames.pop(prefix, [])) and _ERROR.fullmatch(rest):
            errors.append((rest, of_it))
    return errors[::-1]


def _own_place(file: str, line: str, places: Sequence[Path]) -> str:
    """Return the place of a frame in the user's code; empty where it is in other code."""
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
