"""The nodes' logs shown: while they grow, after the end, in the order of time, and the last lines alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from unit.fake_backend import FakeSignals
from unit.launcher.shown_logs import Logs, Whole

from oci_cluster.launcher.show.logs import show_logs, starts_of_tail


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
    times(tmp_path, "MAIN", (100, 4), (400, 9), (700, 15), (750, 20))
    logs.add("WORKER_1", "eight\n")
    with (tmp_path / "WORKER_1.times").open("a") as file:
        file.write("800 25\n")
    logs.add("MAIN", "\n")
    assert logs.shown().split()[2::3] == ["half", "eight"]


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
