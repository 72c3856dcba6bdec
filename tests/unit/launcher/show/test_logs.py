from __future__ import annotations

import io
import tracemalloc
from pathlib import Path

import pytest
from unit.launcher.shown_logs import Logs

from oci_cluster.launcher.show.logs import MergedLogs
from oci_cluster.system.console import is_terminal, say_to_stderr

# --- Logs -----------------------------------------------------------------------------------------------------------


def test_each_line_stands_after_its_nodes_name(logs: Logs) -> None:
    """Lines of all nodes are one text, in which names are as wide as the widest; an empty line ends at its bar."""
    logs.add("MAIN", "one\n\ntwo\n")
    logs.add("WORKER_1", "three\n")
    assert logs.shown() == "MAIN     | one\nMAIN     |\nMAIN     | two\nWORKER_1 | three\n"


def test_only_what_is_new_is_shown(logs: Logs) -> None:
    """A second look shows what came since the first."""
    logs.add("MAIN", "one\n")
    first = logs.shown()
    logs.add("MAIN", "two\n")
    assert [first, logs.shown(), logs.shown()] == ["MAIN     | one\n", "MAIN     | two\n", ""]


def test_a_line_is_shown_when_it_is_whole(logs: Logs) -> None:
    """A line that was written in pieces is shown once, in one piece."""
    logs.add("MAIN", "first ha")
    looks = [logs.shown()]
    logs.add("MAIN", "lf\nnext")
    assert [*looks, logs.shown()] == ["", "MAIN     | first half\n"]


def test_a_log_that_is_not_there_yet_is_waited_for(logs: Logs) -> None:
    """A node that has printed nothing has no log, which is no failure."""
    logs.add("WORKER_1", "x\n")
    before = logs.shown()
    logs.add("MAIN", "y\n")
    assert [before, logs.shown()] == ["WORKER_1 | x\n", "MAIN     | y\n"]


def test_the_end_shows_lines_that_were_never_ended(logs: Logs) -> None:
    """What a killed node last printed is shown in the end, once."""
    logs.add("MAIN", "a\nlast words")
    assert [logs.rest(), logs.rest()] == ["MAIN     | a\nMAIN     | last words\n", ""]


def test_a_redrawn_line_is_shown_as_last_drawn(logs: Logs) -> None:
    """Of a progress bar the last drawing is the line; a Windows line end is none."""
    logs.add("MAIN", "10 %\r50 %\r100 %\nplain\r\n")
    assert logs.shown() == "MAIN     | 100 %\nMAIN     | plain\n"


def test_a_line_without_an_end_is_shown_in_pieces(logs: Logs) -> None:
    """A progress bar that never ends its line cannot grow without bound."""
    logs.add("MAIN", "x" * (1 << 16))
    within = logs.shown()
    logs.add("MAIN", "y")
    over = logs.shown()
    logs.add("MAIN", "z\n")
    assert [within, over, logs.shown()] == ["", f"MAIN     | {'x' * (1 << 16)}y\n", "MAIN     | z\n"]


@pytest.mark.parametrize("line", [b"x" * 9999 + b"\n", b"x" * 10_000], ids=["lines", "one line"])
@pytest.mark.parametrize("verb", ["copy_old", "copy_new"])
def test_a_log_larger_than_memory_is_shown(tmp_path: Path, line: bytes, verb: str) -> None:
    """20 MB of it in far less; who looks later begins with all that is there."""
    (tmp_path / "MAIN.log").write_bytes(line * 2000)

    class Nowhere:
        size = 0

        def write(self, text: str) -> None:
            self.size += len(text)

        def flush(self) -> None:
            pass

    out = Nowhere()
    merged = MergedLogs(tmp_path, ["MAIN"], out)
    tracemalloc.start()
    getattr(merged, verb)()
    merged.finish()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert out.size > 20_000_000
    assert peak < 2_000_000


def test_a_log_that_grows_fast_keeps_no_other_waiting(tmp_path: Path) -> None:
    """A look ends where the log ended when it began."""
    log = tmp_path / "MAIN.log"
    log.write_text("line\n" * 20_000)

    class Growing(io.StringIO):
        def write(self, text: str) -> int:
            if "| line" in text:
                with log.open("a") as file:
                    file.write("line\n")
            return super().write(text)

    merged = MergedLogs(tmp_path, ["MAIN"], out := Growing())
    merged.copy_new()
    assert out.getvalue().count("\n") == 20_000


