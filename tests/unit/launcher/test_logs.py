from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.fake_backend import FakeSignals

from oci_cluster.launcher.logs import MergedLogs, show_logs, starts_of_tail
from oci_cluster.system.console import is_terminal, say_to_stderr

# --- Logs -----------------------------------------------------------------------------------------------------------


class Logs:
    """A directory of logs, and what MergedLogs shows of them."""

    def __init__(self, place: Path, *nodes: str, colour: bool = False) -> None:
        self._place = place
        self._out = io.StringIO()
        self.merged = MergedLogs(place, nodes or ("MAIN", "WORKER_1"), self._out, colour=colour)

    def add(self, node: str, text: str | bytes) -> None:
        with (self._place / f"{node}.log").open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)

    def shown(self) -> str:
        """Return what is new since the last call."""
        self.merged.copy_new()
        text = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return text

    def rest(self) -> str:
        self.merged.finish()
        return self.shown()


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path)


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
        (io.StringIO(), {}, False),
    ],
)
def test_colour_is_for_terminals(stream: io.StringIO, environ: dict[str, str], colour: bool) -> None:  # noqa: FBT001
    """Colour goes to terminals only, and to none where NO_COLOR has a value (no-color.org)."""
    assert is_terminal(stream, environ) is colour


def test_talk_goes_to_stderr_under_the_programs_name(capsys: pytest.CaptureFixture[str]) -> None:
    """Stdout is for results: progress is on stderr, after the name of the script that talks."""
    say_to_stderr("launch.sh")("2 of 3 workers arrived")
    assert capsys.readouterr() == ("", "launch.sh: 2 of 3 workers arrived\n")


# --- Showing --------------------------------------------------------------------------------------------------------


class Whole:
    """A copy of all that there is, and of what each look brings."""

    def __init__(self, directory: Path, *looks: Callable[[], object]) -> None:
        self.directory = directory
        self.calls: list[str] = []
        self._looks = iter(looks)

    def fetch(self) -> None:
        self.calls.append("fetch")
        next(self._looks, lambda: None)()

    def drain(self, pause: Callable[[], bool], say: Callable[[str], object]) -> None:
        self.calls.append("drain")
        for look in self._looks:
            say("waiting for more")
            if not pause():
                return
            look()

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def signals(clock: Any) -> FakeSignals:
    return FakeSignals(clock)


def test_logs_are_shown_while_the_cluster_runs(logs: Logs, tmp_path: Path, signals: FakeSignals) -> None:
    """Following looks again and again, and shows the rest when the cluster has ended."""
    logs.add("MAIN", "one\n")
    signals.steps = [lambda: logs.add("MAIN", "two\n"), lambda: logs.add("MAIN", "rest")]
    copy = Whole(tmp_path)
    show_logs(logs.merged, lambda: len(signals.waits) < 2, signals, copy=copy, say=print)
    assert (logs.shown(), signals.waits) == ("MAIN     | one\nMAIN     | two\nMAIN     | rest\n", [0.1, 0.1])


def test_logs_of_an_ended_cluster_are_shown_at_once(logs: Logs, tmp_path: Path, signals: FakeSignals) -> None:
    """Without following nobody waits."""
    logs.add("MAIN", "one\nrest")
    show_logs(logs.merged, lambda: False, signals, copy=Whole(tmp_path), say=print)
    assert (logs.shown(), signals.waits) == ("MAIN     | one\nMAIN     | rest\n", [])


def test_ctrl_c_ends_the_showing(logs: Logs, tmp_path: Path, signals: FakeSignals) -> None:
    """A signal ends the showing of logs while the cluster goes on."""
    signals.steps = [signals.send]
    copy = Whole(tmp_path)
    show_logs(logs.merged, lambda: True, signals, copy=copy, say=print)
    assert (signals.waits, copy.calls) == ([0.1], ["fetch", "fetch"])


def test_fetched_logs_are_shown_to_their_end(logs: Logs, tmp_path: Path, signals: FakeSignals) -> None:
    """What a last look brings is shown too; between two looks is the time that was asked for."""
    copy = Whole(tmp_path, *(lambda text=text: logs.add("MAIN", text) for text in ("one\n", "two\n", "rest")))
    show_logs(logs.merged, lambda: len(signals.waits) < 2, signals, copy=copy, say=print, poll_s=2.0)
    assert (logs.shown(), signals.waits) == ("MAIN     | one\nMAIN     | two\nMAIN     | rest\n", [2.0, 2.0])


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_what_comes_after_the_end_is_shown_too(
    logs: Logs, tmp_path: Path, signals: FakeSignals, *, is_interrupted: bool
) -> None:
    """A word says what is waited for; Ctrl-C ends the waiting, and what has come is shown all the same."""
    copy = Whole(tmp_path, *(lambda text=text: logs.add("MAIN", text) for text in ("one\n", "late\n", "later")))
    said: list[str] = []
    signals.steps = [lambda: None, signals.send if is_interrupted else lambda: None]
    show_logs(logs.merged, lambda: False, signals, copy=copy, say=said.append, poll_s=2.0)
    rest = "" if is_interrupted else "MAIN     | later\n"
    assert logs.shown() == f"MAIN     | one\nMAIN     | late\n{rest}"
    assert said == ["waiting for more"] * 2


