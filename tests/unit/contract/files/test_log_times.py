"""When a node's log was written: what is noted, and what is read again."""

from __future__ import annotations

from pathlib import Path

import pytest
from noted_times import read_times

from oci_cluster.contract.files.log_times import LogTimes, StampedLog, Stamper, TimesWriter, stamp, times_file


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_each_tenth_of_a_second_has_its_size(tmp_path: Path, clock: Clock) -> None:
    """What comes sooner is noted with what comes next, under its own time; the last of all in the end."""
    path = times_file(tmp_path, "WORKER_1")
    times = TimesWriter(path, clock)
    for seconds, size in ((0, 10), (0.03, 20), (0.06, 30), (10.0, 40), (10.05, 50)):
        clock.now = 1_700_000_000 + seconds
        times.note(size)
    before = [(moment - 1_700_000_000_000, size) for moment, size in read_times(path)]
    times.close()
    assert (path.name, before) == ("WORKER_1.times", [(0, 10), (60, 30), (10_000, 40)])
    assert [size for _, size in read_times(path)] == [10, 30, 40, 50]


def test_a_log_that_never_rests_has_a_bound(tmp_path: Path, clock: Clock) -> None:
    """However often it is written, twenty entries a second are the most."""
    times = TimesWriter(tmp_path / "x", clock)
    for number in range(10_000):
        clock.now = 1_700_000_000 + number / 1000
        times.note(number)
    assert len([*read_times(tmp_path / "x")]) <= 200


def test_times_that_cannot_be_written_end_nothing(tmp_path: Path, clock: Clock) -> None:
    """The order of lines is not worth a training."""
    times = TimesWriter(tmp_path / "nowhere" / "x", clock)
    times.note(1)
    times.close()
    assert [*read_times(tmp_path / "nowhere" / "x")] == []


def test_what_is_damaged_costs_the_order_alone(tmp_path: Path) -> None:
    """Neither a clock that went back nor a file that somebody wrote makes a reader fail, or go back."""
    (tmp_path / "x").write_bytes(b"100 10\n\xff\xfe\n50 20\n-1 5\n200 5\n300 30\n9" + b"9" * 99 + b" 1\n400 4")
    times = LogTimes(tmp_path / "x")
    assert [times.of(size) for size in (10, 20, 25, 31)] == [100, 100, 300, float("inf")]


# --- Lines with their times before them ---------------------------------------------------------------------------

BEGIN = 1_700_000_000_000


def shown(place: Path, *pieces: bytes) -> tuple[bytes, dict[int, int]]:
    """Return the log that *pieces* make, and the last size at each of its times: milliseconds since BEGIN, bytes."""
    log = StampedLog(place, "MAIN")
    for piece in pieces:
        log.add(piece)
    log.flush()
    text = (place / "MAIN.log").read_bytes() if (place / "MAIN.log").exists() else b""
    return text, {moment - BEGIN: size for moment, size in read_times(times_file(place, "MAIN"))}


def test_each_line_gets_the_time_when_it_began(clock: Clock) -> None:
    """However a line comes; an empty one too."""
    stamper = Stamper(clock)
    log = stamper.add(b"one\n\ntw")
    clock.now += 0.25
    log += stamper.add(b"o") + stamper.add(b"\nthree\n") + stamper.add(b"four\n")
    first, later = b"2023-11-14T22:13:20.000Z ", b"2023-11-14T22:13:20.250Z "
    assert log == first + b"one\n" + first + b"\n" + first + b"two\n" + later + b"three\n" + later + b"four\n"


@pytest.mark.parametrize("width", [1, 7, 1000])
def test_what_was_stamped_comes_back_as_it_was(tmp_path: Path, clock: Clock, width: int) -> None:
    """In whatever pieces it travels, with its own stamps in it, and with a last line that has no end."""
    stamper = Stamper(clock)
    texts = [b"one\n", b"\xff\n\n", b"2023-11-14T22:13:20Z mine\n", b"half"]
    whole = b""
    for text in texts:
        clock.now += 0.5
        whole += stamper.add(text)
    text, times = shown(tmp_path, *(whole[at : at + width] for at in range(0, len(whole), width)))
    assert (text, times) == (b"".join(texts), {500: 4, 1000: 7, 1500: 33, 2000: 37})