def test_lines_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    """Colours stay where somebody looks at them; what a script prints presses no keys."""
    for colour, shown in ((False, "MAIN | red title\n"), (True, "\33[36mMAIN |\33[0m \33[31mred title\33[0m\n")):
        logs = Logs(tmp_path, "MAIN", colour=colour)
        (tmp_path / "MAIN.log").write_text("\33]52;c;cm0=\7\33[31mred \33[2Jtitle\n")
        assert logs.shown() == shown


def test_bytes_that_are_no_text_are_shown_as_such(logs: Logs) -> None:
    """Garbage in a log breaks nothing."""
    logs.add("MAIN", b"a\xff\xfeb\n")
    assert logs.shown() == "MAIN     | a\ufffd\ufffdb\n"


def test_a_letter_that_is_written_in_two_pieces_is_one(logs: Logs) -> None:
    """A look in the middle of a letter of several bytes does not break it."""
    logs.add("MAIN", "caf\u00e9"[:3].encode() + "\u00e9".encode()[:1])
    logs.shown()
    logs.add("MAIN", "\u00e9".encode()[1:] + b"\n")
    assert logs.shown() == "MAIN     | caf\u00e9\n"


def test_colours_belong_to_nodes(tmp_path: Path) -> None:
    """Each node's name has a colour by its place in the cluster, the sixth that of the first; the line has none."""
    names = [f"N{number}" for number in range(6)]
    logs = Logs(tmp_path, *names, colour=True)
    for name in names:
        logs.add(name, "x\n")
    colours = [36, 32, 33, 35, 34, 36]
    expected = [f"\033[{colour}m{name} |\033[0m x\n" for name, colour in zip(names, colours, strict=True)]
    assert logs.shown() == "".join(expected)


@pytest.mark.parametrize(
    ("colour", "shown"), [(True, "\033[36mMAIN |\033[0m \033[31mred\033[0m\n"), (False, "MAIN | red\n")]
)
def test_what_a_node_prints_moves_no_terminal(tmp_path: Path, shown: str, *, colour: bool) -> None:
    """Whoever looks: launch.sh and logs.sh show lines here. A whole line, and one that never ended."""
    logs = Logs(tmp_path, "MAIN", colour=colour)
    logs.add("MAIN", "\033]0;title\a\033[2J\033[31mred\a\n\033[H\033[31mred")
    assert logs.shown() + logs.rest() == shown * 2


def test_a_node_that_is_added_is_shown_from_its_beginning(tmp_path: Path) -> None:
    """What it printed before anybody looked is shown too, and names keep to one width."""
    logs = Logs(tmp_path, "MAIN")
    logs.add("MAIN", "one\n")
    logs.add("WORKER_10", "hello\n")
    before = logs.shown()
    logs.merged.add("WORKER_10")
    logs.merged.add("PS_11")
    logs.add("MAIN", "two\n")
    assert [before, logs.shown()] == ["MAIN | one\n", "MAIN      | two\nWORKER_10 | hello\n"]


def test_a_node_that_is_merged_already_stays_as_it_is(logs: Logs) -> None:
    """A replacement writes on in the log of its rank: nothing is shown twice."""
    logs.add("MAIN", "one\n")
    first = logs.shown()
    logs.merged.add("MAIN")
    logs.add("MAIN", "two\n")
    assert [first, logs.shown()] == ["MAIN     | one\n", "MAIN     | two\n"]


def test_an_added_node_has_the_next_colour(tmp_path: Path) -> None:
    """As it would have had from the beginning."""
    logs = Logs(tmp_path, "N0", "N1", colour=True)
    logs.merged.add("N2")
    logs.add("N2", "x\n")
    assert logs.shown() == "\033[33mN2 |\033[0m x\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "colour"),
    [
        (Terminal(), {}, True),
        (Terminal(), {"NO_COLOR": ""}, True),
        (Terminal(), {"NO_COLOR": "1"}, False),
        (Terminal(), {"TERM": "xterm-256color"}, True),
        (Terminal(), {"TERM": "dumb"}, False),
        (io.StringIO(), {}, False),
    ],
)
def test_colour_is_for_terminals(stream: io.StringIO, environ: dict[str, str], colour: bool) -> None:  # noqa: FBT001
    """Colour goes to terminals only, and to none that is dumb, or where NO_COLOR has a value (no-color.org)."""
    assert is_terminal(stream, environ) is colour


def test_talk_goes_to_stderr_under_the_programs_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout is for results: progress is on stderr, after the name of the script that talks."""
    say_to_stderr("launch.sh")("2 of 3 workers arrived")
    assert capsys.readouterr() == ("", "launch.sh: 2 of 3 workers arrived\n")