def test_new_lines_of_several_nodes_are_in_the_order_of_time(logs: Logs, tmp_path: Path) -> None:
    """Those of one look; what has come later stays behind, and a time that comes later than its line is no loss."""
    logs.add("MAIN", "one\nfour\n")
    logs.add("WORKER_1", "two\nthree\n")
    times(tmp_path, "MAIN", (100, 4), (400, 9))
    times(tmp_path, "WORKER_1", (200, 4), (300, 10))
    assert logs.shown().split()[2::3] == ["one", "two", "three", "four"]
    logs.add("MAIN", "seven\nhalf")
    logs.add("WORKER_1", "zero\nsix\n")
    with (tmp_path / "WORKER_1.times").open("a") as file:
        file.write("50 15\n600 19\n")
    assert logs.shown().split()[2::3] == ["zero", "six", "seven"]
    times(tmp_path, "MAIN", (100, 4), (400, 9), (700, 15), (900, 20))
    logs.add("WORKER_1", "eight\n")
    with (tmp_path / "WORKER_1.times").open("a") as file:
        file.write("800 25\n")
    logs.add("MAIN", "\n")
    assert logs.shown().split()[2::3] == ["eight", "half"]


def test_a_tail_that_begins_in_a_line_begins_with_the_next(logs: Logs) -> None:
    """Lines that came late have moved the others since it was measured."""
    logs.add("MAIN", "one\ntwo\nthree\n")
    assert old(logs, {"MAIN": 5}) == ["MAIN     | three"]


# --- Order, and the last lines --------------------------------------------------------------------------------------


def old(logs: Logs, tail: dict[str, int] | None = None) -> list[str]:
    logs.merged.copy_old(tail)
    return logs.shown().splitlines()


def times(place: Path, node: str, *entries: tuple[int, int]) -> None:
    (place / f"{node}.times").write_text("".join(f"{moment} {size}\n" for moment, size in entries))


def test_old_lines_are_in_the_order_in_which_they_were_printed(logs: Logs, tmp_path: Path) -> None:
    """Of all nodes; a line has the time of its end. What came after the last time is last."""
    logs.add("MAIN", "one\nthree\nfive\nlate\n")
    logs.add("WORKER_1", "two\nfour\nsix\n")
    times(tmp_path, "MAIN", (100, 4), (300, 7), (350, 10), (500, 15))
    times(tmp_path, "WORKER_1", (200, 4), (400, 9), (600, 13))
    assert old(logs) == [
        "MAIN     | one",
        "WORKER_1 | two",
        "MAIN     | three",
        "WORKER_1 | four",
        "MAIN     | five",
        "WORKER_1 | six",
        "MAIN     | late",
    ]


def test_lines_of_one_moment_and_of_unknown_times_are_in_the_order_of_the_nodes(logs: Logs, tmp_path: Path) -> None:
    """Each node's own lines stay in their order, whatever its times say."""
    logs.add("MAIN", "a\nb\n")
    logs.add("WORKER_1", "c\nd\n")
    assert old(logs) == ["MAIN     | a", "MAIN     | b", "WORKER_1 | c", "WORKER_1 | d"]
    logs.add("MAIN", "e\n")
    logs.add("WORKER_1", "f\n")
    times(tmp_path, "MAIN", (100, 6))
    times(tmp_path, "WORKER_1", (100, 6))
    assert old(logs) == ["MAIN     | e", "WORKER_1 | f"]


def test_what_comes_after_the_old_lines_is_shown_once(logs: Logs, tmp_path: Path) -> None:
    """A line that was not whole yet is shown when it is, and a log that was not there is no failure."""
    logs.add("MAIN", "one\nha")
    times(tmp_path, "MAIN", (100, 6))
    assert old(logs) == ["MAIN     | one"]
    logs.add("MAIN", "lf\n")
    logs.add("WORKER_1", "x\n")
    assert logs.shown() == "MAIN     | half\nWORKER_1 | x\n"


@pytest.mark.parametrize("ending", ["", "\n"])
@pytest.mark.parametrize(
    ("lines", "first"), [(0, None), (1, 29_999), (2, 29_998), (25_000, 5_000), (30_000, 0), (99_999, 0)]
)
def test_the_last_lines_are_found_from_the_end(
    logs: Logs, tmp_path: Path, lines: int, first: int | None, ending: str
) -> None:
    """Of a log of several blocks; one that is not ended is a line."""
    logs.add("MAIN", "\n".join(f"line {number}" for number in range(30_000)) + ending)
    copy = Whole(tmp_path)
    starts = starts_of_tail(copy, ["MAIN", "WORKER_1"], lines)
    assert (starts["WORKER_1"], copy.calls) == (0, ["fetch", "close"])
    logs.merged.copy_old(starts)
    shown = (logs.shown() + logs.rest()).splitlines()
    assert len(shown) == min(lines, 30_000)
    assert shown[:1] == ([] if first is None else [f"MAIN     | line {first}"])


def test_logs_are_shown_from_their_tail_on(logs: Logs, tmp_path: Path, signals: FakeSignals) -> None:
    """Old lines that are wanted, and all new ones."""
    logs.add("MAIN", "one\ntwo\n")
    start = starts_of_tail(Whole(tmp_path), ["MAIN"], 1)
    signals.steps = [lambda: logs.add("MAIN", "three\n")]
    show_logs(logs.merged, lambda: len(signals.waits) < 1, signals, copy=Whole(tmp_path), say=print, tail=start)
    assert logs.shown() == "MAIN     | two\nMAIN     | three\n"
