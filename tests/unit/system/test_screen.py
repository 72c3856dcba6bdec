"""Tables and sentences on terminals of all widths, and where there is none."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from oci_cluster.system.screen import WHOLE, Screen, screen_of

HEAD = ["NAME", "WHY"]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    """Cells stand under their head, two blanks apart, and no line ends in blanks."""
    shown = "A     LONG  C\nwide  x\n            z"
    assert WHOLE.table(["A", "LONG", "C"], [["wide", "x", ""], ["", "", "z"]]) == shown
    assert Screen(13).table(["A", "LONG", "C"], [["wide", "x", ""], ["", "", "z"]]) == shown


def test_sentences_give_way_before_names() -> None:
    """Then the widest column is shortened first; none becomes narrower than four characters."""
    rows = [["abcdefghijklmnopqrst", "one two three four"]]
    assert Screen(40).table(HEAD, rows).splitlines()[1] == "abcdefghijklmnopqrst  one two three four"
    assert Screen(36).table(HEAD, rows).splitlines()[1] == "abcdefghijklmnopqrst  one two three…"
    assert Screen(32).table(HEAD, rows).splitlines()[1] == "abcdefgh…nopqrst  one two three…"
    assert Screen(18).table(HEAD, rows).splitlines() == ["NAME      WHY", "abcd…rst  one two…"]
    assert Screen(1).table(HEAD, rows).splitlines() == ["NAME  WHY", "ab…t  one…"]


def test_what_may_go_below_does_so_only_where_the_terminal_is_too_narrow() -> None:
    """In words, under its own row; what is empty is left out."""
    rows = [["abcdefghij", "one two three four"], ["b", ""]]
    assert Screen(30).table(HEAD, rows, {"WHY"}) == WHOLE.table(HEAD, rows)
    assert Screen(20).table(HEAD, rows, {"WHY"}).splitlines() == [
        "NAME",
        "abcdefghij",
        "  why: one two three",
        "    four",
        "b",
    ]


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("exactly", 7, "exactly"),
        ("team-a-run-17", 9, "team…n-17"),
        ("team-a-run-17", 2, "t…"),
        ("team-a-run-17", 1, "t"),
        ("a sentence is read", 11, "a sentence…"),
        ("", 0, ""),
    ],
)
def test_a_text_is_shortened_where_it_tells_least(text: str, width: int, shown: str) -> None:
    assert Screen(80).short(text, width) == shown


def test_where_no_ellipsis_can_be_written_dots_stand() -> None:
    assert Screen(80, "...").short("team-a-run-17", 9) == "tea...-17"
    assert Screen(80, "...").short("team-a-run-17", 3) == "tea"


def test_a_sentence_goes_on_in_the_next_line_and_its_words_stay_whole() -> None:
    text = "files: /a/very/long/path and more-of-this"
    assert Screen(12).lines(text) == ["files:", "  /a/very/long/path", "  and", "  more-of-this"]
    assert WHOLE.lines(text) == [text]
    assert Screen(12).lines("") == [""]


@pytest.fixture
def terminal() -> Iterator[TextIO]:
    """Return a terminal of 100 columns."""
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    with os.fdopen(its, "w", encoding="utf-8") as stream:
        yield stream
    os.close(ours)


def test_a_terminal_tells_its_width(terminal: TextIO) -> None:
    """COLUMNS wins, as elsewhere; what is no number is not heeded."""
    assert screen_of(terminal, {}) == Screen(100)
    assert screen_of(terminal, {"COLUMNS": "60"}) == Screen(60)
    assert screen_of(terminal, {"COLUMNS": "wide"}) == Screen(100)


def test_a_terminal_that_does_not_know_its_width_has_80_columns(terminal: TextIO) -> None:
    fcntl.ioctl(terminal.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    assert screen_of(terminal, {}) == Screen(80)


def test_a_terminal_of_another_encoding_gets_dots(terminal: TextIO) -> None:
    with os.fdopen(os.dup(terminal.fileno()), "w", encoding="latin-1") as stream:
        assert screen_of(stream, {}) == Screen(100, "...")


def test_what_is_no_terminal_gets_all() -> None:
    """Also where COLUMNS is set: a file has no width."""
    assert screen_of(io.StringIO(), {"COLUMNS": "60"}) == WHOLE