def test_a_line_that_is_shown_before_its_end_goes_on(tmp_path: Path) -> None:
    """A second look finds its end, which is no line of its own; half a stamp is no line at all."""
    log = StampedLog(tmp_path, "MAIN")
    shown_after = []
    for piece in (stamp(BEGIN)[:9], stamp(BEGIN)[9:] + b"half", b" a line\n" + stamp(BEGIN + 10), b"next\n"):
        log.add(piece)
        log.flush()
        path = tmp_path / "MAIN.log"
        shown_after.append(path.read_bytes() if path.exists() else b"")
    assert shown_after == [b"", b"half", b"half a line\n", b"half a line\nnext\n"]
    assert [*read_times(times_file(tmp_path, "MAIN"))] == [(BEGIN, 4), (BEGIN, 12), (BEGIN + 10, 17)]


@pytest.mark.parametrize(
    "line",
    [
        b"2026-01-31T23:59:59.123456789Z x", b"2026-01-31T23:59:59.123Z x", b"2026-02-01T00:59:59.123+01:00 x",
        b"2026-01-31T22:59:59.1234-01:00 x",
    ],
)  # fmt: skip
def test_a_time_is_read_as_engines_write_it(tmp_path: Path, line: bytes) -> None:
    """Docker, this project, podman; whatever zone the engine is in."""
    text, times = shown(tmp_path, line + b"\n")
    assert (text, [moment + BEGIN for moment in times]) == (b"x\n", [1_769_903_999_123])


def test_the_pieces_of_a_long_line_are_one(tmp_path: Path) -> None:
    """Docker 28 has each 16 KiB after the line's time again; another time in a line is the script's."""
    mine, other = b"2026-01-31T23:59:59.123456789Z ", b"2026-01-31T23:59:59.123456780Z "
    long = b"x" * 16384 + other
    text, _ = shown(tmp_path, mine + long[:16384] + mine + long[16384:] + b"\n" + mine + b"short " + mine + b"\n")
    assert text == long + b"\nshort " + mine + b"\n"


def test_a_line_without_bound_is_not_held_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost of it, and memory does not grow with it."""
    monkeypatch.setattr("oci_cluster.contract.files.log_times._LONGEST", 100)
    log = StampedLog(tmp_path, "MAIN")
    log.add(stamp(BEGIN) + b"x" * 60)
    before = (tmp_path / "MAIN.log").exists()
    for _ in range(9):
        log.add(b"x" * 60)
        assert len(log._rest) <= 100
    log.add(b"\n" + stamp(BEGIN + 1) + b"next\n")
    text = (tmp_path / "MAIN.log").read_bytes()
    assert (before, text) == (False, b"x" * 600 + b"\nnext\n")


@pytest.mark.parametrize(
    "line",
    [
        b"no time", b"", b"2026-13-31T23:59:59Z x", b"2026-01-31T23:59:59Zx", b"0000-00-00T00:00:00Z x", b"-1 x",
        b"2026-01-31T23:59:59.1234567890Z x", b"2026-01-31T23:59:59+99:99 x", b"\x00\xff", b"x" * 100_000,
    ],
)  # fmt: skip
def test_a_line_without_a_time_is_a_line_all_the_same(tmp_path: Path, line: bytes) -> None:
    """Whoever has written it: shown as it is, when the line before it was."""
    text, times = shown(tmp_path, line + b"\n" + stamp(BEGIN) + b"one\n" + line + b"\n" + stamp(BEGIN + 5) + b"two\n")
    both = len(line) + 5
    assert text == line + b"\none\n" + line + b"\ntwo\n"
    assert times == {0: both + len(line) + 1, 5: both + len(line) + 5}


@pytest.mark.parametrize("line", [b"0001-01-01T00:00:00+23:59 x\n", b"9999-12-31T23:59:59-23:59 x\n", stamp(1 << 70)])
def test_a_time_that_cannot_be_costs_the_order_alone(tmp_path: Path, line: bytes) -> None:
    """Before Unix's first second, after the calendar's last."""
    text, times = shown(tmp_path, line + b"one\n" + stamp(BEGIN) + b"two\n")
    assert text.endswith(b"one\ntwo\n")
    assert list(times.values()) == sorted(times.values())
    assert max(times.values()) == len(text)


def test_times_that_go_back_do_not_change_the_order_of_a_nodes_lines(tmp_path: Path) -> None:
    """A clock was set."""
    text, times = shown(tmp_path, stamp(BEGIN + 9) + b"one\n" + stamp(BEGIN) + b"two\n")
    assert (text, times) == (b"one\ntwo\n", {9: 8})
