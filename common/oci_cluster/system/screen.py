"""Tables and sentences as wide as their terminal; whole in files and pipes."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

# Of a terminal that does not tell: those of the VT100, and the least that a person expects.
_USUAL_COLUMNS = 80
# Narrower than this no column of a table becomes: what is left would tell nothing. A sentence gives way first, until
# only its first words are left: names are copied.
_LEAST = 4
_LEAST_OF_SENTENCES = 14
_GAP = "  "


@dataclass(frozen=True)
class Screen:
    """The width of an output.

    Attributes:
        columns: How many characters a line has room for; None: as many as there are, for it is no terminal.
        mark: Stands for what is left out.
    """

    columns: int | None = None
    mark: str = "…"

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]], below: Collection[str] = ()) -> str:
        """Return *rows* under *head* in columns, two blanks apart.

        On a terminal that is too narrow, the columns *below* go under their row, in words, where they are not empty.
        What is too wide even then is shortened, sentences before names, the widest column first.
        """
        widths = _widths([head, *rows])
        if self._fits(widths):
            return "\n".join(self._row(cells, widths) for cells in (head, *rows))
        kept = [column for column, name in enumerate(head) if name not in below]
        texts = [column for column, index in enumerate(kept) if any(" " in cells[index] for cells in rows)]
        widths = self._narrowed([widths[column] for column in kept], texts)
        lines = []
        for cells in (head, *rows):
            lines.append(self._row([cells[column] for column in kept], widths))
            parts = [
                f"{name.lower()}: {cell}" for name, cell in zip(head, cells, strict=True) if name in below and cell
            ]
            if cells is not head and parts:
                lines += self.lines(_GAP + "; ".join(parts), hang=_GAP * 2)
        return "\n".join(lines)

    def lines(self, text: str, hang: str = _GAP) -> list[str]:
        """Return *text* in lines, of whole words: they may be paths."""
        if self.columns is None:
            return [text]
        wrapped = textwrap.wrap(
            text, self.columns, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
        )
        return wrapped or [text]

    def short(self, text: str, width: int) -> str:
        """Return *text* in *width* characters: sentences lose their end, names their middle."""
        if len(text) <= width:
            return text
        room = width - len(self.mark)
        if room < 1:
            return text[:width]
        if " " in text:
            return text[:room].rstrip() + self.mark
        start = (room + 1) // 2
        return text[:start] + self.mark + text[len(text) - (room - start) :]

    def _fits(self, widths: Sequence[int]) -> bool:
        return self.columns is None or sum(widths) + len(_GAP) * (len(widths) - 1) <= self.columns

    def _narrowed(self, widths: list[int], texts: Collection[int]) -> list[int]:
        while not self._fits(widths):
            narrowing = [column for column in texts if widths[column] > _LEAST_OF_SENTENCES] or range(len(widths))
            widest = max(narrowing, key=widths.__getitem__)
            if widths[widest] <= _LEAST:
                break
            widths[widest] -= 1
        return widths

    def _row(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        shown = (self.short(cell, width).ljust(width) for cell, width in zip(cells, widths, strict=True))
        return _GAP.join(shown).rstrip()


WHOLE = Screen()


def screen_of(stream: TextIO, environ: Mapping[str, str]) -> Screen:
    """Return the width of *stream*: its terminal's, or ``COLUMNS`` of *environ*."""
    if not stream.isatty():
        return WHOLE
    told = environ.get("COLUMNS", "")
    columns = int(told) if told.isdecimal() else os.get_terminal_size(stream.fileno()).columns
    mark = WHOLE.mark if (stream.encoding or "").lower().startswith("utf") else "..."
    return Screen(columns or _USUAL_COLUMNS, mark)


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]
