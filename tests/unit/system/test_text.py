"""Text for people."""

from __future__ import annotations

import pytest

from oci_cluster.system import text as text_module
from oci_cluster.system.text import as_words, harmless, now, printable, span


def test_the_time_is_utc_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times in files are UTC and ISO 8601."""
    gmtime = text_module.time.gmtime
    monkeypatch.setattr(text_module.time, "gmtime", lambda *_: gmtime(86400))
    assert now() == "1970-01-02T00:00:00Z"


ESC = "\x1b"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("plain text, Grüße, 日本語", "plain text, Grüße, 日本語"),
        ("a\tb", "a\tb"),
        (f"{ESC}]52;c;cm0gLXJmIC8={ESC}\\clipboard", "clipboard"),
        (f"{ESC}]0;another title\x07title", "title"),
        (f"{ESC}]8;;https://evil.example{ESC}\\a link{ESC}]8;;{ESC}\\", "a link"),
        (f"{ESC}[2J{ESC}[Hclear", "clear"),
        (f"{ESC}[1A{ESC}[2Kthe line before", "the line before"),
        (f"{ESC}cterminal's reset", "terminal's reset"),
        (f"{ESC}[?1049hother screen", "other screen"),
        (f"{ESC}[6nanswers typed for you", "answers typed for you"),
        (f"{ESC}Pq#0;2;0;0;0{ESC}\\picture", "picture"),
        (f"{ESC}(0graphics", "graphics"),
        ("\x9b2Jeight bits", "eight bits"),
        ("\x9d0;title\x9ceight bits", "eight bits"),
        ("bell\x07 back\x08\x08\x08 feed\x0c null\x00 delete\x7f", "bell back feed null delete"),
        ("user\u202enimda\u202c", "usernimda"),
        (f"cut {ESC}[3", "cut "),
        (f"cut {ESC}", "cut "),
        (f"{ESC}]0;a string without an end hides nothing", "0;a string without an end hides nothing"),
    ],
)
@pytest.mark.parametrize("colour", [True, False])
def test_a_line_of_a_log_does_nothing_to_a_terminal(line: str, shown: str, *, colour: bool) -> None:
    """Whoever prints in a cluster would else press keys for those who look."""
    assert harmless(line, colour=colour) == shown


@pytest.mark.parametrize("style", ["31", "1;4;97", "38;5;208", "38:2::255:0:0", "0", ""])
def test_colours_stay_at_a_terminal_and_end_with_the_line(style: str) -> None:
    """The next line is another node's."""
    line = f"{ESC}[{style}mred{ESC}[0m and {ESC}[32mgreen"
    assert harmless(line, colour=True) == f"{line}{ESC}[0m"
    assert harmless(line, colour=False) == "red and green"


@pytest.mark.parametrize("style", ["8", "1;8", "08;31", "31:8"])
def test_text_that_is_not_to_be_seen_is_seen(style: str) -> None:
    """It is copied with the rest."""
    assert harmless(f"{ESC}[{style}mhidden", colour=True) == "hidden"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("begun", [f"{ESC}]", f"{ESC}P", "\x9d", "\x90", f"{ESC}[3", f"{ESC}[31", "\x9b0", f"{ESC} "])
def test_a_hostile_line_takes_no_longer_than_another(begun: str) -> None:
    """Each begins something that never ends: to look for the ends of all would take hours."""
    assert ESC not in harmless(begun * 500_000, colour=True)


def test_words_of_others_are_a_short_line() -> None:
    """Of any text: reasons, details, names."""
    assert printable(f"a\r\n{ESC}[2Jb\u202e\x9b\x00c") == "a[2Jbc"
    assert (printable("x" * 501), printable("xyz", 2)) == ("x" * 500, "xy")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A=/tmp/x B=2", "A=/tmp/x B=2"),
        ("A='/my dir/x'", "'A=/my dir/x'"),
        ("A=1; rm -rf ~", "'A=1;' rm -rf '~'"),
        ("A=$(id) `id` | sh", "'A=$(id)' '`id`' '|' sh"),
        ("A='1", "'A='\"'\"'1'"),
    ],
)
def test_words_of_others_are_words_of_a_command(text: str, words: str) -> None:
    """People copy what is shown into their shell."""
    assert as_words(text) == words


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "0s"), (59.9, "59s"), (60, "1m"), (3599, "59m"), (7200, "2h"), (86400, "1d")]
)
def test_a_span_is_in_its_largest_unit(seconds: float, told: str) -> None:
    """As tables and lines of progress show it."""
    assert span(seconds) == told
